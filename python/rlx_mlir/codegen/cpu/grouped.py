# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Products of rows with the weight of their expert: one unit is some columns of one expert, for all of its rows.

A unit lists the expert's rows of x, and goes through them in chunks. For each, the unit's columns of the weight are
copied to scratch, some of their rows at a time, and so are the rows of x that meet them, so that they lie one after the
other: as they stand, they are a row apart, which few sets of the cache would share. Tiles of rows and columns then
multiply what was copied, and add to sums in scratch. Few rows take the weight as it comes from memory.

**Lanes run over columns**; x and weights of f16 and bf16 are widened as they are copied. An expert without rows costs
the search for them.
"""

from __future__ import annotations

from collections.abc import Sequence

from rlx_mlir.codegen.conversions import IN_F32
from rlx_mlir.codegen.emit import Emitter, Index, Value, element_of, with_element
from rlx_mlir.codegen.specs import GroupedSpec, PackedGroupedSpec

from . import UnsupportedByTemplate
from .gather import entry_of
from .kernel import Scratch, add_products, listed_row, row_tiles, write_kernel
from .registry import Generator
from .target import Target, rounded

COLUMNS = 1024
"""Columns of a unit: of f32, each row of a weight has a page of memory for it."""

PART = 256
"""Columns of a weight that are copied at once."""

DEPTH = 128
"""Rows of a weight that are copied at once: those of a tile stay in a near cache while rows of x pass by."""

LINE = 16
"""Numbers of f32 in a line of a cache."""

STRIDE = DEPTH + 16
"""Numbers from one copied row of x to the next: powers of two would share few sets of the cache."""

CHUNK = 96
"""Rows of x whose sums are in scratch at once."""

FEW = 4
"""Rows of x from which on copying pays: fewer wait for memory anyway."""

STEPS = {32: 12, 16: 8}
"""Rows of a weight that few rows are multiplied with at once, by registers of vectors: sums are read and written for
each."""

AHEAD = 32
"""Rows of a weight that are asked for before they are read: each is in another page, where nothing foresees them."""


def emit_grouped(name: str, spec: GroupedSpec, target: Target) -> str:
    """The functions `@name.body`, `@name.units` and `@name.scratch`, as text.

    Raises UnsupportedByTemplate where elements aren't f32, f16 or bf16.
    """
    if element_of(spec.x) not in IN_F32:
        raise UnsupportedByTemplate(f"{name}: products by experts of {element_of(spec.x)} have no template")
    operands = [("x", spec.x), ("weight", spec.weight), ("expert", spec.expert)]

    def units(em: Emitter, values: list[Value]) -> Index:
        kernel = _Grouped(em, target, values)
        return kernel.experts * kernel.groups

    def scratch(em: Emitter, values: list[Value], parts: Scratch) -> None:
        _Grouped(em, target, values).take_scratch(parts)

    def body(em: Emitter, values: list[Value], outs: list[Value], begin: Value, end: Value, parts: Scratch) -> None:
        kernel = _Grouped(em, target, values)
        kernel.take_scratch(parts)
        with em.loop(begin, end, hint="unit") as unit:
            kernel.run(unit.iv, outs[0])

    results = [("out", spec.result)]
    return write_kernel(name, operands, results, units=units, scratch=scratch, body=body, order=spec.operand_order)


def list_rows(em: Emitter, chosen: Value, sizes: tuple[Index, Index], expert: Index, rows: Value) -> Value:
    """Lists the rows of an expert in `rows`, i64; how many there are.

    chosen: the expert of each row; sizes: how many rows and experts there are.
    """
    own = em.cast("arith.index_cast", em.index(expert), "i64")
    with em.loop(0, sizes[0], 1, em.index(0), hint="row") as row:
        em.store(em.cast("arith.index_cast", row.iv, "i64"), rows, [row.carry])
        is_own = em.cmpi("eq", entry_of(em, em.load(chosen, [row.iv]), sizes[1]), own)
        row.yield_(em.select(is_own, row.carry + 1, row.carry))
    return row.result


class _Grouped:
    """The code of one kernel; see the module's docstring."""

    def __init__(self, em: Emitter, target: Target, values: Sequence[Value]) -> None:
        self.em, self.target = em, target
        self.x, self.weight, self.expert = values
        self.rows, self.k = em.dim(self.x, 0), em.dim(self.x, 1)
        self.experts, self.n = em.dim(self.weight, 0), em.dim(self.weight, 2)
        self.type, self.lanes = target.vector("f32"), target.lanes("f32")
        # Sums, weights and one number fit the registers.
        many = target.registers == 32
        self.steps = STEPS[32 if many else 16]
        self.vectors = 4 if many else 2
        self.sizes: tuple[int, ...] = (6, 4, 2, 1) if many else (6, 2, 1)
        self.columns = self.vectors * self.lanes
        self.groups = em.iceildiv(self.n, COLUMNS)

    def take_scratch(self, parts: Scratch) -> None:
        """A thread's scratch: the numbers of an expert's rows, part of a weight and of those rows, sums."""
        self.list = parts.take([self.rows], "i64", 8)
        self.part = parts.take([PART // self.columns, DEPTH, self.columns], "f32")
        self.own = parts.take([CHUNK, STRIDE], "f32")
        self.sums = parts.take([CHUNK, COLUMNS], "f32")

    def run(self, unit: Index, out: Value) -> None:
        """Some columns of one expert."""
        em = self.em
        # Threads have ranges of units: in this order each has a part of every expert, of which few may have rows.
        expert, first = unit % self.experts, unit // self.experts * COLUMNS
        width = em.imin(self.n - first, COLUMNS)
        count = list_rows(em, self.expert, (self.rows, self.experts), expert, self.list)
        with em.loop(0, count, CHUNK, hint="chunk") as chunk:
            rows = em.imin(count - chunk.iv, CHUNK)
            with em.loop(0, rows, hint="row") as row, em.loop(0, width, self.lanes, hint="j") as j:
                em.vstore(em.zero(self.type), self.sums, [row.iv, j.iv])
            with em.if_(em.cmpi("ult", rows, FEW)) as branch:
                self._stream(expert, chunk.iv, rows, (first, width))
                branch.else_()
                with em.loop(0, self.k, DEPTH, hint="depth") as depth:
                    length = em.imin(self.k - depth.iv, DEPTH)
                    self._copy_rows(chunk.iv, rows, depth.iv, length)
                    with em.loop(0, width, PART, hint="part") as part:
                        self._multiply_part(expert, rows, (depth.iv, length), (first, part.iv, width))
            self._finish(chunk.iv, rows, (first, width), out)

    def _multiply_part(
        self, expert: Index, rows: Index, depths: tuple[Index, Index], columns: tuple[Index, Index, Index]
    ) -> None:
        """Copies part of a weight, and multiplies it.

        Args:
            depths: (the first row, how many).
            columns: (the unit's first, the part's among them, how many the unit has).
        """
        em = self.em
        (depth, length), (first, part, width) = depths, columns
        tiles = em.iceildiv(em.imin(width - part, PART), self.columns)
        self._copy_weight(expert, (depth, length), first + part, tiles)
        is_last = em.cmpi("uge", part + PART, width)
        after = em.select(is_last, depth + DEPTH, depth), em.select(is_last, first, first + part + PART)
        with em.loop(0, tiles, hint="tile") as tile:
            self._multiply(rows, length, (part, tile.iv), (expert, *after))

    def _mask(self, column: Index) -> Value | None:
        """Which lanes from a column on are columns of the result; None: all."""
        if isinstance(self.n, int) and self.n % self.columns == 0:
            return None
        return self.em.mask(self.em.imax(self.n - column, 0), self.lanes)

    def _weight(self, expert: Index, k: Index, column: Index) -> Value:
        """A vector of the weight, as f32; zeros beyond N."""
        em, type = self.em, with_element(self.type, element_of(self.weight.type))
        return self.target.widen(em, em.vload(self.weight, [expert, k, column], type, self._mask(column)))

    def _stream(self, expert: Index, chunk: Index, rows: Index, columns: tuple[Index, Index]) -> None:
        """Adds up the products of few rows as the weight comes from memory, some of its rows at once."""
        em = self.em
        first, width = columns

        def steps(begin: Index, end: Index, size: int) -> None:
            with em.loop(begin, end, size, hint="k") as k:
                with em.loop(0, width, LINE, hint="line") as line:
                    for i in range(size):
                        em.prefetch(self.weight, [expert, k.iv + i + AHEAD, first + line.iv])
                with em.loop(0, rows, hint="row") as row:
                    own = listed_row(em, self.list, chunk + row.iv)
                    factors = [self._spread(own, k.iv + i) for i in range(size)]
                    with em.loop(0, width, self.lanes, hint="j") as j:
                        total = em.vload(self.sums, [row.iv, j.iv], self.type)
                        for i, factor in enumerate(factors):
                            total = self.target.fma(em, factor, self._weight(expert, k.iv + i, first + j.iv), total)
                        em.vstore(total, self.sums, [row.iv, j.iv])

        whole = self.k - self.k % self.steps
        steps(0, whole, self.steps)
        steps(whole, self.k, 1)

    def _copy_weight(self, expert: Index, depths: tuple[Index, Index], first: Index, tiles: Index) -> None:
        """Rows of the weight, in tiles of columns, zeros beyond N."""
        em = self.em
        depth, length = depths
        with em.loop(0, length, hint="k") as k, em.loop(0, tiles, hint="tile") as tile:
            column = first + tile.iv * self.columns
            for x in range(self.vectors):
                if x * self.lanes % LINE == 0:
                    em.prefetch(self.weight, [expert, depth + k.iv + AHEAD, column + x * self.lanes])
                value = self._weight(expert, depth + k.iv, column + x * self.lanes)
                em.vstore(value, self.part, [tile.iv, k.iv, x * self.lanes])

    def _copy_rows(self, chunk: Index, rows: Index, depth: Index, length: Index) -> None:
        """Columns of the chunk's rows of x from `depth` on, as f32; zeros up to a whole vector."""
        em, type = self.em, with_element(self.type, element_of(self.x.type))
        with em.loop(0, rows, hint="row") as row:
            at = listed_row(em, self.list, chunk + row.iv)
            with em.loop(0, length, self.lanes, hint="k") as k:
                mask = em.mask(length - k.iv, self.lanes)
                value = self.target.widen(em, em.vload(self.x, [at, depth + k.iv], type, mask))
                em.vstore(value, self.own, [row.iv, k.iv])

    def _multiply(
        self, rows: Index, length: Index, place: tuple[Index, Index], after: tuple[Index, Index, Index]
    ) -> None:
        """What the copied rows of the weight add to the sums of a tile's columns, for the rows of a chunk.

        Meanwhile the part of the weight that is copied next comes from memory: (expert, row, column).
        """
        em = self.em
        part, tile = place
        expert, next_row, column = after
        own = [tile * self.columns + x * self.lanes for x in range(self.vectors)]
        places = [part + at for at in own]

        def add(first: Index, size: int) -> None:
            rows = [first + r for r in range(size)]
            sums = [[em.vload(self.sums, [row, place], self.type) for place in places] for row in rows]
            leads = em.cmpi("eq", first, 0)
            with em.loop(0, length, 1, sums, hint="k") as k:
                with em.if_(leads):
                    for at in own:
                        em.prefetch(self.weight, [expert, next_row + k.iv, column + at], locality=2)
                weights = [em.vload(self.part, [tile, k.iv, x * self.lanes], self.type) for x in range(self.vectors)]
                factors = (em.broadcast(em.load(self.own, [row, k.iv]), self.type) for row in rows)
                k.yield_(add_products(em, self.target, factors, weights, k.carry))
            for row, totals in zip(rows, k.result, strict=True):
                for place, total in zip(places, totals, strict=True):
                    em.vstore(total, self.sums, [row, place])

        row_tiles(em, rows, self.sizes, add)

    def _finish(self, chunk: Index, rows: Index, columns: tuple[Index, Index], out: Value) -> None:
        """The sums of a chunk, rounded, to where its rows are."""
        em = self.em
        first, width = columns
        with em.loop(0, rows, hint="row") as row, em.loop(0, width, self.lanes, hint="j") as j:
            at = listed_row(em, self.list, chunk + row.iv)
            place = first + j.iv
            value = rounded(em, self.target, em.vload(self.sums, [row.iv, j.iv], self.type), element_of(out.type))
            em.vstore(value, out, [at, place], self._mask(place))

    def _spread(self, row: Index, k: Index) -> Value:
        """An element of x in all lanes."""
        em = self.em
        return em.broadcast(self.target.widen(em, em.load(self.x, [row, k])), self.type)


def _configure(name: str, spec: GroupedSpec | PackedGroupedSpec, target: Target) -> GroupedSpec | None:
    return spec if isinstance(spec, GroupedSpec) else None


GENERATORS = (Generator("grouped", "grouped", _configure, emit_grouped),)
