# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reductions, and what goes along a dimension: softmax, running sums, the largest elements."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rlx_mlir.frontends.indexing import with_last
from rlx_mlir.frontends.tensors import Tensor
from rlx_mlir.hir import Value
from rlx_mlir.mir.dims import product

from ..call import Call
from ..registry import Refused, operator
from ..types import FLOATS

_Reduction = Callable[[Call, Value, list[int], bool], Value]


def _axes(call: Call) -> list[int] | None:
    """The dimensions that are reduced, in order; None for none of them."""
    rank = call.rank(0)
    found = call.axes(1)
    if not found:
        return None if call.flag("noop_with_empty_axes") else list(range(rank))
    return sorted({call.along(axis, rank) for axis in found})


def _reduction(name: str, before: Callable[[Call, Value], Value] | None = None) -> Callable[[_Reduction], _Reduction]:
    """An operator that reduces dimensions, in f32 for floats of 16 bits.

    Args:
        before: what it does with each element where no dimension is reduced.
    """

    def add(reduce: _Reduction) -> _Reduction:
        @operator(name)
        def run(call: Call) -> Tensor:
            x, axes = call.value(0), _axes(call)
            wide = call.wide(x)
            if axes is None:
                y = wide if before is None else before(call, wide)
            else:
                y = reduce(call, wide, axes, call.flag("keepdims", True))
            return call.out(call.narrowed(y, x.dtype))

        return reduce

    return add


@_reduction("ReduceSum")
def _sum(call: Call, x: Value, axes: list[int], keep: bool) -> Value:
    return call.m.sum(x, axes, keep_dims=keep)


@_reduction("ReduceMean")
def _mean(call: Call, x: Value, axes: list[int], keep: bool) -> Value:
    if x.dtype not in FLOATS:
        raise Refused(f"the mean of elements of type {x.dtype}")
    return call.m.mean(x, axes, keep_dims=keep)


@_reduction("ReduceProd")
def _prod(call: Call, x: Value, axes: list[int], keep: bool) -> Value:
    return call.m.prod(x, axes, keep_dims=keep)


@_reduction("ReduceMax")
def _max(call: Call, x: Value, axes: list[int], keep: bool) -> Value:
    return call.m.reduce(x, "any" if x.dtype == np.bool_ else "max", axes, keep_dims=keep)


@_reduction("ReduceMin")
def _min(call: Call, x: Value, axes: list[int], keep: bool) -> Value:
    return call.m.reduce(x, "all" if x.dtype == np.bool_ else "min", axes, keep_dims=keep)


def _size(call: Call, x: Value) -> Value:
    if x.dtype in FLOATS:
        return call.m.abs(x)
    return x if x.dtype.kind == "u" else call.m.maximum(x, call.m.sub(call.scalar(0, x), x))


def _needs_floats(x: Value) -> None:
    if x.dtype not in FLOATS:
        raise Refused(f"elements of type {x.dtype}")


@_reduction("ReduceL1", _size)
def _l1(call: Call, x: Value, axes: list[int], keep: bool) -> Value:
    return call.m.sum(_size(call, x), axes, keep_dims=keep)


@_reduction("ReduceL2", _size)
def _l2(call: Call, x: Value, axes: list[int], keep: bool) -> Value:
    _needs_floats(x)
    return call.m.sqrt(call.m.sum(x * x, axes, keep_dims=keep))


@_reduction("ReduceSumSquare", lambda call, x: call.m.mul(x, x))
def _sum_square(call: Call, x: Value, axes: list[int], keep: bool) -> Value:
    return call.m.sum(x * x, axes, keep_dims=keep)


@_reduction("ReduceLogSum", lambda call, x: call.m.log(x))
def _log_sum(call: Call, x: Value, axes: list[int], keep: bool) -> Value:
    _needs_floats(x)
    return call.m.log(call.m.sum(x, axes, keep_dims=keep))


@_reduction("ReduceLogSumExp", lambda call, x: x)
def _log_sum_exp(call: Call, x: Value, axes: list[int], keep: bool) -> Value:
    _needs_floats(x)
    return log_sum_exp(call, x, axes, keep)


