# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The pass `gpu-turn-float8`: weights of products of 8 bits become rows along K."""

from __future__ import annotations

from rlx_mlir import ir
from rlx_mlir.dialects import mir
from rlx_mlir.lowering.fuse import producer, shape_of
from rlx_mlir.rewriting import PatternSet, Rewriter, apply_patterns, compiler_pass, erase_dead

PATTERNS = PatternSet()


@compiler_pass("gpu-turn-float8")
def turn_float8(module: ir.Operation) -> None:
    """Turn the right operands of scaled_matmul, [K, N], into [N, K].

    Tensor cores read elements of 8 bits along K alone. A parameter is turned once, when it is set (so this runs before
    mir-hoist-params); what is computed, at each call.
    """
    apply_patterns(module, PATTERNS)
    erase_dead(module)


@PATTERNS.pattern(mir.ScaledMatmulOp)
def turn_right_operand(op: mir.ScaledMatmulOp, rewriter: Rewriter) -> None:
    """scaled_matmul(x, W) -> scaled_matmul(x, transpose(W)) transpose_rhs"""
    if op.transpose_rhs:
        return rewriter.no_match("its weights are rows along K")
    last = len(shape_of(op.rhs)) - 1
    order = [*range(last - 1), last, last - 1]
    before = producer(op.rhs, mir.TransposeOp)
    if before is not None and list(before.permutation) == order:
        turned = before.x
    else:
        turned = mir.transpose(op.rhs, order)
    product = mir.scaled_matmul(
        op.result.type, op.lhs, turned, lhs_scale=op.lhs_scale, rhs_scale=op.rhs_scale, transpose_rhs=True
    )
    return rewriter.replace(op, product)
