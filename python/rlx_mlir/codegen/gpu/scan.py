# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The schedule for running sums along an axis of [outer, length, inner].

- Where inner is 1, a block goes along a row, a tile of a vector for each thread at a time: threads sum their vectors,
  warps and then the block sum what comes before each thread, and the total is carried on to the next tile.
- Elsewhere a thread goes along a vector of neighbouring columns.

Where that makes few blocks, the length is cut into parts: a first launch sums each part (`reduce.py`), and each block
of the second one starts from the sums of the parts before its own. The order of sums depends on sizes alone.
"""

from __future__ import annotations

from dataclasses import dataclass

from rlx_mlir.codegen import UnsupportedByTemplate
from rlx_mlir.codegen.emit import Index, Value, element_of, vec
from rlx_mlir.codegen.gpu.emit import DeviceEmitter, Parameter, pointer
from rlx_mlir.codegen.gpu.kernel import (
    Constants,
    DeviceKernel,
    HostEmitter,
    Scratch,
    by_vectors,
    symbol_of,
    write_device_kernel,
)
from rlx_mlir.codegen.gpu.reduce import THREADS, WARP, Joins, Pass, Sizes, launch_pass, parts_of, write_pass
from rlx_mlir.codegen.specs import ScanSpec

#: Steps of a column whose loads are under way together.
UNROLL = 8


def emit_scan(name: str, spec: ScanSpec, chip: str, constants: Constants = frozenset()) -> DeviceKernel:
    """The kernel of a running sum.

    Raises UnsupportedByTemplate for types of elements other than f32, f16, bf16 and i32.
    """
    em, element = DeviceEmitter(chip), element_of(spec.x)
    joins = Joins.of(em, "sum", element)
    if joins.bytes != 4:
        raise UnsupportedByTemplate(f"{name}: running sums of {element} have no schedule")
    symbol = symbol_of(name)

    def sums(sizes: Sizes) -> Pass:
        return Pass(f"{symbol}_parts", sizes, element, joins.wide, False)

    known = Sizes.around(HostEmitter(), Value("%x", spec.x), spec.axis)
    parts, _ = _parts(HostEmitter(), sums(known))
    several = not (isinstance(parts, int) and parts == 1)
    if several:
        write_pass(em, joins, sums(known), constant=0 in constants)
    widths = sums(known).lanes
    parameters: list[Parameter] = [
        pointer("x", readonly=True, constant=0 in constants),
        pointer("out"),
        *([pointer("sums", readonly=True)] if several else []),
        *((key, "i64") for key in ("outer", "length", "inner", "per_part")),
    ]
    for lanes in widths:
        with em.kernel(f"{symbol}_scan{lanes}", parameters, THREADS, chained=True) as (x, out, *given):
            before = given.pop(0) if several else None
            body = _Scan(em, joins, element, known.told(given), given[3], lanes, x, out, before, spec.exclusive)
            if sums(known).rows:
                body.row()
            else:
                body.column()

    def take(host: HostEmitter, operands: list[Value], scratch: Scratch) -> Value | None:
        if not several:
            return None
        own = sums(Sizes.around(host, operands[0], spec.axis))
        count, _ = _parts(host, own)
        return scratch.take([count, own.sizes.outer, own.sizes.inner], joins.wide)

    def host(host: HostEmitter, operands: list[Value], results: list[Value], scratch: Scratch) -> None:
        own = sums(Sizes.around(host, operands[0], spec.axis))
        count, length = _parts(host, own)
        kept = take(host, operands, scratch)
        if kept is not None:
            # Nothing comes before a first part, so its sum alone isn't computed.
            needed = host.index(count * host.imin(count - 1, 1))
            launch_pass(host, em, own, operands[0], kept, own.sizes, needed, length, 1)
        numbers = [host.i64(size) for size in [*own.sizes.all(), length]]
        arguments = [operands[0], results[0], *([] if kept is None else [kept]), *numbers]

        def launch(lanes: int) -> None:
            if own.rows:
                blocks: Index = own.sizes.outer
            else:
                blocks = own.sizes.outer * host.iceildiv(own.sizes.inner, THREADS * lanes)
            shared = 4 * (THREADS // WARP) if own.rows else 0
            host.launch(f"{symbol}_scan{lanes}", [blocks, count], THREADS, arguments, shared=shared)

        by_vectors(host, widths, [own.sizes.length if own.rows else own.sizes.inner], launch)

    return write_device_kernel(name, "scan", [("x", spec.x)], [("out", spec.x)], em, host, scratch=take, order=(0,))


def _parts(em: HostEmitter, own: Pass) -> tuple[Index, Index]:
    """Parts of whole tiles."""
    return parts_of(em, own, THREADS * own.lanes[0] if own.rows else UNROLL)


@dataclass(frozen=True)
class _Scan:
    """Emits a block, which has one part of its row or columns."""

    em: DeviceEmitter
    joins: Joins
    element: str
    sizes: Sizes
    per_part: Value
    lanes: int
    x: Value
    out: Value
    sums: Value | None
    exclusive: bool

    def bounds(self) -> tuple[Value, Value]:
        """Where the block's part of the length begins and ends."""
        em = self.em
        first = em.wide(em.block("y")) * self.per_part
        return first, em.wide(em.imin(first + self.per_part, self.sizes.length))

    def before(self, place: Index, lanes: int) -> list[Value]:
        """The sums of the parts before the block's, of `lanes` neighbouring ones of [outer, inner] from `place` on."""
        em, joins = self.em, self.joins
        zeros = [joins.start] * lanes
        if self.sums is None:
            return zeros
        sums, distance = self.sums, self.sizes.outer * self.sizes.inner
        with em.loop(em.const(0, "i64"), em.wide(em.block("y")), em.const(1, "i64"), zeros) as loop:
            at = loop.iv * distance + place
            own = [em.ld(sums, joins.wide, at + lane) for lane in range(lanes)]
            loop.yield_([joins.two(total, x) for total, x in zip(loop.carry, own, strict=True)])
        return loop.result

    def running(self, values: list[Value], start: Value) -> tuple[list[Value], Value]:
        """(running sums of some values that follow `start`, the sum of all)"""
        found = []
        for value in values:
            after = self.joins.two(start, value)
            found.append(start if self.exclusive else after)
            start = after
        return found, start

    def row(self) -> None:
        """A block along its part of a row."""
        em, joins, lanes = self.em, self.joins, self.lanes
        begin, end = self.bounds()
        row = em.wide(em.block())
        start = em.wide(row * self.sizes.length)
        (carried,) = self.before(row, 1)
        own = em.wide(em.thread() * lanes)
        kind = self.element if lanes == 1 else vec(lanes, self.element)
        with em.loop(begin, end, em.const(THREADS * lanes, "i64"), carried) as loop:
            at = loop.iv + own
            exists = em.cmpi("ult", at, end)
            place = start + at
            loaded = em.ld_if(exists, self.x, kind, place)
            values = em.lanes(em.widen(loaded) if joins.wide == "f32" else loaded)
            total = values[0]
            for value in values[1:]:
                total = joins.two(total, value)
            above, whole = running_of_block(em, joins, total)
            found, _ = self.running(values, joins.two(loop.carry, above))
            with em.if_(exists):
                joins.store(found, self.out, self.element, place)
            loop.yield_(joins.two(loop.carry, whole))

    def column(self) -> None:
        """A thread along its part of some columns."""
        em, joins, lanes = self.em, self.joins, self.lanes
        begin, end = self.bounds()
        per_row = em.iceildiv(self.sizes.inner, THREADS * lanes)
        outer, part = em.wide(em.block()) // per_row, em.wide(em.block()) % per_row
        column = em.wide((part * THREADS + em.wide(em.thread())) * lanes)
        with em.if_(em.cmpi("ult", column, self.sizes.inner)):
            start = em.wide(outer * self.sizes.length * self.sizes.inner + column)
            carried = self.before(outer * self.sizes.inner + column, lanes)

            def place(at: Value) -> Index:
                return start + at * self.sizes.inner

            def step(ats: list[Value], totals: list[Value]) -> list[Value]:
                rows = [joins.load(self.x, self.element, lanes, place(at)) for at in ats]
                for at, row in zip(ats, rows, strict=True):
                    after = [joins.two(total, x) for total, x in zip(totals, row, strict=True)]
                    joins.store(totals if self.exclusive else after, self.out, self.element, place(at))
                    totals = after
                return totals

            # Whole groups of steps, then what is left of the last one.
            groups = (end - begin) // UNROLL * UNROLL
            middle = em.wide(begin + groups)
            with em.loop(begin, middle, em.const(UNROLL, "i64"), carried) as loop:
                loop.yield_(step([loop.iv, *(loop.iv + u for u in range(1, UNROLL))], loop.carry))
            with em.loop(middle, end, em.const(1, "i64"), loop.result) as left:
                left.yield_(step([left.iv], left.carry))


