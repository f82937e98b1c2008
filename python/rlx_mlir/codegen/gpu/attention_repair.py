# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rows of attention by tensor cores in which values that a query doesn't see had a part after all.

Tensor cores multiply whole tiles: a weight of 0 times a value that is NaN or infinite is NaN, though the key isn't
seen. So where a result isn't finite, its row is computed again, one key after the other, over those that it sees.
Results that are finite cost one multiply-add each for the question.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rlx_mlir.codegen.attention import KeyRange
from rlx_mlir.codegen.gpu.attention_base import Problem
from rlx_mlir.codegen.gpu.emit import Index, Value

WARP = 32
GROUP = 4
"""Lanes that share a row of accumulators."""


@dataclass(frozen=True)
class Row:
    """One of a lane's rows of accumulators.

    query: its number. maximum: of its scores, finite; scale: of its results. results: what this lane has of them.
    """

    query: Index
    maximum: Value
    scale: Value
    results: Sequence[Value]


def repair(
    problem: Problem,
    place: tuple[Index, Index, Index],
    keys: KeyRange,
    rows: Sequence[Row],
    put: Callable[[int, Value, Index, Value], None],
) -> None:
    """Computes rows again whose results aren't finite. Called by all lanes of a warp.

    Args:
        place: number of the batch element, of the query head, of the head of keys.
        rows: of this lane.
        put: `put(r, group, d, value)` takes element d of row `r` of the lanes `4 * group`.
    """
    em, (b, h, kv) = problem.em, place
    lane = em.lane()
    for r, row in enumerate(rows):
        probe = em.const(0.0, "f32")
        for x in row.results:
            probe = em.fmaf(x, 0.0, probe)
        # Where the sum of weights is NaN, so is the row.
        broken = em.cmpf("uno", probe, probe) & em.cmpf("ord", row.scale, row.scale)
        broken = broken & em.cmpi("slt", row.query, problem.queries)
        mask = em.ballot(broken)
        with em.if_(em.cmpi("ne", mask, 0)), em.loop(0, WARP // GROUP, hint="group") as group:
            first = group.iv * GROUP
            with em.if_(em.cmpi("ne", (mask >> first) & ((1 << GROUP) - 1), 0)):
                query = em.shuffle_lane("idx", em.index(row.query), first)
                maximum = em.shuffle_lane("idx", row.maximum, first)
                scale = em.shuffle_lane("idx", row.scale, first)
                for d, value in _row(problem, (b, h, kv, query), keys, lane, maximum):
                    with em.if_(em.cmpi("ult", d, problem.spec.head_dim)):
                        put(r, group.iv, d, value * scale)


def _row(
    problem: Problem,
    place: tuple[Index, Index, Index, Value],
    keys: KeyRange,
    lane: Value,
    maximum: Value,
) -> list[tuple[Value, Value]]:
    """(element, result without the scale) of a row: every 32nd element a lane."""
    em, size, (b, h, kv, i) = problem.em, problem.spec.head_dim, place
    places = [lane + WARP * t for t in range(-(-size // WARP))]
    inside = [em.cmpi("ult", place, size) for place in places]
    own = [em.select(one, place, 0) for one, place in zip(inside, places, strict=True)]
    query_row = problem.q.row(em, problem.q.head(em, b, h), i)
    k, v = problem.k.head(em, b, kv), problem.v.head(em, b, kv)
    mask_row = problem.mask_row(b, h, i) if problem.mask is not None else None
    query = []
    for one, d in zip(inside, own, strict=True):
        x = em.widen(em.ld(query_row, problem.element, d))
        query.append(em.select(one, x, 0.0))
    zeros = [em.const(0.0, "f32")] * len(places)
    with em.loop(keys.lo, keys.hi, 1, zeros, hint="key") as loop:
        sees = problem.sees(i, loop.iv, keys, mask_row)
        with em.if_(sees, loop.carry) as branch:
            key_row, value_row = problem.k.row(em, k, loop.iv), problem.v.row(em, v, loop.iv)
            product = em.const(0.0, "f32")
            for d, x in zip(own, query, strict=True):
                product = em.fmaf(x, em.widen(em.ld(key_row, problem.stored, d)), product)
            product = em.warp_reduce("add", product)
            bias = None
            if problem.spec.mask_kind == "bias":
                assert mask_row is not None
                bias = problem.mask_value(mask_row, loop.iv)
            weight = problem.probability(product, bias, maximum)
            values = [em.widen(em.ld(value_row, problem.stored, d)) for d in own]
            branch.yield_([em.fmaf(weight, x, total) for x, total in zip(values, loop.carry, strict=True)])
            branch.else_()
            branch.yield_(loop.carry)
        loop.yield_(branch.result)
    return list(zip(places, loop.result, strict=True))
