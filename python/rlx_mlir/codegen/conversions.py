# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`mir.cast` of elements: floats round to nearest even once, integers and floats of 8 bits saturate, NaN becomes 0.

In registers, f16 and bf16 are f32, floats of 8 bits are their bytes, conditions are i1, and integers without sign are
signless ones. Values are scalars or vectors.
"""

from __future__ import annotations

import math
from typing import Protocol

from rlx_mlir.codegen.emit import Emitter, Value, element_of, with_element

HALVES = ("f16", "bf16")
#: Floats that registers have as f32, in which kernels compute.
IN_F32 = ("f32", *HALVES)
FLOATS = (*IN_F32, "f64")
_INTEGER_BITS = {"i1": 1, "i8": 8, "i16": 16, "i32": 32, "i64": 64, "ui8": 8, "ui16": 16, "ui32": 32}
#: Of floats of 8 bits: bits of the fraction, bias of the exponent, bits of the largest number.
FLOAT8 = {"f8E4M3FN": (3, 7, 0x7E), "f8E5M2": (2, 15, 0x7B)}
#: Bits in memory of the element types that there are conversions of.
BITS = {**_INTEGER_BITS, "i1": 8, "f16": 16, "bf16": 16, "f32": 32, "f64": 64, **dict.fromkeys(FLOAT8, 8)}
#: Comparisons of floats: with NaN, only `ne` is true.
COMPARISONS = {"eq": "oeq", "ne": "une", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge"}


class Halves(Protocol):
    """How a target has f16 and bf16."""

    def widen(self, x: Value) -> Value:
        """f16 or bf16 as f32; other floats as they are."""

    def narrow(self, x: Value, element: str) -> Value:
        """f32 rounded to `element`; itself where that is f32."""


def register_type(element: str) -> str:
    """The type that registers have of elements: see the module's docstring."""
    if element in HALVES:
        return "f32"
    return "i8" if element in FLOAT8 else element.removeprefix("u")


def compare(em: Emitter, kind: str, x: Value, y: Value, element: str) -> Value:
    """`x kind y` of elements, by the words of `mir.compare`; of conditions, false is less than true."""
    if element in FLOATS:
        return em.cmpf(COMPARISONS[kind], x, y)
    if kind in ("eq", "ne"):
        return em.cmpi(kind, x, y)
    return em.cmpi(f"u{kind}" if element == "i1" or is_unsigned(element) else f"s{kind}", x, y)


def convert(em: Emitter, x: Value, source: str, target: str, halves: Halves) -> Value:
    """Elements of type `source` as those of `target`, as registers hold them."""
    if source in FLOAT8:
        return x if source == target else convert(em, _decoded(em, x, source, halves), "f32", target, halves)
    if target == source:
        return x
    if target in FLOAT8:
        wide = x if source in FLOATS else convert(em, x, source, "f64", halves)
        return _encoded(em, _odd(em, wide) if element_of(wide.type) == "f64" else wide, target)
    if target == "i1":
        return em.cmpf("une", x, 0.0) if source in FLOATS else em.cmpi("ne", x, 0)
    if target in FLOATS:
        return _to_float(em, x, source, target, halves)
    return _float_to_integer(em, x, target) if source in FLOATS else _integer_to_integer(em, x, source, target)


def is_unsigned(element: str) -> bool:
    """Whether it is an integer type without sign."""
    return element.startswith("u")


def _cast(em: Emitter, op: str, x: Value, element: str) -> Value:
    return em.cast(op, x, with_element(x.type, element))


def _range(element: str) -> tuple[int, int]:
    """The least and the largest number of an integer type."""
    bits = _INTEGER_BITS[element]
    return (0, (1 << bits) - 1) if element == "i1" or is_unsigned(element) else (-(1 << bits - 1), (1 << bits - 1) - 1)


def _to_float(em: Emitter, x: Value, source: str, target: str, halves: Halves) -> Value:
    """A float or an integer as f64, f32, or a half."""
    if source not in FLOATS:
        # f64 holds integers of 32 bits, so that what is rounded to a half is rounded once.
        wide = "f64" if target == "f64" or (target in HALVES and _INTEGER_BITS[source] > 16) else "f32"
        x = _cast(em, "arith.uitofp" if source == "i1" or is_unsigned(source) else "arith.sitofp", x, wide)
    is_wide = element_of(x.type) == "f64"
    if target == "f64":
        return x if is_wide else _cast(em, "arith.extf", x, "f64")
    if is_wide:
        x = _odd(em, x) if target in HALVES else _cast(em, "arith.truncf", x, "f32")
    return halves.widen(halves.narrow(x, target))


