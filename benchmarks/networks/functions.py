# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The functions that networks are written in: as builders of a graph, and as torch has them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import rlx_mlir as rlx


class Ours:
    """As builders of primitives."""

    def __init__(self, m: rlx.GraphModule) -> None:
        self._m = m
        self.relu, self.silu, self.gelu, self.sigmoid, self.exp = m.relu, m.silu, m.gelu, m.sigmoid, m.exp
        self.reshape, self.transpose, self.concat, self.top_k = m.reshape, m.transpose, m.concat, m.top_k

    def conv(self, x: Any, w: Any, stride: int, padding: int) -> Any:
        """Kernels [o, c, u, v] slid over images [n, c, h, w]."""
        return self._m.conv2d(x, w, stride=stride, padding=padding)

    def depthwise(self, x: Any, w: Any, before: int, after: int) -> Any:
        """Each channel of sequences [n, s, c] with zeros around by its own taps [c, 1, 1, k]."""
        m, (batch, _, channels) = self._m, x.shape
        zeros = {count: m.expand(m.constant(0.0), [batch, count, channels]) for count in (before, after) if count}
        padded = m.concat([*([zeros[before]] if before else []), x, *([zeros[after]] if after else [])], 1)
        rows = m.reshape(m.transpose(padded, [0, 2, 1]), [batch, channels, 1, -1])
        return m.transpose(m.reshape(m.conv2d(rows, w, groups=channels), [batch, channels, -1]), [0, 2, 1])

    def by_channel(self, vector: Any) -> Any:
        """A number for each channel, as images have them."""
        return self._m.reshape(vector, [-1, 1, 1])

    def largest(self, x: Any, size: int, stride: int, padding: int) -> Any:
        """The largest of each window of images."""
        return self._m.pool(x, "max", size, stride=stride, padding=padding)

    def mean(self, x: Any, axes: Sequence[int]) -> Any:
        """Over dimensions, which go."""
        return self._m.mean(x, list(axes))

    def linear(self, x: Any, w: Any, shift: Any = None) -> Any:
        """x w + shift"""
        return x @ w if shift is None else x @ w + shift

    def layer_norm(self, x: Any, factor: Any, shift: Any, eps: float) -> Any:
        """Along the last dimension."""
        return self._m.layer_norm(x, factor, shift, eps=eps)

    def rms_norm(self, x: Any, factor: Any, eps: float) -> Any:
        """Along the last dimension."""
        return self._m.rms_norm(x, factor, eps=eps)

    def softmax(self, x: Any) -> Any:
        """Along the last dimension."""
        return self._m.softmax(x, -1)

    def softplus(self, x: Any) -> Any:
        """log(1 + exp(x)), of large numbers too."""
        m = self._m
        return m.relu(x) + m.log(m.exp(-m.abs(x)) + 1.0)

    def attention(self, q: Any, k: Any, v: Any, heads: int, shared: int, causal: bool) -> Any:
        """Of sequences [n, s, heads d], of which `shared` heads have keys and values."""
        size, kind = q.shape[-1] // heads, "causal" if causal else "none"
        return self._m.attention(q, k, v, num_heads=heads, num_kv_heads=shared, head_dim=size, mask_kind=kind)

    def selective_scan(self, x: Any, step: Any, rates: Any, b: Any, c: Any) -> Any:
        """The recurrence of Mamba, from a state of zeros."""
        return self._m.selective_scan(x, step, rates, b, c)[0]

    def mixture(self, x: Any, experts: Any, weights: Any, products: Sequence[Any], total: int) -> Any:
        """Rows [t, n] by those [t, k] of `total` experts that each has, summed by weights [t, k].

        Products are [total, inputs, outputs], or packed, [total * outputs, inputs].
        """
        m, (tokens, width), count = self._m, x.shape, experts.shape[1]
        gate, up, down = products
        rows = m.reshape(m.expand(m.reshape(x, [tokens, 1, width]), [tokens, count, width]), [-1, width])
        own = m.reshape(experts, [-1])

        def by_expert(x: Any, product: Any) -> Any:
            if product.ndim == 3:
                return m.grouped_matmul(x, product, own)
            return m.dequant_grouped_matmul(x, product, own, experts=total)

        inner = m.silu(by_expert(rows, gate)) * by_expert(rows, up)
        each = m.reshape(by_expert(inner, down), [tokens, count, width])
        return m.sum(each * m.reshape(weights, [tokens, count, 1]), 1)

    def resized(self, table: Any, like: Any) -> Any:
        """A table [a, b, n] by bicubic interpolation, [1, rows, columns, n], as large as images [1, n, rows, columns].

        One matrix of weights for each direction, and two products.
        """
        m, (rows, columns, width) = self._m, table.shape
        bordered = m.gather(m.gather(table, _around(rows)), _around(columns), axis=1)
        by_row, by_column = (self._weights(like, axis, size) for axis, size in ((2, rows), (3, columns)))
        tall = m.reshape(by_row @ m.reshape(bordered, [rows + 4, -1]), [like.shape[2], columns + 4, width])
        return m.reshape(m.matmul(by_column, tall), [1, *like.shape[2:], width])

    def _weights(self, like: Any, axis: int, size: int) -> Any:
        """The weights of entries -2 to size + 1 in each of those places that `like` has along an axis."""
        m = self._m
        places = m.cast(m.iota([like.shape[axis], 1]), "f32")
        centres = (places + 0.5) * (float(size) / m.dim(like, axis, "f32")) - 0.5
        far = m.abs(centres - m.constant(_around(size).astype(np.float32)))
        near = ((far * 1.25 - 2.25) * far) * far + 1.0
        outer = ((far * -0.75 + 3.75) * far - 6.0) * far + 3.0
        return m.where(far <= 1.0, near, m.where(far < 2.0, outer, 0.0))


