# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The pass `kernel-plan-scratch`: allocations of kernels become parts of memory that callers give."""

from __future__ import annotations

from collections.abc import Collection

from mlir.dialects import arith, memref

from rlx_mlir import ir
from rlx_mlir.errors import CompileError
from rlx_mlir.lowering.kernels import EXTRA_ARGUMENTS
from rlx_mlir.mir.cost import type_bytes
from rlx_mlir.rewriting import compiler_pass, operations


@compiler_pass("kernel-plan-scratch", dependent=("memref", "arith"))
def plan_scratch(module: ir.Operation) -> None:
    """Turn allocations of kernels into views of scratch memory, whose size `NAME.scratch` computes.

    Allocations whose size depends on data, or that stand in loops, stay, and are freed where their block ends.
    """
    bodies = {str(f.name.value): f for f in module.regions[0].blocks[0].operations if f.operation.name == "func.func"}
    for name, body in bodies.items():
        if name.endswith(".body") and (scratch := bodies.get(name.removesuffix("body") + "scratch")) is not None:
            _ScratchPlan(body, scratch).run()


def follows_from_sizes(value: ir.Value, buffers: Collection[ir.Value]) -> bool:
    """Whether the value can be computed from the sizes of the buffers alone."""
    owner = value.owner
    if isinstance(owner, ir.Block):
        return False
    if owner.name == "memref.dim":
        return owner.operands[0] in buffers and follows_from_sizes(owner.operands[1], buffers)
    return str(owner.name).startswith("arith.") and all(follows_from_sizes(v, buffers) for v in owner.operands)


class _ScratchPlan:
    """Lays the allocations of one body out one after the other, in the body and in its measuring function."""

    def __init__(self, body: ir.AnyOp, scratch: ir.AnyOp) -> None:
        self._body, self._scratch = body, scratch
        *_, self._return = operations(scratch, nested=False)
        self._mapping = dict(zip(list(body.arguments)[:-EXTRA_ARGUMENTS], scratch.arguments, strict=True))

    def run(self) -> None:
        """Replaces the allocations."""
        index = ir.IndexType.get()
        offset = measured = None
        buffers = list(self._body.arguments)[:-EXTRA_ARGUMENTS]
        for op in list(operations(self._body, nested=False)):
            if op.name != "memref.alloc" or not all(follows_from_sizes(v, buffers) for v in op.operands):
                continue
            kind = ir.MemRefType(op.results[0].type)
            with ir.InsertionPoint(op), op.location:
                start = offset if offset is not None else arith.constant(index, 0)
                size = self._bytes(kind, list(op.operands))
                view = memref.view(kind, self._body.arguments[-1], start, list(op.operands))
                offset = arith.addi(start, size)
            with ir.InsertionPoint(self._return), op.location:
                sizes = [self._measure(v) for v in op.operands]
                own = self._bytes(kind, sizes)
                measured = own if measured is None else arith.addi(measured, own)
            op.results[0].replace_all_uses_with(view)
            op.erase()
        if measured is not None:
            self._return.operands[0] = measured
        for op in [op for op in operations(self._body) if op.name == "memref.alloc"]:
            *_, terminator = op.block.operations
            if any(use.owner == terminator for use in op.results[0].uses):
                raise CompileError(f"'{self._body.name.value}' gives memory out of a loop, at {op.location}")
            with ir.InsertionPoint(terminator), op.location:
                memref.dealloc(op.results[0])

    @staticmethod
    def _bytes(kind: ir.MemRefType, sizes: list[ir.Value]) -> ir.Value:
        """Bytes of a buffer at the insertion point, rounded up to 64."""
        index = ir.IndexType.get()
        static = type_bytes(kind.element_type)
        for size in kind.shape:
            static *= size if size >= 0 else 1
        total = arith.constant(index, static)
        for size in sizes:
            total = arith.muli(total, size)
        rounded = arith.addi(total, arith.constant(index, 63))
        return arith.muli(arith.divui(rounded, arith.constant(index, 64)), arith.constant(index, 64))

    def _measure(self, value: ir.Value) -> ir.Value:
        if value not in self._mapping:
            operands = [self._measure(v) for v in value.owner.operands]
            clone = value.owner.operation.clone()
            for number, operand in enumerate(operands):
                clone.operation.operands[number] = operand
            self._mapping[value] = clone.operation.results[0]
        return self._mapping[value]
