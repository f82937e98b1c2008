# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Fourier transforms of a few complex numbers in registers, each a vector of real and one of imaginary parts."""

from __future__ import annotations

import cmath
import math
from collections.abc import Sequence
from dataclasses import dataclass

from rlx_mlir.codegen.emit import Emitter, Value

from .target import Target

Complex = tuple[Value, Value]
"""Real and imaginary parts."""


@dataclass(frozen=True)
class Registers:
    """Arithmetic of complex vectors.

    Attributes:
        sign: of the exponents of the roots: -1 forwards, 1 backwards.
    """

    em: Emitter
    target: Target
    sign: int

    def plus(self, x: Complex, y: Complex) -> Complex:
        return x[0] + y[0], x[1] + y[1]

    def minus(self, x: Complex, y: Complex) -> Complex:
        return x[0] - y[0], x[1] - y[1]

    def times(self, x: Complex, y: Complex) -> Complex:
        """The product."""
        target, em = self.target, self.em
        re = target.fma(em, -x[1], y[1], x[0] * y[0])
        return re, target.fma(em, x[1], y[0], x[0] * y[1])

    def turned(self, x: Complex) -> Complex:
        """x times i, or -i where the sign is that."""
        return (x[1], -x[0]) if self.sign < 0 else (-x[1], x[0])

    def rotated(self, x: Complex, exponent: int, n: int) -> Complex:
        """x times a root of n: without a product where it is a root of 4."""
        eighths, rest = divmod(8 * exponent % (8 * n), n)
        if rest == 0 and eighths % 2 == 0:
            for _ in range(eighths // 2):
                x = self.turned(x)
            return x
        root = cmath.exp(self.sign * 2j * math.pi * (exponent % n) / n)
        if rest == 0:  # an odd eighth: parts are of one size
            wide = self._signed(x, math.copysign(1, root.real), math.copysign(1, root.imag))
            half = math.sqrt(0.5)
            return wide[0] * half, wide[1] * half
        re, im = (self.em.const(part, x[0].type) for part in (root.real, root.imag))
        return self.times(x, (re, im))

    def _signed(self, x: Complex, re: float, im: float) -> Complex:
        """x times (re + im i), each of which is 1 or -1."""
        first = x[0] - x[1] if re == im else x[0] + x[1]
        second = x[0] + x[1] if re == im else x[0] - x[1]
        return (first if re > 0 else -first), (second if im > 0 else -second)

    def transform(self, numbers: Sequence[Complex]) -> list[Complex]:
        """The transform of some numbers, in order, without a factor."""
        n = len(numbers)
        if n == 1:
            return list(numbers)
        if n == 2:
            return [self.plus(*numbers), self.minus(*numbers)]
        if n == 4:
            return self._four(numbers)
        first = next((radix for radix in (4, 2, 3, 5, 7) if n % radix == 0 and n > radix), None)
        return self._odd(numbers) if first is None else self._composed(numbers, first)

    def _four(self, numbers: Sequence[Complex]) -> list[Complex]:
        a, b, c, d = numbers
        even, odd = (self.plus(a, c), self.minus(a, c)), (self.plus(b, d), self.minus(b, d))
        turned = self.turned(odd[1])
        return [
            self.plus(even[0], odd[0]),
            self.plus(even[1], turned),
            self.minus(even[0], odd[0]),
            self.minus(even[1], turned),
        ]

    def _composed(self, numbers: Sequence[Complex], first: int) -> list[Complex]:
        """By transforms of `first` numbers, and of as many as are left."""
        n = len(numbers)
        rest = n // first
        found: list[list[Complex]] = [[] for _ in range(first)]
        for j in range(rest):
            for k, value in enumerate(self.transform(numbers[j::rest])):
                found[k].append(self.rotated(value, j * k, n))
        columns = [self.transform(own) for own in found]
        return [columns[k % first][k // first] for k in range(n)]

    def _odd(self, numbers: Sequence[Complex]) -> list[Complex]:
        """Of an odd number of them: sums and differences of those that have conjugate roots."""
        n, em = len(numbers), self.em
        zeroth, pairs = numbers[0], range(1, (n + 1) // 2)
        sums = [self.plus(numbers[j], numbers[n - j]) for j in pairs]
        differences = [self.minus(numbers[j], numbers[n - j]) for j in pairs]
        found = [zeroth] * n
        for own in sums:
            found[0] = self.plus(found[0], own)
        for k in pairs:
            angles = [2 * math.pi * (j * k % n) / n for j in pairs]
            even, odd = zeroth, None
            for angle, own, other in zip(angles, sums, differences, strict=True):
                cosine, sine = (em.const(part, own[0].type) for part in (math.cos(angle), math.sin(angle)))
                even = self._added(own, cosine, even)
                odd = (other[0] * sine, other[1] * sine) if odd is None else self._added(other, sine, odd)
            assert odd is not None, "there are pairs"
            turned = self.turned(odd)
            found[k], found[n - k] = self.plus(even, turned), self.minus(even, turned)
        return found

    def _added(self, x: Complex, factor: Value, total: Complex) -> Complex:
        """total + factor x"""
        em, target = self.em, self.target
        return target.fma(em, x[0], factor, total[0]), target.fma(em, x[1], factor, total[1])
