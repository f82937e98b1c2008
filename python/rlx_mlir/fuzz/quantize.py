# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How operations on tensors of 8 bits with given scales are drawn, and those that stand for them in training."""

from __future__ import annotations

from rlx_mlir.fuzz.draft import Dim, Draft, Skip, word
from rlx_mlir.fuzz.primitives import generates, image
from rlx_mlir.hir import Value
from rlx_mlir.hir.graph import Word

_ESTIMATORS = ("identity", "clipped_identity", "tanh", "hard_tanh")


def _axis(draft: Draft, x: Value, static: bool) -> int | None:
    """A dimension of a value, or none; where scales are attributes, one of static size."""
    fits = [dim for dim, size in enumerate(x.shape) if not static or isinstance(size, int)]
    if not fits or draft.chance(0.4):
        return None
    axis = draft.choose(fits)
    return axis - x.ndim if draft.chance(0.2) else axis


def _channels(x: Value, axis: int | None) -> Dim:
    return 1 if axis is None else x.shape[axis]


def _by_scales(draft: Draft, x: Value) -> dict[str, object]:
    """Attributes of `quantize` and its inverse."""
    axis = _axis(draft, x, static=True)
    count = _channels(x, axis)
    if not isinstance(count, int) or count > 300:
        raise Skip
    scales = [draft.choose([0.01, 0.03125, 0.1, 1.0, 3.0]) for _ in range(count)]
    zero_points = [draft.choose([0, 0, 1, -7, 127, -128]) for _ in range(count)]
    return {"scales": scales, "zero_points": zero_points, "axis": axis}


@generates("mir.quantize")
def quantize(draft: Draft) -> None:
    x = draft.floating()
    draft.emit("mir.quantize", {"x": x}, _by_scales(draft, x))


@generates("mir.dequantize")
def dequantize(draft: Draft) -> None:
    q = draft.any(("i8",))
    draft.emit("mir.dequantize", {"q": q}, _by_scales(draft, q))


def _bits(draft: Draft) -> int:
    return draft.choose([8, 8, 4, 2])


def _scale(draft: Draft, x: Value, axis: int | None) -> Value:
    """Scales of the channels of a value."""
    return draft.like([_channels(x, axis)], "f32", reuse=0.0, domain="positive", scale=0.1, param=0.3)


@generates("mir.fake_quantize")
def fake_quantize(draft: Draft) -> None:
    x = draft.floating()
    axis, mode = _axis(draft, x, static=False), draft.choose(["per_batch", "ema", "fixed"])
    state = None
    if mode != "per_batch":
        shape = [_channels(x, axis)]
        state = _scale(draft, x, axis) if draft.chance(0.7) else draft.like(shape, "f32", reuse=0.0)
    attributes: dict[str, object] = {"bits": _bits(draft), "axis": axis, "scale_mode": Word("scale_mode", mode)}
    attributes["decay"] = draft.choose([0.0, 0.5, 0.9, 1.0]) if mode == "ema" else None
    attributes["ste"] = Word("ste", draft.choose(_ESTIMATORS)) if draft.chance(0.5) else None
    draft.emit("mir.fake_quantize", {"x": x, "state": state}, attributes)


def _with_gradient(draft: Draft) -> tuple[dict[str, object], dict[str, object]]:
    """Operands and attributes of a gradient."""
    x = draft.floating()
    axis = _axis(draft, x, static=False)
    operands: dict[str, object] = {"x": x, "scale": _scale(draft, x, axis), "g": draft.like(x.shape, word(x))}
    return operands, {"bits": _bits(draft), "axis": axis}


@generates("mir.fake_quantize_backward")
def fake_quantize_backward(draft: Draft) -> None:
    operands, attributes = _with_gradient(draft)
    attributes["ste"] = Word("ste", draft.choose(_ESTIMATORS))
    draft.emit("mir.fake_quantize_backward", operands, attributes)


@generates("mir.fake_quantize_lsq")
def fake_quantize_lsq(draft: Draft) -> None:
    operands, attributes = _with_gradient(draft)
    del operands["g"]
    draft.emit("mir.fake_quantize_lsq", operands, attributes)


@generates("mir.fake_quantize_lsq_backward_x")
def fake_quantize_lsq_backward_x(draft: Draft) -> None:
    draft.emit("mir.fake_quantize_lsq_backward_x", *_with_gradient(draft))


@generates("mir.fake_quantize_lsq_backward_scale", sums=True)
def fake_quantize_lsq_backward_scale(draft: Draft) -> None:
    draft.emit("mir.fake_quantize_lsq_backward_scale", *_with_gradient(draft))


def _product(draft: Draft, outputs: Dim) -> tuple[dict[str, object], dict[str, object]]:
    """What products of tensors of 8 bits share: a bias, zero points, and a factor."""
    bias = draft.optional(lambda: draft.like([outputs], "i32", reuse=0.3, param=0.8))
    attributes: dict[str, object] = {name: draft.choose([None, 0, 3, -128, 127]) for name in ("x_zp", "w_zp", "out_zp")}
    attributes["mult"] = draft.choose([0.5, 0.001953125, 0.013, 0.0003, 7.0])
    return {"bias": bias}, attributes


def _bytes(draft: Draft, shape: list[Dim], param: float = 0.3) -> Value:
    return draft.like(shape, "i8", reuse=0.3, domain="bytes", param=param)


@generates("mir.q_matmul")
def q_matmul(draft: Draft) -> None:
    m, k, n = draft.dim(), draft.dim(), draft.dim()
    operands: dict[str, object] = {"x": _bytes(draft, [m, k]), "weight": _bytes(draft, [k, n], param=0.8)}
    more, attributes = _product(draft, n)
    draft.emit("mir.q_matmul", operands | more, attributes)


@generates("mir.q_conv2d")
def q_conv2d(draft: Draft) -> None:
    x, weight, geometry = image(draft)
    outputs = weight[0]
    operands: dict[str, object] = {"x": _bytes(draft, x), "weight": _bytes(draft, weight, param=0.8)}
    more, attributes = _product(draft, outputs)
    draft.emit("mir.q_conv2d", operands | more, geometry | attributes)
