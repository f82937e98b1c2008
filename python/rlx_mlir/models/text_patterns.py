# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Regular expressions of pre-tokenizers as plain data, for readers that know neither expressions nor Unicode.

A part of an expression is a list, whose first number says what it is: (0, first, last, …) a character in one of some
ranges, in order; (1, part, …) parts in turn; (2, part, …) the first of them that leads on; (3, least, most, part) as
many as there are, most being -1 where nothing bounds it; (4, part) where the part doesn't follow; (5,) the end of a
line. runtime/library/pattern.cpp runs them.

Which characters a class has is asked of the library `tokenizers`, whose version of Unicode decides what ids texts have.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

from ..errors import UnsupportedError

#: A part, as above.
Part = tuple[Any, ...]

CHARACTERS, SEQUENCE, CHOICE, REPETITION, UNLESS, LINE_END = range(6)

_QUANTIFIER = re.compile(r"([?+*])|\{(\d+)(,?)(\d*)\}")
_COUNTS = {"?": (0, 1), "+": (1, -1), "*": (0, -1)}
#: What stands for one of several characters outside of brackets: `\p{L}`, `\s`, `\x{ff01}`, `\r`, `\.`.
_ESCAPE = re.compile(r"\\(?:[pP]\{\^?\w+\}|x\{[0-9A-Fa-f]+\}|.)", re.DOTALL)
#: What is escaped to a class of characters, or to one that isn't written.
_CLASSES = frozenset("dDsSwWnrt")
#: What texts don't have.
_SURROGATES = range(0xD800, 0xE000)
#: Where Unicode has no characters yet: one of them is like all others.
_UNASSIGNED = range(0x40000, 0xE0000)
#: Characters that the library is given at once: it counts them anew for each piece of a text.
_AT_ONCE = 2048


@functools.cache
def members(expression: str) -> tuple[int, ...]:
    """The characters that an expression of one character matches: first, last, first, last, …, in order."""
    found = _Ranges()
    for begin in range(0, 0x110000, _AT_ONCE):
        if begin in _SURROGATES or begin in _UNASSIGNED[1:]:
            continue
        if begin == _UNASSIGNED.start:
            if _matched(expression, chr(begin)):
                found.add(_UNASSIGNED.start, _UNASSIGNED.stop)
            continue
        text = "".join(map(chr, range(begin, begin + _AT_ONCE)))
        for low, high in _matched(expression, text):
            found.add(begin + low, begin + high)
    return tuple(found.ends)


class _Ranges:
    """Numbers in order, as the first and last of each range."""

    def __init__(self) -> None:
        self.ends: list[int] = []

    def add(self, first: int, end: int) -> None:
        """Adds numbers; those that go on where the last ones end become one range with these."""
        if self.ends and self.ends[-1] == first - 1:
            self.ends[-1] = end - 1
        else:
            self.ends += (first, end - 1)


@functools.cache
def _splitter(expression: str) -> Any:
    import tokenizers
    from tokenizers import pre_tokenizers

    return pre_tokenizers.Split(tokenizers.Regex(f"(?:{expression})+"), "removed")


def _matched(expression: str, text: str) -> list[tuple[int, int]]:
    """Where characters of a text match: the first of each run, and the end of it."""
    left = [span for _, span in _splitter(expression).pre_tokenize_str(text)]
    begins = [0, *(end for _, end in left)]
    ends = [*(begin for begin, _ in left), len(text)]
    return [(begin, end) for begin, end in zip(begins, ends, strict=True) if begin < end]


@functools.cache
def _folded() -> dict[str, list[str]]:
    """Characters by what they are without case, where that is one character."""
    found: dict[str, list[str]] = {}
    for code in range(0x20000):  # no character behind has case
        if code not in _SURROGATES and len(folded := chr(code).casefold()) == 1:
            found.setdefault(folded, []).append(chr(code))
    return found


