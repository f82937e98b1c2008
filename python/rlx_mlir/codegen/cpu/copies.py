# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Copies of runs: parts along an axis, inputs that are joined along one, and transposes that leave the last axis.

Of each row of the result, which its first axes number, every input has a run of elements that lie together, and the
result has these one behind the other. A unit is a block of rows of about `UNIT` bytes, or where rows are longer, an
equal share of each run of a row.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rlx_mlir.codegen.emit import Emitter, Index, Value, element_of, shape_of, vec
from rlx_mlir.codegen.kernel import size_of
from rlx_mlir.codegen.specs import MoveSpec

from . import UnsupportedByTemplate
from .kernel import Scratch, write_kernel
from .registry import Generator
from .target import ELEMENT_BITS, Target

__all__ = ["configure_copies", "copy_run", "emit_copies"]

UNIT = 1 << 15
"""Bytes of a unit's results, about."""

LINE = 64
"""Bytes that shares of long runs are multiples of."""


def copy_run(
    em: Emitter,
    source: Value,
    begin: Index,
    out: Value,
    place: Index,
    count: Index,
    lanes: int,
    before: Callable[[Index, int], None] = lambda at, width: None,
) -> None:
    """Copies `count` elements from one flat buffer to another, by vectors.

    Args:
        begin, place: the first element in `source`, and where it goes in `out`.
        lanes: elements of a vector, a power of two; 1 for those that vectors don't have.
        before: called with the number of an element and how many follow, before they are copied.
    """
    element = element_of(source.type)

    def piece(at: Index, width: int) -> None:
        if width == 1:
            em.store(em.load(source, [begin + at]), out, [place + at])
        else:
            em.vstore(em.vload(source, [begin + at], vec(width, element)), out, [place + at])

    whole = count // lanes * lanes
    if not isinstance(whole, int) or whole:
        with em.loop(0, whole, lanes, hint="t") as t:
            before(t.iv, lanes)
            piece(t.iv, lanes)
    if not isinstance(whole, int) or not isinstance(count, int):
        with em.loop(whole, count, hint="t") as t:
            piece(t.iv, 1)
        return
    before(whole, count - whole)
    width = lanes
    while whole < count:
        width //= 2
        if whole + width <= count:
            piece(whole, width)
            whole += width


def configure_copies(name: str, spec: MoveSpec, target: Target) -> MoveSpec | None:
    """The kernel as it is; None for expansions, and transposes that move the last axis, UnsupportedByTemplate for
    elements without a width in bytes."""
    if spec.op == "expand" or (spec.op == "transpose" and spec.permutation[-1] != len(spec.permutation) - 1):
        return None
    element = element_of(spec.result)
    if element not in ELEMENT_BITS:
        raise UnsupportedByTemplate(f"{name}: copies of {element} have no template")
    return spec


def emit_copies(name: str, spec: MoveSpec, target: Target) -> str:
    """The functions `@name.body`, `@name.units` and `@name.scratch`, as text."""

    def body(em: Emitter, values: list[Value], outs: list[Value], begin: Value, end: Value, parts: Scratch) -> None:
        kernel = _Copies(em, spec, target, values)
        out = em.flat(outs[0])
        with em.loop(begin, end, hint="unit") as unit:
            kernel.run(unit.iv, out)

    operands = [(f"x{number}", kind) for number, kind in enumerate(spec.inputs)]
    return write_kernel(
        name,
        operands,
        [("result", spec.result)],
        units=lambda em, values: _Copies(em, spec, target, values).units,
        body=body,
        order=spec.order,
    )


@dataclass(frozen=True)
class _Run:
    """What one input has of each row: `length` elements from where `begin` says for the row's number."""

    buffer: Value
    length: Index
    begin: Callable[[Value], Index]


class _Copies:
    """The code of one kernel; see the module's docstring."""

    def __init__(self, em: Emitter, spec: MoveSpec, target: Target, values: Sequence[Value]) -> None:
        self.em, self.spec = em, spec
        bits = ELEMENT_BITS[element_of(spec.result)]
        self.lanes, self.line = target.vector_bits // bits, LINE * 8 // bits
        if spec.op == "transpose":
            self._transposed(values[0])
        else:
            self._along_axis(values)
        self.row: Index = 0
        for run in self.runs:
            self.row = run.length + self.row
        most = UNIT * 8 // bits
        self.high = em.imax(most // em.imax(self.row, 1), 1)
        """Rows of a unit."""
        self.pieces = 1 if isinstance(self.row, int) and self.row <= most else em.iceildiv(self.row, most)
        """Units of a row, where it is long."""

    def _along_axis(self, values: Sequence[Value]) -> None:
        """Rows and runs of a part, or of what is joined."""
        em, spec, axis = self.em, self.spec, self.spec.axis
        self.rows = size_of(em, values[0], range(axis))
        inner = size_of(em, values[0], range(axis + 1, len(shape_of(values[0].type))))
        strides = [em.dim(value, axis) * inner for value in values]
        if spec.op == "narrow":
            self.runs = [_Run(values[0], inner * spec.length, lambda row: row * strides[0] + inner * spec.start)]
        else:
            self.runs = [
                _Run(x, own, functools.partial(operator.mul, own)) for x, own in zip(values, strides, strict=True)
            ]

    def _transposed(self, x: Value) -> None:
        """Rows and runs of a transpose: those axes that stay behind all that move are one run."""
        em, permutation = self.em, self.spec.permutation
        moved = max((axis + 1 for axis, own in enumerate(permutation) if axis != own), default=0)
        self.rows = size_of(em, x, range(moved))
        length = size_of(em, x, range(moved, len(permutation)))

        def begin(row: Value) -> Index:
            place: Index = 0
            rest: Index = row
            for axis in reversed(permutation[:moved]):
                digit = rest if axis == permutation[0] else rest % em.dim(x, axis)
                rest = rest // em.dim(x, axis)
                place = digit * size_of(em, x, range(axis + 1, len(permutation))) + place
            return place

        self.runs = [_Run(x, length, begin)]

    @property
    def units(self) -> Index:
        """Blocks of rows, for each share of their runs."""
        return self.em.iceildiv(self.rows, self.high) * self.pieces

    def run(self, unit: Value, out: Value) -> None:
        """One unit."""
        em = self.em
        buffers = [em.flat(run.buffer) for run in self.runs]
        first, piece = unit // self.pieces * self.high, unit % self.pieces
        with em.loop(first, em.imin(first + self.high, self.rows), hint="row") as row:
            place = row.iv * self.row
            for run, buffer in zip(self.runs, buffers, strict=True):
                begin, count = self._share(run.length, piece)
                copy_run(em, buffer, run.begin(row.iv) + begin, out, place + begin, count, self.lanes)
                place = place + run.length

    def _share(self, length: Index, piece: Index) -> tuple[Index, Index]:
        """Where a unit's share of a run begins, and how many elements it has."""
        em = self.em
        if isinstance(piece, int):
            return 0, length
        size = em.iceildiv(em.iceildiv(length, self.pieces), self.line) * self.line
        begin = em.imin(piece * size, length)
        return begin, em.imin(begin + size, length) - begin


GENERATORS = (Generator("copies", "move", configure_copies, emit_copies),)
