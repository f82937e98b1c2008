# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Sizes, steps and padding of windows, as nodes say them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rlx_mlir.errors import OnnxError
from rlx_mlir.frontends.windows import Windows
from rlx_mlir.mir.dims import Size

from .call import Call
from .registry import Refused

PADDINGS = ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER")


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
        return found.unpadded()
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
