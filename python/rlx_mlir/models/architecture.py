# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Architectures that can be built: what tells one from another, as data.

All are decoders of the same plan, and differ in what stands in it:

    h = x + s [norm](attention(rotate([norm](q)), rotate([norm](k)), v) Wo)  q, k, v = [norm](x) Wq, Wk, Wv [+ biases]
    y = h + s [norm]((act(n Wg) * (n Wu)) Wd)                               n = [norm](h)

What is in brackets is an architecture's choice, as are the function ``act``, how positions rotate and in which layers,
which layers see a window of the last keys only, whether softmax has a sink, what scores, sums, rows of the table and
logits are multiplied by, whether keys and values are products with a token or with a latent that is made of it, and
whether the second line is one network or some of many that a router chooses; and in some layers a state of one size
stands in the place of attention (`delta`). Norms divide by the root of the mean square, in some after the mean was
subtracted. In some the second line reads what the first one does, and both are added to x; and in some its network has
no gate, and is (act(n Wu)) Wd.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property


@dataclass(frozen=True)
class TensorRule:
    """A tensor that an architecture asks for.

    Attributes:
        name: in the file; that of a layer follows ``blk.<number>.``.
        dims: its shape by the names of `ModelConfig.sizes`, innermost last; a matrix is [outputs, inputs].
        optional: the file may lack it.
        dense: it is f32.
    """

    name: str
    dims: tuple[str, ...]
    optional: bool = False
    dense: bool = False


@dataclass(frozen=True)
class LocalLayers:
    """Layers that see the last keys only, where the file gives a window.

    Attributes:
        period: layer i is global where i + 1 is a multiple of it, else local; 0 where all are local. A file may say
            another number, or for each layer whether it is local (``attention.sliding_window_pattern``).
        rope_base: of local layers, where the file doesn't say (``rope.freq_base_swa``); then their positions are never
            stretched, whatever the file says of the others. None where they rotate as the others do.
        stretched: where there is no `rope_base`, positions of local layers are stretched as those of the others; else
            they rotate by the same base, and are never stretched.
        rotate_alone: where the file gives a window, the other layers don't rotate.
    """

    period: int = 0
    rope_base: float | None = None
    stretched: bool = True
    rotate_alone: bool = False


@dataclass(frozen=True)
class Clamped:
    """How gate g and up u are joined where both are bounded: (u + 1) g sigmoid(slope g).

    Attributes:
        slope: of the gate's sigmoid.
        limit: g is at most it, and u lies between it and its negative.
    """

    slope: float
    limit: float


@dataclass(frozen=True)
class Experts:
    """Feed-forward networks of which a router gives each token its own few, weighted by softmax.

    Attributes:
        normalised: the weights of those that were chosen are divided by their sum, unless a file says otherwise
            (``expert_weights_norm``).
        own_width: the file says how wide they are inside (``expert_feed_forward_length``); otherwise it is what it says
            of single networks.
        shared: every token has one more network, whose result is multiplied by the sigmoid of a product with the token.
        added: every token has one more network, whose result is added as it is.
        of_chosen: scores choose, and softmax is of those that were chosen alone. That is what `normalised` weights are
            but for rounding, and but for scores so far apart that softmax of all makes some 0.
        biases: the router's scores, and each product of an expert, have biases.
        clamped: how gate and up are joined, where that isn't by the architecture's ``activation``.
        shared_count: in place of that, the file says of how many experts' width it is (``expert_shared_count``), and
            its result is added as it is.
        routed: the file says how experts are chosen (`routing.Routing`), and how many of the first layers have one
            network in place of experts (``leading_dense_block_count``).
        some: layers without a router have one network in place of experts.
        by_sigmoid: scores are sigmoids where a file doesn't say what they are.
        mixed: each of two weights is that of a softmax among scores near its own, see `routing.Routing`.
    """

    normalised: bool
    own_width: bool = False
    shared: bool = False
    added: bool = False
    of_chosen: bool = False
    biases: bool = False
    clamped: Clamped | None = None
    shared_count: bool = False
    routed: bool = False
    some: bool = False
    by_sigmoid: bool = False
    mixed: bool = False


