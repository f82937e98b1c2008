# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Layers that change several streams as blocks and primitives, and what is before and behind them: see `streams`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .config import ModelConfig
from .layers import Layer, norm_of, product
from .streams import Streams

if TYPE_CHECKING:
    from ..hir import GraphModule, Value

_LEAST = 1e-5
"""Mean squares that are smaller count as this, where streams are made as long as another one."""


def _streams(config: ModelConfig) -> Streams:
    assert config.streams is not None
    return config.streams


def extras(graph: GraphModule, config: ModelConfig, params: Mapping[str, Value], tokens: Value, x: Value) -> Value:
    """What tokens have for each layer, [B, S, layers, extra].

    Args:
        graph: where this is built.
        config: of the model.
        params: the weights' parameters, by name.
        tokens: their ids, [B, S].
        x: what the layers would read if they had one stream, [B, S, hidden].
    """
    own, name = _streams(config), "per_layer_token_embd"
    shape = [*x.shape[:2], config.layers, own.extra]
    if config.extra_vocab < config.vocab:
        known = graph.compare("lt", tokens, config.extra_vocab, name=name)
        tokens = graph.where(known, tokens, 0, name=name)
    rows = graph.reshape(graph.gather(params[f"{name}.weight"], tokens, name=name), shape, name=name)
    made = product(graph, x, params["per_layer_model_proj.weight"], name="per_layer_model_proj")
    made = graph.reshape(graph.mul(made, config.hidden**-0.5, name="per_layer_model_proj"), shape, name=name)
    normed = norm_of(graph, config, params, made, "per_layer_proj_norm", name="per_layer_proj_norm")
    both = graph.add(normed, graph.mul(rows, math.sqrt(own.extra), name=name), name=name)
    return graph.mul(both, math.sqrt(0.5), name=name)


def spread(graph: GraphModule, config: ModelConfig, params: Mapping[str, Value], x: Value) -> Value:
    """The streams that the first layer reads, [B, S, streams, hidden], of x [B, S, hidden]."""
    name = "altup_proj"
    batch, length, hidden = x.shape
    one = graph.reshape(x, [batch, length, 1, hidden], name=name)
    others = graph.expand(one, [batch, length, _streams(config).number - 1, hidden], name=name)
    made = _by_stream(graph, config, params[f"{name}.weight"], others, name)
    return graph.concat([one, _as_long(graph, made, one, name)], axis=2, name=name)


def merged(graph: GraphModule, config: ModelConfig, params: Mapping[str, Value], streams: Value) -> Value:
    """What the head reads before its norm, [B, S, hidden]."""
    name, count = "altup_unembd_proj", _streams(config).number
    one, others = (graph.narrow(streams, 2, *part, name=name) for part in ((0, 1), (1, count - 1)))
    made = _as_long(graph, _by_stream(graph, config, params[f"{name}.weight"], others, name), one, name)
    return graph.mean(graph.concat([one, made], axis=2, name=name), 2, name=name)


def _by_stream(graph: GraphModule, config: ModelConfig, weight: Value, x: Value, name: str) -> Value:
    """Each stream but the first, [B, S, streams - 1, hidden], times its own matrix."""
    count, hidden = _streams(config).number - 1, config.hidden
    own = graph.reshape(graph.iota(x.shape[:3], 2, "i32", name=name), [-1], name=name)
    rows = graph.reshape(x, [-1, hidden], name=name)
    return graph.reshape(graph.dequant_grouped_matmul(rows, weight, own, experts=count, name=name), x.shape, name=name)


def _as_long(graph: GraphModule, x: Value, like: Value, name: str) -> Value:
    """x [B, S, n, hidden], each as long as `like` [B, S, 1, hidden]."""

    def squares(y: Value) -> Value:
        return graph.mean(graph.mul(y, y, name=name), -1, keep_dims=True, name=name)

    wanted, found = squares(like), graph.maximum(squares(x), _LEAST, name=name)
    return graph.mul(x, graph.sqrt(graph.div(wanted, found, name=name), name=name), name=name)


