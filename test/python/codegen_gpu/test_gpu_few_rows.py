# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Modules of few rows on an emulated GPU, from the graph to the numbers, and which schedules they get."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cuda_harness import emulated_device

import rlx_mlir as rlx
from rlx_mlir import GraphModule, formats


def weight(scheme: str, n: int, k: int, seed: int) -> np.ndarray:
    values = np.random.default_rng(seed).standard_normal((n, k)).astype(np.float32) * np.float32(k**-0.5)
    return formats.encode(scheme, values)


def mlp(scheme: str, rows: int | str, k: int = 64, f: int = 96) -> tuple[GraphModule, dict[str, Any]]:
    """A norm, a SwiGLU and a residual: what is left of a decoder without attention; and a look-up in a weight."""
    m = GraphModule.hir("mlp")
    x, ids = m.input("x", [rows, k]), m.input("ids", [2], "i32")
    names = {"gate": (f, k), "up": (f, k), "down": (k, f)}
    weights = {name: m.param(name, list(size), packed=scheme) for name, size in names.items()}
    normed = m.rms_norm(x, m.param("gamma", [k]), eps=1e-5)
    y = m.swiglu(normed, gate_w=weights["gate"], up_w=weights["up"], down_w=weights["down"])
    m.set_outputs({"y": x + y, "rows": m.gather(weights["gate"], ids)})
    params: dict[str, Any] = {name: weight(scheme, *size, seed) for seed, (name, size) in enumerate(names.items())}
    params["gamma"] = np.random.default_rng(9).uniform(0.5, 1.5, k).astype(np.float32)
    return m, params


def inputs(rows: int, k: int = 64) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(rows)
    return {"x": rng.standard_normal((rows, k)).astype(np.float32), "ids": np.array([5, 0], np.int32)}


@pytest.mark.parametrize("activations", ["int8", "exact"])
@pytest.mark.parametrize("chip", ["sm_80", "sm_90a"])
@pytest.mark.quick(1)
def test_a_step_without_attention(chip: str, activations: str) -> None:
    """Two kernels: norm, quantisation, products and SwiGLU in one, quantisation, product and residual in the other."""
    m, params = mlp("q4_1", 1)
    given = inputs(1)
    want = rlx.interpret(m, {**given, **params})
    with emulated_device(chip) as cuda:
        executable = rlx.compile(m, target="cuda", chip=chip, activations=activations, cache=False)
        templates = executable.artifact.templates
        assert [how for name, how in templates.items() if not name.startswith("gather")] == ["gemv", "gemv"]
        executable.set_params(params)
        found = executable.run(given)
        launches = [line for line in cuda.trace() if line.startswith("launch") and "gemv" in line]
        assert len(launches) == 2
        del executable
    tolerance = 0.05 if activations == "int8" else 1e-5
    np.testing.assert_allclose(found["y"], want["y"], atol=tolerance * np.abs(want["y"]).max())
    np.testing.assert_array_equal(found["rows"], want["rows"])


@pytest.mark.parametrize("chip", ["sm_80", "sm_90a"])
@pytest.mark.quick(1)
@pytest.mark.wide
def test_a_dynamic_number_of_rows(chip: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The host chooses between kernels for few rows and for many."""
    monkeypatch.setenv("RLX_CUDA_SYNC", "1")  # no graphs: each launch is in the trace
    m, params = mlp("q8_0", "rows")
    with emulated_device(chip) as cuda:
        executable = rlx.compile(m, target="cuda", chip=chip, cache=False, maxima={"rows": 16})
        executable.set_params(params)
        for rows, few in ((1, True), (3, True), (8, True), (11, False), (0, False)):
            cuda.trace()
            given = inputs(rows)
            found = executable.run(given)["y"]
            launched = [line for line in cuda.trace() if line.startswith("launch")]
            assert any("gemv" in line for line in launched) == few
            want = rlx.interpret(m, {**given, **params})["y"]
            np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-5 * np.abs(want).max(initial=1))
        del executable


@pytest.mark.parametrize("order", ["nk", "kn"])
def test_dense_weights_in_either_order(order: str) -> None:
    m = GraphModule.mir("dense")
    x = m.input("x", [2, 64], "bf16")
    w = m.param("w", [40, 64] if order == "nk" else [64, 40], "bf16")
    m.set_outputs({"y": m.matmul(m.rms_norm(x, m.param("g", [64], "bf16")), w, transpose_rhs=order == "nk")})
    rng = np.random.default_rng(0)
    dtype = rlx.dtypes.DTYPES["bf16"]
    values = {
        "x": rng.standard_normal((2, 64)).astype(dtype),
        "w": rng.standard_normal((40, 64) if order == "nk" else (64, 40)).astype(dtype),
        "g": rng.uniform(0.5, 1.5, 64).astype(dtype),
    }
    want = rlx.interpret(m, values)["y"].astype(np.float32)
    with emulated_device("sm_90a"):
        executable = rlx.compile(m, target="cuda", chip="sm_90a", cache=False)
        assert set(executable.artifact.templates.values()) == {"gemv"}
        executable.set_params({name: values[name] for name in ("w", "g")})
        found = executable.run({"x": values["x"]})["y"].astype(np.float32)
        del executable
    np.testing.assert_allclose(found, want, atol=1e-2 * np.abs(want).max())
