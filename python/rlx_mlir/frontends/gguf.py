# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""GGUF files, versions 2 and 3: a lazy, memory-mapped reader that trusts nothing, and a small writer.

Opening a file checks its structure (keys, counts, tensor shapes, sizes and places) and decodes no value; a metadata
value is decoded when it is asked for, a tensor is a view into the file. Whatever is wrong raises `GGUFError` with the
byte offset and the rule that is broken, before memory or time is spent on sizes that the file merely claims.

A model may be split: files `name-00001-of-00003.gguf` and so on each hold some of the tensors. Whoever opens one of
them opens all; `gguf_split` says what they must agree in.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import math
import mmap
import os
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from rlx_mlir.frontends.model_file import MetadataValue

from .. import budgets
from ..errors import GGUFError, InputError, reason_of
from ..files import open_regular
from ..formats import FORMATS_BY_ID, get_format
from ..paths import replacing
from .gguf_split import open_others
from .model_file import ModelFile, ModelMetadata, TensorInfo

MAGIC = b"GGUF"
DEFAULT_ALIGNMENT = 32
MAX_DIMS = 4
_MAX_KEY = 65535
_ENTRY_BYTES = 256
"""What a metadata entry takes at least, when it is kept; its own bytes are counted as they are read."""

#: What a fingerprint reads of each tensor.
_SAMPLE_BYTES = 4096

_STRING, _ARRAY, _BOOL = 8, 9, 7
_SCALARS: dict[int, np.dtype] = {
    0: np.dtype("u1"),
    1: np.dtype("i1"),
    2: np.dtype("<u2"),
    3: np.dtype("<i2"),
    4: np.dtype("<u4"),
    5: np.dtype("<i4"),
    6: np.dtype("<f4"),
    7: np.dtype("?"),
    10: np.dtype("<u8"),
    11: np.dtype("<i8"),
    12: np.dtype("<f8"),
}
_Data = npt.NDArray[np.uint8]
_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")


@dataclass(frozen=True)
class _Entry:
    """Where a metadata value is: ``type`` of the value or of the array's elements, at byte ``offset``."""

    type: int
    offset: int
    count: int | None  # elements of an array, None for a scalar or a string


def string_array_end(data: _Data, start: int, count: int, limit: int) -> tuple[int, int]:
    """Skips ``count`` strings (u64 length, then bytes) that begin at ``start``.

    Returns (end, skipped): the offset behind the last string skipped, and how many were; less than ``count``
    where the next one does not end at or before ``limit``. ``data`` is the file as uint8.

    Lengths form a chain that only a loop can follow, but nearly all are below 256: a byte followed by seven zeros.
    All such places are found at once, and the chain is then checked, not followed: place i + 1 must be where the
    string of place i ends. Where that fails (zeros in a string, a long string), one string is read by itself.
    """
    position, done = start, 0
    window = 1 << 20
    while done < count:
        stop = min(position + window, limit)
        places = _length_places(data[position:stop]) + position
        follow = places + 8 + data[places]
        breaks = np.flatnonzero(follow[:-1] != places[1:])
        at = 0
        progress = position
        while done < count and position + 8 <= stop:
            at += int(np.searchsorted(places[at:], position))
            if at < len(places) and int(places[at]) == position:
                first_break = int(np.searchsorted(breaks, at))
                last = int(breaks[first_break]) if first_break < len(breaks) else len(places) - 1
                last = min(last, at + count - done - 1)
                end, skipped = int(follow[last]), last - at + 1
                if end > limit:  # only the last of the chain can end behind the next, which was found
                    end, skipped = int(places[last]), skipped - 1
                    return end, done + skipped
                position, done, at = end, done + skipped, last + 1
            else:
                end = position + 8 + int.from_bytes(data[position : position + 8].tobytes(), "little")
                if end > limit:
                    return position, done
                position, done = end, done + 1
        if position == progress and position + 8 > limit:
            return position, done
        if len(breaks) > 64 and len(breaks) * 8 > len(places):
            return _string_array_loop(data, position, count, done, limit)
    return position, done


