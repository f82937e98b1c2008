# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""mir.erfc: its digits, near 0 and far out, on CPUs and GPUs, by kernels and by plain loops."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from cuda_harness import emulated_device

import rlx_mlir as rlx
from rlx_mlir import GraphModule, interpret
from rlx_mlir.errors import CompileError

BF16 = np.dtype(ml_dtypes.bfloat16)
#: Units in the last place by which results of f32 may be off, of normal numbers.
UNITS = 6
#: Where erfc(x) is the least normal number of f32.
LAST_NORMAL = 9.194
SPECIAL = np.array([0.0, -0.0, math.inf, -math.inf, math.nan, 1e30, -1e30, 11.0, 10.5, -20.0], np.float32)
WANTED = [1.0, 1.0, 0.0, 2.0, math.nan, 0.0, 2.0, 0.0, 0.0, 2.0]


def exact(x: np.ndarray) -> np.ndarray:
    """erfc in f64."""
    return np.array([math.erfc(float(each)) for each in x.ravel()]).reshape(x.shape)


def points(count: int) -> np.ndarray:
    """Numbers of f32 at which the function is between 2 and the least normal number, and small ones."""
    rng = np.random.default_rng(5)
    parts = [rng.uniform(-6, 0, count), rng.uniform(0, LAST_NORMAL, 3 * count), 10.0 ** rng.uniform(-30, 0, count)]
    return np.concatenate(parts).astype(np.float32)


def units(x: np.ndarray, got: np.ndarray) -> float:
    """The largest error in units in the last place of f32."""
    want = exact(x)
    return float(np.max(np.abs(got.astype(np.float64) - want) / np.spacing(np.abs(want).astype(np.float32))))


def check_f32(x: np.ndarray, got: np.ndarray) -> None:
    """All points, then numbers below the least normal one, then special ones."""
    normal, small = len(points(PER_PART)), len(TAIL)
    assert units(x[:normal], got[:normal]) <= UNITS
    # Results below the normal numbers round to their multiples of 2^-149, and aren't dropped.
    tail = slice(normal, normal + small)
    assert np.all(np.abs(got[tail] - exact(x[tail])) <= 2.0**-148)
    assert np.all(got[tail][exact(x[tail]) > 2.0**-147] > 0)
    np.testing.assert_array_equal(got[normal + small :], np.array(WANTED, np.float32))


PER_PART, WIDTH = 400, 17
TAIL = np.linspace(LAST_NORMAL + 0.01, 10.2, 64).astype(np.float32)
INPUT = np.concatenate([points(PER_PART), TAIL, SPECIAL])


def module(*dtypes: str) -> GraphModule:
    """erfc of one input for each type."""
    graph = GraphModule.mir("tails")
    graph.set_outputs({dtype: graph.erfc(graph.input(f"x_{dtype}", ["n", WIDTH], dtype)) for dtype in dtypes})
    return graph


def inputs(*dtypes: str) -> dict[str, np.ndarray]:
    """The points in each type."""
    types: dict[str, Any] = {"f32": np.float32, "f64": np.float64, "f16": np.float16, "bf16": BF16}
    with np.errstate(over="ignore"):
        return {f"x_{dtype}": INPUT.astype(types[dtype]).reshape(-1, WIDTH) for dtype in dtypes}


def check_all(given: dict[str, np.ndarray], got: dict[str, np.ndarray]) -> None:
    """Each type: f16 and bf16 are at the number nearest to the exact value, or at the one beside it."""
    for dtype, found in got.items():
        x = given[f"x_{dtype}"]
        if dtype == "f32":
            check_f32(x.ravel(), found.ravel())
        elif dtype == "f64":
            np.testing.assert_allclose(found, exact(x), rtol=1e-14, atol=1e-320)
        else:
            want = exact(x).astype(found.dtype)
            same = (found == want) | (np.isnan(found) & np.isnan(want))
            near = np.abs(found.view(np.int16).astype(np.int32) - want.view(np.int16).astype(np.int32)) <= 1
            assert np.all(same | near)
            assert np.mean(same) > 0.99


FLOATS = ("f32", "f16", "bf16", "f64")


def test_reference():
    given = inputs(*FLOATS)
    check_all(given, interpret(module(*FLOATS), given))


@pytest.mark.parametrize("disabled", [(), ("all",)], ids=["kernels", "loops"])
def test_on_cpus(disabled):
    executable = rlx.compile(module(*FLOATS), disable_templates=disabled, cache=False)
    classes = sorted(text.partition(":")[0] for text in executable.artifact.templates.values())
    assert classes == (["generic"] * 4 if disabled else ["broadcast", "rows", "rows", "rows"])
    given = inputs(*FLOATS)
    check_all(given, executable.run(given))


@pytest.mark.parametrize("disabled", [(), ("all",)], ids=["kernels", "loops"])
@pytest.mark.parametrize("chip", ["sm_80", "sm_90a"])
@pytest.mark.quick(1)
def test_on_gpus(chip, disabled):
    narrow = ("f32", "f16", "bf16")
    with emulated_device(chip):
        executable = rlx.compile(module(*narrow), target="cuda", chip=chip, disable_templates=disabled, cache=False)
        generic = [text.startswith("generic") for text in executable.artifact.templates.values()]
        assert generic == [bool(disabled)] * 3
        given = inputs(*narrow)
        check_all(given, executable.run(given))


def test_of_f64_gpus_have_no_code():
    """As of exp and its like: the error names the operation."""
    with pytest.raises(CompileError, match=r"no expansion of(?s:.*)math\.erfc"):
        rlx.emit(module("f64"), "ptx", target="nvptx", chip="sm_90")


def test_a_product_ends_with_it():
    """One kernel, with the function on its sums."""
    graph = GraphModule.mir("product")
    product = graph.matmul(graph.input("x", ["n", 8]), graph.param("w", [8, 16]))
    graph.set_outputs({"y": graph.erfc(product)})
    rng = np.random.default_rng(1)
    given = {"x": rng.standard_normal((5, 8), np.float32), "w": rng.standard_normal((8, 16), np.float32)}
    executable = rlx.compile(graph, cache=False)
    executable.set_params({"w": given["w"]})
    assert list(executable.artifact.templates.values()) == ["gemm_panels"]
    got = executable.run({"x": given["x"]})["y"]
    np.testing.assert_allclose(got, exact(given["x"].astype(np.float64) @ given["w"]), rtol=2e-4, atol=1e-12)
