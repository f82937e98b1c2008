# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Gradients of whole networks, compiled: against differences of the same by numpy, and torch's where it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from numpy_networks import Numpy

import rlx_mlir as rlx

networks = pytest.importorskip("networks", reason="source distributions have no benchmarks")
functions = pytest.importorskip("networks.functions")

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Decoder:
    """A layer of a decoder, of sequences of any length: of LLaMA models, or of Gemma 3 with norms around everything.

    Attributes:
        gemma: which of both.
        width, heads, shared, head, hidden: elements of a token; heads, those with keys and values, elements of one;
            elements between.
    """

    gemma: bool = False
    width: int = 32
    heads: int = 4
    shared: int = 2
    head: int = 8
    hidden: int = 48
    maxima: Mapping[str, int] = field(default_factory=lambda: {"s": 16})

    @property
    def input_shape(self) -> tuple[int | str, ...]:
        """One sequence, [1, s, width]."""
        return (1, "s", self.width)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of each weight, by name."""
        inner, narrow = self.heads * self.head, self.shared * self.head
        found = {"q": (self.width, inner), "k": (self.width, narrow), "v": (self.width, narrow)}
        found |= {"o": (inner, self.width), "gate": (self.width, self.hidden), "up": (self.width, self.hidden)}
        found["down"] = (self.hidden, self.width)
        norms = ["first.factor", "second.factor", *(["third.factor", "fourth.factor"] if self.gemma else [])]
        of_heads = dict.fromkeys(["q.factor", "k.factor"] if self.gemma else [], (self.head,))
        return {**found, **dict.fromkeys(norms, (self.width,)), **of_heads}

    def __call__(self, f: Any, x: Any, w: Mapping[str, Any]) -> Any:
        """[1, s, width]"""

        def norm(x: Any, name: str) -> Any:
            return f.rms_norm(x, w[f"{name}.factor"], 1e-6)

        def of_heads(x: Any, name: str, count: int) -> Any:
            """Normalised, and turned by the angles of positions: the second half of each head beside the first."""
            x = f.reshape(x, (1, -1, count, self.head))
            return f.reshape(f.turned(norm(x, name) if self.gemma else x), (1, -1, count * self.head))

        h = norm(x, "first")
        q, k, v = (f.linear(h, w[name]) for name in "qkv")
        q, k = of_heads(q, "q", self.heads), of_heads(k, "k", self.shared)
        a = f.linear(f.attention(q, k, v, self.heads, self.shared, True), w["o"])
        x = x + (norm(a, "third") if self.gemma else a)
        h = norm(x, "second")
        gate = f.linear(h, w["gate"])
        y = f.linear((f.gelu_tanh(gate) if self.gemma else f.silu(gate)) * f.linear(h, w["up"]), w["down"])
        return x + (norm(y, "fourth") if self.gemma else y)


@dataclass(frozen=True)
class Encoder(Decoder):
    """A layer of BERT, as MiniLM has them: norms behind sums, biases, all tokens see each other."""

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of each weight, by name."""
        n, inner = self.width, self.hidden
        found = {**dict.fromkeys("qkvo", (n, n)), "up": (n, inner), "down": (inner, n)}
        found |= {f"{name}.shift": shape[1:] for name, shape in list(found.items())}
        return found | {f"{a}.{b}": (n,) for a in ("first", "second") for b in ("factor", "shift")}

    def __call__(self, f: Any, x: Any, w: Mapping[str, Any]) -> Any:
        """[1, s, width]"""

        def linear(x: Any, name: str) -> Any:
            return f.linear(x, w[name], w[f"{name}.shift"])

        def norm(x: Any, name: str) -> Any:
            return f.layer_norm(x, w[f"{name}.factor"], w[f"{name}.shift"], 1e-12)

        a = f.attention(*(linear(x, name) for name in "qkv"), self.heads, self.heads, False)
        x = norm(x + linear(a, "o"), "first")
        return norm(x + linear(f.gelu(linear(x, "up")), "down"), "second")


#: Angles of the first half of a head, for positions.
ANGLES = np.arange(16)[:, None] / 100.0 ** (np.arange(4) / 4)


class OurFunctions(functions.Ours):
    """With rotations, and gelu by tanh."""

    def __init__(self, m: rlx.GraphModule) -> None:
        super().__init__(m)
        self.gelu_tanh = m.gelu_approx

    def turned(self, x: Any) -> Any:
        m = self._m
        batch, length, heads, size = x.shape
        cos, sin = (m.constant(table.astype(np.float32)) for table in (np.cos(ANGLES), np.sin(ANGLES)))
        flat = m.reshape(x, [batch, length, heads * size])
        return m.reshape(m.rope(flat, cos, sin, head_dim=size, style="half"), [batch, length, heads, size])


