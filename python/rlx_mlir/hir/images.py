# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Builders for images, [N, C, H, W]: any of these sizes may be symbolic."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rlx_mlir.hir.arguments import number, pair
from rlx_mlir.hir.chains import Chains
from rlx_mlir.hir.graph import Word
from rlx_mlir.hir.primitives import Primitives
from rlx_mlir.hir.spectra import Spectra
from rlx_mlir.hir.splats import Splats
from rlx_mlir.hir.types import Options
from rlx_mlir.hir.values import Operand, Value

if TYPE_CHECKING:
    from typing_extensions import Unpack

Pair = int | Sequence[int]


class Images(Chains, Spectra, Splats):
    """The builders."""

    # -- windows -----------------------------------------------------------------------------------------------------

    def pool(
        self,
        x: Value,
        kind: str,
        kernel_size: Pair,
        *,
        stride: Pair = 1,
        padding: Pair = 0,
        **options: Unpack[Options],
    ) -> Value:
        """Each window of x [N, C, H, W] combined, channel by channel: [N, C, Ho, Wo].

        Ho = floor((H + 2 padding - kernel_size) / stride) + 1, and Wo likewise.

        Args:
            kind: `max`, `mean`, `sum`, `min` or `prod`. The padding changes nothing, but that `mean` divides by the
                size of the window. A window without any pixel gives -inf, 0, 0, inf or 1.
            kernel_size, stride, padding: numbers, or pairs for H and W.
        """
        attributes = {
            "kind": Word("reduce_kind", kind),
            "kernel_size": pair(kernel_size),
            "stride": pair(stride),
            "padding": pair(padding),
        }
        return self._emit("mir.pool", {"x": x}, attributes, **options)[0]

    def maxpool2d_backward(
        self,
        x: Value,
        dy: Value,
        *,
        kernel_size: Pair,
        stride: Pair = 1,
        padding: Pair = 0,
        **options: Unpack[Options],
    ) -> Value:
        """The gradient with respect to x of `pool(x, "max", ...)`, of which dy is the gradient.

        Each element of dy is added where the first largest element of its window is, or the first NaN.
        """
        attributes = {"kernel_size": pair(kernel_size), "stride": pair(stride), "padding": pair(padding)}
        operands = {"x": x, "dy": dy}
        return self._emit("mir.max_pool2d_backward", operands, attributes, **options)[0]

    def conv_transpose2d(
        self,
        x: Value,
        weight: Operand,
        *,
        stride: Pair = 1,
        padding: Pair = 0,
        output_padding: Pair = 0,
        dilation: Pair = 1,
        groups: int = 1,
        **options: Unpack[Options],
    ) -> Value:
        """Each pixel of x [N, Ci, H, W] adds its kernel of weight [Ci, Co / groups, kH, kW] to the result, in steps.

        Channel o of the result, [N, Co, Ho, Wo], is of group floor(o / (Co / groups)) and reads that group of x;
        Ho = (H - 1) stride - 2 padding + dilation (kH - 1) + 1 + output_padding, and Wo likewise. Sums are computed in
        f32 (f64 for f64) and rounded once; only pixels that exist have a part in them.

        Args:
            stride, padding, output_padding, dilation: numbers, or pairs for H and W.
            groups: divides Ci.
        """
        attributes = {
            "stride": pair(stride),
            "padding": pair(padding),
            "output_padding": pair(output_padding),
            "dilation": pair(dilation),
            "groups": groups,
        }
        return self._emit("mir.conv_transpose2d", {"x": x, "weight": weight}, attributes, **options)[0]

    def conv2d_backward_input(
        self,
        dy: Value,
        weight: Operand,
        x: Value,
        *,
        stride: Pair = 1,
        padding: Pair = 0,
        dilation: Pair = 1,
        groups: int = 1,
        **options: Unpack[Options],
    ) -> Value:
        """The gradient with respect to x of `conv2d(x, weight, ...)`, of which dy is the gradient.

        Only the shape of x is used; the other arguments are those of `conv2d`.
        """
        attributes = {"stride": pair(stride), "padding": pair(padding), "dilation": pair(dilation), "groups": groups}
        operands = {"dy": dy, "weight": weight, "x": x}
        return self._emit("mir.conv2d_backward_input", operands, attributes, **options)[0]

    def conv2d_backward_weight(
        self,
        x: Value,
        dy: Value,
        *,
        kernel_size: Pair,
        stride: Pair = 1,
        padding: Pair = 0,
        dilation: Pair = 1,
        groups: int = 1,
        **options: Unpack[Options],
    ) -> Value:
        """The gradient with respect to weight of `conv2d(x, weight, ...)`, of which dy is the gradient.

        Args:
            kernel_size: of the weight, [Co, Ci / groups, *kernel_size].
            stride, padding, dilation, groups: those of `conv2d`.
        """
        attributes = {
            "kernel_size": pair(kernel_size),
            "stride": pair(stride),
            "padding": pair(padding),
            "dilation": pair(dilation),
            "groups": groups,
        }
        return self._emit("mir.conv2d_backward_weight", {"x": x, "dy": dy}, attributes, **options)[0]

    # -- normalisation -----------------------------------------------------------------------------------------------

    def layer_norm2d(
        self, x: Value, gamma: Value, beta: Value, *, eps: float = 1e-5, **options: Unpack[Options]
    ) -> Value:
        """Each pixel of x [N, C, H, W] normalised across its channels; gamma and beta are [C]."""
        return Primitives.layer_norm(self, x, gamma, beta, axis=1, eps=eps, **options)

    def group_norm(
        self,
        x: Value,
        gamma: Value,
        beta: Value | None = None,
        *,
        num_groups: int,
        eps: float = 1e-5,
        **options: Unpack[Options],
    ) -> Value:
        """Each group of consecutive channels of x [N, C, H, W] normalised as a whole, for each item; gamma, beta [C].

        Args:
            num_groups: number of groups; it divides C.
            eps: added to the variance; positive.
        """
        attributes = {"num_groups": num_groups, "eps": number(eps)}
        operands = {"x": x, "gamma": gamma, "beta": beta}
        return self._emit("mir.group_norm", operands, attributes, **options)[0]

    def group_norm_backward_input(
        self, x: Value, gamma: Value, dy: Value, *, num_groups: int, eps: float = 1e-5, **options: Unpack[Options]
    ) -> Value:
        """The gradient with respect to x of `group_norm(x, gamma, ...)`, of which dy is the gradient."""
        attributes = {"num_groups": num_groups, "eps": number(eps)}
        operands = {"x": x, "gamma": gamma, "dy": dy}
        return self._emit("mir.group_norm_backward_input", operands, attributes, **options)[0]

    def group_norm_backward_gamma(
        self, x: Value, dy: Value, *, num_groups: int, eps: float = 1e-5, **options: Unpack[Options]
    ) -> Value:
        """The gradient with respect to gamma of `group_norm(x, gamma, ...)`, of which dy is the gradient: [C]."""
        attributes = {"num_groups": num_groups, "eps": number(eps)}
        return self._emit("mir.group_norm_backward_gamma", {"x": x, "dy": dy}, attributes, **options)[0]

    def group_norm_backward_beta(self, dy: Value, **options: Unpack[Options]) -> Value:
        """The gradient with respect to beta of `group_norm`, of which dy is the gradient: [C]."""
        return self._emit("mir.group_norm_backward_beta", {"dy": dy}, **options)[0]

    # -- pixels ------------------------------------------------------------------------------------------------------

    def resize_nearest_2x(self, x: Value, **options: Unpack[Options]) -> Value:
        """Each pixel of x [N, C, H, W] as four equal ones: [N, C, 2H, 2W]."""
        return self._emit("mir.resize_nearest_2x", {"x": x}, **options)[0]

    def axial_rope2d(
        self,
        x: Value,
        *,
        end_x: int,
        end_y: int,
        head_dim: int,
        theta: float = 1e4,
        repeat_factor: int = 1,
        **options: Unpack[Options],
    ) -> Value:
        """Rotary position embedding of the pixels of an image, x [B, end_y end_x repeat_factor, heads head_dim].

        In each head, neighbours (2c, 2c + 1) of the first half are rotated by the column of the token's pixel times
        theta^(-4 c / head_dim), those of the second half by its row times that.

        Args:
            end_x, end_y: columns and rows of the image; tokens go along rows.
            head_dim: a multiple of 4.
            repeat_factor: consecutive tokens that are of one pixel.
        """
        attributes = {
            "end_x": end_x,
            "end_y": end_y,
            "head_dim": head_dim,
            "theta": number(theta),
            "repeat_factor": repeat_factor,
        }
        return self._emit("mir.axial_rope2d", {"x": x}, attributes, **options)[0]
