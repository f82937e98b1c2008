# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Faults at random: what `test/mutations.py` changes in a text, and whose tests it asks."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from typing import Any

import pytest
from documents import ROOT

SOURCE = '''
WIDTH = 4


def f(x, y):
    """é: text, and numbers outside of functions, stay."""
    if x < (y + 1) and x != 3:
        return f"{x % 2}" if x else x * y
    return "%d" % y
'''


@pytest.fixture(scope="module")
def mutations() -> Iterator[Any]:
    """The script, which imports `planted` from its own folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "test")
        yield importlib.import_module("mutations")


def test_each_place_changes_alone(mutations: Any) -> None:
    found = mutations.mutations_of("f.py", SOURCE, ("f",))
    lines = SOURCE.splitlines()
    changed = set()
    for mutation in found:
        after = mutation.apply(SOURCE)
        ast.parse(after)
        (line,) = (
            number for number, pair in enumerate(zip(lines, after.splitlines(), strict=True), 1) if len({*pair}) == 2
        )
        assert line == mutation.line
        changed.add(after.splitlines()[line - 1].strip())
    assert changed == {
        "if x <= (y + 1) and x != 3:",
        "if x < (y - 1) and x != 3:",
        "if x < (y + 2) and x != 3:",
        "if x < (y + 1) and x == 3:",
        "if x < (y + 1) and x != 4:",
        "if not (x < (y + 1) and x != 3):",
        'return f"{x // 2}" if x else x * y',
        'return f"{x % 3}" if x else x * y',
        'return f"{x % 2}" if not (x) else x * y',
        'return f"{x % 2}" if x else x + y',
    }


def test_sources_and_tests_exist(mutations: Any) -> None:
    for pattern, tests in mutations.TARGETS:
        assert list((ROOT / mutations.PACKAGE).glob(pattern)), pattern
        for name in tests:
            if name.startswith("lit:"):
                assert list((ROOT / "test" / "lit").rglob(f"*{name[4:]}*.mlir")), name
            else:
                assert len(list((ROOT / "test" / "python").glob(f"*/test_{name}.py"))) == 1, name


def test_quick_tests_come_first_and_slow_ones_where_they_are_wanted(mutations: Any) -> None:
    fast = "pytest -m 'not slow and not network' test/python/mir/test_sums.py"
    quick = [("lit --filter fuse", "found"), (fast, "found")]
    assert list(mutations.checks(("lit:fuse", "sums"), quick=True)) == quick
    slow = ("pytest -m 'slow and not network' test/python/mir/test_sums.py", "by slow tests")
    assert list(mutations.checks(("lit:fuse", "sums"), quick=False)) == [*quick, slow]


def test_the_same_seed_draws_the_same(mutations: Any) -> None:
    assert mutations.drawn(3, 20, "cpu/") == mutations.drawn(3, 20, "cpu/") != mutations.drawn(4, 20, "cpu/")
    with pytest.raises(SystemExit, match="no source has 'nothing' in its path"):
        mutations.drawn(0, 1, "nothing")
