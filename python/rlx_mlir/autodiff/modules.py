# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Derivatives of whole modules: each transformation gives a new module, to print, to transform again, to compile.

What is differentiated are the inputs and parameters of some names, `wrt`: by default the parameters of floats, or the
inputs where the module has no such parameter. New arguments and outputs are named after what they belong to, with `d_`
for cotangents and gradients, `t_` for tangents; the prefix stands twice where the name is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from rlx_mlir import checks, ir
from rlx_mlir.autodiff import rules as rules
from rlx_mlir.autodiff.builders import Builders
from rlx_mlir.autodiff.forward import push_forward
from rlx_mlir.autodiff.registry import is_differentiable, ones_like, zeros_like
from rlx_mlir.autodiff.reverse import pull_back
from rlx_mlir.errors import StageError
from rlx_mlir.hir import GraphModule, place
from rlx_mlir.hir.inlining import add_argument
from rlx_mlir.hir.values import Value
from rlx_mlir.mir.dims import Size
from rlx_mlir.mir.registry import COMPOSITIONS, JVPS, VJPS
from rlx_mlir.rewriting import operations
from rlx_mlir.semantics.function import PARAM, arguments, entry_function, results


@dataclass
class Work:
    """A copy of a module while derivatives are added to it.

    Attributes:
        m: builders of it.
        module: the copy.
        ops: its operations before anything was added.
        inputs: by name, the handles of its arguments.
        outputs: by name, what it returns.
    """

    m: Builders
    module: ir.Module
    ops: list[ir.Operation]
    inputs: dict[str, ir.Value]
    outputs: dict[str, ir.Value]

    def new_argument(self, prefix: str, name: str, like: ir.Value) -> Value:
        """A further input, of the type and the sizes of a value."""
        own = free_name(prefix, name, self.m._signature.names)
        return add_argument(self.m, like.type, self.m._all_dims()[like], own)

    def finished(self, outputs: Iterable[tuple[str, str, Value]]) -> GraphModule:
        """The module that returns these: each with what its name begins with, where that may be needed."""
        found = GraphModule(self.module, "mir", "direct")
        named: dict[str, Value] = {}
        for prefix, name, value in outputs:
            handle = self.m.latest(self.m._read(value))
            named[free_name(prefix, name, named) if prefix else name] = found._value(handle)
        found.set_outputs(named)
        found.erase_dead()
        return found


def free_name(prefix: str, name: str, taken: Iterable[str]) -> str:
    """The name with the prefix before it, more than once where that is taken."""
    own = prefix + name
    while own in taken:
        own = prefix + own
    return own


def prepared(module: GraphModule, table: dict[str, Callable[..., object]]) -> Work:
    """A copy of a module at stage mir; fused operations that rules don't know are made of their parts."""
    here = place.caller()
    if not isinstance(module, GraphModule):
        raise here.error(f"a GraphModule is expected, but got {checks.shown(module)}")
    if module.stage not in ("hir", "mir"):
        raise StageError(f"{here}: module '{module.name}' is at stage {module.stage}: derivatives are of hir and mir")
    copy = module.lower_for_autodiff() if module.stage == "hir" else module.clone()
    while names := {op.name for op in operations(copy.ir_module)} & (COMPOSITIONS.keys() - table.keys()):
        only = "+".join(sorted(name.removeprefix("mir.") for name in names))
        copy = copy.transform(f"mir-decompose{{only={only}}}", stage="mir")
    return work_on(copy.ir_module)


def work_on(module: ir.Module) -> Work:
    """What is needed to add derivatives to a module."""
    m = Builders(module)
    function = entry_function(module)
    *ops, end = [op.operation for op in m._block.operations]
    inputs = {own.name: m._block.arguments[own.index] for own in arguments(function)}
    outputs = {own.name: value for own, value in zip(results(function), end.operands, strict=True)}
    return Work(m, module, ops, inputs, outputs)


def chosen(module: GraphModule, wrt: Sequence[str] | str | None) -> list[str]:
    """The names of what is differentiated by; BuildError where one isn't an argument of floats."""
    here = place.caller()
    own = {argument.name: argument for argument in arguments(module.entry)}
    if wrt is None:
        usable = [argument for argument in own.values() if is_differentiable(argument.type)]
        weights = [argument.name for argument in usable if argument.kind == PARAM]
        found = weights or [argument.name for argument in usable]
        if not found:
            raise here.error(f"module '{module.name}' has no argument of floats to be differentiated by")
        return found
    with place.checking():
        names = [wrt] if checks.is_text(wrt) else list(checks.names("wrt", wrt))
    if not names or len(set(names)) != len(names):
        raise here.error(f"'wrt' names arguments, each once, but got {names}")
    for name in names:
        if name not in own:
            known = ", ".join(own) or "none"
            raise here.error(f"module '{module.name}' has no argument '{name}' to be differentiated by, it has {known}")
        if not is_differentiable(own[name].type):
            raise here.error(
                f"argument '{name}' of module '{module.name}' has no derivative: it is {own[name].type}, and only "
                "dense tensors of floats of 16 bits and more, and of complex numbers, have one"
            )
    return names


