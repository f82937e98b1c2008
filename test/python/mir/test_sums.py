# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Long sums: their error doesn't grow with the length, whether that is static or not, along whatever axis."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import covering
import numpy as np
import pytest
from compile_harness import Program, compile_fresh, templates_of
from cuda_harness import emulated_device

import rlx_mlir as rlx
from rlx_mlir import Value, interpret

LENGTH = 50_000
#: Of sums of f32, relative to the sum of magnitudes: 48 roundings (see docs/performance.md).
BOUND = 48 * 2.0**-24

Results = Mapping[str, np.ndarray]


def _peaked() -> np.ndarray:
    """A row whose softmax is one large number and many small ones: those are lost where they are added one by one."""
    x = np.full(LENGTH, -15, np.float32)
    x[0] = 0
    return x


def _build(size: int | str) -> tuple[Any, dict[str, np.ndarray]]:
    rng = np.random.default_rng(0)
    p = Program("mir")
    row, column = p.input("row", [1, size]), p.input("column", [size, 1])
    wide, gamma = p.input("wide", [size, 3]), p.input("gamma", [size])
    tall = p.input("tall", [3, size])

    def both(name: str, function: Callable[[Value, int], Value]) -> None:
        p.output(**{f"{name}_rows": function(tall, 1), f"{name}_columns": function(wide, 0)})

    p.output(softmax_row=p.m.softmax(row), softmax_column=p.m.softmax(column, axis=0))
    both("sum", lambda x, axis: p.m.sum(x, [axis]))
    both("mean", lambda x, axis: p.m.mean(x, [axis], keep_dims=True))
    both("layer", lambda x, axis: p.m.layer_norm(x, gamma, axis=axis))
    both("rms", lambda x, axis: p.m.primitives.rms_norm(x, gamma, axis=axis))
    both("cumsum", lambda x, axis: p.m.cumsum(x, axis=axis))
    p.output(sum_all=p.m.sum(wide, [0, 1]), sum_before=p.m.cumsum(wide, axis=0, exclusive=True))
    # Numbers of one sign, so that the sum of magnitudes is the sum: most are small beside the first.
    numbers = rng.uniform(0.9, 1.1, (LENGTH, 3)).astype(np.float32)
    numbers[0] = 2.0**24
    inputs = {
        "row": _peaked()[None],
        "column": _peaked()[:, None],
        "wide": numbers,
        "tall": np.ascontiguousarray(numbers.T),
        "gamma": np.ones(LENGTH, np.float32),
    }
    return p.finish(), inputs


def _check(found: Results, inputs: Results, way: str) -> None:
    for name in ("softmax_row", "softmax_column"):
        # Each element has two roundings of its own.
        assert abs(math.fsum(found[name].ravel()) - 1) < BOUND + 3 * 2.0**-24, (name, way)
    x = inputs["wide"].astype(np.float64)
    total, mean = x.sum(0), x.mean(0)
    running = np.cumsum(x.astype(np.longdouble), 0)
    expected = {
        "sum": total,
        "mean": mean[None],
        "layer": (x - mean) / np.sqrt(x.var(0) + 1e-5),
        "rms": x / np.sqrt((x * x).mean(0) + 1e-5),
        "cumsum": running.astype(np.float64),
    }
    for word, want in expected.items():
        # Of layer_norm, differences from a mean that lies far from most of them.
        bound = 4 * BOUND if word == "layer" else BOUND
        for suffix, turned in (("rows", want.T), ("columns", want)):
            got = found[f"{word}_{suffix}"]
            np.testing.assert_allclose(got, turned.reshape(got.shape), rtol=bound, err_msg=f"{word}_{suffix}, {way}")
    np.testing.assert_allclose(found["sum_all"], total.sum(), rtol=BOUND, err_msg=way)
    before = np.concatenate([np.zeros((1, 3)), running.astype(np.float64)[:-1]])
    np.testing.assert_allclose(found["sum_before"], before, rtol=BOUND, err_msg=way)


