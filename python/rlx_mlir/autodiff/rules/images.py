# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Images: convolutions, whose gradients are convolutions, windows, groups of channels, and pixels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rlx_mlir.attributes import PythonValue
from rlx_mlir.autodiff.builders import Builders
from rlx_mlir.autodiff.registry import Forward, Reverse, jvp, linear, multilinear, parts, taken, vjp, zeros_like
from rlx_mlir.autodiff.rules.reductions import product_of_others
from rlx_mlir.dialects import mir
from rlx_mlir.hir.compositions.registry import narrow, wide
from rlx_mlir.hir.values import Value
from rlx_mlir.mir.dims import Size

# ----------------------------------------------------------------------------------------------------------------------
# Convolutions
# ----------------------------------------------------------------------------------------------------------------------


def _kernel_size(weight: Value) -> list[int]:
    """The height and width of kernels, which are static."""
    return [int(size) for size in weight.shape[2:]]


@vjp(mir.ConvOp)
def conv(m: Builders, at: Reverse, x: Value, weight: Value, **geometry: PythonValue) -> tuple[Value, Value]:
    """The transposed convolution of dy; the products of dy with what the kernels met."""
    by_weight = m.conv2d_backward_weight(x, at.dy, kernel_size=_kernel_size(weight), **geometry)
    return m.conv2d_backward_input(at.dy, weight, x, **geometry), by_weight


@vjp(mir.Conv2dBackwardInputOp)
def conv2d_backward_input(
    m: Builders, at: Reverse, dy: Value, weight: Value, x: Value, **geometry: PythonValue
) -> tuple[Value, Value]:
    """It is linear in dy and in the kernels: a convolution, and the gradient of one; of x nothing is read."""
    by_weight = m.conv2d_backward_weight(at.dy, dy, kernel_size=_kernel_size(weight), **geometry)
    return m.conv2d(at.dy, weight, **geometry), by_weight


@vjp(mir.Conv2dBackwardWeightOp)
def conv2d_backward_weight(
    m: Builders, at: Reverse, x: Value, dy: Value, *, kernel_size: list[int], **geometry: PythonValue
) -> tuple[Value, Value]:
    """It is linear in x and in dy: with the cotangent as kernels, the gradient of a convolution and a convolution."""
    return m.conv2d_backward_input(dy, at.dy, x, **geometry), m.conv2d(x, at.dy, **geometry)


@vjp(mir.ConvTranspose2dOp)
def conv_transpose2d(
    m: Builders,
    at: Reverse,
    x: Value,
    weight: Value,
    *,
    output_padding: tuple[int, int] = (0, 0),
    **geometry: PythonValue,
) -> tuple[Value, Value]:
    """A convolution of dy, and the products of x with what its kernels meet of dy."""
    if Size.of(0) in m.sizes_of(x):  # then dy may be too small for the kernels
        return zeros_like(m, x), zeros_like(m, weight)
    dy, strides = at.dy, geometry.get("stride", (1, 1))
    for axis, extra in ((2, output_padding[0]), (3, output_padding[1])):
        if m.sizes_of(x)[axis].constant is None:  # where it is 0, dy has to be long enough for kernels all the same
            dy = _longer(m, dy, axis, strides[axis - 2] - 1 - extra)
    by_x, own = m.conv2d(dy, weight, **geometry), x
    for axis, extra in ((2, output_padding[0]), (3, output_padding[1])):
        more = extra // strides[axis - 2]
        if more:  # the padding has room for further pixels, of which x has none
            by_x = m.slice(by_x, axis, 0, m.sizes_of(x)[axis])
            own = _longer(m, own, axis, more)
    return by_x, m.conv2d_backward_weight(dy, own, kernel_size=_kernel_size(weight), **geometry)


def _longer(m: Builders, x: Value, axis: int, more: int) -> Value:
    """A value with so many zeros behind it along a dimension; itself where that is no positive number."""
    if more <= 0:
        return x
    sizes = m.sizes_of(x)
    return m.concat([x, m.expand(m.constant(0.0, x.dtype), [*sizes[:axis], more, *sizes[axis + 1 :]])], axis)


multilinear(mir.ConvOp, mir.Conv2dBackwardInputOp, mir.Conv2dBackwardWeightOp, mir.ConvTranspose2dOp)

