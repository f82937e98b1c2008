# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Execution of modules by the numpy references of their operations: what compiled code is compared with.

Slow, exact in meaning, and independent of every lowering: HIR runs by the definitions of its blocks, MIR by those of
its primitives.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from rlx_mlir import checks, ir
from rlx_mlir.arrays import as_array, element_word
from rlx_mlir.dtypes import numpy_dtype
from rlx_mlir.errors import ExecutionError, InputError, StageError, UnsupportedError, nearest
from rlx_mlir.locations import describe_operation
from rlx_mlir.mir import PackedWeight
from rlx_mlir.mir.dims import Size
from rlx_mlir.mir.packed import packing
from rlx_mlir.mir.registry import REFERENCES, Evaluate, Evaluated, evaluate
from rlx_mlir.place import located
from rlx_mlir.semantics import blocks as _blocks  # noqa: F401  (registers the references of HIR)
from rlx_mlir.semantics.conditions import conditions
from rlx_mlir.semantics.dims import type_dims
from rlx_mlir.semantics.function import (
    PREPARE,
    Argument,
    arguments,
    body,
    entry_function,
    function_name,
    functions,
    results,
    role,
)
from rlx_mlir.semantics.module import Graph
from rlx_mlir.semantics.ops import operand_name
from rlx_mlir.unsupported import list_operations

#: Called after each operation: the operation, the values of its operands, and those of its results.
Watch = Callable[[ir.Operation, Sequence[object], Sequence[object]], None]


@located
def interpret(
    module: Graph | ir.Module,
    inputs: Mapping[str, np.ndarray],
    *,
    function: str | None = None,
    watch: Watch | None = None,
) -> dict[str, Evaluated]:
    """Runs a function of a module on numpy arrays.

    Args:
        module: at a stage whose operations have references: hir, mir, or kernels.
        inputs: every input and parameter by name. Element types must be those of the arguments (bfloat16 from
            `ml_dtypes`); a packed weight is its bytes, uint8 or int8 `[N, bytes of a row]`, or a `PackedWeight`.
            Where the module prepares parameters, they may be given as they are before.
        function: name of the function; the entry by default.
        watch: is called after each operation, in functions that are called too, and in regions each time they run.

    Returns the outputs by name; those of packed types are `PackedWeight`s.

    Raises:
        InputError: an input is missing, unknown, or of another shape or element type; two arguments give a symbol
            different sizes; or a condition that an operation has at run time doesn't hold.
        UnsupportedError: an operation has no reference.
    """
    if not isinstance(module, Graph | ir.Module):
        raise InputError(f"what is interpreted is a GraphModule, but got {checks.shown(module)}")
    checks.mapping("inputs", inputs, "a mapping from names to arrays")
    if watch is not None:
        checks.callback("watch", watch, "operation", "operands", "results")
    graph = module.ir_module if isinstance(module, Graph) else module
    listed = {function_name(f): f for f in functions(graph)}
    if function is None:
        entry = entry_function(graph)
    elif checks.text("function", function) in listed:
        entry = listed[function]
    else:
        raise InputError(f"the module has no function '{function}', it has {', '.join(listed) or 'none'}")
    interpreter = _Interpreter(listed, watch)
    if function is None:
        inputs = _prepared(interpreter, entry, listed, inputs)
    outputs = interpreter.run(entry, bind_inputs(entry, inputs))
    return {result.name: value for result, value in zip(results(entry), outputs, strict=True)}


def _prepared(
    interpreter: _Interpreter, entry: ir.Operation, listed: Mapping[str, ir.Operation], inputs: Mapping[str, object]
) -> Mapping[str, Evaluated]:
    """The inputs with what @prepare gives, in place of what it is given; as they are where there is none."""
    prepare = next((f for f in listed.values() if role(f) == PREPARE), None)
    if prepare is None or all(result.name in inputs for result in results(prepare)):
        return inputs
    sources = [argument.name for argument in arguments(prepare)]
    given = {name: inputs[name] for name in sources if name in inputs}
    values = interpreter.run(prepare, bind_inputs(prepare, given))
    wanted = {argument.name for argument in arguments(entry)}
    kept = {name: value for name, value in inputs.items() if name in wanted or name not in sources}
    return {**kept, **{result.name: value for result, value in zip(results(prepare), values, strict=True)}}


