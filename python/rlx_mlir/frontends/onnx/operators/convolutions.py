# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Convolutions of one to three dimensions."""

from __future__ import annotations

from collections.abc import Sequence

from rlx_mlir.errors import OnnxError
from rlx_mlir.frontends.tensors import Tensor
from rlx_mlir.frontends.windows import Windows, convolved_volumes
from rlx_mlir.hir import Value
from rlx_mlir.mir.dims import Size

from ..call import Call
from ..registry import Refused, operator
from ..windows import windows


def _kernel(call: Call, weight: Sequence[Size]) -> list[int]:
    """The sizes of a kernel, which are known."""
    found = [size.constant for size in weight[2:]]
    if None in found:
        raise Refused(f"a kernel of {list(map(str, weight[2:]))}")
    own = [size or 0 for size in found]
    declared = call.ints("kernel_shape", own)
    if declared != own:
        raise OnnxError(f"node '{call.name}': 'kernel_shape' is {declared}, but the weight has {own}")
    return own


@operator("Conv")
def _conv(call: Call) -> Tensor:
    x, weight = call.value(0), call.value(1)
    over = windows(call, _kernel(call, call.shape(1)), call.shape(0)[2:])
    y = convolved(call, x, weight, over, call.integer("group", 1))
    if call.has(2):
        y = call.m.add(y, call.reshaped(call.value(2), [*call.shape(2), *[1] * len(over.kernel)]))
    return call.out(y)


def convolved(call: Call, x: Value, weight: Value, over: Windows, groups: int) -> Value:
    """Kernels [Co, Ci / groups, ...] slid over x [N, Ci, ...], of one to three dimensions."""
    count = len(over.kernel)
    if count == 1:
        shape, kernel = Tensor.running(x).shape, Tensor.running(weight).shape
        flat = call.reshaped(x, [*shape[:2], 1, shape[2]])
        y = convolved(call, flat, call.reshaped(weight, [*kernel[:2], 1, kernel[2]]), over.lifted(), groups)
        own = Tensor.running(y).shape
        return call.reshaped(y, [*own[:2], own[3]])
    if any(before != after for before, after in over.pads):
        x = call.padded(x, [(0, 0), (0, 0), *over.pads], 0)
        over = over.unpadded()
    if count == 2:
        padding = [before for before, _ in over.pads]
        options = {"stride": list(over.stride), "padding": padding, "dilation": list(over.dilation)}
        return call.m.conv2d(x, weight, groups=groups, **options)  # type: ignore[arg-type]
    if count == 3:
        x = call.padded(x, [(0, 0), (0, 0), over.pads[0], (0, 0), (0, 0)], 0)
        return convolved_volumes(call.m, x, weight, over, lambda a, b: convolved(call, a, b, over.along(1), groups))
    raise Refused(f"convolutions of {count} dimensions")


@operator("ConvTranspose")
def _conv_transpose(call: Call) -> Tensor:
    m, x, weight = call.m, call.value(0), call.value(1)
    sizes = call.shape(0)[2:]
    over = windows(call, _kernel(call, call.shape(1)), sizes)
    count, extra = len(sizes), call.ints("output_padding", [0] * len(sizes))
    over, extra = _placed(call, over, sizes, extra)
    if count == 1:
        x = call.reshaped(x, [*call.shape(0)[:2], 1, sizes[0]])
        weight = call.reshaped(weight, [*call.shape(1)[:2], 1, call.shape(1)[2]])
        over, extra = over.lifted(), [0, *extra]
    elif count != 2:
        raise Refused(f"transposed convolutions of {count} dimensions")
    y = m.conv_transpose2d(
        x, weight, stride=list(over.stride), dilation=list(over.dilation), groups=call.integer("group", 1)
    )
    y = call.padded(y, [(0, 0), (0, 0), *((-b, e - a) for (b, a), e in zip(over.pads, extra, strict=True))], 0)
    own = Tensor.running(y).shape
    y = call.reshaped(y, [*own[:2], own[3]]) if count == 1 else y
    if call.has(2):
        y = m.add(y, call.reshaped(call.value(2), [*call.shape(2), *[1] * count]))
    return call.out(y)


def _placed(call: Call, over: Windows, sizes: Sequence[Size], extra: list[int]) -> tuple[Windows, list[int]]:
    """Windows whose padding gives the result the shape that the node asks for."""
    wanted = call.maybe_ints("output_shape")
    mode = call.text("auto_pad", "NOTSET")
    if wanted is None and mode not in ("SAME_UPPER", "SAME_LOWER"):
        return over, extra
    pads = []
    for i, size in enumerate(sizes):
        if size.constant is None:
            raise Refused(f"a result of a given shape for a dimension of {size}")
        target = wanted[len(wanted) - len(sizes) + i] if wanted is not None else size.constant * over.stride[i]
        total = over.stride[i] * (size.constant - 1) + extra[i] + over.span[i] - target
        small = total // 2
        pads.append((small, total - small) if mode == "SAME_UPPER" else (total - small, small))
    return Windows(over.kernel, over.stride, over.dilation, tuple(pads)), extra
