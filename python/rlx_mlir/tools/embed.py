# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The command `rlx embed`: vectors of texts."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from rlx_mlir.tools.options import CpuOption, JsonOption, ThreadsOption, print_json, progress


def embed(
    model: Annotated[
        str, typer.Argument(help="The folder of an encoder, a bundle of one, or the name of a known one.")
    ],
    texts: Annotated[list[str], typer.Argument(help="Texts; - reads one from each line of stdin.")],
    threads: ThreadsOption = None,
    batch: Annotated[
        int | None, typer.Option(min=1, help="Texts that are computed at once; usually 16.", show_default=False)
    ] = None,
    max_tokens: Annotated[
        int | None, typer.Option(min=1, help="Tokens that are read of each text; the model's own.", show_default=False)
    ] = None,
    prompt: Annotated[
        str | None,
        typer.Option(
            help="Name of the prompt in front of each text, '' for none; the model's own.", show_default=False
        ),
    ] = None,
    cpu: CpuOption = "",
    as_json: JsonOption = False,
) -> None:
    """Print the vector of each text, a line each."""
    from rlx_mlir.models.embedding import load_encoder

    given = _lines() if texts == ["-"] else texts
    with progress() as say:
        encoder = load_encoder(model, threads=threads, batch=batch, max_tokens=max_tokens, cpu=cpu, progress=say)
    vectors = encoder.embed(given, prompt_name=prompt)
    if as_json:
        rows = [{"text": text, "vector": vector.tolist()} for text, vector in zip(given, vectors, strict=True)]
        print_json({"model": model, "width": encoder.config.hidden, "texts": rows})
        return
    for vector in vectors:
        typer.echo(" ".join(f"{number:.9g}" for number in vector.tolist()))


def _lines() -> list[str]:
    """The lines of stdin: line feeds end them, and no other character."""
    from rlx_mlir.boundary import foreign_errors

    with foreign_errors("stdin"):
        text = sys.stdin.read()
    return text.removesuffix("\n").split("\n") if text else []
