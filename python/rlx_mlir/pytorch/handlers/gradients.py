# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operators of backward graphs that PyTorch doesn't take apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx_mlir.dtypes import DTYPES
from rlx_mlir.hir.values import Value
from rlx_mlir.pytorch.graph import Dimension, Importer, Lengths, Results, Unhandled, handles, static
from rlx_mlir.pytorch.handlers.images import images_of, numbers


@handles("aten.threshold_backward.default")
def threshold_backward(im: Importer, dy: Value, x: Value, threshold: float) -> Value:
    """dy where x is above a number."""
    return im.m.where(im.m.gt(x, float(threshold)), dy, im.number(0, im.dtype()))


@handles("aten._softmax_backward_data.default")
def softmax_backward(im: Importer, dy: Value, y: Value, dim: int, _: object) -> Value:
    """y (dy - sum(y dy)), by the result y."""
    product = y * dy
    return product - y * im.m.sum(product, [dim % y.ndim], keep_dims=True)


@handles("aten._log_softmax_backward_data.default")
def log_softmax_backward(im: Importer, dy: Value, y: Value, dim: int, _: object) -> Value:
    """dy - exp(y) sum(dy), by the result y."""
    return dy - im.m.exp(y) * im.m.sum(dy, [dim % y.ndim], keep_dims=True)


@handles("aten.embedding_dense_backward.default")
def embedding_backward(
    im: Importer, dy: Value, indices: Value, rows: Dimension, padding: Dimension, by_count: bool
) -> Value:
    """Rows of dy summed where they came from; none for the index that pads."""
    if by_count:
        raise Unhandled("gradients that are scaled by how often a row is read")
    number = static(padding, "an index")
    if number >= 0:
        kept = im.m.ne(indices, im.m.constant(indices.dtype.type(number)))
        kept = im.m.reshape(kept, [*indices.shape, 1])
        dy = im.m.where(kept, dy, im.m.constant(np.zeros((), DTYPES[im.dtype()])))
    return im.m.scatter_add(dy, indices, static(rows, "a number of rows"), 0)


@handles("aten.convolution_backward.default")
def convolution_backward(
    im: Importer,
    dy: Value,
    x: Value,
    weight: Value,
    bias_sizes: object,
    stride: Lengths,
    padding: Lengths,
    dilation: Lengths,
    transposed: bool,
    output_padding: Lengths,
    groups: int,
    wanted: Sequence[bool],
) -> Results:
    """By the image, the weight and the bias, those that are wanted."""
    rank = weight.ndim - 2
    if transposed or rank not in (1, 2):
        raise Unhandled("of transposed convolutions, or such of three dimensions")
    fill = [[0], [1]] if rank == 1 else [[], []]
    options: dict[str, Any] = {
        "stride": [*fill[1], *numbers(stride, rank)],
        "padding": [*fill[0], *numbers(padding, rank)],
        "dilation": [*fill[1], *numbers(dilation, rank)],
        "groups": groups,
    }
    images = [images_of(each, im) for each in (dy, x, weight)]
    by_x = by_weight = by_bias = None
    if wanted[0]:
        by_x = im.reshaped(im.m.conv2d_backward_input(images[0], images[2], images[1], **options), list(x.shape))
    if wanted[1]:
        size = [int(each) for each in images[2].shape[2:]]
        found = im.m.conv2d_backward_weight(images[1], images[0], kernel_size=size, **options)
        by_weight = im.reshaped(found, list(weight.shape))
    if wanted[2]:
        by_bias = im.m.sum(dy, [0, *range(2, dy.ndim)])
    return by_x, by_weight, by_bias


@handles("aten.native_layer_norm_backward.default")
def layer_norm_backward(
    im: Importer,
    dy: Value,
    x: Value,
    shape: Sequence[Dimension],
    mean: Value,
    scale: Value,
    weight: Value | None,
    bias: Value | None,
    wanted: Sequence[bool],
) -> Results:
    """By x, the weight and the bias: scale (g - mean(g) - h mean(g h)), with h = (x - mean) scale and g = dy weight."""
    m = im.m
    inner, outer = list(range(x.ndim - len(shape), x.ndim)), list(range(x.ndim - len(shape)))
    h = (x - mean) * scale
    by_x = None
    if wanted[0]:
        g = dy if weight is None else dy * weight
        by_x = (g - m.mean(g, inner, keep_dims=True) - h * m.mean(g * h, inner, keep_dims=True)) * scale
    by_weight = m.sum(dy * h, outer) if wanted[1] else None
    return by_x, by_weight, m.sum(dy, outer) if wanted[2] else None


@handles("aten.native_group_norm_backward.default")
def group_norm_backward(
    im: Importer,
    dy: Value,
    x: Value,
    mean: Value,
    scale: Value,
    weight: Value | None,
    n: Dimension,
    c: Dimension,
    hw: Dimension,
    groups: int,
    wanted: Sequence[bool],
) -> Results:
    """See `layer_norm_backward`, of each group of channels."""
    m, shape = im.m, list(x.shape)
    apart = [shape[0], groups, static(c, "a number of channels") // groups, -1]
    own = [shape[0], groups, 1, 1]
    h = (m.reshape(x, apart) - m.reshape(mean, own)) * m.reshape(scale, own)
    d = m.reshape(dy, apart)
    by_x = None
    if wanted[0]:
        g = d if weight is None else d * m.reshape(weight, [1, groups, -1, 1])
        centred = g - m.mean(g, [2, 3], keep_dims=True) - h * m.mean(g * h, [2, 3], keep_dims=True)
        by_x = m.reshape(centred * m.reshape(scale, own), shape)
    by_weight = m.reshape(m.sum(d * h, [0, 3]), [-1]) if wanted[1] else None
    return by_x, by_weight, m.reshape(m.sum(d, [0, 3]), [-1]) if wanted[2] else None
