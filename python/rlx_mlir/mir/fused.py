# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Fused operations that belong to no other family."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rlx_mlir import ir
from rlx_mlir.dialects import mir
from rlx_mlir.mir.cost import cost, per_element
from rlx_mlir.mir.dims import Size
from rlx_mlir.mir.elementwise import SILU
from rlx_mlir.mir.linalg import SizeLike, divided, elementwise, extract_slice, sizes_of
from rlx_mlir.mir.numerics import narrow, widen
from rlx_mlir.mir.registry import TO_LINALG, dim_rule, reference
from rlx_mlir.mir.scalars import Scalar, compute
from rlx_mlir.rewriting import Rewriter


@reference(mir.FusedSwigluOp)
def fused_swiglu(x: np.ndarray, *, gate_first: bool = False) -> np.ndarray:
    """up * silu(gate), with `x` = [.., up, gate], or [.., gate, up] with `gate_first`."""
    first, second = np.split(widen(x), 2, axis=-1)
    up, gate = (second, first) if gate_first else (first, second)
    return narrow(up * SILU.apply(gate), x.dtype)


#: up * silu(gate)
cost(mir.FusedSwigluOp)(per_element(2))


@dim_rule(mir.FusedSwigluOp)
def fused_swiglu_dims(op: ir.AnyOp, operands: Sequence[tuple[Size, ...]]) -> tuple[Size, ...]:
    """Those of `x`, the last halved."""
    *rest, width = operands[0]
    return (*rest, width // 2)  # an odd width is refused when it is given


@TO_LINALG.pattern(mir.FusedSwigluOp)
def lower_fused_swiglu(op: ir.AnyOp, rewriter: Rewriter) -> None:
    """fused_swiglu(x) -> the halves by tensor.extract_slice, then generic: up * silu(gate)"""
    *outer, width = sizes_of(op.x)
    half = divided(width, 2)
    starts: list[SizeLike] = [0, half]
    first, second = (extract_slice(op.x, [*[0] * len(outer), start], [*outer, half]) for start in starts)
    up, gate = (second, first) if op.gate_first else (first, second)

    def gated(up: Scalar, gate: Scalar) -> Scalar:
        return up * compute(SILU, gate)

    rewriter.replace(op, elementwise(op.result.type, [up, gate], gated))
