# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Microseconds of operations that memory bounds, and of a copy that reads and writes as many bytes, in turns.

    python benchmarks/bandwidth.py --rounds 15 --threads 1
    python benchmarks/bandwidth.py --what reduce gather --dtype bf16 --place memory --json

Arrays begin with a line of the cache, as values within a graph do. Sizes fit the nearest cache, a farther one, or
neither (`--place`). A reduction is of [outer, length, inner] along one of these, or of one long row; a gather reads
rows of a table, or single numbers of the last axis. Results are compared with the references first. All are measured
around calls, with one thread by the time of the processor; `of copy` is the share of the copy's bandwidth: the copy's
time, for as many bytes read and written, over ours.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from harness import NOISY, interleave, report, versions
from linear_algebra import Run, timed

import rlx_mlir as rlx
from rlx_mlir.dtypes import DTYPES
from rlx_mlir.runtime.executable import empty_aligned

#: Bytes of the operand, about, by where they fit.
PLACES = {"near": 16 << 10, "far": 1 << 20, "memory": 96 << 20}

OPS = ("reduce", "gather", "group_norm", "layer_norm_2d", "instance_norm")


@dataclass(frozen=True)
class Problem:
    """An operation of a builder on `x`, and on other arrays.

    Attributes:
        name: what it is, with its sizes.
        build: (graph, x, others) -> the result.
        x: the shape of x.
        others: further operands.
        moved: bytes that are read and written beside the result and the others; None for those of x.
    """

    name: str
    build: Callable[[rlx.GraphModule, rlx.Value, list[rlx.Value]], rlx.Value]
    x: tuple[int, ...]
    others: list[np.ndarray] = field(default_factory=list)
    moved: int | None = None

    def ways(self, dtype: str, threads: int) -> dict[str, Run]:
        """Ours, and a copy."""
        x = empty_aligned(self.x, DTYPES[dtype])
        x[...] = np.random.default_rng(0).standard_normal(self.x, np.float32) * 8
        graph = rlx.GraphModule.mir("bandwidth")
        given = {"x": x, **{f"a{number}": other for number, other in enumerate(self.others)}}
        words = {np.dtype(kind): word for word, kind in DTYPES.items()}
        values = [graph.input(name, list(array.shape), words[array.dtype]) for name, array in given.items()]
        result = self.build(graph, values[0], values[1:])
        graph.set_outputs({"y": result})
        executable = rlx.compile(graph, threads=threads, cache=False)
        found, wanted = executable.run(given)["y"], rlx.interpret(graph, given)["y"]
        places = {"f32": 1e-4, "f16": 1e-2, "bf16": 5e-2}
        np.testing.assert_allclose(
            found.astype(np.float64), wanted.astype(np.float64), rtol=places.get(dtype, 0), atol=places.get(dtype, 0)
        )
        y = empty_aligned(found.shape, found.dtype)
        moved = (x.nbytes if self.moved is None else self.moved) + y.nbytes + sum(each.nbytes for each in self.others)
        call = executable.bind(given, outputs={"y": y})
        return {"ours": timed(call, threads), "copy": timed(copied(moved // 2, threads), threads)}


def copied(count: int, threads: int) -> Callable[[], object]:
    """Copies so many bytes, each thread a part."""
    source, target = empty_aligned((count,), np.dtype(np.uint8)), empty_aligned((count,), np.dtype(np.uint8))
    source[...], target[...] = 1, 0
    if threads == 1:
        return lambda: np.copyto(target, source)
    pool = ThreadPoolExecutor(threads)
    edges = [count * part // threads for part in range(threads + 1)]
    parts = [(target[begin:end], source[begin:end]) for begin, end in itertools.pairwise(edges)]
    return lambda: list(pool.map(lambda part: np.copyto(*part), parts))


def reductions(count: int, dtype: str) -> Iterator[Problem]:
    """Along the first, the middle and the last of three dimensions, and of one row, of `count` elements in all."""
    inner = 64 if count < 1 << 16 else 512
    length = 32 if count < 1 << 16 else 64
    shape = (max(count // inner // length, 1), length, inner)
    for kind in ("sum", "max", "mean"):
        if kind == "mean" and dtype.startswith("i"):
            continue
        for axis, where in enumerate(("first", "middle", "last")):
            size = "x".join(map(str, shape))

            def build(graph: rlx.GraphModule, x: Any, _: Any, kind: str = kind, axis: int = axis) -> Any:
                return graph.reduce(x, kind, [axis])

            yield Problem(f"{kind} {size}, {where}", build, shape)
    yield Problem(f"sum of one row of {count}", lambda graph, x, _: graph.reduce(x, "sum", [1]), (1, count))


def gathers(count: int, dtype: str) -> Iterator[Problem]:
    """Of rows, long and short, and along the last axis; indices of 32 and of 64 bits."""
    rng = np.random.default_rng(1)
    for columns in (1024, 16, 1):
        entries = max(count // columns // 2, 1)
        for kind in (np.int32, np.int64):
            indices = rng.integers(0, entries, entries).astype(kind)
            yield Problem(
                f"rows {entries}x{columns} {np.dtype(kind).name}",
                lambda graph, x, others: graph.gather(x, others[0], 0),
                (entries, columns),
                [indices],
            )
    last = 1024
    rows = max(count // last // 2, 1)
    for kind in (np.int32, np.int64):
        indices = rng.integers(0, last, last).astype(kind)
        yield Problem(
            f"last {rows}x{last} {np.dtype(kind).name}",
            lambda graph, x, others: graph.gather(x, others[0], 1),
            (rows, last),
            [indices],
        )


def norms(op: str, count: int, dtype: str) -> Iterator[Problem]:
    """Of images with many and with few channels."""
    for channels, side in ((320, 64), (64, 16), (32, 8)):
        batch = count // (2 * channels * side * side)
        if batch == 0 or batch > 64:
            continue
        vectors = [np.linspace(0.5, 1.5, channels).astype(DTYPES[dtype]) for _ in range(2)]
        shape = (batch, channels, side, side)

        def build(graph: rlx.GraphModule, x: Any, others: list[Any], channels: int = channels) -> Any:
            if op == "layer_norm_2d":
                return graph.layer_norm(x, *others, axis=1)
            return graph.group_norm(x, *others, num_groups=channels if op == "instance_norm" else 32)

        yield Problem(f"{op} {'x'.join(map(str, shape))}", build, shape, vectors)


def main() -> None:
    """Parses the command line, measures, and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--dtype", choices=("f32", "f16", "bf16", "i32"), default="f32")
    parser.add_argument("--what", nargs="+", choices=OPS, default=OPS)
    parser.add_argument("--place", nargs="+", choices=PLACES, default=list(PLACES))
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    for place in options.place:
        rows = []
        count = PLACES[place] // np.dtype(DTYPES[options.dtype]).itemsize
        for what in options.what:
            if options.dtype == "i32" and what not in ("reduce", "gather"):
                continue
            makers = {"reduce": reductions, "gather": gathers}
            problems = makers[what](count, options.dtype) if what in makers else norms(what, count, options.dtype)
            for problem in problems:
                series = interleave(problem.ways(options.dtype, options.threads), options.rounds)
                own, copy = series["ours"], series["copy"].median
                noisy = " noisy" if own.spread > NOISY else ""
                row = {"what": problem.name, "ours": own.median, "spread": f"{own.spread:.0%}{noisy}"}
                rows.append({**row, "copy": copy, "of copy": f"{copy / own.median:.2f}x"})
        if rows:
            title = f"microseconds, {options.dtype}, {place}, {options.threads} threads"
            report(title, rows, versions(["rlx-mlir", "numpy"]), options.json)


if __name__ == "__main__":
    main()
