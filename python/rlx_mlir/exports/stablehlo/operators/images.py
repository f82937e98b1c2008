# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Convolutions and windows over images, [N, C, H, W]."""

from __future__ import annotations

from collections.abc import Sequence

from rlx_mlir.errors import UnsupportedError
from rlx_mlir.exports.stablehlo.builder import Writing, numbers
from rlx_mlir.exports.stablehlo.registry import writes
from rlx_mlir.exports.stablehlo.tensors import Dim, Tensor, is_static, numbers_of

Pads = Sequence[Sequence[int]]


def _padding(pads: Pads) -> str:
    rows = ", ".join(f"[{before}, {after}]" for before, after in pads)
    return f"padding = dense<[{rows}]> : tensor<{len(pads)}x2xi64>"


def _convolution(
    w: Writing,
    x: Tensor,
    weight: Tensor,
    dims: str,
    pads: Pads,
    *,
    stride: Sequence[int] = (1, 1),
    spread: Sequence[int] = (1, 1),
    dilation: Sequence[int] = (1, 1),
    groups: int = 1,
    turned: bool = False,
) -> Tensor:
    """A convolution, in f32 for floats of 16 bits."""
    wide, kernel = w.wide(x), w.wide(weight)
    shape = w.types[0][0]
    reversal = "true, true" if turned else "false, false"
    attributes = (
        f"batch_group_count = 1 : i64, dimension_numbers = #stablehlo.conv<{dims}>, "
        f"feature_group_count = {groups} : i64, lhs_dilation = {numbers(spread)}, {_padding(pads)}, "
        "precision_config = [#stablehlo<precision HIGHEST>, #stablehlo<precision HIGHEST>], "
        f"rhs_dilation = {numbers(dilation)}, window_reversal = array<i1: {reversal}>, "
        f"window_strides = {numbers(stride)}"
    )
    return w.cast(w.op("convolution", [wide, kernel], shape, wide.word, attributes), w.types[0][1])


@writes("conv")
def _conv(
    w: Writing,
    x: Tensor,
    weight: Tensor,
    *,
    stride: Sequence[int] = (1, 1),
    padding: Sequence[int] = (0, 0),
    dilation: Sequence[int] = (1, 1),
    groups: int = 1,
) -> Tensor:
    pads = [(own, own) for own in padding]
    dims = "[b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1]"
    return _convolution(w, x, weight, dims, pads, stride=stride, dilation=dilation, groups=groups)


def _sides(shape: Sequence[Dim]) -> tuple[int, ...]:
    """Height and width, of which paddings are computed; UnsupportedError where they are symbolic."""
    sides = shape[2:]
    if not is_static(sides):
        raise UnsupportedError(f"paddings of images of {' x '.join(map(str, sides))} pixels: give these by `bind`")
    return numbers_of(sides)


def _transposed(
    w: Writing, x: Tensor, weight: Tensor, stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int]
) -> Tensor:
    """Each pixel adds its kernel of weight [Ci, Co, …] to a result of the shape that the operation has."""
    sides, kernel, result = (_sides(shape) for shape in (x.shape, weight.shape, w.types[0][0]))
    pads = []
    for axis in range(2):
        reach = dilation[axis] * (kernel[axis] - 1)
        whole = (sides[axis] - 1) * stride[axis] + 1
        before = reach - padding[axis]
        pads.append((before, result[axis] - whole + reach - before))
    dims = "[b, f, 0, 1]x[i, o, 0, 1]->[b, f, 0, 1]"
    return _convolution(w, x, weight, dims, pads, spread=stride, dilation=dilation, turned=True)


@writes("conv_transpose2d")
def _conv_transpose(
    w: Writing,
    x: Tensor,
    weight: Tensor,
    *,
    stride: Sequence[int] = (1, 1),
    padding: Sequence[int] = (0, 0),
    output_padding: Sequence[int] = (0, 0),
    dilation: Sequence[int] = (1, 1),
    groups: int = 1,
) -> Tensor:
    return _transposed(w, x, weight, stride, padding, dilation)


