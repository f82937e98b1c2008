# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The cache of compiled modules: one file per entry, renamed into place, with a checksum inside.

Entries are code. One is used only where it holds the key that it is asked for by, and where the folder and the file
can't be another user's doing.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from rlx_mlir import native
from rlx_mlir.errors import CacheError, RlxError, reason_of
from rlx_mlir.formats import registered_formats
from rlx_mlir.paths import cache_dir, check_private, make_private, write_atomically
from rlx_mlir.runtime.artifact import Artifact
from rlx_mlir.runtime.identity import compiler_parts

log = logging.getLogger(__name__)

#: Longer texts are in a key's description as their hashes.
_LONGEST_TEXT = 200


@cache
def compiler_build() -> str:
    """What identifies the compiler: a hash of the content of all that makes code, see `identity.compiler_parts`."""
    return hashlib.sha256(json.dumps(dict(compiler_parts()), sort_keys=True).encode()).hexdigest()


def key_parts(material: Mapping[str, object], options: Mapping[str, object]) -> dict[str, object]:
    """What a key is made of, as JSON can write it: what is compiled, how, by which compiler, for which processor.

    Long texts (modules) are there as their hashes.
    """
    architecture, cpu, model, features = native.host_processor()
    return {
        "what": {name: _shortened(value) for name, value in material.items()},
        "options": dict(options),
        "compiler": {"build": compiler_build(), "parts": dict(compiler_parts()), "mlir": _mlir_version()},
        "host": {"architecture": architecture, "cpu": cpu, "model": model, "features": features},
        "formats": [repr(format) for format in registered_formats()],  # the name alone doesn't say what weights are
    }


@cache
def _mlir_version() -> str:
    from importlib import metadata  # whose import takes as long as a small model's start

    return metadata.version("xtc-mlir-python-bindings")


def _shortened(value: object) -> object:
    if not isinstance(value, str) or len(value) <= _LONGEST_TEXT:
        return value
    return {"sha256": hashlib.sha256(value.encode()).hexdigest(), "characters": len(value)}


def cache_key(material: Mapping[str, object], options: Mapping[str, object]) -> str:
    """The name of an entry."""
    return key_of(key_parts(material, options))


def key_of(parts: Mapping[str, object]) -> str:
    """The name of the entry whose key is made of these `key_parts`."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def folder() -> Path:
    """Where entries are kept."""
    return cache_dir() / "compiled"


def check_folder(path: Path) -> None:
    """CacheError where others than the user and root can put files into a folder of the cache, or into the cache."""
    check_private(cache_dir())
    check_private(path)


def read(path: Path) -> Artifact:
    """The entry in a file.

    Raises CacheError where it can't be used: it is damaged, of another version, renamed, or could be another user's;
    OSError where it can't be read.
    """
    artifact = Artifact.load(path, own=True)
    if (held := key_of(artifact.key)) != path.stem:
        raise CacheError(f"{path}: it is named as another entry's file: what it holds has the key {held}")
    return artifact


def find(key: str) -> Artifact | None:
    """The entry, or None; one that can't be used counts as none, is said in the log, and is made again."""
    path = folder() / f"{key}.rlx"
    try:
        check_folder(path.parent)
        return read(path)
    except FileNotFoundError:
        return None
    except (OSError, RlxError) as error:
        log.warning("ignoring cache entry %s: %s", path, reason_of(error, path))
        return None


def keep(artifact: Artifact) -> None:
    """Writes an entry under the key that the artefact says.

    Where that is impossible, says so in the log: the artefact is in memory all the same.
    """
    try:
        check_folder(folder())
        make_private(folder())
        write_atomically(folder() / f"{key_of(artifact.key)}.rlx", artifact.to_bytes(), private=True)
    except (OSError, CacheError) as error:
        log.warning("can't write to the cache %s: %s", os.fspath(folder()), reason_of(error))
