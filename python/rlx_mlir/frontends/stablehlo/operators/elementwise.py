# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Functions of elements: arithmetic, comparisons, logic, bits, conversions."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rlx_mlir.frontends import functions
from rlx_mlir.hir import GraphModule, Value

from ..call import Call, is_float
from ..entries import Entry
from ..registry import Refused, operator
from .known import COMPARISONS

#: A function of one value.
Function = Callable[[GraphModule, Value], Value]


def _needs_floats(call: Call) -> None:
    if not is_float(call.dtype(0)):
        raise Refused(f"elements of {call.dtype(0)}")


# Functions of one element ---------------------------------------------------------------------------


def _plain(name: str, kind: str) -> None:
    """An operation of floats that is one of ours."""

    @operator(name)
    def run(call: Call) -> Entry:
        if call.dtype(0).kind != "c":
            _needs_floats(call)
        return call.elementwise(getattr(call.m, kind), call.operands[0])


for _name, _kind in (
    ("exponential", "exp"),
    ("log", "log"),
    ("sqrt", "sqrt"),
    ("rsqrt", "rsqrt"),
    ("tanh", "tanh"),
    ("logistic", "sigmoid"),
    ("sine", "sin"),
    ("cosine", "cos"),
    ("tan", "tan"),
    ("@mhlo.tan", "tan"),
    ("chlo.tan", "tan"),
    ("chlo.erfc", "erfc"),
    ("@mhlo.erfc", "erfc"),
    ("chlo.atan", "atan"),
    ("round_nearest_even", "round"),
):
    _plain(_name, _kind)


def _composed(*names: str) -> Callable[[Function], Function]:
    """An operation of floats that is made of several of ours, computed in f32 for 16 bits."""

    def add(function: Function) -> Function:
        @operator(*names)
        def run(call: Call) -> Entry:
            _needs_floats(call)
            dtype = call.dtype(0)
            return call.elementwise(lambda x: call.cast(function(call.m, call.wide(x)), dtype), call.operands[0])

        return function

    return add


def _doubled(name: str, function: Function) -> None:
    """An operation whose formula cancels: it is computed in f64."""

    @operator(name)
    def run(call: Call) -> Entry:
        _needs_floats(call)
        dtype = call.dtype(0)
        wide = np.dtype(np.float64)
        return call.elementwise(lambda x: call.cast(function(call.m, call.cast(x, wide)), dtype), call.operands[0])


for _name, _function in (
    ("chlo.sinh", functions.sinh),
    ("@mhlo.sinh", functions.sinh),
    ("chlo.cosh", functions.cosh),
    ("@mhlo.cosh", functions.cosh),
    ("chlo.asinh", functions.asinh),
    ("@mhlo.asinh", functions.asinh),
    ("chlo.acosh", functions.acosh),
    ("@mhlo.acosh", functions.acosh),
    ("chlo.atanh", functions.atanh),
    ("@mhlo.atanh", functions.atanh),
    ("chlo.asin", functions.asin),
    ("@mhlo.asin", functions.asin),
    ("chlo.acos", functions.acos),
    ("@mhlo.acos", functions.acos),
):
    _doubled(_name, _function)

_composed("floor")(functions.floor)
_composed("ceil")(functions.ceil)


@_composed("chlo.erf", "@mhlo.erf")
def _erf(m: GraphModule, x: Value) -> Value:
    return 1.0 - m.erfc(x)


@_composed("chlo.square")
def _square(m: GraphModule, x: Value) -> Value:
    return x * x


@_composed("log_plus_one")
def _log_plus_one(m: GraphModule, x: Value) -> Value:
    """x log(w) / (w - 1) for w = 1 + x, whose rounding both have: x, where that is 1."""
    w = x + 1.0
    rest = w - 1.0
    one = m.where(m.eq(rest, 0.0), 1.0, rest)
    exact = m.where(m.eq(rest, x), 1.0, x / one)  # of infinity, too
    return m.where(m.eq(rest, 0.0), x, m.log(w) * exact)


@_composed("exponential_minus_one")
def _exponential_minus_one(m: GraphModule, x: Value) -> Value:
    """(u - 1) x / log(u) for u = e^x, whose rounding both have: x, where that is 1."""
    u = m.exp(x)
    rest = u - 1.0
    is_near = m.lt(m.abs(x), 0.5)
    power = m.log(m.where(is_near, u, 2.0))
    one = m.where(m.eq(rest, 0.0), 1.0, power)
    near = m.where(m.eq(rest, 0.0), x, rest * (x / one))
    return m.where(is_near, near, rest)


