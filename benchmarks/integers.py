# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Milliseconds of products and convolutions of 8 bit integers: ours, ours of f32, and those of others, in turns.

    python benchmarks/integers.py --rounds 9 --threads 1
    python benchmarks/integers.py --products 1x1024x1024 128x384x1536 --layers 64x56x56:64x3x3/1+1

A product is rows x K x N, a layer Ci x H x W : Co x kH x kW / stride + padding. onnxruntime (QLinearMatMul and
QLinearConv) and torch (its quantised operations, of fbgemm) are rivals where they can be imported. Ours are compared
with the reference bit by bit; the others, which round ties to even, may be off by one. Weights have 7 bits: with 8,
some sums of the others saturate where a processor has no dot products of bytes. `vs` says how many times longer the
other takes.
"""

from __future__ import annotations

import argparse
import importlib.util
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from conv import LAYERS, Layer
from harness import interleave, ratios, report, versions

import rlx_mlir as rlx

PRODUCTS = ("1x1024x1024", "16x1024x1024", "128x384x1536", "128x1536x384", "512x1024x1024")

#: Scales of x, weight and result.
SCALES = (0.05, 0.02, 1.5)
#: Zero points of x and result; that of the weight is 0, as rivals have it.
X_ZERO, OUT_ZERO = 3, -4
MULT = float(np.float32(SCALES[0] * SCALES[1] / SCALES[2]))

Call = Callable[[], np.ndarray]


@dataclass(frozen=True)
class Case:
    """A product, or a convolution, and its numbers: bytes, and a bias of i32."""

    x: np.ndarray
    weight: np.ndarray
    bias: np.ndarray
    geometry: dict[str, int] | None
    """Stride and padding of a convolution; None: it is a product."""

    @classmethod
    def product(cls, text: str) -> Case:
        """From rows x K x N."""
        rows, depth, columns = map(int, text.split("x"))
        return cls._random((rows, depth), (depth, columns), columns, None)

    @classmethod
    def layer(cls, text: str) -> Case:
        """From a layer as text."""
        layer = Layer.parse(text)
        geometry = {"stride": layer.stride, "padding": layer.padding}
        return cls._random(layer.x.shape, layer.weight.shape, len(layer.weight), geometry)

    @classmethod
    def _random(cls, x: Any, weight: Any, outputs: int, geometry: dict[str, int] | None) -> Case:
        rng = np.random.default_rng(0)
        own = [rng.integers(-most, most + 1, shape).astype(np.int8) for most, shape in ((127, x), (63, weight))]
        return cls(*own, rng.integers(-5000, 5000, outputs).astype(np.int32), geometry)

    @property
    def multiplications(self) -> int:
        """How many there are for each result."""
        return len(self.weight) if self.geometry is None else self.weight[0].size

    def module(self) -> rlx.GraphModule:
        """The module with this operation alone."""
        m = rlx.GraphModule.mir("integers")
        operands = (
            m.input("x", self.x.shape, "i8"),
            m.param("w", self.weight.shape, "i8"),
            m.param("b", self.bias.shape, "i32"),
        )
        numbers: dict[str, Any] = {"x_zp": X_ZERO, "out_zp": OUT_ZERO, "mult": MULT}
        if self.geometry is None:
            m.set_outputs({"y": m.q_matmul(*operands, **numbers)})
        else:
            m.set_outputs({"y": m.q_conv2d(*operands, **self.geometry, **numbers)})
        return m

    def ours(self, threads: int) -> Call:
        """What runs it."""
        executable = rlx.compile(self.module(), threads=threads, cache=False)
        executable.set_params({"w": self.weight, "b": self.bias})
        return lambda: executable.run({"x": self.x})["y"]

    def of_f32(self, threads: int) -> Call:
        """The same operation of f32, by our kernels: of other numbers, so that its results aren't compared."""
        m = rlx.GraphModule.mir("floats")
        x, w = m.input("x", self.x.shape), m.param("w", self.weight.shape)
        m.set_outputs({"y": x @ w if self.geometry is None else m.conv2d(x, w, **self.geometry)})
        executable = rlx.compile(m, threads=threads, cache=False)
        executable.set_params({"w": self.weight.astype(np.float32)})
        x = self.x.astype(np.float32)
        return lambda: executable.run({"x": x})["y"]

    def torch(self, threads: int) -> Call:
        """The same by torch, whose activations are bytes without sign."""
        import torch

        torch.set_num_threads(threads)
        torch.backends.quantized.engine = "fbgemm"
        scales, zero = SCALES, X_ZERO + 128
        x = torch._make_per_tensor_quantized_tensor(
            torch.from_numpy((self.x.astype(np.int16) + 128).astype(np.uint8)), scales[0], zero
        )
        own = self.weight if self.geometry else np.ascontiguousarray(self.weight.T)
        weight = torch._make_per_tensor_quantized_tensor(torch.from_numpy(own), scales[1], 0)
        bias = torch.from_numpy(self.bias.astype(np.float32) * np.float32(scales[0] * scales[1]))
        last = (scales[2], OUT_ZERO + 128)
        quantized = torch.ops.quantized
        if self.geometry is None:
            packed = quantized.linear_prepack(weight, bias)

            def call() -> torch.Tensor:
                return quantized.linear(x, packed, *last)
        else:
            stride, padding = ([self.geometry[name]] * 2 for name in ("stride", "padding"))
            packed = quantized.conv2d_prepack(weight, bias, stride, padding, [1, 1], 1)
            x = x.contiguous(memory_format=torch.channels_last)

            def call() -> torch.Tensor:
                return quantized.conv2d(x, packed, *last)

        def run() -> np.ndarray:
            with torch.inference_mode():
                return (call().int_repr().numpy() ^ 0x80).view(np.int8)

        return run

    def onnxruntime(self, threads: int) -> Call:
        """The same by onnxruntime; its product has no bias, which is added to nothing here."""
        import onnx
        import onnxruntime
        from onnx import helper, numpy_helper

        constants = {
            **{f"s{i}": np.float32(scale) for i, scale in enumerate(SCALES)},
            **{f"z{i}": np.int8(zero) for i, zero in enumerate((X_ZERO, 0, OUT_ZERO))},
            "w": self.weight,
        }
        names = ["x", "s0", "z0", "w", "s1", "z1", "s2", "z2"]
        if self.geometry is None:
            node = helper.make_node("QLinearMatMul", names, ["y"])
        else:
            attributes = {"strides": [self.geometry["stride"]] * 2, "pads": [self.geometry["padding"]] * 4}
            constants["b"] = self.bias
            node = helper.make_node("QLinearConv", [*names, "b"], ["y"], **attributes)
        values = [
            helper.make_tensor_value_info(name, onnx.TensorProto.INT8, shape)
            for name, shape in (("x", list(self.x.shape)), ("y", [None] * self.x.ndim))
        ]
        tensors = [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()]
        graph = helper.make_graph([node], "integers", values[:1], values[1:], tensors)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        chosen = onnxruntime.SessionOptions()
        chosen.intra_op_num_threads = threads
        session = onnxruntime.InferenceSession(model.SerializeToString(), chosen, ["CPUExecutionProvider"])
        return lambda: session.run(None, {"x": self.x})[0]

    def check(self, functions: dict[str, Call]) -> int:
        """Compares results with the reference; how many there are."""
        given = {"x": self.x, "w": self.weight, "b": self.bias}
        exact = rlx.interpret(self.module(), given)["y"]
        bare = rlx.interpret(self.module(), given | {"b": np.zeros_like(self.bias)})["y"]
        for name, function in functions.items():
            if name == "ours":
                np.testing.assert_array_equal(function(), exact)
            elif name != "of_f32":
                wanted = bare if name == "onnxruntime" and self.geometry is None else exact
                np.testing.assert_allclose(function().astype(int), wanted, rtol=0, atol=1, err_msg=name)
        return exact.size


