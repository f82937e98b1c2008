# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Batching of products: of a weight that all entries share, the rows of all entries are one product."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from rlx_mlir.attributes import PythonValue
from rlx_mlir.autodiff.builders import Builders
from rlx_mlir.autodiff.folding import element, fold_all, folded, moved, present, spread, unfolded
from rlx_mlir.autodiff.registry import Batched, batching
from rlx_mlir.autodiff.rules.elementwise import aligned
from rlx_mlir.dialects import mir
from rlx_mlir.errors import UnsupportedError
from rlx_mlir.hir.values import Value
from rlx_mlir.mir.dims import Size

# ----------------------------------------------------------------------------------------------------------------------
# Matrices
# ----------------------------------------------------------------------------------------------------------------------


@batching(mir.MatmulOp)
def matmul(m: Builders, at: Batched, lhs: Value, rhs: Value, *, transpose_rhs: bool = False) -> Value:
    """The batch is one more of the dimensions before matrices."""
    left, right = aligned(m, at, [lhs, rhs])
    return m.matmul(left, right, transpose_rhs=transpose_rhs)


@batching(mir.ScaledMatmulOp)
def scaled_matmul(
    m: Builders,
    at: Batched,
    lhs: Value,
    rhs: Value,
    lhs_scale: Value | None = None,
    rhs_scale: Value | None = None,
    *,
    transpose_rhs: bool = False,
) -> Value:
    """As of `matmul`; what has scales of each entry is of each entry, too."""
    most = max(at.ranks[:2])
    columns = -2 if transpose_rhs else -1
    left, left_scale = _with_scale(m, at, (lhs, lhs_scale), 0, -2, most)
    right, right_scale = _with_scale(m, at, (rhs, rhs_scale), 1, columns, most)
    return m.scaled_matmul(left, right, left_scale, right_scale, dtype=element(at), transpose_rhs=transpose_rhs)


def _with_scale(
    m: Builders, at: Batched, given: tuple[Value, Value | None], number: int, own: int, most: int
) -> tuple[Value, Value | None]:
    """A factor and its scales, of which there is one for each entry of the dimension `own`, or one in all."""
    x, scale = given
    batched, scaled, rank = at.batched[number], bool(at.batched[number + 2]), at.ranks[number]
    if not batched and not scaled:
        return given
    x = spread(m, at, x, batched)
    sizes = m.sizes_of(x)
    lead = [at.size, *[Size.of(1)] * (most - rank)]
    each = [*lead, *sizes[1:-2], sizes[own]]
    if scale is not None:
        single = at.ranks[number + 2] == 0 or m.sizes_of(scale)[scaled:] == [Size.of(1)]
        if scaled or not single:
            scale = spread(m, at, scale, scaled)
            scale = m.expand(m.reshape(scale, [at.size, *[1] * (len(each) - 1)]), each) if single else scale
            scale = scale if single else m.reshape(scale, each)
    return m.reshape(x, [*lead, *sizes[1:]]) if most > rank else x, scale


@batching(mir.DotGeneralOp)
def dot_general(
    m: Builders,
    at: Batched,
    lhs: Value,
    rhs: Value,
    *,
    lhs_contracting: Sequence[int] = (),
    rhs_contracting: Sequence[int] = (),
    lhs_batch: Sequence[int] = (),
    rhs_batch: Sequence[int] = (),
) -> Value:
    """The batch is one more pair of dimensions, or one more that stays of one operand."""
    of_lhs, of_rhs = at.batched
    both = of_lhs and of_rhs
    pair = [0] if both else []
    found = m.dot_general(
        lhs,
        rhs,
        lhs_contracting=[axis + of_lhs for axis in lhs_contracting],
        rhs_contracting=[axis + of_rhs for axis in rhs_contracting],
        lhs_batch=[*pair, *(axis + of_lhs for axis in lhs_batch)],
        rhs_batch=[*pair, *(axis + of_rhs for axis in rhs_batch)],
    )
    if both:
        return found
    return moved(m, found, len(lhs_batch) if of_lhs else at.ranks[0] - len(lhs_contracting), 0)


