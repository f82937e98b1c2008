# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Schedules along a sequence: the gated delta rule and depthwise convolutions, run by the emulator of PTX."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
from rlx_mlir.codegen.gpu.recurrence import MAX_SIZE, PROMPT, emit_recurrence
from rlx_mlir.codegen.specs import RecurrenceSpec
from rlx_mlir.mir.recurrence import gated_delta_net

DTYPES = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}


def check(
    module: GraphModule, inputs: Sequence[Mapping[str, np.ndarray]], params: Mapping[str, np.ndarray], template: str
) -> None:
    """Asserts that the module's one kernel is of a template, and equals the reference for each of the inputs."""
    with emulated_device("sm_90a") as cuda:
        executable = rlx.compile(module, target="cuda", cache=False, verify=True)
        assert template in executable.artifact.templates.values(), executable.artifact.templates
        executable.set_params(params)
        failures = []
        for own in inputs:
            got = executable.run(own)
            shapes = str({name: array.shape for name, array in own.items()})
            failures += compare(interpret(module, {**own, **params}), got, shapes)
        again = executable.run(own)
        assert all(got[name].tobytes() == again[name].tobytes() for name in got), "results differ run to run"
        assert not cuda.errors
        del executable
    assert not failures, "\n".join(failures)


def delta(n: int, dtype: str, *, state: bool) -> GraphModule:
    module = GraphModule.mir("delta")
    q, k, v = (module.input(name, ["b", "s", 3, n], dtype) for name in "qkv")
    g, beta = (module.input(name, ["b", "s", 3], dtype) for name in ("g", "beta"))
    before = module.input("state", ["b", 3, n, n]) if state else None
    result, after = module.gated_delta_net(q, k, v, g, beta, before)
    module.set_outputs({"result": result, "after": after})
    return module


def delta_inputs(n: int, dtype: str, b: int, s: int, *, state: bool) -> dict[str, np.ndarray]:
    """Values as callers have them: keys of unit length; decays below one, but for a step that grows."""
    rng = np.random.default_rng(n + s)
    q, k, v = (rng.standard_normal((b, s, 3, n)) * n**-0.5 for _ in range(3))
    g = -np.abs(rng.standard_normal((b, s, 3)))
    g[:, 2:3] = 0.25
    found = {"q": q, "k": k, "v": v, "g": g, "beta": rng.uniform(0, 1, (b, s, 3))}
    typed = {name: array.astype(DTYPES[dtype]) for name, array in found.items()}
    if state:
        typed["state"] = rng.standard_normal((b, 3, n, n)).astype(np.float32)
    return typed


@pytest.mark.parametrize(
    ("case", "state"),
    products(
        [(1, "f32"), (5, "f32"), (32, "bf16"), (33, "f16"), (64, "f32"), (128, "bf16"), (200, "f32")],
        [True, False],
        meeting=1,
    ),
)
@pytest.mark.quick(1)
def test_gated_delta_rule(case: tuple[Any, ...], state: bool) -> None:
    n, dtype = case
    module = delta(n, dtype, state=state)
    calls = [delta_inputs(n, dtype, b, s, state=state) for b, s in ((1, 0), (2, 1), (0, 3), (1, 6))]
    check(module, calls, {}, "recurrence")


@pytest.mark.parametrize(
    ("n", "dtype", "state"),
    [
        pytest.param(1, "f32", True, marks=pytest.mark.slow),
        pytest.param(32, "bf16", False, marks=pytest.mark.wide),
        pytest.param(33, "f32", True, marks=pytest.mark.wide),
        (64, "f16", True),  # of two warps, which give each other their sums
        pytest.param(128, "bf16", True, marks=pytest.mark.slow),
    ],
)
def test_prompts_go_in_chunks(n: int, dtype: str, state: bool) -> None:
    """Whole chunks, a part of one at the end, and a chunk with a decay above one."""
    calls = [(0, PROMPT, False), (1, PROMPT, False), (2, PROMPT + 5, True)]
    element, rows = f"x{dtype}", f"memref<?x?x3x{n}x{dtype}>"
    gates, memory = f"memref<?x?x3{element}>", f"memref<?x3x{n}x{n}xf32>"
    spec = RecurrenceSpec(rows, rows, rows, gates, gates, memory if state else None, rows, memory)
    kernel = emit_recurrence("r", spec, "sm_90a")
    # Sizes of states are the same code: all calls for one of them, and the largest work for small ones alone.
    for b, s, grows in calls if n == 33 else calls[2:] if n < 128 else calls[1:2]:
        given = delta_inputs(n, dtype, b, s, state=state)
        given["g"] = np.minimum(given["g"], 0)
        if grows:
            given["g"][:, 9:11, 1] = 0.25
        wanted = gated_delta_net(*given.values())
        got = [np.zeros_like(own) for own in wanted]
        stats, launched = emulate(kernel, "r", "sm_90a", list(given.values()), got, profile=True)
        assert [own.kernel for own in launched] == ["r_chunks"] * (b > 0)
        assert not stats.bank_conflicts
        scale = max(np.abs(own.astype(np.float64)).max(initial=1e-3) for own in wanted)
        for own, expected in zip(got, wanted, strict=True):
            tolerance = {np.dtype(np.float32): 3e-6}.get(own.dtype, 8e-3)
            error = np.abs(own.astype(np.float64) - expected.astype(np.float64)).max(initial=0)
            assert error <= tolerance * scale, (b, s, grows, error)