def running_of_block(em: DeviceEmitter, joins: Joins, x: Value) -> tuple[Value, Value]:
    """(the sum of what the threads of the block before have, the sum of all threads'), of numbers of 32 bits.

    Takes the first 4 bytes a warp of shared memory, and begins with a barrier.
    """
    memory = em.shared()
    lane, warp = em.lane(), em.thread() >> 5
    total = x
    for distance in (1, 2, 4, 8, 16):
        other = em.shuffle_lane("up", total, distance)
        total = em.select(em.cmpi("uge", lane, distance), joins.two(total, other), total)
    above = em.select(em.cmpi("eq", lane, 0), joins.start, em.shuffle_lane("up", total, 1))
    em.barrier()
    with em.if_(em.cmpi("eq", lane, WARP - 1)):
        em.st(total, memory, warp)
    em.barrier()
    loaded = [em.ld(memory, vec(4, total.type), at) for at in range(0, THREADS // WARP, 4)]
    sums = [part for vector in loaded for part in em.lanes(vector)]
    earlier: Value = joins.start
    whole = sums[0]
    for number, own in enumerate(sums[1:], 1):
        earlier = em.select(em.cmpi("eq", warp, number), whole, earlier)
        whole = joins.two(whole, own)
    return joins.two(earlier, above), whole
