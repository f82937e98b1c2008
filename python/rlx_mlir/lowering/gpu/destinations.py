# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The pass `gpu-free-destinations`: loop nests that read their destination read it as an operand."""

from __future__ import annotations

from mlir.dialects import linalg, tensor

from rlx_mlir import ir
from rlx_mlir.lowering.gpu.build import found, name_of
from rlx_mlir.mir.linalg import sizes_of
from rlx_mlir.rewriting import compiler_pass


@compiler_pass("gpu-free-destinations", anchor="func.func", dependent=("linalg", "tensor", "arith"))
def free_destinations(function: ir.Operation) -> None:
    """Let parallel loop nests that read their destination, and are read by one other nest, read it as an operand.

    Fusion would keep their result beside that of the other nest, and write it once for each step of loops that it
    doesn't depend on, after which the next step reads it instead of the destination. Runs on tensors, before
    linalg-fuse-elementwise-ops.
    """
    for op in found(function, "linalg.generic"):
        if _is_exposed(op):
            _free(op)


def _is_exposed(op: ir.AnyOp) -> bool:
    if len(op.results) != 1 or any("reduction" in str(iterator) for iterator in op.attributes["iterator_types"]):
        return False
    uses = list(op.results[0].uses)
    read = next(iter(list(op.regions[0].blocks[0].arguments)[-1].uses), None) is not None
    return read and len(uses) == 1 and name_of(uses[0].owner) == "linalg.generic"


def _free(op: ir.AnyOp) -> None:
    *_, destination = op.operands
    kind = ir.RankedTensorType(destination.type)
    maps = list(op.attributes["indexing_maps"])
    with op.location, ir.InsertionPoint(op):
        fresh = tensor.EmptyOp(sizes_of(destination), kind.element_type).result
        new = linalg.GenericOp(
            [op.results[0].type],
            list(op.operands),
            [fresh],
            ir.ArrayAttr.get([*maps, maps[-1]]),
            op.attributes["iterator_types"],
        )
    block = op.regions[0].blocks[0]
    block.append_to(new.operation.regions[0])
    new.operation.regions[0].blocks[0].add_argument(kind.element_type, op.location)
    op.results[0].replace_all_uses_with(new.operation.results[0])
    op.erase()