def bind_inputs(function: ir.Operation, inputs: Mapping[str, object]) -> list[Evaluated]:
    """The value of each argument of a function, checked; raises InputError as `interpret` says."""
    known = arguments(function)
    names = [argument.name for argument in known]
    for name in inputs:
        if name not in names:
            close = nearest(str(name), names)
            hint = f"did you mean '{close}'?" if close else f"it has {', '.join(names) or 'none'}"
            raise InputError(f"'{function_name(function)}' has no argument '{name}', {hint}")
    if missing := [argument for argument in known if argument.name not in inputs]:
        listed = ", ".join(f"{argument.kind} '{argument.name}'" for argument in missing)
        raise InputError(f"'{function_name(function)}' needs a value for {listed}")
    sizes: dict[str, tuple[int, str]] = {}
    return [_checked(argument, inputs[argument.name], sizes) for argument in known]


def _checked(argument: Argument, value: object, sizes: dict[str, tuple[int, str]]) -> Evaluated:
    """The value of an argument, where it fits; notes the sizes of symbols, with the argument that gave them."""
    what = f"{argument.kind} '{argument.name}'"
    if not isinstance(argument.type, ir.RankedTensorType):
        raise StageError(f"{what} is of {argument.type}: only functions of tensors can be interpreted")
    packed = packing(argument.type)
    if isinstance(value, PackedWeight):
        if packed is None or (value.scheme, value.k, value.layout) != (packed.scheme, packed.k, packed.layout):
            raise InputError(f"{what} is of {argument.type}, but got {value.scheme} {value.layout}, k = {value.k}")
        value = value.bytes
    array = as_array(what, value)
    if packed is not None and array.dtype == np.uint8:
        array = array.view(np.int8)
    expected = numpy_dtype(argument.type.element_type)
    if array.dtype != expected:
        word = "int8 or uint8" if packed is not None else expected.name
        raise InputError(f"{what} has element type {word}, but got {element_word(array.dtype)}")
    declared = list(_words(argument))
    if array.ndim != len(declared):
        raise InputError(f"{what} has shape {_listed(declared)}, but got {list(array.shape)}")
    for axis, (size, word) in enumerate(zip(array.shape, declared, strict=True)):
        if isinstance(word, int):
            if size != word:
                raise InputError(f"{what} has shape {_listed(declared)}, but got {list(array.shape)}")
        elif word != "?":
            known, giver = sizes.setdefault(word, (size, what))
            if known != size:
                raise InputError(
                    f"symbol '{word}' is {known} in {giver}, but {size} in {what} (dimension {axis} of "
                    f"{list(array.shape)})"
                )
    return array if packed is None else PackedWeight.of(argument.type, array)


def _words(argument: Argument) -> Iterable[int | str]:
    for i, symbol in enumerate(argument.symbols):
        yield symbol or argument.type.get_dim_size(i)


def _listed(words: Sequence[int | str]) -> str:
    return "[" + ", ".join(str(word) for word in words) + "]"


