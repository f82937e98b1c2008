# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Decoding on a GPU that chooses its tokens there: the host starts steps ahead, and reads tokens behind.

A step (the module `decode` with candidates, see `decoder.build`) reads its token and its position from the GPU's memory
and writes the next ones there, so that steps follow each other without the host. It also notes the token among those
that were chosen, of which the host reads a part whenever a batch of steps is over, while the next batch runs.

Steps that turn out to come after a stop have written keys and values of positions that nobody reads: what comes later
writes them again. States of layers (`delta`) they have moved on, which don't go back: copies on the GPU are noted now
and then, from the last one of which the steps that count are taken again.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from ..runtime.description import RunArray
from .memory import copied
from .sampling import Sampler

if TYPE_CHECKING:
    from ..runtime.cuda import CudaExecutable
    from ..runtime.device import DeviceArray

MOST_AHEAD = 8
"""Steps of a batch, which is one CUDA graph where it has as many. Two batches are under way at most, so that fewer than
three times as many steps come to nothing."""
NOTED_EVERY = 64
"""Steps after which states are noted again: more than come to nothing, so that one of the last two copies is of tokens
that stay. A copy waits for the steps under way."""
MOST_NOTED = 2
"""Copies that are kept."""


class Ahead:
    """The steps of one sequence."""

    def __init__(
        self,
        executable: CudaExecutable,
        caches: Mapping[str, DeviceArray],
        states: Mapping[str, DeviceArray],
        *,
        context: int,
        vocab: int,
        candidates: int,
        turn: threading.Lock,
    ) -> None:
        """Binds the steps.

        Args:
            executable: of the module `decode`.
            caches, states: those of the sequence; states where layers have such.
            context, vocab: positions of the caches, and how many logits there are.
            candidates: among how many of the largest logits a step chooses.
            turn: held while steps are started.
        """
        int32, float32 = np.dtype(np.int32), np.dtype(np.float32)
        zeros = executable.zeros
        self._candidates, self._turn = candidates, turn
        self.controls = zeros((1, 3), float32)
        self.draws = zeros((1, context), float32)
        self.chosen = zeros((1, context), int32)
        self.logits = zeros((1, 1, vocab), float32)
        # What a step writes the next one reads: there are two of each, and a step for either direction.
        self._tokens = [zeros((1, 1), int32) for _ in range(2)]
        self._positions = [zeros((1,), int32) for _ in range(2)]
        self._known = np.zeros(1, np.int32)
        steps = [
            executable.bind(
                {"tokens": self._tokens[own], "pos": self._positions[own], **self.inputs, **caches, **states},
                outputs={"logits": self.logits, "token": self._tokens[1 - own], "next": self._positions[1 - own]},
                donate=["chosen", *caches, *states],
                known={"pos": self._known},
            )
            for own in range(2)
        ]
        self._loop = executable.loop(steps)
        self._states = states
        self._noted: deque[tuple[int, dict[str, RunArray]]] = deque()
        self._parity = 0
        self._pos = 0  # of the token that the next step reads
        self._left = 0  # steps that may be started
        self._size = 1
        self._batches: deque[DeviceArray] = deque()
        self._read: deque[int] = deque()

    @property
    def inputs(self) -> dict[str, DeviceArray]:
        """What choosing reads."""
        return {"controls": self.controls, "draws": self.draws, "chosen": self.chosen}

    def start(self, sampler: Sampler, token: int, pos: int, most: int) -> None:
        """Goes on from a token at a position, with at most so many steps; what is still under way is forgotten."""
        self._batches.clear()
        self._read.clear()
        self._tokens[0].write(np.array([[token]], np.int32))
        self._positions[0].write(np.array([pos], np.int32))
        self.controls.write(sampler.controls(self._candidates)[None])
        self.draws.part(pos, pos + most).write(sampler.draws(most))
        self._parity, self._pos, self._left, self._size = 0, pos, most, 1
        self._noted.clear()
        self._note()

    def noted(self, count: int) -> tuple[int, Mapping[str, RunArray]]:
        """The states of at most `count` tokens, as many as were chosen and asked for, and of how many they are."""
        return next(own for own in reversed(self._noted) if own[0] <= count)

    def next(self) -> int:
        """The token of the next step; negative where none can be chosen. Raises DeviceError where a step failed."""
        if not self._read:
            self._fill()
            self._read.extend(self._batches.popleft().numpy().tolist())
            self._fill()  # before the caller works on what was read
        return self._read.popleft()

    def _fill(self) -> None:
        """Starts steps until two batches are under way."""
        with self._turn:
            while self._left and len(self._batches) < 2:
                self._issue()

    def _note(self) -> None:
        """Notes the states behind all steps that were started."""
        if len(self._noted) < MOST_NOTED:
            self._noted.append((self._pos, {name: copied(array) for name, array in self._states.items()}))
            return
        _, arrays = self._noted.popleft()
        for name, array in arrays.items():
            array.write(self._states[name])
        self._noted.append((self._pos, arrays))

    def _issue(self) -> None:
        """Starts a batch: the first is of one step, so that a stream of text begins soon, and later ones are longer."""
        if self._states and self._pos - self._noted[-1][0] >= NOTED_EVERY:
            self._note()
        count = min(self._size, self._left)
        first = self._pos
        self._pos += count
        self._known[0] = self._pos - 1
        self._loop(count, first=self._parity, joined=count == MOST_AHEAD)
        self._parity = (self._parity + count) % 2
        self._left -= count
        self._size = min(2 * self._size, MOST_AHEAD)
        self._batches.append(self.chosen.part(first, first + count))


__all__ = ["MOST_AHEAD", "NOTED_EVERY", "Ahead"]
