# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The functions that formulas of elements are made of, and those of complex numbers, by their parts."""

from __future__ import annotations

import math

import numpy as np

from rlx_mlir.mir.algebra import Formula, Number, Primitive, Symbol, equal, formula, maximum, minimum, select

EXP = Primitive("exp", np.exp)
LOG = Primitive("log", np.log)
TANH = Primitive("tanh", np.tanh)
SQRT = Primitive("sqrt", np.sqrt)
RSQRT = Primitive("rsqrt", lambda x: 1 / np.sqrt(x), expansion=formula(lambda x: 1 / SQRT(x)))
SIN = Primitive("sin", np.sin)
COS = Primitive("cos", np.cos)
TAN = Primitive("tan", np.tan)
ATAN = Primitive("atan", np.arctan)
ABSOLUTE = Primitive("absf", np.abs)
ROUND = Primitive("roundeven", np.rint)
COPYSIGN = Primitive("copysign", np.copysign, arity=2)

# ----------------------------------------------------------------------------------------------------------------------
# Functions of complex numbers: formulas of the real and the imaginary part
# ----------------------------------------------------------------------------------------------------------------------


def _ratio(large: Symbol, small: Symbol) -> Symbol:
    """small / large of numbers that aren't negative; 1 of two infinities, 0 of two zeros."""
    return select(equal(small, large), select(equal(large, 0.0), 0.0, 1.0), small / large)


def _angle(a: Symbol, b: Symbol) -> Symbol:
    """The angle of a + bi, from -pi to pi, with the sign of b."""
    x, y = ABSOLUTE(a), ABSOLUTE(b)
    near = ATAN(_ratio(maximum(x, y), minimum(x, y)))
    right = select(x < y, math.pi / 2 - near, near)
    return COPYSIGN(select(COPYSIGN(1.0, a) < 0, math.pi - right, right), b)


def _log_magnitude(a: Symbol, b: Symbol) -> Symbol:
    """ln|a + bi|: no square overflows, and a small part adds what it has."""
    x, y = ABSOLUTE(a), ABSOLUTE(b)
    large = maximum(x, y)
    ratio = _ratio(large, minimum(x, y))
    square = ratio * ratio
    rounded = square + 1.0
    added = select(equal(rounded, 1.0), square, LOG(rounded) * square / (rounded - 1.0))
    return LOG(large) + added * 0.5


def _exp_part(a: Symbol, of_angle: Symbol) -> Symbol:
    """e^a times a sine or cosine, which may be small enough for the product to be a number where e^a is none."""
    half = EXP(a * 0.5)
    return half * of_angle * half


def _roots(a: Symbol, b: Symbol) -> tuple[Symbol, Symbol]:
    """The magnitudes of the parts of the square root, where a isn't negative."""
    x, y = ABSOLUTE(a), ABSOLUTE(b)
    large = maximum(x, y)
    ratio = _ratio(large, minimum(x, y))
    first = SQRT(x * 0.125 + large * 0.125 * SQRT(ratio * ratio + 1.0)) * 2.0  # the sum itself may overflow
    second = select(equal(first, 0.0), 0.0, y / (first * 2.0))
    is_infinite = equal(y, math.inf)
    return select(is_infinite, math.inf, first), select(is_infinite, math.inf, second)


def _sqrt_real(a: Symbol, b: Symbol) -> Number:
    first, second = _roots(a, b)
    return select(a < 0, second, first)


def _sqrt_imag(a: Symbol, b: Symbol) -> Number:
    first, second = _roots(a, b)
    return COPYSIGN(select(a < 0, first, second), b)


COMPLEX_EXP: tuple[Formula, Formula] = (
    formula(lambda a, b: select(equal(b, 0.0), EXP(a), _exp_part(a, COS(b)))),
    formula(lambda a, b: select(equal(b, 0.0), b, _exp_part(a, SIN(b)))),
)
COMPLEX_LOG: tuple[Formula, Formula] = (formula(_log_magnitude), formula(_angle))
COMPLEX_SQRT: tuple[Formula, Formula] = (formula(_sqrt_real), formula(_sqrt_imag))
