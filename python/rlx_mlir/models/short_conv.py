# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Layers with a short convolution in place of attention, as LFM2's: their past is the last few rows of what they mix.

Of a token x, a layer makes

    b, c, u = x Wi                              each as wide as x
    m = b u
    y = (c sum_j w_j m_(t - K + 1 + j)) Wo      each channel over the last K tokens

What the next token needs is the last K - 1 rows of m, `conv_<layer>` [B, K - 1, hidden], f32. As states of delta rules
they don't go back; the trail of tokens that may be refused is m, `trail_<layer>` [1, tokens, hidden], see `delta`.
"""

from __future__ import annotations

from typing import NamedTuple


class ShortConv(NamedTuple):
    """Sizes of the convolutions, which all such layers of a model have alike.

    Attributes:
        channels: the width of the residual stream.
        taps: tokens that a channel sees.
        layers: the layers that are such ones.
    """

    channels: int
    taps: int
    layers: tuple[int, ...]

    @property
    def trail(self) -> int:
        """Elements of what a token's step depends on."""
        return self.channels

    def sizes(self) -> dict[str, int]:
        """Sizes by the names that tensor rules use."""
        return {"conv_inputs": 3 * self.channels, "taps": self.taps}

    def states(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the states of one sequence by name, in the order of layers."""
        return {f"conv_{i}": (self.taps - 1, self.channels) for i in self.layers}


__all__ = ["ShortConv"]
