# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The pass `rlx-store-bools-as-bytes`: buffers of i1 become buffers of i8."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from mlir.dialects import arith, memref

from rlx_mlir import ir
from rlx_mlir.attributes import elements_array
from rlx_mlir.rewriting import compiler_pass, operations


@compiler_pass("rlx-store-bools-as-bytes", dependent=("arith", "memref"))
def store_bools_as_bytes(module: ir.Operation) -> None:
    """Turn buffers of i1 into buffers of i8 that hold 0 or 1.

    The conversion of memref to LLVM has no store of less than a byte. Loads truncate and stores extend; values outside
    of memory stay i1. Runs on loops, after linalg and tensor are gone; the layout in memory is numpy's for bool.
    """
    known: dict[ir.Type, ir.Type | None] = {}
    for op in list(operations(module)):
        for region in op.regions:
            for block in region.blocks:
                _retype(block.arguments, known)
        _retype(op.results, known)
        if op.name == "func.func":
            type = ir.TypeAttr(op.attributes["function_type"]).value
            inputs, results = ([_as_bytes(t) for t in types] for types in (type.inputs, type.results))
            op.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(inputs, results))
        elif op.name == "memref.global":
            _retype_global(op)
        elif op.name == "memref.load" and str(op.results[0].type) == "i1":
            _load(op)
        elif op.name == "memref.store" and str(op.operands[0].type) == "i1":
            with op.location, ir.InsertionPoint(op):
                op.operands[0] = arith.ExtUIOp(ir.IntegerType.get_signless(8), op.operands[0]).result


def _as_bytes(type: ir.Type) -> ir.Type:
    """The type with i8 elements, where it is a memref of i1."""
    if not isinstance(type, ir.MemRefType) or str(type.element_type) != "i1":
        return type
    return ir.MemRefType.get(type.shape, ir.IntegerType.get_signless(8), type.layout, type.memory_space)


def _retype(values: Iterable[ir.Value], known: dict[ir.Type, ir.Type | None]) -> None:
    """Gives buffers of i1 the type with bytes; `known` has what types become, None for those that stay."""
    for value in values:
        type = value.type
        if type not in known:
            after = _as_bytes(type)
            known[type] = None if after == type else after
        if (wanted := known[type]) is not None:
            value.set_type(wanted)


def _load(op: ir.Operation) -> None:
    with op.location, ir.InsertionPoint(op):
        byte = memref.LoadOp(op.operands[0], list(op.operands)[1:]).result
        bit = arith.TruncIOp(op.results[0].type, byte).result
    op.results[0].replace_all_uses_with(bit)
    op.erase()


def _retype_global(op: ir.Operation) -> None:
    type = ir.TypeAttr(op.attributes["type"]).value
    if _as_bytes(type) == type:
        return
    op.attributes["type"] = ir.TypeAttr.get(_as_bytes(type))
    if "initial_value" in op.attributes and isinstance(op.attributes["initial_value"], ir.DenseElementsAttr):
        bits = elements_array(op.attributes["initial_value"]).astype(np.int8)
        op.attributes["initial_value"] = ir.DenseElementsAttr.get(bits)
