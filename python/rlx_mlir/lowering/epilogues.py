# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Products of f16 and bf16 in kernels on the generic path: what may stay wide after them does, as in templates."""

from __future__ import annotations

from rlx_mlir import ir
from rlx_mlir.attributes import python_value
from rlx_mlir.dialects import mir
from rlx_mlir.lowering.functions import CLASS
from rlx_mlir.lowering.fuse import keeps_wide
from rlx_mlir.lowering.groups import POINTWISE
from rlx_mlir.rewriting import operations

_NARROW = ("f16", "bf16")


def widen_epilogues(function: ir.Operation) -> None:
    """Doesn't round products with panels, nor sums of them, whose results may stay wide in their kernel.

    Packing takes `mir.fused_matmul_bias_act`, which rounds once, apart into a product, a sum and an activation; the
    values between them stay wide. A function that is no kernel of class gemm stays as it is.
    """
    attributes = function.attributes
    if CLASS not in attributes or python_value(attributes[CLASS]) != "gemm":
        return
    wide: dict[ir.Value, ir.Value] = {}
    for op in list(operations(function, nested=False)):
        product = isinstance(op.opview, mir.DequantMatmulOp) and keeps_wide(op)
        if not product and not (op.name in POINTWISE and any(operand in wide for operand in op.operands)):
            continue
        own = ir.RankedTensorType(op.results[0].type)
        if str(own.element_type) not in _NARROW:
            continue
        with ir.InsertionPoint(op), op.location:
            operands = [wide[v] if v in wide else _widened(v) for v in op.operands]
            types = [ir.RankedTensorType.get(own.shape, ir.F32Type.get())]
            result = ir.Operation.create(op.name, types, operands, dict(op.attributes.items())).results[0]
            rounded = mir.cast(own, result)
        op.results[0].replace_all_uses_with(rounded)
        if keeps_wide(op):
            wide[rounded] = result
        op.erase()
    for rounded in wide:
        if not list(rounded.uses):
            rounded.owner.erase()


def _widened(value: ir.Value) -> ir.Value:
    """The value in f32, where it is of f16 or bf16."""
    own = ir.RankedTensorType(value.type)
    if str(own.element_type) not in _NARROW:
        return value
    return mir.cast(ir.RankedTensorType.get(own.shape, ir.F32Type.get(), own.encoding), value)