@dataclass(frozen=True, kw_only=True)
class StreamLayer(Layer):
    """Builds one layer that changes several streams; `cached` takes and gives these, [B, S, streams, hidden].

    Attributes:
        extra: what tokens have for each layer, [B, S, layers, extra].
    """

    extra: Value

    def _built(self, name: str, x: Value, caches: tuple[Value, ...]) -> tuple[Value, tuple[Value, ...]]:
        graph = self.graph
        with graph.scope(name):
            expected = self._expected(x)
            first = self._first(expected)
            n = self._norm(first, "attn_norm")
            low = self._product(self._product(n, "laurel_l"), "laurel_r")
            low = graph.add(n, self._norm(low, "laurel_post_norm"), name="laurel_r")
            attended, updated = self._attend(n, caches)
            h = graph.add(first, self._norm(attended, "post_attention_norm"), name="attn_output")
            h = graph.mul(graph.add(h, low, name="laurel_r"), math.sqrt(0.5), name="laurel_r")
            y = self._feed_forward(self._norm(h, "ffn_norm"))
            y = graph.add(h, self._norm(y, "post_ffw_norm"), name="ffn_down")
            return self._with_extra(self._corrected(expected, y)), updated

    def _first(self, streams: Value) -> Value:
        """The stream that is read, [B, S, hidden]."""
        batch, length, _, hidden = streams.shape
        return self.graph.reshape(
            self.graph.narrow(streams, 2, 0, 1, name="altup"), [batch, length, hidden], name="altup"
        )

    def _routed(self, x: Value) -> Value:
        """How much of each stream counts, [B, S, streams]."""
        name = "altup_router"
        read = self.graph.mul(self._norm(x, "altup_router_norm"), 1 / self.config.hidden, name=name)
        return self.graph.tanh(self._product(read, name), name=name)

    def _expected(self, streams: Value) -> Value:
        """Each stream, and sums of all."""
        graph, count, name = self.graph, _streams(self.config).number, "altup_predict_coef"
        weights = self._product(self._routed(self._first(streams)), name)
        weights = graph.reshape(weights, [*streams.shape[:2], count, count], name=name)
        return graph.add(streams, graph.matmul(weights, streams, name=name), name=name)

    def _corrected(self, expected: Value, y: Value) -> Value:
        """Each stream by how another one became than was expected."""
        graph, name = self.graph, "altup_correct_coef"
        batch, length, count, hidden = expected.shape
        weights = graph.add(self._product(self._routed(y), name), 1.0, name=name)
        weights = graph.reshape(weights, [batch, length, count, 1], name=name)
        other = graph.sub(y, self._first(expected), name=name)
        other = graph.reshape(other, [batch, length, 1, hidden], name=name)
        return graph.add(expected, graph.mul(weights, other, name=name), name=name)

    def _with_extra(self, streams: Value) -> Value:
        """All but the first one with what the layer makes of the token's own elements."""
        graph, name = self.graph, "inp_gate"
        batch, length, count, hidden = streams.shape
        own = graph.narrow(self.extra, 2, self.number, 1, name=name)
        own = graph.reshape(own, [batch, length, _streams(self.config).extra], name=name)
        read = graph.mul(self._first(streams), self._weight("altup_correct_scale"), name=name)
        gate = graph.activation(self.config.plan.activation, self._product(read, name), name=name)
        added = self._norm(self._product(graph.mul(gate, own, name=name), "proj"), "post_norm")
        added = graph.reshape(added, [batch, length, 1, hidden], name="post_norm")
        first, others = (graph.narrow(streams, 2, *part, name="post_norm") for part in ((0, 1), (1, int(count) - 1)))
        return graph.concat([first, graph.add(others, added, name="post_norm")], axis=2, name="post_norm")


__all__ = ["StreamLayer", "extras", "merged", "spread"]
