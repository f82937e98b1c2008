# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Functions of integers and of conditions: logic, division, and the power of integers; one record each.

All are exact, and defined for all operands: what would overflow wraps around, what is divided by 0 becomes 0, as in
numpy. Integers without sign have formulas of their own where -1 or a negative number matters. `mir/elementwise.py`
makes references and code from the records, as of other functions.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np

from rlx_mlir.dialects import mir
from rlx_mlir.mir.algebra import Formula, Symbol, equal, formula, quotient, remainder, select
from rlx_mlir.mir.functions import Elementwise, Rounding
from rlx_mlir.mir.intervals import ANYTHING, Interval

# ----------------------------------------------------------------------------------------------------------------------
# Logic
# ----------------------------------------------------------------------------------------------------------------------


def _both(x: Interval, y: Interval) -> Interval:
    """Of the bits that both have: a number without sign has no more than either."""
    if x.low < 0 and y.low < 0:
        return ANYTHING
    return Interval(0.0, min(own.high for own in (x, y) if own.low >= 0))


def _either(x: Interval, y: Interval) -> Interval:
    """Of the bits that one or the other has: of numbers without sign, no more than the longer one has."""
    largest = max(x.high, y.high)
    if min(x.low, y.low) < 0 or not math.isfinite(largest):
        return ANYTHING
    return Interval(0.0, 2.0 ** int(largest).bit_length() - 1)


LOGIC = (
    Elementwise(
        mir.NotOp,
        "Whether a condition doesn't hold; of integers, each bit flipped: ~x.",
        formula(lambda x: x ^ -1),
        lambda x: Interval(-1 - x.high, -1 - x.low),
        Rounding.EXACT,
        of_unsigned=lambda bits: formula(lambda x: x ^ (2**bits - 1)),
        floats=False,
        integers=True,
        conditions=True,
        builder="bitwise_not",
    ),
    Elementwise(
        mir.AndOp,
        "Whether both conditions hold; of integers, the bits that both have: lhs & rhs.",
        formula(lambda x, y: x & y),
        _both,
        Rounding.EXACT,
        floats=False,
        integers=True,
        conditions=True,
        builder="bitwise_and",
    ),
    Elementwise(
        mir.OrOp,
        "Whether one of two conditions holds, or both; of integers, bit by bit: lhs | rhs.",
        formula(lambda x, y: x | y),
        _either,
        Rounding.EXACT,
        floats=False,
        integers=True,
        conditions=True,
        builder="bitwise_or",
    ),
    Elementwise(
        mir.XorOp,
        "Whether one of two conditions holds, but not both; of integers, bit by bit: lhs ^ rhs.",
        formula(lambda x, y: x ^ y),
        _either,
        Rounding.EXACT,
        floats=False,
        integers=True,
        conditions=True,
        builder="bitwise_xor",
    ),
)

# ----------------------------------------------------------------------------------------------------------------------
# Division
# ----------------------------------------------------------------------------------------------------------------------


def _divisor(y: Symbol) -> Symbol:
    """What instructions divide by: 1 in place of 0 and -1, which leave nothing either."""
    return select(equal(y, 0) | equal(y, -1), 1, y)


def _with_special(x: Symbol, y: Symbol, of_others: Symbol) -> Symbol:
    """A quotient: by 0 it is 0, by -1 the number negated, which wraps around."""
    return select(equal(y, 0), 0, select(equal(y, -1), 0 - x, of_others))


def _trunc_div(x: Symbol, y: Symbol) -> Symbol:
    return _with_special(x, y, quotient(x, _divisor(y)))


def _trunc_rem(x: Symbol, y: Symbol) -> Symbol:
    return remainder(x, _divisor(y))


def _floor_div(x: Symbol, y: Symbol) -> Symbol:
    """The quotient that is rounded towards 0, less 1 where that rounded up: where the signs differ."""
    divisor = _divisor(y)
    near, left = quotient(x, divisor), remainder(x, divisor)
    return _with_special(x, y, select(equal(left, 0), near, select((left ^ divisor) < 0, near - 1, near)))


def _floor_rem(x: Symbol, y: Symbol) -> Symbol:
    divisor = _divisor(y)
    left = remainder(x, divisor)
    return select(equal(left, 0), left, select((left ^ divisor) < 0, left + divisor, left))


