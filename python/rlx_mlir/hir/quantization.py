# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Builders of tensors of 8 bits with given scales, of their products, and of what stands for them in training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rlx_mlir.hir.arguments import pair
from rlx_mlir.hir.emitting import Emitting
from rlx_mlir.hir.graph import Word
from rlx_mlir.hir.types import Options
from rlx_mlir.hir.values import Operand, Value

if TYPE_CHECKING:
    from typing_extensions import Unpack


class QuantizationBuilders(Emitting):
    """The builders. `axis`, where it is given, is the dimension whose indices have scales of their own."""

    def quantize(self, x: Value, scale: float, zero_point: int = 0, **options: Unpack[Options]) -> Value:
        """clamp(round(x (1 / scale)) + zero_point, -128, 127) as i8, ties away from 0; NaN counts as 0."""
        attributes = {"scales": [scale], "zero_points": [zero_point]}
        return self._emit("mir.quantize", {"x": x}, attributes, **options)[0]

    def quantize_per_channel(
        self, x: Value, scales: Sequence[float], zero_points: Sequence[int], *, axis: int, **options: Unpack[Options]
    ) -> Value:
        """The same with a scale and a zero point for each index along `axis`."""
        attributes = {"scales": _listed(scales), "zero_points": _listed(zero_points), "axis": axis}
        return self._emit("mir.quantize", {"x": x}, attributes, **options)[0]

    def dequantize(self, q: Value, scale: float, zero_point: int = 0, **options: Unpack[Options]) -> Value:
        """(q - zero_point) scale as f32, of i8."""
        attributes = {"scales": [scale], "zero_points": [zero_point]}
        return self._emit("mir.dequantize", {"q": q}, attributes, **options)[0]

    def dequantize_per_channel(
        self, q: Value, scales: Sequence[float], zero_points: Sequence[int], *, axis: int, **options: Unpack[Options]
    ) -> Value:
        """The same with a scale and a zero point for each index along `axis`."""
        attributes = {"scales": _listed(scales), "zero_points": _listed(zero_points), "axis": axis}
        return self._emit("mir.dequantize", {"q": q}, attributes, **options)[0]

    def fake_quantize(
        self,
        x: Value,
        state: Operand | None = None,
        *,
        bits: int = 8,
        axis: int | None = None,
        ste: str = "identity",
        scale_mode: str = "per_batch",
        decay: float | None = None,
        **options: Unpack[Options],
    ) -> tuple[Value, Value]:
        """x rounded to so many bits and made floats again, and the scales, f32 [C], by which it was.

        Args:
            state: scales, f32 [C], with `ema` and `fixed`; what `ema` gives as second result is the next call's.
            bits: 8, 4 or 2: integers from -127 to 127, from -7 to 7, or from -1 to 1.
            ste: how `fake_quantize_backward` estimates the slope: identity, clipped_identity, tanh or hard_tanh.
            scale_mode: per_batch, by the largest magnitude; ema, by that and the state; fixed, by the state.
            decay: what remains of the state, with `ema`.
        """
        attributes = {"bits": bits, "axis": axis, "ste": Word("ste", ste), "decay": decay}
        attributes["scale_mode"] = Word("scale_mode", scale_mode)
        result, scale = self._emit("mir.fake_quantize", {"x": x, "state": state}, attributes, **options)
        return result, scale

    def fake_quantize_backward(
        self,
        x: Value,
        scale: Operand,
        g: Operand,
        *,
        bits: int = 8,
        axis: int | None = None,
        ste: str = "identity",
        **options: Unpack[Options],
    ) -> Value:
        """The gradient for x of `fake_quantize`, whose scales were these, from g, that of its first result."""
        attributes = {"bits": bits, "axis": axis, "ste": Word("ste", ste)}
        return self._emit("mir.fake_quantize_backward", {"x": x, "scale": scale, "g": g}, attributes, **options)[0]

    def fake_quantize_lsq(
        self, x: Value, scale: Operand, *, bits: int = 8, axis: int | None = None, **options: Unpack[Options]
    ) -> Value:
        """x rounded to so many bits by learned scales, f32 [C], and made floats again."""
        attributes = {"bits": bits, "axis": axis}
        return self._emit("mir.fake_quantize_lsq", {"x": x, "scale": scale}, attributes, **options)[0]

    def fake_quantize_lsq_backward_x(
        self,
        x: Value,
        scale: Operand,
        g: Operand,
        *,
        bits: int = 8,
        axis: int | None = None,
        **options: Unpack[Options],
    ) -> Value:
        """The gradient for x of `fake_quantize_lsq`, from g, that of its result."""
        operands = {"x": x, "scale": scale, "g": g}
        return self._emit("mir.fake_quantize_lsq_backward_x", operands, {"bits": bits, "axis": axis}, **options)[0]

    def fake_quantize_lsq_backward_scale(
        self,
        x: Value,
        scale: Operand,
        g: Operand,
        *,
        bits: int = 8,
        axis: int | None = None,
        **options: Unpack[Options],
    ) -> Value:
        """The gradient for the scales of `fake_quantize_lsq`, f32 [C], from g, that of its result."""
        operands = {"x": x, "scale": scale, "g": g}
        return self._emit("mir.fake_quantize_lsq_backward_scale", operands, {"bits": bits, "axis": axis}, **options)[0]

    def q_matmul(
        self,
        x: Value,
        weight: Operand,
        bias: Operand | None = None,
        *,
        mult: float,
        x_zp: int = 0,
        w_zp: int = 0,
        out_zp: int = 0,
        **options: Unpack[Options],
    ) -> Value:
        """clamp(round((bias + (x - x_zp) @ (weight - w_zp)) mult) + out_zp, -128, 127): i8 [M, N] of [M, K] and [K, N].

        Args:
            bias: i32 [N], in units of the scale of x times that of the weight.
            mult: scale of x times scale of the weight, divided by scale of the result.
            x_zp, w_zp, out_zp: the zero points of x, the weight and the result.
        """
        attributes = {"x_zp": x_zp, "w_zp": w_zp, "out_zp": out_zp, "mult": mult}
        return self._emit("mir.q_matmul", {"x": x, "weight": weight, "bias": bias}, attributes, **options)[0]

    def q_conv2d(
        self,
        x: Value,
        weight: Operand,
        bias: Operand | None = None,
        *,
        mult: float,
        stride: int | Sequence[int] = 1,
        padding: int | Sequence[int] = 0,
        dilation: int | Sequence[int] = 1,
        groups: int = 1,
        x_zp: int = 0,
        w_zp: int = 0,
        out_zp: int = 0,
        **options: Unpack[Options],
    ) -> Value:
        """`conv2d` of i8, with the sums, the bias, i32 [Co], and the results of `q_matmul`; padding adds nothing."""
        attributes = {"stride": pair(stride), "padding": pair(padding), "dilation": pair(dilation), "groups": groups}
        attributes |= {"x_zp": x_zp, "w_zp": w_zp, "out_zp": out_zp, "mult": mult}
        return self._emit("mir.q_conv2d", {"x": x, "weight": weight, "bias": bias}, attributes, **options)[0]


def _listed(numbers: object) -> object:
    """A sequence or an array as a list; what is neither is left for the builder to refuse."""
    tolist = getattr(numbers, "tolist", None)
    if tolist is not None:
        return tolist()
    return list(numbers) if isinstance(numbers, Sequence) and not isinstance(numbers, str | bytes) else numbers
