# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The schedule for reductions along any axes: each group of neighbouring axes is one pass over [outer, length, inner].

- Where inner is 1, a warp or a block has a row, and its threads join what they have by shuffles.
- Elsewhere a thread has a vector of neighbouring columns, and the threads of a block that have the same columns join
  theirs through shared memory.

Where that makes few blocks, the length is cut into parts, and a second pass over [parts, ..] joins them in their order,
so that results are the same bits at each call. Everything between is f32, or of the elements' type: f64, i32, i64; of
conditions, which are bytes in memory, it is i32.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rlx_mlir.codegen import UnsupportedByTemplate
from rlx_mlir.codegen.emit import Index, Value, element_of, shape_of, vec
from rlx_mlir.codegen.gpu.emit import BITS, DeviceEmitter, Parameter, pointer
from rlx_mlir.codegen.gpu.kernel import (
    Constants,
    DeviceKernel,
    HostEmitter,
    Scratch,
    by_vectors,
    symbol_of,
    write_device_kernel,
)
from rlx_mlir.codegen.moves import product
from rlx_mlir.codegen.specs import ReduceSpec
from rlx_mlir.codegen.structures import pairwise

THREADS = 256
WARP = 32
#: Blocks that are worth cutting the length into parts for, and what a part is long at least.
BLOCKS, LEAST, MOST_PARTS = 256, 256, 64
#: Rows up to this length are a warp's.
SHORT = 1024
#: Vectors that a thread loads before it joins them.
UNROLL = 4
_FLOATS = {"sum": "arith.addf", "mean": "arith.addf", "max": "arith.maximumf", "min": "arith.minimumf"}
_INTEGERS = {"sum": "arith.addi", "max": "arith.maxsi", "min": "arith.minsi", "prod": "arith.muli"}
_CONDITIONS = {"any": "arith.ori", "all": "arith.andi"}
_START = {"sum": 0.0, "mean": 0.0, "max": -math.inf, "min": math.inf, "prod": 1.0}
#: The type of sums, by that of elements.
_WIDE = {"f32": "f32", "f16": "f32", "bf16": "f32", "f64": "f64", "i32": "i32", "i64": "i64", "i1": "i32"}


@dataclass(frozen=True)
class Sizes:
    """The sizes of a pass: x is [outer, length, inner]."""

    outer: Index
    length: Index
    inner: Index

    @staticmethod
    def around(em: HostEmitter, x: Value, axis: int) -> Sizes:
        """Those of a buffer, along one of its axes."""
        sizes = [em.dim(x, own) for own in range(len(shape_of(x.type)))]
        return Sizes(product(sizes[:axis]), sizes[axis], product(sizes[axis + 1 :]))

    def all(self) -> list[Index]:
        """In a fixed order."""
        return [self.outer, self.length, self.inner]

    def told(self, values: Sequence[Value]) -> Sizes:
        """In a kernel that is told all of them first: numbers where they are known."""
        pairs = zip(self.all(), values, strict=False)
        return Sizes(*(known if isinstance(known, int) else given for known, given in pairs))


def _stored(element: str) -> str:
    """What memory holds of an element type."""
    return "i8" if element == "i1" else element


