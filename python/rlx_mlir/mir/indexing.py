# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writing where indices say; reading there is in `shape`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rlx_mlir import ir
from rlx_mlir.attributes import python_value
from rlx_mlir.dialects import mir
from rlx_mlir.formats.affine import saturate
from rlx_mlir.mir.cost import Cost, Sizes, cost
from rlx_mlir.mir.dims import Size
from rlx_mlir.mir.linalg import (
    SizeLike,
    as_index,
    collapse,
    converted,
    element_type,
    extract_slice,
    filled,
    for_each,
    reshaped,
    size_of,
    sizes_of,
    update_slice,
)
from rlx_mlir.mir.numerics import narrow, widen
from rlx_mlir.mir.registry import TO_LINALG, dim_rule, reference
from rlx_mlir.mir.scalars import Scalar, accumulator, constant, extract
from rlx_mlir.rewriting import Rewriter


@reference(mir.ScatterAddOp)
def scatter_add(
    updates: np.ndarray, indices: np.ndarray, like: np.ndarray | None = None, *, axis: int, size: int | None = None
) -> np.ndarray:
    """result[o.., indices[i..], t..] += updates[o.., i.., t..], in row-major order of i..; others are dropped."""
    length = size if like is None else like.shape[axis]
    assert length is not None, "the verifier's rule"
    wide, count = widen(updates), indices.ndim
    outer, inner = wide.shape[:axis], wide.shape[axis + count :]
    entries = np.moveaxis(wide.reshape(*outer, indices.size, *inner), axis, 0)
    place = saturate(indices.reshape(-1), np.dtype(np.int64))
    inside = (place >= 0) & (place < length)
    total = np.zeros((length, *outer, *inner), wide.dtype)
    np.add.at(total, place[inside], entries[inside])
    return narrow(np.moveaxis(total, 0, axis), updates.dtype)


@cost(mir.ScatterAddOp)
def scatter_add_cost(op: ir.AnyOp, sizes: Sizes) -> Cost:
    """One for each element of `updates`; of `like` none is read."""
    return Cost(sizes.count(op.updates), reads={} if op.like is None else {op.like: 0})


@dim_rule(mir.ScatterAddOp)
def scatter_add_dims(op: ir.AnyOp, operands: Sequence[tuple[Size, ...]]) -> tuple[Size, ...]:
    """The dimensions of the indices replaced by one, of `size` or of `like`."""
    updates, indices, *like = operands
    axis = python_value(op.axis)
    length = like[0][axis] if like else Size.of(python_value(op.size))
    return (*updates[:axis], length, *updates[axis + len(indices) :])


@TO_LINALG.pattern(mir.ScatterAddOp)
def lower_scatter_add(op: ir.AnyOp, rewriter: Rewriter) -> None:
    """scatter_add(u, i) -> zeros; a loop over the indices: result[.., i[n], ..] += u[.., n, ..]

    What runs in parallel are the elements of an entry. An index outside counts as the nearest one inside, with 0 to
    add: that changes no sum, since one that begins with 0 is never -0.
    """
    axis, count = python_value(op.axis), op.indices.type.rank
    own = sizes_of(op.updates)
    outer, inner = own[:axis], own[axis + count :]
    length = python_value(op.size) if op.like is None else size_of(op.like, axis)
    result_sizes: list[SizeLike] = [*outer, length, *inner]
    wide = accumulator(element_type(op.updates))
    zeros = filled(result_sizes, wide, 0)
    if 0 in result_sizes or 0 in own:
        rewriter.replace(op, converted(zeros, op.result.type))
        return
    entries, places = _flat(op, axis, count)
    end = Scalar(as_index(length))
    # Where the result has no entry, none is in reach.
    steps = end.compare("eq", 0).select(0, Scalar(as_index(size_of(places, 0)))).value
    part: list[SizeLike] = [*outer, 1, *inner]

    def at(position: SizeLike) -> list[SizeLike]:
        return [*[0] * len(outer), position, *[0] * len(inner)]

    def step(n: ir.Value, total: ir.Value) -> list[ir.Value]:
        place = extract(places, [Scalar(n)]).to("i64")
        last = end.to("i64") - 1
        inside = (place >= 0) & (place <= last)
        row = place.min(last).max(0).to("index").value

        def add(x: Scalar, old: Scalar) -> Scalar:
            return old + inside.select(x.widen(), constant(wide, 0))

        entry = extract_slice(entries, at(n), part, drop=[axis])
        return [update_slice([(entry, range(len(result_sizes) - 1))], total, at(row), part, drop=[axis], body=add)]

    (total,) = for_each(0, steps, [zeros], step)
    rewriter.replace(op, converted(total, op.result.type))


def _flat(op: ir.AnyOp, axis: int, count: int) -> tuple[ir.Value, ir.Value]:
    """The updates with one dimension for those of the indices, and the indices in one."""
    if count == 1:
        return op.updates, op.indices
    own = sizes_of(op.updates)
    if count == 0:
        return reshaped(op.updates, [*own[:axis], 1, *own[axis:]], same=axis), reshaped(op.indices, [1])
    groups = [*([dim] for dim in range(axis)), [*range(axis, axis + count)]]
    groups += [[dim] for dim in range(axis + count, len(own))]
    return collapse(op.updates, groups), collapse(op.indices, [list(range(count))])
