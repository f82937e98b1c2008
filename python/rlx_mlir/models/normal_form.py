# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Forms of texts as plain data, for readers that don't know Unicode: runtime/library/normal_form.cpp uses them.

The library `tokenizers` is asked, whose version of Unicode decides what ids texts have.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

#: What texts don't have, and syllables, which are computed.
_SURROGATES, _HANGUL = range(0xD800, 0xE000), range(0xAC00, 0xD7A4)
#: Where Unicode has characters, or may have some once; those that anybody may define have no parts.
_PLACES = (range(0x40000), range(0xE0000, 0xE1000))
_LETTER = "a"
#: A character that no other one becomes one with, between those that are asked about.
_BREAK = "\n"


FORMS = ("NFC", "NFD", "NFKC", "NFKD")
"""Unicode's normal forms."""

_FIRST_MARK = 0x300
#: No letter of the alphabet is before it.
_FIRST_UPPER = 0x41


@functools.cache
def tables(form: str) -> list[int | bytes]:
    """Below which character texts stay as they are, and packed numbers of 4 bytes: parts of characters, compositions of
    two, and classes of marks.

    Of parts, each character is followed by how many it has, and by these; of compositions there are the two and what
    they become, none where the form is one of parts; of classes the first and last character of a range, and its class.
    Classes have the order of Unicode's, which is all that is asked of them.

    Args:
        form: one of `FORMS`.
    """
    plain = _parts("NFD")
    parts = _parts("NFKD") if form in ("NFKC", "NFKD") else plain
    composed = _compositions(plain) if form in ("NFC", "NFKC") else []
    return [
        _FIRST_MARK if form == "NFC" else min(parts),
        _packed_parts(parts),
        _packed(itertools.chain.from_iterable(composed)),
        _packed(itertools.chain.from_iterable(_classes(plain))),
    ]


@functools.cache
def lower_case() -> list[int | bytes]:
    """Below which character texts stay as they are, and what characters become in lower case, packed as parts are."""
    return [_FIRST_UPPER, _packed_parts(_parts("Lowercase"))]


@functools.cache
def word_characters() -> bytes:
    """The first and last of ranges of characters beside which no token is found that is a word alone."""
    from tokenizers import AddedToken, Tokenizer, models

    made = Tokenizer(models.WordLevel({"[UNK]": 0}, unk_token="[UNK]"))
    made.add_tokens([AddedToken("tok", single_word=True)])
    asked = [code for code in _characters() if chr(code) != _BREAK]
    found = made.encode("".join(f"{chr(code)}tok{_BREAK}" for code in asked), add_special_tokens=False)
    alone = {begin // 5 for index, (begin, _) in zip(found.ids, found.offsets, strict=True) if index}
    ranges: list[int] = []
    for number, code in enumerate(asked):
        if number in alone:
            continue
        if ranges and ranges[-1] == code - 1:
            ranges[-1] = code
        else:
            ranges += (code, code)
    return _packed(iter(ranges))


def _packed_parts(parts: Mapping[int, Sequence[int]]) -> bytes:
    return _packed(itertools.chain.from_iterable((code, len(own), *own) for code, own in parts.items()))


def _packed(numbers: Iterator[int]) -> bytes:
    return np.fromiter(numbers, "<u4").tobytes()


def _characters() -> list[int]:
    return [code for place in _PLACES for code in place if code not in _SURROGATES]


def _formed(form: str, text: str) -> str:
    from tokenizers import normalizers

    return str(getattr(normalizers, form)().normalize_str(text))


def _decomposed(text: str) -> str:
    return _formed("NFD", text)


def _composed(text: str) -> str:
    return _formed("NFC", text)


def _parts(form: str) -> dict[int, list[int]]:
    """What each character becomes that doesn't stay as it is."""
    asked = [code for code in _characters() if code not in _HANGUL and chr(code) != _BREAK]
    found = _formed(form, _BREAK.join(map(chr, asked))).split(_BREAK)
    return {code: list(map(ord, own)) for code, own in zip(asked, found, strict=True) if own != chr(code)}


def _compositions(parts: Mapping[int, Sequence[int]]) -> list[tuple[int, int, int]]:
    """Two characters, and the one that they become: a character whose parts don't become another one."""
    found = []
    for code, own in parts.items():
        if len(own) < 2 or _composed("".join(map(chr, own))) != chr(code):
            continue
        first = _composed("".join(map(chr, own[:-1])))
        if len(first) == 1:
            found.append((ord(first), own[-1], code))
    return found


def _classes(parts: Mapping[int, Sequence[int]]) -> list[tuple[int, int, int]]:
    """Ranges of characters that are put in order behind letters: the first, the last, and their class."""
    marks = _marks(parts)
    # Two of different classes come in one order, however they were written: each is put among those that are known.
    known: list[str] = []  # one of each class, in order
    class_of: dict[str, str] = {}
    for mark in marks:
        low, high = 0, len(known)
        while low < high:
            middle = (low + high) // 2
            order = _order(mark, known[middle])
            if order == 0:
                class_of[mark] = known[middle]
                break
            low, high = (middle + 1, high) if order > 0 else (low, middle)
        else:
            known.insert(low, mark)
            class_of[mark] = mark
    numbers = {mark: number for number, mark in enumerate(known, start=1)}
    found: list[tuple[int, int, int]] = []
    for mark in marks:
        code, own = ord(mark), numbers[class_of[mark]]
        if found and found[-1][1] == code - 1 and found[-1][2] == own:
            found[-1] = (found[-1][0], code, own)
        else:
            found.append((code, code, own))
    return found


def _marks(parts: Mapping[int, Sequence[int]]) -> list[str]:
    """Characters that have a class: around others, marks keep their places."""
    low, high = "\u0334", "\u0345"  # of the classes 1 and 240, which are those
    asked = [chr(code) for code in _characters() if code not in parts and code not in _HANGUL and chr(code) != _BREAK]
    texts = [f"{_LETTER}{high}{own}{low}" for own in asked]  # which any mark lets change places
    found = _decomposed(_BREAK.join(texts)).split(_BREAK)
    return [own for own, text, ordered in zip(asked, texts, found, strict=True) if text != ordered]


def _order(one: str, other: str) -> int:
    """Below 0 where one comes before the other, above 0 where it comes behind it, 0 where they keep their places."""
    first, second = _decomposed(_LETTER + one + other), _decomposed(_LETTER + other + one)
    if first != second:
        return 0
    return -1 if first == _LETTER + _decomposed(one) + _decomposed(other) else 1


__all__ = ["FORMS", "lower_case", "tables", "word_characters"]
