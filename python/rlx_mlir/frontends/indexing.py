# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Entries of a tensor that are chosen, put or combined where indices say: what readers of graphs share."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rlx_mlir.hir import GraphModule, Value

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

    Every place is compared with every other one of its row.
    """
    axis = places.ndim - 1
    rows, columns = ([*places.shape[:axis], *own] for own in ([places.shape[axis], 1], [1, places.shape[axis]]))
    counted = [m.iota(own, axis + at, "i64") for at, own in enumerate((rows, columns))]
    again = m.eq(m.reshape(places, rows), m.reshape(places, columns)) & m.lt(*counted)
    return m.where(m.any(again, [axis + 1]), np.int64(-1), places)


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
