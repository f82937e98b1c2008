# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Gradients of operations by their operands, where they have names of their own: all of them are made of others."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rlx_mlir import ir
from rlx_mlir.attributes import python_value
from rlx_mlir.dialects import mir
from rlx_mlir.mir.algebra import Formula, formula
from rlx_mlir.mir.attention import Scores, attention_cost, merge_heads, split_heads
from rlx_mlir.mir.cost import Cost, Sizes, cost, per_element
from rlx_mlir.mir.dims import Size
from rlx_mlir.mir.functions import FUNCTIONS
from rlx_mlir.mir.numerics import mean_along, narrow, sum_along, widen
from rlx_mlir.mir.registry import dim_rule, reference

#: Functions that gradients go through as if they weren't there.
STRAIGHT_THROUGH = frozenset({"round"})

# ----------------------------------------------------------------------------------------------------------------------
# References
# ----------------------------------------------------------------------------------------------------------------------


def slope(kind: str) -> Formula:
    """The derivative of a function of one element, as gradients take it."""
    if kind in STRAIGHT_THROUGH:
        return formula(lambda x: 1.0)
    derivatives = FUNCTIONS[kind].derivatives
    assert derivatives is not None, "test_functions.py asks for them"
    return derivatives[0]


@reference(mir.ActivationBackwardOp)
def activation_backward(x: np.ndarray, dy: np.ndarray, *, kind: str) -> np.ndarray:
    """dy kind'(x)"""
    return narrow(widen(dy) * slope(kind).evaluate(widen(x)), x.dtype)


def _along(vector: np.ndarray, x: np.ndarray, axis: int) -> np.ndarray:
    """A vector along one axis of x."""
    shape = [1] * x.ndim
    shape[axis] = -1
    return widen(vector).reshape(shape)


def _normal(x: np.ndarray, axis: int, eps: float) -> tuple[np.ndarray, np.ndarray]:
    """(x - mean) r and r = 1 / sqrt(variance + eps)."""
    centred = x - mean_along(x, axis)
    centred = centred - mean_along(centred, axis)  # what the rounded mean lacks
    factor = 1 / np.sqrt(mean_along(centred * centred, axis) + x.dtype.type(np.float32(eps)))
    return centred * factor, factor


def _scale(x: np.ndarray, axis: int, eps: float) -> np.ndarray:
    """1 / sqrt(mean(x^2) + eps)"""
    return np.asarray(1 / np.sqrt(mean_along(x * x, axis) + x.dtype.type(np.float32(eps))))


@reference(mir.LayerNormBackwardInputOp)
def layer_norm_backward_input(
    x: np.ndarray, gamma: np.ndarray, dy: np.ndarray, *, axis: int = -1, eps: float = 1e-5
) -> np.ndarray:
    """r (s - mean(s) - n mean(s n)) with s = dy gamma, and n the normalised operand."""
    if x.size == 0:
        return x
    normal, factor = _normal(widen(x), axis, eps)
    own = widen(dy) * _along(gamma, x, axis)
    result = factor * (own - mean_along(own, axis) - normal * mean_along(own * normal, axis))
    return narrow(result, x.dtype)


@reference(mir.RmsNormBackwardInputOp)
def rms_norm_backward_input(
    x: np.ndarray, gamma: np.ndarray, dy: np.ndarray, *, axis: int = -1, eps: float = 1e-5
) -> np.ndarray:
    """r (s - n mean(s n)) with s = dy gamma, n = x r and r = 1 / sqrt(mean(x^2) + eps)."""
    if x.size == 0:
        return x
    factor = _scale(widen(x), axis, eps)
    normal = widen(x) * factor
    own = widen(dy) * _along(gamma, x, axis)
    return narrow(factor * (own - normal * mean_along(own * normal, axis)), x.dtype)


def _others(x: np.ndarray, axis: int) -> list[int]:
    """The axes but one."""
    return [other for other in range(x.ndim) if other != axis % x.ndim]


@reference(mir.LayerNormBackwardGammaOp)
def layer_norm_backward_gamma(x: np.ndarray, dy: np.ndarray, *, axis: int = -1, eps: float = 1e-5) -> np.ndarray:
    """The sum of dy times the normalised operand over all axes but one."""
    if x.size == 0:
        return np.zeros(x.shape[axis], x.dtype)
    normal, _ = _normal(widen(x), axis, eps)
    return narrow(sum_along(widen(dy) * normal, _others(x, axis), keep_dims=False), x.dtype)


