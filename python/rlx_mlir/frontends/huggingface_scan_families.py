# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Families of folders whose layers have selective scans: see `huggingface_families`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from . import huggingface_scan
from .huggingface_family import ATTENTION, NO_BIASES, Family

SCAN_KEYS = {
    "heads": "mamba_n_heads",
    "size": "mamba_d_head",
    "groups": "mamba_n_groups",
    "numbers": "mamba_d_state",
    "taps": "mamba_d_conv",
}
"""What most call the sizes of scans."""

NO_SCAN_BIASES: Mapping[str, tuple[object, ...]] = {"mamba_proj_bias": (None, False)}
"""What is refused where products around scans have none."""

_FEED_FORWARD = {f"feed_forward.{word}_proj": f"ffn_{word}" for word in ("gate", "up", "down")}
"""What networks beside scans are called where they are called `feed_forward`."""

_WITHOUT_ATTENTION: Mapping[str, int] = {
    "max_position_embeddings": 1 << 20,  # there is no limit
    "num_attention_heads": 1,
    "intermediate_size": 1,
}
"""What folders of scans alone don't say."""

_EPSILON = {"layer_norm_epsilon": "attention.layer_norm_rms_epsilon"}

_MAMBA = Family(
    "mamba",
    "mamba",
    {"norm": "attn_norm", **huggingface_scan.channel_names("mixer")},
    numbers=_EPSILON,
    defaults={
        "layer_norm_epsilon": 1e-5,
        "state_size": 16,
        "conv_kernel": 4,
        "expand": 2,
        **_WITHOUT_ATTENTION,
        "tie_word_embeddings": True,
    },
    refused={"use_bias": (None, False)},
    bare=huggingface_scan.channel_bare_names("mixer"),
    scans="all",
    channel_rates=True,
    scan={
        "inner": "intermediate_size",
        "factor": "expand",
        "rank": "time_step_rank",
        "numbers": "state_size",
        "taps": "conv_kernel",
    },
)
_JAMBA = Family(
    "jamba",
    "jamba",
    {
        **ATTENTION,
        **_FEED_FORWARD,
        "feed_forward.router": "ffn_gate_inp",
        "input_layernorm": "attn_norm",
        "pre_ff_layernorm": "ffn_norm",
        **huggingface_scan.channel_names("mamba"),
    },
    defaults={
        "num_key_value_heads": 8,
        "max_position_embeddings": 262144,
        "num_experts": 16,
        "num_experts_per_tok": 2,
        "attn_layer_period": 8,
        "attn_layer_offset": 4,
        "mamba_d_state": 16,
        "mamba_d_conv": 4,
        "mamba_expand": 2,
    },
    refused=NO_SCAN_BIASES,
    bare=huggingface_scan.channel_bare_names("mamba"),
    split_experts=True,
    scans="instead",
    channel_rates=True,
    scan={"factor": "mamba_expand", "rank": "mamba_dt_rank", "numbers": "mamba_d_state", "taps": "mamba_d_conv"},
)
_MAMBA2 = Family(
    "mamba2",
    "mamba2",
    {"norm": "attn_norm", **huggingface_scan.layer_names("mixer")},
    numbers=_EPSILON,
    defaults={
        "layer_norm_epsilon": 1e-5,
        "num_heads": 128,
        "head_dim": 64,
        "n_groups": 8,
        "state_size": 128,
        "conv_kernel": 4,
        **_WITHOUT_ATTENTION,
    },
    refused={"use_bias": (None, False)},
    bare=huggingface_scan.bare_names("mixer"),
    scans="all",
    scan={
        "heads": "num_heads",
        "size": "head_dim",
        "groups": "n_groups",
        "numbers": "state_size",
        "taps": "conv_kernel",
    },
)
_FALCON_H1 = Family(
    "falcon_h1",
    "falcon-h1",
    {
        **ATTENTION,
        **_FEED_FORWARD,
        "input_layernorm": "attn_norm",
        **huggingface_scan.layer_names("mamba"),
    },
    defaults={
        "num_key_value_heads": 8,
        "rms_norm_eps": 1e-5,
        "max_position_embeddings": 8192,
        "mamba_n_heads": 128,
        "mamba_n_groups": 1,
        "mamba_d_state": 256,
        "mamba_d_conv": 4,
        "mamba_d_ssm": 1024,
    },
    refused={**NO_BIASES, **NO_SCAN_BIASES, "projectors_bias": (None, False)},
    bare={**huggingface_scan.bare_names("mamba"), "pre_ff_layernorm.weight": "ffn_norm"},
    scans="beside",
    scan={**SCAN_KEYS, "inner": "mamba_d_ssm"},
)
_NEMOTRON_H = Family(
    "nemotron_h",
    "nemotron_h",
    {
        "norm": "attn_norm",
        **huggingface_scan.layer_names("mixer"),
        **{f"mixer.{word}_proj": f"attn_{word}" for word in "qkv"},
        "mixer.o_proj": "attn_output",
        **{f"mixer.{word}_proj": f"ffn_{word}" for word in ("up", "down")},
    },
    numbers=_EPSILON,
    defaults={
        "layer_norm_epsilon": 1e-5,
        "num_key_value_heads": 8,
        "num_attention_heads": 32,
        "head_dim": 128,
        "max_position_embeddings": 4096,
        "mlp_hidden_act": "relu2",
        "mamba_num_heads": 128,
        "mamba_head_dim": 64,
        "n_groups": 8,
        "ssm_state_size": 128,
        "conv_kernel": 4,
    },
    activation="mlp_hidden_act",
    activations=("relu2",),
    refused={
        **NO_BIASES,
        **NO_SCAN_BIASES,
        "use_bias": (None, False),
        "mamba_hidden_act": (None, "silu"),
        "sliding_window": (None,),
    },
    bare=huggingface_scan.bare_names("mixer"),
    scans="single",
    scan={
        "heads": "mamba_num_heads",
        "size": "mamba_head_dim",
        "groups": "n_groups",
        "numbers": "ssm_state_size",
        "taps": "conv_kernel",
    },
)

