# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Choosing the next token from logits."""

from __future__ import annotations

import copy
import math
from typing import overload

import numpy as np
import numpy.typing as npt

from .. import checks
from ..boundary import foreign_errors
from ..errors import InputError

_Ids = npt.NDArray[np.int64]

_BELOW_ONE = 1 - 2.0**-24
"""The largest f32 below 1."""


class Sampler:
    """Draws token ids from logits, in this order:

    1. divide by ``temperature``;
    2. keep the ``top_k`` largest (of equal ones, those of smaller index); 0 keeps all;
    3. softmax over what is kept;
    4. keep the shortest run of most likely tokens whose probabilities reach ``top_p``; 1.0 keeps all;
    5. keep those at least ``min_p`` times as likely as the likeliest; 0 keeps all;
    6. renormalise and draw.

    Both 4 and 5 look at the probabilities of 3, so that the shorter of two runs is kept, whichever comes first.
    ``min_p`` is from Nguyen et al., "Turning Up the Heat: Min-p Sampling for Creative and Coherent LLM Outputs", 2024.

    ``greedy`` or a temperature of 0 takes the largest logit, of equal ones the first. Two samplers with the same
    parameters and ``seed`` make the same choices for the same logits; each has its own stream, and ``seed=None``
    takes one from the system. Probabilities are f64. Logits of -inf are never chosen.

    Each choice takes one random number, so that they can be made ahead: where a GPU chooses (`mir.sample`, in f32), it
    gets them as `draws`, and makes the same choices, unless a number lies within rounding of a bound.
    """

    def __init__(
        self,
        temperature: float = 0.8,
        top_k: int = 40,
        top_p: float = 0.95,
        seed: int | None = None,
        greedy: bool = False,
        min_p: float = 0.0,
    ) -> None:
        """Raises InputError where temperature, top_k or seed is below 0, top_p not in (0, 1] or min_p not in [0, 1]."""
        if not (math.isfinite(checks.real("temperature", temperature)) and temperature >= 0):
            raise InputError(f"'temperature' must be finite and at least 0, but is {temperature}")
        checks.whole("top_k", top_k)
        if not 0 < checks.real("top_p", top_p) <= 1:
            raise InputError(f"'top_p' must be in (0, 1], but is {top_p}")
        if not 0 <= checks.real("min_p", min_p) <= 1:
            raise InputError(f"'min_p' must be in [0, 1], but is {min_p}")
        if seed is not None:
            checks.whole("seed", seed, most=2**128 - 1)
        checks.flag("greedy", greedy)
        self.temperature = float(temperature)
        self.top_k = int(top_k)
        self.top_p = float(top_p)
        self.min_p = float(min_p)
        self.seed = seed
        self.greedy = greedy or temperature == 0
        self._random = np.random.Generator(np.random.PCG64(seed))

    def __repr__(self) -> str:
        if self.greedy:
            return "Sampler(greedy=True)"
        return (
            f"Sampler(temperature={self.temperature}, top_k={self.top_k}, top_p={self.top_p}, min_p={self.min_p}, "
            f"seed={self.seed})"
        )

    def clone(self) -> Sampler:
        """Another sampler in the same state: both make the same choices from here on, each with its own stream."""
        twin = copy.copy(self)
        twin._random = copy.deepcopy(self._random)
        return twin

    @overload
    def __call__(self, logits: np.ndarray[tuple[int], np.dtype[np.floating]]) -> int: ...
    @overload
    def __call__(self, logits: np.ndarray) -> int | _Ids: ...
    def __call__(self, logits: np.ndarray) -> int | _Ids:
        """Chooses from logits ``[vocab]`` (an int) or ``[batch, vocab]`` (int64 ``[batch]``, drawn in order).

        Raises InputError where a logit is NaN or +inf, where all of a row are -inf, and for other shapes.
        """
        if not isinstance(logits, np.ndarray):
            raise InputError(f"'logits' is an array, but got {checks.shown(logits)}")
        if logits.ndim == 2:
            return np.array([self._choose(row, index) for index, row in enumerate(logits)], np.int64)
        if logits.ndim != 1:
            raise InputError(f"'logits' must be [vocab] or [batch, vocab], but has the shape {list(logits.shape)}")
        return self._choose(logits, None)

    def needs_at_most(self, count: int) -> bool:
        """Whether `mir.sample` chooses as this sampler does, of the ``count`` largest logits; it has no ``min_p``."""
        return self.greedy or (0 < self.top_k <= count and not self.min_p)

    def controls(self, candidates: int) -> npt.NDArray[np.float32]:
        """What `mir.sample` reads of a sampler for which `needs_at_most` of so many candidates holds, [3]."""
        return np.array([0 if self.greedy else self.temperature, self.top_k or candidates, self.top_p], np.float32)

    def draws(self, count: int) -> npt.NDArray[np.float32]:
        """The random numbers in [0, 1) that the next ``count`` choices take, for `mir.sample`; they are used up."""
        if self.greedy:
            return np.zeros(count, np.float32)
        return np.minimum(self._random.random(count), _BELOW_ONE).astype(np.float32)

    def probabilities(self, logits: np.ndarray) -> tuple[_Ids, npt.NDArray[np.float64]]:
        """Ids that can be drawn from logits ``[vocab]``, the most likely first, and their probabilities (sum 1)."""
        return self._distribution(checked_logits(logits, None))

    def _choose(self, logits: np.ndarray, row: int | None) -> int:
        values = checked_logits(logits, row)
        if self.greedy:
            return int(np.argmax(values))
        return self._draw(*self._distribution(values))

    def _draw(self, ids: _Ids, probabilities: npt.NDArray[np.float64]) -> int:
        cumulative = np.cumsum(probabilities)
        drawn = np.searchsorted(cumulative, self._random.random() * cumulative[-1], side="right")
        return int(ids[min(int(drawn), len(ids) - 1)])

    def _distribution(self, values: npt.NDArray[np.float32]) -> tuple[_Ids, npt.NDArray[np.float64]]:
        if self.greedy:
            return np.array([np.argmax(values)], np.int64), np.ones(1)
        ids = _largest(values, self.top_k)
        kept = values[ids].astype(np.float64)
        with np.errstate(over="ignore", under="ignore"):  # of tiny temperatures: what isn't the largest has weight 0
            weights = np.exp((kept - kept.max()) / self.temperature)
        probabilities = weights / weights.sum()
        if self.min_p:  # before they are sorted: of a whole vocabulary, few are left
            likely = weights >= self.min_p
            ids, probabilities = ids[likely], probabilities[likely]
        order = np.argsort(-values[ids], kind="stable")
        ids, probabilities = ids[order], probabilities[order]
        if self.top_p < 1:
            count = int(np.searchsorted(np.cumsum(probabilities), self.top_p)) + 1
            ids, probabilities = ids[:count], probabilities[:count]
        if self.min_p or self.top_p < 1:
            probabilities = probabilities / probabilities.sum()
        return ids, probabilities


