# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Normalisations, alone and fused with a residual sum."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rlx_mlir import ir
from rlx_mlir.attributes import python_value
from rlx_mlir.dialects import mir
from rlx_mlir.mir.cost import Cost, Sizes, cost
from rlx_mlir.mir.dims import Size
from rlx_mlir.mir.linalg import (
    Map,
    SizeLike,
    count_as,
    element_type,
    elementwise,
    empty,
    generic,
    size_of,
    sizes_of,
    summed,
    tensor_type,
)
from rlx_mlir.mir.numerics import mean_along, narrow, widen
from rlx_mlir.mir.registry import TO_LINALG, dim_rule, reference
from rlx_mlir.mir.scalars import Scalar, accumulator, sqrt
from rlx_mlir.rewriting import Rewriter

# ----------------------------------------------------------------------------------------------------------------------
# References
# ----------------------------------------------------------------------------------------------------------------------


def _along(vector: np.ndarray, x: np.ndarray, axis: int) -> np.ndarray:
    """A vector shaped so that it broadcasts along one axis of `x`."""
    shape = [1] * x.ndim
    shape[axis] = -1
    return widen(vector).reshape(shape)


def _layer_norm(wide: np.ndarray, gamma: np.ndarray, beta: np.ndarray | None, axis: int, eps: float) -> np.ndarray:
    centred = wide - mean_along(wide, axis)
    centred = centred - mean_along(centred, axis)  # what the rounded mean lacks
    variance = mean_along(centred * centred, axis)
    result = centred / np.sqrt(variance + wide.dtype.type(np.float32(eps))) * _along(gamma, wide, axis)
    return result if beta is None else result + _along(beta, wide, axis)


def _rms_norm(wide: np.ndarray, gamma: np.ndarray, beta: np.ndarray | None, axis: int, eps: float) -> np.ndarray:
    square = mean_along(wide * wide, axis)
    result = wide / np.sqrt(square + wide.dtype.type(np.float32(eps))) * _along(gamma, wide, axis)
    return result if beta is None else result + _along(beta, wide, axis)


def _mean_of_none(x: np.ndarray, axis: int) -> bool:
    """Whether there is nothing to normalise; numpy would warn about the mean."""
    return x.size == 0 or x.shape[axis] == 0


@reference(mir.LayerNormOp)
def layer_norm(
    x: np.ndarray, gamma: np.ndarray, beta: np.ndarray | None = None, *, axis: int = -1, eps: float = 1e-5
) -> np.ndarray:
    """(x - mean(x)) / sqrt(variance(x) + eps) * gamma + beta along `axis`; the biased, two-pass variance."""
    if _mean_of_none(x, axis):
        return x
    return narrow(_layer_norm(widen(x), gamma, beta, axis, eps), x.dtype)


@reference(mir.RmsNormOp)
def rms_norm(
    x: np.ndarray, gamma: np.ndarray, beta: np.ndarray | None = None, *, axis: int = -1, eps: float = 1e-5
) -> np.ndarray:
    """x / sqrt(mean(x^2) + eps) * gamma + beta along `axis`."""
    if _mean_of_none(x, axis):
        return x
    return narrow(_rms_norm(widen(x), gamma, beta, axis, eps), x.dtype)


def _residual_sum(x: np.ndarray, residual: np.ndarray, bias: np.ndarray | None) -> np.ndarray:
    total = widen(x) + widen(residual)
    return total if bias is None else total + widen(bias)


@reference(mir.FusedResidualLayerNormOp)
def fused_residual_layer_norm(
    x: np.ndarray,
    residual: np.ndarray,
    bias: np.ndarray | None,
    gamma: np.ndarray,
    beta: np.ndarray | None = None,
    *,
    eps: float = 1e-5,
) -> np.ndarray:
    """layer_norm(x + residual + bias) over the last axis; the sum isn't rounded."""
    if _mean_of_none(x, -1):
        return x
    return narrow(_layer_norm(_residual_sum(x, residual, bias), gamma, beta, -1, eps), x.dtype)


@reference(mir.FusedResidualRmsNormOp)
def fused_residual_rms_norm(
    x: np.ndarray,
    residual: np.ndarray,
    bias: np.ndarray | None,
    gamma: np.ndarray,
    beta: np.ndarray | None = None,
    *,
    eps: float = 1e-5,
) -> np.ndarray:
    """rms_norm(x + residual + bias) over the last axis; the sum isn't rounded."""
    if _mean_of_none(x, -1):
        return x
    return narrow(_rms_norm(_residual_sum(x, residual, bias), gamma, beta, -1, eps), x.dtype)


# ----------------------------------------------------------------------------------------------------------------------
# Costs
# ----------------------------------------------------------------------------------------------------------------------


@cost(mir.RmsNormOp, mir.FusedResidualRmsNormOp)
def rms_norm_cost(op: ir.AnyOp, sizes: Sizes) -> Cost:
    """Square and sum, scale twice; an addition for each further operand."""
    return Cost((4 + _additions(op)) * sizes.count(op.x))


@cost(mir.LayerNormOp, mir.FusedResidualLayerNormOp)
def layer_norm_cost(op: ir.AnyOp, sizes: Sizes) -> Cost:
    """Sum, centre, square and sum, scale twice; an addition for each further operand."""
    return Cost((6 + _additions(op)) * sizes.count(op.x))


