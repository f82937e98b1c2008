# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""An encoder (MiniLM-L6) by rlx-mlir, onnxruntime and torch: the same weights, in turns, with equal threads.

    python benchmarks/encoder.py --threads 1 2 --batch 1 8 --tokens 32 128

What is timed is ids of tokens to vectors, from numpy to numpy. onnxruntime runs the fused operators that its own
optimiser uses for BERT (`com.microsoft`: embeddings with their norm, attention with joined weights, norms with the
sums, gelu with its bias). torch runs `scaled_dot_product_attention` and `linear` without gradients. Each figure is the
median over rounds of the time of one call, after a call that isn't timed. `--profile` adds where our time goes.
"""

from __future__ import annotations

import argparse
import collections
import importlib.util
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from harness import interleave, ratio_row, report, seconds_per_call, versions

import rlx_mlir as rlx
from rlx_mlir.models import encoder as graphs
from rlx_mlir.models.embedding import open_weights
from rlx_mlir.models.encoder_config import EncoderConfig
from rlx_mlir.models.hub import resolve_folder

Ids = list[list[int]]


class Ours:
    """`Encoder.embed_tokens`."""

    def __init__(self, model: str, threads: int, batch: int) -> None:
        self.encoder = rlx.load_encoder(model, threads=threads, batch=batch)

    def run(self, ids: Ids) -> np.ndarray:
        """[texts, hidden]."""
        return self.encoder.embed_tokens(ids)

    def shares(self, ids: Ids, runs: int = 20) -> dict[str, float]:
        """Seconds per call of each kernel, the slowest first."""
        executable: Any = self.encoder._executable
        executable.profile(True)
        for _ in range(runs):
            self.run(ids)
        executable.profile(False)
        seconds: dict[str, float] = collections.Counter()
        for kernel, own in executable.timings():
            seconds[kernel] += own
        return dict(sorted(seconds.items(), key=lambda item: -item[1]))


def padded(ids: Ids) -> tuple[np.ndarray, np.ndarray]:
    """(ids, 1 for each token and 0 for padding), i32 [texts, longest]."""
    shape = len(ids), max(map(len, ids))
    tokens, mask = np.zeros(shape, np.int32), np.zeros(shape, np.int32)
    for row, own in enumerate(ids):
        tokens[row, : len(own)], mask[row, : len(own)] = own, 1
    return tokens, mask


class OnnxRuntime:
    """A graph of the operators that onnxruntime's optimiser uses for BERT, with mean pooling."""

    def __init__(self, config: EncoderConfig, params: dict[str, np.ndarray], threads: int) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        # Threads that spin after their work would take the time of whoever runs next.
        options.add_session_config_entry("session.force_spinning_stop", "1")
        model = onnx_model(config, params).SerializeToString()
        self.session = onnxruntime.InferenceSession(model, options, ["CPUExecutionProvider"])

    def run(self, ids: Ids) -> np.ndarray:
        """[texts, hidden]."""
        tokens, mask = padded(ids)
        (vectors,) = self.session.run(None, {"tokens": tokens, "mask": mask})
        return vectors