@_composed("cbrt")
def _cbrt(m: GraphModule, x: Value) -> Value:
    """A step of Newton's iteration from the power of a third."""
    size = m.abs(x)
    root = m.pow(size, 1 / 3)
    usable = m.gt(root, 0.0) & m.lt(root, float("inf"))
    safe = m.where(usable, root, 1.0)
    better = safe - (safe - size / (safe * safe)) * (1 / 3)
    found = m.where(usable, better, root)
    return m.where(m.lt(x, 0.0), -found, found)


@_composed("round_nearest_afz")
def _round_away(m: GraphModule, x: Value) -> Value:
    """The nearest whole numbers, of two the one that is farther from 0."""
    below = functions.floor(m, m.abs(x))
    near = m.where(m.ge(m.abs(x) - below, 0.5), below + 1.0, below)
    return m.where(m.lt(x, 0.0), -near, near)


@_composed("chlo.erf_inv", "@mhlo.erf_inv")
def _erf_inv(m: GraphModule, x: Value) -> Value:
    """x times a polynomial of w = -log(1 - x^2) up to 5, and of its root beyond: as near as f32 has it."""
    if x.dtype == np.float64:
        raise Refused("elements of float64")
    w = -m.log((1.0 - x) * (1.0 + x))
    is_small = m.lt(w, 5.0)
    t = m.where(is_small, w - 2.5, m.sqrt(m.where(is_small, 25.0, w)) - 3.0)
    found: Value | None = None
    for small, large in zip(_ERF_INV_SMALL, _ERF_INV_LARGE, strict=True):
        coefficient = m.where(is_small, small, m.constant(functions.like(large, x)))
        found = coefficient if found is None else found * t + coefficient
    assert found is not None
    edge = m.eq(m.abs(x), 1.0)
    return m.where(edge, x * float("inf"), found * x)


_ERF_INV_SMALL = (2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087, -0.00125372503,
                  -0.00417768164, 0.246640727, 1.50140941)  # fmt: skip
_ERF_INV_LARGE = (-0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773, -0.0076224613,
                  0.00943887047, 1.00167406, 2.83297682)  # fmt: skip


@operator("abs")
def _abs(call: Call) -> Entry:
    return call.elementwise(lambda x: functions.magnitude(call.m, x), call.operands[0])


@operator("negate")
def _negate(call: Call) -> Entry:
    return call.elementwise(lambda x: functions.negative(call.m, x), call.operands[0])


@operator("sign")
def _sign(call: Call) -> Entry:
    return call.elementwise(lambda x: functions.sign(call.m, x), call.operands[0])


@operator("is_finite")
def _is_finite(call: Call) -> Entry:
    m = call.m
    return call.elementwise(lambda x: m.lt(m.abs(x), m.constant(functions.like(np.inf, x))), call.operands[0])


@operator("not")
def _not(call: Call) -> Entry:
    return call.elementwise(call.m.bitwise_not, call.operands[0])


@operator("real")
def _real(call: Call) -> Entry:
    return call.elementwise(lambda x: call.m.real(x) if x.dtype.kind == "c" else x, call.operands[0])


@operator("imag")
def _imag(call: Call) -> Entry:
    return call.elementwise(call.m.imag, call.operands[0])


@operator("complex")
def _complex(call: Call) -> Entry:
    return call.elementwise(call.m.complex, *call.operands)


# Functions of two elements --------------------------------------------------------------------------

for _name, _kind in (
    ("add", "add"),
    ("subtract", "sub"),
    ("multiply", "mul"),
    ("maximum", "max"),
    ("minimum", "min"),
    ("and", "and"),
    ("or", "or"),
    ("xor", "xor"),
):

    @operator(_name)
    def _binary(call: Call, kind: str = _kind) -> Entry:
        if kind in ("max", "min"):
            call.refuse_unsigned()
        if call.dtype(0) == np.bool_:
            kind = {"add": "or", "mul": "and", "max": "or", "min": "and"}.get(kind, kind)
        return call.elementwise(lambda a, b: call.m.binary(kind, a, b), *call.operands)


@operator("power")
def _power(call: Call) -> Entry:
    return call.elementwise(call.m.pow, *call.operands)


@operator("divide")
def _divide(call: Call) -> Entry:
    call.refuse_unsigned()
    divide = call.m.trunc_div if call.dtype(0).kind in "iu" else call.m.div
    return call.elementwise(divide, *call.operands)


@operator("remainder")
def _remainder(call: Call) -> Entry:
    m, dtype = call.m, call.dtype(0)
    call.refuse_unsigned()

    def rest(a: Value, b: Value) -> Value:
        if dtype.kind in "iu":
            return m.trunc_rem(a, b)
        x, y = call.wide(a), call.wide(b)
        left = x - functions.truncated(m, x / y) * y
        kept = m.where(m.eq(m.abs(y), float("inf")), x, left)  # by which infinity times 0 is NaN
        return call.cast(kept, dtype)

    return call.elementwise(rest, *call.operands)


