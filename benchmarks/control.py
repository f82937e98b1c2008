# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a step of a loop costs beyond its body: `scan` and `while_loop` of small bodies, by the number of steps.

Prints medians of the time of a call by its steps, and the slope: nanoseconds that a further step takes. The last rows
are a recurrent layer, whose steps are calls of kernels (in narrow ones, mostly their cost), beside numpy's loop.

    python benchmarks/control.py [--steps 10000] [--json]
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Mapping

import numpy as np

import rlx_mlir as rlx
from rlx_mlir import GraphModule


def scan(width: int, most: int) -> Callable[[int], Mapping[str, np.ndarray]]:
    """A call of a running mean over rows of so many elements, by their number."""
    m = GraphModule.mir("running_mean")
    x, start = m.input("x", ["time", width]), m.input("start", [width])

    def step(mean: rlx.Value, row: rlx.Value) -> tuple[rlx.Value, rlx.Value]:
        following = mean + (row - mean) * 0.25
        return following, following

    last, means = m.scan(step, start, x)
    m.set_outputs({"last": last, "means": means})
    compiled = rlx.compile(m, threads=1, maxima={"time": most})
    rows, zeros = np.ones((most, width), np.float32), np.zeros(width, np.float32)
    return lambda steps: compiled.run({"x": rows[:steps], "start": zeros})


def loop(width: int, most: int) -> Callable[[int], Mapping[str, np.ndarray]]:
    """A call of a linear recurrence of a vector, by its steps."""
    m = GraphModule.mir("recurrence")
    x, count = m.input("x", [width]), m.input("count", [], "i32")
    y, _ = m.while_loop(lambda x, i: m.compare("gt", i, 0), lambda x, i: (x * 0.5 + 1.0, i - 1), (x, count))
    m.set_outputs({"y": y})
    compiled = rlx.compile(m, threads=1)
    zeros = np.zeros(width, np.float32)
    return lambda steps: compiled.run({"x": zeros, "count": np.array(steps, np.int32)})


def recurrent(width: int, most: int) -> Callable[[int], Mapping[str, np.ndarray]]:
    """A call of tanh(x W + h U) over rows of so many elements, by their number."""
    m = GraphModule.mir("recurrent")
    x, h = m.input("x", ["time", 1, width]), m.input("h", [1, width])
    w, u = m.param("w", [width, width]), m.param("u", [width, width])

    def step(state: rlx.Value, row: rlx.Value) -> tuple[rlx.Value, rlx.Value]:
        following = m.tanh(m.matmul(row, w, transpose_rhs=True) + m.matmul(state, u, transpose_rhs=True))
        return following, following

    last, every = m.scan(step, h, x)
    m.set_outputs({"last": last, "every": every})
    compiled = rlx.compile(m, threads=1, maxima={"time": most})
    compiled.set_params(weights(width))
    rows, zeros = np.ones((most, 1, width), np.float32), np.zeros((1, width), np.float32)
    return lambda steps: compiled.run({"x": rows[:steps], "h": zeros})


def recurrent_numpy(width: int, most: int) -> Callable[[int], Mapping[str, np.ndarray]]:
    """The same by numpy."""
    w, u = (own.T for own in weights(width).values())
    rows = np.ones((most, 1, width), np.float32)

    def call(steps: int) -> Mapping[str, np.ndarray]:
        state, every = np.zeros((1, width), np.float32), np.empty((steps, 1, width), np.float32)
        for t in range(steps):
            state = every[t] = np.tanh(rows[t] @ w + state @ u)
        return {"last": state, "every": every}

    return call


def weights(width: int) -> dict[str, np.ndarray]:
    """Of the recurrent layer."""
    rng = np.random.default_rng(0)
    return {name: (rng.standard_normal((width, width)) / width**0.5).astype(np.float32) for name in "wu"}


def median(call: Callable[[int], object], steps: int, repeats: int = 31) -> float:
    """Seconds of a call."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call(steps)
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def main() -> None:
    parser = argparse.ArgumentParser(description="What a step of a loop costs.")
    parser.add_argument("--steps", type=int, default=10_000, help="steps of the long calls")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    found = {}
    for name, make in (("scan", scan), ("while", loop)):
        for width in (4, 256):
            call = make(width, options.steps)
            short, long = median(call, 0), median(call, options.steps)
            found[f"{name} of {width}"] = {"call_us": short * 1e6, "step_ns": (long - short) / options.steps * 1e9}
    for width in (16, 512):
        for name, make in (("recurrent", recurrent), ("its numpy", recurrent_numpy)):
            call = make(width, 1000)
            short, long = median(call, 0, 15), median(call, 1000, 15)
            found[f"{name} of {width}"] = {"call_us": short * 1e6, "step_ns": (long - short) / 1000 * 1e9}
    if options.json:
        print(json.dumps(found, indent=2))
        return
    print(f"{'loop':>16}  {'call without steps':>18}  {'a further step':>14}")
    for name, own in found.items():
        print(f"{name:>16}  {own['call_us']:15.1f} us  {own['step_ns']:11.1f} ns")


if __name__ == "__main__":
    main()
