# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Plain data as bytes, for readers without Python: runtime/value.h says what they are, and reads them."""

from __future__ import annotations

from rlx_mlir.errors import InputError

#: What the two lowest bits of a value's first number say; the rest of it is a number of its own.
_INTEGER, _TEXT, _LIST, _OTHER = range(4)
#: Of `_OTHER`: nothing, and a number of 8 bytes.
_NOTHING, _WIDE = range(2)
#: Numbers that fit beside the two bits.
_NARROW = range(-(1 << 60), 1 << 60)


def encode(value: object) -> bytes:
    """None, integers of 64 bits, texts, bytes, which are texts for readers, and lists and tuples of those, as bytes.

    Raises InputError where there is anything else.
    """
    parts: list[bytes] = []
    _encode(value, parts)
    return b"".join(parts)


def _encode(value: object, parts: list[bytes]) -> None:
    if value is None:
        parts.append(_number(_NOTHING << 2 | _OTHER))
    elif isinstance(value, str | bytes):
        text = value.encode() if isinstance(value, str) else value
        parts += (_number(len(text) << 2 | _TEXT), text)
    elif isinstance(value, int):
        if value in _NARROW:
            parts.append(_number((value << 1 ^ value >> 63) << 2 | _INTEGER))
        elif -(1 << 63) <= value < 1 << 63:
            parts += (_number(_WIDE << 2 | _OTHER), value.to_bytes(8, "little", signed=True))
        else:
            raise InputError(f"a number of a description has 64 bits, but {value} has more")
    elif isinstance(value, list | tuple):
        parts.append(_number(len(value) << 2 | _LIST))
        for item in value:
            _encode(item, parts)
    else:
        raise InputError(f"a description has numbers, texts and lists, but got {type(value).__name__}")


def _number(number: int) -> bytes:
    """Seven bits in each byte, the lowest first; all but the last have the highest bit."""
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    found.append(number)
    return bytes(found)


__all__ = ["encode"]
