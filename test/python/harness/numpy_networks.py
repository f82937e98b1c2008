# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The functions of `benchmarks/networks` by numpy alone, in f64: written without the package, to compare with it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np


class Numpy:
    """What each computes stands with `Ours` of `benchmarks/networks/functions.py`."""

    reshape = staticmethod(np.reshape)
    transpose = staticmethod(np.transpose)
    concat = staticmethod(np.concatenate)
    exp = staticmethod(np.exp)

    def relu(self, x: np.ndarray) -> np.ndarray:
        return np.maximum(x, 0)

    def sigmoid(self, x: np.ndarray) -> np.ndarray:
        return 1 / (1 + np.exp(-x))

    def silu(self, x: np.ndarray) -> np.ndarray:
        return x / (1 + np.exp(-x))

    def gelu(self, x: np.ndarray) -> np.ndarray:
        return x / 2 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))

    def softplus(self, x: np.ndarray) -> np.ndarray:
        return np.logaddexp(x, 0)

    def softmax(self, x: np.ndarray) -> np.ndarray:
        powers = np.exp(x - x.max(-1, keepdims=True))
        return powers / powers.sum(-1, keepdims=True)

    def conv(self, x: np.ndarray, w: np.ndarray, stride: int, padding: int) -> np.ndarray:
        around = np.pad(x, [(0, 0), (0, 0), (padding, padding), (padding, padding)])
        windows = np.lib.stride_tricks.sliding_window_view(around, w.shape[2:], (2, 3))[:, :, ::stride, ::stride]
        return np.einsum("nchwuv,ocuv->nohw", windows, w, optimize=True)

    def depthwise(self, x: np.ndarray, w: np.ndarray, before: int, after: int) -> np.ndarray:
        around = np.pad(x, [(0, 0), (before, after), (0, 0)])
        return np.einsum("nsck,ck->nsc", np.lib.stride_tricks.sliding_window_view(around, w.shape[3], 1), w[:, 0, 0])

    def by_channel(self, vector: np.ndarray) -> np.ndarray:
        return vector[:, None, None]

    def largest(self, x: np.ndarray, size: int, stride: int, padding: int) -> np.ndarray:
        border = [(0, 0), (0, 0), (padding, padding), (padding, padding)]
        around = np.pad(x, border, constant_values=-np.inf)
        windows = np.lib.stride_tricks.sliding_window_view(around, (size, size), (2, 3))
        return windows[:, :, ::stride, ::stride].max((4, 5))

    def mean(self, x: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
        return x.mean(axes)

    def linear(self, x: np.ndarray, w: np.ndarray, shift: np.ndarray | float = 0.0) -> np.ndarray:
        return x @ w + shift

    def layer_norm(self, x: np.ndarray, factor: np.ndarray, shift: np.ndarray, eps: float) -> np.ndarray:
        return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + eps) * factor + shift

    def rms_norm(self, x: np.ndarray, factor: np.ndarray, eps: float) -> np.ndarray:
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * factor

    def attention(
        self, q: np.ndarray, k: np.ndarray, v: np.ndarray, heads: int, shared: int, causal: bool
    ) -> np.ndarray:
        batch, tokens, width = q.shape
        size, results = width // heads, []
        for head in range(heads):
            first = head // (heads // shared) * size
            own = q[..., head * size : (head + 1) * size]
            scores = own @ k[..., first : first + size].swapaxes(1, 2) / math.sqrt(size)
            if causal:
                scores = np.where(np.tri(tokens, dtype=bool), scores, -np.inf)
            results.append(self.softmax(scores) @ v[..., first : first + size])
        return np.concatenate(results, -1).reshape(batch, tokens, width)

    def selective_scan(
        self, x: np.ndarray, step: np.ndarray, rates: np.ndarray, b: np.ndarray, c: np.ndarray
    ) -> np.ndarray:
        state, results = np.zeros((x.shape[0], *rates.shape)), []
        for at in range(x.shape[1]):
            state = np.exp(step[:, at, :, None] * rates) * state
            state = state + (step[:, at] * x[:, at])[..., None] * b[:, at, None]
            results.append(np.einsum("bhn,bn->bh", state, c[:, at]))
        return np.stack(results, 1)

    def top_k(self, x: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
        places = np.argsort(-x, -1, kind="stable")[..., :count]
        return np.take_along_axis(x, places, -1), places

    def mixture(
        self, x: np.ndarray, experts: np.ndarray, weights: np.ndarray, products: Sequence[np.ndarray], total: int
    ) -> np.ndarray:
        gate, up, down = products
        assert len(gate) == total
        mixed = np.zeros(x.shape)
        for token, choice in np.ndindex(*experts.shape):
            expert = experts[token, choice]
            inner = self.silu(x[token] @ gate[expert]) * (x[token] @ up[expert])
            mixed[token] += weights[token, choice] * (inner @ down[expert])
        return mixed

    def resized(self, table: np.ndarray, like: np.ndarray) -> np.ndarray:
        for axis, count in enumerate(like.shape[2:]):
            entries = np.moveaxis(table, axis, 0)
            table = np.moveaxis(np.stack([_between(entries, at, count) for at in range(count)]), 0, axis)
        return table[None]


def _between(entries: np.ndarray, at: int, count: int) -> np.ndarray:
    """The entry at a place of `count`: a cubic through the four around it, whose slopes are 3/4 of differences."""
    place = (at + 0.5) * len(entries) / count - 0.5
    first = math.floor(place)
    before, left, right, after = (entries[min(max(first + step, 0), len(entries) - 1)] for step in (-1, 0, 1, 2))
    t, here, there = place - first, (right - before) * 0.75, (after - left) * 0.75
    line = (2 * t**3 - 3 * t**2 + 1) * left + (3 * t**2 - 2 * t**3) * right
    return line + (t**3 - 2 * t**2 + t) * here + (t**3 - t**2) * there
