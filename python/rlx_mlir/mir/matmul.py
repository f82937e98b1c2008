# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Products of dense matrices."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rlx_mlir import ir
from rlx_mlir.attributes import python_value
from rlx_mlir.dialects import mir
from rlx_mlir.mir.cost import Cost, Sizes, cost
from rlx_mlir.mir.dims import Size, broadcast
from rlx_mlir.mir.functions import FUNCTIONS
from rlx_mlir.mir.linalg import Map, SizeLike, converted, elementwise, empty, generic, reduced, size_of, sizes_of
from rlx_mlir.mir.numerics import narrow, widen
from rlx_mlir.mir.registry import TO_LINALG, dim_rule, reference
from rlx_mlir.mir.scalars import Scalar, compute
from rlx_mlir.rewriting import Rewriter

# ----------------------------------------------------------------------------------------------------------------------
# References
# ----------------------------------------------------------------------------------------------------------------------


@reference(mir.MatmulOp)
def matmul(lhs: np.ndarray, rhs: np.ndarray, *, transpose_rhs: bool = False) -> np.ndarray:
    """result[.., m, n] = sum_k lhs[.., m, k] rhs[.., k, n], or rhs[.., n, k] with `transpose_rhs`; i32 of bytes."""
    if lhs.dtype.kind in "iu" and lhs.dtype.itemsize == 1:
        lhs, rhs = lhs.astype(np.int32), rhs.astype(np.int32)
    matrix = widen(rhs)
    return narrow(np.matmul(widen(lhs), np.swapaxes(matrix, -1, -2) if transpose_rhs else matrix), lhs.dtype)


@reference(mir.FusedMatmulBiasActOp)
def fused_matmul_bias_act(
    x: np.ndarray,
    weight: np.ndarray,
    bias: np.ndarray,
    *,
    activation: str | None = None,
    transpose_rhs: bool = False,
) -> np.ndarray:
    """activation(x @ weight + bias), rounded once."""
    matrix = widen(weight)
    total = np.matmul(widen(x), matrix.T if transpose_rhs else matrix) + widen(bias)
    return narrow(total if activation is None else FUNCTIONS[activation].apply(total), x.dtype)


@reference(mir.ScaledMatmulOp)
def scaled_matmul(
    lhs: np.ndarray,
    rhs: np.ndarray,
    lhs_scale: np.ndarray | None = None,
    rhs_scale: np.ndarray | None = None,
    *,
    transpose_rhs: bool = False,
    result_dtype: np.dtype,
) -> np.ndarray:
    """(sum_k lhs[.., m, k] rhs[.., k, n]) lhs_scale[.., m] rhs_scale[.., n], rounded once."""
    matrix = widen(rhs)
    total = np.matmul(widen(lhs), np.swapaxes(matrix, -1, -2) if transpose_rhs else matrix)
    if lhs_scale is not None:
        total = total * (lhs_scale[..., None] if lhs_scale.size != 1 else lhs_scale.reshape(()))
    if rhs_scale is not None:
        total = total * (rhs_scale[..., None, :] if rhs_scale.size != 1 else rhs_scale.reshape(()))
    return narrow(total, result_dtype)


# ----------------------------------------------------------------------------------------------------------------------
# Costs
# ----------------------------------------------------------------------------------------------------------------------


@cost(mir.MatmulOp)
def matmul_cost(op: ir.AnyOp, sizes: Sizes) -> Cost:
    """2 M N K, for each batch."""
    return Cost(2 * sizes.count(op.result) * sizes[op.lhs][-1])


@cost(mir.FusedMatmulBiasActOp)
def fused_matmul_bias_act_cost(op: ir.AnyOp, sizes: Sizes) -> Cost:
    """2 M N K, the bias, and the activation."""
    return Cost((2 * sizes[op.x][-1] + 1 + (op.activation is not None)) * sizes.count(op.result))


@cost(mir.ScaledMatmulOp)
def scaled_matmul_cost(op: ir.AnyOp, sizes: Sizes) -> Cost:
    """2 M N K, and the scales."""
    scales = sum(scale is not None for scale in (op.lhs_scale, op.rhs_scale))
    return Cost((2 * sizes[op.lhs][-1] + scales) * sizes.count(op.result))


# ----------------------------------------------------------------------------------------------------------------------
# Dimensions
# ----------------------------------------------------------------------------------------------------------------------


@dim_rule(mir.MatmulOp, mir.ScaledMatmulOp)
def matmul_dims(op: ir.AnyOp, operands: Sequence[tuple[Size, ...]]) -> tuple[Size, ...]:
    """[broadcast batches.., m, n]"""
    lhs, rhs = operands[:2]
    columns = rhs[-2 if op.transpose_rhs else -1]
    return (*broadcast(lhs[:-2], rhs[:-2]), lhs[-2], columns)


@dim_rule(mir.FusedMatmulBiasActOp)
def fused_matmul_bias_act_dims(op: ir.AnyOp, operands: Sequence[tuple[Size, ...]]) -> tuple[Size, ...]:
    """[.., n]"""
    x, weight, bias = operands
    columns = weight[0 if op.transpose_rhs else 1]
    return (*x[:-1], *broadcast((columns,), bias))


