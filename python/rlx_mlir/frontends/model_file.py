# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a model's file is to those who read it, whatever its format: metadata and tensors by the names of GGUF."""

from __future__ import annotations

import mmap
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from ..errors import GGUFError, InputError
from ..formats import FORMATS_BY_ID, BlockFormat, decode

if TYPE_CHECKING:
    from typing_extensions import Self


@dataclass(frozen=True)
class TensorInfo:
    """What the file says about one tensor.

    Attributes:
        name: its name.
        shape: dimensions, innermost **last** (GGUF files store them innermost first); a weight is [N, K].
        type: lower-case format name such as "q4_1"; "unknown(n)" for a type number that is not known.
        type_id: number of the type in GGUF files.
        offset: byte offset of the data in the file.
        nbytes: bytes of the data; None where the type is unknown.
        header_offset: byte offset of this description in the file.
        part: number of the file, from 0 on, where a model has several.
    """

    name: str
    shape: tuple[int, ...]
    type: str
    type_id: int
    offset: int
    nbytes: int | None
    header_offset: int
    part: int = 0

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @property
    def rows(self) -> int:
        """Number of rows: the product of all dimensions but the innermost."""
        return prod(self.shape[:-1])

    @property
    def k(self) -> int:
        """Elements in a row: the innermost dimension, 1 for a scalar."""
        return self.shape[-1] if self.shape else 1


#: A value of a model's metadata: a number, a boolean, a text, an array of numbers or a list of texts, as GGUF has them,
#: or an object of JSON, which files of folders hold.
MetadataValue: TypeAlias = Any


class ModelMetadata(Mapping[str, MetadataValue], ABC):
    """Values by the keys of GGUF: ``int``, ``float``, ``bool``, ``str``, numpy arrays of numbers, lists of strings."""

    @abstractmethod
    def length(self, key: str) -> int | None:
        """Number of elements of an array, without decoding it; None for a value that is not an array."""


class ModelFile(ABC):
    """An open model.

    Attributes:
        path: where it is; None in memory.
        metadata: values by the keys of GGUF.
        tensors: by the names of GGUF.
        statuses: what the system said of each file, by its path, when it was opened; empty for one in memory.
    """

    path: str | None
    metadata: ModelMetadata
    tensors: Mapping[str, TensorInfo]
    statuses: Mapping[str, os.stat_result]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def architecture(self) -> str:
        """``general.architecture``, or "unknown"."""
        return str(self.metadata.get("general.architecture", "unknown"))

    @property
    @abstractmethod
    def paths(self) -> tuple[str | None, ...]:
        """The paths of all files, in the order in which `TensorInfo.part` counts them."""

    @property
    @abstractmethod
    def mappings(self) -> tuple[mmap.mmap, ...]:
        """The mapped files that arrays are views of; none where they are closed, or in memory."""

    @abstractmethod
    def fingerprint(self) -> str:
        """A digest, in hexadecimal, of all but the data of tensors, and of a part of each."""

    @abstractmethod
    def release(self) -> None:
        """Tells the system that pages read so far are not needed again; they come back from the file when touched."""

    @abstractmethod
    def close(self) -> None:
        """Lets go of the files. Arrays that are still in use stay valid."""

    @abstractmethod
    def _bytes(self, info: TensorInfo) -> npt.NDArray[np.uint8]:
        """The bytes of a tensor, or of a part of one that `info` describes, a read-only view; its type is known.

        Raises InputError where the file is closed.
        """

    def tensor(self, name: str) -> np.ndarray:
        """The data of a tensor as a read-only view.

        f32, f16, bf16, f64 and integer tensors have their shape, innermost last, and their element type; block formats
        are uint8 [rows, rowbytes], with all but the innermost dimension flattened into rows.

        Raises InputError for a name that is not in the file, GGUFError for a type that is not known.
        """
        return self.read(self.info(name))

    def read(self, info: TensorInfo) -> np.ndarray:
        """As `tensor`, of a description: that of a tensor, or one of some of its rows."""
        fmt = self._format(info)
        raw = self._bytes(info)
        if fmt.dense is None:
            return raw.reshape(info.rows, fmt.row_bytes(info.k))
        return raw.view(fmt.dense).reshape(info.shape)

    def dequantize(self, name: str) -> npt.NDArray[np.float32]:
        """The tensor as f32 in its shape, innermost last; UnsupportedError for formats without a decoder."""
        info = self.info(name)
        fmt = self._format(info)
        data = self.read(info)
        if fmt.dense is not None:
            return data.astype(np.float32)
        return decode(fmt, data, info.k).reshape(info.shape)

    def info(self, name: str) -> TensorInfo:
        """The description of a tensor; InputError where the file has none of that name."""
        try:
            return self.tensors[name]
        except KeyError:
            raise InputError(
                f"no tensor '{name}' in {self.path or 'the file'}, which has {len(self.tensors)}"
            ) from None

    def _format(self, info: TensorInfo) -> BlockFormat:
        if info.nbytes is None:
            raise GGUFError(
                f"tensor '{info.name}' has the type number {info.type_id}, which is not known",
                path=self.paths[info.part],
                offset=info.header_offset,
            )
        return FORMATS_BY_ID[info.type_id]


def refuse_itself(file: ModelFile, target: Path) -> None:
    """InputError where a file that is to be written is one of a model's own, which is read meanwhile."""
    if target.exists() and any(part is not None and os.path.samefile(target, part) for part in file.paths):
        raise InputError(f"'{target}' is the model itself: the new file needs another name")


__all__ = ["ModelFile", "ModelMetadata", "TensorInfo", "refuse_itself"]
