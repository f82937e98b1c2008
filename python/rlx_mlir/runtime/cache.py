# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The cache of compiled modules: one file per entry, renamed into place, with a checksum inside."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Mapping
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from rlx_mlir.errors import CacheError
from rlx_mlir.formats import registered_formats
from rlx_mlir.models.hub import cache_dir
from rlx_mlir.runtime import native
from rlx_mlir.runtime.artifact import Artifact

log = logging.getLogger(__name__)

#: Longer texts are in a key's description as their hashes.
_LONGEST_TEXT = 200


@cache
def compiler_build() -> str:
    """What identifies the compiler: a hash of its sources and native code, and MLIR's version."""
    digest = hashlib.sha256()
    root = Path(__file__).resolve().parent.parent
    for path in sorted([*root.rglob("*.py"), *root.glob("_compiler*.so")]):
        status = path.stat()
        digest.update(f"{path.relative_to(root)}:{status.st_size}:{status.st_mtime_ns};".encode())
    digest.update(metadata.version("xtc-mlir-python-bindings").encode())
    return digest.hexdigest()


def key_parts(material: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """What a key is made of, as JSON can write it: what is compiled, how, by which compiler, for which processor.

    Long texts (modules) are there as their hashes.
    """
    triple, cpu, features = native.host_target()
    return {
        "what": {name: _shortened(value) for name, value in material.items()},
        "options": dict(options),
        "compiler": {"build": compiler_build(), "mlir": metadata.version("xtc-mlir-python-bindings")},
        "host": {"triple": triple, "cpu": cpu, "features": features},
        "formats": [repr(format) for format in registered_formats()],  # the name alone doesn't say what weights are
    }


def _shortened(value: Any) -> Any:
    if not isinstance(value, str) or len(value) <= _LONGEST_TEXT:
        return value
    return {"sha256": hashlib.sha256(value.encode()).hexdigest(), "characters": len(value)}


def cache_key(material: Mapping[str, Any], options: Mapping[str, Any]) -> str:
    """The name of an entry."""
    return key_of(key_parts(material, options))


def key_of(parts: Mapping[str, Any]) -> str:
    """The name of the entry whose key is made of these `key_parts`."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def folder() -> Path:
    """Where entries are kept."""
    return cache_dir() / "compiled"


def find(key: str) -> Artifact | None:
    """The entry, or None; a damaged one counts as none, and is made again."""
    path = folder() / f"{key}.rlx"
    try:
        return Artifact.load(path)
    except FileNotFoundError:
        return None
    except (OSError, CacheError, KeyError, TypeError, ValueError) as error:
        log.warning("ignoring cache entry %s: %s", path, error)
        return None


def keep(artifact: Artifact) -> None:
    """Writes an entry under the key that the artefact says.

    Where that is impossible, says so in the log: the artefact is in memory all the same.
    """
    try:
        artifact.save(folder() / f"{key_of(artifact.key)}.rlx")
    except OSError as error:
        log.warning("can't write to the cache %s: %s", os.fspath(folder()), error)