REFUSED: Mapping[str, tuple[object, ...]] = {
    "activation_sparsity_scale": (0.0,),
    "altup.active_idx": (0,),
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
    "rope.scaling.yarn_attn_factor": (-1.0, 1.0),
    "rope.scaling.yarn_log_multiplier": (0.0,),
    "swiglu_clamp_exp": (0.0,),
    "swiglu_clamp_shexp": (0.0,),
    "swin_norm": (False,),
    "use_parallel_residual": (False,),
}
"""Keys that change what is computed in a way that is not implemented, with the values at which they change nothing.

What says something only beside other keys (``rope.scaling.original_context_length`` and the bounds of YaRN beside that
type of scaling) isn't among them, nor is ``rope.scaling.finetuned``, which says how a model was made."""


REFUSED_OF_EXPERTS: Mapping[str, tuple[object, ...]] = {
    "expert_gating_func": (0, 1),
    "expert_group_count": (0, 1),
    "expert_shared_count": (0,),
    "expert_shared_feed_forward_length": (0,),
    "expert_weights_scale": (0.0, 1.0),
    "leading_dense_block_count": (0,),
}
"""Likewise, where there are experts."""

_OF_LATENTS = (
    "attention.kv_lora_rank",
    "attention.q_lora_rank",
    "attention.key_length_mla",
    "rope.scaling.yarn_log_multiplier",
)
_OF_STREAMS = (
    "activation_sparsity_scale",
    "altup.num_inputs",
    "attention.shared_kv_layers",
    "embedding_length_per_layer_input",
)
_PREDICTED = "nextn_predict_layers"
_OF_ROUTING = ("expert_gating_func", "expert_group_count", "expert_weights_scale", "leading_dense_block_count")


