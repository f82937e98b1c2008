# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The softmax that schedules of attention keep up while scores come, tile by tile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rlx_mlir.codegen.attention import NEGATIVE_INFINITY
from rlx_mlir.codegen.gpu.attention_base import Problem
from rlx_mlir.codegen.gpu.emit import DeviceEmitter, Value


@dataclass(frozen=True)
class OnlineSoftmax:
    """Some rows' scores so far, of which each of several lanes side by side has a part.

    Attributes:
        maxima: of each row's scores, the same in all of its lanes.
        sums: of the weights of this lane's scores, which are relative to the maximum.
    """

    maxima: list[Value]
    sums: list[Value]

    @classmethod
    def of(
        cls, problem: Problem, scores: Sequence[Sequence[Value]], lanes: int, before: OnlineSoftmax | None = None
    ) -> tuple[OnlineSoftmax, list[list[Value]], list[Value]]:
        """The softmax after more scores; their weights, by row; what weights and sums before are multiplied by.

        Args:
            scores: this lane's, by row; with `folded`, products.
            lanes: that share a row.
            before: the softmax so far, None for no scores, where nothing was summed that could be multiplied.
        """
        em = problem.em
        maxima, sums, weights, decays = [], [], [], []
        for row, own in enumerate(scores):
            maximum = em.warp_reduce("maxnum", em.tree("maxnum", own), lanes)
            if before is None:
                found = problem.weights(own, problem.finite(maximum))
                total = em.tree("add", found)
            else:
                maximum = problem.larger(maximum, before.maxima[row])
                *found, decay = problem.weights([*own, before.maxima[row]], problem.finite(maximum))
                total = em.fmaf(before.sums[row], decay, em.tree("add", found))
                decays.append(decay)
            maxima.append(maximum)
            sums.append(total)
            weights.append(found)
        return cls(maxima, sums), weights, decays


@dataclass(frozen=True)
class Running:
    """What a thread has of the keys so far: the softmax of its rows, and weighted sums of values as a schedule orders
    them."""

    softmax: OnlineSoftmax
    totals: list[list[Value]]

    @classmethod
    def empty(cls, em: DeviceEmitter, rows: int, groups: int, count: int) -> Running:
        """No keys: of so many rows, and so many lists of `count` sums of values."""
        zero, low = em.const(0.0, "f32"), em.const(NEGATIVE_INFINITY, "f32")
        return cls(OnlineSoftmax([low] * rows, [zero] * rows), [[zero] * count] * groups)
