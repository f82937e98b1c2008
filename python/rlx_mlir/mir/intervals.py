# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Intervals of numbers, and how functions of elements change them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Interval:
    """Numbers from `low` to `high`; no infinity and no NaN is among them, but where an end is infinite."""

    low: float
    high: float

    @property
    def magnitude(self) -> float:
        """The largest absolute value."""
        return max(abs(self.low), abs(self.high))

    @property
    def is_known(self) -> bool:
        """Whether both ends are numbers."""
        return math.isfinite(self.low) and math.isfinite(self.high)

    def __str__(self) -> str:
        return f"{self.low:.3g} to {self.high:.3g}" if self.is_known else "anything"

    @classmethod
    def of(cls, bound: Interval | float | tuple[float, float]) -> Interval:
        """From a bound of the magnitude, or both ends."""
        if isinstance(bound, Interval):
            return bound
        if isinstance(bound, tuple):
            return cls(float(bound[0]), float(bound[1]))
        return cls(-float(bound), float(bound))


ANYTHING = Interval(-math.inf, math.inf)

Rule = Callable[..., Interval]
"""The interval of a function's values from those of its arguments."""


def increasing(function: Callable[[float], float]) -> Rule:
    """The rule of a function that grows with its argument."""
    return lambda x: Interval(function(x.low), function(x.high))


def decreasing(function: Callable[[float], float]) -> Rule:
    """The rule of a function that falls with its argument."""
    return lambda x: Interval(function(x.high), function(x.low))


def within(low: float, high: float) -> Rule:
    """The rule of a function whose values at numbers lie between two bounds."""
    return lambda x: Interval(low, high) if x.is_known else ANYTHING


def anything(*_: Interval) -> Interval:
    """The rule of a function of which nothing is said."""
    return ANYTHING


def times(a: float, b: float) -> float:
    """A product in which 0 wins over infinity, which stands for any number."""
    return 0.0 if a == 0 or b == 0 else a * b


def product(x: Interval, y: Interval) -> Interval:
    """Of the products of two numbers."""
    ends = [times(a, b) for a in (x.low, x.high) for b in (y.low, y.high)]
    return Interval(min(ends), max(ends))


def quotient(x: Interval, y: Interval) -> Interval:
    """Of the quotients of two numbers."""
    if y.low <= 0 <= y.high:
        return ANYTHING
    low, high = sorted((0.0 if math.isinf(end) else 1 / end) for end in (y.low, y.high))
    return product(x, Interval(low, high))
