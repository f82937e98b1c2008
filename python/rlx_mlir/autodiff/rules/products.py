# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Products of matrices."""

from __future__ import annotations

from collections.abc import Sequence

from rlx_mlir.autodiff.builders import Builders
from rlx_mlir.autodiff.registry import Forward, Reverse, jvp, unbroadcast, vjp
from rlx_mlir.dialects import mir
from rlx_mlir.hir.values import Value
from rlx_mlir.mir.dims import Size


def _swapped(m: Builders, x: Value) -> Value:
    """The last two dimensions exchanged."""
    return m.transpose(x, [*range(x.ndim - 2), x.ndim - 1, x.ndim - 2])


def _conjugate(m: Builders, x: Value) -> Value:
    return m.conjugate(x) if x.dtype.kind == "c" else x


@vjp(mir.MatmulOp)
def matmul(
    m: Builders, at: Reverse, lhs: Value, rhs: Value, *, transpose_rhs: bool = False
) -> tuple[Value | None, Value | None]:
    """dy rhs^T and lhs^T dy; where rhs is one matrix for all batches, the rows of all batches are one product."""
    dy = at.dy
    own = unbroadcast(m, m.matmul(dy, _conjugate(m, rhs), transpose_rhs=not transpose_rhs), lhs)
    left = _conjugate(m, lhs)
    if rhs.ndim == 2 and lhs.ndim > 2:
        left, dy = (m.reshape(x, [-1, m.sizes_of(x)[-1]]) for x in (left, dy))
    if transpose_rhs:
        other = m.matmul(_swapped(m, dy), left)
    else:
        other = m.matmul(_swapped(m, left), dy)
    return own, unbroadcast(m, other, rhs)


@jvp(mir.MatmulOp)
def matmul_forward(m: Builders, at: Forward, lhs: Value, rhs: Value, *, transpose_rhs: bool = False) -> Value:
    """d(lhs) rhs + lhs d(rhs)"""
    by_lhs, by_rhs = at.tangents
    terms = []
    if by_lhs is not None:
        terms.append(m.matmul(by_lhs, rhs, transpose_rhs=transpose_rhs))
    if by_rhs is not None:
        terms.append(m.matmul(lhs, by_rhs, transpose_rhs=transpose_rhs))
    return terms[0] if len(terms) == 1 else m.add(*terms)


@vjp(mir.DequantMatmulOp)
def dequant_matmul(m: Builders, at: Reverse, x: Value, weight: Value) -> Value:
    """dy times the decoded weight, which stays packed: its rows are decoded where the product reads them."""
    rows = Size.of(weight.shape[0])
    decoded = m.gather(weight, m.iota([rows], 0, "i32"), 0)
    wide = m.cast(at.dy, decoded.dtype)
    return m.cast(m.matmul(wide, decoded), x.dtype)


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
            _conjugate(m, other),
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


@jvp(mir.DotGeneralOp)
def dot_general_forward(m: Builders, at: Forward, lhs: Value, rhs: Value, **dimensions: Sequence[int]) -> Value:
    """d(lhs) rhs + lhs d(rhs)"""
    by_lhs, by_rhs = at.tangents
    terms = []
    if by_lhs is not None:
        terms.append(m.copied(at.op, [by_lhs, rhs])[0])
    if by_rhs is not None:
        terms.append(m.copied(at.op, [lhs, by_rhs])[0])
    return terms[0] if len(terms) == 1 else m.add(*terms)
