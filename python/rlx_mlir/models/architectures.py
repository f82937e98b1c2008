# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The architectures that can be built, each what tells it from the others: see `architecture`."""

from __future__ import annotations

from dataclasses import replace

from .architecture import LONG_ROPE_FACTORS, ROPE_FACTORS, Architecture, Clamped, Experts, LocalLayers

_ALL_LOCAL = LocalLayers()
_GRANITE = Architecture(
    "granite",
    rope_style="interleaved",
    rope_factors=(ROPE_FACTORS,),
    joined={"ffn_gate_up.weight": ("ffn_gate.weight", "ffn_up.weight")},
    reads=frozenset({"attention.scale", "embedding_scale", "residual_scale", "logit_scale"}),
)
_QKV = {f"attn_qkv.{kind}": (f"attn_q.{kind}", f"attn_k.{kind}", f"attn_v.{kind}") for kind in ("weight", "bias")}
_JOINED = {
    **_QKV,
    "ffn_up.weight": ("ffn_gate.weight", "ffn_up.weight"),
}
# How pairs are shared out among places in pictures: of a text, all are of the position.
_SECTIONS = frozenset({"rope.dimension_sections"})

_QWEN35 = Architecture(
    "qwen35",
    rope_style="half",
    head_norms="head",
    ffn_norm="post_attention_norm",
    gated=True,
    delta=True,
    predicts=True,
    reads=_SECTIONS,
)
_COHERE2 = Architecture(
    "cohere2",
    rope_style="interleaved",
    folder_order=True,
    layer_norms=True,
    parallel=True,
    multiplied_logits=True,
    local=LocalLayers(period=4, rotate_alone=True),
    reads=frozenset({"logit_scale"}),
)
_NEMOTRON_H = Architecture(
    "nemotron_h", rope_style="half", scans="single", gate=False, activation="relu_squared", rotates=False
)
_QWEN2 = Architecture("qwen2", rope_style="half", qkv_bias=True, local=_ALL_LOCAL)
_QWEN3 = Architecture("qwen3", rope_style="half", head_norms="head", local=_ALL_LOCAL)
_QWEN3_EXPERTS = replace(_QWEN3, name="qwen3moe", experts=Experts(normalised=True, own_width=True))

