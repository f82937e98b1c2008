# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Modules whose products take the schedules for Hopper, compiled and run by the emulator through the run time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from cuda_harness import emulated_device

import rlx_mlir as rlx
from rlx_mlir import formats
from rlx_mlir.hir import GraphModule
from rlx_mlir.interpreter import interpret

WIDTH, HIDDEN = 128, 192


@pytest.fixture(autouse=True)
def emulated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("RLX_CACHE_DIR", str(tmp_path))
    with emulated_device():
        yield


def compare(module: GraphModule, params: dict[str, np.ndarray], rows: list[int], schedules: set[str]) -> None:
    """Runs the module for numbers of rows of x, and compares with the references."""
    executable = rlx.compile(module, target="cuda", chip="sm_90a", maxima={"s": max(rows)})
    assert set(executable.artifact.templates.values()) == schedules
    executable.set_params(params)
    rng = np.random.default_rng(1)
    for count in rows:
        x = rng.standard_normal((1, count, WIDTH)).astype(ml_dtypes.bfloat16)
        (name, result), *_ = executable.run({"x": x}).items()
        expected = interpret(module, {"x": x, **params})[name].astype(np.float32)
        # The references round each operation's result; a kernel rounds once.
        np.testing.assert_allclose(result.astype(np.float32), expected, rtol=0.03, atol=0.03)


def weights(**shapes: tuple[int, int]) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {name: (rng.standard_normal(shape) * 0.1).astype(ml_dtypes.bfloat16) for name, shape in shapes.items()}


@pytest.mark.parametrize("transpose", [True, False])
@pytest.mark.quick(1)
def test_swiglu(transpose):
    def turned(a: int, b: int) -> tuple[int, int]:
        return (b, a) if transpose else (a, b)

    params = weights(gate=turned(WIDTH, HIDDEN), up=turned(WIDTH, HIDDEN), down=turned(HIDDEN, WIDTH))
    m = GraphModule.hir("m")
    x = m.input("x", [1, "s", WIDTH], "bf16")
    gate, up, down = (m.param(name, list(value.shape), "bf16") for name, value in params.items())
    m.set_outputs({"y": x + m.swiglu(x, gate_w=gate, up_w=up, down_w=down, transpose_weight=transpose)})
    compare(m, params, [1, 17, 70, 200], {"gemv|gemm_hopper"})


@pytest.mark.parametrize(
    ("scheme", "schedule"), [("bf16", "gemv|gemm_hopper"), ("q8_0", "gemv|gemm_decoded|gemm_hopper_packed")]
)
@pytest.mark.quick(1)
def test_packed_weights(scheme, schedule):
    rng = np.random.default_rng(0)
    wide = (rng.standard_normal((HIDDEN, WIDTH)) * 0.1).astype(np.float32)
    rows = formats.encode(scheme, wide)
    m = GraphModule.mir("m")
    x = m.input("x", [1, "s", WIDTH], "bf16")
    m.set_outputs({"y": m.dequant_matmul(x, m.param("w", [HIDDEN, WIDTH], packed=scheme))})
    compare(m, {"w": rows}, [3, 40, 800], {schedule})
