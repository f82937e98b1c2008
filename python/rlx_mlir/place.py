# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Where in the user's program something happened: for errors and locations. Needs no MLIR."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from rlx_mlir.errors import InputError, StageError

Function = TypeVar("Function", bound=Callable[..., object])

#: The folder of this package.
PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep

#: Where threads begin, which is nobody's line: who started them says where.
_THREADS = ("threading.py", os.path.join("concurrent", "futures", "thread.py"))


@dataclass(frozen=True)
class Place:
    """A line of a program."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


Kind = TypeVar("Kind", bound=Place)


def caller(skipped: str | tuple[str, ...] = PACKAGE) -> Place:
    """The innermost frame whose file isn't in a folder, or in one of several; by default that of this package."""
    return caller_as(Place, skipped)


def caller_as(kind: type[Kind], skipped: str | tuple[str, ...]) -> Kind:
    """The same as a place of some kind; the caller of this function is in one of the folders."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(skipped):
        frame = frame.f_back
    return kind(frame.f_code.co_filename, frame.f_lineno)


#: Of a function's flags: it is `async def`.
_COROUTINE = 0x80


def located(function: Function) -> Function:
    """Makes errors about what a caller gave start with the caller's file and line; of coroutines, too."""

    @functools.wraps(function)
    def wrapper(*arguments: object, **options: object) -> object:
        try:
            return function(*arguments, **options)
        except (InputError, StageError) as error:
            raise _placed(error) from None

    @functools.wraps(function)
    async def coroutine(*arguments: object, **options: object) -> object:
        try:
            return await function(*arguments, **options)  # type: ignore[misc]
        except (InputError, StageError) as error:
            raise _placed(error) from None

    is_coroutine = function.__code__.co_flags & _COROUTINE
    return coroutine if is_coroutine else wrapper  # type: ignore[return-value]


def _placed(error: InputError | StageError) -> InputError | StageError:
    """The error with the place that the package was called from, where it has none yet."""
    if type(error) not in (InputError, StageError) or hasattr(error, "place"):
        return error
    place = caller()
    if place.file.endswith(_THREADS):
        return error
    found = type(error)(f"{place}: {error}")
    found.place = place  # type: ignore[union-attr]
    return found
