# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reductions, and what is computed from a whole row."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np

from rlx_mlir import ir
from rlx_mlir.attributes import python_value
from rlx_mlir.dialects import mir
from rlx_mlir.errors import InputError
from rlx_mlir.mir.cost import Cost, Sizes, cost, per_element
from rlx_mlir.mir.dims import Size, followed
from rlx_mlir.mir.linalg import (
    SizeLike,
    added,
    completed,
    converted,
    count_as,
    element_type,
    elementwise,
    empty,
    extract_slice,
    filled,
    for_each,
    generic,
    plus,
    reduced,
    size_of,
    sizes_of,
    summed,
    tensor_type,
    write_slice,
)
from rlx_mlir.mir.numerics import is_float as is_float_dtype
from rlx_mlir.mir.numerics import narrow, sum_along, widen
from rlx_mlir.mir.registry import TO_LINALG, dim_rule, reference
from rlx_mlir.mir.scalars import (
    Scalar,
    accumulator,
    element,
    exp,
    extract,
    index,
    integer_range,
    is_complex,
    is_float,
    joined,
)
from rlx_mlir.mir.shape import like_number, like_size, like_sizes
from rlx_mlir.mir.sorting import positions_in_order
from rlx_mlir.rewriting import Rewriter

# ----------------------------------------------------------------------------------------------------------------------
# References
# ----------------------------------------------------------------------------------------------------------------------


def start_of(kind: str, dtype: np.dtype) -> object:
    """The largest or smallest of no element."""
    if is_float_dtype(dtype):
        return -np.inf if kind == "max" else np.inf
    return np.iinfo(dtype).min if kind == "max" else np.iinfo(dtype).max


@reference(mir.ReduceOp)
def reduce(x: np.ndarray, *, kind: str, axes: Sequence[int], keep_dims: bool = False) -> np.ndarray:
    """Sum, mean, largest, smallest or product along `axes`; NaN gives NaN, integers wrap around; any, all of i1."""
    wide = widen(x)
    along: dict[str, Any] = {"axis": tuple(axes), "keepdims": keep_dims}
    total: np.ndarray
    if kind in ("any", "all"):
        return np.asarray(np.any(x, **along) if kind == "any" else np.all(x, **along))
    if kind in ("max", "min"):
        function: Callable[..., np.ndarray] = np.max if kind == "max" else np.min
        total = function(wide, initial=start_of(kind, wide.dtype), **along)
    elif kind == "prod":
        total = np.prod(wide, dtype=wide.dtype, **along)
    else:
        total = sum_along(wide, axes, keep_dims=keep_dims)
        if kind == "mean":
            total = total / wide.dtype.type(np.prod([x.shape[axis] for axis in axes]))
    return narrow(np.asarray(total), x.dtype)


@reference(mir.SoftmaxOp)
def softmax(x: np.ndarray, *, axis: int = -1) -> np.ndarray:
    """exp(x - max(x)) / sum(exp(x - max(x)))"""
    wide = widen(x)
    exponential = np.exp(wide - np.max(wide, axis=axis, keepdims=True, initial=-np.inf))
    return narrow(exponential / sum_along(exponential, axis), x.dtype)


@reference(mir.CumsumOp)
def cumsum(x: np.ndarray, *, axis: int = -1, exclusive: bool = False) -> np.ndarray:
    """result[t] = sum of x[u] over u <= t, or u < t with `exclusive`."""
    wide = widen(x)
    total = np.cumsum(wide, axis=axis, dtype=wide.dtype)
    if is_float_dtype(wide.dtype):  # added one after the other, with a rounding each: a wider type has fewer
        exact = np.cumsum(wide, axis=axis, dtype=np.longdouble)
        total = np.where(np.isfinite(total), exact.astype(wide.dtype), total)
    if exclusive:
        zeros = np.zeros_like(np.take(total, [0] if x.shape[axis] else [], axis=axis))
        total = np.concatenate([zeros, np.delete(total, -1, axis=axis)] if x.shape[axis] else [total], axis=axis)
    return narrow(total, x.dtype)


