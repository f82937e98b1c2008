# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`mir.cast` of one element: floats round to nearest even once, integers and floats of 8 bits saturate, NaN becomes 0.

In registers, f16 and bf16 are f32, floats of 8 bits are their bytes, and conditions are i1.
"""

from __future__ import annotations

import math

from rlx_mlir.codegen.emit import Value
from rlx_mlir.codegen.gpu.emit import BITS, FLOAT8, DeviceEmitter

__all__ = ["HALVES", "convert"]

HALVES = ("f16", "bf16")
#: Of floats of 8 bits: bits of the fraction, bias of the exponent, bits of the largest number.
_FLOAT8 = {"f8E4M3FN": (3, 7, 0x7E), "f8E5M2": (2, 15, 0x7B)}


def convert(em: DeviceEmitter, x: Value, source: str, target: str) -> Value:
    """An element of type `source` as one of `target`, as registers hold it."""
    if source in FLOAT8:
        return x if source == target else convert(em, _decoded(em, x, source), "f32", target)
    if target == source:
        return x
    if target in FLOAT8:
        wide = x if _is_float(source) else convert(em, x, source, "f64")
        return _encoded(em, _odd(em, wide) if wide.type == "f64" else wide, target)
    if target == "i1":
        return em.cmpf("une", x, 0.0) if _is_float(source) else em.cmpi("ne", x, 0)
    if _is_float(target):
        return _to_float(em, x, source, target)
    return _float_to_integer(em, x, target) if _is_float(source) else _integer_to_integer(em, x, source, target)


def _is_float(type: str) -> bool:
    return type in ("f32", "f64", *HALVES)


def _to_float(em: DeviceEmitter, x: Value, source: str, target: str) -> Value:
    """A float or an integer as f64, f32, or a half."""
    if not _is_float(source):
        # f64 holds integers of 32 bits, so that what is rounded to a half is rounded once.
        wide = "f64" if target == "f64" or (target in HALVES and BITS[source] > 16) else "f32"
        x = em.cast("arith.uitofp" if source == "i1" else "arith.sitofp", x, wide)
    if target == "f64":
        return x if x.type == "f64" else em.cast("arith.extf", x, "f64")
    if x.type == "f64":
        x = _odd(em, x) if target in HALVES else em.cast("arith.truncf", x, "f32")
    return em.widen(em.narrow(x, target))


def _odd(em: DeviceEmitter, x: Value) -> Value:
    """f64 as f32, inexact values as the neighbour with an odd last bit: then a later rounding is the only one."""
    near = em.cast("arith.truncf", x, "f32")
    back = em.cast("arith.extf", near, "f64")
    inexact = em.cmpf("one", back, x)
    away = em.cmpf("ogt", em.unary("math.absf", back), em.unary("math.absf", x))
    bits = em.bitcast(near, "i32")
    toward = em.select(inexact & away, bits - 1, bits)
    return em.bitcast(em.select(inexact, toward | 1, bits), "f32")


def _float_to_integer(em: DeviceEmitter, x: Value, target: str) -> Value:
    bits = BITS[target]
    limit, held = float(1 << (bits - 1)), "i64" if bits == 64 else "i32"
    whole = em.cast("arith.fptosi", x, held)
    high = em.select(em.cmpf("oge", x, limit), (1 << (bits - 1)) - 1, whole)
    low = em.select(em.cmpf("olt", x, -limit), -(1 << (bits - 1)), high)
    found = em.select(em.cmpf("uno", x, x), 0, low)
    return found if held == target else em.cast("arith.trunci", found, target)


def _integer_to_integer(em: DeviceEmitter, x: Value, source: str, target: str) -> Value:
    before, after = BITS[source], BITS[target]
    if source == "i1":
        return em.cast("arith.extui", x, target)
    if before <= after:
        return em.cast("arith.extsi", x, target)
    least, most = -(1 << (after - 1)), (1 << (after - 1)) - 1
    return em.cast("arith.trunci", em.binary("arith.minsi", em.binary("arith.maxsi", x, least), most), target)


def _decoded(em: DeviceEmitter, x: Value, source: str) -> Value:
    """The f32 of a float of 8 bits, whose code is an i8."""
    if source == "f8E5M2":  # the upper half of an f16
        return em.widen(em.bitcast(em.cast("arith.extui", x, "i16") << 8, "f16"))
    code = em.cast("arith.extui", x, "i32")
    magnitude = code & 0x7F
    # The exponent's bias is 7, that of f32 is 127. Without exponent, the value is a multiple of 2^-9.
    normal = em.bitcast((magnitude << 20) + (120 << 23), "f32")
    small = em.cast("arith.sitofp", magnitude, "f32") * 2.0**-9
    value = em.select(em.cmpi("ult", magnitude, 8), small, normal)
    value = em.select(em.cmpi("eq", magnitude, 0x7F), math.nan, value)
    return em.select(em.cmpi("uge", code, 0x80), -value, value)


def _encoded(em: DeviceEmitter, x: Value, target: str) -> Value:
    """The code, i8, of the float of 8 bits nearest to an f32: ties to even, saturated; NaN stays NaN."""
    fraction, bias, most = _FLOAT8[target]
    bits = em.bitcast(x, "i32")
    magnitude = bits & 0x7FFFFFFF
    shift, excess = 23 - fraction, (127 - bias) << 23
    bounded = em.binary("arith.minsi", magnitude, (most << shift) + excess)
    # Half of the last bit that stays, less where that bit is 0: ties go to the even neighbour.
    tie = ((bounded >> shift) & 1) + ((1 << (shift - 1)) - 1)
    normal = ((bounded + tie) >> shift) - (excess >> shift)
    # Below the smallest normal number, the sum with a power of two whose last bit is a multiple's unit rounds.
    power = 24 - bias - fraction
    moved = em.bitcast(em.bitcast(bounded, "f32") + 2.0**power, "i32")
    small = moved - ((127 + power) << 23)
    code = em.select(em.cmpi("slt", bounded, excess + (1 << 23)), small, normal)
    code = em.select(em.cmpi("sgt", magnitude, 0x7F800000), 0x7F, code)
    return em.cast("arith.trunci", code | ((bits >> 24) & 0x80), "i8")
