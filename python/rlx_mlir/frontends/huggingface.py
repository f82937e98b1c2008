# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Folders with a decoder, as Hugging Face's libraries write them, seen as a GGUF file: `HuggingFaceFolder`.

A folder has `config.json`, weights as safetensors in one file or several, and a tokenizer. Tensors have the names of
GGUF here. Most are parts of the mapped files; some are made when they are asked for: norms that multiply by
1 + weight, experts that lie apart, and factors of rotations that the configuration holds.

Nothing of a folder is run: no pickles, no code.
"""

from __future__ import annotations

import contextlib
import hashlib
import mmap
import os
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

import numpy as np

from rlx_mlir.files import Json
from rlx_mlir.frontends.model_file import MetadataValue

from ..errors import InputError, SafetensorsError, TokenizerError
from ..files import is_there, open_regular, read_bytes, read_text
from .documents import Document, read_object
from .huggingface_config import CONFIG, FolderConfig, read_config
from .huggingface_tensors import Bytes, FolderTensors, has_prediction
from .huggingface_vocabulary import HUGGINGFACE, SETTINGS_KEY, TOKENIZER_KEY, special_id, tokens_of
from .model_file import ModelFile, ModelMetadata, TensorInfo
from .safetensors import SafetensorsFile, open_weights

TOKENIZER = "tokenizer.json"
SETTINGS = ("tokenizer_config.json", "special_tokens_map.json", "generation_config.json", CONFIG)

#: What a fingerprint reads of each tensor.
_SAMPLE_BYTES = 4096


class FolderMetadata(ModelMetadata):
    """What the configuration says, and the tokenizer, whose files are read when they are first asked for."""

    def __init__(self, folder: Path, values: Mapping[str, MetadataValue]) -> None:
        self._folder = folder
        self._values = dict(values)
        self._later: dict[str, Callable[[], MetadataValue]] = {}
        if is_there(folder / TOKENIZER):
            self._values["tokenizer.ggml.model"] = HUGGINGFACE
            self._later[TOKENIZER_KEY] = partial(read_object, folder / TOKENIZER)
            self._later[SETTINGS_KEY] = partial(_settings, folder)
            self._later["tokenizer.ggml.tokens"] = self._tokens
            for word in ("bos", "eos"):
                self._later[f"tokenizer.ggml.{word}_token_id"] = partial(self._special, word)
        if (template := _chat_template(folder)) is not None:
            self._values["tokenizer.chat_template"] = template

    def _tokens(self) -> list[str]:
        try:
            return tokens_of(self[TOKENIZER_KEY])
        except TokenizerError as error:
            raise TokenizerError(f"{self._folder / TOKENIZER}: {error}") from None

    def _special(self, word: str) -> int | None:
        try:
            return special_id(self[SETTINGS_KEY], self["tokenizer.ggml.tokens"], word)
        except TokenizerError as error:
            raise TokenizerError(f"{self._folder}: {error}") from None

    def __getitem__(self, key: str) -> MetadataValue:
        if key not in self._values and key in self._later:
            self._values[key] = self._later[key]()
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter({**self._values, **self._later})

    def __contains__(self, key: object) -> bool:
        return key in self._values or key in self._later

    def __len__(self) -> int:
        return len({**self._values, **self._later})

    def length(self, key: str) -> int | None:
        """See `ModelMetadata`."""
        value = self[key]
        return len(value) if isinstance(value, list | np.ndarray) else None


def _settings(folder: Path) -> dict[str, dict[str, Json]]:
    return {name: Document(folder / name, "").content if is_there(folder / name) else {} for name in SETTINGS}


def _chat_template(folder: Path) -> str | None:
    """`chat_template.jinja`, or what `tokenizer_config.json` has: one, or the default one of several."""
    path = folder / "chat_template.jinja"
    if is_there(path):
        return read_text(path, budget="template_bytes")
    found = _settings(folder)["tokenizer_config.json"].get("chat_template")
    if isinstance(found, list):
        found = next((each.get("template") for each in found if each.get("name") == "default"), None)
    return found if isinstance(found, str) else None


class HuggingFaceFolder(ModelFile):
    """An open folder; see `ModelFile`.

    Attributes:
        config: what `config.json` says.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Reads the configuration and the headers of the weights, and maps these.

        Raises ModelFileError where a file is missing or malformed, or they don't fit each other, SafetensorsError for
        damaged weights, UnsupportedError for what isn't implemented.
        """
        self.path = os.fspath(path)
        folder = Path(self.path)
        self.config: FolderConfig = read_config(folder)
        self._content = read_bytes(folder / CONFIG)
        self._files = open_weights(folder, "a language model").files
        if self.config.predicts and not has_prediction(self._files):
            self.config = self.config.without_prediction()
        self._maps: list[mmap.mmap] = []
        self.statuses: dict[str, os.stat_result] = {}
        self._data = [self._mapped(file) for file in self._files]
        found = FolderTensors(self.path, self.config, self._files, self._data)
        self.tensors: dict[str, TensorInfo] = found.tensors
        self._made = found.made
        self.metadata = FolderMetadata(folder, self.config.metadata)

    def _mapped(self, file: SafetensorsFile) -> Bytes:
        """The bytes of a file, whose header is checked."""
        with open_regular(file.path, error=SafetensorsError) as opened:
            status = os.fstat(opened.fileno())
            end = max((info.end for info in file.tensors.values()), default=0)
            if not 0 < end <= status.st_size:
                raise SafetensorsError(
                    f"the file must have tensors up to byte {end}, but has {status.st_size} bytes", path=file.path
                )
            mapped = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)
        self.statuses[file.path] = status
        self._maps.append(mapped)
        return np.frombuffer(mapped, np.uint8)

    def __repr__(self) -> str:
        return f"HuggingFaceFolder({self.path!r}, {self.architecture}, {len(self.tensors)} tensors)"

    @property
    def paths(self) -> tuple[str | None, ...]:
        """See `ModelFile`."""
        return tuple(file.path for file in self._files)

    @property
    def mappings(self) -> tuple[mmap.mmap, ...]:
        """See `ModelFile`."""
        return tuple(self._maps)

    def fingerprint(self) -> str:
        """See `ModelFile`."""
        digest = hashlib.sha256(self._content)
        for file, data in zip(self._files, self._data, strict=True):
            infos = file.tensors.values()
            digest.update(f"{data.size}:".encode())
            digest.update(data[: min(info.begin for info in infos)].data)
            for info in infos:
                middle = (info.begin + info.end) // 2
                digest.update(data[middle : middle + _SAMPLE_BYTES].data)
        return digest.hexdigest()

    def release(self) -> None:
        """See `ModelFile`."""
        for mapped in self._maps:
            if hasattr(mmap, "MADV_DONTNEED"):
                mapped.madvise(mmap.MADV_DONTNEED)

    def close(self) -> None:
        """See `ModelFile`."""
        maps, self._maps, self._data, self._made = self._maps, [], [], {}
        for mapped in maps:
            with contextlib.suppress(BufferError):  # where views of it are alive, the last one unmaps it
                mapped.close()

    def _bytes(self, info: TensorInfo) -> Bytes:
        """See `ModelFile`."""
        assert info.nbytes is not None
        if not self._data:
            raise InputError(f"tensor '{info.name}' is asked for, but the folder is closed")
        if info.name in self._made:
            return _flat(self._made[info.name]())
        return self._data[info.part][info.offset : info.offset + info.nbytes]


def _flat(array: np.ndarray) -> Bytes:
    """The bytes of an array, which can't be written by this name."""
    found: Bytes = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    found.flags.writeable = False
    return found


__all__ = ["HUGGINGFACE", "SETTINGS_KEY", "TOKENIZER_KEY", "FolderMetadata", "HuggingFaceFolder"]
