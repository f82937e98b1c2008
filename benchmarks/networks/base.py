# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What networks have in common, and how their weights are drawn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

Shapes = dict[str, tuple[int, ...]]


class Network(Protocol):
    """One network: sizes, and what is computed."""

    #: Largest size of each symbol of the input, for which compiled code is planned.
    maxima: Mapping[str, int]

    @property
    def input_shape(self) -> tuple[int | str, ...]:
        """Of the only input, with symbols."""
        ...

    def shapes(self) -> Shapes:
        """The shape of each weight, by name."""
        ...

    def __call__(self, f: Any, x: Any, w: Mapping[str, Any]) -> Any:
        """The result by functions `f`, of values and weights that these take."""
        ...


def draw(network: Network, seed: int) -> dict[str, np.ndarray]:
    """Random weights that keep the size of what goes through.

    Names that end in `factor` are near 1, those in `shift` near 0; of other names, vectors and matrices are summed over
    all but the first dimension of convolutions, and all but the last of others. Names that end in `table` are small.
    Names that end in `rates` are drawn as Mamba begins: logarithms of 1, 2, ... along the last dimension.
    """
    rng = np.random.default_rng(seed)
    found = {}
    for name, shape in network.shapes().items():
        drawn = rng.standard_normal(shape).astype(np.float32)
        match name.rpartition(".")[2]:
            case "factor":
                drawn = 1 + drawn / 10
            case "shift" | "table":
                drawn = drawn / 10
            case "rates":
                drawn = np.broadcast_to(np.log(np.arange(1, shape[-1] + 1, dtype=np.float32)), shape).copy()
            case _:
                fan = int(np.prod(shape[1:])) if len(shape) == 4 else shape[-2]
                drawn = drawn * np.float32(fan**-0.5)
        found[name] = drawn
    return found
