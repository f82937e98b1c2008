# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Images: windows of them combined, larger ones, and the positions of their pixels."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from rlx_mlir import ir
from rlx_mlir.attributes import python_value
from rlx_mlir.dialects import mir
from rlx_mlir.mir.cost import Cost, Sizes, cost, per_element
from rlx_mlir.mir.dims import Size
from rlx_mlir.mir.linalg import (
    Map,
    SizeLike,
    as_index,
    collapse,
    converted,
    element_type,
    elementwise,
    empty,
    filled,
    generic,
    reduced,
    sizes_of,
)
from rlx_mlir.mir.numerics import narrow, widen
from rlx_mlir.mir.reductions import COMBINE, first_of, start_of
from rlx_mlir.mir.registry import TO_LINALG, dim_rule, reference
from rlx_mlir.mir.scalars import Scalar, accumulator, element, extract, index
from rlx_mlir.mir.windows import Meeting, Windows, moved, spread, where, with_margin
from rlx_mlir.rewriting import Rewriter

# ----------------------------------------------------------------------------------------------------------------------
# References
# ----------------------------------------------------------------------------------------------------------------------

_UFUNCS: dict[str, np.ufunc] = {
    "max": np.maximum,
    "min": np.minimum,
    "sum": np.add,
    "mean": np.add,
    "prod": np.multiply,
}


@reference(mir.PoolOp)
def pool(
    x: np.ndarray,
    *,
    kind: str,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (1, 1),
    padding: Sequence[int] = (0, 0),
) -> np.ndarray:
    """Largest, smallest, sum, mean or product of each window; what is no element of the image changes nothing."""
    windows = Windows(kernel_size, stride, padding)
    counts = windows.counts_in("mir.pool", x.shape)
    wide = widen(x)
    start = start_of(kind, wide.dtype) if kind in ("max", "min") else int(kind == "prod")
    margin = [(0, 0), (0, 0), *((p, p) for p in padding)]
    padded = np.pad(wide, margin, constant_values=start)  # type: ignore[call-overload]
    total = np.full((*x.shape[:2], *counts), start, wide.dtype)
    for tap in np.ndindex(*kernel_size):
        rows, columns = windows.slices(tap, counts)
        total = _UFUNCS[kind](total, padded[..., rows, columns])
    if kind == "mean":
        total = total / wide.dtype.type(kernel_size[0] * kernel_size[1])
    return narrow(total, x.dtype)


@reference(mir.MaxPool2dBackwardOp)
def max_pool2d_backward(
    x: np.ndarray,
    dy: np.ndarray,
    *,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (1, 1),
    padding: Sequence[int] = (0, 0),
) -> np.ndarray:
    """Each element of `dy` added where the first largest element of its window is, or the first NaN."""
    wide = widen(dy)
    result = np.zeros(x.shape, wide.dtype)
    for n, c, i, j in np.ndindex(*dy.shape):
        begins = [at * s - p for at, s, p in zip((i, j), stride, padding, strict=True)]
        (top, bottom), (left, right) = (
            (max(begin, 0), max(min(begin + k, size), 0))
            for begin, k, size in zip(begins, kernel_size, x.shape[2:], strict=True)
        )
        window = widen(x[n, c, top:bottom, left:right])
        if window.size:
            row, column = np.unravel_index(np.argmax(window), window.shape)  # NaN counts as largest
            result[n, c, top + row, left + column] += wide[n, c, i, j]
    return narrow(result, x.dtype)


@reference(mir.ResizeNearest2xOp)
def resize_nearest_2x(x: np.ndarray) -> np.ndarray:
    """Each pixel twice along height and width."""
    return x.repeat(2, axis=2).repeat(2, axis=3)


