# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reductions along neighbouring dimensions: x is [outer, length, inner], the result [outer, inner].

There are four forms:

- **Rows**, where `inner` is 1: lanes run along a row, with several vectors of partial results, joined at its end. A
  unit is as many rows as make about `UNIT` bytes.
- **Long rows**, of which there are few: a unit is a part of a row, whatever the number of threads is, and leaves its
  result in memory that all units share; what parts leave is joined when all are done.
- **Columns**, where registers hold all of `inner`: lanes are columns, and a unit is an `outer`.
- **Pieces**, where it is more, or calls say it: a unit is a page of neighbouring columns of one `outer`, whose results
  lie in scratch. Short pieces of rows that lie far apart would be read slowly.

Floats of 16 bits are f32 inside, sums of floats are taken in blocks of 32 terms with what joining them loses carried
along, and results are rounded once. Their bits are the same whatever the units are.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from rlx_mlir.codegen.conversions import FLOATS
from rlx_mlir.codegen.emit import Emitter, Index, Value, element_of, shape_of, with_element
from rlx_mlir.codegen.specs import ReduceSpec
from rlx_mlir.codegen.structures import pairwise

from . import UnsupportedByTemplate
from .kernel import Finish, Scratch, write_kernel, write_shared_kernel
from .norm import FEWEST, cover
from .registry import Generator
from .sums import TURNS, add_with_loss, in_blocks, with_loss
from .target import ELEMENT_BITS, Target, rounded, wide_type

MOST_VECTORS = 16
"""Vectors of columns that registers hold at most."""

ROW_VECTORS = 8
"""Vectors of partial results of a row at most."""

SHORTEST = 8
"""Elements of a row at least: of fewer, generic code makes a vector of several rows."""

UNIT = 1 << 14
"""Bytes of a unit of rows, about."""

PIECE, LONG_PIECE = 1 << 14, 1 << 16
"""Bytes of a row that are read side by side where columns are more than registers hold: the longer ones, which memory
gives faster, where there are `ENOUGH` of them for threads."""

ENOUGH = 8
"""Units that are enough for threads."""

LONG_ROW, ROW_PART = 1 << 20, 1 << 16
"""Bytes of a row from which on it is cut, where there are fewer than `ENOUGH` of them, and of a part."""

TOGETHER = 4
"""Rows that are joined at once where they lie at least a `PAGE` apart: a processor foresees each of them, and partial
results are read and written once for all. Closer ones are one stream."""

PAGE = 1 << 12

_INTEGERS = ("i8", "i16", "i32", "i64")

_Combine = Callable[[Emitter, Value, Value], Value]


def _extreme(em: Emitter, before: str, running: Value, x: Value) -> Value:
    """The larger or the smaller one of two; NaN where either is NaN.

    The first selection is one instruction, which keeps a `running` that is NaN; the conditions of arith.maximumf become
    two comparisons and what joins them.
    """
    near = em.select(em.cmpf(before, x, running), x, running)
    return em.select(em.cmpf("uno", x, x), x, near)


#: How an element joins those before it, of floats and of integers, and what a vector's lanes are joined by.
_OF_FLOATS: dict[str, tuple[_Combine, str]] = {
    "sum": (lambda em, x, y: x + y, "add"),
    "prod": (lambda em, x, y: x * y, "mul"),
    "max": (lambda em, x, y: _extreme(em, "ogt", x, y), "maxnumf"),
    "min": (lambda em, x, y: _extreme(em, "olt", x, y), "minnumf"),
}
_OF_INTEGERS: dict[str, tuple[_Combine, str]] = {
    "sum": (lambda em, x, y: x + y, "add"),
    "prod": (lambda em, x, y: x * y, "mul"),
    "max": (lambda em, x, y: em.binary("arith.maxsi", x, y), "maxsi"),
    "min": (lambda em, x, y: em.binary("arith.minsi", x, y), "minsi"),
}