# ----------------------------------------------------------------------------------------------------------------------
# Windows
# ----------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Windows:
    """The windows of an image [N, C, H, W], each as its elements: [N, C, Ho, Wo, kH, kW].

    Attributes:
        m: what builds.
        x: the image.
        rows, columns: where elements are, i32 [Ho, kH] and [Wo, kW]; some are outside of the image.
    """

    m: Builders
    x: Value
    rows: Value
    columns: Value

    @classmethod
    def of(
        cls,
        m: Builders,
        x: Value,
        result: Value,
        kernel_size: Sequence[int],
        stride: Sequence[int] = (1, 1),
        padding: Sequence[int] = (0, 0),
    ) -> Windows:
        """Those that a pool of x takes, whose result is as large as `result`."""

        def places(axis: int) -> Value:
            begins = m.mul(m.iota([m.sizes_of(result)[axis], 1], 0, "i32"), stride[axis - 2])
            return m.add(m.sub(begins, padding[axis - 2]), m.iota([kernel_size[axis - 2]], 0, "i32"))

        return cls(m, x, places(2), places(3))

    @property
    def _is_empty(self) -> bool:
        """Whether the image has no pixels: its windows are padding alone."""
        return Size.of(0) in self.m.sizes_of(self.x)[2:]

    def elements(self, x: Value) -> Value:
        """The elements of an image like x; any number where there are none."""
        m = self.m
        if self._is_empty:
            n, channels, *_ = m.sizes_of(x)
            (high, height), (wide_, width) = m.sizes_of(self.rows), m.sizes_of(self.columns)
            return m.expand(m.constant(0.0, x.dtype), [n, channels, high, wide_, height, width])
        rows = taken(m, x, self.rows, 2)
        return m.transpose(taken(m, rows, self.columns, 4), [0, 1, 2, 4, 3, 5])

    def inside(self) -> Value:
        """Which elements there are: i1 [Ho, Wo, kH, kW]."""
        m = self.m

        def within(places: Value, axis: int) -> Value:
            return m.bitwise_and(m.ge(places, 0), m.lt(places, m.dim(self.x, axis, "i32")))

        height, width = m.sizes_of(self.rows), m.sizes_of(self.columns)
        rows = m.reshape(within(self.rows, 2), [height[0], 1, height[1], 1])
        return m.bitwise_and(rows, m.reshape(within(self.columns, 3), [1, width[0], 1, width[1]]))

    def summed(self, elements: Value) -> Value:
        """The sum of what elements of windows add to each place of the image; those outside add nothing."""
        m = self.m
        if self._is_empty:
            return zeros_like(m, self.x)
        back = m.transpose(elements, [0, 1, 2, 4, 3, 5])
        rows = m.scatter_add(back, self.columns, m.gather(self.x, self.rows, 2), 4)
        return m.scatter_add(rows, self.rows, self.x, 2)

    def others(self) -> Value:
        """For each element, the product of the others of its window; 0 for elements outside."""
        m, inside = self.m, self.inside()
        own = m.where(inside, self.elements(self.x), m.constant(1.0, self.x.dtype))
        return m.where(inside, product_of_others(m, own, [4, 5]), m.constant(0.0, self.x.dtype))

    def at_first(self, x: Value, most: Value) -> Value:
        """Of an image like the own one, the elements at the first place of each window that has its largest element.

        Args:
            x: the image.
            most: the largest elements, [N, C, Ho, Wo]; NaN where there is one.
        """
        m, own = self.m, self.elements(self.x)
        reached = m.bitwise_or(m.eq(own, m.reshape(most, [*m.sizes_of(most), 1, 1])), m.ne(own, own))
        reached = m.bitwise_and(reached, self.inside())
        high, wide_ = (m.sizes_of(places)[1].constant for places in (self.rows, self.columns))
        assert high is not None, "kernels are static"
        assert wide_ is not None, "kernels are static"
        numbers = m.reshape(m.iota([high * wide_], 0, "i32"), [high, wide_])
        first = m.min(m.where(reached, numbers, high * wide_), [4, 5], keep_dims=True)
        return m.sum(m.where(m.eq(numbers, first), self.elements(x), m.constant(0.0, x.dtype)), [4, 5])


@vjp(mir.PoolOp)
def pool(m: Builders, at: Reverse, x: Value, *, kind: str, kernel_size: list[int], **geometry: PythonValue) -> Value:
    """max, min: dy at the first place that has the result; sum, mean: its share at each; prod: dy times the others"""
    if kind == "max":
        return m.maxpool2d_backward(x, at.dy, kernel_size=kernel_size, **geometry)
    if kind == "min":
        return m.maxpool2d_backward(m.neg(x), at.dy, kernel_size=kernel_size, **geometry)
    if kind == "prod":
        windows = Windows.of(m, x, at.dy, kernel_size, **geometry)
        return windows.summed(m.mul(m.reshape(at.dy, [*m.sizes_of(at.dy), 1, 1]), windows.others()))
    count = math.prod(kernel_size) if kind == "mean" else 1
    (dy,) = wide(m, at.dy)
    n, channels, *area = m.sizes_of(dy)
    each = m.reshape(m.mul(dy, 1 / count), [n * channels, 1, *area])
    like = m.reshape(m.cast(x, dy.dtype), [n * channels, 1, *m.sizes_of(x)[2:]])
    ones = m.expand(m.constant(1.0, dy.dtype), [1, 1, *kernel_size])
    return narrow(m, m.reshape(m.conv2d_backward_input(each, ones, like, **geometry), m.sizes_of(x)), x)


