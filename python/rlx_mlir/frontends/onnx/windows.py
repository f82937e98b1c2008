# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Windows that slide over the last dimensions of images: their sizes, steps and padding, as nodes say them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rlx_mlir.errors import OnnxError
from rlx_mlir.mir.dims import Size

from .call import Call
from .registry import Refused

PADDINGS = ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER")


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

    def rounded_up(self, sizes: Sequence[Size]) -> tuple[Windows, tuple[int, ...]]:
        """With more padding after, so that a last window that isn't whole is one; and how much that is."""
        more = []
        for size, span, stride, (before, after) in zip(sizes, self.span, self.stride, self.pads, strict=True):
            if size.constant is None:
                raise Refused(f"'ceil_mode' for a dimension of {size}")
            room = size.constant + before + after - span
            count = -(-room // stride) + 1
            if (count - 1) * stride >= size.constant + before:  # it would begin in the padding after
                count -= 1
            more.append(max((count - 1) * stride - room, 0))
        pads = tuple((before, after + extra) for (before, after), extra in zip(self.pads, more, strict=True))
        return replace(self, pads=pads), tuple(more)


def windows(call: Call, kernel: Sequence[int], sizes: Sequence[Size]) -> Windows:
    """The windows of a node, over dimensions of these sizes."""
    count = len(sizes)
    stride = tuple(call.ints("strides", [1] * count))
    dilation = tuple(call.ints("dilations", [1] * count))
    pads = call.ints("pads", [0] * 2 * count)
    for what, numbers, least in (("kernel", kernel, 1), ("strides", stride, 1), ("dilations", dilation, 1)):
        if len(numbers) != count or min(numbers, default=1) < least or max(numbers, default=1) >= 1 << 31:
            raise OnnxError(f"node '{call.name}': {what} are {count} numbers from {least} on, but are {list(numbers)}")
    if len(pads) != 2 * count or min(pads, default=0) < 0 or max(pads, default=0) >= 1 << 31:
        raise OnnxError(f"node '{call.name}': pads are {2 * count} numbers from 0 on, but are {pads}")
    found = Windows(tuple(kernel), stride, dilation, tuple(zip(pads[:count], pads[count:], strict=True)))
    mode = call.choice("auto_pad", "NOTSET", PADDINGS)
    if mode == "VALID":
        return replace(found, pads=((0, 0),) * count)
    return found if mode == "NOTSET" else replace(found, pads=_same(found, sizes, mode == "SAME_LOWER"))


def _same(given: Windows, sizes: Sequence[Size], more_before: bool) -> tuple[tuple[int, int], ...]:
    """Padding for as many windows as there are steps in a dimension."""
    pads = []
    for size, span, stride in zip(sizes, given.span, given.stride, strict=True):
        if size.constant is None and stride != 1:
            raise Refused(f"'auto_pad' with steps of {stride} in a dimension of {size}")
        rest = 0 if size.constant is None else (-(-size.constant // stride) - 1) * stride - (size.constant - 1)
        total = max(rest + span - 1, 0)
        small = total // 2
        pads.append((total - small, small) if more_before else (small, total - small))
    return tuple(pads)
