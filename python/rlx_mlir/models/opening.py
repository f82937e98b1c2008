# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Opening of language models, whatever their format: a GGUF file, or a folder of Hugging Face's libraries."""

from __future__ import annotations

import os

from ..frontends.gguf import GGUFFile
from ..frontends.huggingface import HuggingFaceFolder
from ..frontends.model_file import ModelFile
from .hub import resolve


def open_model(path_or_name: str | os.PathLike[str], *, download: bool = True, progress: bool = False) -> ModelFile:
    """Opens a model and checks its structure.

    Args:
        path_or_name: what `rlx_mlir.models.hub.resolve` takes.
        download: fetch what is not there.
        progress: show progress of that on stderr, where that is a terminal.

    Raises InputError for what isn't a model, DownloadError, GGUFError, ModelFileError, UnsupportedError for the files.
    """
    path = resolve(path_or_name, download=download, progress=progress)
    return HuggingFaceFolder(path) if path.is_dir() else GGUFFile(path)


__all__ = ["open_model"]