def _around(size: int) -> np.ndarray:
    """Entries of a table and two on each side, which are those at its border."""
    return np.arange(-2, size + 2, dtype=np.int32)


class Torch:
    """As torch has them; what each computes stands with `Ours`."""

    def __init__(self) -> None:
        import torch

        self._t, self._f = torch, torch.nn.functional
        self.relu, self.silu, self.gelu = torch.relu, self._f.silu, self._f.gelu
        self.sigmoid, self.exp, self.softplus = torch.sigmoid, torch.exp, self._f.softplus
        self.reshape, self.transpose, self.concat, self.top_k = torch.reshape, torch.permute, torch.cat, torch.topk

    def conv(self, x: Any, w: Any, stride: int, padding: int) -> Any:
        return self._f.conv2d(x, w, stride=stride, padding=padding)

    def depthwise(self, x: Any, w: Any, before: int, after: int) -> Any:
        padded = self._f.pad(x.transpose(1, 2), (before, after))
        return self._f.conv1d(padded, w[:, :, 0], groups=w.shape[0]).transpose(1, 2)

    def by_channel(self, vector: Any) -> Any:
        return vector[:, None, None]

    def largest(self, x: Any, size: int, stride: int, padding: int) -> Any:
        return self._f.max_pool2d(x, size, stride=stride, padding=padding)

    def mean(self, x: Any, axes: Sequence[int]) -> Any:
        return x.mean(axes)

    def linear(self, x: Any, w: Any, shift: Any = None) -> Any:
        return self._f.linear(x, w.T, shift)

    def layer_norm(self, x: Any, factor: Any, shift: Any, eps: float) -> Any:
        return self._f.layer_norm(x, factor.shape, factor, shift, eps)

    def rms_norm(self, x: Any, factor: Any, eps: float) -> Any:
        return self._f.rms_norm(x, factor.shape, factor, eps)

    def softmax(self, x: Any) -> Any:
        return self._f.softmax(x, -1)

    def attention(self, q: Any, k: Any, v: Any, heads: int, shared: int, causal: bool) -> Any:
        def apart(x: Any, count: int) -> Any:
            return x.unflatten(-1, (count, -1)).transpose(1, 2)

        own = (apart(q, heads), apart(k, shared), apart(v, shared))
        attended = self._f.scaled_dot_product_attention(*own, is_causal=causal, enable_gqa=heads != shared)
        return attended.transpose(1, 2).flatten(2)

    def selective_scan(self, x: Any, step: Any, rates: Any, b: Any, c: Any) -> Any:
        decay = self._t.exp(step[..., None] * rates)
        fresh = (step * x)[..., None] * b[:, :, None]
        state, results = fresh.new_zeros(fresh[:, 0].shape), []
        for at in range(x.shape[1]):
            state = state * decay[:, at] + fresh[:, at]
            results.append((state * c[:, at, None]).sum(-1))
        return self._t.stack(results, 1)

    def mixture(self, x: Any, experts: Any, weights: Any, products: Sequence[Any], total: int) -> Any:
        gate, up, down = products
        mixed = self._t.zeros_like(x)
        for expert in range(total):
            rows, places = self._t.where(experts == expert)
            own = x[rows]
            inner = self._f.silu(own @ gate[expert]) * (own @ up[expert])
            mixed.index_add_(0, rows, inner @ down[expert] * weights[rows, places, None])
        return mixed

    def resized(self, table: Any, like: Any) -> Any:
        image = table.permute(2, 0, 1)[None]
        return self._f.interpolate(image, size=like.shape[2:], mode="bicubic").permute(0, 2, 3, 1)
