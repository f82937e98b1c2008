# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The cache of prepared parameters: a file for a source, the formulas and what computes them; the oldest ones go first.

Files hold data, not code, but whoever can write them decides what models compute: they are read with the same care as
compiled code, from folders and files that others can't write.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import shutil
import threading
import time
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import ml_dtypes
import numpy as np

from rlx_mlir.errors import CacheError, RlxError, reason_of
from rlx_mlir.files import Json
from rlx_mlir.formats import registered_formats
from rlx_mlir.paths import cache_dir, make_private, remove_left_over
from rlx_mlir.runtime.artifact import Artifact
from rlx_mlir.runtime.cache import check_folder, key_of
from rlx_mlir.runtime.identity import digest_files
from rlx_mlir.runtime.prepared_file import PreparedFile, describe_prepared, read_prepared, settle

log = logging.getLogger(__name__)

SUFFIX = ".prepared"
LIMIT = "RLX_PREPARED_BYTES"
"""The variable of the environment that says how many bytes all files together may have; 0 for no files."""

_MOST_BYTES = 32 << 30
#: Seconds after which the system has written a file to the disk by itself, or nearly.
_WRITTEN_SECONDS = 60
#: How much of a file is asked for at a time.
_AHEAD = 16 << 20


def folder() -> Path:
    """Where files are kept."""
    return cache_dir() / "prepared"


def most_bytes() -> int:
    """How many bytes all files together may have; CacheError where the environment says no number."""
    text = os.environ.get(LIMIT, "")
    if text and not (text.isascii() and text.isdigit()):
        raise CacheError(f"{LIMIT} must be a number of bytes, 0 or more, but is '{text}'")
    return int(text) if text else _MOST_BYTES


@cache
def _code() -> str:
    """A digest of what computes prepared parameters."""
    home = Path(__file__).resolve().parent.parent
    files = [home / "dtypes.py", home / "runtime" / "prepare.py", *sorted((home / "formats").glob("*.py"))]
    return f"{digest_files(iter(files), home)} numpy {np.__version__} {ml_dtypes.__version__}"


def _formats() -> str:
    """A digest of the block formats that were registered."""
    return hashlib.sha256(repr(registered_formats()).encode()).hexdigest()


def system_identity(status: os.stat_result) -> dict[str, int]:
    """What the system says of a file that is another once it was written: when that was can't be set by anyone."""
    return {"inode": status.st_ino, "modified": status.st_mtime_ns, "changed": status.st_ctime_ns}


def key_parts(source: Mapping[str, object], artifacts: list[Artifact]) -> dict[str, object]:
    """What a file is for: the source of the parameters, how they are prepared, and by which code.

    Args:
        source: what identifies it, as JSON can write it.
        artifacts: of the programs that share the parameters.
    """
    formulas = json.dumps([[own.preparation, own.parameters] for own in artifacts], default=vars, sort_keys=True)
    return {
        "source": dict(source),
        "preparation": hashlib.sha256(formulas.encode()).hexdigest(),
        "formats": _formats(),
        "code": _code(),
    }


def path_of(parts: Mapping[str, object]) -> Path:
    """The file of the cache for a key."""
    return folder() / f"{key_of(parts)}{SUFFIX}"


def find(path: Path, parts: Mapping[str, object], *, own: bool = True) -> PreparedFile | None:
    """The file for a key, mapped; None where there is none, or it can't be used, which is said in the log.

    Args:
        path: where it would be.
        parts: the key, which the file has to say.
        own: it is one of the cache, where it counts as used now.
    """
    try:
        if own:
            check_folder(path.parent)
        found = read_prepared(path, own=own)
        if found.description.get("key") != parts:
            raise CacheError("it is of another source, or was prepared in another way")
    except FileNotFoundError:
        return None
    except (OSError, RlxError) as error:
        log.warning("ignoring prepared weights %s: %s", path, reason_of(error, path))
        return None
    if own:
        with contextlib.suppress(OSError):  # another user's, such as root's
            os.utime(path)
        if not found.settled and time.time() - found.description.get("written", 0) > _WRITTEN_SECONDS:
            threading.Thread(target=_settle, args=(path,), daemon=True).start()
    return found


def _settle(path: Path) -> None:
    try:
        settle(path)
    except (OSError, CacheError) as error:
        log.debug("%s can't be noted to be on the disk: %s", path, reason_of(error))


def make_room(path: Path, size: int) -> None:
    """Makes the folder for a new file, and removes those that were used longest ago, until there is room for it.

    Raises CacheError where there can't be: the file is larger than the limit, or takes more than half of what is free
    on the disk; or where others can write the folder. Raises OSError.
    """
    check_folder(path.parent)
    make_private(path.parent)
    most = most_bytes()
    if size > most:
        raise CacheError(f"they have {size} bytes, but {LIMIT} allows {most}")
    remove_left_over(path.parent)
    known = sorted(files(), key=lambda own: own[1].st_mtime_ns)
    total = size + sum(status.st_size for _, status in known)
    for old, status in known:
        if total <= most and old != path:
            continue
        old.unlink(missing_ok=True)
        total -= status.st_size
    free = shutil.disk_usage(path.parent).free
    if size > free // 2:
        raise CacheError(f"they have {size} bytes, which is more than half of the {free} that are free on the disk")


def files() -> Iterator[tuple[Path, os.stat_result]]:
    """The files of the cache, and what the system says of them."""
    for path in folder().glob(f"*{SUFFIX}"):
        with contextlib.suppress(OSError):  # it may go meanwhile
            yield path, path.lstat()


def describe(path: Path) -> Mapping[str, Json]:
    """What a file of the cache holds; raises CacheError, OSError where it can't be used."""
    check_folder(path.parent)
    found = describe_prepared(path)
    if key_of(found.get("key", {})) != path.name.removesuffix(SUFFIX):
        raise CacheError("it was renamed: it is of another source, or was prepared in another way")
    return found


def obstacle(description: Mapping[str, Json]) -> str:
    """Why a file that holds this would not be used, whatever is loaded; nothing where it may."""
    key, model = description["key"], description["model"]
    if key["code"] != _code() or key["formats"] != _formats():
        return "another version of this package, or of numpy, prepared them, or other block formats were registered"
    try:
        status = os.stat(model)
    except OSError:
        return "the model's file isn't there any more"
    return "" if system_identity(status).items() <= key["source"].items() else "the model's file was changed"


def read_ahead(path: Path, size: int) -> None:
    """Asks the system for a file in the background, so that the disk reads it in order while other things begin."""
    if hasattr(os, "posix_fadvise") and size <= os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2:
        threading.Thread(target=_read_ahead, args=(path, size), daemon=True).start()


def _read_ahead(path: Path, size: int) -> None:
    with contextlib.suppress(OSError), path.open("rb") as file:
        for start in range(0, size, _AHEAD):  # each call is short: a process that ends needn't wait for it
            os.posix_fadvise(file.fileno(), start, _AHEAD, os.POSIX_FADV_WILLNEED)


__all__ = [
    "LIMIT",
    "SUFFIX",
    "describe",
    "files",
    "find",
    "folder",
    "key_parts",
    "make_room",
    "most_bytes",
    "obstacle",
    "path_of",
    "read_ahead",
    "system_identity",
]
