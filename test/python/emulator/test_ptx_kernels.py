# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Every operation by the generic path for GPUs: its PTX in the emulator, against the numpy references."""

from __future__ import annotations

import pytest
from test_gpu import QUICK_AND_SLOW
from test_gpu_pipeline import run_case


@pytest.mark.parametrize("name", QUICK_AND_SLOW)
@pytest.mark.quick(1)
def test_generic_ptx_equals_the_references(name: str) -> None:
    templates = run_case(name, "sm_80", disable_templates=("all",))
    assert all(template.startswith("generic") for template in templates.values())