def _odd(em: Emitter, x: Value) -> Value:
    """f64 as f32, inexact values as the neighbour with an odd last bit: then a later rounding is the only one."""
    near = _cast(em, "arith.truncf", x, "f32")
    back = _cast(em, "arith.extf", near, "f64")
    inexact = em.cmpf("one", back, x)
    away = em.cmpf("ogt", em.unary("math.absf", back), em.unary("math.absf", x))
    bits = em.bitcast(near, with_element(x.type, "i32"))
    toward = em.select(inexact & away, bits - 1, bits)
    return em.bitcast(em.select(inexact, toward | 1, bits), near.type)


def _float_to_integer(em: Emitter, x: Value, target: str) -> Value:
    least, most = _range(target)
    held = "i64" if _INTEGER_BITS[target] == 64 else "i32"
    # A number of 32 bits without sign needs the other instruction; fewer bits fit those with sign.
    whole = _cast(em, "arith.fptoui" if target == "ui32" else "arith.fptosi", x, held)
    high = em.select(em.cmpf("oge", x, float(most + 1)), most, whole)
    low = em.select(em.cmpf("olt", x, float(least)), least, high)
    found = em.select(em.cmpf("uno", x, x), 0, low)
    return found if held == register_type(target) else _cast(em, "arith.trunci", found, register_type(target))


def _integer_to_integer(em: Emitter, x: Value, source: str, target: str) -> Value:
    """Clamped where the source has more numbers at either end, then with more or fewer bits."""
    (low, high), (least, most) = _range(source), _range(target)
    if low < least:
        x = em.binary("arith.maxsi", x, least)
    if high > most:
        x = em.binary("arith.minui" if low == 0 else "arith.minsi", x, most)
    before, after = _INTEGER_BITS[source], _INTEGER_BITS[target]
    if before == after:
        return x
    word = "arith.trunci" if before > after else "arith.extui" if low == 0 else "arith.extsi"
    return _cast(em, word, x, register_type(target))


def _decoded(em: Emitter, x: Value, source: str, halves: Halves) -> Value:
    """The f32 of a float of 8 bits, whose code is an i8."""
    if source == "f8E5M2":  # the upper half of an f16
        return halves.widen(em.bitcast(_cast(em, "arith.extui", x, "i16") << 8, with_element(x.type, "f16")))
    code = _cast(em, "arith.extui", x, "i32")
    magnitude = code & 0x7F
    # The exponent's bias is 7, that of f32 is 127. Without exponent, the value is a multiple of 2^-9.
    normal = em.bitcast((magnitude << 20) + (120 << 23), with_element(x.type, "f32"))
    small = _cast(em, "arith.sitofp", magnitude, "f32") * 2.0**-9
    value = em.select(em.cmpi("ult", magnitude, 8), small, normal)
    value = em.select(em.cmpi("eq", magnitude, 0x7F), math.nan, value)
    return em.select(em.cmpi("uge", code, 0x80), -value, value)


def _encoded(em: Emitter, x: Value, target: str) -> Value:
    """The code, i8, of the float of 8 bits nearest to an f32: ties to even, saturated; NaN stays NaN."""
    fraction, bias, most = FLOAT8[target]
    bits = em.bitcast(x, with_element(x.type, "i32"))
    magnitude = bits & 0x7FFFFFFF
    shift, excess = 23 - fraction, (127 - bias) << 23
    bounded = em.binary("arith.minsi", magnitude, (most << shift) + excess)
    # Half of the last bit that stays, less where that bit is 0: ties go to the even neighbour.
    tie = ((bounded >> shift) & 1) + ((1 << (shift - 1)) - 1)
    normal = ((bounded + tie) >> shift) - (excess >> shift)
    # Below the smallest normal number, the sum with a power of two whose last bit is a multiple's unit rounds.
    power = 24 - bias - fraction
    moved = em.bitcast(em.bitcast(bounded, x.type) + 2.0**power, bits.type)
    small = moved - ((127 + power) << 23)
    code = em.select(em.cmpi("slt", bounded, excess + (1 << 23)), small, normal)
    code = em.select(em.cmpi("sgt", magnitude, 0x7F800000), 0x7F, code)
    return _cast(em, "arith.trunci", code | ((bits >> 24) & 0x80), "i8")
