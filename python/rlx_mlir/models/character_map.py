# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""SentencePiece's table of characters and what they become, as plain data: runtime/library/character_map.cpp uses it.

The library `tokenizers` looks at clusters, which are what readers take for one character. How characters form these is
asked of it, whose version of Unicode decides what ids texts have.
"""

from __future__ import annotations

import base64
import binascii
import functools
import struct
from collections.abc import Callable, Sequence

import numpy as np

from ..errors import TokenizerError

#: Bytes of the longest cluster that becomes something as a whole.
_LONGEST = 5
#: Bytes of what an entry becomes, at most; those of models have up to 33.
_MOST = 255
#: Classes of characters, as bits.
_JOINS, _CONTROL, _PREPENDED, _PICTOGRAPH, _EXTENDS, _CONSONANT, _LINKS, _LINKED, _LEADING, _VOWEL, _TRAILING = (
    1 << bit for bit in range(11)
)
#: Where Unicode has characters that aren't ideographs; texts have no surrogates, and syllables are computed.
_PLACES = (range(1, 0x20000), range(0xE0000, 0xE1000))
_APART = (range(0xD800, 0xE000), range(0xAC00, 0xD7A4), (10, 13))
#: Between what is asked; it is a control character, as are the others that aren't asked about.
_LINE = "\n"


def described(packed: object) -> list[object]:
    """A form of texts: `characters`, entries, the texts that they become, and classes of characters.

    Of entries, each has four numbers of 4 bytes: its first 4 bytes, the fifth one and 256 times how many there are, and
    where its text begins and ends. Of classes there are the first and last character of a range, and its bits.

    Args:
        packed: the table, in base64, as `tokenizer.json` has it.

    Raises TokenizerError where it is none.
    """
    units, texts = _unpacked(packed)
    words: list[int] = []
    for key, begin in _entries(units):
        if begin > len(texts):
            raise TokenizerError(
                f"the table of characters has a text at byte {begin}, but its texts have {len(texts)} bytes"
            )
        end = texts.find(b"\0", begin, begin + _MOST + 1)
        end = len(texts) if end < 0 else end
        if end - begin > _MOST:
            raise TokenizerError(f"a text of the table of characters has more than {_MOST} bytes")
        low, high = struct.unpack("<IB", key.ljust(_LONGEST, b"\0"))
        words += [low, high | len(key) << 8, begin, end]
    return ["characters", np.array(words, "<u4").tobytes(), texts, np.array(_classes(), "<u4").tobytes()]


def _unpacked(packed: object) -> tuple[np.ndarray, bytes]:
    """The units of the table's trie, and its texts, each of which ends with 0."""
    try:
        table = base64.b64decode(packed, validate=True) if isinstance(packed, str) else b""
    except binascii.Error:
        table = b""
    size = int.from_bytes(table[:4], "little")
    if len(table) < 8 or not 4 <= size <= len(table) - 4 or size % 4:
        raise TokenizerError("'precompiled_charsmap' must be the size of a trie, its units and texts, in base64")
    texts = table[4 + size :]
    try:
        texts.decode()
    except UnicodeDecodeError as error:
        raise TokenizerError("texts of 'precompiled_charsmap' must be UTF-8") from error
    return np.frombuffer(table, "<u4", size // 4, 4), texts


def _offset(units: np.ndarray) -> np.ndarray:
    """From where a node is to where its children are, which are a byte apart from that by exclusive or."""
    found: np.ndarray = (units >> 10) << ((units & (1 << 9)) >> 6)
    return found


def _entries(units: np.ndarray) -> list[tuple[bytes, int]]:
    """The entries of a double array that no other one is the beginning of, and where their texts begin."""
    letters = np.arange(1, 256, dtype=np.uint32)
    bases, keys = _offset(units[:1]), [b""]
    found: list[tuple[bytes, int]] = []
    for _ in range(_LONGEST):
        places = bases[:, None] ^ letters
        inside = places < len(units)
        own = units[np.where(inside, places, 0)]
        parent, letter = np.nonzero(inside & ((own & (1 << 31 | 0xFF)) == letters))
        own = own[parent, letter]
        bases = places[parent, letter] ^ _offset(own)
        keys = [keys[row] + bytes([column + 1]) for row, column in zip(parent, letter, strict=True)]
        ends = (own >> 8 & 1 == 1) & (bases < len(units))
        values = units[np.where(ends, bases, 0)] & ~np.uint32(1 << 31)
        found += [(keys[row], int(values[row])) for row in np.flatnonzero(ends)]
        keys = [keys[row] for row in np.flatnonzero(~ends)]
        bases = bases[~ends]
        if len(found) + len(keys) > len(units):
            raise TokenizerError("the trie of 'precompiled_charsmap' has more entries than units")
    return found


# Classes --------------------------------------------------------------------------------------------


@functools.cache
def _asking() -> Callable[[Sequence[str]], list[int]]:
    """How many X become of each text: one of each cluster of few bytes, and of each character of other ones.

    The table has an entry of each first byte of a character, which becomes X.
    """
    from tokenizers import normalizers

    units, children, end = [0] * 1024, 256, 512
    units[0] = children << 10
    for byte in set(range(1, 256)) - {ord(_LINE)}:
        units[children ^ byte] = (children ^ byte ^ end) << 10 | 1 << 8 | byte
    units[end] = 1 << 31
    table = struct.pack(f"<I{len(units)}I", 4 * len(units), *units) + b"X\0"
    normalizer = normalizers.Precompiled(table)
    return lambda texts: list(map(len, str(normalizer.normalize_str(_LINE.join(texts))).split(_LINE)))


@functools.cache
def _classes() -> list[int]:
    """The first and last character of ranges, and their class.

    Each question is a text of which one number of X comes where a character is of a class.
    """
    ask = _asking()
    every = [chr(code) for place in _PLACES for code in place if not any(code in apart for apart in _APART)]

    def those(characters: Sequence[str], before: str, behind: str, count: int) -> list[str]:
        given = ask([before + own + behind for own in characters])
        return [own for own, number in zip(characters, given, strict=True) if number == count]

    found = dict.fromkeys(every, 0)

    def classify(characters: Sequence[str], bit: int) -> list[str]:
        for own in characters:
            found[own] |= bit
        return [own for own in every if not found[own]]

    joins = those(every, "a", "", 1)
    rest = classify(joins, _JOINS)
    rest = classify(those(rest, "", "\u0300\u0301", 2), _CONTROL)
    rest = classify(those(rest, "", "a", 1), _PREPENDED)
    classify(those(joins, "\xa9", "\u200d\xa9\u0300", 5), _EXTENDS)
    classify(those(joins, "\u0915", "\u0915\u0300", 4), _LINKS)
    classify(those(joins, "\u0915", "\u094d\u0915\u0300", 5), _LINKED)
    rest = classify(those(rest, "\xa9\u200d", "", 3), _PICTOGRAPH)
    rest = classify(those(rest, "", "\u094d\u0915\u0300", 4), _CONSONANT)
    rest = classify(those(rest, "", "\u1100\u0300", 3), _LEADING)
    rest = classify(those(rest, "", "\u1161\u0300", 3), _VOWEL)
    classify(those(rest, "", "\u11a8\u0300", 3), _TRAILING)
    found |= dict.fromkeys("\0\n\r", _CONTROL)
    ranges: list[int] = []
    for code, own in sorted((ord(text), bits) for text, bits in found.items()):
        if ranges and own == ranges[-1] and code == ranges[-2] + 1:
            ranges[-2] = code
        elif own:
            ranges += (code, code, own)
    return ranges


__all__ = ["described"]
