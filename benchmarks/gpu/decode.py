# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""One step of decoding by a model of Llama 8B's shape with random weights, on one GPU: ours, torch's, and the bound.

    python benchmarks/gpu/decode.py --weights bf16 q4_k --json

Decoder blocks over a cache of `--keys` positions in bf16, the last norm, the head; tokens per second of one sequence.
Ours replays one CUDA graph a step; torch compiles the same model (`torch.compile`, max-autotune), with weights of bf16.
The bound is bytes of weights and of the cache that a step reads, over the rate of a copy, which is measured in the same
rounds. All layers have the same numbers in their weights, in memory once: a layer is far larger than L2.

`--model FILE` decodes with a model's file instead, and gives tokens per second of generation.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from device import captured, need_gpu, per_second, rlx_array


@dataclass(frozen=True)
class Shape:
    """A decoder's sizes."""

    layers: int
    keys: int
    hidden: int = 4096
    ffn: int = 14336
    heads: int = 32
    kv_heads: int = 8
    head_dim: int = 128
    vocab: int = 128256

    @property
    def matrices(self) -> dict[str, tuple[int, int]]:
        """Outputs and inputs of a layer's weights."""
        query, key = self.heads * self.head_dim, self.kv_heads * self.head_dim
        return {
            "q_w": (query, self.hidden),
            "k_w": (key, self.hidden),
            "v_w": (key, self.hidden),
            "o_w": (self.hidden, query),
            "gate_w": (self.ffn, self.hidden),
            "up_w": (self.ffn, self.hidden),
            "down_w": (self.hidden, self.ffn),
        }

    def bytes(self, bits: float) -> float:
        """What a step reads: weights of so many bits an element, and the cache."""
        elements = self.layers * sum(n * k for n, k in self.matrices.values()) + self.vocab * self.hidden
        return elements * bits / 8 + 4 * self.layers * self.keys * self.kv_heads * self.head_dim


def element(weights: str) -> str:
    """The type of what isn't a weight or a cache."""
    return "bf16" if weights == "bf16" else "f32"


