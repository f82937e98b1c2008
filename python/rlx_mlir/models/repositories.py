# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Models in repositories of the Hugging Face hub, by names ``hf:owner/repository`` or ``hf:owner/repository:file``.

The library `huggingface_hub` fetches them, with the user's token, mirror and settings, into its own cache, where it
finds them again. Of a repository those files alone are fetched that are read: never code, never pickles.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path

from ..boundary import foreign_errors
from ..errors import DownloadError, InputError, shortened

PREFIX = "hf:"

_WORD = r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}"
_NAME = re.compile(rf"hf:({_WORD}/{_WORD})(?::(.+))?")
_FILE = re.compile(r"[^/*?\[\]][^*?\[\]]*\.gguf")  # patterns would mean several
_SPLIT = re.compile(r"(.*)-\d{5}(-of-\d{5}\.gguf)")

_FILES = (
    *("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"),
    *("chat_template.jinja", "model.safetensors", "model-*.safetensors", "model.safetensors.index.json"),
)
"""What is read of a folder."""


@dataclass(frozen=True)
class Repository:
    """A model of the hub.

    Attributes:
        name: ``owner/repository``.
        file: the .gguf file in it; None for all that a folder has.
    """

    name: str
    file: str | None

    @classmethod
    def parse(cls, text: str) -> Repository:
        """The meaning of a name; InputError where it is none."""
        found = _NAME.fullmatch(text)
        if found is None:
            raise InputError(
                f"a model of the hub is named hf:owner/repository or hf:owner/repository:file, but got '{text}'"
            )
        name, file = found[1], found[2]
        if file is not None and not (_FILE.fullmatch(file) and ".." not in file.split("/")):
            raise InputError(f"the file in '{text}' must be a .gguf file of the repository, but is {shortened(file)}")
        return cls(name, file)

    def fetch(self, *, download: bool, progress: bool) -> Path:
        """The file or the folder, fetched if needed.

        Args:
            download: fetch what isn't in the library's cache; else that is an error.
            progress: show progress on stderr, where that is a terminal.

        Raises DownloadError where it isn't there, or can't be fetched.
        """
        what = f"{PREFIX}{self.name}" + ("" if self.file is None else f":{self.file}")
        with foreign_errors(f"{what} can't be fetched", DownloadError):
            import huggingface_hub
            from huggingface_hub.utils.tqdm import (
                are_progress_bars_disabled,
                disable_progress_bars,
                enable_progress_bars,
            )

            split = None if self.file is None else _SPLIT.fullmatch(self.file)
            wanted = _FILES if self.file is None else [self.file if split is None else f"{split[1]}-*{split[2]}"]
            quiet = not (progress and sys.stderr.isatty()) and not are_progress_bars_disabled()
            if quiet:
                disable_progress_bars()
            try:
                folder = Path(
                    huggingface_hub.snapshot_download(
                        self.name, allow_patterns=list(wanted), local_files_only=not download
                    )
                )
            finally:
                if quiet:
                    enable_progress_bars()
        if self.file is not None:
            if not (folder / self.file).is_file():
                raise DownloadError(f"{what}: the repository has no such file")
            return folder / self.file
        if not (folder / "config.json").is_file():
            raise DownloadError(
                f"{what}: the repository has no config.json; of one with .gguf files, name one: {what}:file.gguf"
            )
        return folder


__all__ = ["PREFIX", "Repository"]
