# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Layers with selective scans as primitives: see `scan` for what they compute."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .delta_layers import Past, Product, StateRule, softplus
from .scan import Scan

if TYPE_CHECKING:
    from ..hir import Value

#: A rate at which nothing decays: f32 can't tell e^(d a) from 1 at any step d that there is.
_SLOWEST = 1e-20


class ScanRule(StateRule):
    """Layers with selective scans, in the place of attention or beside it."""

    settles_by = ("ssm_conv1d.weight", "ssm_conv1d.bias", "ssm_a")

    def attended(self, n: Value, product: Product, past: Past | None) -> tuple[Value, Value, Past | None]:
        graph, scan = self.graph, self._scan
        made, name = product(n, "ssm_in"), "ssm_in"
        z, mixed, raw = (
            graph.narrow(made, 2, start, count, name=name)
            for start, count in (
                (0, scan.inner),
                (scan.inner, scan.channels),
                (scan.inner + scan.channels, scan.heads),
            )
        )
        step = softplus(graph, graph.add(raw, self._param("ssm_dt.bias"), name="ssm_dt"), name="ssm_dt")
        if scan.least > 0:
            step = graph.maximum(step, scan.least, name="ssm_dt")
        if scan.most is not None:
            step = graph.minimum(step, scan.most, name="ssm_dt")
        trail = graph.concat([mixed, step], axis=2, name="trail")
        inputs, y, memory = self._steps(mixed, step, past)
        batch, length = n.shape[:2]
        by_head = graph.reshape(inputs, [batch, length, scan.heads, scan.size], name="ssm_d")
        kept = graph.reshape(graph.mul(by_head, self._param("ssm_d"), name="ssm_d"), y.shape, name="ssm_d")
        gated = graph.mul(graph.add(y, kept, name="ssm_d"), graph.silu(z, name="ssm_norm"), name="ssm_norm")
        left = None if past is None else Past(self._rows_left(mixed, past), scan=memory)
        return product(self._normed(gated), "ssm_out"), trail, left

    def settled(self, trail: Value, past: Past) -> Past:
        graph, scan = self.graph, self._scan
        mixed = graph.narrow(trail, 2, 0, scan.channels, name="settle")
        step = graph.narrow(trail, 2, scan.channels, scan.heads, name="settle")
        return Past(self._rows_left(mixed, past), scan=self._steps(mixed, step, past)[2])

    @property
    def _scan(self) -> Scan:
        scan = self.config.delta
        assert isinstance(scan, Scan)
        return scan

    def _steps(self, mixed: Value, step: Value, past: Past | None) -> tuple[Value, Value, Value]:
        """Inputs of all heads behind the convolution and results of the scan, [B, S, inner], and its last state."""
        graph, scan, name = self.graph, self._scan, "scan"
        batch, length = mixed.shape[:2]
        seen, memory = self._convolved(mixed, past), None if past is None else past.scan
        inputs = graph.narrow(seen, 2, 0, scan.inner, name=name)
        width = scan.groups * scan.numbers
        into, out = (
            self._apart(graph.narrow(seen, 2, scan.inner + i * width, width, name=name), scan.numbers) for i in range(2)
        )
        # In units of the time in which a head decays, so that one rate is for all: e^(d a) H + (d a) b (u / a).
        by_head = [batch, length, scan.heads, scan.size]
        rates = self._rates()
        times = graph.mul(step, graph.reshape(rates, [scan.heads], name=name), name=name)
        times = graph.expand(graph.reshape(times, [*by_head[:3], 1], name=name), by_head, name=name)
        sizes = graph.div(graph.reshape(inputs, by_head, name=name), rates, name=name)
        each = scan.inner // scan.groups
        scanned, times = (self._apart(graph.reshape(x, inputs.shape, name=name), each) for x in (sizes, times))
        if memory is not None:
            memory = graph.reshape(memory, [-1, each, scan.numbers], name=name)
        ones = graph.constant(np.ones((each, scan.numbers), np.float32))
        y, left = graph.selective_scan(scanned, times, ones, into, out, memory, name=name)
        return (
            inputs,
            self._together(y, batch, length),
            graph.reshape(left, [batch, scan.inner, scan.numbers], name=name),
        )

    def _rates(self) -> Value:
        """At which heads decay, [heads, 1]; what is divided by them isn't infinite where one doesn't decay."""
        rates = self._param("ssm_a")
        graph, name = self.graph, "ssm_a"
        return graph.where(graph.compare("eq", rates, 0.0, name=name), -_SLOWEST, rates, name=name)

    def _apart(self, x: Value, width: int) -> Value:
        """[B, S, groups * width] with groups as sequences, [B * groups, S, width]."""
        graph, groups, (batch, length) = self.graph, self._scan.groups, x.shape[:2]
        if groups == 1:
            return x
        turned = graph.transpose(
            graph.reshape(x, [batch, length, groups, width], name="scan"), [0, 2, 1, 3], name="scan"
        )
        return graph.reshape(turned, [-1, length, width], name="scan")

    def _together(self, y: Value, batch: int | str, length: int | str) -> Value:
        """The inverse of `_apart`, of results."""
        graph, scan = self.graph, self._scan
        if scan.groups == 1:
            return y
        parts = graph.reshape(y, [batch, scan.groups, length, scan.inner // scan.groups], name="scan")
        return graph.reshape(
            graph.transpose(parts, [0, 2, 1, 3], name="scan"), [batch, length, scan.inner], name="scan"
        )

    def _normed(self, gated: Value) -> Value:
        """Each group divided by the root of its mean square, and times its weights; as it is where it has none."""
        graph, scan = self.graph, self._scan
        weight = self.params.get(f"blk.{self.number}.ssm_norm.weight")
        if weight is None:
            return gated
        batch, length = gated.shape[:2]
        width = scan.inner // scan.groups
        groups = graph.reshape(gated, [batch, length, scan.groups, width], name="ssm_norm")
        ones = graph.constant(np.ones(width, np.float32))
        normed = graph.rms_norm(groups, ones, eps=self.config.eps, name="ssm_norm")
        return graph.reshape(graph.mul(normed, weight, name="ssm_norm"), gated.shape, name="ssm_norm")


__all__ = ["ScanRule"]
