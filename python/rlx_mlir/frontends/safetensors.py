# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reader of safetensors files, over the `safetensors` library, which maps the file and checks its header.

Opening reads the header alone; a tensor's bytes are read when it is asked for. `ShardedSafetensors` is a model in
several files, with an index that says which tensor is where.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from .. import budgets
from ..boundary import foreign_errors
from ..errors import ModelFileError, SafetensorsError, UnsupportedError, shortened
from ..files import inside, is_there, open_regular
from .documents import parse_json, read_object

Array = np.ndarray

FLOATS = {"F64": "f64", "F32": "f32", "F16": "f16", "BF16": "bf16"}
"""Words of the format for floating-point element types, and ours."""

WEIGHTS = "model.safetensors"
"""The file of a folder that holds the tensors."""

INDEX = "model.safetensors.index.json"
"""The file that names those that hold them, where they are several."""

_OTHER_WEIGHTS = ("pytorch_model.bin", "pytorch_model.bin.index.json", "tf_model.h5", "model.onnx", "onnx/model.onnx")
_OTHERS = {"I64": "i64", "I32": "i32", "I16": "i16", "I8": "i8", "U8": "u8", "BOOL": "i1"}
_TYPES = FLOATS | _OTHERS


@dataclass(frozen=True)
class TensorInfo:
    """What the header says about a tensor.

    Attributes:
        name: its name.
        type: element type: f64, f32, f16, bf16, i64, i32, i16, i8, u8, i1, or the format's word for another one.
        shape: sizes, the last one contiguous.
        begin, end: where its bytes are in the file, for who maps it.
    """

    name: str
    type: str
    shape: tuple[int, ...]
    begin: int = 0
    end: int = 0

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)


class SafetensorsFile:
    """An open file; it stays mapped as long as this lives.

    Attributes:
        path: the file.
        tensors: by name, in the file's order.
        metadata: texts by key, what the header holds beside the tensors.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Maps the file and reads its header.

        Raises SafetensorsError where it can't be read, isn't of the format, or is damaged.
        """
        self.path = os.fspath(path)
        places = _places(self.path)
        with foreign_errors(self.path, _error(self.path)):
            import safetensors

            self._file = safetensors.safe_open(self.path, framework="numpy")
            self.metadata: dict[str, str] = dict(self._file.metadata() or {})
            slices = {name: self._file.get_slice(name) for name in self._file.keys()}  # noqa: SIM118
            self.tensors: Mapping[str, TensorInfo] = {
                name: TensorInfo(
                    name,
                    _TYPES.get(part.get_dtype(), part.get_dtype()),
                    tuple(part.get_shape()),
                    *places.get(name, (0, 0)),
                )
                for name, part in slices.items()
            }

    def tensor(self, name: str) -> Array:
        """A tensor in the element type that it has in the file (bf16 as `ml_dtypes.bfloat16`).

        Raises SafetensorsError for an unknown name, UnsupportedError for an element type that numpy doesn't have.
        """
        info = self._info(name)
        if info.type not in _TYPES.values():
            raise UnsupportedError(
                f"{self.path}: tensor '{name}' has element type {info.type}, readable are {', '.join(_TYPES)}"
            )
        with foreign_errors(f"{self.path}: tensor '{name}'", _error(self.path)):
            array: Array = self._file.get_tensor(name)
        return array

    def floats(self, name: str) -> Array:
        """A tensor of floating-point elements as f32, exactly but for f64, which is rounded.

        Raises SafetensorsError for an unknown name, UnsupportedError for elements of another kind.
        """
        info = self._info(name)
        if info.type not in FLOATS.values():
            raise UnsupportedError(
                f"{self.path}: tensor '{name}' must be of {', '.join(FLOATS)}, but has element type {info.type}"
            )
        return self.tensor(name).astype(np.float32, copy=False)

    @property
    def files(self) -> tuple[SafetensorsFile, ...]:
        """This file alone, as `ShardedSafetensors` has several."""
        return (self,)

    def _info(self, name: str) -> TensorInfo:
        return _found(self.tensors, name, self.path)


