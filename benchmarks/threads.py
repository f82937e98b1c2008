# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a parallel region costs: a chain of small products, as rows on one thread and as twice the rows on two.

    python benchmarks/threads.py --rounds 15

Were regions free, twice the rows on two threads would take as long as the rows on one. The difference, per call of the
chain, is what waking, dealing out and joining cost back to back; `--threads 4` takes four times the rows, and so on.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np
from harness import interleave, report, versions

import rlx_mlir as rlx

CALLS = 256
WIDTH = 64
ROWS = 64
"""Of one thread: a product of some microseconds, of which each unit is a part that can't be cut further."""


def chain(threads: int) -> Callable[[], float]:
    """Microseconds of one product in a chain, `ROWS` rows for each thread."""
    graph = rlx.GraphModule.mir("chain")
    x, w = graph.input("x", [threads * ROWS, WIDTH]), graph.param("w", [WIDTH, WIDTH])
    y = x
    for _ in range(CALLS):
        y = graph.matmul(y, w)
    graph.set_outputs({"y": y})
    executable = rlx.compile(graph, threads=threads)
    executable.set_params({"w": np.eye(WIDTH, dtype=np.float32)})
    call = executable.bind({"x": np.ones((threads * ROWS, WIDTH), np.float32)})

    def run() -> float:
        times = []
        for _ in range(9):
            begin = time.perf_counter()
            call()
            times.append(time.perf_counter() - begin)
        return statistics.median(times) / CALLS * 1e6

    return run


def main() -> None:
    """Parses the command line, measures, and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    series = interleave({"one": chain(1), "several": chain(options.threads)}, options.rounds)
    one, several = series["one"], series["several"]
    row: dict[str, object] = {
        "what": f"{WIDTH} x {WIDTH} products",
        "1 thread, us": one.median,
        "spread": f"{one.spread:.0%}",
        f"{options.threads} threads, us": several.median,
        "their spread": f"{several.spread:.0%}",
        "region, us": several.median - one.median,
    }
    report(f"{CALLS} regions back to back", [row], versions(["rlx-mlir"]), options.json)


if __name__ == "__main__":
    main()
