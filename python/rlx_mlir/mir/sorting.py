# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Loops that sort the rows of a tensor."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rlx_mlir import ir
from rlx_mlir.mir.linalg import SizeLike, as_index, empty, for_each, generic, sizes_of, write_slice
from rlx_mlir.mir.scalars import Scalar, element, extract, index


def positions_in_order(keys: ir.Value) -> ir.Value:
    """The positions of each row's keys, i32, from the largest key to the smallest; equal keys stay in order.

    Runs of 1, 2, 4, … positions are merged. Each element of what two runs become is found by itself, by bisection, so
    that threads share a row: n log2(n)^2 / 2 steps. Where n is dynamic, so are the steps: see `_by_exchanges`.

    Args:
        keys: integers [.., n], n below 2^31.

    Returns:
        [.., n], or where n is dynamic, [.., m] with at least as many, of which the first n are the positions.
    """
    sizes = sizes_of(keys)
    count = sizes[-1]
    if not isinstance(count, int):
        return _by_exchanges(keys)
    rank = len(sizes)
    source = _made(sizes, lambda _: index(rank - 1).to("i32"))
    for number in range(max(count - 1, 0).bit_length()):
        source = _made(sizes, _Merge(keys, source, rank, count, number))
    return source


def _made(sizes: Sequence[SizeLike], body: Callable[[Scalar], Scalar]) -> ir.Value:
    """Positions, each of which a function of its place gives."""
    found: ir.Value = generic(len(sizes), [], [(empty(sizes, element("i32")), range(len(sizes)))], body)
    return found


#: Doublings of 1 that reach every length.
_MOST_DOUBLINGS = 31


def _by_exchanges(keys: ir.Value) -> ir.Value:
    """The same by a bitonic network: runs of 2, 4, 8, … are made, each by exchanges over half of it, a quarter, … .

    Rows are as long as a power of two; positions behind their end come last.
    """
    sizes = sizes_of(keys)
    rank, count = len(sizes), Scalar(as_index(sizes[-1]))
    doublings = count.like(0)
    for number in range(_MOST_DOUBLINGS):
        doublings = doublings + (count > (1 << number)).select(count.like(1), 0)
    long = [*sizes[:-1], (count.like(1) << doublings).value]

    def stage(number: ir.Value, source: ir.Value) -> list[ir.Value]:
        def exchange(done: ir.Value, source: ir.Value) -> list[ir.Value]:
            step = _Exchange(keys, source, rank, count, Scalar(number) + 1, Scalar(number) - Scalar(done))
            # What a loop carries stays where it is: as a part of itself, which no pass gives another place.
            return [write_slice(_made(long, step), source, [0] * rank, long)]

        return for_each(0, (Scalar(number) + 1).value, [source], exchange)

    return for_each(0, doublings.value, [_made(long, lambda _: index(rank - 1).to("i32"))], stage)[0]


class _Exchange:
    """The body of a loop in which each position comes to stand here or 2^`far` places further, whichever is first.

    In runs of 2^`run` those come first that are before others, and the other way round in every second run.
    """

    def __init__(self, keys: ir.Value, source: ir.Value, rank: int, count: Scalar, run: Scalar, far: Scalar) -> None:
        self._keys = keys
        self._source = source
        self._rank = rank
        self._count = count
        self._run = run
        self._far = far

    def __call__(self, _: Scalar) -> Scalar:
        """The position that comes to stand at this place."""
        place = index(self._rank - 1)
        there = place ^ (place.like(1) << self._far)
        own, other = self._position(place), self._position(there)
        inside = own.max(other) < self._count.to("i32")
        mine, others = self._key(own), self._key(other)
        by_key = (mine > others) | (mine.compare("eq", others) & (own < other))
        is_first = inside.select(by_key, own < other)
        wants_first = (place < there) ^ ((place >> self._run) & 1).compare("ne", 0)
        return (is_first ^ wants_first).select(other, own)

    def _row(self) -> list[Scalar]:
        return [index(dim) for dim in range(self._rank - 1)]

    def _position(self, place: Scalar) -> Scalar:
        return extract(self._source, [*self._row(), place])

    def _key(self, position: Scalar) -> Scalar:
        """The key of a position, or of the last one that there is."""
        return extract(self._keys, [*self._row(), position.to("index").min(self._count - 1)])


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
