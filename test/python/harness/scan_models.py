# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tiny models with selective scans, for `tiny_models` and `folders`: sizes, weights, what a converter does to them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

_SCAN = {
    "ssm.conv_kernel": 4,
    "ssm.state_size": 16,
    "ssm.group_count": 2,
    "ssm.time_step_rank": 8,
    "ssm.inner_size": 128,
}
_CHANNELS = {
    "ssm.conv_kernel": 4,
    "ssm.state_size": 8,
    "ssm.time_step_rank": 5,
    "ssm.inner_size": 128,
}
_ALONE = {
    "attention.head_count": 0,
    "attention.head_count_kv": None,
    "feed_forward_length": 0,
    "rope.freq_base": None,
}
_SCALES = {"attention.scale": 0.1, "embedding_scale": 3.0, "residual_scale": 0.5, "logit_scale": 2.0}
SIZES: dict[str, dict[str, Any]] = {
    "mamba2": {
        **_SCAN,
        **_ALONE,
        "block_count": 3,
    },
    "mamba": {**_CHANNELS, **_ALONE, "block_count": 3},
    "falcon-mamba": {**_CHANNELS, **_ALONE, "ssm.dt_b_c_rms": True},
    "jamba": {
        **_CHANNELS,
        "block_count": 4,
        "attention.head_count_kv": np.array([0, 2, 0, 0], np.int32),
        "expert_count": 4,
        "expert_used_count": 2,
    },
    "granitehybrid": {
        **_SCAN,
        **_SCALES,
        "block_count": 3,
        "ssm.group_count": 1,
        "attention.head_count_kv": np.array([0, 2, 0], np.int32),
        "rope.scaling.finetuned": False,
    },
    "granitehybrid-experts": {
        **_SCAN,
        **_SCALES,
        "block_count": 3,
        "attention.head_count_kv": np.array([0, 2, 0], np.int32),
        "rope.scaling.finetuned": True,
        "feed_forward_length": 32,
        "expert_count": 5,
        "expert_used_count": 2,
        "expert_shared_feed_forward_length": 64,
    },
    "falcon-h1": {**_SCAN, "ssm.time_step_rank": 6, "ssm.inner_size": 96},
    "nemotron_h": {
        **_SCAN,
        "block_count": 4,
        "attention.head_count_kv": np.array([0, 0, 2, 0], np.int32),
        "feed_forward_length": np.array([0, 96, 0, 0], np.int32),
        "attention.key_length": 32,
        "attention.value_length": 32,
    },
}
SIZES["nemotron_h_moe"] = {
    **SIZES["nemotron_h"],
    "feed_forward_length": np.array([0, 32, 0, 32], np.int32),
    "expert_count": 6,
    "expert_used_count": 2,
    "expert_feed_forward_length": 32,
    "expert_shared_count": 1,
    "expert_shared_feed_forward_length": 64,
    "expert_weights_norm": True,
    "expert_weights_scale": 2.5,
    "expert_group_count": 1,
}
SIZES["bamba"] = {
    **_SCAN,
    "block_count": 3,
    "ssm.group_count": 1,
    "attention.head_count_kv": np.array([0, 2, 0], np.int32),
    "rope.scaling.finetuned": True,
    "rope.dimension_count": 8,
}
NAMES = {"granitehybrid-experts": "granitehybrid", "falcon-mamba": "mamba", "bamba": "granitehybrid"}
"""What files call those that share a name."""
FAMILIES = {
    "mamba2": "mamba2",
    "mamba": "mamba",
    "falcon-mamba": "falcon_mamba",
    "jamba": "jamba",
    "granitehybrid": "granitemoehybrid",
    "granitehybrid-experts": "granitemoehybrid",
    "falcon-h1": "falcon_h1",
    "nemotron_h": "nemotron_h",
    "nemotron_h_moe": "nemotron_h",
    "bamba": "bamba",
}
"""`model_type` of their folders."""
CHANNELS = ("mamba", "falcon-mamba", "jamba")
"""Those whose states have rates of their own."""
SPARSE = {"jamba": (1, 3)}
"""The layers that have experts, where others have none."""
PERMUTED = ("granitehybrid", "granitehybrid-experts", "bamba")

