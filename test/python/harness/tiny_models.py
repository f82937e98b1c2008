# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Small random models as GGUF files: complete, with a vocabulary and a chat template, in kilobytes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import scan_models
import stream_models
from packed_harness import encoded

from rlx_mlir import formats
from rlx_mlir.frontends.gguf import write_gguf
from rlx_mlir.models.tokenizer import TokenType

TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_WORDS = (" the", " cat", " sat", " on", " mat", "ing", " hello", " world", " one", " two")


def vocabulary() -> dict[str, Any]:
    """Metadata of a byte-level BPE vocabulary of 300 tokens: 3 special ones, 256 bytes, some merges."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    letter = {byte: chr(byte) for byte in printable} | {byte: chr(256 + i) for i, byte in enumerate(others)}
    tokens = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *(letter[byte] for byte in range(256))]
    merges = []
    for word in _WORDS:
        pieces = [letter[byte] for byte in word.encode()]
        while len(pieces) > 1:
            merged = pieces[0] + pieces[1]
            if merged not in tokens:
                merges.append(f"{pieces[0]} {pieces[1]}")
                tokens.append(merged)
            pieces[:2] = [merged]
    tokens += [f"<|unused_{i}|>" for i in range(300 - len(tokens))]
    control = [token.startswith("<|") for token in tokens]
    types = [int(TokenType.CONTROL if each else TokenType.NORMAL) for each in control]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.token_type": np.array(types, np.int32),
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.chat_template": TEMPLATE,
    }


_SCALES = {"attention.scale": 0.1, "embedding_scale": 3.0, "residual_scale": 0.5, "logit_scale": 2.0}
_LATENT = {
    "block_count": 3,  # the first one has no experts
    "leading_dense_block_count": 1,
    "attention.head_count_kv": 1,
    "attention.kv_lora_rank": 64,
    "attention.key_length": 96,
    "attention.value_length": 64,
    "attention.key_length_mla": 64,
    "attention.value_length_mla": 16,
    "rope.dimension_count": 32,
    "expert_feed_forward_length": 32,
}
_DELTA = {
    "block_count": 4,  # the second one has attention, the last one predicts further ahead
    "nextn_predict_layers": 1,
    "full_attention_interval": 2,
    "attention.layer_norm_rms_epsilon": 1e-6,
    "attention.key_length": 32,
    "attention.value_length": 32,
    "rope.dimension_count": 8,
    "rope.dimension_sections": np.array([2, 1, 1, 0], np.int32),
    "ssm.conv_kernel": 4,
    "ssm.state_size": 16,
    "ssm.group_count": 2,
    "ssm.time_step_rank": 4,
    "ssm.inner_size": 64,
}
_LAYER_NORMS = {"attention.layer_norm_rms_epsilon": None, "attention.layer_norm_epsilon": 1e-5}
_WIDE = {"attention.key_length": 32, "attention.value_length": 32}
SIZES: dict[str, dict[str, Any]] = {
    "llama": {"rope.dimension_count": 16},
    "qwen3moe": {
        **_WIDE,
        "expert_count": 6,
        "expert_used_count": 2,
        "expert_feed_forward_length": 32,
    },
    "qwen2moe": {
        "expert_count": 5,
        "expert_used_count": 3,
        "expert_feed_forward_length": 32,
        "expert_shared_feed_forward_length": 64,
    },
    "mixtral": {"expert_count": 4, "expert_used_count": 2, "rope.dimension_count": 16},
    "olmoe": {"expert_count": 8, "expert_used_count": 3},
    "granitemoe": {**_SCALES, "expert_count": 4, "expert_used_count": 2},
    "deepseek2": {**_LATENT, "expert_count": 6, "expert_used_count": 2, "expert_shared_count": 2},
    "deepseek3": {
        **_LATENT,
        "attention.q_lora_rank": 32,
        "expert_count": 8,
        "expert_used_count": 3,
        "expert_shared_count": 1,
        "expert_gating_func": 2,
        "expert_group_count": 4,
        "expert_group_used_count": 2,
        "expert_weights_norm": True,
        "expert_weights_scale": 2.5,
        "rope.scaling.type": "yarn",
        "rope.scaling.factor": 4.0,
        "rope.scaling.original_context_length": 64,
        "rope.scaling.yarn_log_multiplier": 0.0707,
    },
    "gemma": {**_WIDE, "attention.head_count_kv": 1},
    "gemma2": {
        **_WIDE,
        "block_count": 3,  # the second one is global
        "attention.sliding_window": 8,
        "attn_logit_softcapping": 5.0,
        "final_logit_softcapping": 3.0,
    },
    "phi3": {"attention.sliding_window": 200, "rope.scaling.original_context_length": 64},
    "smollm3": {"block_count": 4},  # the last one doesn't rotate
    "olmo2": {},
    "granite": _SCALES,
    "gpt-oss": {
        **_WIDE,
        "attention.sliding_window": 8,  # the first layer is local
        "expert_count": 6,
        "expert_used_count": 3,
        "expert_feed_forward_length": 64,
        "rope.freq_base": 150000.0,
        "rope.scaling.type": "yarn",
        "rope.scaling.factor": 8.0,
        "rope.scaling.original_context_length": 32,
    },
    "qwen35": _DELTA,
    "qwen35moe": {
        **_DELTA,
        "expert_count": 5,
        "expert_used_count": 2,
        "expert_feed_forward_length": 32,
        "expert_shared_feed_forward_length": 64,
    },
    "qwen3next": {
        **{key: value for key, value in _DELTA.items() if key != "rope.dimension_sections"},
        "expert_count": 5,
        "expert_used_count": 2,
        "expert_feed_forward_length": 32,
        "expert_shared_feed_forward_length": 64,
    },
    "qwen2": {},
    "qwen2vl": {"rope.dimension_sections": np.array([2, 3, 3, 0], np.int32)},
    "qwen3": {"attention.key_length": 32, "attention.value_length": 32},
    "qwen3vl": {**_WIDE, "rope.dimension_sections": np.array([6, 5, 5, 0], np.int32)},
    "qwen3vlmoe": {**_WIDE, "expert_count": 6, "expert_used_count": 2, "expert_feed_forward_length": 32},
    "seed_oss": _WIDE,
    "glm4": {"rope.dimension_count": 8},
    "ernie4_5": _WIDE,
    "hunyuan-dense": {**_WIDE, "rope.freq_base": 98765.0},
    "olmo3": {
        "block_count": 4,  # the last one is global
        "attention.sliding_window": 8,
        "rope.scaling.type": "yarn",
        "rope.scaling.factor": 4.0,
        "rope.scaling.original_context_length": 64,
    },
    "exaone4": {**_WIDE, "block_count": 4, "attention.sliding_window": 8},  # likewise, and doesn't rotate
    "cohere2": {**_LAYER_NORMS, "block_count": 4, "attention.sliding_window": 8, "logit_scale": 0.25},
    "command-r": {**_LAYER_NORMS, "logit_scale": 0.25},
    "stablelm": {**_LAYER_NORMS, "rope.dimension_count": 4},
    "starcoder2": {**_LAYER_NORMS, "attention.sliding_window": 8},
    "phi2": {**_LAYER_NORMS, "rope.dimension_count": 8, "attention.head_count_kv": 4},
    "phimoe": {"expert_count": 5, "expert_used_count": 2, "expert_jitter": 0.2},
    "lfm2": {
        "block_count": 4,
        "attention.head_count_kv": np.array([0, 2, 0, 0], np.int32),
        "shortconv.l_cache": 3,
        "rope.freq_base": 1e6,
    },
    "minicpm": {**{key: value for key, value in _SCALES.items() if key != "attention.scale"}},
    "gemma3": {
        "block_count": 6,  # the last one is global
        "attention.head_count_kv": 1,
        "attention.key_length": 32,
        "attention.value_length": 32,
        "attention.sliding_window": 8,
        "rope.freq_base": 1e6,
    },
    "gemma3n": stream_models.SIZES,
    **scan_models.SIZES,
}
"""What each architecture's tiny model has else than the others."""
NAMES = {"mixtral": "llama", "deepseek3": "deepseek2", "olmo3": "olmo2", **scan_models.NAMES}
"""What files call those that share a name."""
_ROW_NORMS = ("olmo2", "olmo3", "olmoe")
_NORMED_HEADS = ("qwen3", "qwen3moe", "qwen3vl", "qwen3vlmoe", "gemma3", "gemma3n", "exaone4", "hunyuan-dense", "lfm2")
_NORM_BIASES = ("stablelm", "starcoder2", "phi2", "phimoe")
_POST_NORMS = ("gemma2", "gemma3", "gemma3n", "olmo2", "olmo3", "exaone4", "glm4")
_HEAD_NORMS = ("attn_q_norm", "attn_k_norm")
_PROJECTIONS = ("attn_q", "attn_k", "attn_v")
HEADS = ("phi2", "phimoe")
"""Those whose head is a matrix of its own, with a bias."""
_BIASES = {
    "qwen2": _PROJECTIONS,
    "qwen2moe": _PROJECTIONS,
    "qwen2vl": _PROJECTIONS,
    "seed_oss": _PROJECTIONS,
    "stablelm": _PROJECTIONS,
    "starcoder2": (*_PROJECTIONS, "attn_output", "ffn_up", "ffn_down"),
    "phi2": (*_PROJECTIONS, "attn_output", "ffn_up", "ffn_down"),
    "phimoe": (*_PROJECTIONS, "attn_output"),
    "glm4": _PROJECTIONS,
    "gpt-oss": (*_PROJECTIONS, "attn_output", "ffn_gate_inp"),
}
"""Products with a bias."""


