# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The states of one sequence, where layers have such in place of keys and values: see `delta`. Others have none."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from rlx_mlir.runtime.description import RunArray

from .caches import state_shapes
from .core import Core
from .memory import clear, copied, write

Arrays = Mapping[str, RunArray]


class States:
    """What a sequence knows of its tokens so far, but for keys and values.

    States don't go back by themselves. Behind tokens that `extend` processed they are still those before them, and the
    trails of these tokens are held until `settle` is told how many stay. A mark is a copy that can be gone back to.
    Behind steps that a GPU runs ahead they are those of further tokens than are asked for (`ahead`).

    Attributes:
        arrays: by name, [1, …] f32, where caches are, to be read and updated in place by modules.
        begin: tokens that the states are of, where trails are held; None where they are of all.
        are_ahead: whether they may be those of tokens that nobody asked for; until `load`, or `clear`.
    """

    def __init__(self, model: Core) -> None:
        zeros = model.programs.decode.zeros
        self.arrays = {
            name: zeros((1, *shape), np.dtype(np.float32)) for name, shape in state_shapes(model.config).items()
        }
        self.begin: int | None = None
        self.are_ahead = False
        self._model = model
        self._trails: dict[str, np.ndarray] = {}
        self._mark: tuple[int, dict[str, RunArray]] | None = None

    def __bool__(self) -> bool:
        return bool(self.arrays)

    def clear(self) -> None:
        """Forgets all tokens."""
        self.begin, self.are_ahead = None, False
        for array in self.arrays.values():
            clear(array)

    def copied(self) -> dict[str, RunArray]:
        """The states as they are; no trails are held."""
        assert self.begin is None
        assert not self.are_ahead
        return {name: copied(array) for name, array in self.arrays.items()}

    def load(self, given: Arrays) -> None:
        """Takes states over."""
        self.begin, self.are_ahead = None, False
        for name, array in self.arrays.items():
            write(array, given[name])

    def hold(self, begin: int, trails: Mapping[str, np.ndarray]) -> None:
        """Keeps the trails of tokens behind the first ``begin``, of which the states are."""
        if self:
            self.begin, self._trails = begin, dict(trails)

    def settle(self, count: int) -> None:
        """Moves the states to the first ``count`` tokens, where trails are held."""
        if self.begin is None:
            return
        steps, self.begin = count - self.begin, None
        if not steps:
            return
        inputs: dict[str, RunArray] = {**{name: rows[:, :steps] for name, rows in self._trails.items()}, **self.arrays}
        settle = self._model.programs.get("settle")
        with self._model.turn:
            settle.run(inputs, donate=self.arrays.keys())

    def mark(self, count: int) -> None:
        """Notes the states, which are of the first ``count`` tokens, in place of those that were noted before."""
        if self and self._mark is None:
            self._mark = count, self.copied()
        elif self._mark is not None:
            for name, array in self._mark[1].items():
                write(array, self.arrays[name])
            self._mark = count, self._mark[1]

    def keep(self, count: int) -> None:
        """Forgets all tokens but the first ``count``: the noted states where those are of more."""
        if self._mark is not None and self._mark[0] > count:
            self._mark = None
        if not count:
            self.clear()

    def marked(self, most: int) -> int:
        """How many tokens the noted states are of; 0 where those are more than ``most``, or there are none."""
        return self._mark[0] if self._mark is not None and self._mark[0] <= most else 0

    def return_to_mark(self) -> None:
        """Goes back to the noted states."""
        assert self._mark is not None
        self.load(self._mark[1])


__all__ = ["Arrays", "States"]