def _length_places(data: _Data) -> npt.NDArray[np.int64]:
    """Offsets of bytes that are followed by seven zero bytes."""
    zero = data[1:] == 0
    for distance in (1, 2, 3):  # runs of 2, of 4, of 7
        zero = zero[:-distance] & zero[distance:]
    return np.flatnonzero(zero)


def _string_array_loop(data: _Data, position: int, count: int, done: int, limit: int) -> tuple[int, int]:
    """The plain loop, for arrays in which the lengths do not stand out."""
    view = data.data
    unpack = _U64.unpack_from
    while done < count and position + 8 <= limit:
        end = position + 8 + unpack(view, position)[0]
        if end > limit:
            break
        position, done = end, done + 1
    return position, done


class _Cursor:
    """Reads header numbers and strings, and knows where the file ends."""

    def __init__(self, file: GGUFFile) -> None:
        self.file = file
        self.view = file._data.data
        self.position = 0
        self.size = len(self.view)

    def fail(self, message: str, offset: int | None = None) -> GGUFError:
        return GGUFError(message, path=self.file.path, offset=self.position if offset is None else offset)

    def need(self, size: int, what: str) -> None:
        if size > self.size - self.position:
            raise self.fail(f"truncated: {what} needs {size} bytes, but {self.size - self.position} are left")

    def u32(self, what: str) -> int:
        self.need(4, what)
        (value,) = _U32.unpack_from(self.view, self.position)
        self.position += 4
        return int(value)

    def u64(self, what: str) -> int:
        self.need(8, what)
        (value,) = _U64.unpack_from(self.view, self.position)
        self.position += 8
        return int(value)

    def name(self, what: str) -> str:
        """A key or a tensor name: non-empty UTF-8 of at most 65,535 bytes."""
        start = self.position
        length = self.u64(f"the length of {what}")
        if not 1 <= length <= _MAX_KEY:
            raise self.fail(f"{what} must have 1 to {_MAX_KEY} bytes, but has {length}", start)
        self.need(length, what)
        raw = bytes(self.view[self.position : self.position + length])
        try:
            text = raw.decode()
        except UnicodeDecodeError as error:
            raise self.fail(f"{what} is not UTF-8: {error.reason}", self.position + error.start) from None
        self.position += length
        return text


class Metadata(ModelMetadata):
    """The file's metadata; a value is decoded at its first use, and kept.

    Values are ``int``, ``float``, ``bool``, ``str``; arrays of numbers are read-only numpy arrays, arrays of strings
    are lists. Raises GGUFError from the lookup where the value itself is malformed.
    """

    def __init__(self, file: GGUFFile, entries: dict[str, _Entry]) -> None:
        self._file = file
        self._entries = entries
        self._values: dict[str, MetadataValue] = {}

    def __getitem__(self, key: str) -> MetadataValue:
        if key not in self._values:
            self._values[key] = self._file._value(key, self._entries[key])
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def __len__(self) -> int:
        return len(self._entries)

    def typed(self, key: str) -> MetadataValue:
        """A value as `write_gguf` writes it with its type: numbers are scalars of numpy."""
        entry, value = self._entries[key], self[key]
        return _SCALARS[entry.type].type(value) if entry.count is None and entry.type in _SCALARS else value

    def length(self, key: str) -> int | None:
        """Number of elements of an array, without decoding it; None for a value that is not an array."""
        return self._entries[key].count

    def __repr__(self) -> str:
        return f"Metadata({len(self)} keys)"


