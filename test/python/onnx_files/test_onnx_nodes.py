# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""ONNX's own cases of single nodes: each passes or is refused by name, none is wrong.

Those that are about sizes have these as inputs: their elements are given while the model is read.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import pytest

pytest.importorskip("onnx")

import onnx_cases

#: Parts in which all cases are run.
PARTS = 12
#: Of how many cases one is compiled by default.
STEP = 150
#: Share of all cases that pass; with onnx 1.23.2 it is 0.8.
LEAST = 0.75


@functools.cache
def cases() -> list[Any]:
    return onnx_cases.cases()


def wrong(outcomes: list[onnx_cases.Outcome]) -> list[str]:
    return [f"{each.name}: {each.reason}" for each in outcomes if each.word == "wrong"]


@pytest.mark.wide
def test_the_first_case_of_each_operator_is_right_or_refused() -> None:
    outcomes = [onnx_cases.run(case, interpreted=True) for case in onnx_cases.one_of_each(cases())]
    assert not wrong(outcomes)
    assert sum(each.word == "passed" for each in outcomes) >= LEAST * len(outcomes) * 0.9


def test_a_sample_of_cases_is_right_when_compiled() -> None:
    outcomes = [onnx_cases.run(case) for case in cases()[::STEP]]
    assert not wrong(outcomes)
    assert any(each.word == "passed" for each in outcomes)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_all_cases_are_right_or_refused(part: int) -> None:
    outcomes = [onnx_cases.run(case) for case in cases()[part::PARTS]]
    assert not wrong(outcomes)
    assert sum(each.word == "passed" for each in outcomes) >= LEAST * len(outcomes)
    refused = [each for each in outcomes if each.word == "refused"]
    assert all("can't be compiled" in each.reason or "can't be read" in each.reason for each in refused)


def test_differences_are_seen() -> None:
    case = next(case for case in cases() if case.name == "test_add")
    data = case.data_sets[0]
    outcome = onnx_cases.run(dataclasses.replace(case, data_sets=[(data[0], [data[1][0] + 1e-2])]), interpreted=True)
    assert outcome.word == "wrong"
    assert "differs in 60 of 60 elements" in outcome.reason
