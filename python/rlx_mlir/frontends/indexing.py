# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Entries of a tensor that are chosen, put or combined where indices say: what readers of graphs share."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rlx_mlir.hir import GraphModule, Value

#: Elements of a row, at most, that are compared each with each.
FEW = 64

#: Bits of the number of elements of a row.
POSITION_BITS = 31

#: How entries of one place are combined, where they aren't added: the word of `mir.reduce`.
REDUCTIONS = {"max": "max", "min": "min", "mul": "prod"}


def with_last(m: GraphModule, x: Value, axis: int) -> tuple[Value, Callable[[Value], Value]]:
    """x with a dimension at the end, and what puts it back."""
    if axis == x.ndim - 1:
        return x, lambda y: y
    order = [*(at for at in range(x.ndim) if at != axis), axis]
    return m.transpose(x, order), lambda y: m.transpose(y, [order.index(at) for at in range(x.ndim)])


def picked(m: GraphModule, x: Value, indices: Value, axis: int) -> Value:
    """x[..., indices[..., i, ...], ...]: the other dimensions are those of the indices."""
    turned, back = with_last(m, x, axis)
    return back(m.gather(turned, with_last(m, indices, axis)[0], x.ndim - 1, batch_dims=x.ndim - 1))


def replaced(m: GraphModule, x: Value, places: Value, updates: Value) -> Value:
    """Rows of x [N, t...] with `updates` [i..., t...] at `places` [i...], i64, each of which is there once."""
    if x.dtype == np.bool_:
        return m.cast(replaced(m, m.cast(x, "i8"), places, m.cast(updates, "i8")), "i1")
    given = m.scatter_add(updates, places, _size(x), 0)
    marks = m.scatter_add(m.cast(m.eq(places, places), "i32"), places, _size(x), 0)
    hit = m.reshape(m.gt(marks, np.int32(0)), [x.shape[0], *[1] * (x.ndim - 1)])
    return m.where(hit, given, x)


def added(m: GraphModule, x: Value, places: Value, updates: Value) -> Value:
    """Rows of x with `updates` added at `places`, in their order."""
    return m.add(x, m.scatter_add(updates, places, _size(x), 0))


def _size(x: Value) -> int | Value:
    size = x.shape[0]
    return size if isinstance(size, int) else x


def last_of_each(m: GraphModule, places: Value) -> Value:
    """Places [..., n], i64, with -1, which is none, for those that come again behind in their row.

    In few places each is compared with every other one; more are sorted, and the last of equal neighbours stays.
    """
    axis = places.ndim - 1
    size = places.shape[axis]
    if not isinstance(size, int) or size > FEW:
        values, order = m.top_k(places, size, smallest=True)
        following = m.gather(values, m.add(m.iota([size], 0, "i64"), np.int64(1)), axis)  # of the last one, itself
        is_last = m.ne(values, following) | m.eq(m.iota([size], 0, "i64"), m.sub(_length(m, places), np.int64(1)))
        kept = m.where(is_last, values, np.int64(-1))
        return m.gather(kept, m.top_k(order, size, smallest=True)[1], axis, batch_dims=axis)
    rows, columns = ([*places.shape[:axis], *own] for own in ([places.shape[axis], 1], [1, places.shape[axis]]))
    counted = [m.iota(own, axis + at, "i64") for at, own in enumerate((rows, columns))]
    again = m.eq(m.reshape(places, rows), m.reshape(places, columns)) & m.lt(*counted)
    return m.where(m.any(again, [axis + 1]), np.int64(-1), places)


def places_in_order(m: GraphModule, rows: Value, x: Value, *, right: bool) -> Value:
    """Where numbers belong in sorted rows, i64: how many are smaller, or with `right` not larger; all, for NaN.

    Few numbers of a row are counted; in more of them the place is found by bisection.

    Args:
        rows: [n], or [..., n] with a row for each of x.
        x: any shape, or [..., k].
    """
    size = rows.shape[-1]

    is_behind = m.gt if right else m.ge
    if isinstance(size, int) and size <= FEW:
        apart = rows if rows.ndim == 1 else m.reshape(rows, [*rows.shape[:-1], 1, size])
        behind = is_behind(apart, m.reshape(x, [*x.shape, 1]))
        return m.sum(m.where(behind, m.constant(np.int64(0)), np.int64(1)), [-1])
    axis = rows.ndim - 1
    length = _length(m, rows)
    low = m.expand(m.constant(np.int64(0)), list(x.shape))
    high = m.add(low, length)

    def halved(low: Value, high: Value) -> tuple[Value, Value]:
        half = m.floor_div(m.add(low, high), np.int64(2))
        own = m.gather(rows, half, axis, batch_dims=axis)
        is_open, behind = m.lt(low, high), is_behind(own, x)
        after = m.where(behind, low, m.add(half, np.int64(1)))
        return m.where(is_open, after, low), m.where(is_open & behind, half, high)

    if isinstance(size, int):
        for _ in range(size.bit_length()):
            low, high = halved(low, high)
        return low
    found: tuple[Value, Value] = m.scan(lambda *ends: (halved(*ends), None), (low, high), length=POSITION_BITS)[0]
    return found[0]


def _length(m: GraphModule, x: Value) -> Value:
    """How long rows are, i64."""
    size = x.shape[-1]
    return m.constant(np.int64(size)) if isinstance(size, int) else m.dim(x, -1, "i64")


def neutral(dtype: np.dtype, reduction: str) -> float:
    """What changes nothing that it is combined with."""
    if reduction == "mul":
        return 1
    if dtype.kind not in "iu":
        return -np.inf if reduction == "max" else np.inf
    return np.iinfo(dtype).min if reduction == "max" else np.iinfo(dtype).max


def reduced(m: GraphModule, x: Value, places: Value, updates: Value, reduction: str) -> Value:
    """Rows of x [N, t...] combined with all of `updates` [U, t...] of their places [U]: each with each is compared."""
    rest = [1] * (x.ndim - 1)
    hit = m.eq(m.reshape(places, [1, *places.shape]), m.iota([x.shape[0], 1], 0, "i64"))
    spread = m.reshape(updates, [1, *updates.shape])
    none = m.constant(np.asarray(neutral(x.dtype, reduction)).astype(x.dtype))
    chosen = m.where(m.reshape(hit, [x.shape[0], places.shape[0], *rest]), spread, none)
    found = m.reduce(chosen, REDUCTIONS[reduction], 1)
    return {"mul": m.mul, "max": m.maximum, "min": m.minimum}[reduction](x, found)
