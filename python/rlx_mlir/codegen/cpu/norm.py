# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Norms and softmax along another axis than the last: x is [outer, length, inner], and **lanes run over `inner`**.

A unit is some vectors of neighbouring columns of one `outer`, whose elements lie `inner` apart. Each sum is a sweep
over the rows, with the sums of all columns in registers:

    softmax      max(x);    e = exp(x - max), sum(e);    e / sum
    rms_norm     sum(x^2);                               x / sqrt(mean(x^2) + eps) * gamma + beta
    layer_norm   sum(x);    c = x - mean, sum(c^2);      (c - mean(c)) / sqrt(variance + eps) * gamma + beta

What is left over at the end of `inner` goes to the last unit, vector by vector; its last vector ends with the last
column and computes some once more, since masks are slow where elements have 16 bits.

Meaning and order of operations are those of rows (`rows.py`): f32 inside, sums in blocks of 32 terms with what joining
them loses carried along, results rounded once. A column's results are the same bits whatever its neighbours and units.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rlx_mlir.codegen.conversions import IN_F32
from rlx_mlir.codegen.emit import Emitter, Index, Value, element_of, shape_of, with_element
from rlx_mlir.codegen.program import emit_elementwise
from rlx_mlir.codegen.specs import NormSpec
from rlx_mlir.tuning.cpu import Knob

from . import UnsupportedByTemplate
from .exponentials import exp_below, larger
from .kernel import Scratch, write_kernel
from .registry import Generator
from .sums import in_blocks
from .target import ELEMENT_BITS, Target, rounded

FEWEST = 4
"""Columns of x at least: fewer leave most of a vector empty, and generic code takes less time."""

SOFTMAX_VECTORS, NORM_VECTORS = 8, 16
"""Vectors of a unit at most. Norms wait for memory, where long pieces of rows are read faster; exp is arithmetic, and
vectors beyond these only make code longer."""

UNITS, FEWEST_VECTORS = 8, 4
"""A softmax of few columns gets so many units, for threads, as long as a unit has so many vectors."""

SHORT = 64
"""Rows of columns that stay in near caches beside those of the next unit, which are fetched on the way: pieces of rows
that lie far apart are nothing that a processor foresees."""

LINE = 64
"""Bytes that one prefetch brings."""

VECTORS = "column_vectors"
"""The knob: vectors of a unit at most."""

Rows = Callable[[Index, int], Value]
"""(row, vector) -> a vector of f32."""

Step = Callable[[Index, int, Sequence[Value]], list[Value]]
"""(row, vector, sums before it) -> the vector's sums with the row."""


@dataclass(frozen=True)
class NormConfig:
    """A norm or softmax, and how it is cut.

    Attributes:
        vectors: of columns in a unit.
        ahead: whether the next unit's columns are fetched while a unit's are read.
    """

    spec: NormSpec
    vectors: int
    ahead: bool


def configure_norm(name: str, spec: NormSpec, target: Target) -> NormConfig:
    """How columns are cut; UnsupportedByTemplate for other types than f32, f16 and bf16, and for few columns."""
    for kind in (spec.x, *spec.factors):
        if element_of(kind) not in IN_F32:
            raise UnsupportedByTemplate(f"{name}: {spec.op} of {element_of(kind)} has no template")
    shape, lanes = shape_of(spec.x), target.lanes("f32")
    sizes = [size for size in shape[spec.axis + 1 :] if size is not None]
    inner = math.prod(sizes) if len(sizes) == len(shape) - spec.axis - 1 else None
    if inner is not None and inner < FEWEST:
        raise UnsupportedByTemplate(
            f"{name}: expects at least {FEWEST} elements for each position along axis {spec.axis}, but {spec.x} has "
            f"{inner}"
        )
    known = math.prod(size for size in shape[: spec.axis] if size is not None)
    vectors = _vectors(spec.op, target.choices.get(VECTORS), lanes, known, inner)
    length = shape[spec.axis]
    more = inner is None or inner >= 2 * vectors * lanes
    return NormConfig(spec, vectors, ahead=length is not None and length <= SHORT and more)


