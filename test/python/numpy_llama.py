# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A LLaMA model in plain numpy, in f64 unless told otherwise: what the compiled ones are compared with.

Shares no code with the package but the reader of the file. Takes a whole sequence at once, without a cache.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rlx_mlir.frontends.gguf import GGUFFile


class NumpyLlama:
    """The weights of a file, decoded."""

    def __init__(self, file: GGUFFile, dtype: type[np.floating] = np.float64) -> None:
        meta = file.metadata
        self.weights = {name: file.dequantize(name).astype(dtype) for name in file.tensors}
        self.layers = meta["llama.block_count"]
        self.heads = meta["llama.attention.head_count"]
        self.kv_heads = meta.get("llama.attention.head_count_kv", self.heads)
        self.head_dim = meta.get("llama.attention.key_length", meta["llama.embedding_length"] // self.heads)
        self.rotated = meta.get("llama.rope.dimension_count", self.head_dim)
        self.base = meta.get("llama.rope.freq_base", 10000.0)
        self.scale = meta["llama.rope.scaling.factor"] if meta.get("llama.rope.scaling.type") == "linear" else 1.0
        self.eps = meta["llama.attention.layer_norm_rms_epsilon"]
        self.dtype = dtype

    def logits(self, tokens: Sequence[int]) -> np.ndarray:
        """Logits after each token, [len(tokens), vocab]."""
        w = self.weights
        x = w["token_embd.weight"][np.asarray(tokens)]
        for layer in range(self.layers):
            p = f"blk.{layer}."
            n = self._norm(x, w[p + "attn_norm.weight"])
            q = self._rotate(self._split(n @ w[p + "attn_q.weight"].T, self.heads))
            k = self._rotate(self._split(n @ w[p + "attn_k.weight"].T, self.kv_heads))
            v = self._split(n @ w[p + "attn_v.weight"].T, self.kv_heads)
            x = x + self._attend(q, k, v) @ w[p + "attn_output.weight"].T
            n = self._norm(x, w[p + "ffn_norm.weight"])
            gate, up = n @ w[p + "ffn_gate.weight"].T, n @ w[p + "ffn_up.weight"].T
            x = x + (gate / (1 + np.exp(-gate)) * up) @ w[p + "ffn_down.weight"].T
        return self._norm(x, w["output_norm.weight"]) @ w.get("output.weight", w["token_embd.weight"]).T

    def _norm(self, x: np.ndarray, gamma: np.ndarray) -> np.ndarray:
        return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + self.eps) * gamma

    def _split(self, x: np.ndarray, heads: int) -> np.ndarray:
        """[S, heads * D] -> [heads, S, D]"""
        return x.reshape(len(x), heads, self.head_dim).swapaxes(0, 1)

    def _rotate(self, x: np.ndarray) -> np.ndarray:
        """Pairs (2i, 2i + 1) as complex numbers, turned by position * base^(-2i / rotated)."""
        pair = np.arange(0, self.rotated, 2)
        frequency = self.base ** (-pair / self.rotated) / self.scale
        if "rope_freqs.weight" in self.weights:
            frequency = frequency / self.weights["rope_freqs.weight"]
        turn = np.exp(1j * np.arange(x.shape[1])[:, None] * frequency)
        turned = (x[..., pair] + 1j * x[..., pair + 1]) * turn
        result = x.copy()
        result[..., pair], result[..., pair + 1] = turned.real, turned.imag
        return result

    def _attend(self, q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
        """[H, S, D] and [Hkv, S, D] -> [S, H * D]; query head h reads head h // (H / Hkv), keys up to its position."""
        heads, length, width = q.shape
        result = np.empty((length, heads, width), self.dtype)
        for h in range(heads):
            shared = h // (heads // self.kv_heads)
            for i in range(length):
                scores = k[shared, : i + 1] @ q[h, i] / np.sqrt(width)
                weights = np.exp(scores - scores.max())
                result[i, h] = weights / weights.sum() @ v[shared, : i + 1]
        return result.reshape(length, -1)
