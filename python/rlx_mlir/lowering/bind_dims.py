# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The pass `rlx-bind-dims`: symbolic dimensions become sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from rlx_mlir import ir
from rlx_mlir.errors import InputError, StageError, UnsupportedError
from rlx_mlir.mir.control import REGIONS, argument_types
from rlx_mlir.mir.dims import Size
from rlx_mlir.rewriting import Option, compiler_pass
from rlx_mlir.semantics.dims import evaluate, propagate
from rlx_mlir.semantics.function import (
    argument_attributes,
    arguments,
    attribute_dictionaries,
    body,
    function_name,
    function_type,
    functions,
    set_signature,
    terminator,
)

_DYNAMIC = ir.ShapedType.get_dynamic_size()

Made = TypeVar("Made")


@compiler_pass(
    "rlx-bind-dims",
    dependent=("mir",),
    options={"symbols": Option("sizes by symbol, such as batch:1,seq:8", "")},
)
def bind_dims(module: ir.Operation, *, symbols: str) -> None:
    """Replace symbolic dimensions by sizes, and infer the types that follow.

    Dimensions of arguments whose `mir.dims` symbol is listed become static; others stay dynamic. Operations are
    inferred again in order, so errors of types that don't fit name the operation. Functions that are called take the
    types of their calls.
    """
    sizes = parse_symbols(symbols)
    found: set[str] = set()
    listed = {function_name(f): f for f in functions(module) if len(f.regions[0].blocks)}
    _check_stage(listed)
    callers = [f for name, f in listed.items() if name not in _called(listed.values())]
    binder = _Binder(listed, sizes)
    for function in callers:
        found |= {symbol for argument in arguments(function) for symbol in argument.symbols}
        binder.bind_arguments(function)
        binder.infer(function)
    if unknown := sorted(sizes.keys() - found):
        known = ", ".join(sorted(found - {"", "?"})) or "none"
        raise InputError(f"no argument has a dimension '{unknown[0]}', the symbols are {known}")


def parse_symbols(text: str) -> dict[str, int]:
    """Sizes by symbol from `batch:1,seq:8`; InputError names the part that can't be read."""
    sizes: dict[str, int] = {}
    for part in filter(None, text.split(",")):
        name, colon, size = part.partition(":")
        if not name or not colon or not size.isdigit() or int(size) < 1:
            raise InputError(
                f"option 'symbols' expects symbol:size with size >= 1, separated by commas, but got '{part}'"
            )
        if name in sizes:
            raise InputError(f"option 'symbols' binds '{name}' twice, to {sizes[name]} and {size}")
        sizes[name] = int(size)
    return sizes


def _check_stage(listed: Mapping[str, ir.Operation]) -> None:
    """StageError where functions take other than ranked tensors, or call what has no body: kernels, once planned."""
    for name, function in listed.items():
        for number, argument in enumerate(body(function).arguments):
            if not isinstance(argument.type, ir.RankedTensorType):
                raise StageError(
                    f"sizes are bound where all values are ranked tensors, but argument {number} of '{name}' is "
                    f"{argument.type}"
                )
    if missing := sorted(_called(listed.values()) - listed.keys()):
        raise StageError(f"sizes are bound in functions with a body, but '{missing[0]}' has none")


def _called(listed: Iterable[ir.AnyOp]) -> set[str]:
    """The names of functions that others call."""
    return {
        ir.FlatSymbolRefAttr(op.operation.attributes["callee"]).value
        for function in listed
        for op in body(function).operations
        if op.operation.name == "func.call"
    }


