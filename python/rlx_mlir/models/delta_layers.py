# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Layers with gated delta rules as primitives: see `delta` for what they compute."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from .config import ModelConfig
from .delta import Delta

if TYPE_CHECKING:
    from ..hir import GraphModule, Value

Product = Callable[["Value", str], "Value"]
"""x [B, S, hidden] times a weight of the layer, by its name."""


@dataclass(frozen=True)
class Past:
    """What is known of the tokens before: the states of a layer, see `delta`."""

    conv: Value
    delta: Value | None = None
    scan: Value | None = None

    @classmethod
    def of(cls, states: Mapping[str, Value], layer: int) -> Past:
        """That of a layer among the states of all."""
        return cls(states[f"conv_{layer}"], states.get(f"delta_{layer}"), states.get(f"scan_{layer}"))

    def named(self, layer: int) -> dict[str, Value]:
        """The states by name."""
        both = {f"delta_{layer}": self.delta, f"scan_{layer}": self.scan}
        return {f"conv_{layer}": self.conv, **{name: value for name, value in both.items() if value is not None}}


@dataclass(frozen=True)
class StateRule:
    """Builds the part of a layer that stands in the place of attention, or beside it, and whose past is a state.

    Attributes:
        graph: where it is built.
        config, number: of the model, and which layer it is.
        params: the weights' parameters, by name.
        settles_by: the weights of a layer that `settled` reads.
    """

    settles_by: ClassVar[tuple[str, ...]] = ()

    graph: GraphModule
    config: ModelConfig
    number: int
    params: Mapping[str, Value]

    @abstractmethod
    def attended(self, n: Value, product: Product, past: Past | None) -> tuple[Value, Value, Past | None]:
        """What is added to the residual stream, [B, S, hidden]; the trail; and the states behind the last token.

        Args:
            n: [B, S, hidden], the layer's input after its norm.
            product: see `Product`.
            past: the states before the first token; None for whole sequences, B a number, which leave no states.
        """

    @abstractmethod
    def settled(self, trail: Value, past: Past) -> Past:
        """The states behind the tokens of a trail, [1, S, trail]."""

    def _param(self, name: str) -> Value:
        return self.params[f"blk.{self.number}.{name}"]

    def _convolved(self, mixed: Value, past: Past | None) -> Value:
        """silu of the sums over the last tokens that each channel sees, with its bias where there is one."""
        graph, name = self.graph, "ssm_conv1d"
        weight, bias = self._param(f"{name}.weight"), self.params.get(f"blk.{self.number}.{name}.bias")
        channels, taps = weight.shape
        shaped = graph.reshape(weight, [channels, 1, 1, taps], name=name)
        seen = graph.depthwise_conv1d_causal(mixed, shaped, None if past is None else past.conv, name=name)
        return graph.silu(seen if bias is None else graph.add(seen, bias, name=name), name=name)

    def _rows_left(self, mixed: Value, past: Past) -> Value:
        """What the next token's channels see: the last rows, of those before and these, [B, taps - 1, channels]."""
        return last_rows(self.graph, mixed, past.conv)


