# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operations that choose elements by indices, or put elements where indices say.

Dimensions of the table that are taken whole stay; the others are one dimension, along which `mir.gather` and
`mir.scatter_add` count: a place in it is the sum of each index times what is behind it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rlx_mlir.frontends.tensors import Tensor, plain
from rlx_mlir.hir import Value
from rlx_mlir.mir.dims import Size, product

from .. import regions
from ..call import Call
from ..entries import Entry, shape_of
from ..registry import Refused, operator
from .reductions import JOINED

_I64 = np.dtype(np.int64)


@dataclass(frozen=True)
class Indexed:
    """How indices choose parts of a table.

    Attributes:
        starts: the table's dimension that each entry of an index vector is of.
        batching: pairs of a dimension of the table and one of the indices that go together.
        removed: dimensions of the table that parts don't have, as they have size 1 there.
        vector: the dimension of the indices along which a vector goes.
        lengths: sizes of a part along each dimension of the table.
    """

    starts: list[int]
    batching: list[tuple[int, int]]
    removed: list[int]
    vector: int
    lengths: list[Size]

    def whole(self, shape: Sequence[Size]) -> list[int]:
        """Dimensions of the table that parts have as a whole."""
        taken = {*self.starts, *(own for own, _ in self.batching)}
        return [
            axis
            for axis, size in enumerate(shape)
            if axis not in self.removed and self.lengths[axis] == size and (axis not in taken or size.constant == 1)
        ]

    def windows(self, shape: Sequence[Size]) -> list[int]:
        """Dimensions of which parts have some."""
        whole = self.whole(shape)
        return [axis for axis in range(len(shape)) if axis not in self.removed and axis not in whole]


def _indices(call: Call, number: int, vector: int) -> Value:
    """Index vectors along the last dimension."""
    value = call.value(number)
    if value.dtype not in (np.dtype(np.int32), _I64):
        value = call.m.cast(value, "i64")
    if vector == value.ndim:
        return call.reshaped(value, [*shape_of(value), 1])
    order = [axis for axis in range(value.ndim) if axis != vector] + [vector]
    return call.transposed(value, order)


def _component(call: Call, indices: Value, number: int) -> Value:
    """One entry of each index vector."""
    own = call.m.narrow(indices, -1, number, 1) if indices.shape[-1] != 1 else indices
    return call.reshaped(own, shape_of(indices)[:-1])


@dataclass(frozen=True)
class Places:
    """Where parts are in the joined dimension.

    Attributes:
        value: places, of the batch dimensions and then those of windows.
        inside: whether a part lies in the table, of the batch dimensions; None where each does.
        joined: dimensions of the table that are joined, in order.
    """

    value: Value
    inside: Value | None
    joined: list[int]


def _places(call: Call, shape: Sequence[Size], indices: Value, how: Indexed, *, clamp: bool) -> Places:
    """Places of the elements of all parts.

    Args:
        clamp: whether parts are moved into the table, as gathers do; what isn't inside is left to the caller otherwise.
    """
    m = call.m
    whole, windows = how.whole(shape), how.windows(shape)
    joined = [axis for axis in range(len(shape)) if axis not in whole]
    batch = shape_of(indices)[:-1]
    dtype = _I64
    elements = product([shape[axis] for axis in joined]).constant
    if elements is not None and elements < 1 << 31:
        dtype = indices.dtype
    total: Value | None = None
    inside: Value | None = None
    for axis in joined:
        start = _start(call, axis, indices, how, batch, dtype)
        if start is not None and axis in how.starts:
            most = shape[axis] - how.lengths[axis]
            limit = _number(call, most, dtype)
            zero = np.zeros((), dtype)
            if clamp:
                start = m.minimum(m.maximum(start, zero), limit)
            else:
                own = m.bitwise_and(m.ge(start, zero), m.le(start, limit))
                inside = own if inside is None else m.bitwise_and(inside, own)
        part = _offsets(call, start, axis, windows, how, batch, dtype)
        behind = product([shape[own] for own in joined if own > axis])
        if part is None:
            continue
        part = part if behind == Size.of(1) else m.mul(part, _number(call, behind, dtype))
        total = part if total is None else m.add(total, part)
    wanted = [*batch, *(how.lengths[axis] for axis in windows)]
    if total is None:
        total = m.constant(np.zeros((), dtype))
    return Places(call.expanded(total, wanted), inside, joined)


def _number(call: Call, size: Size, dtype: np.dtype) -> Value:
    if size.constant is not None:
        return call.m.constant(np.array(size.constant, dtype))
    return call.cast(call.importer.size(size), dtype)


