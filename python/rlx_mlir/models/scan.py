# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Layers whose past is the state of a selective scan, as in Mamba 2, in place of attention or beside it.

Of a token x, a layer makes

    z, m, d = x Wi                              a gate, what is mixed, and the size of each head's step
    c = silu(sum_j w_j m_(t - K + 1 + j) + v)   each channel over the last K tokens
    u, b, r = c                                 inputs of all heads; of groups, how they go into states and are read
    d = softplus(d + s)                         the step, within limits where a model has some

and from the state H of a channel of a head, n numbers, with e^(a d) H in its place first, a < 0,

    H = H + d u b                           y = H . r + D u

and gives (norm(y silu(z))) Wo, where each group has a norm of its own, or y silu(z) where there is none. What the next
token needs is H, and the last K - 1 rows of m: `scan_<layer>` [B, inner, n] and `conv_<layer>` [B, K - 1, channels],
f32. As states of delta rules they don't go back; the trail of tokens that may be refused, `trail_<layer>` [1, tokens,
channels + heads], is m and d of each, see `delta`.

The scan has one rate for all channels, 1: a head's time is measured in units of its own
decay, so that kernels needn't read a rate for each number of a state.

Steps are taken one after the other, in prompts, too. The chunked form, by products, would give a token other bits with
each cut of its prompt; the kernel keeps the states of some channels in the processor's cache meanwhile, so that each
byte of a state is read and written once in a call, however many tokens that has.
"""

from __future__ import annotations

from typing import NamedTuple


class Scan(NamedTuple):
    """Sizes of the scans, which all such layers of a model have alike.

    Attributes:
        inner: channels of all heads.
        heads: that share a step and a rate of decay; they divide `inner`.
        groups: of heads beside each other, which share b and r; they divide `heads`.
        numbers: of a channel's state.
        taps: tokens that a channel sees.
        layers: the layers that have such ones.
        least, most: between which steps lie; None where there is no largest one.
    """

    inner: int
    heads: int
    groups: int
    numbers: int
    taps: int
    layers: tuple[int, ...]
    least: float = 0.0
    most: float | None = None

    @property
    def size(self) -> int:
        """Channels of a head."""
        return self.inner // self.heads

    @property
    def channels(self) -> int:
        """Elements of what is mixed: inputs of all heads, and b and r of all groups."""
        return self.inner + 2 * self.groups * self.numbers

    @property
    def trail(self) -> int:
        """Elements of what a token's steps depend on."""
        return self.channels + self.heads

    def sizes(self) -> dict[str, int]:
        """Sizes by the names that tensor rules use."""
        return {
            "scan_inputs": self.inner + self.channels + self.heads,
            "scan_channels": self.channels,
            "scan_inner": self.inner,
            "scan_heads": self.heads,
            "scan_groups": self.groups,
            "scan_group": self.inner // self.groups,
            "taps": self.taps,
            "one": 1,
        }

    def states(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the states of one sequence by name, in the order of layers."""
        conv, memory = (self.taps - 1, self.channels), (self.inner, self.numbers)
        return {name: shape for i in self.layers for name, shape in ((f"conv_{i}", conv), (f"scan_{i}", memory))}


__all__ = ["Scan"]