class GGUFFile(ModelFile):
    """One GGUF file, or the files that a model is split into, memory-mapped.

    ``metadata`` maps keys to values, ``tensors`` maps names to `TensorInfo`, in the order of the file. Arrays that
    `tensor` returns are read-only views that keep the file mapped for as long as they live, also after `close`.

    Of a split model the metadata is that of the first file, whose ``path`` this object has, and the tensors are those
    of all; a file in memory is read by itself.
    """

    version: int
    metadata: Metadata
    tensors: dict[str, TensorInfo]
    statuses: dict[str, os.stat_result]
    _map: mmap.mmap | None
    _others: list[GGUFFile]

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Opens and checks the file at ``path``, and the other ones of a split model.

        Raises GGUFError where one cannot be read, is malformed, missing, or doesn't belong to the others.
        """
        self._map_file(path)
        try:
            self._others = open_others(self, GGUFFile.single)
        except BaseException:
            self.close()
            raise
        if self._others:
            self._join()

    @classmethod
    def single(cls, path: str | os.PathLike[str]) -> GGUFFile:
        """Opens and checks the file at ``path`` alone, be it one of several or not."""
        self = cls.__new__(cls)
        self._map_file(path)
        return self

    def _map_file(self, path: str | os.PathLike[str]) -> None:
        self.path, self._others = os.fspath(path), []
        try:
            with open_regular(path, error=GGUFError) as file:
                if os.fstat(file.fileno()).st_size == 0:
                    raise GGUFError("the file is empty", path=path, offset=0)
                self.statuses = {self.path: os.fstat(file.fileno())}
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except GGUFError:
            raise
        except (OSError, ValueError) as error:  # the second of a path with a zero byte
            raise GGUFError(f"cannot be opened: {reason_of(error)}", path=path) from error
        self._open(np.frombuffer(self._map, np.uint8))

    @classmethod
    def from_bytes(cls, data: bytes | bytearray | memoryview) -> GGUFFile:
        """Reads a file that is in memory."""
        self = cls.__new__(cls)
        self.path = None
        self.statuses, self._others = {}, []
        self._map = None
        view: npt.NDArray[np.uint8] = np.frombuffer(data, np.uint8).view()
        view.flags.writeable = False
        self._open(view)
        return self

    def _open(self, data: npt.NDArray[np.uint8]) -> None:
        self._data = data
        try:
            self._parse()
        except BaseException:
            self.close()
            raise

    def _join(self) -> None:
        """Takes over what the other files of a split model have."""
        self.number = int(self.metadata["split.no"])
        files = sorted([self, *self._others], key=lambda file: int(file.metadata["split.no"]))
        tensors: dict[str, TensorInfo] = {}
        for number, file in enumerate(files):
            tensors |= {name: dataclasses.replace(info, part=number) for name, info in file.tensors.items()}
        self._paths = tuple(file.path for file in files)
        self.statuses = {path: status for file in files for path, status in file.statuses.items()}
        self.tensors = tensors
        self.metadata, self.version, self.path = files[0].metadata, files[0].version, files[0].path

    def __repr__(self) -> str:
        return f"GGUFFile({self.path!r}, {self.architecture}, {len(self.tensors)} tensors)"

    @property
    def _what(self) -> str:
        """The file, as errors name it."""
        return self.path or "the file"

    def close(self) -> None:
        """Lets go of the file. Arrays that are still in use stay valid; the mapping goes with the last of them."""
        for other in self._others:
            other.close()
        self._data = np.empty(0, np.uint8)
        mapping, self._map = self._map, None
        if mapping is not None:
            with contextlib.suppress(BufferError):  # where views of it are alive, the last one unmaps it
                mapping.close()

    def release(self) -> None:
        """Tells the system that pages read so far are not needed again; they come back from the file when touched."""
        for file in (self, *self._others):
            if file._map is not None and hasattr(mmap, "MADV_DONTNEED"):
                file._map.madvise(mmap.MADV_DONTNEED)

    @property
    def paths(self) -> tuple[str | None, ...]:
        """The paths of all files, in order: one, unless the model is split."""
        return self._paths if self._others else (self.path,)

    def _part(self, info: TensorInfo) -> GGUFFile:
        """The file that has the tensor."""
        if not self._others or info.part == self.number:
            return self
        return self._others[info.part - (info.part > self.number)]

    @property
    def mappings(self) -> tuple[mmap.mmap, ...]:
        """See `ModelFile`."""
        number = self.number if self._others else 0
        files = (*self._others[:number], self, *self._others[number:])
        return tuple(file._map for file in files if file._map is not None)

    def fingerprint(self) -> str:
        """A digest, in hexadecimal, of the file's size, of all in it but the data of tensors, and of a part of each.

        Models that were trained further have the same descriptions, and other weights everywhere: a part tells them
        apart in milliseconds. It doesn't tell files apart in which somebody changed single weights.
        """
        digest = hashlib.sha256()
        for file in (self, *self._others):
            own = [info for info in self.tensors.values() if self._part(info) is file]
            digest.update(f"{file._data.size}:".encode())
            digest.update(file._data[: min((info.offset for info in own), default=file._data.size)].data)
            for info in own:
                middle = info.offset + (info.nbytes or 0) // 2
                digest.update(file._data[middle : middle + _SAMPLE_BYTES].data)
        return digest.hexdigest()

    def _bytes(self, info: TensorInfo) -> _Data:
        """See `ModelFile`."""
        assert info.nbytes is not None
        data = self._part(info)._data
        if data.size == 0:
            raise InputError(f"tensor '{info.name}' is asked for, but the file is closed")
        return data[info.offset : info.offset + info.nbytes]

    def _parse(self) -> None:
        cursor = _Cursor(self)
        magic = bytes(cursor.view[:4])
        if magic != MAGIC[: len(magic)]:  # said before anything else is missed
            raise cursor.fail(f"not a GGUF file: the magic must be {MAGIC!r}, but is {magic!r}")
        cursor.need(24, "the header")
        cursor.position = 4
        self.version = cursor.u32("the version")
        if self.version not in (2, 3):
            swapped = int.from_bytes(self.version.to_bytes(4, "little"), "big")
            hint = f" (a big-endian file of version {swapped})" if swapped in (1, 2, 3) else ""
            hint = " (GGUF v1 has counts of 32 bits, and no tool writes it any more)" if self.version == 1 else hint
            raise cursor.fail(f"the version must be 2 or 3, but is {self.version}{hint}", 4)
        tensor_count = cursor.u64("the tensor count")
        entry_count = cursor.u64("the metadata count")
        # The smallest entry is a key of one byte and a value of one; the smallest tensor has a name of one byte.
        self._justified(cursor, entry_count, 8 + 1 + 4 + 1, "metadata entries", 16)
        self._justified(cursor, tensor_count, 8 + 1 + 4 + 4 + 8, "tensors", 8)
        budgets.check("tensors", tensor_count, self._what)
        budgets.check("metadata_bytes", entry_count * _ENTRY_BYTES, self._what)
        self.metadata = Metadata(self, self._parse_entries(cursor, entry_count))
        self.alignment = self._parse_alignment(cursor)
        self.tensors = self._parse_tensors(cursor, tensor_count)

    @staticmethod
    def _justified(cursor: _Cursor, count: int, least: int, what: str, offset: int) -> None:
        if count > (cursor.size - cursor.position) // least:
            raise cursor.fail(
                f"{count} {what} of at least {least} bytes each cannot be in the {cursor.size - cursor.position} "
                "bytes that follow",
                offset,
            )

    def _parse_entries(self, cursor: _Cursor, count: int) -> dict[str, _Entry]:
        entries: dict[str, _Entry] = {}
        for index in range(count):
            start = cursor.position
            key = cursor.name(f"the key of metadata entry {index}")
            if key in entries:
                raise cursor.fail(f"the key '{key}' appears twice", start)
            entries[key] = self._skip_value(cursor, key)
            budgets.check("metadata_bytes", cursor.position, self._what)
        return entries

    def _skip_value(self, cursor: _Cursor, key: str) -> _Entry:
        """Steps over a value after checking that it ends in the file."""
        type_offset = cursor.position
        kind = cursor.u32(f"the type of '{key}'")
        if kind in _SCALARS:
            entry = _Entry(kind, cursor.position, None)
            cursor.need(_SCALARS[kind].itemsize, f"the value of '{key}'")
            cursor.position += _SCALARS[kind].itemsize
            return entry
        if kind == _STRING:
            length_offset = cursor.position
            length = cursor.u64(f"the length of '{key}'")
            if length > cursor.size - cursor.position:
                raise cursor.fail(
                    f"the value of '{key}' has {length} bytes, but the file ends after {cursor.size - cursor.position}",
                    length_offset,
                )
            cursor.position += length
            return _Entry(kind, length_offset, None)
        if kind != _ARRAY:
            raise cursor.fail(f"the value type of '{key}' must be 0 to 12, but is {kind}", type_offset)
        kind_offset = cursor.position
        kind = cursor.u32(f"the element type of '{key}'")
        if kind == _ARRAY:
            raise cursor.fail(f"'{key}' is an array of arrays, which is not supported", kind_offset)
        if kind != _STRING and kind not in _SCALARS:
            raise cursor.fail(f"the element type of '{key}' must be 0 to 12 and not 9, but is {kind}", kind_offset)
        count_offset = cursor.position
        count = cursor.u64(f"the element count of '{key}'")
        entry = _Entry(kind, cursor.position, count)
        least = 8 if kind == _STRING else _SCALARS[kind].itemsize
        self._justified(cursor, count, least, f"elements of '{key}'", count_offset)
        if kind != _STRING:
            cursor.position += count * least
            return entry
        cursor.position, skipped = string_array_end(self._data, cursor.position, count, cursor.size)
        if skipped < count:
            raise cursor.fail(f"string {skipped} of '{key}' ends behind the file, which has {cursor.size} bytes")
        return entry

    def _parse_alignment(self, cursor: _Cursor) -> int:
        entry = self.metadata._entries.get("general.alignment")
        if entry is None:
            return DEFAULT_ALIGNMENT
        if entry.type != 4 or entry.count is not None:
            raise cursor.fail("'general.alignment' must be a u32", entry.offset)
        alignment = int(self.metadata["general.alignment"])
        if alignment == 0 or alignment & (alignment - 1):
            raise cursor.fail(f"'general.alignment' must be a power of two, but is {alignment}", entry.offset)
        return alignment

    def _parse_tensors(self, cursor: _Cursor, count: int) -> dict[str, TensorInfo]:
        headers: dict[str, tuple[int, tuple[int, ...], int, int]] = {}
        for index in range(count):
            start = cursor.position
            name = cursor.name(f"the name of tensor {index}")
            if name in headers:
                raise cursor.fail(f"the tensor '{name}' appears twice", start)
            rank_offset = cursor.position
            rank = cursor.u32(f"the rank of tensor '{name}'")
            if rank > MAX_DIMS:
                raise cursor.fail(
                    f"tensor '{name}' must have at most {MAX_DIMS} dimensions, but has {rank}", rank_offset
                )
            dims_offset = cursor.position
            dims = [cursor.u64(f"a dimension of tensor '{name}'") for _ in range(rank)]
            if 0 in dims:
                raise cursor.fail(f"dimensions of tensor '{name}' must be positive, but are {dims}", dims_offset)
            if math.prod(dims) >= 1 << 63:
                raise cursor.fail(f"tensor '{name}' must have less than 2^63 elements, but is {dims}", dims_offset)
            type_id = cursor.u32(f"the type of tensor '{name}'")
            offset = cursor.u64(f"the offset of tensor '{name}'")
            headers[name] = (start, tuple(reversed(dims)), type_id, offset)
        base = self._aligned(cursor.position)
        tensors = {name: self._place(cursor, name, base, *header) for name, header in headers.items()}
        self._check_places(cursor, base, sorted(tensors.values(), key=lambda info: info.offset))
        return tensors

    def _check_places(self, cursor: _Cursor, base: int, placed: list[TensorInfo]) -> None:
        """Tensors must follow each other, and fill the file but for padding: what has another size has another type.

        Behind a tensor of an unknown type, which has no known size, anything may begin.
        """
        expected: int | None = base
        before: TensorInfo | None = None
        for info in placed:
            if before is not None and before.nbytes is not None and info.offset < before.offset + before.nbytes:
                raise cursor.fail(
                    f"tensor '{info.name}' begins at byte {info.offset}, inside tensor '{before.name}', "
                    f"which ends at byte {before.offset + before.nbytes}",
                    info.header_offset,
                )
            if expected is not None and info.offset != expected:
                rule = "where the data begins" if before is None else f"where {self._ends(before)}"
                raise cursor.fail(
                    f"tensor '{info.name}' must begin at byte {expected}, {rule}, but begins at byte {info.offset}",
                    info.header_offset,
                )
            expected = None if info.nbytes is None else self._aligned(info.offset + info.nbytes)
            before = info
        if before is not None and expected is not None and cursor.size > expected:
            raise cursor.fail(
                f"the file must end at byte {expected}, where {self._ends(before)}, but has {cursor.size} bytes",
                before.header_offset,
            )

    @staticmethod
    def _ends(info: TensorInfo) -> str:
        return f"the {info.nbytes} bytes of tensor '{info.name}', {info.type} {list(info.shape)}, and padding end"

    def _aligned(self, position: int) -> int:
        return -(-position // self.alignment) * self.alignment

    def _place(
        self, cursor: _Cursor, name: str, base: int, start: int, shape: tuple[int, ...], type_id: int, offset: int
    ) -> TensorInfo:
        if offset % self.alignment:
            raise cursor.fail(
                f"the offset of tensor '{name}' must be a multiple of the alignment, {self.alignment}, but is {offset}",
                start,
            )
        position = base + offset
        if position > cursor.size:
            raise cursor.fail(f"tensor '{name}' begins at byte {position}, but the file has {cursor.size} bytes", start)
        fmt = FORMATS_BY_ID.get(type_id)
        if fmt is None:
            return TensorInfo(name, shape, f"unknown({type_id})", type_id, position, None, start)
        row = shape[-1] if shape else 1
        if row % fmt.block:
            raise cursor.fail(
                f"a row of tensor '{name}', type {fmt.name}, must be a multiple of {fmt.block} elements, but has {row}",
                start,
            )
        nbytes = math.prod(shape) // fmt.block * fmt.nbytes
        if position + nbytes > cursor.size:
            raise cursor.fail(
                f"tensor '{name}' ends at byte {position + nbytes}, but the file has {cursor.size} bytes", start
            )
        return TensorInfo(name, shape, fmt.name, type_id, position, nbytes, start)

    def _value(self, key: str, entry: _Entry) -> MetadataValue:
        if self._data.size == 0:
            raise InputError(f"metadata '{key}' is asked for, but the file is closed")
        if entry.type == _STRING:
            if entry.count is not None:
                return self._strings(key, entry)
            (length,) = _U64.unpack_from(self._data.data, entry.offset)
            return self._text(key, entry.offset + 8, length)
        dtype = _SCALARS[entry.type]
        count = 1 if entry.count is None else entry.count
        raw = self._data[entry.offset : entry.offset + count * dtype.itemsize]
        if entry.type == _BOOL and count and raw.max() > 1:
            at = int(raw.argmax())
            raise GGUFError(
                f"a bool of '{key}' must be 0 or 1, but is {raw[at]}", path=self.path, offset=entry.offset + at
            )
        if entry.count is None:
            return raw.view(dtype)[0].item()
        values = raw.copy().view(dtype)  # a copy is aligned, and does not keep the file mapped
        values.flags.writeable = False
        return values

    def _text(self, key: str, start: int, length: int) -> str:
        try:
            return self._data[start : start + length].tobytes().decode()
        except UnicodeDecodeError as error:
            raise GGUFError(
                f"the value of '{key}' is not UTF-8: {error.reason}", path=self.path, offset=start + error.start
            ) from None

    def _strings(self, key: str, entry: _Entry) -> list[str]:
        assert entry.count is not None
        end, _ = string_array_end(self._data, entry.offset, entry.count, self._data.size)
        raw = self._data[entry.offset : end].tobytes()
        unpack = _U64.unpack_from
        position = 0
        texts: list[str] = []
        try:
            for _ in range(entry.count):
                begin = position + 8
                position = begin + unpack(raw, position)[0]
                texts.append(raw[begin:position].decode())
        except UnicodeDecodeError as error:
            raise GGUFError(
                f"string {len(texts)} of '{key}' is not UTF-8: {error.reason}",
                path=self.path,
                offset=entry.offset + begin + error.start,
            ) from None
        return texts


#: What `write_gguf` takes as a tensor.
Tensor = np.ndarray | tuple[str, np.ndarray | Iterable[np.ndarray], Sequence[int]]


def write_gguf(
    path: str | os.PathLike[str],
    metadata: Mapping[str, MetadataValue],
    tensors: Mapping[str, Tensor],
    *,
    version: int = 3,
) -> Path:
    """Writes a GGUF file, which is the old one or the new one whatever happens meanwhile.

    Args:
        path: where to.
        metadata: ``bool``, ``str``, ``int`` (u32, or i32/i64/u64 where the value needs it), ``float`` (f32), numpy
            scalars and 1-D arrays of any GGUF type (as they are), lists of ``str``. ``general.alignment`` is honoured.
        tensors: arrays of f32, f16, bf16, f64 or integers; or (format name, uint8 rows, shape innermost last), where
            the rows may come in pieces, each asked for when the one before is written.
        version: 2 or 3, which are laid out alike.

    Returns the path. Raises InputError for values that have no GGUF type and rows that do not fit their format, OSError
    where it can't be written; then nothing is left of it.
    """
    alignment = int(metadata.get("general.alignment", DEFAULT_ALIGNMENT))
    header = encode_metadata(metadata, tensors=len(tensors), version=version)
    places: list[tuple[str, int, Iterable[np.ndarray]]] = []
    offset = 0
    for name, tensor in tensors.items():
        format_name, data, shape = tensor if isinstance(tensor, tuple) else _dense_tensor(name, tensor)
        fmt = get_format(format_name)
        expected = math.prod(shape[:-1]) * fmt.row_bytes(shape[-1] if len(shape) else 1)
        what = f"tensor '{name}', {fmt.name} {list(shape)}"
        if isinstance(data, np.ndarray):
            _check_size(what, expected, data.nbytes)
            data = (data,)
        header += _string(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *reversed(shape), fmt.type_id, offset)
        places.append((what, expected, data))
        offset += expected + -expected % alignment
    header += bytes(-len(header) % alignment)
    target = Path(path)
    with replacing(target) as file:
        file.write(header)
        for what, expected, pieces in places:
            given = 0
            for piece in pieces:
                given += file.write(np.ascontiguousarray(piece).reshape(-1).view(np.uint8).data)
            _check_size(what, expected, given)
            file.write(bytes(-expected % alignment))
    return target


def encode_metadata(metadata: Mapping[str, MetadataValue], *, tensors: int = 0, version: int = 3) -> bytearray:
    """The start of a GGUF file, up to its metadata's end, as `write_gguf` writes it; without tensors, a whole file."""
    header = bytearray(MAGIC + struct.pack("<IQQ", version, tensors, len(metadata)))
    for key, value in metadata.items():
        header += _string(key) + _encode_value(key, value)
    return header