def _vectors(op: str, chosen: int | None, lanes: int, outer: int, inner: int | None) -> int:
    """Vectors of a unit: few are left over where the number of columns is known."""
    most = SOFTMAX_VECTORS if op == "softmax" else NORM_VECTORS
    if inner is None:
        return chosen or most // 2
    while op == "softmax" and most > FEWEST_VECTORS and outer * inner < UNITS * most * lanes:
        most //= 2
    whole = inner // lanes
    most = max(1, min(chosen or most, whole))
    return min(range(most, most // 2, -1), key=lambda vectors: whole % vectors)


def emit_norm(name: str, config: NormConfig, target: Target) -> str:
    """The functions `@name.body`, `@name.units` and `@name.scratch`, as text."""
    spec, width = config.spec, config.vectors * target.lanes("f32")

    def weights(em: Emitter, x: Value, parts: Scratch) -> Value | None:
        return parts.take([em.dim(x, spec.axis), width], "f32") if spec.op == "softmax" else None

    def per_outer(em: Emitter, inner: Index) -> Index:
        return em.imax(inner // width, 1)

    def units(em: Emitter, operands: list[Value]) -> Index:
        outer, _, inner = _sizes(em, spec, operands[0])
        return outer * per_outer(em, inner)

    def body(
        em: Emitter, operands: list[Value], results: list[Value], begin: Value, end: Value, parts: Scratch
    ) -> None:
        x, *factors = operands
        _, length, inner = _sizes(em, spec, x)
        kept, count = weights(em, x, parts), per_outer(em, inner)
        flat = [em.collapse(buffer, [list(range(len(shape_of(buffer.type))))]) for buffer in (x, *results)]
        with em.loop(begin, end, hint="unit") as unit:
            part = unit.iv % count
            first = part * width
            start = unit.iv // count * length * inner + first

            def columns(vectors: int, column: Index, mask: Value | None) -> None:
                ahead = width if config.ahead and vectors == config.vectors else 0
                place = start + column
                _Columns(em, target, spec, (*flat, *factors), (length, inner), kept, vectors, place, mask, ahead).run()

            left = inner - first
            if isinstance(count, Value) or count > 1:
                last = em.cmpi("eq", part, count - 1)
                left = em.select(last, left, width)
            cover(em, inner, left, (config.vectors, target.lanes("f32")), columns)

    return write_kernel(
        name,
        list(zip(("x", "gamma", "beta"), (spec.x, *spec.factors), strict=False)),
        [("out", spec.x)],
        units=units,
        scratch=lambda em, operands, parts: weights(em, operands[0], parts),
        body=body,
        order=spec.order,
    )


def _sizes(em: Emitter, spec: NormSpec, x: Value) -> tuple[Index, Index, Index]:
    """The sizes of x as [outer, length, inner]."""
    outer, inner = em.dims(x, range(spec.axis)), em.dims(x, range(spec.axis + 1, len(shape_of(x.type))))
    return outer, em.dim(x, spec.axis), inner


def cover(
    em: Emitter,
    inner: Index,
    count: Index,
    tile: tuple[int, int],
    columns: Callable[[int, Index, Value | None], None],
) -> None:
    """Covers a unit's columns.

    Args:
        inner: columns of all units of one `outer`.
        count: columns of the unit: those of whole vectors, of the last unit all that are left.
        tile: vectors of a unit, and their lanes.
        columns: (vectors, first column, mask): computes vectors of columns.
    """
    vectors, lanes = tile
    width = vectors * lanes

    def singles(begin: Index) -> None:
        with em.loop(begin, count, lanes, hint="column") as column:
            columns(1, em.imin(column.iv, count - lanes), None)

    if isinstance(inner, int):
        if inner < lanes:
            columns(1, 0, em.mask(count, lanes))
            return
        columns(vectors, 0, None)
        if inner % width:
            singles(width)
        return
    wide = em.cmpi("sge", count, width)
    with em.if_(wide):
        columns(vectors, 0, None)
    with em.if_(em.cmpi("sge", count, lanes)) as branch:
        singles(em.select(wide, width, 0))
        branch.else_()
        columns(1, 0, em.mask(count, lanes))


@dataclass(frozen=True)
class _Columns:
    """Emits some vectors of columns.

    Attributes:
        buffers: x and the result, flat, then gamma and beta.
        sizes: length and inner.
        kept: scratch for the exponentials of a softmax.
        start: where the first row of the columns is.
        mask: which lanes are columns; None for all.
        ahead: how much further the columns lie that are fetched; 0 for none.
    """

    em: Emitter
    target: Target
    spec: NormSpec
    buffers: Sequence[Value]
    sizes: tuple[Index, Index]
    kept: Value | None
    vectors: int
    start: Index
    mask: Value | None
    ahead: int

    @property
    def _type(self) -> str:
        return self.target.vector("f32")

    def _column(self, vector: int) -> int:
        return vector * self.target.lanes("f32")

    def _place(self, row: Index, vector: int) -> Index:
        return self.start + row * self.sizes[1] + self._column(vector)

    def run(self) -> None:
        """All sweeps."""
        em = self.em
        result = self._softmax() if self.spec.op == "softmax" else self._norm()
        with em.loop(0, self.sizes[0], hint="row") as row:
            numbers = [self.target.widen(em, em.load(factor, [row.iv])) for factor in self.buffers[2:]]
            factors = [em.broadcast(number, self._type) for number in numbers]
            for vector in range(self.vectors):
                value = result(row.iv, vector)
                for function, factor in zip((operator.mul, operator.add), factors, strict=False):
                    value = function(value, factor)
                self._write(value, row.iv, vector)

    # -- memory -------------------------------------------------------------------------------------------------------

    def _read(self, row: Index, vector: int) -> Value:
        em, x = self.em, self.buffers[0]
        kind, at = with_element(self._type, element_of(x.type)), [self._place(row, vector)]
        value = em.vload(x, at, kind, self.mask)
        return self.target.widen(em, value)

    def _read_first(self, row: Index, vector: int) -> Value:
        """What `_read` gives, in the sweep that brings x into the caches."""
        self._fetch(self.buffers[0], row, vector, write=False)
        return self._read(row, vector)

    def _write(self, value: Value, row: Index, vector: int) -> None:
        em, out = self.em, self.buffers[1]
        self._fetch(out, row, vector, write=True)
        value, at = rounded(em, self.target, value, element_of(out.type)), [self._place(row, vector)]
        em.vstore(value, out, at, self.mask)

    def _fetch(self, buffer: Value, row: Index, vector: int, *, write: bool) -> None:
        """Asks for the line of the next unit's columns, once for each line."""
        per_line = LINE * 8 // ELEMENT_BITS[element_of(buffer.type)]
        if self.ahead and self._column(vector) % per_line == 0:
            self.em.prefetch(buffer, [self._place(row, vector) + self.ahead], write=write)

    # -- sums ---------------------------------------------------------------------------------------------------------

    def _summed(self, count: int, step: Step) -> list[list[Value]]:
        """`count` sums over the rows, each of all vectors."""
        em, length = self.em, self.sizes[0]
        zeros = [[em.zero(self._type)] * count] * self.vectors

        def rows(low: Index, high: Index) -> list[list[Value]]:
            with em.loop(low, high, 1, zeros, hint="row") as row:
                row.yield_([step(row.iv, vector, sums) for vector, sums in enumerate(row.carry)])
            return row.result

        sums = in_blocks(em, length, zeros, rows)
        return [list(each) for each in zip(*sums, strict=True)]

    def _softmax(self) -> Rows:
        """exp(x - max) / sum"""
        em, kept = self.em, self.kept
        assert kept is not None
        lowest = [em.const(-math.inf, self._type)] * self.vectors
        with em.loop(0, self.sizes[0], 1, lowest, hint="row") as row:
            row.yield_([larger(em, self._read_first(row.iv, vector), m) for vector, m in enumerate(row.carry)])
        largest = row.result

        def weigh(row: Index, vector: int, sums: Sequence[Value]) -> list[Value]:
            below = self._read(row, vector) - largest[vector]
            weight = exp_below(em, self.target, below)
            em.vstore(weight, kept, [row, self._column(vector)])
            return [sums[0] + weight]

        (totals,) = self._summed(1, weigh)
        inverse = [1.0 / total for total in totals]
        return lambda row, vector: em.vload(kept, [row, self._column(vector)], self._type) * inverse[vector]

    def _norm(self) -> Rows:
        """(x - mean) / sqrt(variance + eps), of rms_norm without the mean"""
        em, count = self.em, self._count()
        centred: Rows = self._read
        if self.spec.op == "rms_norm":

            def add_square(row: Index, vector: int, sums: Sequence[Value]) -> list[Value]:
                x = self._read_first(row, vector)
                return [self.target.fma(em, x, x, sums[0])]

            (squares,) = self._summed(1, add_square)
            variance = [total / count for total in squares]
        else:
            centred, variance = self._centred(count)
        scale = []
        for own in variance:
            root = emit_elementwise(em, "sqrt", [own + self.spec.eps], self._type)
            scale.append(1.0 / root)
        return lambda row, vector: centred(row, vector) * scale[vector]

    def _centred(self, count: Value) -> tuple[Rows, list[Value]]:
        """The differences from the mean, and their mean square.

        The mean is rounded. What it lacks is the mean of the differences from it, known after the same sweep as their
        squares: without it columns of one large number aren't 0.
        """
        em = self.em
        (totals,) = self._summed(1, lambda row, vector, sums: [sums[0] + self._read_first(row, vector)])
        means = [total / count for total in totals]

        def add_both(row: Index, vector: int, sums: Sequence[Value]) -> list[Value]:
            difference = self._read(row, vector) - means[vector]
            return [sums[0] + difference, self.target.fma(em, difference, difference, sums[1])]

        differences, squares = self._summed(2, add_both)
        rests = [total / count for total in differences]
        variance = []
        for rest, total in zip(rests, squares, strict=True):
            square = total / count
            less = em.maximumf(square - rest * rest, 0.0)
            variance.append(em.select(em.cmpf("olt", square, math.inf), less, square))

        def centred(row: Index, vector: int) -> Value:
            return self._read(row, vector) - means[vector] - rests[vector]

        return centred, variance

    def _count(self) -> Value:
        """The number of rows in every lane: sums are divided by it, as a product with its inverse isn't the mean."""
        em, length = self.em, self.sizes[0]
        if isinstance(length, int):
            return em.const(float(length), self._type)
        number = em.cast("arith.sitofp", em.cast("arith.index_cast", length, "i64"), "f32")
        return em.broadcast(number, self._type)


_TRIED = [{VECTORS: 4}, {VECTORS: 8}, {VECTORS: 16}]

GENERATORS = (
    Generator(
        "norm",
        "norm",
        configure_norm,
        emit_norm,
        knobs={VECTORS: Knob(range(1, 33))},
        candidates={"prefill": _TRIED, "decode": _TRIED},
    ),
)
