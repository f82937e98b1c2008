# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What was built of an operation's operands, in a module of its own, comes to stand in the operation's place."""

from __future__ import annotations

from collections.abc import Sequence

from rlx_mlir import ir
from rlx_mlir.errors import InputError
from rlx_mlir.hir.graph import Graph
from rlx_mlir.hir.values import Value
from rlx_mlir.mir.dims import Size, check_symbol
from rlx_mlir.rewriting import operations
from rlx_mlir.semantics.dims import Dims
from rlx_mlir.semantics.function import INPUT, argument_attributes


def add_argument(graph: Graph, type: ir.Type, dims: Dims, name: str = "", kind: str = INPUT) -> Value:
    """A new argument of a graph, of any type.

    Args:
        graph: whose entry function gets it.
        type: its type.
        dims: its sizes, which may be computed ones; those that are symbols stand in the function, too.
        name, kind: what callers know it by, and whether it is an input or a parameter.
    """
    name = name or f"operand{len(graph._block.arguments)}"
    known = graph._all_dims()  # before there is the argument: its own follow from no symbols
    handle = graph._block.add_argument(type, ir.Location.unknown(graph._context))
    # A size that is found to be a number may still be an unknown one of the type.
    dynamic = [size == ir.ShapedType.get_dynamic_size() for size in ir.RankedTensorType(type).shape]
    symbols = [
        str(size) if _is_symbol(size) else "?" if unknown or size.constant is None else ""
        for size, unknown in zip(dims, dynamic, strict=True)
    ]
    attributes = argument_attributes(graph._context, name, kind, symbols)
    graph._signature.append(graph._function, name, type, attributes)
    known[handle] = dims
    return graph._value(handle)


def _is_symbol(size: Size) -> bool:
    """Whether a size is one that arguments may name."""
    try:
        check_symbol(str(size))
    except InputError:
        return False
    return True


def inline_built(graph: Graph, op: ir.Operation, results: Sequence[ir.Value], dims: dict[ir.Value, Dims]) -> None:
    """Moves the operations of a graph before another operation, whose results they take over, and erases that.

    Args:
        graph: with an argument for each operand, of the operand's type; its handles are no longer good.
        op: the operation that was built; what comes in its place has its location.
        results: values of the graph for those of the operation.
        dims: of values of the operation's function; those that are new and used get theirs.
    """
    for argument, operand in zip(list(graph._block.arguments), op.operands, strict=True):
        argument.replace_all_uses_with(operand)
    made = [each.operation for each in graph._block.operations][:-1]
    for each in made:
        each.move_before(op)
        each.location = op.location
        for inner in operations(each):
            inner.location = op.location
    handles = dict(zip(graph._block.arguments, op.operands, strict=True))
    for result, value in zip(op.results, results, strict=True):
        replacement = handles.get(value, value)
        dims.setdefault(replacement, dims[result])
        result.replace_all_uses_with(replacement)
    graph.invalidate(op.name)
    op.erase()
