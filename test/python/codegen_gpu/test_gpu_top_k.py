# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The GPU's schedule of the largest elements, emulated; and its code, assembled."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cuda_harness import emulated_device
from gpu_harness import assemble

import rlx_mlir as rlx
from rlx_mlir.compiler import CompileOptions, build_artifact
from rlx_mlir.dtypes import DTYPES


def graph(n: int, k: int, dtype: str) -> rlx.GraphModule:
    module = rlx.GraphModule.mir("largest")
    values, indices = module.top_k(module.input("x", ["a", "b", n], dtype), k)
    module.set_outputs({"values": values, "indices": indices})
    return module


def numbers(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Many equal ones, NaN, infinities, zeros of both signs."""
    rng = np.random.default_rng(shape[-1])
    x = rng.integers(-shape[-1], shape[-1], shape).astype(DTYPES[dtype])
    if x.size:
        row = x.reshape(-1, shape[-1])
        row[0, : shape[-1] // 2] = np.nan
        row[0, -1], row[-1, 0], row[-1, -1] = -np.inf, np.inf, -0.0
    return x


def check(module: Any, executable: Any, x: np.ndarray) -> None:
    got, want = executable.run({"x": x}), rlx.interpret(module, {"x": x})
    for name, expected in want.items():
        np.testing.assert_array_equal(got[name].astype(np.float64), expected.astype(np.float64), err_msg=name)


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
@pytest.mark.parametrize(("n", "k"), [(1, 1), (7, 7), (301, 5), (4096, 2), (4100, 4), (20000, 40)])
@pytest.mark.quick(2)
def test_equals_the_reference(n: int, k: int, dtype: str) -> None:
    with emulated_device("sm_90"):
        module = graph(n, k, dtype)
        executable = rlx.compile(module, target="cuda", cache=False)
        assert set(executable.artifact.templates.values()) == {"top_k"}
        for a in (0, 1, 2):
            check(module, executable, numbers((a, 1, n), dtype))
        del executable


def test_what_it_does_not_cover_is_generic() -> None:
    for n, k, dtype in ((100, 4, "f64"), (200_000, 400, "f32")):
        artifact = build_artifact(graph(n, k, dtype), CompileOptions(target="nvptx", chip="sm_80"))
        (how,) = artifact.templates.values()
        assert how.startswith("generic: "), how
    for result in (0, 1):
        module = rlx.GraphModule.mir("one")
        module.set_outputs({"y": module.top_k(module.input("x", ["rows", 100], "f32"), 4)[result]})
        (how,) = build_artifact(module, CompileOptions(target="nvptx", chip="sm_80")).templates.values()
        assert how.endswith("only one of values and positions is read"), how


@pytest.mark.parametrize("dtype", ["f32", "i32", "i64"])
def test_other_orders_are_generic(dtype: str) -> None:
    module = rlx.GraphModule.mir("orders")
    x = module.input("x", ["a", 40], dtype)
    values, indices = module.top_k(x, 40, smallest=True)
    module.set_outputs({"values": values, "indices": indices, "first": module.top_k(x, 3, nan_largest=True)[0]})
    with emulated_device("sm_90"):
        executable = rlx.compile(module, target="cuda", cache=False)
        given = numbers((2, 40), "f32")
        check(
            module, executable, given if dtype == "f32" else np.clip(np.nan_to_num(given), -9, 9).astype(DTYPES[dtype])
        )
        del executable


@pytest.mark.parametrize("chip", ["sm_80", "sm_90a"])
def test_ptx_assembles(chip: str) -> None:
    assemble(rlx.emit(graph(262144, 64, "f32"), "ptx", target="nvptx", chip=chip), chip)


def test_rows_of_symbolic_lengths() -> None:
    module = rlx.GraphModule.mir("sorted")
    x = module.input("x", ["a", "n"], "f32")
    values, indices = module.top_k(x, x.shape[1])
    module.set_outputs({"values": values, "indices": indices, "last": module.top_k(x, 2, smallest=True)[1]})
    with emulated_device("sm_90"):
        executable = rlx.compile(module, target="cuda", cache=False, maxima={"n": 40})
        for shape in ((0, 3), (1, 2), (2, 5), (3, 32)):
            check(module, executable, numbers(shape, "f32"))
        del executable
