# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A block as Mixtral has them: causal attention, and a mixture of experts, of sequences of any length."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from networks.base import Shapes


@dataclass(frozen=True)
class MixtureOfExperts:
    """Attention whose heads share keys and values, and experts of which each token has its own few.

    Attributes:
        width: elements of a token.
        heads: of queries.
        shared: of keys and values.
        hidden: elements inside of an expert.
        experts: how many there are.
        chosen: how many a token has.
        maxima: see `Network`.
    """

    width: int = 1024
    heads: int = 8
    shared: int = 2
    hidden: int = 3584
    experts: int = 8
    chosen: int = 2
    maxima: Mapping[str, int] = field(default_factory=lambda: {"s": 1024})

    @property
    def input_shape(self) -> tuple[int | str, ...]:
        """One sequence, [1, s, width]."""
        return (1, "s", self.width)

    def shapes(self) -> Shapes:
        """See `Network`."""
        n, narrow = self.width, self.width // self.heads * self.shared
        found: Shapes = {"q": (n, n), "k": (n, narrow), "v": (n, narrow), "out": (n, n), "router": (n, self.experts)}
        found |= dict.fromkeys(("gate", "up"), (self.experts, n, self.hidden))
        found["down"] = (self.experts, self.hidden, n)
        return {**found, "attention.factor": (n,), "mixture.factor": (n,)}

    def __call__(self, f: Any, x: Any, w: Mapping[str, Any]) -> Any:
        """[1, s, width]"""
        y = f.rms_norm(x, w["attention.factor"], 1e-5)
        q, k, v = (f.linear(y, w[name]) for name in "qkv")
        x = x + f.linear(f.attention(q, k, v, self.heads, self.shared, True), w["out"])
        tokens = f.reshape(f.rms_norm(x, w["mixture.factor"], 1e-5), (-1, self.width))
        scores, experts = f.top_k(f.linear(tokens, w["router"]), self.chosen)
        products = [w[name] for name in ("gate", "up", "down")]
        mixed = f.mixture(tokens, experts, f.softmax(scores), products, self.experts)
        return x + f.reshape(mixed, (1, -1, self.width))
