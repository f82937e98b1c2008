# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Conformer blocks, of sequences of any length."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from networks.base import Shapes


@dataclass(frozen=True)
class Conformer:
    """Blocks of half a feed-forward network, attention, a gated convolution, and the other half.

    Attributes:
        width: elements of a token.
        heads: of attention.
        hidden: elements inside of feed-forward networks.
        taps: of the convolution, an odd number.
        layers: how many blocks.
        maxima: see `Network`.
    """

    width: int = 256
    heads: int = 4
    hidden: int = 1024
    taps: int = 31
    layers: int = 4
    maxima: Mapping[str, int] = field(default_factory=lambda: {"s": 1024})

    @property
    def input_shape(self) -> tuple[int | str, ...]:
        """One sequence, [1, s, width]."""
        return (1, "s", self.width)

    def shapes(self) -> Shapes:
        """See `Network`."""
        n, found = self.width, Shapes()
        products: Shapes = {"qkv": (n, 3 * n), "out": (n, n), "in": (n, 2 * n), "back": (n, n)}
        for half in ("first", "second"):
            products |= {f"{half}.up": (n, self.hidden), f"{half}.down": (self.hidden, n)}
        for layer in range(self.layers):
            for name, shape in products.items():
                found[f"{layer}.{name}"], found[f"{layer}.{name}.shift"] = shape, shape[1:]
            for name in ("first", "attention", "convolution", "batch", "second", "last"):
                found |= {f"{layer}.{name}.{part}": (n,) for part in ("factor", "shift")}
            found[f"{layer}.taps"] = (n, 1, 1, self.taps)
        return found

    def __call__(self, f: Any, x: Any, w: Mapping[str, Any]) -> Any:
        """[1, s, width]"""
        n, around = self.width, self.taps // 2
        for layer in range(self.layers):
            own = {name.partition(".")[2]: value for name, value in w.items() if name.startswith(f"{layer}.")}

            def norm(x: Any, name: str, own: Mapping[str, Any] = own) -> Any:
                return f.layer_norm(x, own[f"{name}.factor"], own[f"{name}.shift"], 1e-5)

            def linear(x: Any, name: str, own: Mapping[str, Any] = own) -> Any:
                return f.linear(x, own[name], own[f"{name}.shift"])

            def half(x: Any, name: str, norm: Any = norm, linear: Any = linear) -> Any:
                return x + linear(f.silu(linear(norm(x, name), f"{name}.up")), f"{name}.down") * 0.5

            x = half(x, "first")
            qkv = linear(norm(x, "attention"), "qkv")
            q, k, v = (qkv[:, :, part * n : (part + 1) * n] for part in range(3))
            x = x + linear(f.attention(q, k, v, self.heads, self.heads, False), "out")
            both = linear(norm(x, "convolution"), "in")
            gated = both[:, :, :n] * f.sigmoid(both[:, :, n:])
            y = f.depthwise(gated, own["taps"], around, around) * own["batch.factor"] + own["batch.shift"]
            x = half(x + linear(f.silu(y), "back"), "second")
            x = norm(x, "last")
        return x
