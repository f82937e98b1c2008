# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Arguments of builders as attributes have them; what is none is a BuildError at the caller's line."""

from __future__ import annotations

from collections.abc import Sequence

from rlx_mlir.errors import InputError
from rlx_mlir.hir import place
from rlx_mlir.hir.graph import Word, integer


def word(enum: str, text: str | None) -> Word | None:
    """A word of an enumeration as an attribute; None stays None."""
    return None if text is None else Word(enum, text)


def number(value: float | None) -> float | None:
    """A float attribute; None stays None. BuildError for what is no number."""
    if value is None:
        return None
    try:
        return float(value)
    except (TypeError, ValueError):
        raise place.caller().error(f"a number is expected, but got {value!r}") from None


def pair(entry: int | Sequence[int]) -> list[int]:
    """A number for both dimensions of an image, or one for each; BuildError for what is neither."""
    listed = list(entry) if isinstance(entry, Sequence) and not isinstance(entry, str | bytes) else [entry, entry]
    try:
        if len(listed) == 2:
            return [integer(each, "number") for each in listed]
    except InputError:
        pass
    raise place.caller().error(f"a number, or a pair for height and width, is expected, but got {entry!r}"[:400])
