# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A stack of Mamba layers, of sequences of any length."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from networks.base import Shapes


@dataclass(frozen=True)
class Mamba:
    """Layers of a short causal convolution and a selective scan, gated.

    Attributes:
        width: elements of a token.
        inner: channels of the scan.
        states: of each channel.
        rank: elements of which steps are made.
        taps: of the convolution.
        layers: how many.
        maxima: see `Network`.
    """

    width: int = 768
    inner: int = 1536
    states: int = 16
    rank: int = 48
    taps: int = 4
    layers: int = 4
    maxima: Mapping[str, int] = field(default_factory=lambda: {"s": 1024})

    @property
    def input_shape(self) -> tuple[int | str, ...]:
        """One sequence, [1, s, width]."""
        return (1, "s", self.width)

    def shapes(self) -> Shapes:
        """See `Network`."""
        inner, found = self.inner, Shapes()
        for layer in range(self.layers):
            own: Shapes = {
                "norm.factor": (self.width,),
                "in": (self.width, 2 * inner),
                "conv": (inner, 1, 1, self.taps),
                "conv.shift": (inner,),
                "parts": (inner, self.rank + 2 * self.states),
                "step": (self.rank, inner),
                "step.shift": (inner,),
                "rates": (inner, self.states),
                "past.factor": (inner,),
                "out": (inner, self.width),
            }
            found |= {f"{layer}.{name}": shape for name, shape in own.items()}
        return {**found, "norm.factor": (self.width,)}

    def __call__(self, f: Any, x: Any, w: Mapping[str, Any]) -> Any:
        """[1, s, width]"""
        inner, states, rank = self.inner, self.states, self.rank
        for layer in range(self.layers):
            own = {name.partition(".")[2]: value for name, value in w.items() if name.startswith(f"{layer}.")}
            both = f.linear(f.rms_norm(x, own["norm.factor"], 1e-5), own["in"])
            y, gate = both[:, :, :inner], both[:, :, inner:]
            y = f.silu(f.depthwise(y, own["conv"], self.taps - 1, 0) + own["conv.shift"])
            parts = f.linear(y, own["parts"])
            step = f.softplus(f.linear(parts[:, :, :rank], own["step"], own["step.shift"]))
            b, c = parts[:, :, rank : rank + states], parts[:, :, rank + states :]
            scanned = f.selective_scan(y, step, -f.exp(own["rates"]), b, c) + y * own["past.factor"]
            x = x + f.linear(scanned * f.silu(gate), own["out"])
        return f.rms_norm(x, w["norm.factor"], 1e-5)
