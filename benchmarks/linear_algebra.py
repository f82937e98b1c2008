# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Microseconds of systems of equations and of products by experts: ours, our generic code, and others, in turns.

    python benchmarks/linear_algebra.py --rounds 15 --threads 1
    python benchmarks/linear_algebra.py --solve 16 512 64x32 --dtype f64 --grouped
    python benchmarks/linear_algebra.py --solve --grouped 512x1024x1024@8 8x2048x2048@64

A system is its size n, or batch x n, with one right side; numpy solves it by LAPACK. A product is rows x K x N @
experts, its rows spread evenly; beside it stand one product of the same rows with one weight, by our kernels and by
numpy. All are measured around calls, with one thread by the time of the processor; `vs` says how many times longer the
other takes.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from harness import interleave, ratios, report, versions

import rlx_mlir as rlx
from rlx_mlir.dtypes import DTYPES

SYSTEMS = ("16", "32", "64", "128", "256", "512", "64x16", "64x64")
PRODUCTS = ("512x1024x1024@8", "512x1024x1024@64", "64x1024x1024@64", "8x1024x1024@64", "512x96x80@8")

#: Seconds that a measurement takes at least.
FLOOR = 0.01

Run = Callable[[], float]


def timed(call: Callable[[], object], threads: int) -> Run:
    """Microseconds of a call, of several that take long enough; with one thread those of the processor."""
    clock = time.process_time if threads == 1 else time.perf_counter
    call()
    begin = clock()
    call()
    count = max(int(FLOOR / max(clock() - begin, 1e-6)), 1)

    def run() -> float:
        begin = clock()
        for _ in range(count):
            call()
        return (clock() - begin) / count * 1e6

    return run


def compiled(graph: rlx.GraphModule, given: dict[str, np.ndarray], threads: int, **options: Any) -> Run:
    """Microseconds of a call of a module whose one result is `y`."""
    executable = rlx.compile(graph, threads=threads, cache=False, **options)
    params = {spec.name: given[spec.name] for spec in executable.params}
    if params:
        executable.set_params(params)
    return timed(executable.bind({name: array for name, array in given.items() if name not in params}), threads)


def systems(size: str, dtype: str, threads: int) -> dict[str, Run]:
    """Ways to solve systems of a size."""
    *batch, n = map(int, size.split("x"))
    rng = np.random.default_rng(n)
    a = rng.standard_normal((*batch, n, n)).astype(DTYPES[dtype])
    b = rng.standard_normal((*batch, n)).astype(DTYPES[dtype])
    graph = rlx.GraphModule.mir("solve")
    solve = graph.batched_dense_solve if batch else graph.dense_solve
    graph.set_outputs({"y": solve(graph.input("a", a.shape, dtype), graph.input("b", b.shape, dtype))})
    given = {"a": a, "b": b}
    return {
        "ours": compiled(graph, given, threads),
        "generic": compiled(graph, given, threads, disable_templates=("solve",)),
        "numpy": timed(lambda: np.linalg.solve(a, b[..., None]), threads),
    }


def products(size: str, dtype: str, threads: int) -> dict[str, Run]:
    """Ways to multiply rows by the weights of their experts, and one product of as many operations."""
    shape, _, experts = size.partition("@")
    (rows, k, n), count = map(int, shape.split("x")), int(experts)
    rng = np.random.default_rng(rows)
    given = {
        "x": rng.standard_normal((rows, k), np.float32).astype(DTYPES[dtype]),
        "w": (rng.standard_normal((count, k, n), np.float32) * k**-0.5).astype(DTYPES[dtype]),
        "expert": rng.permutation(np.arange(rows, dtype=np.int32) % count),
    }
    graph = rlx.GraphModule.mir("grouped")
    x, expert = graph.input("x", [rows, k], dtype), graph.input("expert", [rows], "i32")
    graph.set_outputs({"y": graph.grouped_matmul(x, graph.param("w", [count, k, n], dtype), expert)})
    single = rlx.GraphModule.mir("product")
    single.set_outputs({"y": single.matmul(single.input("x", [rows, k], dtype), single.param("w", [k, n], dtype))})
    x32, w32 = (given[name].astype(np.float32) for name in ("x", "w"))
    chosen = [np.flatnonzero(given["expert"] == e) for e in range(count)]
    result = np.empty((rows, n), np.float32)

    def of_numpy() -> None:
        for weight, own in zip(w32, chosen, strict=True):
            result[own] = x32[own] @ weight

    one = {"x": given["x"], "w": np.ascontiguousarray(given["w"][0])}
    return {
        "ours": compiled(graph, given, threads),
        "generic": compiled(graph, given, threads, disable_templates=("grouped",)),
        "numpy": timed(of_numpy, threads),
        "one product": compiled(single, one, threads),
        "one by numpy": timed(lambda: x32 @ w32[0], threads),
    }


def row(make: Callable[[str, str, int], dict[str, Run]], size: str, options: argparse.Namespace) -> dict[str, object]:
    """What is printed of a size."""
    return {"what": size, **ratios(interleave(make(size, options.dtype, options.threads), options.rounds))}


def main() -> None:
    """Parses the command line, measures, and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=1, help="of ours and of numpy's LAPACK and BLAS")
    parser.add_argument("--dtype", choices=("f32", "f64"), default="f32")
    parser.add_argument("--solve", nargs="*", default=SYSTEMS)
    parser.add_argument("--grouped", nargs="*", default=PRODUCTS)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if os.environ.get("OPENBLAS_NUM_THREADS") != str(options.threads):  # read when numpy is loaded
        os.execve(
            sys.executable, [sys.executable, *sys.argv], os.environ | {"OPENBLAS_NUM_THREADS": str(options.threads)}
        )
    for make, sizes in ((systems, options.solve), (products, options.grouped)):
        rows = [row(make, size, options) for size in sizes]
        if rows:
            title = f"microseconds of {make.__name__}, {options.dtype}, {options.threads} threads"
            report(title, rows, versions(["rlx-mlir", "numpy"]), options.json)


if __name__ == "__main__":
    main()
