# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What locations say of operations: the block, the line that built it; and how errors name an operation."""

from __future__ import annotations

from rlx_mlir import ir
from rlx_mlir.place import Place

#: Name of the location of generated code, before the name of its kernel: around that of the kernel's operations.
KERNEL = "kernel "
#: Parameters of an operation that errors name; more of them are counted.
_LISTED = 4


def block_name(location: ir.Location) -> str:
    """The name of the block that an operation belongs to; '' where its location has none."""
    named = _named(location)
    return "" if named is None else str(named.name_str)


def _named(location: ir.Location) -> ir.Location | None:
    """The part of a location that has a name; None where there is none."""
    while not location.is_a_name():
        if location.is_a_callsite():
            location = location.callee
        elif location.is_a_fused() and location.locations:
            location = location.locations[0]
        else:
            return None
    return location


def source_line(location: ir.Location) -> Place | None:
    """The file and line in a location; None where it has none."""
    while True:
        if location.is_a_file():
            return Place(str(location.filename), int(location.start_line))
        if location.is_a_name():
            location = location.child_loc
        elif location.is_a_callsite():
            location = location.callee
        elif location.is_a_fused() and location.locations:
            location = location.locations[0]
        else:
            return None


def describe_location(location: ir.Location) -> str:
    """`block 'ffn.up' (model.py:12)`, or as much of it as the location says; '' where it says nothing."""
    named, line = _named(location), source_line(location)
    name = "" if named is None else str(named.name_str)
    if named is not None and name.startswith(KERNEL):
        return ", ".join(filter(None, (name, describe_location(named.child_loc))))
    if name:
        return f"block '{name}' ({line})" if line is not None else f"block '{name}'"
    if line is None:
        return ""
    return f"line {line.line}" if line.file == "-" else str(line)  # of text that was parsed


def parameters_of(op: ir.AnyOp) -> list[str]:
    """Names of the parameters of its function that an operation reads itself."""
    names = []
    for operand in op.operation.operands:
        if not isinstance(operand.owner, ir.Block):
            continue
        attributes = operand.owner.owner.attributes
        own = attributes["arg_attrs"][ir.BlockArgument(operand).arg_number] if "arg_attrs" in attributes else {}
        if "mir.kind" in own and own["mir.kind"].value == "param" and "mir.name" in own:
            names.append(str(own["mir.name"].value))
    return names


def describe_operation(op: ir.AnyOp) -> str:
    """How errors name an operation: its name, block, line, and the parameters that it reads.

    In models from GGUF files, parameters have the names of the file's tensors.
    """
    operation = op.operation
    parts = [f"'{operation.name}'"]
    if where := describe_location(operation.location):
        parts.append(f"in {where}" if where.startswith(("block", "line", KERNEL)) else f"at {where}")
    if names := parameters_of(operation):
        more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
        parts.append("with " + ", ".join(f"'{name}'" for name in names[:_LISTED]) + more)
    return " ".join(parts)
