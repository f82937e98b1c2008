# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reading ONNX files: the messages, by the library `onnx`, and the bytes of tensors, here.

A file may be a stranger's. Tensors that lie in files of their own have names inside of the model's folder, and their
bytes inside of these files; the number of bytes is that of the shape and the element type.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import ml_dtypes
import numpy as np

from rlx_mlir import budgets
from rlx_mlir.boundary import foreign_errors
from rlx_mlir.errors import InputError, OnnxError, UnsupportedError, shortened
from rlx_mlir.files import check_regular, inside, open_regular

from .types import NUMPY, SMALL, name_of

if TYPE_CHECKING:
    import onnx


#: Dimensions that an array of numpy has at most.
MOST_DIMENSIONS = 32
#: Fields of a tensor message that hold its elements, by element type; others are in `int32_data`.
_FIELDS = {1: "float_data", 11: "double_data", 7: "int64_data", 12: "uint64_data", 13: "uint64_data"}
#: Element types whose bits `int32_data` holds.
_BITS = {10: np.uint16, 16: np.uint16, 17: np.uint8, 19: np.uint8}


def onnx_library() -> ModuleType:
    """The library `onnx`; UnsupportedError says how to install it where it isn't."""
    try:
        import onnx
    except ImportError:
        raise UnsupportedError(
            "reading ONNX files needs the library onnx, which isn't installed: pip install 'rlx-mlir[onnx]'"
        ) from None
    return onnx


def read_model(source: object) -> tuple[onnx.ModelProto, Path | None, str]:
    """The message of a model, the folder of its external data, and what names it in errors.

    Args:
        source: path of a file, its bytes, or an `onnx.ModelProto`.

    Raises OnnxError where it can't be read or is no model, InputError for what is none of these.
    """
    onnx = onnx_library()
    if isinstance(source, onnx.ModelProto):
        return source, None, "the model"
    if isinstance(source, bytes):
        return _parsed(onnx, source, "the model", None), None, "the model"
    if not isinstance(source, str | os.PathLike):
        raise InputError(f"a model is a path, bytes or an onnx.ModelProto, but got {shortened(source)}")
    with foreign_errors(shortened(source), OnnxError):
        path = Path(source)
    size = check_regular(path, error=OnnxError)
    if size >= 1 << 31:
        raise OnnxError(
            f"a file has less than 2^31 bytes, weights beyond lie beside it, but it has {size:,}", path=path
        )
    with open_regular(path, error=OnnxError) as file, foreign_errors(str(path), OnnxError):
        content = file.read(size)
    return _parsed(onnx, content, str(path), path), path.parent, str(path)


def _parsed(library: ModuleType, content: bytes, named: str, path: Path | None) -> onnx.ModelProto:
    model: onnx.ModelProto = library.ModelProto()
    with foreign_errors(named, OnnxError):
        model.ParseFromString(content)
    if not model.HasField("graph"):
        raise OnnxError("it is no ONNX model: it has no graph", path=path)
    return model


class Tensors:
    """Reads the tensors of one model.

    Args:
        folder: where its external data are; None where it has no folder.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._count = 0

    def read(self, message: onnx.TensorProto, named: str) -> np.ndarray:
        """The elements of a tensor message.

        Raises OnnxError where it is malformed, UnsupportedError for element types that arrays don't have, BudgetError
        where a file has more tensors than the budget.
        """
        self._count += 1
        budgets.check("tensors", self._count, "the model")
        with foreign_errors(named, OnnxError):
            dims, kind = [int(size) for size in message.dims], int(message.data_type)
        if len(dims) > MOST_DIMENSIONS or any(size < 0 for size in dims):
            raise OnnxError(f"{named}: a tensor has up to {MOST_DIMENSIONS} sizes from 0 on, but has {dims[:40]}")
        dtype = NUMPY.get(kind)
        if dtype is None:
            raise UnsupportedError(f"{named}: elements of type {name_of(kind)} can't be read")
        count = math.prod(dims)
        if message.data_location == 1:
            content = self._external(message, dtype, count, named)
        elif message.HasField("raw_data"):
            content = message.raw_data
        else:
            return _listed(message, kind, dtype, dims, named)
        return _from_bytes(content, dtype, count, named).reshape(dims)

    def _external(self, message: onnx.TensorProto, dtype: np.dtype, count: int, named: str) -> bytes:
        """The bytes of a tensor that lie in a file of their own."""
        if self._folder is None:
            raise OnnxError(f"{named} lies in another file, but the model was given without a folder: give its path")
        entries = {entry.key: entry.value for entry in message.external_data}
        path = inside(self._folder, entries.get("location", ""), f"the file of {named}", error=OnnxError)
        size, bytes_ = check_regular(path, error=OnnxError), _bytes_of(dtype, count)
        offset, length = _number(entries, "offset", 0, named), _number(entries, "length", bytes_, named)
        if length != bytes_:
            raise OnnxError(f"{named} has {bytes_:,} bytes by its shape, but {length:,} by its entry 'length'")
        if offset + length > size:
            raise OnnxError(
                f"{named} has bytes {offset:,} to {offset + length:,} of a file of {size:,} bytes", path=path
            )
        with open_regular(path, error=OnnxError) as file, foreign_errors(str(path), OnnxError):
            file.seek(offset)
            return file.read(length)


def _number(entries: Mapping[str, str], key: str, default: int, named: str) -> int:
    text = entries.get(key, "")
    if not text:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise OnnxError(f"{named}: '{key}' is a number of bytes, but is {shortened(text)}")
    return int(text)


def _bytes_of(dtype: np.dtype, count: int) -> int:
    bits = SMALL.get(dtype)
    return count * dtype.itemsize if bits is None else (count * bits + 7) // 8


def _from_bytes(content: bytes, dtype: np.dtype, count: int, named: str) -> np.ndarray:
    """Elements from bytes in little-endian order."""
    if len(content) != _bytes_of(dtype, count):
        raise OnnxError(
            f"{named}: its shape and type ask for {_bytes_of(dtype, count):,} bytes, but there are {len(content):,}"
        )
    if dtype in SMALL:
        return _unpacked(np.frombuffer(content, np.uint8), dtype, count)
    return np.frombuffer(content, dtype)


def _unpacked(content: np.ndarray, dtype: np.dtype, count: int) -> np.ndarray:
    """Elements of four bits, of which a byte has two, the first one in its low bits."""
    codes = np.stack([content & 15, content >> 4], -1).reshape(-1)[:count]
    if dtype == np.dtype(ml_dtypes.int4):
        return ((codes ^ 8).astype(np.int8) - 8).astype(dtype)
    return codes.astype(dtype)


def _listed(message: onnx.TensorProto, kind: int, dtype: np.dtype, dims: list[int], named: str) -> np.ndarray:
    """The elements of a tensor whose message lists them one by one."""
    field = _FIELDS.get(kind, "int32_data")
    with foreign_errors(named, OnnxError):
        listed = getattr(message, field)
        if dtype in SMALL:
            content = np.array(listed, np.int32).astype(np.uint8)
            if len(content) != _bytes_of(dtype, math.prod(dims)):
                raise OnnxError(f"{named}: its shape is {dims}, but {field} has {len(content)} entries")
            return _unpacked(content, dtype, math.prod(dims)).reshape(dims)
        if len(listed) != math.prod(dims):
            raise OnnxError(f"{named}: its shape is {dims}, but {field} has {len(listed)} entries")
        if kind in _BITS:
            return np.array(listed, np.int64).astype(_BITS[kind]).view(dtype).reshape(dims)
        return np.array(listed, dtype).reshape(dims)