def _start(call: Call, axis: int, indices: Value, how: Indexed, batch: Sequence[Size], dtype: np.dtype) -> Value | None:
    """Where each part begins along a dimension of the table; None where that is its first element."""
    if axis in how.starts:
        return call.cast(_component(call, indices, how.starts.index(axis)), dtype)
    for own, other in how.batching:
        if own == axis:
            at = other - (other > how.vector)
            sizes = [size if number == at else Size.of(1) for number, size in enumerate(batch)]
            for size in sizes:
                call.importer.carry(size)
            return call.m.iota(plain(sizes), at, dtype)
    return None


def _offsets(
    call: Call,
    start: Value | None,
    axis: int,
    windows: Sequence[int],
    how: Indexed,
    batch: Sequence[Size],
    dtype: np.dtype,
) -> Value | None:
    """Indices along a dimension of the table, of the batch dimensions and then those of windows."""
    m = call.m
    if start is not None:
        own = [size if size == wanted else Size.of(1) for size, wanted in zip(shape_of(start), batch, strict=True)]
        start = call.reshaped(start, [*own, *[1] * len(windows)])
    if axis not in windows or how.lengths[axis] == Size.of(1):
        return start
    sizes = [Size.of(1)] * len(batch) + [how.lengths[own] if own == axis else Size.of(1) for own in windows]
    for size in sizes:
        call.importer.carry(size)
    counted = m.iota(plain(sizes), len(batch) + list(windows).index(axis), dtype)
    return counted if start is None else m.add(start, counted)


def _joined(call: Call, x: Value, how: Indexed, joined: Sequence[int]) -> Value:
    """The table with its joined dimensions as its first one."""
    shape = shape_of(x)
    whole = how.whole(shape)
    turned = call.transposed(x, [*joined, *whole])
    return call.reshaped(turned, [product([shape[axis] for axis in joined]), *(shape[axis] for axis in whole)])


# Gathering ------------------------------------------------------------------------------------------


@operator("gather")
def _gather(call: Call) -> Entry:
    return _gathered(call, list(map(Size.of, call.ints("slice_sizes"))))


@operator("dynamic_gather")
def _dynamic_gather(call: Call) -> Entry:
    return _gathered(call, call.sizes(2, "sizes"))


def _gathered(call: Call, lengths: list[Size]) -> Entry:
    fields = call.fields("dimension_numbers")
    batching = list(
        zip(fields.get("operand_batching_dims", []), fields.get("start_indices_batching_dims", []), strict=True)
    )
    vector = fields.get("index_vector_dim", [0])[0]
    removed = [*fields.get("collapsed_slice_dims", []), *(own for own, _ in batching)]
    how = Indexed(fields.get("start_index_map", []), batching, removed, vector, lengths)
    x, indices = call.value(0), _indices(call, 1, vector)
    shape, batch = shape_of(x), list(shape_of(indices)[:-1])
    offsets = fields.get("offset_dims", [])
    whole, windows = how.whole(shape), how.windows(shape)
    found = _of_one_dimension(call, x, indices, how)
    if found is None:
        places = _places(call, shape, indices, how, clamp=True)
        if not places.joined:  # each part is the whole table
            found = call.expanded(call.reshaped(x, [*[1] * len(batch), *shape]), [*batch, *shape])
            windows, whole = [], list(range(len(shape)))
        else:
            found = call.m.gather(_joined(call, x, how, places.joined), places.value, 0)
    # The result's dimensions are those of the batch and, at `offset_dims`, those of parts in the table's order.
    parts = [axis for axis in range(len(shape)) if axis not in removed]
    own = [*windows, *whole]
    rank = len(batch) + len(offsets)
    rest = iter(range(len(batch)))
    order = [
        len(batch) + own.index(parts[offsets.index(axis)]) if axis in offsets else next(rest) for axis in range(rank)
    ]
    kept = [*batch, *(lengths[axis] for axis in own)]
    return call.transposed(call.reshaped(found, kept), order)


def _of_one_dimension(call: Call, x: Value, indices: Value, how: Indexed) -> Value | None:
    """A gather along one dimension, behind leading ones that go together, which needs no arithmetic; else None."""
    shape = shape_of(x)
    count = len(how.batching)
    leading = [(own, own) for own in range(count)]
    if how.batching != leading or len(how.starts) != 1 or how.windows(shape) or how.vector < count:
        return None
    axis = how.starts[0]
    if axis not in how.removed or (count and axis != count):
        return None
    at = _component(call, indices, 0)
    found = call.m.gather(x, at, axis, batch_dims=count)
    # Dimensions before the axis come behind those of the indices.
    order = [*range(axis if not count else 0, (axis if not count else 0) + at.ndim)]
    before = [] if count else list(range(axis))
    after = list(range(len(order) + len(before), found.ndim))
    return call.transposed(found, [*order, *before, *after])


