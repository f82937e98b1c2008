# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operators that put something around tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx_mlir.frontends import functions, positions
from rlx_mlir.hir.values import Value
from rlx_mlir.pytorch.graph import Importer, Unhandled, handles, static
from rlx_mlir.pytorch.handlers.shapes import size_of


@handles("aten.constant_pad_nd.default", "aten.pad.default")
def pad(im: Importer, x: Value, widths: Sequence[Any], *rest: Any, **_: Any) -> Value:
    """x with a number around it, or with less at a border where a width is negative."""
    value = rest[-1] if rest and not isinstance(rest[-1], str) and rest[-1] is not None else 0.0
    if isinstance(rest[0] if rest else None, str) and rest[0] != "constant":
        return _own(im, x, widths, rest[0])
    for number in range(len(widths) // 2):
        axis = x.ndim - 1 - number
        low, high = static(widths[2 * number], "padding"), static(widths[2 * number + 1], "padding")
        if low < 0 or high < 0:
            x = im.m.slice(x, axis, -low if low < 0 else None, high if high < 0 else None)
        parts = [_border(im, x, axis, low, value), x, _border(im, x, axis, high, value)]
        kept = [part for part in parts if part is not None]
        x = im.m.concat(kept, axis) if len(kept) > 1 else x
    return x


def _border(im: Importer, x: Value, axis: int, width: int, value: Any) -> Value | None:
    if width <= 0:
        return None
    shape = [width if at == axis else size for at, size in enumerate(x.shape)]
    return im.m.expand(im.m.reshape(im.scalar(value, im.dtype()), [1] * len(shape)), shape)


def _own(im: Importer, x: Value, widths: Sequence[Any], mode: str) -> Value:
    """x with elements of its own around it: at `reflect` those behind the border, at `replicate` that at the border."""
    m = im.m
    for number in range(len(widths) // 2):
        axis = x.ndim - 1 - number
        low, high = static(widths[2 * number], "padding"), static(widths[2 * number + 1], "padding")
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
        def own_pad(im: Importer, x: Value, widths: Sequence[Any], _word: str = _mode) -> Value:
            """x with elements of its own around it."""
            return _own(im, x, widths, "reflect" if _word == "reflection" else "replicate")
