# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rows that `mir.top_k` sorts, and the orders that it has."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from rlx_mlir import GraphModule, compile, interpret

DTYPES = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64}


def rows(shape: tuple[int, ...], dtype: str, seed: int) -> np.ndarray:
    """Numbers of which many are equal, with zeros of both signs, infinities and NaN among them."""
    rng = np.random.default_rng(seed)
    found = np.round(rng.standard_normal(shape) * 5)
    for value in (np.nan, np.inf, -np.inf, -0.0, 0.0):
        found[rng.random(shape) < 0.05] = value
    return found.astype(DTYPES[dtype])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("width", "count"), [(17, 17), (31, 20), (32, 32), (33, 33), (257, 200), (100, 70)])
@pytest.mark.quick(8)
def test_many_of_a_row(width, count, dtype):
    m = GraphModule.mir("m")
    values, positions = m.top_k(m.input("x", ["n", 2, width], dtype), count)
    m.set_outputs({"values": values, "positions": positions})
    for threads in (1, 2):
        executable = compile(m, threads=threads)
        for n in (0, 1, 3):
            x = rows((n, 2, width), dtype, seed=n)
            found, expected = executable.run({"x": x}), interpret(m, {"x": x})
            np.testing.assert_array_equal(found["positions"], expected["positions"])
            np.testing.assert_array_equal(*(each["values"].astype(np.float64) for each in (found, expected)))
            assert not np.signbit(found["values"][found["values"] == 0]).any()


INTEGERS = {"i8": np.int8, "i64": np.int64, "ui8": np.uint8, "ui16": np.uint16, "ui32": np.uint32}


@pytest.mark.parametrize("templates", [True, False])
@pytest.mark.parametrize("dtype", [*DTYPES, *INTEGERS])
@pytest.mark.quick(10)
def test_orders(dtype, templates):
    """Ascending and descending, NaN at either end, by the template and by loops."""
    m = GraphModule.mir("m")
    x = m.input("x", ["n", 150], dtype)
    orders = [(smallest, nan_largest) for smallest in (False, True) for nan_largest in (False, True)]
    outputs = {}
    for number, (smallest, nan_largest) in enumerate(orders):
        for k in (3, 150):
            values, positions = m.top_k(x, k, smallest=smallest, nan_largest=nan_largest)
            outputs |= {f"values{number}_{k}": values, f"positions{number}_{k}": positions}
    m.set_outputs(outputs)
    if dtype in INTEGERS:
        info = np.iinfo(INTEGERS[dtype])
        given = np.random.default_rng(0).integers(info.min, info.max, (2, 150), INTEGERS[dtype], endpoint=True)
        given[:, ::3] %= 4
    else:
        given = rows((2, 150), dtype, seed=0)
    executable = compile(m, disable_templates=() if templates else ("top_k",))
    found, expected = executable.run({"x": given}), interpret(m, {"x": given})
    for name, wanted in expected.items():
        np.testing.assert_array_equal(found[name].astype(np.float64), wanted.astype(np.float64), name)


def test_the_reference_sorts_as_numpy_does():
    x = rows((4, 60), "f64", seed=1)
    m = GraphModule.mir("m")
    m.set_outputs({"y": m.top_k(m.input("x", [4, 60], "f64"), 60, smallest=True, nan_largest=True)[1]})
    np.testing.assert_array_equal(interpret(m, {"x": x})["y"], np.argsort(x, axis=-1, kind="stable"))


def test_long_rows_are_sorted_in_time():
    """Of 100,000 elements all: one after the other would take minutes."""
    m = GraphModule.mir("m")
    m.set_outputs({"values": m.top_k(m.input("x", [100_000]), 100_000)[0]})
    x = np.random.default_rng(0).standard_normal(100_000).astype(np.float32)
    np.testing.assert_array_equal(compile(m).run({"x": x})["values"], np.sort(x)[::-1])
