# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Dot products of bytes: unsigned ones of weights with signed ones of activations, by what a processor has."""

from __future__ import annotations

import operator
from dataclasses import dataclass

from rlx_mlir.codegen.emit import Emitter, Value, vec
from rlx_mlir.codegen.structures import pairwise

from .panels import PanelLayout
from .target import Target


@dataclass(frozen=True)
class Dots:
    """How to add up u * q for the four bytes of each dword, u unsigned up to `limit`, q signed within +-127."""

    em: Emitter
    target: Target
    limit: int

    def begin(self, start: Value) -> Dot:
        """A sum over one block, beginning at `start`, i32."""
        return Dot(self, start, [])

    @property
    def avx2(self) -> bool:
        return by_avx2(self.target)

    @property
    def words(self) -> str:
        return vec(2 * self.target.lanes("i32"), "i16")

    def products(self, u: Value, q: Value) -> list[Value]:
        """i16 lanes whose sum is the dot product; each holds one product, or two neighbours' sum where that fits."""
        em = self.em
        if self.avx2 and self.limit > 127:
            # u = w + 128 with signed w: |w| times q with the sign of w fits, as 2 * 128 * 127 does.
            w = u ^ -128
            signed = em.intrinsic("llvm.x86.avx2.psign.b", [em.bitcast(q, u.type), w], u.type)
            return [em.intrinsic("llvm.x86.avx2.pmadd.ub.sw", [em.unary("math.absi", w), signed], self.words)]
        if self.avx2:
            return [em.intrinsic("llvm.x86.avx2.pmadd.ub.sw", [u, em.bitcast(q, u.type)], self.words)]
        weights, values = em.bitcast(u, self.words), em.bitcast(q, self.words)
        even, odd = em.binary("arith.shrsi", values << 8, 8), em.binary("arith.shrsi", values, 8)
        return [(weights & 0xFF) * even, (weights >> 8) * odd]

    def widened(self, words: Value) -> Value:
        """i32 sums of neighbouring i16."""
        em = self.em
        wide = self.target.vector("i32")
        if self.avx2:
            return em.intrinsic("llvm.x86.avx2.pmadd.wd", [words, em.const(1, words.type)], wide)
        pairs = em.bitcast(words, wide)
        low = em.binary("arith.shrsi", pairs << 16, 16)
        return low + em.binary("arith.shrsi", pairs, 16)


def by_avx2(target: Target) -> bool:
    """Whether products of bytes are added up in words: AVX2 without dot products."""
    return target.vector_bits == 256 and target.has("avx2") and not target.vnni


def bias_of(target: Target, layout: PanelLayout) -> int:
    """What is left to subtract from u, after what products by the target's instructions have subtracted."""
    return layout.bias - (128 if layout.top > 127 and (by_avx2(target) or target.dotprod) else 0)


@dataclass
class Dot:
    """A running sum: i32, and up to as many i16 products as cannot overflow."""

    dots: Dots
    total: Value
    waiting: list[Value]
    count: int = 0

    def add(self, u: Value, q: Value) -> None:
        """Adds the dot products of the weight bytes u with q, an activation dword in every lane."""
        em, target = self.dots.em, self.dots.target
        if target.vnni:
            name = f"llvm.x86.avx512.vpdpbusd.{target.vector_bits}"
            self.total = em.intrinsic(name, [self.total, u, em.bitcast(q, u.type)], self.total.type)
            return
        if target.dotprod:
            signed = u ^ -128 if self.dots.limit > 127 else u
            name = "llvm.aarch64.neon.sdot.v4i32.v16i8"
            self.total = em.intrinsic(name, [self.total, signed, em.bitcast(q, u.type)], self.total.type)
            return
        self.waiting += self.dots.products(u, q)
        self.count += 1
        if self.dots.limit > 127:
            for words in self.waiting:
                self.total = self.total + self.dots.widened(words)
            self.waiting, self.count = [], 0
            return
        self.waiting = [pairwise(operator.add, self.waiting)]
        if (self.count + 1) * 2 * self.dots.limit * 127 > 32767:
            self.finish()

    def finish(self) -> Value:
        """The sum, i32."""
        if self.waiting:
            self.total = self.total + self.dots.widened(self.waiting[0])
            self.waiting, self.count = [], 0
        return self.total
