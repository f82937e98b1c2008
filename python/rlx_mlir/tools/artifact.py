# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The commands `rlx artifact`: what files of compiled code have, and whether they are whole; nothing of them is run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from rlx_mlir.errors import InputError, reason_of
from rlx_mlir.tools.options import Commands, JsonOption, example, print_json

app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="Look at compiled modules in files, artefacts and containers, without running anything of them.",
    epilog=example("rlx artifact show mlp.rlx", "rlx artifact verify mlp.rlx"),
)

FileArgument = Annotated[Path, typer.Argument(help="An artefact, or a container.", metavar="FILE")]


@app.command(epilog=example("rlx artifact show mlp.rlx", "rlx artifact show mlp.rlx --json"))
def show(file: FileArgument, as_json: JsonOption = False) -> None:
    """Say what a file has: sections, the machine that code is for, and what modules take and give."""
    from rlx_mlir.runtime.inspection import describe, table

    with _reading(file):
        found = describe(file)
    if as_json:
        print_json(found)
        return
    typer.echo(table(found))


@app.command(epilog=example("rlx artifact verify mlp.rlx", "rlx artifact verify mlp.rlx --json"))
def verify(file: FileArgument, as_json: JsonOption = False) -> None:
    """Read all of a file, and say of each part whether it holds; exit with 1 where one doesn't.

    Digests find damage. They don't say who wrote the file: whoever did decides what its code does.
    """
    from rlx_mlir.runtime.inspection import verify as findings

    with _reading(file):
        found = list(findings(file))
    if as_json:
        print_json([own.to_dict() for own in found])
    else:
        typer.echo("\n".join(map(str, found)))
    if any(own.problem for own in found):
        raise typer.Exit(1)


@contextmanager
def _reading(file: Path) -> Iterator[None]:
    """InputError where a file can't be read."""
    try:
        yield
    except OSError as error:
        raise InputError(f"{file} can't be read: {reason_of(error)}") from None
