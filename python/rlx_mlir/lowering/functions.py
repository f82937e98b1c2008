# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Functions of a module by their role, and changes of a function's signature."""

from __future__ import annotations

from collections.abc import Sequence

from rlx_mlir import ir
from rlx_mlir.attributes import PythonValue, python_value
from rlx_mlir.errors import StageError
from rlx_mlir.kernel_classes import OWN
from rlx_mlir.mir.scalars import is_complex, is_unsigned
from rlx_mlir.rewriting import operations
from rlx_mlir.semantics import function as entry
from rlx_mlir.semantics.function import KERNEL, PREPARE, role

__all__ = [
    "KERNEL",
    "PREPARE",
    "ROLE",
    "argument_attributes",
    "called_operation",
    "declare_into",
    "dictionary",
    "entry_function",
    "functions",
    "kernel_class",
    "memref_of",
    "parse_into",
    "raw_argument_attributes",
    "result_attributes",
    "set_signature",
    "tensor_entry",
    "uncommon_element",
]

#: Attribute of a kernel: which templates may know it.
CLASS = "mir.kernel"

#: Attribute of functions that aren't the entry: `prepare` or `kernel`.
ROLE = "mir.role"


def functions(module: ir.AnyModule, wanted: str | None = None) -> list[ir.AnyOp]:
    """The functions of the module with a role; those without one where it is None."""
    return [f.opview for f in entry.functions(module) if role(f) == wanted]


def entry_function(module: ir.AnyModule) -> ir.AnyOp:
    """The one function that callers call; InputError where there is none or more than one."""
    return entry.entry_function(module).opview


def tensor_entry(module: ir.AnyModule) -> ir.AnyOp:
    """The entry function before its memory is planned; StageError where it takes or gives other than tensors."""
    function = entry_function(module)
    for what, types in (("argument", function.type.inputs), ("result", function.type.results)):
        for number, kind in enumerate(types):
            if not isinstance(kind, ir.RankedTensorType):
                raise StageError(
                    f"'{function.name.value}' takes and gives ranked tensors before its memory is planned, "
                    f"but {what} {number} is {kind}"
                )
    return function


def kernel_class(kernel: ir.AnyOp) -> str:
    """The class of a kernel, such as `gemm`; StageError where outlining gave it none."""
    attributes = kernel.operation.attributes
    if "mir.kernel" not in attributes:
        raise StageError(f"kernel '{kernel.name.value}' has no class: attribute 'mir.kernel' is missing")
    return str(python_value(attributes["mir.kernel"]))


def called_operation(kernel: ir.AnyOp) -> ir.AnyOp:
    """The operation of the user's own that a kernel of class own calls; StageError where it holds anything else."""
    *ops, terminator = operations(kernel, nested=False)
    if (
        [op.name for op in ops] != ["mir.custom"]
        or list(terminator.operands) != list(ops[0].results)
        or not all(isinstance(value.owner, ir.Block) for value in ops[0].operands)
    ):
        raise StageError(
            f"kernel '{kernel.name.value}' is of class {OWN}: it holds one mir.custom on its arguments, and gives all "
            "results of it"
        )
    return ops[0]


def argument_attributes(function: ir.AnyOp) -> list[dict[str, PythonValue]]:
    """For each argument its attributes by name, as Python values."""
    return _attributes(function, "arg_attrs", len(function.arguments))


def result_attributes(function: ir.AnyOp) -> list[dict[str, PythonValue]]:
    """For each result its attributes by name, as Python values."""
    return _attributes(function, "res_attrs", len(function.type.results))


def _attributes(function: ir.AnyOp, name: str, count: int) -> list[dict[str, PythonValue]]:
    dictionaries = entry.attribute_dictionaries(function.operation, name, count)
    return [{key: python_value(value) for key, value in own.items()} for own in dictionaries]


def set_signature(
    function: ir.AnyOp, arguments: Sequence[ir.Attribute], results: Sequence[ir.Attribute] | None = None
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


def raw_argument_attributes(function: ir.AnyOp) -> list[ir.Attribute]:
    """The dictionary attribute of each argument, empty where there is none."""
    attributes = function.operation.attributes
    if "arg_attrs" in attributes:
        return list(attributes["arg_attrs"])
    return [ir.DictAttr.get({}) for _ in function.arguments]


def uncommon_element(op: ir.Operation) -> str:
    """The element type of an operand or result that loops alone have, no template and no GPU; '' where none has one."""
    for value in (*op.operands, *op.results):
        element = getattr(value.type, "element_type", value.type)
        if is_complex(element) or is_unsigned(element):
            return str(element)
    return ""


def memref_of(kind: ir.Type) -> str:
    """The identity-layout buffer of a tensor; a packed weight is its bytes."""
    tensor = ir.RankedTensorType(kind)
    dims = "x".join(["?" if size < 0 else str(size) for size in tensor.shape] + [str(tensor.element_type)])
    return f"memref<{dims}>"


def declare_into(block: ir.Block, text: str) -> None:
    """Parses functions that the program which runs the code has, and appends them to the block of a module."""
    parsed = ir.Module.parse(text)
    for op in list(parsed.body.operations):
        block.append(op)


def parse_into(block: ir.Block, text: str) -> list[ir.AnyOp]:
    """Parses functions and constants, and appends what isn't only declared to the block of a module; returns it."""
    parsed = ir.Module.parse(text)
    defined = [
        op
        for op in parsed.body.operations
        if op.operation.name in ("llvm.mlir.global", "memref.global") or len(op.operation.regions[0].blocks)
    ]
    for op in defined:
        block.append(op)
    return defined
