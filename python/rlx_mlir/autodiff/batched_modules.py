# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`vmap`, a module of a batch of calls, and the pass `mir-batch`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rlx_mlir import checks, ir
from rlx_mlir.autodiff import rules as rules
from rlx_mlir.autodiff.batching import Own, batch
from rlx_mlir.autodiff.builders import Builders
from rlx_mlir.autodiff.folding import moved
from rlx_mlir.autodiff.rules.packed import read_in_rows
from rlx_mlir.autodiff.work import copy_of
from rlx_mlir.errors import InputError
from rlx_mlir.hir import GraphModule, place
from rlx_mlir.hir.graph import empty_module
from rlx_mlir.hir.inlining import add_argument
from rlx_mlir.hir.types import check_size
from rlx_mlir.hir.values import Value
from rlx_mlir.mir.dims import Size, check_symbol
from rlx_mlir.mir.packed import packing
from rlx_mlir.rewriting import Option, compiler_pass
from rlx_mlir.semantics.function import Argument, arguments, body, entry_function, function_name, results


def vmap(
    module: GraphModule,
    in_axes: Sequence[str] | Mapping[str, int] | str | None = None,
    *,
    size: str | int = "batch",
    out_axes: int = 0,
) -> GraphModule:
    """A module of a batch of calls: arguments and outputs get a further dimension, each entry a call of its own.

    Args:
        module: at stage hir or mir; it isn't changed.
        in_axes: the arguments that have the batch, and as which dimension: the first one by default. Others are the
            same for all entries. None: all inputs, and no parameter.
        size: of the batch: a number, or the symbol of a dynamic one, which no argument has yet.
        out_axes: the dimension of the outputs that is the batch.

    Outputs that depend on no batched argument are repeated. Raises BuildError where a name isn't an argument, it is
    packed, or there can't be such a dimension; StageError where the module is past stage mir.
    """
    source = copy_of(module)
    with place.checking():
        axes = _axes(source.ir_module, [own.name for own in source.inputs] if in_axes is None else in_axes)
        out = checks.whole("out_axes", out_axes)
        return _batched(source.ir_module, axes, _length(source.ir_module, size), out)


@compiler_pass(
    "mir-batch",
    dependent=("mir",),
    options={
        "inputs": Option("names of the arguments that get a batch as their first dimension, joined by `+`", ""),
        "size": Option("of the batch: a number, or the symbol of a dynamic one", "batch"),
    },
)
def batch_pass(module: ir.Operation, *, inputs: str, size: str) -> None:
    """Batch the entry function: it computes what a batch of calls gives.

    Results have the batch as their first dimension.
    """
    length = _length(module, int(size) if size.isdigit() else size)
    made = _batched(module, _axes(module, inputs.split("+") if inputs else []), length, 0)
    old = entry_function(module)
    made.entry.move_before(old)
    old.erase()


def _length(module: ir.AnyModule, size: str | int) -> Size:
    """The size of the batch, checked."""
    if not isinstance(size, str):
        return Size.of(check_size(size, [size]))
    for argument in arguments(entry_function(module)):
        if size in argument.symbols:
            raise InputError(
                f"the batch is called '{size}', but argument '{argument.name}' has a dimension of that name already: "
                "give it another one by 'size'"
            )
    return Size.of(check_symbol(size))


def _axes(module: ir.AnyModule, in_axes: object) -> dict[str, int]:
    """The dimension that is the batch, of each argument that has it."""
    if isinstance(in_axes, Mapping):
        given = checks.mapping("in_axes", in_axes, "a mapping from arguments to dimensions")
        axes = {name: checks.whole(f"the dimension of '{name}'", axis) for name, axis in given.items()}
    elif checks.is_text(in_axes):
        axes = {str(in_axes): 0}
    else:
        axes = dict.fromkeys(checks.names("in_axes", in_axes), 0)
    function = entry_function(module)
    name, known = function_name(function), {argument.name: argument for argument in arguments(function)}
    if not axes:
        raise InputError("a batch needs an argument that has it, but none is named")
    for own, axis in axes.items():
        if own not in known:
            raise InputError(f"module '{name}' has no argument '{own}', it has {', '.join(known) or 'none'}")
        if packing(known[own].type) is not None:
            raise InputError(f"argument '{own}' of module '{name}' is packed, and can't have a batch")
        rank = known[own].type.rank
        if axis > rank:
            raise InputError(f"the batch is dimension {axis} of argument '{own}', but with it that has {rank + 1}")
    return axes


def _batched(source: ir.AnyModule, axes: Mapping[str, int], length: Size, out: int) -> GraphModule:
    """A module of a batch of calls of another one."""
    read_in_rows(Builders(source))
    function = entry_function(source)
    name = function_name(function)
    m = Builders(empty_module(name, source.context, place.caller()))
    dims = Builders(source)._all_dims()
    given = {
        handle: batched_argument(m, argument, list(dims[handle]), axes.get(argument.name), length)
        for argument, handle in zip(arguments(function), body(function).arguments, strict=True)
    }
    *ops, end = [op.operation for op in body(function).operations]
    found = batch(m, ops, given, length)
    outputs = {
        result.name: _moved(m, found[value].spread(m, length), result.name, out)
        for result, value in zip(results(function), end.operands, strict=True)
    }
    return finished(m, outputs)


def finished(m: Builders, outputs: Mapping[str, Value]) -> GraphModule:
    """A module that returns values."""
    made = GraphModule(m.ir_module, "mir", "direct")
    made.set_outputs({name: made._value(m._read(value)) for name, value in outputs.items()})
    made.erase_dead()
    return made


def batched_argument(m: Builders, own: Argument, sizes: list[Size], axis: int | None, length: Size) -> Own:
    """A new argument, and what stands for it with the batch first."""
    if axis is None:
        return Own(add_argument(m, own.type, tuple(sizes), own.name, own.kind), False)
    shape = list(own.type.shape)
    shape.insert(axis, ir.ShapedType.get_dynamic_size() if length.constant is None else length.constant)
    sizes.insert(axis, length)
    with m._context:
        kind = ir.RankedTensorType.get(shape, own.type.element_type, loc=ir.Location.unknown())
    value = add_argument(m, kind, tuple(sizes), own.name, own.kind)
    return Own(moved(m, value, axis, 0), True)


def _moved(m: Builders, value: Value, name: str, axis: int) -> Value:
    """A result with the batch as another dimension than the first."""
    if axis >= value.ndim:
        raise InputError(f"'out_axes' is {axis}, but output '{name}' has {value.ndim} dimensions with the batch")
    return moved(m, value, 0, axis)
