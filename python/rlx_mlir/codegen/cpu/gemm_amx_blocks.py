# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Products of f32 with weights in blocks, whose integers tiles of bf16 multiply as they are.

A weight is d u + m, with one d and m for 32 elements of K. The integer u less a constant has 8 bits at most, which is
exact in bf16, so that three products, of it and of the three parts of a number of x, stand for one of f32: half as many
as where weights are cut, too, and what is decoded is half as long. A tile adds the products of 32 elements, a block's;
the sum is multiplied by d in f32, and the sum of the 32 numbers of x by m.

The first 32 rows decode columns on the way, a step ahead of the tiles, so that few rows don't wait for it; more rows
read them from scratch. An output's sum depends on K, its row and its column alone, as in `gemm_amx_f32`, whose way with
results that aren't finite is this module's, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from rlx_mlir.codegen.emit import Emitter, Index, Value, vec
from rlx_mlir.codegen.specs import ProductSpec
from rlx_mlir.runtime.tiles import GEMM_AMX_F32

from . import UnsupportedByTemplate
from .gemm_amx import COLUMNS, ROWS, SIDE, STEP
from .gemm_amx_f32 import (
    KNOBS,
    LINE,
    PARTS,
    Columns,
    Part,
    SplitTiles,
    need_tiles,
    panel_kernel,
    panel_number,
    splits,
)
from .gemm_packed import are_single_rows
from .kernel import Product, Scratch, row_count
from .panels import RUN, Panel, PanelLayout, Run, block_heads, find_layout, panel_product
from .registry import Generator
from .target import Target

AHEAD = 2048
"""Bytes ahead of the use at which packed weights are fetched."""

BUFFERS = 4
"""Steps whose columns are kept where nobody reads them again: a step's factors are needed one step later."""

ORDER_OF_PARTS = (2, 1, 0)
"""Small products first."""

ROWS_AT_ONCE = 4
"""Rows whose sums are scaled in one turn of a loop."""

