# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Whole matrices of derivatives: reverse or forward mode along every direction at once."""

from __future__ import annotations

from collections.abc import Sequence

from rlx_mlir.autodiff.batched_modules import finished
from rlx_mlir.autodiff.batching import Own, batch
from rlx_mlir.autodiff.builders import Builders
from rlx_mlir.autodiff.modules import Names, grad, jvp, vjp
from rlx_mlir.autodiff.registry import is_differentiable
from rlx_mlir.autodiff.work import chosen, copy_of
from rlx_mlir.errors import InputError
from rlx_mlir.hir import GraphModule, place
from rlx_mlir.hir.graph import empty_module
from rlx_mlir.hir.inlining import add_argument
from rlx_mlir.hir.values import Value
from rlx_mlir.mir.dims import Size, product
from rlx_mlir.semantics.function import arguments


def jacrev(module: GraphModule, wrt: Names = None) -> GraphModule:
    """The derivatives of each output's elements by each argument's, row by row: reverse mode.

    The new module has an output `j_<output>_<name>` for each output of floats and each of `wrt`, of the output's
    dimensions and then the argument's; where there is one output, it is called `j_<name>`.

    Args:
        module, wrt: as of `vjp`.

    Raises as `vjp` does, and BuildError where an output or an argument is of complex numbers.
    """
    source, names, outputs = _source(module, wrt)
    work = _Directions(source)
    found: dict[str, Value] = {}
    for output in outputs:
        alone = source.clone()
        alone.set_outputs({output: alone.outputs[output]})
        pulled = vjp(alone, names)
        rows, *gradients = pulled.outputs.values()
        for name, each in zip(names, work.along(pulled, rows, gradients), strict=True):
            sizes = work.m.sizes_of(work.given[name].value)
            found[_name(output, name, outputs)] = work.m.reshape(each, [*work.like_sizes, *sizes])
    return finished(work.m, found)


def jacfwd(module: GraphModule, wrt: Names = None) -> GraphModule:
    """What `jacrev` gives, column by column: forward mode, which is cheaper where outputs have more elements.

    Args:
        module, wrt: as of `vjp`.

    Raises as `jacrev` does.
    """
    source, names, outputs = _source(module, wrt)
    work = _Directions(source)
    by_name: dict[tuple[str, str], Value] = {}
    for name in names:
        pushed = jvp(source, [name])
        tangents = list(pushed.outputs.values())[len(source.outputs) :]
        found = work.along(pushed, pushed.value(name), tangents)
        for output, each in zip(outputs, found, strict=True):
            sizes = work.m.sizes_of(each)[1:]
            columns = work.m.reshape(each, [*work.like_sizes, *sizes])
            inner = len(work.like_sizes)
            order = [*range(inner, columns.ndim), *range(inner)]
            by_name[output, name] = work.m.transpose(columns, order) if columns.ndim else columns
    return finished(work.m, {_name(o, name, outputs): by_name[o, name] for o in outputs for name in names})


def hessian(module: GraphModule, wrt: Names = None) -> GraphModule:
    """The second derivatives of a loss: forward mode of its gradient, along every direction at once.

    The new module has an output `h_<a>_<b>` for each pair of `wrt`, of the dimensions of a and then of b; where there
    is one, it is called `h_<a>`.

    Args:
        module, wrt: as of `grad`.

    Raises as `grad` and `jacfwd` do.
    """
    copy = copy_of(module)
    with place.checking():
        names = chosen(copy.ir_module, wrt)
    found = jacfwd(grad(copy, names), names)
    pairs = [(first, second) for first in names for second in names]
    named = {
        f"h_{first}" if len(names) == 1 else f"h_{first}_{second}": value
        for (first, second), value in zip(pairs, found.outputs.values(), strict=True)
    }
    found.set_outputs(named)
    return found


def _name(output: str, name: str, outputs: Sequence[str]) -> str:
    """What a matrix of derivatives is called."""
    return f"j_{name}" if len(outputs) == 1 else f"j_{output}_{name}"


def _source(module: GraphModule, wrt: Names) -> tuple[GraphModule, list[str], list[str]]:
    """A copy at stage mir, the arguments, and the outputs of floats."""
    source = copy_of(module)
    with place.checking():
        names = chosen(source.ir_module, wrt)
        outputs = [name for name, value in source.outputs.items() if is_differentiable(value._handle.type)]
        for what, each in [
            *(("argument", source.value(name)) for name in names),
            *(("output", source.outputs[name]) for name in outputs),
        ]:
            if each.dtype.kind == "c":
                raise InputError(
                    f"a matrix of derivatives is of real numbers, but {what} '{each.name}' of module "
                    f"'{source.name}' is of {each.dtype}: 'jvp' and 'vjp' take it"
                )
    return source, names, outputs


class _Directions:
    """A module with the arguments of another one, in which derivatives along every direction are built.

    Attributes:
        m: its builders.
        given: its arguments by name.
        like_sizes: the sizes of what the last directions are of.
    """

    def __init__(self, source: GraphModule) -> None:
        self.m = Builders(empty_module(source.name, source.ir_module.context, place.caller()))
        dims = source._all_dims()
        self.given = {
            own.name: Own(add_argument(self.m, own.type, dims[handle], own.name, own.kind), False)
            for own, handle in zip(arguments(source.entry), source._block.arguments, strict=True)
        }
        self.like_sizes: list[Size] = []

    def along(self, module: GraphModule, like: Value, wanted: Sequence[Value]) -> list[Value]:
        """What a module computes where its last argument, which is like a value of it, is each direction in turn.

        Args:
            module: with the arguments of this one, and one more.
            like: an argument of it, or what it computes without that one.
            wanted: values of it.

        Gives these with the directions as their first dimension.
        """
        *_, seed = module._block.arguments
        own = arguments(module.entry)[:-1]
        known = {h: self.given[a.name] for a, h in zip(own, module._block.arguments, strict=False)}
        *ops, _ = [op.operation for op in module._block.operations]
        depends = {seed}
        early, late = [], []
        for op in ops:
            if any(operand in depends for operand in op.operands):
                depends.update(op.results)
                late.append(op)
            else:
                early.append(op)
        m = self.m
        sizes = module._all_dims()[like._handle]
        count = product(sizes)
        known = batch(m, early, known, count)
        value = known[like._handle].value
        self.like_sizes = list(m.sizes_of(value))
        known[seed] = Own(_basis(m, value), True)
        found = batch(m, late, known, m.sizes_of(known[seed].value)[0])
        return [found[each._handle].spread(m, count) for each in wanted]


def _basis(m: Builders, like: Value) -> Value:
    """For each element of a value, ones there and zeros elsewhere: [elements, *sizes]."""
    flat = m.reshape(like, [-1])
    (count,) = m.sizes_of(flat)
    place_of = m.iota([count], 0, "i32")
    is_own = m.eq(m.reshape(place_of, [count, 1]), place_of)
    one = m.constant(1.0, like.dtype)
    eye = m.where(is_own, one, m.constant(0.0, like.dtype))
    return m.reshape(eye, [count, *m.sizes_of(like)])