class _Parser:
    """Reads one expression of the syntax that `tokenizers` has, as far as pre-tokenizers use it."""

    def __init__(self, expression: str) -> None:
        self._text = expression
        self._at = 0
        self._ignores_case = False

    def whole(self) -> Part:
        """The expression; UnsupportedError where it has something else."""
        part = self._choice()
        if self._at < len(self._text):
            raise self._fail("an end")
        return part

    def _fail(self, expected: str) -> UnsupportedError:
        rest = self._text[self._at : self._at + 16]
        return UnsupportedError(f"the pattern {self._text!r} must have {expected} at {rest!r}")

    def _take(self, word: str) -> bool:
        if not self._text.startswith(word, self._at):
            return False
        self._at += len(word)
        return True

    def _choice(self) -> Part:
        parts = [self._sequence()]
        while self._take("|"):
            parts.append(self._sequence())
        return parts[0] if len(parts) == 1 else (CHOICE, *parts)

    def _sequence(self) -> Part:
        parts: list[Part] = []
        while self._at < len(self._text) and self._text[self._at] not in "|)":
            parts.append(self._repeated(self._atom()))
        return (SEQUENCE, *parts)

    def _repeated(self, part: Part) -> Part:
        found = _QUANTIFIER.match(self._text, self._at)
        if found is None:
            return part
        self._at = found.end()
        if self._text[self._at : self._at + 1] in ("?", "+"):
            raise self._fail("no reluctant or possessive quantifier")
        sign, least, comma, most = found.groups()
        if sign:
            return (REPETITION, *_COUNTS[sign], part)
        return (REPETITION, int(least), int(most) if most else -1 if comma else int(least), part)

    def _atom(self) -> Part:
        if self._take("(?!"):
            return (UNLESS, self._closed(self._choice))
        if self._take("(?i:"):
            before, self._ignores_case = self._ignores_case, True
            part = self._closed(self._choice)
            self._ignores_case = before
            return part
        if self._take("(?:"):
            return self._closed(self._choice)
        if self._take("$"):
            return (LINE_END,)
        if self._text[self._at] == "[":
            return self._class(self._brackets())
        if self._text[self._at] in "(){}?*+.^":
            raise self._fail("a part that is known")
        if found := _ESCAPE.match(self._text, self._at):
            self._at = found.end()
            word = found.group()
            return self._class(word) if len(word) > 2 or word[1] in _CLASSES else self._literal(word[1])
        self._at += 1
        return self._literal(self._text[self._at - 1])

    def _closed(self, read: Callable[[], Part]) -> Part:
        part = read()
        if not self._take(")"):
            raise self._fail("')'")
        return part

    def _brackets(self) -> str:
        """A class in brackets, as it is written."""
        begin, self._at = self._at, self._at + 1
        while self._at < len(self._text) and self._text[self._at] != "]":
            self._at += 2 if self._text[self._at] == "\\" else 1
        if not self._take("]"):
            raise self._fail("']'")
        return self._text[begin : self._at]

    def _class(self, word: str) -> Part:
        return (CHARACTERS, *members(f"(?i:{word})" if self._ignores_case else word))

    def _literal(self, character: str) -> Part:
        if not self._ignores_case or len(character.casefold()) > 1:
            return (CHARACTERS, ord(character), ord(character))
        found = _Ranges()
        for other in sorted(_folded()[character.casefold()]):
            if _matched(f"(?i:{re.escape(character)})", other):
                found.add(ord(other), ord(other) + 1)
        return (CHARACTERS, *found.ends)


def parsed(expression: str) -> Part:
    """An expression of a pre-tokenizer as plain data; UnsupportedError where it has what those don't."""
    return _Parser(expression).whole()


def may_be_empty(part: Part) -> bool:
    """Whether a part matches where there are no characters left."""
    kind, *inner = part
    if kind == SEQUENCE:
        return all(map(may_be_empty, inner))
    if kind == CHOICE:
        return any(map(may_be_empty, inner))
    if kind == REPETITION:
        return inner[0] == 0 or may_be_empty(inner[2])
    return bool(kind != CHARACTERS)


__all__ = ["Part", "may_be_empty", "members", "parsed"]
