# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Opening of language models, whatever their format: a GGUF file, a folder, or a bundle."""

from __future__ import annotations

import os

from ..frontends.gguf import GGUFFile
from ..frontends.huggingface import HuggingFaceFolder
from ..frontends.model_file import ModelFile
from .bundle import bundle_at, open_bundle
from .bundled_file import BundledFile
from .hub import resolve
from .older_latents import OlderLatents, is_older


def open_model(path_or_name: str | os.PathLike[str], *, download: bool = True, progress: bool = False) -> ModelFile:
    """Opens a model and checks its structure; of a bundle, what its file said beside the data of tensors.

    Args:
        path_or_name: what `rlx_mlir.models.hub.resolve` takes, or a language model's bundle.
        download: fetch what is not there.
        progress: show progress of that on stderr, where that is a terminal.

    Raises InputError for what isn't a model, DownloadError, GGUFError, ModelFileError, UnsupportedError for the files,
    CacheError for a bundle that is damaged.
    """
    if (bundle := bundle_at(path_or_name)) is not None:
        return BundledFile(open_bundle(bundle, "decoder"))
    path = resolve(path_or_name, download=download, progress=progress)
    if path.is_dir():
        return HuggingFaceFolder(path)
    file = GGUFFile(path)
    return OlderLatents(file) if is_older(file) else file


__all__ = ["open_model"]
