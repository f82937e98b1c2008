# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Selective scans: state space models whose step, input and output depend on the token."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rlx_mlir import ir
from rlx_mlir.dialects import mir
from rlx_mlir.mir.cost import Cost, Sizes, cost
from rlx_mlir.mir.dims import Size
from rlx_mlir.mir.linalg import (
    Map,
    converted,
    element_type,
    empty,
    filled,
    generic,
    size_of,
    sizes_of,
)
from rlx_mlir.mir.numerics import narrow, widen
from rlx_mlir.mir.registry import TO_LINALG, dim_rule, reference
from rlx_mlir.mir.scalars import Scalar, accumulator, exp_in_loop
from rlx_mlir.rewriting import Rewriter


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
    """selective_scan -> generic: batch items, steps, states, and channels, which lie beside each other in memory

    States are changed in place from step to step, along a reduction.
    """
    batch, _, channels = sizes_of(op.x)
    n = size_of(op.a, 1)
    narrow_type = element_type(op.x)
    wide = accumulator(narrow_type)
    item, step, state, channel = range(4)
    turned: Map = [0, 2, 1]
    rates = generic(2, [(op.a, [1, 0])], [(empty([n, channels], wide), [0, 1])], lambda a, _: a.widen())
    start = (empty([batch, n, channels], wide), [0, 1, 2])
    if op.state is None:
        memory = filled([batch, n, channels], wide, 0)
    else:
        memory = generic(3, [(op.state, turned)], [start], lambda state, _: state)
    by_channel, by_state = [item, step, channel], [item, step, state]
    operands: list[tuple[ir.Value, Map]] = [(op.x, by_channel), (op.delta, by_channel), (rates, [state, channel])]
    operands += [(op.b, by_state), (op.c, by_state)]

    def body(*scalars: Scalar) -> tuple[Scalar, Scalar]:
        x, delta, a, b, c = (scalar.widen() for scalar in scalars[:5])
        total, before = scalars[5:]
        after = exp_in_loop(delta * a) * before + delta * x * b
        return total + c * after, after

    outputs: list[tuple[ir.Value, Map]] = [(filled(sizes_of(op.x), wide, 0), by_channel)]
    outputs.append((memory, [item, state, channel]))
    result, memory = generic(4, operands, outputs, body, reduction=[step, state])
    last = (empty([batch, channels, n], wide), [0, 1, 2])
    rewriter.replace(
        op, converted(result, op.result.type), generic(3, [(memory, turned)], [last], lambda state, _: state)
    )
