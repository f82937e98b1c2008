# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What Python knows of each MIR operation, in one place per operation.

A family module (`norms.py`, `attention.py`, …) registers, for each of its operations: the numpy reference that is its
executable meaning, the rule for symbolic dimensions, and the pattern that lowers it to linalg on tensors.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import cache, partial
from itertools import islice
from typing import Any, TypeAlias, TypeVar

import numpy as np

from rlx_mlir import ir
from rlx_mlir.attributes import PythonValue, python_value
from rlx_mlir.dtypes import numpy_dtype
from rlx_mlir.mir.dims import Size
from rlx_mlir.mir.packed import PackedWeight
from rlx_mlir.rewriting import PatternSet

#: A function that is registered for an operation: arguments and results follow from the operands, attributes and
#: results of the operation, as each table below says.
Registered: TypeAlias = Callable[..., Any]

Function = TypeVar("Function", bound=Registered)
Value = TypeVar("Value")

#: Numpy function of each operation, by the operation's name: operands by position (None where an optional one is
#: absent, a `PackedWeight` where the type is packed, all of them for a variadic one, a list for each of several
#: variadic ones), attributes by keyword under their ODS names as Python values (enumerations as their words). Functions
#: whose result doesn't follow from these take `result_dtype` or `result_shape`, too (-1 where the size is the
#: operand's); those of operations with regions take `regions`, which are `Run`s, and may take `result_types`, a
#: function that gives element types and shapes of all results. `evaluate` calls them so.
REFERENCES: dict[str, Registered] = {}

#: A value while operations are evaluated: an array, or a `PackedWeight` where the type is packed. Which one is told by
#: the type of MLIR that it is a value of.
Evaluated: TypeAlias = Any

#: Runs a region on the values of its arguments; gives the values of its terminator's operands.
Run = Callable[[Sequence[object]], list[Evaluated]]

#: Operations that end regions: they compute nothing.
TERMINATORS = frozenset({"mir.condition", "mir.yield"})

#: Operations on buffers, in planned functions: they are read, and never lowered.
PLANNED = frozenset({"mir.entry_view"})

#: Symbolic result dimensions of each operation, by name: a function of the operation and its operands' dimensions.
DIM_RULES: dict[str, Registered] = {}

#: Patterns from MIR to linalg, tensor, arith, math and scf on tensors.
TO_LINALG = PatternSet()

#: What each operation that is made of others is made of, by name: functions that build it of the builders of a graph.
#: `hir/compositions/` has them, and says how they are called; `mir-decompose` puts what they build in its place.
COMPOSITIONS: dict[str, Registered] = {}

#: Rules of reverse mode, of forward mode and of batching, by name. `autodiff/` has them, and says how they are called.
VJPS: dict[str, Registered] = {}
JVPS: dict[str, Registered] = {}
BATCHING: dict[str, Registered] = {}

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


Evaluate = Callable[[ir.Operation, Sequence[object]], list[Evaluated]]


def evaluate(op: ir.AnyOp, operands: Sequence[object], inner: Evaluate | None = None) -> list[Evaluated]:
    """The results of an operation by its reference.

    Args:
        op: the operation.
        operands: the values of its operands, in order: arrays, and a `PackedWeight` where the type is packed.
        inner: evaluates the operations of its regions; by default this function.

    Raises KeyError where the operation has no reference, InputError where a condition at run time doesn't hold.
    """
    operation = op.operation
    name = operation.name
    values, attributes = call_arguments(op, operands)
    declared = operation.results[0].type
    if "result_dtype" in _parameters(name):
        attributes["result_dtype"] = numpy_dtype(declared.element_type)
    if "result_shape" in _parameters(name):
        attributes["result_shape"] = [
            -1 if declared.is_dynamic_dim(i) else declared.get_dim_size(i) for i in range(declared.rank)
        ]
    if "result_types" in _parameters(name):
        attributes["result_types"] = partial(_result_types, op, operands)
    if "regions" in _parameters(name):
        present = [region for region in operation.regions if len(region.blocks)]
        attributes["regions"] = [_runner(region.blocks[0], inner or evaluate) for region in present]
    results = REFERENCES[name](*values, **attributes)
    listed = results if isinstance(results, tuple) else (results,)
    return [np.asarray(own) if isinstance(own, np.generic) else own for own in listed]  # numpy's of no dimension


def call_arguments(op: ir.AnyOp, operands: Sequence[Value]) -> tuple[list[Any], dict[str, PythonValue]]:
    """What references and compositions are called with: arguments by position, and attributes by keyword.

    Args:
        op: the operation.
        operands: what stands for each of its operands, in order.
    """
    operation = op.operation
    inherent = [key for key in operation.attributes if "." not in key]  # others belong to dialects, such as `mir.wide`
    attributes = {key: python_value(operation.attributes[key]) for key in inherent}
    segments = attributes.pop("operandSegmentSizes", None)
    values: list[Any] = list(operands)
    if segments is not None:
        present = iter(values)
        several = [kind < 0 for kind in type(op.opview)._ODS_OPERAND_SEGMENTS]
        values = [
            list(islice(present, size)) if many else next(present) if size else None
            for size, many in zip(segments, several, strict=True)
        ]
    return values, attributes


def _result_types(op: ir.AnyOp, operands: Sequence[Evaluated]) -> list[tuple[np.dtype, tuple[int, ...]]]:
    """Element types and shapes of the results, by the rule for dimensions."""
    arrays = [value.bytes if isinstance(value, PackedWeight) else value for value in operands]
    found = result_dims(op.operation.opview, [tuple(map(Size.of, array.shape)) for array in arrays])
    return [
        (numpy_dtype(ir.RankedTensorType(result.type).element_type), tuple(size.evaluate({}) for size in dims))
        for result, dims in zip(op.operation.results, found, strict=True)
    ]


def _runner(block: ir.Block, inner: Evaluate) -> Run:
    """What runs the block of a region."""
    ops = [op.operation for op in block.operations]

    def run(values: Sequence[object]) -> list[Evaluated]:
        known: dict[ir.Value, Evaluated] = dict(zip(block.arguments, values, strict=True))
        for op in ops[:-1]:
            known.update(zip(op.results, inner(op, [known[operand] for operand in op.operands]), strict=True))
        return [known[operand] for operand in ops[-1].operands]

    return run
