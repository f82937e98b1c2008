# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Layers whose past is the state of a selective scan with rates of its own for each number, as in Mamba's first form.

Of a token x, a layer makes

    m, z = x Wi                                 what is mixed, and a gate
    u = silu(sum_j w_j m_(t - K + 1 + j) + v)   each channel over the last K tokens
    e, b, r = u Wx                              what steps are made of; how inputs go into states, and how they are read
    d = softplus(e Wd + s)                      the step of each channel

and from the state H of a channel, n numbers, with e^(d a) H in its place first, a < 0 a vector of the channel's own,

    H = H + d u b                               y = H . r + D u

and gives (y silu(z)) Wo. In Jamba, and without weights in Falcon-Mamba, e, b and r are divided by the root of their
mean square. What the next token needs is H, and the last K - 1 rows of m: `scan_<layer>` [B, inner, n] and
`conv_<layer>` [B, K - 1, inner], f32. As states of delta rules they don't go back; the trail of tokens that may be
refused, `trail_<layer>` [1, tokens, 2 inner + n], is m, d and b of each, see `delta`. Steps are taken one after the
other, as those of `scan` are.
"""

from __future__ import annotations

from typing import NamedTuple


class ChannelScan(NamedTuple):
    """Sizes of the scans, which all such layers of a model have alike.

    Attributes:
        inner: channels.
        rank: elements of what steps are made of.
        numbers: of a channel's state.
        taps: tokens that a channel sees.
        layers: the layers that have such ones.
        eps: of the norms of what is made of a token; None where there are none.
    """

    inner: int
    rank: int
    numbers: int
    taps: int
    layers: tuple[int, ...]
    eps: float | None = None

    @property
    def trail(self) -> int:
        """Elements of what a token's steps depend on."""
        return 2 * self.inner + self.numbers

    def sizes(self) -> dict[str, int]:
        """Sizes by the names that tensor rules use."""
        return {
            "scan_inputs": 2 * self.inner,
            "scan_inner": self.inner,
            "scan_rank": self.rank,
            "scan_numbers": self.numbers,
            "scan_made": self.rank + 2 * self.numbers,
            "taps": self.taps,
        }

    def states(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the states of one sequence by name, in the order of layers."""
        conv, memory = (self.taps - 1, self.inner), (self.inner, self.numbers)
        return {name: shape for i in self.layers for name, shape in ((f"conv_{i}", conv), (f"scan_{i}", memory))}


__all__ = ["ChannelScan"]
