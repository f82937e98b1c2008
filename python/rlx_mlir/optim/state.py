# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a step of training has beside the module: names, and what optimisers keep before the first step."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

#: Names of what a step takes and gives beside what the module has.
RATE, NUMBER, NORM = "optim.rate", "optim.step", "optim.gradient_norm"
SCALE, GOOD = "optim.scale", "optim.good_steps"


def begin_of(name: str, shape: Sequence[int], dtype: npt.DTypeLike, scale: float | None) -> np.ndarray:
    """What is kept under a name, as it is before the first step: zeros, but the scale of the loss."""
    return np.full(tuple(shape), scale if name == SCALE else 0, dtype)
