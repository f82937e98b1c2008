# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Builders for images, [N, C, H, W], that are composed of primitives: any of these sizes may be symbolic."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from rlx_mlir.hir import place
from rlx_mlir.hir.arguments import pair
from rlx_mlir.hir.graph import shape_of
from rlx_mlir.hir.primitives import Primitives
from rlx_mlir.hir.scans import ScanBuilders
from rlx_mlir.hir.spectra import Spectra
from rlx_mlir.hir.splats import Splats
from rlx_mlir.hir.types import Options
from rlx_mlir.hir.values import Value

if TYPE_CHECKING:
    from typing_extensions import Unpack

_WIDER = {"float16": "f32", "bfloat16": "f32"}

#: Strides, paddings and dilations of `conv_transpose2d`: each is so many operations.
_LARGEST = 4096


class Images(ScanBuilders, Spectra, Splats):
    """The builders; they take `name` as primitives do, for all that they are composed of."""

    def layer_norm2d(
        self, x: Value, gamma: Value, beta: Value, *, eps: float = 1e-5, **options: Unpack[Options]
    ) -> Value:
        """Each pixel of x [N, C, H, W] normalised across its channels; gamma and beta are [C]."""
        return Primitives.layer_norm(self, x, gamma, beta, axis=1, eps=eps, **options)

    def group_norm(
        self, x: Value, gamma: Value, beta: Value, *, num_groups: int, eps: float = 1e-5, name: str | None = None
    ) -> Value:
        """Each group of consecutive channels of x [N, C, H, W] normalised as a whole, for each item; gamma, beta [C].

        Args:
            num_groups: number of groups; it divides C, which is static.
            eps: added to the variance; positive.
        """
        channels = _static(x, 1, "group_norm")
        for named, own in (("gamma", gamma), ("beta", beta)):
            shape_of(own, f"'{named}' of 'group_norm'")
        if not _divides(num_groups, channels):
            raise place.caller().error(
                f"'group_norm' expects 'num_groups' to divide the {channels} channels of 'x', but got {num_groups}"
            )
        dtype = x.dtype.name
        wide = _WIDER.get(dtype)
        own, scale, shift = (v if wide is None else self.cast(v, wide, name=name) for v in (x, gamma, beta))

        def mean(values: Value) -> Value:
            """The mean of each group, for each of its channels: [N, C, 1, 1]."""
            by_channel = self.mean(values, [2, 3], name=name)
            grouped = self.reshape(by_channel, [-2, num_groups, channels // num_groups], name=name)
            each = self.mean(grouped, 2, keep_dims=True, name=name)
            spread = self.expand(each, [*each.shape[:2], channels // num_groups], name=name)
            return self.reshape(spread, [-2, channels, 1, 1], name=name)

        centred = self.sub(own, mean(own), name=name)
        # What the rounded mean lacks: without it a group of one large number isn't 0.
        centred = self.sub(centred, mean(centred), name=name)
        variance = mean(self.mul(centred, centred, name=name))
        normal = self.mul(centred, self.rsqrt(self.add(variance, eps, name=name), name=name), name=name)
        scale, shift = (self.reshape(v, [channels, 1, 1], name=name) for v in (scale, shift))
        result = self.add(self.mul(normal, scale, name=name), shift, name=name)
        return result if wide is None else self.cast(result, x.dtype, name=name)

    def resize_nearest_2x(self, x: Value, *, name: str | None = None) -> Value:
        """Each pixel of x [N, C, H, W] as four equal ones: [N, C, 2H, 2W]."""
        return self._along_both(x, name, lambda row, _: self._interleave([row, row], name))

    def conv_transpose2d(
        self,
        x: Value,
        weight: Value,
        *,
        stride: int | Sequence[int] = 1,
        padding: int | Sequence[int] = 0,
        output_padding: int | Sequence[int] = 0,
        dilation: int | Sequence[int] = 1,
        groups: int = 1,
        name: str | None = None,
    ) -> Value:
        """Each pixel of x [N, Ci, H, W] adds its kernel of weight [Ci, Co / groups, kH, kW] to the result, in steps.

        Channel o of the result, [N, Co, Ho, Wo], is of group floor(o / (Co / groups)) and reads that group of x;
        Ho = (H - 1) stride - 2 padding + dilation (kH - 1) + 1 + output_padding, and Wo likewise. Sums are computed in
        f32 (f64 for f64) and rounded once; only pixels that exist have a part in them.

        Args:
            stride, padding, output_padding, dilation: numbers, or pairs for H and W.
            groups: divides Ci, which is static, as is all of `weight`.

        Raises BuildError where `padding` takes away more than the kernels add along a symbolic dimension.
        """
        shape_of(x, "'x' of 'conv_transpose2d'")
        inputs, per_group, *kernel = (_static(weight, dim, "conv_transpose2d", "weight") for dim in range(4))
        if not _divides(groups, inputs):
            raise place.caller().error(
                f"'conv_transpose2d' expects 'groups' to divide the {inputs} channels of 'x', but got {groups}"
            )
        steps, padded, more, spread = (pair(v) for v in (stride, padding, output_padding, dilation))
        if max(map(abs, [*steps, *padded, *more, *spread])) > _LARGEST or min(steps) < 1:
            raise place.caller().error(
                f"'conv_transpose2d' expects strides from 1 to {_LARGEST}, and paddings and dilations up to that, but "
                f"got stride {steps}, padding {padded}, output_padding {more} and dilation {spread}"
            )
        dtype = x.dtype
        wide = _WIDER.get(dtype.name)
        own, kernels = (v if wide is None else self.cast(v, wide, name=name) for v in (x, weight))
        kernels = self.reshape(kernels, [groups, inputs // groups, per_group, *kernel], name=name)
        kernels = self.transpose(kernels, [0, 2, 1, 3, 4], name=name)
        kernels = self.reshape(kernels, [groups * per_group, inputs // groups, *kernel], name=name)

        def product(u: int, v: int) -> Value:
            """Each pixel times one position of the kernels."""
            one = self.narrow(self.narrow(kernels, 2, u, 1, name=name), 3, v, 1, name=name)
            return self.conv2d(own, one, groups=groups, name=name)

        def total(parts: Sequence[Callable[[], Value]], dim: int) -> Value:
            """The sum of the products of all positions along a dimension, the last one, each at its place.

            Positions whose places differ by multiples of the stride are added; such sums then take turns.
            """
            step, reach = steps[dim], spread[dim] * (kernel[dim] - 1)
            most = reach // step
            turns: list[Value | None] = [None] * step
            for tap, part in enumerate(parts):
                at, turn = divmod(spread[dim] * tap, step)
                placed = self._margin(part(), at, most - at, name)
                before = turns[turn]
                turns[turn] = placed if before is None else self.add(before, placed, name=name)
            some = next(turn for turn in turns if turn is not None)
            joined = self._interleave([self._zeros(some, name) if turn is None else turn for turn in turns], name)
            behind = step * (most + 1) - 1 - reach + padded[dim] - more[dim]
            if reach < padded[dim]:
                _static(joined, 3, "conv_transpose2d")
            if isinstance(joined.shape[3], int):
                return self._margin(joined, -padded[dim], -behind, name)
            line = self._interleave([self._margin(self._line(own, 2 + dim, name), 0, most, name)] * step, name)
            return self._cropped(joined, line, padded[dim], behind, name)

        # No product with inserted zeros: of those with weights that aren't finite, zeros would make NaN.
        def column(u: int) -> Value:
            """What a row of the kernels adds to the result, turned."""
            row = total([partial(product, u, v) for v in range(kernel[1])], 1)
            return self.transpose(row, [0, 1, 3, 2], name=name)

        turned = total([partial(column, u) for u in range(kernel[0])], 0)
        result = self.transpose(turned, [0, 1, 3, 2], name=name)
        return result if wide is None else self.cast(result, dtype, name=name)

    def _along_both(self, x: Value, name: str | None, change: Callable[..., Value]) -> Value:
        """What changes rows, applied along H and then along W; it takes the number of the dimension, 0 or 1."""
        turned = self.transpose(x, [0, 1, 3, 2], name=name)
        return change(self.transpose(change(turned, 0), [0, 1, 3, 2], name=name), 1)

    def _interleave(self, rows: Sequence[Value], name: str | None) -> Value:
        """Rows [.., W] as one, [.., len(rows) W], whose elements come from each in turn."""
        if len(rows) == 1:
            return rows[0]
        columns = [self.reshape(row, [-2, -2, -2, -2, 1], name=name) for row in rows]
        return self.reshape(self.concat(columns, -1, name=name), [-2, -2, -2, -1], name=name)

    def _zeros(self, like: Value, name: str | None) -> Value:
        """Zeros of the shape of a value."""
        return self.where(np.zeros((1, 1, 1, 1), np.bool_), like, 0.0, name=name)

    def _line(self, x: Value, axis: int, name: str | None) -> Value:
        """Zeros [1, 1, 1, size of the axis]."""
        others = [other for other in range(4) if other != axis]
        return self.reshape(self.sum(self._zeros(x, name), others, name=name), [1, 1, 1, -1], name=name)

    def _cropped(self, rows: Value, line: Value, before: int, after: int, name: str | None) -> Value:
        """Rows of symbolic size without so many elements before and after, where negative numbers add zeros.

        line: zeros [1, 1, 1, as many as in a row]; a convolution makes them as many as are left, for counting.
        """
        if before > 0 or after > 0:
            cut = np.zeros((1, 1, 1, max(before, 0) + max(after, 0) + 1), line.dtype)
            ones = self.add(self.cast(self.conv2d(line, cut, name=name), "i32", name=name), 1, name=name)
            places = self.add(
                self.cumsum(self.reshape(ones, [-1], name=name), 0, name=name), max(before, 0) - 1, name=name
            )
            rows = self.gather(rows, places, 3, name=name)
        return self._margin(rows, max(-before, 0), max(-after, 0), name)

    def _margin(self, rows: Value, before: int, after: int, name: str | None) -> Value:
        """Rows with so many zeros before and after them; negative numbers take elements away."""
        if before < 0 or after < 0:
            width = _static(rows, 3, "conv_transpose2d")
            start, cut = max(-before, 0), max(-before, 0) + max(-after, 0)
            rows = self.narrow(rows, 3, start, width - cut, name=name)
        if before > 0 or after > 0:
            zero = self._zeros(self.narrow(rows, 3, 0, 1, name=name), name)
            rows = self.concat([*[zero] * max(before, 0), rows, *[zero] * max(after, 0)], 3, name=name)
        return rows


def _divides(groups: object, channels: int) -> bool:
    """Whether so many groups can be made of channels."""
    return isinstance(groups, int) and not isinstance(groups, bool) and groups > 0 and not channels % groups


def _static(x: Value, dim: int, builder: str, operand: str = "x") -> int:
    """The size of a dimension; BuildError where there is none, or it is symbolic."""
    shape = shape_of(x, f"'{operand}' of '{builder}'")
    if len(shape) != 4:
        raise place.caller().error(f"'{builder}' expects '{operand}' to have four dimensions, but got {list(shape)}")
    size = shape[dim]
    if not isinstance(size, int):
        raise place.caller().error(
            f"'{builder}' expects dimension {dim} of '{operand}' to be static here, but its shape is {list(shape)}"
        )
    return size
