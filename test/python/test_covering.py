# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Combinations of parameters in which every two values meet."""

from __future__ import annotations

import itertools

import pytest
from covering import covering, products


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
