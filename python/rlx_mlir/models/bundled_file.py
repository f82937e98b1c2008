# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A bundle seen as the model's file that it was made of: metadata, and what its tensors were."""

from __future__ import annotations

import json
import mmap
import os
from collections.abc import Iterator, Mapping
from typing import NoReturn

import numpy as np

from .. import budgets
from ..errors import GGUFError, InputError, shortened
from ..formats import FORMATS_BY_ID
from ..frontends.documents import parse_json
from ..frontends.gguf import GGUFFile, Metadata, encode_metadata
from ..frontends.huggingface_vocabulary import SETTINGS_KEY, TOKENIZER_KEY
from ..frontends.model_file import MetadataValue, ModelFile, ModelMetadata, TensorInfo
from .bundle import METADATA, Bundle

#: Values that are objects of JSON: GGUF has no such type, so they are kept as texts.
_OBJECTS = (TOKENIZER_KEY, SETTINGS_KEY)
#: What says how many files a model was split into: a bundle is one.
_SPLIT = "split."
_FORMATS = {fmt.name: (number, fmt) for number, fmt in FORMATS_BY_ID.items()}


def metadata_section(file: ModelFile) -> bytes:
    """A model's metadata as a bundle keeps it: a GGUF file without tensors."""
    found: dict[str, MetadataValue] = {}
    for key in file.metadata:
        value = file.metadata.typed(key) if isinstance(file.metadata, Metadata) else file.metadata[key]
        if key.startswith(_SPLIT) or value is None:
            continue
        if key in _OBJECTS:
            value = json.dumps(value)
        elif isinstance(value, float) and not isinstance(value, np.generic):
            value = np.float64(value)
        found[key] = value
    return bytes(encode_metadata(found))


def described_tensors(tensors: Mapping[str, TensorInfo]) -> dict[str, list[object]]:
    """Types and shapes of tensors, as JSON can write them."""
    return {name: [info.type, list(info.shape)] for name, info in tensors.items()}


class BundledMetadata(ModelMetadata):
    """The metadata of a bundle; values are decoded when they are asked for."""

    def __init__(self, path: str, content: bytes) -> None:
        """Raises GGUFError where the section is no GGUF file."""
        try:
            self._metadata = GGUFFile.from_bytes(content).metadata
        except GGUFError as error:
            raise GGUFError(f"section '{METADATA}': {error}", path=path) from None
        self._path = path
        self._objects: dict[str, MetadataValue] = {}

    def __getitem__(self, key: str) -> MetadataValue:
        value = self._metadata[key]
        if key not in _OBJECTS or not isinstance(value, str):
            return value
        if key not in self._objects:
            self._objects[key] = parse_json(value.encode(), self._path)
        return self._objects[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._metadata)

    def __contains__(self, key: object) -> bool:
        return key in self._metadata

    def __len__(self) -> int:
        return len(self._metadata)

    def length(self, key: str) -> int | None:
        """See `ModelMetadata`."""
        return self._metadata.length(key)


class BundledFile(ModelFile):
    """The model's file that a bundle was made of, without the data of tensors.

    Attributes:
        bundle: the bundle.
    """

    def __init__(self, bundle: Bundle) -> None:
        """Raises ModelFileError, GGUFError where it doesn't say what it is of, CacheError where it is damaged."""
        self.bundle = bundle
        self.path = os.fspath(bundle.path)
        self.statuses: dict[str, os.stat_result] = {}
        self.metadata = BundledMetadata(self.path, bundle.section(METADATA))
        self.tensors = self._read_tensors(bundle.document.get("tensors", dict))

    def _read_tensors(self, found: Mapping[str, object]) -> dict[str, TensorInfo]:
        budgets.check("tensors", len(found), str(self.path))
        tensors = {}
        for name, own in found.items():
            if not isinstance(own, list) or len(own) != 2 or not isinstance(own[0], str) or own[0] not in _FORMATS:
                raise self.bundle.fail(
                    f"tensor {shortened(name)} must have a known type and a shape, not {shortened(own)}"
                )
            word, shape = own
            if not isinstance(shape, list) or not all(type(size) is int and 0 < size < 1 << 31 for size in shape):
                raise self.bundle.fail(f"tensor {shortened(name)} must have sizes above 0, but has {shortened(shape)}")
            number, fmt = _FORMATS[word]
            info = TensorInfo(name, tuple(shape), word, number, 0, 0, 0)
            if info.k % fmt.block:
                raise self.bundle.fail(
                    f"tensor {shortened(name)} must have rows of a multiple of {fmt.block}, but they have {info.k}"
                )
            nbytes = info.rows * fmt.row_bytes(info.k)
            tensors[name] = TensorInfo(name, tuple(shape), word, number, 0, nbytes, 0)
        return tensors

    def __repr__(self) -> str:
        return f"BundledFile({self.path!r}, {self.architecture}, {len(self.tensors)} tensors)"

    @property
    def paths(self) -> tuple[str | None, ...]:
        """See `ModelFile`."""
        return (self.path,)

    @property
    def mappings(self) -> tuple[mmap.mmap, ...]:
        """See `ModelFile`."""
        return ()

    def fingerprint(self) -> str:
        """That of the file that the bundle was made of."""
        return str(self.bundle.document.get("identity", dict).get("model"))

    def release(self) -> None:
        """See `ModelFile`."""

    def close(self) -> None:
        """See `ModelFile`."""

    def _bytes(self, info: TensorInfo) -> NoReturn:
        """See `ModelFile`."""
        raise InputError(
            f"tensor '{info.name}' is asked for, but '{self.path}' is a bundle, which has weights as its code reads "
            "them: use the model that it was made of"
        )


__all__ = ["BundledFile", "BundledMetadata", "described_tensors", "metadata_section"]
