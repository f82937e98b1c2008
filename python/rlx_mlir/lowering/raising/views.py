# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Views of views, and products with one: what stands between the operations that other patterns look for."""

from __future__ import annotations

from rlx_mlir import ir
from rlx_mlir.attributes import python_value
from rlx_mlir.dialects import mir
from rlx_mlir.lowering.raising.matching import Raising, axis_of, is_number, producer, sides
from rlx_mlir.rewriting import Rewriter


def add_patterns(raising: Raising) -> None:
    """Adds the patterns of this family."""

    @raising.pattern(mir.TransposeOp)
    def fold_transposes(op: mir.TransposeOp, rewriter: Rewriter) -> None:
        """transpose(transpose(x)) -> transpose(x), or x"""
        if producer(op.x, mir.TransposeOp) is not None:
            raising.replace(rewriter, op, raising.transposed(op.x, list(op.permutation)))

    @raising.pattern(mir.ReshapeOp)
    def fold_reshapes(op: mir.ReshapeOp, rewriter: Rewriter) -> None:
        """reshape(reshape(x)) -> x, where it has that shape"""
        inner = producer(op.x, mir.ReshapeOp)
        for x in (op.x, *([inner.x] if inner is not None else [])):
            if x.type == op.result.type and raising.dims(x) == raising.dims(op.result):
                return raising.replace(rewriter, op, x)
        return None

    @raising.pattern(mir.ExpandOp)
    def fold_expansion(op: mir.ExpandOp, rewriter: Rewriter) -> None:
        """expand(x) -> x, where nothing is repeated"""
        if raising.dims(op.x) == raising.dims(op.result):
            raising.replace(rewriter, op, op.x)

    @raising.pattern(mir.CastOp)
    def fold_cast(op: mir.CastOp, rewriter: Rewriter) -> None:
        """cast(x) -> x, of the type that x has"""
        if op.x.type == op.result.type:
            raising.replace(rewriter, op, op.x)

    @raising.pattern(mir.SliceOp)
    def fold_slice(op: mir.SliceOp, rewriter: Rewriter) -> None:
        """slice(x) -> narrow(x), or x, of neighbours between numbers along a dimension of known size"""
        size = raising.dims(op.x)[axis_of(op, len(raising.dims(op.x)))].constant
        if size is None or len(op.operands) > 1 or int(python_value(op.step)) != 1:
            return None
        start, stop = (None if bound is None else int(python_value(bound)) for bound in (op.start, op.stop))
        places = range(size)[start:stop]
        if len(places) == size:
            return raising.replace(rewriter, op, op.x)
        if not places:
            return None
        return raising.replace(rewriter, op, mir.narrow(op.x, axis=op.axis, start=places[0], length=len(places)))

    @raising.pattern(mir.MulOp)
    def fold_unit_factor(op: mir.MulOp, rewriter: Rewriter) -> None:
        """x * 1 -> x"""
        for x, other in sides(op):
            if x.type == op.result.type and is_number(other, 1.0):
                return raising.replace(rewriter, op, x)
        return None

    @raising.pattern(mir.MatmulOp)
    def read_weight_in_place(op: mir.MatmulOp, rewriter: Rewriter) -> None:
        """x transpose(w) -> x w^T, of a matrix"""
        turned = producer(op.rhs, mir.TransposeOp)
        if turned is not None and list(turned.permutation) == [1, 0] and not op.transpose_rhs:
            raising.replace(rewriter, op, mir.matmul(op.lhs, turned.x, transpose_rhs=True))

    @raising.pattern(mir.ReshapeOp)
    def split_batched_product(op: mir.ReshapeOp, rewriter: Rewriter) -> None:
        """reshape(reshape(a) reshape(b)) -> a b, where only leading dimensions are joined and parted again"""
        product = producer(op.x, mir.MatmulOp)
        if product is None or len(raising.dims(op.x)) != 3 or product.transpose_rhs:
            return None
        wanted = raising.dims(op.result)
        left, right = (_apart(raising, operand, wanted) for operand in (product.lhs, product.rhs))
        if len(wanted) < 4 or left is None or right is None:
            return None
        if raising.dims(left)[-2:-1] + raising.dims(right)[-1:] != wanted[-2:]:
            return None
        return raising.replace(rewriter, op, mir.matmul(left, right))


def _apart(raising: Raising, value: ir.Value, wanted: tuple[object, ...]) -> ir.Value | None:
    """What has its leading dimensions joined in a value: those of the result that is wanted."""
    joined = producer(value, mir.ReshapeOp)
    if joined is None:
        return None
    source: ir.Value = joined.x
    own, inner = raising.dims(value), raising.dims(source)
    if len(inner) != len(wanted) or inner[:-2] != wanted[:-2] or inner[-2:] != own[-2:]:
        return None
    return source
