# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The pass `rlx-expand-angles`: sine, cosine and tangent of f32 as arithmetic, for angles of any size."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache

from mlir.dialects import arith
from mlir.dialects import math as functions

from rlx_mlir import ir
from rlx_mlir.rewriting import Option, compiler_pass, operations

_NAMES = ("math.sin", "math.cos", "math.tan")
#: Bits of each part of 2/pi: its product with the 24 bits of an f32 is exact in f64.
_PART_BITS = 24
#: Of 2/pi, enough for the largest f32, 2^128, to leave an error of 2^-64 quarter turns.
_PARTS = 8
#: pi to 77 digits (https://oeis.org/A000796).
_PI = Fraction(31415926535897932384626433832795028841971693993751058209749445923078164062862, 10**76)


@cache
def two_over_pi() -> tuple[float, ...]:
    """2/pi as a sum of numbers of 24 bits, the largest first; the error is below 2^-192."""
    left, parts = 2 / _PI, []
    for number in range(1, _PARTS + 1):
        scale = 2 ** (_PART_BITS * number)
        part = Fraction(math.floor(left * scale), scale)
        parts.append(float(part))
        left -= part
    return tuple(parts)


@compiler_pass(
    "rlx-expand-angles",
    anchor="",
    dependent=("arith", "math"),
    options={"scalars": Option("expand scalars of f32 too", False)},
)
def expand_angles(module: ir.Operation, *, scalars: bool) -> None:
    """Expand sin, cos and tan on vectors of f32 into arithmetic in f64, for angles of any size.

    An angle's quarter turns are its products with the parts of 2/pi, each exact, of which multiples of four turns are
    left out at once: so huge angles lose nothing, and nothing depends on tables or branches. What is left of a quarter
    turn goes into Taylor series that end below 2^-40. Scalars on CPUs stay calls of the C library. Runs before
    rlx-expand-math, while operations are vectors.
    """
    for op in [op for op in operations(module) if op.name in _NAMES]:
        kind = op.results[0].type
        vector = isinstance(kind, ir.VectorType)
        if str(kind.element_type if vector else kind) == "f32" and (vector or scalars):
            with op.location, ir.InsertionPoint(op):
                new = _Angles(op.operands[0]).function(op.name)
            op.results[0].replace_all_uses_with(new)
            op.erase()


class _Angles:
    """Builds the functions of one value."""

    def __init__(self, x: ir.Value) -> None:
        self._x = x
        self._vector = isinstance(x.type, ir.VectorType)
        self._wide = self._like(ir.F64Type.get())
        self._int = self._like(ir.IntegerType.get_signless(32))

    def _like(self, element: ir.Type) -> ir.Type:
        if not self._vector:
            return element
        return ir.VectorType.get(self._x.type.shape, element, scalable=self._x.type.scalable_dims or None)

    def _number(self, value: float) -> ir.Value:
        return arith.constant(self._wide, self._attribute(self._wide, ir.FloatAttr.get(ir.F64Type.get(), value)))

    def _integer(self, value: int) -> ir.Value:
        element = ir.IntegerType.get_signless(32)
        return arith.constant(self._int, self._attribute(self._int, ir.IntegerAttr.get(element, value)))

    def _attribute(self, kind: ir.Type, value: ir.Attribute) -> ir.Attribute:
        return ir.DenseElementsAttr.get_splat(kind, value) if self._vector else value

    def _series(self, square: ir.Value, coefficients: list[float]) -> ir.Value:
        """The polynomial in a square, with the coefficient of the highest power last."""
        total = self._number(coefficients[-1])
        for own in reversed(coefficients[:-1]):
            total = functions.fma(total, square, self._number(own))
        return total

    def function(self, name: str) -> ir.Value:
        """The function of an operation, of f32."""
        size = functions.absf(arith.extf(self._wide, self._x))
        turned = None
        for part in two_over_pi():
            own = arith.mulf(size, self._number(part))
            fours = functions.floor(arith.mulf(own, self._number(0.25)))
            own = arith.subf(own, arith.mulf(fours, self._number(4.0)))  # exact: a part of its bits
            turned = own if turned is None else arith.addf(turned, own)
        whole = functions.roundeven(turned)
        angle = arith.mulf(arith.subf(turned, whole), self._number(math.pi / 2))
        square = arith.mulf(angle, angle)
        sine = arith.mulf(angle, self._series(square, [(-1.0) ** k / math.factorial(2 * k + 1) for k in range(7)]))
        cosine = self._series(square, [(-1.0) ** k / math.factorial(2 * k) for k in range(8)])
        # Of NaN and infinity, `whole` is NaN, whose conversion isn't defined; what it selects is NaN as well.
        quarters = arith.fptosi(self._int, arith.select(self._is_number(whole), whole, self._number(0.0)))
        odd = self._has(quarters, 1)
        if name == "math.cos":
            found = arith.select(odd, sine, cosine)
            negative = arith.xori(odd, self._has(quarters, 2))
            return arith.truncf(self._x.type, arith.select(negative, arith.negf(found), found))
        if name == "math.sin":
            found = arith.select(odd, cosine, sine)
            found = arith.select(self._has(quarters, 2), arith.negf(found), found)
        else:
            found = arith.divf(arith.select(odd, arith.negf(cosine), sine), arith.select(odd, sine, cosine))
        # Both are odd: of -0 they are -0.
        sign = functions.copysign(self._number(1.0), arith.extf(self._wide, self._x))
        return arith.truncf(self._x.type, arith.mulf(found, sign))

    def _is_number(self, value: ir.Value) -> ir.Value:
        return arith.cmpf(arith.CmpFPredicate.ORD, value, value)

    def _has(self, value: ir.Value, bit: int) -> ir.Value:
        masked = arith.andi(value, self._integer(bit))
        return arith.cmpi(arith.CmpIPredicate.ne, masked, self._integer(0))