@batching(
    mir.BlockDotOp,
    mir.DequantMatmulOp,
    mir.DequantMatmulScaledOp,
    mir.FusedMatmulBiasActOp,
    mir.LoraMatmulOp,
)
def of_rows(m: Builders, at: Batched, x: Value, *others: Value | None, **attributes: PythonValue) -> Value | None:
    """The rows of all entries, where these share the weights."""
    rows = 3 if isinstance(at.op.opview, mir.BlockDotOp) else 1
    if any(at.batched[rows:]):
        return None
    given = [
        spread(m, at, own, batched) for own, batched in zip(present((x, *others[: rows - 1])), at.batched, strict=False)
    ]
    return m.rebuilt(at.op, [*given, *present(others[rows - 1 :])])[0]


@batching(mir.RepackOp)
def repack(m: Builders, at: Batched, weight: Value, **attributes: PythonValue) -> NoReturn:
    """There is no batch of packed weights."""
    raise UnsupportedError("a packed weight can't have a batch: it is packed once, when parameters are set")


# ----------------------------------------------------------------------------------------------------------------------
# Experts
# ----------------------------------------------------------------------------------------------------------------------


@batching(mir.GroupedMatmulOp, mir.DequantGroupedMatmulOp)
def grouped_matmul(m: Builders, at: Batched, x: Value, weight: Value, expert: Value, **attributes: int) -> Value:
    """The rows of all entries; where these have experts of their own, all of them are the experts."""
    of_x, of_weight, of_expert = at.batched
    x = spread(m, at, x, of_x)
    count = m.sizes_of(x)[1]
    expert = spread(m, at, expert, of_expert)
    if of_weight:
        experts = m.dim(weight, 1, "i64")
        own = m.minimum(m.maximum(m.cast(expert, "i64"), 0), m.sub(experts, 1))
        begin = m.mul(m.iota([at.size], 0, "i64"), experts)
        expert, weight = m.add(own, m.reshape(begin, [at.size, 1])), folded(m, weight)
    found = m.rebuilt(at.op, [folded(m, x), weight, folded(m, expert)])[0]
    return unfolded(m, found, [at.size, count])


@batching(mir.GroupedBlockDotOp)
def grouped_block_dot(
    m: Builders, at: Batched, q: Value, scale: Value, sum: Value, weight: Value, expert: Value, **attributes: int
) -> Value | None:
    """The rows of all entries, where these share the experts."""
    *of_rows, of_weight, of_expert = at.batched
    if of_weight:
        return None
    own = zip((q, scale, sum, expert), (*of_rows, of_expert), strict=True)
    *rows, experts = (spread(m, at, value, batched) for value, batched in own)
    count = m.sizes_of(rows[0])[1]
    found = m.rebuilt(at.op, [*(folded(m, value) for value in rows), weight, folded(m, experts)])[0]
    return unfolded(m, found, [at.size, count])


# ----------------------------------------------------------------------------------------------------------------------
# Integers
# ----------------------------------------------------------------------------------------------------------------------


@batching(mir.QMatmulOp, mir.QConv2dOp)
def of_integers(
    m: Builders, at: Batched, x: Value, weight: Value, bias: Value | None = None, **attributes: PythonValue
) -> Value | None:
    """The rows or images of all entries, where these share the weight."""
    if any(at.batched[1:]):
        return None
    count = m.sizes_of(x)[1]
    return unfolded(m, m.rebuilt(at.op, present([folded(m, x), weight, bias]))[0], [at.size, count])


# ----------------------------------------------------------------------------------------------------------------------
# Systems of equations
# ----------------------------------------------------------------------------------------------------------------------


@batching(mir.DenseSolveOp)
def dense_solve(m: Builders, at: Batched, a: Value, b: Value) -> Value:
    """A system of each entry; right sides of one matrix are solved for together."""
    of_a, of_b = at.batched
    if of_a:
        return m.batched_dense_solve(a, spread(m, at, b, of_b))
    sides = moved(m, b, 0, 1)
    if sides.ndim == 2:
        return m.transpose(m.dense_solve(a, sides))
    sizes = m.sizes_of(sides)
    found = m.dense_solve(a, folded(m, sides, 1))
    return moved(m, unfolded(m, found, sizes[1:], 1), 1, 0)


@batching(mir.BatchedDenseSolveOp)
def batched_dense_solve(m: Builders, at: Batched, a: Value, b: Value) -> Value:
    """The systems of all entries."""
    flat, count = fold_all(m, at, [a, b])
    return unfolded(m, m.batched_dense_solve(*flat), [at.size, count])