@reference(mir.TopKOp)
def top_k(
    x: np.ndarray,
    *like: np.ndarray,
    k: int | str,
    smallest: bool = False,
    nan_largest: bool = False,
    like_dims: Sequence[int] = (),
) -> tuple[np.ndarray, np.ndarray]:
    """The first elements of each row in an order, and their positions; of equal ones the first."""
    count = like_number(k, like, like_dims)
    if not 0 <= count <= x.shape[-1]:
        raise InputError(f"mir.top_k: rows have {x.shape[-1]} elements, but {count} of them are asked for")
    # Of the row from behind, so that the reverse of an ascending order has equal elements as they stand.
    rows = x if smallest else x[..., ::-1]
    if x.dtype.kind in "iu":
        order = np.argsort(rows, axis=-1, kind="stable")
    else:
        is_nan = np.isnan(rows)
        order = np.argsort(np.where(is_nan, 0, widen(rows)), axis=-1, kind="stable")
        at_end = np.take_along_axis(is_nan == nan_largest, order, axis=-1)
        order = np.take_along_axis(order, np.argsort(at_end, axis=-1, kind="stable"), axis=-1)
    order = (order if smallest else x.shape[-1] - 1 - order[..., ::-1])[..., :count]
    return np.take_along_axis(x, order, axis=-1) + x.dtype.type(0), order.astype(np.int32)


# ----------------------------------------------------------------------------------------------------------------------
# Costs
# ----------------------------------------------------------------------------------------------------------------------


@cost(mir.ReduceOp)
def reduce_cost(op: ir.AnyOp, sizes: Sizes) -> Cost:
    """One for each element of `x`."""
    return Cost(sizes.count(op.x))


#: Largest, difference, exp, sum, quotient.
cost(mir.SoftmaxOp)(per_element(5))
cost(mir.CumsumOp)(per_element(1))


@cost(mir.TopKOp)
def top_k_cost(op: ir.AnyOp, sizes: Sizes) -> Cost:
    """One comparison of each element with the smallest that is kept; of `like` nothing is read."""
    return Cost(sizes.count(op.x), reads={value: 0 for value in op.like if value != op.x})


# ----------------------------------------------------------------------------------------------------------------------
# Dimensions
# ----------------------------------------------------------------------------------------------------------------------


@dim_rule(mir.ReduceOp)
def reduce_dims(op: ir.AnyOp, operands: Sequence[tuple[Size, ...]]) -> tuple[Size, ...]:
    """Those of `x` without the axes, or with 1 there."""
    axes = set(python_value(op.axes))
    if op.keep_dims:
        return tuple(Size.of(1) if i in axes else size for i, size in enumerate(operands[0]))
    return tuple(size for i, size in enumerate(operands[0]) if i not in axes)


@dim_rule(mir.TopKOp)
def top_k_dims(op: ir.AnyOp, operands: Sequence[tuple[Size, ...]]) -> list[tuple[Size, ...]]:
    """Twice [.., k]."""
    x, *like = operands
    own = (*x[:-1], followed(python_value(op.k), like_sizes(op, like)))
    return [own, own]


@dim_rule(mir.SoftmaxOp, mir.CumsumOp)
def same_dims(op: ir.AnyOp, operands: Sequence[tuple[Size, ...]]) -> tuple[Size, ...]:
    """Those of `x`."""
    return operands[0]


# ----------------------------------------------------------------------------------------------------------------------
# Lowering to linalg
# ----------------------------------------------------------------------------------------------------------------------


