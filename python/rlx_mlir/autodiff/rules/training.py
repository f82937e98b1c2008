# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What stands for 8 bits in training: gradients go through rounding by an estimator, as the operations say.

Gradients of these gradients are exact: what the operation gives as a gradient is differentiated as it is computed.
"""

from __future__ import annotations

from rlx_mlir.autodiff.builders import Builders
from rlx_mlir.autodiff.registry import Forward, Reverse, jvp, parts, vjp
from rlx_mlir.dialects import mir
from rlx_mlir.hir.compositions.registry import narrow, wide
from rlx_mlir.hir.values import Value
from rlx_mlir.mir.quantize import LARGEST, LEAST_SCALE


def _through(m: Builders, x: Value, scale: Value, change: Value, bits: int, axis: int | None, ste: str) -> Value:
    """A change of what is rounded, as the estimator takes it."""
    if ste == "identity":
        return change
    return m.fake_quantize_backward(x, scale, change, bits=bits, axis=axis, ste=ste)


@vjp(mir.FakeQuantizeOp)
def fake_quantize(
    m: Builders,
    at: Reverse,
    x: Value,
    state: Value | None = None,
    *,
    bits: int,
    axis: int | None = None,
    ste: str = "identity",
    scale_mode: str = "per_batch",
    decay: float | None = None,
) -> Value | None:
    """The estimator, with the scale that was used; scales and what they were before have none."""
    dy = at.cotangents[0]
    return None if dy is None else _through(m, x, at.results[1], dy, bits, axis, ste)


@jvp(mir.FakeQuantizeOp)
def fake_quantize_forward(
    m: Builders,
    at: Forward,
    x: Value,
    state: Value | None = None,
    *,
    bits: int,
    axis: int | None = None,
    ste: str = "identity",
    scale_mode: str = "per_batch",
    decay: float | None = None,
) -> tuple[Value | None, None]:
    """The same of the tangent."""
    tangent = at.tangents[0]
    return (None if tangent is None else _through(m, x, at.results[1], tangent, bits, axis, ste)), None


@vjp(mir.FakeQuantizeLsqOp)
def fake_quantize_lsq(
    m: Builders, at: Reverse, x: Value, scale: Value, *, bits: int, axis: int | None = None
) -> tuple[Value, Value]:
    """By x and by the learned scale."""
    return (
        m.fake_quantize_lsq_backward_x(x, scale, at.dy, bits=bits, axis=axis),
        m.fake_quantize_lsq_backward_scale(x, scale, at.dy, bits=bits, axis=axis),
    )


def _along(m: Builders, scale: Value, x: Value, axis: int | None) -> Value:
    """The scales of the channels of x, in its type."""
    if axis is None:
        return m.cast(m.reshape(scale, []), x.dtype)
    shape = [1] * x.ndim
    shape[axis] = -1
    return m.cast(m.reshape(scale, shape), x.dtype)


@parts(mir.FakeQuantizeBackwardOp)
def fake_quantize_backward(
    m: Builders, x: Value, scale: Value, g: Value, *, bits: int, axis: int | None = None, ste: str = "identity"
) -> Value:
    """g times the slope of the estimator"""
    own, gradient = wide(m, x, g)
    s, zero = _along(m, scale, own, axis), m.constant(0.0, own.dtype)
    largest = m.mul(s, float(LARGEST[bits]))
    if ste == "clipped_identity":
        gradient = m.where(m.le(m.abs(own), largest), gradient, zero)
    elif ste == "tanh":
        power = m.exp(m.mul(m.abs(m.div(own, s)), -2.0))
        gradient = m.mul(gradient, m.div(m.mul(power, 4.0), m.mul(m.add(power, 1.0), m.add(power, 1.0))))
    elif ste == "hard_tanh":
        gradient = m.mul(gradient, m.maximum(m.sub(1.0, m.abs(m.div(own, largest))), zero))
    return narrow(m, gradient, x)


def _quotient(m: Builders, x: Value, scale: Value, axis: int | None) -> Value:
    """x / s with the learned scale s of its channel, which isn't below the least one."""
    return m.div(x, _along(m, m.maximum(scale, LEAST_SCALE), x, axis))


@parts(mir.FakeQuantizeLsqBackwardXOp)
def fake_quantize_lsq_backward_x(
    m: Builders, x: Value, scale: Value, g: Value, *, bits: int, axis: int | None = None
) -> Value:
    """g where |x / s| is the largest integer at most"""
    inside = m.le(m.abs(_quotient(m, wide(m, x)[0], scale, axis)), float(LARGEST[bits]))
    return m.where(inside, g, m.constant(0.0, g.dtype))


@parts(mir.FakeQuantizeLsqBackwardScaleOp)
def fake_quantize_lsq_backward_scale(
    m: Builders, x: Value, scale: Value, g: Value, *, bits: int, axis: int | None = None
) -> Value:
    """The sum over each channel of g (round(z) - z), or of g times the largest integer with the sign of z"""
    own, gradient = wide(m, x, g)
    largest = float(LARGEST[bits])
    z = _quotient(m, own, scale, axis)
    # Integers have no gradient: round(z) counts as the constant that it is in between its jumps.
    magnitude = m.cast(m.cast(m.add(m.abs(z), 0.5), "i32"), own.dtype)
    rounded = m.where(m.lt(z, 0.0), m.neg(magnitude), magnitude)
    outside = m.where(m.lt(z, 0.0), m.constant(-largest, own.dtype), m.constant(largest, own.dtype))
    weight = m.where(m.le(m.abs(z), largest), m.sub(rounded, z), outside)
    others = [dim for dim in range(x.ndim) if axis is None or dim != axis % x.ndim]
    terms = m.mul(weight, gradient)
    return m.cast(m.reshape(m.sum(terms, others) if others else terms, m.sizes_of(scale)), "f32")
