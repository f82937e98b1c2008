# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Symbols of relocatable ELF objects: other names for those that an object defines, so that objects fit together."""

from __future__ import annotations

import struct

from rlx_mlir.boundary import foreign_errors
from rlx_mlir.errors import ExecutionError

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_ELF64_LITTLE = b"\x7fELF\x02\x01"
_RELOCATABLE = 1
_SHT_SYMTAB = 2
_STB_LOCAL = 0
_STV_HIDDEN = 2


def rename_defined(code: bytes, prefix: str) -> tuple[bytes, list[str]]:
    """An object whose global symbols have a prefix, and can't be seen outside of what it is linked into.

    Args:
        code: the object; of 64 bits, the lowest byte first.
        prefix: what comes before their names.

    Returns:
        The object, and their names without the prefix.

    Raises ExecutionError where it is no such object, or damaged.
    """
    with foreign_errors("the object code is damaged", ExecutionError):
        return _rename_defined(code, prefix.encode())


def _rename_defined(code: bytes, prefix: bytes) -> tuple[bytes, list[str]]:
    fields = _HEADER.unpack_from(code)
    ident, kind, sections_at, entry, count = fields[0], fields[1], fields[6], fields[11], fields[12]
    if not ident.startswith(_ELF64_LITTLE) or kind != _RELOCATABLE or entry != _SECTION.size:
        raise ExecutionError("the code is no relocatable ELF object of 64 bits")
    found = bytearray(code)
    names: list[str] = []
    sections = [list(_SECTION.unpack_from(code, sections_at + number * entry)) for number in range(count)]
    for section in sections:
        if section[1] != _SHT_SYMTAB:
            continue
        at, size, link = section[4], section[5], section[6]
        texts = sections[link]
        table = bytearray(_part(code, texts[4], texts[5]))
        for place in range(at, at + len(_part(code, at, size)), _SYMBOL.size):
            name, info, other, index, value, length = _SYMBOL.unpack_from(code, place)
            if info >> 4 == _STB_LOCAL or index == 0:
                continue
            text = bytes(table[name : table.index(0, name)])
            names.append(text.decode())
            _SYMBOL.pack_into(found, place, len(table), info, other & ~3 | _STV_HIDDEN, index, value, length)
            table += prefix + text + b"\0"
        texts[4], texts[5] = len(found), len(table)
        _SECTION.pack_into(found, sections_at + link * entry, *texts)
        found += table
    return bytes(found), names


def _part(code: bytes, at: int, size: int) -> bytes:
    part = code[at : at + size]
    if len(part) != size:
        raise ExecutionError(f"{size} bytes from byte {at} on can't be in the {len(code)} of the object")
    return part


__all__ = ["rename_defined"]