@operator("atan2")
def _atan2(call: Call) -> Entry:
    m, dtype = call.m, call.dtype(0)
    _needs_floats(call)

    def angle(y: Value, x: Value) -> Value:
        y, x = call.wide(y), call.wide(x)
        large, small = m.maximum(m.abs(x), m.abs(y)), m.minimum(m.abs(x), m.abs(y))
        one = m.cast(m.ne(large, 0.0), large.dtype)  # of infinities and zeros, too
        inner = m.atan(m.where(m.eq(large, small), one, small / large))
        inner = m.where(m.gt(m.abs(y), m.abs(x)), np.pi / 2 - inner, inner)
        inner = m.where(m.lt(x, 0.0), np.pi - inner, inner)
        return call.cast(m.where(m.lt(y, 0.0), -inner, inner), dtype)

    return call.elementwise(angle, *call.operands)


@operator("compare")
def _compare(call: Call) -> Entry:
    if call.word("compare_type") == "TOTALORDER":
        raise Refused("the total order of floats")
    call.refuse_unsigned()
    kind = COMPARISONS[call.word("comparison_direction")]
    m = call.m

    def compared(a: Value, b: Value) -> Value:
        if a.dtype != np.bool_:
            return m.compare(kind, a, b)
        if kind in ("eq", "ne"):
            differs = m.bitwise_xor(a, b)
            return differs if kind == "ne" else m.bitwise_not(differs)
        return m.compare(kind, m.cast(a, "ui8"), m.cast(b, "ui8"))

    return call.elementwise(compared, *call.operands)


@operator("select")
def _select(call: Call) -> Entry:
    return call.elementwise(call.m.where, *call.operands)


@operator("clamp")
def _clamp(call: Call) -> Entry:
    low, x, high = call.operands
    return call.elementwise(lambda a, b, c: call.m.minimum(call.m.maximum(b, a), c), low, x, high)


# Bits -----------------------------------------------------------------------------------------------


def _signed_shift(call: Call) -> None:
    if call.dtype(0).kind not in "iu":
        raise Refused(f"elements of {call.dtype(0)}")


@operator("shift_left")
def _shift_left(call: Call) -> Entry:
    _signed_shift(call)
    return call.elementwise(lambda a, b: functions.shifted_left(call.m, a, b), *call.operands)


@operator("shift_right_arithmetic")
def _shift_right(call: Call) -> Entry:
    _signed_shift(call)
    return call.elementwise(lambda a, b: functions.shifted_right(call.m, a, b), *call.operands)


@operator("shift_right_logical")
def _shift_right_logical(call: Call) -> Entry:
    m, dtype = call.m, call.dtype(0)
    _signed_shift(call)
    if dtype.kind == "u":
        return _shift_right(call)
    if dtype.itemsize == 8:
        return call.elementwise(lambda a, b: _long_shift(m, a, b), *call.operands)
    unsigned = np.dtype(f"uint{dtype.itemsize * 8}")

    def shifted(a: Value, b: Value) -> Value:
        pair = (functions.wrapped(m, own, unsigned) for own in (a, b))
        return functions.wrapped(m, functions.shifted_right(m, *pair), dtype)

    return call.elementwise(shifted, *call.operands)


def _long_shift(m: GraphModule, x: Value, by: Value) -> Value:
    """A logical shift of i64: one with the sign, without the bits that it has brought in."""
    none = m.eq(by, np.int64(0))
    outside = m.lt(by, np.int64(0)) | m.ge(by, np.int64(64))
    kept = m.sub(m.pow(np.int64(2), m.sub(np.int64(64), m.where(none | outside, np.int64(1), by))), np.int64(1))
    found = m.where(none, x, m.bitwise_and(functions.shifted_right(m, x, by), kept))
    return m.where(outside, np.int64(0), found)


@operator("popcnt")
def _popcnt(call: Call) -> Entry:
    m, bits = call.m, call.dtype(0).itemsize * 8

    def count(x: Value) -> Value:
        total: Value | None = None
        for place in range(bits):
            is_set = m.ne(m.bitwise_and(x, _bit(place, x)), functions.like(0, x))
            own = m.cast(is_set, x.dtype)
            total = own if total is None else m.add(total, own)
        assert total is not None
        return total

    return call.elementwise(count, call.operands[0])


def _bit(place: int, x: Value) -> np.ndarray:
    """2^place in the element type of a value, the sign's bit included."""
    info = np.iinfo(x.dtype)
    return np.array((1 << place) if (1 << place) <= info.max else info.min, x.dtype)