@dataclass(frozen=True)
class Joins:
    """How numbers are joined, in the type that sums have: f32, but f64, i32 and i64 of elements of these, i32 of i1."""

    em: DeviceEmitter
    kind: str
    wide: str

    @staticmethod
    def of(em: DeviceEmitter, kind: str, element: str) -> Joins:
        """For elements of a type; UnsupportedByTemplate where there is no schedule."""
        if element not in _WIDE or (kind == "mean" and element.startswith("i")):
            raise UnsupportedByTemplate(f"reductions by {kind} of {element} have no schedule")
        return Joins(em, kind, _WIDE[element])

    @property
    def bytes(self) -> int:
        """Of a sum."""
        return BITS[self.wide] // 8

    @property
    def start(self) -> Value:
        """What changes nothing."""
        if self.wide.startswith("f"):
            return self.em.const(_START[self.kind], self.wide)
        end = 1 << (BITS[self.wide] - 1)
        ends = {"sum": 0, "max": -end, "min": end - 1, "prod": 1, "any": 0, "all": 1}
        return self.em.const(ends[self.kind], self.wide)

    def two(self, x: Value, y: Value) -> Value:
        """Two numbers."""
        words = {**_FLOATS, "prod": "arith.mulf"} if self.wide.startswith("f") else _INTEGERS | _CONDITIONS
        return self.em.binary(words[self.kind], x, y)

    def tree(self, values: Sequence[Value]) -> Value:
        """Several, pair by pair."""
        return pairwise(self.two, values)

    def warp(self, x: Value) -> Value:
        """Those of a warp's threads; each gets the same bits."""
        for distance in (1, 2, 4, 8, 16):
            x = self.two(x, self._other(x, distance))
        return x

    def _other(self, x: Value, distance: int) -> Value:
        """What the thread has whose number differs by exclusive or."""
        em = self.em
        if self.bytes == 4:
            return em.shuffle_lane("bfly", x, distance)
        halves = em.lanes(em.bitcast(x, vec(2, "i32")))
        return em.bitcast(em.vector([em.shuffle_lane("bfly", half, distance) for half in halves]), x.type)

    def load(self, base: Value, element: str, lanes: int, place: Index) -> list[Value]:
        """Neighbouring elements, widened."""
        em, stored = self.em, _stored(element)
        loaded = em.ld(base, stored if lanes == 1 else vec(lanes, stored), place)
        if element == "i1":
            return [em.cast("arith.extui", lane, self.wide) for lane in em.lanes(loaded)]
        return em.lanes(em.widen(loaded) if self.wide == "f32" else loaded)

    def store(self, values: Sequence[Value], base: Value, element: str, place: Index) -> None:
        """Neighbouring elements, rounded once."""
        em = self.em
        step = 128 // BITS[element]
        if element == "i1":
            values = [em.cast("arith.trunci", value, _stored(element)) for value in values]
        for first in range(0, len(values), step):
            part = values[first : first + step]
            value = em.vector(part) if len(part) > 1 else part[0]
            value = em.narrow(value, element) if self.wide == "f32" else value
            em.st(value, base, place + first)


@dataclass(frozen=True)
class Pass:
    """A pass of a reduction.

    Attributes:
        symbol: of its kernels.
        sizes: where types say them; Values stand for those that the kernel is told.
        source, target: types of elements.
        last: whether it writes results: then a mean is divided.
    """

    symbol: str
    sizes: Sizes
    source: str
    target: str
    last: bool

    @property
    def rows(self) -> bool:
        """Whether what is joined lies side by side."""
        return isinstance(self.sizes.inner, int) and self.sizes.inner == 1

    @property
    def team(self) -> int:
        """Threads that have a row, or the same columns."""
        if not self.rows:
            return THREADS // self.across
        length = self.sizes.length
        return WARP if isinstance(length, int) and length <= SHORT else THREADS

    @property
    def across(self) -> int:
        """Threads side by side along columns."""
        inner, across = self.sizes.inner, WARP
        if isinstance(inner, int):
            while across > 1 and across // 2 * self.lanes[0] >= inner:
                across //= 2
        return across

    @property
    def lanes(self) -> tuple[int, ...]:
        """Elements of a vector: one number, or two where the host chooses."""
        run = self.sizes.length if self.rows else self.sizes.inner
        lanes = 128 // BITS[self.source]
        if not isinstance(run, int):
            return lanes, 1
        while run % lanes:
            lanes //= 2
        return (lanes,)

    def per_block(self, lanes: int) -> int:
        """Rows, or columns, of a block."""
        return THREADS // self.team if self.rows else self.across * lanes


def emit_reduce(name: str, spec: ReduceSpec, chip: str, constants: Constants = frozenset()) -> DeviceKernel:
    """The kernel of a reduction.

    Raises UnsupportedByTemplate for integers of less than 32 bits, and means of integers.
    """
    em = DeviceEmitter(chip)
    element = element_of(spec.x)
    joins = Joins.of(em, spec.kind, element)
    passes = _passes(HostEmitter(), name, spec, joins.wide, Value("%x", spec.x))
    for number, own in enumerate(passes):
        constant = number == 0 and 0 in constants
        parts, _ = parts_of(HostEmitter(), own)
        several = not (isinstance(parts, int) and parts == 1)
        if own.last and not (isinstance(parts, int) and several):
            write_pass(em, joins, own, constant=constant)
        if several or not own.last:
            write_pass(em, joins, _part(own, joins.wide), constant=constant)
        if several:
            write_pass(em, joins, _join(own, joins.wide))

    def buffers(host: HostEmitter, made: Sequence[Pass], scratch: Scratch) -> list[tuple[Value | None, Value]]:
        """Of each pass, where its result is between passes, and where its parts are."""
        found = []
        for own in made:
            sizes = own.sizes
            between = None if own.last else scratch.take([sizes.outer, sizes.inner], joins.wide, joins.bytes)
            parts, _ = parts_of(host, own)
            found.append((between, scratch.take([parts, sizes.outer, sizes.inner], joins.wide, joins.bytes)))
        return found

    def take(host: HostEmitter, operands: list[Value], scratch: Scratch) -> None:
        buffers(host, _passes(host, name, spec, joins.wide, operands[0]), scratch)

    def host(host: HostEmitter, operands: list[Value], results: list[Value], scratch: Scratch) -> None:
        made = _passes(host, name, spec, joins.wide, operands[0])
        count = product([host.dim(operands[0], axis) for axis in spec.axes])
        source = operands[0]
        for own, (between, kept) in zip(made, buffers(host, made, scratch), strict=True):
            target = results[0] if between is None else between
            _launch(host, em, joins.wide, own, source, target, kept, count)
            source = target

    return write_device_kernel(
        name, "reduce", [("x", spec.x)], [("out", spec.result)], em, host, scratch=take, order=(0,)
    )


