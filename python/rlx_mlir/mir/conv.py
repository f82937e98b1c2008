# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Convolutions, transposed ones, and their gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from rlx_mlir import ir
from rlx_mlir.attributes import python_value
from rlx_mlir.dialects import mir
from rlx_mlir.mir.cost import Cost, Sizes, cost
from rlx_mlir.mir.dims import Size, is_never_negative, maximum, product
from rlx_mlir.mir.linalg import (
    SizeLike,
    as_index,
    cast_shape,
    collapse,
    converted,
    divided,
    element_type,
    filled,
    index_constant,
    plus,
    reduced,
    sizes_of,
    split_dims,
    times,
)
from rlx_mlir.mir.numerics import narrow, widen
from rlx_mlir.mir.registry import TO_LINALG, dim_rule, reference
from rlx_mlir.mir.scalars import Scalar, accumulator, extract
from rlx_mlir.mir.windows import Meeting, Windows, moved, spread, with_margin
from rlx_mlir.rewriting import Rewriter

# ----------------------------------------------------------------------------------------------------------------------
# References
# ----------------------------------------------------------------------------------------------------------------------


def _padded(x: np.ndarray, padding: Sequence[int]) -> np.ndarray:
    """x [N, C, H, W] in the type that it is computed in, with zeros around its last two dimensions."""
    return np.pad(widen(x), [(0, 0), (0, 0), *((p, p) for p in padding)])


