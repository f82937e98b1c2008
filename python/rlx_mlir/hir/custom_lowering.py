# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The pass `mir-lower-custom`: operations of users' own become what they are made of."""

from __future__ import annotations

from collections.abc import Sequence

from rlx_mlir import ir
from rlx_mlir.attributes import python_value
from rlx_mlir.dtypes import numpy_dtype
from rlx_mlir.errors import CompileError, RlxError, UnsupportedError
from rlx_mlir.hir.inlining import inline_built
from rlx_mlir.hir.module import GraphModule
from rlx_mlir.hir.values import Value, ValueOrTuple
from rlx_mlir.mir.custom import dims_of, inferred, parameters_of, registered, spec_of
from rlx_mlir.mir.dims import Size
from rlx_mlir.own_ops import OwnOp, TensorSpec
from rlx_mlir.rewriting import Option, compiler_pass, operations
from rlx_mlir.semantics.dims import Dims, propagate
from rlx_mlir.semantics.function import arguments, functions
from rlx_mlir.unsupported import blame

#: How deep lowerings may build operations of users' own that have a lowering, too.
DEPTH = 16


@compiler_pass(
    "mir-lower-custom",
    dependent=("mir",),
    options={"kernels": Option("operations that have a kernel stay, for CPUs to call it", True)},
)
def lower_custom(module: ir.Operation, *, kernels: bool) -> None:
    """Replace operations of users' own by what their lowerings build; runs before fusion, which goes on with that.

    Every operation is checked to have the types that its `infer` says.
    """
    for _ in range(DEPTH):
        changed = False
        for function in functions(module):
            found = [op for op in operations(function) if op.name == "mir.custom"]
            dims = propagate(function) if found else {}
            for op in found:
                try:
                    changed |= _lower(op, dims, kernels=kernels)
                except RlxError as error:
                    kind = UnsupportedError if isinstance(error, UnsupportedError) else CompileError
                    raise kind(blame(op, error)) from error
        if not changed:
            return
    names = sorted({python_value(op.attributes["op"]) for op in operations(module) if op.name == "mir.custom"})
    raise CompileError(f"lowerings of {', '.join(names)} build operations of your own more than {DEPTH} deep")


def _lower(op: ir.Operation, dims: dict[ir.Value, Dims], *, kernels: bool) -> bool:
    """Puts what a lowering builds in the place of the operation; False where its kernel computes it."""
    own = registered(op)
    inferred(op, [dims[operand] for operand in op.operands])
    if own.kernel is not None and kernels:
        return False
    if own.lowering is None:
        raise UnsupportedError(f"'{own.name}' has a kernel, which CPUs call, but GPUs need a lowering")
    graph = GraphModule._empty("lowering", "mir", "direct", op.context)
    built = _build(own, op, graph, [dims[operand] for operand in op.operands])
    inline_built(graph, op, built, dims)
    return True


def _build(own: OwnOp, op: ir.Operation, graph: GraphModule, operands: Sequence[Dims]) -> list[ir.Value]:
    """Runs the lowering in an empty module with an input for each operand; returns its results, checked."""
    symbols: dict[Size, str] = {}
    inputs = []
    for number, (operand, dims) in enumerate(zip(op.operands, operands, strict=True)):
        kind = ir.RankedTensorType(operand.type)
        shape: list[int | str] = [
            symbols.setdefault(size, f"s{len(symbols)}") if kind.is_dynamic_dim(axis) else kind.get_dim_size(axis)
            for axis, size in enumerate(dims)
        ]
        inputs.append(graph.input(f"operand{number}", shape, numpy_dtype(kind.element_type)))
    parameters = own.parameters(parameters_of(op))
    assert own.lowering is not None
    try:
        found: ValueOrTuple = own.lowering(graph, *inputs, **parameters)
    except Exception as error:
        text = str(error) if isinstance(error, RlxError) else f"{type(error).__name__}: {error}"
        raise CompileError(f"'lowering' of '{own.name}' raised: {text}") from error
    values = list(found) if isinstance(found, list | tuple) else [found]
    if not all(isinstance(value, Value) for value in values):
        raise CompileError(f"'lowering' of '{own.name}' gives values of its module, but gave {found!r}"[:400])
    if len(arguments(graph.entry)) != len(inputs):
        raise CompileError(f"'lowering' of '{own.name}' adds an input or a parameter: it has its operands only")
    handles = [value._resolve() for value in values]
    if any(value._graph is not graph for value in values):
        raise CompileError(f"'lowering' of '{own.name}' gives a value of another module")
    _check_results(
        own,
        op,
        graph,
        handles,
        [spec_of(value._resolve().type, graph._all_dims()[value._resolve()]) for value in inputs],
    )
    return handles


def _check_results(
    own: OwnOp, op: ir.Operation, graph: GraphModule, handles: list[ir.Value], given: list[TensorSpec]
) -> None:
    """Raises CompileError where a lowering gives others than `infer` says."""
    found = [graph._all_dims()[handle] for handle in handles]
    specs = own.results(given, parameters_of(op))
    types = [handle.type for handle in handles]
    if types == [result.type for result in op.results] and found == [dims_of(own, spec) for spec in specs]:
        return
    built = ", ".join(str(spec_of(handle.type, dims)) for handle, dims in zip(handles, found, strict=True))
    raise CompileError(
        f"'lowering' of '{own.name}' gives {built}, but 'infer' says {', '.join(map(str, specs))}, for operands "
        f"{', '.join(map(str, given))}"
    )
