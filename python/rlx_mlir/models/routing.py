# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""By which rule a router chooses the experts of a token; `router` builds it. Needs no MLIR."""

from __future__ import annotations

from typing import NamedTuple


class Routing(NamedTuple):
    """What differs from the softmax of all scores, of which the largest are chosen.

    Attributes:
        scores: ``softmax`` over all experts, ``sigmoid`` of each, or ``chosen``: the largest products are chosen, and
            softmax is of these alone. That is what weights divided by their sum are but for rounding, and but for
            products so far apart that softmax of all makes some 0. ``mixed``: those of the two largest products s and t
            are chosen; the weight of the first is that of s in the softmax of the products that are `near` it, and the
            weight of the second is that of t among the others, likewise.
        groups, groups_used: experts are in so many groups of equal size, and a token's are in so many of these: those
            with the largest score (softmax), or the largest sum of two (sigmoid). 1 where all may be chosen.
        scale: what the weights of the chosen ones are multiplied by.
        near: a product x is so near s where s - x is at most `near` times the larger one of |x| and s.
    """

    scores: str = "softmax"
    groups: int = 1
    groups_used: int = 1
    scale: float = 1.0
    near: float = 0.0


BY_SOFTMAX = Routing()
"""The largest of the softmax of all scores."""

OF_CHOSEN = Routing("chosen")
"""The softmax of the largest products."""


__all__ = ["BY_SOFTMAX", "OF_CHOSEN", "Routing"]
