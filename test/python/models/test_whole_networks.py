# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The networks of benchmarks, compiled once for any sizes: against the same by numpy, and by torch where it is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy_networks import Numpy

import rlx_mlir as rlx

networks = pytest.importorskip("networks", reason="source distributions have no benchmarks")
functions = pytest.importorskip("networks.functions")

#: Each network as a small one, and the sizes of its inputs.
CASES: dict[str, tuple[Any, list[tuple[int, ...]]]] = {
    "resnet18": (
        networks.ResNet(widths=(8, 16), classes=5, maxima={"h": 48, "w": 48}),
        [(1, 3, 32, 32), (1, 3, 45, 20), (1, 3, 9, 48), (1, 3, 1, 2)],
    ),
    "dinov2": (
        networks.VisionTransformer(width=32, heads=2, layers=2, hidden=48, patch=7, side=5, maxima={"h": 64, "w": 64}),
        [(1, 3, 35, 35), (1, 3, 60, 32), (1, 3, 14, 8), (1, 3, 7, 63)],
    ),
    "mamba": (
        networks.Mamba(width=16, inner=24, states=4, rank=3, layers=2, maxima={"s": 40}),
        [(1, 7, 16), (1, 1, 16), (1, 40, 16)],
    ),
    "mixtral": (
        networks.MixtureOfExperts(width=32, heads=4, shared=2, hidden=48, experts=5, maxima={"s": 40}),
        [(1, 7, 32), (1, 1, 32), (1, 40, 32)],
    ),
    "conformer": (
        networks.Conformer(width=32, heads=4, hidden=48, taps=7, layers=2, maxima={"s": 40}),
        [(1, 7, 32), (1, 1, 32), (1, 40, 32)],
    ),
}


def executable(network: Any, weights: dict[str, np.ndarray], threads: int) -> rlx.Executable:
    m = rlx.GraphModule.mir("network")
    parameters = {}
    for name, shape in network.shapes().items():
        if weights[name].dtype == np.uint8:
            experts, inputs, outputs = shape
            parameters[name] = m.param(name, [experts * outputs, inputs], packed="q8_0")
        else:
            parameters[name] = m.param(name, shape)
    m.set_outputs({"y": network(functions.Ours(m), m.input("x", network.input_shape), parameters)})
    compiled = rlx.compile(m, threads=threads, maxima=dict(network.maxima))
    compiled.set_params(weights)
    return compiled


def drawn(sizes: tuple[int, ...]) -> np.ndarray:
    return np.random.default_rng(sum(sizes)).standard_normal(sizes).astype(np.float32)


@pytest.mark.parametrize("name", CASES)
def test_networks_of_any_size(name: str) -> None:
    network, inputs = CASES[name]
    weights = networks.draw(network, 0)
    compiled = {threads: executable(network, weights, threads) for threads in (1, 2)}
    wide = {name: array.astype(np.float64) for name, array in weights.items()}
    for sizes in inputs:
        x = drawn(sizes)
        expected = network(Numpy(), x.astype(np.float64), wide)
        found = {threads: own.run({"x": x})["y"] for threads, own in compiled.items()}
        np.testing.assert_allclose(found[1], expected, atol=1e-4, err_msg=str(sizes))
        np.testing.assert_array_equal(found[2], found[1])


def test_no_part_of_a_network_is_left_out() -> None:
    """Every weight matters: the networks compute with all that they have."""
    for name, (network, inputs) in CASES.items():
        weights = {own: array.astype(np.float64) for own, array in networks.draw(network, 0).items()}
        x = drawn(inputs[0]).astype(np.float64)
        before = network(Numpy(), x, weights)
        for own, array in weights.items():
            after = network(Numpy(), x, {**weights, own: array * 1.5})
            assert np.abs(after - before).max() > 1e-6, f"{name}: {own}"


def packed(weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Weights of experts [e, k, n] in blocks of q8_0, uint8 [e * n, bytes], and the numbers that these stand for."""
    blocks = weight.transpose(0, 2, 1).reshape(-1, weight.shape[1] // 32, 32)
    scale = (np.abs(blocks).max(-1, keepdims=True) / 127).astype(np.float16)
    integers = np.round(blocks / scale.astype(np.float32)).astype(np.int8)
    rows = np.concatenate([scale.view(np.uint8), integers.view(np.uint8)], -1).reshape(len(blocks), -1)
    numbers = (integers * scale.astype(np.float64)).reshape(len(weight), weight.shape[2], weight.shape[1])
    return rows, numbers.transpose(0, 2, 1)


def test_experts_may_be_packed() -> None:
    network = networks.MixtureOfExperts(width=32, heads=2, shared=1, hidden=64, experts=5, maxima={"s": 20})
    weights = networks.draw(network, 0)
    wide = {name: array.astype(np.float64) for name, array in weights.items()}
    for name in ("gate", "up", "down"):
        weights[name], wide[name] = packed(weights[name])
    compiled = executable(network, weights, 2)
    for count in (1, 20):
        x = drawn((1, count, 32))
        expected = network(Numpy(), x.astype(np.float64), wide)
        np.testing.assert_allclose(compiled.run({"x": x})["y"], expected, atol=1e-4)


@pytest.mark.parametrize("name", CASES)
def test_networks_are_those_of_torch(name: str) -> None:
    torch = pytest.importorskip("torch")
    network, inputs = CASES[name]
    weights = networks.draw(network, 0)
    compiled, own = executable(network, weights, 1), {n: torch.from_numpy(array) for n, array in weights.items()}
    for sizes in inputs:
        x = drawn(sizes)
        with torch.inference_mode():
            expected = network(functions.Torch(), torch.from_numpy(x), own).numpy()
        np.testing.assert_allclose(compiled.run({"x": x})["y"], expected, atol=1e-4, err_msg=str(sizes))
