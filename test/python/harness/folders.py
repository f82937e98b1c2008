# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The tiny models of `tiny_models` as folders of Hugging Face's libraries, and the same weights as GGUF files.

What a converter does is written down here once more, the other way round: names, the order of the rows of queries and
keys, norms that multiply by 1 + weight, experts that lie apart.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import scan_models
import stream_models
import tiny_models

from rlx_mlir.frontends.gguf import write_gguf
from rlx_mlir.frontends.safetensors_writer import write_safetensors

DTYPES = {"f32": np.dtype(np.float32), "f16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16)}
FAMILIES = {
    "llama": "llama",
    "qwen2": "qwen2",
    "qwen3": "qwen3",
    "qwen3moe": "qwen3_moe",
    "gemma": "gemma",
    "gemma2": "gemma2",
    "gemma3": "gemma3_text",
    "gemma3n": "gemma3n_text",
    "phi3": "phi3",
    "smollm3": "smollm3",
    "olmo2": "olmo2",
    "granite": "granite",
    "mixtral": "mixtral",
    "qwen2moe": "qwen2_moe",
    "olmoe": "olmoe",
    "granitemoe": "granitemoe",
    "gpt-oss": "gpt_oss",
    "deepseek2": "deepseek_v2",
    "deepseek3": "deepseek_v3",
    "qwen35": "qwen3_5_text",
    "qwen35moe": "qwen3_5_moe_text",
    "qwen3next": "qwen3_next",
    "qwen3vl": "qwen3_vl",
    "qwen3vlmoe": "qwen3_vl_moe",
    "seed_oss": "seed_oss",
    "glm4": "glm4",
    "ernie4_5": "ernie4_5",
    "hunyuan-dense": "hunyuan_v1_dense",
    "olmo3": "olmo3",
    "exaone4": "exaone4",
    "minicpm": "minicpm",
    "lfm2": "lfm2",
    "cohere2": "cohere2",
    "command-r": "cohere",
    "stablelm": "stablelm",
    "starcoder2": "starcoder2",
    "phi2": "phi",
    "phimoe": "phimoe",
    **scan_models.FAMILIES,
}
"""`model_type` by the name of the architecture in GGUF files."""
PERMUTED = ("llama", "smollm3", "granite", "mixtral", "granitemoe", "minicpm", *scan_models.PERMUTED)
"""Architectures whose GGUF files have the rows that rotate together beside each other."""

_NAMES = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_qkv": "self_attn.qkv_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "ffn_gate_inp": "mlp.gate",
    "post_attention_norm": "post_attention_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
    "ffn_gate_shexp": "mlp.shared_expert.gate_proj",
    "ffn_up_shexp": "mlp.shared_expert.up_proj",
    "ffn_down_shexp": "mlp.shared_expert.down_proj",
    "ffn_gate_inp_shexp": "mlp.shared_expert_gate",
}
_DELTA = {
    "attn_qkv": "linear_attn.in_proj_qkv",
    "attn_gate": "linear_attn.in_proj_z",
    "ssm_beta": "linear_attn.in_proj_b",
    "ssm_alpha": "linear_attn.in_proj_a",
    "ssm_ba": "linear_attn.in_proj_ba",
    "ssm_conv1d": "linear_attn.conv1d",
    "ssm_norm": "linear_attn.norm",
    "ssm_out": "linear_attn.out_proj",
    "post_attention_norm": "post_attention_layernorm",
}
_DELTAS = ("qwen35", "qwen35moe", "qwen3next")
_LFM2 = {
    "attn_norm": "operator_norm",
    "ffn_norm": "ffn_norm",
    "attn_output": "self_attn.out_proj",
    "attn_q_norm": "self_attn.q_layernorm",
    "attn_k_norm": "self_attn.k_layernorm",
    "ffn_gate": "feed_forward.w1",
    "ffn_up": "feed_forward.w3",
    "ffn_down": "feed_forward.w2",
}
_AHEAD = {"eh_proj": "fc", "enorm": "pre_fc_norm_embedding", "hnorm": "pre_fc_norm_hidden", "shared_head_norm": "norm"}
_DEEPSEEK = {
    "attn_q_a": "self_attn.q_a_proj",
    "attn_q_a_norm": "self_attn.q_a_layernorm",
    "attn_q_b": "self_attn.q_b_proj",
    "attn_kv_a_mqa": "self_attn.kv_a_proj_with_mqa",
    "attn_kv_a_norm": "self_attn.kv_a_layernorm",
    **{f"ffn_{word}_shexp": f"mlp.shared_experts.{word}_proj" for word in ("gate", "up", "down")},
}
_ROUTERS = {
    "mixtral": "block_sparse_moe.gate",
    "granitemoe": "block_sparse_moe.router.layer",
    "gpt-oss": "mlp.router",
    "phimoe": "block_sparse_moe.gate",
}
#: Names of an expert's matrices, by the number of the expert.
_EXPERTS = {
    "mixtral": {"gate": "block_sparse_moe.experts.{}.w1", "up": "block_sparse_moe.experts.{}.w3"},
    "": {word: f"mlp.experts.{{}}.{word}_proj" for word in ("gate", "up", "down")},
}
_EXPERTS["mixtral"]["down"] = "block_sparse_moe.experts.{}.w2"
_EXPERTS["phimoe"] = _EXPERTS["mixtral"]
#: And of tensors of all experts: gate and up in one, and down.
_JOINED = {
    "granitemoe": ("block_sparse_moe.input_linear.weight", "block_sparse_moe.output_linear.weight"),
    "": ("mlp.experts.gate_up_proj", "mlp.experts.down_proj"),
}
_OUTSIDE = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output_norm.bias": "model.norm.bias",
    "token_embd_norm.weight": "model.embedding_norm.weight",
    "output.weight": "lm_head.weight",
    "output.bias": "lm_head.bias",
}


