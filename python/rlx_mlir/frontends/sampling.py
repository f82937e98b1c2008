# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Images that are read at places between their pixels: what readers of graphs share."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import product

import numpy as np

from rlx_mlir.frontends import functions
from rlx_mlir.frontends.tensors import plain
from rlx_mlir.hir import GraphModule, Value
from rlx_mlir.mir.dims import Size

#: Weights of the neighbours of a place, of how far it is behind the one before.
Weights = Callable[[Value], list[Value]]
#: What is outside of images: zeros, the pixels at the border, or those that are reflected there.
PADDINGS = ("zeros", "border", "reflection")
_CUBIC = -0.75
#: Places further away than this are as far as this: pixels of an image have smaller numbers.
_FAR = float(1 << 22)


def linear_weights(t: Value) -> list[Value]:
    """Of the neighbours at 0 and 1."""
    return [1.0 - t, t]


def cubic_weights(t: Value) -> list[Value]:
    """Keys' convolution (1981) with a = -0.75, of the neighbours at -1, 0, 1 and 2."""
    a = _CUBIC

    def near(d: Value) -> Value:
        return ((a + 2) * d - (a + 3)) * d * d + 1.0

    def far(d: Value) -> Value:
        return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a

    return [far(t + 1.0), near(t), near(1.0 - t), far(2.0 - t)]


#: By the name of an interpolation, how many neighbours are before a place, and the weights of all.
KINDS: dict[str, tuple[int, Weights]] = {"linear": (0, linear_weights), "cubic": (1, cubic_weights)}


def sampled(
    m: GraphModule,
    x: Value,
    grid: Value,
    kind: str,
    padding: str,
    *,
    corners: bool,
    number: Callable[[Size, str], Value],
) -> Value:
    """Images at places of a grid.

    Args:
        m: the graph.
        x: images [N, C, D...] of f32 or f64, with r dimensions D.
        grid: places [N, P..., r] of r coordinates from -1 to 1, f32 or f64; the first is along the last dimension.
        kind: ``"nearest"``, ``"linear"`` or ``"cubic"``.
        padding: one of `PADDINGS`.
        corners: -1 and 1 are the middles of the pixels at the ends, and not their borders.
        number: a size as a value without dimensions, of an element type.

    Returns [N, C, P...], of the type of x.
    """
    rank, word = x.ndim - 2, "f64" if grid.dtype == np.float64 else "f32"
    lengths = [Size.of(size) for size in x.shape[2:]]
    places = []
    for axis, length in enumerate(lengths):
        own = m.reshape(m.narrow(grid, -1, rank - 1 - axis, 1), list(grid.shape[:-1]))
        size = number(length, word)
        place = (own + 1.0) * 0.5 * (size - 1.0) if corners else ((own + 1.0) * size - 1.0) * 0.5
        places.append(m.minimum(m.maximum(place, -_FAR), _FAR))
    image = _Image(m, x, padding, corners, lambda size: number(size, word), lambda size: number(size, "i64"))
    if kind == "nearest":
        return image.pixels([m.round(place) for place in places])
    before, weights = KINDS[kind]
    first = [functions.floor(m, place) for place in places]
    own_weights = [weights(place - at) for place, at in zip(places, first, strict=True)]
    total: Value | None = None
    for taps in product(range(len(own_weights[0])), repeat=rank):
        weight: Value | None = None
        for along, tap in zip(own_weights, taps, strict=True):
            weight = along[tap] if weight is None else weight * along[tap]
        assert weight is not None
        pixels = image.pixels([at + float(tap - before) for at, tap in zip(first, taps, strict=True)])
        column = m.reshape(weight, [grid.shape[0], 1, *grid.shape[1:-1]])
        part = pixels * (column if column.dtype == x.dtype else m.cast(column, x.dtype))
        total = part if total is None else total + part
    assert total is not None
    return total


class _Image:
    """Images whose pixels are read at whole numbers, [N, P...] of floats along each dimension."""

    def __init__(
        self,
        m: GraphModule,
        x: Value,
        padding: str,
        corners: bool,
        length: Callable[[Size], Value],
        number: Callable[[Size], Value],
    ) -> None:
        """length, number: a size as a number of the places' type, and as one that counts pixels."""
        self._m, self._shape, self._lengths = m, x.shape[:2], [Size.of(size) for size in x.shape[2:]]
        self._padding, self._corners, self._length, self._number = padding, corners, length, number
        area = plain([math.prod(self._lengths, start=Size.of(1))])
        self._rows = m.transpose(m.reshape(x, [*self._shape, *area]), [0, 2, 1])

    def pixels(self, at: Sequence[Value]) -> Value:
        """Pixels [N, C, P...]."""
        m, (n, c) = self._m, self._shape
        inside: Value | None = None
        flat: Value | None = None
        for place, length in zip(at, self._lengths, strict=True):
            if self._padding == "zeros":
                own = m.bitwise_and(m.ge(place, 0.0), m.lt(place, self._length(length)))
                inside = own if inside is None else m.bitwise_and(inside, own)
            index = self._within(place, length)
            flat = index if flat is None else flat * self._number(length) + index
        assert flat is not None
        found = m.gather(self._rows, m.reshape(flat, [n, -1]), 1, batch_dims=1)
        shape = at[0].shape[1:]
        found = m.reshape(m.transpose(found, [0, 2, 1]), [n, c, *shape])
        if inside is None:
            return found
        return m.where(m.reshape(inside, [n, 1, *shape]), found, np.zeros((), found.dtype))

    def _within(self, place: Value, length: Size) -> Value:
        """Indices of a dimension, i64, of which the nearest is taken."""
        m = self._m
        if self._padding == "reflection":
            place = self._reflected(place, length)
        last = self._number(length - 1)
        return m.minimum(m.maximum(m.cast(place, "i64"), np.int64(0)), last)

    def _reflected(self, place: Value, length: Size) -> Value:
        """Whole numbers, reflected as often as need be: at the middles of the last pixels, or their borders."""
        m, size = self._m, self._length(length)
        half = size - 1.0 if self._corners else size
        period = m.maximum(half * 2.0, 1.0)
        own = place - functions.floor(m, place / period) * period
        beyond = half if self._corners else half - 1.0
        return m.where(m.gt(own, beyond), (period if self._corners else period - 1.0) - own, own)


__all__ = ["KINDS", "PADDINGS", "sampled"]