def _passes(em: HostEmitter, name: str, spec: ReduceSpec, wide: str, x: Value) -> list[Pass]:
    """The passes, the innermost group of axes first."""
    sizes = [em.dim(x, axis) for axis in range(len(shape_of(x.type)))]
    ones = {axis for axis, size in enumerate(shape_of(x.type)) if size == 1}
    groups: list[list[int]] = []
    for axis in (axis for axis in spec.axes if axis not in ones):
        between = range(groups[-1][-1] + 1, axis) if groups else ()
        if groups and all(other in ones for other in between):
            groups[-1].append(axis)
        else:
            groups.append([axis])
    groups = groups or [[]]
    done: set[int] = set()
    made = []
    symbol, element = symbol_of(name), element_of(x.type)
    for number, group in enumerate(reversed(groups)):
        first = group[0] if group else len(sizes)
        behind = group[-1] + 1 if group else len(sizes)
        shape = Sizes(
            product(sizes[:first]),
            product([sizes[axis] for axis in group]),
            product([size for axis, size in enumerate(sizes) if axis >= behind and axis not in done]),
        )
        last = number == len(groups) - 1
        made.append(Pass(f"{symbol}_pass{number}", shape, element, element_of(spec.result) if last else wide, last))
        done |= set(group)
        element = wide
    return made


def _part(own: Pass, wide: str) -> Pass:
    """The pass that makes parts, or, but for the last, all that there is."""
    return Pass(f"{own.symbol}_parts", own.sizes, own.source, wide, False)


def _join(own: Pass, wide: str) -> Pass:
    """The pass that joins parts: over [1, parts, outer * inner]."""
    unknown = Value("%unknown", "index")
    outer, inner = own.sizes.outer, own.sizes.inner
    columns = outer * inner if isinstance(outer, int) and isinstance(inner, int) else unknown
    # Results of one row each are columns here, even where there is only one.
    columns = unknown if columns == 1 else columns
    return Pass(f"{own.symbol}_join", Sizes(1, unknown, columns), wide, own.target, own.last)


