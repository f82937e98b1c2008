# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Architectures that can be built: what tells one from another, as data.

All are decoders of the same plan, and differ in what stands in it:

    h = x + [norm](attention(rotate([norm](q)), rotate([norm](k)), v) Wo)    q, k, v = norm(x) Wq, Wk, Wv [+ biases]
    y = h + [norm]((act(n Wg) * (n Wu)) Wd)                                 n = norm(h)

What is in brackets is an architecture's choice, as are the function ``act``, how positions rotate, which layers see a
window of the last keys only, and whether the table's rows are scaled. Norms divide by the root of the mean square.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class TensorRule:
    """A tensor that an architecture asks for.

    Attributes:
        name: in the file; that of a layer follows ``blk.<number>.``.
        dims: its shape by the names of `ModelConfig.sizes`, innermost last; a matrix is [outputs, inputs].
        optional: the file may lack it.
    """

    name: str
    dims: tuple[str, ...]
    optional: bool = False


@dataclass(frozen=True)
class LocalLayers:
    """Layers that see the last keys only, and rotate positions in their own way.

    Attributes:
        period: layer i is global where i + 1 is a multiple of it, else local. A file may say another number
            (``attention.sliding_window_pattern``).
        rope_base: of local layers, where the file doesn't say (``rope.freq_base_swa``). Their positions are never
            stretched, whatever the file says of the others.
    """

    period: int
    rope_base: float


REFUSED: Mapping[str, tuple[object, ...]] = {
    "activation_sparsity_scale": (0.0,),
    "altup.num_inputs": (0,),
    "attention.causal": (True,),
    "attention.clamp_kqv": (0.0,),
    "attention.indexer.head_count": (0,),
    "attention.key_length_mla": (0,),
    "attention.kv_lora_rank": (0,),
    "attention.max_alibi_bias": (0.0,),
    "attention.output_scale": (0.0, 1.0),
    "attention.q_lora_rank": (0,),
    "attention.scale": (0.0,),
    "attention.shared_kv_layers": (0,),
    "attention.sliding_window": (0,),
    "attention.temperature_length": (0,),
    "attention.temperature_scale": (0.0,),
    "attn_logit_softcapping": (0.0,),
    "embedding_length_per_layer_input": (0,),
    "embedding_scale": (0.0, 1.0),
    "expert_count": (0,),
    "expert_used_count": (0,),
    "final_logit_softcapping": (0.0,),
    "logit_scale": (0.0, 1.0),
    "nextn_predict_layers": (0,),
    "residual_scale": (0.0, 1.0),
    "rope.dimension_sections": (0,),
    "rope.scaling.alpha": (0.0, 1.0),
    "rope.scaling.attn_factor": (1.0,),
    "rope.scaling.yarn_attn_factor": (-1.0, 1.0),
    "rope.scaling.yarn_ext_factor": (-1.0, 0.0),
    "swiglu_clamp_exp": (0.0,),
    "swiglu_clamp_shexp": (0.0,),
    "swin_norm": (False,),
    "use_parallel_residual": (False,),
}
"""Keys that change what is computed in a way that is not implemented, with the values at which they change nothing.

What says something only beside other keys (numbers of experts and of their groups beside ``expert_count``,
``rope.scaling.original_context_length`` and the bounds of YaRN beside that type of scaling) isn't among them, nor is
``rope.scaling.finetuned``, which says how a model was made."""


