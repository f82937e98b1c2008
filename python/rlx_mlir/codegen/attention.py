# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What kernels of attention compute with on every target: the range of keys that queries see, and scores.

Scores are kept in the domain of the base-2 logarithm, in which exp is one step less: queries are multiplied by
`scale * log2(e)`; with a softcap c by `scale / c`, and the capped score is `c * log2(e) * tanh(...)`. With a bias,
scores stay as they are, and their distances from the maximum are multiplied: a mask of the least finite number times
log2(e) would be -inf, which hides keys rather than ranking them last.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from rlx_mlir.codegen.emit import Emitter, Index, Value
from rlx_mlir.codegen.specs.attention import AttentionSpec

NEGATIVE_INFINITY = float("-inf")
LOG2_E = math.log2(math.e)


@dataclass(frozen=True)
class KeyRange:
    """Some queries of one batch element, whose position 0 is `offset`: no other keys than lo .. hi - 1 are seen."""

    offset: Index
    lo: Index
    hi: Index


class AttentionKernel:
    """One attention in a kernel."""

    def __init__(self, em: Emitter, spec: AttentionSpec) -> None:
        self.em, self.spec = em, spec
        scale = spec.head_dim**-0.5 if spec.scale is None else spec.scale
        # What scores are multiplied by where they are kept.
        self.score_unit = 1.0 if spec.mask_kind == "bias" else LOG2_E
        self.query_factor = scale * (self.score_unit if spec.softcap is None else 1.0 / spec.softcap)

    def seen_by_some(self, queries: Index, keys: Index, start: Index | None, first: Index, count: Index) -> KeyRange:
        """The keys that exist and that at least one of the queries `first` .. `first + count - 1` may see.

        Args:
            queries, keys: how many a sequence has.
            start: the position of query 0 in the cached form; else the last query is where the last key is.
        """
        em, spec = self.em, self.spec
        hi = keys
        if start is None:
            offset = keys - queries
        else:
            offset = start
            hi = em.imin(hi, em.imax(offset + queries, 0))
        lo: Index = 0
        if spec.by_position:
            hi = em.imin(hi, em.imax(offset + (first + count), 0))
        if spec.mask_kind == "sliding_window":
            assert spec.window is not None
            lo = em.imax(offset + (first + 1) - spec.window, 0)
        return KeyRange(offset, lo, hi)

    def finite(self, maximum: Value) -> Value:
        """0 where no key was visible so far: exp(-inf - 0) is 0, while exp(-inf - -inf) would be NaN."""
        return self.em.select(self.em.cmpf("oeq", maximum, NEGATIVE_INFINITY), 0.0, maximum)

    def distance(self, score: Value, maximum: Value) -> Value:
        """How far a score is from the maximum, in the domain of the base-2 logarithm."""
        difference = score - maximum
        return difference if self.score_unit == LOG2_E else difference * LOG2_E

    def exp2(self, x: Value) -> Value:
        """2^x, 0 for -inf, NaN for NaN; each target says how exactly."""
        raise NotImplementedError

    def weight(self, score: Value, maximum: Value) -> Value:
        """e^(score - maximum) of a score as it is kept; the maximum is finite."""
        return self.exp2(self.distance(score, maximum))

    def capped(self, product: Value, most: float) -> Value:
        """most * tanh(product)"""
        raise NotImplementedError

    def score(self, product: Value, bias: Value | None) -> Value:
        """The score, as it is kept, of a product with a multiplied query."""
        cap = self.spec.softcap
        score = product if cap is None else self.capped(product, cap * self.score_unit)
        return score if bias is None else score + bias
