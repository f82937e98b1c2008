# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Products."""

from __future__ import annotations

from collections.abc import Sequence

from rlx_mlir.exports.stablehlo.builder import Writing
from rlx_mlir.exports.stablehlo.registry import writes
from rlx_mlir.exports.stablehlo.tensors import Tensor


@writes("matmul")
def _matmul(w: Writing, lhs: Tensor, rhs: Tensor, *, transpose_rhs: bool = False) -> Tensor:
    return w.matmul(lhs, rhs, transpose_rhs=transpose_rhs)


@writes("dot_general")
def _dot_general(
    w: Writing,
    lhs: Tensor,
    rhs: Tensor,
    *,
    lhs_contracting: Sequence[int] = (),
    rhs_contracting: Sequence[int] = (),
    lhs_batch: Sequence[int] = (),
    rhs_batch: Sequence[int] = (),
) -> Tensor:
    return w.dot(lhs, rhs, (lhs_contracting, rhs_contracting), (lhs_batch, rhs_batch))


@writes("grouped_matmul")
def _grouped_matmul(w: Writing, x: Tensor, weight: Tensor, expert: Tensor) -> Tensor:
    """Each row by the weight that is chosen for it: products with all of them, of which one is kept."""
    every = w.dot(x, weight, ([1], [1]))  # [M, E, N]
    own = w.binary("minimum", w.binary("maximum", expert, 0), weight.sizes[0] - 1)
    count = w.iota((1, weight.shape[0]), 1, own.word)
    hit = w.compare("eq", w.reshape(own, (*own.shape, 1)), count)
    kept = w.where(w.reshape(hit, (*hit.shape, 1)), every, 0.0)
    return w.reduce(kept, "sum", [1])
