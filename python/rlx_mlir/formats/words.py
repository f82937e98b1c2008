# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Quantisation of blocks whose codes are words of a grid, and whose sub-blocks have integers for scales.

For a given scale the best word of a group of elements is the one of the least squared error, found among all of them:
of elements x with weights w and a word's numbers v, times a scale s, the error is the sum of w x^2 less

    s (2 (w x) . v - s w . v^2),

two products of matrices for all groups and words. For given words the best scale of a sub-block, and the best float of
a block for given integers, follow from the sums of w x v and w v^2. Each sub-block first gets the scale that it would
have alone, from the best one without a grid; then floats, integers and words are improved in turns.

Signs are those of the elements. Where a group has an even number of them, the element of the least |w x| may have the
other one. Words that are moved up or down are tried both ways.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from . import grids
from .descriptions import BlockFormat, Grid
from .search import Elements, Floats, Levels, best_scale, inverse

Integers = npt.NDArray[np.intp]

_ALONE = tuple(1 + step / 12 for step in range(-4, 5))
"""What scales that map the largest element to the largest number are multiplied by, where there is no grid."""

_NEAR = (0.8, 1.0, 1.2)
"""What the best scale without a grid is multiplied by."""

_TOPS = tuple(1 + step / 16 for step in range(-3, 9))
"""What the float that gives the largest scale the largest integer is multiplied by."""

_PRODUCT = 1 << 14
"""Results of a product of matrices: so few that BLAS leaves them to the thread that asks."""

_SCORES = 1 << 18
"""Scores that are computed at a time: they stay in the cache."""


@dataclass(frozen=True)
class WordCodes:
    """What blocks store.

    Attributes:
        d: f32 [blocks], of magnitudes divided as the elements are; the float that is stored, times the unit.
        scales: integers, [blocks, sub-blocks].
        codes: uint8 [blocks, elements].
    """

    d: Floats
    scales: Floats
    codes: npt.NDArray[np.uint8]


@dataclass(frozen=True)
class _Table:
    """The words of a grid that all have one sign, or a sign for each element.

    Attributes:
        numbers: f32 [words, elements of a group].
        right: f32 [2 * elements of a group, words]: the numbers, and below them their squares.
    """

    numbers: Floats
    right: Floats

    @classmethod
    def of(cls, numbers: Floats) -> _Table:
        """The table of some words' numbers."""
        return cls(numbers, np.ascontiguousarray(np.concatenate([numbers, numbers * numbers], axis=1).T))


@dataclass(frozen=True)
class _Groups:
    """Elements that are words, [groups, elements of a group], those of a sub-block one after the other.

    Attributes:
        fmt: their format.
        x: elements, whose signs are taken away where a word has one for each.
        negative: which signs were.
        w: their weights.
        wx: elements times weights.
        tables: of the words' numbers, one for each way in which all digits are moved.
        each: groups of a sub-block.
        moved: groups that are moved in the same way.
    """

    fmt: BlockFormat
    x: Floats
    negative: npt.NDArray[np.bool_]
    w: Floats
    wx: Floats
    tables: tuple[_Table, ...]
    each: int
    moved: int


