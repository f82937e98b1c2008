# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Floating-point arithmetic as PTX defines it, on numpy arrays.

Results of add, sub, mul, fma, div, sqrt and rcp are rounded once, to nearest even, and NaNs are PTX's canonical one.
The approximations (`ex2.approx`, `tanh.approx`, `div.full` and so on) are computed exactly and rounded once: chips have
other last bits. Products of matrices accumulate in f32 by numpy's order, whose last bits differ from a chip's too.

bf16 arrays are uint16: the upper halves of f32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

Array = np.ndarray
Function = Callable[..., Array]

NAN32 = np.uint32(0x7FFFFFFF).view(np.float32)
NAN16 = np.uint16(0x7FFF)
_TINY = np.float32(2.0**-126)
_U32 = np.uint32


def canonical(values: Array) -> Array:
    """The f32 values, NaNs made canonical in place."""
    bad = values != values
    if bad.any():
        values[bad] = NAN32
    return values


def flush(values: Array) -> Array:
    """Subnormal f32 numbers become zeros of their sign."""
    return np.where(np.abs(values) < _TINY, np.copysign(np.float32(0), values), values)


def bf16_to_f32(values: Array) -> Array:
    """Exact."""
    return (values.astype(np.uint32) << _U32(16)).view(np.float32)


def f32_to_bf16(values: Array) -> Array:
    """Rounded to nearest even; NaNs are canonical."""
    bits = values.view(np.uint32)
    rounded = ((bits + _U32(0x7FFF) + ((bits >> _U32(16)) & _U32(1))) >> _U32(16)).astype(np.uint16)
    bad = values != values
    if bad.any():
        rounded[bad] = NAN16
    return rounded


def f32_to_f16(values: Array) -> Array:
    """Rounded to nearest even; NaNs are canonical."""
    result = values.astype(np.float16)
    bad = result != result
    if bad.any():
        result.view(np.uint16)[bad] = NAN16
    return result


def odd_f32(values: Array) -> Array:
    """f64 to f32, rounded to odd: rounding the result once more to fewer bits is as rounding once."""
    near = values.astype(np.float32)
    back = near.astype(np.float64)
    inexact = (back != values) & np.isfinite(values)
    bits = near.view(np.uint32).copy()
    bits[inexact & (np.abs(back) > np.abs(values))] -= _U32(1)
    bits[inexact] |= _U32(1)
    return bits.view(np.float32)


def _two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def _odd_sum(a: Array, b: Array) -> Array:
    """a + b in f64, rounded to odd."""
    total, rest = _two_sum(a, b)
    bits = total.view(np.int64).copy()
    even = (rest != 0) & (bits & 1 == 0) & np.isfinite(total)
    # One step towards the rest makes the last bit odd.
    away = (rest > 0) == (total > 0)
    bits[even & away] += 1
    bits[even & ~away] -= 1
    return bits.view(np.float64)


def fma_f32(a: Array, b: Array, c: Array) -> Array:
    """a * b + c, rounded once."""
    product = a.astype(np.float64) * b
    total = product + c
    bits = total.view(np.uint64)
    # Rounding twice differs where the sum in f64 lies halfway between two f32 numbers, or has fewer bits as f32.
    risk = (bits << np.uint64(35) == np.uint64(1 << 63)) | (np.abs(total) < _TINY)
    risk &= total != 0  # the sign of a zero comes from the plain sum
    result = total.astype(np.float32)
    if risk.any():
        exact = _odd_sum(product[risk], np.broadcast_to(c, product.shape)[risk].astype(np.float64))
        result[risk] = np.where(np.isfinite(total[risk]), exact.astype(np.float32), result[risk])
    return canonical(result)


def _split(a: Array) -> tuple[Array, Array]:
    big = a * 134217729.0
    high = big - (big - a)
    return high, a - high


