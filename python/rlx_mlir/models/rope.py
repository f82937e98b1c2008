# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How fast the pairs of a head turn: frequencies, as they are or stretched for longer contexts.

Pair i of a head of which n elements are rotated turns by base^(-2i / n) for each position. Stretching by a factor
divides that, of all pairs, or by YaRN of those alone that turn a few times only within the context that the model was
made for: what turns often tells near positions apart, and stays as it is.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt


class Yarn(NamedTuple):
    """Which pairs are stretched.

    Attributes:
        original: positions that the model was made for at first.
        fast, slow: pairs that turn more often than ``fast`` times within these aren't stretched, those that turn less
            often than ``slow`` times are, by the whole factor; those between in part.
        whole: the bounds between these are whole numbers of pairs.
    """

    original: float
    fast: float = 32.0
    slow: float = 1.0
    whole: bool = True

    def kept(self, base: float, dims: int) -> npt.NDArray[np.float64]:
        """How much of each pair isn't stretched, from 0 to 1, [dims / 2]."""
        low, high = (self._pair(turns, base, dims) for turns in (self.fast, self.slow))
        if self.whole:
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, dims - 1)
        ramp = (np.arange(dims // 2) - low) / max(high - low, 1e-3)
        kept: npt.NDArray[np.float64] = 1.0 - np.clip(ramp, 0.0, 1.0)
        return kept

    def _pair(self, turns: float, base: float, dims: int) -> float:
        """The pair, as a number, that turns so many times within the original context."""
        return dims * math.log(self.original / (turns * 2 * math.pi)) / (2 * math.log(base))


def frequencies(base: float, dims: int, scale: float, yarn: Yarn | None) -> npt.NDArray[np.float64]:
    """By how much each pair turns for a position, [dims / 2], f64.

    Args:
        base: of the powers.
        dims: elements that are rotated.
        scale: what positions are divided by.
        yarn: in which pairs; None for all.
    """
    own = np.power(base, -2.0 * np.arange(dims // 2, dtype=np.float64) / dims)
    if yarn is None:
        return own / scale
    kept = yarn.kept(base, dims)
    return own / scale * (1.0 - kept) + own * kept


__all__ = ["Yarn", "frequencies"]