@dataclass(frozen=True)
class _Words:
    """Words of all groups, and what errors of their sub-blocks depend on.

    Attributes:
        index: of the words, [groups].
        table: of which table, [groups].
        products, squares: sums of w x v and w v^2, f32 [sub-blocks].
    """

    index: Integers
    table: Integers
    products: Floats
    squares: Floats

    def where(self, better: npt.NDArray[np.bool_], other: _Words) -> _Words:
        """These words, or in some sub-blocks others."""
        wide = np.repeat(better, len(self.index) // len(better))
        return _Words(
            np.where(wide, other.index, self.index),
            np.where(wide, other.table, self.table),
            np.where(better, other.products, self.products),
            np.where(better, other.squares, self.squares),
        )


def _digits(grid: Grid) -> npt.NDArray[np.uint8]:
    """The digits of all words, [words, elements of a group]."""
    shifts = np.arange(grid.length, dtype=np.uint16) * np.uint16(grid.digit_bits)
    words = grids.table(grid.table)[:, None] >> shifts
    found: npt.NDArray[np.uint8] = words.astype(np.uint8) & np.uint8((1 << grid.digit_bits) - 1)
    return found


def _groups(fmt: BlockFormat, x: Floats, w: Floats) -> _Groups:
    """Elements [elements of all blocks] as groups."""
    grid = fmt.grid
    assert grid is not None
    digits, numbers = _digits(grid), fmt.numbers.astype(np.float32)
    x, w = x.reshape(-1, grid.length), w.reshape(-1, grid.length)
    each = fmt.sub // grid.length
    if grid.sign_bits == 1:
        tables = tuple(_Table.of(numbers[digits | sign << grid.digit_bits]) for sign in (0, 1))
        moved = sum(plane.count for plane in grid.signs[:1])
        return _Groups(fmt, x, np.zeros(x.shape, bool), w, w * x, tables, each, fmt.block // moved // grid.length)
    negative = x < 0
    if grid.sign_bits == 7:  # eight elements have them, in one word or two
        eight = negative.reshape(-1, 8)
        least = np.abs(w * x).reshape(-1, 8).argmin(axis=1)
        eight[np.arange(len(eight)), least] ^= eight.sum(axis=1) % 2 == 1
    x = np.where(negative, -x, x)
    return _Groups(fmt, x, negative, w, w * x, (_Table.of(numbers[digits]),), each, 1)


def _left(groups: _Groups, scale: Floats, words: int) -> Iterator[tuple[slice, Floats]]:
    """The left side of the products, [products, groups of one, 2 * elements of a group], a piece at a time."""
    rows = max(1, _PRODUCT // words)
    step = rows * max(1, _SCORES // (rows * words))
    for start in range(0, len(groups.x), step):
        own = slice(start, min(start + step, len(groups.x)))
        count = own.stop - start
        left = np.zeros((-(-count // rows) * rows, 2 * groups.x.shape[1]), np.float32)
        np.multiply(groups.wx[own], np.float32(2), out=left[:count, : groups.x.shape[1]])
        np.multiply(groups.w[own], -scale[own, None], out=left[:count, groups.x.shape[1] :])
        yield own, left.reshape(-1, rows, left.shape[1])


def _best_words(groups: _Groups, scale: Floats) -> _Words:
    """The words of the least errors.

    Args:
        groups: of elements.
        scale: f32 [sub-blocks], 0 or positive.
    """
    each = np.repeat(scale, groups.each)
    count = len(groups.x)
    index = np.zeros((len(groups.tables), count), np.intp)
    score = np.zeros((len(groups.tables), count), np.float32)
    for number, table in enumerate(groups.tables):
        for own, left in _left(groups, each, len(table.numbers)):
            scores = np.matmul(left, table.right).reshape(-1, len(table.numbers))[: own.stop - own.start]
            found = scores.argmax(axis=1)
            index[number, own] = found
            if len(groups.tables) > 1:
                score[number, own] = scores[np.arange(len(found)), found]
    which = score.reshape(len(groups.tables), -1, groups.moved).sum(axis=2).argmax(axis=0)
    which = np.repeat(which, groups.moved)
    chosen = index[which, np.arange(count)]
    v = np.stack([table.numbers for table in groups.tables])[which, chosen]
    products = np.einsum("ge,ge->g", groups.wx, v).reshape(-1, groups.each).sum(axis=1)
    squares = np.einsum("ge,ge,ge->g", groups.w, v, v).reshape(-1, groups.each).sum(axis=1)
    return _Words(chosen, which, products, squares)


def _alone(groups: _Groups) -> tuple[_Words, Floats]:
    """Words and scales of sub-blocks, each by itself."""
    columns = Elements(*(np.ascontiguousarray(of.reshape(-1, groups.fmt.sub).T) for of in (groups.x, groups.w)))
    largest = np.abs(columns.x).max(axis=0)
    first, least = np.zeros_like(largest), np.full_like(largest, np.inf)
    for table in groups.tables:
        numbers = np.unique(table.numbers).astype(int)
        levels = Levels(int(numbers[0]), int(numbers[-1]), tuple(int(number) for number in numbers))
        top = np.float32(np.abs(numbers).max())
        own = np.abs(best_scale(columns, levels, [largest / (top * np.float32(near)) for near in _ALONE]))
        error = columns.error(levels.nearest(columns.x, inverse(own)) * own)
        first, least = np.where(error < least, own, first), np.minimum(error, least)
    best, scale, gain = None, np.zeros_like(largest), np.full_like(largest, -1)
    for near in _NEAR if len(groups.tables) == 1 else (1.0,):  # twice as many words are near more elements
        words = _best_words(groups, first * np.float32(near))
        own = np.maximum(words.products, 0) * inverse(words.squares)
        better = own * words.products > gain
        gain, scale = np.where(better, own * words.products, gain), np.where(better, own, scale)
        best = words if best is None else best.where(better, words)
    assert best is not None
    return best, scale


def quantised_words(
    fmt: BlockFormat, own: Floats, weights: Floats, exponents: np.ndarray, rounds: int = 1
) -> WordCodes:
    """Codes of small squared error.

    Floats that the format can't store are infinite.

    Args:
        fmt: of words of a grid, and sub-blocks with integers for scales.
        own: f32 [blocks, elements], of magnitudes up to 1.
        weights: what errors count, of the same shape.
        exponents: [blocks], of the powers of two that blocks were divided by: what is stored is so much larger.
        rounds: of improving words for given floats and integers, and these for given words.
    """
    what = fmt.scale
    assert what is not None
    low, high = what.range
    groups = _groups(fmt, own.reshape(-1), weights.reshape(-1))
    shape = (len(own), fmt.block // fmt.sub)

    def stored(d: Floats) -> Floats:
        """Floats of blocks as the format stores them."""
        with np.errstate(over="ignore"):
            rounded = np.ldexp(d / np.float32(fmt.unit), exponents).astype(np.float16).astype(np.float32)
        found: Floats = np.ldexp(rounded, -exponents) * np.float32(fmt.unit)
        return found

    def integers(ratio: Floats) -> Floats:
        step = np.float32(what.step)
        found: Floats = np.clip(np.rint((ratio - low) / step) * step + low, low, high)
        return found

    def improved(words: _Words, starts: list[Floats]) -> tuple[Floats, Floats]:
        """Floats and integers for given words."""
        p, q = words.products.reshape(shape), words.squares.reshape(shape)
        alone = p * inverse(q)
        best, scales, gain = starts[0], np.full(shape, low, np.float32), np.full(shape[0], -np.inf, np.float32)
        for start in starts:
            d = start
            for _ in range(3):
                s = integers(alone * inverse(d)[:, None])
                found = (d[:, None] * s * (2 * p - d[:, None] * s * q)).sum(axis=1)
                better = found > gain
                best, gain = np.where(better, d, best), np.where(better, found, gain)
                scales = np.where(better[:, None], s, scales)
                d = stored(np.maximum((s * p).sum(axis=1), 0) * inverse((s * s * q).sum(axis=1)))
        return best, scales

    words, scale = _alone(groups)
    top = scale.reshape(shape).max(axis=1) / np.float32(high)
    d, scales = improved(words, [stored(top * np.float32(near)) for near in _TOPS])
    for _ in range(rounds):
        words = _best_words(groups, (d[:, None] * scales).reshape(-1))
        d, scales = improved(words, [d])
    words = _best_words(groups, (d[:, None] * scales).reshape(-1))
    d = np.where(np.isfinite(stored(top)), d, np.float32(np.inf))  # a search finds that 0 is better than infinity
    return WordCodes(d, scales, _codes(groups, words).reshape(own.shape))


def _codes(groups: _Groups, words: _Words) -> npt.NDArray[np.uint8]:
    """The codes of all elements, [groups, elements of a group]."""
    grid = groups.fmt.grid
    assert grid is not None
    signs = groups.negative | (words.table[:, None] == 1)
    codes = _digits(grid)[words.index]
    codes |= signs.astype(np.uint8) << np.uint8(grid.digit_bits)
    return codes


__all__ = ["WordCodes", "quantised_words"]
