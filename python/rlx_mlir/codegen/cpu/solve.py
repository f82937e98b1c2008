# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Systems of linear equations: one unit is one batch item, **lanes run along rows**.

A unit copies matrix and right sides side by side into its scratch, [n, columns], and eliminates there, a block of
columns at a time:

1. The block's own columns, one after the other: the pivot is searched, rows are exchanged, and multiples of the pivot's
   row are taken from the rows below, in the block's columns alone. What they are multiplied by stays in their place.
2. The rows of the block, in all columns behind it.
3. All rows below, in tiles that stay in registers for the whole block: here is the work, n^3 / 3 products.

Right sides are columns as others. Substitution then goes from the last row to the first.

A pivot of 0 counts as NaN, by which everything that is divided becomes NaN, and in the end all of the solution.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from rlx_mlir.codegen.emit import Emitter, Index, Value, element_of, shape_of, with_element
from rlx_mlir.codegen.specs import SolveSpec

from .kernel import Scratch, row_tiles, write_kernel
from .registry import Generator, as_it_is
from .target import Target

BLOCK = 8
"""Columns of a block, at least: they are whole vectors."""

ROWS = (4, 1)
"""Rows of a tile: with two vectors of columns, 8 of 16 registers hold sums."""


def emit_solve(name: str, spec: SolveSpec, target: Target) -> str:
    """The functions `@name.body`, `@name.units` and `@name.scratch`, as text."""
    operands, results = [("a", spec.a), ("b", spec.b)], [("x", spec.result)]

    def units(em: Emitter, values: list[Value]) -> Index:
        return _Solve(em, target, values).batch

    def scratch(em: Emitter, values: list[Value], parts: Scratch) -> None:
        _Solve(em, target, values).take_scratch(parts)

    def body(em: Emitter, values: list[Value], outs: list[Value], begin: Value, end: Value, parts: Scratch) -> None:
        kernel = _Solve(em, target, values)
        kernel.take_scratch(parts)
        with em.loop(begin, end, hint="item") as item:
            kernel.run(item.iv, outs[0])

    return write_kernel(name, operands, results, units=units, scratch=scratch, body=body, order=spec.operand_order)