@dataclass(frozen=True)
class Architecture:
    """What tells one architecture from another.

    Attributes:
        name: ``general.architecture``, and the prefix of its metadata keys.
        rope_style: ``interleaved`` (pairs 2i, 2i + 1) or ``half`` (pairs i, i + n/2), as the weights of GGUF files need
            it; those of folders need ``half``.
        rope_factors: tensors that divide the frequencies, each of which the file may have: `ROPE_FACTORS`, or
            `LONG_ROPE_FACTORS` for sequences up to the context that a model was made for, and longer ones.
        qkv_bias: queries, keys and values have biases.
        some_biases: a file may lack these.
        output_bias: so has the product behind attention.
        sinks: softmax has one more score, without a value, in each query head.
        head_norms: queries and keys are normed before they are rotated: ``head``, each head, or ``row``, all heads at
            once; empty where they aren't.
        norms_rotated: they are normed after that.
        folder_order: rows of queries and keys are in the order of folders, whatever `rope_style` is.
        needs: keys that a file must have, beside those that all must.
        layer_norms: norms subtract the mean first.
        rms_key: files have what is added under their roots by the key of norms that don't.
        head_bias: the output matrix has a bias.
        norm_biases: something is added behind them.
        parallel: attention and the feed-forward network read the same, and both are added to what the layer reads.
        gate: the feed-forward network has one.
        ffn_biases: its products have biases.
        multiplied_logits: logits are multiplied by what files call their scale, not divided.
        pre_norms: what attention and the feed-forward network read is normed.
        ffn_norm: what files call the norm of what the feed-forward network reads.
        post_norms: what they give is normed, before it is added.
        activation: the function of the gate, by the name of its operation.
        scaled_embedding: rows of the table are multiplied by sqrt(hidden).
        local: which layers see a window, where the file gives one; None where none can.
        wide_scale_layers: numbers of layers of the models whose attention scores are divided by sqrt(hidden / heads)
            in place of sqrt(head_dim).
        unrotated_period: layer i doesn't rotate queries and keys where i + 1 is a multiple of it; 0 where all do.
        whole_pairs: the bounds between which YaRN stretches in part are whole pairs; no key of GGUF files says so.
        experts: what the feed-forward networks are, where they are experts.
        possible_experts: what they are where the file has some (``expert_count``).
        joined: tensors that hold the rows of several ones of `layer_tensors`, which a file may have in their place.
        softcaps: scores of attention, and logits, are c tanh(x / c) for these c where the file doesn't say
            (``attn_logit_softcapping``, ``final_logit_softcapping``); None where neither is.
        latent: keys and values are made of a latent, see `latent.Latent`.
        short_queries: queries are, too.
        gated: a query head has a gate behind it, by whose sigmoid its result is multiplied.
        delta: most layers have a gated delta rule in place of attention, see `delta.Delta`.
        grouped: in such layers heads of values that share a head of keys are beside each other, and one product gives
            strengths and decays, of one head of keys after another.
        convs: layers without heads of keys and values have a short convolution, see `short_conv`.
        scans: where layers have a selective scan, see `scan.Scan`: ``all``, every layer is one and nothing else;
            ``instead``, layers without heads of keys and values have one in place of attention; ``beside``, all have
            one and attention, whose results are added; ``single``, a layer is a scan, attention, or a feed-forward
            network; empty where none is.
        channel_rates: their states have a rate for each number, and their steps are those of channels, see
            `channel_scan.ChannelScan`.
        scan_norms: what such scans make of a token is normed, with weights.
        rotates: queries and keys rotate; None where a file says so (``rope.scaling.finetuned``), and they don't where
            it doesn't.
        renamed: what files call some tensors, of layers or outside of them, that have another name here.
        streams: layers change several streams, see `streams.Streams`, and scores aren't multiplied.
        recurs: the rules of tensors are those of such a layer.
        predicts: files may have a layer that predicts the token after the next one, see `prediction`.
        reads: keys, of those in `REFUSED`, that the architecture has a meaning for.
    """

    name: str
    rope_style: str
    rope_factors: tuple[str, ...] = ()
    qkv_bias: bool = False
    some_biases: bool = False
    output_bias: bool = False
    sinks: bool = False
    head_norms: str = ""
    norms_rotated: bool = False
    folder_order: bool = False
    needs: tuple[str, ...] = ()
    layer_norms: bool = False
    rms_key: bool = False
    head_bias: bool = False
    norm_biases: bool = False
    parallel: bool = False
    gate: bool = True
    ffn_biases: bool = False
    multiplied_logits: bool = False
    pre_norms: bool = True
    ffn_norm: str = "ffn_norm"
    post_norms: bool = False
    activation: str = "silu"
    scaled_embedding: bool = False
    local: LocalLayers | None = None
    wide_scale_layers: frozenset[int] = frozenset()
    unrotated_period: int = 0
    whole_pairs: bool = True
    experts: Experts | None = None
    possible_experts: Experts | None = None
    joined: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    softcaps: tuple[float, float] | None = None
    latent: bool = False
    short_queries: bool = False
    gated: bool = False
    delta: bool = False
    grouped: bool = False
    convs: bool = False
    scans: str = ""
    channel_rates: bool = False
    scan_norms: bool = False
    rotates: bool | None = True
    renamed: Mapping[str, str] = field(default_factory=dict)
    streams: bool = False
    recurs: bool = False
    predicts: bool = False
    reads: frozenset[str] = frozenset()

    @cached_property
    def with_experts(self) -> Architecture:
        """The architecture of files that have experts."""
        return self if self.possible_experts is None else replace(self, experts=self.possible_experts)

    @cached_property
    def with_short_queries(self) -> Architecture:
        """The architecture of files whose queries are made of a short vector."""
        return replace(self, short_queries=True)

    @cached_property
    def without_experts(self) -> Architecture:
        """That of layers that have one network in place of experts."""
        return replace(self, experts=None)

    def tensors_of(self, *, recurs: bool, attends: bool, network: bool) -> tuple[TensorRule, ...]:
        """Tensors of a layer that has a state, has attention, and has a feed-forward network behind these, or not."""
        own = replace(self, recurs=recurs)
        if not self.scans:
            return own.layer_tensors
        rules = self._norm("attn_norm")
        rules += self._of_scans if recurs else []
        rules += self._of_heads if attends else []
        if network and (recurs or attends):
            rules += self._norm(self.ffn_norm)
        return (*rules, *(self._feed_forward if network else ()))

    @property
    def prediction_tensors(self) -> tuple[TensorRule, ...]:
        """Tensors of the layer that predicts further ahead, beside those that it has as another one."""
        return (
            TensorRule("nextn.enorm.weight", ("hidden",)),
            TensorRule("nextn.hnorm.weight", ("hidden",)),
            TensorRule("nextn.eh_proj.weight", ("hidden", "both_hidden")),
            TensorRule("nextn.shared_head_norm.weight", ("hidden",), optional=True),
        )

    @property
    def model_tensors(self) -> tuple[TensorRule, ...]:
        """Tensors outside the layers."""
        return (
            TensorRule("token_embd.weight", ("vocab", "hidden")),
            *self._norm("output_norm"),
            TensorRule("output.weight", ("vocab", "hidden"), optional=True),
            *([TensorRule("output.bias", ("vocab",), optional=self.some_biases)] if self.head_bias else ()),
            *(TensorRule(name, ("rope_pairs",), optional=True) for name in self.rope_factors),
            *(self._around_streams if self.streams else ()),
        )

    @property
    def layer_tensors(self) -> tuple[TensorRule, ...]:
        """Tensors of each layer, in the order of use."""
        rules = self._norm("attn_norm") if self.pre_norms else []
        recurrent = self._of_convs if self.convs else self._of_deltas
        rules += recurrent if self.recurs else self._of_latents if self.latent else self._of_heads
        if self.post_norms:
            rules.append(TensorRule("post_attention_norm.weight", ("hidden",)))
        if self.pre_norms and not self.parallel:
            rules += self._norm(self.ffn_norm)
        rules += self._feed_forward
        if self.post_norms:
            rules.append(TensorRule("post_ffw_norm.weight", ("hidden",)))
        return (*rules, *self._of_streams) if self.streams else tuple(rules)

    @property
    def _around_streams(self) -> tuple[TensorRule, ...]:
        """Tensors outside of layers that make several streams of one, and one of them."""
        return (
            TensorRule("altup_proj.weight", ("other_streams", "hidden", "hidden")),
            TensorRule("altup_unembd_proj.weight", ("other_streams", "hidden", "hidden")),
            TensorRule("per_layer_token_embd.weight", ("extra_vocab", "all_extra")),
            TensorRule("per_layer_model_proj.weight", ("all_extra", "hidden")),
            TensorRule("per_layer_proj_norm.weight", ("extra",)),
        )

    @property
    def _of_streams(self) -> tuple[TensorRule, ...]:
        """Tensors of a layer beside attention and the network."""
        return (
            TensorRule("altup_router.weight", ("streams", "hidden")),
            TensorRule("altup_router_norm.weight", ("hidden",)),
            TensorRule("altup_predict_coef.weight", ("stream_pairs", "streams")),
            TensorRule("altup_correct_coef.weight", ("streams", "streams")),
            TensorRule("altup_correct_scale.weight", ("hidden",)),
            TensorRule("laurel_l.weight", ("low_rank", "hidden")),
            TensorRule("laurel_r.weight", ("hidden", "low_rank")),
            TensorRule("laurel_post_norm.weight", ("hidden",)),
            TensorRule("inp_gate.weight", ("extra", "hidden")),
            TensorRule("proj.weight", ("hidden", "extra")),
            TensorRule("post_norm.weight", ("hidden",)),
        )

    def _norm(self, name: str) -> list[TensorRule]:
        """Tensors of the norm of what a layer reads."""
        words = ("weight", "bias") if self.norm_biases else ("weight",)
        return [TensorRule(f"{name}.{word}", ("hidden",)) for word in words]

    @property
    def _of_heads(self) -> list[TensorRule]:
        """Tensors of attention, but for norms around it."""
        rules = []
        qkv = {"attn_q": "gated_queries" if self.gated else "q_width", "attn_k": "kv_width", "attn_v": "kv_width"}
        rules += [TensorRule(f"{name}.weight", (width, "hidden")) for name, width in qkv.items()]
        if self.qkv_bias:
            rules += [TensorRule(f"{name}.bias", (width,), optional=self.some_biases) for name, width in qkv.items()]
        if self.head_norms:
            widths = ("q_width", "kv_width") if self.head_norms == "row" else ("head_dim", "head_dim")
            names = ("attn_q_norm", "attn_k_norm")
            rules += [TensorRule(f"{name}.weight", (width,)) for name, width in zip(names, widths, strict=True)]
        if self.sinks:
            rules.append(TensorRule("attn_sinks.weight", ("heads",)))
        rules.append(TensorRule("attn_output.weight", ("hidden", "q_width")))
        if self.output_bias:
            rules.append(TensorRule("attn_output.bias", ("hidden",), optional=self.some_biases))
        return rules

    @property
    def _of_deltas(self) -> list[TensorRule]:
        """Likewise, of a gated delta rule."""
        steps = [TensorRule(f"ssm_{word}.weight", ("delta_heads", "hidden")) for word in ("beta", "alpha")]
        return [
            TensorRule("attn_qkv.weight", ("delta_channels", "hidden")),
            TensorRule("attn_gate.weight", ("delta_values", "hidden")),
            *([TensorRule("ssm_ba.weight", ("delta_steps", "hidden"))] if self.grouped else steps),
            TensorRule("ssm_dt.bias", ("delta_heads",)),
            TensorRule("ssm_a", ("delta_heads",)),
            TensorRule("ssm_conv1d.weight", ("delta_channels", "taps"), dense=True),
            TensorRule("ssm_norm.weight", ("delta_size",)),
            TensorRule("ssm_out.weight", ("hidden", "delta_values")),
        ]

    @property
    def _of_convs(self) -> list[TensorRule]:
        """Likewise, of a short convolution."""
        return [
            TensorRule("shortconv.in_proj.weight", ("conv_inputs", "hidden")),
            TensorRule("shortconv.conv.weight", ("hidden", "taps"), dense=True),
            TensorRule("shortconv.out_proj.weight", ("hidden", "hidden")),
        ]

    @property
    def _of_scans(self) -> list[TensorRule]:
        """Likewise, of a selective scan."""
        if self.channel_rates:
            return self._of_channel_scans
        return [
            TensorRule("ssm_in.weight", ("scan_inputs", "hidden")),
            TensorRule("ssm_conv1d.weight", ("scan_channels", "taps"), dense=True),
            TensorRule("ssm_conv1d.bias", ("scan_channels",), optional=True),
            TensorRule("ssm_dt.bias", ("scan_heads",)),
            TensorRule("ssm_a", ("scan_heads", "one"), dense=True),
            TensorRule("ssm_d", ("scan_heads", "one"), dense=True),
            TensorRule("ssm_norm.weight", ("scan_groups", "scan_group"), optional=True, dense=True),
            TensorRule("ssm_out.weight", ("hidden", "scan_inner")),
        ]

    @property
    def _of_channel_scans(self) -> list[TensorRule]:
        """Likewise, of one with a rate for each number of a state."""
        normed = {"dt": "scan_rank", "b": "scan_numbers", "c": "scan_numbers"} if self.scan_norms else {}
        return [
            TensorRule("ssm_in.weight", ("scan_inputs", "hidden")),
            TensorRule("ssm_conv1d.weight", ("scan_inner", "taps"), dense=True),
            TensorRule("ssm_conv1d.bias", ("scan_inner",), optional=True),
            TensorRule("ssm_x.weight", ("scan_made", "scan_inner")),
            *(TensorRule(f"ssm_{word}_norm.weight", (size,)) for word, size in normed.items()),
            TensorRule("ssm_dt.weight", ("scan_inner", "scan_rank")),
            TensorRule("ssm_dt.bias", ("scan_inner",)),
            TensorRule("ssm_a", ("scan_inner", "scan_numbers"), dense=True),
            TensorRule("ssm_d", ("scan_inner",)),
            TensorRule("ssm_out.weight", ("hidden", "scan_inner")),
        ]

    @property
    def _of_latents(self) -> list[TensorRule]:
        """Likewise, where keys and values are made of a latent; those of `attn_k_b` are transposed, for each head."""
        rules = [TensorRule("attn_q.weight", ("latent_queries", "hidden"))]
        if self.short_queries:
            rules = [
                TensorRule("attn_q_a.weight", ("query_rank", "hidden")),
                TensorRule("attn_q_a_norm.weight", ("query_rank",)),
                TensorRule("attn_q_b.weight", ("latent_queries", "query_rank")),
            ]
        return [
            *rules,
            TensorRule("attn_kv_a_mqa.weight", ("latent_row", "hidden")),
            TensorRule("attn_kv_a_norm.weight", ("rank",)),
            TensorRule("attn_k_b.weight", ("heads", "rank", "plain")),
            TensorRule("attn_v_b.weight", ("heads", "value", "rank")),
            TensorRule("attn_output.weight", ("hidden", "latent_values")),
        ]

    @property
    def _feed_forward(self) -> tuple[TensorRule, ...]:
        if not self.experts:
            own = self._network("", "ffn")
            widths = {"gate": "ffn", "up": "ffn", "down": "hidden"}
            biases = (TensorRule(f"{name}.bias", (widths[name[4:]],)) for name in (rule.name[:-7] for rule in own))
            return (*own, *biases) if self.ffn_biases else own
        rules: tuple[TensorRule, ...] = (TensorRule("ffn_gate_inp.weight", ("experts", "hidden")),)
        rules += self._network("_exps", "expert_ffn", "experts")
        if self.experts.biases:
            widths = {"gate": "expert_ffn", "up": "expert_ffn", "down": "hidden"}
            rules += (TensorRule("ffn_gate_inp.bias", ("experts",)),)
            rules += tuple(TensorRule(f"ffn_{word}_exps.bias", ("experts", width)) for word, width in widths.items())
        if self.experts.routed:
            rules += (TensorRule("exp_probs_b.bias", ("experts",), optional=True),)
        if self.experts.shared:
            rules += (TensorRule("ffn_gate_inp_shexp.weight", ("hidden",)),)
        if self.experts.shared or self.experts.added or self.experts.shared_count:
            rules += self._network("_shexp", "shared_ffn")
        return rules

    def _network(self, suffix: str, width: str, *outer: str) -> tuple[TensorRule, ...]:
        """The matrices of a network that is so wide inside, or of several."""
        own = (
            TensorRule(f"ffn_gate{suffix}.weight", (*outer, width, "hidden")),
            TensorRule(f"ffn_up{suffix}.weight", (*outer, width, "hidden")),
            TensorRule(f"ffn_down{suffix}.weight", (*outer, "hidden", width)),
        )
        return own if self.gate else own[1:]

    @property
    def eps_key(self) -> str:
        """What is added under the root of norms, by its key."""
        return f"attention.layer_norm{'' if self.layer_norms and not self.rms_key else '_rms'}_epsilon"

    @property
    def refused(self) -> dict[str, tuple[object, ...]]:
        """`REFUSED`, and `REFUSED_OF_EXPERTS` where it has some, but for the keys that the architecture knows."""
        known = set(self.reads)
        if self.local:
            known.add("attention.sliding_window")
        if self.softcaps:
            known |= {"attn_logit_softcapping", "final_logit_softcapping"}
        if self.latent:
            known |= set(_OF_LATENTS)
        if self.streams:
            known |= set(_OF_STREAMS)
        if self.predicts:
            known.add(_PREDICTED)
        if self.possible_experts:
            known.add("expert_count")
        if self.experts:
            known |= {"expert_count", "expert_used_count"}
            if self.experts.shared or self.experts.added:
                known.add("expert_shared_feed_forward_length")
            if self.experts.shared_count:
                known.add("expert_shared_count")
            if self.experts.routed:
                known |= set(_OF_ROUTING)
        asked = {**REFUSED, **(REFUSED_OF_EXPERTS if self.experts else {})}
        if self.experts and self.experts.of_chosen:
            asked |= {"expert_gating_func": (0, 3), "expert_weights_norm": (True,)}
        return {key: neutral for key, neutral in asked.items() if key not in known}


ROPE_FACTORS = "rope_freqs.weight"
LONG_ROPE_FACTORS = ("rope_factors_short.weight", "rope_factors_long.weight")

__all__ = [
    "LONG_ROPE_FACTORS",
    "REFUSED",
    "REFUSED_OF_EXPERTS",
    "ROPE_FACTORS",
    "Architecture",
    "Clamped",
    "Experts",
    "LocalLayers",
    "TensorRule",
]
