# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The pass `mir-widen-masks`: masks of conditions become numbers."""

from __future__ import annotations

from rlx_mlir import ir
from rlx_mlir.dialects import mir
from rlx_mlir.rewriting import compiler_pass, operations


@compiler_pass("mir-widen-masks", dependent=("mir",))
def widen_masks(module: ir.Operation) -> None:
    """Cast masks of attention that are conditions to the element type of the queries.

    Templates for CPUs read masks of numbers, of which they take those from 0.5 on: without the cast they would decline,
    and loops would do the whole attention.
    """
    for op in [op for op in operations(module) if op.name == "mir.attention"]:
        view = op.opview
        element = ir.RankedTensorType(view.q.type).element_type
        if view.mask is None or str(ir.RankedTensorType(view.mask.type).element_type) != "i1":
            continue
        place = list(op.operands).index(view.mask)
        with op.location, ir.InsertionPoint(op):
            kind = ir.RankedTensorType.get(ir.RankedTensorType(view.mask.type).shape, element)
            op.operands[place] = mir.CastOp(kind, view.mask).result
