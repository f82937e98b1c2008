# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Milliseconds of convolutions of ResNet and MobileNet: ours, and those of what else is installed, in turns.

    python benchmarks/conv.py --rounds 9 --threads 1
    python benchmarks/conv.py --layers 64x56x56:64x3x3/1+1 3x224x224:64x7x7/2+3

A layer is Ci x H x W : Co x kH x kW / stride + padding, and % groups where there are several. torch (oneDNN) and
onnxruntime are rivals where they can be imported. `vs` says how many times longer the other takes; results are compared
with the reference first.
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
    *("512x7x7:512x3x3/1+1", "64x56x56:256x1x1/1+0", "1024x14x14:256x1x1/1+0", "3x224x224:384x14x14/14+0"),
    *("96x112x112:96x3x3/2+1%96", "144x56x56:144x3x3/1+1%144", "576x14x14:576x3x3/1+1%576"),
    *("960x7x7:960x3x3/1+1%960", "240x28x28:240x5x5/2+2%240"),
)
_LAYER = re.compile(r"(\d+)x(\d+)x(\d+):(\d+)x(\d+)x(\d+)/(\d+)\+(\d+)(?:%(\d+))?")

Timed = Callable[[], float]


@dataclass(frozen=True)
class Layer:
    """One convolution of an image, and its numbers."""

    x: np.ndarray
    weight: np.ndarray
    stride: int
    padding: int
    groups: int

    @classmethod
    def parse(cls, text: str) -> Layer:
        """From a layer as text, with random numbers."""
        match = _LAYER.fullmatch(text)
        if match is None:
            raise SystemExit(f"a layer is CixHxW:CoxkHxkW/stride+padding%groups, but got {text}")
        inputs, height, width, outputs, rows, columns, stride, padding, groups = map(int, match.groups("1"))
        rng = np.random.default_rng(0)
        x = rng.standard_normal((1, inputs, height, width)).astype(np.float32)
        weight = rng.standard_normal((outputs, inputs // groups, rows, columns)).astype(np.float32)
        return cls(x, weight / np.float32(weight[0].size ** 0.5), stride, padding, groups)

    def module(self) -> rlx.GraphModule:
        """The module with this operation alone."""
        m = rlx.GraphModule.mir("conv")
        x, w = m.input("x", self.x.shape), m.param("w", self.weight.shape)
        m.set_outputs({"y": m.conv2d(x, w, stride=self.stride, padding=self.padding, groups=self.groups)})
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
                return torch.nn.functional.conv2d(x, w, None, self.stride, self.padding, 1, self.groups).numpy()

        return run

    def onnxruntime(self, threads: int) -> Callable[[], np.ndarray]:
        """The same by onnxruntime."""
        import onnx
        import onnxruntime
        from onnx import helper, numpy_helper

        attributes = {"strides": [self.stride] * 2, "pads": [self.padding] * 4, "group": self.groups}
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


def timed(function: Callable[[], np.ndarray], clock: Callable[[], float]) -> Timed:
    """Milliseconds of a call."""

    def run() -> float:
        begin = clock()
        function()
        return (clock() - begin) * 1e3

    return run


def measure(text: str, threads: int, rounds: int, rivals: list[str], clock: Callable[[], float]) -> dict[str, object]:
    """The row of a layer; checks that all results agree."""
    layer = Layer.parse(text)
    functions = {name: getattr(layer, name)(threads) for name in ("ours", *rivals)}
    expected = rlx.interpret(layer.module(), {"x": layer.x, "w": layer.weight})["y"]
    for name, function in functions.items():
        np.testing.assert_allclose(function(), expected, atol=1e-3, err_msg=name)
    series = interleave({name: timed(function, clock) for name, function in functions.items()}, rounds)
    rate = f"{2 * expected.size * layer.weight[0].size / series['ours'].median / 1e6:.1f}"
    return {"layer": text, "GFLOP/s": rate, **ratios(series)}


def main() -> None:
    """Parses the command line, measures, and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--layers", nargs="+", default=LAYERS)
    parser.add_argument(
        "--cpu-time", action="store_true", help="count the process's own time: for one thread on a busy machine"
    )
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.cpu_time and options.threads != 1:
        parser.error("--cpu-time is for --threads 1: with more, threads that wait count as if they worked")
    clock = time.process_time if options.cpu_time else time.perf_counter
    rivals = [name for name in ("torch", "onnxruntime") if importlib.util.find_spec(name)]
    rows = [measure(text, options.threads, options.rounds, rivals, clock) for text in options.layers]
    report(f"milliseconds, {options.threads} threads", rows, versions(["rlx-mlir", *rivals]), options.json)


if __name__ == "__main__":
    main()
