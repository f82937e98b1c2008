# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writing safetensors files."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from rlx_mlir.boundary import foreign_errors
from rlx_mlir.errors import SafetensorsError
from rlx_mlir.paths import write_atomically


def write_safetensors(
    path: str | os.PathLike[str], tensors: Mapping[str, np.ndarray], metadata: Mapping[str, str] | None = None
) -> None:
    """Writes arrays to a file, which is the old one or the new one whatever happens meanwhile.

    The same arrays and texts give the same bytes.

    Args:
        path: the file.
        tensors: by name; bf16 as `ml_dtypes.bfloat16`.
        metadata: texts by key.

    Raises SafetensorsError where an element type isn't one of the format, OSError where the file can't be written.
    """
    arrays: dict[str, np.ndarray] = {name: np.asarray(array, order="C") for name, array in tensors.items()}
    with foreign_errors(os.fspath(path), lambda message: SafetensorsError(message, path=path)):
        from safetensors.numpy import save

        data = save(arrays, dict(metadata or {}))
    write_atomically(Path(path), _ordered(data), durable=True)


def _ordered(data: bytes) -> bytes:
    """A file with the texts of its header in the order of their keys: the library has another one each time."""
    end = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:end])
    if "__metadata__" in header:
        header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)  # what follows is aligned
    return b"".join([len(text).to_bytes(8, "little"), text, memoryview(data)[end:]])
