# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operations that move elements, count, choose by indices, and join elements along dimensions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rlx_mlir.errors import UnsupportedError
from rlx_mlir.exports.stablehlo.builder import SIZES, Writing, numbers
from rlx_mlir.exports.stablehlo.operators.shared import looped
from rlx_mlir.exports.stablehlo.registry import writes
from rlx_mlir.exports.stablehlo.tensors import Dim, Tensor, is_static, numbers_of, plain
from rlx_mlir.mir.dims import Size, followed, maximum, minimum
from rlx_mlir.mir.shape import slice_sizes


def listed(values: Sequence[int]) -> str:
    """A list of numbers in a structure."""
    return "[" + ", ".join(map(str, values)) + "]"


@writes("reshape")
def _reshape(w: Writing, x: Tensor, *like: Tensor, **_: object) -> Tensor:
    return w.reshape(x, w.types[0][0])


@writes("expand")
def _expand(w: Writing, x: Tensor, like: Tensor | None = None, **_: object) -> Tensor:
    return w.spread(x, w.types[0][0])


@writes("iota")
def _iota(w: Writing, like: Tensor | None = None, *, axis: int, **_: object) -> Tensor:
    shape, word = w.types[0]
    return w.iota(shape, axis, word)


@writes("dim")
def _dim(w: Writing, x: Tensor, *, axis: int) -> Tensor:
    word, size = w.types[0][1], x.shape[axis]
    if isinstance(size, Size):
        return w.cast(w.extent(size), word)
    return w.constant(np.asarray(size).astype(Tensor("", (), word).dtype), word)


@writes("transpose")
def _transpose(w: Writing, x: Tensor, *, permutation: Sequence[int]) -> Tensor:
    return w.transpose(x, permutation)


@writes("concat")
def _concat(w: Writing, *inputs: Tensor, axis: int) -> Tensor:
    return w.concat(inputs, axis % inputs[0].rank) if len(inputs) > 1 else inputs[0]


@writes("narrow")
def _narrow(w: Writing, x: Tensor, *, axis: int, start: int, length: int) -> Tensor:
    return w.cut(x, axis % x.rank, start, start + length)


@writes("slice")
def _slice(
    w: Writing,
    x: Tensor,
    *like: Tensor,
    axis: int,
    start: int | str | None = None,
    stop: int | str | None = None,
    step: int = 1,
    like_dims: Sequence[int] = (),
    **_: object,
) -> Tensor:
    size, length = x.shape[axis], w.types[0][0][axis]
    known = [Size.of(own.shape[dim]) for own, dim in zip(like, like_dims, strict=True)]
    first, last = (None if bound is None else followed(bound, known) for bound in (start, stop))
    begin = slice_sizes(Size.of(size), first, last, step)[0]
    if length == 0:
        return w.cut(x, axis, 0, 0)
    far = (Size.of(length) - 1) * step + begin  # the last element, or before the first where there turns out to be none
    if step > 0:
        found = w.cut(x, axis, begin, maximum(far + 1, begin), step)
    else:
        found = w.reverse(w.cut(x, axis, minimum(far, begin + 1), begin + 1, -step), [axis])
    return Tensor(found.name, w.types[0][0], x.word)


def _starts(w: Writing, start: Tensor, rank: int, axis: int) -> list[Tensor]:
    zero = w.constant(np.zeros((), start.dtype), start.word)
    return [w.reshape(start, ()) if at == axis else zero for at in range(rank)]


@writes("dynamic_slice")
def _dynamic_slice(w: Writing, x: Tensor, start: Tensor, *like: Tensor, axis: int, **_: object) -> Tensor:
    shape = w.types[0][0]
    if not is_static(shape):
        return window(w, x, start, shape, axis)
    attributes = f"slice_sizes = {numbers(numbers_of(shape))}"
    return w.op("dynamic_slice", [x, *_starts(w, start, x.rank, axis)], shape, x.word, attributes)