@operator("count_leading_zeros")
def _count_leading_zeros(call: Call) -> Entry:
    m, bits = call.m, call.dtype(0).itemsize * 8

    def count(x: Value) -> Value:
        found = m.where(m.eq(x, functions.like(0, x)), functions.like(bits, x), m.constant(functions.like(0, x)))
        for place in range(bits):
            # The highest bit that is set is looked at last.
            is_set = m.ne(m.bitwise_and(x, _bit(place, x)), functions.like(0, x))
            found = m.where(is_set, functions.like(bits - 1 - place, x), found)
        return found

    return call.elementwise(count, call.operands[0])


# Conversions ----------------------------------------------------------------------------------------


@operator("convert")
def _convert(call: Call) -> Entry:
    m, dtype = call.m, call.result_dtype()

    if is_float(call.dtype(0)) or is_float(dtype):
        call.refuse_unsigned()

    def converted(x: Value) -> Value:
        if x.dtype == dtype:
            return x
        if x.dtype.kind in "iu" and dtype.kind in "iu":
            return functions.wrapped(m, x, dtype)
        return m.cast(x, dtype)

    return call.elementwise(converted, call.operands[0])


@operator("reduce_precision")
def _reduce_precision(call: Call) -> Entry:
    bits = (call.integer("exponent_bits"), call.integer("mantissa_bits"))
    words = {(8, 7): "bf16", (5, 10): "f16", (8, 23): "f32", (11, 52): "f64"}
    if bits not in words:
        raise Refused(f"floats of {bits[0]} bits of exponent and {bits[1]} of mantissa")
    dtype = call.dtype(0)
    return call.elementwise(lambda x: call.m.cast(call.m.cast(x, words[bits]), dtype), call.operands[0])


@operator("bitcast_convert")
def _bitcast(call: Call) -> Entry:
    m, own, dtype = call.m, call.dtype(0), call.result_dtype()
    if own == dtype:
        return call.operands[0]
    if own.kind in "iu" and dtype.kind in "iu" and own.itemsize == dtype.itemsize:
        return call.elementwise(lambda x: functions.wrapped(m, x, dtype), call.operands[0])
    if own.kind in "iu" and dtype.kind in "iu":
        x = call.value(0)
        return _joined_bits(call, x, dtype) if own.itemsize < dtype.itemsize else _parted_bits(call, x, dtype)
    if own in (np.int32, np.uint32) and dtype == np.float32:
        return call.elementwise(lambda x: _float_of_bits(m, x), call.operands[0])
    raise Refused(f"bits of {own} that are read as {dtype}")


def _joined_bits(call: Call, x: Value, dtype: np.dtype) -> Value:
    """Integers [...] of the bits of narrower ones [..., n], the first of which has the lowest."""
    m, bits, last = call.m, 8 * x.dtype.itemsize, x.ndim - 1
    shape = call.shape(0)[:-1]
    whole: Value | None = None
    for at in range(dtype.itemsize // x.dtype.itemsize):
        own = call.reshaped(m.narrow(x, last, at, 1), shape)
        own = m.mul(m.cast(functions.wrapped(m, own, np.dtype(f"uint{bits}")), "i64"), np.int64(1 << bits * at))
        whole = own if whole is None else m.add(whole, own)
    assert whole is not None
    return functions.wrapped(m, whole, dtype)


def _parted_bits(call: Call, x: Value, dtype: np.dtype) -> Value:
    """The bits of integers [...] as narrower ones [..., n], the lowest first."""
    m, bits = call.m, 8 * dtype.itemsize
    wide, parts = functions.wrapped(m, x, np.dtype(np.int64)), []
    for at in range(x.dtype.itemsize // dtype.itemsize):
        own = functions.wrapped(m, m.floor_div(wide, np.int64(1 << bits * at)), dtype)
        parts.append(call.reshaped(own, [*call.shape(0), 1]))
    return m.concat(parts, x.ndim)


def _float_of_bits(m: GraphModule, x: Value) -> Value:
    """The f32 whose bits integers are: each part by itself, with powers of 2 of a table, so that all is exact."""
    bits = functions.wrapped(m, x, np.dtype(np.int64))
    bits = m.where(m.lt(bits, np.int64(0)), bits + np.int64(1 << 32), bits)
    mantissa = m.cast(m.floor_rem(bits, np.int64(1 << 23)), "f32") * np.float32(2.0**-23)
    exponent = m.floor_rem(m.floor_div(bits, np.int64(1 << 23)), np.int64(256))
    powers = np.array([2.0 ** (max(e, 1) - 127) if e < 255 else np.inf for e in range(256)], np.float32)
    scale = m.gather(m.constant(powers), exponent)
    whole = m.where(m.eq(exponent, np.int64(0)), mantissa, mantissa + 1.0)
    special = m.where(m.eq(mantissa, 0.0), np.float32(np.inf), m.constant(np.float32(np.nan)))
    size = m.where(m.eq(exponent, np.int64(255)), special, whole * scale)
    return m.where(m.ge(bits, np.int64(1 << 31)), -size, size)
