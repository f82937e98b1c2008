# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The classes of both dialects' operations, by operation name."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from inspect import signature

from rlx_mlir import ir
from rlx_mlir.attributes import python_value
from rlx_mlir.dialects import hir, mir
from rlx_mlir.mir.packed import packing
from rlx_mlir.mir.scaled import scheme_of_op


@cache
def operation_classes() -> dict[str, type[ir.OpView]]:
    """Each class under the name of its operation, such as `hir.linear`."""
    classes = [value for module in (hir, mir) for value in vars(module).values()]
    return {c.OPERATION_NAME: c for c in classes if isinstance(c, type) and hasattr(c, "OPERATION_NAME")}


@cache
def required(name: str) -> tuple[str, ...]:
    """The operands and attributes that an operation has to be given, by ODS name."""
    parameters = signature(operation_classes()[name].__init__).parameters.values()
    return tuple(p.name for p in parameters if p.default is p.empty and p.name != "self")


@cache
def _argument_names(builder: Callable[..., None]) -> tuple[str, ...]:
    """What the builder of a class of operations takes, by name."""
    return tuple(signature(builder).parameters)


def argument_names(name: str) -> tuple[str, ...]:
    """What an operation takes, by ODS name: operands, in order, and attributes."""
    return _argument_names(operation_classes()[name].__init__)


def operand_name(op: ir.Operation, value: ir.Value) -> str:
    """The first name that an operation has for a value among its operands; its number where it has none."""
    view = op.opview
    for name in _argument_names(type(view).__init__):
        found = getattr(view, name, None)
        if isinstance(found, ir.Value) and found == value:
            return name
    return f"operand {list(op.operands).index(value)}"


def blocks(*names: str) -> tuple[type[ir.OpView], ...]:
    """The classes of HIR operations, by name without the dialect."""
    return tuple(operation_classes()[f"hir.{name}"] for name in names)


def default_label(op: ir.Operation) -> str:
    """What a block without a name is called; the operations that it lowers to carry it."""
    name = str(op.name)
    if name == "mir.custom":
        return str(python_value(op.attributes["op"]))
    if name.startswith("mir."):
        return name.partition(".")[2]
    if name == "hir.swiglu":
        return "swiglu_ffn"
    if name == "hir.dequant_matmul" and (packed := packing(op.operands[1].type)) is not None:
        return f"dequant_matmul({packed.scheme})"
    if name == "hir.dequant_matmul_scaled":
        return f"dequant_matmul({scheme_of_op(python_value(op.opview.scheme), python_value(op.opview.block))})"
    if name == "hir.gated_delta_net" and op.opview.state is not None:
        return "gated_delta_net_carry"
    return name.partition(".")[2]