def largest_ids(values: npt.NDArray[np.float32], count: int) -> _Ids:
    """Indices of the ``count`` largest values, the largest first, of equal ones the first; 0 is all. Never of -inf."""
    ids = _largest(values, count)
    return ids[np.argsort(-values[ids], kind="stable")]


def _largest(values: npt.NDArray[np.float32], count: int) -> _Ids:
    """The same indices in ascending order."""
    size = len(values)
    if not 0 < count < size:
        return np.flatnonzero(values > -np.inf)
    threshold = np.partition(values, size - count)[size - count]
    above = np.flatnonzero(values > threshold)
    if threshold == -np.inf:
        return above
    equal = np.flatnonzero(values == threshold)[: count - len(above)]
    return np.union1d(above, equal)


def checked_logits(logits: np.ndarray, row: int | None) -> npt.NDArray[np.float32]:
    """``logits`` [vocab] as f32, a copy, if one can choose from them; ``row`` is for errors."""
    where = "'logits'" if row is None else f"'logits' of row {row}"
    if not isinstance(logits, np.ndarray) or logits.dtype.kind not in "fiuV":  # V: bf16, which is ml_dtypes'
        raise InputError(f"{where} is an array of numbers, but got {checks.shown(logits)}")
    if logits.ndim != 1 or logits.size == 0:
        raise InputError(f"{where} must be [vocab] and not empty, but has the shape {list(logits.shape)}")
    with foreign_errors(f"{where} can't be read as f32"):
        values = np.array(logits, np.float32)
    bad = np.isnan(values)
    if bad.any():
        raise InputError(
            f"{where} must not be NaN, but {int(bad.sum())} of {values.size} are, the first at {int(bad.argmax())}"
        )
    largest = values.max()
    if not np.isfinite(largest):
        raise InputError(f"the largest of {where} must be finite, but is {largest} at {int(values.argmax())}")
    return values
