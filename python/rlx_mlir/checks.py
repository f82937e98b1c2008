# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What public functions ask of arguments before they use them. Needs no MLIR.

Each check returns the argument, or raises an InputError that names it, says what it has to be and shows what it is.
Python calls what doesn't fit a signature a TypeError; these are about values.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NoReturn, TypeAlias, TypeVar

import numpy as np

from rlx_mlir.errors import InputError, shortened

Anything = TypeVar("Anything")

#: An option that is handed on by its name, such as those of `compile`: whoever takes it says of what type it is, and
#: checks it.
Option: TypeAlias = Any

#: What sizes can be at most: code computes with 64 bits.
LARGEST = 2**63 - 1
#: Characters of a value that a message shows.
_SHOWN = 120


class Unpicklable:
    """What lives in memory of this process: neither pickled nor copied, since both copies would write there.

    Each class says by `_instead` what is done in place of that.
    """

    __slots__ = ()
    _instead: ClassVar[str]

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"{type(self).__name__} objects are neither pickled nor copied: {self._instead}")


def shown(value: object) -> str:
    """An argument as messages show it."""
    return shortened(value, _SHOWN)


def is_text(value: object) -> bool:
    """Whether it is a string that files and MLIR can hold: halves of surrogate pairs are none."""
    try:
        return isinstance(value, str) and value.encode() is not None
    except UnicodeEncodeError:
        return False


def text(name: str, value: object, what: str = "a text") -> str:
    """A string that has an encoding."""
    if not is_text(value):
        raise InputError(f"'{name}' is {what}, but got {shown(value)}")
    return str(value)


def flag(name: str, value: object) -> bool:
    """True or False."""
    if not isinstance(value, bool | np.bool_):
        raise InputError(f"'{name}' is True or False, but got {shown(value)}")
    return bool(value)


def whole(name: str, value: object, least: int = 0, most: int = LARGEST) -> int:
    """A whole number in a range, both ends included."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not least <= int(value) <= most:
        beyond = isinstance(value, int | np.integer) and value > most
        limits = f"of at least {least}" if most == LARGEST and not beyond else f"from {least} to {most}"
        raise InputError(f"'{name}' is a whole number {limits}, but got {shown(value)}")
    return int(value)


def real(name: str, value: object) -> float:
    """A number that isn't complex; NaN and infinity are left for the caller."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | float | np.integer | np.floating):
        raise InputError(f"'{name}' is a number, but got {shown(value)}")
    try:
        return float(value)
    except OverflowError:
        raise InputError(f"'{name}' is a number that f64 can hold, but got {shown(value)}") from None


def choice(name: str, value: Anything, known: Collection[object]) -> Anything:
    """One of several values; arrays and the like are none, and don't take part in comparisons."""
    if not any(type(value) is type(each) and value == each for each in known):
        raise InputError(f"'{name}' expects one of {', '.join(map(str, known))}, but got {shown(value)}")
    return value


def mapping(name: str, value: object, what: str = "a mapping") -> Mapping[str, Any]:
    """A mapping whose keys are texts."""
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise InputError(f"'{name}' is {what}, by name, but got {shown(value)}")
    return value


def names(name: str, value: object) -> tuple[str, ...]:
    """Several texts; one text alone isn't several."""
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable) or getattr(value, "ndim", 1) != 1:
        raise InputError(f"'{name}' expects several names, but got {shown(value)}")
    listed = list(value)
    if not all(is_text(each) for each in listed):
        raise InputError(f"'{name}' expects several names, but got {shown(value)}")
    return tuple(listed)


def sizes(name: str, value: object) -> tuple[int, ...]:
    """A shape of static sizes whose elements can be counted."""
    if isinstance(value, str | bytes) or not isinstance(value, Sequence):
        raise InputError(f"'{name}' is a sequence of sizes, but got {shown(value)}")
    found = tuple(whole(name, each) for each in value)
    count = 1
    for size in found:
        count *= size or 1
    if count > LARGEST // 16:
        raise InputError(f"'{name}' has sizes that memory can hold, but got {shown(value)}")
    return found


def element_type(name: str, value: Any) -> np.dtype:
    """A type of numpy, with numbers for elements."""
    try:
        found: np.dtype | None = np.dtype(value)
    except Exception:  # numpy raises many kinds
        found = None
    if found is None or found.hasobject or value is None:
        raise InputError(f"'{name}' is an element type, but got {shown(value)}")
    return found


def path(name: str, value: object) -> Path:
    """The path of a file or folder."""
    found = os.fspath(value) if isinstance(value, str | os.PathLike) else None
    try:
        fits = isinstance(found, str) and bool(found) and b"\0" not in os.fsencode(found)
    except UnicodeEncodeError:
        fits = False
    if not fits or not isinstance(found, str):
        raise InputError(f"'{name}' is a path, but got {shown(value)}")
    return Path(found)


def callback(name: str, value: Anything, *arguments: str) -> Anything:
    """A function that takes so many arguments; what it raises is its own."""
    fits = callable(value)
    if callable(value):
        try:
            inspect.signature(value).bind(*arguments)
        except TypeError:
            fits = False
        except ValueError:  # some of Python's own functions have no signature
            pass
    if not fits:
        raise InputError(f"'{name}' is a function of ({', '.join(arguments)}), but got {shown(value)}")
    return value


__all__ = [
    "LARGEST",
    "callback",
    "choice",
    "element_type",
    "flag",
    "is_text",
    "mapping",
    "names",
    "path",
    "real",
    "shown",
    "sizes",
    "text",
    "whole",
]
