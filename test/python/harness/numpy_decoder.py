# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Models of the LLaMA, Qwen and Gemma families in plain numpy, in f64 unless told otherwise: what others must equal.

Shares no code with the package but the reader of the file. Takes a whole sequence at once, without a cache, and
decodes a weight when it is used, so that large files fit.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rlx_mlir.frontends.gguf import GGUFFile


class NumpyDecoder:
    """The model of a file."""

    def __init__(self, file: GGUFFile, dtype: type[np.floating] = np.float64) -> None:
        self.file = file
        self.family = file.architecture
        self.layers = self._meta("block_count")
        self.hidden = self._meta("embedding_length")
        self.heads = self._meta("attention.head_count")
        self.kv_heads = self._meta("attention.head_count_kv", self.heads)
        self.head_dim = self._meta("attention.key_length", self.hidden // self.heads)
        self.rotated = self._meta("rope.dimension_count", self.head_dim)
        self.base = self._meta("rope.freq_base", 10000.0)
        linear = self._meta("rope.scaling.type", "linear") == "linear"
        self.stretch = self._meta("rope.scaling.factor", 1.0) if linear else 1.0
        self.eps = self._meta("attention.layer_norm_rms_epsilon")
        self.dtype = dtype

    def _meta(self, key: str, default: object = None) -> object:
        return self.file.metadata.get(f"{self.family}.{key}", default)

    def weight(self, name: str) -> np.ndarray:
        return self.file.dequantize(name).astype(self.dtype, copy=False)

    def logits(self, tokens: Sequence[int], last: int | None = None) -> np.ndarray:
        """Logits after each token, or after the ``last`` ones, [.., vocab]."""
        ids = np.asarray(tokens)
        table = self.weight("token_embd.weight")
        x = table[ids]
        if self.family == "gemma3":
            x = x * np.sqrt(self.hidden)
        for layer in range(self.layers):
            x = self._layer(layer, x)
        x = self._norm(x[0 if last is None else -last :], "output_norm.weight")
        head = self.weight("output.weight") if "output.weight" in self.file.tensors else table
        return x @ head.T

    def _layer(self, layer: int, x: np.ndarray) -> np.ndarray:
        p = f"blk.{layer}."
        n = self._norm(x, p + "attn_norm.weight")
        q, k, v = (n @ self.weight(f"{p}attn_{name}.weight").T for name in "qkv")
        if self.family == "qwen2":
            q, k, v = (y + self.weight(f"{p}attn_{name}.bias") for y, name in zip((q, k, v), "qkv", strict=True))
        q, k, v = self._split(q, self.heads), self._split(k, self.kv_heads), self._split(v, self.kv_heads)
        if self.family in ("qwen3", "gemma3"):
            q, k = self._norm(q, p + "attn_q_norm.weight"), self._norm(k, p + "attn_k_norm.weight")
        near = self.family == "gemma3" and (layer + 1) % self._meta("attention.sliding_window_pattern", 6) != 0
        base, stretch = (10000.0, 1.0) if near else (self.base, self.stretch)
        window = self._meta("attention.sliding_window") if near else len(x)
        a = self._attend(self._rotate(q, base, stretch), self._rotate(k, base, stretch), v, window)
        a = a @ self.weight(p + "attn_output.weight").T
        if self.family == "gemma3":
            a = self._norm(a, p + "post_attention_norm.weight")
        x = x + a
        n = self._norm(x, p + "ffn_norm.weight")
        gate = n @ self.weight(p + "ffn_gate.weight").T
        if self.family == "gemma3":
            gate = gate / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (gate + 0.044715 * gate**3)))
        else:
            gate = gate / (1 + np.exp(-gate))
        f = (gate * (n @ self.weight(p + "ffn_up.weight").T)) @ self.weight(p + "ffn_down.weight").T
        if self.family == "gemma3":
            f = self._norm(f, p + "post_ffw_norm.weight")
        return x + f

    def _norm(self, x: np.ndarray, name: str) -> np.ndarray:
        return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + self.eps) * self.weight(name)

    def _split(self, x: np.ndarray, heads: int) -> np.ndarray:
        """[S, heads * D] -> [heads, S, D]"""
        return x.reshape(len(x), heads, self.head_dim).transpose(1, 0, 2)

    def _rotate(self, x: np.ndarray, base: float, stretch: float) -> np.ndarray:
        """Pairs as complex numbers, turned by position * base^(-2i / rotated)."""
        count = self.rotated // 2
        first = np.arange(0, self.rotated, 2) if self.family == "llama" else np.arange(count)
        second = first + (1 if self.family == "llama" else count)
        frequency = base ** (-2 * np.arange(count) / self.rotated) / stretch
        if "rope_freqs.weight" in self.file.tensors:
            frequency = frequency / self.weight("rope_freqs.weight")
        turn = np.exp(1j * np.arange(x.shape[1])[:, None] * frequency)
        turned = (x[..., first] + 1j * x[..., second]) * turn
        result = x.copy()
        result[..., first], result[..., second] = turned.real, turned.imag
        return result

    def _attend(self, q: np.ndarray, k: np.ndarray, v: np.ndarray, window: int) -> np.ndarray:
        """[H, S, D] and [Hkv, S, D] -> [S, H * D]; query head h reads head h // (H / Hkv), its last keys."""
        heads, length, width = q.shape
        result = np.empty((length, heads, width), self.dtype)
        for h in range(heads):
            shared = h // (heads // self.kv_heads)
            for i in range(length):
                seen = slice(max(0, i + 1 - window), i + 1)
                scores = k[shared, seen] @ q[h, i] / np.sqrt(width)
                weights = np.exp(scores - scores.max())
                result[i, h] = weights / weights.sum() @ v[shared, seen]
        return result.reshape(length, -1)
