# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Loops that sort the rows of a tensor."""

from __future__ import annotations

from collections.abc import Callable

from rlx_mlir import ir
from rlx_mlir.mir.linalg import empty, generic, sizes_of
from rlx_mlir.mir.scalars import Scalar, element, extract, index


def positions_in_order(keys: ir.Value) -> ir.Value:
    """The positions of each row's keys, i32 [.., n], from the largest key to the smallest; equal keys stay in order.

    Runs of 1, 2, 4, … positions are merged. Each element of what two runs become is found by itself, by bisection, so
    that threads share a row: n log2(n)^2 / 2 steps.

    Args:
        keys: integers [.., n]; n is static.
    """
    sizes = sizes_of(keys)
    count = sizes[-1]
    assert isinstance(count, int), "rows are of a known length"
    rank = len(sizes)
    loops = range(rank)

    def made(body: Callable[[Scalar], Scalar]) -> ir.Value:
        """Positions, each of which a function of its place gives."""
        found: ir.Value = generic(rank, [], [(empty(sizes, element("i32")), loops)], body)
        return found

    source = made(lambda _: index(rank - 1).to("i32"))
    for number in range(max(count - 1, 0).bit_length()):
        source = made(_Merge(keys, source, rank, count, number))
    return source


class _Merge:
    """The body of a loop that merges neighbouring runs of 2^`number` positions."""

    def __init__(self, keys: ir.Value, source: ir.Value, rank: int, count: int, number: int) -> None:
        self._keys = keys
        self._source = source
        self._rank = rank
        self._count = count
        self._number = number

    def __call__(self, _: Scalar) -> Scalar:
        """The position that comes to stand at this place."""
        width = 1 << self._number
        place = index(self._rank - 1)
        begin = place - place % (2 * width)
        middle, end = (begin + width).min(self._count), (begin + 2 * width).min(self._count)
        before = place - begin
        # How many of those before this place are of the first run: between `low` and `high`.
        low, high = (before - (end - middle)).max(0), before.min(middle - begin)
        for _step in range(self._number + 1):
            half = (low + high) // 2
            first, second = begin + half, middle + (before - half) - 1
            is_open = low < high
            earlier = is_open & (self._key(first) >= self._key(second))
            low, high = earlier.select(half + 1, low), (is_open & (earlier ^ 1)).select(half, high)
        first, second = begin + low, middle + (before - low)
        fits = (first < middle) & (second.compare("ge", end) | (self._key(first) >= self._key(second)))
        return fits.select(self._position(first), self._position(second))

    def _at(self, place: Scalar) -> list[Scalar]:
        """A place in this row, moved to the nearest that there is."""
        return [*(index(dim) for dim in range(self._rank - 1)), place.max(0).min(self._count - 1)]

    def _position(self, place: Scalar) -> Scalar:
        return extract(self._source, self._at(place))

    def _key(self, place: Scalar) -> Scalar:
        """The key of what stands at a place now."""
        return extract(self._keys, [*(index(dim) for dim in range(self._rank - 1)), self._position(place).to("index")])
