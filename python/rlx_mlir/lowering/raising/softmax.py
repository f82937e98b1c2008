# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Softmax that is written out, of differences from the largest element; and products with the weights that it gives."""

from __future__ import annotations

import math

from rlx_mlir import ir
from rlx_mlir.attributes import python_value
from rlx_mlir.dialects import mir
from rlx_mlir.lowering.fuse import drops_rounding
from rlx_mlir.lowering.raising.matching import Raising, number, producer, sides
from rlx_mlir.rewriting import Rewriter


def add_patterns(raising: Raising) -> None:
    """Adds the patterns of this family."""

    @raising.pattern(mir.MaxOp)
    def fold_least(op: mir.MaxOp, rewriter: Rewriter) -> None:
        """max(x, -inf) -> x"""
        for x, other in sides(op):
            if x.type == op.result.type and number(other) == -math.inf:
                return raising.replace(rewriter, op, x)
        return None

    @raising.pattern(mir.DivOp)
    def raise_softmax(op: mir.DivOp, rewriter: Rewriter) -> None:
        """exp(x - max(x)) / sum(exp(x - max(x))) -> softmax(x)"""
        power, axis = producer(op.lhs, mir.ExpOp), _reduced(op.rhs, "sum", op.lhs)
        if power is None or axis is None or op.lhs.type != op.result.type:
            return None
        shifted = producer(power.x, mir.SubOp)
        if shifted is None or _reduced(shifted.rhs, "max", shifted.lhs) != axis:
            return rewriter.no_match(
                "the exponents aren't differences from their maximum",
                hint="softmax subtracts it, so that no exponential is infinite; exp(x) / sum(exp(x)) may be NaN",
            )
        if len(list(op.lhs.uses)) != 2:
            return rewriter.no_match("the exponentials have other readers")
        if shifted.lhs.type != op.result.type or drops_rounding(op, rewriter):
            return None
        return raising.replace(rewriter, op, mir.softmax(shifted.lhs, axis=axis))

    @raising.pattern(mir.MatmulOp)
    def turn_product(op: mir.MatmulOp, rewriter: Rewriter) -> None:
        """v^T a^T -> (a v)^T, of weights a that softmax gives"""
        turned = producer(op.rhs, mir.TransposeOp)
        rank = len(raising.dims(op.rhs))
        swapped = [*range(rank - 2), rank - 1, rank - 2]
        if (
            turned is None
            or op.transpose_rhs
            or list(turned.permutation) != swapped
            or rank != len(raising.dims(op.lhs))
        ):
            return None
        if producer(turned.x, mir.SoftmaxOp) is None:
            return None
        product = mir.matmul(turned.x, raising.transposed(op.lhs, swapped))
        return raising.replace(rewriter, op, raising.transposed(product, swapped))


def _reduced(value: ir.Value, kind: str, x: ir.Value) -> int | None:
    """The dimension along which a value is the sum or the maximum of x, repeated along it; None where it isn't."""
    rank = len(ir.RankedTensorType(x.type).shape)
    is_aligned = False
    while (view := producer(value, mir.ReshapeOp, mir.ExpandOp)) is not None:
        is_aligned |= len(ir.RankedTensorType(value.type).shape) == rank
        value = view.x
    reduced = producer(value, mir.ReduceOp)
    if reduced is None or str(python_value(reduced.kind)) != kind or reduced.x != x or len(list(reduced.axes)) != 1:
        return None
    axis = int(reduced.axes[0])
    # Without a view, a rank that is one less broadcasts along the first dimension.
    return axis if is_aligned or bool(reduced.keep_dims) or axis == 0 else None