def onnx_model(config: EncoderConfig, params: dict[str, np.ndarray]) -> Any:
    """The model as ONNX, in fused operators."""
    from onnx import TensorProto, helper, numpy_helper

    nodes: list[Any] = []
    arrays: dict[str, np.ndarray] = {}

    def constant(name: str, array: np.ndarray) -> str:
        arrays[name] = np.ascontiguousarray(array)
        return name

    def node(kind: str, inputs: list[str], outputs: int = 1, domain: str = "com.microsoft", **attributes: Any) -> Any:
        names = [f"{kind}_{len(nodes)}_{number}" for number in range(outputs)]
        nodes.append(helper.make_node(kind, inputs, names, domain=domain, **attributes))
        return names[0] if outputs == 1 else names

    def part(layer: int, role: str, kind: str, transposed: bool = True) -> str:
        name = config.part(layer, role, kind)
        array = params[name]
        return constant(name, array.T if array.ndim == 2 and transposed else array)

    def matmul(x: str, layer: int, role: str) -> str:
        return node("MatMul", [x, part(layer, role, "weight")], domain="")

    tables = [f"embeddings.{kind}_embeddings.weight" for kind in ("word", "position", "token_type")]
    norm = [f"embeddings.LayerNorm.{kind}" for kind in ("weight", "bias")]
    words = [constant(name, params[name]) for name in [*tables, *norm]]
    x, lengths = node("EmbedLayerNormalization", ["tokens", "", *words, "mask"], 2, epsilon=config.eps)
    for layer in range(config.layers):
        roles = ("query", "key", "value")
        joined = [
            constant(
                f"qkv.{layer}.{kind}", np.concatenate([params[config.part(layer, role, kind)] for role in roles]).T
            )
            for kind in ("weight", "bias")
        ]
        attended = node("Attention", [x, *joined, lengths], num_heads=config.heads)
        for inner, role in ((attended, "attention"), (None, "ffn")):
            if inner is None:
                up = node("BiasGelu", [matmul(x, layer, "up"), part(layer, "up", "bias")])
                out, last = matmul(up, layer, "down"), "down"
            else:
                out, last = matmul(inner, layer, "output"), "output"
            gamma, beta = (part(layer, f"{role}_norm", kind) for kind in ("weight", "bias"))
            operands = [out, x, gamma, beta, part(layer, last, "bias")]
            x = node("SkipLayerNormalization", operands, epsilon=config.eps)
    kept = node("Cast", ["mask"], domain="", to=TensorProto.FLOAT)
    one = constant("one", np.array([1], np.int64))
    total = node("MatMul", [node("Unsqueeze", [kept, one], domain=""), x], domain="")
    mean = node(
        "Div",
        [node("Squeeze", [total, one], domain=""), node("ReduceSum", [kept, one], domain="", keepdims=1)],
        domain="",
    )
    vectors = node("LpNormalization", [mean], domain="", axis=1, p=2)
    inputs = [helper.make_tensor_value_info(name, TensorProto.INT32, ["batch", "seq"]) for name in ("tokens", "mask")]
    outputs = [helper.make_tensor_value_info(vectors, TensorProto.FLOAT, ["batch", config.hidden])]
    initializers = [numpy_helper.from_array(array, name) for name, array in arrays.items()]
    graph = helper.make_graph(nodes, "encoder", inputs, outputs, initializers)
    versions = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=versions, ir_version=9)


class Torch:
    """The model by torch's functions."""

    def __init__(self, config: EncoderConfig, params: dict[str, np.ndarray], threads: int) -> None:
        import torch

        self.torch, self.config, self.threads = torch, config, threads
        self.params = {name: torch.from_numpy(array.copy()) for name, array in params.items()}
        for layer in range(config.layers):
            for kind in ("weight", "bias"):
                roles = ("query", "key", "value")
                joined = torch.cat([self.params[config.part(layer, role, kind)] for role in roles])
                self.params[f"qkv.{layer}.{kind}"] = joined

    def run(self, ids: Ids) -> np.ndarray:
        """[texts, hidden]."""
        torch, config, params = self.torch, self.config, self.params
        if torch.get_num_threads() != self.threads:
            torch.set_num_threads(self.threads)
        functional = torch.nn.functional
        tokens, mask = (torch.from_numpy(array) for array in padded(ids))
        batch, length = tokens.shape
        kept = mask.to(torch.float32)
        seen = None if bool(mask.all()) else mask.bool()[:, None, None, :]

        def norm(x: Any, name: str) -> Any:
            return functional.layer_norm(
                x, (config.hidden,), params[f"{name}.weight"], params[f"{name}.bias"], config.eps
            )

        def linear(x: Any, layer: int, role: str) -> Any:
            weight, bias = (params[config.part(layer, role, kind)] for kind in ("weight", "bias"))
            return functional.linear(x, weight, bias)

        def part(layer: int, role: str) -> str:
            return config.part(layer, role, "weight").removesuffix(".weight")

        with torch.inference_mode():
            places = params["embeddings.position_embeddings.weight"][:length]
            places = places + params["embeddings.token_type_embeddings.weight"][0]
            x = norm(params["embeddings.word_embeddings.weight"][tokens] + places, "embeddings.LayerNorm")
            for layer in range(config.layers):
                qkv = functional.linear(x, params[f"qkv.{layer}.weight"], params[f"qkv.{layer}.bias"])
                q, k, v = qkv.view(batch, length, 3, config.heads, -1).permute(2, 0, 3, 1, 4)
                attended = functional.scaled_dot_product_attention(q, k, v, attn_mask=seen)
                attended = attended.transpose(1, 2).reshape(batch, length, config.hidden)
                x = norm(x + linear(attended, layer, "output"), part(layer, "attention_norm"))
                inner = functional.gelu(linear(x, layer, "up"))
                x = norm(x + linear(inner, layer, "down"), part(layer, "ffn_norm"))
            mean = (x * kept[:, :, None]).sum(1) / kept.sum(1, keepdim=True)
            return functional.normalize(mean, dim=1).numpy()


