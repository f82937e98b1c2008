# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The pass `mir-dot-to-matmul`: contractions become products of matrices."""

from __future__ import annotations

from collections.abc import Sequence

from rlx_mlir import ir
from rlx_mlir.errors import CompileError, RlxError
from rlx_mlir.hir.compositions.registry import Builders
from rlx_mlir.hir.decompose import decompose_into
from rlx_mlir.hir.values import Value
from rlx_mlir.mir.dims import product
from rlx_mlir.rewriting import compiler_pass, operations, report_into
from rlx_mlir.semantics.dims import propagate
from rlx_mlir.semantics.function import functions
from rlx_mlir.unsupported import blame


@compiler_pass("mir-dot-to-matmul", dependent=("mir",))
def dot_to_matmul(module: ir.Operation) -> None:
    """Replace contractions by transposes, reshapes and `mir.matmul`, which has kernels.

    Those without a contracted dimension stay, and those that are known to hold nothing.
    """
    report = report_into(module)
    for function in functions(module):
        found = [op for op in operations(function) if op.name == "mir.dot_general"]
        dims = propagate(function) if found else {}
        for op in found:
            if reason := _reason(op):
                if report is not None:
                    report.miss("dot_to_matmul", op, reason)
                continue
            try:
                decompose_into(op, dims, by_matrices)
            except RlxError as error:
                raise CompileError(blame(op, error)) from error


def _reason(op: ir.Operation) -> str:
    """Why a contraction isn't a product of matrices; '' where it is."""
    view = op.opview
    if not len(view.lhs_contracting):
        return "nothing is summed: each element of one operand meets each of the other"
    sizes = [size for value in op.operands for size in ir.RankedTensorType(value.type).shape]
    return "an operand is empty" if 0 in sizes else ""


def by_matrices(
    m: Builders,
    lhs: Value,
    rhs: Value,
    *,
    lhs_contracting: Sequence[int] = (),
    rhs_contracting: Sequence[int] = (),
    lhs_batch: Sequence[int] = (),
    rhs_batch: Sequence[int] = (),
) -> Value:
    """[b.., l.., c..] times [b.., c.., r..], each group of dimensions as one."""
    left, right = (
        [dim for dim in range(x.ndim) if dim not in {*contracting, *batch}]
        for x, contracting, batch in ((lhs, lhs_contracting, lhs_batch), (rhs, rhs_contracting, rhs_batch))
    )
    outer = [lhs.shape[dim] for dim in lhs_batch]

    def matrices(x: Value, batch: Sequence[int], first: Sequence[int], second: Sequence[int]) -> Value:
        """The operand with its dimensions in this order, and the last two groups joined."""
        order = [*batch, *first, *second]
        turned = x if order == list(range(x.ndim)) else m.transpose(x, order)
        shape = [
            *(x.shape[dim] for dim in batch),
            *(product(m.size(x.shape[dim]) for dim in own) for own in (first, second)),
        ]
        return m.reshape(turned, shape)

    own = matrices(lhs, lhs_batch, left, lhs_contracting)
    other = matrices(rhs, rhs_batch, rhs_contracting, right)
    result = m.matmul(own, other)
    return m.reshape(result, [*outer, *(lhs.shape[dim] for dim in left), *(rhs.shape[dim] for dim in right)])
