# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The hardening of the extensions, read back from the files that were built.

CMake has flags for it, which a compiler, a linker or another way to build may leave out without an error.
"""

from __future__ import annotations

import importlib.util
import os
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from c_runtime import library_path

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="the files are of ELF on Linux alone"),
    pytest.mark.skipif(os.environ.get("RLX_HARDENING") == "OFF", reason="built with -DRLX_HARDENING=OFF"),
]
EXTENSIONS = ("rlx_mlir._compiler", "rlx_mlir._runtime")
LIBRARY = "librlx_runtime.so"
PROPERTIES = {
    "read-only relocations",
    "functions bound at once",
    "no executable stack",
    "nothing writable is code",
    "guards of the stack",
}

#: Of ELF files of 64 bits: header, an entry of the program's table, of the dynamic section, of its symbols.
HEADER, SEGMENT, DYNAMIC, SYMBOL = (
    struct.Struct(text) for text in ("<16sHHIQQQIHHHHHH", "<IIQQQQQQ", "<qQ", "<IBBHQQ")
)
PT_LOAD, PT_DYNAMIC, PT_GNU_STACK, PT_GNU_RELRO = 1, 2, 0x6474E551, 0x6474E552
EXECUTE, WRITE = 1, 2
DT_STRTAB, DT_SYMTAB, DT_BIND_NOW, DT_FLAGS, DT_FLAGS_1 = 5, 6, 24, 30, 0x6FFFFFFB
DF_BIND_NOW, DF_1_NOW = 8, 1


@dataclass(frozen=True)
class Segment:
    """An entry of the table of segments, and where in the file its flags stand."""

    kind: int
    flags: int
    offset: int
    address: int
    size: int
    flags_at: int


class Elf:
    """A shared library of 64 bits, in little-endian order."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        fields = HEADER.unpack_from(content)
        assert fields[0].startswith(b"\x7fELF\x02\x01")
        start, size, count = fields[5], fields[9], fields[10]
        self.segments = []
        for number in range(count):
            at = start + number * size
            kind, flags, offset, address, _, length, _, _ = SEGMENT.unpack_from(content, at)
            self.segments.append(Segment(kind, flags, offset, address, length, at + 4))

    def of(self, kind: int) -> list[Segment]:
        """The segments of a kind."""
        return [own for own in self.segments if own.kind == kind]

    def dynamic(self) -> Iterator[tuple[int, int, int]]:
        """Tags and values of the dynamic section, and where in the file each pair stands."""
        (section,) = self.of(PT_DYNAMIC)
        for at in range(section.offset, section.offset + section.size, DYNAMIC.size):
            tag, value = DYNAMIC.unpack_from(self.content, at)
            if tag == 0:
                return
            yield tag, value, at

    def place(self, address: int) -> int:
        """Where in the file stands what is loaded to an address."""
        own = next(s for s in self.of(PT_LOAD) if s.address <= address < s.address + s.size)
        return address - own.address + own.offset

    def imports(self) -> Iterator[tuple[str, int]]:
        """Names of the symbols that others define, and where in the file each name stands."""
        words = {tag: value for tag, value, _ in self.dynamic()}
        symbols, names = self.place(words[DT_SYMTAB]), self.place(words[DT_STRTAB])
        # The table doesn't say how long it is; linkers put its names behind it.
        for at in range(symbols, names, SYMBOL.size):
            name, _, _, section, _, _ = SYMBOL.unpack_from(self.content, at)
            if section == 0 and name:
                start = names + name
                yield self.content[start : self.content.index(b"\0", start)].decode(), start

    def hardened(self) -> set[str]:
        """Those of PROPERTIES that it has."""
        words = {tag: value for tag, value, _ in self.dynamic()}
        bound = DT_BIND_NOW in words or words.get(DT_FLAGS, 0) & DF_BIND_NOW or words.get(DT_FLAGS_1, 0) & DF_1_NOW
        stacks = self.of(PT_GNU_STACK)
        found = {
            "read-only relocations": any(own.size for own in self.of(PT_GNU_RELRO)),
            "functions bound at once": bool(bound),
            "no executable stack": bool(stacks) and not any(own.flags & EXECUTE for own in stacks),
            "nothing writable is code": not any(own.flags & EXECUTE and own.flags & WRITE for own in self.segments),
            "guards of the stack": "__stack_chk_fail" in {name for name, _ in self.imports()},
        }
        return {name for name, is_so in found.items() if is_so}


def content(extension: str) -> bytes:
    """The bytes of an extension that is installed, or of the library for C."""
    if extension == LIBRARY:
        return library_path().read_bytes()
    spec = importlib.util.find_spec(extension)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).read_bytes()


@pytest.mark.parametrize("extension", [*EXTENSIONS, LIBRARY])
def test_extensions_are_hardened(extension: str) -> None:
    assert PROPERTIES - Elf(content(extension)).hardened() == set()


def patched(data: bytes, at: int, new: bytes) -> bytes:
    return data[:at] + new + data[at + len(new) :]


@pytest.mark.parametrize("lost", sorted(PROPERTIES))
def test_what_is_not_hardened_is_seen(lost: str) -> None:
    """An extension that lacks one property, by a few bytes that say so."""
    data = content("rlx_mlir._runtime")
    elf = Elf(data)
    word = struct.Struct("<I").pack
    if lost == "read-only relocations":
        data = patched(data, elf.of(PT_GNU_RELRO)[0].flags_at - 4, word(0))
    elif lost == "no executable stack":
        data = patched(data, elf.of(PT_GNU_STACK)[0].flags_at, word(EXECUTE))
    elif lost == "nothing writable is code":
        data = patched(data, elf.of(PT_LOAD)[0].flags_at, word(EXECUTE | WRITE))
    elif lost == "guards of the stack":
        data = patched(data, dict(elf.imports())["__stack_chk_fail"], b"__other")
    else:
        for tag, _, at in elf.dynamic():
            if tag in (DT_BIND_NOW, DT_FLAGS, DT_FLAGS_1):
                data = patched(data, at, DYNAMIC.pack(DT_FLAGS, 0))
    assert PROPERTIES - Elf(data).hardened() == {lost}
