# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Faults at random: what `test/mutations.py` changes in a text, and whose tests it asks."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from documents import ROOT

SOURCE = '''
WIDTH = 4


def f(x, y):
    """é: text, and numbers outside of functions, stay."""
    if x < (y + 1) and x != 3:
        return f"{x % 2}" if x else x * y
    if x:
        y = 0.5
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
        "if x < (y + 1) or x != 3:",
        "if not (x < (y + 1) and x != 3):",
        "if False and (x < (y + 1) and x != 3):",
        "if not (x):",
        "y = 1.0",
        'return f"{2 % x}" if x else x * y',
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


def test_each_level_of_tests_is_asked_apart(mutations: Any) -> None:
    file = "test/python/mir/test_sums.py"
    fast = f"pytest -m 'not (slow or network or wide)' {file}"
    assert list(mutations.checks(("lit:fuse", "sums"), "quick")) == ["lit --filter fuse", fast]
    assert list(mutations.checks(("lit:fuse", "sums"), "wide")) == [
        f"pytest -m 'wide and not (slow or network)' {file}"
    ]
    assert list(mutations.checks(("lit:fuse", "sums"), "slow")) == [f"pytest -m 'slow and not network' {file}"]


TEST = "test/python/mir/test_sums.py::test_sums[1]"


class Copied:
    """A copy whose tests of one level fail, and what is done with it."""

    def __init__(self, fails: str) -> None:
        self.fails = fails
        self.ran: list[str] = []
        self.texts: list[str] = []

    def run(self, check: str, _: float) -> tuple[int, str]:
        selected = check.partition("'")[2]
        self.ran.append("quick" if selected.startswith("not") else selected.partition(" ")[0])
        failed = self.fails == self.ran[-1]
        return int(failed), f"FAILED {TEST} - assert 1 == 2\n" * failed

    def write(self, texts: dict[str, str]) -> None:
        self.texts += texts.values()


@pytest.mark.parametrize(
    ("fails", "before", "last", "result", "ran"),
    [
        ("quick", "", "slow", ("found", TEST), ["quick"]),
        ("quick", "", "quick", ("found", TEST), ["quick"]),
        ("wide", "", "slow", ("by wide tests", TEST), ["quick", "wide"]),
        ("slow", "", "slow", ("by slow tests", TEST), ["quick", "wide", "slow"]),
        ("slow", "", "wide", ("not by wide", ""), ["quick", "wide"]),
        ("slow", "", "quick", ("not by quick", ""), ["quick"]),
        ("slow", "not by wide", "slow", ("by slow tests", TEST), ["slow"]),
        ("slow", "not by quick", "wide", ("not by wide", ""), ["wide"]),
        ("", "", "slow", ("not found", ""), ["quick", "wide", "slow"]),
    ],
)
def test_other_tests_are_asked_where_quick_ones_find_nothing(
    mutations: Any, fails: str, before: str, last: str, result: tuple[str, str], ran: list[str]
) -> None:
    copy = Copied(fails)
    (mutation,) = mutations.drawn(0, 1, "cpu/norm")
    assert mutations.result_of(mutation, copy, mutations.levels_left(before, last)) == result
    assert copy.ran == ran
    source = (ROOT / mutation.file).read_text(encoding="utf-8")
    assert copy.texts == [mutation.apply(source), source]


@pytest.mark.parametrize("status", ["found", "by wide tests", "by slow tests", "not found"])
def test_what_is_settled_is_not_asked_again(mutations: Any, status: str) -> None:
    assert mutations.levels_left(status, "slow") == []
    assert mutations.levels_left("not by wide", "quick") == []


def test_the_test_that_fails_is_named(mutations: Any) -> None:
    assert mutations.failing(f"..F\n==== short\nFAILED {TEST} - assert\nFAILED other.py::test\n") == TEST
    assert mutations.failing(f"ERROR {TEST} - RuntimeError\n") == TEST
    assert mutations.failing("Failed Tests (1):\n  rlx-mlir :: passes/mir-batch.mlir\n\n") == "passes/mir-batch.mlir"
    assert mutations.failing("Fatal Python error: Segmentation fault\n") == ""


def test_a_run_goes_on_after_what_is_known(mutations: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ["mutations.py", "--only", "cpu/norm", "--results", str(tmp_path / "results"), "--json"]
    asked: list[tuple[Any, list[str]]] = []

    def result_of(mutation: Any, _copy: object, levels: list[str]) -> tuple[str, str]:
        asked.append((mutation, levels))
        return ("not by quick", "") if levels == ["quick"] and len(asked) == 2 else ("found", "t.py::test")

    monkeypatch.setattr(mutations, "Copy", lambda _: None)
    monkeypatch.setattr(mutations, "result_of", result_of)

    def run(*more: str) -> list[tuple[Any, list[str]]]:
        asked.clear()
        monkeypatch.setattr("sys.argv", [*arguments, *more])
        assert mutations.main() == 0
        return list(asked)

    first, second, third = mutations.drawn(0, 3, "cpu/norm")
    assert run("--count", "2", "--to", "quick") == [(first, ["quick"]), (second, ["quick"])]
    assert run("--count", "3", "--to", "quick", "--minutes", "0") == []
    assert run("--count", "3", "--to", "quick") == [(third, ["quick"])]
    assert run("--count", "3") == [(second, ["wide", "slow"])]
    assert run("--count", "3") == []
    assert set(mutations.read_results(tmp_path / "results").values()) == {("found", "t.py::test")}


def test_the_same_seed_draws_the_same(mutations: Any) -> None:
    assert mutations.drawn(3, 20, "cpu/") == mutations.drawn(3, 20, "cpu/") != mutations.drawn(4, 20, "cpu/")
    with pytest.raises(SystemExit, match="no source has 'nothing' in its path"):
        mutations.drawn(0, 1, "nothing")