class ShardedSafetensors:
    """The tensors of several files, which an index names: `model.safetensors.index.json` beside them.

    Attributes:
        path: the index.
        tensors: by name, in the index's order.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Reads the index, maps the files that it names and reads their headers.

        Raises ModelFileError where the index is malformed or leaves its folder, SafetensorsError for a file that is
        missing or damaged, or doesn't have the tensors that the index says, all of them and no others.
        """
        self.path = os.fspath(path)
        fail = partial(ModelFileError, path=self.path)
        where = read_object(self.path).get("weight_map")
        if not isinstance(where, dict) or not all(isinstance(name, str) for name in where.values()):
            raise fail("'weight_map' must be an object with the file of each tensor")
        budgets.check("tensors", len(where), self.path)
        folder = Path(self.path).parent
        self._files: dict[str, SafetensorsFile] = {}
        for name in dict.fromkeys(where.values()):
            place = inside(folder, name, "a file of 'weight_map'", error=fail)
            self._files[name] = SafetensorsFile(place)
        self._where: dict[str, str] = where
        self.tensors: Mapping[str, TensorInfo] = {
            tensor: _found(self._files[name].tensors, tensor, self._files[name].path) for tensor, name in where.items()
        }
        for name, file in self._files.items():
            others = [tensor for tensor in file.tensors if where.get(tensor) != name]
            if others:
                raise SafetensorsError(
                    f"tensor '{others[0]}' is here, but the index {os.path.basename(self.path)} says "
                    f"{shortened(where.get(others[0]))}",
                    path=file.path,
                )

    @property
    def files(self) -> tuple[SafetensorsFile, ...]:
        """All files, in the index's order."""
        return tuple(self._files.values())

    def tensor(self, name: str) -> Array:
        """As `SafetensorsFile.tensor`."""
        return self._file(name).tensor(name)

    def floats(self, name: str) -> Array:
        """As `SafetensorsFile.floats`."""
        return self._file(name).floats(name)

    def _file(self, name: str) -> SafetensorsFile:
        _found(self.tensors, name, self.path)
        return self._files[self._where[name]]


def _found(tensors: Mapping[str, TensorInfo], name: str, path: str) -> TensorInfo:
    info = tensors.get(name)
    if info is None:
        known = ", ".join(list(tensors)[:8]) + (", …" if len(tensors) > 8 else "")
        raise SafetensorsError(f"there is no tensor '{name}'; the file has {known or 'none'}", path=path)
    return info


def _error(path: str) -> Callable[[str], SafetensorsError]:
    """Makes the exception of a message that begins with the path already."""
    return lambda message: SafetensorsError(message.removeprefix(f"{path}: "), path=path)


def _places(path: str) -> dict[str, tuple[int, int]]:
    """Where the bytes of each tensor are, by its name; that they fit, the library checks, which reads the file next.

    Checks that the header is an object in JSON, and budgets: the library has none.
    """
    with open_regular(path, error=SafetensorsError) as file:
        size = os.fstat(file.fileno()).st_size
        start = file.read(8)
        length = int.from_bytes(start, "little")
        if len(start) < 8 or length > size - 8:
            raise SafetensorsError(
                f"byte 0: the header must be 8 bytes and as many as they say, but the file has {size} bytes"
                + (f" and they say {length}" if len(start) == 8 else ""),
                path=path,
            )
        budgets.check("json_bytes", length, path)
        content = file.read(length)
    header = parse_json(content, path, error=SafetensorsError)
    if not isinstance(header, dict):
        raise SafetensorsError(f"the header must be a JSON object, but is {shortened(header)}", path=path)
    budgets.check("tensors", len(header), path)
    base = 8 + length
    found = {}
    for name, value in header.items():
        offsets = value.get("data_offsets") if isinstance(value, dict) else None
        if isinstance(offsets, list) and len(offsets) == 2 and all(type(at) is int for at in offsets):
            found[name] = base + offsets[0], base + offsets[1]
    return found


def open_weights(folder: Path, what: str = "an encoder") -> SafetensorsFile | ShardedSafetensors:
    """The tensors of a model's folder: of one file, or of several with an index; `what` is what the folder would be.

    Raises ModelFileError where there is none, and says so where weights are in a format that isn't read; and what the
    two classes raise.
    """
    path = folder / WEIGHTS
    if is_there(path):
        return SafetensorsFile(path)
    index = folder / INDEX
    if is_there(index):
        return ShardedSafetensors(index)
    others = [name for name in _OTHER_WEIGHTS if is_there(folder / name)]
    why = f"; {others[0]}, which is there, isn't read: save the model as safetensors" if others else ""
    raise ModelFileError(f"the file is missing; {what} is a folder that has it, or {INDEX}{why}", path=path)


__all__ = ["FLOATS", "INDEX", "WEIGHTS", "SafetensorsFile", "ShardedSafetensors", "TensorInfo", "open_weights"]
