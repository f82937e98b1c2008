# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operations that move elements, count, choose by indices, and join elements along dimensions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rlx_mlir.exports.stablehlo.builder import Writing, numbers
from rlx_mlir.exports.stablehlo.registry import writes
from rlx_mlir.exports.stablehlo.tensors import Tensor


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
    word = w.types[0][1]
    return w.constant(np.asarray(x.shape[axis]).astype(Tensor("", (), word).dtype), word)


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
    start: int | None = None,
    stop: int | None = None,
    step: int = 1,
    **_: object,
) -> Tensor:
    places = range(*slice(start, stop, step).indices(x.shape[axis]))
    if not places:
        return w.cut(x, axis, 0, 0)
    if step > 0:
        return w.cut(x, axis, places[0], places[-1] + 1, step)
    return w.reverse(w.cut(x, axis, places[-1], places[0] + 1, -step), [axis])


def _starts(w: Writing, start: Tensor, rank: int, axis: int) -> list[Tensor]:
    zero = w.constant(np.zeros((), start.dtype), start.word)
    return [w.reshape(start, ()) if at == axis else zero for at in range(rank)]


@writes("dynamic_slice")
def _dynamic_slice(w: Writing, x: Tensor, start: Tensor, *like: Tensor, axis: int, **_: object) -> Tensor:
    shape = w.types[0][0]
    attributes = f"slice_sizes = {numbers(shape)}"
    return w.op("dynamic_slice", [x, *_starts(w, start, x.rank, axis)], shape, x.word, attributes)


@writes("dynamic_update_slice")
def _dynamic_update_slice(w: Writing, x: Tensor, update: Tensor, start: Tensor, *, axis: int) -> Tensor:
    return w.op("dynamic_update_slice", [x, update, *_starts(w, start, x.rank, axis)], x.shape, x.word)


@writes("cache_update")
def _cache_update(w: Writing, cache: Tensor, new: Tensor, pos: Tensor) -> Tensor:
    new = w.cast(new, cache.word)
    rows = []
    for batch in range(cache.shape[0]):
        own, at = (w.cut(value, 0, batch, batch + 1) for value in (cache, pos))
        update = w.cut(new, 0, batch, batch + 1)
        rows.append(w.op("dynamic_update_slice", [own, update, *_starts(w, at, cache.rank, 1)], own.shape, own.word))
    return w.concat(rows, 0) if len(rows) > 1 else rows[0]


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
        f"dimension_numbers = #stablehlo.gather<{text}, index_vector_dim = {indices.rank}>, "
        f"indices_are_sorted = false, slice_sizes = {numbers(sizes)}"
    )
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
def _top_k(w: Writing, x: Tensor, *, k: int) -> list[Tensor]:
    shape = [*x.shape[:-1], k]
    values, places = w.ops("chlo.top_k", [x], [(shape, x.word), (shape, "i32")], f"k = {k} : i64")
    return [w.add(values, 0.0), places]  # of -0, 0
