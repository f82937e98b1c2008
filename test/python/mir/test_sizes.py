# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Sizes of dynamic dimensions as artefacts hold them: computed alike in Python and by the plan, and checked."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from compile_harness import compile_fresh

from rlx_mlir import GraphModule
from rlx_mlir.errors import InputError
from rlx_mlir.runtime import sizes
from rlx_mlir.runtime.artifact import Artifact
from rlx_mlir.runtime.sizes import Derived

HALF = Derived("floordiv", 2, [(1, [0]), (-3, [])])  # (a - 3) // 2
REST = Derived("max", -1, [(2, [1]), (-1, [HALF])])  # max(2 b - (a - 3) // 2, -1)
SIZE: sizes.Terms = [(3, [HALF, 1]), (-1, [REST]), (5, [])]


@pytest.mark.parametrize(("a", "b"), [(0, 0), (1, 4), (2, 1), (9, 0), (40, 7)])
def test_what_sizes_are(a: int, b: int) -> None:
    wanted = 3 * ((a - 3) // 2) * b - max(2 * b - (a - 3) // 2, -1) + 5
    assert sizes.evaluate(SIZE, [a, b]) == wanted
    assert sizes.symbols_of(SIZE) == {0, 1}
    sizes.check(SIZE, 2)
    again = sizes.read(json.loads(json.dumps(SIZE)))
    assert again == SIZE
    assert sizes.evaluate(again, [a, b]) == wanted


@pytest.mark.parametrize(
    ("size", "message"),
    [
        ([(1, [2])], "is no size with 2 symbols"),
        ([(1.5, [0])], "is no size with 2 symbols"),
        ([(1, [True])], "is no size with 2 symbols"),
        ([(1, [Derived("floordiv", 0, [])])], "is no size with 2 symbols"),
        ([(1, [Derived("log", 2, [])])], "is no size with 2 symbols"),  # type: ignore[arg-type]
        ([(1, [Derived("max", 0, [(1, [3])])])], r"\[\(1, \[3\]\)\] is no size with 2 symbols"),
    ],
)
def test_what_is_no_size(size: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        sizes.check(size, 2)


def test_nesting_has_a_limit() -> None:
    size: sizes.Terms = [(1, [0])]
    for _ in range(sizes.DEPTH + 1):
        size = [(1, [Derived("max", 0, size)])]
    with pytest.raises(InputError, match="computed of others more than 64 deep"):
        sizes.check(size, 1)


def test_artefacts_keep_them() -> None:
    m = GraphModule.mir("halves")
    x = m.input("x", ["n", 3])
    m.set_outputs({"y": m.exp(x[1::2])})
    executable = compile_fresh(m)
    again = Artifact.from_bytes(executable.artifact.to_bytes())
    assert again == executable.artifact
    assert any(isinstance(factor, Derived) for _, factors in again.outputs[0].sizes[0] for factor in factors)
    given = np.ones((7, 3), np.float32)
    assert executable.run({"x": given})["y"].shape == (3, 3)
