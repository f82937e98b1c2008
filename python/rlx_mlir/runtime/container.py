# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Containers: files of named sections, some of which are artefacts, and some of which are mapped, as weights are.

A file is, little-endian: a header, which says where the table is; sections, each from a multiple of `ALIGNMENT` on; the
table, with an entry for each section: its name, place, kind and digest. The header's digest is of itself and the table.
docs/artifacts.md has every field.

Opening reads the header and the table, and checks all of them. A section that is read is checked against its digest, in
the copy that the caller gets; one that is mapped is not, as that would read all of it: `check` does. Digests find
damage. They don't say who wrote the file, and whoever wrote it decides what its code does.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import struct
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO, TypeAlias

import numpy as np
import numpy.typing as npt

from rlx_mlir import budgets, checks
from rlx_mlir.errors import CacheError, InputError, did_you_mean, shortened
from rlx_mlir.paths import open_regular, replacing
from rlx_mlir.runtime.artifact import Artifact

__all__ = [
    "ALIGNMENT",
    "MAGIC",
    "VERSION",
    "Container",
    "ContainerWriter",
    "Kind",
    "Section",
    "SectionWriter",
    "is_container",
    "write_container",
]

MAGIC = b"RLXBNDL\x00"
VERSION = 1
ALIGNMENT = 4096
"""Where sections begin."""

#: Magic, version, sections, offset of the table, bytes of the file, reserved; a digest of these and the table follows.
_HEADER = struct.Struct("<8sIIQQ16s")
_DIGEST_BYTES = 32
_HEADER_BYTES = _HEADER.size + _DIGEST_BYTES
#: Name, offset, size, digest, kind, flags, reserved.
_ENTRY = struct.Struct("<64sQQ32sII8s")
_NAME_BYTES = 63  # a NUL follows
_CHUNK = 1 << 22

#: What a section is made of: an object with a contiguous buffer, such as bytes or an array.
Contents: TypeAlias = Any


class Kind(IntEnum):
    """What a section is."""

    DATA = 0
    #: An artefact, as `Artifact.to_bytes` writes it.
    CODE = 1


@dataclass(frozen=True)
class Section:
    """A section of a container.

    Attributes:
        name: by which it is found; 1 to 63 bytes of UTF-8.
        offset, size: where it is in the file, in bytes.
        digest: SHA-256 of its bytes.
        kind: what it is.
    """

    name: str
    offset: int
    size: int
    digest: bytes
    kind: Kind


def is_container(start: bytes) -> bool:
    """Whether a file that starts with these bytes says that it is a container."""
    return start[: len(MAGIC)] == MAGIC


# Reading ------------------------------------------------------------------------------------------


