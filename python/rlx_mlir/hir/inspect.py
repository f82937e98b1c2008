# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The text that `GraphModule.inspect` gives: what a module holds, one line for each argument, operation and output."""

from __future__ import annotations

import os
from collections import Counter

import numpy as np

from rlx_mlir import ir
from rlx_mlir.attributes import python_value
from rlx_mlir.hir import place
from rlx_mlir.hir.edit import Editing
from rlx_mlir.semantics.function import arguments, function_name, functions, results, role, terminator

_MAX_ELEMENTS = 8


def inspect(module: Editing) -> str:
    """The text; see `GraphModule.inspect`."""
    lines = list(_header(module))
    numbers: dict[ir.Value, str] = {}
    lines.append("")
    block = module._block
    for argument, handle in zip(arguments(module.entry), block.arguments, strict=True):
        numbers[handle] = f"%{argument.name}"
        lines.append(f"  {argument.kind:<6} %{argument.name}: {_type(module, handle)}")
    table = []
    count = 0
    *ops, _ = block.operations
    for op in ops:
        operation = op.operation
        for result in operation.results:
            numbers[result] = f"%{count}"
            count += 1
        table.append(_operation(module, operation, numbers))
    if table:
        lines.append("")
        width = max(len(text) for text, _ in table)
        lines += [f"  {text:<{min(width, 100)}}  {source}".rstrip() for text, source in table]
    lines.append("")
    for output, handle in zip(results(module.entry), terminator(module.entry).operands, strict=True):
        tie = "" if output.tied is None else f" (may take the memory of %{output.tied})"
        lines.append(f"  output {output.name} = {numbers[handle]}{tie}")
    lines += _others(module)
    return "\n".join(lines).rstrip() + "\n"


def _header(module: Editing) -> list[str]:
    nodes = module.nodes()
    policy = f", policy {module.fusion_policy}" if module.fusion_policy else ""
    outputs = len(results(module.entry))
    known = arguments(module.entry)
    params = sum(argument.kind == "param" for argument in known)
    lines = [
        f"{module.stage} module @{module.name}: {len(nodes)} operations, {len(known) - params} inputs, "
        f"{params} params, {outputs} outputs{policy}"
    ]
    kinds = Counter(node._op.name for node in nodes)
    if kinds:
        listed = sorted(kinds.items(), key=lambda item: (-item[1], item[0]))
        lines.append("  operations: " + ", ".join(f"{name} {number}" for name, number in listed))
    if symbols := module.dynamic_symbols:
        lines.append("  symbols: " + ", ".join(symbols))
    return lines


def _operation(module: Editing, op: ir.Operation, numbers: dict[ir.Value, str]) -> tuple[str, str]:
    own = ", ".join(numbers[result] for result in op.results)
    read = ", ".join(numbers.get(operand, "?") for operand in op.operands)
    attributes = {name: _attribute(value) for name, value in op.attributes.items() if name != "operandSegmentSizes"}
    braces = " {" + ", ".join(f"{name} = {value}" for name, value in attributes.items()) + "}" if attributes else ""
    types = ", ".join(_type(module, result) for result in op.results)
    line = f"{own}{' = ' if own else ''}{op.name}({read}){braces}{': ' if types else ''}{types}"
    name, source = place.block_name(op.location), place.source_line(op.location)
    where = f"{os.path.basename(source.file)}:{source.line}" if source else ""
    quoted = f'"{name}"' if name else ""
    return line, f"// {quoted} {where}".rstrip() if quoted or where else ""


def _attribute(attribute: ir.Attribute) -> object:
    value = python_value(attribute)
    if isinstance(value, ir.Attribute):
        try:
            dense = ir.DenseElementsAttr(value)
        except ValueError:
            return str(value)
        return str(value).partition(" : ")[0] if len(dense) <= _MAX_ELEMENTS or dense.is_splat else "dense<...>"
    # Floats are of f32: the shortest text that reads back as the same.
    return str(np.float32(value)) if isinstance(value, float) else value


def _type(module: Editing, value: ir.Value) -> str:
    if not isinstance(value.type, ir.RankedTensorType):
        return str(value.type)
    handle = module._value(value)
    dims = ", ".join(str(dim) for dim in handle.shape)
    return f"[{dims}] {handle.packed or value.type.element_type}"


def _others(module: Editing) -> list[str]:
    """A line for each function beside the entry."""
    lines = []
    for function in functions(module.ir_module):
        if function_name(function) != module.name:
            blocks = function.regions[0].blocks
            size = sum(len(list(block.operations)) - 1 for block in blocks) if len(blocks) else 0
            lines.append(f"  {role(function) or 'function'} @{function_name(function)}: {size} operations")
    return ["", *lines] if lines else []