def axial_tables(
    end_x: int, end_y: int, head_dim: int, theta: float, repeat_factor: int, dtype: np.dtype
) -> tuple[np.ndarray, np.ndarray]:
    """Cosines and sines of each token's angles, [L, head_dim / 2]: those of its column, then those of its row."""
    quarter = head_dim // 4
    frequencies = float(np.float32(theta)) ** (-4.0 * np.arange(quarter) / head_dim)
    pixels = np.repeat(np.arange(end_x * end_y), repeat_factor)
    angles = np.concatenate([np.outer(pixels % end_x, frequencies), np.outer(pixels // end_x, frequencies)], axis=1)
    return np.cos(angles).astype(dtype), np.sin(angles).astype(dtype)


@reference(mir.AxialRope2dOp)
def axial_rope2d(
    x: np.ndarray, *, end_x: int, end_y: int, head_dim: int, theta: float = 1e4, repeat_factor: int = 1
) -> np.ndarray:
    """Neighbours (2c, 2c + 1) of each head rotated by angles of the token's column, in the second half of its row."""
    wide = widen(x)
    pairs = wide.reshape(*x.shape[:2], x.shape[2] // head_dim, head_dim // 2, 2)
    cos, sin = (table[:, None] for table in axial_tables(end_x, end_y, head_dim, theta, repeat_factor, wide.dtype))
    first, second = pairs[..., 0], pairs[..., 1]
    turned = np.stack([first * cos - second * sin, second * cos + first * sin], axis=-1)
    return narrow(turned.reshape(x.shape), x.dtype)


# ----------------------------------------------------------------------------------------------------------------------
# Costs
# ----------------------------------------------------------------------------------------------------------------------


@cost(mir.PoolOp)
def pool_cost(op: ir.AnyOp, sizes: Sizes) -> Cost:
    """One for each element of each window."""
    rows, columns = python_value(op.kernel_size)
    return Cost(sizes.count(op.result) * rows * columns)


@cost(mir.MaxPool2dBackwardOp)
def max_pool2d_backward_cost(op: ir.AnyOp, sizes: Sizes) -> Cost:
    """One comparison for each element of each window, and a sum."""
    rows, columns = python_value(op.kernel_size)
    return Cost(sizes.count(op.dy) * (rows * columns + 1))


#: Two products and a sum; tables are constant.
cost(mir.AxialRope2dOp)(per_element(3))


# ----------------------------------------------------------------------------------------------------------------------
# Dimensions
# ----------------------------------------------------------------------------------------------------------------------


@dim_rule(mir.PoolOp)
def pool_dims(op: ir.AnyOp, operands: Sequence[tuple[Size, ...]]) -> tuple[Size, ...]:
    """[N, C, Ho, Wo]"""
    (x,) = operands
    return (*x[:2], *Windows.of(op, python_value(op.kernel_size)).counts(x[2:]))


@dim_rule(mir.MaxPool2dBackwardOp, mir.AxialRope2dOp)
def same_dims(op: ir.AnyOp, operands: Sequence[tuple[Size, ...]]) -> tuple[Size, ...]:
    """Those of `x`."""
    return operands[0]


@dim_rule(mir.ResizeNearest2xOp)
def resize_dims(op: ir.AnyOp, operands: Sequence[tuple[Size, ...]]) -> tuple[Size, ...]:
    """[N, C, 2H, 2W]"""
    (x,) = operands
    return (*x[:2], x[2] * 2, x[3] * 2)


# ----------------------------------------------------------------------------------------------------------------------
# Lowering to linalg
# ----------------------------------------------------------------------------------------------------------------------


@TO_LINALG.pattern(mir.PoolOp)
def lower_pool(op: ir.AnyOp, rewriter: Rewriter) -> None:
    """pool(x) -> x with a margin that changes nothing; then windows' columns combined, and of these their rows

    The innermost loops run along rows, where neighbours are independent of each other.
    """
    kind, type = python_value(op.kind), element_type(op.x)
    windows = Windows.of(op, python_value(op.kernel_size))
    batch, channels, *sizes = sizes_of(op.x)
    counts = windows.counts_of(sizes)
    if 0 in counts:  # indices of no position would leave what they index
        rewriter.replace(op, filled([batch, channels, *counts], type, 0))
        return
    start = first_of(kind, type)
    n, c, i, tap, j = range(5)

    def combined(x: ir.Value, dim: int, sizes: Sequence[SizeLike]) -> ir.Value:
        """The windows of one dimension."""
        places: list[int | ir.AffineExpr] = [i, j]
        places[dim] = moved((i, j)[dim], tap, windows.stride[dim], 1)
        lengths = (empty([windows.kernel[dim]], type), [tap])  # the size of a loop; nothing reads it
        inputs: list[tuple[ir.Value, Map]] = [(x, [n, c, *places]), lengths]
        total = [batch, channels, *sizes]
        return reduced(5, inputs, total, [n, c, i, j], start, lambda x, _, total: COMBINE[kind](x, total))

    padded = with_margin(op.x, windows.padding, start)
    columns = combined(padded, 0, [counts[0], sizes_of(padded)[3]])
    total = combined(columns, 1, counts)
    if kind == "mean":
        count = windows.kernel[0] * windows.kernel[1]
        rewriter.replace(op, elementwise(op.result.type, [total], lambda total: total / count))
    else:
        rewriter.replace(op, converted(total, op.result.type))


def _first_largest(x: ir.Value, windows: Windows, counts: Sequence[SizeLike]) -> ir.Value:
    """The position of each window's first largest element within it, row by row; -1 where it has none."""
    batch, channels, *sizes = sizes_of(x)
    n, c, i, u, v, j = range(6)
    type, word = accumulator(element_type(x)), element("i32")
    outer = [batch, channels, *counts]
    bounds = [Scalar(as_index(size)) for size in sizes]

    def better(_: Scalar, best: Scalar, at: Scalar) -> tuple[Scalar, Scalar]:
        places = [
            index(position) * s + index(tap) - p
            for position, tap, s, p in zip((i, j), (u, v), windows.stride, windows.padding, strict=True)
        ]
        inside = [(place >= 0) & (place < bound) for place, bound in zip(places, bounds, strict=True)]
        image = [index(n), index(c)]
        own = where(inside[0] & inside[1], lambda: extract(x, [*image, *places]).widen(), best)
        wins = (own > best) | (own.compare("ne", own) & best.compare("eq", best)) | (at < 0)
        wins = wins & inside[0] & inside[1]
        return wins.select(own, best), wins.select((index(u) * windows.kernel[1] + index(v)).to("i32"), at)

    start = [(filled(outer, type, float("-inf")), [n, c, i, j]), (filled(outer, word, -1), [n, c, i, j])]
    taps = (empty(list(windows.kernel), type), [u, v])
    return generic(6, [taps], start, better, reduction=[u, v])[1]


@TO_LINALG.pattern(mir.MaxPool2dBackwardOp)
def lower_max_pool2d_backward(op: ir.AnyOp, rewriter: Rewriter) -> None:
    """max_pool2d_backward(x, dy) -> where each window's largest element is; then what of dy each pixel is that of"""
    windows = Windows.of(op, python_value(op.kernel_size))
    *outer, height, width = sizes_of(op.x)
    counts = sizes_of(op.dy)[2:]
    largest = _first_largest(op.x, windows, counts)
    type = element_type(op.x)

    def term(meeting: Meeting) -> Callable[[Scalar], Scalar]:
        at, (u, v) = [*meeting.outer, *meeting.window], meeting.tap
        tap = (u * windows.kernel[1] + v).to("i32")

        def added(total: Scalar) -> Scalar:
            return extract(largest, at).compare("eq", tap).select(total + extract(op.dy, at).widen(), total)

        return added

    found = spread(outer, [], counts, [height, width], windows, term, type)
    rewriter.replace(op, converted(found, op.result.type))


@TO_LINALG.pattern(mir.ResizeNearest2xOp)
def lower_resize_nearest_2x(op: ir.AnyOp, rewriter: Rewriter) -> None:
    """resize_nearest_2x(x) -> generic: result[n, c, i, a, j, b] = x[n, c, i, j], with a and b of size 2 joined"""
    batch, channels, height, width = sizes_of(op.x)
    sizes = [batch, channels, height, 2, width, 2]
    loops = range(6)
    n, c, i, _, j, _ = loops
    target = (empty(sizes, element_type(op.x)), loops)
    doubled = generic(6, [(op.x, [n, c, i, j])], [target], lambda x, _: x)
    rewriter.replace(op, collapse(doubled, [[0], [1], [2, 3], [4, 5]]))
