# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What was built of an operation's operands, in a module of its own, comes to stand in the operation's place."""

from __future__ import annotations

from collections.abc import Sequence

from rlx_mlir import ir
from rlx_mlir.hir.graph import Graph
from rlx_mlir.rewriting import operations
from rlx_mlir.semantics.dims import Dims


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
