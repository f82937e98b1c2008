# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Pools of images: one unit is some rows of the result, of one channel of one image.

For each row of the result it combines the rows of pixels that windows see, column by column, in a line of scratch whose
ends change nothing, and then the columns of each window: lanes run along rows in both. Of windows two columns apart,
every second one of two vectors is taken. Numbers are f32 until the result is rounded once. NaN stay, as in numpy.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from rlx_mlir.codegen.conversions import IN_F32
from rlx_mlir.codegen.emit import Emitter, Index, Value, element_of, shape_of, with_element
from rlx_mlir.codegen.specs import PoolSpec

from . import UnsupportedByTemplate
from .conv2d import gathered, repeated, windows
from .kernel import Scratch, write_kernel
from .registry import Generator
from .target import Target, rounded

PLACES = 4096
"""Places of a unit, about."""

UNROLLED = 8
"""Rows or columns of a window that stand one after the other in the code at most."""


@dataclass(frozen=True)
class _Kind:
    """How numbers are combined, and the number that changes nothing."""

    start: float
    combine: Callable[[Emitter, Value, Value], Value]


_KINDS = {
    "max": _Kind(-math.inf, Emitter.maximumf),
    "min": _Kind(math.inf, Emitter.minimumf),
    "sum": _Kind(0.0, lambda em, total, x: total + x),
    "mean": _Kind(0.0, lambda em, total, x: total + x),
    "prod": _Kind(1.0, lambda em, total, x: total * x),
}


def emit_pool(name: str, spec: PoolSpec, target: Target) -> str:
    """The functions `@name.body`, `@name.units` and `@name.scratch`, as text."""
    pool = _Pool(spec, target)
    return write_kernel(
        name,
        [("x", spec.x)],
        [("result", spec.result)],
        units=lambda em, values: pool.units(em, values[0]),
        scratch=lambda em, values, scratch: pool.line(em, values[0], scratch),
        body=pool.body,
    )


