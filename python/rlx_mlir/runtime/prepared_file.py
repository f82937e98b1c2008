# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Prepared parameters in a file: written array by array, and mapped by every process that reads them.

A file is, little-endian: a header of `ALIGNMENT` bytes; the arrays, each from a multiple of `ALIGNMENT` on, as they are
in memory; the index, a JSON object with what the arrays are of, and where each one is. The header has sizes and a
digest of itself and the index, so that a file that is damaged, cut off or of another version is noticed. Arrays have no
digest, as to compute it at each start would take about as long as to prepare them anew: whoever can write the file is
trusted as whoever can write the cache's code.

A file gets its name before the system has written all of it to the disk: while the machine runs, everyone reads it
through the same memory. So the header says which start of the machine it was written in, until somebody has waited
for the disk (`settle`); after another start, a file that nobody has waited for is taken for one that is incomplete.
"""

from __future__ import annotations

import hashlib
import json
import math
import mmap
import os
import struct
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

from rlx_mlir import budgets
from rlx_mlir.boundary import foreign_errors
from rlx_mlir.dtypes import DTYPES, word_of
from rlx_mlir.errors import CacheError
from rlx_mlir.files import Json
from rlx_mlir.paths import open_regular

Array = np.ndarray

MAGIC = b"RLXPREP\x00"
VERSION = 1
ALIGNMENT = max(4096, mmap.ALLOCATIONGRANULARITY)
"""Where arrays begin: at pages, so that each can be mapped by itself."""

_HEADER = struct.Struct("<8sIQQ32s")
#: Behind the digest, which doesn't cover it: the start of the machine, or zeros once the file is on the disk.
_BOOT = struct.Struct("<36s")
_BOOT_AT = _HEADER.size
_SETTLED = bytes(_BOOT.size)


def boot_id() -> bytes:
    """What tells one start of this machine from all others; nothing where the system doesn't say."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_bytes().strip()[: _BOOT.size]
    except OSError:
        return b""


def _digest(index_at: int, index: bytes) -> bytes:
    return hashlib.sha256(struct.pack("<IQQ", VERSION, index_at, len(index)) + index).digest()


@dataclass(frozen=True)
class PreparedFile:
    """A file that is open.

    Attributes:
        path: where it was.
        size: its bytes.
        description: what the arrays are of, as the writer said it.
        arrays: views of the mapped file, which can't be written, by key; they keep it mapped.
        settled: whether somebody has waited for the disk.
    """

    path: Path
    size: int
    description: Mapping[str, Json]
    arrays: Mapping[str, Array]
    settled: bool


def read_prepared(path: Path, *, own: bool) -> PreparedFile:
    """Maps a file.

    Args:
        path: the file.
        own: of the cache: not a link, the user's or root's, and not for others to write.

    Raises CacheError where it is no such file, damaged, of another version, or perhaps incomplete; OSError where it
    can't be read.
    """
    with open_regular(path, own=own) as file, foreign_errors("it is damaged", CacheError):
        size = os.fstat(file.fileno()).st_size
        index_at, index, boot = _read_index(file, size)
        mapping = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ)
    with foreign_errors("its index is damaged", CacheError):
        arrays = {key: _view(mapping, index_at, *place) for key, place in index["arrays"].items()}
        return PreparedFile(path, size, dict(index["description"]), arrays, boot == _SETTLED)


def describe_prepared(path: Path) -> Mapping[str, Json]:
    """What the arrays of a file of the cache are of, without mapping it; raises what `read_prepared` does."""
    with open_regular(path, own=True) as file, foreign_errors("it is damaged", CacheError):
        _, index, _ = _read_index(file, os.fstat(file.fileno()).st_size)
        return dict(index["description"])