# ----------------------------------------------------------------------------------------------------------------------
# Lowering to linalg
# ----------------------------------------------------------------------------------------------------------------------


def contract(
    lhs: ir.Value,
    lhs_outer: Map,
    rhs: ir.Value,
    rhs_outer: Map,
    sizes: Sequence[SizeLike],
    *,
    transpose_rhs: bool,
    type: ir.Type | None = None,
) -> ir.Value:
    """sum_k lhs[outer.., k] rhs[outer.., k, n], or rhs[outer.., n, k], in `type`, by default the accumulation type.

    `sizes` are those of the result, [outer.., n]; the maps say which outer loops the operands' outer dimensions are.
    """
    # The innermost loop runs along rows of memory: k where both operands have it last, else n.
    last = len(sizes)
    n, k = (last - 1, last) if transpose_rhs else (last, last - 1)
    return reduced(
        last + 1,
        [(lhs, [*lhs_outer, k]), (rhs, [*rhs_outer, n, k] if transpose_rhs else [*rhs_outer, k, n])],
        sizes,
        [*range(last - 1), n],
        0,
        lambda x, w, total: total + x.to(total.type) * w.to(total.type),
        type=type,
    )


def _batches(value: ir.Value, sizes: Sequence[SizeLike]) -> list[int | None]:
    """The map of the batch dimensions of a matrix product's operand, which broadcast to those of the result."""
    shape = ir.RankedTensorType(value.type).shape[:-2]
    first = len(sizes) - len(shape)
    return [None if own == 1 and sizes[first + dim] != 1 else first + dim for dim, own in enumerate(shape)]


def _product(op: ir.AnyOp) -> ir.Value:
    """sum_k lhs[.., m, k] rhs[.., k, n] in the accumulation type."""
    transpose = bool(op.transpose_rhs)
    type = op.result.type
    outer: list[SizeLike] = []
    for dim in range(type.rank - 2):
        sources = [x for x in (op.lhs, op.rhs) if x.type.rank >= type.rank - dim]
        sizes = [size_of(x, dim - type.rank) for x in sources]
        outer.append(next((size for size in sizes if size != 1), 1) if type.is_dynamic_dim(dim) else type.shape[dim])
    rows, columns = size_of(op.lhs, -2), size_of(op.rhs, -2 if transpose else -1)
    lhs_map, rhs_map = [*_batches(op.lhs, outer), type.rank - 2], _batches(op.rhs, outer)
    # Those of bytes are of i32.
    total = type.element_type if isinstance(type.element_type, ir.IntegerType) else None
    return contract(op.lhs, lhs_map, op.rhs, rhs_map, [*outer, rows, columns], transpose_rhs=transpose, type=total)


@TO_LINALG.pattern(mir.MatmulOp)
def lower_matmul(op: ir.AnyOp, rewriter: Rewriter) -> None:
    """matmul(lhs, rhs) -> generic: result[.., m, n] += lhs[.., m, k] * rhs[.., k, n]"""
    rewriter.replace(op, converted(_product(op), op.result.type))


@TO_LINALG.pattern(mir.ScaledMatmulOp)
def lower_scaled_matmul(op: ir.AnyOp, rewriter: Rewriter) -> None:
    """scaled_matmul(lhs, rhs, s, t) -> the product, then generic: product[.., m, n] * s[.., m] * t[.., n]"""
    product = _product(op)
    sizes = sizes_of(product)
    loops = range(len(sizes))
    inputs: list[tuple[ir.Value, Map]] = [(product, loops)]
    for scale, kept in ((op.lhs_scale, -2), (op.rhs_scale, -1)):
        if scale is None:
            continue
        shape = ir.RankedTensorType(scale.type).shape
        if list(shape) in ([], [1]):
            inputs.append((scale, [None] * len(shape)))
            continue
        batches = _batches(op.lhs if kept == -2 else op.rhs, sizes[:-2])
        inputs.append((scale, [*batches, len(sizes) + kept]))
    target = op.result.type.element_type

    def scaled(total: Scalar, *scales: Scalar) -> Scalar:
        for scale in scales[:-1]:
            total = total * scale
        return total.to(target)

    rewriter.replace(op, generic(len(sizes), inputs, [(empty(sizes, target), loops)], scaled))


@TO_LINALG.pattern(mir.FusedMatmulBiasActOp)
def lower_fused_matmul_bias_act(op: ir.AnyOp, rewriter: Rewriter) -> None:
    """fused_matmul_bias_act(x, w, b) -> the product, then generic: act(product + bias)"""
    transpose = bool(op.transpose_rhs)
    *outer, _ = sizes_of(op.x)
    columns = op.result.type.shape[-1]
    if columns < 0:
        columns = size_of(op.weight, 0 if transpose else 1)
    product = contract(op.x, range(len(outer)), op.weight, [], [*outer, columns], transpose_rhs=transpose)
    word = python_value(op.activation)

    def finish(total: Scalar, bias: Scalar) -> Scalar:
        return total + bias if word is None else compute(FUNCTIONS[word], total + bias)

    rewriter.replace(op, elementwise(op.result.type, [product, op.bias], finish))
