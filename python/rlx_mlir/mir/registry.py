# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What Python knows of each MIR operation, in one place per operation.

A family module (`norms.py`, `attention.py`, …) registers, for each of its operations: the numpy reference that is its
executable meaning, the rule for symbolic dimensions, and the pattern that lowers it to linalg on tensors.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, TypeVar

import numpy as np

from rlx_mlir import ir
from rlx_mlir.attributes import python_value
from rlx_mlir.dtypes import numpy_dtype
from rlx_mlir.mir.dims import Size
from rlx_mlir.rewriting import PatternSet

Function = TypeVar("Function", bound=Callable[..., Any])

#: Numpy function of each operation, by the operation's name: operands by position (None where an optional one is
#: absent, a `PackedWeight` where the type is packed, all of them for a variadic one), attributes by keyword under their
#: ODS names as Python values (enumerations as their words). Functions whose result doesn't follow from these take
#: `result_dtype` or `result_shape`, too (-1 where the size is the operand's). `evaluate` calls them so.
REFERENCES: dict[str, Callable[..., Any]] = {}

#: Symbolic result dimensions of each operation, by name: a function of the operation and its operands' dimensions.
DIM_RULES: dict[str, Callable[[Any, Sequence[Any]], Any]] = {}

#: Patterns from MIR to linalg, tensor, arith, math and scf on tensors.
TO_LINALG = PatternSet()

#: Operations that run only when parameters are set, through their reference: they have no pattern in TO_LINALG.
PREPARE_ONLY = frozenset({"mir.repack"})


def reference(*ops: type[ir.OpView]) -> Callable[[Function], Function]:
    """Registers a numpy function as the meaning of operations; it runs without floating-point warnings."""

    def register(function: Function) -> Function:
        quiet = np.errstate(all="ignore")(function)  # infinities and NaN are values like others
        for op in ops:
            REFERENCES[op.OPERATION_NAME] = quiet
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


def result_dims(op: ir.AnyOp, operands: Sequence[tuple[Size, ...]]) -> list[tuple[Size, ...]]:
    """Symbolic dimensions of an operation's results; raises KeyError where the operation has no rule."""
    dims = DIM_RULES[op.operation.name](op, operands)
    return [dims] if len(op.operation.results) == 1 else list(dims)


@cache
def _parameters(name: str) -> frozenset[str]:
    return frozenset(inspect.signature(REFERENCES[name]).parameters)


def evaluate(op: ir.AnyOp, operands: Sequence[object]) -> list[Any]:
    """The results of an operation by its reference.

    Args:
        op: the operation.
        operands: the values of its operands, in order: arrays, and a `PackedWeight` where the type is packed.

    Raises KeyError where the operation has no reference, InputError where a condition at run time doesn't hold.
    """
    operation = op.operation
    name = operation.name
    inherent = [key for key in operation.attributes if "." not in key]  # others belong to dialects, such as `mir.wide`
    attributes = {key: python_value(operation.attributes[key]) for key in inherent}
    segments = attributes.pop("operandSegmentSizes", None)
    values = list(operands)
    if segments is not None:
        present = iter(values)
        values = [next(present) if size else None for size in segments]
    declared = operation.results[0].type
    if "result_dtype" in _parameters(name):
        attributes["result_dtype"] = numpy_dtype(declared.element_type)
    if "result_shape" in _parameters(name):
        attributes["result_shape"] = [
            -1 if declared.is_dynamic_dim(i) else declared.get_dim_size(i) for i in range(declared.rank)
        ]
    results = REFERENCES[name](*values, **attributes)
    return list(results) if isinstance(results, tuple) else [results]