def fma_f64(a: Array, b: Array, c: Array) -> Array:
    """a * b + c, rounded once where no product leaves the range of normal numbers."""
    product = a * b
    (ah, al), (bh, bl) = _split(a), _split(b)
    low = ((ah * bh - product) + ah * bl + al * bh) + al * bl
    th, tl = _two_sum(c, low)
    vh, vl = _two_sum(product, th)
    result = vh + _odd_sum(tl, vl)
    plain = product + c
    return np.where(np.isfinite(result), result, plain)


def fma_f16(a: Array, b: Array, c: Array) -> Array:
    """a * b + c, rounded once."""
    total = _odd_sum(a.astype(np.float64) * b, c.astype(np.float64))
    return f32_to_f16(odd_f32(total))


def fma_bf16(a: Array, b: Array, c: Array) -> Array:
    """a * b + c, rounded once."""
    total = _odd_sum(bf16_to_f32(a).astype(np.float64) * bf16_to_f32(b), bf16_to_f32(c).astype(np.float64))
    return f32_to_bf16(odd_f32(total))


def _fix_zeros(result: Array, a: Array, b: Array, largest: bool) -> Array:
    """-0 is less than +0 for min and max."""
    equal = (a == b) & (a == 0)
    if equal.any():
        word = np.dtype(f"u{result.dtype.itemsize}")
        left, right = np.broadcast_arrays(a, b)
        bits = (
            left[equal].view(word) & right[equal].view(word)
            if largest
            else left[equal].view(word) | right[equal].view(word)
        )
        result.view(word)[equal] = bits
    return result


def maximum(a: Array, b: Array) -> Array:
    """The number where one operand is NaN."""
    return _fix_zeros(np.fmax(a, b), a, b, True)


def minimum(a: Array, b: Array) -> Array:
    """The number where one operand is NaN."""
    return _fix_zeros(np.fmin(a, b), a, b, False)


def maximum_nan(a: Array, b: Array) -> Array:
    """NaN where one operand is."""
    return _fix_zeros(np.maximum(a, b), a, b, True)


def minimum_nan(a: Array, b: Array) -> Array:
    """NaN where one operand is."""
    return _fix_zeros(np.minimum(a, b), a, b, False)


def wide(function: Callable[[Array], Array]) -> Function:
    """A function of one f32 computed in f64, rounded once."""
    return lambda a: canonical(function(a.astype(np.float64)).astype(np.float32))


def flushing(function: Function) -> Function:
    """The function with subnormal operands and results taken as zeros."""
    return lambda *operands: flush(function(*(flush(a) for a in operands)))


def saturating(function: Function) -> Function:
    """The function with results limited to [0, 1]; NaN becomes 0."""

    def run(*operands: Array) -> Array:
        result = function(*operands)
        return np.where(result == result, np.clip(result, 0, 1), 0).astype(result.dtype)

    return run


def relu(function: Function) -> Function:
    """The function with negative results made 0; NaN stays."""

    def run(*operands: Array) -> Array:
        result = function(*operands)
        return np.where(result <= 0, np.zeros((), result.dtype), result)

    return run


def relu_bf16(function: Function) -> Function:
    """As `relu`, for a function whose results are bf16."""

    def run(*operands: Array) -> Array:
        result = function(*operands)
        negative = (result & 0x8000 != 0) & (result & 0x7FFF <= 0x7F80)
        return np.where(negative, np.uint16(0), result)

    return run


def of_f16(function: Function) -> Function:
    """An f32 function for f16 operands."""
    return lambda *operands: f32_to_f16(function(*(a.astype(np.float32) for a in operands)))


def of_bf16(function: Function) -> Function:
    """An f32 function for bf16 operands."""
    return lambda *operands: f32_to_bf16(function(*(bf16_to_f32(a) for a in operands)))


def of_pairs(function: Function, element: np.dtype) -> Function:
    """A function of 16-bit elements for registers that hold two."""

    def run(*operands: Array) -> Array:
        return np.ascontiguousarray(function(*(np.ascontiguousarray(a).view(element) for a in operands))).view(
            np.uint32
        )

    return run


# Conversions ----------------------------------------------------------------------------------------------------------

