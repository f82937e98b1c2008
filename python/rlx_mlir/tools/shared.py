# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`rlx emit --stage shared`: modules as a shared library without Python."""

from __future__ import annotations

import enum
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from rlx_mlir.errors import TokenizerError
from rlx_mlir.paths import write_atomically
from rlx_mlir.tools.modules import is_module_file
from rlx_mlir.tools.options import (
    Activations,
    OptionError,
    Program,
    activations_of,
    any_module,
    encoder_weights,
    is_encoder,
    read_arrays,
    weights,
    writing,
)

if TYPE_CHECKING:
    import numpy as np

    from rlx_mlir.checks import Option
    from rlx_mlir.runtime.artifact import Artifact


VOCABULARY_MAGIC = b"RLXVOCB\0"
VOCABULARY_VERSION = 1


class Weights(str, enum.Enum):
    """Where a library's weights are."""

    auto = "auto"
    embed = "embed"
    file = "file"
    caller = "caller"


@dataclass(frozen=True)
class Library:
    """What is asked of a library: `rlx_mlir.runtime.exporting.save_shared` says what these are.

    Attributes:
        output: its file.
        weights: where these are.
        params: a file of arrays, of modules that have no weights of their own.
        name, compiler: as there.
    """

    output: Path | None
    weights: Weights
    params: Path | None
    name: str | None
    compiler: str | None


def emit_shared(
    model: str,
    library: Library,
    function: Program | None,
    activations: Activations,
    context: int | None,
    chunk: int,
    machine: Mapping[str, Option],
) -> None:
    """Compiles modules, and writes them as a library: both programs of a decoder, unless one is chosen.

    Raises InputError where there is no file to write, and what compiling and `save_shared` raise.
    """
    from rlx_mlir.runtime.exporting import save_shared

    output = library.output
    if output is None:
        raise OptionError("'--stage shared' writes files: '--output' says which, such as libmodel.so")
    artifacts = _artifacts(model, function, activations, context, chunk, machine)
    given = None if library.weights is Weights.caller else _parameters(model, context, library.params)
    with writing(output):
        written = save_shared(
            artifacts,
            output,
            name=library.name,
            weights=library.weights.value,
            params=given,
            compiler=library.compiler,
        )
    size, beside = written.sizes
    typer.echo(f"{written.path}: {size / 1e6:.1f} MB, functions {', '.join(artifacts)}; header {written.header}")
    if written.weights is not None:
        typer.echo(f"{written.weights}: {beside / 1e6:.1f} MB")
    if not (_is_artifact(model) or _is_single(model)):
        _write_vocabulary(model, written.header.with_suffix(".vocabulary"))


def _write_vocabulary(model: str, path: Path) -> None:
    """Writes what a decoder's tokens are, for programs that have no tokenizer: docs/c-api.md describes the file."""
    from rlx_mlir.models.json_tokenizer import tokenizer_of
    from rlx_mlir.models.opening import open_model

    file = open_model(model)
    try:
        tokenizer = tokenizer_of(file.metadata, origin=file.path or "")
    except TokenizerError as error:
        typer.echo(f"no vocabulary: {error}", err=True)
        return
    texts = [tokenizer.token_bytes(index) for index in range(len(tokenizer.tokens))]
    ends = sorted(tokenizer.stop_ids)
    numbers = [VOCABULARY_VERSION, len(texts), len(ends), *ends, *accumulate(map(len, texts), initial=0)]
    with writing(path):
        write_atomically(path, VOCABULARY_MAGIC + struct.pack(f"<{len(numbers)}I", *numbers) + b"".join(texts))
    typer.echo(f"{path}: {len(texts)} tokens")


def _artifacts(
    model: str,
    function: Program | None,
    activations: Activations,
    context: int | None,
    chunk: int,
    machine: Mapping[str, Option],
) -> dict[str, Artifact]:
    """What is compiled, by the names of the library's functions."""
    from rlx_mlir.compiler import build_artifact, compile
    from rlx_mlir.options import options_of
    from rlx_mlir.runtime.artifact import Artifact

    if _is_artifact(model):
        artifact = Artifact.load(model)
        return {artifact.name: artifact}
    programs = [function] if function is not None else [Program.prefill] if _is_single(model) else list(Program)
    found = {}
    for program in programs:
        module, maxima = any_module(model, program.value, context, chunk)
        options: dict[str, Any] = {**machine, "activations": activations_of(module, activations), "maxima": maxima}
        if any(options[key] for key in ("triple", "cpu", "features")):
            artifact = build_artifact(module, options_of("cpu", options))  # this machine may not be able to load it
        else:
            artifact = compile(module, **options).artifact
        found[module.name] = artifact
    return found


def _parameters(model: str, context: int | None, params: Path | None) -> dict[str, np.ndarray] | None:
    """Arrays for the parameters of the modules, from the model or a file of arrays; None where there are none."""
    known = {} if _is_artifact(model) else encoder_weights(model) if is_encoder(model) else weights(model, context)
    if params is None:
        return known or None
    if known:
        raise OptionError(f"'--params' are for modules without weights of their own, but {model} has them")
    return read_arrays(params)


def _is_artifact(model: str) -> bool:
    return Path(model).suffix == ".rlx" and Path(model).is_file()


def _is_single(model: str) -> bool:
    """Whether it is one module, not a decoder with several."""
    return is_module_file(model) or is_encoder(model)


__all__ = ["Library", "Weights", "emit_shared"]
