# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Values of a graph that were made of what a reader knows, each once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rlx_mlir.hir import Value


class Made:
    """What was made of which thing, by the regions that are being built."""

    def __init__(self) -> None:
        self._regions: list[dict[int, tuple[object, Value]]] = [{}]

    @contextmanager
    def region(self) -> Iterator[None]:
        """While it is open, values are made for the region that is built, and forgotten after it."""
        self._regions.append({})
        try:
            yield
        finally:
            self._regions.pop()

    def find(self, thing: object) -> Value | None:
        """The value of a thing, where it can be read from here."""
        return next((made[id(thing)][1] for made in reversed(self._regions) if id(thing) in made), None)

    def keep(self, thing: object, value: Value, *, everywhere: bool = False) -> Value:
        """Notes the value of a thing, in this region or `everywhere`, and gives it."""
        self._regions[0 if everywhere else -1][id(thing)] = (thing, value)
        return value


__all__ = ["Made"]
