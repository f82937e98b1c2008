# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Batches of arrays, in an order that a seed and the number of a step tell: nothing else has to be kept."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from rlx_mlir import checks
from rlx_mlir.arrays import as_array
from rlx_mlir.errors import InputError


class Batches:
    """A data set, of which every epoch has another order; the last entries that fill no batch wait for the next one."""

    def __init__(
        self, data: Mapping[str, object], size: int, *, seed: int = 0, accumulate: int = 1, shuffle: bool = True
    ) -> None:
        """Takes the data.

        Args:
            data: arrays by the name of the input that they are for, of one first size: the entries.
            size: entries of a batch.
            seed: of the order.
            accumulate: batches of a step, as of `train_step`; 1 for arrays without that dimension.
            shuffle: or the order of the data, in every epoch.

        Raises InputError where the arrays have different first sizes, or too few entries for a step.
        """
        given = checks.mapping("data", data, "a mapping from inputs to arrays")
        self._data = {name: as_array(f"'{name}'", value) for name, value in given.items()}
        counts = {name: len(array) if array.ndim else 0 for name, array in self._data.items()}
        if len(set(counts.values())) != 1:
            listed = ", ".join(f"'{name}' has {count}" for name, count in counts.items()) or "there are no arrays"
            raise InputError(f"the arrays of a data set have as many entries each, but {listed}")
        self.size, self.accumulate = checks.whole("size", size, 1), checks.whole("accumulate", accumulate, 1)
        self.seed, self.entries = checks.whole("seed", seed), next(iter(counts.values()))
        self.shuffle = checks.flag("shuffle", shuffle)
        if self.steps_per_epoch < 1:
            raise InputError(
                f"a step takes {self.size * self.accumulate} entries, but there are {self.entries} in the data set"
            )

    @property
    def steps_per_epoch(self) -> int:
        """The number of steps in which every entry is seen once, or up to a batch less."""
        return self.entries // (self.size * self.accumulate)

    def at(self, step: int) -> dict[str, np.ndarray]:
        """The arrays of a step, by its number from 0."""
        epoch, number = divmod(checks.whole("step", step), self.steps_per_epoch)
        count = self.size * self.accumulate
        rows = self._order(epoch)[number * count : (number + 1) * count]
        lead = (self.size,) if self.accumulate == 1 else (self.accumulate, self.size)
        return {name: array[rows].reshape(*lead, *array.shape[1:]) for name, array in self._data.items()}

    def _order(self, epoch: int) -> np.ndarray:
        if not self.shuffle:
            return np.arange(self.entries)
        return np.random.default_rng([self.seed, epoch]).permutation(self.entries)

    def __iter__(self) -> Iterator[dict[str, np.ndarray]]:
        """The arrays of every step of the first epoch."""
        return (self.at(step) for step in range(self.steps_per_epoch))
