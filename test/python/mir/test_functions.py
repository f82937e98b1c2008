# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The records of functions of elements: formulas, derivatives and intervals against the references in f64."""

from __future__ import annotations

import math

import numpy as np
import pytest

from rlx_mlir.mir.algebra import Formula, Primitive, Ref, Step, fma, formula, maximum, minimum, polynomial, select
from rlx_mlir.mir.functions import FUNCTIONS, Elementwise
from rlx_mlir.mir.intervals import ANYTHING, Interval

by_record = pytest.mark.parametrize(
    "record", [record for record in FUNCTIONS.values() if record.floats], ids=lambda record: record.word
)
by_integer_record = pytest.mark.parametrize(
    "record", [record for record in FUNCTIONS.values() if record.integers], ids=lambda record: record.word
)
F32, F64 = np.float32, np.float64


def operands(record: Elementwise, count: int, seed: int = 0) -> list[np.ndarray]:
    """Numbers in f64, positive where the function wants it, and away from its jumps and corners."""
    rng = np.random.default_rng(seed)
    drawn = [rng.uniform(-4, 4, count) for _ in range(record.arity)]
    if record.domain == "positive":
        drawn = [np.abs(x) + 0.1 for x in drawn]
    if record.arity == 1:
        return [np.where(np.abs(drawn[0] * 2 - np.round(drawn[0] * 2)) < 0.01, drawn[0] + 0.02, drawn[0])]
    return drawn


@by_record
def test_formulas_are_their_functions(record: Elementwise):
    """In f32, step by step, within some units of the reference in f64; `precise` has the digits of f64."""
    narrow = [x.astype(F32) for x in operands(record, 4000)]
    wide = [x.astype(F64) for x in narrow]
    with np.errstate(all="ignore"):
        want, got = record.apply(*wide), record.formula.evaluate(*narrow)
        digits = record.formula_for("f64").evaluate(*wide)
    assert got.dtype == F32
    assert digits.dtype == F64
    # Errors are absolute of periods, and where a function that isn't 0 at 0 is 0.
    size = np.abs(want) + (1e-1 if record.periodic or record.word == "gelu_slope" else 0.0)
    assert np.max(np.abs(got - want) / np.maximum(size, 1e-30)) <= 2.0**-19
    np.testing.assert_allclose(digits, want, rtol=1e-12, atol=1e-14)


@by_record
def test_derivatives_are_slopes(record: Elementwise):
    if record.derivatives is None:
        pytest.skip("the record has no derivatives")
    assert len(record.derivatives) == record.arity
    points, step = operands(record, 500, seed=1), 1e-5
    for number, derivative in enumerate(record.derivatives):
        assert derivative.arguments == record.arity
        above, below = ([x + s * (i == number) for i, x in enumerate(points)] for s in (step, -step))
        slope = (record.apply(*above) - record.apply(*below)) / (2 * step)
        calm = np.abs(slope) < 100  # not beside poles, where slopes change within a step
        assert np.mean(calm) > 0.9
        np.testing.assert_allclose(derivative.evaluate(*points)[calm], slope[calm], rtol=1e-5, atol=1e-7)


@by_record
def test_intervals_hold(record: Elementwise):
    """Values at numbers within intervals are within the interval that the rule gives."""
    rng = np.random.default_rng(2)
    for _ in range(100):
        least = 0.1 if record.domain == "positive" else -6.0
        ends = [np.sort(rng.uniform(least, 6, 2)) for _ in range(record.arity)]
        inside = [np.append(rng.uniform(*own, 50), own) for own in ends]
        given = [Interval(float(low), float(high)) for low, high in ends]
        found = record.interval(*given)
        values = record.apply(*inside)
        slack = 1e-12 * max(1.0, float(np.max(np.abs(values))))
        assert found == ANYTHING or (values.min() >= found.low - slack and values.max() <= found.high + slack)
    assert record.interval(*[ANYTHING] * record.arity).low <= record.interval(*[Interval(1, 2)] * record.arity).low


@by_integer_record
@pytest.mark.parametrize("bits", [8, 64])
@pytest.mark.quick(17)
def test_intervals_of_integers_hold(record: Elementwise, bits: int):
    """As far as values don't wrap around: then the type's own interval holds."""
    rng = np.random.default_rng(3)
    for _ in range(200):
        most = int(rng.choice([1, 3, 40, 127] if bits == 8 else [3, 1000, 2**50]))  # ends of intervals are of f64
        ends = [np.sort(rng.integers(-most, most, 2, endpoint=True)) for _ in range(record.arity)]
        inside = [np.append(rng.integers(*own, 50, endpoint=True), own).astype(f"int{bits}") for own in ends]
        found = record.interval(*(Interval(float(low), float(high)) for low, high in ends))
        with np.errstate(all="ignore"):
            values = record.apply(*inside).astype(np.float64)
        wraps = found.low < -(2.0 ** (bits - 1)) or found.high >= 2.0 ** (bits - 1)
        assert wraps or (values.min() >= found.low and values.max() <= found.high)


def test_a_formula_keeps_its_steps_in_order():
    found = formula(lambda x, y: maximum(x, 0.0) * 2 - y / x)
    assert found == Formula(
        2,
        (
            Step("max", (Ref(0), 0.0)),
            Step("mul", (Ref(2), 2.0)),
            Step("div", (Ref(1), Ref(0))),
            Step("sub", (Ref(3), Ref(4))),
        ),
        Ref(5),
    )
    with pytest.raises(ValueError, match="a formula of 2 arguments got 1"):
        found.evaluate(np.ones(2))


def test_a_formula_may_be_a_number_or_an_argument():
    x = np.array([1.0, 2.0], F32)
    np.testing.assert_array_equal(formula(lambda x: 3.0).evaluate(x), np.array([3, 3], F32))
    np.testing.assert_array_equal(formula(lambda x, y: y).evaluate(x, x + 1), x + 1)


def test_steps_on_arrays():
    x = np.array([-1.5, 0.25, math.nan], F32)
    np.testing.assert_array_equal(formula(lambda x: minimum(x, 0.0)).evaluate(x), np.array([-1.5, 0, math.nan], F32))
    np.testing.assert_array_equal(formula(lambda x: select(x < 0, -x, 7.0)).evaluate(x), np.array([1.5, 7, 7], F32))
    np.testing.assert_array_equal(formula(lambda x: polynomial(x, (1, 2, 4))).evaluate(x[:2]), np.array([7, 1.75], F32))
    double = Primitive("double", lambda x: x * 2)
    np.testing.assert_array_equal(formula(double).evaluate(x[:2]), np.array([-3, 0.5], F32))


def test_fma_gives_what_rounding_took_from_a_product():
    x = np.array([1 + 2.0**-23, 1.1], F32)
    lost = formula(lambda x: fma(x, x, -(x * x))).evaluate(x)
    assert lost[0] == 2.0**-46
    np.testing.assert_array_equal(lost.astype(F64), x.astype(F64) ** 2 - (x * x).astype(F64))
