# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The command `rlx quantize`: a model as a GGUF file of few bits."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rlx_mlir.paths import check_place
from rlx_mlir.tools.options import JsonOption, OptionError, ThreadsOption, fraction_done, print_json, progress, writing

if TYPE_CHECKING:
    from rlx_mlir.quantizing import Plan


def quantize(
    model: Annotated[str, typer.Argument(help="A .gguf file, a folder of Hugging Face's, or the name of a model.")],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="The new .gguf file.", show_default=False)
    ] = None,
    type: Annotated[str, typer.Option(help="Mix of types, by llama.cpp's name for it.")] = "q4_k_m",
    imatrix: Annotated[
        Path | None,
        typer.Option(
            help="What errors count: a text that the model is run over, or an importance matrix (.gguf, .dat).",
            show_default=False,
        ),
    ] = None,
    chunks: Annotated[
        int | None, typer.Option(min=1, help="Runs of 512 tokens of the text; all of them.", show_default=False)
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say which tensor would get which type.")] = False,
    threads: ThreadsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write a model as a GGUF file whose matrices have few bits, with its vocabulary and chat template."""
    from rlx_mlir.models.opening import open_model
    from rlx_mlir.quantizing import Source, importance_of, is_matrix, plan, quantize_file

    if output is None and not dry_run:
        raise OptionError("'--output' names the new file; '--dry-run' only says what would be in it")
    of_text = imatrix is not None and not is_matrix(imatrix)
    if chunks is not None and not of_text:
        raise OptionError("'--chunks' are those of a text that '--imatrix' names")
    with progress() as say:
        if say is not None:
            say("opening the model")
        file = open_model(model, progress=say is not None)
        source = Source.of(file)
        # A wrong name is said before a text is run through the model.
        planned = plan(source, type, has_importance=imatrix is not None)
        importance = None
        if imatrix is None and not dry_run:
            planned.check(None)
        if output is not None and not dry_run:
            with writing(output):
                check_place(output)
        if imatrix is not None and not dry_run:
            running = None if say is None else lambda done, total: say(f"importance: run {done} of {total}")
            importance = importance_of(imatrix, file, chunks=chunks, threads=threads, progress=running)
    if not dry_run:
        assert output is not None
        with writing(output), fraction_done(f"writing {output.name}") as show:
            planned = quantize_file(source, output, type, importance=importance, threads=threads, progress=show)
    if as_json:
        print_json({"model": model, "output": None if dry_run else str(output), **planned.to_dict()})
        return
    if dry_run:
        typer.echo("\n".join(_table(planned)))
    typer.echo("\n".join(_summary(planned, output, dry_run)))


def _table(planned: Plan) -> list[str]:
    """A line for each tensor."""
    from rlx_mlir.runtime.shown import size_text

    width = max(len(tensor.name) for tensor in planned.tensors)
    return [
        f"{tensor.name:<{width}}  {' x '.join(map(str, tensor.shape)):>16}  {tensor.source:>6} -> {tensor.type:<6}  "
        f"{size_text(tensor.nbytes):>10}"
        for tensor in planned.tensors
    ]


def _summary(planned: Plan, output: Path | None, dry_run: bool) -> list[str]:
    from rlx_mlir.runtime.shown import size_text

    counts: dict[str, int] = {}
    for tensor in planned.tensors:
        counts[tensor.type] = counts.get(tensor.type, 0) + 1
    types = ", ".join(f"{count} of {name}" for name, count in sorted(counts.items(), key=lambda item: -item[1]))
    lines = [
        f"{planned.mix.name}: {len(planned.tensors)} tensors, {types}; {size_text(planned.nbytes)}, "
        f"{planned.bits:.2f} bits a weight"
    ]
    if planned.requantised:
        lines.append(
            f"{planned.requantised} tensors were rounded to blocks before: errors add up; a file of f16 has none"
        )
    if dry_run and planned.needing:
        lines.append(f"{len(planned.needing)} tensors need an importance matrix, '--imatrix'")
    return lines if dry_run else [*lines, str(output)]
