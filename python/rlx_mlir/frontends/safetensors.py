# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reader of safetensors files, over the `safetensors` library, which maps the file and checks its header.

Opening reads the header alone; a tensor's bytes are read when it is asked for.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import SafetensorsError, UnsupportedError

Array = np.ndarray[Any, Any]

FLOATS = {"F64": "f64", "F32": "f32", "F16": "f16", "BF16": "bf16"}
"""Words of the format for floating-point element types, and ours."""

_OTHERS = {"I64": "i64", "I32": "i32", "I16": "i16", "I8": "i8", "U8": "u8", "BOOL": "i1"}
_TYPES = FLOATS | _OTHERS


@dataclass(frozen=True)
class TensorInfo:
    """What the header says about a tensor.

    Attributes:
        name: its name.
        type: element type: f64, f32, f16, bf16, i64, i32, i16, i8, u8, i1, or the format's word for another one.
        shape: sizes, the last one contiguous.
    """

    name: str
    type: str
    shape: tuple[int, ...]

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
        import safetensors

        self.path = os.fspath(path)
        try:
            self._file = safetensors.safe_open(self.path, framework="numpy")
            self.metadata: dict[str, str] = dict(self._file.metadata() or {})
            names = list(self._file.keys())
            slices = {name: self._file.get_slice(name) for name in names}
        except (safetensors.SafetensorError, OSError) as error:
            raise SafetensorsError(str(error), path=self.path) from None
        self.tensors: Mapping[str, TensorInfo] = {
            name: TensorInfo(name, _TYPES.get(part.get_dtype(), part.get_dtype()), tuple(part.get_shape()))
            for name, part in slices.items()
        }

    def tensor(self, name: str) -> Array:
        """A tensor in the element type that it has in the file (bf16 as `ml_dtypes.bfloat16`).

        Raises SafetensorsError for an unknown name, UnsupportedError for an element type that numpy doesn't have.
        """
        import safetensors

        info = self._info(name)
        if info.type not in _TYPES.values():
            raise UnsupportedError(
                f"{self.path}: tensor '{name}' has element type {info.type}, readable are {', '.join(_TYPES)}"
            )
        try:
            array: Array = self._file.get_tensor(name)
        except (safetensors.SafetensorError, OSError, ValueError, TypeError) as error:
            raise SafetensorsError(f"tensor '{name}': {error}", path=self.path) from None
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

    def _info(self, name: str) -> TensorInfo:
        info = self.tensors.get(name)
        if info is None:
            known = ", ".join(list(self.tensors)[:8]) + (", …" if len(self.tensors) > 8 else "")
            raise SafetensorsError(f"there is no tensor '{name}'; the file has {known or 'none'}", path=self.path)
        return info


__all__ = ["FLOATS", "SafetensorsFile", "TensorInfo"]
