# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Derivatives of every operation against central differences, and that no operation is left out."""

from __future__ import annotations

import pytest
from cases_blocks import BLOCKS
from cases_core import CORE
from cases_images import PICTURES
from derivatives import check_case

CASES = CORE | BLOCKS | PICTURES


@pytest.mark.parametrize("name", CASES)
def test_derivatives_are_those_of_differences(name):
    check_case(CASES[name], name)