#: How a reduction combines an element with what is accumulated.
COMBINE: dict[str, Callable[[Scalar, Scalar], Scalar]] = {
    "sum": lambda x, total: total + x,
    "mean": lambda x, total: total + x,
    "max": lambda x, total: total.max(x),
    "min": lambda x, total: total.min(x),
    "prod": lambda x, total: total * x,
    "any": lambda x, total: total | x,
    "all": lambda x, total: total & x,
}


def first_of(kind: str, type: ir.Type) -> float:
    """What a reduction starts from."""
    if kind in ("sum", "mean", "prod", "any", "all"):
        return 1 if kind in ("prod", "all") else 0
    smallest, largest = (-math.inf, math.inf) if is_float(type) else integer_range(type)
    return smallest if kind == "max" else largest


def reduce_axes(x: ir.Value, kind: str, axes: Collection[int], *, keep_dims: bool = False) -> ir.Value:
    """Elements of `x` combined along `axes`, in the accumulation type; `mean` is the sum here.

    Sums of floats are taken along one axis after the other, the last one first, so that each is a short one or one in
    parts.
    """
    own = sizes_of(x)
    loops = range(len(own))
    if kind in ("sum", "mean") and is_float(element_type(x)) and axes:
        last = max(axes)
        total = _sum_along(x, last, keep_dims=keep_dims)
        return reduce_axes(total, kind, [a for a in axes if a != last], keep_dims=keep_dims) if len(axes) > 1 else total
    map: list[int | None] = [None if dim in axes else dim for dim in loops if keep_dims or dim not in axes]
    sizes: list[SizeLike] = [1 if dim in axes else own[dim] for dim in loops if keep_dims or dim not in axes]
    start = first_of(kind, element_type(x))
    return reduced(len(own), [(x, loops)], sizes, map, start, COMBINE[kind])


def _sum_along(x: ir.Value, axis: int, *, keep_dims: bool) -> ir.Value:
    own = sizes_of(x)
    map: list[int | None] = [None if dim == axis else dim for dim in range(len(own)) if keep_dims or dim != axis]
    sizes: list[SizeLike] = [1 if dim == axis else own[dim] for dim in range(len(own)) if keep_dims or dim != axis]
    return summed(len(own), [(x, range(len(own)))], sizes, map)


@TO_LINALG.pattern(mir.ReduceOp)
def lower_reduce(op: ir.AnyOp, rewriter: Rewriter) -> None:
    """reduce(x) -> generic: result[kept] = result[kept] op x[..]; mean divides by the count"""
    kind, axes = python_value(op.kind), python_value(op.axes)
    if is_complex(element_type(op.x)):
        rewriter.replace(op, _reduce_parts(op, kind, axes))
        return
    total = reduce_axes(op.x, kind, axes, keep_dims=bool(op.keep_dims))
    if kind != "mean":
        rewriter.replace(op, converted(total, op.result.type))
        return
    count = count_as([size_of(op.x, axis) for axis in axes], element_type(total))
    rewriter.replace(op, elementwise(op.result.type, [total], lambda x: x / count))


def _reduce_parts(op: ir.AnyOp, kind: str, axes: Sequence[int]) -> ir.Value:
    """Sum or mean of complex numbers: those of their real and of their imaginary parts."""
    type = tensor_type(sizes_of(op.x), element_type(op.x).element_type)
    both = [elementwise(type, [op.x], part) for part in (lambda z: z.re, lambda z: z.im)]
    totals = [reduce_axes(part, kind, axes, keep_dims=bool(op.keep_dims)) for part in both]
    if kind == "sum":
        return elementwise(op.result.type, totals, joined)
    count = count_as([size_of(op.x, axis) for axis in axes], element_type(totals[0]))
    return elementwise(op.result.type, totals, lambda re, im: joined(re / count, im / count))


