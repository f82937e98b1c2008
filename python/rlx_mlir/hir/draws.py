# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Builders of random numbers that follow from a seed, and of tokens that are drawn by them.

The generator is Philox 4x32 with ten rounds, with the first multiplier that the reference API has, 0xD2561A75
(published is 0xD2511F53): its streams are the same.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from rlx_mlir import checks
from rlx_mlir.hir import place
from rlx_mlir.hir.checked import checked
from rlx_mlir.hir.graph import axis_within
from rlx_mlir.hir.scans import ScanBuilders
from rlx_mlir.hir.types import Options
from rlx_mlir.hir.values import Value

if TYPE_CHECKING:
    from typing_extensions import Unpack

#: Multipliers, what keys grow by, and the number of rounds.
_MULTIPLIERS, _WEYL, _ROUNDS = (0xD2561A75, 0xCD9E8D57), (0x9E3779B9, 0xBB67AE85), 10
_LOW = 0xFFFFFFFF
#: The seed of tokens that are drawn with the seed 0.
_DEFAULT_SEED = 0xDEADBEEF


@checked
class Draws(ScanBuilders):
    """The builders."""

    def uniform(self, like: Value, axis: int, *, seed: int, **options: Unpack[Options]) -> Value:
        """As many random numbers in [0, 1) as another value is long along a dimension: f32 [n].

        Args:
            like: whose size it is.
            axis: its dimension.
            seed: from 0 to 2^64 - 1; the same numbers come from the same seed, on any machine.
        """
        number, axis = _seed(seed), axis_within(like, axis)
        places = self.iota([like.shape[axis]], 0, "i64")
        state = [self.floor_div(places, 4), *[self.mul(places, 0) for _ in range(3)]]
        key = [number & _LOW, number >> 32]
        for _ in range(_ROUNDS):
            state = self._round(state, key)
            key = [(own + step) & _LOW for own, step in zip(key, _WEYL, strict=True)]
        word = self.floor_rem(places, 4)
        chosen = state[3]
        for number in (2, 1, 0):
            chosen = self.where(self.eq(word, number), state[number], chosen)
        return self.mul(self.cast(self.floor_div(chosen, 256), "f32"), 2.0**-24, **options)

    def _round(self, state: list[Value], key: list[int]) -> list[Value]:
        """One round: products of two words, of which halves are mixed with the others. Words are i64 below 2^32."""
        products = [self.mul(state[2 * i], factor) for i, factor in enumerate(_MULTIPLIERS)]
        low = [self.bitwise_and(product, _LOW) for product in products]
        high = [self.bitwise_and(self.floor_div(product, 1 << 32), _LOW) for product in products]
        mixed = [self.bitwise_xor(self.bitwise_xor(high[1 - i], state[2 * i + 1]), key[i]) for i in range(2)]
        return [mixed[0], low[1], mixed[1], low[0]]

    def sample_logits(
        self,
        logits: Value,
        *,
        top_k: int = 0,
        top_p: float = 1.0,
        temperature: float = 1.0,
        seed: int = 0,
        **options: Unpack[Options],
    ) -> Value:
        """A token for each row of logits [.., V], drawn by its share: i32 [..].

        The tokens of one call come from one stream of random numbers, a row after the other. Shares are those of the
        softmax of `logits / temperature`, of the tokens that are kept: ties with the last one of `top_k` stay.

        Args:
            logits: of floats, V known; of one row, [V], the token is [].
            top_k: how many of the largest are kept; 0 keeps all.
            top_p: of what is left, the largest tokens are kept whose shares reach this together.
            temperature: what logits are divided by, 1e-6 at least.
            seed: of the stream, from 0 to 2^64 - 1; 0 stands for 0xDEADBEEF.

        Raises BuildError where V isn't known, or a number isn't as is said here. `sample` is for generation in steps.
        """
        here = place.caller()
        seed = _seed(seed) or _DEFAULT_SEED
        if logits.ndim not in (1, 2) or not isinstance(logits.shape[-1], int) or not logits.shape[-1]:
            raise here.error(f"'logits' is [B, V] or [V] with a known V that isn't 0, but got {list(logits.shape)}")
        count = logits.shape[-1]
        if not top_k >= 0 or not 0 <= top_p <= 1 or not temperature >= 0:
            raise here.error(
                "'top_k' isn't negative, 'top_p' is from 0 to 1, and 'temperature' isn't negative, but got "
                f"{top_k}, {top_p} and {temperature}"
            )
        rows = logits if logits.ndim == 2 else self.reshape(logits, [1, count])
        scores = self.div(self.cast(rows, "f32"), max(float(temperature), 1e-6))
        if 0 < top_k < count:
            least = self.narrow(self.top_k(scores, top_k)[0], 1, top_k - 1, 1)
            scores = self.where(self.ge(scores, least), scores, -math.inf)
        shares = self.softmax(scores, -1)
        if top_p < 1:
            shares = self._most_likely(shares, count, float(top_p))
        draws = self.reshape(self.uniform(rows, 0, seed=seed), [-1, 1])
        below = self.cast(self.lt(self.cumsum(shares, -1), draws), "i32")
        tokens = self.minimum(self.sum(below, -1), count - 1)
        return self.reshape(tokens, [] if logits.ndim == 1 else [-2], **options)

    def _most_likely(self, shares: Value, count: int, top_p: float) -> Value:
        """The shares of the most likely tokens that reach `top_p` together, of their sum; 0 for the others."""
        ordered, positions = self.top_k(shares, count)
        before = self.cumsum(ordered, -1, exclusive=True)
        kept = self.sum(self.cast(self.lt(before, top_p), "i32"), -1, keep_dims=True)
        last = self.sub(self.maximum(kept, 1), 1)
        least, place_of = (self.gather(x, last, 1, batch_dims=1) for x in (ordered, positions))
        own = self.iota([count], 0, "i32")
        stays = self.bitwise_or(
            self.gt(shares, least), self.bitwise_and(self.eq(shares, least), self.le(own, place_of))
        )
        chosen = self.where(stays, shares, 0.0)
        return self.div(chosen, self.sum(chosen, -1, keep_dims=True))


def _seed(given: int) -> int:
    """The number of a stream; BuildError where it is none."""
    with place.checking():
        return checks.whole("seed", given, 0, 2**64 - 1)
