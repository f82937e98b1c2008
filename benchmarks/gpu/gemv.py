# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Products of few rows on one GPU: chains of them in rlx-mlir, beside a copy and torch's products of bf16, in turns.

    python benchmarks/gpu/gemv.py --json

A chain is a CUDA graph of products y = x W, x [M, K], whose weights [N, K] are together far larger than L2; each kernel
follows the one before. Figures are GB/s of weights in the layout that kernels read; the copy's are of what it reads and
writes. Packed weights are multiplied with x quantised to 8 bits (`--activations exact`: with x in f32), dense ones of
bf16 with x of bf16; torch has the latter only. Results are compared before anything is timed.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from device import captured, need_gpu, per_second, rlx_array
from gemm import shape_of

SHAPES = [(1, 14336, 4096), (1, 4096, 14336), (1, 4096, 4096), (1, 28672, 4096), (4, 14336, 4096), (8, 14336, 4096)]
"""M, N, K."""
SCHEMES = ["bf16", "q8_0", "q4_0", "q4_k", "q6_k"]
CHAIN_BYTES = 2e9
"""Weights of one chain: some of L2's sizes."""
MOST_PRODUCTS = 64
COPY_BYTES = 1 << 30


@dataclass(frozen=True)
class Problem:
    """x [m, k] times weights [n, k] of a scheme; `exact`: packed ones with x in f32."""

    m: int
    n: int
    k: int
    scheme: str
    exact: bool

    @property
    def what(self) -> str:
        return f"{self.scheme}, M {self.m}, N {self.n}, K {self.k}"

    @property
    def bytes(self) -> int:
        """Bytes of one weight as kernels read it."""
        from rlx_mlir import formats

        return self.n * (2 * self.k if self.scheme == "bf16" else formats.planes_row_bytes(self.scheme, self.k))

    @property
    def count(self) -> int:
        """Products in a chain."""
        return max(2, min(MOST_PRODUCTS, int(CHAIN_BYTES / self.bytes)))


class Ours:
    """The chain as one compiled module."""

    def __init__(self, problem: Problem) -> None:
        import torch

        import rlx_mlir as rlx
        from rlx_mlir import formats
        from rlx_mlir.mir.registry import REFERENCES

        rng = np.random.default_rng(0)
        m, n, k = problem.m, problem.n, problem.k
        graph = rlx.GraphModule.mir("chain")
        inputs, outputs = {}, {}
        dense = problem.scheme == "bf16"
        self.x = rng.standard_normal((m, k)).astype(np.float32)
        # The first rows have numbers of their own, the others repeat them: making all takes longer than measuring.
        values = np.resize((rng.standard_normal((256, k)) * k**-0.5).astype(np.float32), (n, k))
        if dense:
            self.weight: Any = torch.from_numpy(values).to("cuda", torch.bfloat16)
            self.decoded = self.weight.float()
            self.x = torch.from_numpy(self.x).to("cuda", torch.bfloat16)
        else:
            self.weight = formats.encode(problem.scheme, values)
            self.decoded = torch.from_numpy(formats.decode(problem.scheme, self.weight, k)).to("cuda")
        quantised = REFERENCES["mir.block_quantize"](self.x) if not dense and not problem.exact else ()
        for i in range(problem.count):
            weight = (
                graph.param(f"w{i}", [n, k], "bf16") if dense else graph.param(f"w{i}", [n, k], packed=problem.scheme)
            )
            if not quantised:
                x = graph.input(f"x{i}", [m, k], "bf16" if dense else "f32")
                inputs[f"x{i}"] = self.x
                outputs[f"y{i}"] = (
                    graph.matmul(x, weight, transpose_rhs=True) if dense else graph.dequant_matmul(x, weight)
                )
                continue
            parts = []
            for name, array in zip(("q", "scale", "sum"), quantised, strict=True):
                word = {"int8": "i8", "float32": "f32", "int32": "i32"}[array.dtype.name]
                parts.append(graph.input(f"{name}{i}", list(array.shape), word))
                inputs[f"{name}{i}"] = array
            outputs[f"y{i}"] = graph.block_dot(*parts, weight)
        graph.set_outputs(outputs)
        executable = rlx.compile(graph, target="cuda", cache=False)
        self.templates = sorted(set(executable.artifact.templates.values()))
        if any(how.startswith("generic") for how in self.templates):
            raise SystemExit(f"{problem.what}: no schedule: {'; '.join(self.templates)}")
        weights = [self.weight.clone() if dense else self.weight for _ in range(problem.count)]
        executable.set_params({f"w{i}": weight for i, weight in enumerate(weights)})
        dtype = torch.bfloat16 if dense else torch.float32
        # What isn't written would be found.
        self.out = [torch.full((m, n), float("nan"), device="cuda", dtype=dtype) for _ in range(problem.count)]
        placed = {
            name: array if isinstance(array, torch.Tensor) else torch.from_numpy(array).to("cuda")
            for name, array in inputs.items()
        }
        given = {name: rlx_array(array) for name, array in placed.items()}
        self.run = executable.bind(given, outputs={f"y{i}": rlx_array(y) for i, y in enumerate(self.out)})
        self.kept = placed

    def error(self) -> float:
        """The norm of the last product's error over that of the product in f64 of the decoded weight."""
        import torch

        x = self.x if isinstance(self.x, torch.Tensor) else torch.from_numpy(self.x).to("cuda")
        exact = x.double() @ self.decoded.double().T
        return float(((self.out[-1].double() - exact).norm() / exact.norm()).item())


