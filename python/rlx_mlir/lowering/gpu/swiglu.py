# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The pass `gpu-split-swiglu`: the two products of a SwiGLU become one kernel with what follows them."""

from __future__ import annotations

from rlx_mlir import ir
from rlx_mlir.dialects import mir
from rlx_mlir.lowering.fuse import only_user, producer
from rlx_mlir.rewriting import PatternSet, Rewriter, apply_patterns, compiler_pass, erase_dead

PATTERNS = PatternSet()


@compiler_pass("gpu-split-swiglu")
def split_swiglu(module: ir.Operation) -> None:
    """Split fused_swiglu of a product with joined weights into two products, silu and mul.

    A kernel for GPUs keeps sums of both products in registers, and writes only what silu and mul give: half of what the
    joined product would, and one launch less. For f16 and bf16 the sums aren't rounded before, so bits change. Runs
    before mir-hoist-params, which would join the weights.
    """
    apply_patterns(module, PATTERNS)
    erase_dead(module)


@PATTERNS.pattern(mir.FusedSwigluOp)
def split_joined_product(op: mir.FusedSwigluOp, rewriter: Rewriter) -> None:
    """fused_swiglu(x [U, G]) -> silu(x G) * (x U)"""
    whole = producer(op.x, mir.MatmulOp)
    if whole is None or only_user(whole.result) is None:
        return rewriter.no_match("its input isn't a product that nothing else reads")
    joined = producer(whole.rhs, mir.ConcatOp)
    transposed = bool(whole.transpose_rhs)
    if joined is None or len(joined.inputs) != 2 or joined.inputs[0].type != joined.inputs[1].type:
        return rewriter.no_match("the weight isn't two matrices of one type, joined")
    rank = ir.RankedTensorType(joined.result.type).rank
    if rank != 2 or ir.IntegerAttr(joined.axis).value % rank != (0 if transposed else 1):
        return rewriter.no_match("the weight isn't joined along the columns of the product")
    first, second = joined.inputs
    gate, up = (first, second) if op.gate_first else (second, first)
    products = [mir.matmul(whole.lhs, weight, transpose_rhs=transposed or None) for weight in (gate, up)]
    return rewriter.replace(op, mir.mul(mir.silu(products[0]), products[1]))
