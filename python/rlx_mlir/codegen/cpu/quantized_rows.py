# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rows of quantised activations as integer products read them: bytes, scales, and what the sums of bytes lack.

They are what `mir.block_quantize` gave (`GivenRows`), or are quantised on the way, to three digits, from an x of f32
whose products shall be as exact as those of floats (`ExactRows`).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from rlx_mlir.activations import DIGITS, INTEGERS
from rlx_mlir.codegen.emit import Emitter, Index, Value, element_of, memref, shape_of, vec, with_element
from rlx_mlir.codegen.kernel import Buffers
from rlx_mlir.codegen.structures import pairwise
from rlx_mlir.formats.panels import PanelLayout

from .block_quantize import quantized
from .byte_dots import bias_of
from .digits import BASE_BITS, has_room, split, store_digits
from .kernel import Product, Scratch, listed_row, row_count
from .panels import RUN
from .target import Target

ROW_BLOCK = 128
"""Rows whose digits are in scratch at a time: they stay in near caches, and weights are read once for so many."""

EXACT_BITS = 22
"""Bits of an x of f32: its 24 less what one rounding may lose."""

SMALLEST = 2.0**-80
"""Scales of rows whose largest element is smaller would be subnormal, and coarse."""


@dataclass(frozen=True)
class QuantizedRows:
    """Some rows, by their number among them.

    Attributes:
        bytes: i8 [M, K], or digits [rows, digits, K], of which the first counts most.
        digits: of each integer.
        scale: f32 [M, K / 32].
        base: the row of what has M rows that is number 0; 0 where only some rows are there.
        parts: parts of a block that share a scale of the weights.
        corrections: -bias * (the sum of a part's integers), i32 [rows, K / part]; None where there is no bias.
        shifts: scale * that sum, f32 [rows, K / part]; None where weights have no minima.
        apart: whether sums of the first digit are kept apart, as those of whole integers don't fit in i32.
        heads: corrections of the first digit then, and `corrections` are those of the others.
    """

    bytes: Value
    digits: int
    scale: Value
    base: Index
    parts: int
    corrections: Value | None
    shifts: Value | None
    apart: bool = False
    heads: Value | None = None

    @property
    def weight_of_first(self) -> float:
        """What the first digit counts."""
        return float(1 << BASE_BITS * (self.digits - 1))

    def dword(self, em: Emitter, row: Index, k: Index, digit: int, type: str) -> Value:
        """A digit of the elements k .. k + 3 of a row, in every lane."""
        at = [row + self.base, k] if len(shape_of(self.bytes.type)) == 2 else [row, digit, k]
        four = em.vload(self.bytes, at, vec(4, "i8"))
        return em.broadcast(em.extract(em.bitcast(four, vec(1, "i32")), 0), type)

    def scale_of(self, em: Emitter, row: Index, block: Index, type: str) -> Value:
        """The scale of a block, in every lane."""
        return em.broadcast(em.load(self.scale, [row + self.base, block]), type)

    def at(self, em: Emitter, table: Value, row: Index, block: Index, part: Index, type: str) -> Value:
        """An element of `corrections` or `shifts`, in every lane."""
        return em.broadcast(em.load(table, [row, block * self.parts + part]), type)


@dataclass(frozen=True)
class Tables:
    """Scratch memory of rows; None is what isn't needed.

    Attributes:
        digits: i8 [rows, digits, K].
        corrections, shifts: as of `QuantizedRows`.
        scale: f32 [rows, K / 32], of `ExactRows`, and of rows that are listed.
        flags: i32 [rows], of `ExactRows`: 1 where a row can't be quantised.
        heads: as of `QuantizedRows`.
    """

    digits: Value | None
    corrections: Value | None
    shifts: Value | None
    scale: Value | None = None
    flags: Value | None = None
    heads: Value | None = None


class Rows(Protocol):
    """Where a product finds its rows."""

    @property
    def bits(self) -> int:
        """Of an integer."""

    @property
    def block(self) -> int | None:
        """How many are made ready at a time, at most; None where all are read where they are."""

    def operands(self, product: Product) -> Buffers:
        """The kernel's operands before the weights."""

    def memory(self, em: Emitter, operand: Value, scratch: Scratch) -> Tables:
        """Takes scratch memory; operand: the first one."""

    def read(self, em: Emitter, operands: list[Value], memory: Tables, first: Index, count: Index) -> QuantizedRows:
        """The rows [first, first + count), made ready."""


LISTED = ("listed", memref((None,), "i64"))
"""The operand that lists rows by their number."""


