# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Combinations of parameters in which every two values meet."""

from __future__ import annotations

import itertools

import pytest
from covering import covering, products, telling

pytest_plugins = ["pytester"]

ALL = ["test_all[1]", "test_all[2]"]
CONFTEST = """
import covering
import pytest

@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    covering.mark_levels(items)

def pytest_configure(config):
    for mark in ("quick(n)", "slow", "wide"):
        config.addinivalue_line("markers", mark)
"""


@pytest.mark.parametrize("sizes", [(3,), (2, 3), (2, 2, 2), (4, 3, 2), (5, 4, 3, 2), (3, 3, 3, 3), (1, 4, 1, 3)])
def test_any_two_values_of_two_axes_meet(sizes: tuple[int, ...]) -> None:
    axes = [[f"{axis}{i}" for i in range(size)] for axis, size in zip("abcd", sizes, strict=False)]
    rows = covering(*axes)
    assert set(rows) <= set(itertools.product(*axes))
    assert len(set(rows)) == len(rows)
    for axis in axes:
        assert {value for row in rows for value in row if value in axis} == set(axis)
    for first, second in itertools.combinations(range(len(axes)), 2):
        assert {(row[first], row[second]) for row in rows} == set(itertools.product(axes[first], axes[second]))


def test_few_combinations_are_taken_and_always_the_same() -> None:
    axes = [range(4)] * 5
    assert len(covering(*axes)) <= 32  # of 1024; at least 16 are needed
    assert covering(*axes) == covering(*axes)
    assert covering("ab", "cd", "ef") == [("a", "c", "e"), ("a", "d", "f"), ("b", "c", "f"), ("b", "d", "e")]


def test_axes_that_have_nothing_to_do_with_each_other_take_turns() -> None:
    assert covering("abc", "xy", meeting=1) == [("a", "x"), ("b", "y"), ("c", "x")]
    assert len([row for row in products("abc", "wxyz", [1, 2], meeting=1) if not row.marks]) == 4


def test_what_is_left_out_is_slow() -> None:
    rows = products(["x", "x"], [1, 2, 3], [None, [4]])
    assert len(rows) == 12
    quick = [row.values for row in rows if not row.marks]
    assert 6 <= len(quick) < 12
    assert {mark.name for row in rows for mark in row.marks} == {"slow"}


def test_telling_cases_have_what_is_in_the_others() -> None:
    cases = {"a": "xy", "b": "x", "c": "yz", "d": "w"}
    assert telling(cases, 3) == ["a", "c", "d"]
    assert telling(cases, 9) == ["a", "c", "d", "b"]
    assert telling({}, 2) == []


def test_cases_beyond_the_quick_ones_are_slow(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.quick(2)
        @pytest.mark.parametrize("word", ["red", "green"])
        @pytest.mark.parametrize("size", [1, 2])
        def test_some(word, size):
            pass

        @pytest.mark.parametrize("size", [1, 2])
        def test_all(size):
            pass
        """
    )

    def collected(marks: str) -> str:
        return pytester.runpytest_inprocess("-m", marks, "--collect-only", "-q").stdout.str()

    both = [line for line in collected("not slow").splitlines() if "::" in line]
    assert [line.partition("::")[2] for line in both] == ["test_some[1-red]", "test_some[2-green]", *ALL]
    one = [line for line in collected("not (slow or wide)").splitlines() if "::" in line]
    assert len(one) == 3
    assert set(one) < set(both)
    assert "6 tests collected" in collected("")


def test_a_third_of_the_quick_cases_is_not_wide(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.quick(4)
        @pytest.mark.parametrize("size", [pytest.param(0, marks=pytest.mark.wide), *range(1, 9)])
        def test_some(size):
            pass

        @pytest.mark.quick(1)
        @pytest.mark.parametrize("size", range(3))
        def test_one(size):
            pass

        @pytest.mark.wide
        @pytest.mark.quick(1)
        @pytest.mark.parametrize("size", range(3))
        def test_wide(size):
            pass
        """
    )
    counts = {"": 15, "slow": 9, "wide and not slow": 4, "not (slow or wide)": 2}
    for marks, count in counts.items():
        shown = pytester.runpytest_inprocess("-m", marks, "--collect-only", "-q").stdout.str()
        assert sum("::" in line for line in shown.splitlines()) == count, marks


def test_each_element_type_of_a_file_stays_quick(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.quick(1)
        @pytest.mark.parametrize("size", [1, 2])
        @pytest.mark.parametrize("dtype", ["f32", "f16", "f8E4M3FN", "q4_k"])
        def test_some(dtype, size):
            pass

        @pytest.mark.parametrize("dtype", ["bf16", pytest.param("i8", marks=pytest.mark.slow)])
        def test_others(dtype):
            pass
        """
    )
    shown = pytester.runpytest_inprocess("-m", "not (slow or wide)", "--collect-only", "-q").stdout
    shown.fnmatch_lines(["5/10 tests collected*"])
    types = [line.partition("[")[2].rstrip("]").partition("-")[0] for line in shown.str().splitlines() if "::" in line]
    assert sorted(types) == ["bf16", "f16", "f32", "f8E4M3FN", "q4_k"]


def test_tests_that_are_alike_take_different_cases(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.quick(1)
        @pytest.mark.parametrize("word", ["red", "green", "blue", "black"])
        class TestEach:
            def test_a(self, word): pass
            def test_b(self, word): pass
            def test_c(self, word): pass
            def test_d(self, word): pass
            def test_e(self, word): pass
            def test_f(self, word): pass
        """
    )
    shown = pytester.runpytest_inprocess("-m", "not slow", "--collect-only", "-q").stdout.str()
    assert "6/24 tests collected" in shown
    assert len({line.partition("[")[2] for line in shown.splitlines() if "::" in line}) > 2
