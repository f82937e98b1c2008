# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Products of parameters by pairs: faults come from one value, or from two that meet, far more often than from three.

`covering` takes few combinations in which any two values of two axes meet at least once. `products` has these by
default, and the other combinations marked as slow: nothing of the product is lost. The mark `quick(n)` does so with
the cases of one test, however they come about: n of them aren't slow, and a third of these isn't wide.
"""

from __future__ import annotations

import itertools
import re
import zlib
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


#: Element types and formats of weights as names of cases have them, such as f8E4M3FN, uint8, q4_k.
TYPES = re.compile(r"(?<![A-Za-z0-9_])(?:b?f|[iu]|(?:bfloat|float|u?int|complex)|q)\d+(?:E\w+|_\w+)?(?![A-Za-z0-9_])")


def mark_levels(items: Sequence[pytest.Item]) -> None:
    """Marks what a test with the mark `quick(n)` has of cases: beyond n as slow, of these n two thirds as wide.

    Cases that are slow anyway don't count; those of a test that is wide itself all stay so. Those that are kept have
    most of the words and numbers in the cases' names; the first word of a part counts for itself. Of cases that are as
    good, each test takes others: not the same element type everywhere. At either level stays besides what alone has an
    element type or a format among the cases of its file that are left.
    """
    cases: defaultdict[tuple[str, int], dict[str, pytest.Item]] = defaultdict(dict)
    wide_anyway: set[str] = set()
    others: list[str] = []
    for item in items:
        if item.get_closest_marker("slow") is not None:
            continue
        if item.get_closest_marker("wide") is not None:
            wide_anyway.add(item.nodeid)
        if (mark := item.get_closest_marker("quick")) is not None:
            (count,) = mark.args
            cases[item.nodeid.partition("[")[0], count][item.nodeid] = item
        else:
            others.append(item.nodeid)
    groups: list[tuple[list[str], list[str]]] = []
    for (test, count), own in cases.items():
        first = zlib.crc32(test.encode()) % len(own)
        names = [*own][first:] + [*own][:first]
        order = telling({name: re.findall(r"\w+|[\[-]\w+", name[len(test) :]) for name in names}, count)
        groups.append((order, names))
    slow = _beyond(groups, others)
    left = [([n for n in order if n not in wide_anyway], names) for order, names in groups]
    left = [(order[: -(-len(order) // 3)], [n for n in names if n not in slow | wide_anyway]) for order, names in left]
    wide = _beyond(left, [name for name in others if name not in wide_anyway])
    for own in cases.values():
        for name, item in own.items():
            if name in slow or name in wide:
                item.add_marker("slow" if name in slow else "wide")


def _beyond(groups: Iterable[tuple[Sequence[str], Sequence[str]]], others: Iterable[str]) -> set[str]:
    """Of groups, with the cases that are kept and all, those that aren't kept, but for types that no other one has.

    `others` are cases that are kept anyway.
    """
    types: defaultdict[str, set[str]] = defaultdict(set)
    beyond: defaultdict[str, list[str]] = defaultdict(list)
    for name in others:
        types[_file(name)].update(TYPES.findall(name))
    for kept, names in groups:
        for name in kept:
            types[_file(name)].update(TYPES.findall(name))
        for name in names:
            if name not in kept:
                beyond[_file(name)].append(name)
    for file, left in beyond.items():
        own = {name: set(TYPES.findall(name)) - types[file] for name in left}
        while missing := set().union(*own.values()):
            shown = own.pop(max(own, key=lambda name: len(own[name] & missing)))
            own = {name: parts - shown for name, parts in own.items()}
        beyond[file] = [*own]
    return {name for names in beyond.values() for name in names}


def _file(test: str) -> str:
    return test.partition("::")[0]
