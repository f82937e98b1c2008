# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reductions, softmax, running sums, and the largest entries."""

from __future__ import annotations

from typing import Any

from rlx_mlir.autodiff.builders import Builders
from rlx_mlir.autodiff.folding import folded
from rlx_mlir.autodiff.registry import (
    Forward,
    Reverse,
    dims_within,
    jvp,
    linear,
    spread,
    vjp,
)
from rlx_mlir.dialects import mir
from rlx_mlir.hir.values import Value
from rlx_mlir.mir.dims import Size


@vjp(mir.ReduceOp)
def reduce(m: Builders, at: Reverse, x: Value, *, kind: str, axes: list[int], keep_dims: bool = False) -> Value | None:
    """sum: dy; mean: dy / n; max and min: dy at each place that has the result; prod: dy times the other elements."""
    if kind in ("any", "all"):
        return None
    along = dims_within(x, axes)
    dy = _divided(m, at.dy, x, along) if kind == "mean" else at.dy
    each = spread(m, dy, x, along, keep_dims=keep_dims)
    if kind in ("sum", "mean"):
        return each
    if kind == "prod":
        return m.mul(each, product_of_others(m, x, along))
    reached = m.eq(x, spread(m, at.y, x, along, keep_dims=keep_dims))
    return m.where(reached, each, m.constant(0.0, x.dtype))


def _divided(m: Builders, dy: Value, x: Value, axes: list[int]) -> Value:
    """dy / n, of the number n of elements of each mean; rounded once."""
    kind = "f64" if x.dtype.name == "float64" else "f32"
    count: Value = m.constant(1.0, kind)
    for axis in axes:
        count = m.mul(count, m.dim(x, axis, kind))
    if x.dtype.kind == "c":
        return m.div(dy, m.cast(count, x.dtype))
    return m.cast(m.div(m.cast(dy, kind), count), x.dtype)


def product_of_others(m: Builders, x: Value, axes: list[int]) -> Value:
    """For each element, the product of the others along axes: without a division, so that zeros are right, too."""
    order = [*axes, *(axis for axis in range(x.ndim) if axis not in axes)]
    moved = m.transpose(x, order)
    count = Size.of(1)
    for size in m.sizes_of(moved)[: len(axes)]:
        count *= size
    one = m.reshape(moved, [count, *m.sizes_of(moved)[len(axes) :]])
    rest = m.mul(_products(m, one, reverse=False), _products(m, one, reverse=True))
    return m.transpose(m.reshape(rest, m.sizes_of(moved)), [order.index(axis) for axis in range(x.ndim)])


def _products(m: Builders, x: Value, *, reverse: bool) -> Value:
    """The product of what stands before each entry along the first axis, or after it: 1 for the outermost one."""
    one = m.constant(1.0, x.dtype)
    start = m.expand(one, m.sizes_of(x)[1:]) if x.ndim > 1 else one
    _, stacked = m.scan(lambda product, entry: (m.mul(product, entry), product), start, x, reverse=reverse)
    found: Value = stacked
    return found


@jvp(mir.ReduceOp)
def reduce_forward(
    m: Builders, at: Forward, x: Value, *, kind: str, axes: list[int], keep_dims: bool = False
) -> Value | None:
    """The sum over the places that a result is made of."""
    tangent, along = at.tangents[0], dims_within(x, axes)
    if kind in ("any", "all"):
        return None
    if kind in ("sum", "mean"):
        return m.reduce(tangent, kind, along, keep_dims=keep_dims)
    if kind == "prod":
        return m.sum(m.mul(tangent, product_of_others(m, x, along)), along, keep_dims=keep_dims)
    reached = m.eq(x, spread(m, at.y, x, along, keep_dims=keep_dims))
    return m.sum(m.where(reached, tangent, m.constant(0.0, x.dtype)), along, keep_dims=keep_dims)


@vjp(mir.SoftmaxOp)
def softmax(m: Builders, at: Reverse, x: Value, *, axis: int = -1) -> Value:
    """y (dy - sum(dy y))"""
    return _softmax(m, at.y, at.dy, axis)


@jvp(mir.SoftmaxOp)
def softmax_forward(m: Builders, at: Forward, x: Value, *, axis: int = -1) -> Value:
    """The same: its matrix of derivatives is symmetric."""
    return _softmax(m, at.y, at.tangents[0], axis)


def _softmax(m: Builders, y: Value, change: Value, axis: int) -> Value:
    return m.mul(y, m.sub(change, m.sum(m.mul(change, y), axis, keep_dims=True)))


@vjp(mir.CumsumOp)
def cumsum(m: Builders, at: Reverse, x: Value, *, axis: int = -1, exclusive: bool = False) -> Value:
    """The sum of what comes from each place on."""
    own = axis % x.ndim
    back = m.cumsum(m.slice(at.dy, own, None, None, -1), own, exclusive=exclusive)
    return m.slice(back, own, None, None, -1)


linear(mir.CumsumOp)


@vjp(mir.TopKOp)
def top_k(m: Builders, at: Reverse, x: Value, *like: Value, **_: Any) -> Value | None:
    """The cotangents at the places that the entries were at."""
    dy, indices = at.cotangents[0], at.results[1]
    if dy is None:
        return None
    if x.ndim == 1:
        return m.scatter_add(dy, indices, x, 0)
    flat, places, rows = (folded(m, own, 0, x.ndim - 1) for own in (dy, indices, x))
    count, size = m.sizes_of(rows)[0], x.shape[-1]
    width = size if isinstance(size, int) else m.dim(x, x.ndim - 1, "i64")
    starts = m.reshape(m.mul(m.iota([count], 0, "i64"), width), [count, 1])
    within = m.reshape(m.add(m.cast(places, "i64"), starts), [-1])
    back = m.scatter_add(m.reshape(flat, [-1]), within, m.reshape(rows, [-1]), 0)
    return m.reshape(back, m.sizes_of(x))


@jvp(mir.TopKOp)
def top_k_forward(m: Builders, at: Forward, x: Value, *like: Value, **_: Any) -> tuple[Value | None, None]:
    """The tangents at the places that the entries are at."""
    return m.gather(at.tangents[0], at.results[1], x.ndim - 1, batch_dims=x.ndim - 1), None
