# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How far LLVM optimises what tests compile: not at all where they are about something else than the code of kernels.

At level 0, LLVM takes a tenth of the time, and a compilation half of it. What graphs become is tested as users run it
in some files, and so are real models, which would take too long otherwise; the emulator of GPUs would, too. Elsewhere,
what our passes and templates say is tested, which doesn't depend on the level. RLX_LEVEL in the environment is for all
tests: `test/run.py --all`, which .ci/nightly runs, has level 2 everywhere.
"""

from __future__ import annotations

import os

import pytest

#: Tests of compiled graphs, and of the time that compiling takes.
OPTIMISED = frozenset(
    f"test_{name}.py"
    for name in (
        "compile_block",
        "compile_cases",
        "compile_errors",
        "compile_halves",
        "compile_ops",
        "compile_scaling",
        "control_kernels",
        "donation",
        "dynamic_sizes",
        "limits",
    )
)
#: Fixtures of models that are too large for other code.
REAL_MODELS = frozenset({"smollm2_path", "gemma3_path"})
_GIVEN = os.environ.get("RLX_LEVEL")


def settle(item: pytest.Item) -> None:
    """Sets the level that a test, and the fixtures made for it, find in the environment."""
    if _GIVEN is not None:
        return
    gpu = "gpu" in item.path.name or item.path.parent.name == "codegen_gpu"
    if gpu or item.path.name in OPTIMISED or REAL_MODELS & set(item.fixturenames):
        os.environ.pop("RLX_LEVEL", None)
    else:
        os.environ["RLX_LEVEL"] = "0"


def of_kernel(text: str) -> int:
    """The level for a kernel on its own; tiles of AMX are loops of scalars at level 0."""
    return max(int(_GIVEN or 0), int("amx." in text))
