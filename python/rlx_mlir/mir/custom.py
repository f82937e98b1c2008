# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operations of users' own: how `mir.custom` gets its meaning from what is registered under its name."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rlx_mlir import ir
from rlx_mlir.attributes import python_value
from rlx_mlir.dialects import mir
from rlx_mlir.errors import InputError, UnsupportedError
from rlx_mlir.mir.dims import Size
from rlx_mlir.mir.registry import dim_rule, reference
from rlx_mlir.own_ops import OwnOp, Parameters, TensorSpec, find_op

Dims = tuple[Size, ...]


@reference(mir.CustomOp)
def custom(*inputs: np.ndarray, op: str, parameters: Parameters | None = None) -> tuple[np.ndarray, ...]:
    """What the registered reference gives."""
    return find_op(op).evaluate(inputs, parameters or {})


def registered(op: ir.AnyOp) -> OwnOp:
    """The record of a `mir.custom`; UnsupportedError where there is none."""
    try:
        return find_op(python_value(op.operation.attributes["op"]))
    except InputError as error:
        raise UnsupportedError(str(error)) from None


def parameters_of(op: ir.AnyOp) -> Parameters:
    """The parameters that a `mir.custom` has."""
    attributes = op.operation.attributes
    return python_value(attributes["parameters"]) if "parameters" in attributes else {}


def spec_of(kind: ir.Type, dims: Dims) -> TensorSpec:
    """What `infer` is told of a value."""
    sizes = tuple(size if size.constant is None else size.constant for size in dims)
    return TensorSpec(sizes, str(ir.RankedTensorType(kind).element_type))


def dims_of(own: OwnOp, spec: TensorSpec) -> Dims:
    """The dimensions that `infer` gave; InputError where one is no size."""
    found = []
    for entry in spec.shape:
        whole = isinstance(entry, int | np.integer) and not isinstance(entry, bool)
        if not isinstance(entry, Size) and not whole:
            raise InputError(
                f"'infer' of '{own.name}' gave a shape with {entry!r}, but sizes are numbers, and what is computed of "
                "the operands' sizes"
            )
        size = entry if isinstance(entry, Size) else Size.of(int(entry))
        if size.constant is not None and size.constant < 0:
            raise InputError(f"'infer' of '{own.name}' gave a negative size: {spec}")
        found.append(size)
    return tuple(found)


def inferred(op: ir.AnyOp, operands: Sequence[Dims]) -> list[Dims]:
    """The dimensions of the results of a `mir.custom`, as `infer` says.

    Raises UnsupportedError where no operation is registered, InputError where the results' types are others.
    """
    operation, own = op.operation, registered(op)
    given = [spec_of(value.type, dims) for value, dims in zip(operation.operands, operands, strict=True)]
    specs = own.results(given, parameters_of(op))
    kinds = [ir.RankedTensorType(value.type) for value in operation.results]
    found = [dims_of(own, spec) for spec in specs]
    if len(kinds) != len(specs) or not all(map(_fits, kinds, specs, found)):
        raise InputError(
            f"'infer' of '{own.name}' says {', '.join(map(str, specs))}, but the operation gives "
            f"{', '.join(map(str, kinds))}"
        )
    return found


def _fits(kind: ir.RankedTensorType, spec: TensorSpec, dims: Dims) -> bool:
    """Whether a value of the type can be what `infer` says."""
    return (
        str(kind.element_type) == spec.dtype
        and kind.rank == len(dims)
        and all(
            kind.is_dynamic_dim(axis) or size.constant in (None, kind.get_dim_size(axis))
            for axis, size in enumerate(dims)
        )
    )


@dim_rule(mir.CustomOp)
def custom_dims(op: ir.AnyOp, operands: Sequence[Dims]) -> Dims | list[Dims]:
    """Those that `infer` says."""
    found = inferred(op, operands)
    return found[0] if len(found) == 1 else found
