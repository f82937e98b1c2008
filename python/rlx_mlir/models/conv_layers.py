# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Layers with short convolutions as primitives: see `short_conv` for what they compute."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from .channel_scan import ChannelScan
from .channel_scan_layers import ChannelScanRule
from .config import ModelConfig
from .delta_layers import DeltaRule, Past, Product, last_rows
from .scan import Scan
from .scan_layers import ScanRule
from .short_conv import ShortConv

if TYPE_CHECKING:
    from ..hir import GraphModule, Value


@dataclass(frozen=True)
class ConvRule:
    """Builds the part of a layer that stands in the place of attention; see `DeltaRule` for attributes and methods."""

    graph: GraphModule
    config: ModelConfig
    number: int
    params: Mapping[str, Value]

    settles_by: ClassVar[tuple[str, ...]] = ()

    def attended(self, n: Value, product: Product, past: Past | None) -> tuple[Value, Value, Past | None]:
        graph, conv = self.graph, self._conv
        made = product(n, "shortconv.in_proj")
        b, c, u = (graph.narrow(made, 2, i * conv.channels, conv.channels, name="shortconv") for i in range(3))
        mixed = graph.mul(b, u, name="shortconv")
        weight = self.params[f"blk.{self.number}.shortconv.conv.weight"]
        taps = graph.reshape(weight, [conv.channels, 1, 1, conv.taps], name="shortconv")
        seen = graph.depthwise_conv1d_causal(mixed, taps, None if past is None else past.conv, name="shortconv")
        left = None if past is None else self.settled(mixed, past)
        return product(graph.mul(c, seen, name="shortconv"), "shortconv.out_proj"), mixed, left

    def settled(self, trail: Value, past: Past) -> Past:
        return Past(last_rows(self.graph, trail, past.conv, self._conv.taps - 1))

    @property
    def _conv(self) -> ShortConv:
        conv = self.config.delta
        assert isinstance(conv, ShortConv)
        return conv


Rule = DeltaRule | ConvRule | ScanRule | ChannelScanRule


def rule_of(graph: GraphModule, config: ModelConfig, number: int, params: Mapping[str, Value]) -> Rule:
    """What a layer has in the place of attention, or beside it."""
    kind: type[Rule] = DeltaRule
    if isinstance(config.delta, ShortConv):
        kind = ConvRule
    elif isinstance(config.delta, Scan):
        kind = ScanRule
    elif isinstance(config.delta, ChannelScan):
        kind = ChannelScanRule
    return kind(graph, config, number, params)


__all__ = ["ConvRule", "Rule", "rule_of"]
