# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The schedule for element-wise operations that aren't on rows, run by the emulator of PTX."""

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
from rlx_mlir.codegen.gpu.broadcast import emit_broadcast
from rlx_mlir.codegen.gpu.emit import memref
from rlx_mlir.codegen.specs import BroadcastSpec, BroadcastStep
from rlx_mlir.mir.elementwise import cast

DTYPES = {
    "f64": np.float64,
    "f32": np.float32,
    "bf16": ml_dtypes.bfloat16,
    "i8": np.int8,
    "i32": np.int32,
    "i64": np.int64,
    "i1": np.bool_,
}
Dims = tuple[Any, ...]


def type_of(dims: Dims, dtype: str) -> str:
    return memref([None if isinstance(dim, str) else dim for dim in dims], dtype)


def array(dims: Dims, dtype: str, sizes: dict[str, int], seed: int) -> np.ndarray:
    shape = [sizes.get(dim, dim) for dim in dims]
    return np.random.default_rng(seed).integers(-3, 4, shape).astype(DTYPES[dtype])


@pytest.mark.parametrize(
    ("case", "dtype"),
    products(
        [
            ((3, 1, 8), (4, 1), (3, 4, 8)),
            (("a", "b"), ("a", 1), ("a", "b")),
            (("a", "b"), (), ("a", "b")),
            ((1, "b", 5), ("a", "b", 1), ("a", "b", 5)),
            (("a", 1, "b"), (1, "b"), ("a", 1, "b")),
            ((), (), ()),
        ],
        ["f32", "bf16", "i8", "f64", "i32", "i64"],
        meeting=1,
    ),
)
def test_every_way_to_broadcast(case: tuple[Any, ...], dtype: str) -> None:
    """A comparison, a choice by it, and a sum: where(x < y, x + y, x)."""
    x, y, result = case
    steps = (
        BroadcastStep("compare", "lt", (0, 1), "i1"),
        BroadcastStep("add", "add", (0, 1), dtype),
        BroadcastStep("where", "where", (2, 3, 0), dtype),
    )
    spec = BroadcastSpec((type_of(x, dtype), type_of(y, dtype)), type_of(result, dtype), steps)
    kernel = emit_broadcast("b", spec, "sm_90a")
    for a, b in ((0, 3), (1, 1), (3, 7), (2, 32)):
        left, right = array(x, dtype, {"a": a, "b": b}, 1), array(y, dtype, {"a": a, "b": b}, 2)
        wanted = np.where(left < right, left + right, left).astype(DTYPES[dtype])
        got = np.zeros_like(wanted)
        emulate(kernel, "b", "sm_90a", [left, right], [got])
        assert got.tobytes() == wanted.tobytes(), (a, b)


