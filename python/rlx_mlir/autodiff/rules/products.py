# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Products of matrices, those of experts, and solutions of linear equations."""

from __future__ import annotations

from collections.abc import Sequence

from rlx_mlir.autodiff.builders import Builders
from rlx_mlir.autodiff.folding import folded
from rlx_mlir.autodiff.registry import Forward, Reverse, jvp, multilinear, unbroadcast, vjp
from rlx_mlir.dialects import mir
from rlx_mlir.hir.values import Value


def _swapped(m: Builders, x: Value) -> Value:
    """The last two dimensions exchanged."""
    return m.transpose(x, [*range(x.ndim - 2), x.ndim - 1, x.ndim - 2])


@vjp(mir.MatmulOp)
def matmul(
    m: Builders, at: Reverse, lhs: Value, rhs: Value, *, transpose_rhs: bool = False
) -> tuple[Value | None, Value | None]:
    """dy rhs^T and lhs^T dy; where rhs is one matrix for all batches, the rows of all batches are one product."""
    dy = at.dy
    own = unbroadcast(m, m.matmul(dy, rhs, transpose_rhs=not transpose_rhs), lhs)
    left = lhs
    if rhs.ndim == 2 and lhs.ndim > 2:
        left, dy = (folded(m, x, 0, x.ndim - 1) for x in (left, dy))
    if transpose_rhs:
        other = m.matmul(_swapped(m, dy), left)
    else:
        other = m.matmul(_swapped(m, left), dy)
    return own, unbroadcast(m, other, rhs)


multilinear(mir.MatmulOp, mir.DotGeneralOp)


@vjp(mir.DotGeneralOp)
def dot_general(
    m: Builders,
    at: Reverse,
    lhs: Value,
    rhs: Value,
    *,
    lhs_contracting: Sequence[int] = (),
    rhs_contracting: Sequence[int] = (),
    lhs_batch: Sequence[int] = (),
    rhs_batch: Sequence[int] = (),
) -> tuple[Value, Value]:
    """The cotangent contracted with the other operand's free dimensions, in the order of the operand's."""

    def by(own: Value, other: Value, first: bool) -> Value:
        contracting, batch = (lhs_contracting, lhs_batch) if first else (rhs_contracting, rhs_batch)
        others, other_batch = (rhs_contracting, rhs_batch) if first else (lhs_contracting, lhs_batch)
        free = [a for a in range(own.ndim) if a not in (*contracting, *batch)]
        other_free = [a for a in range(other.ndim) if a not in (*others, *other_batch)]
        batches = len(batch)
        begin = batches + len(free) if first else batches
        product = m.dot_general(
            at.dy,
            other,
            lhs_contracting=list(range(begin, begin + len(other_free))),
            rhs_contracting=other_free,
            lhs_batch=list(range(batches)),
            rhs_batch=list(other_batch),
        )
        # Its dimensions: batches, the operand's free ones, and the contracted ones in the order of the other operand.
        remaining = [a for a in range(other.ndim) if a in others]
        order = [*batch, *free, *(contracting[list(others).index(a)] for a in remaining)]
        return m.transpose(product, [order.index(axis) for axis in range(own.ndim)])

    return by(lhs, rhs, first=True), by(rhs, lhs, first=False)


# ----------------------------------------------------------------------------------------------------------------------
# Experts
# ----------------------------------------------------------------------------------------------------------------------


@vjp(mir.GroupedMatmulOp)
def grouped_matmul(m: Builders, at: Reverse, x: Value, weight: Value, expert: Value) -> tuple[Value, Value]:
    """Each row of dy by its expert's weight; for each expert the product of x^T and dy with the other rows as zeros."""
    by_x = m.grouped_matmul(at.dy, _swapped(m, weight), expert)
    experts, columns, _ = m.sizes_of(weight)
    last = m.sub(m.dim(weight, 0, "i32"), 1)
    own = m.minimum(m.maximum(m.cast(expert, "i32"), 0), last)
    chosen = m.eq(m.reshape(own, [-1, 1, 1]), m.reshape(m.iota([experts], 0, "i32"), [-1, 1]))
    rows = m.where(chosen, m.reshape(x, [m.sizes_of(x)[0], 1, columns]), m.constant(0.0, x.dtype))
    return by_x, m.dot_general(rows, at.dy, lhs_contracting=[0], rhs_contracting=[0])


multilinear(mir.GroupedMatmulOp)

# ----------------------------------------------------------------------------------------------------------------------
# Linear equations
# ----------------------------------------------------------------------------------------------------------------------


def _solve(m: Builders, a: Value, b: Value) -> Value:
    return m.dense_solve(a, b) if a.ndim == 2 else m.batched_dense_solve(a, b)


def _columns(m: Builders, a: Value, b: Value) -> Value:
    """Right sides as columns, also where there is one."""
    return b if b.ndim == a.ndim else m.reshape(b, [*m.sizes_of(b), 1])


@vjp(mir.DenseSolveOp, mir.BatchedDenseSolveOp)
def dense_solve(m: Builders, at: Reverse, a: Value, b: Value) -> tuple[Value, Value]:
    """With y the solution: d = solve(a^T, dy) by b, and -d y^T by a."""
    by_b = _solve(m, _swapped(m, a), at.dy)
    product = m.matmul(_columns(m, a, by_b), _columns(m, a, at.y), transpose_rhs=True)
    return m.neg(product), by_b


@jvp(mir.DenseSolveOp, mir.BatchedDenseSolveOp)
def dense_solve_forward(m: Builders, at: Forward, a: Value, b: Value) -> Value:
    """solve(a, db - da y)"""
    by_a, by_b = at.tangents
    if by_a is None:
        return _solve(m, a, by_b)
    change = m.neg(m.reshape(m.matmul(by_a, _columns(m, a, at.y)), m.sizes_of(b)))
    return _solve(m, a, change if by_b is None else m.add(by_b, change))