def build(shape: Shape, weights: str) -> Any:
    """The step as a graph: x [1, 1, hidden] and caches to logits; f32 between products with quantised weights."""
    import rlx_mlir as rlx

    dtype = element(weights)
    graph = rlx.GraphModule.hir("step")
    x = graph.input("x", [1, 1, shape.hidden], dtype)
    pos = graph.input("pos", [1], "i32")
    tables = [graph.param(name, [shape.keys, shape.head_dim // 2], dtype) for name in ("cos", "sin")]

    def weight(name: str, n: int, k: int) -> Any:
        return graph.param(name, [n, k], "bf16") if weights == "bf16" else graph.param(name, [n, k], packed=weights)

    outputs = {}
    for layer in range(shape.layers):
        own = {name: weight(f"{name}{layer}", *size) for name, size in shape.matrices.items()}
        norms = {name: graph.param(f"{name}{layer}", [shape.hidden], dtype) for name in ("ln1_gamma", "ln2_gamma")}
        cache = [1, shape.keys, shape.kv_heads * shape.head_dim]
        caches = [graph.input(f"{name}{layer}", cache, "bf16") for name in ("k", "v")]
        x, keys, values = graph.llama_decoder_block(
            x,
            **own,
            **norms,
            cos=tables[0],
            sin=tables[1],
            num_heads=shape.heads,
            num_kv_heads=shape.kv_heads,
            head_dim=shape.head_dim,
            k_cache=caches[0],
            v_cache=caches[1],
            pos=pos,
            style="half",
            transpose_weight=weights == "bf16",
        )
        outputs |= {f"k{layer}_out": keys, f"v{layer}_out": values}
    x = graph.rms_norm(x, graph.param("gamma", [shape.hidden], dtype))
    head = weight("head", shape.vocab, shape.hidden)
    graph.set_outputs({"logits": graph.linear(x, head, transpose_weight=weights == "bf16"), **outputs})
    return graph


def parameters(executable: Any, shape: Shape) -> dict[str, Any]:
    """Random parameters; those of a name are the same for every layer."""
    from rlx_mlir.dtypes import DTYPES

    rng = np.random.default_rng(0)
    made: dict[Any, Any] = {}
    found = {}
    for spec in executable.params:
        key = (spec.name.rstrip("0123456789"), spec.shape)
        if key not in made:
            if spec.packed is not None:
                made[key] = random_blocks(spec.packed, spec.shape, rng)
            elif len(spec.shape) == 1:
                made[key] = np.ones(spec.shape, DTYPES[spec.dtype])
            else:
                scale = 1.0 if spec.name in ("cos", "sin") else spec.shape[-1] ** -0.5
                made[key] = (rng.standard_normal(spec.shape, np.float32) * scale).astype(DTYPES[spec.dtype])
        found[spec.name] = made[key]
    return found


def random_blocks(scheme: str, shape: Sequence[Any], rng: np.random.Generator) -> np.ndarray:
    """Blocks of a format that decode to numbers of a weight's size."""
    from rlx_mlir import formats

    rows, row_bytes = int(shape[0]), int(shape[1])
    fmt = formats.get_format(scheme)
    columns = row_bytes // fmt.nbytes * fmt.block
    some = rng.standard_normal((64, columns), np.float32) * np.float32(columns**-0.5)
    blocks = formats.encode(scheme, some)
    return np.ascontiguousarray(blocks[np.arange(rows) % len(blocks)])


class Ours:
    """The step as a compiled module, with caches that stay on the GPU."""

    def __init__(self, shape: Shape, weights: str) -> None:
        import torch

        import rlx_mlir as rlx

        activations = "exact" if weights == "bf16" else "int8"
        executable = rlx.compile(build(shape, weights), target="cuda", activations=activations, cache=False)
        executable.set_params(parameters(executable, shape), shared={}, progress=True)
        size = (1, shape.keys, shape.kv_heads * shape.head_dim)
        self.kept = [torch.randn(size, device="cuda", dtype=torch.bfloat16) for _ in range(2 * shape.layers)]
        names = [f"{name}{layer}" for layer in range(shape.layers) for name in ("k", "v")]
        caches = {name: rlx_array(tensor) for name, tensor in zip(names, self.kept, strict=True)}
        dtype = {"bf16": torch.bfloat16, "f32": torch.float32}[element(weights)]
        x = torch.randn(1, 1, shape.hidden, device="cuda", dtype=dtype)
        self.logits = torch.empty(1, 1, shape.vocab, device="cuda", dtype=dtype)
        pos = rlx_array(torch.tensor([shape.keys - 1], device="cuda", dtype=torch.int32))
        self.run = executable.bind(
            {"x": rlx_array(x), "pos": pos, **caches}, outputs={"logits": rlx_array(self.logits)}, donate=caches
        )
        self.generic = sorted(k for k, how in executable.artifact.templates.items() if how.startswith("generic"))


def by_torch(shape: Shape) -> Callable[[], object]:
    """The step by `torch.compile`, with weights of bf16 that all layers share."""
    import torch

    functional = torch.nn.functional
    dtype = torch.bfloat16
    own = {name: torch.randn(n, k, device="cuda", dtype=dtype) * k**-0.5 for name, (n, k) in shape.matrices.items()}
    head = torch.randn(shape.vocab, shape.hidden, device="cuda", dtype=dtype) * shape.hidden**-0.5
    ones = torch.ones(shape.hidden, device="cuda", dtype=dtype)
    cos, sin = (torch.randn(1, 1, 1, shape.head_dim, device="cuda", dtype=dtype) for _ in range(2))
    cache = (1, shape.kv_heads, shape.keys, shape.head_dim)
    caches = [torch.randn(cache, device="cuda", dtype=dtype) for _ in range(2 * shape.layers)]
    last = shape.keys - 1

    def heads(x: Any, count: int) -> Any:
        return x.view(1, 1, count, shape.head_dim).transpose(1, 2)

    def turned(x: Any) -> Any:
        low, high = x.chunk(2, -1)
        return x * cos + torch.cat((-high, low), -1) * sin

    def step(x: Any) -> Any:
        for layer in range(shape.layers):
            h = functional.rms_norm(x, (shape.hidden,), ones, 1e-5)
            q = turned(heads(functional.linear(h, own["q_w"]), shape.heads))
            keys, values = caches[2 * layer : 2 * layer + 2]
            keys[:, :, last] = turned(heads(functional.linear(h, own["k_w"]), shape.kv_heads))[:, :, 0]
            values[:, :, last] = heads(functional.linear(h, own["v_w"]), shape.kv_heads)[:, :, 0]
            o = functional.scaled_dot_product_attention(q, keys, values, enable_gqa=True)
            x = x + functional.linear(o.transpose(1, 2).reshape(1, 1, -1), own["o_w"])
            h = functional.rms_norm(x, (shape.hidden,), ones, 1e-5)
            h = functional.silu(functional.linear(h, own["gate_w"])) * functional.linear(h, own["up_w"])
            x = x + functional.linear(h, own["down_w"])
        return functional.linear(functional.rms_norm(x, (shape.hidden,), ones, 1e-5), head)

    compiled = torch.compile(step, mode="max-autotune")
    x = torch.randn(1, 1, shape.hidden, device="cuda", dtype=dtype)

    def run() -> None:
        with torch.inference_mode():
            compiled(x)
        torch.cuda.synchronize()

    return run


def compare(shape: Shape, options: argparse.Namespace) -> list[dict[str, object]]:
    """A row for each kind of weights, and one of torch's."""
    import torch

    from rlx_mlir import formats
    from rlx_mlir.measure.timing import NOISY, interleave

    source, target = (torch.empty(1 << 29, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    copy = captured(lambda: target.copy_(source))
    bits = {
        name: 16.0 if name == "bf16" else 8 * formats.get_format(name).nbytes / formats.get_format(name).block
        for name in options.weights
    }
    steps = {name: Ours(shape, name) for name in options.weights}
    for own in steps.values():
        own.run()
        if not torch.isfinite(own.logits).all():
            raise SystemExit("a step's logits aren't finite")
    runs: dict[str, Callable[[], object]] = {name: own.run for name, own in steps.items()}
    if not options.without_torch:
        runs["torch bf16"] = by_torch(shape)
    measures = {name: per_second(run, 1.0, options.floor) for name, run in runs.items()}
    measures["copy"] = per_second(copy, 4.0 * (1 << 29), options.floor)
    series = interleave(measures, options.rounds, rest=0.0)
    rate = series.pop("copy").median
    rows = []
    for name, own in series.items():
        bound = rate / shape.bytes(bits.get(name, 16.0))
        rows.append(
            {
                "weights": name,
                "tokens/s": own.median,
                "us": 1e6 / own.median,
                "spread": f"{own.spread:.0%}{' (noisy)' if own.spread > NOISY else ''}",
                "of the copy's rate": f"{own.median / bound:.0%}",
                "without a schedule": ", ".join(steps[name].generic) if name in steps else "",
            }
        )
    return rows


def of_model(path: str, options: argparse.Namespace) -> list[dict[str, object]]:
    """Tokens per second of a model's file, and microseconds of a token."""
    import rlx_mlir as rlx
    from rlx_mlir.measure.timing import Series

    model = rlx.load_model(path, target="cuda", progress=print)
    rates = []
    for _ in range(options.rounds + 1):
        model.generate([1] * 32, max_tokens=257, greedy=True, ignore_eos=True).read()
        rates.append(model.stats.decode_rate)
    own = Series(rates[1:])
    return [{"model": path, "tokens/s": own.median, "us": 1e6 / own.median, "spread": f"{own.spread:.0%}"}]


def main(arguments: Sequence[str] | None = None) -> None:
    """Parses the command line, measures, and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weights", nargs="+", default=["bf16", "q8_0", "q4_k"], help="bf16, or block formats")
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--keys", type=int, default=2048)
    parser.add_argument("--model", default="", help="a .gguf file, or the name of a known model")
    parser.add_argument("--without-torch", action="store_true", help="compile for some minutes less")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--floor", type=float, default=0.2, help="seconds of calls for one measurement")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    need_gpu()
    import torch

    from rlx_mlir.measure.report import report
    from rlx_mlir.measure.timing import versions

    shape = Shape(options.layers, options.keys)
    rows = of_model(options.model, options) if options.model else compare(shape, options)
    about = {**versions(["rlx-mlir", "torch"]), "gpu": torch.cuda.get_device_name()}
    report(f"steps of decoding, median of {options.rounds} rounds", rows, about, options.json)


if __name__ == "__main__":
    main()
