# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The template of selective scans against a loop over steps in f64, at sizes around its blocks, whole and in parts."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from compile_harness import compile_fresh, templates_of

from rlx_mlir import GraphModule

DTYPES: dict[str, Any] = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}
TOLERANCES = {"f32": 2e-5, "f16": 3e-3, "bf16": 2e-2}


def operands(batch: int, steps: int, channels: int, n: int, dtype: Any, rate: float | None) -> dict[str, np.ndarray]:
    rng = np.random.default_rng([batch, steps, channels, n])
    found = {name: rng.standard_normal((batch, steps, size)) for name, size in (("x", channels), ("b", n), ("c", n))}
    found["delta"] = rng.random((batch, steps, channels)) * (1 if rate is None else np.sign(rate) * -1)
    found["a"] = -rng.random((channels, n)) - 0.1 if rate is None else np.full((channels, n), rate)
    own = {name: value.astype(dtype) for name, value in found.items()}
    return own | {"state": rng.standard_normal((batch, channels, n)).astype(np.float32)}


def loop(x: Any, delta: Any, a: Any, b: Any, c: Any, state: Any) -> tuple[np.ndarray, np.ndarray]:
    """The definition, step by step, in f64."""
    x, delta, a, b, c, h = (np.asarray(value, np.float64) for value in (x, delta, a, b, c, state))
    result = np.zeros(x.shape)
    for t in range(x.shape[1]):
        d = delta[:, t, :, None]
        h = np.exp(d * a) * h + d * x[:, t, :, None] * b[:, t, None]
        result[:, t] = (h * c[:, t, None]).sum(-1)
    return result, h


def program(channels: int | str, n: int, dtype: str, rate: float | None, *, state: bool, kept: bool) -> GraphModule:
    module = GraphModule.mir("scan")
    x, delta = (module.input(name, ["batch", "steps", channels], dtype) for name in ("x", "delta"))
    b, c = (module.input(name, ["batch", "steps", n], dtype) for name in "bc")
    if rate is None:
        a = module.input("a", [channels, n], dtype)
    else:
        assert isinstance(channels, int)
        a = module.constant(np.full((channels, n), rate, DTYPES[dtype]))
    start = module.input("state", ["batch", channels, n]) if state else None
    result, last = module.selective_scan(x, delta, a, b, c, start)
    module.set_outputs({"result": result, **({"last": last} if kept else {})})
    return module


def check(
    module: GraphModule, sizes: list[tuple[int, int, int, int]], dtype: str, rate: float | None, **has: bool
) -> None:
    executable = compile_fresh(module)
    assert set(templates_of(executable).values()) == {"state_space"}
    for size in sizes:
        given = operands(*size, DTYPES[dtype], rate)
        start = given["state"] if has["state"] else np.zeros_like(given["state"])
        wanted = dict(
            zip(("result", "last"), loop(*(given[name] for name in ("x", "delta", "a", "b", "c")), start), strict=True)
        )
        own = {name: value for name, value in given.items() if name in {each.name for each in executable.inputs}}
        for name, got in executable.run(own).items():
            scale = max(np.abs(wanted[name]).max(initial=0), 1)
            np.testing.assert_allclose(got.astype(np.float64), wanted[name], atol=TOLERANCES[dtype] * scale, rtol=0)


@pytest.mark.parametrize("rate", [None, 1.0, -0.5])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.quick(3)
def test_scans_are_the_loop(dtype: str, rate: float | None) -> None:
    """Of any number of steps and of sequences, none and one, too."""
    sizes = [(batch, steps, 48, 32) for batch, steps in ((1, 1), (2, 1), (1, 0), (0, 3), (2, 7), (1, 70))]
    check(program(48, 32, dtype, rate, state=True, kept=True), sizes, dtype, rate, state=True)


@pytest.mark.parametrize("channels", [1, 15, 16, 17, 33])
def test_channels_around_a_vector(channels: int) -> None:
    for rate in (None, 1.0):
        sizes = [(2, steps, channels, 16) for steps in (1, 5)]
        check(program(channels, 16, "f32", rate, state=True, kept=True), sizes, "f32", rate, state=True)


def test_channels_of_any_number() -> None:
    sizes = [(2, steps, channels, 16) for channels in (1, 16, 37) for steps in (0, 1, 5)]
    check(program("channels", 16, "f32", None, state=True, kept=True), sizes, "f32", None, state=True)


@pytest.mark.parametrize("state", [False, True])
def test_states_that_are_not_there_or_not_kept(state: bool) -> None:
    sizes = [(2, steps, 32, 16) for steps in (1, 5)]
    for kept in (False, True):
        check(program(32, 16, "f32", 1.0, state=state, kept=kept), sizes, "f32", 1.0, state=state)


@pytest.mark.parametrize("channels", [32, 40])
def test_a_step_has_the_same_bits_wherever_a_sequence_is_cut(channels: int) -> None:
    """One step alone goes from state to state, several through a copy; whatever threads there are."""
    given = operands(1, 9, channels, 32, np.float32, 1.0)
    del given["a"]
    module = program(channels, 32, "f32", 1.0, state=True, kept=True)
    whole = compile_fresh(module, threads=2).run(given)
    executable, state, rows = compile_fresh(module, threads=1), given.pop("state"), []
    for cut in (slice(0, 1), slice(1, 5), slice(5, 6), slice(6, 9)):
        found = executable.run({"state": state, **{name: value[:, cut] for name, value in given.items()}})
        rows.append(found["result"])
        state = found["last"]
    np.testing.assert_array_equal(np.concatenate(rows, 1), whole["result"])
    np.testing.assert_array_equal(state, whole["last"])


def test_decays_of_any_size() -> None:
    """Where e^(delta a) is 0, small, 1, large or infinite, or isn't a number."""
    steps = np.array([0, 1e-30, 1, 50, 86, 87, 88.7, 100, 1e30, np.inf, np.nan], np.float32)
    for rate in (-1.0, 1.0):
        module = program(11, 16, "f32", rate, state=True, kept=True)
        given = {"x": np.zeros((1, 1, 11)), "delta": steps.reshape(1, 1, 11)}
        given |= {"b": np.ones((1, 1, 16)), "c": np.ones((1, 1, 16)), "state": np.ones((1, 11, 16))}
        with np.errstate(all="ignore"):
            wanted = np.exp(rate * steps.astype(np.float64)).astype(np.float32) + steps * 0
        found = compile_fresh(module).run({name: value.astype(np.float32) for name, value in given.items()})
        np.testing.assert_allclose(found["last"][0], np.repeat(wanted[:, None], 16, 1), rtol=5e-7, atol=2.5e-38)


def test_states_that_are_no_multiple_of_a_vector_have_loops() -> None:
    executable = compile_fresh(program(8, 3, "f32", None, state=True, kept=True))
    assert "state_space" not in templates_of(executable).values()
