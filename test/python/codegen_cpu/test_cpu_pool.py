# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The template of pools: against numpy, for any cut of the units, windows, sizes and types."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from compile_harness import compile_fresh, templates_of
from cpu_harness import TARGETS, compiled

from rlx_mlir import GraphModule, interpret
from rlx_mlir.codegen.cpu import UnsupportedByTemplate
from rlx_mlir.codegen.cpu.pool import GENERATORS, PLACES, UNROLLED, emit_pool
from rlx_mlir.codegen.emit import memref
from rlx_mlir.codegen.specs import PoolSpec
from rlx_mlir.mir.images import pool

DTYPES: dict[str, Any] = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}

#: Sizes of the image and of the window, stride and padding.
CASES: dict[str, tuple[Any, ...]] = {
    "3 x 3": ((2, 3, 9, 19), (3, 3), (1, 1), (1, 1)),
    "every second": ((1, 2, 14, 67), (3, 3), (2, 2), (1, 1)),
    "side by side": ((1, 2, 8, 64), (2, 2), (2, 2), (0, 0)),
    "apart": ((1, 2, 11, 40), (2, 3), (3, 5), (0, 1)),
    "whole image": ((2, 17, 7, 7), (7, 7), (1, 1), (0, 0)),
    "large windows": ((1, 1, UNROLLED + 9, UNROLLED + 30), (UNROLLED + 1, UNROLLED + 2), (2, 1), (3, 4)),
    "several units": ((1, 1, 5, PLACES // 2 - 1), (1, 2), (1, 1), (0, 0)),
    "one pixel": ((1, 1, 1, 1), (3, 3), (1, 1), (1, 1)),
    "no place": ((1, 2, 2, 9), (3, 3), (1, 1), (0, 0)),
    "no image": ((0, 2, 5, 9), (3, 3), (1, 1), (0, 0)),
}


def run(bits: int, word: str, kind: str, case: Sequence[Any], x: np.ndarray, cuts: Any = None, *, dynamic: bool) -> Any:
    shape, *windows = case
    sides = zip(shape[2:], *windows, strict=True)
    result = (*shape[:2], *((size + 2 * p - k) // s + 1 for size, k, s, p in sides))
    types = [(None, own[1], None, None) if dynamic else own for own in (shape, result)]
    spec = PoolSpec(*(memref(own, word) for own in types), kind, *windows)
    kernel = compiled("pool", emit_pool("pool", spec, TARGETS[bits]))
    return kernel([x], [np.empty(result, x.dtype)], cuts)[0]


@pytest.mark.parametrize("bits", sorted(TARGETS))
@pytest.mark.parametrize("word", DTYPES)
@pytest.mark.parametrize("kind", ["max", "min", "sum", "mean", "prod"])
@pytest.mark.parametrize("case", CASES)
@pytest.mark.quick(10)
def test_template(bits, word, kind, case):
    own = CASES[case]
    x = np.random.default_rng(0).standard_normal(own[0]).astype(DTYPES[word])
    if x.size > 5:
        x.flat[3], x.flat[-1] = np.nan, np.inf
    kernel, stride, padding = own[1:]
    with np.errstate(invalid="ignore"):
        want = pool(x, kind=kind, kernel_size=kernel, stride=stride, padding=padding)
    found = run(bits, word, kind, own, x, dynamic=case.startswith("no "))
    tolerance = {"f32": 1e-5, "f16": 2**-10, "bf16": 2**-7}[word]
    np.testing.assert_allclose(found.astype(np.float64), want.astype(np.float64), rtol=tolerance, atol=tolerance)
    again = run(bits, word, kind, own, x, range(20), dynamic=True)
    assert again.tobytes() == found.tobytes()


def test_what_has_no_template():
    (generator,) = GENERATORS
    for x, result, message in (
        ("memref<1x2x4x4xf64>", "memref<1x2x2x2xf64>", "pools of f64"),
        ("memref<1x0x4x4xf32>", "memref<1x0x2x2xf32>", "no empty operand"),
    ):
        with pytest.raises(UnsupportedByTemplate, match=message):
            generator.configure("p", PoolSpec(x, result, "max", (3, 3), (1, 1), (0, 0)), TARGETS[256])


@pytest.mark.parametrize("dtype", ["f32", pytest.param("f64", marks=pytest.mark.slow)])
def test_graphs(dtype):
    """Kernels of any size up to the maxima; threads change no bit; f64 takes loops."""
    m = GraphModule.mir("m")
    options = {"kernel_size": [3, 3], "stride": [2, 2], "padding": [1, 1]}
    m.set_outputs({"y": m.pool(m.input("x", ["n", 5, "h", "w"], dtype), kind="max", **options)})
    one, two = (compile_fresh(m, maxima={"h": 50, "w": 90}, threads=threads) for threads in (1, 2))
    assert set(templates_of(one).values()) == {"pool" if dtype == "f32" else "generic"}
    for size in ((1, 50, 90), (2, 1, 1), (0, 3, 3), (1, 33, 17)):
        x = np.random.default_rng(0).standard_normal((size[0], 5, *size[1:])).astype(dtype.replace("f", "float"))
        found = one.run({"x": x})["y"]
        np.testing.assert_array_equal(found, interpret(m, {"x": x})["y"])
        assert two.run({"x": x})["y"].tobytes() == found.tobytes()
