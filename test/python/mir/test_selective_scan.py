# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Selective scans against a loop over channels in f64: any length, in parts with the state in between."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from gpu_harness import calls, compile_emulated
from linalg_harness import FLOATS, case, check, dyn, word

import rlx_mlir as rlx
from rlx_mlir import GraphModule, interpret
from rlx_mlir.dialects import mir
from rlx_mlir.errors import BuildError, InputError
from rlx_mlir.mir import REFERENCES

DTYPES: dict[str, Any] = {"f32": np.float32, "f64": np.float64, "f16": np.float16, "bf16": ml_dtypes.bfloat16}
NAMES = ("x", "delta", "a", "b", "c", "state")
LENGTHS = (0, 1, 2, 7, 64, 131)


def operands(
    batch: int, steps: int, channels: int, n: int, dtype: Any = np.float32, *, state: bool = True
) -> list[np.ndarray]:
    """x, delta, a, b, c and perhaps a state: steps are positive, and rates negative."""
    rng = np.random.default_rng([batch, steps, channels, n])
    x, b, c = (rng.standard_normal((batch, steps, size)) for size in (channels, n, n))
    delta, a = rng.random((batch, steps, channels)), -rng.random((channels, n)) - 0.1
    found = [value.astype(dtype) for value in (x, delta, a, b, c)]
    if state:
        found.append(
            rng.standard_normal((batch, channels, n)).astype(np.float64 if dtype == np.float64 else np.float32)
        )
    return found


def loop(x: Any, delta: Any, a: Any, b: Any, c: Any, state: Any = None) -> tuple[np.ndarray, np.ndarray]:
    """The definition, one channel and one step at a time, in f64."""
    x, delta, a, b, c = (np.asarray(value, np.float64) for value in (x, delta, a, b, c))
    result, last = np.zeros(x.shape), np.zeros((x.shape[0], *a.shape))
    for i, channel in np.ndindex(x.shape[0], x.shape[2]):
        h = np.zeros(a.shape[1]) if state is None else state[i, channel].astype(np.float64)
        for t in range(x.shape[1]):
            d = delta[i, t, channel]
            h = np.exp(d * a[channel]) * h + d * b[i, t] * x[i, t, channel]
            result[i, t, channel] = c[i, t] @ h
        last[i, channel] = h
    return result, last


def build(*values: Any) -> Any:
    return mir.SelectiveScanOp(*values[:5], state=[*values, None][5])


@pytest.mark.parametrize("state", [False, True])
def test_reference(state):
    for sizes in ((2, 5, 3, 4), (1, 0, 3, 4), (2, 3, 3, 0)):
        given = operands(*sizes, np.float64, state=state)
        for got, want in zip(REFERENCES["mir.selective_scan"](*given), loop(*given), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-13)


def test_a_sequence_in_parts_is_the_sequence():
    given = operands(2, 9, 3, 4, np.float64)
    whole, last = REFERENCES["mir.selective_scan"](*given)
    x, delta, a, b, c, state = given
    found = []
    for part in (slice(0, 4), slice(4, 9)):
        y, state = REFERENCES["mir.selective_scan"](x[:, part], delta[:, part], a, b[:, part], c[:, part], state)
        found.append(y)
    np.testing.assert_allclose(np.concatenate(found, 1), whole, rtol=1e-12)
    np.testing.assert_allclose(state, last, rtol=1e-12)


@pytest.mark.parametrize("dtype", FLOATS, ids=word)
def test_loops_are_the_reference(dtype):
    cases = []
    for sizes in (
        (2, 5, 9, 4),
        (1, 1, 1, 1),
        (2, 0, 3, 4),
        (0, 3, 3, 4),
        (2, 3, 0, 4),
        (2, 3, 5, 0),
        (1, 66, 3, 17),
    ):
        given = operands(*sizes, dtype)
        cases.append(case(f"{sizes}", build, *given))
        cases.append(case(f"{sizes} dynamic", build, *map(dyn, given)))
        cases.append(case(f"{sizes} stateless", build, *(dyn(x, 1) if x.ndim == 3 else x for x in given[:5])))
    check(cases)


