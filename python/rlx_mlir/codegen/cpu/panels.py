# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Weights in panels: 16 rows interleaved, so that the rows stand across the lanes of a vector register.

A block scheme stores, for 16 rows and 32 elements along K, f16 scales d[16], where it has them f16 minima m[16], then
dwords: dword c of all 16 rows side by side. A dword holds 4 elements as bytes, or 8 as nibbles (low nibbles are the
first 4). The value is d * u + m for the unsigned u stored, with m = -offset * d where no minima are stored. The float
schemes store [K][16] elements.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from . import UnsupportedByTemplate
from .emit import Emitter, Index, Value, vec
from .target import ELEMENT_BITS, Target

__all__ = ["PANEL_ROWS", "SCHEMES", "Panel", "Scheme", "centre", "find_scheme"]

PANEL_ROWS = 16


@dataclass(frozen=True)
class Scheme:
    """One panel format: `kind` says what the payload is, `offset` what is subtracted from u where no minima exist."""

    name: str
    kind: Literal["float", "nibble", "byte"]
    offset: int = 0
    minima: bool = False
    element: str = ""

    @property
    def block(self) -> int:
        """Elements along K in one block."""
        return 1 if self.kind == "float" else 32

    @property
    def payload(self) -> int:
        """Byte offset of the dwords in a block."""
        return PANEL_ROWS * 2 * (2 if self.minima else 1)

    @property
    def dwords(self) -> int:
        """Dwords of one row in one block."""
        return 4 if self.kind == "nibble" else 8

    @property
    def per_dword(self) -> int:
        """Elements in one dword."""
        return 32 // self.dwords

    @property
    def block_bytes(self) -> int:
        """Bytes of one block of 16 rows."""
        if self.kind == "float":
            return PANEL_ROWS * ELEMENT_BITS[self.element] // 8
        return self.payload + PANEL_ROWS * 4 * self.dwords

    def panel_bytes(self, k: int) -> int:
        """Bytes of a panel of K elements a row."""
        if k % self.block:
            raise UnsupportedByTemplate(f"{self.name} panels: K has to be a multiple of {self.block}, but is {k}")
        return k // self.block * self.block_bytes


SCHEMES = {
    scheme.name: scheme
    for scheme in (
        Scheme("f32", "float", element="f32"),
        Scheme("f16", "float", element="f16"),
        Scheme("bf16", "float", element="bf16"),
        Scheme("q4_0", "nibble", offset=8),
        Scheme("q4_1", "nibble", minima=True),
        Scheme("q5_0", "byte", offset=16),
        Scheme("q5_1", "byte", minima=True),
        Scheme("q8_0", "byte", offset=128),
    )
}


def find_scheme(name: str) -> Scheme:
    """The panel format of a scheme, or UnsupportedByTemplate."""
    if name not in SCHEMES:
        raise UnsupportedByTemplate(f"panels: no code is written for '{name}' weights; known are {', '.join(SCHEMES)}")
    return SCHEMES[name]


def _tabulated(target: Target, scheme: Scheme) -> bool:
    return scheme.kind == "nibble" and target.vector_bits == 512 and target.has("avx512f")


def centre(target: Target, scheme: Scheme) -> int:
    """What `Panel.number` subtracts from u, since it costs nothing there: the scheme's whole offset, or 0."""
    return scheme.offset if _tabulated(target, scheme) or scheme.offset == 128 else 0


class Panel:
    """One panel of a weight [panels, panel bytes], read in vectors of `lanes` rows; `base` is its first byte.

    Vector v of a panel holds the rows [v * lanes, (v + 1) * lanes).
    """

    def __init__(self, em: Emitter, target: Target, scheme: Scheme, data: Value, base: Index) -> None:
        self.em, self.target, self.scheme, self.data, self.base = em, target, scheme, data, base
        self.lanes = target.lanes("f32")
        self.vectors = PANEL_ROWS // self.lanes

    def at(self, block: Index) -> Index:
        """The first byte of a block."""
        return self.em.iadd(self.base, self.em.imul(block, self.scheme.block_bytes))

    def prefetch(self, at: Index, ahead: int) -> None:
        """Asks for the cache lines that a block `ahead` bytes further on occupies."""
        for line in range(0, self.scheme.block_bytes, 64):
            self.em.prefetch(self.data, [self.em.iadd(at, ahead + line)])

    def _vector(self, at: Index, element: str) -> Value:
        width = ELEMENT_BITS[element] // 8 * self.lanes
        return self.em.bitcast(self.em.vload(self.data, [at], vec(width, "i8")), vec(self.lanes, element))

    def scale(self, at: Index, v: int) -> Value:
        """d of the block at `at`, f32."""
        return self.target.widen(self.em, self._vector(self.em.iadd(at, 2 * self.lanes * v), "f16"))

    def minimum(self, at: Index, v: int) -> Value:
        """m of the block at `at`, f32; only where the scheme stores minima."""
        return self.target.widen(self.em, self._vector(self.em.iadd(at, 2 * (PANEL_ROWS + self.lanes * v)), "f16"))

    def dword(self, at: Index, c: int | Value, v: int) -> Value:
        """Dword c of the block at `at`, i32."""
        em = self.em
        payload = em.iadd(em.imul(c, 4 * PANEL_ROWS), self.scheme.payload + 4 * self.lanes * v)
        return self._vector(em.iadd(at, payload), "i32")

    def floats(self, k: Index, v: int) -> Value:
        """Element k of a float scheme, f32."""
        width = ELEMENT_BITS[self.scheme.element] // 8
        at = self.em.iadd(self.at(k), width * self.lanes * v)
        return self.target.widen(self.em, self._vector(at, self.scheme.element))

    def bytes(self, dword: Value, half: int) -> Value:
        """Four unsigned elements a row as bytes: the dword itself, or its low (half 0) or high (1) nibbles."""
        em = self.em
        if self.scheme.kind == "nibble":
            dword = em.andi(em.shrui(dword, 4) if half else dword, 0x0F0F0F0F)
        return em.bitcast(dword, vec(4 * self.lanes, "i8"))

    # -- elements as f32: `number` = (u - centre) * 2^shift, whatever is cheapest ----------------------------------

    @property
    def shift(self) -> int:
        """`number` is scaled by this power of two."""
        return 24 if self.scheme.offset == 128 else 0

    def number(self, dword: Value, e: int) -> Value:
        """Element e of a dword as f32."""
        em = self.em
        wide = vec(self.lanes, "f32")
        if self.scheme.kind == "nibble":
            bits = 8 * (e % 4) + 4 * (e // 4)
            moved = em.shrui(dword, bits) if bits else dword
            if _tabulated(self.target, self.scheme):
                # A permutation looks at the low four bits of a lane only: mask, conversion and offset in one.
                table = em.const([float(i - self.scheme.offset) for i in range(16)], wide)
                return em.intrinsic("llvm.x86.avx512.permvar.sf.512", [table, moved], wide)
            return em.cast("arith.sitofp", em.andi(moved, 15), wide)
        # A byte shuffle with zeros; a signed byte goes to the top of its lane, which is its sign extension times 2^24.
        signed = self.scheme.offset == 128
        source = em.bitcast(em.xori(dword, -0x7F7F7F80) if signed else dword, vec(4 * self.lanes, "i8"))
        position = 3 if signed else 0
        lanes = [4 * r + e if j == position else 4 * self.lanes for r in range(self.lanes) for j in range(4)]
        spread = em.shuffle(source, em.zero(source.type), lanes)
        return em.cast("arith.sitofp", em.bitcast(spread, vec(self.lanes, "i32")), wide)
