# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The generator for copies of runs, against numpy, on all targets: not a bit changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from compile_harness import compile_fresh, templates_of
from cpu_harness import TARGETS, compiled

from rlx_mlir import GraphModule
from rlx_mlir.codegen import UnsupportedByTemplate
from rlx_mlir.codegen.cpu.copies import UNIT, configure_copies, emit_copies
from rlx_mlir.codegen.emit import memref
from rlx_mlir.codegen.specs import MoveSpec

DTYPES: dict[str, Any] = {
    "f32": np.float32,
    "f64": np.float64,
    "bf16": ml_dtypes.bfloat16,
    "i8": np.int8,
    "i64": np.int64,
}
LONG = UNIT // 4
#: Operation, shapes of the inputs, attributes: runs that are empty, of one element, a vector more and less one, longer
#: than a unit; nothing at all.
CASES: dict[str, tuple[str, list[tuple[int, ...]], dict[str, Any]]] = {
    "part": ("narrow", [(3, 7, 5)], {"axis": 1, "start": 2, "length": 4}),
    "part of a vector": ("narrow", [(9,)], {"axis": 0, "start": 8, "length": 1}),
    "no part": ("narrow", [(2, 4)], {"axis": 1, "start": 4, "length": 0}),
    "all": ("narrow", [(3, 33)], {"axis": 1, "start": 0, "length": 33}),
    "part of no rows": ("narrow", [(0, 9)], {"axis": 1, "start": 2, "length": 5}),
    "part of a long row": ("narrow", [(3 * LONG + 5,)], {"axis": 0, "start": 3, "length": 2 * LONG + 1}),
    "joined": ("concat", [(5, 15), (5, 16), (5, 17)], {"axis": 1}),
    "joined rows": ("concat", [(2, 3, 4), (2, 1, 4)], {"axis": 1}),
    "joined with nothing": ("concat", [(3, 0), (3, 1)], {"axis": 1}),
    "joined long rows": ("concat", [(2, LONG + 3), (2, 1), (2, LONG - 1)], {"axis": 1}),
    "one alone": ("concat", [(4, 31)], {"axis": 0}),
    "heads": ("transpose", [(2, 5, 3, 8)], {"permutation": (0, 2, 1, 3)}),
    "turned around": ("transpose", [(2, 3, 4, 17)], {"permutation": (2, 1, 0, 3)}),
    "rolled": ("transpose", [(3, 4, 5, 1)], {"permutation": (1, 2, 0, 3)}),
    "rows that stay together": ("transpose", [(3, 4, 2, 7)], {"permutation": (1, 0, 2, 3)}),
    "nothing moves": ("transpose", [(3, 5)], {"permutation": (0, 1)}),
    "nothing to turn": ("transpose", [(0, 4, 5)], {"permutation": (1, 0, 2)}),
}
NUMPY: dict[str, Callable[..., np.ndarray]] = {
    "narrow": lambda x, axis, start, length: np.take(x, range(start, start + length), axis),
    "concat": lambda *xs, axis: np.concatenate(xs, axis),
    "transpose": lambda x, permutation: np.transpose(x, permutation),
}


def compared(case: str, dtype: str, bits: int, *, dynamic: bool) -> None:
    op, shapes, attributes = CASES[case]
    rng = np.random.default_rng(3)
    given = [(rng.standard_normal(shape) * 50).astype(DTYPES[dtype]) for shape in shapes]
    wanted = np.ascontiguousarray(NUMPY[op](*given, **attributes))
    types = [memref([None] * x.ndim if dynamic else x.shape, dtype) for x in (*given, wanted)]
    spec = MoveSpec(op, tuple(types[:-1]), types[-1], tuple(range(len(given))), **attributes)
    config = configure_copies("k", spec, TARGETS[bits])
    assert config is not None
    kernel = compiled("k", emit_copies("k", config, TARGETS[bits]))
    for cuts in (None, [1, 3]):
        (found,) = kernel(given, [wanted], cuts)
        assert found.tobytes() == wanted.tobytes()


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("case", CASES)
@pytest.mark.quick(9)
def test_shapes(case: str, dynamic: bool) -> None:
    for bits in TARGETS:
        compared(case, "f32", bits, dynamic=dynamic)


@pytest.mark.parametrize("dtype", DTYPES)
def test_types(dtype: str) -> None:
    for case in ("part", "joined", "heads"):
        compared(case, dtype, 512, dynamic=False)


def test_what_has_no_template() -> None:
    spec = MoveSpec("narrow", ("memref<4x9xi1>",), "memref<4x2xi1>", (0,), axis=1, start=0, length=2)
    with pytest.raises(UnsupportedByTemplate, match="copies of i1"):
        configure_copies("k", spec, TARGETS[256])
    moved = MoveSpec("transpose", ("memref<4x9xf32>",), "memref<9x4xf32>", (0,), permutation=(1, 0))
    assert configure_copies("k", moved, TARGETS[256]) is None


def test_graphs() -> None:
    """Kernels of any size up to the maxima, of one input twice, and a transpose of either kind."""
    m = GraphModule.mir("m")
    x = m.input("x", ["n", 3, "w"], "f32")
    outputs = {
        "joined": m.concat([x, m.abs(x), x], 2),
        "part": m.narrow(x, 1, 1, 2),
        "turned": m.transpose(x, [1, 0, 2]),
    }
    m.set_outputs(outputs)
    executable = compile_fresh(m, maxima={"n": 9, "w": 300}, threads=2)
    assert list(templates_of(executable).values()).count("copies") == 3
    for n, w in ((9, 300), (1, 1), (0, 3), (3, 0), (5, 33)):
        given = np.random.default_rng(0).standard_normal((n, 3, w), np.float32)
        found = executable.run({"x": given})
        np.testing.assert_array_equal(found["joined"], np.concatenate([given, np.abs(given), given], 2))
        np.testing.assert_array_equal(found["part"], given[:, 1:])
        np.testing.assert_array_equal(found["turned"], given.transpose(1, 0, 2))