class Container:
    """A container that is open for reading. May be used from several threads until it is closed.

    Attributes:
        path: the file.
        size: its bytes.
        sections: by name, in the order of the table.
    """

    path: Path
    size: int
    sections: Mapping[str, Section]

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Opens a file, and checks its header and table.

        Raises CacheError where it is no container, cut off, damaged or of another version, BudgetError where its table
        is larger than the budgets allow, OSError where it can't be read.
        """
        self.path = checks.path("path", path)
        with self._named(), open_regular(self.path) as file:
            self.size = os.fstat(file.fileno()).st_size
            self.sections = MappingProxyType(_read_table(file, self.size, self.path))
            self._handle = os.dup(file.fileno())
        self._close = weakref.finalize(self, os.close, self._handle)
        self._mapping: mmap.mmap | None = None

    def __enter__(self) -> Container:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Container({str(self.path)!r}, {len(self.sections)} sections, {self.size} bytes)"

    def close(self) -> None:
        """Closes the file. What was mapped stays so as long as its arrays live."""
        self._close()
        self._mapping = None

    def section(self, name: str) -> Section:
        """The section of a name; CacheError where there is none."""
        found = self.sections.get(name)
        if found is None:
            raise CacheError(
                f"{self.path}: there is no section {shortened(name)}{did_you_mean(name, self.sections)}; the file has "
                f"{_listed(self.sections)}"
            )
        return found

    def read(self, name: str) -> bytes:
        """A section's bytes, which have its digest.

        Raises CacheError where there is no such section, or it is damaged, OSError where it can't be read.
        """
        section = self.section(name)
        with self._named():
            content = b"".join(self._chunks(section))
            _compare(section, hashlib.sha256(content).digest())
        return content

    def artifact(self, name: str) -> Artifact:
        """The artefact of a section of code. It is code: whoever wrote it decides what it does when it is run.

        Raises CacheError where there is no such section, it isn't one of code, or it is damaged, OSError where it can't
        be read.
        """
        section = self.section(name)
        if section.kind is not Kind.CODE:
            raise CacheError(
                f"{self.path}: section {shortened(name)} is of kind {int(section.kind)}, but code is of kind "
                f"{int(Kind.CODE)}"
            )
        content = self.read(name)
        with self._named(f"section {shortened(name)}: "):
            return Artifact.from_bytes(content)

    def map(self, name: str) -> npt.NDArray[np.uint8]:
        """A section as a read-only array of bytes of the mapped file, which processes share; `check` has its digest.

        The file must not be changed as long as the array lives. One that is cut off meanwhile ends the process that
        reads the array, as for every mapped file.

        Raises CacheError where there is no such section, OSError where the file can't be mapped.
        """
        section = self.section(name)
        if not section.size:
            return np.frombuffer(b"", np.uint8)
        mapping = self._mapping
        if mapping is None:
            mapping = self._mapping = mmap.mmap(self._open_handle(), self.size, access=mmap.ACCESS_READ)
        return np.frombuffer(mapping, np.uint8, section.size, section.offset)

    def check(self, name: str) -> None:
        """Reads all of a section, and raises CacheError where it doesn't have its digest; OSError as `read`."""
        section = self.section(name)
        digest = hashlib.sha256()
        with self._named():
            for chunk in self._chunks(section):
                digest.update(chunk)
            _compare(section, digest.digest())

    def _open_handle(self) -> int:
        if not self._close.alive:
            raise InputError(f"{self.path}: the container is closed")
        return self._handle

    def _chunks(self, section: Section) -> Iterator[bytes]:
        """A section's bytes, part by part, read rather than mapped: a file that is cut off meanwhile is an error."""
        handle, done = self._open_handle(), 0
        while done < section.size:
            chunk = os.pread(handle, min(_CHUNK, section.size - done), section.offset + done)
            if not chunk:
                raise CacheError(
                    f"section {shortened(section.name)} has {section.size} bytes, but the file ends after {done} of "
                    "them: it is cut off"
                )
            done += len(chunk)
            yield chunk

    @contextmanager
    def _named(self, what: str = "") -> Iterator[None]:
        """Has errors begin with the file's name."""
        try:
            yield
        except CacheError as error:
            raise CacheError(f"{self.path}: {what}{error}") from None


def _read_table(file: BinaryIO, size: int, path: Path) -> dict[str, Section]:
    start = file.read(_HEADER_BYTES)
    if not is_container(start):
        raise CacheError(f"not a container: it starts with {start[: len(MAGIC)]!r} instead of {MAGIC!r}")
    if len(start) < _HEADER_BYTES:
        raise CacheError(
            f"a container has at least {_HEADER_BYTES} bytes, but this one has {len(start)}: it is cut off"
        )
    _, version, count, table_at, said, reserved = _HEADER.unpack_from(start)
    if version != VERSION:
        raise CacheError(f"not a container of version {VERSION}, but of {version}: make it again")
    if said != size:
        reason = "it is cut off" if size < said else "something was appended"
        raise CacheError(f"the file has {size} bytes, but its header says {said}: {reason}")
    table_bytes = count * _ENTRY.size
    if not _HEADER_BYTES <= table_at <= size - table_bytes:
        raise CacheError(
            f"the table of {count} sections has {table_bytes} bytes and lies between the header's {_HEADER_BYTES} and "
            f"the file's {size}, but it is said to be at byte {table_at}"
        )
    budgets.check("json_bytes", table_bytes, f"the table of {path}")
    file.seek(table_at)
    table = file.read(table_bytes)
    digest = hashlib.sha256(start[: _HEADER.size] + table).digest()
    if digest != start[_HEADER.size :]:
        raise CacheError(
            f"header and table have the digest {digest.hex()[:16]}…, but the header says "
            f"{start[_HEADER.size :].hex()[:16]}…: the file is damaged"
        )
    if any(reserved):
        raise CacheError(f"the header's reserved bytes are zero in version {VERSION}, but they are {reserved.hex()}")
    sections: dict[str, Section] = {}
    for number, entry in enumerate(_ENTRY.iter_unpack(table)):
        section = _section(number, entry, size)
        if section.name in sections:
            raise CacheError(f"entry {number} of the table: there is a section {shortened(section.name)} already")
        sections[section.name] = section
    _check_apart(sections, table_at, table_bytes)
    return sections