@reference(mir.RmsNormBackwardGammaOp)
def rms_norm_backward_gamma(x: np.ndarray, dy: np.ndarray, *, axis: int = -1, eps: float = 1e-5) -> np.ndarray:
    """The sum of dy times the normalised operand over all axes but one."""
    if x.size == 0:
        return np.zeros(x.shape[axis], x.dtype)
    normal = widen(x) * _scale(widen(x), axis, eps)
    return narrow(sum_along(widen(dy) * normal, _others(x, axis), keep_dims=False), x.dtype)


@reference(mir.AttentionBackwardOp)
def attention_backward(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    dy: np.ndarray,
    mask: np.ndarray | None = None,
    pos: np.ndarray | None = None,
    *,
    num_heads: int,
    head_dim: int,
    num_kv_heads: int | None = None,
    mask_kind: str = "none",
    window: int | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    layout: str = "packed",
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """dq, dk and dv, from the weights of the forward operation, which are computed again."""
    found = Scores.of(
        *(q, k, v, mask, pos),
        num_heads=num_heads,
        head_dim=head_dim,
        num_kv_heads=num_kv_heads,
        mask_kind=mask_kind,
        window=window,
        scale=scale,
        softcap=softcap,
        layout=layout,
    )
    batch, _, _, rows, _ = found.queries.shape
    gradient = split_heads(widen(dy), num_heads, layout).reshape(found.queries.shape)
    weights, total = found.weights()
    weights = np.divide(weights, total, out=np.zeros_like(weights), where=total != 0)
    by_weight = np.where(found.seen, np.matmul(gradient, found.values[:, :, None].swapaxes(-1, -2)), 0)
    by_score = weights * (by_weight - np.sum(weights * by_weight, axis=-1, keepdims=True))
    if found.capped is not None:
        by_score = np.where(found.seen, by_score * (1 - found.capped * found.capped), 0)
    by_score = by_score * found.factor
    dq = np.matmul(by_score, found.keys[:, :, None]).reshape(batch, num_heads, rows, head_dim)
    dk = np.matmul(by_score.swapaxes(-1, -2), found.queries).sum(axis=2)
    dv = np.matmul(weights.swapaxes(-1, -2), gradient).sum(axis=2)
    merged = [narrow(merge_heads(x, layout, like.shape), like.dtype) for x, like in ((dq, q), (dk, k), (dv, v))]
    return merged[0], merged[1], merged[2]


# ----------------------------------------------------------------------------------------------------------------------
# Costs and dimensions
# ----------------------------------------------------------------------------------------------------------------------

cost(mir.ActivationBackwardOp)(per_element(2))
#: A product with gamma, three means, and what joins them.
cost(mir.LayerNormBackwardInputOp, mir.RmsNormBackwardInputOp)(per_element(12))


@cost(mir.LayerNormBackwardGammaOp, mir.RmsNormBackwardGammaOp)
def norm_backward_gamma_cost(op: ir.AnyOp, sizes: Sizes) -> Cost:
    """Eight for each element of the operand."""
    return Cost(8 * sizes.count(op.x))


@cost(mir.AttentionBackwardOp)
def attention_backward_cost(op: ir.AnyOp, sizes: Sizes) -> Cost:
    """Five products instead of two."""
    return Cost(5 * attention_cost(op, sizes).flops // 2)


@dim_rule(mir.ActivationBackwardOp, mir.LayerNormBackwardInputOp, mir.RmsNormBackwardInputOp)
def same_dims(op: ir.AnyOp, operands: Sequence[tuple[Size, ...]]) -> tuple[Size, ...]:
    """Those of the operand."""
    return operands[0]


@dim_rule(mir.LayerNormBackwardGammaOp, mir.RmsNormBackwardGammaOp)
def gamma_dims(op: ir.AnyOp, operands: Sequence[tuple[Size, ...]]) -> tuple[Size, ...]:
    """The dimension that is normalised along."""
    return (operands[0][python_value(op.axis)],)


@dim_rule(mir.AttentionBackwardOp)
def attention_backward_dims(op: ir.AnyOp, operands: Sequence[tuple[Size, ...]]) -> list[tuple[Size, ...]]:
    """Those of queries, keys and values."""
    return list(operands[:3])