class NumpyFunctions(Numpy):
    """The same by numpy."""

    def gelu_tanh(self, x: np.ndarray) -> np.ndarray:
        return x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))

    def turned(self, x: np.ndarray) -> np.ndarray:
        cos, sin = (table[: x.shape[1], None] for table in (np.cos(ANGLES), np.sin(ANGLES)))
        a, b = np.split(x, 2, -1)
        return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)


CASES: dict[str, tuple[Any, tuple[int, ...]]] = {
    "smollm2": (Decoder(), (1, 9, 32)),
    "gemma": (Decoder(gemma=True), (1, 9, 32)),
    "minilm": (Encoder(), (1, 9, 32)),
    "resnet18": (networks.ResNet(widths=(8, 16), classes=5, maxima={"h": 24, "w": 24}), (1, 3, 20, 24)),
    "dinov2": (
        networks.VisionTransformer(width=16, heads=2, layers=1, hidden=24, patch=7, side=3, maxima={"h": 30, "w": 30}),
        (1, 3, 28, 14),
    ),
    "mamba": (networks.Mamba(width=8, inner=12, states=4, rank=3, layers=2, maxima={"s": 16}), (1, 9, 8)),
    "mixtral": (
        networks.MixtureOfExperts(width=16, heads=2, shared=1, hidden=24, experts=5, maxima={"s": 16}),
        (1, 9, 16),
    ),
    "conformer": (networks.Conformer(width=16, heads=2, hidden=24, taps=5, layers=1, maxima={"s": 16}), (1, 9, 16)),
}


def normal(*shape: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def gradients(network: Any, weights: Arrays, x: np.ndarray) -> tuple[Arrays, np.ndarray]:
    """By x and by every weight, of compiled code; and the cotangent of the result."""
    m = rlx.GraphModule.mir("network")
    parameters = {name: m.param(name, shape) for name, shape in network.shapes().items()}
    m.set_outputs({"y": network(OurFunctions(m), m.input("x", network.input_shape), parameters)})
    executable = rlx.compile(rlx.vjp(m, ["x", *parameters]), maxima=dict(network.maxima))
    executable.set_params(weights)
    d_y = normal(*np.shape(network(NumpyFunctions(), x.astype(np.float64), wide(weights))), seed=3)
    found = executable.run({"x": x, "d_y": d_y})
    return {name.removeprefix("d_"): array for name, array in found.items() if name != "y"}, d_y


def wide(arrays: Mapping[str, np.ndarray]) -> Arrays:
    return {name: array.astype(np.float64) for name, array in arrays.items()}


@pytest.mark.quick(3)
@pytest.mark.parametrize("name", CASES)
def test_gradients_are_what_differences_say(name: str) -> None:
    """Along a direction of each argument: kinks are rarely met by small steps."""
    network, sizes = CASES[name]
    weights, x = networks.draw(network, 0), normal(*sizes, seed=1)
    found, d_y = gradients(network, weights, x)
    values = wide({"x": x, **weights})

    def at(own: str, step: np.ndarray) -> float:
        moved = {**values, own: values[own] + step}
        return float(np.sum(d_y * network(NumpyFunctions(), moved["x"], moved)))

    for own, gradient in found.items():
        direction = normal(*gradient.shape, seed=4).astype(np.float64)
        direction /= max(np.linalg.norm(direction), 1e-30)
        step = 1e-5 * direction
        expected = (8 * (at(own, step) - at(own, -step)) - (at(own, 2 * step) - at(own, -2 * step))) / 12e-5
        size = np.linalg.norm(gradient.astype(np.float64))
        # A gradient that is 0 by rights, as that of what keys are shifted by, is roundings of sums of others.
        assert abs(np.sum(gradient * direction) - expected) <= 1e-4 * max(size, 3e-3), f"by {own}"


@pytest.mark.parametrize("name", CASES)
def test_gradients_are_those_of_torch(name: str) -> None:
    torch = pytest.importorskip("torch")

    class TorchFunctions(functions.Torch):
        def gelu_tanh(self, x: Any) -> Any:
            return torch.nn.functional.gelu(x, approximate="tanh")

        def turned(self, x: Any) -> Any:
            cos, sin = (torch.from_numpy(t[: x.shape[1], None]).float() for t in (np.cos(ANGLES), np.sin(ANGLES)))
            a, b = x.chunk(2, -1)
            return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)

    network, sizes = CASES[name]
    weights, x = networks.draw(network, 0), normal(*sizes, seed=1)
    found, d_y = gradients(network, weights, x)
    own = {key: torch.from_numpy(array).requires_grad_() for key, array in {"x": x, **weights}.items()}
    network(TorchFunctions(), own["x"], own).backward(torch.from_numpy(d_y))
    expected = {key: tensor.grad.numpy() for key, tensor in own.items()}
    largest = max(float(np.abs(array).max()) for array in expected.values())
    for key, gradient in found.items():  # some are 0 but for rounding: keys' biases change no weight of attention
        scale = float(np.abs(expected[key]).max())
        np.testing.assert_allclose(gradient, expected[key], atol=1e-5 * scale + 1e-6 * largest, err_msg=key)