def _section(number: int, entry: tuple[bytes, int, int, bytes, int, int, bytes], size: int) -> Section:
    """An entry of the table, checked by itself."""
    raw, offset, length, digest, kind, flags, reserved = entry
    where = f"entry {number} of the table"
    encoded, end, rest = raw.partition(b"\0")
    try:
        name = encoded.decode("utf-8")
    except UnicodeDecodeError as error:
        raise CacheError(f"{where}: its name must be UTF-8, but is {shortened(encoded)}: {error.reason}") from None
    if not name or not end or any(rest):
        raise CacheError(f"{where}: its name has 1 to {_NAME_BYTES} bytes and zeros up to 64, but is {shortened(raw)}")
    where = f"section {shortened(name)}"
    if kind not in tuple(Kind):
        raise CacheError(f"{where}: its kind is one of {', '.join(str(int(own)) for own in Kind)}, but is {kind}")
    if flags or any(reserved):
        raise CacheError(f"{where}: flags and reserved bytes are zero, but are {flags:#x} and {reserved.hex()}")
    if offset % ALIGNMENT:
        raise CacheError(f"{where}: it begins at a multiple of {ALIGNMENT}, but is said to be at byte {offset}")
    if offset > size or length > size - offset:
        raise CacheError(f"{where}: its {length} bytes at byte {offset} lie beyond the file's end at byte {size}")
    return Section(name, offset, length, digest, Kind(kind))


def _check_apart(sections: Mapping[str, Section], table_at: int, table_bytes: int) -> None:
    """CacheError where sections, header and table share bytes."""
    spans = [(own.offset, own.offset + own.size, f"section {shortened(own.name)}") for own in sections.values()]
    spans = [(0, _HEADER_BYTES, "the header"), *spans, (table_at, table_at + table_bytes, "the table")]
    spans = sorted(span for span in spans if span[1] > span[0])
    for (first, reach, one), (begin, end, other) in pairwise(spans):
        if begin < reach:
            raise CacheError(f"{one} [{first}, {reach}) and {other} [{begin}, {end}) overlap, but sections lie apart")


def _compare(section: Section, digest: bytes) -> None:
    if digest != section.digest:
        raise CacheError(
            f"section {shortened(section.name)} has the digest {digest.hex()[:16]}…, but the table says "
            f"{section.digest.hex()[:16]}…: the file is damaged"
        )


def _listed(names: Mapping[str, Section]) -> str:
    known = [shortened(name) for name in names]
    return ", ".join(known[:8]) + (f" and {len(known) - 8} others" if len(known) > 8 else "") or "none"


# Writing ------------------------------------------------------------------------------------------