@pytest.mark.parametrize("kind", ["eq", "ne", "lt", "le", "gt", "ge"])
@pytest.mark.parametrize("dtype", ["f32", "i32", "bf16"])
@pytest.mark.quick(9)
def test_comparisons_are_bytes(kind: str, dtype: str) -> None:
    type = type_of((5, 12), dtype)
    spec = BroadcastSpec((type, type), type_of((5, 12), "i1"), (BroadcastStep("compare", kind, (0, 1), "i1"),))
    x, y = (array((5, 12), dtype, {}, seed) for seed in (1, 2))
    if dtype != "i32":
        x[0, :3] = np.nan
    functions = {"eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal}
    function = {**functions, "gt": np.greater, "ge": np.greater_equal}[kind]
    got = np.zeros((5, 12), np.bool_)
    stats, _ = emulate(emit_broadcast("b", spec, "sm_80"), "b", "sm_80", [x, y], [got], profile=True)
    assert np.array_equal(got.view(np.uint8), function(*(v.astype(np.float64) for v in (x, y))).view(np.uint8))
    assert not stats.uncoalesced


#: Numbers that are hard to convert: halfway between two, at the ends of ranges, subnormal, no numbers.
HARD = [0.0, -0.0, 0.5, -0.5, 1.5, 2.5, 126.5, 127.5, 128.0, -128.5, -129.0, 239.9, 448.0, 464.0, 65519.0, 65520.0]
HARD += [
    2.0**-6,
    2.0**-7,
    1.5 * 2.0**-9,
    2.0**-10,
    3 * 2.0**-11,
    2.0**-17,
    6e-8,
    257.0,
    1 + 2.0**-8,
    1 + 2.0**-8 + 2.0**-40,
]
HARD += [2.0**31 - 1, 2.0**31, -(2.0**31), 2.0**63, -(2.0**63), 3.4e38, 1e39, 1e300, np.inf, -np.inf, np.nan, -np.nan]
WHOLE = [
    0,
    1,
    -1,
    127,
    128,
    -128,
    -129,
    32767,
    32768,
    65537,
    2**24 + 1,
    2**31 - 1,
    2**31,
    -(2**31),
    2**53 + 1,
    2**63 - 1,
]
WHOLE += [-(2**63), 2**40 + 2**32 + 1, 257, 259]
CONVERTED: dict[str, Any] = {
    **DTYPES,
    "f16": np.float16,
    "i16": np.int16,
    "f8E4M3FN": ml_dtypes.float8_e4m3fn,
    "f8E5M2": ml_dtypes.float8_e5m2,
}


@pytest.mark.parametrize("source", CONVERTED)
@pytest.mark.quick(1)
def test_every_conversion(source: str) -> None:
    """Bit for bit what the reference gives, but for the bits of NaNs."""
    dtype = CONVERTED[source]
    with np.errstate(all="ignore"):
        if np.dtype(dtype).itemsize == 1 and source != "i1":
            x = np.arange(256).astype(np.uint8).view(dtype)
        elif source.startswith("i"):
            x = np.array(WHOLE * 2).astype(np.int64).astype(dtype)
        else:
            x = np.array([*HARD, *(-h for h in HARD), *np.random.default_rng(0).standard_normal(180) * 300]).astype(
                dtype
            )
    x = x[: len(x) // 8 * 8].reshape(-1, 8)
    for target, wanted_type in CONVERTED.items():
        if target == source:
            continue
        step = BroadcastStep("cast", "cast", (0,), target)
        kernel = emit_broadcast(
            "b", BroadcastSpec((type_of(("n", 8), source),), type_of(("n", 8), target), (step,)), "sm_80"
        )
        with np.errstate(all="ignore"):
            wanted = cast(x, result_dtype=np.dtype(wanted_type))
            got = np.zeros_like(wanted)
            emulate(kernel, "b", "sm_80", [x], [got])
            same = (got.view(np.uint8) == wanted.view(np.uint8)).reshape(x.size, -1).all(axis=1).reshape(x.shape)
            same |= np.isnan(got.astype(np.float64)) & np.isnan(wanted.astype(np.float64))
        assert same.all(), f"{target}: {x[~same][:3]} became {got[~same][:3]}, not {wanted[~same][:3]}"


@pytest.mark.parametrize("dtype", ["i8", "i32", "i64", "f64"])
@pytest.mark.quick(1)
def test_chains_of_other_types_are_one_kernel(dtype: str) -> None:
    """Integers and f64, on rows too, and what conversions follow."""
    module = GraphModule.mir("chain")
    x, y = module.input("x", ["n", 24], dtype), module.input("y", [24], dtype)
    total = module.where(module.compare("lt", x, y), module.sub(module.mul(x, y), x), y)
    module.set_outputs({"total": total, "halves": module.cast(module.cast(total, "f8E4M3FN"), "bf16")})
    failures: list[str] = []
    with emulated_device("sm_90a"):
        executable = rlx.compile(module, target="cuda", cache=False)
        assert set(executable.artifact.templates.values()) == {"broadcast"}
        for n in (0, 1, 5):
            inputs = {"x": array(("n", 24), dtype, {"n": n}, 1), "y": array((24,), dtype, {}, 2)}
            failures += compare(interpret(module, inputs), executable.run(inputs), str(n))
    assert not failures, "\n".join(failures)


def test_compiled_choices_are_one_kernel() -> None:
    module = GraphModule.mir("choice")
    x, y = module.input("x", ["n", 8, 1]), module.input("y", ["n", 1, 8])
    total = module.add(x, y)
    chosen = module.where(module.compare("gt", x, y), total, 0.5)
    module.set_outputs({"chosen": chosen, "below": module.compare("le", y, x), "small": module.cast(x, "bf16")})
    rng, failures = np.random.default_rng(0), []
    with emulated_device("sm_90a") as cuda:
        executable = rlx.compile(module, target="cuda", chip="sm_90a", cache=False, verify=True)
        templates = executable.artifact.templates
        assert sorted(templates.values()) == ["broadcast"] * 3, templates
        for n in (0, 1, 5):
            inputs = {"x": rng.standard_normal((n, 8, 1), np.float32), "y": rng.standard_normal((n, 1, 8), np.float32)}
            failures += compare(interpret(module, inputs), executable.run(inputs), str(n))
        assert not cuda.errors
        del executable
    assert not failures, "\n".join(failures)


def test_what_the_schedule_leaves_out() -> None:
    def spec(op: str, read: str, result: str) -> BroadcastSpec:
        return BroadcastSpec((f"memref<4x{read}>",), f"memref<4x{result}>", (BroadcastStep(op, op, (0,), result),))

    for op, read, result, message in (
        ("neg", "f8E5M2", "f8E5M2", "neg of floats of 8 bits"),
        ("exp", "f64", "f64", "exp of f64"),
        ("exp", "i32", "i32", "exp: there is none of i32"),
        ("not", "f32", "f32", "not: there is none of f32"),
    ):
        with pytest.raises(UnsupportedByTemplate, match=message):
            emit_broadcast("b", spec(op, read, result), "sm_80")


@pytest.mark.parametrize("chip", ["sm_80", "sm_90a"])
def test_code_moves_whole_vectors(chip: str) -> None:
    module = GraphModule.mir("sum")
    module.set_outputs({"y": module.add(module.input("x", ["n", 1, 64]), module.input("y", [3, 64]))})
    ptx = rlx.emit(module, "ptx", target="nvptx", chip=chip)
    assert "ld.global.v4.b32" in ptx
    assert "st.global.v4.b32" in ptx
    for own in assembled(ptx, chip).values():
        assert own.spills == 0
        assert own.registers <= 48