def log_sum_exp(call: Call, x: Value, axes: list[int], keep: bool) -> Value:
    """log(sum(e^x)) along dimensions; -inf of none, and inf where an element is."""
    m = call.m
    top = m.max(x, axes, keep_dims=True)
    top = m.where(m.eq(m.abs(top), float("inf")), 0.0 * m.exp(-m.abs(top)), top)
    total = m.log(m.sum(m.exp(x - top), axes, keep_dims=True)) + top
    return (
        total if keep else call.reshaped(total, [s for i, s in enumerate(Tensor.running(total).shape) if i not in axes])
    )


# Along one dimension --------------------------------------------------------------------------------


def _flattened(call: Call, run: Callable[[Value, int], Value]) -> Tensor:
    """What an operator computes along `axis`: before version 13 along all dimensions from there on."""
    call.needs_floats()
    x, rank = call.value(0), call.rank(0)
    if call.version >= 13:
        return call.out(run(x, call.axis(-1, rank)))
    axis = call.axis(1, rank)
    shape = call.shape(0)
    if axis == rank - 1:
        return call.out(run(x, axis))
    flat = call.reshaped(x, [*shape[:axis], product(shape[axis:])])
    return call.out(call.reshaped(run(flat, axis), shape))


@operator("Softmax")
def _softmax(call: Call) -> Tensor:
    return _flattened(call, call.m.softmax)


@operator("LogSoftmax")
def _log_softmax(call: Call) -> Tensor:
    def run(x: Value, axis: int) -> Value:
        wide = call.wide(x)
        return call.narrowed(log_softmax(call, wide, axis), x.dtype)

    return _flattened(call, run)


def log_softmax(call: Call, x: Value, axis: int) -> Value:
    """log(softmax(x)) along a dimension, computed of differences."""
    m = call.m
    shifted = x - m.max(x, axis, keep_dims=True)
    return shifted - m.log(m.sum(m.exp(shifted), axis, keep_dims=True))


@operator("CumSum")
def _cumsum(call: Call) -> Tensor:
    x, m = call.value(0), call.m
    (axis,) = call.known_ints(1, "the axis")
    axis = call.along(axis, call.rank(0))
    reverse = call.flag("reverse")
    y = m.cumsum(m.flip(x, axis) if reverse else x, axis, exclusive=call.flag("exclusive"))
    return call.out(m.flip(y, axis) if reverse else y)


@operator("CumProd")
def _cumprod(call: Call) -> Tensor:
    x, m = call.value(0), call.m
    (axis,) = call.known_ints(1, "the axis")
    axis, exclusive = call.along(axis, call.rank(0)), call.flag("exclusive")
    order = [axis, *(i for i in range(call.rank(0)) if i != axis)]
    back = [order.index(i) for i in range(call.rank(0))]
    wide = call.wide(x)
    rows = m.transpose(wide, order)
    one = call.filled(1, [s for i, s in enumerate(call.shape(0)) if i != axis], wide.dtype)

    def step(total: Value, row: Value) -> tuple[Value, Value]:
        following = m.mul(total, row)
        return following, total if exclusive else following

    _, found = m.scan(step, one, rows, reverse=call.flag("reverse"))
    return call.out(call.narrowed(m.transpose(found, back), x.dtype))


def _extreme(call: Call, kind: str) -> Tensor:
    """Where the largest or smallest elements are along a dimension."""
    x, m = call.value(0), call.m
    axis = call.axis(0, call.rank(0))
    places = call.iota(call.shape(0), axis)
    found = m.eq(x, m.reduce(x, kind, axis, keep_dims=True))
    last = call.flag("select_last_index")
    other = np.int64(-1 if last else np.iinfo(np.int64).max)
    keep = call.flag("keepdims", True)
    return call.out(m.reduce(m.where(found, places, other), "max" if last else "min", axis, keep_dims=keep))


@operator("ArgMax")
def _argmax(call: Call) -> Tensor:
    return _extreme(call, "max")


@operator("ArgMin")
def _argmin(call: Call) -> Tensor:
    return _extreme(call, "min")


@operator("TopK", since=10)
def _top_k(call: Call) -> tuple[Tensor, Tensor]:
    x, m = call.value(0), call.m
    (k,) = call.sizes(1, "the number of elements")
    rank = call.rank(0)
    axis = call.axis(-1, rank)
    largest = call.flag("largest", True)
    rows, back = with_last(m, x, axis)
    values, places = m.top_k(rows, k, smallest=not largest, nan_largest=not largest)
    return call.out(back(values)), call.out(m.cast(back(places), "i64"))