class _Pool:
    """The code of one kernel, and what follows from the windows and the target."""

    def __init__(self, spec: PoolSpec, target: Target) -> None:
        self.spec, self.target, self.kind = spec, target, _KINDS[spec.kind]
        self.lanes, self.type = target.lanes("f32"), target.vector("f32")
        self.narrow = with_element(self.type, element_of(spec.x))

    def _counts(self, em: Emitter, x: Value) -> tuple[Index, Index]:
        """Rows and columns of the result."""
        return windows(em, x, self.spec.kernel, self.spec.stride, self.spec.padding)

    def _blocks(self, em: Emitter, x: Value) -> tuple[Index, Index]:
        """Rows of a unit, and units of a channel."""
        height, width = self._counts(em, x)
        tall = em.imax(PLACES // em.imax(width, 1), 1)
        return tall, em.iceildiv(height, tall)

    def units(self, em: Emitter, x: Value) -> Index:
        """Blocks of rows, for each channel of each image."""
        return self._blocks(em, x)[1] * em.dim(x, 1) * em.dim(x, 0)

    def line(self, em: Emitter, x: Value, scratch: Scratch) -> tuple[Value, Index]:
        """Takes the scratch memory: columns that windows see, and how many.

        Behind them the image has fewer columns than a stride, and the last vectors may reach beyond these.
        """
        (_, size), (_, stride) = self.spec.kernel, self.spec.stride
        columns = (self._counts(em, x)[1] - 1) * stride + size
        return scratch.take([em.imax(columns, 0) + (stride + 1) * self.lanes], "f32"), columns

    def body(
        self, em: Emitter, values: list[Value], outputs: list[Value], begin: Value, end: Value, scratch: Scratch
    ) -> None:
        """Computes a range of units."""
        x = values[0]
        line, columns = self.line(em, x, scratch)
        pixels, out = em.rows(x), em.rows(outputs[0])
        height, width = em.dim(x, 2), em.dim(x, 3)
        rows, places = self._counts(em, x)
        tall, blocks = self._blocks(em, x)
        start = em.const(self.kind.start, self.type)
        with em.loop(0, columns + self.lanes, self.lanes, hint="z") as z:
            em.vstore(start, line, [z.iv])
        with em.loop(begin, end, hint="unit") as unit:
            channel, first = unit.iv // blocks, unit.iv % blocks * tall
            with em.loop(first, em.imin(first + tall, rows), hint="row") as row:
                y = row.iv * self.spec.stride[0] - self.spec.padding[0]
                self._down(em, pixels, (channel * height, y, height), width, line)
                self._across(em, line, out, channel * rows + row.iv, places)

    def _down(self, em: Emitter, x: Value, rows: tuple[Index, Index, Index], width: Index, line: Value) -> None:
        """Combines the rows of a row of windows, column by column, of an image of `width` columns.

        rows: how many rows of x are before the channel, the first one of the windows, and how many the channel has. The
        last vector leaves the columns behind the image as they were.
        """
        (above, y, height), size = rows, self.spec.kernel[0]
        start = em.const(self.kind.start, self.type)
        low, high = em.imax(0 - y, 0), em.imin(height - y, size)

        def at(column: Index, mask: Value | None, whole: bool) -> None:
            def step(u: Index, total: Value) -> Value:
                where = [above + y + u, column]
                if mask is None:
                    pixels = em.vload(x, where, self.narrow)
                else:
                    pixels = em.masked_load(x, where, mask, em.const(self.kind.start, self.narrow))
                return self.kind.combine(em, total, self.target.widen(em, pixels))

            total = repeated(em, (0, size) if whole else (low, high), UNROLLED, start, step)
            em.vstore(total, line, [column + self.spec.padding[1]])

        def columns(whole: bool) -> None:
            main = width // self.lanes * self.lanes
            with em.loop(0, main, self.lanes, hint="col") as column:
                at(column.iv, None, whole)
            with em.loop(main, width, self.lanes, hint="col") as column:
                at(column.iv, em.mask(width - column.iv, self.lanes), whole)

        with em.if_(em.cmpi("eq", em.index(high - low), size)) as branch:
            columns(True)
            branch.else_()
            columns(False)

    def _across(self, em: Emitter, line: Value, out: Value, row: Index, places: Index) -> None:
        """Combines the columns of each window of a row, and writes the results."""
        size, stride = self.spec.kernel[1], self.spec.stride[1]
        start = em.const(self.kind.start, self.type)

        def at(place: Index) -> Value:
            def step(v: Index, total: Value) -> Value:
                return self.kind.combine(em, total, self._columns(em, line, place * stride + v))

            total = repeated(em, (0, size), UNROLLED, start, step)
            if self.spec.kind == "mean":
                total = total / float(math.prod(self.spec.kernel))
            return rounded(em, self.target, total, element_of(self.spec.x))

        main = places // self.lanes * self.lanes
        with em.loop(0, main, self.lanes, hint="place") as place:
            em.vstore(at(place.iv), out, [row, place.iv])
        with em.loop(main, places, self.lanes, hint="place") as place:
            em.masked_store(at(place.iv), out, [row, place.iv], em.mask(places - place.iv, self.lanes))

    def _columns(self, em: Emitter, line: Value, first: Index) -> Value:
        """What neighbouring windows see with one of their columns, in `line` from `first` on."""
        stride = self.spec.stride[1]
        if stride == 1:
            return em.vload(line, [first], self.type)
        if stride == 2:
            low, high = (em.vload(line, [first + more], self.type) for more in (0, self.lanes))
            return em.shuffle(low, high, range(0, 2 * self.lanes, 2))
        return gathered(em, line, [first], stride, em.mask(self.lanes, self.lanes))


def _configure(name: str, spec: PoolSpec, target: Target) -> PoolSpec:
    if element_of(spec.x) not in IN_F32:
        raise UnsupportedByTemplate(f"{name}: pools of {element_of(spec.x)} have no template")
    if 0 in (*shape_of(spec.x), *shape_of(spec.result)):
        raise UnsupportedByTemplate(f"{name}: expects no empty operand, not {spec.x}")
    return spec


GENERATORS = (Generator("pool", "pool", _configure, emit_pool),)
