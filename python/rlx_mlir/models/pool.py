# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Keys and values of several sequences side by side, as a module reads them that processes them together."""

from __future__ import annotations

import mmap
from collections.abc import Mapping, Sequence

import numpy as np

from .caches import CacheType
from .memory import copy_rows


class Pool:
    """Caches [rows, context, width], of which each row is for one sequence.

    Memory is taken by pages of the system where keys and values are written, and given back where a row is cleared: a
    row takes as much as its sequence is long, not as much as the context.

    Where layers have states in place of keys and values, a row has these, too: zeros before its first token.

    Attributes:
        caches: by name.
        states: by name, [rows, …].
    """

    def __init__(
        self, rows: int, context: int, types: Mapping[str, CacheType], states: Mapping[str, tuple[int, ...]]
    ) -> None:
        """Takes addresses for so many rows, and no memory.

        Args:
            rows: how many sequences.
            context: positions of each.
            types: what each cache holds, by name.
            states: shapes of the states of one sequence, by name.
        """
        self._memory: dict[str, mmap.mmap] = {}
        self.caches: dict[str, np.ndarray] = {}
        for name, type in types.items():
            self._memory[name] = mmap.mmap(-1, max(rows * context * type.nbytes, 1))
            self.caches[name] = np.ndarray((rows, context, type.width), type.dtype, self._memory[name])
        self.states = {name: np.zeros((rows, *shape), np.float32) for name, shape in states.items()}

    @property
    def updated(self) -> set[str]:
        """Names of what modules update in place."""
        return {*self.caches, *self.states}

    def view(self, start: int, stop: int) -> dict[str, np.ndarray]:
        """Rows start .. stop - 1 of each cache, and of each state."""
        return {name: array[start:stop] for name, array in (*self.caches.items(), *self.states.items())}

    def rows(self, row: int, count: int) -> dict[str, np.ndarray]:
        """The first ``count`` positions of a row, [count, width] by name: views."""
        return {name: cache[row, :count] for name, cache in self.caches.items()}

    def load(self, row: int, count: int, parts: Sequence[Mapping[str, np.ndarray]]) -> None:
        """Copies keys and values of ``count`` positions into a row; ``parts`` are those of `copy_rows`."""
        copy_rows(parts, self.caches, row, 0, count)

    def move(self, source: int, target: int, count: int) -> None:
        """Copies the first ``count`` positions of a row to another one, and clears it."""
        self.load(target, count, [self.rows(source, count)])
        for state in self.states.values():
            state[target] = state[source]
        self.clear(source, count)

    def clear(self, row: int, count: int) -> None:
        """Gives back the memory of a row whose first ``count`` positions were written: whole pages of it."""
        for state in self.states.values():
            state[row] = 0
        for name, cache in self.caches.items():
            size = cache[row].nbytes
            begin, end = row * size, row * size + cache[row, :count].nbytes
            begin += -begin % mmap.PAGESIZE
            end -= end % mmap.PAGESIZE
            if begin < end:
                self._memory[name].madvise(mmap.MADV_DONTNEED, begin, end - begin)


__all__ = ["Pool"]
