# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Nanoseconds per element of elementwise functions on one thread, beside numpy and, where it is installed, torch.

    python benchmarks/elementwise.py --rounds 9
    python benchmarks/elementwise.py --features=+avx2,+fma,+f16c

Arrays of 64 KiB stay in the cache, so that it is arithmetic which is measured: ours by the kernels' own clocks, the
others' around calls that write into memory that is there. numpy has no gelu and no silu.
"""

from __future__ import annotations

import argparse
import importlib.util
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from harness import interleave, report, versions

import rlx_mlir as rlx

ELEMENTS = 16384
CALLS = 200
FUNCTIONS = ("exp", "log", "sin", "tanh", "sigmoid", "silu", "gelu", "gelu_approx", "relu")


def ours(name: str, x: np.ndarray, features: str) -> Callable[[], float]:
    """Nanoseconds per element of our kernel."""
    graph = rlx.GraphModule.mir(name)
    graph.set_outputs({"y": getattr(graph, name)(graph.input("x", x.shape))})
    executable = rlx.compile(graph, threads=1, features=features)
    call = executable.bind({"x": x}, outputs={"y": np.empty_like(x)})

    def run() -> float:
        executable.profile(True)
        for _ in range(CALLS):
            call()
        return sum(seconds for _, seconds in executable.timings()) / x.size * 1e9

    return run


def around(function: Callable[..., Any], *arguments: Any, **options: Any) -> Callable[[], float]:
    """Nanoseconds per element of a function of another library."""

    def run() -> float:
        begin = time.perf_counter()
        for _ in range(CALLS):
            function(*arguments, **options)
        return (time.perf_counter() - begin) / CALLS / ELEMENTS * 1e9

    return run


def of_torch(name: str, x: np.ndarray) -> Callable[[], float]:
    """The same by torch; functions that can't write into given memory allocate."""
    import torch

    torch.set_num_threads(1)
    functional = torch.nn.functional
    functions: dict[str, Callable[..., Any]] = {
        "silu": functional.silu,
        "relu": functional.relu,
        "gelu": functional.gelu,
        "gelu_approx": lambda value: functional.gelu(value, approximate="tanh"),
    }
    tensor = torch.from_numpy(x)
    if name in functions:
        return around(functions[name], tensor)
    return around(getattr(torch, name), tensor, out=torch.empty_like(tensor))


def main() -> None:
    """Parses the command line, measures, and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--features", default="", help="CPU features that our code may use; all by default")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    has_torch = importlib.util.find_spec("torch") is not None
    rows = []
    for name in FUNCTIONS:
        x = rng.standard_normal((16, ELEMENTS // 16), np.float32)
        x = np.abs(x) if name == "log" else x
        implementations = {"ours": ours(name, x, options.features)}
        if name in ("exp", "log", "sin", "tanh"):
            implementations["numpy"] = around(getattr(np, name), x, out=np.empty_like(x))
        if has_torch:
            implementations["torch"] = of_torch(name, x)
        series = interleave(implementations, options.rounds)
        own = series["ours"]
        row: dict[str, object] = {"what": name, "ours": own.median, "spread": f"{own.spread:.0%}"}
        for rival in ("numpy", "torch"):
            if rival in series:
                row |= {rival: series[rival].median, f"vs {rival}": f"{series[rival].median / own.median:.2f}x"}
            else:
                row |= {rival: "-", f"vs {rival}": "-"}
        rows.append(row)
    report("nanoseconds per f32 element", rows, versions(["rlx-mlir", "numpy", "torch"]), options.json)


if __name__ == "__main__":
    main()