def milliseconds(
    run: Callable[[Ids], np.ndarray], ids: Ids, floor: float, clock: Callable[[], float]
) -> Callable[[], float]:
    """A figure for `interleave`: milliseconds of one call, over at least `floor` seconds of calls."""

    seconds = seconds_per_call(lambda: run(ids), floor, clock)
    return lambda: seconds() * 1e3


def compare(model: str, threads: int, options: argparse.Namespace) -> list[dict[str, object]]:
    """The rows of one number of threads: every batch and length, against every rival that is installed."""
    folder = resolve_folder(model)
    weights = open_weights(folder)
    config = EncoderConfig.from_folder(folder, weights)
    params = graphs.parameters(config, weights)
    ours = Ours(model, threads, max(options.batch))
    rivals: dict[str, Any] = {}
    if importlib.util.find_spec("onnxruntime") and importlib.util.find_spec("onnx"):
        rivals["onnxruntime"] = OnnxRuntime(config, params, threads)
    if importlib.util.find_spec("torch"):
        rivals["torch"] = Torch(config, params, threads)
    rng = np.random.default_rng(0)
    ragged = [rng.integers(1000, 20000, length).tolist() for length in (5, 19, 11)]
    for name, rival in rivals.items():
        np.testing.assert_allclose(rival.run(ragged), ours.run(ragged), atol=1e-5, err_msg=name)
    clock = time.process_time if options.cpu_time else time.perf_counter
    rows = []
    for batch in options.batch:
        for length in options.tokens:
            ids = rng.integers(1000, 20000, (batch, length)).tolist()
            runs = {"ours": ours, **rivals}
            series = interleave(
                {name: milliseconds(own.run, ids, options.floor, clock) for name, own in runs.items()}, options.rounds
            )
            what = f"batch {batch}, {length} tokens, {threads} t"
            rows += [
                ratio_row(f"{what}, {name}", series["ours"], series[name], higher_is_better=False) for name in rivals
            ]
            if not rivals:
                rows.append({"what": what, "ours": series["ours"].median, "spread": f"{series['ours'].spread:.0%}"})
            if options.profile:
                shares = ours.shares(ids)
                total = sum(shares.values())
                listed = ", ".join(f"{kernel} {own / total:.0%}" for kernel, own in list(shares.items())[:6])
                print(f"{what}: {total * 1e3:.2f} ms in kernels: {listed}", file=sys.stderr)
    return rows


def main(arguments: Sequence[str] | None = None) -> None:
    """Parses the command line, measures, and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default="minilm", help="an encoder's folder, or a known name")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--tokens", type=int, nargs="+", default=[32, 128])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--floor", type=float, default=0.05, help="seconds of calls for one measurement")
    parser.add_argument("--profile", action="store_true", help="print the kernels that take the time")
    parser.add_argument(
        "--cpu-time", action="store_true", help="count the process's own time: for one thread on a busy machine"
    )
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    if options.cpu_time and options.threads != [1]:
        parser.error("--cpu-time is for --threads 1: with more, threads that wait count as if they worked")
    rows = [row for threads in options.threads for row in compare(options.model, threads, options)]
    about = versions(["rlx-mlir", "onnxruntime", "torch", "numpy"])
    report(f"{options.model}: milliseconds of a call, medians of {options.rounds} rounds", rows, about, options.json)


if __name__ == "__main__":
    main()