class _Binder:
    """Rewrites functions for given sizes; those that are called, once each."""

    def __init__(self, listed: Mapping[str, ir.Operation], sizes: Mapping[str, int]) -> None:
        self._functions = listed
        self._sizes = sizes
        self._bound: dict[str, list[ir.Type]] = {}

    def bind_arguments(self, function: ir.Operation) -> None:
        """Gives the arguments their static types; what isn't bound keeps its symbol."""
        block, known = body(function), arguments(function)
        attributes = attribute_dictionaries(function, "arg_attrs", len(known))
        for argument in known:
            bound = [self._sizes.get(symbol) for symbol in argument.symbols]
            if not any(size is not None for size in bound):
                continue
            old = argument.type.shape
            shape = [own if size is None else size for size, own in zip(bound, old, strict=True)]
            block.arguments[argument.index].set_type(_with_shape(argument.type, shape))
            left = [symbol if size is None else "" for size, symbol in zip(bound, argument.symbols, strict=True)]
            own = attributes[argument.index]
            own.pop("mir.dims", None)
            own.update(argument_attributes(function.context, argument.name, argument.kind, left))
        set_signature(function, inputs=[a.type for a in block.arguments], arg_attrs=attributes)

    def infer(self, function: ir.Operation) -> None:
        """Infers the operations of a function again, from the types of its arguments."""
        self._infer_block(body(function), propagate(function))
        outputs = [operand.type for operand in terminator(function).operands]
        set_signature(function, outputs=outputs)

    def _infer_block(self, block: ir.Block, dims: dict[ir.Value, tuple[Size, ...]]) -> None:
        for op in list(block.operations):
            operation = op.operation
            if operation.name == "func.call":
                self._call(operation)
            elif operation.name in REGIONS:
                self._regions(operation, dims)
            elif len(operation.results) and not _all_static(operation):
                self._rebuild(operation, dims)
            elif len(operation.results):
                self._verified(operation, operation.verify)

    def _regions(self, op: ir.Operation, dims: dict[ir.Value, tuple[Size, ...]]) -> None:
        """Gives the arguments of regions the types of what they are, and results those of what regions give."""
        for number, region in enumerate(op.regions):
            if not len(region.blocks):
                continue
            for argument, type in zip(region.blocks[0].arguments, argument_types(op, number), strict=True):
                argument.set_type(type)
            self._infer_block(region.blocks[0], dims)
            if number == 0:  # further regions may read results
                for result in op.results:
                    result.set_type(self._bound_type(result, dims))
        self._verified(op, op.verify)

    def _rebuild(self, op: ir.Operation, dims: dict[ir.Value, tuple[Size, ...]]) -> None:
        """Makes the operation anew with inferred types, and puts it in the place of the old one."""
        if op.name.partition(".")[0] not in ("hir", "mir"):
            raise UnsupportedError(f"can't bind dimensions of '{op.name}' at {op.location}: it is not of hir or mir")
        attributes = dict(op.attributes.items())
        results = None if _infers(op) else [self._bound_type(result, dims) for result in op.results]
        with op.location, ir.InsertionPoint(op):
            new = self._verified(
                op,
                lambda: ir.Operation.create(
                    op.name,
                    results=results,
                    operands=list(op.operands),
                    attributes=attributes,
                    infer_type=results is None,
                ),
            )
        self._verified(new, new.verify)
        for old, fresh in zip(op.results, new.results, strict=True):
            if old in dims:
                dims[fresh] = dims.pop(old)
            old.replace_all_uses_with(fresh)
        op.erase()

    def _verified(self, op: ir.Operation, action: Callable[[], Made]) -> Made:
        """Runs what makes or checks an operation; InputError adds the sizes to what MLIR says."""
        try:
            return action()
        except ir.MLIRError as error:
            sizes = ", ".join(f"{symbol} = {size}" for symbol, size in self._sizes.items())
            raise InputError(f"with {sizes}: {error.error_diagnostics[0].message} (at {op.location})") from None

    def _bound_type(self, result: ir.Value, dims: Mapping[ir.Value, tuple[Size, ...]]) -> ir.Type:
        """The type of a result that isn't inferred: its dynamic sizes as far as its symbols are bound."""
        type = ir.RankedTensorType(result.type)
        sizes = [evaluate(size, self._sizes) for size in dims[result]]
        shape = [
            size if own == _DYNAMIC and size is not None else own for own, size in zip(type.shape, sizes, strict=True)
        ]
        return _with_shape(type, shape)

    def _call(self, call: ir.Operation) -> None:
        """Binds the function that is called, by the types of the operands, and takes its result types."""
        name = ir.FlatSymbolRefAttr(call.attributes["callee"]).value
        callee, types = self._functions[name], [operand.type for operand in call.operands]
        if self._bound.setdefault(name, types) != types:
            raise UnsupportedError(
                f"'{name}' is called with two types, ({_listed(self._bound[name])}) and, at {call.location}, "
                f"({_listed(types)})"
            )
        attributes = attribute_dictionaries(callee, "arg_attrs", len(types))
        if types != list(function_type(callee).inputs):
            for argument, own, type in zip(body(callee).arguments, attributes, types, strict=True):
                argument.set_type(type)
                own.pop("mir.dims", None)
            set_signature(callee, inputs=types, arg_attrs=attributes)
            self.infer(callee)
        for result, type in zip(call.results, function_type(callee).results, strict=True):
            result.set_type(type)


def _with_shape(type: ir.RankedTensorType, shape: list[int]) -> ir.Type:
    return ir.RankedTensorType.get(shape, type.element_type, type.encoding)


def _all_static(op: ir.Operation) -> bool:
    for result in op.results:
        if not isinstance(result.type, ir.RankedTensorType):
            raise StageError(f"sizes are bound where all values are tensors, but '{op.name}' gives {result.type}")
    return all(ir.ShapedType(result.type).has_static_shape for result in op.results)


def _infers(op: ir.Operation) -> bool:
    """Whether the operation infers its result types."""
    try:
        ir.InferTypeOpInterface(op)
    except ValueError:
        return False
    return True


def _listed(types: list[ir.Type]) -> str:
    return ", ".join(str(type) for type in types)
