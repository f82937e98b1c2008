# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Scales and minima of least squared error: what the quantisers of blocks with few bits search for.

All is by columns: elements are f32 [elements of a sub-block, sub-blocks], so that one step of numpy's works on all
sub-blocks at once. Errors may be weighted, by weights of the same shape.

For given codes q the best scale, or scale and minimum, solve a linear system of one or two unknowns; for given scales
the best codes are the nearest ones. A search begins with some scales, each of which gives codes, which give the scale
that suits them best, and keeps the one of the least error.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]

_TINY = np.float32(np.finfo(np.float32).tiny)
_ROUND = np.float32(1.5 * 2**23)
"""Added and subtracted again, it leaves the nearest integer of magnitudes below 2^22."""


def inverse(d: Floats) -> Floats:
    """1 / d, or 0 where d is 0 or subnormal."""
    exists = np.abs(d) >= _TINY
    found: Floats = np.divide(np.float32(1), d, out=np.zeros_like(d), where=exists)
    return found


def dot(a: Floats, b: Floats) -> Floats:
    """The sum of products of each column."""
    found: Floats = np.einsum("en,en->n", a, b)
    return found


@dataclass(frozen=True)
class Levels:
    """The numbers that codes stand for: all integers of a range, or those of a table.

    Attributes:
        least, most: of the range.
        table: of all numbers, ascending; empty for a range.
    """

    least: int
    most: int
    table: tuple[int, ...] = ()

    @cached_property
    def _nearest(self) -> Floats:
        """The nearest number of a table to what lies from i / 2 on, up to (i + 1) / 2, above the least one."""
        numbers = np.array(self.table, np.float32)
        halves = np.arange(2 * (self.most - self.least) + 1) / 2 + self.least + 0.25
        return numbers[np.searchsorted((numbers[1:] + numbers[:-1]) / 2, halves)]

    def nearest(self, x: Floats, factor: Floats) -> Floats:
        """The nearest numbers to x times the factor of its column."""
        q = np.multiply(x, factor)
        if self.table:
            np.subtract(q, np.float32(self.least), out=q)
            np.multiply(q, np.float32(2), out=q)
            np.clip(q, 0, len(self._nearest) - 1, out=q)
            return np.take(self._nearest, q.astype(np.intp), mode="clip")
        np.clip(q, self.least, self.most, out=q)
        np.add(q, _ROUND, out=q)
        np.subtract(q, _ROUND, out=q)
        return q


@dataclass(frozen=True)
class Elements:
    """Columns of elements, and what errors of them count.

    Attributes:
        x: f32 [elements, columns].
        weights: likewise; None where all count alike.
    """

    x: Floats
    weights: Floats | None = None

    @cached_property
    def weighted(self) -> Floats:
        """x times the weights."""
        return self.x if self.weights is None else self.x * self.weights

    @cached_property
    def total(self) -> Floats:
        """The sum of the weights of each column."""
        if self.weights is None:
            return np.full(self.x.shape[1], self.x.shape[0], np.float32)
        return np.asarray(self.weights.sum(axis=0), np.float32)

    @cached_property
    def sums(self) -> Floats:
        """The sum of x of each column."""
        return np.asarray(self.weighted.sum(axis=0), np.float32)

    @cached_property
    def largest(self) -> Floats:
        """The element of the largest magnitude of each column."""
        low, high = self.x.min(axis=0), self.x.max(axis=0)
        found: Floats = np.where(-low > high, low, high)
        return found

    def with_weights(self, q: Floats) -> Floats:
        """q times the weights."""
        return q if self.weights is None else q * self.weights

    def error(self, values: Floats) -> Floats:
        """The sum of squared errors of each column; ``values`` is overwritten."""
        np.subtract(values, self.x, out=values)
        if self.weights is None:
            return dot(values, values)
        found: Floats = np.einsum("en,en,en->n", values, values, self.weights)
        return found


def best_scale(own: Elements, levels: Levels, starts: Iterable[Floats], rounds: int = 1) -> Floats:
    """The scale of each column, of values scale q.

    Args:
        own: the elements.
        levels: what q may be.
        starts: scales to begin with.
        rounds: how often the best scale's codes give a better one.
    """
    best, gain = np.zeros_like(own.total), np.zeros_like(own.total)

    def fitted(scale: Floats) -> None:
        nonlocal best, gain
        q = levels.nearest(own.x, inverse(scale))
        products, squares = dot(q, own.weighted), dot(q, own.with_weights(q))
        # The least error for these codes is the sum of x^2 less this.
        found = products * products * inverse(squares)
        better = found > gain
        best = np.where(better, products * inverse(squares), best)
        gain = np.where(better, found, gain)

    for start in starts:
        fitted(start)
    for _ in range(rounds):
        fitted(best)
    return best


def best_line(
    own: Elements, top: int, factors: Iterable[float], rounds: int = 1, *, below: bool = True
) -> tuple[Floats, Floats]:
    """The scale and the minimum of each column, of values scale q + minimum, q from 0 to ``top``.

    Args:
        own: the elements.
        top: the largest q.
        factors: steps between the least and the largest element to begin with, by the number of those that q has.
        rounds: how often the codes of the best pair give a better one.
        below: minima are at most 0.
    """
    x = own.x
    low, high = x.min(axis=0), x.max(axis=0)
    if below:
        low = np.minimum(low, 0)
    span = high - low
    levels = Levels(0, top)
    scale, minimum = np.zeros_like(low), np.where(span > 0, 0, low).astype(np.float32)
    least = np.full_like(low, np.inf)
    squares_x = dot(x, own.weighted)

    def fitted(start: Floats, offset: Floats) -> None:
        nonlocal scale, minimum, least
        factor = inverse(start)
        q = levels.nearest(x - offset, factor)
        weighted = own.with_weights(q)
        sums, squares, products = weighted.sum(axis=0), dot(q, weighted), dot(q, own.weighted)
        determinant = own.total * squares - sums * sums
        solve = inverse(determinant)
        a = (own.total * products - own.sums * sums) * solve
        b = (squares * own.sums - sums * products) * solve
        if below:
            alone = b > 0
            a = np.where(alone, products * inverse(squares), a)
            b = np.where(alone, 0, b)
        error = squares_x + a * (a * squares + 2 * (b * sums - products)) + b * (b * own.total - 2 * own.sums)
        better = (error < least) & (determinant > 0) & (a > 0)
        least = np.where(better, error, least)
        scale, minimum = np.where(better, a, scale), np.where(better, b, minimum)

    for factor in factors:
        fitted(span * np.float32(1 / (top * factor)), low)
    for _ in range(rounds):
        fitted(scale, minimum)
    return scale, minimum


__all__ = ["Elements", "Floats", "Levels", "best_line", "best_scale", "dot", "inverse"]