def metadata(architecture: str = "llama", **changes: Any) -> dict[str, Any]:
    """Metadata of the tiny model; ``changes`` by key without ``llama.``, dots written as ``__``, None to leave out."""
    values = _sizes(architecture) | {key.replace("__", "."): value for key, value in changes.items()}
    name = NAMES.get(architecture, architecture)
    numbers = {f"{name}.{key}": value for key, value in values.items() if value is not None}
    return {"general.architecture": name, "general.name": "tiny", **numbers, **vocabulary()}


def _sizes(architecture: str) -> dict[str, Any]:
    return {
        "block_count": 2,
        "context_length": 256,
        "embedding_length": 64,
        "feed_forward_length": 96,
        "attention.head_count": 4,
        "attention.head_count_kv": 2,
        "attention.layer_norm_rms_epsilon": 1e-5,
        "rope.freq_base": 10000.0,
        "vocab_size": 300,
        **SIZES[architecture],
    }


def tensors(
    types: Mapping[str, str] | None = None,
    *,
    architecture: str = "llama",
    tied: bool = True,
    seed: int = 0,
    layers: int | None = None,
    hidden: int = 64,
    heads: int = 4,
    kv_heads: int | None = None,
    head_dim: int | None = None,
    ffn: int = 96,
    vocab: int = 300,
    rope_pairs: int | None = None,
) -> dict[str, Any]:
    """Random weights; ``types`` by the last words of a name (`attn_q`, `token_embd`), q4_1 for others."""
    random = np.random.default_rng(seed)
    types = {"token_embd": "q8_0", "output": "q8_0", "ffn_down": "q8_0", "attn_v": "f32", **(types or {})}
    types.setdefault("ffn_gate_inp", "f32")
    types.setdefault("ffn_up_exps", "bf16")
    for name in ("ssm_dt", *stream_models.DENSE):
        types.setdefault(name, "f32")
    if architecture == "gpt-oss":
        types |= {name: types.get(name, "mxfp4") for name in ("ffn_gate_exps", "ffn_down_exps")}
    sizes = _sizes(architecture)
    layers = sizes["block_count"] if layers is None else layers
    kv_heads = (
        int(np.max(sizes.get("attention.head_count_kv") if sizes.get("attention.head_count_kv") is not None else 0))
        if kv_heads is None
        else kv_heads
    )
    head_dim = sizes.get("attention.key_length", 16) if head_dim is None else head_dim

    def matrix(name: str, n: int, k: int) -> Any:
        values = random.standard_normal((n, k)).astype(np.float32) * np.float32(1.5 * k**-0.5)
        kind = types.get(name, "q4_1")
        dense = formats.get_format(kind).dense
        return values.astype(dense) if dense is not None else (kind, encoded(kind, values), (n, k))

    def vector(length: int = hidden) -> np.ndarray:
        return random.uniform(0.5, 1.5, length).astype(np.float32)

    found: dict[str, Any] = {"token_embd.weight": matrix("token_embd", vocab, hidden), "output_norm.weight": vector()}
    if architecture in _NORM_BIASES:
        found["output_norm.bias"] = vector() - 1
    if architecture in HEADS:
        found["output.bias"] = vector(vocab) - 1
    if not tied or architecture in HEADS:
        found["output.weight"] = matrix("output", vocab, hidden)
    dense, latent = sizes.get("leading_dense_block_count", 0), "attention.kv_lora_rank" in sizes
    experts, width = sizes.get("expert_count", 0), sizes.get("expert_feed_forward_length", ffn)
    shared = sizes.get("expert_shared_feed_forward_length", width * sizes.get("expert_shared_count", 0))
    if architecture == "gemma3n":
        found |= stream_models.outside(sizes, matrix, vector)
        for layer in range(layers):
            own = stream_models.layer_tensors(sizes, matrix, vector)
            found |= {f"blk.{layer}.{name}": value for name, value in own.items()}
    if architecture in scan_models.SIZES:
        for layer in range(layers):
            own = scan_models.layer_tensors(architecture, sizes, layer, matrix, random)
            found |= {f"blk.{layer}.{name}": value for name, value in own.items()}
        return found
    for layer in range(layers):
        matrices = {
            "attn_q": (heads * head_dim, hidden),
            "attn_k": (kv_heads * head_dim, hidden),
            "attn_v": (kv_heads * head_dim, hidden),
            "attn_output": (hidden, heads * head_dim),
            "ffn_gate": (ffn, hidden),
            "ffn_up": (ffn, hidden),
            "ffn_down": (hidden, ffn),
        }
        if architecture == "phi3":
            rows = (heads + 2 * kv_heads) * head_dim
            own = {"attn_qkv": (rows, hidden), "attn_output": (hidden, heads * head_dim)}
            matrices = {**own, "ffn_up": (2 * ffn, hidden), "ffn_down": (hidden, ffn)}
        if architecture == "lfm2" and layer != 1:
            matrices = {name: shape for name, shape in matrices.items() if not name.startswith("attn")}
            matrices |= {"shortconv.in_proj": (3 * hidden, hidden), "shortconv.out_proj": (hidden, hidden)}
            taps = random.standard_normal((hidden, sizes["shortconv.l_cache"])).astype(np.float32)
            found[f"blk.{layer}.shortconv.conv.weight"] = taps
        if architecture in ("starcoder2", "phi2"):
            matrices = {name: shape for name, shape in matrices.items() if name != "ffn_gate"}
        if architecture == "glm4":
            matrices = {name: shape for name, shape in matrices.items() if name != "ffn_gate"}
            matrices["ffn_up"] = (2 * ffn, hidden)
        stacks: dict[str, tuple[int, int, int]] = {}
        if latent:
            matrices = {**_latent_matrices(sizes), **{name: matrices[name] for name in matrices if "attn" not in name}}
            stacks = _latent_stacks(sizes)
        ahead = layer >= layers - sizes.get("nextn_predict_layers", 0)
        recurs = "ssm.state_size" in sizes and (layer + 1) % sizes["full_attention_interval"] != 0 and not ahead
        if "ssm.state_size" in sizes:
            attention = (
                _delta_matrices(sizes, architecture == "qwen3next")
                if recurs
                else {"attn_q": (2 * heads * head_dim, hidden)}
            )
            kept = {name: shape for name, shape in matrices.items() if not (recurs and name.startswith("attn"))}
            matrices = {**kept, **attention}
            matrices |= {"nextn.eh_proj": (hidden, 2 * hidden)} if ahead else {}
        sparse = experts and layer >= dense
        if sparse:
            matrices = {name: shape for name, shape in matrices.items() if not name.startswith("ffn_")}
            matrices["ffn_gate_inp"] = (experts, hidden)
            stacks |= {f"ffn_{word}_exps": (experts, width, hidden) for word in ("gate", "up")}
            stacks["ffn_down_exps"] = (experts, hidden, width)
        if shared and sparse:
            matrices |= {"ffn_gate_shexp": (shared, hidden), "ffn_up_shexp": (shared, hidden)}
            matrices["ffn_down_shexp"] = (hidden, shared)
        for name, (n, k) in matrices.items():
            found[f"blk.{layer}.{name}.weight"] = matrix(name, n, k)
        for name, (count, n, k) in stacks.items():
            flat = matrix(name, count * n, k)
            whole = (*flat[:2], (count, n, k)) if isinstance(flat, tuple) else flat.reshape(count, n, k)
            found[f"blk.{layer}.{name}.weight"] = whole
        after = architecture in ("olmo2", "olmo3", "exaone4")
        norms = {} if after else {"attn_norm": hidden, "ffn_norm": hidden}
        if architecture in ("cohere2", "command-r", "phi2"):
            norms = {"attn_norm": hidden}
        if architecture in _NORMED_HEADS and "attn_q" in matrices:
            norms |= {"attn_q_norm": head_dim, "attn_k_norm": head_dim}
        if "ssm.state_size" in sizes:
            norms = {"attn_norm": hidden, "post_attention_norm": hidden}
            norms |= {"ssm_norm": sizes["ssm.state_size"]} if recurs else dict.fromkeys(_HEAD_NORMS, head_dim)
            norms |= {f"nextn.{word}": hidden for word in ("enorm", "hnorm", "shared_head_norm")} if ahead else {}
        if architecture in _ROW_NORMS:
            norms |= {"attn_q_norm": heads * head_dim, "attn_k_norm": kv_heads * head_dim}
        if architecture in _POST_NORMS:
            norms |= {"post_attention_norm": hidden, "post_ffw_norm": hidden}
        if architecture in ("gpt-oss", "seed_oss"):
            norms = {"attn_norm": hidden, "post_attention_norm": hidden}
        if latent:
            norms["attn_kv_a_norm"] = sizes["attention.kv_lora_rank"]
        if latent and "attention.q_lora_rank" in sizes:
            norms["attn_q_a_norm"] = sizes["attention.q_lora_rank"]
        weighed = "expert_shared_feed_forward_length" in sizes
        if weighed:
            norms["ffn_gate_inp_shexp"] = hidden
        for name, length in norms.items():
            found[f"blk.{layer}.{name}.weight"] = vector(length)
            if architecture in _NORM_BIASES:
                found[f"blk.{layer}.{name}.bias"] = vector(length) - 1
        if sizes.get("expert_gating_func") == 2 and sparse:
            found[f"blk.{layer}.exp_probs_b.bias"] = random.uniform(-0.3, 0.3, experts).astype(np.float32)
        if weighed:  # of both signs, as what it weighs isn't a norm
            found[f"blk.{layer}.ffn_gate_inp_shexp.weight"] -= np.float32(1)
        for name in _BIASES.get(architecture, ()):
            found[f"blk.{layer}.{name}.bias"] = vector(matrices[name][0]) - 1
        if recurs:
            values, kernel = sizes["ssm.time_step_rank"], sizes["ssm.conv_kernel"]
            found[f"blk.{layer}.ssm_dt.bias"] = 2 * vector(values) - 2
            found[f"blk.{layer}.ssm_a"] = -vector(values)
            channels = matrices["attn_qkv"][0]
            found[f"blk.{layer}.ssm_conv1d.weight"] = random.standard_normal((channels, kernel)).astype(np.float32)
        if architecture == "gpt-oss":
            found[f"blk.{layer}.attn_sinks.weight"] = 4 * vector(heads) - 3
            for name, n in {"gate": width, "up": width, "down": hidden}.items():
                bias = 4 * vector(experts * n) - 4  # so that some gates and ups are beyond their limits
                found[f"blk.{layer}.ffn_{name}_exps.bias"] = bias.reshape(experts, n)
    if architecture == "lfm2":
        found["token_embd_norm.weight"] = found.pop("output_norm.weight")
    if architecture == "phi3":
        for word in ("short", "long"):
            found[f"rope_factors_{word}.weight"] = vector(head_dim // 2 if rope_pairs is None else rope_pairs)
    return found


def _delta_matrices(sizes: Mapping[str, Any], grouped: bool) -> dict[str, tuple[int, int]]:
    """The matrices of a gated delta rule, [outputs, inputs]."""
    hidden, values, size = sizes["embedding_length"], sizes["ssm.time_step_rank"], sizes["ssm.state_size"]
    steps = {"ssm_beta": (values, hidden), "ssm_alpha": (values, hidden)}
    return {
        "attn_qkv": ((2 * sizes["ssm.group_count"] + values) * size, hidden),
        "attn_gate": (values * size, hidden),
        **({"ssm_ba": (2 * values, hidden)} if grouped else steps),
        "ssm_out": (hidden, values * size),
    }


def _latent_matrices(sizes: Mapping[str, Any]) -> dict[str, tuple[int, int]]:
    """The matrices of attention whose keys and values are made of latents, [outputs, inputs]."""
    hidden, heads, rank = sizes["embedding_length"], sizes["attention.head_count"], sizes["attention.kv_lora_rank"]
    queries, short = heads * sizes["attention.key_length_mla"], sizes.get("attention.q_lora_rank", 0)
    made = {"attn_q_a": (short, hidden), "attn_q_b": (queries, short)} if short else {"attn_q": (queries, hidden)}
    shared = {"attn_kv_a_mqa": (rank + sizes["rope.dimension_count"], hidden)}
    return {**made, **shared, "attn_output": (hidden, heads * sizes["attention.value_length_mla"])}


def _latent_stacks(sizes: Mapping[str, Any]) -> dict[str, tuple[int, int, int]]:
    """Those of each head, [heads, outputs, inputs]."""
    heads, rank = sizes["attention.head_count"], sizes["attention.kv_lora_rank"]
    plain = sizes["attention.key_length_mla"] - sizes["rope.dimension_count"]
    return {"attn_k_b": (heads, rank, plain), "attn_v_b": (heads, sizes["attention.value_length_mla"], rank)}


def write(path: Path, changes: Mapping[str, Any] | None = None, *, architecture: str = "llama", **options: Any) -> Path:
    """A file with the tiny model; ``changes`` go to `metadata`, ``options`` to `tensors`."""
    return write_gguf(path, metadata(architecture, **(changes or {})), tensors(architecture=architecture, **options))
