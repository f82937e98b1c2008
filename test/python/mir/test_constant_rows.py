# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rows of one number: the mean is that number, and what a norm makes of the differences is 0."""

from __future__ import annotations

import numpy as np
import pytest
from compile_harness import DTYPES, Program, compile_fresh

from rlx_mlir import interpret

#: Widths whose reciprocals are no numbers, others that are longer than vectors, and some that are both.
WIDTHS = (1, 13, 112, 3584)
#: By element type: numbers of few and of many digits, small and large ones.
NUMBERS = {
    "f16": (1.0, 0.1, -3.3, 60000.0, 65504.0),
    "bf16": (1.0, 0.1, -3.3, 60000.0, 1e30),
    "f32": (1.0, 0.1, -3.3, 60001.3, 16777215.0, 1.2345678e30),
}


def _rows(width: int, dtype: str, numbers: tuple[float, ...] | None = None) -> np.ndarray:
    column = np.array(NUMBERS[dtype] if numbers is None else numbers).astype(DTYPES[dtype])
    return np.repeat(column[:, None], width, axis=1)


@pytest.mark.parametrize(
    # Results of 16 bits have no trace of the rounding of a mean in f32.
    "dtype",
    ["f32", *(pytest.param(name, marks=pytest.mark.wide) for name in ("f16", "bf16"))],
)
def test_norms_of_constant_rows_are_beta(dtype: str) -> None:
    p = Program("mir")
    inputs: dict[str, np.ndarray] = {}
    for width in WIDTHS:
        x = p.input(f"x{width}", ["n", width], dtype)
        zero = p.input(f"zero{width}", ["n", width], dtype)
        gamma, beta = (p.input(f"{word}{width}", [width], dtype) for word in ("gamma", "beta"))
        p.output(
            **{
                f"plain{width}": p.m.layer_norm(x, gamma, beta),
                f"residual{width}": p.m.fused_residual_layer_norm(x, zero, gamma, beta, bias=None),
                f"columns{width}": p.m.layer_norm(p.m.transpose(x, [1, 0]), gamma, beta, axis=0),
            }
        )
        rows = _rows(width, dtype)
        ones, shift = np.ones(width, rows.dtype), np.full(width, 0.75, rows.dtype)
        inputs |= {f"x{width}": rows, f"zero{width}": 0 * rows, f"gamma{width}": ones, f"beta{width}": shift}
    module = p.finish()
    results = {
        "interpreted": interpret(module, inputs),
        "templates": compile_fresh(module).run(inputs),
        "generic": compile_fresh(module, disable_templates=("all",), level=0).run(inputs),
    }
    for way, found in results.items():
        for name, value in found.items():
            np.testing.assert_array_equal(value.astype(np.float32), 0.75, err_msg=f"{name}, {way}")


@pytest.mark.parametrize(
    "dtype",  # in 16 bits a wrong mean is rounded to the right one
    [pytest.param(name, marks=[pytest.mark.slow] * (name != "f32")) for name in NUMBERS],
)
def test_means_of_constant_rows_are_the_number(dtype: str) -> None:
    """Sums of numbers with so few digits are exact in f32, where a product with 1/41 isn't the quotient."""
    numbers = (1.0, 0.75, -3.5, 60000.0) if dtype == "f32" else NUMBERS[dtype]
    p = Program("mir")
    inputs = {}
    for width in (*WIDTHS, 41):
        x = p.input(f"x{width}", ["n", width], dtype)
        p.output(**{f"mean{width}": p.m.mean(x, [1])})
        inputs[f"x{width}"] = _rows(width, dtype, numbers)
    module = p.finish()
    for options in ({}, {"disable_templates": ("all",)}):
        for name, value in compile_fresh(module, **options).run(inputs).items():
            np.testing.assert_array_equal(value, _rows(1, dtype, numbers)[:, 0], err_msg=f"{name}, {options}")


@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.quick(1)
def test_group_norm_of_constant_groups_is_beta(dtype: str) -> None:
    numbers = [n for n in NUMBERS[dtype] if abs(n) < 1e9]
    x = _rows(21 * 7 * 5, dtype, tuple(numbers)).reshape(len(numbers), 21, 7, 5)
    p = Program("hir", "fusable")
    vectors = [p.input(name, [21], dtype) for name in ("gamma", "beta")]
    p.output(y=p.m.group_norm(p.input("x", ["n", 21, 7, 5], dtype), *vectors, num_groups=3))
    module = p.finish()
    inputs = {"x": x, "gamma": np.ones(21, x.dtype), "beta": np.full(21, 0.75, x.dtype)}
    for found in (interpret(module, inputs), compile_fresh(module).run(inputs)):
        np.testing.assert_array_equal(found["y"].astype(np.float32), 0.75)
