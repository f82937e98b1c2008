# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Gathers: result [B, O, I, T] = table [B, O, N, T] at indices [B, I], copied entry by entry.

A unit is a block of about `UNIT` bytes of the result: of indices, and where these are few, of the parts of the table
that they choose from. Entries are copied by vectors; single numbers, where T is 1, one by one. Of several parts that
the same indices choose single numbers from, these are checked once. Long entries of large tables are fetched while the
ones before them are copied. Rows of a packed table are decoded block by block.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from rlx_mlir.codegen.emit import Emitter, Index, Value, element_of, shape_of, vec
from rlx_mlir.codegen.kernel import position_of
from rlx_mlir.codegen.specs import GatherSpec

from . import UnsupportedByTemplate
from .file_rows import FileRows
from .kernel import Scratch, write_kernel
from .registry import Generator
from .target import ELEMENT_BITS, Target, rounded

UNIT = 1 << 14
"""Bytes of a unit's results, about."""

UNKNOWN = 64
"""Numbers of an entry, where calls decide how many it has: units are made for so many."""

SINGLE_UNIT = 1 << 16
"""The same of single numbers that the same indices choose from several parts."""

LONG_ENTRY, LARGE_TABLE = 1 << 10, 1 << 22
"""Bytes of entries and of tables from which on the next entry is fetched, which a processor doesn't foresee."""

LINE = 64
"""Bytes that one prefetch brings."""

_FAR = float(1 << 62)
"""Beyond the positions of every table, and an f32."""


def configure(name: str, spec: GatherSpec, target: Target) -> GatherSpec:
    """The kernel as it is; UnsupportedByTemplate for operations on what is read, for elements without a width in bytes,
    and for packed tables that `FileRows` doesn't read, or in another order than that of files."""
    element = element_of(spec.table)
    if spec.program.steps:
        raise UnsupportedByTemplate(f"{name}: gathers with operations on entries have no template")
    if spec.scheme:
        rows = FileRows(target, spec.scheme)
        if spec.layout != "rows" or spec.k % rows.step:
            raise UnsupportedByTemplate(
                f"{name}: a table in {spec.layout} with rows of {spec.k} elements has no template"
            )
    elif element.removeprefix("u") not in ELEMENT_BITS:
        raise UnsupportedByTemplate(f"{name}: gathers of {element} have no template")
    return spec


def emit_gather(name: str, spec: GatherSpec, target: Target) -> str:
    """The functions `@name.body`, `@name.units` and `@name.scratch`, as text."""
    operands = [("table", spec.table), ("indices", spec.indices)]

    def body(em: Emitter, values: list[Value], outs: list[Value], begin: Value, end: Value, parts: Scratch) -> None:
        kernel = _Gather(em, spec, target, values)
        kernel.take_scratch(parts)
        kernel.open(outs[0])
        with em.loop(begin, end, hint="unit") as unit:
            kernel.run(unit.iv)

    return write_kernel(
        name,
        operands,
        [("out", spec.results[0])],
        units=lambda em, values: _Gather(em, spec, target, values).units,
        scratch=lambda em, values, parts: _Gather(em, spec, target, values).take_scratch(parts),
        body=body,
        order=spec.order,
    )


def entry_of(em: Emitter, index: Value, count: Index) -> Value:
    """A loaded index, i64, as one of the `count` entries that there are."""
    position = position_of(em, index)
    last = em.cast("arith.index_cast", em.index(count), "i64") - 1
    return em.binary("arith.maxsi", em.binary("arith.minsi", position, last), 0)


