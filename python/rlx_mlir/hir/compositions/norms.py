# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Gradients of norms."""

from __future__ import annotations

from rlx_mlir.dialects import mir
from rlx_mlir.hir.compositions.registry import Builders, composition, narrow, wide
from rlx_mlir.hir.values import Value


def _mean(m: Builders, x: Value, axis: int) -> Value:
    return m.mean(x, axis, keep_dims=True)


def _normal(m: Builders, x: Value, axis: int, eps: float) -> tuple[Value, Value]:
    """(x - mean) r and r = 1 / sqrt(variance + eps)."""
    centred = m.sub(x, _mean(m, x, axis))
    centred = m.sub(centred, _mean(m, centred, axis))  # what the rounded mean lacks
    factor = m.rsqrt(m.add(_mean(m, m.mul(centred, centred), axis), eps))
    return m.mul(centred, factor), factor


def _scaled(m: Builders, x: Value, axis: int, eps: float) -> tuple[Value, Value]:
    """x r and r = 1 / sqrt(mean(x^2) + eps)."""
    factor = m.rsqrt(m.add(_mean(m, m.mul(x, x), axis), eps))
    return m.mul(x, factor), factor


def _by_gamma(m: Builders, dy: Value, gamma: Value, axis: int) -> Value:
    """dy gamma, the gradient by the normalised operand."""
    shape = [1] * dy.ndim
    shape[axis] = -1
    return m.mul(dy, m.reshape(gamma, shape))


@composition(mir.LayerNormBackwardInputOp)
def layer_norm_backward_input(
    m: Builders, x: Value, gamma: Value, dy: Value, *, axis: int = -1, eps: float = 1e-5
) -> Value:
    """r (s - mean(s) - n mean(s n)) with s = dy gamma, and n the normalised operand"""
    own, scale, gradient = wide(m, x, gamma, dy)
    normal, factor = _normal(m, own, axis, eps)
    by_normal = _by_gamma(m, gradient, scale, axis)
    along = m.mul(normal, _mean(m, m.mul(by_normal, normal), axis))
    return narrow(m, m.mul(factor, m.sub(m.sub(by_normal, _mean(m, by_normal, axis)), along)), x)


@composition(mir.RmsNormBackwardInputOp)
def rms_norm_backward_input(
    m: Builders, x: Value, gamma: Value, dy: Value, *, axis: int = -1, eps: float = 1e-5
) -> Value:
    """r (s - n mean(s n)) with s = dy gamma, and n the normalised operand"""
    own, scale, gradient = wide(m, x, gamma, dy)
    normal, factor = _scaled(m, own, axis, eps)
    by_normal = _by_gamma(m, gradient, scale, axis)
    along = m.mul(normal, _mean(m, m.mul(by_normal, normal), axis))
    return narrow(m, m.mul(factor, m.sub(by_normal, along)), x)


def _over_others(m: Builders, x: Value, axis: int) -> Value:
    """The sum over all axes but one."""
    others = [other for other in range(x.ndim) if other != axis % x.ndim]
    return m.sum(x, others) if others else x


@composition(mir.LayerNormBackwardGammaOp)
def layer_norm_backward_gamma(m: Builders, x: Value, dy: Value, *, axis: int = -1, eps: float = 1e-5) -> Value:
    """The sum of dy times the normalised operand"""
    own, gradient = wide(m, x, dy)
    return narrow(m, _over_others(m, m.mul(gradient, _normal(m, own, axis, eps)[0]), axis), x)


@composition(mir.RmsNormBackwardGammaOp)
def rms_norm_backward_gamma(m: Builders, x: Value, dy: Value, *, axis: int = -1, eps: float = 1e-5) -> Value:
    """The sum of dy times the normalised operand"""
    own, gradient = wide(m, x, dy)
    return narrow(m, _over_others(m, m.mul(gradient, _scaled(m, own, axis, eps)[0]), axis), x)
