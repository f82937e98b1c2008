# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Errors about operations that something doesn't know: all of them at once, with places and the nearest known ones."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from rlx_mlir import ir
from rlx_mlir.errors import RlxError
from rlx_mlir.errors import nearest as nearest_word
from rlx_mlir.locations import describe_operation

#: An operation where text has one: at the start of a line, or after the results.
_IN_TEXT = re.compile(r'(?:^|=)\s*"?((?:hir|mir)\.\w+)"?(?=[\s(])', re.MULTILINE)


def nearest(name: str, known: Iterable[str]) -> str:
    """The known operation whose word is most like another one's, of its dialect first; '' where none is like it."""
    dialect, _, word = name.partition(".")
    by_word: dict[str, str] = {}
    for candidate in sorted(known, key=lambda own: own.startswith(f"{dialect}.")):
        by_word[candidate.partition(".")[2]] = candidate
    close = nearest_word(word, by_word)
    return by_word[close] if close and by_word[close] != name else ""


def list_operations(ops: Iterable[tuple[ir.AnyOp, str]], known: Iterable[str] = ()) -> list[str]:
    """A line for each kind of operation: how many there are, the first one's place, what is wrong, the nearest known.

    Args:
        ops: each operation with what is wrong with it.
        known: names of the operations that would be right.
    """
    names = list(known)
    first: dict[tuple[str, str], ir.AnyOp] = {}
    counts: Counter[tuple[str, str]] = Counter()
    for op, reason in ops:
        key = (str(op.operation.name), reason)
        first.setdefault(key, op)
        counts[key] += 1
    lines = []
    for (name, reason), count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        text = describe_operation(first[name, reason])
        text += f" (and {count - 1} more)" if count > 1 else ""
        text += f": {reason}" if reason else ""
        close = nearest(name, names)
        lines.append(f"{text}; the nearest that there is: {close}" if close else text)
    return lines


def blame(op: ir.AnyOp, error: Exception) -> str:
    """The text of an error that came up at an operation."""
    text = str(error) if isinstance(error, RlxError) else f"{type(error).__name__}: {error}"
    return text if text.startswith("'") and op.operation.name in text else f"{describe_operation(op)}: {text}"


def unknown_in_text(text: str, known: Iterable[str]) -> list[str]:
    """A line for each operation of hir and mir that stands in IR text, but isn't one."""
    names = frozenset(known)
    counts: Counter[str] = Counter(name for name in _IN_TEXT.findall(text) if name not in names)
    lines = []
    for name, count in counts.most_common():
        number = text.count("\n", 0, next(m.start(1) for m in _IN_TEXT.finditer(text) if m[1] == name)) + 1
        more = f" (and {count - 1} more)" if count > 1 else ""
        close = nearest(name, names)
        lines.append(f"'{name}' in line {number}{more}" + (f"; the nearest that there is: {close}" if close else ""))
    return lines