ARCHITECTURES: dict[str, Architecture] = {
    architecture.name: architecture
    for architecture in (
        # Converters permute the rows of Q and K of some to interleaved pairs, and leave those of the others.
        Architecture(
            "llama",
            rope_style="interleaved",
            rope_factors=(ROPE_FACTORS,),
            local=_ALL_LOCAL,
            possible_experts=Experts(normalised=True),
        ),
        _QWEN2,
        _QWEN3,
        _QWEN3_EXPERTS,
        # Of models with images, the language model.
        replace(_QWEN2, name="qwen2vl", reads=_SECTIONS),
        replace(_QWEN3, name="qwen3vl", reads=_SECTIONS),
        replace(_QWEN3_EXPERTS, name="qwen3vlmoe", reads=_SECTIONS),
        replace(_QWEN2, name="seed_oss", some_biases=True, local=None, ffn_norm="post_attention_norm"),
        Architecture(
            "qwen2moe",
            rope_style="half",
            qkv_bias=True,
            local=_ALL_LOCAL,
            experts=Experts(normalised=False, own_width=True, shared=True),
        ),
        Architecture("olmoe", rope_style="half", head_norms="row", experts=Experts(normalised=False)),
        # Gemma's norms multiply by 1 + weight; converters add the 1, so files hold what the norms here multiply by.
        Architecture("gemma", rope_style="half", activation="gelu_approx", scaled_embedding=True),
        Architecture(
            "gemma2",
            rope_style="half",
            post_norms=True,
            activation="gelu_approx",
            scaled_embedding=True,
            local=LocalLayers(period=2),
            wide_scale_layers=frozenset({46}),
            softcaps=(50.0, 30.0),
            reads=frozenset({"attention.scale"}),
        ),
        Architecture(
            "gemma3",
            rope_style="half",
            head_norms="head",
            post_norms=True,
            activation="gelu_approx",
            scaled_embedding=True,
            local=LocalLayers(period=6, rope_base=10000.0),
            wide_scale_layers=frozenset({62}),
            softcaps=(0.0, 0.0),
            reads=frozenset({"attention.scale"}),
        ),
        Architecture(
            "gemma3n",
            rope_style="half",
            head_norms="head",
            post_norms=True,
            activation="gelu_approx",
            scaled_embedding=True,
            local=LocalLayers(period=5, rope_base=10000.0),
            softcaps=(0.0, 30.0),
            streams=True,
        ),
        Architecture(
            "phi3",
            rope_style="half",
            rope_factors=LONG_ROPE_FACTORS,
            local=_ALL_LOCAL,
            joined=_JOINED,
        ),
        Architecture(
            "phi2",
            rope_style="half",
            layer_norms=True,
            norm_biases=True,
            qkv_bias=True,
            output_bias=True,
            head_bias=True,
            parallel=True,
            gate=False,
            ffn_biases=True,
            activation="gelu_approx",
            joined=_QKV,
        ),
        Architecture(
            "phimoe",
            rope_style="half",
            rope_factors=LONG_ROPE_FACTORS,
            layer_norms=True,
            norm_biases=True,
            rms_key=True,
            qkv_bias=True,
            output_bias=True,
            head_bias=True,
            some_biases=True,
            local=_ALL_LOCAL,
            joined=_QKV,
            experts=Experts(normalised=False, mixed=True),
        ),
        Architecture(
            "glm4",
            rope_style="interleaved",
            folder_order=True,
            qkv_bias=True,
            some_biases=True,
            post_norms=True,
            joined=_JOINED,
        ),
        Architecture(
            "lfm2",
            rope_style="half",
            head_norms="head",
            convs=True,
            renamed={"token_embd_norm.weight": "output_norm.weight"},
        ),
        Architecture("ernie4_5", rope_style="interleaved", folder_order=True),
        Architecture("hunyuan-dense", rope_style="half", head_norms="head", norms_rotated=True),
        _COHERE2,
        replace(_COHERE2, name="command-r", local=None),
        Architecture(
            "stablelm",
            rope_style="half",
            layer_norms=True,
            norm_biases=True,
            qkv_bias=True,
            some_biases=True,
        ),
        Architecture(
            "starcoder2",
            rope_style="half",
            layer_norms=True,
            norm_biases=True,
            qkv_bias=True,
            output_bias=True,
            gate=False,
            ffn_biases=True,
            activation="gelu_approx",
            local=_ALL_LOCAL,
        ),
        Architecture("smollm3", rope_style="interleaved", unrotated_period=4, local=_ALL_LOCAL),
        Architecture(  # and OLMo 3, whose files give a window
            "olmo2",
            rope_style="half",
            head_norms="row",
            pre_norms=False,
            post_norms=True,
            local=LocalLayers(period=4, stretched=False),
        ),
        Architecture(
            "exaone4",
            rope_style="half",
            rope_factors=(ROPE_FACTORS,),
            head_norms="head",
            pre_norms=False,
            post_norms=True,
            local=LocalLayers(period=4, rotate_alone=True),
        ),
        Architecture(
            "gpt-oss",
            rope_style="half",
            qkv_bias=True,
            output_bias=True,
            sinks=True,
            ffn_norm="post_attention_norm",
            local=LocalLayers(period=2),
            whole_pairs=False,
            experts=Experts(
                normalised=True,
                own_width=True,
                of_chosen=True,
                biases=True,
                clamped=Clamped(slope=1.702, limit=7.0),
            ),
        ),
        Architecture(
            "deepseek2",
            rope_style="interleaved",
            latent=True,
            possible_experts=Experts(normalised=False, own_width=True, shared_count=True, routed=True),
        ),
        _GRANITE,
        replace(
            _GRANITE,
            name="minicpm",
            rope_factors=LONG_ROPE_FACTORS,
            joined={},
            needs=("embedding_scale", "residual_scale", "logit_scale"),  # absence has had other meanings than 1
        ),
        replace(_GRANITE, name="granitemoe", joined={}, experts=Experts(normalised=True)),
        Architecture("mamba", rope_style="half", scans="all", channel_rates=True),
        Architecture(
            "jamba",
            rope_style="half",
            scans="instead",
            channel_rates=True,
            scan_norms=True,
            rotates=False,
            possible_experts=Experts(normalised=False, some=True),
        ),
        Architecture("mamba2", rope_style="half", scans="all"),
        replace(
            _GRANITE,
            name="granitehybrid",
            joined={**_GRANITE.joined, "ffn_gate_up_shexp.weight": ("ffn_gate_shexp.weight", "ffn_up_shexp.weight")},
            scans="instead",
            rotates=None,
            possible_experts=Experts(normalised=True, added=True),
        ),
        Architecture(
            "falcon-h1",
            rope_style="half",
            scans="beside",
            renamed={"ffn_norm": "ffn_norm.weight"},
            reads=frozenset({"logit_scale"}),
        ),
        _NEMOTRON_H,
        replace(
            _NEMOTRON_H,
            name="nemotron_h_moe",
            experts=Experts(normalised=True, own_width=True, added=True, routed=True, some=True, by_sigmoid=True),
            reads=frozenset({"expert_shared_count"}),  # whose width another key says
        ),
        _QWEN35,
        replace(_QWEN35, name="qwen35moe", experts=Experts(normalised=True, own_width=True, shared=True)),
        replace(_QWEN35, name="qwen3next", grouped=True, experts=Experts(normalised=True, own_width=True, shared=True)),
    )
}
"""Architectures that can be built, by the name in the file."""


__all__ = ["ARCHITECTURES"]