@dataclass(frozen=True)
class ReduceConfig:
    """A reduction, and how it is cut.

    Attributes:
        first, behind: the first dimension that is reduced, and the first one behind them.
        form: which form it has.
        vectors: of columns in a unit, or of partial results of a row.
        piece, together: bytes of a piece, and rows that are joined at once.
    """

    spec: ReduceSpec
    first: int
    behind: int
    form: Literal["rows", "long rows", "columns", "pieces"]
    vectors: int
    piece: int = PIECE
    together: int = 1

    @property
    def element(self) -> str:
        """The type of elements."""
        return element_of(self.spec.x)

    @property
    def wide(self) -> str:
        """The type that they are combined in."""
        return wide_type(self.element) if self.element in FLOATS else self.element

    @property
    def is_sum_of_floats(self) -> bool:
        """Whether joining blocks loses something."""
        return self.element in FLOATS and self.spec.kind in ("sum", "mean")

    @property
    def operation(self) -> tuple[_Combine, str]:
        """How elements, and lanes, are joined."""
        kind = "sum" if self.spec.kind == "mean" else self.spec.kind
        return (_OF_FLOATS if self.element in FLOATS else _OF_INTEGERS)[kind]

    @property
    def start(self) -> float:
        """What changes nothing that it is joined with."""
        kind = self.spec.kind
        if kind not in ("max", "min"):
            return 1 if kind == "prod" else 0
        if self.element in FLOATS:
            return -math.inf if kind == "max" else math.inf
        bits = ELEMENT_BITS[self.element]
        return -(1 << (bits - 1)) if kind == "max" else (1 << (bits - 1)) - 1


