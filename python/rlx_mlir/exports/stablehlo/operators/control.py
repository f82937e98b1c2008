# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Loops and choices. What regions capture is carried by loops, and read where it is by choices."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from rlx_mlir.exports.stablehlo.builder import Writing
from rlx_mlir.exports.stablehlo.operators.shapes import window
from rlx_mlir.exports.stablehlo.operators.shared import looped
from rlx_mlir.exports.stablehlo.registry import writes
from rlx_mlir.exports.stablehlo.tensors import Tensor, is_static, plain
from rlx_mlir.mir.dims import Size


@writes("custom_fn")
def _custom_fn(w: Writing, *inputs: Tensor) -> list[Tensor]:
    found: list[Tensor] = w.block(w.blocks[0], inputs)
    return found


@writes("if")
def _if(w: Writing, condition: Tensor, *captures: Tensor) -> list[Tensor]:
    blocks, types = w.blocks, w.types
    regions = [w.region([], lambda block=block: w.block(block, captures))[0] for block in blocks]
    found: list[Tensor] = w.ops("if", [condition], types, "", regions)
    return found


@writes("while")
def _while(
    w: Writing, inits: Sequence[Tensor], captures: Sequence[Tensor], *, limit: int | None = None
) -> list[Tensor]:
    cond, body = w.blocks
    count, own = len(inits), len(captures)
    counter = [w.constant(np.asarray(0, np.int32), "i32")]
    carried = [*inits, *captures, *counter]

    def holds(*values: Tensor) -> list[Tensor]:
        go = w.block(cond, values[: count + own])[0]
        return [go if limit is None else w.binary("and", go, w.compare("lt", values[-1], limit))]

    def step(*values: Tensor) -> list[Tensor]:
        found = w.block(body, values[: count + own])
        return [*found, *values[count : count + own], w.add(values[-1], 1)]

    return looped(w, carried, holds, step)[:count]


@writes("scan")
def _scan(
    w: Writing,
    inits: Sequence[Tensor],
    xs: Sequence[Tensor],
    captures: Sequence[Tensor],
    *,
    length: int | None = None,
    reverse: bool = False,
    checkpoints: int | None = None,
) -> list[Tensor]:
    (body,), types = w.blocks, w.types
    steps = length if length is not None else xs[0].shape[0]
    count = len(inits)
    stacked = [w.spread(_zero(w, word), shape) for shape, word in types[count:]]
    carried = [w.constant(np.asarray(0, np.int32), "i32"), *inits, *stacked, *xs, *captures]
    ends = np.cumsum([1, count, len(stacked), len(xs), len(captures)])

    def parts(values: Sequence[Tensor]) -> list[list[Tensor]]:
        return [list(values[a:b]) for a, b in pairwise(ends)]

    def step(*values: Tensor) -> list[Tensor]:
        state, stack, rows, own = parts(values)
        at = w.sub(w.extent(plain(Size.of(steps) - 1)), values[0]) if reverse else values[0]
        given = w.block(body, [*state, *(_entry(w, row, at) for row in rows), *own])
        following = [_written(w, each, new, at) for each, new in zip(stack, given[count:], strict=True)]
        return [w.add(values[0], 1), *given[:count], *following, *rows, *own]

    found = looped(w, carried, lambda *values: [w.compare("lt", values[0], w.extent(steps))], step)
    return found[1 : 1 + count + len(stacked)]


def _zero(w: Writing, word: str) -> Tensor:
    return w.constant(np.zeros((), Tensor("", (), word).dtype), word)


def _starts(w: Writing, at: Tensor, rank: int) -> list[Tensor]:
    return [at, *([w.number(0, at)] * (rank - 1))]


def _entry(w: Writing, rows: Tensor, at: Tensor) -> Tensor:
    """One entry along the first dimension."""
    sizes = (1, *rows.shape[1:])
    if not is_static(sizes):
        return w.reshape(window(w, rows, at, sizes, 0), rows.shape[1:])
    attributes = f"slice_sizes = array<i64: {', '.join(map(str, sizes))}>"
    found = w.op("dynamic_slice", [rows, *_starts(w, at, rows.rank)], sizes, rows.word, attributes)
    return w.reshape(found, rows.shape[1:])


def _written(w: Writing, rows: Tensor, entry: Tensor, at: Tensor) -> Tensor:
    """The same with another entry."""
    update = w.reshape(entry, (1, *entry.shape))
    return w.op("dynamic_update_slice", [rows, update, *_starts(w, at, rows.rank)], rows.shape, rows.word)
