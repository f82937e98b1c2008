# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Microseconds of sorted rows, of their first elements, and of gathers: ours, our generic code, and others, in turns.

    python benchmarks/sorting.py --rounds 15
    python benchmarks/sorting.py --sort 1000 64x1000 --top 32000@50 --gather --dtype i64

A size is N, or rows x N, for `--top` with @ k; a gather is entries x columns @ indices, beside numpy's `take` and a
copy of as many bytes; with a format of weights in front, such as `q4_1:8192x576@8192`, the table is packed, and numpy
takes decoded rows. numpy and torch (where it can be imported) sort with positions, as we do: numpy's `argsort` is
the stable one. All are measured around calls, with one thread by the time of the processor; `vs` says how many times
longer the other takes. Results are compared with numpy's first.
"""

from __future__ import annotations

import argparse
import importlib.util
from collections.abc import Callable

import numpy as np
from harness import interleave, ratios, report, versions
from linear_algebra import Run, timed

import rlx_mlir as rlx
from rlx_mlir.dtypes import DTYPES

SORTS = ("100", "1000", "100000", "1000000", "64x1000", "64x64")
TOPS = ("32000@50", "64x32000@50", "128000@40", "64x64@8", "1000000@1000")
GATHERS = ("32000x2048@512", "100000x16@20000", "1000000x1@1000000", "q4_1:8192x576@8192", "q4_k:8192x768@8192")


def shape_of(size: str) -> tuple[int, ...]:
    """Sizes of a text."""
    return tuple(map(int, size.split("x")))


def drawn(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Numbers of a type."""
    return (np.random.default_rng(shape).standard_normal(shape) * 1e4).astype(DTYPES[dtype])


def bound(
    graph: rlx.GraphModule,
    given: dict[str, np.ndarray],
    wanted: np.ndarray,
    threads: int,
    params: dict[str, np.ndarray] | None = None,
    **options: object,
) -> Callable[[], object]:
    """A call of a module whose last result has to be `wanted`."""
    executable = rlx.compile(graph, threads=threads, cache=False, **options)
    executable.set_params(params or {})
    found = list(executable.run(given).values())[-1]
    assert np.array_equal(found, wanted), "other results than numpy's"
    return executable.bind(given)


def ordered(size: str, dtype: str, threads: int) -> dict[str, Run]:
    """Ways to sort rows, or to find the first k elements."""
    text, _, count = size.partition("@")
    shape = shape_of(text)
    k = int(count or shape[-1])
    x = drawn(shape, dtype)
    graph = rlx.GraphModule.mir("sort")
    values, places = graph.top_k(graph.input("x", shape, dtype), k, smallest=True)
    graph.set_outputs({"values": values, "places": places})
    wanted = np.argsort(x, axis=-1, kind="stable")[..., :k].astype(np.int32)
    ways = {
        "ours": bound(graph, {"x": x}, wanted, threads),
        "generic": bound(graph, {"x": x}, wanted, threads, disable_templates=("top_k",)),
        "numpy": lambda: np.argsort(x, axis=-1, kind="stable") if not count else np.argpartition(x, k, axis=-1),
    }
    if importlib.util.find_spec("torch"):
        import torch

        torch.set_num_threads(threads)
        tensor = torch.from_numpy(x)
        ways["torch"] = lambda: torch.topk(tensor, k, largest=False) if count else torch.sort(tensor, stable=True)
    return {name: timed(way, threads) for name, way in ways.items()}


def gathers(size: str, dtype: str, threads: int) -> dict[str, Run]:
    """Ways to read entries of a table."""
    scheme, _, size = size.rpartition(":")
    text, _, count = size.partition("@")
    entries, columns = shape_of(text)
    table = drawn((entries, columns), "f32" if scheme else dtype)
    indices = np.random.default_rng(entries).integers(0, entries, int(count)).astype(np.int32)
    graph = rlx.GraphModule.mir("gather")
    if scheme:
        stored = rlx.formats.encode(scheme, table)
        table = rlx.formats.decode(scheme, stored, columns)
        source, given = graph.param("table", table.shape, packed=scheme), {"i": indices}
    else:
        stored, source = None, graph.input("table", table.shape, dtype)
        given = {"table": table, "i": indices}
    graph.set_outputs({"y": graph.gather(source, graph.input("i", [len(indices)], "i32"), 0)})
    wanted = table[indices]
    params = {} if stored is None else {"table": stored}
    into, again = np.empty_like(wanted), wanted.copy()
    ways = {
        "ours": bound(graph, given, wanted, threads, params),
        "generic": bound(graph, given, wanted, threads, params, disable_templates=("gather",)),
        "numpy": lambda: np.take(table, indices, axis=0),
        "copy": lambda: np.copyto(into, again),
    }
    return {name: timed(way, threads) for name, way in ways.items()}


def main() -> None:
    """Parses the command line, measures, and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--dtype", choices=("f32", "f64", "i32", "i64"), default="f32")
    parser.add_argument("--sort", nargs="*", default=SORTS)
    parser.add_argument("--top", nargs="*", default=TOPS)
    parser.add_argument("--gather", nargs="*", default=GATHERS)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rivals = [name for name in ("numpy", "torch") if importlib.util.find_spec(name)]
    kinds = (
        ("sorts", ordered, options.sort),
        ("first elements", ordered, options.top),
        ("gathers", gathers, options.gather),
    )
    for what, make, sizes in kinds:
        rows = []
        for size in sizes:
            series = interleave(make(size, options.dtype, options.threads), options.rounds)
            rows.append({"size": size, **ratios(series)})
        if rows:
            title = f"microseconds of {what}, {options.dtype}, {options.threads} threads"
            report(title, rows, versions(["rlx-mlir", *rivals]), options.json)


if __name__ == "__main__":
    main()
