# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Sizes of dynamic dimensions as an artefact holds them: polynomials in its symbols, as lists and numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

from rlx_mlir.errors import InputError
from rlx_mlir.files import Json


class Derived(NamedTuple):
    """What is computed from a size and a number: the size // the number, or the larger one of the two."""

    kind: Literal["floordiv", "max"]
    number: int
    size: Terms


#: The number of a symbol, or what is computed of other sizes.
Factor = int | Derived
#: A size as a polynomial: terms of (coefficient, factors).
Terms = list[tuple[int, list[Factor]]]

#: How deep sizes may be computed of each other. `mir/dims.py` and the run time in C++ have the same limit.
DEPTH = 64


def evaluate(size: Terms, sizes: Sequence[int]) -> int:
    """The value for the sizes of the symbols, in order."""
    total = 0
    for coefficient, factors in size:
        for factor in factors:
            coefficient *= sizes[factor] if isinstance(factor, int) else _derived(factor, sizes)
        total += coefficient
    return int(total)


def _derived(factor: Derived, sizes: Sequence[int]) -> int:
    value = evaluate(factor.size, sizes)
    return value // factor.number if factor.kind == "floordiv" else max(value, factor.number)


def text_of(size: Terms, names: Sequence[str]) -> str:
    """The size as text, with names for its symbols."""
    terms = []
    for coefficient, factors in size:
        words = [names[own] if isinstance(own, int) else _text_of_derived(own, names) for own in factors]
        terms.append("*".join([*([str(coefficient)] if coefficient != 1 or not words else []), *words]))
    return " + ".join(terms) or "0"


def _text_of_derived(factor: Derived, names: Sequence[str]) -> str:
    return f"{factor.kind}({text_of(factor.size, names)}, {factor.number})"


def symbols_of(size: Terms) -> set[int]:
    """The numbers of the symbols that the size depends on."""
    found: set[int] = set()
    for _, factors in size:
        for factor in factors:
            found |= {factor} if isinstance(factor, int) else symbols_of(factor.size)
    return found


def plain(size: Terms) -> list[Json]:
    """A size as JSON has it, which `read` reads."""
    return [[coefficient, [_plain_factor(factor) for factor in factors]] for coefficient, factors in size]


def _plain_factor(factor: Factor) -> Json:
    return [factor.kind, factor.number, plain(factor.size)] if isinstance(factor, Derived) else factor


def read(size: Json) -> Terms:
    """A size from what JSON makes of it."""
    return [(coefficient, [_read_factor(factor) for factor in factors]) for coefficient, factors in size]


def _read_factor(factor: Json) -> Factor:
    if isinstance(factor, int):
        return factor
    kind, number, size = factor
    return Derived(kind, number, read(size))


def check(size: Terms, count: int, depth: int = 0) -> None:
    """Raises InputError where it is no size with so many symbols."""
    if depth > DEPTH:
        raise InputError(f"a size is computed of others more than {DEPTH} deep")
    for coefficient, factors in size:
        known = all(_is_factor(factor, count, depth) for factor in factors)
        if type(coefficient) is not int or not known:
            raise InputError(f"{list(size)} is no size with {count} symbols")


def _is_factor(factor: Factor, count: int, depth: int) -> bool:
    if not isinstance(factor, Derived):
        return type(factor) is int and 0 <= factor < count
    check(factor.size, count, depth + 1)
    least = 1 if factor.kind == "floordiv" else -math.inf
    return factor.kind in ("floordiv", "max") and type(factor.number) is int and factor.number >= least


__all__ = ["Derived", "Factor", "Terms", "check", "evaluate", "read", "symbols_of"]