class _Solve:
    """The code of one kernel; see the module's docstring."""

    def __init__(self, em: Emitter, target: Target, values: Sequence[Value]) -> None:
        self.em, self.target = em, target
        self.a, self.b = values
        element = element_of(self.a.type)
        self.lanes, self.type, self.element = target.lanes(element), target.vector(element), element
        self.width = max(BLOCK // self.lanes, 1)
        """Vectors of a block."""
        self.block = self.width * self.lanes
        self.batched = len(shape_of(self.a.type)) == 3
        self.batch: Index = em.dim(self.a, 0) if self.batched else 1
        self.n = em.dim(self.a, len(shape_of(self.a.type)) - 1)
        lead = 2 if self.batched else 1
        self.sides: Index | None = em.dim(self.b, lead) if len(shape_of(self.b.type)) > lead else None
        # Columns of zeros make blocks whole, so that right sides begin a vector.
        self.first_side = em.iceildiv(self.n, self.block) * self.block
        self.columns = self.first_side + em.iceildiv(self._sides, self.lanes) * self.lanes

    @property
    def _sides(self) -> Index:
        return 1 if self.sides is None else self.sides

    def take_scratch(self, parts: Scratch) -> None:
        """A thread's scratch: one system. Rows a power of two apart would share few sets of the cache."""
        bytes_of = 8 if self.element == "f64" else 4
        self.rows = parts.take([self.n, self.columns + 64 // bytes_of], self.element, bytes_of)

    # Memory ---------------------------------------------------------------------------------------

    def _load(self, row: Index, column: Index) -> Value:
        return self.em.vload(self.rows, [row, column], self.type)

    def _store(self, value: Value, row: Index, column: Index) -> None:
        self.em.vstore(value, self.rows, [row, column])

    def _spread(self, row: Index, column: Index) -> Value:
        """One number in all lanes."""
        return self.em.broadcast(self.em.load(self.rows, [row, column]), self.type)

    def _less(self, total: Value, factor: Value, x: Value) -> Value:
        """total - factor x"""
        return self.target.fma(self.em, -factor, x, total)

    def _side_at(self, item: Index, row: Index, side: Index) -> list[Index]:
        """Where a right side, or a solution, stands in its buffer."""
        lead = [item] if self.batched else []
        return [*lead, row] if self.sides is None else [*lead, row, side]

    # The steps ------------------------------------------------------------------------------------

    def run(self, item: Index, out: Value) -> None:
        """One system."""
        em = self.em
        self._copy(item)
        with em.loop(0, self.n, self.block, hint="block") as block:
            first, count = block.iv, em.imin(self.n - block.iv, self.block)
            with em.loop(0, count, hint="column") as column:
                self._eliminate(first, column.iv)
            behind = first + self.block
            with em.loop(behind, self.columns, self.lanes, hint="j") as j:
                self._finish_rows(first, count, j.iv)
            self._update(first, behind)
        self._substitute()
        with em.loop(0, self.n, hint="row") as row, em.loop(0, self._sides, self.lanes, hint="side") as side:
            mask = em.mask(self._sides - side.iv, self.lanes)
            value = self._load(row.iv, self.first_side + side.iv)
            em.masked_store(value, out, self._side_at(item, row.iv, side.iv), mask)

    def _copy(self, item: Index) -> None:
        """The matrix, and the right sides behind it; zeros between and behind them."""
        em = self.em
        lead = [item] if self.batched else []
        zero = em.zero(self.type)
        with em.loop(0, self.n, hint="row") as row:
            with em.loop(0, self.first_side, self.lanes, hint="j") as j:
                mask = em.mask(em.imax(self.n - j.iv, 0), self.lanes)
                self._store(em.masked_load(self.a, [*lead, row.iv, j.iv], mask, zero), row.iv, j.iv)
            with em.loop(0, self._sides, self.lanes, hint="side") as side:
                mask = em.mask(self._sides - side.iv, self.lanes)
                value = em.masked_load(self.b, self._side_at(item, row.iv, side.iv), mask, zero)
                self._store(value, row.iv, self.first_side + side.iv)

    def _eliminate(self, first: Index, place: Value) -> None:
        """Column `place` of the block that begins with column `first`."""
        em = self.em
        k = place + first
        self._exchange(k, self._pivot(k))
        pivot = em.load(self.rows, [k, k])
        divisor = em.select(em.cmpf("oeq", pivot, 0.0), math.nan, pivot)
        em.store(divisor, self.rows, [k, k])
        numbers = with_element(self.type, "i32")
        at = em.broadcast(em.cast("arith.index_cast", place, "i32"), numbers)
        behind = []  # the pivot's row, zeros up to the pivot
        for x in range(self.width):
            lanes = em.const(list(range(x * self.lanes, (x + 1) * self.lanes)), numbers)
            own = self._load(k, first + x * self.lanes)
            behind.append(em.select(em.cmpi("sgt", lanes, at), own, em.zero(self.type)))
        with em.loop(k + 1, self.n, hint="row") as row:
            factor = em.load(self.rows, [row.iv, k]) / divisor
            spread = em.broadcast(factor, self.type)
            for x, own in enumerate(behind):
                column = first + x * self.lanes
                self._store(self._less(self._load(row.iv, column), spread, own), row.iv, column)
            em.store(factor, self.rows, [row.iv, k])

    def _pivot(self, k: Index) -> Value:
        """The row, from k on, with the largest element in column k: the first of equal ones, never NaN."""
        em = self.em
        start = (em.const(-1.0, self.element), em.index(k))
        with em.loop(k, self.n, 1, start, hint="row") as row:
            best, at = row.carry
            size = em.unary("math.absf", em.load(self.rows, [row.iv, k]))
            wins = em.cmpf("ogt", size, best)
            row.yield_((em.select(wins, size, best), em.select(wins, row.iv, at)))
        return row.result[1]

    def _exchange(self, k: Index, other: Value) -> None:
        em = self.em
        with em.if_(em.cmpi("ne", other, k)), em.loop(0, self.columns, self.lanes, hint="j") as j:
            mine, theirs = self._load(k, j.iv), self._load(other, j.iv)
            self._store(theirs, k, j.iv)
            self._store(mine, other, j.iv)

    def _finish_rows(self, first: Index, count: Index, column: Index) -> None:
        """The rows of the block, in one vector of columns behind it."""
        em = self.em
        with em.loop(1, count, hint="row") as row:
            at = row.iv + first
            with em.loop(0, row.iv, 1, self._load(at, column), hint="above") as above:
                factor = self._spread(at, above.iv + first)
                above.yield_(self._less(above.carry, factor, self._load(above.iv + first, column)))
            self._store(above.result, at, column)

    def _update(self, first: Index, behind: Index) -> None:
        """All rows below a block, in all columns behind it; where there are such rows, the block is whole."""
        em = self.em
        pairs = (self.columns - behind) // (2 * self.lanes)

        def tile(row: Index, count: int) -> None:
            with em.loop(0, pairs, hint="pair") as pair:
                self._tile(first, row, count, behind + pair.iv * (2 * self.lanes), 2)
            with em.loop(behind + pairs * (2 * self.lanes), self.columns, self.lanes, hint="j") as j:
                self._tile(first, row, count, j.iv, 1)

        # The last block has columns beyond n, and no row below it.
        row_tiles(em, em.imax(self.n, behind), ROWS, tile, done=behind)

    def _tile(self, first: Index, row: Index, count: int, column: Index, vectors: int) -> None:
        places = [column + x * self.lanes for x in range(vectors)]
        sums = [[self._load(row + r, place) for place in places] for r in range(count)]
        for k in range(self.block):
            above = [self._load(first + k, place) for place in places]
            for r, own in enumerate(sums):
                factor = self._spread(row + r, first + k)
                sums[r] = [self._less(total, factor, x) for total, x in zip(own, above, strict=True)]
        for r, own in enumerate(sums):
            for place, total in zip(places, own, strict=True):
                self._store(total, row + r, place)

    def _substitute(self) -> None:
        """From the last row to the first: what is known already is taken away, and divided by the pivot."""
        em = self.em
        with (
            em.loop(self.first_side, self.columns, self.lanes, hint="side") as side,
            em.loop(0, self.n, hint="t") as t,
        ):
            k = self.n - 1 - t.iv
            with em.loop(k + 1, self.n, 1, self._load(k, side.iv), hint="j") as j:
                j.yield_(self._less(j.carry, self._spread(k, j.iv), self._load(j.iv, side.iv)))
            self._store(j.result / self._spread(k, k), k, side.iv)


GENERATORS = (Generator("solve", "solve", as_it_is, emit_solve),)
