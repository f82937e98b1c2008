# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Selective scans: state space models whose step, input and output depend on the token."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from mlir.dialects import arith

from rlx_mlir import ir
from rlx_mlir.dialects import mir
from rlx_mlir.mir.cost import Cost, Sizes, cost
from rlx_mlir.mir.dims import Size
from rlx_mlir.mir.linalg import (
    SizeLike,
    as_index,
    converted,
    divided,
    element_type,
    empty,
    extract_slice,
    filled,
    for_each,
    generic,
    index_constant,
    insert_slice,
    plus,
    size_of,
    sizes_of,
    times,
)
from rlx_mlir.mir.numerics import narrow, widen
from rlx_mlir.mir.registry import TO_LINALG, dim_rule, reference
from rlx_mlir.mir.scalars import Scalar, accumulator, exp
from rlx_mlir.rewriting import Rewriter

#: Steps of a channel that are taken before the next channel's: what they read of memory is in the nearest cache then
#: for the channels beside it.
STEPS = 64


@reference(mir.SelectiveScanOp)
def selective_scan(
    x: np.ndarray, delta: np.ndarray, a: np.ndarray, b: np.ndarray, c: np.ndarray, state: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """The recurrence for all batch items and channels at once, step by step: ([B, S, h], [B, h, n])."""
    inputs, steps, decay, into, out = (widen(value) for value in (x, delta, a, b, c))
    memory = np.zeros((x.shape[0], *a.shape), inputs.dtype) if state is None else state.copy()
    result = np.empty_like(inputs)
    for t in range(x.shape[1]):
        step = steps[:, t, :, None]
        memory = np.exp(step * decay) * memory + step * inputs[:, t, :, None] * into[:, t, None, :]
        result[:, t] = np.einsum("bhn,bn->bh", memory, out[:, t])
    return narrow(result, x.dtype), memory


@cost(mir.SelectiveScanOp)
def selective_scan_cost(op: ir.AnyOp, sizes: Sizes) -> Cost:
    """For each element of `x` and each of its states, a function and six operations beside it."""
    return Cost(7 * sizes[op.a][-1] * sizes.count(op.x))


@dim_rule(mir.SelectiveScanOp)
def selective_scan_dims(op: ir.AnyOp, operands: Sequence[tuple[Size, ...]]) -> list[tuple[Size, ...]]:
    """Those of x; [B, h, n], or those of the state that is given."""
    batch, _, channels = operands[0]
    return [operands[0], (batch, channels, operands[2][1]) if op.state is None else operands[5]]


@TO_LINALG.pattern(mir.SelectiveScanOp)
def lower_selective_scan(op: ir.AnyOp, rewriter: Rewriter) -> None:
    """selective_scan -> scf.for over parts of the sequence, generic: batch items, channels, steps, and states

    The states of a channel are changed in place from step to step, which are a reduction's.
    """
    batch, steps, channels = sizes_of(op.x)
    n = size_of(op.a, 1)
    narrow_type = element_type(op.x)
    wide = accumulator(narrow_type)
    if op.state is None:
        memory = filled([batch, channels, n], wide, 0)
    else:
        cell = [0, 1, 2]
        memory = generic(3, [(op.state, cell)], [(empty([batch, channels, n], wide), cell)], lambda state, _: state)
    result = filled(sizes_of(op.x), wide, 0)
    if isinstance(steps, int) and steps <= STEPS:
        result, memory = _advance([op.x, op.delta, op.a, op.b, op.c], result, memory)
        rewriter.replace(op, converted(result, op.result.type), memory)
        return

    def part(number: ir.Value, result: ir.Value, memory: ir.Value) -> list[ir.Value]:
        start = times(number, STEPS)
        rest = arith.SubIOp(as_index(steps), as_index(start)).result
        count = arith.MinUIOp(rest, index_constant(STEPS)).result

        def own(value: ir.Value, width: SizeLike) -> ir.Value:
            return extract_slice(value, [0, start, 0], [batch, count, width])

        operands = [own(op.x, channels), own(op.delta, channels), op.a, own(op.b, n), own(op.c, n)]
        found, memory = _advance(operands, own(result, channels), memory)
        return [insert_slice(found, result, [0, start, 0], [batch, count, channels]), memory]

    parts = divided(plus(steps, STEPS - 1), STEPS)
    result, memory = for_each(0, parts, [result, memory], part)
    rewriter.replace(op, converted(result, op.result.type), memory)


def _advance(operands: Sequence[ir.Value], result: ir.Value, memory: ir.Value) -> list[ir.Value]:
    """Some steps: x, delta, a, b and c, the sums of the result, which are zeros, and the states before them."""
    item, channel, step, state = range(4)
    by_channel, by_state, cell = [item, step, channel], [item, step, state], [item, channel, state]
    maps = [by_channel, by_channel, [channel, state], by_state, by_state]

    def body(*scalars: Scalar) -> tuple[Scalar, Scalar]:
        x, delta, a, b, c = (scalar.widen() for scalar in scalars[:5])
        total, before = scalars[5:]
        after = exp(delta * a) * before + delta * x * b
        return total + c * after, after

    outputs = [(result, by_channel), (memory, cell)]
    found: list[ir.Value] = generic(4, list(zip(operands, maps, strict=True)), outputs, body, reduction=[step, state])
    return found
