# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Milliseconds of the convolutions of ResNet-18: ours, and those of what else is installed, in turns.

    python benchmarks/conv.py --rounds 9 --threads 1
    python benchmarks/conv.py --layers 64x56x56:64x3x3/1+1 3x224x224:64x7x7/2+3

A layer is Ci x H x W : Co x kH x kW / stride + padding. torch (oneDNN) and onnxruntime are rivals where they can be
imported. `vs` says how many times longer the other takes; results are compared with the reference first.
"""

from __future__ import annotations

import argparse
import importlib.util
import re
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from harness import interleave, ratios, report, versions

import rlx_mlir as rlx

LAYERS = (
    *("3x224x224:64x7x7/2+3", "64x56x56:64x3x3/1+1", "64x56x56:128x3x3/2+1", "64x56x56:128x1x1/2+0"),
    *("128x28x28:128x3x3/1+1", "128x28x28:256x3x3/2+1", "256x14x14:256x3x3/1+1", "256x14x14:512x3x3/2+1"),
    "512x7x7:512x3x3/1+1",
)
_LAYER = re.compile(r"(\d+)x(\d+)x(\d+):(\d+)x(\d+)x(\d+)/(\d+)\+(\d+)")

Timed = Callable[[], float]


@dataclass(frozen=True)
class Layer:
    """One convolution of an image, and its numbers."""

    x: np.ndarray
    weight: np.ndarray
    stride: int
    padding: int

    @classmethod
    def parse(cls, text: str) -> Layer:
        """From a layer as text, with random numbers."""
        match = _LAYER.fullmatch(text)
        if match is None:
            raise SystemExit(f"a layer is CixHxW:CoxkHxkW/stride+padding, but got {text}")
        inputs, height, width, outputs, rows, columns, stride, padding = map(int, match.groups())
        rng = np.random.default_rng(0)
        x = rng.standard_normal((1, inputs, height, width)).astype(np.float32)
        weight = rng.standard_normal((outputs, inputs, rows, columns)).astype(np.float32)
        return cls(x, weight / np.float32((inputs * rows * columns) ** 0.5), stride, padding)

    def module(self) -> rlx.GraphModule:
        """The module with this operation alone."""
        m = rlx.GraphModule.mir("conv")
        x, w = m.input("x", self.x.shape), m.param("w", self.weight.shape)
        m.set_outputs({"y": m.conv2d(x, w, stride=self.stride, padding=self.padding)})
        return m

    def ours(self, threads: int) -> Callable[[], np.ndarray]:
        """What runs it."""
        executable = rlx.compile(self.module(), threads=threads, cache=False)
        executable.set_params({"w": self.weight})
        return lambda: executable.run({"x": self.x})["y"]

    def torch(self, threads: int) -> Callable[[], np.ndarray]:
        """The same by torch."""
        import torch

        torch.set_num_threads(threads)
        x, w = torch.from_numpy(self.x), torch.from_numpy(self.weight)

        def run() -> np.ndarray:
            with torch.inference_mode():
                return torch.nn.functional.conv2d(x, w, stride=self.stride, padding=self.padding).numpy()

        return run

    def onnxruntime(self, threads: int) -> Callable[[], np.ndarray]:
        """The same by onnxruntime."""
        import onnx
        import onnxruntime
        from onnx import helper, numpy_helper

        attributes = {"strides": [self.stride] * 2, "pads": [self.padding] * 4}
        node = helper.make_node("Conv", ["x", "w"], ["y"], **attributes)
        values = [
            helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, list(shape))
            for name, shape in (("x", self.x.shape), ("y", (1, len(self.weight), None, None)))
        ]
        weight = numpy_helper.from_array(self.weight, "w")
        graph = helper.make_graph([node], "conv", values[:1], values[1:], [weight])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        chosen = onnxruntime.SessionOptions()
        chosen.intra_op_num_threads = threads
        session = onnxruntime.InferenceSession(model.SerializeToString(), chosen, ["CPUExecutionProvider"])
        return lambda: session.run(None, {"x": self.x})[0]


def timed(function: Callable[[], np.ndarray]) -> Timed:
    """Milliseconds of a call."""

    def run() -> float:
        begin = time.perf_counter()
        function()
        return (time.perf_counter() - begin) * 1e3

    return run


def measure(text: str, threads: int, rounds: int, rivals: list[str]) -> dict[str, object]:
    """The row of a layer; checks that all results agree."""
    layer = Layer.parse(text)
    functions = {name: getattr(layer, name)(threads) for name in ("ours", *rivals)}
    expected = rlx.interpret(layer.module(), {"x": layer.x, "w": layer.weight})["y"]
    for name, function in functions.items():
        np.testing.assert_allclose(function(), expected, atol=1e-3, err_msg=name)
    series = interleave({name: timed(function) for name, function in functions.items()}, rounds)
    rate = f"{2 * expected.size * layer.weight[0].size / series['ours'].median / 1e6:.1f}"
    return {"layer": text, "GFLOP/s": rate, **ratios(series)}


def main() -> None:
    """Parses the command line, measures, and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--layers", nargs="+", default=LAYERS)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rivals = [name for name in ("torch", "onnxruntime") if importlib.util.find_spec(name)]
    rows = [measure(text, options.threads, options.rounds, rivals) for text in options.layers]
    report(f"milliseconds, {options.threads} threads", rows, versions(["rlx-mlir", *rivals]), options.json)


if __name__ == "__main__":
    main()