def _read_index(file: BinaryIO, size: int) -> tuple[int, dict[str, Json], bytes]:
    """Where the index begins, the index, and the start of the machine that the file is of."""
    start = file.read(_HEADER.size + _BOOT.size)
    if start[: len(MAGIC)] != MAGIC:
        raise CacheError(f"it has no prepared parameters: it starts with {start[: len(MAGIC)]!r} instead of {MAGIC!r}")
    if len(start) < _HEADER.size + _BOOT.size:
        raise CacheError(f"it ends within the header, after {len(start)} bytes")
    _, version, index_at, length, digest = _HEADER.unpack_from(start)
    (boot,) = _BOOT.unpack_from(start, _BOOT_AT)
    if version != VERSION:
        raise CacheError(f"it is of version {version}, but this package reads version {VERSION}")
    if size != index_at + length or index_at < ALIGNMENT:
        raise CacheError(f"it has {size} bytes, but its header says {index_at} and an index of {length}")
    budgets.check("json_bytes", length, "the index of prepared parameters")
    file.seek(index_at)
    index = file.read(length)
    if _digest(index_at, index) != digest:
        raise CacheError("its checksum doesn't hold: it is damaged")
    if boot not in (_SETTLED, boot_id()):
        raise CacheError("the machine has been started anew before the file was known to be on the disk")
    return index_at, json.loads(index), boot


def _view(mapping: mmap.mmap, limit: int, at: int, dtype: str, shape: list[int]) -> Array:
    kind = DTYPES[dtype]
    sizes = [int(size) for size in shape]
    count = math.prod(sizes)
    if at % ALIGNMENT or min(sizes, default=0) < 0 or not ALIGNMENT <= at <= limit - count * kind.itemsize:
        raise CacheError(f"an array of {dtype} {sizes} can't be at byte {at} of {limit}")
    return np.frombuffer(mapping, np.uint8, count * kind.itemsize, at).view(kind).reshape(sizes)


class PreparedWriter:
    """Writes a file; several threads may add arrays."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        """Begins one.

        Args:
            file: empty, open to be written and read.
            size: bytes that arrays are expected to have, which are reserved on the disk.

        Raises OSError where there aren't as many.
        """
        self._handle = file.fileno()
        self._turn = threading.Lock()
        self._end = ALIGNMENT
        self._places: dict[str, tuple[int, str, list[int]]] = {}
        if size and hasattr(os, "posix_fallocate"):
            os.posix_fallocate(self._handle, 0, ALIGNMENT + size)

    def add(self, key: str, array: Array) -> Array:
        """Writes a contiguous array, and gives a view of it in the mapped file; raises OSError."""
        if not array.nbytes:
            return array
        with self._turn:
            at, self._end = self._end, self._end + -(-array.nbytes // ALIGNMENT) * ALIGNMENT
        _write(self._handle, array.reshape(-1).view(np.uint8).data, at)
        mapping = mmap.mmap(self._handle, array.nbytes, access=mmap.ACCESS_READ, offset=at)
        word = str(word_of(array.dtype))
        with self._turn:
            self._places[key] = (at, word, list(array.shape))
        return np.frombuffer(mapping, np.uint8).view(array.dtype).reshape(array.shape)

    def finish(self, description: Mapping[str, object], *, durable: bool) -> int:
        """Writes index and header, and gives the bytes of the file; raises OSError.

        Args:
            description: what the arrays are of, as JSON can write it.
            durable: wait until the disk has it.
        """
        index = json.dumps({"description": dict(description), "arrays": self._places}, sort_keys=True).encode()
        _write(self._handle, memoryview(index), self._end)
        os.ftruncate(self._handle, self._end + len(index))
        boot = b"" if durable else boot_id()
        if not boot:
            os.fsync(self._handle)  # before the header, which says so
        header = _HEADER.pack(MAGIC, VERSION, self._end, len(index), _digest(self._end, index)) + _BOOT.pack(boot)
        _write(self._handle, memoryview(header), 0)
        return self._end + len(index)


def _write(handle: int, data: memoryview, at: int) -> None:
    done = 0
    while done < len(data):
        done += os.pwrite(handle, data[done:], at + done)


def settle(path: Path) -> None:
    """Waits until a file of the cache is on the disk, and notes that in it. Raises CacheError, OSError."""
    with open_regular(path, own=True, update=True) as file:
        start = file.read(_BOOT_AT + _BOOT.size)
        if start[: len(MAGIC)] == MAGIC and start[_BOOT_AT:] == _BOOT.pack(boot_id()):
            os.fsync(file.fileno())
            os.pwrite(file.fileno(), _SETTLED, _BOOT_AT)


__all__ = [
    "ALIGNMENT",
    "MAGIC",
    "VERSION",
    "PreparedFile",
    "PreparedWriter",
    "boot_id",
    "describe_prepared",
    "read_prepared",
    "settle",
]
