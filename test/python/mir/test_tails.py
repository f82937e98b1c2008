# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Functions of one element far from 0, near 0 and where C says what they are: one value in every path."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from compile_harness import Program, compile_fresh, templates_of
from cuda_harness import emulated_device

import rlx_mlir as rlx
from rlx_mlir import interpret

#: Where functions are small differences of large numbers if they are computed as they are written.
POINTS = np.array(
    [*(-13, -12.5, -9.3, -8, -6, -5.999, -5, -3.2, -1.5, -1, -0.7, -0.1), *(0.1, 0.7, 1, 3.2, 6, 13, 60)]
    + [sign * 10.0**-exponent for sign in (-1, 1) for exponent in (3, 6, 12, 30)]
    + [0.0],
    np.float32,
)


def _gelu(x: float) -> float:
    return 0.5 * x * math.erfc(-x / math.sqrt(2))


def _gelu_approx(x: float) -> float:
    return x / (1 + math.exp(-2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


FUNCTIONS: dict[str, Callable[[float], float]] = {
    "gelu": _gelu,
    "gelu_approx": _gelu_approx,
    "silu": lambda x: x / (1 + math.exp(-x)),
    "sigmoid": lambda x: 1 / (1 + math.exp(-x)),
    "tanh": math.tanh,
}


def _module(functions: dict[str, Any] | list[str], dtype: str = "f32") -> Any:
    """Each function alone, in a chain, as part of a norm's kernel, and at the end of a product."""
    p = Program("mir")
    x = p.input("x", ["n", 16], dtype)
    unit, zero, ones = (p.input(*own, dtype) for own in (("unit", [16, 16]), ("zero", [16]), ("ones", [16])))
    for word in functions:
        function = getattr(p.m, word)
        p.output(
            **{
                f"{word}_alone": function(x),
                f"{word}_chain": p.m.mul(function(p.m.add(x, zero)), ones),
                f"{word}_rows": p.m.softmax(p.m.mul(x, zero)) * 16.0 * function(x),
                f"{word}_product": function(p.m.add(p.m.matmul(x, unit), zero)),
            }
        )
    return p.finish()


def _inputs(dtype: Any = np.float32) -> dict[str, np.ndarray]:
    x = np.resize(POINTS, (2, 16)).astype(dtype)
    return {"x": x, "unit": np.eye(16, dtype=dtype), "zero": np.zeros(16, dtype), "ones": np.ones(16, dtype)}


def _check(found: dict[str, np.ndarray], way: str, rtol: float = 6e-6) -> None:
    x = _inputs()["x"].astype(np.float64)
    for name, value in found.items():
        want = np.vectorize(FUNCTIONS[name.rpartition("_")[0]])(x)
        # Below the least normal number, results may be 0.
        np.testing.assert_allclose(value, want, rtol=rtol, atol=1.2e-38, err_msg=f"{name}, {way}")


def test_tails_keep_their_digits_in_every_path() -> None:
    module, inputs = _module(FUNCTIONS), _inputs()
    templates = compile_fresh(module)
    assert set(templates_of(templates).values()) == {"rows", "gemm_dense"}, "rows, and ends of products"
    _check(interpret(module, inputs), "interpreted")
    _check(templates.run(inputs), "templates")
    _check(compile_fresh(module, disable_templates=("all",)).run(inputs), "generic")


def test_tails_of_f64() -> None:
    functions = [word for word in FUNCTIONS if word != "tanh"]
    module = _module(functions, "f64")
    inputs = {name: value.astype(np.float64) for name, value in _inputs().items()}
    for found in (interpret(module, inputs), compile_fresh(module).run(inputs)):
        _check(found, "f64", 1e-13)


@pytest.mark.wide
def test_tails_on_gpus() -> None:
    module, inputs = _module(FUNCTIONS), _inputs()
    with emulated_device("sm_80"):
        found = rlx.compile(module, target="cuda", cache=False).run(inputs)
    _check(found, "emulated", 1e-5)


INF, NAN = math.inf, math.nan
#: (x, y, x^y), by the C standard.
POWERS = [
    *((-INF, 0.5, INF), (-0.0, 0.5, 0.0), (0.0, 0.5, 0.0), (INF, 0.5, INF), (-4.0, 0.5, NAN), (4.0, 0.5, 2.0)),
    *((-INF, -0.5, 0.0), (-0.0, -0.5, INF), (4.0, -0.5, 0.5), (-INF, 3.0, -INF), (-INF, 2.0, INF)),
    *((-INF, -3.0, -0.0), (-0.0, 3.0, -0.0), (-0.0, 2.0, 0.0), (-0.0, -1.0, -INF), (-0.0, -2.0, INF)),
    *((-2.0, 3.0, -8.0), (-2.0, 2.0, 4.0), (-2.0, 1.0 / 3, NAN), (1.0, NAN, 1.0), (NAN, 0.0, 1.0), (NAN, 1.0, NAN)),
    *((-1.0, INF, 1.0), (-1.0, -INF, 1.0), (0.5, INF, 0.0), (0.5, -INF, INF), (2.0, INF, INF), (2.0, -INF, 0.0)),
    *((INF, 0.0, 1.0), (-INF, 0.0, 1.0), (0.0, 0.0, 1.0), (INF, -1.0, 0.0), (0.0, INF, 0.0), (2.0, NAN, NAN)),
]


def _powers() -> tuple[Any, dict[str, np.ndarray], np.ndarray]:
    """Pairs of tensors, and tensors with one exponent: numpy has other code for that."""
    p = Program("mir")
    x, y = p.input("x", [len(POWERS)]), p.input("y", [len(POWERS)])
    p.output(pairs=p.m.pow(x, y))
    for i, (_, exponent, _) in enumerate(POWERS):
        p.output(**{f"one{i}": p.m.pow(x, exponent)} if math.isfinite(exponent) else {})
    bases, exponents, want = (np.array(column, np.float32) for column in zip(*POWERS, strict=True))
    return p.finish(), {"x": bases, "y": exponents}, want


def test_powers_are_those_of_c() -> None:
    module, inputs, want = _powers()
    ways = {
        "interpreted": lambda: interpret(module, inputs),
        "templates": lambda: compile_fresh(module).run(inputs),
        "generic": lambda: compile_fresh(module, disable_templates=("all",)).run(inputs),
    }
    for way, run in ways.items():
        found = run()
        for name, value in found.items():
            own = range(len(want)) if name == "pairs" else [int(name.removeprefix("one"))]
            for i in own:
                case = f"{POWERS[i][:2]}, {name}, {way}"
                np.testing.assert_allclose(value[i], want[i], rtol=1e-6, err_msg=case)
                assert np.isnan(want[i]) or np.signbit(value[i]) == np.signbit(want[i]), case
    # One element is no row of equal exponents either.
    p = Program("mir")
    p.output(y=p.m.pow(p.input("x", [1]), 0.5))
    assert interpret(p.finish(), {"x": np.array([-INF], np.float32)})["y"] == [INF]