def weights(architecture: str, dtype: str = "f32", **options: Any) -> dict[str, np.ndarray]:
    """Tensors by the names of GGUF, all of one element type."""
    kinds = ("token_embd", "output", "attn_q", "attn_k", "attn_v", "attn_qkv", "attn_output")
    kinds += tuple(f"ffn_{word}{suffix}" for word in ("gate", "up", "down") for suffix in ("", "_exps", "_shexp"))
    kinds += ("ffn_gate_inp", "attn_q_a", "attn_q_b", "attn_kv_a_mqa", "attn_k_b", "attn_v_b")
    kinds += ("attn_gate", "ssm_beta", "ssm_alpha", "ssm_out", "ssm_ba", "nextn.eh_proj")
    kinds += ("shortconv.in_proj", "shortconv.out_proj", "ssm_in", "ssm_x", "ssm_dt")
    kinds += ("per_layer_token_embd", "per_layer_model_proj", "altup_proj", "altup_unembd_proj", "altup_router")
    kinds += ("laurel_l", "inp_gate", "proj")
    types = dict.fromkeys(kinds, "f32")
    return {
        name: value.astype(DTYPES[dtype])
        for name, value in tiny_models.tensors(types, architecture=architecture, **options).items()
        if not name.startswith("rope_")
    }


