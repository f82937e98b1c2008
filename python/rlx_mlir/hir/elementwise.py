# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Builders of the functions of elements.

Written by docs/generate.py from the records in mir/elementwise.py: change those, then run it.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

from rlx_mlir.hir.emitting import Emitting
from rlx_mlir.hir.types import Options
from rlx_mlir.hir.values import Operand, Value

if TYPE_CHECKING:
    from typing_extensions import Unpack


class ElementwiseBuilders(Emitting):
    """The builders; what they need of a graph is abstract here."""

    @abstractmethod
    def _unary(self, kind: str, x: Operand, **options: Unpack[Options]) -> Value: ...

    @abstractmethod
    def _binary(self, kind: str, lhs: Operand, rhs: Operand, **options: Unpack[Options]) -> Value: ...

    def gelu(self, x: Value, **options: Unpack[Options]) -> Value:
        """x / 2 * (1 + erf(x / sqrt(2)))."""
        return self._unary("gelu", x, **options)

    def gelu_slope(self, x: Value, **options: Unpack[Options]) -> Value:
        """The derivative of gelu."""
        return self._unary("gelu_slope", x, **options)

    def gelu_approx(self, x: Value, **options: Unpack[Options]) -> Value:
        """gelu with erf approximated by tanh."""
        return self._unary("gelu_approx", x, **options)

    def silu(self, x: Value, **options: Unpack[Options]) -> Value:
        """x * sigmoid(x)."""
        return self._unary("silu", x, **options)

    def relu(self, x: Value, **options: Unpack[Options]) -> Value:
        """max(x, 0); NaN stays NaN."""
        return self._unary("relu", x, **options)

    def sigmoid(self, x: Value, **options: Unpack[Options]) -> Value:
        """1 / (1 + exp(-x))."""
        return self._unary("sigmoid", x, **options)

    def tanh(self, x: Value, **options: Unpack[Options]) -> Value:
        """Hyperbolic tangent."""
        return self._unary("tanh", x, **options)

    def exp(self, x: Value, **options: Unpack[Options]) -> Value:
        """Exponential function."""
        return self._unary("exp", x, **options)

    def log(self, x: Value, **options: Unpack[Options]) -> Value:
        """Natural logarithm."""
        return self._unary("log", x, **options)

    def erfc(self, x: Value, **options: Unpack[Options]) -> Value:
        """Complementary error function, 1 - erf(x), with all its digits for large x."""
        return self._unary("erfc", x, **options)

    def sqrt(self, x: Value, **options: Unpack[Options]) -> Value:
        """Square root."""
        return self._unary("sqrt", x, **options)

    def rsqrt(self, x: Value, **options: Unpack[Options]) -> Value:
        """1 / sqrt(x)."""
        return self._unary("rsqrt", x, **options)

    def neg(self, x: Value, **options: Unpack[Options]) -> Value:
        """-x."""
        return self._unary("neg", x, **options)

    def abs(self, x: Value, **options: Unpack[Options]) -> Value:
        """|x|."""
        return self._unary("abs", x, **options)

    def sin(self, x: Value, **options: Unpack[Options]) -> Value:
        """Sine of radians."""
        return self._unary("sin", x, **options)

    def cos(self, x: Value, **options: Unpack[Options]) -> Value:
        """Cosine of radians."""
        return self._unary("cos", x, **options)

    def tan(self, x: Value, **options: Unpack[Options]) -> Value:
        """Tangent of radians."""
        return self._unary("tan", x, **options)

    def atan(self, x: Value, **options: Unpack[Options]) -> Value:
        """Inverse tangent, in radians."""
        return self._unary("atan", x, **options)

    def round(self, x: Value, **options: Unpack[Options]) -> Value:
        """The nearest integer, ties to even."""
        return self._unary("round", x, **options)

    def add(self, lhs: Operand, rhs: Operand, **options: Unpack[Options]) -> Value:
        """lhs + rhs."""
        return self._binary("add", lhs, rhs, **options)

    def sub(self, lhs: Operand, rhs: Operand, **options: Unpack[Options]) -> Value:
        """lhs - rhs."""
        return self._binary("sub", lhs, rhs, **options)

    def mul(self, lhs: Operand, rhs: Operand, **options: Unpack[Options]) -> Value:
        """lhs * rhs, element by element."""
        return self._binary("mul", lhs, rhs, **options)

    def div(self, lhs: Operand, rhs: Operand, **options: Unpack[Options]) -> Value:
        """lhs / rhs."""
        return self._binary("div", lhs, rhs, **options)

    def maximum(self, lhs: Operand, rhs: Operand, **options: Unpack[Options]) -> Value:
        """The larger of two elements; NaN where one is NaN. (`max` reduces dimensions.)"""
        return self._binary("max", lhs, rhs, **options)

    def minimum(self, lhs: Operand, rhs: Operand, **options: Unpack[Options]) -> Value:
        """The smaller of two elements; NaN where one is NaN. (`min` reduces dimensions.)"""
        return self._binary("min", lhs, rhs, **options)

    def pow(self, lhs: Operand, rhs: Operand, **options: Unpack[Options]) -> Value:
        """lhs to the power of rhs; of integers, 1 / lhs^-rhs drops its fraction."""
        return self._binary("pow", lhs, rhs, **options)

    def bitwise_not(self, x: Value, **options: Unpack[Options]) -> Value:
        """Whether a condition doesn't hold; of integers, each bit flipped: ~x."""
        return self._unary("not", x, **options)

    def bitwise_and(self, lhs: Operand, rhs: Operand, **options: Unpack[Options]) -> Value:
        """Whether both conditions hold; of integers, the bits that both have: lhs & rhs."""
        return self._binary("and", lhs, rhs, **options)

    def bitwise_or(self, lhs: Operand, rhs: Operand, **options: Unpack[Options]) -> Value:
        """Whether one of two conditions holds, or both; of integers, bit by bit: lhs | rhs."""
        return self._binary("or", lhs, rhs, **options)

    def bitwise_xor(self, lhs: Operand, rhs: Operand, **options: Unpack[Options]) -> Value:
        """Whether one of two conditions holds, but not both; of integers, bit by bit: lhs ^ rhs."""
        return self._binary("xor", lhs, rhs, **options)

    def floor_div(self, lhs: Operand, rhs: Operand, **options: Unpack[Options]) -> Value:
        """The quotient of integers, rounded down: lhs // rhs; 0 where rhs is 0."""
        return self._binary("floor_div", lhs, rhs, **options)

    def floor_rem(self, lhs: Operand, rhs: Operand, **options: Unpack[Options]) -> Value:
        """What floor_div leaves, of rhs's sign: lhs % rhs; 0 where rhs is 0."""
        return self._binary("floor_rem", lhs, rhs, **options)

    def trunc_div(self, lhs: Operand, rhs: Operand, **options: Unpack[Options]) -> Value:
        """The quotient of integers, rounded towards 0, as in C; 0 where rhs is 0."""
        return self._binary("trunc_div", lhs, rhs, **options)

    def trunc_rem(self, lhs: Operand, rhs: Operand, **options: Unpack[Options]) -> Value:
        """What trunc_div leaves, of lhs's sign, as in C; 0 where rhs is 0."""
        return self._binary("trunc_rem", lhs, rhs, **options)
