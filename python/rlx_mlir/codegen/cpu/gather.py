# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Gathers: result [B, O, I, T] = table [B, O, N, T] at indices [B, I], copied entry by entry.

A unit is a block of about `UNIT` bytes of the result: of indices, and where these are few, of the parts of the table
that they choose from. Entries are copied by vectors. Those of large tables are fetched while the ones before them are
copied, and results that are larger than caches go to memory past them. Single numbers, where T is 1, are put together
in registers of 128 bits, by indices that were checked before: of several parts, once for all. Rows of a packed table
are decoded block by block.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from rlx_mlir.codegen.emit import Emitter, Index, Value, element_of, shape_of, vec
from rlx_mlir.codegen.kernel import position_of
from rlx_mlir.codegen.specs import GatherSpec

from . import UnsupportedByTemplate
from .copies import copy_run
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

AHEAD, LARGE_TABLE = 1 << 11, 1 << 22
"""Bytes of results that entries are fetched ahead of, and bytes of tables from which on they are: a processor doesn't
foresee them, and waits for one short entry after the other."""

STREAMED, LONG_ENTRY = 1 << 25, 1 << 10
"""Bytes of results from which on they pass by the caches, which don't hold them: a line that is written whole needn't
be read first. The lines at both ends of an entry are those of others, too: it has at least so many bytes."""