def timed(function: Call) -> Callable[[], float]:
    """Milliseconds of a call, of as many as take ten."""
    function()
    begin = time.perf_counter()
    function()
    count = max(int(0.01 / max(time.perf_counter() - begin, 1e-6)), 1)

    def run() -> float:
        begin = time.perf_counter()
        for _ in range(count):
            function()
        return (time.perf_counter() - begin) / count * 1e3

    return run


def measure(text: str, case: Case, options: argparse.Namespace, rivals: list[str]) -> dict[str, object]:
    """The row of a case; checks results first."""
    functions = {name: getattr(case, name)(options.threads) for name in ("ours", "of_f32", *rivals)}
    count = case.check(functions)
    series = interleave({name: timed(function) for name, function in functions.items()}, options.rounds)
    rate = f"{2 * count * case.multiplications / series['ours'].median / 1e6:.1f}"
    return {"what": text, "Gop/s": rate, **ratios({name.removeprefix("of_"): own for name, own in series.items()})}


def main() -> None:
    """Parses the command line, measures, and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--products", nargs="*", default=PRODUCTS)
    parser.add_argument("--layers", nargs="*", default=LAYERS)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rivals = [name for name in ("torch", "onnxruntime") if importlib.util.find_spec(name)]
    for make, texts in ((Case.product, options.products), (Case.layer, options.layers)):
        rows = [measure(text, make(text), options, rivals) for text in texts]
        if rows:
            title = f"milliseconds of a {make.__name__} of 8 bits, {options.threads} threads"
            report(title, rows, versions(["rlx-mlir", *rivals]), options.json)


if __name__ == "__main__":
    main()
