# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The builder of operations that users registered."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping

import numpy as np

from rlx_mlir import ir
from rlx_mlir.errors import InputError
from rlx_mlir.hir import place
from rlx_mlir.hir.emitting import Emitting
from rlx_mlir.hir.types import ShapeLike, dtype_word, tensor_type
from rlx_mlir.hir.values import Value, ValueOrTuple
from rlx_mlir.mir.custom import dims_of, spec_of
from rlx_mlir.mir.packed import packing
from rlx_mlir.own_ops import Parameter, TensorSpec, find_op
from rlx_mlir.semantics.dims import Dims


class CustomBuilder(Emitting):
    """`custom`; what it needs of a graph is abstract here."""

    @abstractmethod
    def _all_dims(self) -> dict[ir.Value, Dims]: ...

    @abstractmethod
    def _resolve(self, value: Value) -> ir.Value: ...

    def custom(
        self,
        op: str,
        *operands: Value | np.ndarray,
        name: str | None = None,
        shape: ShapeLike | None = None,
        **parameters: object,
    ) -> ValueOrTuple:
        """An operation that `rlx.register_op` registered under the name `op`; its result, or a tuple of several.

        Args:
            op: the name.
            operands: values or arrays, as many as its `infer` takes.
            name, shape: as for other builders.
            parameters: those of the operation, which `infer` takes by keyword.

        Raises BuildError where nothing is registered under the name, operands or parameters are others, or `infer`
        refuses them.
        """
        with place.checking("custom"):
            own = find_op(op)
            values = own.parameters(parameters)
            specs = own.results([self._spec(operand) for operand in operands], values)
            shapes = [
                [size.constant if size.constant is not None else "dynamic" for size in dims_of(own, spec)]
                for spec in specs
            ]
            types: list[ir.Type] = [
                tensor_type(sizes, spec.dtype, self._context)[0] for sizes, spec in zip(shapes, specs, strict=True)
            ]
        attributes: dict[str, object] = {"op": ir.StringAttr.get(op, self._context)}
        if values:
            attributes["parameters"] = parameters_attribute(values, self._context)
        found = self._emit("mir.custom", {"inputs": list(operands)}, attributes, name=name, shape=shape, result=types)
        return found[0] if len(found) == 1 else found

    def _spec(self, operand: object) -> TensorSpec:
        """What `infer` is told of an operand; InputError where it is none."""
        if isinstance(operand, Value):
            handle = self._resolve(operand)
            if packing(handle.type) is not None:
                raise InputError(f"'{operand.name}' is a packed weight, which operations of your own can't read")
            return spec_of(handle.type, self._all_dims()[handle])
        if isinstance(operand, np.ndarray | np.generic):
            return TensorSpec(operand.shape, dtype_word(operand.dtype))
        raise InputError(f"an operand is a Value or an array, but got {type(operand).__name__} {operand!r}"[:400])


def parameters_attribute(values: Mapping[str, Parameter], context: ir.Context) -> ir.Attribute:
    """Parameters as the attribute that holds them."""
    held: ir.Attribute = ir.DictAttr.get({name: _attribute(value, context) for name, value in values.items()}, context)
    return held


def _attribute(value: Parameter, context: ir.Context) -> ir.Attribute:
    made: ir.Attribute
    if isinstance(value, bool):
        made = ir.BoolAttr.get(value, context)
    elif isinstance(value, int):
        made = ir.IntegerAttr.get(ir.IntegerType.get_signless(64, context), value)
    elif isinstance(value, float):
        made = ir.FloatAttr.get(ir.F64Type.get(context), value, loc=ir.Location.unknown(context))
    elif isinstance(value, str):
        made = ir.StringAttr.get(value, context)
    else:
        made = ir.ArrayAttr.get([_attribute(each, context) for each in value], context)
    return made