@jvp(mir.PoolOp)
def pool_forward(
    m: Builders, at: Forward, x: Value, *, kind: str, kernel_size: list[int], **geometry: PythonValue
) -> Value:
    """sum, mean: the same of the tangent; max, min: its elements at the first places that have the result; prod: the
    sum of its elements, each times the others of x."""
    tangent = at.tangents[0]
    if kind in ("sum", "mean"):
        return m.pool(tangent, kind, kernel_size, **geometry)
    windows = Windows.of(m, x, at.y, kernel_size, **geometry)
    if kind == "prod":
        return m.sum(m.mul(windows.elements(tangent), windows.others()), [4, 5])
    return windows.at_first(tangent, at.y)


@vjp(mir.MaxPool2dBackwardOp)
def max_pool2d_backward(
    m: Builders, at: Reverse, x: Value, dy: Value, *, kernel_size: list[int], **geometry: PythonValue
) -> tuple[None, Value]:
    """By dy: the cotangent's elements at the places that elements of dy went to."""
    windows = Windows.of(m, x, dy, kernel_size, **geometry)
    return None, windows.at_first(at.dy, m.pool(x, "max", kernel_size, **geometry))


linear(mir.MaxPool2dBackwardOp, by=(1,))

# ----------------------------------------------------------------------------------------------------------------------
# Groups of channels
# ----------------------------------------------------------------------------------------------------------------------


@vjp(mir.GroupNormOp)
def group_norm(
    m: Builders, at: Reverse, x: Value, gamma: Value, beta: Value | None = None, **attributes: PythonValue
) -> tuple[Value | None, ...]:
    """By x, gamma and beta."""
    return (
        m.group_norm_backward_input(x, gamma, at.dy, **attributes),
        m.group_norm_backward_gamma(x, at.dy, **attributes),
        None if beta is None else m.group_norm_backward_beta(at.dy),
    )


def _grouped(m: Builders, x: Value, num_groups: int) -> Value:
    """An image as the groups of its items: [N, groups, elements of a group]."""
    n, channels, height, width = m.sizes_of(x)
    return m.reshape(x, [n, num_groups, channels // num_groups * height * width])


def _mean(m: Builders, x: Value) -> Value:
    return m.mean(x, 2, keep_dims=True)


def _normal(m: Builders, x: Value, num_groups: int, eps: float) -> tuple[Value, Value]:
    """(x - mean) r, in groups, and r = 1 / sqrt(variance + eps)."""
    own = _grouped(m, x, num_groups)
    centred = m.sub(own, _mean(m, own))
    factor = m.rsqrt(m.add(_mean(m, m.mul(centred, centred)), eps))
    return m.mul(centred, factor), factor


@parts(mir.GroupNormBackwardInputOp)
def group_norm_backward_input(
    m: Builders, x: Value, gamma: Value, dy: Value, *, num_groups: int, eps: float = 1e-5
) -> Value:
    """r (s - mean(s) - n mean(s n)) with s = dy gamma, and n the normalised groups"""
    own, scale, gradient = wide(m, x, gamma, dy)
    normal, factor = _normal(m, own, num_groups, eps)
    by_normal = _grouped(m, m.mul(gradient, m.reshape(scale, [-1, 1, 1])), num_groups)
    along = m.mul(normal, _mean(m, m.mul(by_normal, normal)))
    found = m.mul(factor, m.sub(m.sub(by_normal, _mean(m, by_normal)), along))
    return narrow(m, m.reshape(found, m.sizes_of(x)), x)


@parts(mir.GroupNormBackwardGammaOp)
def group_norm_backward_gamma(m: Builders, x: Value, dy: Value, *, num_groups: int, eps: float = 1e-5) -> Value:
    """The sum of dy times the normalised groups"""
    own, gradient = wide(m, x, dy)
    normal = m.reshape(_normal(m, own, num_groups, eps)[0], m.sizes_of(x))
    return narrow(m, m.sum(m.mul(gradient, normal), [0, 2, 3]), x)


# ----------------------------------------------------------------------------------------------------------------------
# Pixels
# ----------------------------------------------------------------------------------------------------------------------


@vjp(mir.ResizeNearest2xOp)
def resize_nearest_2x(m: Builders, at: Reverse, x: Value) -> Value:
    """The sum of each four pixels that were one."""
    n, channels, height, width = m.sizes_of(x)
    return m.sum(m.reshape(at.dy, [n, channels, height, 2, width, 2]), [3, 5])


linear(mir.ResizeNearest2xOp)
