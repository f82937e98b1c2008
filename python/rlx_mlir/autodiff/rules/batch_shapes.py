# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Batching of operations that move elements. Operands that only say sizes give results no batch."""

from __future__ import annotations

from collections.abc import Sequence

from rlx_mlir.attributes import PythonValue
from rlx_mlir.autodiff.builders import Builders
from rlx_mlir.autodiff.folding import beside, element, entry_sizes, folded, moved, present, spread, unfolded
from rlx_mlir.autodiff.registry import Batched, Same, batching
from rlx_mlir.dialects import mir
from rlx_mlir.hir.values import Value
from rlx_mlir.mir.numerics import FLOAT8


def _like_dims(at: Batched, first: int, dims: Sequence[int] | None) -> list[int] | None:
    """The dimensions that sizes are of, of the operands from `first` on."""
    if dims is None:
        return None
    return [dim + batched for dim, batched in zip(dims, at.batched[first:], strict=True)]


# ----------------------------------------------------------------------------------------------------------------------
# Sizes
# ----------------------------------------------------------------------------------------------------------------------


@batching(mir.DimOp)
def dim(m: Builders, at: Batched, x: Value, *, axis: int) -> Same:
    """The size of the same dimension."""
    return Same(m.dim(x, axis + 1, element(at)))


@batching(mir.IotaOp)
def iota(m: Builders, at: Batched, like: Value, *, axis: int, **attributes: PythonValue) -> Same:
    """The same positions."""
    return Same(m.iota(entry_sizes(m, at, [like]), axis, element(at)))


@batching(mir.ReshapeOp)
def reshape(
    m: Builders,
    at: Batched,
    x: Value,
    *like: Value,
    new_shape: list[int],
    like_dims: list[int] | None = None,
    **_: object,
) -> Value | Same:
    """Another shape of each entry; what is known by now isn't left to be found at run time."""
    kind = at.op.results[0].type
    left = [i for i, size in enumerate(new_shape) if size == -1 and not kind.is_dynamic_dim(i)]
    entries = [kind.get_dim_size(i) if i in left else size for i, size in enumerate(new_shape)]
    dims = _like_dims(at, 1, like_dims)
    if not at.batched[0]:
        return Same(m.rebuilt(at.op, [x, *like], new_shape=entries, like_dims=dims)[0])
    return m.rebuilt(at.op, [x, *like], new_shape=[-2, *entries], like_dims=dims)[0]


@batching(mir.ExpandOp)
def expand(m: Builders, at: Batched, x: Value, *like: Value, **attributes: PythonValue) -> Value | Same:
    """Each entry repeated."""
    wanted = entry_sizes(m, at, [x, *like])
    if not at.batched[0]:
        return Same(m.expand(x, wanted))
    sizes = m.sizes_of(x)
    missing = len(wanted) - len(sizes) + 1
    if missing:
        x = m.reshape(x, [sizes[0], *[1] * missing, *sizes[1:]])
    return m.expand(x, [at.size, *wanted])


# ----------------------------------------------------------------------------------------------------------------------
# Parts
# ----------------------------------------------------------------------------------------------------------------------


@batching(mir.TransposeOp)
def transpose(m: Builders, at: Batched, x: Value, *, permutation: list[int]) -> Value:
    """The batch stays where it is."""
    return m.transpose(x, [0, *(axis + 1 for axis in permutation)])


@batching(mir.NarrowOp)
def narrow(m: Builders, at: Batched, x: Value, *, axis: int, **attributes: PythonValue) -> Value:
    """The same range of the same dimension."""
    return m.rebuilt(at.op, [x], axis=axis + 1)[0]


@batching(mir.ConcatOp)
def concat(m: Builders, at: Batched, *inputs: Value, axis: int) -> Value:
    """Joined along the same dimension."""
    return m.concat([spread(m, at, x, batched) for x, batched in zip(inputs, at.batched, strict=True)], axis + 1)


@batching(mir.SliceOp)
def slice_(
    m: Builders, at: Batched, x: Value, *like: Value, axis: int, like_dims: list[int] | None = None, **_: object
) -> Value | Same:
    """The same elements of the same dimension."""
    batched = at.batched[0]
    found = m.rebuilt(at.op, [x, *like], axis=axis + batched, like_dims=_like_dims(at, 1, like_dims))[0]
    return found if batched else Same(found)


@batching(mir.TopKOp)
def top_k(
    m: Builders, at: Batched, x: Value, *like: Value, like_dims: list[int] | None = None, **_: object
) -> tuple[Value | Same, ...]:
    """The first elements of each row."""
    found = m.rebuilt(at.op, [x, *like], like_dims=_like_dims(at, 1, like_dims))
    return tuple(found) if at.batched[0] else tuple(map(Same, found))


