# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The command `rlx tune`: measures choices of kernels on this machine, and keeps what is faster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from rlx_mlir.tools.loading import Loading, loads_model
from rlx_mlir.tools.options import JsonOption, positive_numbers, print_json, progress

if TYPE_CHECKING:
    from rlx_mlir.measure.tune import ProgramTuning


@loads_model
def tune(
    loading: Loading,
    prompt_tokens: Annotated[
        str, typer.Option(help="Tokens of the prompts that are measured; several with commas, on a GPU.")
    ] = "",
    rounds: Annotated[int, typer.Option(min=3, help="Rounds of all variants in turns.")] = 7,
    tries: Annotated[int, typer.Option(min=1, help="Candidates of a kernel on a GPU, at most.")] = 8,
    same_bits: Annotated[
        bool, typer.Option("--same-bits", help="Leave out what changes results by their rounding.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Measure and report, but keep nothing.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Measure tiles, parts and prefetching of a model's kernels on this machine; later starts use what is faster.

    Never needed: by default, rules choose. What is kept holds for this model's sizes and types, these options, this
    processor or GPU and its driver, until the compiler changes; `rlx cache clear` forgets it. Prompts are of 128
    tokens where nothing is said, on a GPU of 16, 128 and 512.
    """
    from rlx_mlir.measure.tune import tune_model

    with progress() as say:
        found = tune_model(
            loading.load(say),
            threads=loading.threads,
            prompts=positive_numbers("prompt-tokens", prompt_tokens),
            rounds=rounds,
            tries=tries,
            same_bits=same_bits,
            keep=not dry_run,
            progress=say,
        )
    if as_json:
        print_json({"model": loading.model, "programs": [own.to_dict() for own in found]})
        return
    typer.echo("\n".join(format_tuning(own) for own in found))


def format_tuning(own: ProgramTuning) -> str:
    """What was found for a module, as lines."""
    from rlx_mlir.measure.tune import describe

    if not own.gains:
        return f"{own.name}: nothing of {own.tried} tried is faster than the rule beyond noise"
    several = len(own.gains) > 1
    lines = []
    for tokens, gain in own.gains.items():
        whole = f"{gain} as fast as by rule (spread {gain.spread:.0%})" if gain.is_conclusive else gain
        lines.append(f"{own.name}{f' of {tokens} tokens' if several else ''}: {whole}")
    lines += [f"  {describe(kernel, several=several)}" for kernel in own.kernels]
    lines.append(f"  kept in {own.kept}" if own.kept else "  not kept")
    return "\n".join(lines)
