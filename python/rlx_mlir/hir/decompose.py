# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The pass `mir-decompose`: operations that are made of others become these."""

from __future__ import annotations

from collections.abc import Sequence

from rlx_mlir import ir
from rlx_mlir.errors import CompileError, InputError, RlxError
from rlx_mlir.hir import place
from rlx_mlir.hir.compositions.registry import Builders
from rlx_mlir.hir.graph import empty_module
from rlx_mlir.hir.inlining import add_argument, inline_built
from rlx_mlir.hir.shapes import in_type_of
from rlx_mlir.hir.values import Value
from rlx_mlir.mir.dims import Size
from rlx_mlir.mir.registry import COMPOSITIONS, TO_LINALG, Registered, call_arguments
from rlx_mlir.rewriting import Option, compiler_pass, operations
from rlx_mlir.semantics.dims import Dims, is_known, propagate
from rlx_mlir.semantics.function import functions
from rlx_mlir.unsupported import blame

#: The operation that has what it is made of in a region.
FUNCTION = "mir.custom_fn"

#: How deep compositions may build operations that are made of others, too.
_DEPTH = 16


@compiler_pass(
    "mir-decompose",
    dependent=("mir",),
    options={
        "all": Option("also those that have kernels of their own, such as fused ones", False),
        "only": Option("names of operations, without `mir.` and joined by `+`; no others are decomposed", ""),
    },
)
def decompose(module: ir.Operation, *, all: bool, only: str) -> None:
    """Replace operations that are made of others by these; runs before fusion, which goes on with them.

    Types and sizes of what is built are checked to be those of the operation.
    """
    wanted = _wanted(every=all, only=only)
    for _ in range(_DEPTH):
        changed = False
        for function in functions(module):
            if FUNCTION in wanted:
                _inline_functions(function)
            found = [op for op in operations(function) if op.name in wanted - {FUNCTION}]
            dims = propagate(function) if found else {}
            for op in found:
                try:
                    decompose_into(op, dims, COMPOSITIONS[op.name])
                except RlxError as error:
                    raise CompileError(blame(op, error)) from error
            changed |= bool(found)
        if not changed:
            return
    raise CompileError(f"compositions build operations that are made of others more than {_DEPTH} deep")


def _inline_functions(function: ir.Operation) -> None:
    """Puts what the first regions of `mir.custom_fn` compute in the place of these."""
    while outer := [op for op in operations(function) if op.name == FUNCTION and not _is_in_function(op)]:
        for op in outer:
            block = op.regions[0].blocks[0]
            for argument, operand in zip(list(block.arguments), op.operands, strict=True):
                argument.replace_all_uses_with(operand)
            *made, end = [each.operation for each in block.operations]
            for each in made:
                each.move_before(op)
            for result, value in zip(op.results, list(end.operands), strict=True):
                result.replace_all_uses_with(value)
            op.erase()


def _is_in_function(op: ir.Operation) -> bool:
    """Whether it stands in a region of a `mir.custom_fn`."""
    parent = op.parent
    while parent is not None and parent.operation.name != FUNCTION:
        parent = parent.operation.parent
    return parent is not None


def _wanted(*, every: bool, only: str) -> set[str]:
    """The names of the operations to decompose."""
    named, known = {f"mir.{word}" for word in only.split("+") if word}, {FUNCTION, *COMPOSITIONS}
    if unknown := sorted(named - known):
        raise InputError(f"'only' names operations that are made of others, but {unknown[0]} is none")
    with_kernels = set() if every or named else {pattern.root for pattern in TO_LINALG}
    return (named or known) - with_kernels


def decompose_into(op: ir.Operation, dims: dict[ir.Value, Dims], build: Registered) -> None:
    """Puts what a composition builds in the place of an operation.

    Args:
        op: the operation.
        dims: of all values of its function.
        build: the composition, which is called as `compositions/registry.py` says.

    Raises CompileError where types or sizes of what is built are others than the operation's.
    """
    graph = Builders(empty_module("composition", op.context, place.caller()), "mir", "direct")
    named, meanings = _named(op, dims)
    operands = [add_argument(graph, operand.type, known) for operand, known in zip(op.operands, named, strict=True)]
    values, attributes = call_arguments(op, operands)
    built = build(graph, *values, **attributes)
    results = [
        _in_type(graph, value, result.type, operands)
        for value, result in zip(built if isinstance(built, tuple | list) else [built], op.results, strict=True)
    ]
    handles = [value._resolve() for value in results]
    _check(op, graph, handles, dims, meanings)
    inline_built(graph, op, handles, dims)


def _in_type(graph: Builders, value: Value, wanted: ir.Type, operands: Sequence[Value]) -> Value:
    """The value in the type that an operation's result has, where that is an operand's, and says less of the sizes.

    So is it where another operand knows a size: what is built of both knows it, too.
    """
    own, type = ir.RankedTensorType(value._resolve().type), ir.RankedTensorType(wanted)
    if own == type or own.rank != type.rank or own.element_type != type.element_type:
        return value
    like = next((operand for operand in operands if operand._resolve().type == type), None)
    return value if like is None else in_type_of(graph, value, like)


def _named(op: ir.Operation, dims: dict[ir.Value, Dims]) -> tuple[list[Dims], dict[str, Size]]:
    """The dimensions of the operands as builders can speak of them, and what the names in these stand for.

    A size that follows from one that no operand has, or of which nothing is known, has a name of its own.
    """
    sizes = {size for operand in op.operands for size in dims[operand]}
    symbols = {symbol for size in sizes for symbol in size.symbols}
    stated = {symbol for symbol in symbols if Size.of(symbol) in sizes and is_known(Size.of(symbol))}
    meanings: dict[str, Size] = {}
    names: dict[Size, Size] = {}
    for size in sorted((size for size in sizes if not size.symbols <= stated), key=str):
        name = f"size_{len(names)}"
        while name in symbols:
            name += "_"
        meanings[name], names[size] = size, Size.of(name)
    return [tuple(names.get(size, size) for size in dims[operand]) for operand in op.operands], meanings


def _check(
    op: ir.Operation,
    graph: Builders,
    handles: Sequence[ir.Value],
    dims: dict[ir.Value, Dims],
    meanings: dict[str, Size],
) -> None:
    """Raises CompileError where a composition gives others than the operation has; `meanings` is that of `_named`."""
    expected, found = [result.type for result in op.results], [handle.type for handle in handles]
    if expected != found:
        raise CompileError(
            f"its composition gives {', '.join(map(str, found))}, but it has {', '.join(map(str, expected))}"
        )
    for result, handle in zip(op.results, handles, strict=True):
        for dim, (own, size) in enumerate(zip(dims[result], graph._all_dims()[handle], strict=True)):
            other = size.substituted({symbol: meanings.get(symbol, Size.of(symbol)) for symbol in size.symbols})
            if is_known(own) and own != other:
                raise CompileError(f"dimension {dim} of its composition is {other}, but its own is {own}")
