# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The pass `rlx-copies-to-linalg`: copies of buffers become loops."""

from __future__ import annotations

from mlir.dialects import linalg

from rlx_mlir import ir
from rlx_mlir.rewriting import compiler_pass, operations


@compiler_pass("rlx-copies-to-linalg", anchor="func.func", dependent=("linalg",))
def copies_to_linalg(function: ir.Operation) -> None:
    """Turn copies of buffers into linalg, which becomes loops.

    Lowered to LLVM, a copy between buffers of different strides calls a library that isn't there at run time. Copies of
    a buffer to itself, which `cse` leaves of changes in place, vanish. Runs after bufferisation.
    """
    for op in [op for op in operations(function) if op.name == "memref.copy"]:
        source, target = op.operands
        if source == target:
            op.erase()
            continue
        rank = ir.MemRefType(target.type).rank
        identity = ir.AffineMapAttr.get(ir.AffineMap.get_identity(rank))
        parallel = ir.Attribute.parse("#linalg.iterator_type<parallel>")
        with op.location, ir.InsertionPoint(op):
            copy = linalg.GenericOp(
                [], [source], [target], ir.ArrayAttr.get([identity] * 2), ir.ArrayAttr.get([parallel] * rank)
            )
            element = ir.MemRefType(target.type).element_type
            block = copy.regions[0].blocks.append(element, element, arg_locs=[op.location] * 2)
            with ir.InsertionPoint(block):
                linalg.YieldOp([block.arguments[0]])
        op.erase()
