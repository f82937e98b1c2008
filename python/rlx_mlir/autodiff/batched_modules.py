# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`vmap`: a module of a batch of calls, and what is differentiated along every direction at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rlx_mlir import checks, ir
from rlx_mlir.autodiff import rules as rules
from rlx_mlir.autodiff.batching import Own, batch
from rlx_mlir.autodiff.builders import Builders
from rlx_mlir.errors import StageError
from rlx_mlir.hir import GraphModule, place
from rlx_mlir.hir.graph import empty_module
from rlx_mlir.hir.inlining import add_argument
from rlx_mlir.hir.types import check_size
from rlx_mlir.hir.values import Value
from rlx_mlir.mir.dims import Size, check_symbol
from rlx_mlir.mir.packed import packing
from rlx_mlir.semantics.function import Argument, arguments, results


def vmap(
    module: GraphModule,
    in_axes: Sequence[str] | Mapping[str, int] | str,
    *,
    size: str | int = "batch",
    out_axes: int = 0,
) -> GraphModule:
    """A module of a batch of calls: arguments and outputs get a further dimension, each entry a call of its own.

    Args:
        module: at stage hir or mir; it isn't changed.
        in_axes: the arguments that have the batch, and as which dimension: the first one by default. Others are the
            same for all entries.
        size: of the batch: a number, or the symbol of a dynamic one, which isn't one of the module's.
        out_axes: the dimension of the outputs that is the batch.

    Outputs that depend on no batched argument are repeated. Raises BuildError where a name isn't an argument, it is
    packed, there can't be such a dimension, or the module has the symbol; StageError where it is past stage mir.
    """
    here = place.caller()
    if not isinstance(module, GraphModule):
        raise here.error(f"a GraphModule is expected, but got {checks.shown(module)}")
    if module.stage not in ("hir", "mir"):
        raise StageError(f"{here}: module '{module.name}' is at stage {module.stage}: batches are of hir and mir")
    own = arguments(module.entry)
    axes = _axes(module, in_axes, own, here)
    with place.checking("'size' of 'vmap'"):
        length = Size.of(check_symbol(size) if isinstance(size, str) else check_size(size, [size]))
        out = checks.whole("out_axes", out_axes)
    if isinstance(size, str) and size in module.dynamic_symbols:
        raise here.error(
            f"'{size}' is a size of module '{module.name}' already: 'size' of 'vmap' is another symbol, or a number"
        )
    source = module.lower_for_autodiff()
    m = Builders(empty_module(module.name, source.ir_module.context, here))
    dims = source._all_dims()
    given = {}
    for argument, handle in zip(own, source._block.arguments, strict=True):
        given[handle] = _argument(m, argument, list(dims[handle]), axes.get(argument.name), length)
    *ops, end = [op.operation for op in source._block.operations]
    found = [value.spread(m, length) for value in batch(m, ops, given, length, list(end.operands))]
    names = [result.name for result in results(module.entry)]
    result = GraphModule(m.ir_module, "mir", "direct")
    moved = [
        result._value(m._read(_moved(m, value, name, out, here))) for name, value in zip(names, found, strict=True)
    ]
    result.set_outputs(dict(zip(names, moved, strict=True)))
    result.erase_dead()
    return result


def _axes(module: GraphModule, in_axes: object, own: Sequence[Argument], here: place.Place) -> dict[str, int]:
    """The dimension that is the batch, of each argument that has it."""
    with place.checking():
        if isinstance(in_axes, Mapping):
            given = checks.mapping("in_axes", in_axes, "a mapping from arguments to dimensions")
            axes = {name: checks.whole(f"the dimension of '{name}'", axis) for name, axis in given.items()}
        elif checks.is_text(in_axes):
            axes = {str(in_axes): 0}
        else:
            axes = dict.fromkeys(checks.names("in_axes", in_axes), 0)
    known = {argument.name: argument for argument in own}
    if not axes:
        raise here.error("'vmap' needs an argument that has the batch, but 'in_axes' names none")
    for name, axis in axes.items():
        if name not in known:
            raise here.error(f"module '{module.name}' has no argument '{name}', it has {', '.join(known) or 'none'}")
        if packing(known[name].type) is not None:
            raise here.error(f"argument '{name}' of module '{module.name}' is packed, and can't have a batch")
        if axis > known[name].type.rank:
            raise here.error(
                f"the batch is dimension {axis} of argument '{name}', but with it that has {known[name].type.rank + 1}"
            )
    return axes


def _argument(m: Builders, own: Argument, sizes: list[Size], axis: int | None, length: Size) -> Own:
    """A new argument, and what stands for it with the batch first."""
    if axis is None:
        return Own(add_argument(m, own.type, tuple(sizes), own.name, own.kind), False)
    shape = list(own.type.shape)
    shape.insert(axis, ir.ShapedType.get_dynamic_size() if length.constant is None else length.constant)
    sizes.insert(axis, length)
    with m._context:
        kind = ir.RankedTensorType.get(shape, own.type.element_type, loc=ir.Location.unknown())
    value = add_argument(m, kind, tuple(sizes), own.name, own.kind)
    if axis:
        value = m.transpose(value, [axis, *(each for each in range(len(sizes)) if each != axis)])
    return Own(value, True)


def _moved(m: Builders, value: Value, name: str, axis: int, here: place.Place) -> Value:
    """A result with the batch as another dimension than the first."""
    if axis >= value.ndim:
        raise here.error(f"'out_axes' is {axis}, but output '{name}' has {value.ndim} dimensions with the batch")
    return m.transpose(value, [*range(1, axis + 1), 0, *range(axis + 1, value.ndim)]) if axis else value
