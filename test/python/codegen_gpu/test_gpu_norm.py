# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The schedule for norms and softmax along another axis than the last, run by the emulator of PTX."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from compile_harness import compare
from covering import products
from cuda_harness import emulated_device
from gpu_emulated import assembled, emulate, ptx

import rlx_mlir as rlx
from rlx_mlir import GraphModule, interpret
from rlx_mlir.codegen import UnsupportedByTemplate
from rlx_mlir.codegen.gpu.emit import memref
from rlx_mlir.codegen.gpu.norm import emit_norm
from rlx_mlir.codegen.specs import NormSpec
from rlx_mlir.mir import REFERENCES

DTYPES: dict[str, Any] = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}
TOLERANCES = {"f32": 2e-6, "f16": 1e-3, "bf16": 8e-3}
OPS = ("softmax", "rms_norm", "layer_norm")
Dims = tuple[Any, ...]


def spec_of(op: str, dims: Dims, axis: int, dtype: str, factors: int = 2) -> NormSpec:
    shape = [None if isinstance(dim, str) else dim for dim in dims]
    count = 0 if op == "softmax" else factors
    return NormSpec(
        op, memref(shape, dtype), (memref((shape[axis],), dtype),) * count, axis, 1e-3, tuple(range(1 + count))
    )


def check(spec: NormSpec, shape: tuple[int, ...], dtype: str, chip: str = "sm_90a") -> None:
    """Compares a kernel with the reference."""
    rng = np.random.default_rng(len(shape))
    x = (rng.standard_normal(shape) * 3 + 1).astype(DTYPES[dtype])
    factors = [rng.standard_normal(shape[spec.axis]).astype(DTYPES[dtype]) for _ in spec.factors]
    attributes = {} if spec.op == "softmax" else {"eps": spec.eps}
    want = REFERENCES[f"mir.{spec.op}"](x, *factors, axis=spec.axis, **attributes)
    got = np.full(shape, np.nan, DTYPES[dtype])
    emulate(emit_norm("k", spec, chip), "k", chip, [x, *factors], [got])
    wide = [array.astype(np.float64) for array in (got, want)]
    np.testing.assert_allclose(*wide, rtol=TOLERANCES[dtype], atol=TOLERANCES[dtype])


@pytest.mark.parametrize(
    ("case", "op"),
    products(
        [
            (("a", "b"), 0),
            (("a", 33), 0),
            ((40, 64), 0),
            ((2, "b", 8), 1),
            (("a", 5, "b", 3), 1),
            (("a", "b", 1), 1),
            (("a", 7, 1), 1),
            ((3, 4, 200), 0),
        ],
        OPS,
        meeting=1,
    ),
)
@pytest.mark.quick(3)
def test_any_axis(case: tuple[Any, ...], op: str) -> None:
    dims, axis = case
    spec = spec_of(op, dims, axis, "f32")
    for a, b in ((1, 1), (35, 40), (3, 300)):
        check(spec, tuple({"a": a, "b": b}.get(dim, dim) for dim in dims), "f32")


def test_columns_of_one_element() -> None:
    """Of a known length that is made of vectors: threads share them as columns, not as rows that lie side by side."""
    for op in ("softmax", "layer_norm"):
        check(spec_of(op, (3, 40, 1), 1, "f32"), (3, 40, 1), "f32")


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("op", OPS)
@pytest.mark.quick(2)
def test_halves(op: str, dtype: str) -> None:
    check(spec_of(op, (2, "n", 24), 1, dtype, factors=1), (2, 19, 24), dtype, "sm_80")
    check(spec_of(op, ("a", "n", "c"), 1, dtype), (2, 5, 7), dtype, "sm_80")


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("shape", [(0, 3, 4), (3, 0, 4), (3, 4, 0)])
@pytest.mark.quick(8)
def test_nothing(op: str, shape: tuple[int, ...]) -> None:
    check(spec_of(op, ("a", "b", "c"), 1, "f32"), shape, "f32")


def test_a_large_offset_keeps_its_digits() -> None:
    x = np.random.default_rng(0).standard_normal((64, 8)).astype(np.float32) + 4096
    got, spec = np.zeros_like(x), spec_of("layer_norm", (64, 8), 0, "f32", factors=1)
    gamma = np.ones(64, np.float32)
    emulate(emit_norm("k", spec, "sm_80"), "k", "sm_80", [x, gamma], [got])
    want = REFERENCES["mir.layer_norm"](x.astype(np.float64), gamma.astype(np.float64), axis=0, eps=1e-3)
    # A variance as a difference of two large numbers would have no digits, a mean alone those of a sum in f32.
    np.testing.assert_allclose(got, want, atol=1e-5)


@pytest.mark.parametrize("length", [7, 112])
def test_constant_columns_are_zero(length: int) -> None:
    x = np.full((length, 8), 60001.3, np.float32)
    got, spec = np.ones_like(x), spec_of("layer_norm", (length, 8), 0, "f32", factors=1)
    emulate(emit_norm("k", spec, "sm_80"), "k", "sm_80", [x, np.ones(length, np.float32)], [got])
    np.testing.assert_array_equal(got, 0)


def test_compiled_modules() -> None:
    module = GraphModule.mir("norms")
    x, gamma = module.input("x", ["n", 12, 10]), module.param("gamma", [12])
    module.set_outputs(
        {
            "softmax": module.softmax(x, axis=0),
            "norm": module.relu(module.layer_norm(x, gamma, axis=1)),
            "rms": module.rms_norm(module.neg(x), gamma, axis=-2),
        }
    )
    rng, failures = np.random.default_rng(0), []
    with emulated_device("sm_90a"):
        executable = rlx.compile(module, target="cuda", cache=False, verify=True)
        assert set(executable.artifact.templates.values()) == {"norm", "pointwise"}
        params = {"gamma": rng.standard_normal(12, np.float32)}
        executable.set_params(params)
        for n in (0, 1, 9):
            inputs = {"x": rng.standard_normal((n, 12, 10), np.float32)}
            failures += compare(interpret(module, {**inputs, **params}), executable.run(inputs), str(n))
    assert not failures, "\n".join(failures)


def test_what_the_schedule_leaves_out() -> None:
    with pytest.raises(UnsupportedByTemplate, match="softmax of memref<4x4xf64> has no schedule"):
        emit_norm("k", spec_of("softmax", (4, 4), 0, "f64"), "sm_80")


@pytest.mark.parametrize("chip", ["sm_80", pytest.param("sm_90a", marks=pytest.mark.slow)])
def test_ptxas_spills_nothing(chip: str) -> None:
    for op in OPS:
        text = ptx(emit_norm("k", spec_of(op, ("a", "b", "c"), 1, "bf16"), chip).device, chip)
        assert all(not one.spills for one in assembled(text, chip).values())
