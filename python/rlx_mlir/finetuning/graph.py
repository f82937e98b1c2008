# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The loss of a model with an adapter, as a graph over whole sequences: no cache, every position gives logits.

| input | shape | what it is |
|---|---|---|
| tokens | [batch, length] i32 | each sequence from its first token on |
| targets | [batch, length] i32 | the tokens that follow; any id where the weight is 0 |
| weights | [batch, length] f32 | what the cross entropy at each position counts in the sum, which is the loss |

Weights of models stay packed: their products decode them, and so do those of the gradients that go back through them.
"""

from __future__ import annotations

from collections.abc import Mapping

from rlx_mlir.hir import GraphModule
from rlx_mlir.models.config import ModelConfig
from rlx_mlir.models.layers import Layer, adapter_params, embedded, logits_of, rope_params, weight_params


def loss_module(
    config: ModelConfig, batch: int, length: int, ranks: Mapping[str, int], scales: Mapping[str, float]
) -> GraphModule:
    """The graph, with the output `loss`.

    Args:
        config: of the model.
        batch, length: sequences, and tokens of each.
        ranks, scales: of the adapter, by product, see `layers.adapter_params`.
    """
    graph = GraphModule.hir("finetune")
    tokens = graph.input("tokens", [batch, length], "i32")
    targets = graph.input("targets", [batch, length], "i32")
    weights = graph.input("weights", [batch, length])
    params, tables = weight_params(graph, config), rope_params(graph, config, length)
    adapters = adapter_params(graph, config, ranks, scales)
    x = embedded(graph, config, params, tokens)
    for number in range(config.layers):
        cos, sin = tables[config.is_local(number)]
        x = Layer(graph, config, number, params, cos, sin, adapters=adapters).sequence(x)
    rows = batch * length
    logits = logits_of(graph, config, params, graph.reshape(x, [rows, config.hidden]))
    each = graph.softmax_cross_entropy_with_logits(logits, graph.reshape(targets, [rows]), name="loss")
    loss = graph.sum(graph.mul(each, graph.reshape(weights, [rows]), name="loss"), name="loss")
    graph.set_outputs({"loss": loss})
    return graph


__all__ = ["loss_module"]