@dataclass(frozen=True)
class Architecture:
    """What tells one architecture from another.

    Attributes:
        name: ``general.architecture``, and the prefix of its metadata keys.
        rope_style: ``interleaved`` (pairs 2i, 2i + 1) or ``half`` (pairs i, i + n/2), as the file's weights need it.
        rope_factors: the file may have factors that divide the frequencies, ``rope_freqs.weight``.
        qkv_bias: queries, keys and values have biases.
        head_norms: each head of the queries and keys is normed, before it is rotated.
        post_norms: what attention and the feed-forward network give is normed, before it is added.
        activation: the function of the gate, by the name of its operation.
        scaled_embedding: rows of the table are multiplied by sqrt(hidden).
        local: which layers see a window; None where all see all.
        wide_scale_layers: numbers of layers of the models whose attention scores are divided by sqrt(hidden / heads)
            in place of sqrt(head_dim).
    """

    name: str
    rope_style: str
    rope_factors: bool = False
    qkv_bias: bool = False
    head_norms: bool = False
    post_norms: bool = False
    activation: str = "silu"
    scaled_embedding: bool = False
    local: LocalLayers | None = None
    wide_scale_layers: frozenset[int] = field(default=frozenset())

    @property
    def is_plain(self) -> bool:
        """Whether a layer is what the block `llama_decoder_block` computes."""
        choices = (self.qkv_bias, self.head_norms, self.post_norms, self.local, self.wide_scale_layers)
        return not any(choices) and self.activation == "silu"

    @property
    def permuted_heads(self) -> bool:
        """Whether converters put the rows of queries and keys whose elements rotate together beside each other."""
        return self.rope_style == "interleaved"

    @property
    def model_tensors(self) -> tuple[TensorRule, ...]:
        """Tensors outside the layers."""
        factors = (TensorRule("rope_freqs.weight", ("rope_pairs",), optional=True),) if self.rope_factors else ()
        return (
            TensorRule("token_embd.weight", ("vocab", "hidden")),
            TensorRule("output_norm.weight", ("hidden",)),
            TensorRule("output.weight", ("vocab", "hidden"), optional=True),
            *factors,
        )

    @property
    def layer_tensors(self) -> tuple[TensorRule, ...]:
        """Tensors of each layer, in the order of use."""
        qkv = {"attn_q": "q_width", "attn_k": "kv_width", "attn_v": "kv_width"}
        rules = [TensorRule("attn_norm.weight", ("hidden",))]
        rules += [TensorRule(f"{name}.weight", (width, "hidden")) for name, width in qkv.items()]
        if self.qkv_bias:
            rules += [TensorRule(f"{name}.bias", (width,)) for name, width in qkv.items()]
        if self.head_norms:
            rules += [TensorRule(f"{name}.weight", ("head_dim",)) for name in ("attn_q_norm", "attn_k_norm")]
        rules.append(TensorRule("attn_output.weight", ("hidden", "q_width")))
        if self.post_norms:
            rules.append(TensorRule("post_attention_norm.weight", ("hidden",)))
        rules += [
            TensorRule("ffn_norm.weight", ("hidden",)),
            TensorRule("ffn_gate.weight", ("ffn", "hidden")),
            TensorRule("ffn_up.weight", ("ffn", "hidden")),
            TensorRule("ffn_down.weight", ("hidden", "ffn")),
        ]
        if self.post_norms:
            rules.append(TensorRule("post_ffw_norm.weight", ("hidden",)))
        return tuple(rules)

    @property
    def refused(self) -> dict[str, tuple[object, ...]]:
        """`REFUSED`, but for the keys that the architecture knows."""
        if self.local:
            return {key: neutral for key, neutral in REFUSED.items() if key != "attention.sliding_window"}
        return dict(REFUSED)


ARCHITECTURES: dict[str, Architecture] = {
    architecture.name: architecture
    for architecture in (
        # Converters permute the rows of Q and K of the first one to interleaved pairs, and leave those of the others.
        Architecture("llama", rope_style="interleaved", rope_factors=True),
        Architecture("qwen2", rope_style="half", qkv_bias=True),
        Architecture("qwen3", rope_style="half", head_norms=True),
        # Gemma's norms multiply by 1 + weight; converters add the 1, so files hold what the norms here multiply by.
        Architecture(
            "gemma3",
            rope_style="half",
            head_norms=True,
            post_norms=True,
            activation="gelu_approx",
            scaled_embedding=True,
            local=LocalLayers(period=6, rope_base=10000.0),
            wide_scale_layers=frozenset({62}),
        ),
    )
}
"""Architectures that can be built, by the name in the file."""


__all__ = ["ARCHITECTURES", "REFUSED", "Architecture", "LocalLayers", "TensorRule"]
