# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the run time itself costs on a GPU: calls, launches of kernels with and without CUDA graphs, copies.

    python benchmarks/gpu/launches.py --json

A chain of products of one short row has kernels of a few microseconds, each of which waits for the one before. Calls of
it are timed whole: inputs and results are small arrays of the host, so a call has a copy to the GPU and one from it.
Figures are medians of calls, in turns with and without graphs. Copies are of arrays of numpy, to and from memory of the
GPU that stays.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import rlx_mlir as rlx

WIDTH = 64
KERNELS = (1, 30, 300)
COPIES = (4 << 10, 1 << 20, 64 << 20, 512 << 20)
ROUNDS = 7


def chain(length: int) -> rlx.GraphModule:
    """x after `length` products, which nothing joins."""
    module = rlx.GraphModule.hir(f"chain_{length}")
    x, w = module.input("x", [1, WIDTH]), module.param("w", [WIDTH, WIDTH])
    for _ in range(length):
        x = module.mm(x, w)
    module.set_outputs({"y": x})
    return module


def seconds(call: Callable[[], Any], repeats: int) -> float:
    """Of one call, on average."""
    begin = time.perf_counter()
    for _ in range(repeats):
        call()
    return (time.perf_counter() - begin) / repeats


def measure_launches(length: int, repeats: int) -> dict[str, Any]:
    """Microseconds of a call of a chain, with graphs and without."""
    artifact = rlx.compile(chain(length), target="cuda").artifact
    calls, given = {}, {"x": np.ones((1, WIDTH), np.float32)}
    for graphs in (16, 0):
        executable = rlx.CudaExecutable(artifact, graphs=graphs)
        executable.set_params({"w": np.eye(WIDTH, dtype=np.float32)})
        calls[graphs] = executable.bind(given)
        for _ in range(3):
            calls[graphs]()
    times: dict[int, list[float]] = {graphs: [] for graphs in calls}
    for _ in range(ROUNDS):
        for graphs, call in calls.items():
            times[graphs].append(seconds(call, repeats))
    with_graph, without = (1e6 * statistics.median(times[graphs]) for graphs in (16, 0))
    return {"calls": len(artifact.calls), "graph_us": round(with_graph, 2), "no_graph_us": round(without, 2)}


def measure_copies(size: int) -> dict[str, Any]:
    """GB/s of copies of arrays of numpy."""
    host = np.ones(size, np.uint8)
    there = rlx.DeviceArray.from_numpy(host)
    to_gpu = [seconds(lambda: there.write(host), 1) for _ in range(ROUNDS)]
    from_gpu = [seconds(there.numpy, 1) for _ in range(ROUNDS)]
    rates = {name: round(size / statistics.median(own) / 1e9, 2) for name, own in (("to", to_gpu), ("from", from_gpu))}
    return {"bytes": size, **rates}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernels", type=int, nargs="+", default=KERNELS, help="lengths of chains")
    parser.add_argument("--copies", type=int, nargs="+", default=COPIES, help="bytes of copies")
    parser.add_argument("--repeats", type=int, default=200, help="calls of a measurement")
    parser.add_argument("--json", action="store_true", help="print JSON")
    arguments = parser.parse_args()
    launches = [measure_launches(length, arguments.repeats) for length in arguments.kernels]
    copies = [measure_copies(size) for size in arguments.copies]
    if arguments.json:
        print(json.dumps({"launches": launches, "copies": copies}))
        return
    for row in launches:
        print(f"{row['calls']:>5} kernels: {row['graph_us']:>9} us with a graph, {row['no_graph_us']:>9} us without")
    for row in copies:
        print(f"{row['bytes'] / 1e6:>8.2f} MB: {row['to']:>7} GB/s to the GPU, {row['from']:>7} GB/s from it")


if __name__ == "__main__":
    main()
