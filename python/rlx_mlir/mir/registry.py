# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What Python knows of each MIR operation, in one place per operation.

A family module (`norms.py`, `attention.py`, …) registers, for each of its operations: the numpy reference that is its
executable meaning, the rule for symbolic dimensions, and the pattern that lowers it to linalg on tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from rlx_mlir import ir
from rlx_mlir.mir.dims import Size
from rlx_mlir.rewriting import PatternSet

Function = TypeVar("Function", bound=Callable[..., Any])

#: Numpy function of each operation, by the operation's name: operands by position (None where an optional one is
#: absent), attributes by keyword under their ODS names as Python values (enumerations as their words).
REFERENCES: dict[str, Callable[..., Any]] = {}

#: Symbolic result dimensions of each operation, by name: a function of the operation and its operands' dimensions.
DIM_RULES: dict[str, Callable[[Any, Sequence[Any]], Any]] = {}

#: Patterns from MIR to linalg, tensor, arith and math on tensors.
TO_LINALG = PatternSet()


def reference(*ops: type[ir.OpView]) -> Callable[[Function], Function]:
    """Registers a numpy function as the meaning of operations."""

    def register(function: Function) -> Function:
        for op in ops:
            REFERENCES[op.OPERATION_NAME] = function
        return function

    return register


def dim_rule(*ops: type[ir.OpView]) -> Callable[[Function], Function]:
    """Registers how result dimensions follow from operand dimensions.

    The function takes the operation and one tuple of dimensions for each operand, and returns one tuple for each
    result (or a single tuple where there is one result).
    """

    def register(function: Function) -> Function:
        for op in ops:
            DIM_RULES[op.OPERATION_NAME] = function
        return function

    return register


def result_dims(op: Any, operands: Sequence[tuple[Size, ...]]) -> list[tuple[Size, ...]]:
    """Symbolic dimensions of an operation's results; raises KeyError where the operation has no rule."""
    dims = DIM_RULES[op.operation.name](op, operands)
    return [dims] if len(op.operation.results) == 1 else list(dims)
