# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rows of packed weights in layout `planes` (`formats.planes`) as threads of a GPU read them.

Everything follows from the layout, which follows from the format's description, and gives what `formats.decode` gives,
bit for bit. Products of few rows load otherwise, a whole unit with all of its scales at once (`gemv_rows`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rlx_mlir.codegen.bits import every_byte, joined
from rlx_mlir.codegen.gpu.emit import DeviceEmitter, Index, Value, vec
from rlx_mlir.codegen.gpu.gemm_base import offset64
from rlx_mlir.formats import Factor, PlaneLayout
from rlx_mlir.formats.descriptions import RUN
from rlx_mlir.formats.planes import HALF

#: Elements that are decoded together: a word of four bytes.
QUAD = 4
#: 2^23 as f32: its low byte is free.
_MAGIC, _MAGIC_VALUE = 0x4B000000, 1 << 23


def quads_of(layout: PlaneLayout, records: list[list[Value]]) -> list[Value]:
    """The integers of a run, as stored: eight words of four bytes, of the words of each plane of integers."""
    if layout.widths == (8,):
        return [*records[0], *records[1]]
    planes = list(zip(records, layout.widths, strict=True))
    return [
        joined((words[quad // (8 // width)], quad % (8 // width) * width, width) for words, width in planes)
        for quad in range(RUN // QUAD)
    ]


def quad_at(layout: PlaneLayout, quad: Index, word: Callable[[int, Index], Value]) -> Value:
    """The integers, as stored, of a quad that is known at run time; its words are `word(plane, number in the run)`."""
    total: Value | None = None
    into = 0
    for plane, width in enumerate(layout.widths):
        per_word = 8 // width
        number, shift = quad // per_word, quad % per_word * width
        bits = (word(plane, number) >> shift) & every_byte((1 << width) - 1)
        bits = bits << into if into else bits
        total = bits if total is None else total | bits
        into += width
    assert total is not None, "a format with planes"
    return total


def signed_bytes(quad: Value, layout: PlaneLayout) -> Value:
    """q - bias of four elements, as signed bytes."""
    if layout.signed or not layout.bias:
        return quad
    # With the top bits set, no byte borrows from its neighbour.
    moved = (quad | every_byte(0x80)) - every_byte(layout.bias)
    return moved ^ every_byte(0x80)


def byte_float(em: DeviceEmitter, word: Value, byte: int, offset: int) -> Value:
    """Byte `byte` of a word, unsigned, minus `offset`, as f32: exact, and without a conversion, which is slow."""
    # The bytes (q, 0, 0, 0x4B) are the float 2^23 + q.
    bits = em.pure(f"prmt.b32 $0, $1, $2, {0x7440 + byte};", [word, em.const(_MAGIC, "i32")], "i32")
    return em.bitcast(bits, "f32") - float(_MAGIC_VALUE + offset)


def values(em: DeviceEmitter, quad: Value, layout: PlaneLayout) -> list[Value]:
    """q - bias of four elements, as f32, exactly."""
    unsigned, bias = (quad ^ every_byte(0x80), 128) if layout.signed else (quad, layout.bias)
    return [byte_float(em, unsigned, byte, bias) for byte in range(QUAD)]


def dense_quad(em: DeviceEmitter, row: Value, name: str, column: Value) -> list[Value]:
    """Four elements of a dense row, as f32."""
    return em.lanes(em.widen(em.ld(em.at(row, column, name), vec(QUAD, name))))


@dataclass(frozen=True)
class PlaneRows:
    """What rows of `k` elements hold, each given by its address."""

    em: DeviceEmitter
    layout: PlaneLayout
    k: int

    @property
    def row_bytes(self) -> int:
        """Bytes of a row, a multiple of 16."""
        return self.layout.row_bytes(self.k)

    @property
    def per_run(self) -> int:
        """Scales of one run."""
        return max(1, RUN // self.layout.sub)

    def elements(self, row: Value, run: Index) -> list[Value]:
        """The 32 elements of a run of a dense format, as f32."""
        em, element = self.em, self.layout.name
        width = 16 // self.layout.format.nbytes
        address = em.at(row, run * RUN, element)
        found = []
        for i in range(0, RUN, width):
            found += em.lanes(em.widen(em.ld(em.at(address, i, element), vec(width, element))))
        return found

    def records(self, row: Value, run: Index) -> list[list[Value]]:
        """The words of a run of each plane of integers q."""
        em, layout = self.em, self.layout
        result = []
        for plane, start in zip(layout.quants, layout.offsets(self.k), strict=False):
            count = plane.nbytes // 4
            address = em.at(row, run * plane.nbytes + start, "i8")
            result.append(em.lanes(em.ld(address, vec(count, "i32") if count > 1 else "i32")))
        return result

    def quad(self, row: Value, column: Value) -> list[Value]:
        """The elements from `column`, a multiple of four, on, as f32."""
        em, layout = self.em, self.layout
        if layout.dense:
            return dense_quad(em, row, layout.name, column)
        run, quad = column // RUN, column % RUN // QUAD
        integers = values(em, self._integers(row, run, quad), layout)
        sub = column % RUN // layout.sub if layout.sub < RUN else 0
        assert layout.scale is not None, "a quantised format"
        scale = self.factor(row, run, sub, layout.scale)
        found = [q * scale for q in integers]
        if layout.minimum is None:
            return found
        minimum = self.factor(row, run, sub, layout.minimum)
        return [value + minimum for value in found]

    def _integers(self, row: Value, run: Index, quad: Index) -> Value:
        """The integers of a quad as stored, four bytes."""
        em, layout = self.em, self.layout
        starts = layout.offsets(self.k)
        if layout.widths == (8,):
            half = quad // (HALF // QUAD) * starts[1]
            place = run * HALF + quad % (HALF // QUAD) * QUAD
            return em.ld(em.at(row, half + place, "i8"), "i32")

        def word(plane: int, number: Index) -> Value:
            place = run * layout.quants[plane].nbytes + number * 4
            return em.ld(em.at(row, place + starts[plane], "i8"), "i32")

        return quad_at(layout, quad, word)

    def factor(self, row: Value, run: Index, sub: Index, factor: Factor) -> Value:
        """A scale or minimum, f32, of a sub-block of a run."""
        em, layout = self.em, self.layout
        starts = layout.offsets(self.k)
        assert layout.floats is not None, "a quantised format"
        block = run // (layout.format.block // RUN)
        place = block * layout.floats.nbytes + (starts[-1] + factor.number * layout.float_bytes)
        value = em.widen(em.ld(em.at(row, place, "i8"), "f16" if layout.float_bytes == 2 else "f32"))
        if factor.at is not None:
            assert layout.integers is not None, "a format with integers"
            number = run * self.per_run + sub
            if layout.sub > RUN:
                number = run // (layout.sub // RUN)
            place = number * layout.integers.nbytes + (starts[-2] + factor.at)
            stored = em.ld(em.at(row, place, "i8"), "i8")
            if factor.bits == 8:
                integer = em.cast("arith.extsi", stored, "i32")
            else:
                wide = em.cast("arith.extui", stored, "i32")
                integer = (wide >> factor.shift) & ((1 << factor.bits) - 1)
            value = value * em.cast("arith.sitofp", integer, "f32")
        return -value if factor.sign < 0 else value


@dataclass(frozen=True)
class PackedRows(PlaneRows):
    """The rows [N, K] of a packed weight; rows and runs beyond the last are read as the last.

    What they are multiplied with is zero, or what comes of them isn't stored.
    """

    base: Value
    n: int

    def row(self, n: Index) -> Value:
        """The address of a row, or of the last."""
        em = self.em
        return em.at(self.base, offset64(em, (em.imin(n, self.n - 1), self.row_bytes)), "i8")

    def run(self, run: Index) -> Index:
        """A run's number, or the last."""
        return self.em.imin(run, self.k // RUN - 1)