@writes("conv2d_backward_input")
def _backward_input(
    w: Writing,
    dy: Tensor,
    weight: Tensor,
    x: Tensor,
    *,
    stride: Sequence[int] = (1, 1),
    padding: Sequence[int] = (0, 0),
    dilation: Sequence[int] = (1, 1),
    groups: int = 1,
) -> Tensor:
    """That of a weight [Co, Ci, …]; of groups, kernels that are 0 between channels of others."""
    return _transposed(w, dy, _whole(w, weight, groups), stride, padding, dilation)


def _whole(w: Writing, weight: Tensor, groups: int) -> Tensor:
    """The weight [Co, Ci, …] of one group that does what one [Co, Ci / groups, …] of several does."""
    if groups == 1:
        return weight
    outs, own, *kernel = weight.shape
    rows = w.reshape(weight, (groups, outs // groups, 1, own, *kernel))
    shape = (groups, outs // groups, groups, own, *kernel)
    sides = [w.iota((groups, 1, 1, 1, 1, 1), 0), w.iota((1, 1, groups, 1, 1, 1), 2)]
    kept = w.where(w.compare("eq", *sides), w.spread(rows, shape), 0.0)
    return w.reshape(kept, (outs, groups * own, *kernel))


@writes("conv2d_backward_weight")
def _backward_weight(
    w: Writing,
    x: Tensor,
    dy: Tensor,
    *,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (1, 1),
    padding: Sequence[int] = (0, 0),
    dilation: Sequence[int] = (1, 1),
    groups: int = 1,
) -> Tensor:
    """The images convolved with dy: what is a step of the windows is between elements of the kernel here."""
    sides, given = _sides(x.shape), _sides(dy.shape)
    pads = []
    for axis in range(2):
        reach = (given[axis] - 1) * stride[axis] + 1
        needed = (kernel_size[axis] - 1) * dilation[axis] + reach
        pads.append((padding[axis], needed - sides[axis] - padding[axis]))
    dims = "[f, b, 0, 1]x[i, o, 0, 1]->[f, b, 0, 1]"
    return _convolution(w, x, dy, dims, pads, stride=dilation, dilation=stride)


# Windows --------------------------------------------------------------------------------------------


def _windows(kernel_size: Sequence[int], stride: Sequence[int], padding: Sequence[int]) -> str:
    """The attributes of windows over the last two dimensions of four."""
    pads = [(0, 0), (0, 0), *((own, own) for own in padding)]
    return (
        f"{_padding(pads)}, window_dimensions = {numbers([1, 1, *kernel_size])}, "
        f"window_strides = {numbers([1, 1, *stride])}"
    )


@writes("pool")
def _pool(
    w: Writing,
    x: Tensor,
    *,
    kind: str,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (1, 1),
    padding: Sequence[int] = (0, 0),
) -> Tensor:
    wide = w.wide(x)
    joined = "sum" if kind == "mean" else kind
    attributes = _windows(kernel_size, stride, padding)
    init = w.neutral(joined, wide.word)
    (found,) = w.ops(
        "reduce_window", [wide, init], [(w.types[0][0], wide.word)], attributes, [w.joining(joined, wide.word)]
    )
    if kind == "mean":
        found = w.div(found, float(kernel_size[0] * kernel_size[1]))
    return w.cast(found, x.word)


@writes("max_pool2d_backward")
def _max_pool_backward(
    w: Writing,
    x: Tensor,
    dy: Tensor,
    *,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (1, 1),
    padding: Sequence[int] = (0, 0),
) -> Tensor:
    wide, source = w.wide(x), w.wide(dy)
    attributes = _windows(kernel_size, stride, padding)
    select, _ = w.region([((), wide.word)] * 2, lambda a, b: [w.compare("ge", a, b)])
    zero = w.neutral("sum", wide.word)
    (found,) = w.ops(
        "select_and_scatter",
        [wide, source, zero],
        [(x.shape, wide.word)],
        attributes,
        [select, w.joining("sum", wide.word)],
    )
    return w.cast(found, x.word)


@writes("resize_nearest_2x")
def _resize(w: Writing, x: Tensor) -> Tensor:
    n, c, height, width = x.shape
    spread = w.spread(w.reshape(x, (n, c, height, 1, width, 1)), (n, c, height, 2, width, 2))
    return w.reshape(spread, (n, c, 2 * height, 2 * width))