def _unsigned_div(bits: int) -> Formula:
    """Of numbers without sign, rounding down and towards 0 are one."""
    return formula(lambda x, y: select(equal(y, 0), 0, quotient(x, select(equal(y, 0), 1, y))))


def _unsigned_rem(bits: int) -> Formula:
    return formula(lambda x, y: remainder(x, select(equal(y, 0), 1, y)))


def _of_quotient(x: Interval, y: Interval) -> Interval:
    """No quotient is larger than the dividend; those of numbers without sign have none."""
    return Interval(0.0 if x.low >= 0 and y.low >= 0 else -x.magnitude, x.magnitude)


def _of_floor_rem(x: Interval, y: Interval) -> Interval:
    """A remainder has the divisor's sign, and is nearer to 0."""
    return Interval(min(y.low + 1, 0.0), max(y.high - 1, 0.0))


def _of_trunc_rem(x: Interval, y: Interval) -> Interval:
    """A remainder has the dividend's sign, isn't larger, and is nearer to 0 than the divisor."""
    most = min(x.magnitude, max(y.magnitude - 1, 0.0))
    return Interval(-most if x.low < 0 else 0.0, most if x.high > 0 else 0.0)


DIVISION = (
    Elementwise(
        mir.FloorDivOp,
        "The quotient of integers, rounded down: lhs // rhs; 0 where rhs is 0.",
        formula(_floor_div),
        _of_quotient,
        Rounding.EXACT,
        of_unsigned=_unsigned_div,
        floats=False,
        integers=True,
    ),
    Elementwise(
        mir.FloorRemOp,
        "What floor_div leaves, of rhs's sign: lhs % rhs; 0 where rhs is 0.",
        formula(_floor_rem),
        _of_floor_rem,
        Rounding.EXACT,
        of_unsigned=_unsigned_rem,
        floats=False,
        integers=True,
    ),
    Elementwise(
        mir.TruncDivOp,
        "The quotient of integers, rounded towards 0, as in C; 0 where rhs is 0.",
        formula(_trunc_div),
        _of_quotient,
        Rounding.EXACT,
        of_unsigned=_unsigned_div,
        floats=False,
        integers=True,
    ),
    Elementwise(
        mir.TruncRemOp,
        "What trunc_div leaves, of lhs's sign, as in C; 0 where rhs is 0.",
        formula(_trunc_rem),
        _of_trunc_rem,
        Rounding.EXACT,
        of_unsigned=_unsigned_rem,
        floats=False,
        integers=True,
    ),
)

# ----------------------------------------------------------------------------------------------------------------------
# Power
# ----------------------------------------------------------------------------------------------------------------------


@cache
def integer_power_formula(bits: int) -> Formula:
    """x^y of integers of so many bits: the product of x^(2^i), over the bits i of y.

    A negative exponent gives the fraction 1 / x^-y without its part after the point: 0, unless x is 1 or -1.
    """

    def power(x: Symbol, y: Symbol) -> Symbol:
        odd = equal(y & 1, 1)
        total = _squarings(x, y, odd, bits - 1)  # the last bit is the sign
        is_unit = equal(x, 1) | equal(x, -1)
        return select(y < 0, select(is_unit, select(odd, x, 1), 0), total)

    return formula(power)


@cache
def unsigned_power_formula(bits: int) -> Formula:
    """x^y of integers of so many bits without sign."""
    return formula(lambda x, y: _squarings(x, y, equal(y & 1, 1), bits))


def _squarings(x: Symbol, y: Symbol, odd: Symbol, bits: int) -> Symbol:
    """The product of x^(2^i) over the set ones of the first bits of y."""
    total, square = select(odd, x, 1), x
    for position in range(1, bits):
        square = square * square
        total = select(equal(y & 2**position, 0), total, total * square)
    return total


def integer_power(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """x^y of integers, wrapping around; with a negative y 1 / x^-y, rounded towards 0."""
    if x.dtype.kind == "u":
        return np.asarray(np.power(x, y))
    is_unit = (x == 1) | (x == -1)
    powers = np.power(x, np.where(y < 0, y & 1, y))  # of 1 and -1, all that counts is whether y is odd
    return np.where((y < 0) & ~is_unit, x.dtype.type(0), powers)
