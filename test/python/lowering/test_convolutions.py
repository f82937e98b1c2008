# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What follows a convolution is done by its kernel on CPUs, with every rounding: against the reference."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from rlx_mlir import GraphModule, Value, compile, interpret

DTYPES: dict[str, Any] = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}
TOLERANCES = {"f32": 2e-5, "f16": 2e-3, "bf16": 1.6e-2}

#: Kernels [Co, Ci / groups, kH, kW], attributes, and the template: kernels are parameters, but for the last ones.
CASES: dict[str, tuple[tuple[int, ...], dict[str, Any], str]] = {
    "panels": ((32, 5, 3, 3), {"padding": 1}, "conv2d_panels"),
    "transforms": ((32, 16, 3, 3), {"padding": 1}, "conv2d_winograd"),
    "strided": ((48, 5, 7, 7), {"padding": 3, "stride": 2}, "conv2d_panels"),
    "pixels": ((16, 10, 1, 1), {"stride": 2}, "conv2d_panels"),
    "groups": ((32, 5, 3, 3), {"padding": 2, "groups": 2, "dilation": 2}, "conv2d_panels"),
    "few outputs": ((12, 5, 3, 3), {"padding": 1}, "conv2d"),
    "a channel each": ((16, 1, 3, 3), {"padding": 1, "stride": 2, "groups": 8}, "conv2d_channels"),
    "given": ((32, 5, 3, 3), {"padding": 1}, "conv2d"),
}


def block(m: GraphModule, case: str, dtype: str) -> tuple[dict[str, Value], dict[str, tuple[int, ...]]]:
    """gelu(conv(x, k) * factor + shift + tanh(conv(x, side))), with a constant shift; and the shapes of parameters."""
    kernels, options, _ = CASES[case]
    outputs, channels = kernels[0], kernels[1] * options.get("groups", 1)
    x = m.input("x", ["n", channels, "h", "w"], dtype)
    given = m.input if case == "given" else m.param
    y = m.conv2d(x, given("k", kernels, dtype), **options)
    factor = m.param("factor", [outputs], dtype)
    shift = np.linspace(-1, 1, outputs).astype(DTYPES[dtype]).reshape(1, outputs, 1, 1)
    y = y * m.reshape(factor, [-1, 1, 1]) + m.constant(shift)
    y = m.gelu(y + m.tanh(m.conv2d(x, m.param("side", kernels, dtype), **options)))
    return {"y": y}, {"k": kernels, "side": kernels, "factor": (outputs,)}


def drawn(shape: tuple[int, ...], dtype: str, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(DTYPES[dtype])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.quick(8)
def test_epilogues(case, dtype):
    m = GraphModule.mir("m")
    outputs, shapes = block(m, case, dtype)
    m.set_outputs(outputs)
    kernels, options, template = CASES[case]
    executables = [compile(m, threads=threads, maxima={"n": 3, "h": 40, "w": 40}) for threads in (1, 2)]
    if dtype == "f32":  # others are products of columns
        own = set(executables[0].artifact.templates.values())
        assert own == {template} | ({"conv2d_panels"} if case == "given" else set())
    parameters = {name: drawn(shape, dtype, number) for number, (name, shape) in enumerate(shapes.items())}
    given = {"k": parameters.pop("k")} if case == "given" else {}
    for executable in executables:
        executable.set_params(parameters)
    for size in ((1, 7, 9), (3, 16, 15), (2, 17, 33), (0, 8, 8), (1, 0, 8), (1, 1, 1)):
        x = drawn((size[0], kernels[1] * options.get("groups", 1), *size[1:]), dtype, 1)
        run = {"x": x, **given}
        found = [executable.run(run)["y"] for executable in executables]
        want = interpret(m, {**run, **parameters})["y"].astype(np.float64)
        atol = TOLERANCES[dtype] * max(1.0, np.abs(want).max(initial=0))
        np.testing.assert_allclose(found[0].astype(np.float64), want, atol=atol)
        assert found[0].tobytes() == found[1].tobytes()


def test_every_rounding_stays():
    """A sum of bf16 is rounded before what follows reads it, unless it may stay wide."""
    m = GraphModule.mir("m")
    x, w = m.input("x", [1, 4, "h", 9], "bf16"), m.input("w", [8, 4, 3, 3], "bf16")
    m.set_outputs({"y": m.conv2d(x, w, padding=1) * 3.0 - 1.0})
    run = {"x": drawn((1, 4, 9, 9), "bf16", 1), "w": drawn((8, 4, 3, 3), "bf16", 2)}
    found = {kind: compile(m, intermediates=kind, maxima={"h": 1 << 20}).run(run)["y"] for kind in ("rounded", "wide")}
    want = interpret(m, run)["y"]
    near = np.count_nonzero(found["rounded"] == want)
    assert near > 0.9 * want.size > np.count_nonzero(found["wide"] == want)


def test_a_loop_keeps_the_order_of_its_kernels():
    """Weights that a loop reads aren't panels: its steps compute the same."""
    m = GraphModule.mir("m")
    x, w = m.input("x", [1, 16, 6, 7]), m.param("w", [16, 16, 3, 3])

    def step(own: Value, done: Value) -> tuple[Value, Value]:
        return m.relu(m.conv2d(own, w, padding=1)) * 0.1, done + 1.0

    y, _ = m.while_loop(lambda own, done: m.compare("lt", done, 3.0), step, (x, m.constant(0.0)), limit=5)
    m.set_outputs({"y": y})
    executable = compile(m)
    parameters = {"w": drawn((16, 16, 3, 3), "f32", 2)}
    executable.set_params(parameters)
    run = {"x": drawn((1, 16, 6, 7), "f32", 1)}
    np.testing.assert_allclose(executable.run(run)["y"], interpret(m, {**run, **parameters})["y"], atol=1e-4)


def test_two_convolutions_of_one_parameter():
    m = GraphModule.mir("m")
    x, w = m.input("x", [2, 16, 6, 7]), m.param("w", [16, 16, 3, 3])
    y = m.conv2d(m.relu(m.conv2d(x, w, padding=1)), w)
    m.set_outputs({"y": y, "sum": m.sum(w, [1, 2, 3])})
    executable = compile(m)
    assert {"conv2d_panels", "conv2d_winograd"} <= set(
        executable.artifact.templates.values()
    )  # the second one is small
    parameters = {"w": drawn((16, 16, 3, 3), "f32", 2)}
    executable.set_params(parameters)
    run = {"x": drawn((2, 16, 6, 7), "f32", 1)}
    want = interpret(m, {**run, **parameters})
    for name, found in executable.run(run).items():
        np.testing.assert_allclose(found, want[name], atol=2e-3)