#: Powers of two, which round nothing: of queries and values, keys, results of attention, rows of the first product of a
#: scan by what they are, results of scans, gates, results of networks; and of the table and logits.
_FACTORS = {"in": 0.5, "key": 2.0, "out": 0.25, "ssm_in": 2.0, "ssm": [0.5, 1.0, 2.0, 0.25, 0.5], "ssm_out": 0.5}
_FACTORS |= {"gate": 2.0, "down": 0.5, "table": 4.0, "head": 4.0}

Matrix = Callable[[str, int, int], Any]


def layer_parts(architecture: str, sizes: Mapping[str, Any], layer: int) -> tuple[bool, bool, bool]:
    """Whether a layer has a scan, attention, and a network."""
    if architecture in ("mamba2", "mamba", "falcon-mamba"):
        return True, False, False
    if architecture == "falcon-h1":
        return True, True, True
    attends = bool(sizes["attention.head_count_kv"][layer])
    if architecture.startswith("nemotron_h"):
        network = bool(sizes["feed_forward_length"][layer])
        return not attends and not network, attends, network
    return not attends, attends, True


def layer_tensors(
    architecture: str, sizes: Mapping[str, Any], layer: int, matrix: Matrix, random: np.random.Generator
) -> dict[str, Any]:
    """Random weights of a layer, without its number."""
    hidden, heads, kv_heads = sizes["embedding_length"], sizes["attention.head_count"], 2
    head_dim = sizes.get("attention.key_length", 16)
    scans, attends, network = layer_parts(architecture, sizes, layer)

    def vector(*shape: int, low: float = 0.5, high: float = 1.5) -> np.ndarray:
        return random.uniform(low, high, shape).astype(np.float32)

    found: dict[str, Any] = {"attn_norm.weight": vector(hidden)}
    matrices: dict[str, tuple[int, int]] = {}
    if scans and architecture in CHANNELS:
        own_vectors, own_matrices = _channel_scan(architecture, sizes, vector, random)
        found |= own_vectors
        matrices |= own_matrices
    elif scans:
        inner, groups, own = sizes["ssm.inner_size"], sizes["ssm.group_count"], sizes["ssm.time_step_rank"]
        channels = inner + 2 * groups * sizes["ssm.state_size"]
        matrices |= {"ssm_in": (inner + channels + own, hidden), "ssm_out": (hidden, inner)}
        taps = random.standard_normal((channels, sizes["ssm.conv_kernel"])).astype(np.float32)
        found |= {"ssm_conv1d.weight": taps / 2, "ssm_conv1d.bias": vector(channels, low=-0.3, high=0.3)}
        found |= {"ssm_dt.bias": vector(own, low=-2, high=1), "ssm_a": -vector(own, 1)}
        found |= {"ssm_d": vector(own, 1, low=-1, high=1)}
        if architecture != "falcon-h1":
            found["ssm_norm.weight"] = vector(groups, inner // groups)
    if attends:
        matrices |= {"attn_q": (heads * head_dim, hidden), "attn_output": (hidden, heads * head_dim)}
        matrices |= dict.fromkeys(("attn_k", "attn_v"), (kv_heads * head_dim, hidden))
    if network and (scans or attends):
        found["ffn_norm" if architecture == "falcon-h1" else "ffn_norm.weight"] = vector(hidden)
    width = int(np.max(sizes["feed_forward_length"]))
    words = ("up", "down") if architecture.startswith("nemotron_h") else ("gate", "up", "down")
    if architecture == "nemotron_h_moe" and network:
        found["exp_probs_b.bias"] = vector(sizes["expert_count"], low=-0.5, high=0.5)
    if network and "expert_count" in sizes and layer in SPARSE.get(architecture, (layer,)):
        count, shared = sizes["expert_count"], sizes.get("expert_shared_feed_forward_length", 0)
        matrices["ffn_gate_inp"] = (count, hidden)
        for word in words:
            n, k = (hidden, width) if word == "down" else (width, hidden)
            flat = matrix(f"ffn_{word}_exps", count * n, k)
            stacked = (*flat[:2], (count, n, k)) if isinstance(flat, tuple) else flat.reshape(count, n, k)
            found[f"ffn_{word}_exps.weight"] = stacked
            if shared:
                matrices[f"ffn_{word}_shexp"] = (hidden, shared) if word == "down" else (shared, hidden)
    elif network:
        matrices |= {f"ffn_{word}": (hidden, width) if word == "down" else (width, hidden) for word in words}
    return found | {f"{name}.weight": matrix(name, n, k) for name, (n, k) in matrices.items()}


def _channel_scan(
    architecture: str, sizes: Mapping[str, Any], vector: Callable[..., np.ndarray], random: np.random.Generator
) -> tuple[dict[str, np.ndarray], dict[str, tuple[int, int]]]:
    """Of a scan whose states have rates of their own: what is f32, and the sizes of matrices."""
    hidden, inner, rank = sizes["embedding_length"], sizes["ssm.inner_size"], sizes["ssm.time_step_rank"]
    numbers, taps = sizes["ssm.state_size"], sizes["ssm.conv_kernel"]
    found = {
        "ssm_conv1d.weight": random.standard_normal((inner, taps)).astype(np.float32) / 2,
        "ssm_conv1d.bias": vector(inner, low=-0.3, high=0.3),
        "ssm_dt.bias": vector(inner, low=-2, high=1),
        "ssm_a": -vector(inner, numbers),
        "ssm_d": vector(inner, low=-1, high=1),
    }
    if architecture == "jamba":
        found |= {f"ssm_{word}_norm.weight": vector(rank if word == "dt" else numbers) for word in ("dt", "b", "c")}
    matrices = {"ssm_in": (2 * inner, hidden), "ssm_x": (rank + 2 * numbers, inner)}
    return found, {**matrices, "ssm_dt": (inner, rank), "ssm_out": (hidden, inner)}


# Folders ------------------------------------------------------------------------------------------

_OUTSIDE = {
    "mamba2": {"token_embd.weight": "backbone.embeddings.weight", "output_norm.weight": "backbone.norm_f.weight"},
    "falcon-h1": {"output_norm.weight": "model.final_layernorm.weight"},
}
_OUTSIDE |= dict.fromkeys(("nemotron_h", "nemotron_h_moe", "mamba", "falcon-mamba"), _OUTSIDE["mamba2"])
_OUTSIDE |= dict.fromkeys(("jamba", "bamba"), _OUTSIDE["falcon-h1"])
_SCAN_WORDS = {"ssm_in": "in_proj", "ssm_conv1d": "conv1d", "ssm_norm": "norm", "ssm_out": "out_proj"}
_SCAN_WORDS |= {"ssm_x": "x_proj", **{f"ssm_{word}_norm": f"{word}_layernorm" for word in ("dt", "b", "c")}}
_BARE = {"ssm_dt.bias": "dt_bias", "ssm_d": "D"}


def folder_tensors(architecture: str, tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The tensors by the names of a folder."""
    outside = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight"}
    outside |= {"output.weight": "lm_head.weight", **_OUTSIDE.get(architecture, {})}
    backbone = architecture in ("mamba2", "mamba", "falcon-mamba", "nemotron_h", "nemotron_h_moe")
    part = "mixer" if backbone else "mamba"
    attention = "mixer" if backbone else "self_attn"
    network = "mixer" if architecture.startswith("nemotron_h") else ""
    network = "feed_forward" if architecture in ("falcon-h1", "jamba", "bamba") else network
    norms = {"attn_norm": "norm" if backbone else "input_layernorm"}
    norms["ffn_norm"] = "pre_ff_layernorm" if architecture in ("jamba", "bamba") else "post_attention_layernorm"
    found: dict[str, np.ndarray] = {}
    for name, value in tensors.items():
        if name in outside:
            found[outside[name]] = value
            continue
        _, number, own = name.split(".", 2)
        prefix = f"{'backbone' if backbone else 'model'}.layers.{number}"
        word, _, kind = own.rpartition(".")
        if own == "ffn_norm":
            found[f"{prefix}.pre_ff_layernorm.weight"] = value
        elif architecture in CHANNELS and word == "ssm_dt":
            found[f"{prefix}.{part}.dt_proj.{kind}"] = value
        elif own == "ssm_a":
            found[f"{prefix}.{part}.A_log"] = value if architecture in CHANNELS else value.reshape(-1)
        elif own in _BARE:
            found[f"{prefix}.{part}.{_BARE[own]}"] = value.reshape(-1)
        elif word == "ssm_conv1d" and kind == "weight":
            found[f"{prefix}.{part}.conv1d.weight"] = value[:, None]
        elif word == "ssm_norm":
            found[f"{prefix}.{part}.norm.weight"] = value.reshape(-1)
        elif word in _SCAN_WORDS:
            found[f"{prefix}.{part}.{_SCAN_WORDS[word]}.{kind}"] = value
        elif word in norms:
            found[f"{prefix}.{norms[word]}.weight"] = value
        elif word.startswith("attn"):
            letter = word.removeprefix("attn_")
            found[f"{prefix}.{attention}.{'o' if letter == 'output' else letter}_proj.weight"] = value
        elif own == "exp_probs_b.bias":
            found[f"{prefix}.{network}.gate.e_score_correction_bias"] = value
        elif network and word == "ffn_gate_inp":
            found[f"{prefix}.{network}.{'gate' if network == 'mixer' else 'router'}.weight"] = value
        elif network and word.endswith("_shexp"):
            own = word.removeprefix("ffn_").removesuffix("_shexp")
            found[f"{prefix}.{network}.shared_experts.{own}_proj.weight"] = value
        elif network and word.endswith("_exps"):
            own = word.removeprefix("ffn_").removesuffix("_exps")
            found |= {f"{prefix}.{network}.experts.{i}.{own}_proj.weight": each for i, each in enumerate(value)}
        elif network:
            found[f"{prefix}.{network}.{word.removeprefix('ffn_')}_proj.weight"] = value
        else:
            found |= _of_granite(tensors, name, prefix, word)
    return found


def _of_granite(tensors: Mapping[str, np.ndarray], name: str, prefix: str, word: str) -> dict[str, np.ndarray]:
    """Networks and experts, whose gates and ups are one tensor each."""
    value = tensors[name]
    if word == "ffn_gate_inp":
        return {f"{prefix}.block_sparse_moe.router.layer.weight": value}
    home = "block_sparse_moe" if word.endswith("_exps") else "shared_mlp"
    if word.startswith("ffn_down"):
        return {f"{prefix}.{home}.output_linear.weight": value}
    if word.startswith("ffn_up"):
        return {}
    both = np.concatenate([value, tensors[name.replace("ffn_gate", "ffn_up")]], axis=-2)
    return {f"{prefix}.{home}.input_linear.weight": both}


def to_file(architecture: str, sizes: Mapping[str, Any], name: str, value: np.ndarray) -> np.ndarray:
    """A tensor of the folder as a converter writes it."""
    word = name.split(".")[2] if name.startswith("blk.") else name
    if word == "ssm_a":
        return -np.exp(value.astype(np.float32))
    if word in ("ssm_d", "ssm_conv1d") or name.endswith("_norm.weight"):
        return value.astype(np.float32)
    if architecture != "falcon-h1":
        return value
    inner, width = sizes["ssm.inner_size"], sizes["ssm.group_count"] * sizes["ssm.state_size"]
    by_row = np.repeat(_FACTORS["ssm"], [inner, inner, width, width, sizes["ssm.time_step_rank"]])[:, None]
    factors: dict[str, Any] = {
        "attn_q": _FACTORS["in"],
        "attn_k": _FACTORS["in"] * _FACTORS["key"],
        "attn_v": _FACTORS["in"],
        "attn_output": _FACTORS["out"],
        "ssm_in": _FACTORS["ssm_in"] * by_row,
        "ssm_out": _FACTORS["ssm_out"],
        "ffn_gate": _FACTORS["gate"],
        "ffn_down": _FACTORS["down"],
        "token_embd.weight": _FACTORS["table"],
    }
    own: np.ndarray = (value.astype(np.float32) * factors.get(word, 1.0)).astype(np.float32)
    return own.astype(value.dtype)


def folder_config(architecture: str, sizes: Mapping[str, Any]) -> dict[str, Any]:
    """What `config.json` has else than that of other families."""
    if architecture in CHANNELS:
        return _channel_config(architecture, sizes)
    heads, size = sizes["ssm.time_step_rank"], sizes["ssm.inner_size"] // sizes["ssm.time_step_rank"]
    groups, numbers, taps = sizes["ssm.group_count"], sizes["ssm.state_size"], sizes["ssm.conv_kernel"]
    values: dict[str, Any] = {"num_key_value_heads": 2, "time_step_limit": [0.0, {"__float__": "Infinity"}]}
    if architecture == "mamba2":
        none = ("num_attention_heads", "num_key_value_heads", "intermediate_size", "max_position_embeddings")
        values |= {"num_heads": heads, "head_dim": size, "n_groups": groups, "state_size": numbers}
        return values | {"conv_kernel": taps, "layer_norm_epsilon": 1e-5, **dict.fromkeys(none)}
    if architecture.startswith("nemotron_h"):
        kinds = ["linear_attention", "mlp", "full_attention", "linear_attention"]
        if architecture == "nemotron_h_moe":
            kinds = ["linear_attention", "moe", "full_attention", "moe"]
            values |= {"n_routed_experts": sizes["expert_count"], "num_experts_per_tok": sizes["expert_used_count"]}
            values |= {"moe_intermediate_size": 32, "moe_shared_expert_intermediate_size": 64}
            values |= {"routed_scaling_factor": sizes["expert_weights_scale"], "norm_topk_prob": True}
        values |= {"layers_block_type": kinds, "mamba_num_heads": heads, "mamba_head_dim": size, "n_groups": groups}
        values |= {"ssm_state_size": numbers, "conv_kernel": taps, "layer_norm_epsilon": 1e-5}
        return values | {"intermediate_size": 96, "num_hidden_layers": None, "hidden_act": None}
    values |= {"mamba_n_heads": heads, "mamba_d_head": size, "mamba_n_groups": groups, "mamba_d_state": numbers}
    values["mamba_d_conv"] = taps
    if architecture == "bamba":
        return values | {"attn_layer_indices": [1], "partial_rotary_factor": 0.5}
    if architecture == "falcon-h1":
        values |= {"mamba_d_ssm": heads * size, "mamba_d_head": "auto", "embedding_multiplier": _FACTORS["table"]}
        values |= {"lm_head_multiplier": _FACTORS["head"], "mlp_multipliers": [_FACTORS["gate"], _FACTORS["down"]]}
        values |= {"attention_in_multiplier": _FACTORS["in"], "attention_out_multiplier": _FACTORS["out"]}
        values |= {"key_multiplier": _FACTORS["key"], "ssm_multipliers": _FACTORS["ssm"]}
        return values | {"ssm_in_multiplier": _FACTORS["ssm_in"], "ssm_out_multiplier": _FACTORS["ssm_out"]}
    values |= {"layer_types": ["mamba", "attention", "mamba"], "num_local_experts": sizes.get("expert_count", 0)}
    values |= {"num_experts_per_tok": sizes.get("expert_used_count", 0)}
    values["position_embedding_type"] = "rope" if sizes["rope.scaling.finetuned"] else "nope"
    values["shared_intermediate_size"] = sizes.get("expert_shared_feed_forward_length", sizes["feed_forward_length"])
    return values


def _channel_config(architecture: str, sizes: Mapping[str, Any]) -> dict[str, Any]:
    """Of those whose states have rates of their own."""
    rank, numbers, taps = (sizes[f"ssm.{word}"] for word in ("time_step_rank", "state_size", "conv_kernel"))
    if architecture == "jamba":
        values = {"mamba_dt_rank": rank, "mamba_d_state": numbers, "mamba_d_conv": taps, "num_key_value_heads": 2}
        values |= {"attn_layer_period": 4, "attn_layer_offset": 1, "num_experts": sizes["expert_count"]}
        return values | {"num_experts_per_tok": sizes["expert_used_count"], "head_dim": None}
    none = ("num_attention_heads", "num_key_value_heads", "intermediate_size", "max_position_embeddings", "head_dim")
    values = {"time_step_rank": rank, "state_size": numbers, "conv_kernel": taps, **dict.fromkeys(none)}
    return values | {"layer_norm_epsilon": 1e-5, "mixer_rms_eps": 1e-5}


__all__ = ["CHANNELS", "FAMILIES", "NAMES", "PERMUTED", "SIZES", "SPARSE"]
__all__ += ["folder_config", "folder_tensors", "layer_parts", "layer_tensors", "to_file"]
