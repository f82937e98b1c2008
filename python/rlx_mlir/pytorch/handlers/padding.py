# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operators that put something around tensors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from rlx_mlir.frontends import functions, positions
from rlx_mlir.hir.values import Value
from rlx_mlir.pytorch.graph import Dimension, Importer, Unhandled, handles, size_of, static


@handles("aten.constant_pad_nd.default", "aten.pad.default")
def pad(im: Importer, x: Value, widths: Sequence[Dimension], *rest: Any, **_: object) -> Value:
    """x with a number around it, or with less at a border where a width is negative."""
    value = rest[-1] if rest and not isinstance(rest[-1], str) and rest[-1] is not None else 0.0
    if isinstance(rest[0] if rest else None, str) and rest[0] != "constant":
        return _own(im, x, widths, rest[0])
    for axis, low, high in _sides(x, widths):
        if low < 0 or high < 0:
            x = im.m.slice(x, axis, -low if low < 0 else None, high if high < 0 else None)
        x = _around(im, x, axis, (low, high), im.scalar(value, im.dtype()))
    return x


def padded(im: Importer, x: Value, widths: Sequence[tuple[int, int]], fill: float) -> Value:
    """x with one number before and after its last dimensions."""
    number = im.m.constant(np.asarray(fill).astype(x.dtype))
    for axis, sides in enumerate(widths, x.ndim - len(widths)):
        x = _around(im, x, axis, sides, number)
    return x


def _around(im: Importer, x: Value, axis: int, widths: tuple[int, int], number: Value) -> Value:
    """x with a number before and after one dimension; where a width isn't above 0, nothing is there."""
    parts = [x]
    for width, at in zip(widths, (0, 2), strict=True):
        if width > 0:
            shape = [width if dim == axis else size for dim, size in enumerate(x.shape)]
            parts.insert(at, im.m.expand(im.m.reshape(number, [1] * x.ndim), shape))
    return im.m.concat(parts, axis) if len(parts) > 1 else x


def _sides(x: Value, widths: Sequence[Dimension]) -> Iterator[tuple[int, int, int]]:
    """Dimensions, from the last one on, and how wide their padding is before and after."""
    for number in range(len(widths) // 2):
        before, after = (static(own, "padding") for own in widths[2 * number : 2 * number + 2])
        yield x.ndim - 1 - number, before, after


def _own(im: Importer, x: Value, widths: Sequence[Dimension], mode: str) -> Value:
    """x with elements of its own around it: at `reflect` those behind the border, at `replicate` that at the border."""
    m = im.m
    for axis, low, high in _sides(x, widths):
        if low == high == 0:
            continue
        last = im.scalar(size_of(x.shape[axis]) - 1, "i64")
        count = size_of(x.shape[axis]) + low + high
        places = im.iota(positions.words([count]), 0, "i64") - np.int64(low)
        if mode == "reflect":
            places = functions.magnitude(m, places)
            places = last - functions.magnitude(m, last - places)
        elif mode == "replicate":
            places = m.minimum(m.maximum(places, np.int64(0)), last)
        elif mode == "circular":
            places = m.floor_rem(places, last + np.int64(1))
        else:
            raise Unhandled(f"padding by '{mode}'")
        x = m.gather(x, places, axis)
    return x


for _mode in ("reflection", "replication"):
    for _rank in (1, 2, 3):

        @handles(f"aten.{_mode}_pad{_rank}d.default")
        def own_pad(im: Importer, x: Value, widths: Sequence[Dimension], _word: str = _mode) -> Value:
            """x with elements of its own around it."""
            return _own(im, x, widths, "reflect" if _word == "reflection" else "replicate")
