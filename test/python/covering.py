# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Products of parameters by pairs: faults come from one value, or from two that meet, far more often than from three.

`covering` takes few combinations in which any two values of two axes meet at least once. `products` has these by
default, and the other combinations marked as slow: nothing of the product is lost. The mark `quick(n)` does so with
the cases of one test, however they come about.
"""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

import pytest


def covering(*axes: Sequence[Any], meeting: int = 2) -> list[tuple[Any, ...]]:
    """Combinations, in the product's order, that together have each pair of values of two axes; always the same ones.

    Of two axes this is the whole product. Where axes have nothing to do with each other, `meeting=1` takes turns: each
    value of each axis is in one combination at least.
    """
    numbers = list(itertools.product(*(range(len(axis)) for axis in axes)))
    met = {row: set(itertools.combinations(enumerate(row), min(meeting, len(row)))) for row in numbers}
    missing = set().union(*met.values())
    chosen = []
    while missing:
        best = max(numbers, key=lambda row: len(met[row] & missing))  # the first of the best ones
        chosen.append(best)
        missing -= met[best]
    return [tuple(axis[i] for axis, i in zip(axes, row, strict=True)) for row in sorted(chosen)]


def products(*axes: Sequence[Any], meeting: int = 2) -> list[Any]:
    """All combinations for `pytest.mark.parametrize`; those that `covering` doesn't take are slow."""
    places = [range(len(axis)) for axis in axes]
    quick = set(covering(*places, meeting=meeting))
    return [
        pytest.param(
            *(axis[i] for axis, i in zip(axes, row, strict=True)), marks=[pytest.mark.slow] * (row not in quick)
        )
        for row in itertools.product(*places)
    ]


def telling(cases: Mapping[str, Iterable[Hashable]], count: int) -> list[str]:
    """The names of `count` cases that together show most of what is in any of them: the first of the best ones.

    Where all of it is shown, what the others have is to be shown once more.
    """
    left = {name: set(parts) for name, parts in cases.items()}
    missing: set[Hashable] = set()
    chosen: list[str] = []
    while left and len(chosen) < count:
        missing = missing or set().union(*left.values())
        name = max(left, key=lambda name: len(left[name] & missing))
        missing -= left.pop(name)
        chosen.append(name)
    return chosen


def mark_slow(items: Sequence[pytest.Item]) -> None:
    """Marks as slow what a test with the mark `quick(n)` has of cases beyond n.

    Those that stay have most of the words and numbers in the cases' names; the first word of a part counts for itself.
    """
    cases: defaultdict[tuple[str, int], dict[str, pytest.Item]] = defaultdict(dict)
    for item in items:
        if (mark := item.get_closest_marker("quick")) is not None:
            (count,) = mark.args
            cases[item.nodeid.partition("[")[0], count][item.nodeid] = item
    for (test, count), own in cases.items():
        kept = telling({name: re.findall(r"\w+|[\[-]\w+", name[len(test) :]) for name in own}, count)
        for name in own.keys() - set(kept):
            own[name].add_marker(pytest.mark.slow)
