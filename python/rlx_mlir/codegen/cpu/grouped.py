# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Products of rows with the weight of their expert: one unit is some columns of one expert, for all of its rows.

A unit lists the expert's rows of x, and takes them a few at a time, in tiles whose sums stay in registers: a weight is
A unit lists the expert's rows of x, and takes them a few at a time, in tiles whose sums stay in registers: a weight is
widened as they are read. An expert without rows costs the search for them.
"""

from __future__ import annotations

from collections.abc import Sequence

from rlx_mlir.codegen.emit import Emitter, Index, Value, element_of, with_element
from rlx_mlir.codegen.specs import GroupedSpec

from . import UnsupportedByTemplate
from .kernel import Scratch, add_products, row_tiles, write_kernel
from .registry import Generator, as_it_is
from .target import Target, rounded

__all__ = ["emit_grouped"]

TILES = 4
"""Tiles of columns in a unit: the list of rows serves all of them."""

AHEAD = 16
"""Rows of a weight that are asked for before they are read: each is in another page, where nothing foresees them."""

#: Beyond the number of any expert, and an f32.
_FAR = float(1 << 62)


def emit_grouped(name: str, spec: GroupedSpec, target: Target) -> str:
    """The functions `@name.body`, `@name.units` and `@name.scratch`, as text.

    Raises UnsupportedByTemplate where elements aren't f32, f16 or bf16.
    """
    if element_of(spec.x) not in ("f32", "f16", "bf16"):
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


class _Grouped:
    """The code of one kernel; see the module's docstring."""

    def __init__(self, em: Emitter, target: Target, values: Sequence[Value]) -> None:
        self.em, self.target = em, target
        self.x, self.weight, self.expert = values
        self.rows, self.k = em.dim(self.x, 0), em.dim(self.x, 1)
        self.experts, self.n = em.dim(self.weight, 0), em.dim(self.weight, 2)
        self.type, self.lanes = target.vector("f32"), target.lanes("f32")
        self.columns = 2 * self.lanes
        self.groups = em.iceildiv(self.n, self.columns * TILES)
        # Two vectors of columns: sums, weights and one number fit the registers.
        self.sizes = (12, 4, 1) if target.registers == 32 else (6, 2, 1)

    def take_scratch(self, parts: Scratch) -> None:
        """A thread's scratch: the numbers of an expert's rows."""
        self.list = parts.take([self.rows], "i64", 8)

    def run(self, unit: Index, out: Value) -> None:
        """Some columns of one expert."""
        em = self.em
        expert, group = unit // self.groups, unit % self.groups
        count = self._find(expert)
        with em.if_(em.cmpi("ne", count, 0)):
            first = group * (self.columns * TILES)
            end = em.imin(first + self.columns * TILES, self.n)
            whole = first + (end - first) // self.columns * self.columns
            with em.loop(first, whole, self.columns, hint="j") as j:
                self._columns(expert, count, j.iv, None, out)
            if not isinstance(self.n, int) or self.n % self.columns:
                with em.if_(em.cmpi("ult", whole, end)):
                    self._columns(expert, count, whole, end - whole, out)

    def _find(self, expert: Index) -> Value:
        """Lists the rows of an expert; how many there are."""
        em = self.em
        own = em.cast("arith.index_cast", em.index(expert), "i64")
        with em.loop(0, self.rows, 1, em.index(0), hint="row") as row:
            em.store(em.cast("arith.index_cast", row.iv, "i64"), self.list, [row.carry])
            is_own = em.cmpi("eq", self._chosen(row.iv), own)
            row.yield_(em.select(is_own, row.carry + 1, row.carry))
        return row.result

    def _chosen(self, row: Value) -> Value:
        """The expert of a row, i64: without its fraction, one of those that there are; NaN is 0."""
        em, kind = self.em, element_of(self.expert.type)
        index = em.load(self.expert, [row])
        if kind == "f32":
            positive = em.select(em.cmpf("ogt", index, 0.0), index, 0.0)
            index = em.cast("arith.fptosi", em.minimumf(positive, _FAR), "i64")
        elif kind != "i64":
            index = em.cast("arith.extsi", index, "i64")
        last = em.cast("arith.index_cast", em.index(self.experts), "i64") - 1
        return em.binary("arith.maxsi", em.binary("arith.minsi", index, last), 0)

    def _columns(self, expert: Index, count: Index, column: Index, left: Index | None, out: Value) -> None:
        """Two vectors of columns, of which `left` exist (None: all), for all rows of the list."""
        em = self.em
        places = [column, column + self.lanes]
        masks = None
        if left is not None:
            masks = [em.mask(em.imax(left - x * self.lanes, 0), self.lanes) for x in range(2)]
        type = with_element(self.type, element_of(self.weight.type))

        def weights(k: Index) -> list[Value]:
            at = [[expert, k, place] for place in places]
            if masks is None:
                found = [em.vload(self.weight, own, type) for own in at]
            else:
                zero = em.zero(type)
                found = [em.masked_load(self.weight, own, m, zero) for own, m in zip(at, masks, strict=True)]
            return [self.target.widen(em, vector) for vector in found]

        def tile(first: Index, size: int) -> None:
            listed = [em.load(self.list, [first + r]) for r in range(size)]
            rows = [em.cast("arith.index_cast", number, "index") for number in listed]
            zeros = [[em.zero(self.type)] * 2] * size
            with em.loop(0, self.k, 1, zeros, hint="k") as k:
                em.prefetch(self.weight, [expert, k.iv + AHEAD, column])
                factors = (self._spread(row, k.iv) for row in rows)
                k.yield_(add_products(em, self.target, factors, weights(k.iv), k.carry))
            for row, sums in zip(rows, k.result, strict=True):
                for x, total in enumerate(sums):
                    value = rounded(em, self.target, total, element_of(out.type))
                    if masks is None:
                        em.vstore(value, out, [row, places[x]])
                    else:
                        em.masked_store(value, out, [row, places[x]], masks[x])

        row_tiles(em, count, self.sizes, tile)

    def _spread(self, row: Index, k: Index) -> Value:
        """An element of x in all lanes."""
        em = self.em
        return em.broadcast(self.target.widen(em, em.load(self.x, [row, k])), self.type)


GENERATORS = (Generator("grouped", "grouped", as_it_is, emit_grouped),)