def vjp(module: GraphModule, wrt: Sequence[str] | str | None = None) -> GraphModule:
    """Reverse mode: the outputs of a module, and the product of cotangents with its matrix of derivatives.

    The new module has further inputs `d_<output>` like the outputs of floats, and further outputs `d_<name>`: the sum
    over all outputs y of d_y dy/d<name>. Gradients by complex numbers x + i y are dL/dx + i dL/dy.

    Args:
        module: at stage hir or mir; it isn't changed.
        wrt: names of inputs and parameters.

    Raises BuildError where a name isn't an argument of floats, InputError that names the operation and the line that
    built it where one on the way has no rule, StageError where the module is past stage mir.
    """
    names = chosen(module, wrt)
    work = prepared(module, VJPS)
    given = {}
    seeds = []
    for name, value in work.outputs.items():
        if is_differentiable(value.type):
            seeds.append((value, work.new_argument("d_", name, value)))
    for value, seed in seeds:
        given[value] = work.m.add(given[value], seed) if value in given else seed
    found = _pulled(work, given, names)
    outputs = [("", name, work.m._value(value)) for name, value in work.outputs.items()]
    return work.finished([*outputs, *(("d_", name, value) for name, value in zip(names, found, strict=True))])


def _pulled(work: Work, given: dict[ir.Value, Value], names: Sequence[str]) -> list[Value]:
    """The gradients by arguments; zeros where nothing reaches one, with a remark."""
    wanted = [work.inputs[name] for name in names]
    found = pull_back(work.m, work.ops, given, wanted)
    return [_reached(work, name, value) for name, value in zip(names, found, strict=True)]


def _reached(work: Work, name: str, value: Value | None) -> Value:
    if value is not None:
        return value
    return zeros_like(work.m, work.m._value(work.inputs[name]))


def value_and_grad(module: GraphModule, wrt: Sequence[str] | str | None = None) -> GraphModule:
    """The outputs of a module, of which the first is a loss, and the gradient of that by arguments.

    Args:
        module: its first output is one element of floats; others are given out as they are.
        wrt: as of `vjp`.

    The new module has the outputs of the old one, then `d_<name>` for each of `wrt`. Raises as `vjp` does, and
    BuildError where the first output isn't one element of floats.
    """
    names = chosen(module, wrt)
    work = prepared(module, VJPS)
    loss = _loss(work, module)
    found = _pulled(work, {loss: ones_like(work.m, work.m._value(loss))}, names)
    outputs = [("", name, work.m._value(value)) for name, value in work.outputs.items()]
    return work.finished([*outputs, *(("d_", name, value) for name, value in zip(names, found, strict=True))])


#: The name that the specification has for it.
grad_with_loss = value_and_grad


def grad(module: GraphModule, wrt: Sequence[str] | str | None = None) -> GraphModule:
    """The gradient of a module's only output, one element of floats, by arguments: an output `d_<name>` for each.

    Args:
        module, wrt: as of `vjp`.

    Raises as `value_and_grad` does, and BuildError where the module has several outputs.
    """
    names = chosen(module, wrt)
    work = prepared(module, VJPS)
    if len(work.outputs) != 1:
        raise place.caller().error(
            f"'grad' is of a module with one output, but '{module.name}' has {', '.join(work.outputs) or 'none'}; "
            "'value_and_grad' takes the first one"
        )
    loss = _loss(work, module)
    found = _pulled(work, {loss: ones_like(work.m, work.m._value(loss))}, names)
    return work.finished(("d_", name, value) for name, value in zip(names, found, strict=True))


def _loss(work: Work, module: GraphModule) -> ir.Value:
    """The first output, checked to be one element of floats."""
    if not work.outputs:
        raise place.caller().error(f"module '{module.name}' has no output whose gradient there could be")
    name, value = next(iter(work.outputs.items()))
    sizes = work.m._all_dims()[value]
    is_complex = isinstance(ir.RankedTensorType(value.type).element_type, ir.ComplexType)
    if not is_differentiable(value.type) or is_complex or any(size != Size.of(1) for size in sizes):
        raise place.caller().error(
            f"a gradient is of one element of floats, but output '{name}' of module '{module.name}' is {value.type}; "
            "'vjp' takes outputs of any shape"
        )
    return value


def jvp(module: GraphModule, wrt: Sequence[str] | str | None = None) -> GraphModule:
    """Forward mode: the outputs of a module, and how they change along a direction.

    The new module has further inputs `t_<name>` like the arguments of `wrt`, and further outputs `t_<output>` for those
    of floats: the sum over all names of d<output>/d<name> t_<name>.

    Args:
        module, wrt: as of `vjp`.

    Raises as `vjp` does.
    """
    names = chosen(module, wrt)
    work = prepared(module, {**JVPS, **VJPS})
    own = [(work.inputs[name], work.new_argument("t_", name, work.inputs[name])) for name in names]
    moving = {name: value for name, value in work.outputs.items() if is_differentiable(value.type)}
    found = push_forward(work.m, work.ops, dict(own), list(moving.values()))
    outputs = [("", name, work.m._value(value)) for name, value in work.outputs.items()]
    tangents = []
    for (name, value), tangent in zip(moving.items(), found, strict=True):
        own_value = work.m._value(value)
        tangents.append(("t_", name, zeros_like(work.m, own_value) if tangent is None else tangent))
    return work.finished([*outputs, *tangents])


def hvp(module: GraphModule, wrt: Sequence[str] | str | None = None) -> GraphModule:
    """The product of a loss's matrix of second derivatives with a vector: forward mode of the gradient.

    The new module has further inputs `t_<name>`, the vector, and the outputs `h_<name>`.

    Args:
        module, wrt: as of `grad`.

    Raises as `grad` does.
    """
    names = chosen(module, wrt)
    both = jvp(grad(module, names), names)
    products = list(both.outputs.values())[len(names) :]
    both.set_outputs({f"h_{name}": value for name, value in zip(names, products, strict=True)})
    both.erase_dead()
    return both