@TO_LINALG.pattern(mir.SoftmaxOp)
def lower_softmax(op: ir.AnyOp, rewriter: Rewriter) -> None:
    """softmax(x) -> m = max(x); e = exp(x - m); e / sum(e)"""
    axis = python_value(op.axis) % op.x.type.rank
    largest = reduce_axes(op.x, "max", [axis], keep_dims=True)
    wide = tensor_type(sizes_of(op.x), element_type(largest))
    exponential = elementwise(wide, [op.x, largest], lambda x, m: exp(x - m))
    total = reduce_axes(exponential, "sum", [axis], keep_dims=True)
    rewriter.replace(op, elementwise(op.result.type, [exponential, total], lambda e, t: e / t))


@TO_LINALG.pattern(mir.CumsumOp)
def lower_cumsum(op: ir.AnyOp, rewriter: Rewriter) -> None:
    """cumsum(x) -> a loop along the axis: total += x[t]; result[t] = total, or the one before with exclusive

    Sums of floats carry along what their additions have lost. Rows keep the axis, with size 1: where it were dropped,
    and other dimensions are 1, too, MLIR mistakes these for it.
    """
    axis = python_value(op.axis) % op.x.type.rank
    sizes = sizes_of(op.x)
    type = element_type(op.x)
    part: list[SizeLike] = [1 if dim == axis else size for dim, size in enumerate(sizes)]
    row_type = tensor_type(part, type)
    loops = range(len(part))
    exclusive, floating = bool(op.exclusive), is_float(type)

    def written(t: ir.Value, totals: Sequence[ir.Value], result: ir.Value) -> ir.Value:
        offsets: list[SizeLike] = [t if dim == axis else 0 for dim in range(len(sizes))]
        row = elementwise(row_type, totals, completed) if floating else converted(totals[0], row_type)
        return write_slice(row, result, offsets, part)

    def add(x: Scalar, *totals: Scalar) -> Scalar | tuple[Scalar, ...]:
        if not floating:
            return totals[0] + x
        total, lost = totals
        return added(total, lost, x.widen())

    def step(t: ir.Value, *state: ir.Value) -> list[ir.Value]:
        *totals, result = state
        offsets: list[SizeLike] = [t if dim == axis else 0 for dim in range(len(sizes))]
        row = extract_slice(op.x, offsets, part)
        if exclusive:
            result = written(t, totals, result)
        after = generic(len(part), [(row, loops)], [(total, loops) for total in totals], add)
        totals = after if floating else [after]
        return [*totals, result if exclusive else written(t, totals, result)]

    start = [*(filled(part, accumulator(type), 0) for _ in range(2 if floating else 1)), empty(sizes, type)]
    rewriter.replace(op, for_each(0, sizes[axis], start, step)[-1])


#: Beyond every position.
_LAST = (1 << 31) - 1


def _turned(bits: Scalar, width: int) -> Scalar:
    """The bits of a number as an integer in the order of numbers, and the other way round."""
    return bits ^ (bits < 0).select(bits.like((1 << (width - 1)) - 1), 0)


class _Order:
    """The order of a `mir.top_k` as that of integers, the first elements the largest."""

    def __init__(self, op: ir.AnyOp) -> None:
        self._type = element_type(op.x)
        self._smallest, self._nan_largest = bool(op.smallest), bool(op.nan_largest)
        self.bits = 64 if str(self._type) in ("f64", "i64", "ui32") else 32

    @property
    def least(self) -> int:
        """The smallest key."""
        return -(1 << (self.bits - 1))

    def key(self, x: Scalar) -> Scalar:
        """The integer of an element."""
        if is_float(self._type):
            number = x.to(f"f{self.bits}")
            ordered = _turned((number + 0.0).bitcast(f"i{self.bits}"), self.bits)  # -0 + 0 is 0
            of_nan = -1 - self.least if self._nan_largest else self.least
            ordered = number.compare("ne", number).select(ordered.like(of_nan), ordered)
        else:
            ordered = x.to(f"i{self.bits}")
        return ordered ^ -1 if self._smallest else ordered

    def element(self, key: Scalar) -> Scalar:
        """The element that has a key; of NaN, one of them."""
        ordered = key ^ -1 if self._smallest else key
        return _turned(ordered, self.bits).bitcast(f"f{self.bits}") if is_float(self._type) else ordered


