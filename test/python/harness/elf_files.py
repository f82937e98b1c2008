# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes relocatable ELF objects of 64 bits by hand: right ones, and such as no compiler writes."""

from __future__ import annotations

import struct
from collections.abc import Sequence

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QQq")


class Elf:
    """An object; `bytes(elf)` is the file.

    Attributes:
        second_table: there are two symbol tables.
        string_end: with which the names of symbols end.
        name_section: where the header says that the names of sections are; None for where they are.
    """

    def __init__(self, machine: int) -> None:
        self.machine = machine
        self.second_table = False
        self.string_end = b"\0"
        self.name_section: int | None = None
        self._sections: list[tuple[str, bytes, dict[str, int]]] = []
        self._symbols = [_SYMBOL.pack(0, 0, 0, 0, 0, 0)]
        self._strings = b"\0"

    def section(
        self, name: str, content: bytes, *, kind: int, flags: int, alignment: int = 1, size: int | None = None
    ) -> int:
        """Adds a section, and gives its number; `size` where it isn't that of the content."""
        length = len(content) if size is None else size
        own = {"kind": kind, "flags": flags, "alignment": alignment, "size": length}
        self._sections.append((name, content, own))
        return len(self._sections)

    def symbol(
        self, name: str | bytes, section: int, value: int = 0, *, size: int = 0, binding: int = 1, kind: int = 0
    ) -> int:
        """Adds a symbol, global where nothing else is said, and gives its number."""
        encoded = name if isinstance(name, bytes) else name.encode()
        at = len(self._strings)
        self._strings += encoded + b"\0"
        self._symbols.append(_SYMBOL.pack(at, binding << 4 | kind, 0, section, value, size))
        return len(self._symbols) - 1

    def relocations(
        self,
        section: int,
        entries: Sequence[tuple[int, int, int, int]],
        *,
        kind: int = 4,
        link: int | None = None,
        entry: int = _RELOCATION.size,
    ) -> int:
        """Adds relocations of a section, (offset, type, symbol, addend) each, and gives the number of their section."""
        content = b"".join(_RELOCATION.pack(at, symbol << 32 | type, addend) for at, type, symbol, addend in entries)
        own = {"kind": kind, "flags": 0, "alignment": 8, "size": len(content), "info": section, "entry": entry}
        if link is not None:
            own["link"] = link
        self._sections.append((".rela", content, own))
        return len(self._sections)

    def __bytes__(self) -> bytes:
        count = len(self._sections)
        table, strings, names = count + 1, count + 2, count + 3
        symbols = b"".join(self._symbols)
        own = {"kind": 2, "flags": 0, "alignment": 8, "size": len(symbols), "link": strings, "entry": _SYMBOL.size}
        text = self._strings[:-1] + self.string_end
        sections = [*self._sections, (".symtab", symbols, own)]
        sections.append((".strtab", text, {"kind": 3, "flags": 0, "alignment": 1, "size": len(text)}))
        labels = b"\0" + b"".join(name.encode() + b"\0" for name, _, _ in sections) + b".shstrtab\0.symtab\0"
        sections.append((".shstrtab", labels, {"kind": 3, "flags": 0, "alignment": 1, "size": len(labels)}))
        if self.second_table:
            sections.append((".symtab", symbols, own))
        body, headers = b"", [_SECTION.pack(*[0] * 10)]
        for name, content, fields in sections:
            headers.append(
                _SECTION.pack(
                    labels.index(b"\0" + name.encode() + b"\0") + 1,
                    fields["kind"],
                    fields["flags"],
                    0,
                    _HEADER.size + len(body),
                    fields["size"],
                    fields.get("link", table),
                    fields.get("info", 0),
                    fields["alignment"],
                    fields.get("entry", 0),
                )
            )
            body += content + bytes(-len(content) % 8)
        identity = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
        named = names if self.name_section is None else self.name_section
        head = _HEADER.pack(
            identity, 1, self.machine, 1, 0, 0, _HEADER.size + len(body), 0, 64, 0, 0, 64, len(headers), named
        )
        return head + body + b"".join(headers)