def to_folder(architecture: str, tensors: Mapping[str, np.ndarray], *, joined: bool = False) -> dict[str, np.ndarray]:
    """The tensors by the names of a folder; with `joined`, gate and up of all experts are one."""
    if architecture in scan_models.SIZES:
        return scan_models.folder_tensors(architecture, tensors)
    found: dict[str, np.ndarray] = {}
    names = dict(_NAMES)
    if architecture == "gemma3n":
        names |= stream_models.NAMES
    if architecture in ("gemma2", "gemma3", "gemma3n"):
        names["ffn_norm"] = "pre_feedforward_layernorm"
    if architecture in ("phi3", "glm4"):
        names["ffn_up"] = "mlp.gate_up_proj"
    if architecture == "glm4":
        names |= {"post_attention_norm": "post_self_attn_layernorm", "post_ffw_norm": "post_mlp_layernorm"}
    if architecture == "lfm2":
        names |= _LFM2
    if architecture == "starcoder2":
        names |= {"ffn_up": "mlp.c_fc", "ffn_down": "mlp.c_proj"}
    if architecture == "phi2":
        names |= {"ffn_up": "mlp.fc1", "ffn_down": "mlp.fc2", "attn_output": "self_attn.dense"}
    if architecture == "hunyuan-dense":
        names |= {"attn_q_norm": "self_attn.query_layernorm", "attn_k_norm": "self_attn.key_layernorm"}
    if architecture.startswith("deepseek"):
        names |= _DEEPSEEK
    if architecture in _DELTAS:
        names |= _DELTA
    names["ffn_gate_inp"] = _ROUTERS.get(architecture, "mlp.gate")
    single = _EXPERTS.get(architecture, _EXPERTS[""])
    both_name, down_name = _JOINED.get(architecture, _JOINED[""])
    joined = joined or architecture in _JOINED
    for name, value in tensors.items():
        if architecture == "gemma3n" and (own_names := stream_models.folder_tensors(name, value)):
            found |= own_names
            continue
        if name in _OUTSIDE:
            own = _OUTSIDE[name]
            found[own.replace("norm.", "final_layernorm.") if architecture == "phi2" else own] = value
            continue
        _, layer, *rest = name.split(".")
        prefix = f"model.layers.{layer}"
        if architecture in _DELTAS:
            if int(layer) == tiny_models._sizes(architecture)["block_count"] - 1:
                prefix = "mtp.layers.0"
            if rest[0] == "nextn":
                found[f"mtp.{_AHEAD[rest[1]]}.weight"] = value
                continue
            if rest[0] in ("ssm_a", "ssm_dt"):
                word = "A_log" if rest[0] == "ssm_a" else "dt_bias"
                found[f"{prefix}.linear_attn.{word}"] = value
                continue
            if architecture == "qwen3next" and rest[0] == "attn_gate":
                continue
            if architecture == "qwen3next" and rest[0] == "attn_qkv":
                both = _beside(tiny_models._sizes(architecture), value, tensors[name.replace("qkv", "gate")])
                found[f"{prefix}.linear_attn.in_proj_qkvz.weight"] = both
                continue
            if rest[0] == "ssm_conv1d":
                found[f"{prefix}.linear_attn.conv1d.weight"] = value[:, None]
                continue
        if rest[0] == "shortconv":
            found[f"{prefix}.conv.{rest[1]}.weight"] = value[:, None] if rest[1] == "conv" else value
            continue
        own, kind = rest
        if architecture == "gpt-oss" and own.endswith(("_exps", "_sinks")):
            found |= {f"{prefix}.{key}": array for key, array in _of_gpt_oss(tensors, name).items()}
            continue
        if own == "attn_k_b":  # with the values of each head
            both = (value.swapaxes(1, 2), tensors[name.replace("k_b", "v_b")])
            found[f"{prefix}.self_attn.kv_b_proj.weight"] = np.concatenate(both, axis=1).reshape(-1, value.shape[1])
        elif own == "attn_v_b":
            pass
        elif own == "exp_probs_b":
            found[f"{prefix}.mlp.gate.e_score_correction_bias"] = value
        elif own == "ffn_gate_inp_shexp":
            found[f"{prefix}.{names[own]}.{kind}"] = value[None]
        elif not own.endswith("_exps"):
            found[f"{prefix}.{names[own]}.{kind}"] = value
        elif not joined:
            word = own.removeprefix("ffn_").removesuffix("_exps")
            found |= {f"{prefix}.{single[word].format(i)}.weight": each for i, each in enumerate(value)}
        elif own == "ffn_gate_exps":
            both = (value, tensors[name.replace("gate", "up")])
            found[f"{prefix}.{both_name}"] = np.concatenate(both, axis=1)
        elif own == "ffn_down_exps":
            found[f"{prefix}.{down_name}"] = value
    return found


def _beside(sizes: Mapping[str, Any], mixed: np.ndarray, gates: np.ndarray) -> np.ndarray:
    """Rows of queries, keys, values and gates, of one head of keys after another."""
    keys, size = sizes["ssm.group_count"], sizes["ssm.state_size"]
    q, k, v = np.split(mixed, [keys * size, 2 * keys * size])
    heads = [part.reshape(keys, -1, mixed.shape[1]) for part in (q, k, v, gates)]
    return np.concatenate(heads, axis=1).reshape(-1, mixed.shape[1])