def _check_size(what: str, expected: int, given: int) -> None:
    if given != expected:
        raise InputError(f"{what}, has {expected} bytes, but {given} are given")


def _string(text: str) -> bytes:
    raw = text.encode()
    return _U64.pack(len(raw)) + raw


def _dense_tensor(name: str, data: np.ndarray) -> tuple[str, np.ndarray, Sequence[int]]:
    for fmt in FORMATS_BY_ID.values():
        if fmt.dense is not None and fmt.dense == data.dtype:  # numpy takes None for f64
            return fmt.name, data, data.shape
    raise InputError(f"tensor '{name}' has the element type {data.dtype}, for which GGUF has no type")


def _encode_value(key: str, value: MetadataValue) -> bytes:
    if isinstance(value, str):
        return _U32.pack(_STRING) + _string(value)
    if isinstance(value, list):
        return struct.pack("<IIQ", _ARRAY, _STRING, len(value)) + b"".join(_string(text) for text in value)
    if isinstance(value, bool):
        value = np.bool_(value)
    elif isinstance(value, int):
        kinds = (np.uint32, np.int32, np.uint64, np.int64)
        fits = [kind for kind in kinds if np.iinfo(kind).min <= value <= np.iinfo(kind).max]
        if not fits:
            raise InputError(f"metadata '{key}' is {value}, which does not fit 64 bits")
        value = fits[0](value)
    elif isinstance(value, float) and not isinstance(value, np.generic):  # numpy's f64 is a float, too
        value = np.float32(value)
    if isinstance(value, (np.generic, np.ndarray)) and value.ndim <= 1:
        for kind, dtype in _SCALARS.items():
            if dtype == value.dtype:
                prefix = _U32.pack(kind) if value.ndim == 0 else struct.pack("<IIQ", _ARRAY, kind, value.size)
                return prefix + value.astype(dtype).tobytes()
    raise InputError(f"metadata '{key}' has a value of {type(value).__name__}, for which GGUF has no type")


__all__ = ["DEFAULT_ALIGNMENT", "GGUFFile", "Metadata", "Tensor", "TensorInfo", "encode_metadata", "write_gguf"]
