# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Derivatives of every operation against central differences, and that no operation is left out."""

from __future__ import annotations

import pytest
from cases_core import CORE
from derivatives import check_case

CASES = CORE


@pytest.mark.parametrize("name", CASES)
def test_derivatives_are_those_of_differences(name):
    check_case(CASES[name], name)