class _Interpreter:
    """Runs functions, of which some may call others."""

    def __init__(self, listed: Mapping[str, ir.Operation], watch: Watch | None = None) -> None:
        self._functions = listed
        self._watch = watch

    def run(self, function: ir.Operation, values: Sequence[object]) -> list[Evaluated]:
        """The results of a function on the values of its arguments."""
        block = body(function)
        known: dict[ir.Value, Evaluated] = dict(zip(block.arguments, values, strict=True))
        # A value is dropped after its last use: models have more intermediate values than memory.
        left = Counter(operand for op in block.operations for operand in op.operation.operands)
        for op in block.operations:
            operation = op.operation
            operands = [known[operand] for operand in operation.operands]
            if operation.name == "func.return":
                return operands
            known.update(zip(operation.results, self._evaluate(operation, operands), strict=True))
            for operand in operation.operands:
                left[operand] -= 1
                if not left[operand]:
                    known.pop(operand, None)
        raise ExecutionError(f"function '{function_name(function)}' doesn't return")

    def _evaluate(self, op: ir.AnyOp, operands: Sequence[Evaluated]) -> list[Evaluated]:
        """The results of one operation, in a function or a region."""
        operation = op.operation
        if operation.name == "func.call":
            callee = ir.FlatSymbolRefAttr(operation.attributes["callee"]).value
            computed = self.run(self._functions[callee], operands)
        else:
            computed = _evaluate(operation, operands, self._evaluate)
        if self._watch is not None:
            self._watch(operation, operands, computed)
        return computed


def _without_reference(op: ir.Operation) -> str:
    """The text of the error about an operation without a reference, with all others in its function."""
    others = [other.operation for other in op.block.operations]
    plain = ("func.call", "func.return")
    missing = [(other, "") for other in others if other.name not in REFERENCES and other.name not in plain]
    if len({other.name for other, _ in missing}) == 1:
        return f"{list_operations(missing, REFERENCES)[0]}: it has no numpy reference"
    return "\n  ".join(["operations have no numpy reference", *list_operations(missing, REFERENCES)])


def _check_conditions(op: ir.Operation, operands: Sequence[Evaluated]) -> None:
    """Raises InputError where dynamic sizes that meet aren't as executables demand: numpy broadcasts any size of 1."""
    types = [ir.RankedTensorType(value.type) for value in op.operands]
    if all(type.has_static_shape for type in types):
        return
    dims: dict[ir.Value, tuple[Size, ...]] = {}
    sizes: dict[str, int] = {}
    for value, type, array in zip(op.operands, types, operands, strict=True):
        shape = array.bytes.shape if isinstance(array, PackedWeight) else array.shape
        names = [f"{operand_name(op, value)}[{i}]" for i in range(type.rank)]
        sizes.update(zip(names, shape, strict=True))
        dims[value] = type_dims(type, names)
    for result in op.results:
        dims[result] = type_dims(result.type)
    for own in conditions(op, dims.__getitem__):
        try:
            left, right = own.left.evaluate(sizes), own.right.evaluate(sizes)
        except KeyError:  # a size of a result, which the reference checks
            continue
        if left != right and not (own.at_least and left > right):
            rule = "is at least" if own.at_least else "is equal to"
            raise InputError(
                f"{own.where} expects that {own.left} {rule} {own.right}, but {left} and {right} were given"
            )


def _evaluate(op: ir.Operation, operands: Sequence[Evaluated], inner: Evaluate) -> list[Evaluated]:
    """The results of one operation, which must fit its result types; `inner` evaluates those in its regions."""
    if op.name not in REFERENCES:
        raise UnsupportedError(_without_reference(op))
    try:
        computed = evaluate(op.opview, operands, inner)
    except InputError as error:
        raise InputError(f"{describe_operation(op)}: {error}") from None
    except (ValueError, IndexError) as error:  # numpy's, where dynamic sizes that meet aren't as they have to be
        _check_conditions(op, operands)
        if isinstance(error, IndexError):
            raise
        raise InputError(f"'{op.name}' at {op.location}: {error}") from None
    _check_conditions(op, operands)
    for result, value in zip(op.results, computed, strict=True):
        if isinstance(value, PackedWeight):
            continue
        type = ir.RankedTensorType(result.type)
        shape = [size if type.is_dynamic_dim(i) else type.get_dim_size(i) for i, size in enumerate(value.shape)]
        if value.dtype != numpy_dtype(type.element_type) or value.ndim != type.rank or list(value.shape) != shape:
            raise ExecutionError(
                f"the reference of '{op.name}' at {op.location} gave {value.dtype} {list(value.shape)} for {type}"
            )
    return computed
