# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a parallel region costs: a chain of small softmaxes, of some rows on one thread and of twice the rows on two.

    python benchmarks/threads.py --rounds 15

Were regions free, twice the rows on two threads would take as long as the rows on one. The difference, per call of the
chain, is what waking, dealing out and joining cost back to back; `--threads 4` takes four times the rows, and so on.
Each thread gets the rows that it had before, so that no data travels: what that costs depends on the work, not on
regions.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np
from harness import interleave, report, versions

import rlx_mlir as rlx

SOFTMAXES = 256
"""In a chain: the compiler makes a kernel, and so a region, of several."""

WIDTH = 64
ROWS = 32
"""Of one thread, which takes some microseconds for a kernel."""


def chain(threads: int) -> Callable[[], float]:
    """Microseconds of one region in a chain, `ROWS` rows for each thread."""
    graph = rlx.GraphModule.mir("chain")
    y = graph.input("x", [threads * ROWS, WIDTH])
    for _ in range(SOFTMAXES):
        y = graph.softmax(y)
    graph.set_outputs({"y": y})
    executable = rlx.compile(graph, threads=threads)
    regions = len(executable.artifact.calls)
    call = executable.bind({"x": np.ones((threads * ROWS, WIDTH), np.float32)})

    def run() -> float:
        times = []
        for _ in range(9):
            begin = time.perf_counter()
            call()
            times.append(time.perf_counter() - begin)
        return statistics.median(times) / regions * 1e6

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
        "what": f"softmax of {ROWS} x {WIDTH} a thread",
        "1 thread, us": one.median,
        "spread": f"{one.spread:.0%}",
        f"{options.threads} threads, us": several.median,
        "their spread": f"{several.spread:.0%}",
        "region, us": several.median - one.median,
    }
    report("regions back to back", [row], versions(["rlx-mlir"]), options.json)


if __name__ == "__main__":
    main()
