# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A module while derivatives are added to it: its arguments and outputs by name, and names for new ones."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rlx_mlir import checks, ir
from rlx_mlir.autodiff.builders import Builders
from rlx_mlir.autodiff.registry import is_differentiable
from rlx_mlir.autodiff.rules.packed import read_in_rows
from rlx_mlir.autodiff.rules.splats import join_images
from rlx_mlir.errors import InputError, StageError
from rlx_mlir.hir import GraphModule, place
from rlx_mlir.hir.decompose import decompose
from rlx_mlir.hir.inlining import add_argument
from rlx_mlir.hir.values import Value
from rlx_mlir.mir.registry import COMPOSITIONS
from rlx_mlir.rewriting import operations
from rlx_mlir.semantics.function import PARAM, arguments, entry_function, function_name, results

#: An output of the new module: what its name begins with where it is a new one, the name, and the value.
Output = tuple[str, str, Value]


@dataclass
class Work:
    """A module that derivatives are added to.

    Attributes:
        m: builders of it.
        ops: its operations before anything was added.
        inputs: by name, its arguments.
        outputs: by name, what it returns.
    """

    m: Builders
    ops: list[ir.Operation]
    inputs: dict[str, ir.Value]
    outputs: dict[str, ir.Value]

    @property
    def name(self) -> str:
        """The module's name."""
        return self.m.name

    def new_argument(self, prefix: str, name: str, like: ir.Value) -> Value:
        """A further input, of the type and the sizes of a value."""
        own = free_name(prefix, name, self.m._signature.names)
        return add_argument(self.m, like.type, self.m._all_dims()[like], own)

    def kept(self) -> list[Output]:
        """The outputs that the module has."""
        return [("", name, self.m._value(value)) for name, value in self.outputs.items()]

    def finish(self, outputs: Iterable[Output]) -> GraphModule:
        """Lets the module return these, and drops what nothing reads."""
        found = GraphModule(self.m.ir_module, "mir", "direct")
        named: dict[str, Value] = {}
        for prefix, name, value in outputs:
            own = free_name(prefix, name, named) if prefix else name
            named[own] = found._value(self.m.latest(self.m._read(value)))
        found.set_outputs(named)
        found.erase_dead()
        return found


def free_name(prefix: str, name: str, taken: Iterable[str]) -> str:
    """The name with the prefix before it, more than once where that is taken."""
    own = prefix + name
    while own in taken:
        own = prefix + own
    return own


def copy_of(module: GraphModule) -> GraphModule:
    """A copy of a module at stage mir; an error at the caller's line where that can't be."""
    here = place.caller()
    if not isinstance(module, GraphModule):
        raise here.error(f"a GraphModule is expected, but got {checks.shown(module)}")
    if module.stage not in ("hir", "mir"):
        raise StageError(f"{here}: module '{module.name}' is at stage {module.stage}: derivatives are of hir and mir")
    return module.lower_for_autodiff() if module.stage == "hir" else module.clone()


def work_on(module: ir.AnyModule, known: Iterable[str]) -> Work:
    """What is needed to add derivatives to a module.

    Args:
        module: at stage mir; operations that are made of others, and have no rule, become these in it, and those that
            have one together only become one.
        known: the names of operations that have a rule.
    """
    made = COMPOSITIONS.keys() - set(known)
    while names := {op.name for op in operations(module.operation)} & made:
        decompose(module.operation, all=False, only="+".join(sorted(name.removeprefix("mir.") for name in names)))
    join_images(module)
    m = Builders(module)
    read_in_rows(m)
    *ops, end = [op.operation for op in m._block.operations]
    inputs = {own.name: m._block.arguments[own.index] for own in arguments(m.entry)}
    outputs = {own.name: value for own, value in zip(results(m.entry), end.operands, strict=True)}
    return Work(m, ops, inputs, outputs)


def chosen(module: ir.AnyModule, wrt: Sequence[str] | str | None) -> list[str]:
    """The names of what is differentiated by: by default the parameters of floats, or inputs where there is none.

    Raises InputError where one isn't an argument of floats.
    """
    function = entry_function(module)
    name = function_name(function)
    own = {argument.name: argument for argument in arguments(function)}
    if wrt is None:
        usable = [argument for argument in own.values() if is_differentiable(argument.type)]
        weights = [argument.name for argument in usable if argument.kind == PARAM]
        found = weights or [argument.name for argument in usable]
        if not found:
            raise InputError(f"module '{name}' has no argument of floats to be differentiated by")
        return found
    names = [str(wrt)] if checks.is_text(wrt) else list(checks.names("wrt", wrt))
    if not names or len(set(names)) != len(names):
        raise InputError(f"'wrt' names arguments, each once, but got {names}")
    for each in names:
        if each not in own:
            known = ", ".join(own) or "none"
            raise InputError(f"module '{name}' has no argument '{each}' to be differentiated by, it has {known}")
        if not is_differentiable(own[each].type):
            raise InputError(
                f"argument '{each}' of module '{name}' has no derivative: it is {own[each].type}, and only dense "
                "tensors of floats of 16 bits and more, and of complex numbers, have one"
            )
    return names
