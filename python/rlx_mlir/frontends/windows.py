# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Windows that slide over the last dimensions of images: what readers of graphs share."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from rlx_mlir.frontends.tensors import Tensor, plain
from rlx_mlir.hir import GraphModule, Value
from rlx_mlir.mir.dims import Size


@dataclass(frozen=True)
class Windows:
    """Windows over some dimensions.

    Attributes:
        kernel: elements of a window along each dimension.
        stride: steps between windows.
        dilation: steps between the elements of a window.
        pads: elements before and after each dimension.
    """

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    pads: tuple[tuple[int, int], ...]

    @property
    def span(self) -> tuple[int, ...]:
        """How far a window reaches along each dimension."""
        return tuple((k - 1) * d + 1 for k, d in zip(self.kernel, self.dilation, strict=True))

    def lifted(self) -> Windows:
        """The same windows with a dimension of 1 before the others."""
        return Windows((1, *self.kernel), (1, *self.stride), (1, *self.dilation), ((0, 0), *self.pads))

    def along(self, first: int, end: int | None = None) -> Windows:
        """The same windows over some of the dimensions."""
        own = slice(first, end)
        return Windows(self.kernel[own], self.stride[own], self.dilation[own], self.pads[own])

    def unpadded(self) -> Windows:
        """The same windows over dimensions that have their padding."""
        return replace(self, pads=((0, 0),) * len(self.kernel))

    def rounded_up(self, sizes: Sequence[int]) -> Windows:
        """With more padding after, so that a last window that isn't whole is one."""
        pads = []
        for size, span, stride, (before, after) in zip(sizes, self.span, self.stride, self.pads, strict=True):
            room = size + before + after - span
            count = -(-room // stride) + 1
            if (count - 1) * stride >= size + before:  # it would begin in the padding after
                count -= 1
            pads.append((before, after + max((count - 1) * stride - room, 0)))
        return replace(self, pads=tuple(pads))


def taken(m: GraphModule, x: Value, over: Windows, place: Sequence[int], first: int) -> Value:
    """Of all windows over x, which has its padding, the elements at one place.

    Args:
        first: the first dimension that the windows are over; the others follow it.
    """
    for number, at in enumerate(place):
        axis, stride = first + number, over.stride[number]
        start, size = Size.of(at * over.dilation[number]), Tensor.running(x).shape[axis]
        bounds = plain([start, start + (size - over.span[number]) // stride * stride + 1])
        x = m.slice(x, axis, bounds[0], bounds[1], stride)
    return x


def convolved_volumes(
    m: GraphModule, x: Value, weight: Value, over: Windows, convolved: Callable[[Value, Value], Value]
) -> Value:
    """A convolution of three dimensions as the sum of those of its kernel's planes.

    Args:
        x: [N, C, D, H, W], whose depth has its padding.
        weight: [Co, C / groups, kD, kH, kW].
        convolved: of images and a plane of the kernel, the convolution of two dimensions.
    """
    kernel = Tensor.running(weight).shape
    total: Value | None = None
    for number in range(over.kernel[0]):
        part = m.transpose(taken(m, x, over.along(0, 1), [number], 2), [0, 2, 1, 3, 4])
        n, steps, *image = Tensor.running(part).shape
        own = m.reshape(m.narrow(weight, 2, number, 1), plain([*kernel[:2], *kernel[3:]]))
        y = convolved(m.reshape(part, plain([n * steps, *image])), own)
        total = y if total is None else m.add(total, y)
    assert total is not None
    return m.transpose(m.reshape(total, plain([n, steps, *Tensor.running(total).shape[1:]])), [0, 2, 1, 3, 4])


def added(m: GraphModule, x: Value, over: Windows, image: Sequence[int]) -> Value:
    """Windows [..., C k..., L] added up to the images [..., C, D...] that they are of.

    Args:
        over: how the windows stand, which are L, along all dimensions of an image.
        image: the sizes D.
    """
    flat = np.zeros((1,) * (2 * len(image)), np.int64)
    outside = np.zeros_like(flat, bool)
    for axis, length in enumerate(image):
        kernel, stride, dilation = over.kernel[axis], over.stride[axis], over.dilation[axis]
        before, after = over.pads[axis]
        count = (length + before + after - dilation * (kernel - 1) - 1) // stride + 1
        place = np.arange(kernel)[:, None] * dilation + np.arange(count) * stride - before
        shape = [1] * flat.ndim
        shape[axis], shape[len(image) + axis] = place.shape
        place = place.reshape(shape)
        outside = outside | (place < 0) | (place >= length)
        flat = flat * length + place
    places = np.where(outside, -1, flat).reshape(-1)
    entries = m.reshape(x, [*x.shape[:-2], -1, len(places)])
    found = m.scatter_add(entries, m.constant(places), math.prod(image), entries.ndim - 1)
    return m.reshape(found, [*entries.shape[:-1], *image])
