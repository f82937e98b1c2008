# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Contractions along any dimensions, and low-rank updates of products."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from rlx_mlir import ir
from rlx_mlir.attributes import python_value
from rlx_mlir.dialects import mir
from rlx_mlir.mir.cost import Cost, Sizes, cost
from rlx_mlir.mir.dims import Size, product
from rlx_mlir.mir.linalg import converted, reduced, result_size
from rlx_mlir.mir.numerics import narrow, widen
from rlx_mlir.mir.registry import TO_LINALG, dim_rule, reference
from rlx_mlir.rewriting import Rewriter

# ----------------------------------------------------------------------------------------------------------------------
# References
# ----------------------------------------------------------------------------------------------------------------------


@reference(mir.DotGeneralOp)
def dot_general(
    lhs: np.ndarray,
    rhs: np.ndarray,
    *,
    lhs_contracting: Sequence[int] = (),
    rhs_contracting: Sequence[int] = (),
    lhs_batch: Sequence[int] = (),
    rhs_batch: Sequence[int] = (),
) -> np.ndarray:
    """result[b.., l.., r..] = sum_c lhs[b.., l.., c..] rhs[b.., r.., c..], by one matrix product; i32 of bytes."""
    if lhs.dtype.kind in "iu" and lhs.dtype.itemsize == 1:
        lhs, rhs = lhs.astype(np.int32), rhs.astype(np.int32)
    left, right = (
        [dim for dim in range(x.ndim) if dim not in {*contracting, *batch}]
        for x, contracting, batch in ((lhs, lhs_contracting, lhs_batch), (rhs, rhs_contracting, rhs_batch))
    )
    shape = [*(lhs.shape[dim] for dim in [*lhs_batch, *left]), *(rhs.shape[dim] for dim in right)]
    batches, length = (math.prod(lhs.shape[dim] for dim in dims) for dims in (lhs_batch, lhs_contracting))
    rows, columns = (math.prod(x.shape[dim] for dim in dims) for x, dims in ((lhs, left), (rhs, right)))
    a = widen(lhs).transpose([*lhs_batch, *left, *lhs_contracting]).reshape(batches, rows, length)
    b = widen(rhs).transpose([*rhs_batch, *rhs_contracting, *right]).reshape(batches, length, columns)
    return narrow(np.matmul(a, b).reshape(shape), lhs.dtype)


@reference(mir.LoraMatmulOp)
def lora_matmul(x: np.ndarray, weight: np.ndarray, a: np.ndarray, b: np.ndarray, *, scale: float) -> np.ndarray:
    """x weight + (scale (x a)) b, rounded once."""
    own = widen(x)
    update = np.matmul(np.matmul(own, widen(a)) * own.dtype.type(scale), widen(b))
    return narrow(np.matmul(own, widen(weight)) + update, x.dtype)


# ----------------------------------------------------------------------------------------------------------------------
# Costs
# ----------------------------------------------------------------------------------------------------------------------


@cost(mir.DotGeneralOp)
def dot_general_cost(op: ir.AnyOp, sizes: Sizes) -> Cost:
    """2 for each element of the result and of what is summed."""
    summed = product(sizes[op.lhs][dim] for dim in python_value(op.lhs_contracting))
    return Cost(2 * sizes.count(op.result) * summed)


@cost(mir.LoraMatmulOp)
def lora_matmul_cost(op: ir.AnyOp, sizes: Sizes) -> Cost:
    """Three products, the scale and the sum."""
    k, r = sizes[op.a]
    n = sizes[op.b][1]
    rows = sizes.count(op.x, without=-1)
    return Cost(rows * (2 * k * n + 2 * k * r + 2 * r * n + r + n))


# ----------------------------------------------------------------------------------------------------------------------
# Dimensions
# ----------------------------------------------------------------------------------------------------------------------


class Contraction:
    """Which loop runs along each dimension of the operands and of the result.

    Attributes:
        lhs, rhs: the loop along each dimension of the operands.
        result: that along each dimension of the result.
        loops: how many there are; the innermost one runs along rows of memory.
    """

    def __init__(self, op: ir.AnyOp) -> None:
        contracting = list(zip(python_value(op.lhs_contracting), python_value(op.rhs_contracting), strict=True))
        batch = list(zip(python_value(op.lhs_batch), python_value(op.rhs_batch), strict=True))
        ranks = op.lhs.type.rank, op.rhs.type.rank
        paired = [{pair[side] for pair in [*contracting, *batch]} for side in range(2)]
        left, right = ([dim for dim in range(rank) if dim not in own] for rank, own in zip(ranks, paired, strict=True))
        kept = [*batch, *((dim, None) for dim in left), *((None, dim) for dim in right)]
        # Along the last dimension of rhs there may be neighbouring results, to which one element of lhs adds.
        is_row = bool(right) and right[-1] == ranks[1] - 1
        order = [*kept[:-1], *contracting, kept[-1]] if is_row else [*kept, *contracting]
        self.lhs, self.rhs = ([0] * rank for rank in ranks)
        for loop, (own, other) in enumerate(order):
            if own is not None:
                self.lhs[own] = loop
            if other is not None:
                self.rhs[other] = loop
        self.sources = kept
        self.result = [order.index(entry) for entry in kept]
        self.loops = len(order)


@dim_rule(mir.DotGeneralOp)
def dot_general_dims(op: ir.AnyOp, operands: Sequence[tuple[Size, ...]]) -> tuple[Size, ...]:
    """[b.., l.., r..]"""
    dims = []
    for pair in Contraction(op).sources:
        sizes = [own[dim] for own, dim in zip(operands, pair, strict=True) if dim is not None]
        dims.append(next((size for size in sizes if size.constant is not None), sizes[0]))
    return tuple(dims)


@dim_rule(mir.LoraMatmulOp)
def lora_matmul_dims(op: ir.AnyOp, operands: Sequence[tuple[Size, ...]]) -> tuple[Size, ...]:
    """[.., n]"""
    x, weight, _, b = operands
    return (*x[:-1], weight[1] if weight[1].constant is not None else b[1])


# ----------------------------------------------------------------------------------------------------------------------
# Lowering to linalg
# ----------------------------------------------------------------------------------------------------------------------


@TO_LINALG.pattern(mir.DotGeneralOp)
def lower_dot_general(op: ir.AnyOp, rewriter: Rewriter) -> None:
    """dot_general(lhs, rhs) -> generic: result[b.., l.., r..] += lhs[b.., l.., c..] * rhs[b.., r.., c..]"""
    found = Contraction(op)
    sizes = []
    for at, (own, other) in enumerate(found.sources):
        source, dim = (op.rhs, other) if own is None else (op.lhs, own)
        sizes.append(result_size(op.result, at, source, dim))
    target = op.result.type.element_type
    total = reduced(
        found.loops,
        [(op.lhs, found.lhs), (op.rhs, found.rhs)],
        sizes,
        found.result,
        0,
        lambda x, y, total: total + x.to(total.type) * y.to(total.type),
        type=target if isinstance(target, ir.IntegerType) else None,  # of bytes it is i32
    )
    rewriter.replace(op, converted(total, op.result.type))