# Scattering -----------------------------------------------------------------------------------------


@operator("scatter")
def _scatter(call: Call) -> Entry:
    if len(call.operands) != 3:
        raise Refused(f"a scatter of {len(call.operands) // 2} operands")
    fields = call.fields("scatter_dimension_numbers")
    batching = list(
        zip(fields.get("input_batching_dims", []), fields.get("scatter_indices_batching_dims", []), strict=True)
    )
    vector = fields.get("index_vector_dim", [0])[0]
    removed = [*fields.get("inserted_window_dims", []), *(own for own, _ in batching)]
    x, updates, indices = call.value(0), call.value(2), _indices(call, 1, vector)
    shape, given = shape_of(x), shape_of(updates)
    window_dims = fields.get("update_window_dims", [])
    parts = [axis for axis in range(len(shape)) if axis not in removed]
    lengths = [Size.of(1)] * len(shape)
    for axis, at in zip(parts, window_dims, strict=True):
        lengths[axis] = given[at]
    how = Indexed(fields.get("scatter_dims_to_operand_dims", []), batching, removed, vector, lengths)
    kind = regions.kind_of(call.op.regions[0].blocks[0], x.dtype)
    whole, windows = how.whole(shape), how.windows(shape)
    places = _places(call, shape, indices, how, clamp=False)
    if not places.joined:
        raise Refused("a scatter of whole tensors")
    batch = [at for at in range(len(given)) if at not in window_dims]
    order = [*batch, *(window_dims[parts.index(axis)] for axis in (*windows, *whole))]
    rows = call.transposed(updates, order)
    where = places.value
    if places.inside is not None:
        own = call.reshaped(places.inside, [*shape_of(places.inside), *[1] * len(windows)])
        where = call.m.where(own, where, np.array(-1, where.dtype))
    table = _joined(call, x, how, places.joined)
    unique = _is_unique(call, indices)
    found = _combined(call, table, where, rows, kind, unique)
    own_order = [*places.joined, *whole]
    back = call.reshaped(found, [shape[axis] for axis in own_order])
    return call.transposed(back, [own_order.index(axis) for axis in range(len(shape))])


def _is_unique(call: Call, indices: Value) -> bool:
    """Whether no place is written twice: the operation says so, or there is one vector, or all are known and differ."""
    attributes = call.op.attributes
    if "unique_indices" in attributes and bool(attributes["unique_indices"].value):
        return True
    if product(shape_of(indices)[:-1]).constant == 1:
        return True
    known = call.operands[1].numbers if isinstance(call.operands[1], Tensor) else None
    if known is None or known.ndim != 2:
        return False
    return len(np.unique(known, axis=0)) == len(known)


def _combined(call: Call, table: Value, at: Value, rows: Value, kind: str, unique: bool) -> Value:
    """Rows of a table [N, t…] with updates [i…, t…] at places [i…]; those below 0 are dropped."""
    m, count = call.m, shape_of(table)[0]
    like: int | Value = count.constant if count.constant is not None else table
    if kind == "sum":
        return m.add(table, m.scatter_add(rows, at, like, 0))
    if kind == "first":
        return table
    if kind != "second" or not unique:
        return _one_by_one(call, table, at, rows, kind)
    dtype = table.dtype
    if dtype == np.bool_:
        table, rows = m.cast(table, "i8"), m.cast(rows, "i8")
    added = m.scatter_add(rows, at, like, 0)
    ones = call.expanded(m.constant(np.int32(1)), shape_of(at))
    marks = m.gt(m.scatter_add(ones, at, like, 0), np.int32(0))
    found = m.where(call.reshaped(marks, [count, *[1] * (table.ndim - 1)]), added, table)
    return call.cast(found, dtype) if dtype == np.bool_ else found


def _one_by_one(call: Call, table: Value, at: Value, rows: Value, kind: str) -> Value:
    """Updates one after the other: of several at one place the last one counts, or all are combined."""
    m = call.m
    own = shape_of(rows)[at.ndim :]
    count = product(shape_of(at))
    flat, listed = call.reshaped(rows, [count, *own]), call.reshaped(at, [count])

    def step(current: Value, row: Value, place: Value) -> tuple[Value, None]:
        before = m.dynamic_slice(current, place, 1, 0)
        new = call.reshaped(row, [1, *own])
        new = new if kind == "second" else m.binary(JOINED[kind], before, new)
        kept = m.where(m.ge(place, np.zeros((), place.dtype)), new, before)
        return m.dynamic_update_slice(current, kept, place, 0), None

    found, _ = m.scan(step, table, (flat, listed))
    return found  # type: ignore[no-any-return]
