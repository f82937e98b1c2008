# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operators on images and sequences of channels: convolutions, pools, resizing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlx_mlir.hir.values import Value
from rlx_mlir.mir.dims import Size
from rlx_mlir.pytorch.graph import Importer, Unhandled, handles, operator_name, static


def _numbers(given: Any, count: int) -> list[int]:
    """One number for each dimension of an image."""
    listed = list(given) if isinstance(given, Sequence) else [given]
    numbers = [static(each, "an argument") for each in listed]
    return numbers * count if len(numbers) == 1 else numbers


def _of_images(x: Value, im: Importer) -> Value:
    """Sequences of channels [N, C, L] as images [N, C, 1, L]."""
    return im.m.reshape(x, [*x.shape[:2], 1, x.shape[2]]) if x.ndim == 3 else x


@handles("aten.conv2d.default", "aten.conv1d.default")
def conv(
    im: Importer,
    x: Value,
    weight: Value,
    bias: Value | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Value:
    """Kernels slid over images, or over sequences."""
    return _conv(im, x, weight, bias, stride, padding, dilation, groups)


@handles("aten.conv2d.padding", "aten.conv1d.padding")
def conv_padded(
    im: Importer,
    x: Value,
    weight: Value,
    bias: Value | None = None,
    stride: Any = 1,
    padding: str = "valid",
    dilation: Any = 1,
    groups: int = 1,
) -> Value:
    """With as much padding as the result needs to be as large, or none."""
    if padding == "valid":
        return _conv(im, x, weight, bias, stride, 0, dilation, groups)
    rank = x.ndim - 2
    widths = [(int(size) - 1) * step for size, step in zip(weight.shape[2:], _numbers(dilation, rank), strict=True)]
    if any(width % 2 for width in widths):
        raise Unhandled("padding that differs between sides")
    return _conv(im, x, weight, bias, stride, [width // 2 for width in widths], dilation, groups)


@handles("aten.convolution.default")
def convolution(
    im: Importer,
    x: Value,
    weight: Value,
    bias: Value | None,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
) -> Value:
    """Either direction."""
    if not transposed:
        return _conv(im, x, weight, bias, stride, padding, dilation, groups)
    return _conv_transpose(im, x, weight, bias, stride, padding, output_padding, groups, dilation)


def _rank(x: Value, weight: Value) -> int:
    """Dimensions of the images of a convolution; raises Unhandled for what isn't implemented."""
    rank = weight.ndim - 2
    if rank not in (1, 2) or x.ndim != weight.ndim:
        raise Unhandled(f"of {rank} dimensions" if rank not in (1, 2) else "without a batch")
    return rank


def _conv(
    im: Importer,
    x: Value,
    weight: Value,
    bias: Value | None,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int,
) -> Value:
    rank = _rank(x, weight)
    fill = [[0], [1]] if rank == 1 else [[], []]  # of the height that sequences don't have
    wanted = im.node.meta["val"]
    found = im.m.conv2d(
        _of_images(x, im),
        _of_images(weight, im),
        stride=[*fill[1], *_numbers(stride, rank)],
        padding=[*fill[0], *_numbers(padding, rank)],
        dilation=[*fill[1], *_numbers(dilation, rank)],
        groups=groups,
    )
    return im.reshaped(_with_bias(im, found, bias), im.shape(wanted[0] if isinstance(wanted, tuple) else wanted))


def scaled_convolution(im: Importer, node: Any, factor: Value, shift: Value) -> Value | None:
    """factor conv(x) + shift, of numbers by channel, as a convolution with other weights: made once of parameters.

    Args:
        node: what makes conv(x); None is given where it is no convolution, or has other readers.
    """
    if operator_name(node.target) not in ("aten.conv2d.default", "aten.conv1d.default") or len(node.users) > 1:
        return None
    given: list[Any] = list(im.value(im.arguments(node.args)))
    given += [None, 1, 0, 1, 1][len(given) - 2 :]  # what is left out
    x, weight, bias, stride, padding, dilation, groups = given
    scaled = weight * im.m.reshape(factor, [-1, *[1] * (weight.ndim - 1)])
    shift = shift if bias is None else bias * factor + shift
    return _conv(im, x, scaled, shift, stride, padding, dilation, groups)


def _with_bias(im: Importer, x: Value, bias: Value | None) -> Value:
    return x if bias is None else x + im.m.reshape(bias, [-1, 1, 1])


@handles("aten.conv_transpose2d.input", "aten.conv_transpose1d.default")
def conv_transpose(
    im: Importer,
    x: Value,
    weight: Value,
    bias: Value | None = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Value:
    """Each pixel adds its kernel to the result."""
    return _conv_transpose(im, x, weight, bias, stride, padding, output_padding, groups, dilation)


def _conv_transpose(
    im: Importer,
    x: Value,
    weight: Value,
    bias: Value | None,
    stride: Any,
    padding: Any,
    output_padding: Any,
    groups: int,
    dilation: Any,
) -> Value:
    rank = _rank(x, weight)
    fill = [[0], [1]] if rank == 1 else [[], []]
    found = im.m.conv_transpose2d(
        _of_images(x, im),
        _of_images(weight, im),
        stride=[*fill[1], *_numbers(stride, rank)],
        padding=[*fill[0], *_numbers(padding, rank)],
        output_padding=[*fill[0], *_numbers(output_padding, rank)],
        dilation=[*fill[1], *_numbers(dilation, rank)],
        groups=groups,
    )
    return im.reshaped(_with_bias(im, found, bias))


# -- pools -------------------------------------------------------------------------------------------------------------


def _pooled(
    im: Importer, x: Value, kind: str, kernel: Any, stride: Any, padding: Any, ceil_mode: bool, wanted: Any
) -> Value:
    rank = 2 if x.ndim == 4 else 1
    sizes = _numbers(kernel, rank)
    steps = _numbers(stride, rank) if not isinstance(stride, Sequence) or stride else sizes
    fill = [[0], [1]] if rank == 1 else [[], []]
    found = im.m.pool(
        _of_images(x, im),
        kind,
        [*fill[1], *sizes],
        stride=[*fill[1], *steps],
        padding=[*fill[0], *_numbers(padding, rank)],
    )
    if ceil_mode and list(found.shape)[-rank:] != im.shape(wanted)[-rank:]:
        raise Unhandled("windows that begin inside and end outside")
    return im.reshaped(found, im.shape(wanted))


@handles("aten.max_pool2d.default", "aten.max_pool1d.default")
def max_pool(
    im: Importer, x: Value, kernel: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False
) -> Value:
    """The largest of each window."""
    if any(step != 1 for step in _numbers(dilation, 1)):
        raise Unhandled("dilation")
    return _pooled(im, x, "max", kernel, stride, padding, ceil_mode, im.node.meta["val"])


@handles("aten.max_pool2d_with_indices.default")
def max_pool_with_indices(
    im: Importer, x: Value, kernel: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False
) -> Any:
    """The largest of each window; where it is isn't there."""
    if any(step != 1 for step in _numbers(dilation, 1)):
        raise Unhandled("dilation")
    return _pooled(im, x, "max", kernel, stride, padding, ceil_mode, im.node.meta["val"][0]), None


@handles("aten.avg_pool2d.default", "aten.avg_pool1d.default")
def avg_pool(
    im: Importer,
    x: Value,
    kernel: Any,
    stride: Any = (),
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Value:
    """The mean of each window."""
    is_padded = any(_numbers(padding, 1))
    if divisor_override is not None or (is_padded and not count_include_pad):
        raise Unhandled("a divisor that isn't the size of the window")
    return _pooled(im, x, "mean", kernel, stride, padding, ceil_mode, im.node.meta["val"])


@handles("aten.adaptive_avg_pool2d.default", "aten._adaptive_avg_pool2d.default", "aten.adaptive_avg_pool1d.default")
def adaptive_avg_pool(im: Importer, x: Value, sizes: Any) -> Value:
    """The mean over as many windows as are wanted: one, or such that divide the image."""
    rank = x.ndim - 2
    wanted = _numbers(sizes, rank)
    if all(size == 1 for size in wanted):
        return im.m.mean(x, list(range(2, x.ndim)), keep_dims=True)
    own = [static(Size.parse(str(size)), "an image's size") for size in x.shape[2:]]
    if any(size % count for size, count in zip(own, wanted, strict=True)):
        raise Unhandled("windows of several sizes")
    steps = [size // count for size, count in zip(own, wanted, strict=True)]
    return _pooled(im, x, "mean", steps, steps, 0, False, im.node.meta["val"])


@handles("aten.upsample_nearest2d.vec", "aten.upsample_nearest2d.default")
def upsample_nearest(im: Importer, x: Value, *_: Any) -> Value:
    """Each pixel several times, by whole numbers."""
    m, shape = im.m, list(x.shape)
    own, wanted = (im.sizes(im.node.args[0].meta["val"])[2:], im.sizes()[2:])
    times = [large.divided_by(small) for large, small in zip(wanted, own, strict=True)]
    if any(each is None or each.constant is None for each in times):
        raise Unhandled("by what is no whole number")
    rows, columns = (each.constant for each in times if each is not None)
    apart = m.reshape(x, [*shape[:2], shape[2], 1, shape[3], 1])
    return im.reshaped(m.expand(apart, [*shape[:2], shape[2], rows or 1, shape[3], columns or 1]))
