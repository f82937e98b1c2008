# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Transposes that move the last axis: one unit is a band of the input's columns, for all rows of one matrix.

The input's last axis (columns) and the result's last axis (rows) make matrices; the other axes number them. Squares of
as many vectors as a vector has elements are turned in registers: vectors are read along the columns, and after log2 of
their number rounds of interleaving written along the rows. Two squares below each other are done one after the other,
so that whole lines of the result are written; a band is as wide as a few lines of the input. What is left at the edges
goes element by element.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rlx_mlir.codegen.emit import Emitter, Index, Value, element_of, shape_of, vec
from rlx_mlir.codegen.specs import MoveSpec

from . import UnsupportedByTemplate
from .gemm import transpose
from .kernel import Scratch, row_tiles, write_kernel
from .registry import Generator
from .target import Target

__all__ = ["emit_transpose"]

BAND = 4
"""Vectors of a band."""

LARGEST = 16
"""Vectors of a square, at most: they are in registers all at once."""

_BITS = {"f64": 64, "i64": 64, "f32": 32, "i32": 32, "f16": 16, "bf16": 16, "i16": 16}


def configure(name: str, spec: MoveSpec, target: Target) -> MoveSpec | None:
    """The kernel as it is; None for what copies runs, UnsupportedByTemplate for elements of 8 bits, and others that
    vectors don't have."""
    if spec.op != "transpose" or spec.permutation[-1] == len(spec.permutation) - 1:
        return None
    if element_of(spec.result) not in _BITS:
        raise UnsupportedByTemplate(f"{name}: transposes of {element_of(spec.result)} have no template")
    return spec


def emit_transpose(name: str, spec: MoveSpec, target: Target) -> str:
    """The functions `@name.body`, `@name.units` and `@name.scratch`, as text."""

    def units(em: Emitter, values: list[Value]) -> Index:
        return _Transpose(em, spec, target, values[0]).units

    def body(em: Emitter, values: list[Value], outs: list[Value], begin: Value, end: Value, parts: Scratch) -> None:
        kernel = _Transpose(em, spec, target, values[0])
        with em.loop(begin, end, hint="unit") as unit:
            kernel.run(unit.iv, outs[0])

    operands, results = [("x", spec.inputs[0])], [("result", spec.result)]
    return write_kernel(name, operands, results, units=units, body=body, order=spec.order)


class _Transpose:
    """The code of one kernel; see the module's docstring."""

    def __init__(self, em: Emitter, spec: MoveSpec, target: Target, x: Value) -> None:
        self.em, self.x, self.permutation = em, x, spec.permutation
        element = element_of(x.type)
        self.lanes = min(target.vector_bits // _BITS[element], LARGEST)
        self.type = vec(self.lanes, element)
        self.columns_axis, self.rows_axis = len(shape_of(x.type)) - 1, spec.permutation[-1]
        self.sizes = [em.dim(x, axis) for axis in range(len(shape_of(x.type)))]
        self.outer = [axis for axis in range(self.columns_axis) if axis != self.rows_axis]
        self.bands = em.iceildiv(self.sizes[self.columns_axis], BAND * self.lanes)

    @property
    def units(self) -> Index:
        """Bands of all matrices."""
        total = self.bands
        for axis in self.outer:
            total = total * self.sizes[axis]
        return total

    def run(self, unit: Value, out: Value) -> None:
        """One band."""
        em, lanes = self.em, self.lanes
        first = (unit % self.bands) * (BAND * lanes)
        at: dict[int, Index] = {}
        rest = unit // self.bands
        for axis in reversed(self.outer):
            at[axis], rest = rest % self.sizes[axis], rest // self.sizes[axis]
        rows, columns = self.sizes[self.rows_axis], self.sizes[self.columns_axis]
        end = em.imin(columns, first + BAND * lanes)
        vectors = (end - first) // lanes
        whole = first + vectors * lanes

        def squares(number: Index, count: int) -> None:
            with em.loop(0, vectors, hint="v") as v:
                for below in range(count):
                    self._square(at, (number + below) * lanes, first + v.iv * lanes, out)

        row_tiles(em, rows // lanes, (2, 1), squares)
        self._elements(at, (0, rows), (whole, end), out)
        self._elements(at, (rows // lanes * lanes, rows), (first, whole), out)

    def _source(self, at: Mapping[int, Index], row: Index, column: Index) -> list[Index]:
        """Where an element of a matrix is in the input."""
        own = {**at, self.rows_axis: row, self.columns_axis: column}
        return [own[axis] for axis in range(len(self.sizes))]

    def _target(self, source: Sequence[Index]) -> list[Index]:
        """Where it is in the result."""
        return [source[axis] for axis in self.permutation]

    def _square(self, at: Mapping[int, Index], row: Index, column: Index, out: Value) -> None:
        em, lanes = self.em, self.lanes
        values = [em.vload(self.x, self._source(at, row + i, column), self.type) for i in range(lanes)]
        for i, value in enumerate(transpose(em, values)):
            em.vstore(value, out, self._target(self._source(at, row, column + i)))

    def _elements(
        self, at: Mapping[int, Index], rows: tuple[Index, Index], columns: tuple[Index, Index], out: Value
    ) -> None:
        em = self.em
        with em.loop(*columns, hint="column") as column, em.loop(*rows, hint="row") as row:
            source = self._source(at, row.iv, column.iv)
            em.store(em.load(self.x, source), out, self._target(source))


GENERATORS = (Generator("transpose", "move", configure, emit_transpose),)
