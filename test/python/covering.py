# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Products of parameters by pairs: faults come from one value, or from two that meet, far more often than from three.

`covering` takes few combinations in which any two values of two axes meet at least once. `products` has these by
default, and the other combinations marked as slow: nothing of the product is lost.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import pytest


def covering(*axes: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Combinations, in the product's order, that together have each pair of values of two axes; always the same ones.

    Of one axis these are its values, of two axes the whole product.
    """
    numbers = list(itertools.product(*(range(len(axis)) for axis in axes)))
    met = {row: _pairs(row) for row in numbers}
    missing = set().union(*met.values())
    chosen = []
    while missing:
        best = max(numbers, key=lambda row: len(met[row] & missing))  # the first of the best ones
        chosen.append(best)
        missing -= met[best]
    return [tuple(axis[i] for axis, i in zip(axes, row, strict=True)) for row in sorted(chosen)]


def _pairs(row: tuple[int, ...]) -> set[tuple[tuple[int, int], ...]]:
    """What meets in a combination: pairs of an axis and the number of its value."""
    return set(itertools.combinations(enumerate(row), min(2, len(row))))


def products(*axes: Sequence[Any]) -> list[Any]:
    """All combinations for `pytest.mark.parametrize`; those that `covering` doesn't take are slow."""
    places = [range(len(axis)) for axis in axes]
    quick = set(covering(*places))
    return [
        pytest.param(
            *(axis[i] for axis, i in zip(axes, row, strict=True)), marks=[pytest.mark.slow] * (row not in quick)
        )
        for row in itertools.product(*places)
    ]
