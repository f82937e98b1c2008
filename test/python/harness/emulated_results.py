# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Results of emulated kernels, kept in pytest's cache: a kernel whose PTX is what it was isn't emulated again.

A result is found by the digest of all that it follows from: PTX, launches, arrays, the emulator's own sources, the
versions of what computes for it. Runs that end in an error aren't kept. RLX_TEST_EMULATE=1 has all kernels emulated,
and so does `-p no:cacheprovider`.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import sys
import time
import zipfile
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import astuple
from pathlib import Path
from tempfile import NamedTemporaryFile

import ml_dtypes
import numpy as np

import ptx_emulator
from ptx_emulator import Access, Stats, machine
from rlx_mlir import chips

#: Where results are kept; nowhere by default.
folder: Path | None = None
#: Bytes of results that are kept from one run to the next, the last that were used.
ROOM = 256 << 20


def begin(cache: Path) -> None:
    """Keeps results in a folder from now on, where the environment doesn't say otherwise."""
    global folder
    folder = cache if os.environ.get("RLX_TEST_EMULATE", "") in ("", "0") else None


@functools.cache
def _sources() -> str:
    """The digest of what emulates: sources, and what they import."""
    digest = hashlib.sha256()
    versions = (sys.version, np.__version__, ml_dtypes.__version__)
    digest.update(repr(versions).encode())
    for path in sorted([*Path(ptx_emulator.__file__).parent.glob("*.py"), Path(chips.__file__)]):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def key(parts: Iterable[object], arrays: Sequence[np.ndarray]) -> str:
    """The name of a result: of what is written as text, and of arrays, shape, type and bytes."""
    digest = hashlib.sha256(repr((_sources(), machine.MULTIPROCESSORS, *parts)).encode())
    for array in arrays:
        digest.update(f"\n{array.dtype.str} {array.dtype.name} {array.shape}\n".encode())
        digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def find(name: str) -> tuple[Stats, list[np.ndarray]] | None:
    """What was kept under a name: counts, and the arrays as bytes."""
    if folder is None:
        return None
    path = folder / f"{name}.npz"
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as kept:
            told = json.loads(str(kept["stats"]))
            arrays = [kept[f"array{i}"] for i in range(told["arrays"])]
        now = time.time_ns()  # the file system's own clock stands still for milliseconds
        os.utime(path, ns=(now, now))
    except (OSError, ValueError, KeyError, zipfile.BadZipFile):  # none, or half of one
        return None
    accesses = [Access(*values) for values in told["accesses"]]
    return Stats(Counter(told["instructions"]), {(a.line, a.space, a.store): a for a in accesses}), arrays


def keep(name: str, stats: Stats, arrays: Sequence[np.ndarray]) -> None:
    """Keeps counts and arrays, which are bytes."""
    if folder is None:
        return
    accesses = [astuple(access) for access in stats.accesses.values()]
    told = {"arrays": len(arrays), "instructions": stats.instructions, "accesses": accesses}
    folder.mkdir(parents=True, exist_ok=True)
    with NamedTemporaryFile(dir=folder, suffix=".part", delete=False) as file:  # other workers read along
        np.savez(file, stats=np.array(json.dumps(told)), **{f"array{i}": array for i, array in enumerate(arrays)})
    os.replace(file.name, folder / f"{name}.npz")


def tidy(room: int = ROOM) -> None:
    """Deletes what was used least recently, until the rest takes no more than the room."""
    if folder is None or not folder.is_dir():
        return
    found = sorted(((path.stat(), path) for path in folder.iterdir()), key=lambda own: own[0].st_mtime_ns, reverse=True)
    for stat, path in found:
        room -= stat.st_size
        if room < 0:
            path.unlink(missing_ok=True)
