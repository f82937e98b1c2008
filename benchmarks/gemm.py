# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Matrix products of rlx-mlir, of numpy (OpenBLAS) and of torch on the same numbers, in turns, with equal threads.

    python benchmarks/gemm.py --threads 2 --json

`weights`: x [M, K] times a parameter [N, K], as `linear` has it; ours packs it into panels when parameters are set (f64
stays as it is), torch may read it as it likes, numpy multiplies by its transpose. M is dynamic but for 1, as in models.
`activations`: [M, K] times [K, N], both given at each call. A figure is GFLOP/s of several products in one call, so
that a call of Python doesn't count: square ones multiply the product before them by the same matrix, the others have
operands of their own. numpy has no products of f16 and bf16 to compare with. `--cpu-time` counts the process's CPU time
instead of seconds, which other programs on the machine disturb less; it says nothing about more than one thread.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from harness import NOISY, interleave, report, seconds_per_call, versions

WEIGHTS = [(1536, 576), (5632, 2048)]
ROWS = [1, 32, 128, 512]
CUBES = [64, 128, 256, 512]
MOST_PRODUCTS = 16


@dataclass(frozen=True)
class Problem:
    """One shape: x [m, k] times n columns; `batch` elements of it where both operands are activations."""

    m: int
    n: int
    k: int
    dtype: str
    weights: bool
    batch: int = 1

    @property
    def what(self) -> str:
        kind = "weights" if self.weights else "activations"
        batch = f"{self.batch} x " if self.batch > 1 else ""
        return f"{kind} {batch}M {self.m}, N {self.n}, K {self.k}, {self.dtype}"

    @property
    def flops(self) -> int:
        return 2 * self.batch * self.m * self.n * self.k

    @property
    def count(self) -> int:
        """Products in one call: about 30 million operations, but operands of less than 100 MB."""
        size = 4 * self.batch * (self.m * self.k + self.n * self.k + self.m * self.n)
        return max(1, min(MOST_PRODUCTS, 30_000_000 // self.flops, 100_000_000 // size))

    @property
    def chained(self) -> bool:
        """Whether each product is the next one's x, and all have one w."""
        return not self.weights and self.n == self.k

    def numbers(self) -> list[tuple[Any, Any]]:
        """x and w, [n, k] where it is a weight and [k, n] where it isn't, of every product; of the first in a chain."""
        import numpy as np

        rng = np.random.default_rng(0)
        batch = (self.batch,) if self.batch > 1 else ()
        right = (self.n, self.k) if self.weights else (*batch, self.k, self.n)
        made: Any = np.float64 if self.dtype == "f64" else np.float32
        scale = made(self.k**-0.5)  # products are as large as their operands, however long the chain
        return [
            (rng.standard_normal((*batch, self.m, self.k), made), rng.standard_normal(right, made) * scale)
            for _ in range(1 if self.chained else self.count)
        ]


class Ours:
    """The products as one compiled module."""

    def __init__(self, problem: Problem, threads: int) -> None:
        import numpy as np

        import rlx_mlir as rlx

        graph = rlx.GraphModule.mir("products")
        dtype = rlx.dtypes.DTYPES[problem.dtype]
        self.inputs: dict[str, Any] = {}
        params: dict[str, Any] = {}
        outputs = {}
        rows: int | str = problem.m if problem.m == 1 or not problem.weights else "rows"
        batch = [problem.batch] if problem.batch > 1 else []
        for i, (x, w) in enumerate(problem.numbers()):
            left = graph.input(f"x{i}", [*batch, rows, problem.k], problem.dtype)
            (params if problem.weights else self.inputs)[f"w{i}"] = w.astype(dtype)
            self.inputs[f"x{i}"] = x.astype(dtype)
            add = graph.param if problem.weights else graph.input
            right = add(f"w{i}", list(w.shape), problem.dtype)
            for _ in range(problem.count if problem.chained else 1):
                left = graph.matmul(left, right, transpose_rhs=problem.weights)
            outputs[f"y{i}"] = left
        graph.set_outputs(outputs)
        maxima = {"rows": problem.m} if rows == "rows" else {}
        self.executable = rlx.compile(graph, threads=threads, maxima=maxima, cache=False)
        self.executable.set_params(params)
        for kernel, how in self.executable.artifact.templates.items():
            if how.startswith("generic"):
                raise SystemExit(f"{problem.what}: {kernel} has no template, {how}")
        shape = (*batch, problem.m, problem.n)
        self.out = {name: np.empty(shape, dtype) for name in outputs}

    def run(self) -> Any:
        """The last product."""
        self.executable.run(self.inputs, outputs=self.out)
        return self.out[f"y{len(self.out) - 1}"]


class Numpy:
    """The products by numpy, of f32 or f64."""

    def __init__(self, problem: Problem) -> None:
        import numpy as np

        self.matmul, self.times = np.matmul, problem.count if problem.chained else 0
        self.pairs = [(x, w.T if problem.weights else w) for x, w in problem.numbers()]
        self.out = [np.empty((*x.shape[:-1], problem.n), x.dtype) for x, _ in self.pairs * (2 if self.times else 1)]

    def run(self) -> Any:
        """The last product."""
        if self.times:
            ((x, w),) = self.pairs
            for i in range(self.times):
                x = self.matmul(x, w, out=self.out[i % 2])
            return x
        for (x, w), out in zip(self.pairs, self.out, strict=True):
            self.matmul(x, w, out=out)
        return self.out[-1]


class Torch:
    """The products by torch: `linear` where the right operand is a weight."""

    def __init__(self, problem: Problem, threads: int) -> None:
        import torch

        torch.set_num_threads(threads)
        types = {"f64": torch.float64, "f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
        dtype = types[problem.dtype]
        self.torch, self.times = torch, problem.count if problem.chained else 1
        self.multiply = torch.nn.functional.linear if problem.weights else torch.matmul
        self.pairs = [tuple(torch.from_numpy(part).to(dtype) for part in pair) for pair in problem.numbers()]

    def run(self) -> Any:
        """The last product."""
        with self.torch.inference_mode():
            for x, w in self.pairs:
                for _ in range(self.times):
                    x = self.multiply(x, w)
            return x.double().numpy()


def gigaflops(run: Callable[[], object], flops: int, options: argparse.Namespace) -> Callable[[], float]:
    """A figure for `interleave`, over at least `floor` seconds of calls."""
    seconds = seconds_per_call(run, options.floor, time.process_time if options.cpu_time else time.perf_counter)
    return lambda: flops / seconds() * 1e-9


def compare(problem: Problem, options: argparse.Namespace) -> dict[str, object]:
    """One row: medians of all, and how many times faster ours is than each."""
    import numpy as np

    runs: dict[str, Any] = {"ours": Ours(problem, options.threads)}
    if problem.dtype in ("f32", "f64"):
        runs["numpy"] = Numpy(problem)
    if importlib.util.find_spec("torch") is not None:
        runs["torch"] = Torch(problem, options.threads)
    results = {name: np.asarray(own.run(), np.float64) for name, own in runs.items()}
    tolerances = {"f64": 1e-12, "f32": 1e-4, "f16": 2e-3, "bf16": 2e-2}
    tolerance = tolerances[problem.dtype] * (1 if problem.weights else problem.count)
    for result in results.values():
        np.testing.assert_allclose(results["ours"], result, rtol=tolerance, atol=tolerance)
    flops = problem.flops * problem.count
    series = interleave({name: gigaflops(own.run, flops, options) for name, own in runs.items()}, options.rounds)
    ours = series.pop("ours")
    row: dict[str, object] = {"what": problem.what, "GFLOP/s": ours.median, "spread": f"{ours.spread:.0%}"}
    for name in ("numpy", "torch"):
        if name in series:
            noisy = " (noisy)" if max(ours.spread, series[name].spread) > NOISY else ""
            row[name] = series[name].median
            row[f"{name} spread"] = f"{series[name].spread:.0%}"
            row[f"to {name}"] = f"{ours.median / series[name].median:.2f}x{noisy}"
    return row


def main(arguments: Sequence[str] | None = None) -> None:
    """Parses the command line, measures, and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--dtype", default="f32", choices=["f64", "f32", "f16", "bf16"])
    parser.add_argument("--rows", type=int, nargs="*", default=ROWS, help="M of products with weights")
    parser.add_argument("--cubes", type=int, nargs="*", default=CUBES, help="M = N = K of products of activations")
    parser.add_argument("--batches", type=int, nargs="*", default=[8], help="batched products of 128 x 64 x 128")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--floor", type=float, default=0.02, help="seconds of calls for one measurement")
    parser.add_argument("--cpu-time", action="store_true", help="count CPU time; with one thread")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    if options.cpu_time and options.threads > 1:
        parser.error("--cpu-time counts the work of one thread")
    if "numpy" in sys.modules:
        raise SystemExit("numpy was imported before its number of threads was set")
    for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
        os.environ[variable] = str(options.threads)  # Read when numpy and torch are imported.
    problems = [Problem(m, n, k, options.dtype, True) for n, k in WEIGHTS for m in options.rows]
    problems += [Problem(size, size, size, options.dtype, False) for size in options.cubes]
    problems += [Problem(128, 128, 64, options.dtype, False, batch) for batch in options.batches]
    rows = [compare(problem, options) for problem in problems]
    about = versions(["rlx-mlir", "numpy", "torch"])
    title = f"matrix products, {options.threads} threads, median of {options.rounds} rounds, GFLOP/s"
    report(title, rows, about, options.json)


if __name__ == "__main__":
    main()
