# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operators that slide kernels over sequences, images and volumes of channels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rlx_mlir.frontends.windows import Windows, convolved_volumes
from rlx_mlir.hir.values import Value
from rlx_mlir.pytorch.graph import Entry, Importer, Lengths, Unhandled, handles, operator_name, size_of, static
from rlx_mlir.pytorch.handlers.padding import padded

if TYPE_CHECKING:
    from torch.fx import Node


def numbers(given: Lengths, count: int) -> list[int]:
    """One number for each dimension of an image."""
    listed = list(given) if isinstance(given, Sequence) else [given]
    found = [static(each, "an argument") for each in listed]
    return found * count if len(found) == 1 else found


def images_of(x: Value, im: Importer) -> Value:
    """Sequences of channels [N, C, L] as images [N, C, 1, L]."""
    return im.m.reshape(x, [*x.shape[:2], 1, x.shape[2]]) if x.ndim == 3 else x


@handles("aten.conv2d.default", "aten.conv1d.default", "aten.conv3d.default")
def conv(
    im: Importer,
    x: Value,
    weight: Value,
    bias: Value | None = None,
    stride: Lengths = 1,
    padding: Lengths = 0,
    dilation: Lengths = 1,
    groups: int = 1,
) -> Value:
    """Kernels slid over images, or over sequences."""
    return _conv(im, x, weight, bias, stride, padding, dilation, groups)


@handles("aten.conv2d.padding", "aten.conv1d.padding", "aten.conv3d.padding")
def conv_padded(
    im: Importer,
    x: Value,
    weight: Value,
    bias: Value | None = None,
    stride: Lengths = 1,
    padding: str = "valid",
    dilation: Lengths = 1,
    groups: int = 1,
) -> Value:
    """With as much padding as the result needs to be as large, or none."""
    if padding == "valid":
        return _conv(im, x, weight, bias, stride, 0, dilation, groups)
    rank = weight.ndim - 2
    widths = [(int(size) - 1) * step for size, step in zip(weight.shape[2:], numbers(dilation, rank), strict=True)]
    x = padded(im, x, [(0, width % 2) for width in widths], 0)  # where sides differ, there is more after
    return _conv(im, x, weight, bias, stride, [width // 2 for width in widths], dilation, groups)


@handles("aten.convolution.default")
def convolution(
    im: Importer,
    x: Value,
    weight: Value,
    bias: Value | None,
    stride: Lengths,
    padding: Lengths,
    dilation: Lengths,
    transposed: bool,
    output_padding: Lengths,
    groups: int,
) -> Value:
    """Either direction."""
    if not transposed:
        return _conv(im, x, weight, bias, stride, padding, dilation, groups)
    return _conv_transpose(im, x, weight, bias, stride, padding, output_padding, groups, dilation)


def _conv(
    im: Importer,
    x: Value,
    weight: Value,
    bias: Value | None,
    stride: Lengths,
    padding: Lengths,
    dilation: Lengths,
    groups: int,
) -> Value:
    rank = weight.ndim - 2
    wanted = im.node.meta["val"]
    shape = im.shape(wanted[0] if isinstance(wanted, tuple) else wanted)
    x = im.m.reshape(x, [1, *x.shape]) if x.ndim == rank + 1 else x
    steps, pads, apart = numbers(stride, rank), numbers(padding, rank), numbers(dilation, rank)
    if rank == 3:
        return im.reshaped(_with_bias(im, _volumes(im, x, weight, steps, pads, apart, groups), bias), shape)
    fill = [[0], [1]] if rank == 1 else [[], []]  # of the height that sequences don't have
    found = im.m.conv2d(
        images_of(x, im),
        images_of(weight, im),
        stride=[*fill[1], *steps],
        padding=[*fill[0], *pads],
        dilation=[*fill[1], *apart],
        groups=groups,
    )
    return im.reshaped(_with_bias(im, found, bias), shape)


def _volumes(
    im: Importer, x: Value, weight: Value, stride: list[int], padding: list[int], dilation: list[int], groups: int
) -> Value:
    """A convolution of three dimensions."""
    kernel = tuple(static(size_of(size), "the size of a kernel") for size in weight.shape[2:])
    over = Windows(kernel, tuple(stride), tuple(dilation), tuple((own, own) for own in padding))

    def of_planes(x: Value, weight: Value) -> Value:
        return im.m.conv2d(x, weight, stride=stride[1:], padding=padding[1:], dilation=dilation[1:], groups=groups)

    x = padded(im, x, [over.pads[0], (0, 0), (0, 0)], 0)
    return convolved_volumes(im.m, x, weight, over, of_planes)


#: Convolutions whose weights take what follows channel by channel.
_SCALED = ("aten.conv2d.default", "aten.conv1d.default", "aten.conv3d.default")


def scaled_convolution(im: Importer, node: Node, factor: Value, shift: Value) -> Value | None:
    """factor conv(x) + shift, of numbers by channel, as a convolution with other weights: made once of parameters.

    Args:
        node: what makes conv(x); None is given where it is no convolution, or has other readers.
    """
    if operator_name(node.target) not in _SCALED or len(node.users) > 1:
        return None
    given: list[Entry] = list(im.value(im.arguments(node.args)))
    given += [None, 1, 0, 1, 1][len(given) - 2 :]  # what is left out
    x, weight, bias, stride, padding, dilation, groups = given
    scaled = weight * im.m.reshape(factor, [-1, *[1] * (weight.ndim - 1)])
    shift = shift if bias is None else bias * factor + shift
    return _conv(im, x, scaled, shift, stride, padding, dilation, groups)


def _with_bias(im: Importer, x: Value, bias: Value | None) -> Value:
    return x if bias is None else x + im.m.reshape(bias, [-1, *[1] * (x.ndim - 2)])


@handles("aten.conv_transpose2d.input", "aten.conv_transpose1d.default")
def conv_transpose(
    im: Importer,
    x: Value,
    weight: Value,
    bias: Value | None = None,
    stride: Lengths = 1,
    padding: Lengths = 0,
    output_padding: Lengths = 0,
    groups: int = 1,
    dilation: Lengths = 1,
) -> Value:
    """Each pixel adds its kernel to the result."""
    return _conv_transpose(im, x, weight, bias, stride, padding, output_padding, groups, dilation)


def _conv_transpose(
    im: Importer,
    x: Value,
    weight: Value,
    bias: Value | None,
    stride: Lengths,
    padding: Lengths,
    output_padding: Lengths,
    groups: int,
    dilation: Lengths,
) -> Value:
    rank = weight.ndim - 2
    if rank not in (1, 2):
        raise Unhandled(f"the other direction, of {rank} dimensions")
    x = im.m.reshape(x, [1, *x.shape]) if x.ndim == rank + 1 else x
    fill = [[0], [1]] if rank == 1 else [[], []]
    found = im.m.conv_transpose2d(
        images_of(x, im),
        images_of(weight, im),
        stride=[*fill[1], *numbers(stride, rank)],
        padding=[*fill[0], *numbers(padding, rank)],
        output_padding=[*fill[0], *numbers(output_padding, rank)],
        dilation=[*fill[1], *numbers(dilation, rank)],
        groups=groups,
    )
    return im.reshaped(_with_bias(im, found, bias))
