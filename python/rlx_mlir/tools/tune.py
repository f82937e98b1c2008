# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The command `rlx tune`: measures choices of kernels on this machine, and keeps what is faster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from rlx_mlir.tools.options import (
    Activations,
    ActivationsOption,
    ChunkOption,
    ContextOption,
    JsonOption,
    ModelArgument,
    ThreadsOption,
    print_json,
    progress,
)

if TYPE_CHECKING:
    from rlx_mlir.measure.tune import ProgramTuning


def tune(
    model: ModelArgument,
    prompt_tokens: Annotated[int, typer.Option(min=1, help="Tokens of the prompts that are measured.")] = 128,
    rounds: Annotated[int, typer.Option(min=3, help="Rounds of all variants in turns.")] = 7,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Measure and report, but keep nothing.")] = False,
    threads: ThreadsOption = None,
    activations: ActivationsOption = Activations.int8,
    context: ContextOption = None,
    chunk: ChunkOption = 512,
    as_json: JsonOption = False,
) -> None:
    """Measure tiles and prefetching of a model's kernels on this machine; later starts use what is faster.

    Never needed: by default, templates follow rules. Results are the same bits. What is kept holds for this model's
    sizes and types, these options and this processor, until the compiler changes; `rlx cache clear` forgets it.
    """
    from rlx_mlir.measure.tune import tune_model
    from rlx_mlir.models.model import load_model

    with progress() as say:
        loaded = load_model(
            model, threads=threads, activations=activations.value, context=context, chunk=chunk, progress=say
        )
        found = tune_model(
            loaded, threads=threads, prompt_tokens=prompt_tokens, rounds=rounds, keep=not dry_run, progress=say
        )
    if as_json:
        print_json({"model": model, "programs": [own.to_dict() for own in found]})
        return
    typer.echo("\n".join(format_tuning(own) for own in found))


def format_tuning(own: ProgramTuning) -> str:
    """What was found for a module, as lines."""
    if own.gain is None:
        return f"{own.name}: nothing of {own.tried} tried is faster than the rule beyond noise"
    whole = f"{own.gain} as fast as by rule (spread {own.gain.spread:.0%})" if own.gain.is_conclusive else own.gain
    lines = [f"{own.name}: {whole}"]
    for kernel in own.kernels:
        chosen = ", ".join(f"{name} {value}" for name, value in kernel.choices.items())
        lines.append(f"  {kernel.kernel}: {chosen}, {kernel.gain} as fast (spread {kernel.gain.spread:.0%})")
    lines.append(f"  kept in {own.kept}" if own.kept else "  not kept")
    return "\n".join(lines)
