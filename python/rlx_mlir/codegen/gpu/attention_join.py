# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Joins what blocks found for parts of the keys: for each row of results, the maximum and the sum of its weights, and
the values times those weights. One block joins one row, in an order that depends on the number of parts alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from rlx_mlir.codegen.attention import NEGATIVE_INFINITY, KeyRange
from rlx_mlir.codegen.gpu.attention_base import Problem
from rlx_mlir.codegen.gpu.emit import DeviceEmitter, Index, Parameter, Value, pointer, vec
from rlx_mlir.codegen.gpu.kernel import HostEmitter, Scratch
from rlx_mlir.codegen.specs.attention import AttentionSpec

WARP = 32
JOIN_THREADS = 128
MAX_PARTS = JOIN_THREADS
"""Parts of a row: each thread looks at one maximum."""


def join_shared_bytes(size: int) -> int:
    """Shared memory that joining rows of `size` elements needs."""
    return 4 * MAX_PARTS + 64 + 4 * size * (JOIN_THREADS // WARP)


def join(problem: Problem, part: Value, sums: Value, first: Index, count: Value, target: Value) -> None:
    """Writes the result of a row.

    Args:
        part, sums: f32 [..., D], and [..., 2] with maximum and sum.
        first, count: number of the row's first part (i64), and its parts (i32).
        target: the address of the row.
    """
    em, size = problem.em, problem.spec.head_dim
    thread, lane, warp = em.thread(), em.lane(), em.warp()
    # One thread a part: MAX_PARTS are as many as threads.
    with em.if_(em.cmpi("ult", thread, count), ["f32"] * 2) as own:
        own.yield_(em.lanes(em.ld(sums, vec(2, "f32"), (first + em.wide(thread)) * 2)))
        own.else_()
        own.yield_([em.const(NEGATIVE_INFINITY, "f32"), em.const(0.0, "f32")])
    maximum, total = own.result
    weights, exchange = em.shared(), em.shared(MAX_PARTS * 4)
    shift = problem.finite(em.block_reduce("maxnum", maximum, exchange, JOIN_THREADS))
    weight = problem.weight(maximum, shift)
    em.st(weight, weights, thread)
    total = em.block_reduce("add", total * weight, exchange, JOIN_THREADS)
    sums_of = _weighted(problem, part, first, count, weights)
    results = em.shared(MAX_PARTS * 4 + 64)
    for vector, values in enumerate(sums_of):
        at = lane * 4 + vector * WARP * 4
        with em.if_(em.cmpi("ult", at, size)):
            em.st(em.vector(values), results, warp * size + at)
    em.barrier()
    scale = problem.normalising(total)
    with em.loop(thread * 4, size, JOIN_THREADS * 4, hint="d") as d:
        own_values = [em.lanes(em.ld(results, vec(4, "f32"), d.iv + w * size)) for w in range(JOIN_THREADS // WARP)]
        values = [em.tree("add", column) * scale for column in zip(*own_values, strict=True)]
        em.st(em.narrow(em.vector(values), problem.element), target, d.iv)


def _weighted(problem: Problem, part: Value, first: Index, count: Value, weights: Value) -> list[list[Value]]:
    """The sums of this warp's parts, times their weights: every fourth part, 4 elements a lane at a time."""
    em, size = problem.em, problem.spec.head_dim
    vectors = -(-size // (WARP * 4))
    zeros = [[em.const(0.0, "f32")] * 4] * vectors
    lane = em.lane() * 4
    with em.loop(em.warp(), count, JOIN_THREADS // WARP, zeros, hint="part") as loop:
        weight = em.ld(weights, "f32", loop.iv)
        base = (first + em.wide(loop.iv)) * size
        sums = []
        for vector, old in enumerate(loop.carry):
            at = lane + vector * WARP * 4
            at = em.select(em.cmpi("ult", at, size), at, 0)
            values = em.lanes(em.ld(part, vec(4, "f32"), base + em.wide(at)))
            sums.append([em.fmaf(weight, x, total) for x, total in zip(values, old, strict=True)])
        loop.yield_(sums)
    return loop.result


def part_size(problem: Problem, keys: KeyRange, step: int, parts: Index) -> tuple[Index, Index]:
    """(how many keys there are, keys of each of `parts` parts of them: a multiple of `step`)"""
    em = problem.em
    span = em.imax(keys.hi - keys.lo, 0)
    each = (span + (parts - 1)) // parts
    return span, em.iceildiv(each, step) * step


def part_of(problem: Problem, keys: KeyRange, step: int, split: Index, parts: Index) -> KeyRange:
    """One of `parts` parts of some keys: whole multiples of `step` but for the last, which empty ones may follow."""
    _, size = part_size(problem, keys, step, parts)
    lo = keys.lo + split * size
    return KeyRange(keys.offset, lo, problem.em.imin(lo + size, keys.hi))


class Join(Problem):
    """What joins the parts of a row. Grid: queries, heads, batch."""

    def emit(self, part: Value, sums: Value, parts: Value) -> None:
        """part, sums: what the first kernel wrote."""
        em = self.em
        b, h, i = em.block("z"), em.block("y"), em.block("x")
        heads = em.wide(b) * self.spec.num_heads + em.wide(h)
        row = heads * em.wide(self.queries) + em.wide(i)
        target = self.out.row(em, self.out.head(em, b, h), i)
        join(self, part, sums, row * em.wide(parts), parts, target)


@dataclass(frozen=True)
class SplitKeys:
    """Keys in parts, a block each, where there are few tiles of queries for many keys; another kernel joins them.

    Attributes:
        queries: of a tile.
        least: keys of a part at least.
        most: parts at most.
        slots: blocks that run at one time.
        symbol: of the kernel that joins.
    """

    spec: AttentionSpec
    queries: int
    least: int
    most: int
    slots: int
    symbol: str

    #: What both kernels get of it, after everything else.
    PARAMETERS: ClassVar[list[Parameter]] = [pointer("part"), pointer("sums"), ("parts", "i32")]

    def write(self, em: DeviceEmitter) -> None:
        """The kernel that joins."""
        joins = Join(em, self.spec)
        parameters = [*joins.parameters("out"), *self.PARAMETERS]
        with em.kernel(self.symbol, parameters, JOIN_THREADS, min_blocks=8, chained=True) as values:
            joins.bind(values)
            joins.emit(*values[-len(self.PARAMETERS) :])

    def sizes(self, em: HostEmitter, operands: Sequence[Value]) -> tuple[Index, Index, Index, Index]:
        """(batch, queries, tiles of queries, parts of the keys)"""
        spec, (q, k, *_) = self.spec, operands
        batch = Problem.batch(em, spec, q)
        queries, keys = em.dim(q, spec.sequence_axis), em.dim(k, spec.sequence_axis)
        tiles = em.iceildiv(queries, self.queries)
        wanted = self.slots // em.imax(tiles * spec.num_heads * batch, 1)
        return batch, queries, tiles, em.imax(em.imin(wanted, em.imin(keys // self.least, self.most)), 1)

    def take(self, em: HostEmitter, operands: Sequence[Value], scratch: Scratch) -> tuple[Value, Value]:
        """The memory of parts: results, and the maxima and sums of their rows."""
        batch, queries, _, parts = self.sizes(em, operands)
        rows = em.select(em.cmpi("eq", parts, 1), 0, batch * queries * self.spec.num_heads * parts)
        return scratch.take([rows * self.spec.head_dim], "f32"), scratch.take([rows * 2], "f32")

    def join(self, em: HostEmitter, operands: Sequence[Value], result: Value, arguments: Sequence[Value]) -> None:
        """Launches the kernel that joins, with these arguments after the result; it has nothing to do for one part."""
        batch, queries, _, parts = self.sizes(em, operands)
        joined = em.select(em.cmpi("eq", parts, 1), 0, queries)
        grid: list[Index] = [joined, self.spec.num_heads, batch]
        shared = join_shared_bytes(self.spec.head_dim)
        em.launch(self.symbol, grid, JOIN_THREADS, [result, *arguments], shared=shared)
