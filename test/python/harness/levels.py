# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How far LLVM optimises what tests compile: not at all where they are about something else than the code of kernels.

At level 0, LLVM takes a tenth of the time, and a compilation half of it. What graphs become is tested as users run it
in test/python/lowering, and so are real models, which would take too long otherwise. Kernels on their own are compiled
at level 0, too: what templates print doesn't depend on it. RLX_LEVEL in the environment is for all tests:
`test/run.py --all`, which .ci/nightly runs, has level 2 everywhere.
"""

from __future__ import annotations

import os

import pytest

#: Folders whose tests are of programs around the kernels.
PLAIN = frozenset(
    {
        "autodiff",
        "finetuning",
        "fuzz",
        "hir",
        "mir",
        "models",
        "onnx_files",
        "pytorch",
        "quantizing",
        "runtime",
        "serving",
        "stablehlo",
        "tools",
        "training",
    }
)
#: Fixtures of models that are too large for such code.
REAL_MODELS = frozenset({"smollm2_path", "gemma3_path"})
_GIVEN = os.environ.get("RLX_LEVEL")


def settle(item: pytest.Item) -> None:
    """Sets the level that a test, and the fixtures made for it, find in the environment."""
    if _GIVEN is not None:
        return
    if item.path.parent.name in PLAIN and "gpu" not in item.path.name and not REAL_MODELS & set(item.fixturenames):
        os.environ["RLX_LEVEL"] = "0"
    else:
        os.environ.pop("RLX_LEVEL", None)


def of_kernel(text: str) -> int:
    """The level for a kernel on its own; tiles of AMX are loops of scalars at level 0."""
    return max(int(_GIVEN or 0), int("amx." in text))