def configure_reduce(name: str, spec: ReduceSpec, target: Target) -> ReduceConfig:
    """How a reduction is cut; UnsupportedByTemplate for conditions and complex numbers, for dimensions that others lie
    between, and where vectors would be mostly empty."""
    element, shape = element_of(spec.x), shape_of(spec.x)
    if element not in (*FLOATS, *_INTEGERS):
        raise UnsupportedByTemplate(f"{name}: reductions of {element} have no template")
    # Dimensions of size 1 are of either kind.
    axes = [axis for axis in spec.axes if shape[axis] != 1]
    if not axes:
        raise UnsupportedByTemplate(f"{name}: no dimension of {spec.x} is reduced that isn't 1")
    between = [axis for axis in range(axes[0], axes[-1]) if axis not in axes and shape[axis] != 1]
    if between:
        raise UnsupportedByTemplate(f"{name}: dimension {between[0]} lies between those that are reduced, {spec.axes}")
    first, behind = axes[0], axes[-1] + 1
    lanes = target.lanes(wide_type(element) if element in FLOATS else element)
    length, inner = (_known(shape[begin:end]) for begin, end in ((first, behind), (behind, len(shape))))
    if inner == 1:
        if length is not None and length < SHORTEST:
            raise UnsupportedByTemplate(f"{name}: rows of {length} elements are shorter than {SHORTEST}")
        vectors = ROW_VECTORS // 2 if length is None else min(ROW_VECTORS, max(1, length // lanes))
        outer, width = _known(shape[:first]), ELEMENT_BITS[element] // 8
        is_long = length is not None and length * width >= LONG_ROW and outer is not None and outer < ENOUGH
        return ReduceConfig(spec, first, behind, "long rows" if is_long else "rows", vectors)
    if inner is not None and inner < FEWEST:
        raise UnsupportedByTemplate(f"{name}: {inner} elements of {spec.x} lie side by side, fewer than {FEWEST}")
    most = min(MOST_VECTORS, target.registers // 2)
    if inner is None or inner > most * lanes:
        width = ELEMENT_BITS[element] // 8
        outer = _known(shape[:first])
        is_long = inner is not None and outer is not None and outer * (inner * width // LONG_PIECE) >= ENOUGH
        together = TOGETHER if inner is None or inner * width >= PAGE else 1
        return ReduceConfig(spec, first, behind, "pieces", 1, LONG_PIECE if is_long else PIECE, together)
    return ReduceConfig(spec, first, behind, "columns", max(inner // lanes, 1))


def _known(sizes: tuple[int | None, ...]) -> int | None:
    known = [size for size in sizes if size is not None]
    return math.prod(known) if len(known) == len(sizes) else None


def emit_reduce(name: str, config: ReduceConfig, target: Target) -> str:
    """The functions `@name.body`, `@name.units` and `@name.scratch`, as text."""
    if config.form == "long rows":
        return _emit_long_rows(name, config, target)
    form = _FORMS[config.form]

    def body(em: Emitter, values: list[Value], outs: list[Value], begin: Value, end: Value, parts: Scratch) -> None:
        kernel = form(em, config, target, values[0])
        kernel.take_scratch(parts)
        kernel.open(outs[0])
        with em.loop(begin, end, hint="unit") as unit:
            kernel.run(unit.iv)

    return write_kernel(
        name,
        [("x", config.spec.x)],
        [("out", config.spec.result)],
        units=lambda em, values: form(em, config, target, values[0]).units,
        scratch=lambda em, values, parts: form(em, config, target, values[0]).take_scratch(parts),
        body=body,
    )


def _emit_long_rows(name: str, config: ReduceConfig, target: Target) -> str:
    """The functions of a kernel whose units are parts of rows, and those of the one that joins these."""

    def opened(em: Emitter, values: list[Value], outs: list[Value]) -> _LongRows:
        kernel = _LongRows(em, config, target, values[0])
        kernel.open(outs[0])
        kernel.take_parts(Scratch(em, outs[1]))
        return kernel

    def body(em: Emitter, values: list[Value], outs: list[Value], begin: Value, end: Value, _: Scratch) -> None:
        kernel = opened(em, values, outs)
        with em.loop(begin, end, hint="unit") as unit:
            kernel.run(unit.iv)

    def join(em: Emitter, values: list[Value], outs: list[Value], begin: Value, end: Value, _: Scratch) -> None:
        kernel = opened(em, values, outs)
        with em.loop(begin, end, hint="row") as row:
            kernel.join_parts(row.iv)

    finish = Finish(
        memory=lambda em, values, parts: _LongRows(em, config, target, values[0]).take_parts(parts),
        units=lambda em, values: _LongRows(em, config, target, values[0]).outer,
        scratch=lambda em, values, parts: None,
        body=join,
    )
    return write_shared_kernel(
        name,
        [("x", config.spec.x)],
        [("out", config.spec.result)],
        units=lambda em, values: _LongRows(em, config, target, values[0]).units,
        scratch=lambda em, values, parts: None,
        body=body,
        finish=finish,
    )


class _Reduction:
    """The code of one kernel: sizes, and what all forms read, join and write."""

    def __init__(self, em: Emitter, config: ReduceConfig, target: Target, x: Value) -> None:
        self.em, self.config, self.target, self.x = em, config, target, x
        self.lanes, self.type = target.lanes(config.wide), target.vector(config.wide)
        self.narrow = with_element(self.type, config.element)
        rank = len(shape_of(x.type))
        self.outer = em.dims(x, range(config.first))
        self.length = em.dims(x, range(config.first, config.behind))
        self.inner = em.dims(x, range(config.behind, rank))

    @property
    def units(self) -> Index:
        """How many there are."""
        raise NotImplementedError

    def take_scratch(self, parts: Scratch) -> None:
        """Takes what a thread needs: nothing, but for pieces."""

    def open(self, out: Value) -> None:
        """Says where the result is; to be called once, at the head of the body."""
        em = self.em
        self.x = em.flat(self.x)
        self.out = em.flat(out) if shape_of(out.type) else out
        self.start = em.const(self.config.start, self.type)
        self.count = self._count() if self.config.spec.kind == "mean" else None

    def run(self, unit: Value) -> None:
        """One unit."""
        raise NotImplementedError

    def _count(self) -> Value:
        """How many elements become one, in every lane."""
        em, wide = self.em, self.config.wide
        if isinstance(self.length, int):
            return em.const(float(self.length), self.type)
        return em.broadcast(em.cast("arith.sitofp", em.cast("arith.index_cast", self.length, "i64"), wide), self.type)

    def read(self, at: Index, mask: Value | None = None) -> Value:
        """A vector of x; lanes that the mask leaves out change nothing."""
        em, config = self.em, self.config
        if mask is None:
            x = em.vload(self.x, [at], self.narrow)
        else:
            x = em.masked_load(self.x, [at], mask, em.const(config.start, self.narrow))
        return self.target.widen(em, x) if config.element in FLOATS else x

    def finished(self, total: Value) -> Value:
        """What is written of a number, or a vector, that all elements have joined."""
        em, config = self.em, self.config
        if self.count is not None:
            total = total / (self.count if total.type == self.type else em.extract(self.count, 0))
        return rounded(em, self.target, total, config.element) if config.element in FLOATS else total

    def store(self, total: Value, at: Index, mask: Value | None) -> None:
        """Writes a vector of what all elements have joined, where the mask is set."""
        self.em.vstore(self.finished(total), self.out, [at], mask)

    def join(self, x: Value, y: Value) -> Value:
        """Two elements, or vectors of them."""
        return self.config.operation[0](self.em, x, y)

    def steps(self, count: Index, vectors: int, step: Callable[[Index, list[Value]], list[Value]]) -> list[Value]:
        """`count` steps that join elements to what those before made; sums of floats in blocks."""
        em, start = self.em, [self.start] * vectors

        def part(low: Index, high: Index) -> list[Value]:
            with em.loop(low, high, 1, start, hint="step") as loop:
                loop.yield_(step(loop.iv, loop.carry))
            return loop.result

        return in_blocks(em, count, start, part) if self.config.is_sum_of_floats else part(0, count)


class _Columns(_Reduction):
    """Lanes are columns."""

    @property
    def _width(self) -> int:
        return self.config.vectors * self.lanes

    @property
    def _blocks(self) -> Index:
        """Units of one `outer`."""
        return self.em.imax(self.inner // self._width, 1)

    @property
    def units(self) -> Index:
        """Blocks of columns, for each `outer`."""
        return self.outer * self._blocks

    def run(self, unit: Value) -> None:
        """The columns of a block; those that are left over are the last one's."""
        em, blocks = self.em, self._blocks
        outer, block = unit // blocks, unit % blocks
        first = block * self._width
        left = self.inner - first
        if isinstance(blocks, Value) or blocks > 1:
            left = em.select(em.cmpi("eq", block, blocks - 1), left, self._width)

        def columns(vectors: int, column: Index, mask: Value | None) -> None:
            at, place = (base + first + column for base in (outer * self.length * self.inner, outer * self.inner))
            self._columns(at, vectors, mask, place)

        cover(em, self.inner, left, (self.config.vectors, self.lanes), columns)

    def _columns(self, at: Index, vectors: int, mask: Value | None, place: Index) -> None:
        """Some vectors of columns, the first of which begin at `at`, and their results at `place`."""

        def step(row: Index, totals: list[Value]) -> list[Value]:
            begin = at + row * self.inner
            return [
                self.join(total, self.read(begin + vector * self.lanes, mask)) for vector, total in enumerate(totals)
            ]

        for vector, total in enumerate(self.steps(self.length, vectors, step)):
            self.store(total, place + vector * self.lanes, mask)


class _Pieces(_Reduction):
    """Lanes are columns, of which more are read side by side than there are registers for."""

    def __init__(self, em: Emitter, config: ReduceConfig, target: Target, x: Value) -> None:
        super().__init__(em, config, target, x)
        self._width = config.piece * 8 // ELEMENT_BITS[config.element]

    @property
    def _blocks(self) -> Index:
        """Units of one `outer`."""
        return self.em.iceildiv(self.inner, self._width)

    @property
    def units(self) -> Index:
        """Pieces of rows, for each `outer`."""
        return self.outer * self._blocks

    def take_scratch(self, parts: Scratch) -> None:
        """The results of a block of rows; of sums, those of the blocks before it, and what they have lost."""
        wide, is_long = self.config.wide, not isinstance(self.length, int) or self.length > TURNS
        size: Index = self._width
        if isinstance(self.inner, int):
            size = -(-min(self.inner, self._width) // self.lanes) * self.lanes
        count = 3 if self.config.is_sum_of_floats and is_long else 1
        self._own, *self._before = (parts.take([size], wide, ELEMENT_BITS[wide] // 8) for _ in range(count))

    def run(self, unit: Value) -> None:
        """The columns of a piece."""
        em, blocks = self.em, self._blocks
        outer, first = unit // blocks, unit % blocks * self._width
        count = em.imin(self.inner - first, self._width)
        begin, place = (base + first for base in (outer * self.length * self.inner, outer * self.inner))
        zero = em.zero(self.type)
        if not self._before:
            self._block(begin, (0, self.length), count)
            self._each(count, lambda at, mask: self.store(em.vload(self._own, [at], self.type), place + at, mask))
            return
        totals, losses = self._before

        def cleared(at: Index, _: Value | None) -> None:
            for buffer in self._before:
                em.vstore(zero, buffer, [at])

        def joined(at: Index, _: Value | None) -> None:
            total, lost, own = (em.vload(buffer, [at], self.type) for buffer in (totals, losses, self._own))
            for value, buffer in zip(add_with_loss(total, lost, own), self._before, strict=True):
                em.vstore(value, buffer, [at])

        def finished(at: Index, mask: Value | None) -> None:
            total, lost = (em.vload(buffer, [at], self.type) for buffer in self._before)
            self.store(with_loss(em, total, lost), place + at, mask)

        self._each(count, cleared)
        with em.loop(0, self.length, TURNS, hint="block") as block:
            self._block(begin, (block.iv, em.imin(block.iv + TURNS, self.length)), count)
            self._each(count, joined)
        self._each(count, finished)

    def _each(self, count: Index, step: Callable[[Index, Value | None], None]) -> None:
        """`step(column, mask)` of each vector of a piece's columns; without a mask where all of its lanes are some."""
        em, lanes = self.em, self.lanes
        whole = count // lanes * lanes
        with em.loop(0, whole, lanes, hint="column") as column:
            step(column.iv, None)
        if not isinstance(self.inner, int) or self.inner % lanes:
            with em.loop(whole, count, lanes, hint="column") as column:
                step(column.iv, em.mask(count - column.iv, lanes))

    def _block(self, begin: Index, rows: tuple[Index, Index], count: Index) -> None:
        """Joins the elements of some rows, several rows at once."""
        em, (low, high), most = self.em, rows, self.config.together
        main = low + (high - low) // most * most
        self._each(count, lambda at, _: em.vstore(self.start, self._own, [at]))
        for first, last, together in ((low, main, most), (main, high, 1))[:most]:
            with em.loop(first, last, together, hint="row") as row:
                at = begin + row.iv * self.inner
                self._each(count, functools.partial(self._joined, at, together))

    def _joined(self, begin: Index, together: int, column: Index, mask: Value | None) -> None:
        """Joins a vector of so many rows."""
        em = self.em
        total = em.vload(self._own, [column], self.type)
        for row in range(together):
            total = self.join(total, self.read(begin + row * self.inner + column, mask))
        em.vstore(total, self._own, [column])


class _Rows(_Reduction):
    """Lanes run along a row."""

    @property
    def _tall(self) -> Index:
        """Rows of a unit."""
        em, width = self.em, ELEMENT_BITS[self.config.element] // 8
        return em.imax(UNIT // width // em.imax(self.length, 1), 1)

    @property
    def units(self) -> Index:
        """Blocks of rows."""
        return self.em.iceildiv(self.outer, self._tall)

    def run(self, unit: Value) -> None:
        """The rows of a block."""
        em, tall = self.em, self._tall
        with em.loop(unit * tall, em.imin((unit + 1) * tall, self.outer), hint="row") as row:
            total = self.finished(self._row(row.iv * self.length, self.length))
            em.store(total, self.out, [row.iv] if shape_of(self.out.type) else [])

    def _row(self, begin: Index, length: Index) -> Value:
        """What the elements of a row, or of a part of one, become."""
        em, lanes, vectors = self.em, self.lanes, self.config.vectors
        width = vectors * lanes
        turns, whole = length // width, length // lanes * lanes

        def step(turn: Index, totals: list[Value]) -> list[Value]:
            at = begin + turn * width
            return [self.join(total, self.read(at + vector * lanes)) for vector, total in enumerate(totals)]

        totals = self.steps(turns, vectors, step)
        if vectors > 1:
            with em.loop(turns * width, whole, lanes, self.start, hint="k") as rest:
                rest.yield_(self.join(rest.carry, self.read(begin + rest.iv)))
            totals = [*totals, rest.result]
        if not isinstance(length, int) or length % lanes:
            with em.loop(whole, length, lanes, self.start, hint="k") as end:
                end.yield_(self.read(begin + end.iv, em.mask(length - end.iv, lanes)))
            totals = [*totals, end.result]
        word, total = self.config.operation[1], pairwise(self.join, totals)
        if word in ("maxnumf", "minnumf"):  # which are one instruction for each halving where no lane is NaN
            is_lost = em.reduce("or", em.cmpf("uno", total, total))
            return em.select(is_lost, math.nan, em.reduce(word, total, "nnan,nsz"))
        return em.reduce(word, total, "reassoc" if self.config.element in FLOATS else "")


class _LongRows(_Rows):
    """The same of parts of rows."""

    @property
    def _size(self) -> int:
        """Elements of a part."""
        return ROW_PART * 8 // ELEMENT_BITS[self.config.element]

    @property
    def _blocks(self) -> int:
        """Parts of a row."""
        assert isinstance(self.length, int), "rows of unknown lengths aren't cut"
        return -(-self.length // self._size)

    @property
    def units(self) -> Index:
        """Parts of all rows."""
        return self.outer * self._blocks

    def take_parts(self, shared: Scratch) -> None:
        """Memory for what parts become."""
        wide = self.config.wide
        self._parts = shared.take([self.outer * self._blocks], wide, ELEMENT_BITS[wide] // 8)

    def run(self, unit: Value) -> None:
        """One part of a row."""
        em, size = self.em, self._size
        row, first = unit // self._blocks, unit % self._blocks * size
        is_whole = isinstance(self.length, int) and self.length % size == 0
        count = size if is_whole else em.imin(self.length - first, size)
        em.store(self._row(row * self.length + first, count), self._parts, [unit])

    def join_parts(self, row: Value) -> None:
        """The result of a row, of its parts one after the other; sums with what that loses."""
        em, begin = self.em, row * self._blocks
        total = em.load(self._parts, [begin])
        if self.config.is_sum_of_floats:
            with em.loop(1, self._blocks, 1, (total, em.zero(total.type)), hint="part") as added:
                added.yield_(add_with_loss(*added.carry, em.load(self._parts, [begin + added.iv])))
            total = with_loss(em, *added.result)
        else:
            with em.loop(1, self._blocks, 1, total, hint="part") as joined:
                joined.yield_(self.join(joined.carry, em.load(self._parts, [begin + joined.iv])))
            total = joined.result
        em.store(self.finished(total), self.out, [row] if shape_of(self.out.type) else [])


_FORMS: dict[str, type[_Reduction]] = {"rows": _Rows, "columns": _Columns, "pieces": _Pieces}

GENERATORS = (Generator("reduce", "reduce", configure_reduce, emit_reduce),)
