# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Functions of elements that aren't operations of ours, made of such: what readers of graphs share.

Each takes the graph and values of it, and gives a value. Of floats unless it says otherwise.
"""

from __future__ import annotations

import math

import numpy as np

from rlx_mlir.hir import GraphModule, Value

_I64 = np.dtype(np.int64)


def like(number: object, x: Value) -> np.ndarray:
    """A number in the element type of a value."""
    with np.errstate(over="ignore"):
        return np.asarray(number).astype(x.dtype)


# Rounding -------------------------------------------------------------------------------------------


def floor(m: GraphModule, x: Value) -> Value:
    """The largest whole numbers that aren't larger."""
    near = m.round(x)
    return m.where(m.gt(near, x), near - 1.0, near)


def ceil(m: GraphModule, x: Value) -> Value:
    """The smallest whole numbers that aren't smaller."""
    near = m.round(x)
    return m.where(m.lt(near, x), near + 1.0, near)


def truncated(m: GraphModule, x: Value) -> Value:
    """The whole numbers towards 0."""
    return m.where(m.lt(x, 0.0), ceil(m, x), floor(m, x))


# Functions whose formulas cancel: of f64, as which callers compute them ------------------------------


def sinh(m: GraphModule, x: Value) -> Value:
    """(e^x - e^-x) / 2"""
    return (m.exp(x) - m.exp(-x)) * 0.5


def cosh(m: GraphModule, x: Value) -> Value:
    """(e^x + e^-x) / 2"""
    return (m.exp(x) + m.exp(-x)) * 0.5


def asinh(m: GraphModule, x: Value) -> Value:
    """The number whose sinh is x."""
    size = m.abs(x)
    y = m.log(size + m.sqrt(size * size + 1.0))
    return m.where(m.lt(x, 0.0), -y, y)


def acosh(m: GraphModule, x: Value) -> Value:
    """The number from 0 on whose cosh is x."""
    return m.log(x + m.sqrt(x * x - 1.0))


def atanh(m: GraphModule, x: Value) -> Value:
    """The number whose tanh is x."""
    return m.log((1.0 + x) / (1.0 - x)) * 0.5


def asin(m: GraphModule, x: Value) -> Value:
    """The angle whose sine is x."""
    return m.atan(x / m.sqrt(1.0 - x * x))


def acos(m: GraphModule, x: Value) -> Value:
    """The angle whose cosine is x."""
    return math.pi / 2 - asin(m, x)


def atan2(m: GraphModule, y: Value, x: Value) -> Value:
    """The angle from -pi to pi of the point (x, y); zeros with a sign and infinities as in C."""
    across, up = m.abs(x), m.abs(y)
    endless = m.eq(across, math.inf) & m.eq(up, math.inf)
    nowhere = m.eq(across, 0.0) & m.eq(up, 0.0)
    acute = m.where(nowhere, 0.0, m.atan(m.where(endless, 1.0, up) / m.where(endless, 1.0, across)))
    turned = m.where(is_negative(m, x), math.pi - acute, acute)
    return m.where(is_negative(m, y), -turned, turned)


def is_negative(m: GraphModule, x: Value) -> Value:
    """Whether numbers have the sign of -1: also -0."""
    return m.lt(x, 0.0) | m.eq(1.0 / x, -math.inf)


def remainder(m: GraphModule, x: Value, y: Value, *, towards_zero: bool) -> Value:
    """x - q y, with q = x / y rounded towards 0, as C's fmod, or down, as Python's %."""
    rest = x - (truncated(m, x / y) if towards_zero else floor(m, x / y)) * y
    # By an infinity, everything is a remainder; of another sign, the one that is rounded down goes on to the infinity.
    whole = x if towards_zero else m.where(m.lt(x * m.minimum(m.maximum(y, -1.0), 1.0), 0.0), y, x)
    endless = m.eq(m.abs(y), math.inf) & m.lt(m.abs(x), math.inf)
    return m.where(endless, whole, rest)


# Of floats and integers -----------------------------------------------------------------------------


def magnitude(m: GraphModule, x: Value) -> Value:
    """|x|, of floats and integers."""
    if x.dtype.kind == "u":
        return x
    return m.maximum(x, m.sub(like(0, x), x)) if x.dtype.kind == "i" else m.abs(x)


def negative(m: GraphModule, x: Value) -> Value:
    """-x, of floats and integers."""
    return m.sub(like(0, x), x) if x.dtype.kind in "iu" else m.neg(x)


def sign(m: GraphModule, x: Value) -> Value:
    """-1, 0 or 1, of floats and integers; NaN and zeros with a sign stay as they are."""
    zero, one = like(0, x), like(1, x)
    is_integer = x.dtype.kind in "iu"
    below = zero if x.dtype.kind == "u" else like(-1, x)
    other = m.where(m.lt(x, zero), m.constant(below), m.constant(zero) if is_integer else x)
    return m.where(m.gt(x, zero), m.constant(one), other)


# Of integers ----------------------------------------------------------------------------------------


def wrapped(m: GraphModule, x: Value, dtype: np.dtype) -> Value:
    """Integers in another type of integers, of which those that don't fit lose their high bits."""
    own, limits = np.iinfo(x.dtype), np.iinfo(dtype)
    if limits.min <= own.min and own.max <= limits.max:
        return m.cast(x, dtype)
    wide = m.cast(x, "i64")
    bits = 1 << limits.bits
    rest = m.floor_rem(wide, np.int64(bits)) if limits.bits < 64 else wide
    if limits.min < 0 and limits.bits < 64:
        rest = m.where(m.gt(rest, np.int64(limits.max)), rest - np.int64(bits), rest)
    return m.cast(rest, dtype)


def shifted_left(m: GraphModule, x: Value, by: Value) -> Value:
    """x 2^by: 0 from the width of x on."""
    return m.mul(x, m.pow(like(2, by), by))


def shifted_right(m: GraphModule, x: Value, by: Value) -> Value:
    """floor(x / 2^by): by less than 0, or by the width and more, the sign alone is left."""
    if x.dtype.kind == "u":
        return m.floor_div(x, m.pow(like(2, by), by))  # by which floor_div gives 0
    # In two steps, as 2^(bits - 1) is no number of the type.
    bits = np.iinfo(x.dtype).bits
    outside = m.lt(by, like(0, by)) | m.ge(by, like(bits, by))
    steps = m.where(outside, m.constant(like(bits - 1, by)), by)
    half = m.floor_div(steps, like(2, by))
    first = m.floor_div(x, m.pow(like(2, by), half))
    return m.floor_div(first, m.pow(like(2, by), m.sub(steps, half)))
