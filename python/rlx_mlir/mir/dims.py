# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Symbolic dimensions: sizes as polynomials over named symbols."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache, reduce

from rlx_mlir.errors import InputError

_SYMBOL = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def check_symbol(name: str) -> str:
    """The name, where it can name a dimension: letters, digits and `_`; InputError otherwise."""
    if not _SYMBOL.fullmatch(name):
        raise InputError(f"a symbolic dimension is named by letters, digits and '_', but got {name!r}")
    return name


@dataclass(frozen=True)
class Size:
    """A sum of products of symbols with integer coefficients.

    Attributes:
        terms: (sorted symbols, coefficient) pairs, sorted, without zero coefficients; the empty tuple of symbols is
            the constant.
    """

    terms: tuple[tuple[tuple[str, ...], int], ...]

    @staticmethod
    def of(value: Size | int | str) -> Size:
        """The size of a number, or of a symbol by its name."""
        if isinstance(value, Size):
            return value
        if isinstance(value, str):
            return Size((((value,), 1),))
        return _number(value)

    @property
    def constant(self) -> int | None:
        """The number, where no symbol is left in it."""
        if not self.terms:
            return 0
        if len(self.terms) == 1 and not self.terms[0][0]:
            return self.terms[0][1]
        return None

    @property
    def symbols(self) -> frozenset[str]:
        """The symbols that occur."""
        return frozenset(symbol for symbols, _ in self.terms for symbol in symbols)

    def __add__(self, other: Size | int | str) -> Size:
        totals = dict(self.terms)
        for symbols, coefficient in Size.of(other).terms:
            totals[symbols] = totals.get(symbols, 0) + coefficient
        return _size(totals)

    def __mul__(self, other: Size | int | str) -> Size:
        totals: dict[tuple[str, ...], int] = {}
        for left, a in self.terms:
            for right, b in Size.of(other).terms:
                key = tuple(sorted(left + right))
                totals[key] = totals.get(key, 0) + a * b
        return _size(totals)

    __radd__ = __add__
    __rmul__ = __mul__

    def evaluate(self, sizes: Mapping[str, int]) -> int:
        """The number for given sizes; KeyError names a symbol without one."""
        total = 0
        for symbols, coefficient in self.terms:
            for symbol in symbols:
                coefficient *= sizes[symbol]
            total += coefficient
        return total

    def divided_by(self, divisor: Size) -> Size | None:
        """The exact quotient by a single term; None where it isn't one."""
        if len(divisor.terms) != 1:
            return Size.of(1) if divisor == self and self.terms else None
        symbols, coefficient = divisor.terms[0]
        totals: dict[tuple[str, ...], int] = {}
        for own, a in self.terms:
            rest = list(own)
            for symbol in symbols:
                if symbol not in rest:
                    return None
                rest.remove(symbol)
            if a % coefficient:
                return None
            totals[tuple(rest)] = a // coefficient
        return _size(totals)

    def __str__(self) -> str:
        parts = []
        for symbols, coefficient in self.terms:
            factors = list(symbols) if coefficient == 1 and symbols else [str(coefficient), *symbols]
            parts.append("*".join(factors))
        return " + ".join(parts) or "0"


@lru_cache(4096)
def _number(value: int) -> Size:
    """The size of a number: graphs have few different ones, but many values."""
    return Size((((), value),) if value else ())


def _size(totals: Mapping[tuple[str, ...], int]) -> Size:
    return Size(tuple(sorted((symbols, value) for symbols, value in totals.items() if value)))


def product(sizes: Iterable[Size | int | str]) -> Size:
    """The product of sizes; 1 where there are none."""
    return reduce(lambda a, b: a * b, sizes, Size.of(1))


def broadcast(*shapes: Iterable[Size]) -> tuple[Size, ...]:
    """Numpy's broadcasting of shapes: a size beats 1, a number beats symbols, the first of several symbols stays."""
    aligned: list[Size] = []
    for shape in shapes:
        sizes = list(shape)
        if len(sizes) > len(aligned):
            aligned = [Size.of(1)] * (len(sizes) - len(aligned)) + aligned
        for position, size in enumerate(reversed(sizes), start=1):
            current = aligned[-position]
            if current.constant == 1 or (current.constant is None and size.constant not in (None, 1)):
                aligned[-position] = size
    return tuple(aligned)
