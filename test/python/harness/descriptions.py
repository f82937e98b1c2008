# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Changes of what files say of themselves, as JSON has it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any

from rlx_mlir.runtime import artifact as files

Change = Callable[[dict[str, Any]], None]


def set_at(*path: Any, to: Any) -> Change:
    """A change that puts a value at a place."""

    def change(description: dict[str, Any]) -> None:
        inner: Any = description
        for key in path[:-1]:
            inner = inner[key]
        inner[path[-1]] = to

    return change


def as_version_10(artifact: files.Artifact) -> bytes:
    """The file that version 10 of artefacts had: the same, without the field `work`."""
    data = artifact.to_bytes()
    start = files._HEADER.size
    _, _, length, code_length, _ = files._HEADER.unpack_from(data)
    description = json.loads(data[start : start + length])
    del description["work"]
    header, payload = json.dumps(description).encode(), data[start + length :]
    digest = hashlib.sha256(files._LENGTHS.pack(len(header), code_length) + header + payload).digest()
    return files._HEADER.pack(files.MAGIC, 10, len(header), code_length, digest) + header + payload
