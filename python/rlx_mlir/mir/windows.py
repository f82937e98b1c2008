# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Windows of images: how many there are, images with a margin, and sums over the windows that a pixel is in.

Windows begin `padding` before an image, in steps of `stride`; `dilation` lies between their elements. All of them are
pairs, for height and width.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mlir.dialects import scf

from rlx_mlir import ir
from rlx_mlir.attributes import python_value
from rlx_mlir.errors import InputError
from rlx_mlir.mir.dims import Size
from rlx_mlir.mir.linalg import (
    SizeLike,
    as_index,
    collapse,
    converted,
    divided,
    element_type,
    empty,
    filled,
    generic,
    plus,
    sizes_of,
    tensor_type,
    write_slice,
)
from rlx_mlir.mir.scalars import Scalar, accumulator, extract, index


@dataclass(frozen=True)
class Windows:
    """The geometry of an operation's windows."""

    kernel: Sequence[int]
    stride: Sequence[int] = (1, 1)
    padding: Sequence[int] = (0, 0)
    dilation: Sequence[int] = (1, 1)

    @staticmethod
    def of(op: ir.AnyOp, kernel: Sequence[int]) -> Windows:
        """Those of an operation, of kernels of this size."""
        dilation = python_value(op.dilation) if hasattr(op, "dilation") else (1, 1)
        return Windows(kernel, python_value(op.stride), python_value(op.padding), dilation)

    @property
    def spans(self) -> list[int]:
        """The pixels from the first element of a window to its last one."""
        return [d * (k - 1) + 1 for d, k in zip(self.dilation, self.kernel, strict=True)]

    def counts(self, sizes: Sequence[Size]) -> list[Size]:
        """How many windows there are in an image of this height and width."""
        return [
            (size + (2 * p - span + s)) // s  # of what isn't negative, also for none
            for size, span, p, s in zip(sizes, self.spans, self.padding, self.stride, strict=True)
        ]

    def counts_of(self, sizes: Sequence[SizeLike]) -> list[SizeLike]:
        """The same of sizes in loops."""
        return [
            divided(plus(size, 2 * p - span + s), s)
            for size, span, p, s in zip(sizes, self.spans, self.padding, self.stride, strict=True)
        ]

    def counts_in(self, op: str, shape: Sequence[int]) -> list[int]:
        """The same of numbers, [N, C, H, W]; InputError where the image is more than one pixel short of a window."""
        padded = [size + 2 * p for size, p in zip(shape[2:], self.padding, strict=True)]
        if any(size < span - 1 for size, span in zip(padded, self.spans, strict=True)):
            raise InputError(
                f"{op}: 'x', {list(shape)} with padding {list(self.padding)}, must be at most one short of the "
                f"kernel, which spreads over {self.spans}"
            )
        return [(size - span) // s + 1 for size, span, s in zip(padded, self.spans, self.stride, strict=True)]

    def slices(self, tap: Sequence[int], counts: Sequence[int]) -> tuple[slice, slice]:
        """Where an image with its margin has the elements at one position of all windows."""
        rows, columns = (
            slice(at * d, at * d + max(s * (count - 1) + 1, 0), s)
            for at, d, s, count in zip(tap, self.dilation, self.stride, counts, strict=True)
        )
        return rows, columns


def with_margin(x: ir.Value, padding: Sequence[int], number: float) -> ir.Value:
    """x [N, C, H, W] with a number around its last two dimensions."""
    if not any(padding):
        return x
    own = sizes_of(x)
    before = [0, 0, *padding]
    sizes = [plus(size, 2 * p) for size, p in zip(own, before, strict=True)]
    if 0 in own:  # a slice of nothing may not start at the end
        return filled(sizes, element_type(x), number)
    return write_slice(x, filled(sizes, element_type(x), number), before, own)


def moved(position: int, tap: int, stride: int, dilation: int) -> ir.AffineExpr:
    """Where the element `tap` of window `position` is, both of which are loops."""
    return ir.AffineExpr.get_add(
        ir.AffineExpr.get_mul(ir.AffineDimExpr.get(position), stride),
        ir.AffineExpr.get_mul(ir.AffineDimExpr.get(tap), dilation),
    )


@dataclass(frozen=True)
class Meeting:
    """Where a pixel meets a window, as index values.

    Attributes:
        outer: the positions along the sizes before those of the pixel.
        inner: those along further sizes that are summed along.
        tap: the pixel's row and column in the window.
        window: the window's row and column among the windows.
    """

    outer: list[Scalar]
    inner: list[Scalar]
    tap: list[Scalar]
    window: list[Scalar]


def spread(
    outer: Sequence[SizeLike],
    inner: Sequence[SizeLike],
    counts: Sequence[SizeLike],
    sizes: Sequence[SizeLike],
    windows: Windows,
    term: Callable[[Meeting], Callable[[Scalar], Scalar]],
    target: ir.Type,
) -> ir.Value:
    """For each pixel, the sum over the windows that it is in: [outer..., H, W] of `target`.

    Pixels are counted from the first window's start, as q stride + r: neighbours of one r meet neighbouring windows,
    and so vectors of them do. Only windows that exist are read, and nothing is multiplied with what doesn't.

    Args:
        outer: sizes before those of the pixels; at least one.
        inner: sizes that are summed along, too.
        counts: of windows, in height and width.
        sizes: of the result's height and width.
        windows: their geometry.
        term: reads what there is for every meeting, of windows or none; and gives a function that adds a term to a sum,
            which is run where there is the window.
        target: the result's element type.
    """
    ahead = [p % s for p, s in zip(windows.padding, windows.stride, strict=True)]
    places = [divided(plus(size, a + s - 1), s) for size, a, s in zip(sizes, ahead, windows.stride, strict=True)]
    first = len(outer)
    rests, row = (first, first + 1), first + 2
    within = range(row + 1, row + 1 + len(inner))
    taps = (within.stop, within.stop + 1)
    column = within.stop + 2
    bounds = [Scalar(as_index(count)) for count in counts]
    # Of the positions in a window, those that are `step` apart meet pixels of one r: only they are visited for it.
    steps = [s // math.gcd(s, d) for s, d in zip(windows.stride, windows.dilation, strict=True)]
    rounds = [-(-k // step) for k, step in zip(windows.kernel, steps, strict=True)]

    def window(dim: int, place: int) -> tuple[Scalar, Scalar, Scalar, Scalar]:
        """A position in windows, whether they have it; where it is the pixel: which window, and whether there is it."""
        stride, dilation, size = windows.stride[dim], windows.dilation[dim], windows.kernel[dim]
        step, share = steps[dim], stride // steps[dim]
        rest = index(rests[dim])
        tap = rest // share * pow(dilation // share, -1, step) % step + index(taps[dim]) * step
        fits = (tap < size) & (rest % share).compare("eq", 0)
        at = index(place) + windows.padding[dim] // stride - tap * dilation // stride
        return tap.min(size - 1), fits, at, (at >= 0) & (at < bounds[dim])

    def body(_: Scalar, total: Scalar) -> Scalar:
        (u, fits_row, y, has_row), (v, fits_column, x, has_column) = window(0, row), window(1, column)
        outer_at, inner_at = ([index(loop) for loop in loops] for loops in (range(first), within))
        meeting = Meeting(outer_at, inner_at, [u, v], [y, x])
        # The first condition is one for a whole row, whose loop isn't run where it doesn't hold.
        fits = fits_row & fits_column & has_row
        add = term(meeting)
        return where(fits, lambda: where(has_column, lambda: add(total), total), total)

    type = accumulator(target)
    total = generic(
        column + 1,
        [(empty([*inner, *rounds], target), [*within, *taps])],  # sizes of loops; nothing reads it
        [(filled([*outer, *windows.stride, *places], type, 0), [*range(first), *rests, row, column])],
        body,
        reduction=[*within, *taps],
    )
    return _joined(total, outer, sizes, ahead, windows.stride, target)


def where(condition: Scalar, value: Callable[[], Scalar], otherwise: Scalar) -> Scalar:
    """A value that is computed, and what it reads read, only where a condition holds."""
    branch = scf.IfOp(condition.value, [otherwise.value.type], has_else=True)
    with ir.InsertionPoint(branch.then_block):
        scf.YieldOp([value().value])
    with ir.InsertionPoint(branch.else_block):
        scf.YieldOp([otherwise.value])
    return Scalar(branch.results[0], fast=otherwise.fast, unsigned=otherwise.unsigned)


def _joined(
    total: ir.Value,
    outer: Sequence[SizeLike],
    sizes: Sequence[SizeLike],
    ahead: Sequence[int],
    stride: Sequence[int],
    target: ir.Type,
) -> ir.Value:
    """[outer..., r, s, places, places] as [outer..., H, W]: pixels that are counted as q stride + r, in order."""
    first = len(outer)
    result = tensor_type([*outer, *sizes], target)
    if list(stride) == [1, 1]:
        groups = [*([dim] for dim in range(first - 1)), [first - 1, first, first + 1], [first + 2], [first + 3]]
        return converted(collapse(total, groups), result)

    def element(_: Scalar) -> Scalar:
        places = [index(first + dim) + ahead[dim] for dim in (0, 1)]
        rests, whole = (
            [operator(place, s) for place, s in zip(places, stride, strict=True)]
            for operator in (Scalar.__mod__, Scalar.__floordiv__)
        )
        return extract(total, [*map(index, range(first)), *rests, *whole]).to(target)

    loops = range(first + 2)
    return generic(len(loops), [], [(empty([*outer, *sizes], target), loops)], element)