@pytest.mark.parametrize("size", [LENGTH, "n"], ids=str)
def test_errors_do_not_grow_with_the_length(size: int | str) -> None:
    module, inputs = _build(size)
    _check(interpret(module, inputs), inputs, "interpreted")
    maxima = {} if isinstance(size, int) else {"n": LENGTH}
    templates = compile_fresh(module, maxima=maxima)
    assert isinstance(size, str) or "rows" in templates_of(templates).values()
    _check(templates.run(inputs), inputs, f"templates, {size}")
    _check(compile_fresh(module, maxima=maxima, disable_templates=("all",)).run(inputs), inputs, f"generic, {size}")


LENGTHS = (0, 1, 15, 16, 17, 31, 63, 64, 65, 96, 511, 512, 513, 1023, 1025, 2055)


@pytest.mark.parametrize(("length", "dtype"), covering.products(LENGTHS, ["f32", "f64"], meeting=1))
@pytest.mark.quick(16)
def test_every_length_has_every_element_once(length: int, dtype: str) -> None:
    """Powers of two of few digits: their sums are exact in any order. A product of all finds each element, too."""
    p = Program("mir")
    shapes: dict[str, tuple[Any, Any]] = {"rows": ([3, length], 1), "any": (["m", "n"], 1), "columns": ([length, 3], 0)}
    inputs = {}
    rng = np.random.default_rng(length)
    for word, (shape, axis) in shapes.items():
        x = p.input(word, shape, dtype)
        p.output(**{f"sum_{word}": p.m.sum(x, [axis]), f"prod_{word}": p.m.reduce(x, "prod", [axis])})
        values = rng.choice([-2.0, -1.0, -0.5, 0.5, 1.0, 2.0], (3, length)).astype(
            "float32" if dtype == "f32" else "f8"
        )
        inputs[word] = np.ascontiguousarray(values.T) if word == "columns" else values
    for options in ({}, {"disable_templates": ("all",)}):
        found = compile_fresh(p.finish(), maxima={"m": 3, "n": max(length, 1)}, **options).run(inputs)
        for word, (_, axis) in shapes.items():
            x = inputs[word]
            np.testing.assert_array_equal(found[f"sum_{word}"], x.sum(axis), err_msg=word)
            np.testing.assert_array_equal(found[f"prod_{word}"], x.prod(axis), err_msg=word)


def test_infinities_and_nan_stay_in_long_sums() -> None:
    """What carries along losses is NaN then, but the sum isn't."""
    x = np.ones((6, 5000), np.float32)
    x[1, 4000], x[2, 10], x[3, 3], x[3, 4900], x[4, 4999] = np.inf, -np.inf, np.inf, -np.inf, np.nan
    x[5] = 1e35
    want = [5000, np.inf, -np.inf, np.nan, np.nan, np.inf]
    for size in (5000, "n"):
        p = Program("mir")
        rows, columns = p.input("rows", [6, size]), p.input("columns", [size, 6])
        p.output(rows=p.m.sum(rows, [1]), columns=p.m.sum(columns, [0]), running=p.m.cumsum(columns, axis=0))
        module, inputs = p.finish(), {"rows": x, "columns": np.ascontiguousarray(x.T)}
        maxima = {} if size == 5000 else {"n": 5000}
        for found in (
            interpret(module, inputs),
            compile_fresh(module, maxima=maxima).run(inputs),
            compile_fresh(module, maxima=maxima, disable_templates=("all",)).run(inputs),
        ):
            for value in (found["rows"], found["columns"], found["running"][-1]):
                np.testing.assert_array_equal(value, np.array(want, np.float32))


@pytest.mark.wide
def test_errors_do_not_grow_with_the_length_on_gpus() -> None:
    p = Program("mir")
    row = p.input("row", [1, "n"])
    p.output(softmax_row=p.m.softmax(row), sum=p.m.sum(row, [1]))
    inputs = {"row": _peaked()[None]}
    with emulated_device("sm_80"):
        found = rlx.compile(p.finish(), target="cuda", maxima={"n": LENGTH}, cache=False).run(inputs)
    assert abs(math.fsum(found["softmax_row"].ravel()) - 1) < 2 * BOUND
    np.testing.assert_allclose(found["sum"], [-15.0 * (LENGTH - 1)], rtol=BOUND)
