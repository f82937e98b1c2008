# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Differentiation of a module in place, in one of several modes, and the pass `mir-differentiate`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rlx_mlir import ir
from rlx_mlir.autodiff import rules as rules
from rlx_mlir.autodiff.checkpoints import blocks_of, check_patterns, pull_back_blocks
from rlx_mlir.autodiff.forward import push_forward
from rlx_mlir.autodiff.registry import is_differentiable, ones_like, zeros_like
from rlx_mlir.autodiff.work import Output, Work, chosen, work_on
from rlx_mlir.errors import InputError
from rlx_mlir.hir import GraphModule
from rlx_mlir.hir.values import Value
from rlx_mlir.mir.dims import Size
from rlx_mlir.mir.registry import JVPS, VJPS
from rlx_mlir.rewriting import Option, compiler_pass


def differentiate(
    module: ir.AnyModule,
    mode: str,
    wrt: Sequence[str] | str | None,
    unreached: Callable[[ir.Location, str], None],
    recompute: Sequence[str] = (),
) -> GraphModule:
    """Changes a module at stage mir into one that computes derivatives.

    Args:
        module: its operations stay where they are; what isn't read any more goes.
        mode: `grad`, `value_and_grad`, `vjp` or `jvp`, as the functions of that name give them.
        wrt: names of arguments, as of `chosen`.
        unreached: is told of each argument by which nothing depends, whose gradients are zeros.
        recompute: patterns of names of blocks that reverse mode computes again, in place of keeping what they compute.

    Raises InputError where a name isn't an argument of floats, no block has a name that matches a pattern, there is no
    loss, or an operation has no rule.
    """
    names = chosen(module, wrt)
    work = work_on(module, {*VJPS, *JVPS} if mode == "jvp" else VJPS)
    runs = blocks_of(work.ops, recompute)
    check_patterns(recompute, runs, work.name)
    return work.finish(_MODES[mode](work, names, Request(unreached, runs)))


Runs = Sequence[tuple[str, Sequence[ir.Operation]]]


@dataclass(frozen=True)
class Request:
    """What modes take beside the module and the names.

    Attributes:
        unreached: as of `differentiate`.
        runs: the operations, in runs of one block each; those of runs with a name are computed again.
    """

    unreached: Callable[[ir.Location, str], None]
    runs: Runs


def _vjp(work: Work, names: Sequence[str], request: Request) -> list[Output]:
    """The outputs, and cotangents by arguments from those of outputs."""
    given: dict[ir.Value, Value] = {}
    moving = [(name, value) for name, value in work.outputs.items() if is_differentiable(value.type)]
    for value, seed in [(value, work.new_argument("d_", name, value)) for name, value in moving]:
        given[value] = work.m.add(given[value], seed) if value in given else seed
    return [*work.kept(), *_gradients(work, given, names, request)]


def _value_and_grad(work: Work, names: Sequence[str], request: Request) -> list[Output]:
    """The outputs, and gradients of the first one."""
    loss = _loss(work)
    one = ones_like(work.m, work.m._value(loss))
    return [*work.kept(), *_gradients(work, {loss: one}, names, request)]


def _grad(work: Work, names: Sequence[str], request: Request) -> list[Output]:
    """Gradients of the only output."""
    if len(work.outputs) != 1:
        raise InputError(
            f"'grad' is of a module with one output, but '{work.name}' has {', '.join(work.outputs) or 'none'}; "
            "'value_and_grad' takes the first one"
        )
    return _value_and_grad(work, names, request)[1:]


def _jvp(work: Work, names: Sequence[str], request: Request) -> list[Output]:
    """The outputs, and tangents of them from those of arguments."""
    own = {work.inputs[name]: work.new_argument("t_", name, work.inputs[name]) for name in names}
    moving = {name: value for name, value in work.outputs.items() if is_differentiable(value.type)}
    found = push_forward(work.m, work.ops, own, list(moving.values()))
    tangents = [
        ("t_", name, zeros_like(work.m, work.m._value(value)) if tangent is None else tangent)
        for (name, value), tangent in zip(moving.items(), found, strict=True)
    ]
    return [*work.kept(), *tangents]


_MODES = {"grad": _grad, "value_and_grad": _value_and_grad, "vjp": _vjp, "jvp": _jvp}


def _gradients(work: Work, given: dict[ir.Value, Value], names: Sequence[str], request: Request) -> list[Output]:
    """The cotangents by arguments; zeros where nothing depends on one."""
    found = []
    pulled = pull_back_blocks(work.m, request.runs, given, [work.inputs[name] for name in names])
    for name, value in zip(names, pulled, strict=True):
        if value is None:
            argument = work.inputs[name]
            request.unreached(
                argument.location,
                f"no output that is differentiated depends on argument '{name}' of module '{work.name}': its gradient "
                "is zeros",
            )
            value = zeros_like(work.m, work.m._value(argument))
        found.append(("d_", name, value))
    return found


def _loss(work: Work) -> ir.Value:
    """The first output, checked to be one element of floats."""
    if not work.outputs:
        raise InputError(f"module '{work.name}' has no output whose gradient there could be")
    name, value = next(iter(work.outputs.items()))
    sizes = work.m._all_dims()[value]
    is_complex = isinstance(ir.RankedTensorType(value.type).element_type, ir.ComplexType)
    if not is_differentiable(value.type) or is_complex or any(size != Size.of(1) for size in sizes):
        raise InputError(
            f"a gradient is of one element of floats, but output '{name}' of module '{work.name}' is {value.type}; "
            "'vjp' takes outputs of any shape"
        )
    return value


@compiler_pass(
    "mir-differentiate",
    dependent=("mir",),
    options={
        "mode": Option("what is computed of the entry function", "grad", choices=tuple(_MODES)),
        "wrt": Option("names of arguments, joined by `+`; parameters of floats, or else inputs, where empty", ""),
        "recompute": Option("names of blocks to compute again in reverse mode, joined by `+`, with * for any text", ""),
    },
)
def differentiate_pass(module: ir.Operation, *, mode: str, wrt: str, recompute: str) -> None:
    """Differentiate the entry function: gradients, or products with its matrix of derivatives.

    New arguments and results have names with `d_` before them, or `t_` in forward mode. A gradient that nothing reaches
    is zeros, and a remark says so.
    """
    patterns = recompute.split("+") if recompute else []
    differentiate(module, mode, wrt.split("+") if wrt else None, ir.native.emit_remark, patterns)
