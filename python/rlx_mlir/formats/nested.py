# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Quantisation of blocks whose sub-blocks have integers for scales and minima, which floats of the block multiply."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .descriptions import BlockFormat, Scaled
from .search import Elements, Floats, Levels, best_line, best_scale, dot, inverse

_SCALES = tuple(1 + step / 24 for step in range(-6, 5))
_LINES = tuple(1 + step / 24 for step in range(-10, 4))


@dataclass(frozen=True)
class NestedCodes:
    """What a block stores.

    Attributes:
        d, dmin: f32 [blocks], times the format's unit what it stores; dmin is None where it has no minima.
        scales, minima: integers, f32 [blocks, sub-blocks].
        q: the numbers of the elements, f32 [elements of a sub-block, blocks, sub-blocks].
    """

    d: Floats
    scales: Floats
    dmin: Floats | None
    minima: Floats | None
    q: Floats


def levels_of(fmt: BlockFormat) -> Levels:
    """The numbers of a format's codes."""
    numbers = np.sort(fmt.numbers)
    whole = np.array_equal(numbers, np.arange(numbers[0], numbers[-1] + 1))
    return Levels(int(numbers[0]), int(numbers[-1]), () if whole else tuple(int(n) for n in numbers))


@dataclass(frozen=True)
class _Blocks:
    """Blocks that are quantised together.

    Attributes:
        fmt: their format.
        own: columns are sub-blocks, those of a block one after the other.
        exponents: by which power of two the numbers of each block were divided.
        count: sub-blocks of a block.
    """

    fmt: BlockFormat
    own: Elements
    exponents: np.ndarray
    count: int

    def stored(self, what: Scaled | None, d: Floats) -> Floats:
        """Floats of blocks, [blocks], as the format stores them."""
        assert what is not None
        unit = np.float32(self.fmt.unit)
        rounded = np.ldexp(d / unit, self.exponents).astype(self.fmt.field(what.field).dtype).astype(np.float32)
        found: Floats = np.ldexp(rounded, -self.exponents) * unit
        return found

    def by_block(self, columns: Floats) -> Floats:
        """[blocks, sub-blocks] of numbers of columns."""
        return columns.reshape(-1, self.count)

    def columns(self, d: Floats, integers: Floats) -> Floats:
        """Floats of blocks times integers, by columns."""
        return (d[:, None] * integers).reshape(-1)


@dataclass
class _State:
    """What is best so far: floats [blocks], integers [blocks, sub-blocks], and errors of columns."""

    d: Floats
    scales: Floats
    dmin: Floats
    minima: Floats
    error: Floats


def _snapped(what: Scaled, ratio: Floats) -> Floats:
    """The nearest factors that a scale or minimum can have."""
    low, high = what.range
    step = np.float32(what.step)
    found: Floats = np.clip(np.rint((ratio - low) / step) * step + low, low, high)
    return found


def _first(blocks: _Blocks, what: Scaled, factors: Floats) -> tuple[Floats, Floats]:
    """A float and integers whose products are near some factors, [blocks, sub-blocks]: the factor of the largest
    magnitude has the integer of the largest magnitude."""
    low, high = what.range
    at = np.abs(factors).argmax(axis=1)[:, None]
    d = blocks.stored(what, np.take_along_axis(factors, at, axis=1)[:, 0] / np.float32(low if -low > high else high))
    return d, _snapped(what, factors * inverse(d)[:, None])


def quantised_blocks(fmt: BlockFormat, own: Elements, exponents: np.ndarray, *, rounds: int = 2) -> NestedCodes:
    """Codes of small squared error.

    Floats that the format can't store are infinite, as they are the first time that they are found.

    Args:
        fmt: has sub-blocks with integers for scales.
        own: sub-blocks as columns, those of a block one after the other, of magnitudes up to 1.
        exponents: of the powers of two that blocks were divided by: what is stored is so much larger.
        rounds: of improving integers for given floats, and floats for given integers.
    """
    assert fmt.scale is not None
    levels, count = levels_of(fmt), fmt.block // fmt.sub
    blocks = _Blocks(fmt, own, exponents, count)
    zeros = np.zeros((len(exponents), count), np.float32)
    if fmt.minimum is None:
        ends = {levels.least, levels.most} if levels.table else {levels.least}
        starts = [own.largest / np.float32(end * near) for end in ends if end for near in _SCALES]
        scale = best_scale(own, levels, starts)
        dmin, minima = zeros[:, 0], zeros
    else:
        scale, minimum = best_line(own, levels.most, _LINES)
        dmin, minima = _first(blocks, fmt.minimum, blocks.by_block(minimum * np.float32(fmt.minimum_sign)))
    d, scales = _first(blocks, fmt.scale, blocks.by_block(scale))
    state = _State(d, scales, dmin, minima, np.full(own.x.shape[1], np.inf, np.float32))
    if not np.isfinite(d).all() or not np.isfinite(dmin).all():
        rounds = 0  # a search would find that 0 is better than infinity
    for _ in range(rounds):
        _improve_integers(blocks, levels, state)
        _improve_floats(blocks, levels, state)
    if rounds:
        _improve_integers(blocks, levels, state)
    q, _ = _rounded(blocks, levels, state.d, state.scales, state.dmin, state.minima)
    has = fmt.minimum is not None
    return NestedCodes(
        state.d, state.scales, state.dmin if has else None, state.minima if has else None, q.reshape(-1, *zeros.shape)
    )


