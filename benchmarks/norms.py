# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Microseconds of norms and softmax along another axis than the last: ours, our generic code, and numpy, in turns.

    python benchmarks/norms.py --rounds 15 --threads 1
    python benchmarks/norms.py --sizes 8x512x64@1 16x1024x1024@0 --dtype bf16

A size is dimensions and the axis. Ours are measured by the kernels' own clocks with one thread, around calls with
several; numpy around calls, with one thread, in f32. `vs` says how many times longer the other takes.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from harness import NOISY, interleave, report, versions

import rlx_mlir as rlx
from rlx_mlir.dtypes import DTYPES

SIZES = (
    *("8x512x64@1", "1x3000x128@1", "16x1024x1024@0", "16x1024x1024@1", "4x64x4096@1", "1000x32@0", "2x100x100x3x4@2"),
    *("64x64x8@1", "128x64x47@1"),
)
OPS = ("softmax", "rms_norm", "layer_norm")
EPS = 1e-5


@dataclass(frozen=True)
class Problem:
    """An operation on an array along an axis."""

    op: str
    shape: tuple[int, ...]
    axis: int
    dtype: str

    def module(self) -> rlx.GraphModule:
        """The module with this operation alone."""
        graph = rlx.GraphModule.mir(self.op)
        x = graph.input("x", self.shape, self.dtype)
        if self.op == "softmax":
            graph.set_outputs({"y": graph.softmax(x, axis=self.axis)})
        else:
            gamma = graph.param("gamma", [self.shape[self.axis]], self.dtype)
            graph.set_outputs({"y": getattr(graph, self.op)(x, gamma, axis=self.axis, eps=EPS)})
        return graph

    def ours(self, x: np.ndarray, gamma: np.ndarray, threads: int, **options: Any) -> Callable[[], float]:
        """Microseconds of a call."""
        executable = rlx.compile(self.module(), threads=threads, cache=False, **options)
        if self.op != "softmax":
            executable.set_params({"gamma": gamma})
        call = executable.bind({"x": x}, outputs={"y": np.empty_like(x)})

        def run() -> float:
            executable.profile(threads == 1)
            begin = time.perf_counter()
            call()
            spent = time.perf_counter() - begin
            return (sum(seconds for _, seconds in executable.timings()) if threads == 1 else spent) * 1e6

        return run

    def of_numpy(self, x: np.ndarray, gamma: np.ndarray) -> Callable[[], float]:
        """The same by numpy, on f32."""
        wide, factor = x.astype(np.float32), gamma.astype(np.float32)
        factor = factor.reshape([-1 if axis == self.axis else 1 for axis in range(x.ndim)])
        along: dict[str, Any] = {"axis": self.axis, "keepdims": True}

        def softmax() -> np.ndarray:
            weights = np.exp(wide - wide.max(**along))
            return weights / weights.sum(**along)

        def norm() -> np.ndarray:
            centred = wide - wide.mean(**along) if self.op == "layer_norm" else wide
            return centred / np.sqrt(np.square(centred).mean(**along) + np.float32(EPS)) * factor

        function = softmax if self.op == "softmax" else norm

        def run() -> float:
            begin = time.perf_counter()
            function()
            return (time.perf_counter() - begin) * 1e6

        return run


def parsed(size: str) -> tuple[tuple[int, ...], int]:
    """Dimensions and axis of a size as text."""
    dims, _, axis = size.partition("@")
    return tuple(map(int, dims.split("x"))), int(axis)


def main() -> None:
    """Parses the command line, measures, and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--dtype", choices=("f32", "f16", "bf16"), default="f32")
    parser.add_argument("--ops", nargs="+", choices=OPS, default=OPS)
    parser.add_argument("--sizes", nargs="+", default=SIZES)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rng, rows = np.random.default_rng(0), []
    for op in options.ops:
        for size in options.sizes:
            shape, axis = parsed(size)
            problem = Problem(op, shape, axis, options.dtype)
            x = rng.standard_normal(shape, np.float32).astype(DTYPES[options.dtype])
            gamma = rng.standard_normal(shape[axis], np.float32).astype(DTYPES[options.dtype])
            implementations = {
                "ours": problem.ours(x, gamma, options.threads),
                "generic": problem.ours(x, gamma, options.threads, disable_templates=("norm",)),
                "numpy": problem.of_numpy(x, gamma),
            }
            series = interleave(implementations, options.rounds)
            own = series["ours"]
            noisy = " noisy" if own.spread > NOISY else ""
            row: dict[str, object] = {"what": f"{op} {size}", "ours": own.median, "spread": f"{own.spread:.0%}{noisy}"}
            for rival in ("generic", "numpy"):
                row |= {rival: series[rival].median, f"vs {rival}": f"{series[rival].median / own.median:.2f}x"}
            rows.append(row)
    title = f"microseconds, {options.dtype}, {options.threads} threads"
    report(title, rows, versions(["rlx-mlir", "numpy"]), options.json)


if __name__ == "__main__":
    main()
