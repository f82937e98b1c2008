# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Where a graph is built: the caller's file and line, for locations and errors."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from rlx_mlir import ir
from rlx_mlir import place as light
from rlx_mlir.errors import BuildError, InputError
from rlx_mlir.locations import block_name, source_line

__all__ = ["Place", "block_name", "caller", "checking", "source_line", "standing"]

#: Folders whose functions build for a caller: graphs, derivatives of them, graphs of files.
_OURS = tuple(os.path.join(light.PACKAGE, folder, "") for folder in ("hir", "autodiff", "frontends"))


@dataclass(frozen=True)
class Place(light.Place):
    """A line of the program that builds a graph."""

    def location(self, context: ir.Context, block: str) -> ir.Location:
        """The location of an operation that is built here, in a block of the given name."""
        file = ir.Location.file(self.file, self.line, 0, context)
        return ir.Location.name(block, file, context)

    def error(self, message: str, blocks: str = "") -> BuildError:
        """An error at this place, inside of named blocks."""
        where = f" in block '{blocks}':" if blocks else ""
        return BuildError(f"{self}:{where} {message}")


#: Where graphs are built while they are read from somewhere else: a line of that.
_STANDING: ContextVar[Place | None] = ContextVar("standing", default=None)


@contextmanager
def standing(file: str, line: int) -> Iterator[None]:
    """Within this, the caller is a line of another program: the one that a graph is read from."""
    token = _STANDING.set(Place(file, line))
    try:
        yield
    finally:
        _STANDING.reset(token)


def caller() -> Place:
    """The innermost frame that isn't of the graph API itself, or where `standing` says."""
    return _STANDING.get() or light.caller_as(Place, _OURS)


class checking:
    """With this, what `checks` and the like refuse is a BuildError at the caller's line; `what` is said before it."""

    def __init__(self, what: str = "") -> None:
        self._what = f"{what}: " if what else ""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if isinstance(error, InputError):
            raise caller().error(f"{self._what}{error}") from None