def window(w: Writing, x: Tensor, start: Tensor, shape: Sequence[Dim], axis: int) -> Tensor:
    """A slice whose sizes are made of symbols, moved to where it is in x.

    Its end is a sum of its begin and its sizes: tools that know these see so how large it is, wherever it begins.
    """
    last = w.extent(plain(Size.of(x.shape[axis]) - shape[axis]))
    first = w.binary("maximum", w.binary("minimum", w.cast(w.reshape(start, ()), SIZES), last), 0)
    starts = [w.reshape(first if at == axis else w.extent(0), (1,)) for at in range(x.rank)]
    begin = w.concat(starts, 0)
    end = w.add(begin, w.extents(shape))
    return w.op("real_dynamic_slice", [x, begin, end, w.extents([1] * x.rank)], shape, x.word)


@writes("dynamic_update_slice")
def _dynamic_update_slice(w: Writing, x: Tensor, update: Tensor, start: Tensor, *, axis: int) -> Tensor:
    return w.op("dynamic_update_slice", [x, update, *_starts(w, start, x.rank, axis)], x.shape, x.word)


@writes("cache_update")
def _cache_update(w: Writing, cache: Tensor, new: Tensor, pos: Tensor) -> Tensor:
    new = w.cast(new, cache.word)
    batches = cache.shape[0]
    if isinstance(batches, Size) or not is_static(new.shape):
        return _cache_update_in_turn(w, cache, new, pos)
    rows = []
    for batch in range(batches):
        own, at = (w.cut(value, 0, batch, batch + 1) for value in (cache, pos))
        update = w.cut(new, 0, batch, batch + 1)
        rows.append(w.op("dynamic_update_slice", [own, update, *_starts(w, at, cache.rank, 1)], own.shape, own.word))
    return w.concat(rows, 0) if len(rows) > 1 else rows[0]


def _cache_update_in_turn(w: Writing, cache: Tensor, new: Tensor, pos: Tensor) -> Tensor:
    """The same, one batch after the other."""

    def step(batch: Tensor, own: Tensor) -> list[Tensor]:
        at = w.reshape(window(w, pos, batch, (1,), 0), ())
        update = window(w, new, batch, (1, *new.shape[1:]), 0)
        zero = w.number(0, at)
        starts = [w.cast(batch, at.word), at, *[zero] * (cache.rank - 2)]
        return [
            w.add(batch, 1),
            w.op("dynamic_update_slice", [own, update, *starts], cache.shape, cache.word),
        ]

    first = w.constant(np.asarray(0, np.int32), SIZES)
    return looped(w, [first, cache], lambda batch, _: [w.compare("lt", batch, w.extent(cache.shape[0]))], step)[1]


# Indices --------------------------------------------------------------------------------------------


def _indices(w: Writing, indices: Tensor) -> Tensor:
    """Indices as integers: of floats the fraction is dropped."""
    return w.cast(indices, "i32") if indices.is_float else indices


@writes("gather")
def _gather(w: Writing, table: Tensor, indices: Tensor, *, axis: int, batch_dims: int = 0) -> Tensor:
    indices = _indices(w, indices)
    own, count = axis - batch_dims, indices.rank - batch_dims
    after = range(batch_dims + own + count, table.rank - 1 + count)
    batch = list(range(batch_dims))
    fields = {
        "offset_dims": [*range(batch_dims, batch_dims + own), *after],
        "collapsed_slice_dims": [axis],
        "operand_batching_dims": batch,
        "start_indices_batching_dims": batch,
        "start_index_map": [axis],
    }
    text = ", ".join(f"{name} = {listed(values)}" for name, values in fields.items() if values)
    sizes = [1 if at == axis or at < batch_dims else size for at, size in enumerate(table.shape)]
    attributes = (
        f"dimension_numbers = #stablehlo.gather<{text}, index_vector_dim = {indices.rank}>, indices_are_sorted = false"
    )
    if not is_static(sizes):
        return w.op("dynamic_gather", [table, indices, w.extents(sizes)], w.types[0][0], table.word, attributes)
    attributes += f", slice_sizes = {numbers(numbers_of(sizes))}"
    return w.op("gather", [table, indices], w.types[0][0], table.word, attributes)