def _additions(op: ir.AnyOp) -> int:
    """Operands that are added to each element: all but `x` and `gamma`."""
    return len(op.operation.operands) - 2


# ----------------------------------------------------------------------------------------------------------------------
# Dimensions
# ----------------------------------------------------------------------------------------------------------------------


@dim_rule(mir.LayerNormOp, mir.RmsNormOp, mir.FusedResidualLayerNormOp, mir.FusedResidualRmsNormOp)
def norm_dims(op: ir.AnyOp, operands: Sequence[tuple[Size, ...]]) -> tuple[Size, ...]:
    """Those of `x`."""
    return operands[0]


# ----------------------------------------------------------------------------------------------------------------------
# Lowering to linalg
# ----------------------------------------------------------------------------------------------------------------------


def _normalised(
    result: ir.Type, x: ir.Value, gamma: ir.Value, beta: ir.Value | None, axis: int, eps: float, *, centre: bool
) -> ir.Value:
    """(x - mean) / sqrt(variance + eps) * gamma + beta along `axis`; without `centre` the mean counts as 0."""
    rank = ir.RankedTensorType(x.type).rank
    loops = range(rank)
    kept: list[int | None] = [None if dim == axis else dim for dim in loops]
    outer: list[SizeLike] = [1 if dim == axis else size for dim, size in enumerate(sizes_of(x))]
    count = count_as([size_of(x, axis)], accumulator(element_type(x)))
    operands: list[tuple[ir.Value, Map]] = [(x, loops)]

    def centred(x: Scalar, *means: Scalar) -> Scalar:
        x = Scalar(x.value)  # not fast: one difference after the other
        for mean in means:
            x = x - Scalar(mean.value)
        return x

    # The mean is rounded: the mean of the differences from it, which it lacks, is subtracted from them in turn. Without
    # that, a row of one large number isn't 0.
    for _ in range(2 if centre else 0):
        total = summed(rank, operands, outer, kept, centred)
        operands = [*operands, (elementwise(total.type, [total], lambda total: total / count), kept)]

    def square(*values: Scalar) -> Scalar:
        difference = centred(*values)
        return difference * difference

    means = len(operands) - 1
    squares = summed(rank, operands, outer, kept, square)
    deviation = elementwise(squares.type, [squares], lambda total: sqrt(total / count + eps))
    vectors = [gamma] if beta is None else [gamma, beta]
    operands = [*operands, (deviation, kept), *((vector, [axis]) for vector in vectors)]
    target = ir.RankedTensorType(result).element_type

    def finish(*values: Scalar) -> Scalar:
        wide = [value.widen() for value in values[:-1]]
        own, rest = wide[: 1 + means], wide[1 + means :]
        scaled = centred(*own) / rest[0] * rest[1]
        return (scaled if beta is None else scaled + rest[2]).to(target)

    return generic(rank, operands, [(empty(sizes_of(x), target), loops)], finish)


def _lower_norm(op: ir.AnyOp, rewriter: Rewriter, *, centre: bool) -> None:
    axis = python_value(op.axis) % op.x.type.rank
    eps = python_value(op.eps)
    rewriter.replace(op, _normalised(op.result.type, op.x, op.gamma, op.beta, axis, eps, centre=centre))


def _lower_residual_norm(op: ir.AnyOp, rewriter: Rewriter, *, centre: bool) -> None:
    terms = [op.x, op.residual] if op.bias is None else [op.x, op.residual, op.bias]
    wide = tensor_type(sizes_of(op.x), accumulator(element_type(op.x)))
    total = elementwise(wide, terms, lambda *values: sum(values[1:], values[0]))
    axis = op.x.type.rank - 1
    eps = python_value(op.eps)
    rewriter.replace(op, _normalised(op.result.type, total, op.gamma, op.beta, axis, eps, centre=centre))


@TO_LINALG.pattern(mir.LayerNormOp)
def lower_layer_norm(op: ir.AnyOp, rewriter: Rewriter) -> None:
    """layer_norm(x) -> mean, then variance from the differences, then the formula"""
    _lower_norm(op, rewriter, centre=True)


@TO_LINALG.pattern(mir.RmsNormOp)
def lower_rms_norm(op: ir.AnyOp, rewriter: Rewriter) -> None:
    """rms_norm(x) -> mean square, then the formula"""
    _lower_norm(op, rewriter, centre=False)


@TO_LINALG.pattern(mir.FusedResidualLayerNormOp)
def lower_fused_residual_layer_norm(op: ir.AnyOp, rewriter: Rewriter) -> None:
    """fused_residual_layer_norm(x, r, bias) -> t = x + r + bias in the accumulation type, then layer_norm(t)"""
    _lower_residual_norm(op, rewriter, centre=True)


@TO_LINALG.pattern(mir.FusedResidualRmsNormOp)
def lower_fused_residual_rms_norm(op: ir.AnyOp, rewriter: Rewriter) -> None:
    """fused_residual_rms_norm(x, r, bias) -> t = x + r + bias in the accumulation type, then rms_norm(t)"""
    _lower_residual_norm(op, rewriter, centre=False)
