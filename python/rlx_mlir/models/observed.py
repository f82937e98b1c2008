# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a model computes on the way, over whole sequences from their first token on: parts of layers by name.

Names are those of tensors without `.weight`: `blk.0.attn_q` is the product with that weight, `blk.0.attn_norm` the norm
with it; `blk.0.attn_q_rope` are queries after their rotation, `blk.0.attention` what attention gives,
`blk.0` what the layer does; `token_embd` is what the first layer reads, `output_norm` what the head does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .config import ModelConfig
from .layers import Layer, embedded, normed, rope_params, weight_params

if TYPE_CHECKING:
    from ..hir import GraphModule, Value

#: Called with a name and a value.
See = Callable[[str, "Value"], None]


def _ignored(name: str, value: Value) -> None:
    """Nobody looks."""


@dataclass(frozen=True)
class Watch:
    """Who is told what.

    Attributes:
        result: of what each part gives, [1, length, …].
        operand: of what each product with a weight multiplies, [rows, inputs].
        routed: of what each product with the weights of experts multiplies, [rows, inputs], and the expert of each
            row, i32 [rows].
    """

    result: See = _ignored
    operand: See = _ignored
    routed: Callable[[str, Value, Value], None] = lambda name, rows, experts: None


@dataclass(frozen=True)
class _ObservedLayer(Layer):
    """A layer whose parts are looked at; it is made of parts, whatever blocks there are."""

    watch: Watch = field(default_factory=Watch)

    def _own(self, name: str) -> str:
        return f"blk.{self.number}.{name}"

    def sequence(self, x: Value) -> Value:
        found = super().sequence(x)
        self.watch.result(f"blk.{self.number}", found)
        return found

    def _product(self, x: Value, name: str) -> Value:
        if name == "attn_output":
            self.watch.result(self._own("attention"), x)
        self.watch.operand(self._own(name), x)
        y = super()._product(x, name)
        self.watch.result(self._own(name), y)
        return y

    def _rotate(self, x: Value, name: str, heads: int) -> Value:
        y = super()._rotate(x, name, heads)
        self.watch.result(self._own(f"{name}_rope"), y)
        return y

    def _norm(self, x: Value, name: str) -> Value:
        y = super()._norm(x, name)
        self.watch.result(self._own(name), y)
        return y

    def _experts(self, n: Value) -> Value:
        self.watch.operand(self._own("ffn_gate_inp"), n)
        y = super()._experts(n)
        self.watch.result(self._own("ffn_exps"), y)
        return y

    def _by_expert(self, x: Value, own: Value, name: str) -> Value:
        self.watch.routed(self._own(name), x, own)
        return super()._by_expert(x, own, name)

    def _fuses_feed_forward(self, suffix: str = "") -> bool:
        return False


def build_observed(config: ModelConfig, length: int, watch: Watch, *, name: str = "observed") -> GraphModule:
    """A graph of a model up to its last norm, without outputs: those who look make some of what they see.

    Args:
        config: of the model.
        length: tokens of the sequence, `tokens` [1, length] i32.
        watch: is told while the graph is built, in the order in which parts are computed.
        name: of the module.
    """
    from ..hir import GraphModule

    graph = GraphModule.hir(name)
    tokens = graph.input("tokens", [1, length], "i32")
    params, tables = weight_params(graph, config), rope_params(graph, config, length)
    x = embedded(graph, config, params, tokens)
    watch.result("token_embd", x)
    for number in range(config.layers):
        cos, sin = tables.get(config.is_local(number), (None, None))
        x = _ObservedLayer(graph, config, number, params, cos, sin, watch=watch).sequence(x)
    watch.result("output_norm", normed(graph, config, params, x))
    return graph


__all__ = ["Watch", "build_observed"]
