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


def located(function: Function) -> Function:
    """Makes errors about what a caller gave start with the caller's file and line."""

    @functools.wraps(function)
    def wrapper(*arguments: object, **options: object) -> object:
        try:
            return function(*arguments, **options)
        except (InputError, StageError) as error:
            if type(error) not in (InputError, StageError) or hasattr(error, "place"):
                raise
            place = caller()
            if place.file.endswith(_THREADS):
                raise
            found = type(error)(f"{place}: {error}")
            found.place = place  # type: ignore[union-attr]
            raise found from None

    return wrapper  # type: ignore[return-value]
