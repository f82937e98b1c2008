# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Derivatives of users' own operations: by their rules, through their lowerings, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from derivatives import check

import rlx_mlir as rlx
from rlx_mlir import interpret
from rlx_mlir.errors import BuildError

pytestmark = pytest.mark.usefixtures("forget_operations")


def infer(x, y, *, power=2.0):
    return x, rlx.TensorSpec(x.shape, "i32")


def reference(x, y, *, power):
    return x**power * y, np.sign(x).astype(np.int32)


def lowering(m, x, y, *, power):
    return m.mul(m.pow(x, power), y), m.cast(x, "i32")


def pull(m, operands, results, cotangents, *, power):
    """x^p y has the derivatives p x^(p - 1) y and x^p; the second result is of integers."""
    (x, y), (dy, none) = operands, cotangents
    assert none is None
    assert [result.dtype.name for result in results] == ["float64", "int32"]
    return m.mul(dy, m.mul(m.mul(m.pow(x, power - 1), power), y)), m.mul(dy, m.pow(x, power))


def push(m, operands, results, tangents, *, power):
    (x, y), (tx, ty) = operands, tangents
    own = m.mul(tx, m.mul(m.mul(m.pow(x, power - 1), power), y))
    return (own if ty is None else m.add(own, m.mul(ty, m.pow(x, power)))), None


VALUES = {"x": np.array([0.5, -1.2, 2.0]), "y": np.array([1.5, 0.3, -0.7])}


def module():
    """The operation with both results as outputs."""
    m = rlx.GraphModule.mir("own")
    x, y = m.input("x", ["n"], "f64"), m.input("y", ["n"], "f64")
    m.set_outputs(dict(zip(("power", "whole"), m.custom("my.power", x, y, power=3.0), strict=True)))
    return m


PARTS = {"infer": infer, "reference": reference}


@pytest.mark.parametrize(
    "rules",
    [
        {"lowering": lowering},
        {"lowering": lowering, "vjp": pull},
        {"kernel": reference, "vjp": pull},
        {"kernel": reference, "vjp": pull, "jvp": push},
    ],
    ids=["lowering", "lowering and vjp", "kernel and vjp", "kernel and both"],
)
def test_own_operations_are_differentiated(rules):
    rlx.register_op("my.power", **PARTS, **rules)
    check(module(), VALUES)


def test_rules_are_taken_before_what_lowerings_build():
    rlx.register_op("my.power", **PARTS, lowering=lowering, vjp=lambda m, given, y, dy, *, power: (dy[0], None))
    values = {**VALUES, "d_power": np.ones(3)}
    with pytest.warns(rlx.errors.GradientWarning, match="'y'"):
        pulled = rlx.vjp(module())
    np.testing.assert_array_equal(interpret(pulled, values)["d_x"], [1, 1, 1])


def test_forward_mode_takes_its_own_rule():
    def doubled(m, given, results, tangents, *, power):
        return m.add(tangents[0], tangents[0]), None

    rlx.register_op("my.power", **PARTS, kernel=reference, jvp=doubled)
    found = interpret(rlx.jvp(module(), "x"), {**VALUES, "t_x": np.ones(3)})
    np.testing.assert_array_equal(found["t_power"], [2, 2, 2])
    with pytest.raises(BuildError, match=r"'my.power' has no derivative: 'register_op' takes its rule as 'vjp'"):
        rlx.vjp(module())


@pytest.mark.parametrize("transform", [rlx.vjp, rlx.jvp])
def test_kernels_alone_have_no_derivative(transform):
    rlx.register_op("my.power", **PARTS, kernel=reference)
    with pytest.raises(BuildError, match=r"mir.custom.*test_own_derivatives\.py:\d+.*'my.power' has no derivative"):
        transform(module())


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (lambda m, x, y, dy, *, power: (dy[0],), "gives a value or None for each of 2 operands, but gave 1"),
        (lambda m, x, y, dy, *, power: (1.0, None), "gives values and None, but gave 1.0"),
        (lambda m, x, y, dy, *, power: (m.sum(dy[0], 0), None), "for operand 0, which is tensor<\\?xf64>"),
    ],
)
def test_what_rules_give_is_checked(rule, message):
    rlx.register_op("my.power", **PARTS, kernel=reference, vjp=rule)
    with pytest.raises(BuildError, match=f"'vjp' of 'my.power' .*{message}"):
        rlx.vjp(module())