class DeltaRule(StateRule):
    """Layers with gated delta rules."""

    settles_by = ("ssm_conv1d.weight",)

    def attended(self, n: Value, product: Product, past: Past | None) -> tuple[Value, Value, Past | None]:
        graph, delta = self.graph, self._delta
        mixed, z = product(n, "attn_qkv"), product(n, "attn_gate")
        strength, step = self._strengths(n, product)
        beta = graph.sigmoid(strength, name="ssm_beta")
        stepped = graph.add(step, self._param("ssm_dt.bias"), name="ssm_alpha")
        decay = graph.mul(softplus(graph, stepped, name="ssm_alpha"), self._param("ssm_a"), name="ssm_alpha")
        trail = graph.concat([mixed, decay, beta], axis=2, name="trail")
        o, memory = self._steps(mixed, decay, beta, past)
        batch, length = n.shape[:2]
        gate = graph.reshape(z, [batch, length, delta.values, delta.size], name="attn_gate")
        normed = graph.rms_norm(o, self._param("ssm_norm.weight"), eps=self.config.eps, name="ssm_norm")
        gated = graph.mul(normed, graph.silu(gate, name="attn_gate"), name="ssm_norm")
        rows = graph.reshape(gated, [batch, length, delta.values * delta.size], name="ssm_norm")
        left = None if past is None else Past(self._rows_left(mixed, past), memory)
        return product(rows, "ssm_out"), trail, left

    def settled(self, trail: Value, past: Past) -> Past:
        graph, delta, name = self.graph, self._delta, "settle"
        mixed = graph.narrow(trail, 2, 0, delta.channels, name=name)
        decay, beta = (
            graph.narrow(trail, 2, start, delta.values, name=name)
            for start in (delta.channels, delta.channels + delta.values)
        )
        _, memory = self._steps(mixed, decay, beta, past)
        return Past(self._rows_left(mixed, past), memory)

    @property
    def _delta(self) -> Delta:
        delta = self.config.delta
        assert isinstance(delta, Delta)
        return delta

    def _strengths(self, n: Value, product: Product) -> tuple[Value, Value]:
        """What strengths and decays of all heads of values, [B, S, Hv], are made of."""
        graph, delta, (batch, length) = self.graph, self._delta, n.shape[:2]
        if not self.config.plan.grouped:
            return product(n, "ssm_beta"), product(n, "ssm_alpha")
        each, name = delta.values // delta.keys, "ssm_ba"
        both = graph.reshape(product(n, name), [batch, length, delta.keys, 2 * each], name=name)
        strength, step = (
            graph.reshape(graph.narrow(both, 3, start, each, name=name), [batch, length, delta.values], name=name)
            for start in (0, each)
        )
        return strength, step

    def _steps(self, mixed: Value, decay: Value, beta: Value, past: Past | None) -> tuple[Value, Value]:
        """Results [B, S, Hv, n] of all steps, and the memory behind them."""
        graph, delta = self.graph, self._delta
        batch, length = mixed.shape[:2]
        seen, memory = self._convolved(mixed, past), None if past is None else past.delta
        heads = (delta.keys, delta.keys, delta.values)
        starts = (0, delta.keys * delta.size, 2 * delta.keys * delta.size)
        q, k, v = (
            graph.reshape(
                graph.narrow(seen, 2, start, count * delta.size, name="delta"),
                [batch, length, count, delta.size],
                name="delta",
            )
            for start, count in zip(starts, heads, strict=True)
        )
        q, k = self._for_values(self._unit(q)), self._for_values(self._unit(k))
        return graph.gated_delta_net(q, k, v, decay, beta, memory, chunk=1, name="delta")

    def _unit(self, x: Value) -> Value:
        """x / sqrt(sum x^2 + eps) of each head: a norm by the mean of n squares has sqrt(n) of that length."""
        n = self._delta.size
        gamma = np.full(n, n**-0.5, np.float32)
        return self.graph.rms_norm(x, self.graph.constant(gamma), eps=self.config.eps / n, name="delta")

    def _for_values(self, x: Value) -> Value:
        """Heads of keys, one for each head of values."""
        graph, delta, times = self.graph, self._delta, self._delta.values // self._delta.keys
        if times == 1:
            return x
        if not self.config.plan.grouped:
            return graph.concat([x] * times, axis=2, name="delta")
        batch, length = x.shape[:2]
        one = graph.reshape(x, [batch, length, delta.keys, 1, delta.size], name="delta")
        several = graph.concat([one] * times, axis=3, name="delta")
        return graph.reshape(several, [batch, length, delta.values, delta.size], name="delta")


def softplus(graph: GraphModule, x: Value, *, name: str) -> Value:
    """log(1 + e^x) = max(x, 0) + log(1 + e^-|x|), which overflows nowhere."""
    small = graph.exp(graph.neg(graph.abs(x, name=name), name=name), name=name)
    rest = graph.log(graph.add(small, 1.0, name=name), name=name)
    return graph.add(graph.maximum(x, 0.0, name=name), rest, name=name)


def last_rows(graph: GraphModule, mixed: Value, before: Value) -> Value:
    """The last rows, [B, kept, channels], of some, [B, S, channels], that are behind as many others."""
    rows, length, kept = graph.concat([before, mixed], axis=1, name="conv"), mixed.shape[1], before.shape[1]
    assert isinstance(kept, int), "states are of one size"
    if isinstance(length, int):
        return graph.narrow(rows, 1, length, kept, name="conv")
    return graph.dynamic_slice(rows, graph.dim(mixed, 1, "i32", name="conv"), kept, 1, name="conv")


__all__ = ["DeltaRule", "Past", "Product", "StateRule", "last_rows", "softplus"]
