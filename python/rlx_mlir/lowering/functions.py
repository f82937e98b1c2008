# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Functions of a module by their role, and changes of a function's signature."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlx_mlir import ir
from rlx_mlir.attributes import python_value
from rlx_mlir.errors import StageError

#: Attribute of functions that aren't the entry: `prepare` or `kernel`.
ROLE = "mir.role"
PREPARE, KERNEL = "prepare", "kernel"


def functions(module: Any, role: str | None = None) -> list[Any]:
    """The functions of the module with the role; those without a role where `role` is None."""
    found = []
    for op in module.operation.regions[0].blocks[0].operations:
        if op.operation.name != "func.func":
            continue
        attributes = op.operation.attributes
        own = python_value(attributes[ROLE]) if ROLE in attributes else None
        if own == role:
            found.append(op)
    return found


def entry_function(module: Any) -> Any:
    """The one function that callers call; StageError where there is none or more than one."""
    entries = [f for f in functions(module) if len(f.operation.regions[0].blocks)]
    if len(entries) != 1:
        names = ", ".join(str(f.name) for f in entries) or "none"
        raise StageError(f"a module to compile has one function without '{ROLE}', but this one has: {names}")
    return entries[0]


def argument_attributes(function: Any) -> list[dict[str, Any]]:
    """For each argument its attributes by name, as Python values."""
    return _attributes(function, "arg_attrs", len(function.arguments))


def result_attributes(function: Any) -> list[dict[str, Any]]:
    """For each result its attributes by name, as Python values."""
    return _attributes(function, "res_attrs", len(function.type.results))


def _attributes(function: Any, name: str, count: int) -> list[dict[str, Any]]:
    attributes = function.operation.attributes
    if name not in attributes:
        return [{} for _ in range(count)]
    return [{entry.name: python_value(entry.attr) for entry in own} for own in attributes[name]]


def set_signature(
    function: Any, arguments: Sequence[ir.Attribute], results: Sequence[ir.Attribute] | None = None
) -> None:
    """Makes the function's type and argument attributes those of its entry block and terminator.

    Args:
        arguments: dictionary attribute of each argument of the entry block.
        results: dictionary attribute of each result; None leaves the results' attributes as they are.
    """
    block = function.operation.regions[0].blocks[0]
    *_, terminator = block.operations
    kind = ir.FunctionType.get([a.type for a in block.arguments], [v.type for v in terminator.operation.operands])
    function.operation.attributes["function_type"] = ir.TypeAttr.get(kind)
    function.operation.attributes["arg_attrs"] = ir.ArrayAttr.get(list(arguments))
    if results is not None:
        function.operation.attributes["res_attrs"] = ir.ArrayAttr.get(list(results))


def dictionary(**attributes: ir.Attribute) -> ir.Attribute:
    """A dictionary attribute; in names, `__` stands for the dot."""
    return ir.DictAttr.get({name.replace("__", "."): value for name, value in attributes.items()})


def raw_argument_attributes(function: Any) -> list[ir.Attribute]:
    """The dictionary attribute of each argument, empty where there is none."""
    attributes = function.operation.attributes
    if "arg_attrs" in attributes:
        return list(attributes["arg_attrs"])
    return [ir.DictAttr.get({}) for _ in function.arguments]


def memref_of(kind: ir.Type) -> str:
    """The identity-layout buffer of a tensor; a packed weight is its bytes."""
    tensor = ir.RankedTensorType(kind)
    dims = "x".join(["?" if size < 0 else str(size) for size in tensor.shape] + [str(tensor.element_type)])
    return f"memref<{dims}>"


def parse_into(block: Any, text: str) -> list[Any]:
    """Parses functions and appends those that have bodies to the block of a module; returns them."""
    parsed = ir.Module.parse(text)
    defined = [op for op in parsed.body.operations if len(op.operation.regions[0].blocks)]
    for op in defined:
        block.append(op)
    return defined