_EXPERT_WORDS = {f"mixer.shared_experts.{word}_proj": f"ffn_{word}_shexp" for word in ("up", "down")}
_NEMOTRON_H_EXPERTS = replace(
    _NEMOTRON_H,
    architecture="nemotron_h_moe",
    layer={**_NEMOTRON_H.layer, **_EXPERT_WORDS, "mixer.gate": "ffn_gate_inp"},
    bare={**_NEMOTRON_H.bare, "mixer.gate.e_score_correction_bias": "exp_probs_b.bias"},
    numbers={
        **_NEMOTRON_H.numbers,
        "n_routed_experts": "expert_count",
        "num_experts_per_tok": "expert_used_count",
        "n_group": "expert_group_count",
        "topk_group": "expert_group_used_count",
        "norm_topk_prob": "expert_weights_norm",
        "routed_scaling_factor": "expert_weights_scale",
        "moe_intermediate_size": "expert_feed_forward_length",
        "moe_shared_expert_intermediate_size": "expert_shared_feed_forward_length",
    },
    defaults={
        **_NEMOTRON_H.defaults,
        "n_routed_experts": 8,
        "num_experts_per_tok": 2,
        "n_group": 1,
        "topk_group": 1,
        "norm_topk_prob": True,
        "routed_scaling_factor": 1.0,
        "moe_intermediate_size": 7688,
        "moe_shared_expert_intermediate_size": 7688,
        "intermediate_size": 21504,
    },
    refused={**_NEMOTRON_H.refused, "moe_latent_size": (None,)},
    split_experts=True,
)
_BAMBA = Family(
    "bamba",
    "granitehybrid",
    {
        **ATTENTION,
        **_FEED_FORWARD,
        "input_layernorm": "attn_norm",
        "pre_ff_layernorm": "ffn_norm",
        **huggingface_scan.layer_names("mamba"),
    },
    defaults={
        "num_key_value_heads": 8,
        "rms_norm_eps": 1e-5,
        "max_position_embeddings": 262144,
        "partial_rotary_factor": 0.5,
        "mamba_n_heads": 128,
        "mamba_n_groups": 1,
        "mamba_d_state": 256,
        "mamba_d_conv": 4,
    },
    refused={**NO_BIASES, **NO_SCAN_BIASES},
    bare=huggingface_scan.bare_names("mamba"),
    scans="instead",
    indices=True,
    scan=SCAN_KEYS,
)
SCANNING = (
    _MAMBA,
    replace(
        _MAMBA,
        name="falcon_mamba",
        defaults={**_MAMBA.defaults, "mixer_rms_eps": 1e-6},
        scan={**_MAMBA.scan, "norms": "mixer_rms_eps"},
    ),
    _JAMBA,
    _MAMBA2,
    _FALCON_H1,
    _BAMBA,
    replace(_NEMOTRON_H, with_experts=_NEMOTRON_H_EXPERTS),
)
"""Those that no other family is made of."""


__all__ = ["NO_SCAN_BIASES", "SCANNING", "SCAN_KEYS"]