@batching(mir.DynamicSliceOp)
def dynamic_slice(
    m: Builders,
    at: Batched,
    x: Value,
    start: Value,
    *like: Value,
    axis: int,
    like_dims: list[int] | None = None,
    **attributes: PythonValue,
) -> Value | Same | None:
    """The same range of all entries; where each begins elsewhere, its elements are gathered."""
    of_x, of_start = at.batched[:2]
    if not of_start:
        dims = _like_dims(at, 2, like_dims)
        found = m.rebuilt(at.op, [x, start, *like], axis=axis + of_x, like_dims=dims)[0]
        return found if of_x else Same(found)
    if x.dtype in FLOAT8:
        return None
    length = entry_sizes(m, at, [x, start, *like])[axis]
    positions = m.iota([length], 0, start.dtype)
    last = m.sub(m.dim(x, axis + of_x, start.dtype), m.dim(positions, 0, start.dtype))
    first = m.maximum(m.minimum(start, last), 0)
    places = m.add(m.reshape(first, [at.size, 1]), positions)
    if of_x:
        return m.gather(x, places, axis + 1, batch_dims=1)
    return moved(m, m.gather(x, places, axis), axis, 0)


@batching(mir.DynamicUpdateSliceOp)
def dynamic_update_slice(m: Builders, at: Batched, x: Value, update: Value, start: Value, *, axis: int) -> Value | None:
    """The same range of all entries; where each begins elsewhere, each element is chosen."""
    of_x, of_update, of_start = at.batched
    x, update = spread(m, at, x, of_x), spread(m, at, update, of_update)
    if not of_start:
        return m.dynamic_update_slice(x, update, start, axis + 1)
    count = m.sizes_of(update)[axis + 1].constant
    if not count or x.dtype in FLOAT8:
        return None
    length = m.sizes_of(x)[axis + 1]
    positions = m.iota([length], 0, start.dtype)
    first = m.maximum(m.minimum(start, m.sub(m.dim(x, axis + 1, start.dtype), count)), 0)
    places = m.sub(positions, m.reshape(first, [at.size, 1]))
    inside = m.bitwise_and(m.ge(places, 0), m.lt(places, count))
    found = m.gather(update, places, axis + 1, batch_dims=1)
    return m.where(beside(m, inside, axis + 1, x.ndim), found, x)


# ----------------------------------------------------------------------------------------------------------------------
# Indices
# ----------------------------------------------------------------------------------------------------------------------


@batching(mir.GatherOp)
def gather(m: Builders, at: Batched, table: Value, indices: Value, *, axis: int, batch_dims: int = 0) -> Value:
    """A table of each entry, indices of each entry, or both."""
    of_table, of_indices = at.batched
    if of_table and of_indices:
        return m.gather(table, indices, axis + 1, batch_dims=batch_dims + 1)
    if of_indices:  # the batch is one more dimension of the indices
        return moved(m, m.gather(table, moved(m, indices, 0, batch_dims), axis, batch_dims=batch_dims), axis, 0)
    if not batch_dims:
        return m.gather(table, indices, axis + 1)
    return moved(m, m.gather(moved(m, table, 0, batch_dims), indices, axis + 1, batch_dims=batch_dims), batch_dims, 0)


@batching(mir.ScatterAddOp)
def scatter_add(
    m: Builders,
    at: Batched,
    updates: Value,
    indices: Value,
    like: Value | None = None,
    *,
    axis: int,
    **attributes: int,
) -> Value | Same:
    """Sums of each entry; where entries have indices of their own, these go on from one entry to the next."""
    of_updates, of_indices = at.batched[:2]
    length = entry_sizes(m, at, present([updates, indices, like]))[axis]
    if not of_updates and not of_indices:
        return Same(m.scatter_add(updates, indices, _as_long(m, m.iota([length]), axis), axis))
    if not of_indices:
        return m.scatter_add(updates, indices, _as_long(m, m.iota([length]), axis + 1), axis + 1)
    places = m.cast(indices, "i64")
    own = m.iota([length], 0, "i64")
    count = m.dim(own, 0, "i64")
    inside = m.bitwise_and(m.ge(places, 0), m.lt(places, count))
    begin = m.mul(m.iota([at.size], 0, "i64"), count)
    begin = m.reshape(begin, [at.size, *[1] * (places.ndim - 1)])
    places = m.where(inside, m.add(places, begin), m.constant(-1, "i64"))
    every = folded(m, m.expand(own, [at.size, length]))
    updates = moved(m, spread(m, at, updates, of_updates), 0, axis)
    found = m.scatter_add(updates, places, _as_long(m, every, axis), axis)
    return moved(m, unfolded(m, found, [at.size, length], axis), axis, 0)


def _as_long(m: Builders, x: Value, axis: int) -> Value:
    """A vector along a dimension."""
    return m.reshape(x, [*[1] * axis, *m.sizes_of(x)]) if axis else x