def parts_of(em: HostEmitter, own: Pass, multiple: int = 0) -> tuple[Index, Index]:
    """(parts into which the length is cut, length of a part).

    multiple: parts begin at multiples of it; of vectors, in rows, by default.
    """
    sizes = own.sizes
    multiple = multiple or (own.lanes[0] if own.rows else 1)
    run = sizes.outer if own.rows else sizes.outer * em.iceildiv(sizes.inner, own.per_block(own.lanes[0]))
    blocks = em.imax(em.iceildiv(run, own.per_block(1)) if own.rows else run, 1)
    wanted = (blocks + (BLOCKS - 1)) // blocks
    parts = em.imax(em.imin(em.imin(wanted, MOST_PARTS), sizes.length // LEAST), 1)
    length = em.imax((sizes.length + (parts - 1)) // parts, 1)
    length = em.iceildiv(length, multiple) * multiple
    return em.imax((sizes.length + (length - 1)) // length, 1), length


def _launch(
    host: HostEmitter,
    em: DeviceEmitter,
    wide: str,
    own: Pass,
    source: Value,
    target: Value,
    kept: Value,
    count: Index,
) -> None:
    """Launches a pass, in parts and their join where there are several."""
    parts, length = parts_of(host, own)

    def whole() -> None:
        launch_pass(
            host, em, own if own.last else _part(own, wide), source, target, own.sizes, 1, own.sizes.length, count
        )

    def in_parts() -> None:
        launch_pass(host, em, _part(own, wide), source, kept, own.sizes, parts, length, count)
        columns = own.sizes.outer * own.sizes.inner
        launch_pass(host, em, _join(own, wide), kept, target, Sizes(1, parts, columns), 1, parts, count)

    if isinstance(parts, int):
        whole() if parts == 1 else in_parts()
        return
    with host.if_(host.cmpi("eq", parts, 1)) as branch:
        whole()
        branch.else_()
        in_parts()


def launch_pass(
    host: HostEmitter,
    em: DeviceEmitter,
    own: Pass,
    source: Value,
    target: Value,
    sizes: Sizes,
    parts: Index,
    length: Index,
    count: Index,
) -> None:
    """Launches a pass whose kernels `write_pass` wrote.

    Args:
        parts, length: into how many parts the length is cut, and how long these are.
        count: what a mean is divided by.
    """
    arguments = [source, target, *(host.i64(size) for size in [*sizes.all(), length, count])]

    def launch(lanes: int) -> None:
        if own.rows:
            blocks = host.iceildiv(sizes.outer, own.per_block(lanes))
        else:
            blocks = sizes.outer * host.iceildiv(sizes.inner, own.per_block(lanes))
        width = max(4, BITS[own.source] // 8)
        shared = width * (THREADS // WARP) if own.rows else width * THREADS * lanes
        host.launch(f"{own.symbol}{lanes}", [blocks, parts], THREADS, arguments, shared=shared)

    by_vectors(host, own.lanes, [sizes.length if own.rows else sizes.inner], launch)


def write_pass(em: DeviceEmitter, joins: Joins, own: Pass, *, constant: bool = False) -> None:
    """Writes the kernels of a pass; `constant`: x is a parameter of the model."""
    parameters: list[Parameter] = [pointer("x", readonly=True, constant=constant), pointer("out")]
    parameters += [(key, "i64") for key in ("outer", "length", "inner", "per_part", "count")]
    for lanes in own.lanes:
        with em.kernel(f"{own.symbol}{lanes}", parameters, THREADS, chained=True) as (x, out, *numbers):
            body = PassBody(em, joins, own, own.sizes.told(numbers), numbers[3], numbers[4], lanes, x, out)
            if own.rows:
                body.rows()
            else:
                body.columns()


@dataclass(frozen=True)
class _Totals:
    """Of each lane what was joined so far; of sums of floats what additions lost, too."""

    sums: list[Value]
    lost: list[Value] | None = None


@dataclass(frozen=True)
class PassBody:
    """Emits a block of a pass, which has one part of its rows or columns."""

    em: DeviceEmitter
    joins: Joins
    own: Pass
    sizes: Sizes
    per_part: Value
    count: Value
    lanes: int
    x: Value
    out: Value

    def bounds(self) -> tuple[Value, Value]:
        """Where the block's part of the length begins and ends."""
        em = self.em
        first = em.wide(em.block("y")) * self.per_part
        return first, em.wide(em.imin(first + self.per_part, self.sizes.length))

    def rows(self) -> None:
        """A team of threads for each row."""
        em, own, lanes, joins = self.em, self.own, self.lanes, self.joins
        begin, end = self.bounds()
        member = em.wide(em.thread() % own.team)
        place = em.wide(em.block()) * (THREADS // own.team) + em.wide(em.thread() // own.team)
        # Threads beyond the last row work on it, too, since warps exchange values; they store nothing.
        row = em.wide(em.imin(place, self.sizes.outer - 1))
        start = em.wide(row * self.sizes.length)
        first = begin + member * lanes

        def load(at: Value) -> list[Value]:
            return joins.load(self.x, own.source, lanes, start + at)

        totals = self.accumulate(first, end, own.team * lanes, load)
        total = joins.warp(joins.tree(totals))
        is_first = em.cmpi("eq", member, 0)
        if own.team > WARP:
            total = self.block_join(total)
        with em.if_(is_first & em.cmpi("ult", em.wide(place), self.sizes.outer)):
            self.store([total], em.wide(em.block("y")) * self.sizes.outer + row)

    def block_join(self, total: Value) -> Value:
        """The totals of a block's warps, for every thread."""
        em, memory = self.em, self.em.shared()
        with em.if_(em.cmpi("eq", em.lane(), 0)):
            em.st(total, memory, em.thread() >> 5)
        em.barrier()
        loaded = [em.ld(memory, vec(4, total.type), at) for at in range(0, THREADS // WARP, 4)]
        return self.joins.tree([part for vector in loaded for part in em.lanes(vector)])

    def columns(self) -> None:
        """A team of threads for the same columns."""
        em, own, lanes, joins = self.em, self.own, self.lanes, self.joins
        begin, end = self.bounds()
        across = own.across
        lane, member = em.thread() % across, em.index(em.thread() // across)
        per_row = em.iceildiv(self.sizes.inner, own.per_block(lanes))
        outer, part = em.wide(em.block()) // per_row, em.wide(em.block()) % per_row
        column = em.wide((part * across + em.wide(lane)) * lanes)
        exists = em.cmpi("ult", column, self.sizes.inner)
        start = em.wide(outer * self.sizes.length * self.sizes.inner + column)
        # Threads without columns have no elements either.
        last = em.select(exists, end, begin)

        def load(at: Value) -> list[Value]:
            place = start + at * self.sizes.inner
            return joins.load(self.x, own.source, lanes, place)

        totals = self.accumulate(begin + em.wide(member), last, own.team, load)
        totals = self.column_join(totals, member, em.index(lane))
        with em.if_(exists & em.cmpi("eq", member, 0)):
            row = em.wide(em.block("y")) * self.sizes.outer + outer
            self.store(totals, row * self.sizes.inner + column)

    def column_join(self, totals: list[Value], member: Value, lane: Value) -> list[Value]:
        """The totals of the threads with the same columns; those of member 0 count."""
        em, team, across = self.em, self.own.team, self.own.across
        width = min(self.lanes, 4)
        kind = vec(width, self.joins.wide) if width > 1 else self.joins.wide

        def place(of: Index, group: int) -> Index:
            own = of * across + lane
            return own * width + group * THREADS * width

        step = team
        while step > 1:
            step //= 2
            # Those of the upper half hand theirs to the lower half.
            giving = em.cmpi("uge", member, step) & em.cmpi("ult", member, 2 * step)
            with em.if_(giving):
                for group in range(self.lanes // width):
                    own = totals[group * width : (group + 1) * width]
                    em.st(em.vector(own) if width > 1 else own[0], em.shared(), place(member, group))
            em.barrier()
            with em.if_(em.cmpi("ult", member, step), totals) as branch:
                joined = []
                for group in range(self.lanes // width):
                    other = em.ld(em.shared(), kind, place(member + step, group))
                    pairs = zip(totals[group * width :], em.lanes(other), strict=False)
                    joined += [self.joins.two(*pair) for pair in pairs]
                branch.yield_(joined)
                branch.else_()
                branch.yield_(totals)
            totals = branch.result
        return totals

    def accumulate(self, first: Value, end: Value, step: int, load: Callable[[Value], list[Value]]) -> list[Value]:
        """The elements at first, first + step, .. before `end` joined, lane by lane; several loads at a time.

        Of sums of floats, what additions lose is carried along: threads may have many elements.
        """
        em, joins, lanes = self.em, self.joins, self.lanes
        carries = joins.kind in ("sum", "mean") and joins.wide.startswith("f")
        start = [joins.start] * lanes

        def added(state: _Totals, own: Sequence[Value]) -> _Totals:
            sums = [joins.two(total, x) for total, x in zip(state.sums, own, strict=True)]
            if state.lost is None:
                return _Totals(sums)
            lost = []
            for before, after, x, missing in zip(state.sums, sums, own, state.lost, strict=True):
                moved = after - before
                error = before - (after - moved) + (x - moved)
                lost.append(missing + error)
            return _Totals(sums, lost)

        whole = end - (UNROLL - 1) * step
        stride = em.const(UNROLL * step, "i64")
        # Bounds are signed: `whole` is negative where there is little.
        with em.loop(first, em.wide(em.imax(whole, first)), stride, _Totals(start, start if carries else None)) as loop:
            loaded = [load(loop.iv + u * step) for u in range(UNROLL)]
            loop.yield_(added(loop.carry, [joins.tree(lane) for lane in zip(*loaded, strict=True)]))
        # What is left begins where the loop above ends.
        turns = (em.wide(em.imax(whole - first, 0)) + (UNROLL * step - 1)) // (UNROLL * step)
        rest = first + turns * (UNROLL * step)
        with em.loop(em.index(rest), end, em.const(step, "i64"), loop.result) as left:
            left.yield_(added(left.carry, load(left.iv)))
        totals = left.result
        if totals.lost is None:
            return totals.sums
        # Differences of infinities are NaN: then the sum is what it is.
        pairs = zip(totals.sums, totals.lost, strict=True)
        return [em.select(em.cmpf("ord", lost, lost), total + lost, total) for total, lost in pairs]

    def store(self, totals: Sequence[Value], place: Index) -> None:
        em = self.em
        if self.own.last and self.joins.kind == "mean":
            count = em.cast("arith.uitofp", self.count, self.joins.wide)
            totals = [total / count for total in totals]
        self.joins.store(totals, self.out, self.own.target, place)
