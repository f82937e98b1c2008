# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Milliseconds of ResNet-18 with random weights: ours, and torch where it is installed, in turns; results are compared.

    python benchmarks/resnet.py --rounds 9 --threads 1 --size 224

Norms are those of inference, a factor and a shift for each channel. `vs` says how many times longer the other takes.
"""

from __future__ import annotations

import argparse
import importlib.util
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from harness import NOISY, interleave, report, versions

import rlx_mlir as rlx

#: Channels of the four groups of two blocks; each group but the first halves the image.
WIDTHS = (64, 128, 256, 512)
CLASSES = 1000

Weights = Mapping[str, np.ndarray]


def shapes() -> dict[str, tuple[int, ...]]:
    """The shape of each weight, by name."""
    found: dict[str, tuple[int, ...]] = {"stem": (WIDTHS[0], 3, 7, 7)}
    inputs = WIDTHS[0]
    for group, width in enumerate(WIDTHS):
        for block in range(2):
            name = f"{group}.{block}"
            found[f"{name}.first"], found[f"{name}.second"] = (width, inputs, 3, 3), (width, width, 3, 3)
            if inputs != width:
                found[f"{name}.side"] = (width, inputs, 1, 1)
            inputs = width
    norms = {f"{name}.{part}": shape[:1] for name, shape in found.items() for part in ("factor", "shift")}
    return {**found, **norms, "out": (WIDTHS[-1], CLASSES), "bias": (CLASSES,)}


def weights(seed: int) -> dict[str, np.ndarray]:
    """Random weights that keep the size of what goes through."""
    rng = np.random.default_rng(seed)
    found = {}
    for name, shape in shapes().items():
        drawn = rng.standard_normal(shape).astype(np.float32)
        fan = max(1, int(np.prod(shape[1:])) if len(shape) == 4 else shape[0])
        found[name] = 1 + drawn / 10 if name.endswith("factor") else drawn * np.float32((2 / fan) ** 0.5)
    return found


def resnet(ops: Any, x: Any, w: Mapping[str, Any]) -> Any:
    """The network, in terms of the functions that `Ours` and `Torch` have."""

    def layer(x: Any, name: str, stride: int, padding: int) -> Any:
        return ops.norm(ops.conv(x, w[name], stride, padding), w[f"{name}.factor"], w[f"{name}.shift"])

    x = ops.pool(ops.relu(layer(x, "stem", 2, 3)))
    for group in range(len(WIDTHS)):
        for block in range(2):
            name, stride = f"{group}.{block}", 2 if group and not block else 1
            inner = layer(ops.relu(layer(x, f"{name}.first", stride, 1)), f"{name}.second", 1, 1)
            side = layer(x, f"{name}.side", stride, 0) if f"{name}.side" in w else x
            x = ops.relu(inner + side)
    return ops.linear(ops.mean(x), w["out"], w["bias"])


class Ours:
    """The network's functions as builders."""

    def __init__(self, m: rlx.GraphModule) -> None:
        self._m = m
        self.relu = m.relu

    def conv(self, x: Any, w: Any, stride: int, padding: int) -> Any:
        return self._m.conv2d(x, w, stride=stride, padding=padding)

    def norm(self, x: Any, factor: Any, shift: Any) -> Any:
        by_channel = (self._m.reshape(vector, [-1, 1, 1]) for vector in (factor, shift))
        return x * next(by_channel) + next(by_channel)

    def pool(self, x: Any) -> Any:
        return self._m.pool(x, "max", 3, stride=2, padding=1)

    def mean(self, x: Any) -> Any:
        return self._m.mean(x, [2, 3])

    def linear(self, x: Any, w: Any, bias: Any) -> Any:
        return x @ w + bias


class Torch:
    """The same by torch."""

    def __init__(self) -> None:
        import torch

        self._f = torch.nn.functional
        self.relu = torch.relu

    def conv(self, x: Any, w: Any, stride: int, padding: int) -> Any:
        return self._f.conv2d(x, w, stride=stride, padding=padding)

    def norm(self, x: Any, factor: Any, shift: Any) -> Any:
        return x * factor[:, None, None] + shift[:, None, None]

    def pool(self, x: Any) -> Any:
        return self._f.max_pool2d(x, 3, stride=2, padding=1)

    def mean(self, x: Any) -> Any:
        return x.mean((2, 3))

    def linear(self, x: Any, w: Any, bias: Any) -> Any:
        return x @ w + bias


def ours(image: np.ndarray, given: Weights, threads: int) -> Callable[[], np.ndarray]:
    """What runs the network."""
    m = rlx.GraphModule.mir("resnet18")
    parameters = {name: m.param(name, shape) for name, shape in shapes().items()}
    m.set_outputs({"y": resnet(Ours(m), m.input("x", image.shape), parameters)})
    executable = rlx.compile(m, threads=threads)
    executable.set_params(given)
    return lambda: executable.run({"x": image})["y"]


def of_torch(image: np.ndarray, given: Weights, threads: int) -> Callable[[], np.ndarray]:
    """The same by torch."""
    import torch

    torch.set_num_threads(threads)
    x, w = torch.from_numpy(image), {name: torch.from_numpy(array) for name, array in given.items()}

    def run() -> np.ndarray:
        with torch.inference_mode():
            return resnet(Torch(), x, w).numpy()

    return run


def timed(function: Callable[[], np.ndarray]) -> Callable[[], float]:
    """Milliseconds of a call."""

    def run() -> float:
        begin = time.perf_counter()
        function()
        return (time.perf_counter() - begin) * 1e3

    return run


def main() -> None:
    """Parses the command line, compares, measures, and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    image = np.random.default_rng(1).standard_normal((1, 3, options.size, options.size)).astype(np.float32)
    given = weights(0)
    functions = {"ours": ours(image, given, options.threads)}
    rivals = ["torch"] if importlib.util.find_spec("torch") else []
    if rivals:
        functions["torch"] = of_torch(image, given, options.threads)
    results = {name: function() for name, function in functions.items()}
    scale = float(np.abs(results["ours"]).max())
    for name, result in results.items():
        np.testing.assert_allclose(result, results["ours"], atol=1e-4 * scale, err_msg=name)
    series = interleave({name: timed(function) for name, function in functions.items()}, options.rounds)
    own = series["ours"]
    noisy = " noisy" if own.spread > NOISY else ""
    row: dict[str, object] = {"image": options.size, "ours": own.median, "spread": f"{own.spread:.0%}{noisy}"}
    for name in rivals:
        row |= {name: series[name].median, f"vs {name}": f"{series[name].median / own.median:.2f}x"}
    report(f"milliseconds, {options.threads} threads", [row], versions(["rlx-mlir", *rivals]), options.json)


if __name__ == "__main__":
    main()
