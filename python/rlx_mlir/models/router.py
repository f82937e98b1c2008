# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which experts a token has, and what weighs them, as a graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .routing import Routing

if TYPE_CHECKING:
    from ..hir import GraphModule, Value

_NAME = "ffn_gate_inp"
"""Of all parts: that of the router's weights."""

_LEAST = 1e-20
"""What is added to a sum of sigmoids that divides, all of which may be 0."""


def route(
    graph: GraphModule, routing: Routing, products: Value, bias: Value | None, *, used: int, normalised: bool
) -> tuple[Value, Value]:
    """The weights [tokens, used] f32 and the numbers [tokens, used] i32 of the experts of each token.

    Args:
        graph: where this is built.
        routing: the rule.
        products: of tokens with the router's rows, [tokens, experts].
        bias: [experts], added to scores where experts are chosen, but not to what weighs them.
        used: experts of a token.
        normalised: the weights of those that were chosen are divided by their sum.
    """
    if routing.scores == "chosen":
        largest, experts = graph.top_k(products, used, name=_NAME)
        return graph.softmax(largest, name=_NAME), experts
    if routing.scores == "mixed":
        return _mixed(graph, routing, products)
    sigmoid = routing.scores == "sigmoid"
    scores = graph.sigmoid(products, name=_NAME) if sigmoid else graph.softmax(products, name=_NAME)
    wanted = scores if bias is None else graph.add(scores, bias, name=_NAME)
    if routing.groups > 1:
        weights, experts = _in_groups(graph, routing, wanted, used)
    else:
        weights, experts = graph.top_k(wanted, used, name=_NAME)
    if bias is not None:
        weights = graph.gather(scores, experts, 1, batch_dims=1, name=_NAME)
    if normalised:
        total = graph.sum(weights, -1, keep_dims=True, name=_NAME)
        weights = graph.div(weights, graph.add(total, _LEAST, name=_NAME) if sigmoid else total, name=_NAME)
    if routing.scale != 1.0:
        weights = graph.mul(weights, routing.scale, name=_NAME)
    return weights, experts


def _mixed(graph: GraphModule, routing: Routing, products: Value) -> tuple[Value, Value]:
    """The two largest, each with its weight among those near it; the first isn't among those near the second."""
    largest, experts = graph.top_k(products, 2, name=_NAME)
    numbers = graph.iota(products.shape, 1, "i32", name=_NAME)
    weights = []
    for place in range(2):
        own = graph.narrow(largest, 1, place, 1, name=_NAME)
        away = graph.sub(own, products, name=_NAME)
        most = graph.mul(graph.maximum(graph.abs(products, name=_NAME), own, name=_NAME), routing.near, name=_NAME)
        near, powers = graph.compare("le", away, most, name=_NAME), graph.exp(graph.neg(away, name=_NAME), name=_NAME)
        powers = graph.where(near, powers, 0.0, name=_NAME)
        if place:
            first = graph.compare("eq", numbers, graph.narrow(experts, 1, 0, 1, name=_NAME), name=_NAME)
            powers = graph.where(first, 0.0, powers, name=_NAME)
        weights.append(graph.div(1.0, graph.sum(powers, -1, keep_dims=True, name=_NAME), name=_NAME))
    return graph.concat(weights, axis=1, name=_NAME), experts


def _in_groups(graph: GraphModule, routing: Routing, wanted: Value, used: int) -> tuple[Value, Value]:
    """As `top_k` of [tokens, experts], but among the experts of the best groups alone."""
    count, experts = wanted.shape
    assert isinstance(experts, int)
    size = experts // routing.groups
    grouped = graph.reshape(wanted, [count, routing.groups, size], name=_NAME)
    best, _ = graph.top_k(grouped, min(2, size) if routing.scores == "sigmoid" else 1, name=_NAME)
    _, groups = graph.top_k(graph.sum(best, -1, name=_NAME), routing.groups_used, name=_NAME)
    own = graph.gather(grouped, groups, 1, batch_dims=1, name=_NAME)
    weights, places = graph.top_k(graph.reshape(own, [count, -1], name=_NAME), used, name=_NAME)
    chosen = graph.gather(groups, graph.floor_div(places, size, name=_NAME), 1, batch_dims=1, name=_NAME)
    rest = graph.floor_rem(places, size, name=_NAME)
    return weights, graph.add(graph.mul(chosen, size, name=_NAME), rest, name=_NAME)


__all__ = ["route"]
