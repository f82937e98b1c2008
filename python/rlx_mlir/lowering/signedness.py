# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The pass `rlx-strip-signedness`: elements without sign become signless ones."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from rlx_mlir import ir
from rlx_mlir.attributes import elements_array, elements_attribute
from rlx_mlir.mir.scalars import signless
from rlx_mlir.rewriting import compiler_pass, operations

_CAST = "builtin.unrealized_conversion_cast"
#: Operations that have types in attributes, but no results.
_HOLDERS = ("func.func", "memref.global")


@compiler_pass("rlx-strip-signedness")
def strip_signedness(module: ir.Operation) -> None:
    """Turn ui8, ui16 and ui32 into i8, i16 and i32 everywhere, and drop the casts between the two.

    Bodies of loops have signless arithmetic already, of which each operation says whether it takes its operands with
    sign. Elements in memory have the same bits either way. Runs after mir-to-linalg, on kernels and on what calls them.
    """
    stripped = _Stripped()
    casts = []
    for op in list(operations(module)):
        for region in op.regions:
            for block in region.blocks:
                stripped.retype(block.arguments)
        if stripped.retype(op.results) or op.name in _HOLDERS:
            for name in list(op.attributes):
                before = op.attributes[name]
                after = stripped.attribute(before)
                if after != before:
                    op.attributes[name] = after
        if op.name == _CAST:
            casts.append(op)
    for op in casts:
        if [value.type for value in op.operands] == [value.type for value in op.results]:
            for operand, result in zip(list(op.operands), list(op.results), strict=True):
                result.replace_all_uses_with(operand)
            op.erase()


class _Stripped:
    """Types and attributes with signless elements; each type is looked at once."""

    def __init__(self) -> None:
        self._known: dict[ir.Type, ir.Type] = {}

    def type(self, type: ir.Type) -> ir.Type:
        """The type with signless elements."""
        if type not in self._known:
            self._known[type] = self._converted(type)
        return self._known[type]

    def _converted(self, type: ir.Type) -> ir.Type:
        if isinstance(type, ir.FunctionType):
            return ir.FunctionType.get([self.type(t) for t in type.inputs], [self.type(t) for t in type.results])
        if not isinstance(type, ir.RankedTensorType | ir.MemRefType):
            return signless(type)
        own = signless(type.element_type)
        if own == type.element_type:
            return type
        if isinstance(type, ir.MemRefType):
            return ir.MemRefType.get(type.shape, own, type.layout, type.memory_space)
        return ir.RankedTensorType.get(type.shape, own, type.encoding)

    def retype(self, values: Iterable[ir.Value]) -> bool:
        """Gives values the types with signless elements; whether some had others."""
        changed = False
        for value in values:
            after = self.type(value.type)
            if after != value.type:
                value.set_type(after)
                changed = True
        return changed

    def attribute(self, attribute: ir.Attribute) -> ir.Attribute:
        """A type, or elements, with signless elements; other attributes as they are."""
        if isinstance(attribute, ir.TypeAttr):
            return ir.TypeAttr.get(self.type(attribute.value))
        if not isinstance(attribute, ir.DenseIntElementsAttr):
            return attribute
        kind = ir.RankedTensorType(attribute.type)
        after = self.type(kind)
        if after == kind:
            return attribute
        if attribute.is_splat:
            one = ir.RankedTensorType.get([], kind.element_type)
            bits = elements_array(ir.DenseElementsAttr.get_splat(one, attribute.get_splat_value()))
            element = _signless_elements(bits, after.element_type).get_splat_value()
            return ir.DenseElementsAttr.get_splat(after, element)
        return _signless_elements(elements_array(attribute), after.element_type)


def _signless_elements(array: np.ndarray, element: ir.Type) -> ir.DenseElementsAttr:
    """The same bits as elements of a signless type."""
    return elements_attribute(array.view(f"i{array.itemsize}"), element)