def compare(problem: Problem, options: argparse.Namespace) -> dict[str, object]:
    """One row: medians, spreads, and ours over the copy's and torch's."""
    import torch

    from rlx_mlir.measure.timing import NOISY, interleave

    ours = Ours(problem)
    ours.run()
    limit = 5e-3 if problem.scheme == "bf16" else 1e-5 if problem.exact else 2e-2
    if not (error := ours.error()) <= limit:
        raise SystemExit(f"{problem.what}: the result has a relative error of {error:.2e}, above {limit:.0e}")
    total = problem.bytes * problem.count * 1e-9
    source = torch.empty(COPY_BYTES, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    measures = {
        "ours": per_second(ours.run, total, options.floor),
        "copy": per_second(captured(lambda: target.copy_(source)), 2e-9 * COPY_BYTES, options.floor),
    }
    if problem.scheme == "bf16":
        weights = [ours.weight.clone() for _ in range(problem.count)]
        out = torch.empty(problem.m, problem.n, device="cuda", dtype=torch.bfloat16)

        def products() -> None:
            for weight in weights:
                if problem.m == 1:
                    torch.mv(weight, ours.x[0], out=out[0])
                else:
                    torch.matmul(ours.x, weight.T, out=out)

        measures["torch"] = per_second(captured(products), total, options.floor)
    series = interleave(measures, options.rounds, rest=0.0)
    noisy = " (noisy)" if max(own.spread for own in series.values()) > NOISY else ""
    median = {name: own.median for name, own in series.items()}
    return {
        "what": problem.what,
        "products": problem.count,
        "GB/s": median["ours"],
        "spread": f"{series['ours'].spread:.0%}",
        "copy": median["copy"],
        "to copy": f"{median['ours'] / median['copy']:.3f}x{noisy}",
        "torch": median.get("torch", ""),
        "to torch": f"{median['ours'] / median['torch']:.3f}x" if "torch" in median else "",
        "schedule": ", ".join(ours.templates),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Parses the command line, measures, and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", type=shape_of, nargs="*", default=SHAPES, help="as MxNxK")
    parser.add_argument("--schemes", nargs="*", default=SCHEMES, help="bf16, or formats of packed weights")
    parser.add_argument("--activations", default="int8", choices=["int8", "exact"], help="x of packed weights")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--floor", type=float, default=0.1, help="seconds of calls for one measurement")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    need_gpu()
    import torch

    from rlx_mlir.measure.report import report
    from rlx_mlir.measure.timing import versions

    rows = []
    for scheme in options.schemes:
        for m, n, k in options.shapes:
            rows.append(compare(Problem(m, n, k, scheme, options.activations == "exact"), options))
            torch.cuda.empty_cache()
    about = {**versions(["rlx-mlir", "torch"]), "gpu": torch.cuda.get_device_name()}
    report(f"products of few rows, GB/s of weights, median of {options.rounds} rounds", rows, about, options.json)


if __name__ == "__main__":
    main()
