# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The command `rlx bundle`: a model as one file that runs without being compiled."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rlx_mlir.tools.options import (
    Activations,
    ActivationsOption,
    CacheTypeOption,
    ContextOption,
    JsonOption,
    LoadedChunkOption,
    LoraOption,
    NonfiniteOption,
    QuantizeOption,
    print_json,
    progress,
    writing,
)


def bundle(
    model: Annotated[
        str, typer.Argument(help="A .gguf file, the folder of a model or an encoder, or the name of a known one.")
    ],
    output: Annotated[Path, typer.Option("-o", "--output", help="File to write, usually named ….rlx.")],
    cpu: Annotated[
        list[str] | None,
        typer.Option(
            help="CPU to have code for, as LLVM names it: x86-64-v3, x86-64-v4, …; native: this one. May be repeated.",
            show_default="native",
        ),
    ] = None,
    activations: ActivationsOption = Activations.auto,
    context: ContextOption = None,
    chunk: LoadedChunkOption = None,
    kv_cache: CacheTypeOption = None,
    nonfinite: NonfiniteOption = None,
    quantize: QuantizeOption = None,
    lora: LoraOption = None,
    batch: Annotated[
        int | None,
        typer.Option(min=1, help="Of an encoder: texts that are computed at once; usually 16.", show_default=False),
    ] = None,
    max_tokens: Annotated[
        int | None,
        typer.Option(
            min=1, help="Of an encoder: tokens that are read of each text; the model's own.", show_default=False
        ),
    ] = None,
    time_limit: Annotated[float | None, typer.Option(min=0, help="Seconds for each module; then an error.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Write a model as one file: code for some CPUs, weights as it reads them, vocabulary. Commands take it as a model.

    Nothing is compiled or prepared where it is loaded. It is code: load those of people alone whom you trust.
    """
    from rlx_mlir.models.bundling import bundle as write

    with progress() as say, writing(output):
        found = write(
            model,
            output,
            cpu=cpu or ("native",),
            activations=activations.value,
            context=context,
            chunk=chunk,
            kv_dtype=kv_cache,
            nonfinite=None if nonfinite is None else nonfinite.value,
            quantize=quantize,
            lora=lora,
            batch=batch,
            max_tokens=max_tokens,
            time_limit=time_limit,
            progress=say,
        )
    if as_json:
        print_json(found.to_dict())
    else:
        typer.echo(str(found))
