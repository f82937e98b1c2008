# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The GPU's schedule for products of rows with the weight of their expert, emulated; and its code, assembled."""

from __future__ import annotations

import numpy as np
import pytest
from cuda_harness import emulated_device
from gpu_emulated import assembled

import rlx_mlir as rlx
from rlx_mlir.compiler import CompileOptions, build_artifact
from rlx_mlir.dtypes import DTYPES

TOLERANCES = {"f32": 1e-5, "f16": 2e-3, "bf16": 1.6e-2}


def graph(m: int | str, k: int | str, n: int | str, experts: int, dtype: str, number: str = "i32") -> rlx.GraphModule:
    module = rlx.GraphModule.mir("experts")
    weight = module.param("weight", [experts, k, n], dtype)
    x = module.input("x", [m, k], dtype)
    module.set_outputs({"y": module.grouped_matmul(x, weight, module.input("expert", [m], number))})
    return module


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
@pytest.mark.parametrize(
    ("k", "n", "experts", "number"), [(1, 1, 1, "i32"), (257, 33, 3, "i64"), (255, 136, 4, "i32"), (32, 300, 2, "i32")]
)
@pytest.mark.quick(2)
def test_equals_the_reference(k: int, n: int, experts: int, number: str, dtype: str) -> None:
    """Experts with none, one and many of the rows; numbers of experts that there aren't are the nearest ones."""
    rng = np.random.default_rng(k)
    module = graph("m", k, n, experts, dtype, number)
    weight = rng.standard_normal((experts, k, n)).astype(DTYPES[dtype])
    with emulated_device("sm_90"):
        executable = rlx.compile(module, target="cuda", cache=False)
        assert set(executable.artifact.templates.values()) == {"grouped"}
        executable.set_params({"weight": weight})
        for m in (0, 1, 7, 9, 40):
            x = rng.standard_normal((m, k)).astype(DTYPES[dtype])
            expert = rng.integers(-1, max(experts, 2), m).astype(DTYPES[number])
            got = executable.run({"x": x, "expert": expert})["y"].astype(np.float64)
            want = rlx.interpret(module, {"x": x, "expert": expert, "weight": weight})["y"].astype(np.float64)
            tolerance = TOLERANCES[dtype] * max(1.0, k**0.5)
            np.testing.assert_allclose(got, want, rtol=TOLERANCES[dtype], atol=tolerance, err_msg=str(m))
        del executable


@pytest.mark.slow
def test_more_rows_than_are_listed_at_once() -> None:
    module = graph("m", 8, 4, 2, "f32")
    rng = np.random.default_rng(0)
    weight, x = (rng.standard_normal(shape).astype(np.float32) for shape in ((2, 8, 4), (2050, 8)))
    expert = np.zeros(2050, np.int32)
    expert[[3, 2047, 2048, 2049]] = 1
    with emulated_device("sm_90"):
        executable = rlx.compile(module, target="cuda", cache=False, maxima={"m": 2050})
        executable.set_params({"weight": weight})
        got = executable.run({"x": x, "expert": expert})["y"]
        want = rlx.interpret(module, {"x": x, "expert": expert, "weight": weight})["y"]
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
        del executable


def test_other_numbers_of_experts_are_generic() -> None:
    (how,) = build_artifact(
        graph(4, 8, 8, 2, "f32", "f32"), CompileOptions(target="nvptx", chip="sm_80")
    ).templates.values()
    assert how.startswith("generic: "), how
    assert "by experts of f32" in how


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.quick(1)
def test_everything_stays_in_registers(dtype: str) -> None:
    ptx = rlx.emit(graph("m", "k", "n", 4, dtype), "ptx", target="nvptx", chip="sm_90a")
    for name, kernel in assembled(ptx, "sm_90a").items():
        assert kernel.spills == 0, (name, kernel.messages)
        assert kernel.registers <= 128, (name, kernel.messages)  # two blocks to a multiprocessor