class _Gather:
    """The code of one kernel; see the module's docstring."""

    def __init__(self, em: Emitter, spec: GatherSpec, target: Target, values: Sequence[Value]) -> None:
        self.em = em
        self.table, self.indices = values
        self.element = element_of(spec.table)
        bits = ELEMENT_BITS[self.element.removeprefix("u")]
        # Integers without sign are turned into signless ones afterwards, but vectors of them.
        self.lanes = 1 if self.element.startswith("u") else target.vector_bits // bits
        batch = spec.batch_dims
        rank, indices_rank = len(shape_of(spec.table)), len(shape_of(spec.indices))
        self.outer = self._product(self.table, range(batch, spec.axis))
        self.count = self._product(self.indices, range(batch, indices_rank))
        self.entries = em.dim(self.table, spec.axis)
        self.columns = self._product(self.table, range(spec.axis + 1, rank))
        self.parts = self._product(self.indices, range(batch)) * self.outer
        self.is_batched = batch > 0
        self.rows = FileRows(target, spec.scheme) if spec.scheme else None
        self.target, self.k, self.result = target, spec.k, element_of(spec.results[0])
        self.width = bits // 8
        entry = (self.columns if isinstance(self.columns, int) else UNKNOWN) * self.width
        if self.rows is not None:
            entry = spec.k * ELEMENT_BITS[self.result] // 8
        self.most = max(UNIT // max(entry, 1), 1)
        """Indices of a unit, and entries."""
        self.blocks = em.iceildiv(self.count, self.most)
        fits = self.most // self.count if isinstance(self.count, int) and self.count else 0
        self.is_checked_once = fits > 0 and self.columns == 1 and self.parts != 1 and not self.is_batched
        """Whether the indices of a unit are looked at before its parts are."""
        self.high = max(fits * SINGLE_UNIT // UNIT if self.is_checked_once else fits, 1)
        """Parts of a unit."""
        known = isinstance(self.columns, int) and (
            not isinstance(self.entries, int) or self.entries * entry >= LARGE_TABLE
        )
        self.is_ahead = known and entry >= LONG_ENTRY
        """Whether entries are fetched beforehand."""

    def _product(self, buffer: Value, axes: range) -> Index:
        known = [self.em.dim(buffer, axis) for axis in axes]
        total: Index = math.prod(size for size in known if isinstance(size, int))
        for size in known:
            total = total if isinstance(size, int) else total * size
        return total

    @property
    def units(self) -> Index:
        """Blocks of indices, for each block of parts."""
        return self.em.iceildiv(self.parts, self.high) * self.blocks

    def take_scratch(self, parts: Scratch) -> None:
        """Memory for the indices of a unit, where they are checked once."""
        if self.is_checked_once:
            self.checked = parts.take([self.count], "i64", 8)

    def open(self, out: Value) -> None:
        """Says where results are."""
        self.table, self.indices, self.out = (self.em.flat(buffer) for buffer in (self.table, self.indices, out))

    def run(self, unit: Value) -> None:
        """One unit."""
        em = self.em
        first, begin = unit // self.blocks * self.high, unit % self.blocks * self.most
        last = first + 1 if self.high == 1 else em.imin(first + self.high, self.parts)
        end = em.imin(begin + self.most, self.count)
        if self.is_checked_once:
            with em.loop(0, self.count, hint="i") as i:
                em.store(em.cast("arith.index_cast", self._chosen(i.iv), "i64"), self.checked, [i.iv])
        with em.loop(first, last, hint="part") as part:
            batch = part.iv // self.outer if self.is_batched else 0
            source, target = part.iv * self.entries, part.iv * self.count
            with em.loop(begin, end, hint="i") as i:
                if self.is_checked_once:
                    entry = em.cast("arith.index_cast", em.load(self.checked, [i.iv]), "index")
                else:
                    entry = self._chosen(batch * self.count + i.iv)
                if self.rows is not None:
                    self._decode(self.rows, entry * self.columns, i.iv * self.k)
                else:
                    ahead = None
                    if self.is_ahead:
                        following = self._chosen(batch * self.count + em.imin(i.iv + 1, end - 1))
                        ahead = (source + following) * self.columns
                    self._copy((source + entry) * self.columns, (target + i.iv) * self.columns, ahead)

    def _chosen(self, place: Index) -> Value:
        """An index, inside of the table."""
        em = self.em
        chosen = em.cast("arith.index_cast", position_of(em, em.load(self.indices, [place])), "index")
        return em.binary("arith.maxsi", em.binary("arith.minsi", chosen, em.index(self.entries - 1)), em.index(0))

    def _decode(self, rows: FileRows, source: Index, target: Index) -> None:
        """One row of a packed table."""
        em, step = self.em, rows.step
        with em.loop(0, self.k // step, hint="block") as block:
            values = rows.elements(em, self.table, source + block.iv * rows.step_bytes)
            for number, value in enumerate(values):
                place = target + block.iv * step + number * rows.lanes
                em.vstore(rounded(em, self.target, value, self.result), self.out, [place])

    def _copy(self, source: Index, target: Index, ahead: Index | None) -> None:
        """One entry; the lines of the one at `ahead` are fetched on the way."""
        em, columns = self.em, self.columns
        whole = columns // self.lanes * self.lanes
        if not isinstance(whole, int) or whole:
            with em.loop(0, whole, self.lanes, hint="t") as t:
                if ahead is not None:
                    for byte in range(0, self.lanes * self.width, LINE):
                        em.prefetch(self.table, [ahead + t.iv + byte // self.width])
                self._piece(source + t.iv, target + t.iv, self.lanes)
        if not isinstance(whole, int) or not isinstance(columns, int):
            with em.loop(whole, columns, hint="t") as t:
                self._piece(source + t.iv, target + t.iv, 1)
            return
        lanes = self.lanes
        while whole < columns:
            lanes //= 2
            if whole + lanes <= columns:
                self._piece(source + whole, target + whole, lanes)
                whole += lanes

    def _piece(self, source: Index, target: Index, lanes: int) -> None:
        em = self.em
        if lanes == 1:
            em.store(em.load(self.table, [source]), self.out, [target])
        else:
            em.vstore(em.vload(self.table, [source], vec(lanes, self.element)), self.out, [target])


GENERATORS = (Generator("gather", "gather", configure, emit_gather),)