def test_a_prompt_and_its_parts_agree() -> None:
    """Chunks begin where calls do, so sums differ in order alone."""
    module = delta(32, "f32", state=True)
    whole = delta_inputs(32, "f32", 1, 40, state=True)
    with emulated_device("sm_80"):
        executable = rlx.compile(module, target="cuda", chip="sm_80", cache=False)
        expected = executable.run(whole)
        first = executable.run({**{name: x[:, :19] for name, x in whole.items()}, "state": whole["state"]})
        second = executable.run({**{name: x[:, 19:] for name, x in whole.items()}, "state": first["after"]})
        del executable
    np.testing.assert_allclose(second["after"], expected["after"], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(
        np.concatenate([first["result"], second["result"]], 1), expected["result"], rtol=1e-5, atol=1e-6
    )


def test_sequence_in_parts_is_that_of_the_whole() -> None:
    module = delta(32, "f32", state=True)
    whole = delta_inputs(32, "f32", 1, 7, state=True)
    with emulated_device("sm_80"):
        executable = rlx.compile(module, target="cuda", chip="sm_80", cache=False)
        expected = executable.run(whole)
        first = executable.run({**{name: x[:, :3] for name, x in whole.items()}, "state": whole["state"]})
        second = executable.run({**{name: x[:, 3:] for name, x in whole.items()}, "state": first["after"]})
        del executable
    assert np.array_equal(expected["after"], second["after"])
    assert np.array_equal(expected["result"], np.concatenate([first["result"], second["result"]], 1))


def test_state_sizes_that_the_schedule_leaves_out() -> None:
    def spec(n: int | str, element: str = "f32") -> RecurrenceSpec:
        row, gate, state = f"memref<?x?x2x{n}x{element}>", f"memref<?x?x2x{element}>", f"memref<?x2x{n}x{n}xf32>"
        return RecurrenceSpec(row, row, row, gate, gate, None, row, state)

    for own in (spec(MAX_SIZE + 1), spec("?")):
        with pytest.raises(UnsupportedByTemplate, match=f"expects a state size from 1 to {MAX_SIZE}"):
            emit_recurrence("r", own, "sm_80")
    with pytest.raises(UnsupportedByTemplate, match="recurrences of f64 have no schedule"):
        emit_recurrence("r", spec(8, "f64"), "sm_80")


@pytest.mark.parametrize(
    ("case", "dtype"), products([(16, 4), (8, 1), (33, 3), (1, 2)], ["f32", "f16", "bf16"], meeting=1)
)
@pytest.mark.quick(2)
def test_depthwise_convolution(case: tuple[Any, ...], dtype: str) -> None:
    channels, taps = case
    module = GraphModule.hir("conv")
    x = module.input("x", ["b", "s", channels], dtype)
    before = module.input("before", ["b", taps - 1, channels], dtype)
    weight = module.param("w", [channels, 1, 1, taps], dtype)
    module.set_outputs({"y": module.depthwise_conv1d_causal(x, weight, before)})
    rng = np.random.default_rng(channels)

    def values(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(DTYPES[dtype])

    calls = [
        {"x": values(b, s, channels), "before": values(b, taps - 1, channels)}
        for b, s in ((1, 0), (1, 1), (2, 4), (3, 9), (0, 5))
    ]
    check(module, calls, {"w": values(channels, 1, 1, taps)}, "conv")


@pytest.mark.parametrize("chip", ["sm_80", "sm_90a"])
@pytest.mark.quick(1)
def test_code_keeps_its_memory_in_registers(chip: str) -> None:
    ptx = rlx.emit(delta(128, "bf16", state=True), "ptx", target="nvptx", chip=chip)
    found = {name.rpartition("_")[2]: own for name, own in assembled(ptx, chip).items()}
    assert found["recurrence"].spills == found["chunks"].spills == 0
    assert found["recurrence"].registers <= 168
