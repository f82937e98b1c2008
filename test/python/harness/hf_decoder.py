# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A LLaMA model with an adapter as transformers and PEFT compute it, in plain numpy, in f64.

Modules have the names of transformers, rows of queries and keys its order (halves of heads rotate together), and an
adapter is read as PEFT reads it: by these names, from its two files. Shares no code with the package but the reader of
GGUF files.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

from rlx_mlir.frontends.gguf import GGUFFile

_NAMES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}


class HfDecoder:
    """The model of a GGUF file as transformers would have it, with the adapter of a folder."""

    def __init__(self, file: GGUFFile, adapter: Path) -> None:
        self.heads = file.metadata["llama.attention.head_count"]
        self.kv_heads = file.metadata["llama.attention.head_count_kv"]
        self.layers = file.metadata["llama.block_count"]
        self.base = file.metadata["llama.rope.freq_base"]
        self.eps = file.metadata["llama.attention.layer_norm_rms_epsilon"]
        self.weights = {
            "embed_tokens": self._read(file, "token_embd.weight"),
            "norm": self._read(file, "output_norm.weight"),
        }
        for layer in range(self.layers):
            for name, own in _NAMES.items():
                self.weights[f"layers.{layer}.{name}"] = self._read(file, f"blk.{layer}.{own}.weight")
        self.described = json.loads((adapter / "adapter_config.json").read_text())
        self.factors = load_file(adapter / "adapter_model.safetensors")
        self.read: set[str] = set()

    def _read(self, file: GGUFFile, name: str) -> np.ndarray:
        found = file.dequantize(name).astype(np.float64)
        heads = {"attn_q": self.heads, "attn_k": self.kv_heads}.get(name.split(".")[-2])
        if heads is None:
            return found
        # What converters do to rows, undone: [heads, pairs, 2] were [heads, 2, pairs].
        return found.reshape(heads, -1, 2, found.shape[1]).swapaxes(1, 2).reshape(found.shape)

    def _linear(self, x: np.ndarray, module: str) -> np.ndarray:
        """x W^T, and alpha / r times x A^T B^T where the module is a target."""
        y = x @ self.weights[module].T
        if module.rpartition(".")[2] not in self.described["target_modules"]:
            return y
        a, b = (f"base_model.model.model.{module}.lora_{letter}.weight" for letter in "AB")
        self.read |= {a, b}
        scale = self.described["lora_alpha"] / self.described["r"]
        return y + scale * (x @ self.factors[a].astype(np.float64).T) @ self.factors[b].astype(np.float64).T

    def logits(self, tokens: Sequence[int]) -> np.ndarray:
        """Logits after each token."""
        x = self.weights["embed_tokens"][np.asarray(tokens)]
        for layer in range(self.layers):
            p = f"layers.{layer}."
            n = self._norm(x, f"{p}input_layernorm")
            q, k, v = (self._linear(n, f"{p}self_attn.{name}_proj") for name in "qkv")
            q, k, v = self._split(q, self.heads), self._split(k, self.kv_heads), self._split(v, self.kv_heads)
            x = x + self._linear(self._attend(self._rotate(q), self._rotate(k), v), f"{p}self_attn.o_proj")
            n = self._norm(x, f"{p}post_attention_layernorm")
            gate = self._linear(n, f"{p}mlp.gate_proj")
            hidden = gate / (1 + np.exp(-gate)) * self._linear(n, f"{p}mlp.up_proj")
            x = x + self._linear(hidden, f"{p}mlp.down_proj")
        return self._norm(x, "norm") @ self.weights["embed_tokens"].T

    def _norm(self, x: np.ndarray, module: str) -> np.ndarray:
        return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + self.eps) * self.weights[module]

    def _split(self, x: np.ndarray, heads: int) -> np.ndarray:
        return x.reshape(len(x), heads, -1).swapaxes(0, 1)

    def _rotate(self, x: np.ndarray) -> np.ndarray:
        half = x.shape[-1] // 2
        angles = np.arange(x.shape[1])[:, None] * self.base ** (-np.arange(half) / half)
        cos, sin = (np.concatenate([f(angles)] * 2, axis=-1) for f in (np.cos, np.sin))
        turned = np.concatenate([-x[..., half:], x[..., :half]], axis=-1)
        return x * cos + turned * sin

    def _attend(self, q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
        k, v = (np.repeat(each, self.heads // self.kv_heads, axis=0) for each in (k, v))
        scores = q @ k.swapaxes(1, 2) / np.sqrt(q.shape[-1])
        scores = np.where(np.tri(q.shape[1], dtype=bool), scores, -np.inf)
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        attended = weights / weights.sum(axis=-1, keepdims=True) @ v
        return attended.swapaxes(0, 1).reshape(q.shape[1], -1)
