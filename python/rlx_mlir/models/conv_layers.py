# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Layers with short convolutions as primitives: see `short_conv` for what they compute."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from .channel_scan import ChannelScan
from .channel_scan_layers import ChannelScanRule
from .config import ModelConfig
from .delta_layers import DeltaRule, Past, Product, StateRule
from .scan import Scan
from .scan_layers import ScanRule
from .short_conv import ShortConv

if TYPE_CHECKING:
    from ..hir import GraphModule, Value


class ConvRule(StateRule):
    """Layers with short convolutions."""

    def attended(self, n: Value, product: Product, past: Past | None) -> tuple[Value, Value, Past | None]:
        graph, conv = self.graph, self._conv
        made = product(n, "shortconv.in_proj")
        b, c, u = (graph.narrow(made, 2, i * conv.channels, conv.channels, name="shortconv") for i in range(3))
        mixed = graph.mul(b, u, name="shortconv")
        taps = graph.reshape(self._param("shortconv.conv.weight"), [conv.channels, 1, 1, conv.taps], name="shortconv")
        seen = graph.depthwise_conv1d_causal(mixed, taps, None if past is None else past.conv, name="shortconv")
        left = None if past is None else self.settled(mixed, past)
        return product(graph.mul(c, seen, name="shortconv"), "shortconv.out_proj"), mixed, left

    def settled(self, trail: Value, past: Past) -> Past:
        return Past(self._rows_left(trail, past))

    @property
    def _conv(self) -> ShortConv:
        conv = self.config.delta
        assert isinstance(conv, ShortConv)
        return conv


def rule_of(graph: GraphModule, config: ModelConfig, number: int, params: Mapping[str, Value]) -> StateRule:
    """What a layer has in the place of attention, or beside it."""
    kind: type[StateRule] = DeltaRule
    if isinstance(config.delta, ShortConv):
        kind = ConvRule
    elif isinstance(config.delta, Scan):
        kind = ScanRule
    elif isinstance(config.delta, ChannelScan):
        kind = ChannelScanRule
    return kind(graph, config, number, params)


__all__ = ["ConvRule", "rule_of"]
