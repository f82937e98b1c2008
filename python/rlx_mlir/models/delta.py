# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Layers whose past is a state of one size, not keys and values of each token: gated delta rules, and what they read.

Of a token x, a layer makes

    m = x Wm                              of all heads: queries, keys, values
    c = silu(sum_j w_j m_(t - K + 1 + j)) each channel over the last K tokens
    q, k, v                               of c; q and k of unit length, those of key head i for value heads i, i + Hk, …
    b = sigmoid(x Wb)                     the strength of each head's correction
    g = a softplus(x Wa + d)              the logarithm of its decay, a < 0

and from the memory M of a head, [n, n], with e^g M in its place first,

    M = M + k (b (v - k M))^T             o = q M / sqrt(n)

and gives (norm(o) silu(x Wz)) Wo. What the next token needs is M, and the last K - 1 rows of m: `conv_<layer>`
[B, K - 1, channels] and `delta_<layer>` [B, Hv, n, n], f32. Steps are taken one after the other, so that a token has
the same bits however calls are cut. In Qwen3-Next key head i is for value heads i r, …, i r + r - 1, r = Hv / Hk.

States don't go back. Several tokens that may be refused are processed without changing them, and what the states
depend on is kept as a trail, `trail_<layer>` [1, tokens, channels + 2 Hv]: m, g and b of each token. When it's known
how many tokens stay, `settle` takes so many steps.
"""

from __future__ import annotations

from typing import NamedTuple


class Delta(NamedTuple):
    """Sizes of the heads, which all such layers of a model have alike.

    Attributes:
        keys: heads of queries and keys.
        values: heads of values, and memories; a multiple of `keys`.
        size: elements of a head.
        taps: tokens that a channel sees.
        layers: the layers that are such ones.
    """

    keys: int
    values: int
    size: int
    taps: int
    layers: tuple[int, ...]

    @property
    def channels(self) -> int:
        """Elements of queries, keys and values of all heads."""
        return (2 * self.keys + self.values) * self.size

    @property
    def trail(self) -> int:
        """Elements of what a token's steps depend on."""
        return self.channels + 2 * self.values

    def sizes(self) -> dict[str, int]:
        """Sizes by the names that tensor rules use."""
        return {
            "delta_channels": self.channels,
            "delta_values": self.values * self.size,
            "delta_heads": self.values,
            "delta_steps": 2 * self.values,
            "delta_size": self.size,
            "taps": self.taps,
        }

    def states(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the states of one sequence by name, in the order of layers."""
        conv, memory = (self.taps - 1, self.channels), (self.values, self.size, self.size)
        return {name: shape for i in self.layers for name, shape in ((f"conv_{i}", conv), (f"delta_{i}", memory))}


__all__ = ["Delta"]