class SectionWriter:
    """Takes the bytes of a section, part by part.

    Attributes:
        size: bytes so far: where the next ones begin in the section.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._digest = hashlib.sha256()
        self.size = 0

    @property
    def digest(self) -> bytes:
        """SHA-256 of the bytes so far."""
        return self._digest.digest()

    def write(self, data: Contents) -> None:
        """Adds the bytes of a contiguous buffer, such as bytes or an array of uint8; OSError where that fails."""
        try:
            view = memoryview(data)
            content = view.cast("B") if view.nbytes else b""
        except (TypeError, ValueError) as error:
            raise InputError(f"a section takes contiguous bytes, but got {checks.shown(data)}: {error}") from None
        self._file.write(content)
        self._digest.update(content)
        self.size += len(content)

    def align(self, alignment: int) -> int:
        """Adds zeros up to a multiple of `alignment`, a power of two up to `ALIGNMENT`; gives the size then."""
        if alignment not in (1 << power for power in range(ALIGNMENT.bit_length())):
            raise InputError(f"'alignment' is a power of two up to {ALIGNMENT}, but got {checks.shown(alignment)}")
        self.write(bytes(-self.size % alignment))
        return self.size


class ContainerWriter:
    """Writes sections one after the other; `write_container` makes one. Not for several threads at a time."""

    def __init__(self, file: BinaryIO) -> None:
        """Begins a container in a file that is empty and open for writing."""
        self._file = file
        self._sections: dict[str, Section] = {}
        self._open = ""
        file.write(bytes(_HEADER_BYTES))

    @contextmanager
    def section(self, name: str, kind: Kind = Kind.DATA) -> Iterator[SectionWriter]:
        """A new section, which is complete when the block ends.

        Raises InputError where the name is taken or none that a section can have, or another section isn't complete;
        OSError where it can't be written.
        """
        if self._open:
            raise InputError(f"section '{self._open}' isn't complete: sections are written one after the other")
        _encode_name(name)
        if name in self._sections:
            raise InputError(f"there is a section {shortened(name)} already")
        if kind not in tuple(Kind):
            raise InputError(f"'kind' is one of {', '.join(map(str, Kind))}, but got {checks.shown(kind)}")
        offset = self._pad(ALIGNMENT)
        self._open = name
        try:
            writer = SectionWriter(self._file)
            yield writer
        finally:
            self._open = ""
        self._sections[name] = Section(name, offset, writer.size, writer.digest, Kind(kind))

    def add(self, name: str, data: Contents, kind: Kind = Kind.DATA) -> None:
        """A section of these bytes; raises what `section` does."""
        with self.section(name, kind) as section:
            section.write(data)

    def add_artifact(self, name: str, artifact: Artifact) -> None:
        """A section of code; raises what `section` does."""
        self.add(name, artifact.to_bytes(), Kind.CODE)

    def finish(self) -> int:
        """Writes the table and the header, and gives the bytes of the file; OSError where that fails."""
        if self._open:
            raise InputError(f"section '{self._open}' isn't complete")
        table_at = self._pad(8)
        table = b"".join(
            _ENTRY.pack(_encode_name(own.name), own.offset, own.size, own.digest, own.kind, 0, bytes(8))
            for own in self._sections.values()
        )
        size = table_at + len(table)
        header = _HEADER.pack(MAGIC, VERSION, len(self._sections), table_at, size, bytes(16))
        self._file.write(table)
        self._file.seek(0)
        self._file.write(header + hashlib.sha256(header + table).digest())
        return size

    def _pad(self, alignment: int) -> int:
        """Adds zeros up to a multiple of a number; gives where that is."""
        at = self._file.tell()
        self._file.write(bytes(-at % alignment))
        return at + -at % alignment


@contextmanager
def write_container(path: str | os.PathLike[str], *, durable: bool = False) -> Iterator[ContainerWriter]:
    """Writes a file, which appears whole when the block ends, or not at all where it raises.

    Args:
        path: the file; one of that name is replaced.
        durable: have it on the disk before it gets its name.

    Raises OSError where it can't be written.
    """
    with replacing(checks.path("path", path), durable=durable) as file:
        writer = ContainerWriter(file)
        yield writer
        writer.finish()


def _encode_name(name: str) -> bytes:
    try:
        encoded = name.encode("utf-8") if isinstance(name, str) else b""
    except UnicodeEncodeError:
        encoded = b""
    if not 1 <= len(encoded) <= _NAME_BYTES or b"\0" in encoded:
        raise InputError(
            f"the name of a section is text of 1 to {_NAME_BYTES} bytes in UTF-8 without NUL, but got "
            f"{checks.shown(name)}"
        )
    return encoded
