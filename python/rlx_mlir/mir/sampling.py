# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Choosing the next token of sequences."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rlx_mlir import ir
from rlx_mlir.dialects import mir
from rlx_mlir.mir.cost import Cost, Sizes, cost, element_bytes
from rlx_mlir.mir.dims import Size
from rlx_mlir.mir.linalg import (
    Map,
    SizeLike,
    as_index,
    empty,
    extract_slice,
    filled,
    for_each,
    generic,
    reduced,
    sizes_of,
    write_slice,
)
from rlx_mlir.mir.registry import TO_LINALG, dim_rule, reference
from rlx_mlir.mir.scalars import Scalar, absolute, element, exp, extract, index
from rlx_mlir.rewriting import Rewriter

#: What stands for a token where nothing can be chosen.
NOTHING = -1
#: Columns of `controls`.
TEMPERATURE, COUNT, TOP_P = range(3)


# ----------------------------------------------------------------------------------------------------------------------
# Reference
# ----------------------------------------------------------------------------------------------------------------------


@reference(mir.SampleOp)
def sample(
    values: np.ndarray,
    indices: np.ndarray,
    controls: np.ndarray,
    draws: np.ndarray,
    chosen: np.ndarray,
    pos: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The tokens that are drawn, [B, 1], their positions, [B], and all tokens that were chosen, [B, P]."""
    rows, (batch, places) = np.arange(values.shape[0]), chosen.shape
    place = np.minimum(np.maximum(pos, 0), places - 1)
    temperature, count, top_p = controls.T[:, :, None]
    with np.errstate(all="ignore"):
        weights = np.exp((values - values[:, :1]) / temperature)
        weights = np.where(np.arange(values.shape[1]) < np.maximum(count, 1), weights, np.float32(0))
        sums = np.cumsum(weights, axis=1, dtype=np.float32)
        last = np.minimum((sums < top_p * sums[:, -1:]).sum(axis=1), values.shape[1] - 1)
        bound = draws[rows, place] * sums[rows, last]
        drawn = np.minimum((sums <= bound[:, None]).sum(axis=1), last)
    drawn = np.where(temperature[:, 0] > 0, drawn, 0)
    impossible = np.isinf(values[:, 0]) | np.isnan(values).any(axis=1)
    token = np.where(impossible, NOTHING, indices[rows, drawn]).astype(np.int32)
    result = chosen.copy()
    result[np.arange(batch), place] = token
    return token[:, None], np.minimum(place + 1, places - 1).astype(np.int32), result


# ----------------------------------------------------------------------------------------------------------------------
# Cost, dimensions
# ----------------------------------------------------------------------------------------------------------------------


@cost(mir.SampleOp)
def sample_cost(op: ir.AnyOp, sizes: Sizes) -> Cost:
    """For each candidate: difference, quotient, exp, sum, two comparisons; one draw is read, one place written."""
    batch = sizes[op.values][0]
    return Cost(
        6 * sizes.count(op.values),
        reads={op.draws: batch * element_bytes(op.draws), op.chosen: 0},
        writes={2: batch * element_bytes(op.chosen)},
    )


@dim_rule(mir.SampleOp)
def sample_dims(op: ir.AnyOp, operands: Sequence[tuple[Size, ...]]) -> list[tuple[Size, ...]]:
    """[B, 1], [B], and those of `chosen`."""
    batch = operands[0][0]
    return [(batch, Size.of(1)), (batch,), operands[4]]


# ----------------------------------------------------------------------------------------------------------------------
# Lowering to linalg
# ----------------------------------------------------------------------------------------------------------------------


#: Where operands of B, and of B times k numbers are read.
_ROWS: Map = [0]
_PAIRS: Map = [0, 1]


def _column(number: int) -> Map:
    """Where one number of each row is read."""
    return [0, ir.AffineConstantExpr.get(number)]


def _running_sums(op: ir.AnyOp, batch: SizeLike, k: int) -> ir.Value:
    """The sums of the candidates' weights up to each of them, [B, k] of f32."""
    f32 = element("f32")

    def weight(value: Scalar, largest: Scalar, temperature: Scalar, count: Scalar, _: Scalar) -> Scalar:
        kept = index(1).to("i32").to("f32") < count.max(1.0)
        return kept.select(exp((value - largest) / temperature), 0.0)

    inputs = [
        (op.values, _PAIRS),
        (op.values, _column(0)),
        (op.controls, _column(TEMPERATURE)),
        (op.controls, _column(COUNT)),
    ]
    weights = generic(2, inputs, [(empty([batch, k], f32), _PAIRS)], weight)

    def add(i: ir.Value, total: ir.Value, sums: ir.Value) -> list[ir.Value]:
        part: list[SizeLike] = [batch, 1]
        own = extract_slice(weights, [0, i], part, drop=[1])
        after = generic(1, [(own, _ROWS)], [(total, _ROWS)], lambda x, total: total + x)
        return [after, write_slice(after, sums, [0, i], part, drop=[1])]

    _, sums = for_each(0, k, [filled([batch], f32, 0), empty([batch, k], f32)], add)
    return sums


@TO_LINALG.pattern(mir.SampleOp)
def lower_sample(op: ir.AnyOp, rewriter: Rewriter) -> None:
    """sample(..) -> weights; a loop that sums them; counts of sums below bounds; an element; a loop that writes it"""
    batch, k = sizes_of(op.values)
    places = sizes_of(op.chosen)[1]
    f32, i32 = element("f32"), element("i32")
    assert isinstance(k, int), "the verifier's rule"
    last_place = Scalar(as_index(places)).to("i32") - 1
    place = generic(1, [(op.pos, _ROWS)], [(empty([batch], i32), _ROWS)], lambda pos, _: pos.max(0).min(last_place))
    following = generic(1, [(place, _ROWS)], [(empty([batch], i32), _ROWS)], lambda x, _: (x + 1).min(last_place))

    sums = _running_sums(op, batch, k)

    def below(sum: Scalar, total: Scalar, top_p: Scalar, count: Scalar) -> Scalar:
        return count + (sum < top_p * total).to("i32")

    inputs = [(sums, _PAIRS), (sums, _column(k - 1)), (op.controls, _column(TOP_P))]
    last = reduced(2, inputs, [batch], _ROWS, 0, below, type=i32)

    def reached(own: Scalar) -> Scalar:
        return own.min(k - 1).to("index")

    def bound_of(place: Scalar, last: Scalar, _: Scalar) -> Scalar:
        return extract(op.draws, [index(0), place.to("index")]) * extract(sums, [index(0), reached(last)])

    bound = generic(1, [(place, _ROWS), (last, _ROWS)], [(empty([batch], f32), _ROWS)], bound_of)
    drawn = reduced(
        2,
        [(sums, _PAIRS), (bound, _ROWS)],
        [batch],
        _ROWS,
        0,
        lambda sum, bound, count: count + (sum <= bound).to("i32"),
        type=i32,
    )
    unordered = reduced(
        2, [(op.values, _PAIRS)], [batch], _ROWS, 0, lambda x, count: count + x.compare("ne", x).to("i32"), type=i32
    )

    def pick(drawn: Scalar, last: Scalar, unordered: Scalar, largest: Scalar, temperature: Scalar, _: Scalar) -> Scalar:
        at = (temperature > 0.0).select(drawn.min(last.min(k - 1)), 0).to("index")
        impossible = absolute(largest).compare("eq", float("inf")) | (unordered > 0)
        return impossible.select(NOTHING, extract(op.indices, [index(0), at]))

    inputs = [
        (drawn, _ROWS),
        (last, _ROWS),
        (unordered, _ROWS),
        (op.values, _column(0)),
        (op.controls, _column(TEMPERATURE)),
    ]
    token = generic(2, inputs, [(empty([batch, 1], i32), _PAIRS)], pick)

    def write(b: ir.Value, chosen: ir.Value) -> list[ir.Value]:
        at = extract(place, [Scalar(b)]).to("index").value
        own = extract_slice(token, [b, 0], [1, 1], drop=[0])
        return [write_slice(own, chosen, [b, at], [1, 1], drop=[0])]

    rewriter.replace(op, token, following, *for_each(0, batch, [op.chosen], write))