EVEN = [4 * quad + SIDE * half + i for quad in range(SIDE // 4) for half in range(2) for i in range(2)]
ODD = [lane + 2 for lane in EVEN]
"""Of 32 elements in two vectors, those that stand in the low and in the high halves of the pairs: elements 0 and 2 of a
quad are a pair, as are 1 and 3, which is how a permutation of words reads integers that are bytes."""

ORDER = [(quad + SIDE // 4 * half, i) for quad in range(SIDE // 4) for half in range(2) for i in range(2)]
"""Which quad, and which pair of it, each row of a tile has."""


def has_integers(layout: PanelLayout) -> bool:
    """Whether the integers of 32 elements share a scale, and are exact in bf16."""
    return not layout.dense and layout.sub == RUN and layout.bits <= 8


def gemm_blocks(target: Target, product: Product, scheme: str) -> str:
    """The kernel of a product of f32 with weights in panels of `scheme`; operands and units as for `gemm_split`."""
    need_tiles(product.name, product.element, target)
    layout = find_layout(scheme, product.k)
    if not has_integers(layout):
        raise UnsupportedByTemplate(f"{product.name}: tiles don't multiply the integers of {scheme}")

    def parts(em: Emitter, values: list[Value], scratch: Scratch) -> BlockTiles:
        return BlockTiles(em, target, product, row_count(em, values[0]), scratch, layout)

    return panel_kernel(target, product, layout, parts)


@dataclass(frozen=True)
class Strip:
    """Up to 32 rows that meet the columns of a part.

    Attributes:
        rows: how many there are.
        steps: of K.
        first: whether they decode columns for those after them.
        both: whether they are more than 16.
    """

    part: Part
    rows: Index
    steps: Index
    weight: int
    first: Value
    both: Value


class BlockTiles(SplitTiles):
    """A thread's scratch for columns as integers and factors, and what is done with it.

    What waits in scratch is smaller than where columns are f32 or cut, so that more units share a cutting of the rows.
    """

    k_block, most_units = 128, 96

    def __init__(
        self, em: Emitter, target: Target, product: Product, rows: Index, scratch: Scratch, layout: PanelLayout
    ) -> None:
        multiple = math.lcm(STEP, layout.block)
        super().__init__(em, target, product, product.k, rows, scratch, multiple=multiple, decoded=True, again=True)
        self._product, self._layout, self._flat = product, layout, list[Value]()
        self._steps = self._block // STEP
        every = self._group * self._count * self._steps
        self._many = em.cmpi("sgt", self._capacity, ROWS)
        slots = em.select(self._many, every, BUFFERS)
        self._integers = scratch.take([slots, 2, SIDE, SIDE], "i32")
        self._factors = scratch.take([slots, 2, COLUMNS], "f32")
        self._row_sums = scratch.take([self._steps if layout.minimum else 0, ROWS], "f32")
        self._products = scratch.take([2, ROWS, COLUMNS], "f32")

    def read(self, weights: Sequence[Value]) -> None:
        self._flat = list(weights)

    def _prepare(self, part: Part, columns: Columns) -> None:
        """Nothing is decoded before it is needed."""

    # -- rows ---------------------------------------------------------------------------------------------------------

    def _split_rows(self, x: Value, first: Index, count: Index, part: Part) -> None:
        """Rows in parts, neighbours of K side by side, and their sums over each step."""
        em, type = self._em, vec(SIDE, "f32")
        steps = (part.k1 - part.k0) // STEP
        with em.loop(0, count, hint="row") as row, em.loop(0, steps, hint="step") as step:
            k = part.k0 + step.iv * STEP
            source = first + row.iv
            low, high = (em.vload(x, [source, k + half], type) for half in (0, SIDE))
            place = [step.iv, row.iv // SIDE, row.iv % SIDE]
            self._store(em.shuffle(low, high, EVEN), em.shuffle(low, high, ODD), self._left, place)
            if self._layout.minimum:
                total = em.reduce("add", low + high, "reassoc")
                em.store(total, self._row_sums, [step.iv, row.iv])

    # -- columns ------------------------------------------------------------------------------------------------------

    def _place(self, strip: Strip, number: Index, step: Index) -> Index:
        """Where the columns of a step are; number: of the unit in its group."""
        em = self._em
        every = (number * self._count + strip.weight) * self._steps + step
        turn = (number * strip.steps + step) % BUFFERS
        return em.select(self._many, every, turn)

    def _decode(self, unit: Index, weight: int, k: Index, place: Index) -> None:
        """32 columns of the 32 elements of K from k on: bf16, neighbours of K side by side, and factors."""
        em, layout = self._em, self._layout
        with em.loop(0, 2, hint="side") as side:
            base = panel_number(em, self._product, unit, side.iv) * layout.panel_bytes(self._product.k)
            panel = Panel(em, self._target, layout, self._flat[weight], base)
            block = panel.at(k // layout.block)
            number = k // RUN % layout.runs
            run = Run(panel, block, number, block_heads(panel, block))
            panel.prefetch(run.at, self._target.choices.ahead(AHEAD), layout.run_bytes)
            scale, minimum = run.scale(0, 0), run.minimum(0, 0)
            if minimum is not None and self._centre:
                minimum = em.fma(scale, em.const(float(self._centre), scale.type), minimum)
            if not self._tabulated and run.shift:
                scale = scale * 2.0**-run.shift
            for row, (quad, first) in enumerate(ORDER):
                em.vstore(self._pairs(run, quad)[first], self._integers, [place, side.iv, row, 0])
            at = side.iv * SIDE
            for which, factor in enumerate((scale, minimum)):
                if factor is not None:
                    em.vstore(factor, self._factors, [place, which, at])

    @property
    def _tabulated(self) -> bool:
        """Whether a permutation of words looks integers up: by five bits of each index, whatever the others are."""
        return self._layout.bits <= 5

    @property
    def _centre(self) -> int:
        """What minima take over from integers: d u + m = d (u - c) + (m + c d), whose parts cancel less."""
        return 1 << (self._layout.bits - 1) if self._layout.minimum and self._tabulated else 0

    def _pairs(self, run: Run, quad: int) -> list[Value]:
        """Elements 0 and 2, and 1 and 3, of a quad of each column."""
        em, layout, dwords = self._em, self._layout, vec(SIDE, "i32")
        if not self._tabulated:  # floats, which have zeros where bf16 ends
            values = [em.bitcast(value, dwords) for value in run.numbers(0, quad, 0)]
            return [(values[i] >> 16) | values[i + 2] for i in range(2)]
        words = vec(2 * SIDE, "i16")
        floats = [float(layout.integer(entry) - self._centre) for entry in range(2 * SIDE)]
        table = em.bitcast(em.const(floats, vec(2 * SIDE, "bf16")), words)
        dword, bit = run.dword(0, quad, 0)
        found = []
        for i in range(2):
            moved = dword >> (bit + 8 * i) if bit + 8 * i else dword
            index = em.bitcast(moved, words)
            found.append(em.intrinsic("llvm.x86.avx512.permvar.hi.512", [table, index], words))
        return [em.bitcast(value, dwords) for value in found]

    # -- products -----------------------------------------------------------------------------------------------------

    def _strip(
        self,
        part: Part,
        rows: tuple[Index, Index],
        first: Value,
        columns: Columns,
        weight: int,
        finish: Callable[[Index, Index], None] | None,
    ) -> None:
        """Adds the products of 32 rows with the columns of all units; what tiles summed is scaled one step later."""
        em, (row, own) = self._em, rows
        strip = Strip(
            part,
            own,
            (part.k1 - part.k0) // STEP,
            weight,
            first=first,
            both=em.cmpi("sgt", own, SIDE),
        )
        start = self._place(strip, 0, 0)
        with em.if_(strip.first):
            self._decode(part.first, weight, part.k0, start)
        self._for_halves(strip, lambda halves: self._load(0, start, halves))
        with em.loop(part.first, part.last, hint="unit") as unit:
            number = unit.iv - part.first
            at = number * self._capacity + row
            with em.if_(em.cmpi("eq", part.k0, 0)):
                self._clear(at, own, weight)
            with em.loop(0, strip.steps, hint="step") as step:
                self._step_of(strip, unit.iv, step.iv, at)
            last = strip.steps - 1
            turns = em.iceildiv(own, ROWS_AT_ONCE)
            self._scale(last, self._place(strip, number, last), at, (0, turns), weight)
            if finish is not None:
                with em.if_(em.cmpi("sge", part.k1, self.k)):
                    finish(unit.iv, at)

    def _step_of(self, strip: Strip, unit: Value, step: Value, at: Index) -> None:
        """Multiplies a step, while sums of the step before are scaled, and columns of the step after are decoded."""
        em, part = self._em, strip.part
        number = unit - part.first
        turn = em.cmpi("eq", step + 1, strip.steps)
        next_unit = em.select(turn, em.imin(unit + 1, part.last - 1), unit)
        next_step = em.select(turn, 0, step + 1)
        # After the last step comes the first one of the last unit, which nobody uses.
        after = number + em.cast("arith.index_castui", turn, "index")
        following = em.select(self._many, next_unit - part.first, after)
        next_place = self._place(strip, following, next_step)
        with em.if_(strip.first):
            self._decode(next_unit, strip.weight, part.k0 + next_step * STEP, next_place)
        before = em.imax(step - 1, 0)
        there = self._place(strip, number, before)
        is_first = em.cmpi("eq", step, 0)
        turns = em.select(is_first, 0, em.iceildiv(strip.rows, ROWS_AT_ONCE))
        for i, rows_part in enumerate(ORDER_OF_PARTS):
            self._for_halves(strip, partial(self._multiply, step, rows_part))
            first, last = (turns * (i + more) // PARTS for more in range(2))
            self._scale(before, there, at, (first, last), strip.weight)

        def turn_over(halves: int) -> None:
            # Loads wait for earlier stores whose addresses are alike in 12 bits, so they come first.
            self._load(next_step, next_place, halves)
            self._keep(step, halves)

        self._for_halves(strip, turn_over)

    def _clear(self, row: Index, own: Index, weight: int) -> None:
        """Sets the sums of the rows from `row` on to zero."""
        em, type = self._em, self._sums.type
        with em.loop(0, em.iceildiv(own, ROWS_AT_ONCE) * ROWS_AT_ONCE, hint="r") as local:
            for side in range(2):
                em.vstore(em.zero(type), self._sums.data, [row + local.iv, weight * COLUMNS + side * SIDE])

    def _for_halves(self, strip: Strip, emit: Callable[[int], None]) -> None:
        """Code for 16 rows, and for twice as many."""
        with self._em.if_(strip.both) as branch:
            emit(2)
            branch.else_()
            emit(1)

    def _load(self, step: Index, place: Index, halves: int) -> None:
        """A step's columns, and the first part of its rows, into registers."""
        for side in range(2):
            start = (place * 2 + side) * (SIDE * LINE)
            self.emit("tileloadd64", 6 + side, self.pointer(self._integers, start), self.stride(LINE))
        self._load_rows(step, ORDER_OF_PARTS[0], halves)

    def _load_rows(self, step: Index, part: int, halves: int) -> None:
        for half in range(halves):
            start = (step * 2 + half) * (SIDE * PARTS * LINE) + part * LINE
            self.emit("tileloadd64", 4 + half, self.pointer(self._left, start), self.stride(PARTS * LINE))

    def _multiply(self, step: Index, part: int, halves: int) -> None:
        """The products of a step with a part of the rows, 16 of them or twice as many."""
        tiles = [(half, side) for half in range(halves) for side in range(2)]
        if part == ORDER_OF_PARTS[0]:
            for half, side in tiles:
                self.emit("tilezero", 2 * half + side)
        else:
            self._load_rows(step, part, halves)
        for half, side in tiles:
            self.emit("tdpbf16ps", 2 * half + side, 4 + half, 6 + side)

    def _keep(self, step: Index, halves: int) -> None:
        """Moves the products of a step into memory."""
        buffer = step % 2
        for half, side in [(half, side) for half in range(halves) for side in range(2)]:
            start = ((buffer * ROWS + half * SIDE) * COLUMNS + side * SIDE) * 4
            self.emit("tilestored64", 2 * half + side, self.pointer(self._products, start), self.stride(4 * COLUMNS))

    def _scale(self, step: Index, place: Index, row: Index, turns: tuple[Index, Index], weight: int) -> None:
        """Adds the products of a step, times the columns' factors, to the sums of some rows."""
        em, type = self._em, self._sums.type
        buffer = step % 2
        kinds = 2 if self._layout.minimum else 1
        factors = [[em.vload(self._factors, [place, i, side * SIDE], type) for side in range(2)] for i in range(kinds)]
        with em.loop(*turns, hint="rows") as rows:
            for r in range(ROWS_AT_ONCE):
                local = rows.iv * ROWS_AT_ONCE + r
                if self._layout.minimum:
                    x = em.broadcast(em.load(self._row_sums, [step, local]), type)
                for side in range(2):
                    at: list[Index] = [row + local, weight * COLUMNS + side * SIDE]
                    total = em.vload(self._sums.data, at, type)
                    more = em.vload(self._products, [buffer, local, side * SIDE], type)
                    total = em.fma(more, factors[0][side], total)
                    if self._layout.minimum:
                        total = em.fma(x, factors[1][side], total)
                    em.vstore(total, self._sums.data, at)


def _configure(name: str, spec: ProductSpec, target: Target) -> tuple[Product, str] | None:
    product = panel_product(spec, "dequant_matmul")
    if product is None or are_single_rows(spec.x) or not splits(target, spec.element, None, product.k):
        return None
    return (product, spec.scheme) if has_integers(find_layout(spec.scheme, product.k)) else None


GENERATORS = (
    Generator(
        GEMM_AMX_F32,
        "gemm",
        _configure,
        lambda name, config, target: gemm_blocks(target, *config),
        switch=GEMM_AMX_F32,
        knobs=KNOBS,
    ),
)