TOGETHER = 4
"""Registers of single numbers side by side."""

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
        kernel.close()

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
        self.outer = em.dims(self.table, range(batch, spec.axis))
        self.count = em.dims(self.indices, range(batch, indices_rank))
        self.entries = em.dim(self.table, spec.axis)
        self.columns = em.dims(self.table, range(spec.axis + 1, rank))
        self.parts = em.dims(self.indices, range(batch)) * self.outer
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
        self.is_single = self.columns == 1
        """Whether entries are single numbers, and indices are looked at before them."""
        is_shared = self.is_single and self.parts != 1 and not self.is_batched
        self.high = max(fits * SINGLE_UNIT // UNIT if is_shared else fits, 1)
        """Parts of a unit."""
        self.checked_type = "i32" if element_of(spec.indices) == "i32" else "i64"
        is_large = not isinstance(self.entries, int) or self.entries * entry >= LARGE_TABLE
        is_known = isinstance(self.columns, int) and not self.is_single
        self.ahead = max(AHEAD // max(entry, 1), 1) if is_known and is_large else 0
        """How many entries before they are copied entries are fetched; 0 where they aren't."""
        known = [size for size in (self.entries, self.count) if isinstance(size, int)]
        self.is_next_read = is_shared and len(known) == 2 and known[0] <= known[1]
        """Whether single numbers are probably of all lines of a part, and then of the next one."""
        self.may_stream = target.x86 and is_known and entry >= LONG_ENTRY and self.lanes > 1 and self.rows is None

    @property
    def units(self) -> Index:
        """Blocks of indices, for each block of parts."""
        return self.em.iceildiv(self.parts, self.high) * self.blocks

    def take_scratch(self, parts: Scratch) -> None:
        """Memory for the indices of a unit, where they are checked before numbers are read."""
        if self.is_single:
            most = min(self.count, self.most) if isinstance(self.count, int) else self.most
            self.checked = parts.take([most], self.checked_type, ELEMENT_BITS[self.checked_type] // 8)

    def open(self, out: Value) -> None:
        """Says where results are, and whether they pass by the caches."""
        em = self.em
        self.table, self.indices, self.out = (em.flat(buffer) for buffer in (self.table, self.indices, out))
        self.is_streamed: Value | None = None
        size = self.parts * self.count * self.columns * self.width
        if self.may_stream and (not isinstance(size, int) or size >= STREAMED):
            self.is_streamed = em.cmpi("sge", em.index(size), STREAMED)
            self.address = em.address(self.out)

    def close(self) -> None:
        """After the last unit: lines that passed by the caches are there for all before a later store is."""
        if self.is_streamed is not None:
            with self.em.if_(self.is_streamed):
                self.em.fence_streams()

    def run(self, unit: Value) -> None:
        """One unit."""
        em = self.em
        first, begin = unit // self.blocks * self.high, unit % self.blocks * self.most
        last = first + 1 if self.high == 1 else em.imin(first + self.high, self.parts)
        end = em.imin(begin + self.most, self.count)
        if self.is_single and not self.is_batched:
            self._check(begin, end, 0)
        with em.loop(first, last, hint="part") as part:
            batch = part.iv // self.outer if self.is_batched else 0
            if self.is_single:
                if self.is_batched:
                    self._check(begin, end, batch * self.count)
                self._numbers(part.iv * self.entries, part.iv * self.count + begin, end - begin)
            elif self.is_streamed is None:
                self._entries(part.iv, batch * self.count, begin, end)
            else:
                with em.if_(self.is_streamed) as branch:
                    self._entries(part.iv, batch * self.count, begin, end, streamed=True)
                    branch.else_()
                    self._entries(part.iv, batch * self.count, begin, end)

    def _entries(self, part: Value, indices: Index, begin: Index, end: Index, *, streamed: bool = False) -> None:
        """The entries of one part that some of the indices choose, which begin at `indices`."""
        em = self.em
        source, target = part * self.entries, part * self.count
        with em.loop(begin, end, hint="i") as i:
            entry = self._chosen(indices + i.iv)
            if self.rows is not None:
                self._decode(self.rows, entry * self.columns, i.iv * self.k)
            else:
                ahead = None
                if self.ahead:
                    following = self._chosen(indices + em.imin(i.iv + self.ahead, end - 1))
                    ahead = (source + following) * self.columns
                copy = self._stream if streamed else self._copy
                copy((source + entry) * self.columns, (target + i.iv) * self.columns, ahead)

    def _chosen(self, place: Index) -> Value:
        """An index, inside of the table."""
        em = self.em
        chosen = em.cast("arith.index_cast", position_of(em, em.load(self.indices, [place])), "index")
        return em.binary("arith.maxsi", em.binary("arith.minsi", chosen, em.index(self.entries - 1)), em.index(0))

    # -- single numbers -----------------------------------------------------------------------------------------------

    def _check(self, begin: Index, end: Index, indices: Index) -> None:
        """Writes some of the indices, inside of the table, to scratch; vectors of them where that is the same type."""
        em, kind = self.em, self.checked_type
        last = em.imax(self.entries, 1) - 1
        if kind == "i32":
            last = em.imin(last, 2**31 - 1)
        most = em.cast("arith.index_cast", em.index(last), kind)
        lanes = self.target.lanes(kind)

        def inside(found: Value) -> Value:
            bound = most if found.type == kind else em.broadcast(most, found.type)
            return em.binary("arith.maxsi", em.binary("arith.minsi", found, bound), 0)

        whole = begin
        if element_of(self.indices.type) == kind:
            whole = begin + (end - begin) // lanes * lanes
            with em.loop(begin, whole, lanes, hint="i") as i:
                found = em.vload(self.indices, [indices + i.iv], vec(lanes, kind))
                em.vstore(inside(found), self.checked, [i.iv - begin])
        with em.loop(whole, end, hint="i") as i:
            found = em.load(self.indices, [indices + i.iv])
            em.store(inside(found if found.type == kind else position_of(em, found)), self.checked, [i.iv - begin])

    def _numbers(self, source: Index, target: Index, count: Index) -> None:
        """So many numbers of the part that begins at `source`, by checked indices."""
        em = self.em
        lanes = 1 if self.lanes == 1 else 128 // (self.width * 8)
        step = lanes * TOGETHER

        def number(place: Index) -> Value:
            chosen = em.load(self.checked, [place])
            return em.load(self.table, [source + em.cast("arith.index_castui", chosen, "index")])

        whole: Index = 0
        if lanes > 1:
            whole = count // step * step
            with em.loop(0, whole, step, hint="i") as i:
                # The next part is mostly the next one in memory.
                for byte in range(0, step * self.width if self.is_next_read else 0, LINE):
                    em.prefetch(self.table, [source + self.entries + i.iv + byte // self.width])
                for at in range(0, step, lanes):
                    numbers = [number(i.iv + (at + lane)) for lane in range(lanes)]
                    em.vstore(em.vector(numbers), self.out, [target + i.iv + at])
        with em.loop(whole, count, hint="i") as rest:
            em.store(number(rest.iv), self.out, [target + rest.iv])

    # -- longer entries -----------------------------------------------------------------------------------------------

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
        fetch = functools.partial(self._fetch, ahead)
        copy_run(self.em, (self.table, source), (self.out, target), self.columns, self.lanes, fetch)

    def _stream(self, source: Index, target: Index, ahead: Index | None) -> None:
        """The same past the caches, but for vectors that aren't whole between two multiples of their bytes."""
        em, lanes, columns = self.em, self.lanes, self.columns
        kind, size = vec(lanes, self.element), lanes * self.width
        first = (0 - (self.address + target * self.width)) % size // self.width

        def part(begin: Index, count: Index) -> None:
            mask = em.mask(count, lanes)
            em.vstore(em.vload(self.table, [source + begin], kind, mask), self.out, [target + begin], mask)

        part(0, first)
        whole = first + (columns - first) // lanes * lanes
        with em.loop(first, whole, lanes, hint="t") as t:
            self._fetch(ahead, t.iv, lanes)
            em.stream(em.vload(self.table, [source + t.iv], kind), self.out, [target + t.iv], size)
        part(whole, columns - whole)

    def _fetch(self, ahead: Index | None, first: Index, count: int) -> None:
        """Asks for the lines of so many numbers from the `first` one of an entry on."""
        if ahead is None:
            return
        for byte in range(0, count * self.width, LINE):
            self.em.prefetch(self.table, [ahead + first + byte // self.width])


GENERATORS = (Generator("gather", "gather", configure, emit_gather),)
