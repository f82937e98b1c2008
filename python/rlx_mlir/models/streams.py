# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Models whose layers change several streams at once, as Gemma 3n's: what is beside attention and networks in these.

The streams of a token are x_0, which layers read, and x_1 to x_(n - 1): at first its row e of the table, and e Pi, as
long as e. A layer makes of them

    m = tanh(norm(x_0) R / hidden)          p_j = x_j + sum_i (m A)_ji x_i      what each is expected to become
    r = norm(p_0)                           l = r + norm(r L L')                a residual of low rank
    h = (p_0 + norm(attention(r)) + l) / sqrt(2)
    y = h + norm(network(norm(h)))
    m' = tanh(norm(y) R / hidden)           x_j = p_j + (1 + m' C)_j (y - p_0)  each is corrected by what became of one
    g = gelu((s x_0) G) v                   x_j = x_j + norm(g G')              for j > 0

where v is the layer's own part of what a token has for each layer, (norm(e W) + its row of a second table) / sqrt(2).
The head reads the mean of x_0 and x_j Uj, as long as x_0. Networks of some layers keep of their gates what is above the
mean by so many standard deviations, less that much. The last layers have no keys and values of their own, but read
those of the last one before them that sees as much. Values are divided by the root of their mean square.
"""

from __future__ import annotations

from typing import NamedTuple


class Streams(NamedTuple):
    """Sizes of all that, and what single layers are.

    Attributes:
        number: of streams.
        extra: elements that a token has for each layer.
        rank: of the residual of low rank.
        sources: for each layer, whose keys and values it reads: its own, or those of a layer before it.
        cutoffs: for each layer, how many standard deviations above the mean gates begin; None where all are kept.
    """

    number: int
    extra: int
    rank: int
    sources: tuple[int, ...]
    cutoffs: tuple[float | None, ...]

    def sizes(self) -> dict[str, int]:
        """Sizes by the names that tensor rules use."""
        return {
            "streams": self.number,
            "other_streams": self.number - 1,
            "stream_pairs": self.number**2,
            "extra": self.extra,
            "all_extra": self.extra * len(self.sources),
            "low_rank": self.rank,
        }

    @property
    def owners(self) -> tuple[int, ...]:
        """The layers with keys and values of their own."""
        return tuple(layer for layer, source in enumerate(self.sources) if layer == source)


__all__ = ["Streams"]
