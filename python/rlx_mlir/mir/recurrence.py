# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Recurrences over a sequence."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx_mlir import ir
from rlx_mlir.dialects import mir
from rlx_mlir.mir.dims import Size
from rlx_mlir.mir.linalg import (
    SizeLike,
    as_index,
    element_type,
    empty,
    extract_slice,
    filled,
    for_each,
    generic,
    sizes_of,
    write_slice,
)
from rlx_mlir.mir.numerics import narrow, widen
from rlx_mlir.mir.registry import TO_LINALG, dim_rule, reference
from rlx_mlir.mir.scalars import Scalar, accumulator, constant, exp, sqrt
from rlx_mlir.rewriting import Rewriter


@reference(mir.GatedDeltaNetOp)
def gated_delta_net(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    g: np.ndarray,
    beta: np.ndarray,
    state: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """The gated delta rule, step by step, for all batch items and heads at once: ([B, S, H, n], [B, H, n, n])."""
    queries, keys, values, decay, strength = (widen(x) for x in (q, k, v, g, beta))
    batch, steps, heads, n = q.shape
    memory = np.zeros((batch, heads, n, n), queries.dtype) if state is None else state.copy()
    result = np.empty_like(queries)
    scale = queries.dtype.type(1 / math.sqrt(n)) if n else 1
    for t in range(steps):
        memory *= np.exp(decay[:, t])[..., None, None]
        recalled = np.einsum("bhij,bhi->bhj", memory, keys[:, t])
        correction = (values[:, t] - recalled) * strength[:, t, :, None]
        memory += keys[:, t, :, :, None] * correction[:, :, None]
        result[:, t] = np.einsum("bhij,bhi->bhj", memory, queries[:, t]) * scale
    return narrow(result, q.dtype), memory


@dim_rule(mir.GatedDeltaNetOp)
def gated_delta_net_dims(op: Any, operands: Sequence[tuple[Size, ...]]) -> list[tuple[Size, ...]]:
    """Those of q; [B, H, n, n], or those of the state that is given."""
    batch, _, heads, n = operands[0]
    return [operands[0], (batch, heads, n, n) if op.state is None else operands[5]]


@TO_LINALG.pattern(mir.GatedDeltaNetOp)
def lower_gated_delta_net(op: Any, rewriter: Rewriter) -> None:
    """gated_delta_net -> scf.for over time, of the memory M, which is changed in place, and the result

    a = e^g; d[j] = beta (v[j] - a sum_i k[i] M[i, j]); M[i, j] = a M[i, j] + k[i] d[j]; o[j] = sum_i q[i] M[i, j] / √n
    """
    batch, steps, heads, n = sizes_of(op.q)
    narrow_type = element_type(op.q)
    wide = accumulator(narrow_type)
    memory_sizes, row_sizes = [batch, heads, n, n], [batch, heads, n]
    b, h, i, j = range(4)
    cell, by_key, by_value, gate = [b, h, i, j], [b, h, i], [b, h, j], [b, h]

    if op.state is None:
        start = filled(memory_sizes, wide, 0)
    else:
        start = generic(4, [(op.state, cell)], [(empty(memory_sizes, wide), cell)], lambda state, _: state)
    if 0 in (batch, steps, heads, n):  # a slice of nothing may not start at the end
        rewriter.replace(op, empty(sizes_of(op.q), narrow_type), start)
        return
    # Made outside of the loop, so that no step allocates.
    correction, answer, decay = empty(row_sizes, wide), empty(row_sizes, wide), empty([batch, heads], wide)
    scale = _reciprocal_root(n, wide)

    def rows(destination: ir.Value, memory: ir.Value, factors: ir.Value) -> ir.Value:
        """sum_i factors[i] M[i, j], written into the destination."""
        zeros = generic(3, [], [(destination, [0, 1, 2])], lambda _: constant(wide, 0))
        return generic(
            4,
            [(memory, cell), (factors, by_key)],
            [(zeros, by_value)],
            lambda m, factor, total: total + m * factor.widen(),
            reduction=[i],
        )

    def step(t: ir.Value, memory: ir.Value, result: ir.Value) -> list[ir.Value]:
        q, k, v = (extract_slice(x, [0, t, 0, 0], [batch, 1, heads, n], drop=[1]) for x in (op.q, op.k, op.v))
        g, beta = (extract_slice(x, [0, t, 0], [batch, 1, heads], drop=[1]) for x in (op.g, op.beta))
        a = generic(2, [(g, [0, 1])], [(decay, [0, 1])], lambda g, _: exp(g.widen()))
        d = generic(
            3,
            [(v, [0, 1, 2]), (a, [0, 1]), (beta, [0, 1])],
            [(rows(correction, memory, k), [0, 1, 2])],
            lambda v, a, beta, recalled: beta.widen() * (v.widen() - a * recalled),
        )
        operands = [(k, by_key), (d, by_value), (a, gate)]
        memory = generic(4, operands, [(memory, cell)], lambda k, d, a, m: a * m + k.widen() * d)
        o = rows(answer, memory, q)
        written = write_slice(
            o, result, [0, t, 0, 0], [batch, 1, heads, n], drop=[1], body=lambda x: (x * scale).to(narrow_type)
        )
        return [memory, written]

    memory, result = for_each(0, steps, [start, empty(sizes_of(op.q), narrow_type)], step)
    rewriter.replace(op, result, memory)


def _reciprocal_root(size: SizeLike, type: ir.Type) -> Scalar:
    """1 / sqrt(size)"""
    if isinstance(size, int):
        return constant(type, 1 / math.sqrt(size) if size else 1)
    return 1 / sqrt(Scalar(as_index(size)).to(type))
