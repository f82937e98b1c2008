# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Schedules for reductions along any axes and for running sums, run by the emulator of PTX."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from compile_harness import compare
from covering import products
from cuda_harness import emulated_device
from gpu_emulated import assembled, emulate

import rlx_mlir as rlx
from rlx_mlir import GraphModule, interpret
from rlx_mlir.codegen import UnsupportedByTemplate
from rlx_mlir.codegen.gpu.emit import memref
from rlx_mlir.codegen.gpu.reduce import emit_reduce
from rlx_mlir.codegen.gpu.scan import emit_scan
from rlx_mlir.codegen.specs import ReduceSpec, ScanSpec
from rlx_mlir.mir.reductions import cumsum, reduce

DTYPES = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16, "i32": np.int32}
DTYPES |= {"f64": np.float64, "i64": np.int64}
Dims = tuple[Any, ...]


def type_of(dims: Dims, dtype: str) -> str:
    return memref([None if isinstance(dim, str) else dim for dim in dims], dtype)


def array(dims: Dims, dtype: str, sizes: dict[str, int]) -> np.ndarray:
    shape = [sizes.get(dim, dim) for dim in dims]
    values = np.random.default_rng(len(shape)).standard_normal(shape)
    return (values * (1 if dtype[0] in "fb" else 1000)).astype(DTYPES[dtype])


def close(got: np.ndarray, wanted: np.ndarray, dtype: str, what: object) -> None:
    """Integers are equal; others are to rounding, with the same infinities and NaNs."""
    if dtype.startswith("i"):
        assert np.array_equal(got, wanted), what
        return
    tolerance = {"f64": 4e-15, "f32": 2e-6, "f16": 1e-3, "bf16": 8e-3}[dtype]
    own, other = got.astype(np.float64), wanted.astype(np.float64)
    scale = max(1.0, np.abs(other[np.isfinite(other)]).max(initial=0))
    np.testing.assert_allclose(own, other, rtol=tolerance, atol=tolerance * scale, err_msg=str(what))


def check_reduce(dims: Dims, axes: tuple[int, ...], kind: str, dtype: str, chip: str, sizes: dict[str, int]) -> None:
    kept = tuple(dim for axis, dim in enumerate(dims) if axis not in axes)
    kernel = emit_reduce("r", ReduceSpec(type_of(dims, dtype), type_of(kept, dtype), kind, axes), chip)
    x = array(dims, dtype, sizes)
    if kind == "prod":
        x = np.where(np.abs(x) > 1, x, x.dtype.type(1))
    with np.errstate(all="ignore"):
        wanted = reduce(x, kind=kind, axes=axes)
    got = np.zeros(wanted.shape, DTYPES[dtype])
    stats, _ = emulate(kernel, "r", chip, [x], [got], profile=True)
    close(got, wanted, dtype, (dims, axes, sizes))
    assert not stats.bank_conflicts


@pytest.mark.parametrize(
    ("case", "kinds"),
    products(
        [
            ((5, 64), (1,)),
            (("a", 33), (1,)),
            (("a", "b"), (1,)),
            (("a", "b"), (0,)),
            (("a", 8), (0,)),
            (("a", "b", 24), (1,)),
            ((2, "b", 5), (1,)),
            (("a", 3, "b"), (0, 2)),
            ((2, "a", 3, "b", 4), (1, 3)),
            (("a", 1, "b"), (0, 1)),
            (("a", "b"), (0, 1)),
            (("a", 4, 2), (1, 2)),
        ],
        [("sum", "f32"), ("mean", "bf16"), ("max", "f16"), ("sum", "i32")],
        meeting=1,
    ),
)
@pytest.mark.quick(4)
def test_any_axes(case: tuple[Any, ...], kinds: tuple[str, str]) -> None:
    dims, axes = case
    kind, dtype = kinds
    for a, b in ((1, 0), (0, 3), (1, 1), (35, 40)):
        check_reduce(dims, axes, kind, dtype, "sm_90a", {"a": a, "b": b})


@pytest.mark.parametrize(
    ("kind", "dtype", "axes"),
    products(["sum", "mean", "max", "min", "prod"], ["f32", "i32", "f64", "i64"], [(0,), (1,), (0, 2)]),
)
@pytest.mark.quick(6)
def test_every_kind(kind: str, dtype: str, axes: tuple[int, ...]) -> None:
    if kind == "mean" and dtype.startswith("i"):
        with pytest.raises(UnsupportedByTemplate, match=f"reductions by mean of {dtype} have no schedule"):
            check_reduce((2, 3), (0,), kind, dtype, "sm_80", {})
        return
    check_reduce((3, 19, 12), axes, kind, dtype, "sm_80", {})


@pytest.mark.parametrize(
    ("case", "dtype"),
    products(
        [(("n", 16), (0,), 3000), (("n", 5), (0,), 2050), ((2, "n"), (1,), 5000), ((1, 4100), (1,), 0)],
        ["f32", "bf16", "f64"],
        meeting=1,
    ),
)
@pytest.mark.quick(2)
def test_long_ones_in_parts(case: tuple[Any, ...], dtype: str) -> None:
    dims, axes, n = case
    check_reduce(dims, axes, "sum", dtype, "sm_90a", {"n": n})