@writes("scatter_add")
def _scatter_add(
    w: Writing, updates: Tensor, indices: Tensor, like: Tensor | None = None, *, axis: int, size: int | None = None
) -> Tensor:
    indices, shape = _indices(w, indices), w.types[0][0]
    wide = w.wide(updates)
    zeros = w.spread(w.constant(np.zeros((), wide.dtype), wide.word), shape)
    windows = [*range(axis), *range(axis + indices.rank, updates.rank)]
    text = f"update_window_dims = {listed(windows)}, " if windows else ""
    attributes = (
        "indices_are_sorted = false, scatter_dimension_numbers = #stablehlo.scatter<"
        f"{text}inserted_window_dims = [{axis}], scatter_dims_to_operand_dims = [{axis}], "
        f"index_vector_dim = {indices.rank}>, unique_indices = false"
    )
    (found,) = w.ops("scatter", [zeros, indices, wide], [(shape, wide.word)], attributes, [w.joining("sum", wide.word)])
    return w.cast(found, updates.word)


# Along dimensions -----------------------------------------------------------------------------------


@writes("reduce")
def _reduce(w: Writing, x: Tensor, *, kind: str, axes: Sequence[int], keep_dims: bool = False) -> Tensor:
    return w.reduce(x, kind, axes, keep=keep_dims)


@writes("cumsum")
def _cumsum(w: Writing, x: Tensor, *, axis: int = -1, exclusive: bool = False) -> Tensor:
    at, wide = axis % x.rank, w.wide(x)
    size = x.shape[at]
    if isinstance(size, Size):
        raise UnsupportedError("sums along a dimension of symbolic size")
    pads = [[0, 0] for _ in range(x.rank)]
    pads[at] = [size, -1] if exclusive else [size - 1, 0]
    if not size:
        return x
    sizes = [size if own == at else 1 for own in range(x.rank)]
    text = ", ".join(listed(pad) for pad in pads)
    attributes = f"padding = dense<[{text}]> : tensor<{x.rank}x2xi64>, window_dimensions = {numbers(sizes)}"
    init = w.neutral("sum", wide.word)
    (found,) = w.ops("reduce_window", [wide, init], [(x.shape, wide.word)], attributes, [w.joining("sum", wide.word)])
    return w.cast(found, x.word)


@writes("top_k")
def _top_k(
    w: Writing, x: Tensor, *like: Tensor, smallest: bool = False, nan_largest: bool = False, **_: object
) -> list[Tensor]:
    """Rows with their positions, sorted by a comparator that says where NaN is; `chlo.top_k` has one place for it."""

    def before(a: Tensor, b: Tensor, *_: Tensor) -> list[Tensor]:
        wins = w.compare("lt" if smallest else "gt", a, b)
        if not x.is_float:
            return [wins]
        first, second = (a, b) if nan_largest != smallest else (b, a)
        alone = w.binary("and", w.compare("ne", first, first), w.compare("eq", second, second))
        return [w.binary("or", wins, alone)]

    last = x.rank - 1
    types = [(x.shape, x.word), (x.shape, "i32")]
    region = w.region([((), word) for _, word in types for _ in range(2)], before)[0]
    attributes = f"dimension = {last} : i64, is_stable = true"
    found = w.ops("sort", [x, w.iota(x.shape, last)], types, attributes, [region])
    values, places = (w.cut(own, last, 0, w.types[0][0][last]) for own in found)
    return [w.add(values, 0.0) if x.is_float else values, places]  # of -0, 0
