# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`rlx draw`, `rlx export` and `rlx estimate`: what can be said of a module's graph without compiling it."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Annotated

import typer

from rlx_mlir.tools.options import (
    Activations,
    ActivationsOption,
    ChunkOption,
    ContextOption,
    JsonOption,
    ModuleArgument,
    OutputOption,
    Program,
    Target,
    TargetOption,
    activations_of,
    any_module,
    by_symbol,
    print_json,
    write_text,
)

if TYPE_CHECKING:
    from rlx_mlir.hir import GraphModule


class GraphStage(str, enum.Enum):
    """Stages at which a module is a graph."""

    hir = "hir"
    mir = "mir"
    kernels = "kernels"


StageOption = Annotated[
    GraphStage | None, typer.Option(help="Where to stop; by default where the module is.", show_default=False)
]
FunctionOption = Annotated[Program, typer.Option(help="Which module of a model.")]


def draw(
    model: ModuleArgument,
    stage: StageOption = None,
    function: FunctionOption = Program.prefill,
    depth: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Blocks drawn around each other; those within are a box each. By default as 250 boxes can show.",
            show_default=False,
        ),
    ] = None,
    activations: ActivationsOption = Activations.auto,
    context: ContextOption = None,
    chunk: ChunkOption = 512,
    output: OutputOption = None,
) -> None:
    """Draw a module as an SVG: operations with their blocks, types and parameters."""
    module = _module(model, stage, function, activations, context, chunk)
    write_text(module.draw(depth=depth).svg, output)


def export(
    model: ModuleArgument,
    stage: StageOption = None,
    function: FunctionOption = Program.prefill,
    activations: ActivationsOption = Activations.auto,
    context: ContextOption = None,
    chunk: ChunkOption = 512,
    output: OutputOption = None,
) -> None:
    """Print a module's graph as JSON, for other programs; docs/graphs.md describes it."""
    module = _module(model, stage, function, activations, context, chunk)
    write_text(module.to_json(indent=1), output)


def estimate(
    model: ModuleArgument,
    function: FunctionOption = Program.prefill,
    target: TargetOption = Target.cpu,
    activations: ActivationsOption = Activations.auto,
    context: ContextOption = None,
    chunk: ChunkOption = 512,
    maximum: Annotated[
        list[str] | None,
        typer.Option(help="SYMBOL=NUMBER: largest size of a symbol; 512 where nothing says another."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Plan the memory of a call without compiling: parameters, inputs, outputs, values between kernels."""
    module, maxima = any_module(model, function.value, context, chunk)
    given = {symbol: numbers[-1] for symbol, numbers in by_symbol("maximum", maximum or []).items()}
    chosen = activations_of(module, activations, target)
    found = module.memory_estimate({**maxima, **given}, target=target.value, activations=chosen)
    if as_json:
        print_json(found.to_dict())
    else:
        typer.echo(str(found))


def _module(
    model: str, stage: GraphStage | None, function: Program, activations: Activations, context: int | None, chunk: int
) -> GraphModule:
    """A module at a stage."""
    from rlx_mlir.stages import at_stage

    module, maxima = any_module(model, function.value, context, chunk)
    if stage is None or stage.value == module.stage:
        return module
    return at_stage(module, stage.value, activations=activations_of(module, activations), maxima=maxima)