#: So many elements are found one after the other; more, where each costs as much as so many steps of sorting.
_FEW, _SORT_STEPS = 16, 4


def _first_of_sorted(op: ir.AnyOp, k: SizeLike, order: _Order) -> list[ir.Value]:
    """The first `k` elements of each sorted row, and their positions."""
    *outer, _ = sizes_of(op.x)
    keys = elementwise(tensor_type(sizes_of(op.x), element(f"i{order.bits}")), [op.x], order.key)
    at = extract_slice(positions_in_order(keys), [0] * (len(outer) + 1), [*outer, k])
    rank = len(outer) + 1

    def value(position: Scalar, _: Scalar) -> Scalar:
        where = [*(index(dim) for dim in range(rank - 1)), position.to("index")]
        return extract(op.x, where) + 0  # -0 + 0 is 0

    target = empty([*outer, k], element_type(op.x))
    return [generic(rank, [(at, range(rank))], [(target, range(rank))], value), at]


@TO_LINALG.pattern(mir.TopKOp)
def lower_top_k(op: ir.AnyOp, rewriter: Rewriter) -> None:
    """top_k(x) -> k times a reduction: the largest of the elements after the last one that was found; or sorted rows"""
    *outer, count = sizes_of(op.x)
    k = like_size(op, python_value(op.k))
    order = _Order(op)
    if not isinstance(k, int) or not isinstance(count, int) or k > max(_FEW, _SORT_STEPS * count.bit_length()):
        rewriter.replace(op, *_first_of_sorted(op, k, order))
        return
    if k == 0:
        rewriter.replace(op, *(empty([*outer, 0], element_type(result)) for result in op.results))
        return
    rank = len(outer) + 1
    loops, kept = range(rank), range(rank - 1)
    row = tensor_type(outer, element_type(op.x))
    part: list[SizeLike] = [*outer, 1]

    def largest(before: Sequence[ir.Value]) -> tuple[ir.Value, ir.Value]:
        """Value and position in each row, of all or of those after a value at a position."""

        def better(x: Scalar, *others: Scalar) -> tuple[Scalar, Scalar]:
            *last, best, where = others
            own, position = order.key(x), index(rank - 1).to("i32")
            wins = (own > best) | (own.compare("eq", best) & (position < where))
            if last:
                key = order.key(last[0])
                wins = wins & ((own < key) | (own.compare("eq", key) & (position > last[1])))
            return wins.select(own, best), wins.select(position, where)

        start = [
            (filled(outer, element(f"i{order.bits}"), order.least), kept),
            (filled(outer, element("i32"), _LAST), kept),
        ]
        inputs = [(op.x, loops), *((value, kept) for value in before)]
        key, at = generic(rank, inputs, start, better, reduction=[rank - 1])
        return elementwise(row, [key], order.element), at

    def written(t: SizeLike, found: Sequence[ir.Value], results: Sequence[ir.Value]) -> list[ir.Value]:
        offsets: list[SizeLike] = [*([0] * len(outer)), t]
        pairs = zip(found, results, strict=True)
        return [write_slice(new, result, offsets, part, drop=[rank - 1]) for new, result in pairs]

    def step(t: ir.Value, *results: ir.Value) -> list[ir.Value]:
        offsets: list[SizeLike] = [*([0] * len(outer)), plus(t, -1)]
        last = [extract_slice(result, offsets, part, drop=[rank - 1]) for result in results]
        return written(t, largest(last), results)

    results = [empty([*outer, k], element_type(op.x)), empty([*outer, k], element("i32"))]
    results = written(0, largest([]), results)
    rewriter.replace(op, *(for_each(1, k, results, step) if k > 1 else results))