def _of_gpt_oss(tensors: Mapping[str, np.ndarray], name: str) -> dict[str, np.ndarray]:
    """A tensor of a layer without the layer: gates and ups take turns, and outputs of experts are last."""
    value = tensors[name]
    if name.endswith("attn_sinks.weight"):
        return {"self_attn.sinks": value}
    suffix = "_bias" if name.endswith(".bias") else ""
    if "ffn_down_exps" in name:
        return {f"mlp.experts.down_proj{suffix}": value if suffix else np.ascontiguousarray(value.swapaxes(1, 2))}
    if "ffn_gate_exps" not in name:
        return {}
    both = np.stack([value, tensors[name.replace("gate", "up")]], axis=2)  # [experts, width, 2, …]
    both = both.reshape(len(value), -1, *value.shape[2:])
    return {f"mlp.experts.gate_up_proj{suffix}": both if suffix else np.ascontiguousarray(both.swapaxes(1, 2))}


def to_gguf(architecture: str, tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The tensors as a converter writes them: vectors in f32, rows permuted, norms with their 1."""
    sizes = tiny_models._sizes(architecture)
    found = {}
    for name, value in tensors.items():
        own = value.astype(np.float32) if value.ndim == 1 or name.endswith(".bias") else value
        shifted = architecture.startswith(("gemma", *_DELTAS)) and architecture != "gemma3n"
        if shifted and name.endswith("norm.weight") and "ssm_norm" not in name:
            own = own + np.float32(1)
        if architecture in _DELTAS and name.startswith("blk."):
            own = _reordered(sizes, name, own, grouped=architecture == "qwen3next")
        if architecture in scan_models.SIZES:
            own = scan_models.to_file(architecture, sizes, name, own)
        heads = {"attn_q": "attention.head_count", "attn_k": "attention.head_count_kv"}.get(name.split(".")[-2])
        if architecture in PERMUTED and heads is not None:
            own = _side_by_side(own, int(np.max(sizes[heads])), sizes.get("rope.dimension_count"))
        found[name] = own
    return found


def _side_by_side(value: np.ndarray, heads: int, rotated: int | None) -> np.ndarray:
    """Rows of heads, of which those that rotate together, i and i + n / 2 of the first n, are beside each other."""
    rows = value.reshape(heads, -1, value.shape[1])
    turned = rows[:, :rotated].reshape(heads, 2, -1, value.shape[1]).swapaxes(1, 2)
    first = turned.reshape(heads, -1, value.shape[1])
    return np.concatenate([first, rows[:, first.shape[1] :]], axis=1).reshape(value.shape)


def _reordered(sizes: Mapping[str, Any], name: str, value: np.ndarray, *, grouped: bool) -> np.ndarray:
    """Heads of values one by one: those that read key head 0 come first in the folder, in the file every so many; in
    both, where the file is `grouped`."""
    keys, values, size = (sizes[f"ssm.{word}"] for word in ("group_count", "time_step_rank", "state_size"))
    heads = [j if grouped else (j % keys) * (values // keys) + j // keys for j in range(values)]
    word = name.split(".")[2]
    if word == "ssm_a":
        return -np.exp(value[heads].astype(np.float32))
    if word in ("ssm_beta", "ssm_alpha", "ssm_dt"):
        return value[heads]
    if word == "attn_gate":
        return value.reshape(values, size, -1)[heads].reshape(value.shape)
    if word == "ssm_out":
        return value.reshape(-1, values, size)[:, heads].reshape(value.shape)
    if word in ("attn_qkv", "ssm_conv1d"):
        first = value[: 2 * keys * size]
        rest = value[2 * keys * size :].reshape(values, size, -1)[heads].reshape(values * size, -1)
        own = np.concatenate([first, rest])
        return own.astype(np.float32) if word == "ssm_conv1d" else own
    return value


def config(architecture: str, **changes: Any) -> dict[str, Any]:
    """`config.json` of the tiny model; ``changes`` by key, None for null."""
    own = tiny_models._sizes(architecture)
    values: dict[str, Any] = {
        "model_type": FAMILIES[architecture],
        "hidden_size": own["embedding_length"],
        "num_hidden_layers": own["block_count"],
        "intermediate_size": own["feed_forward_length"],
        "num_attention_heads": own["attention.head_count"],
        "num_key_value_heads": own.get("attention.head_count_kv"),
        "head_dim": own.get("attention.key_length", 16),
        "max_position_embeddings": own["context_length"],
        "rms_norm_eps": own["attention.layer_norm_rms_epsilon"],
        "rope_theta": own["rope.freq_base"],
        "vocab_size": own["vocab_size"],
        "sliding_window": own.get("attention.sliding_window"),
        "tie_word_embeddings": architecture not in tiny_models.HEADS,
        "attention_bias": False,
    }
    if architecture == "qwen3moe":
        values |= {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "norm_topk_prob": True}
    if architecture == "phi2":
        values |= {"hidden_act": "gelu_new", "partial_rotary_factor": 0.5}
    if architecture == "phimoe":
        values |= {"attention_bias": True, "lm_head_bias": True, "router_jitter_noise": own["expert_jitter"]}
    if architecture in ("mixtral", "olmoe", "granitemoe", "qwen2moe", "gpt-oss", "phimoe"):
        word = "num_experts" if architecture in ("olmoe", "qwen2moe") else "num_local_experts"
        values |= {word: own["expert_count"], "num_experts_per_tok": own["expert_used_count"]}
    if architecture == "gpt-oss":
        scaling = {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 32, "truncate": False}
        values |= {"intermediate_size": 64, "attention_bias": True, "swiglu_limit": 7.0, "rope_scaling": scaling}
    if architecture == "qwen2moe":
        values |= {"moe_intermediate_size": 32, "shared_expert_intermediate_size": 64}
    if architecture.startswith("gemma"):
        values |= {"hidden_activation": "gelu_pytorch_tanh", "query_pre_attn_scalar": values["head_dim"]}
    if architecture == "gemma3n":
        values |= stream_models.folder_config(own)
    if architecture == "gemma":
        values["hidden_act"] = "gelu_pytorch_tanh"
    if architecture == "gemma2":
        values |= {"attn_logit_softcapping": 5.0, "final_logit_softcapping": 3.0}
    if architecture.startswith("deepseek"):
        values |= _of_latents(own)
    if architecture in _DELTAS:
        values |= {
            "num_hidden_layers": own["block_count"] - 1,
            "mtp_num_hidden_layers": 1,
            "full_attention_interval": own["full_attention_interval"],
            "linear_conv_kernel_dim": own["ssm.conv_kernel"],
            "linear_key_head_dim": own["ssm.state_size"],
            "linear_value_head_dim": own["ssm.state_size"],
            "linear_num_key_heads": own["ssm.group_count"],
            "linear_num_value_heads": own["ssm.time_step_rank"],
            "rope_parameters": {"rope_theta": own["rope.freq_base"], "mrope_section": [2, 1, 1]},
        }
    if architecture in ("qwen35moe", "qwen3next"):
        values |= {"num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
        values |= {"shared_expert_intermediate_size": 64}
    if architecture == "lfm2":
        values |= {"num_key_value_heads": 2, "norm_eps": 1e-5, "conv_L_cache": 3, "block_auto_adjust_ff_dim": False}
        values["layer_types"] = ["conv", "full_attention", "conv", "conv"]
    if "attention.layer_norm_epsilon" in own:
        eps = "norm_epsilon" if architecture == "starcoder2" else "layer_norm_eps"
        values |= {eps: own["attention.layer_norm_epsilon"], "logit_scale": 0.25}
        values |= {"hidden_act": "gelu_pytorch_tanh"} if architecture == "starcoder2" else {}
    if architecture in ("olmo3", "exaone4", "cohere2"):
        kinds = ["full_attention" if layer % 4 == 3 else "sliding_attention" for layer in range(4)]
        values |= {"layer_types": kinds}
    if architecture == "olmo3":
        scaling = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
        values["rope_scaling"] = scaling
    if architecture == "hunyuan-dense":  # a base that grows to the file's
        values["rope_theta"] = own["rope.freq_base"] / 1000 ** (32 / 30)
        values["rope_scaling"] = {"type": "dynamic", "alpha": 1000.0, "factor": 1.0}
    if architecture == "minicpm":
        values |= {"scale_emb": 3.0, "scale_depth": 0.5 * 2**0.5, "dim_model_base": 32}
    if architecture.startswith("qwen3vl"):
        scaling = {"rope_type": "default", "mrope_section": [6, 5, 5], "mrope_interleaved": True}
        text = {**values, "rope_scaling": scaling, "num_experts": 6, "num_experts_per_tok": 2}
        text |= {"moe_intermediate_size": 32}
        return {"model_type": values["model_type"], "text_config": text | changes, "tie_word_embeddings": True}
    if architecture.startswith("granite"):
        values |= {"attention_multiplier": 0.1, "embedding_multiplier": 3.0}
        values |= {"residual_multiplier": 0.5, "logits_scaling": 2.0}
    if architecture in scan_models.SIZES:
        values |= scan_models.folder_config(architecture, own)
    return values | changes


def _of_latents(own: Mapping[str, Any]) -> dict[str, Any]:
    rotated, sigmoid = own["rope.dimension_count"], own.get("expert_gating_func") == 2
    values: dict[str, Any] = {
        "num_key_value_heads": own["attention.head_count"],
        "kv_lora_rank": own["attention.kv_lora_rank"],
        "q_lora_rank": own.get("attention.q_lora_rank"),
        "qk_rope_head_dim": rotated,
        "qk_nope_head_dim": own["attention.key_length_mla"] - rotated,
        "v_head_dim": own["attention.value_length_mla"],
        "n_routed_experts": own["expert_count"],
        "num_experts_per_tok": own["expert_used_count"],
        "n_shared_experts": own["expert_shared_count"],
        "n_group": own.get("expert_group_count", 1),
        "topk_group": own.get("expert_group_used_count", 1),
        "norm_topk_prob": own.get("expert_weights_norm", False),
        "routed_scaling_factor": own.get("expert_weights_scale", 1.0),
        "moe_intermediate_size": own["expert_feed_forward_length"],
        "first_k_dense_replace": own["leading_dense_block_count"],
        "scoring_func": "sigmoid" if sigmoid else "softmax",
        "topk_method": "noaux_tc" if sigmoid else "greedy",
    }
    if "rope.scaling.factor" in own:
        weight = 10 * own["rope.scaling.yarn_log_multiplier"]
        scaling = {"type": "yarn", "factor": own["rope.scaling.factor"], "mscale": weight, "mscale_all_dim": weight}
        original = own["rope.scaling.original_context_length"]
        values["rope_scaling"] = {**scaling, "original_max_position_embeddings": original}
    return values


def write(
    folder: Path,
    architecture: str,
    tensors: Mapping[str, np.ndarray],
    *,
    shards: int = 1,
    joined: bool = False,
    **changes: Any,
) -> Path:
    """Writes a folder of the tiny model; ``changes`` go to `config`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config(architecture, **changes)))
    own = to_folder(architecture, tensors, joined=joined)
    if shards == 1:
        write_safetensors(folder / "model.safetensors", own)
        return folder
    where = {name: f"model-{i % shards + 1:05}-of-{shards:05}.safetensors" for i, name in enumerate(own)}
    for file in set(where.values()):
        write_safetensors(folder / file, {name: value for name, value in own.items() if where[name] == file})
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": where}))
    return folder


def write_both(tmp_path: Path, architecture: str, dtype: str = "f32", **options: Any) -> tuple[Path, Path]:
    """A folder and a GGUF file with the same weights; ``options`` go to `write`."""
    tensors = weights(architecture, dtype)
    changes: dict[str, Any] = {"rope__scaling__original_context_length": None} if architecture == "phi3" else {}
    metadata = tiny_models.metadata(architecture, **changes)
    path = write_gguf(tmp_path / "m.gguf", metadata, to_gguf(architecture, tensors))
    return write(tmp_path / "folder", architecture, tensors, **options), path