@reference(mir.ConvOp)
def conv(
    x: np.ndarray,
    weight: np.ndarray,
    *,
    stride: Sequence[int] = (1, 1),
    padding: Sequence[int] = (0, 0),
    dilation: Sequence[int] = (1, 1),
    groups: int = 1,
) -> np.ndarray:
    """Kernels [Co, Ci / groups, kH, kW] slid over x [N, Ci, H, W], one product for each of their positions."""
    outputs, inputs, *kernel = weight.shape
    windows = Windows(kernel, stride, padding, dilation)
    taps = widen(weight).reshape(groups, outputs // groups, inputs, *kernel)
    counts = windows.counts_in("mir.conv", x.shape)
    padded = _padded(x, padding)
    grouped = padded.reshape(x.shape[0], groups, inputs, *padded.shape[2:])
    total = np.zeros((x.shape[0], groups, outputs // groups, *counts), padded.dtype)
    for u, v in np.ndindex(*kernel):
        rows, columns = windows.slices((u, v), counts)
        total += np.einsum("ngcij,goc->ngoij", grouped[..., rows, columns], taps[..., u, v])
    return narrow(total.reshape(x.shape[0], outputs, *counts), x.dtype)


def _spread(x: np.ndarray, weight: np.ndarray, windows: Windows, sizes: Sequence[int], groups: int) -> np.ndarray:
    """Each pixel of x [N, Ci, H, W] times its kernel, added where it falls among `sizes` of height and width."""
    inputs, per_group, *kernel = weight.shape
    pixels = widen(x).reshape(x.shape[0], groups, inputs // groups, *x.shape[2:])
    taps = widen(weight).reshape(groups, inputs // groups, per_group, *kernel)
    total = np.zeros((x.shape[0], groups, per_group, *sizes), pixels.dtype)
    for tap in np.ndindex(*kernel):
        places = [
            np.arange(count) * s + at * d - p
            for count, at, s, p, d in zip(
                x.shape[2:], tap, windows.stride, windows.padding, windows.dilation, strict=True
            )
        ]
        there = [(place >= 0) & (place < size) for place, size in zip(places, sizes, strict=True)]
        own = pixels[..., there[0], :][..., there[1]]
        rows, columns = (place[inside] for place, inside in zip(places, there, strict=True))
        total[..., rows[:, None], columns] += np.einsum("ngcij,gco->ngoij", own, taps[..., tap[0], tap[1]])
    return narrow(total.reshape(x.shape[0], groups * per_group, *sizes), x.dtype)


@reference(mir.ConvTranspose2dOp)
def conv_transpose2d(
    x: np.ndarray,
    weight: np.ndarray,
    *,
    stride: Sequence[int] = (1, 1),
    padding: Sequence[int] = (0, 0),
    output_padding: Sequence[int] = (0, 0),
    dilation: Sequence[int] = (1, 1),
    groups: int = 1,
) -> np.ndarray:
    """Each pixel of x [N, Ci, H, W] adds its kernel of weight [Ci, Co / groups, kH, kW], in steps of `stride`."""
    windows = Windows(weight.shape[2:], stride, padding, dilation)
    sizes = [
        (size - 1) * s - 2 * p + span + more
        for size, s, p, span, more in zip(x.shape[2:], stride, padding, windows.spans, output_padding, strict=True)
    ]
    return _spread(x, weight, windows, [max(size, 0) for size in sizes], groups)


@reference(mir.Conv2dBackwardInputOp)
def conv2d_backward_input(
    dy: np.ndarray,
    weight: np.ndarray,
    x: np.ndarray,
    *,
    stride: Sequence[int] = (1, 1),
    padding: Sequence[int] = (0, 0),
    dilation: Sequence[int] = (1, 1),
    groups: int = 1,
) -> np.ndarray:
    """Each element of `dy` adds its kernel where the kernel was: of the shape of `x`."""
    return _spread(dy, weight, Windows(weight.shape[2:], stride, padding, dilation), x.shape[2:], groups)


@reference(mir.Conv2dBackwardWeightOp)
def conv2d_backward_weight(
    x: np.ndarray,
    dy: np.ndarray,
    *,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (1, 1),
    padding: Sequence[int] = (0, 0),
    dilation: Sequence[int] = (1, 1),
    groups: int = 1,
) -> np.ndarray:
    """For each position of the kernels, the products of `dy` with what of `x` was there."""
    windows = Windows(kernel_size, stride, padding, dilation)
    batch, outputs, *counts = dy.shape
    padded = _padded(x, padding)
    inputs = x.shape[1] // groups
    grouped = padded.reshape(batch, groups, inputs, *padded.shape[2:])
    own = widen(dy).reshape(batch, groups, outputs // groups, *counts)
    result = np.zeros((groups, outputs // groups, inputs, *kernel_size), own.dtype)
    for tap in np.ndindex(*kernel_size):
        rows, columns = windows.slices(tap, counts)
        result[..., tap[0], tap[1]] = np.einsum("ngcij,ngoij->goc", grouped[..., rows, columns], own)
    return narrow(result.reshape(outputs, inputs, *kernel_size), x.dtype)


# ----------------------------------------------------------------------------------------------------------------------
# Costs
# ----------------------------------------------------------------------------------------------------------------------


@cost(mir.ConvOp)
def conv_cost(op: ir.AnyOp, sizes: Sizes) -> Cost:
    """2 for each element of the result and of the kernel of its output."""
    return Cost(2 * sizes.count(op.result) * product(sizes[op.weight][1:]))


@cost(mir.ConvTranspose2dOp)
def conv_transpose2d_cost(op: ir.AnyOp, sizes: Sizes) -> Cost:
    """2 for each pixel and each element of its kernel."""
    return Cost(2 * sizes.count(op.x) * product(sizes[op.weight][1:]))


@cost(mir.Conv2dBackwardInputOp)
def conv2d_backward_input_cost(op: ir.AnyOp, sizes: Sizes) -> Cost:
    """2 for each element of `dy` and of its kernel."""
    return Cost(2 * sizes.count(op.dy) * product(sizes[op.weight][1:]))


@cost(mir.Conv2dBackwardWeightOp)
def conv2d_backward_weight_cost(op: ir.AnyOp, sizes: Sizes) -> Cost:
    """2 for each element of `dy` and of its kernel."""
    return Cost(2 * sizes.count(op.dy) * product(sizes[op.result][1:]))


# ----------------------------------------------------------------------------------------------------------------------
# Dimensions
# ----------------------------------------------------------------------------------------------------------------------


@dim_rule(mir.ConvOp)
def conv_dims(op: ir.AnyOp, operands: Sequence[tuple[Size, ...]]) -> tuple[Size, ...]:
    """[N, Co, Ho, Wo]"""
    x, weight = operands
    return (x[0], weight[0], *Windows.of(op, op.weight.type.shape[2:]).counts(x[2:]))


def transposed_sizes(op: ir.AnyOp, x: Sequence[Size]) -> list[Size]:
    """Height and width of the result of a `mir.conv_transpose2d`, negative where its padding takes away too much."""
    windows = Windows.of(op, op.weight.type.shape[2:])
    steps = zip(x[2:], windows.stride, windows.padding, windows.spans, python_value(op.output_padding), strict=True)
    return [(size - 1) * s + (span + more - 2 * p) for size, s, p, span, more in steps]


@dim_rule(mir.ConvTranspose2dOp)
def conv_transpose2d_dims(op: ir.AnyOp, operands: Sequence[tuple[Size, ...]]) -> tuple[Size, ...]:
    """[N, Co, Ho, Wo]"""
    x, weight = operands
    sizes = transposed_sizes(op, x)
    bounded = [size if is_never_negative(size) else maximum(size, Size.of(0)) for size in sizes]
    return (x[0], weight[1] * python_value(op.groups), *bounded)


@dim_rule(mir.Conv2dBackwardInputOp)
def conv2d_backward_input_dims(op: ir.AnyOp, operands: Sequence[tuple[Size, ...]]) -> tuple[Size, ...]:
    """Those of `x`."""
    return operands[2]


@dim_rule(mir.Conv2dBackwardWeightOp)
def conv2d_backward_weight_dims(op: ir.AnyOp, operands: Sequence[tuple[Size, ...]]) -> tuple[Size, ...]:
    """[Co, Ci / groups, kH, kW]"""
    x, dy = operands
    return (dy[1], x[1] // python_value(op.groups), *map(Size.of, python_value(op.kernel_size)))


# ----------------------------------------------------------------------------------------------------------------------
# Lowering to linalg
# ----------------------------------------------------------------------------------------------------------------------


def convolved(
    op: ir.AnyOp, body: Callable[[Scalar, Scalar, Scalar], Scalar], type: ir.Type | None = None, *, outside: int = 0
) -> ir.Value:
    """The sums of a convolution: of x padded and split in groups; result[n, g, o, i, j] += x[..] w[g, o, c, u, v]

    The innermost loop runs along a row of the result, where neighbours are independent of each other.

    Args:
        op: the convolution, with operands x and weight.
        body: adds the product of an element and a weight to a sum.
        type: of the sums, by default that in which x is computed.
        outside: what is read outside of x.
    """
    groups = python_value(op.groups)
    batch, channels, *sizes = sizes_of(op.x)
    outputs, inputs, *kernel = sizes_of(op.weight)
    windows = Windows.of(op, op.weight.type.shape[2:])
    if not isinstance(inputs, int):
        inputs = divided(channels, groups)
    counts = windows.counts_of(sizes)
    if 0 in counts:  # indices of no position would leave what they index
        return filled([batch, outputs, *counts], accumulator(element_type(op.x)) if type is None else type, 0)
    per_group = divided(outputs, groups)
    n, g, o, i, c, u, v, j = range(8)
    padded = with_margin(op.x, windows.padding, outside)
    split = [[0], [1, 2], [3], [4]]
    x = split_dims(padded, split, [batch, groups, inputs, *sizes_of(padded)[2:]])
    weight = split_dims(op.weight, [[0, 1], [2], [3], [4]], [groups, per_group, inputs, *kernel])
    (s, t), (d, e) = windows.stride, windows.dilation
    total = reduced(
        8,
        [(x, [n, g, c, moved(i, u, s, d), moved(j, v, t, e)]), (weight, [g, o, c, u, v])],
        [batch, groups, per_group, *counts],
        [n, g, o, i, j],
        0,
        body,
        type=type,
    )
    return collapse(total, split)


@TO_LINALG.pattern(mir.ConvOp)
def lower_conv(op: ir.AnyOp, rewriter: Rewriter) -> None:
    """conv(x, w) -> x padded with zeros; generic: result[n, g, o, i, j] += x[..] w[g, o, c, u, v]"""
    rewriter.replace(op, converted(convolved(op, lambda x, w, total: total + x * w), op.result.type))


def _transposed(x: ir.Value, weight: ir.Value, sizes: Sequence[SizeLike], windows: Windows, groups: int) -> ir.Value:
    """The kernels [Ci, Co / groups, kH, kW] of the pixels of x [N, Ci, H, W], added where they fall: [N, Co, ...sizes].

    A loop for each pixel of the result finds the pixels of x whose kernels reach it. Channels aren't split in groups:
    they are what threads share.
    """
    batch, channels, *pixels = sizes_of(x)
    inputs, per_group = sizes_of(weight)[:2]
    per_input = divided(inputs if isinstance(inputs, int) else channels, groups)

    def term(meeting: Meeting) -> Callable[[Scalar], Scalar]:
        (item, output), (own,) = meeting.outer, meeting.inner
        place = output
        if groups > 1:
            width, depth = (Scalar(as_index(size)) for size in (per_group, per_input))
            own, place = output // width * depth + own, output % width
        factor = extract(weight, [own, place, *meeting.tap]).widen()
        return lambda total: total + extract(x, [item, own, *meeting.window]).widen() * factor

    outer = [batch, times(per_group, groups)]
    return spread(outer, [per_input], pixels, sizes, windows, term, element_type(x))


@TO_LINALG.pattern(mir.ConvTranspose2dOp)
def lower_conv_transpose2d(op: ir.AnyOp, rewriter: Rewriter) -> None:
    """conv_transpose2d(x, w) -> generic: result[n, g, o, y, z] += x[n, g, c, i, j] w[g, c, o, u, v] where i, j exist"""
    windows = Windows.of(op, op.weight.type.shape[2:])
    steps = zip(
        sizes_of(op.x)[2:], windows.stride, windows.padding, windows.spans, python_value(op.output_padding), strict=True
    )
    sizes = [_extent(size, s, span + more - s - 2 * p) for size, s, p, span, more in steps]
    rewriter.replace(op, _transposed(op.x, op.weight, sizes, windows, python_value(op.groups)))


def _extent(size: SizeLike, stride: int, own: int) -> SizeLike:
    """size * stride + own, which may be negative of an image of nothing."""
    if isinstance(size, int):
        return size * stride + own
    extent = plus(times(size, stride), own)
    return extent if own >= 0 else Scalar(as_index(extent)).max(Scalar(index_constant(0))).value


@TO_LINALG.pattern(mir.Conv2dBackwardInputOp)
def lower_conv2d_backward_input(op: ir.AnyOp, rewriter: Rewriter) -> None:
    """conv2d_backward_input(dy, w, x) -> the transposed convolution of dy with w, as large as x"""
    windows = Windows.of(op, op.weight.type.shape[2:])
    sizes = sizes_of(op.x)
    found = _transposed(op.dy, op.weight, sizes[2:], windows, python_value(op.groups))
    rewriter.replace(op, cast_shape(found, sizes))  # batch and channels are those of other operands


@TO_LINALG.pattern(mir.Conv2dBackwardWeightOp)
def lower_conv2d_backward_weight(op: ir.AnyOp, rewriter: Rewriter) -> None:
    """conv2d_backward_weight(x, dy) -> generic: result[g, o, c, u, v] += x[n, g, c, ..] dy[n, g, o, i, j]"""
    groups = python_value(op.groups)
    windows = Windows.of(op, python_value(op.kernel_size))
    batch, outputs, *counts = sizes_of(op.dy)
    padded = with_margin(op.x, windows.padding, 0)
    _, channels, *sizes = sizes_of(padded)
    inputs, per_group = divided(channels, groups), divided(outputs, groups)
    kernel = list(windows.kernel)
    if 0 in (*counts, *sizes):  # indices of no position would leave what they index
        rewriter.replace(op, filled([outputs, inputs, *kernel], element_type(op.x), 0))
        return
    split = [[0], [1, 2], [3], [4]]
    x = split_dims(padded, split, [batch, groups, inputs, *sizes])
    dy = split_dims(op.dy, split, [batch, groups, per_group, *counts])
    g, o, c, u, v, n, i, j = range(8)
    (s, t), (d, e) = windows.stride, windows.dilation
    total = reduced(
        8,
        [(x, [n, g, c, moved(i, u, s, d), moved(j, v, t, e)]), (dy, [n, g, o, i, j])],
        [groups, per_group, inputs, *kernel],
        [g, o, c, u, v],
        0,
        lambda x, dy, total: total + x * dy,
    )
    rewriter.replace(op, converted(collapse(total, [[0, 1], [2], [3], [4]]), op.result.type))