@pytest.mark.parametrize(
    ("case", "kind"),
    products(
        [
            ((3, 64), (1,)),
            ((3, 33), (1,)),
            (("a", "b"), (1,)),
            (("a", "b"), (0,)),
            ((19, "b", 32), (0, 2)),
            (("a", 48), (0,)),
            ((1, 5000), (1,)),
        ],
        ["any", "all"],
    ),
)
@pytest.mark.quick(3)
def test_conditions(case: tuple[Any, ...], kind: str) -> None:
    """Bytes: few that decide a result, and none at all."""
    dims, axes = case
    kept = tuple(dim for axis, dim in enumerate(dims) if axis not in axes)
    kernel = emit_reduce("r", ReduceSpec(type_of(dims, "i1"), type_of(kept, "i1"), kind, axes), "sm_80")
    for a, b in ((0, 3), (2, 0), (35, 40), (3, 700)):
        shape = [{"a": a, "b": b}.get(dim, dim) for dim in dims]
        x = (np.random.default_rng(a).random(shape) < 0.03) ^ (kind == "all")
        wanted = reduce(x, kind=kind, axes=axes)
        got = np.zeros(wanted.shape, np.bool_)
        emulate(kernel, "r", "sm_80", [x], [got])
        assert got.tobytes() == wanted.tobytes(), (a, b)


def test_nan_wins() -> None:
    for axes in ((0,), (1,)):
        kernel = emit_reduce("r", ReduceSpec("memref<40x40xf32>", "memref<40xf32>", "max", axes), "sm_80")
        x, got = array((40, 40), "f32", {}), np.zeros(40, np.float32)
        x[7, 9] = np.nan
        emulate(kernel, "r", "sm_80", [x], [got])
        np.testing.assert_array_equal(got, x.max(axes))


def check_scan(dims: Dims, axis: int, dtype: str, chip: str, sizes: dict[str, int], *, exclusive: bool = False) -> None:
    kernel = emit_scan("s", ScanSpec(type_of(dims, dtype), axis, exclusive), chip)
    x = array(dims, dtype, sizes)
    got = np.zeros_like(x)
    stats, _ = emulate(kernel, "s", chip, [x], [got], profile=True)
    close(got, cumsum(x, axis=axis, exclusive=exclusive), dtype, (dims, axis, sizes))
    assert not stats.bank_conflicts


@pytest.mark.parametrize(
    ("case", "kinds"),
    products(
        [((3, 64), 1), (("a", "b"), 1), (("a", "b"), 0), (("a", "b", 8), 1), ((2, "b", 5), 1), (("a", 33, 1), 1)],
        [("f32", False), ("bf16", True), ("i32", False), ("i32", True)],
        meeting=1,
    ),
)
@pytest.mark.quick(3)
def test_running_sums(case: tuple[Any, ...], kinds: tuple[str, bool]) -> None:
    dims, axis = case
    dtype, exclusive = kinds
    for a, b in ((1, 0), (0, 3), (1, 1), (2, 9), (3, 600)):
        check_scan(dims, axis, dtype, "sm_90a", {"a": a, "b": b}, exclusive=exclusive)


@pytest.mark.parametrize(
    ("case", "exclusive", "dtype"),
    products(
        [(("n",), 0, 5000), ((1, 4097), 1, 0), (("n", 8), 0, 1200), ((1, 700, 3), 1, 0)], [False, True], ["f32", "i32"]
    ),
)
@pytest.mark.quick(3)
def test_long_running_sums_in_parts(case: tuple[Any, ...], exclusive: bool, dtype: str) -> None:
    dims, axis, n = case
    check_scan(dims, axis, dtype, "sm_80", {"n": n}, exclusive=exclusive)


def test_compiled_modules_have_no_generic_kernels() -> None:
    module = GraphModule.mir("sums")
    x = module.input("x", ["b", "s", 24])
    module.set_outputs(
        {
            "mean": module.reduce(x, "mean", [1]),
            "largest": module.reduce(x, "max", [0, 2], keep_dims=True),
            "all": module.reduce(x, "sum", [0, 1, 2]),
            "running": module.cumsum(x, axis=1),
            "along": module.cumsum(x, axis=-1, exclusive=True),
        }
    )
    rng = np.random.default_rng(0)
    failures: list[str] = []
    with emulated_device("sm_90a") as cuda:
        executable = rlx.compile(module, target="cuda", chip="sm_90a", cache=False, verify=True)
        assert set(executable.artifact.templates.values()) == {"reduce", "scan"}
        for b, s in ((0, 2), (1, 1), (2, 300)):
            inputs = {"x": rng.standard_normal((b, s, 24)).astype(np.float32)}
            with np.errstate(all="ignore"):
                failures += compare(interpret(module, inputs), executable.run(inputs), str((b, s)))
        assert not cuda.errors
        del executable
    assert not failures, "\n".join(failures)


@pytest.mark.parametrize("chip", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.quick(2)
def test_sums_stay_in_registers(dtype: str, chip: str) -> None:
    module = GraphModule.mir("sums")
    x = module.input("x", ["b", "s", 64], dtype)
    module.set_outputs(
        {"y": module.reduce(x, "sum", [1]), "z": module.reduce(x, "sum", [2]), "r": module.cumsum(x, axis=1)}
    )
    ptx = rlx.emit(module, "ptx", target="nvptx", chip=chip)
    for own in assembled(ptx, chip).values():
        assert own.spills == 0
        assert own.registers <= 128
    assert "ld.global.v4.b32" in ptx