def program(dtype: str, channels: Any = "channels", n: Any = 16) -> GraphModule:
    module = GraphModule.mir("scan")
    x, delta = (module.input(name, ["batch", "steps", channels], dtype) for name in NAMES[:2])
    a = module.param("a", [channels, n], dtype)
    b, c = (module.input(name, ["batch", "steps", n], dtype) for name in "bc")
    state = module.input("state", ["batch", channels, n], "f64" if dtype == "f64" else "f32")
    result, last = module.selective_scan(x, delta, a, b, c, state)
    module.set_outputs({"result": result, "last": last})
    return module


@pytest.mark.parametrize("dtype", DTYPES)
def test_compiled_for_any_length(dtype):
    executables = [rlx.compile(program(dtype, 24), threads=threads, cache=False) for threads in (1, 2)]
    tolerance = {"f32": 2e-5, "f64": 1e-12, "f16": 2e-3, "bf16": 1e-2}[dtype]
    for steps in LENGTHS:
        given = dict(zip(NAMES, operands(2, steps, 24, 16, DTYPES[dtype]), strict=True))
        want = dict(zip(("result", "last"), loop(*given.values()), strict=True))
        for executable in executables:
            executable.set_params({"a": given["a"]})
            got = executable.run({name: value for name, value in given.items() if name != "a"})
            for name, array in want.items():
                scale = max(np.abs(array).max(initial=0), 1)
                np.testing.assert_allclose(got[name].astype(np.float64), array, atol=tolerance * scale, rtol=0)


def test_decays_of_any_size():
    """Where e^(delta a) is 0, small, 1, large or infinite, or isn't a number."""
    steps = np.array([0, 1e-30, 1, 50, 86, 87, 88.7, 100, 1e30, np.inf, np.nan], np.float32)
    for sign in (-1, 1):
        module = GraphModule.mir("decays")
        given = {name: module.input(name, shape) for name, shape in (("x", [1, 1, 11]), ("d", [1, 1, 11]))}
        a, b, state = module.input("a", [11, 1]), module.input("b", [1, 1, 1]), module.input("s", [1, 11, 1])
        module.set_outputs({"y": module.selective_scan(given["x"], given["d"], a, b, b, state)[1]})
        arrays = {"x": np.zeros((1, 1, 11)), "d": steps.reshape(1, 1, 11), "a": np.full((11, 1), sign)}
        arrays |= {"b": np.ones((1, 1, 1)), "s": np.ones((1, 11, 1))}
        with np.errstate(all="ignore"):
            want = np.exp(sign * steps.astype(np.float64)).astype(np.float32) + steps * 0
        found = rlx.compile(module, cache=False).run({name: x.astype(np.float32) for name, x in arrays.items()})
        np.testing.assert_allclose(found["y"].reshape(-1), want, rtol=3e-7, atol=2.5e-38)


def test_bits_do_not_depend_on_threads():
    given = dict(zip(NAMES, operands(1, 70, 200, 16), strict=True))
    rate = {"a": given.pop("a")}
    found = []
    for threads in (1, 2, 3):
        executable = rlx.compile(program("f32", 200), threads=threads, cache=False)
        executable.set_params(rate)
        found.append(executable.run(given))
    for other in found[1:]:
        for name, array in found[0].items():
            np.testing.assert_array_equal(other[name], array)


def test_kernels_for_gpus_run_as_loops():
    module = program("f32", "channels", 4)
    executable = compile_emulated(module)
    for steps in (0, 1, 9):
        given = dict(zip(NAMES, operands(2, steps, 3, 4), strict=True))
        want = interpret(module, given)
        rate = {"a": given.pop("a")}
        executable.set_params(rate)
        for name, array in executable.run(given).items():
            np.testing.assert_allclose(array, want[name], rtol=1e-5, atol=1e-5)
    assert not calls(rlx.emit(module, "ptx", target="nvptx", chip="sm_80"))


def test_sizes_that_do_not_fit():
    module = program("f32")
    given = dict(zip(NAMES, operands(2, 3, 4, 16), strict=True))
    with pytest.raises(InputError, match="channels"):
        interpret(module, {**given, "a": given["a"][:3]})
    wrong = GraphModule.mir("wrong")
    x, a, b = wrong.input("x", ["b", "s", 8]), wrong.input("a", [7, 4]), wrong.input("b", ["b", "s", 4])
    with pytest.raises(BuildError, match=r"expects 'a' to be \[8, n\] of 'f32'"):
        wrong.selective_scan(x, x, a, b, b)
