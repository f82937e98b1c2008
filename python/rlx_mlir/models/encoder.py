# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Encoders as graphs: a batch of texts of tokens to one vector each.

| inputs                                                          | results                      |
|-----------------------------------------------------------------|------------------------------|
| `tokens` [batch, seq] i32, `positions` [batch, seq] i32,        | `embeddings` [batch, hidden] |
| `mask` [batch, seq] f32                                         |                              |

`mask` is 1 for tokens and 0 for padding; what stands at padded places changes nothing. `positions` are rows of the
position table. Batch and length are symbols: one module serves all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from ..frontends.safetensors import SafetensorsFile, ShardedSafetensors
from .encoder_config import EncoderConfig

if TYPE_CHECKING:
    from ..hir import GraphModule, Value

PROGRAM = "encode"
"""The module of an encoder."""

SHORTEST = 1e-12
"""Vectors that are shorter are divided by this in place of their length."""


def describe(config: EncoderConfig) -> dict[str, object]:
    """Everything that the module built by `build` depends on, as JSON can write it, without building anything."""
    only_run = ("max_tokens", "first_position")
    return {
        "program": f"encoder.{PROGRAM}",
        **{name: value for name, value in config.numbers().items() if name not in only_run},
    }


def build(config: EncoderConfig) -> GraphModule:
    """The graph; parameters have the names of the architecture's files."""
    from ..hir import GraphModule

    graph = GraphModule.hir(PROGRAM)
    tokens = graph.input("tokens", ["batch", "seq"], "i32")
    positions = graph.input("positions", ["batch", "seq"], "i32")
    mask = graph.input("mask", ["batch", "seq"])
    params = {name: graph.param(name, shape) for name, shape in config.shapes().items()}
    layers = _Layers(graph, config, params, mask)
    x = layers.embed(tokens, positions)
    for number in range(config.layers):
        x = layers.layer(x, number)
    graph.set_outputs({"embeddings": layers.pool(x)})
    return graph


def parameters(config: EncoderConfig, weights: SafetensorsFile | ShardedSafetensors) -> dict[str, np.ndarray]:
    """Arrays for every parameter of the module, f32, by name."""
    return {name: weights.floats(stored) for name, stored in config.tensors.items()}


class _Layers:
    """Builds the parts of one graph."""

    def __init__(self, graph: GraphModule, config: EncoderConfig, params: Mapping[str, Value], mask: Value) -> None:
        self.graph, self.config, self.params, self.mask = graph, config, params, mask

    def embed(self, tokens: Value, positions: Value) -> Value:
        """[batch, seq, hidden] before the first layer."""
        graph, params = self.graph, self.params
        with graph.scope("embeddings"):
            places = params["embeddings.position_embeddings.weight"]
            if self.config.types:  # one table for both: all texts are of the first type
                types = params["embeddings.token_type_embeddings.weight"]
                places = graph.add(places, graph.narrow(types, 0, 0, 1), name="position_embeddings")
            words = graph.gather(params["embeddings.word_embeddings.weight"], tokens, name="word_embeddings")
            x = graph.add(words, graph.gather(places, positions, name="position_embeddings"), name="LayerNorm")
            return self._norm(x, "embeddings.LayerNorm", "LayerNorm")

    def layer(self, x: Value, number: int) -> Value:
        """One layer, named as its tensors are."""
        graph, config, parts = self.graph, self.config, self.config.plan.parts
        with graph.scope(config.plan.layer.format(number)):
            q, k, v = (self._linear(x, number, role) for role in ("query", "key", "value"))
            attended = graph.attention(
                q,
                k,
                v,
                self.mask,
                num_heads=config.heads,
                head_dim=config.hidden // config.heads,
                mask_kind="custom",
                name="attention",
            )
            h = graph.add(self._linear(attended, number, "output"), x, name=parts["attention_norm"])
            h = self._layer_norm(h, number, "attention_norm")
            inner = self._linear(h, number, "up", config.activation)
            y = graph.add(self._linear(inner, number, "down"), h, name=parts["ffn_norm"])
            return self._layer_norm(y, number, "ffn_norm")

    def pool(self, x: Value) -> Value:
        """[batch, hidden]: one vector of those of a text's tokens."""
        graph, hidden = self.graph, self.config.hidden
        with graph.scope("pooling"):
            if self.config.pooling == "cls":
                pooled = graph.reshape(graph.narrow(x, 1, 0, 1), ["batch", hidden])
            else:  # padding counts 0 times
                total = graph.mm(graph.reshape(self.mask, ["batch", 1, "seq"]), x)
                pooled = graph.div(graph.reshape(total, ["batch", hidden]), graph.sum(self.mask, 1, keep_dims=True))
            if not self.config.normalize:
                return pooled
            length = graph.sqrt(graph.sum(graph.mul(pooled, pooled), 1, keep_dims=True))
            return graph.div(pooled, graph.maximum(length, SHORTEST))

    def _prefix(self, number: int, role: str) -> str:
        return self.config.part(number, role, "weight").removesuffix(".weight")

    def _linear(self, x: Value, number: int, role: str, activation: str | None = None) -> Value:
        prefix = self._prefix(number, role)
        weight, bias = self.params[f"{prefix}.weight"], self.params[f"{prefix}.bias"]
        name = self.config.plan.parts[role]
        return self.graph.linear(x, weight, bias, activation=activation, transpose_weight=True, name=name)

    def _layer_norm(self, x: Value, number: int, role: str) -> Value:
        return self._norm(x, self._prefix(number, role), self.config.plan.parts[role])

    def _norm(self, x: Value, prefix: str, name: str) -> Value:
        weight, bias = self.params[f"{prefix}.weight"], self.params[f"{prefix}.bias"]
        return self.graph.layer_norm(x, weight, bias, eps=self.config.eps, name=name)


__all__ = ["PROGRAM", "build", "describe", "parameters"]
