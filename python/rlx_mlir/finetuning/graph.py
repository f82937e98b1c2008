# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The loss of a model with an adapter, as a graph over whole sequences: no cache, every position gives logits.

| input | shape | what it is |
|---|---|---|
| tokens | [batch, length] i32 | each sequence from its first token on |
| targets | [batch, length] i32 | the tokens that follow; any id where the weight is 0 |
| weights | [batch, length] f32 | what the cross entropy at each position counts in the sum, which is the loss |
| positions | [batch, length] i32 | of packed rows: the place of each token in its example, of which it sees no other |

Where logits would take much memory, they are computed in parts, one after the other, and once more for their gradient.

Weights of models stay packed: their products decode them, and so do those of the gradients that go back through them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rlx_mlir.models.config import ModelConfig
from rlx_mlir.models.decoder import described
from rlx_mlir.models.layers import Layer, adapter_params, embedded, logits_of, rope_params, weight_params

if TYPE_CHECKING:
    from rlx_mlir.hir import GraphModule, Value

_LOGITS = 1 << 27
"""Bytes of logits that are computed at once: of a batch, they are often more than all else."""


@dataclass(frozen=True)
class LossGraph:
    """What the graph depends on.

    Attributes:
        config: of the model.
        batch, length: sequences, and tokens of each.
        ranks, scales: of the adapter, by product, see `layers.adapter_params`.
        packed: whether rows may have several examples, one behind the other, which don't see each other.
    """

    config: ModelConfig
    batch: int
    length: int
    ranks: Mapping[str, int]
    scales: Mapping[str, float]
    packed: bool = False

    def describe(self) -> dict[str, object]:
        """All that decides about what `build` gives, as JSON can write it, without building anything."""
        return {
            "program": "finetuning.loss",
            "batch": self.batch,
            "length": self.length,
            "packed": self.packed,
            **described(self.config),
            "adapter": {product: [rank, self.scales[product]] for product, rank in self.ranks.items()},
        }

    def build(self) -> GraphModule:
        """The graph, with the output `loss`."""
        from rlx_mlir.hir import GraphModule

        return _built(self, GraphModule.hir("finetune"))


def _built(own: LossGraph, graph: GraphModule) -> GraphModule:
    config, batch, length = own.config, own.batch, own.length
    tokens = graph.input("tokens", [batch, length], "i32")
    targets = graph.input("targets", [batch, length], "i32")
    weights = graph.input("weights", [batch, length])
    seen = _seen(graph, config, graph.input("positions", [batch, length], "i32")) if own.packed else {}
    params, tables = weight_params(graph, config), rope_params(graph, config, length)
    adapters = adapter_params(graph, config, own.ranks, own.scales)
    x = embedded(graph, config, params, tokens)
    for number in range(config.layers):
        local = config.is_local(number)
        cos, sin = tables.get(local, (None, None))
        x = Layer(graph, config, number, params, cos, sin, adapters=adapters, seen=seen.get(local)).sequence(x)
    rows = batch * length
    parts = _parts(rows, config.vocab)
    shape = [parts, rows // parts]
    states = graph.reshape(x, [*shape, config.hidden])
    given = (states, graph.reshape(targets, shape), graph.reshape(weights, shape))

    def add_part(total: Value, states: Value, targets: Value, weights: Value) -> tuple[Value, None]:
        logits = logits_of(graph, config, params, states)
        losses = graph.softmax_cross_entropy_with_logits(logits, targets, name="loss")
        return graph.add(total, graph.sum(graph.mul(losses, weights, name="loss"), name="loss"), name="loss"), None

    zero = graph.constant(np.zeros((), np.float32))
    if parts == 1:
        loss, _ = add_part(zero, *(graph.reshape(value, value.shape[1:]) for value in given))
    else:  # reverse mode computes the logits of each part again, so that there are never those of two
        loss, _ = graph.scan(add_part, zero, given, name="loss")
    graph.set_outputs({"loss": loss})
    return graph


def _seen(graph: GraphModule, config: ModelConfig, positions: Value) -> dict[bool, Value]:
    """Which keys each query of packed rows sees, [batch, 1, length, length], by whether it is of local layers.

    Those of its own example up to itself. Positions of rotations need not begin anew: scores depend on their
    differences alone.
    """
    batch, length = positions.shape
    key = graph.iota([length], 0, "i32")
    query = graph.reshape(key, [length, 1])
    begin = graph.sub(query, graph.reshape(positions, [batch, 1, length, 1]))
    found = {False: graph.bitwise_and(graph.le(key, query), graph.ge(key, begin))}
    if config.local_layers:
        found[True] = graph.bitwise_and(found[False], graph.gt(key, graph.sub(query, config.window)))
    return found


def _parts(rows: int, vocab: int) -> int:
    """In how many parts logits are computed: of equal numbers of rows, as few as fit into `_LOGITS` bytes each."""
    least = -(-rows * vocab * 4 // _LOGITS)
    return next(count for count in range(min(least, rows), rows + 1) if rows % count == 0)


__all__ = ["LossGraph"]
