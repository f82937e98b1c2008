# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The GPU's schedules of the first elements of rows, and of sorted rows, emulated; and their code, assembled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from cuda_harness import emulated_device
from gpu_emulated import assembled
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


def made(n: int | str, k: int | str, dtype: str, results: str, **order: bool) -> rlx.GraphModule:
    """The first `k` elements of rows, their positions, or both; `k` of the size of a dimension is that of x."""
    module = rlx.GraphModule.mir("orders")
    x = module.input("x", ["a", n], dtype)
    values, indices = module.top_k(x, x.shape[1] if isinstance(k, str) else k, **order)
    outputs = {"values": values, "indices": indices}
    module.set_outputs({name: outputs[name] for name in results.split()})
    return module


def check_rows(module: rlx.GraphModule, dtype: str, schedule: str, lengths: Sequence[int], rows: Sequence[int]) -> None:
    with emulated_device("sm_90"):
        executable = rlx.compile(module, target="cuda", cache=False, maxima={"n": max(lengths)} if lengths[1:] else {})
        assert set(executable.artifact.templates.values()) == {schedule}
        for n in lengths:
            for a in rows:
                x = numbers((a, n), "f32") if n else np.zeros((a, 0), np.float32)
                whole = np.clip(np.nan_to_num(x), -100, 100)
                check(module, executable, (x if dtype.startswith(("f", "b")) else whole).astype(DTYPES[dtype]))
        del executable


@pytest.mark.parametrize("results", ["values", "indices", "values indices"])
@pytest.mark.parametrize(
    ("n", "k", "dtype", "order"),
    [
        (33, 7, "i32", {}),
        (5000, 3, "i8", {"smallest": True}),
        (257, 31, "f16", {"smallest": True, "nan_largest": True}),
        (40, 3, "f32", {"nan_largest": True}),
    ],
)
@pytest.mark.quick(2)
def test_other_orders_of_few_elements(n: int, k: int, dtype: str, order: dict[str, bool], results: str) -> None:
    check_rows(made(n, k, dtype, results, **order), dtype, "top_k", [n], (0, 1, 2))


@pytest.mark.parametrize("results", ["values", "indices", "values indices"])
@pytest.mark.parametrize(
    ("n", "k", "dtype", "order"),
    [
        (1, 1, "i64", {}),
        (31, 31, "f64", {"smallest": True}),
        (65, 33, "i64", {"smallest": True}),
        (300, 200, "bf16", {"nan_largest": True}),
        (2047, 2047, "i16", {}),
        (2049, 130, "f64", {"nan_largest": True, "smallest": True}),
        (5000, 5000, "i8", {"smallest": True}),
    ],
)
@pytest.mark.quick(3)
def test_rows_are_sorted(n: int, k: int, dtype: str, order: dict[str, bool], results: str) -> None:
    """In tiles that are smaller than a block's warps, whole, and merged."""
    check_rows(made(n, k, dtype, results, **order), dtype, "sort", [n], (0, 2))


@pytest.mark.parametrize("dtype", ["f32", pytest.param("i64", marks=pytest.mark.slow)])
@pytest.mark.wide
def test_rows_whose_length_calls_say_are_sorted(dtype: str) -> None:
    lengths = [0, 1, 33, 2048, 2049, 4097, 8500]
    check_rows(made("n", "n", dtype, "values indices", smallest=True), dtype, "sort", lengths, (1, 2))


def test_no_element_is_generic() -> None:
    (how,) = build_artifact(graph(5, 0, "f32"), CompileOptions(target="nvptx", chip="sm_80")).templates.values()
    assert how.startswith("generic: "), how


@pytest.mark.parametrize("length", [100, "n"])
def test_loops_equal_the_reference(length: int | str) -> None:
    """Where templates are disabled."""
    module = made(length, length, "f32", "values indices")
    with emulated_device("sm_90"):
        executable = rlx.compile(
            module, target="cuda", cache=False, disable_templates=("top_k",), maxima={} if length == 100 else {"n": 100}
        )
        for n in (100,) if length == 100 else (0, 1, 5, 100):
            check(module, executable, numbers((2, n), "f32") if n else np.zeros((2, 0), np.float32))
        del executable


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_sorting_keeps_everything_in_registers(dtype: str) -> None:
    ptx = rlx.emit(made("n", "n", dtype, "values indices"), "ptx", target="nvptx", chip="sm_90a")
    kernels = assembled(ptx, "sm_90a")
    assert len(kernels) == 3
    for name, kernel in kernels.items():
        assert kernel.spills == 0, (name, kernel.messages)
        assert kernel.registers <= 64, (name, kernel.messages)  # four blocks of 256 threads to a multiprocessor


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
