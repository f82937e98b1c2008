# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The schedule for gathers: entries of a table, dense or packed, and element-wise operations on what is read.

A thread makes one vector of the result, of 16 bytes where rows are of whole ones: it reads its index, then its part of
the entry, which it decodes where the table is packed. Neighbouring threads have neighbouring parts of a row, so tables
and results are read and written by whole lines.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rlx_mlir.codegen import UnsupportedByTemplate
from rlx_mlir.codegen.conversions import IN_F32
from rlx_mlir.codegen.emit import Index, Value, element_of, shape_of, vec
from rlx_mlir.codegen.gpu.emit import BITS, DeviceEmitter
from rlx_mlir.codegen.gpu.epilogue import Epilogue
from rlx_mlir.codegen.gpu.kernel import Constants, DeviceKernel, HostEmitter, write_sized_kernel
from rlx_mlir.codegen.gpu.packed_elements import FileRows, elements_of
from rlx_mlir.codegen.gpu.planes import QUAD, PlaneRows
from rlx_mlir.codegen.kernel import position_of
from rlx_mlir.codegen.specs import GatherSpec

THREADS = 128
"""Threads of a block: few, so that the row of one token is read by several multiprocessors."""


def emit_gather(
    name: str,
    spec: GatherSpec,
    chip: str,
    constants: Constants = frozenset(),
) -> DeviceKernel:
    """The kernel of a gather.

    Raises UnsupportedByTemplate for tables in panels, packed rows that aren't whole quads, and operations on elements
    that aren't floats, or on entries of several dimensions.
    """
    element = element_of(spec.results[0])
    em = DeviceEmitter(chip)
    packed = elements_of(em, spec.scheme, spec.layout, spec.k) if spec.scheme else None
    if spec.layout == "panels" or (packed is not None and spec.k % QUAD):
        raise UnsupportedByTemplate(f"{name}: a table in {spec.layout} with rows of {spec.k} elements has no schedule")
    if element not in BITS:
        raise UnsupportedByTemplate(f"{name}: tables of {element} have no schedule")
    computes = bool(spec.program.steps)
    if computes and (element not in IN_F32 or (packed is None and len(shape_of(spec.table)) != spec.axis + 2)):
        raise UnsupportedByTemplate(f"{name}: operations on entries of several dimensions, or of {element}")
    operands = [("table", spec.table), ("indices", spec.indices)]
    operands += [(f"arg{i}", type) for i, type in enumerate(spec.arguments)]
    results = [(f"out{i}", type) for i, type in enumerate(spec.results)]

    def grid(host: HostEmitter, sizes: _Sizes, lanes: int) -> Index:
        return host.iceildiv(sizes.rows * (sizes.columns // lanes), THREADS)

    return write_sized_kernel(
        em,
        name,
        "gather",
        operands,
        results,
        lambda host, buffers: _sizes(host, spec, buffers),
        lambda buffers, sizes, lanes: _Gather(em, spec, element, packed, buffers, sizes, lanes).run(),
        grid,
        threads=THREADS,
        symbol="gather",
        widths=lambda sizes: _vectors(sizes.columns, element, packed is not None),
        divisors=lambda sizes: [sizes.columns],
        constants=constants,
        order=spec.order,
    )


@dataclass(frozen=True)
class _Sizes:
    """The sizes that a kernel works with.

    Attributes:
        rows, columns: of the result, as [rows, columns].
        chosen: indices of each batch item.
        outer: entries of a batch item that each index chooses from all of.
        entries: of the table along the axis.
    """

    rows: Index
    columns: Index
    chosen: Index
    outer: Index
    entries: Index


def _vectors(columns: Index, element: str, packed: bool) -> tuple[int, ...]:
    """Elements that a thread makes: one number, or two where the host has to choose by the length of rows."""
    lanes = QUAD if packed else 128 // BITS[element]
    if not isinstance(columns, int):
        return (lanes, 1) if lanes > 1 else (1,)
    while columns % lanes:
        lanes //= 2
    return (lanes,)


def _sizes(em: HostEmitter, spec: GatherSpec, buffers: Sequence[Value]) -> _Sizes:
    table, indices = buffers[:2]
    outer = em.dims(table, range(spec.batch_dims, spec.axis))
    batch = em.dims(indices, range(spec.batch_dims))
    chosen = em.dims(indices, range(spec.batch_dims, len(shape_of(indices.type))))
    columns = spec.k if spec.scheme else em.dims(table, range(spec.axis + 1, len(shape_of(table.type))))
    return _Sizes(batch * outer * chosen, columns, chosen, outer, em.dim(table, spec.axis))


class _Gather:
    """Emits the vector of one thread."""

    def __init__(
        self,
        em: DeviceEmitter,
        spec: GatherSpec,
        element: str,
        packed: FileRows | PlaneRows | None,
        buffers: Sequence[Value],
        sizes: _Sizes,
        lanes: int,
    ) -> None:
        self.em, self.spec, self.element, self.packed = em, spec, element, packed
        count = 2 + len(spec.arguments)
        self.table, self.indices, *self.arguments = buffers[:count]
        self.outputs = list(buffers[count:])
        self.sizes, self.lanes = sizes, lanes

    def run(self) -> None:
        """The thread's vector, where it exists."""
        em, sizes = self.em, self.sizes
        number = em.wide(em.block()) * THREADS + em.wide(em.thread())
        per_row = sizes.columns // self.lanes
        count = em.wide(sizes.rows * per_row)
        with em.if_(em.cmpi("ult", number, count)):
            row = em.wide(number // per_row)
            column = em.wide(number % per_row * self.lanes)
            entry = self._entry(row)
            if self.packed is None and not self.spec.program.steps:
                self._copy(entry, row, column)
                return
            source = self._decoded(entry, column) if self.packed is not None else self._read(entry, column)
            epilogue = Epilogue(em, self.spec.program, self.element, self.arguments, self.outputs, sizes.columns)
            epilogue.store([source], row, column)

    def _entry(self, row: Value) -> Value:
        """The entry of the table [.., entries, columns] for a row of the result."""
        em, sizes, spec = self.em, self.sizes, self.spec
        if spec.axis == 0:
            return self._chosen(row)
        above, inside = row // sizes.chosen, row % sizes.chosen
        batch = above // sizes.outer if spec.batch_dims else 0
        place = em.wide(batch * sizes.chosen + inside)
        first = above * sizes.entries
        return em.wide(first + self._chosen(place))

    def _chosen(self, place: Value) -> Value:
        """An index, i64, inside of the table."""
        em, kind = self.em, element_of(self.spec.indices)
        index = em.ld(self.indices, kind, place)
        position = position_of(em, em.widen(index) if kind in ("f16", "bf16") else index)
        last = self.sizes.entries - 1
        return em.wide(em.imax(em.imin(position, last), 0))

    def _copy(self, entry: Value, row: Value, column: Value) -> None:
        em, columns, lanes = self.em, self.sizes.columns, self.lanes
        stored = "i8" if self.element == "i1" else self.element
        type = stored if lanes == 1 else vec(lanes, stored)
        source = entry * columns + column
        value = em.ld(self.table, type, source)
        for output in self.outputs:
            em.st(value, output, row * columns + column)

    def _read(self, entry: Value, column: Value) -> list[Value]:
        em, lanes = self.em, self.lanes
        type = self.element if lanes == 1 else vec(lanes, self.element)
        place = entry * self.sizes.columns + column
        return em.lanes(em.widen(em.ld(self.table, type, place)))

    def _decoded(self, entry: Value, column: Value) -> list[Value]:
        em = self.em
        assert self.packed is not None
        row = em.at(self.table, entry * self.packed.row_bytes, "i8")
        return self.packed.quad(row, em.short(column))
