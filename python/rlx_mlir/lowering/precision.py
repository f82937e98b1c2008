# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The pass `mir-precision`: products and attention of f32 in a type of 16 bits."""

from __future__ import annotations

from rlx_mlir import ir
from rlx_mlir.dialects import mir
from rlx_mlir.lowering.fuse import producer
from rlx_mlir.mir.packed import packing
from rlx_mlir.rewriting import Option, ValueChange, compiler_pass, erase_dead, operations

#: What is computed in the type of 16 bits.
COMPUTE = (mir.MatmulOp, mir.DequantMatmulOp, mir.FusedMatmulBiasActOp, mir.ConvOp, mir.AttentionOp)


@compiler_pass(
    "mir-precision",
    options={"policy": Option("type of products and attention", "bf16", ("f32", "bf16", "f16"))},
    changes_values=ValueChange("products and attention read and write numbers of 16 bits", 0.05),
)
def precision(module: ir.Operation, *, policy: str) -> None:
    """Compute products and attention of f32 in a type of 16 bits, which also their results are rounded to.

    Sums within them stay in f32, and so does everything else: reductions, norms, softmax, functions of elements, and
    the inputs and outputs of functions. Indices, masks of conditions, packed weights and other types stay what they
    are, and so does attention to keys and values that are kept in such types. Where one product reads another's result,
    or several read one value, there is one conversion.
    """
    if policy == "f32":
        return
    for op in [op for op in operations(module) if isinstance(op.opview, COMPUTE)]:
        _convert(op.operation, ir.Type.parse(policy, module.context))
    erase_dead(module)


def _is_f32(value: ir.Value) -> bool:
    type = ir.RankedTensorType(value.type)
    return packing(type) is None and str(type.element_type) == "f32"


def _convert(op: ir.Operation, narrow: ir.Type) -> None:
    """Replaces an operation of f32 by one of a narrow type between casts."""
    if not all(map(_is_f32, op.results)):
        return
    if isinstance(op.opview, mir.AttentionOp) and not (_is_f32(op.opview.k) and _is_f32(op.opview.v)):
        return  # caches of narrow types, and of blocks, serve queries of f32
    attributes = {name: op.attributes[name] for name in op.attributes}
    with ir.InsertionPoint(op), op.location:
        operands = [_narrowed(value, narrow) if _is_f32(value) else value for value in op.operands]
        types = [_with_element(result.type, narrow) for result in op.results]
        made = ir.Operation.create(op.name, results=types, operands=operands, attributes=attributes)
        for old, new in zip(op.results, made.results, strict=True):
            old.replace_all_uses_with(mir.cast(old.type, new))
    op.erase()


def _narrowed(value: ir.Value, narrow: ir.Type) -> ir.Value:
    """The value in the narrow type: what it was cast from, or is cast to already, or a cast."""
    wanted = _with_element(value.type, narrow)
    before = producer(value, mir.CastOp)
    if before is not None and before.x.type == wanted:
        source: ir.Value = before.x
        return source
    for use in value.uses:
        user = use.owner.opview
        if isinstance(user, mir.CastOp) and user.result.type == wanted and _is_before(user):
            found: ir.Value = user.result
            return found
    return mir.cast(wanted, value)


def _is_before(op: ir.AnyOp) -> bool:
    """Whether an operation stands before the insertion point, in its block."""
    point = ir.InsertionPoint.current
    return op.operation.block == point.block and op.operation.is_before_in_block(point.ref_operation)


def _with_element(type: ir.Type, element: ir.Type) -> ir.Type:
    return ir.RankedTensorType.get(ir.RankedTensorType(type).shape, element)
