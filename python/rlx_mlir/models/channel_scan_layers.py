# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Layers with selective scans whose states have rates of their own as primitives: see `channel_scan`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .channel_scan import ChannelScan
from .delta_layers import Past, Product, StateRule, softplus

if TYPE_CHECKING:
    from ..hir import Value


class ChannelScanRule(StateRule):
    """Layers with selective scans whose states have rates of their own."""

    settles_by = ("ssm_conv1d.weight", "ssm_conv1d.bias", "ssm_a")

    def attended(self, n: Value, product: Product, past: Past | None) -> tuple[Value, Value, Past | None]:
        graph, scan = self.graph, self._scan
        both = product(n, "ssm_in")
        mixed, z = (graph.narrow(both, 2, start, scan.inner, name="ssm_in") for start in (0, scan.inner))
        inputs = self._convolved(mixed, past)
        made, widths = product(inputs, "ssm_x"), {"dt": scan.rank, "b": scan.numbers, "c": scan.numbers}
        starts = (0, scan.rank, scan.rank + scan.numbers)
        short, into, out = (
            self._normed(graph.narrow(made, 2, start, width, name="ssm_x"), word)
            for start, (word, width) in zip(starts, widths.items(), strict=True)
        )
        step = softplus(graph, product(short, "ssm_dt"), name="ssm_dt")
        trail = graph.concat([mixed, step, into], axis=2, name="trail")
        memory = None if past is None else past.scan
        y, left = graph.selective_scan(inputs, step, self._param("ssm_a"), into, out, memory, name="scan")
        y = graph.add(y, graph.mul(inputs, self._param("ssm_d"), name="ssm_d"), name="ssm_d")
        gated = graph.mul(y, graph.silu(z, name="ssm_in"), name="ssm_out")
        behind = None if past is None else Past(self._rows_left(mixed, past), scan=left)
        return product(gated, "ssm_out"), trail, behind

    def settled(self, trail: Value, past: Past) -> Past:
        graph, scan = self.graph, self._scan
        mixed, step, into = (
            graph.narrow(trail, 2, start, width, name="settle")
            for start, width in ((0, scan.inner), (scan.inner, scan.inner), (2 * scan.inner, scan.numbers))
        )
        inputs = self._convolved(mixed, past)
        # What is read of the states doesn't matter.
        _, left = graph.selective_scan(inputs, step, self._param("ssm_a"), into, into, past.scan, name="scan")
        return Past(self._rows_left(mixed, past), scan=left)

    @property
    def _scan(self) -> ChannelScan:
        scan = self.config.delta
        assert isinstance(scan, ChannelScan)
        return scan

    def _normed(self, x: Value, word: str) -> Value:
        """Divided by the root of the mean square, and times weights where there are some; as it is without norms."""
        graph, eps = self.graph, self._scan.eps
        if eps is None:
            return x
        weight = self.params.get(f"blk.{self.number}.ssm_{word}_norm.weight")
        if weight is None:
            width = x.shape[-1]
            assert isinstance(width, int)
            weight = graph.constant(np.ones(width, np.float32))
        return graph.rms_norm(x, weight, eps=eps, name=f"ssm_{word}_norm")


__all__ = ["ChannelScanRule"]