def _offsets(blocks: _Blocks, dmin: Floats, minima: Floats) -> Floats | None:
    """What is added to each column; None where nothing is."""
    if blocks.fmt.minimum is None:
        return None
    found: Floats = blocks.columns(dmin, minima) * np.float32(blocks.fmt.minimum_sign)
    return found


def _rounded(
    blocks: _Blocks, levels: Levels, d: Floats, scales: Floats, dmin: Floats, minima: Floats
) -> tuple[Floats, Floats]:
    """The nearest numbers of all elements, and the errors of columns."""
    scale, offset = blocks.columns(d, scales), _offsets(blocks, dmin, minima)
    q = levels.nearest(blocks.own.x if offset is None else blocks.own.x - offset, inverse(scale))
    values = q * scale
    if offset is not None:
        values += offset
    return q, blocks.own.error(values)


def _improve_integers(blocks: _Blocks, levels: Levels, state: _State) -> None:
    """Tries the neighbours of each scale, each with the minimum that suits it best."""
    fmt, own = blocks.fmt, blocks.own
    assert fmt.scale is not None
    low, high = fmt.scale.range
    first = state.scales.copy()
    for step in (0, -fmt.scale.step, fmt.scale.step):
        scales = np.clip(first + np.float32(step), low, high)
        minima = state.minima
        q, error = _rounded(blocks, levels, state.d, scales, state.dmin, minima)
        _keep(blocks, state, scales, minima, error)
        if fmt.minimum is not None:
            left = own.sums - blocks.columns(state.d, scales) * own.with_weights(q).sum(axis=0)
            wanted = left * inverse(own.total) * np.float32(fmt.minimum_sign)
            minima = _snapped(fmt.minimum, blocks.by_block(wanted) * inverse(state.dmin)[:, None])
            _, error = _rounded(blocks, levels, state.d, scales, state.dmin, minima)
            _keep(blocks, state, scales, minima, error)


def _keep(blocks: _Blocks, state: _State, scales: Floats, minima: Floats, error: Floats) -> None:
    """Takes over integers of columns whose error is smaller."""
    better = error < state.error
    state.error = np.where(better, error, state.error)
    chosen = better.reshape(-1, blocks.count)
    state.scales, state.minima = np.where(chosen, scales, state.scales), np.where(chosen, minima, state.minima)


def _improve_floats(blocks: _Blocks, levels: Levels, state: _State) -> None:
    """Solves for the floats of each block that suit its integers best, and takes them over where errors are smaller."""
    fmt, own = blocks.fmt, blocks.own
    q, _ = _rounded(blocks, levels, state.d, state.scales, state.dmin, state.minima)
    weighted = own.with_weights(q)
    squares, products = blocks.by_block(dot(q, weighted)), blocks.by_block(dot(q, own.weighted))
    s = state.scales
    saa, sax = (s * s * squares).sum(axis=1), (s * products).sum(axis=1)
    if fmt.minimum is None:
        d, dmin = sax * inverse(saa), state.dmin
    else:
        m = state.minima * np.float32(fmt.minimum_sign)
        sab = (s * m * blocks.by_block(weighted.sum(axis=0))).sum(axis=1)
        sbb, sbx = (m * m * blocks.by_block(own.total)).sum(axis=1), (m * blocks.by_block(own.sums)).sum(axis=1)
        determinant = saa * sbb - sab * sab
        solve = inverse(determinant)
        alone = determinant <= np.float32(1e-6) * saa * sbb
        d = np.where(alone, (sax - state.dmin * sab) * inverse(saa), (sbb * sax - sab * sbx) * solve)
        dmin = np.where(alone, state.dmin, (saa * sbx - sab * sax) * solve)
        dmin = blocks.stored(fmt.minimum, dmin)
    d = blocks.stored(fmt.scale, d)
    _, error = _rounded(blocks, levels, d, s, dmin, state.minima)
    better = blocks.by_block(error).sum(axis=1) < blocks.by_block(state.error).sum(axis=1)
    state.d, state.dmin = np.where(better, d, state.d), np.where(better, dmin, state.dmin)
    state.error = np.where(np.repeat(better, blocks.count), error, state.error)


__all__ = ["NestedCodes", "levels_of", "quantised_blocks"]
