# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operators that resize images, and that read them at places between their pixels.

Where a row of the result is in the image follows from both sizes: it is computed in the graph, once where both are
known, so that calls may decide about them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from rlx_mlir.frontends import functions, positions, sampling
from rlx_mlir.hir.values import Value
from rlx_mlir.mir.dims import Size
from rlx_mlir.pytorch.graph import Dimension, Handler, Importer, handles, size_of


def _apart(im: Importer, own: Size, wanted: Size, scale: float | None, corners: bool) -> Value:
    """How far apart rows of the result are in the image, f32."""
    if corners:
        large, small = im.scalar(own - 1, "f32"), im.scalar(wanted - 1, "f32")
        return im.m.where(im.m.gt(small, 0.0), large / im.m.maximum(small, 1.0), 0.0)
    if scale is not None:
        return im.number(1.0 / scale, "f32")
    return im.scalar(own, "f32") / im.scalar(wanted, "f32")


def _within(im: Importer, at: Value, own: Size) -> Value:
    """Whole numbers of f32 as indices of a dimension, of which the nearest is taken."""
    last = im.scalar(own - 1, "i64")
    return im.m.minimum(im.m.maximum(im.cast(at, "i64"), np.int64(0)), last)


def _scales(given: Sequence[float | None] | None, rank: int) -> list[float | None]:
    """The factors that a call names, which count in place of the sizes."""
    return [None] * rank if given is None else [None if own is None else float(own) for own in given]


def _dimensions(
    im: Importer, x: Value, scales: list[float | None]
) -> Iterator[tuple[int, Size, Size, Value, float | None]]:
    """Of each dimension that changes: its number, its size before and after, numbers of rows (f32), and its factor."""
    for number, scale in enumerate(scales):
        axis = x.ndim - len(scales) + number
        own, wanted = size_of(x.shape[axis]), im.sizes()[axis]
        if own != wanted or scale not in (None, 1.0):
            rows = im.m.cast(im.iota(positions.words([wanted]), 0, "i64"), "f32")
            yield axis, own, wanted, rows, scale


def _resized(im: Importer, x: Value, kind: str, corners: bool, scales: list[float | None]) -> Value:
    m, dtype = im.m, im.dtype()
    before, weights = sampling.KINDS[kind]
    word = "f64" if dtype == "f64" else "f32"
    wide = im.cast(x, word)
    for axis, own, wanted, rows, scale in _dimensions(im, x, scales):
        apart = _apart(im, own, wanted, scale, corners)
        places = rows * apart if corners else (rows + 0.5) * apart - 0.5
        if kind == "linear":
            places = m.maximum(places, 0.0)
        first = functions.floor(m, places)
        total: Value | None = None
        for tap, weight in enumerate(weights(places - first)):
            column = m.reshape(im.cast(weight, word), [-1, *[1] * (x.ndim - 1 - axis)])
            part = m.gather(wide, _within(im, first + float(tap - before), own), axis) * column
            total = part if total is None else total + part
        assert total is not None
        wide = total
    return im.reshaped(im.cast(wide, dtype))


def _interpolation(kind: str) -> tuple[Handler, Handler]:
    def of_factors(
        im: Importer, x: Value, size: Sequence[Dimension] | None, corners: bool, factors: Sequence[float] | None = None
    ) -> Value:
        return _resized(im, x, kind, corners, _scales(factors, x.ndim - 2))

    def of_sizes(
        im: Importer, x: Value, size: Sequence[Dimension] | None, corners: bool, *factors: float | None
    ) -> Value:
        return _resized(im, x, kind, corners, _scales(factors or None, x.ndim - 2))

    return of_factors, of_sizes


for _name, _kind in {
    "upsample_linear1d": "linear",
    "upsample_bilinear2d": "linear",
    "upsample_trilinear3d": "linear",
    "upsample_bicubic2d": "cubic",
}.items():
    _of_factors, _of_sizes = _interpolation(_kind)
    handles(f"aten.{_name}.vec")(_of_factors)
    handles(f"aten.{_name}.default")(_of_sizes)


# -- the nearest pixel ---------------------------------------------------------------------------------------------


def _nearest(im: Importer, x: Value, scales: list[float | None]) -> Value:
    """Row i of the result is row floor(i s) of the image; of the exact kind floor((i + 0.5) s)."""
    whole = [
        large.divided_by(small)
        for large, small in zip(im.sizes()[2:], im.sizes(im.node.args[0].meta["val"])[2:], strict=True)
    ]
    if all(each is not None and each.constant is not None for each in whole):
        return _repeated(im, x, [each.constant or 1 for each in whole if each is not None])
    is_exact = "exact" in str(im.node.target)
    for axis, own, wanted, rows, scale in _dimensions(im, x, scales):
        apart = _apart(im, own, wanted, scale, False)
        places = functions.floor(im.m, (rows + 0.5) * apart if is_exact else rows * apart)
        x = im.m.gather(x, _within(im, places, own), axis)
    return im.reshaped(x)


def _repeated(im: Importer, x: Value, times: Sequence[int]) -> Value:
    """Each pixel several times."""
    apart, wide = list(x.shape[:2]), list(x.shape[:2])
    for size, count in zip(x.shape[2:], times, strict=True):
        apart += [size, 1]
        wide += [size, count]
    return im.reshaped(im.m.expand(im.m.reshape(x, apart), wide))


def _nearest_of_factors(
    im: Importer, x: Value, size: Sequence[Dimension] | None, factors: Sequence[float] | None = None
) -> Value:
    return _nearest(im, x, _scales(factors, x.ndim - 2))


def _nearest_of_sizes(im: Importer, x: Value, size: Sequence[Dimension] | None, *factors: float | None) -> Value:
    return _nearest(im, x, _scales(factors or None, x.ndim - 2))


for _name in ("upsample_nearest{}d", "_upsample_nearest_exact{}d"):
    for _rank in (1, 2, 3):
        handles(f"aten.{_name.format(_rank)}.vec")(_nearest_of_factors)
        handles(f"aten.{_name.format(_rank)}.default")(_nearest_of_sizes)


# -- places that are given -----------------------------------------------------------------------------------------


@handles("aten.grid_sampler_2d.default", "aten.grid_sampler_3d.default")
def grid_sampler(im: Importer, x: Value, grid: Value, mode: int, padding: int, corners: bool) -> Value:
    """Images [N, C, H, W] at places (x, y) of a grid [N, P, Q, 2], from -1 to 1: [N, C, P, Q]; volumes alike.

    The operator's numbers of modes are 0 for linear, 1 for the nearest pixel, 2 for cubic; those of what is outside
    are places in `sampling.PADDINGS`.
    """
    word = "f64" if im.dtype() == "f64" else "f32"
    kind = ("linear", "nearest", "cubic")[mode]
    wide, places = im.cast(x, word), im.cast(grid, word)
    found = sampling.sampled(im.m, wide, places, kind, sampling.PADDINGS[padding], corners=corners, number=im.scalar)
    return im.reshaped(im.cast(found, im.dtype()))
