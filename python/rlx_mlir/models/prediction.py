# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The layer that predicts the token after the next one (multi-token prediction), as a module of its own: `predict`.

Files have it behind the last layer of the model. Of the hidden state h of a token, as the head reads it, normed, and of
the next token t it makes

    x = [norm_e(row of t), norm_h(h)] We       y = norm_s(layer(x))

with the architecture's attention; y is a hidden state in turn, whose logits, by the model's own head, are of the token
behind t. Its own keys and values are in caches of their own:

| inputs | results |
|---|---|
| tokens [1, seq], hidden [1, seq, hidden], pos [1], rows [outputs], k_ahead, v_ahead | logits [1, outputs, vocab],
  hidden_out [1, outputs, hidden], updated k_ahead, v_ahead |

``hidden`` of a token is that of the one before it, ``pos`` the position of the first pair, and ``rows`` says which
pairs get results.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .caches import cache_types
from .config import ModelConfig
from .layers import Layer, embedded, head_of, norm_of, predicting, product, rope_params, weight_params

if TYPE_CHECKING:
    from ..hir import GraphModule, Value

CACHES = ("k_ahead", "v_ahead")
"""Names of the caches, which are like those of a layer of the model."""


def build_prediction(config: ModelConfig) -> GraphModule:
    """The graph of the module, of a model that has such a layer."""
    from ..hir import GraphModule

    graph, number = GraphModule.hir("predict"), config.layers
    tokens, hidden = graph.input("tokens", [1, "seq"], "i32"), graph.input("hidden", [1, "seq", config.hidden])
    pos, rows = graph.input("pos", [1], "i32"), graph.input("rows", ["outputs"], "i32")
    kinds = list(cache_types(config, [number]).values())
    caches = {
        name: graph.input(name, [1, "context", kind.width], kind.element)
        for name, kind in zip(CACHES, kinds, strict=True)
    }
    prefix, own = f"blk.{number}.nextn", predicting(config)
    last = f"{prefix}.shared_head_norm.weight"
    if last not in own:
        last = "output_norm.weight"
    params = weight_params(graph, config, dict.fromkeys(["token_embd.weight", config.head_weight, last, *own]))
    cos, sin = rope_params(graph, config, "context")[False]

    def norm(x: Value, name: str) -> Value:
        own = name.removesuffix(".weight")
        return norm_of(graph, config, params, x, own, name=own)

    read = norm(embedded(graph, config, params, tokens), f"{prefix}.enorm.weight")
    both = graph.concat([read, norm(hidden, f"{prefix}.hnorm.weight")], axis=2, name=f"{prefix}.eh_proj")
    x = product(graph, both, params[f"{prefix}.eh_proj.weight"], name=f"{prefix}.eh_proj")
    y, updated = Layer(graph, config, number, params, cos, sin, pos).cached(x, list(caches.values()))
    y = norm(graph.gather(y, rows, axis=1, name="rows"), last)
    outputs = {"logits": head_of(graph, config, params, y), "hidden_out": y}
    graph.set_outputs({**outputs, **dict(zip(CACHES, updated, strict=True))}, tied=caches)
    return graph


__all__ = ["CACHES", "build_prediction"]
