# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Models written as GGUF files of few bits: mixes of types, importance matrices, vocabularies of folders."""

from __future__ import annotations

import os
from pathlib import Path

from rlx_mlir.models.mixes import MIXES
from rlx_mlir.models.opening import open_model
from rlx_mlir.paths import check_place
from rlx_mlir.quantizing.files import Plan, Planned, Progress, plan, quantize_file
from rlx_mlir.quantizing.importance import (
    Importance,
    collect_importance,
    importance_of,
    is_matrix,
    read_importance,
)
from rlx_mlir.quantizing.sources import Source


def quantize(
    model: str | os.PathLike[str],
    output: str | os.PathLike[str],
    mix: str,
    *,
    importance: Importance | str | os.PathLike[str] | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Plan:
    """Writes a model as a GGUF file whose matrices have the types of a mix; it appears whole or not at all.

    Args:
        model: a GGUF file, a folder of Hugging Face's libraries, or the name of a known model.
        output: the new file; metadata, vocabulary and chat template are those of the model.
        mix: such as q4_k_m, one of `MIXES`.
        importance: what errors of each column count: an importance matrix, a file with one, or a text that the model
            is run over; all alike by default.
        threads: that quantise; as many as the process may use by default.
        progress: is told which tensor is written, how many bytes are, and how many there will be.

    Returns the types and sizes of all tensors. Raises InputError for arguments that aren't as described, or where the
    disk has too little room; UnsupportedError, GGUFError, ModelFileError, TokenizerError for what the model has;
    OSError where the file can't be written.
    """
    with open_model(model) as file:
        source = Source.of(file)
        found = importance
        if found is not None and not isinstance(found, Importance):
            plan(source, mix, has_importance=True)  # before a text is run through the model
            check_place(Path(output))
            found = importance_of(found, file, threads=threads)
        return quantize_file(source, output, mix, importance=found, threads=threads, progress=progress)


__all__ = [
    "MIXES",
    "Importance",
    "Plan",
    "Planned",
    "Source",
    "collect_importance",
    "importance_of",
    "is_matrix",
    "plan",
    "quantize",
    "quantize_file",
    "read_importance",
]