_ROUND: dict[str, Callable[[Array], Array]] = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}


def round_integral(mode: str, values: Array) -> Array:
    """Rounds to an integer of the same type."""
    return _ROUND[mode](values)


def float_to_int(values: Array, mode: str, target: str, source: str) -> Array:
    """Rounds, limits to the range of the target; NaN becomes what PTX says for the two types."""
    bits, signed = int(target[1:]), target[0] == "s"
    dtype = np.dtype(f"{'i' if signed else 'u'}{bits // 8}")
    rounded = _ROUND[mode](values.astype(np.float64))
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    nan = rounded != rounded
    too_large, too_small = rounded >= float(high), rounded <= float(low)
    result = np.where(nan | too_large | too_small, 0, rounded).astype(dtype)
    result[too_large], result[too_small] = high, low
    if nan.any():
        mixed = source == "f64" or bits == 64
        filler = 1 << bits - 1 if mixed else 0
        result[nan] = np.array(filler, np.uint64).astype(np.dtype(f"u{bits // 8}")).view(dtype)
    return result


def directed(values: Array, near: Array, mode: str) -> Array:
    """The f32 neighbour of f64 values in a direction (rz, rm, rp), from the nearest one."""
    back = near.astype(np.float64)
    if mode == "rz":
        return np.where(np.abs(back) > np.abs(values), np.nextafter(near, np.float32(0)), near)
    if mode == "rm":
        return np.where(back > values, np.nextafter(near, np.float32(-np.inf)), near)
    return np.where(back < values, np.nextafter(near, np.float32(np.inf)), near)


def narrow_f32(values: Array, mode: str) -> Array:
    """f64 to f32 in a rounding mode."""
    near = values.astype(np.float32)
    return canonical(near if mode in ("rn", "") else directed(values, near, mode).astype(np.float32))


def to_f16(values: Array, mode: str) -> Array:
    """f32 to f16 in a rounding mode."""
    near = f32_to_f16(values)
    if mode in ("rn", ""):
        return near
    back = near.astype(np.float32)
    if mode == "rz":
        return np.where(np.abs(back) > np.abs(values), np.nextafter(near, np.float16(0)), near)
    if mode == "rm":
        return np.where(back > values, np.nextafter(near, np.float16(-np.inf)), near)
    return np.where(back < values, np.nextafter(near, np.float16(np.inf)), near)


def to_bf16(values: Array, mode: str) -> Array:
    """f32 to bf16 in a rounding mode (rn, rz)."""
    if mode == "rz":
        result = (values.view(np.uint32) >> _U32(16)).astype(np.uint16)
        result[values != values] = NAN16
        return result
    return f32_to_bf16(values)


def to_tf32(values: Array, mode: str) -> Array:
    """f32 to tf32 (the low 13 bits are zeros): rna (ties away), rn or rz."""
    bits = values.view(np.uint32)
    if mode == "rna":
        bits = bits + _U32(0x1000)
    elif mode == "rn":
        bits = bits + _U32(0xFFF) + ((bits >> _U32(13)) & _U32(1))
    result = (bits & _U32(0xFFFFE000)).view(np.float32).copy()
    return canonical(np.where(values == values, result, NAN32).astype(np.float32))


FLOAT8: dict[str, Any] = {"e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2}
_LARGEST8 = {"e4m3": np.float32(448), "e5m2": np.float32(57344)}
_TABLES = {name: np.arange(256, dtype=np.uint8).view(kind).astype(np.float32) for name, kind in FLOAT8.items()}


def float8_to_f32(codes: Array, kind: str) -> Array:
    """Exact."""
    return _TABLES[kind][codes]


def f32_to_float8(values: Array, kind: str) -> Array:
    """Rounded to nearest even, limited to the largest finite number; NaN is 0x7f."""
    limit = _LARGEST8[kind]
    result = np.clip(values, -limit, limit).astype(FLOAT8[kind]).view(np.uint8)
    return np.where(values == values, result, np.uint8(0x7F))