@dataclass(frozen=True)
class _Base:
    """What both kinds of rows know of a product: the target, K, the layout of the weights; bits of an integer, and
    whether rows are listed."""

    target: Target
    k: int
    layout: PanelLayout
    bits: int
    listed: bool = False

    @property
    def parts(self) -> int:
        """Parts of a block that share a scale of the weights."""
        return RUN // self.layout.sub if self.layout.sub < RUN else 1

    @property
    def part(self) -> int:
        """Elements of a part."""
        return RUN // self.parts

    def place(self, em: Emitter, operands: Sequence[Value], row: Index) -> Index:
        """The row of the operands that is read as so many-th: the last operand lists them, where they are listed."""
        return listed_row(em, operands[-1], row) if self.listed else row

    def tables(self, rows: Index, scratch: Scratch) -> Tables:
        """Scratch memory for so many rows."""
        digits = DIGITS[self.bits]
        shape = [rows, self.k // self.part]
        corrections = scratch.take(shape, "i32") if bias_of(self.target, self.layout) else None
        shifts = scratch.take(shape, "f32") if self.layout.minimum else None
        copied = scratch.take([rows, digits, self.k], "i8", 1) if digits > 1 or self.listed else None
        return Tables(copied, corrections, shifts)

    def add(self, em: Emitter, memory: Tables, total: Value, scale: Value, at: Sequence[Index]) -> None:
        """Stores what follows from the sum of a part, or of each of several parts in a row."""
        for value, table in self.derived(em, memory, total, scale):
            em.store(value, table, at)

    def derived(self, em: Emitter, memory: Tables, total: Value, scale: Value) -> Iterator[tuple[Value, Value]]:
        """(value, table) for the sum of a part."""
        if memory.corrections is not None:
            yield total * -bias_of(self.target, self.layout), memory.corrections
        if memory.shifts is not None:
            yield em.cast("arith.sitofp", total, with_element(total.type, "f32")) * scale, memory.shifts


@dataclass(frozen=True)
class GivenRows(_Base):
    """Rows of q [.., K] of so many bits, scale [.., K / 32] f32 and sum [.., K / 32] i32, three operands.

    `listed`: those that a fourth operand lists, which are copied.
    """

    @property
    def block(self) -> int | None:
        """Digits and copies are in scratch memory."""
        return ROW_BLOCK if self.listed or self.bits > 8 else None

    def operands(self, product: Product) -> Buffers:
        """q, scale, sum, and the numbers of the rows."""
        *leading, k = product.x_shape
        blocks = (*leading, self.k // RUN)
        return [
            ("q", memref((*leading, k), INTEGERS[self.bits])),
            ("scale", memref(blocks, "f32")),
            ("sum", memref(blocks, "i32")),
            *([LISTED] if self.listed else []),
        ]

    def memory(self, em: Emitter, operand: Value, scratch: Scratch) -> Tables:
        """For all rows, or for a block of them."""
        rows = row_count(em, operand)
        rows = rows if self.block is None else em.imin(rows, self.block)
        own = self.tables(rows, scratch)
        return replace(own, scale=scratch.take([rows, self.k // RUN], "f32")) if self.listed else own

    def read(self, em: Emitter, operands: list[Value], memory: Tables, first: Index, count: Index) -> QuantizedRows:
        """The rows as they are, or their digits."""
        q, scale, total = (em.rows(value) for value in operands[:3])

        def place(row: Index) -> Index:
            return self.place(em, operands, row + first)

        if memory.digits is not None:
            split(em, self.target, q, memory.digits, (place, count), self.k)
        if any(table is not None for table in (memory.corrections, memory.shifts, memory.scale)):
            self._add_up(em, memory, (q, scale, total), (first, place), count)
        bytes = q if memory.digits is None else memory.digits
        scales, base = (scale, first) if memory.scale is None else (memory.scale, 0)
        return QuantizedRows(bytes, DIGITS[self.bits], scales, base, self.parts, memory.corrections, memory.shifts)

    def _add_up(
        self,
        em: Emitter,
        memory: Tables,
        given: tuple[Value, Value, Value],
        rows: tuple[Index, Callable[[Index], Index]],
        count: Index,
    ) -> None:
        (q, scale, total), (first, place) = given, rows
        blocks = self.k // RUN
        if self.parts == 1 and not self.listed:
            lanes = self.target.lanes("f32")
            sums, scales = em.flat(total), em.flat(scale)
            elements, start = count * blocks, first * blocks
            with em.loop(0, elements, lanes, hint="block") as loop:
                mask, at = em.mask(elements - loop.iv, lanes), [loop.iv + start]
                sum_ = em.masked_load(sums, at, mask, em.zero(self.target.vector("i32")))
                factor = em.masked_load(scales, at, mask, em.zero(self.target.vector("f32")))
                for value, table in self.derived(em, memory, sum_, factor):
                    em.masked_store(value, em.flat(table), [loop.iv], mask)
            return
        with em.loop(0, count, hint="row") as row:
            own = place(row.iv)
            with em.loop(0, blocks, hint="block") as block:
                factor, whole = em.load(scale, [own, block.iv]), em.load(total, [own, block.iv])
                if memory.scale is not None:
                    em.store(factor, memory.scale, [row.iv, block.iv])
                for part, own_sum in enumerate(self._sums(em, q, whole, own, block.iv)):
                    self.add(em, memory, own_sum, factor, [row.iv, block.iv * self.parts + part])

    def _sums(self, em: Emitter, q: Value, whole: Value, row: Index, block: Index) -> list[Value]:
        """Of the integers of each part of a block, whose sum is `whole`."""
        if self.parts == 1:
            return [whole]
        values = em.vload(q, [row, block * RUN], vec(self.part, element_of(q.type)))
        wide = values if self.bits == 22 else em.cast("arith.extsi", values, vec(self.part, "i32"))
        half = em.reduce("add", wide)
        return [half, whole - half]


@dataclass(frozen=True)
class ExactRows(_Base):
    """Rows of x [.., K] f32, one operand, quantised to `EXACT_BITS`; `listed`: those that a second operand lists.

    Rows that hold NaN or an infinity, or nothing but tiny numbers, can't be: they are flagged.
    """

    bits: int = EXACT_BITS

    @property
    def block(self) -> int | None:
        """Digits are in scratch memory."""
        return ROW_BLOCK

    def operands(self, product: Product) -> Buffers:
        """x, and the numbers of its rows."""
        return [("x", memref(product.x_shape, "f32")), *([LISTED] if self.listed else [])]

    def memory(self, em: Emitter, operand: Value, scratch: Scratch) -> Tables:
        """For a block of rows."""
        rows = em.imin(row_count(em, operand), ROW_BLOCK)
        own = self.tables(rows, scratch)
        scale = scratch.take([rows, self.k // RUN], "f32")
        flags = scratch.take([rows], "i32")
        biased = own.corrections is not None and self._apart
        heads = scratch.take([rows, self.k // self.part], "i32") if biased else None
        return replace(own, scale=scale, flags=flags, heads=heads)

    @property
    def _apart(self) -> bool:
        return not has_room(self.layout, self.bits)

    def read(self, em: Emitter, operands: list[Value], memory: Tables, first: Index, count: Index) -> QuantizedRows:
        """The rows, quantised."""
        x = em.rows(operands[0])
        digits, lanes = DIGITS[self.bits], self.target.lanes("f32")
        assert memory.scale is not None
        assert memory.flags is not None
        assert memory.digits is not None
        with em.loop(0, count, hint="row") as row:
            zero, place = em.const(0.0, "f32"), self.place(em, operands, row.iv + first)
            with em.loop(0, self.k // RUN, 1, zero, hint="block") as block:
                start = block.iv * RUN
                scale, largest, numbers = quantized(em, self.target, x, place, start, self.bits)
                em.store(scale, memory.scale, [row.iv, block.iv])
                firsts = [
                    store_digits(em, number, memory.digits, row.iv, start + i * lanes, digits)
                    for i, number in enumerate(numbers)
                ]
                each = len(numbers) // self.parts
                for part in range(self.parts):
                    own, at = slice(part * each, (part + 1) * each), [row.iv, block.iv * self.parts + part]
                    total = em.reduce("add", pairwise(operator.add, numbers[own]))
                    self.add(em, memory, total, scale, at)
                    if memory.heads is not None and memory.corrections is not None:
                        bias = bias_of(self.target, self.layout)
                        head = em.reduce("add", pairwise(operator.add, firsts[own]))
                        em.store(head * -bias, memory.heads, at)
                        rest = total - (head << BASE_BITS * (digits - 1))
                        em.store(rest * -bias, memory.corrections, at)
                block.yield_(em.maximumf(block.carry, largest))
            size = block.result
            # Also of NaN: it is no ordered number.
            fits = em.cmpf("olt", size, float("inf")) & (em.cmpf("oge", size, SMALLEST) | em.cmpf("oeq", size, 0.0))
            em.store(em.select(fits, em.const(0, "i32"), 1), memory.flags, [row.iv])
        return QuantizedRows(
            memory.digits,
            digits,
            memory.scale,
            0,
            self.parts,
            memory.corrections,
            memory.shifts,
            self._apart,
            memory.heads,
        )
