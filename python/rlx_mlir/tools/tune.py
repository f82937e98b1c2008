# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The command `rlx tune`: measures choices of kernels on this machine, and keeps what is faster."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rlx_mlir.activations import way_of
from rlx_mlir.tools.loading import Loading, takes_options
from rlx_mlir.tools.modules import is_module_file, read_module
from rlx_mlir.tools.options import JsonOption, by_symbol, positive_numbers, print_json, progress, read_arrays, refuse

if TYPE_CHECKING:
    from rlx_mlir.checks import Option
    from rlx_mlir.measure.tune import ProgramTuning


@takes_options
def tune(
    loading: Loading,
    prompt_tokens: Annotated[
        str, typer.Option(help="Tokens of the prompts that are measured; several with commas, on a GPU.")
    ] = "",
    size: Annotated[
        list[str] | None,
        typer.Option(
            help="SYMBOL=NUMBER: size at which calls of a module in a file are measured, by default the maximum; "
            "on a GPU one symbol may have several, with commas."
        ),
    ] = None,
    maximum: Annotated[
        list[str] | None,
        typer.Option(help="SYMBOL=NUMBER: largest size of a symbol of a module in a file, as `maxima` of rlx.compile."),
    ] = None,
    arrays: Annotated[
        Path | None,
        typer.Option(help=".npz file: inputs and parameters of a module in a file. Random numbers where not there."),
    ] = None,
    rounds: Annotated[int, typer.Option(min=3, help="Rounds of all variants in turns.")] = 7,
    tries: Annotated[int, typer.Option(min=1, help="Candidates of a kernel on a GPU, at most.")] = 8,
    same_bits: Annotated[
        bool, typer.Option("--same-bits", help="Leave out what changes results by their rounding.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Measure and report, but keep nothing.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Measure tiles, parts and prefetching of kernels on this machine; later compilations use what is faster.

    Of a model, or of a module in a .mlir or .onnx file. Never needed: by default, rules choose. What is kept holds for
    these sizes and types, these options, this processor or GPU and its driver, until the compiler changes; `rlx cache
    clear` forgets it. Prompts are of 128 tokens where nothing is said, on a GPU of 16, 128 and 512.
    """
    plan = {
        "threads": loading.threads,
        "rounds": rounds,
        "tries": tries,
        "same_bits": same_bits,
        "keep": not dry_run,
    }
    with progress() as say:
        if is_module_file(loading.model):
            refuse("a file of one module", {"prompt-tokens": prompt_tokens})
            found = [_tune_file(loading, size or [], maximum or [], arrays, progress=say, **plan)]
        else:
            refuse("a model", {"size": size, "maximum": maximum, "arrays": arrays})
            found = _tune_model(loading, prompt_tokens, progress=say, **plan)
    if as_json:
        print_json({"model": loading.model, "programs": [own.to_dict() for own in found]})
        return
    typer.echo("\n".join(format_tuning(own) for own in found))


def _tune_model(
    loading: Loading, prompt_tokens: str, *, progress: Callable[[str], None] | None, **plan: Option
) -> list[ProgramTuning]:
    from rlx_mlir.measure.tune import tune_model

    prompts = positive_numbers("prompt-tokens", prompt_tokens)
    return tune_model(loading.load(progress), prompts=prompts, progress=progress, **plan)


def _tune_file(
    loading: Loading, size: list[str], maximum: list[str], arrays: Path | None, **plan: Option
) -> ProgramTuning:
    from rlx_mlir.measure.tune import tune_module

    own = read_module(loading.model)
    return tune_module(
        own.module,
        sizes=by_symbol("size", size),
        maxima={symbol: own[-1] for symbol, own in by_symbol("maximum", maximum).items()},
        arrays={**own.params, **({} if arrays is None else read_arrays(arrays))},
        target=loading.device.value,
        activations=way_of(loading.activations.value, loading.device.value),
        **plan,
    )


def format_tuning(own: ProgramTuning) -> str:
    """What was found for a module, as lines."""
    from rlx_mlir.measure.tune import describe

    if not own.tried:
        return f"{own.name}: none of its kernels has choices to try"
    if not own.gains:
        return f"{own.name}: nothing of {own.tried} tried is faster than the rule beyond noise"
    symbol = own.symbol if len(own.gains) > 1 else ""
    lines = []
    for size, gain in own.gains.items():
        whole = f"{gain} as fast as by rule (spread {gain.spread:.0%})" if gain.is_conclusive else gain
        lines.append(f"{own.name}{f' at {symbol} = {size}' if symbol else ''}: {whole}")
    lines += [f"  {describe(kernel, symbol)}" for kernel in own.kernels]
    lines.append(f"  kept in {own.kept}" if own.kept else "  not kept")
    return "\n".join(lines)
