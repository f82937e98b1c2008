# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The schedule for element-wise operations that aren't on rows, run by the emulator of PTX."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from compile_harness import compare
from cuda_harness import emulated_device
from gpu_emulated import assembled, emulate

import rlx_mlir as rlx
from rlx_mlir import GraphModule, interpret
from rlx_mlir.codegen import UnsupportedByTemplate
from rlx_mlir.codegen.gpu.broadcast import emit_broadcast
from rlx_mlir.codegen.gpu.emit import memref
from rlx_mlir.codegen.specs import BroadcastSpec, BroadcastStep

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
    "dtype", ["f32", "bf16", "i8", *(pytest.param(own, marks=pytest.mark.slow) for own in ("f64", "i32", "i64"))]
)
@pytest.mark.parametrize(
    ("x", "y", "result"),
    [
        ((3, 1, 8), (4, 1), (3, 4, 8)),
        (("a", "b"), ("a", 1), ("a", "b")),
        (("a", "b"), (), ("a", "b")),
        ((1, "b", 5), ("a", "b", 1), ("a", "b", 5)),
        (("a", 1, "b"), (1, "b"), ("a", 1, "b")),
        ((), (), ()),
    ],
)
def test_every_way_to_broadcast(x: Dims, y: Dims, result: Dims, dtype: str) -> None:
    """A comparison, a choice by it, and a sum: where(x < y, x + y, x)."""
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
        ("cast", "f32", "i32", "conversions of f32 to i32"),
        ("cast", "i64", "bf16", "conversions of i64 to bf16"),
        ("exp", "f64", "f64", "exp of f64"),
        ("exp", "i32", "i32", "floating-point type"),
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
