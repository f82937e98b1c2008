# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attention of rlx-mlir and of torch (scaled_dot_product_attention) on the same numbers, in turns, with equal threads.

    python benchmarks/attention.py --threads 1 2 --json

Decoding is one query over a cache of which `keys` are filled, prompts are `keys` queries over as many keys, causal.
Each figure is microseconds of one attention, in a chain of several over caches of their own, as the layers of a model
are: every result is the next one's query. torch gets heads before positions, contiguous, and the faster of two forms,
`enable_gqa` or keys and values that were repeated for every query head before the clock starts; with a window and one
query, the window's keys alone. With narrow keys and values its queries and results are as narrow; ours are f32, as in a
model with a narrow cache, or with `--queries narrow` as narrow as torch's. `--clock cpu` counts the processor time of
one thread: for machines that do something else, too.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from harness import NOISY, interleave, report, seconds_per_call, versions

import rlx_mlir as rlx
from rlx_mlir.dtypes import DTYPES
from rlx_mlir.runtime.executable import empty_aligned

HEADS = {"9/3": (9, 3), "32/8": (32, 8)}
CONTEXT = 4096
"""Rows of the caches that decoding reads: what isn't filled must cost nothing."""

Floats = np.ndarray[Any, np.dtype[np.float32]]


@dataclass(frozen=True)
class Problem:
    """One shape: `heads` are query and KV heads, `queries` stand at the end of `keys`."""

    heads: tuple[int, int]
    head_dim: int
    queries: int
    keys: int
    dtype: str = "f32"
    window: int | None = None
    narrow: bool = False
    """Whether our queries and results are of `dtype`, too."""

    @property
    def what(self) -> str:
        kind = "decode" if self.queries == 1 else "prompt"
        window = "" if self.window is None else f" window {self.window}"
        dtype = self.dtype + (" queries too" if self.narrow else "")
        return f"{kind} {self.keys}{window}, heads {self.heads[0]}/{self.heads[1]} x {self.head_dim}, {dtype}"

    @property
    def layers(self) -> int:
        """Attentions in a chain: enough that what a call of Python checks doesn't count."""
        return 32 if self.queries == 1 else 2

    @property
    def caches(self) -> int:
        """Caches that they take in turns: more than fit into the caches of the processor."""
        return min(self.layers, 8)

    def numbers(self) -> tuple[Floats, list[tuple[Floats, Floats]]]:
        """q [1, Sq, H D], and k, v [1, Sk, Hkv D] of every cache."""
        rng = np.random.default_rng(0)
        heads, kv_heads = self.heads

        def normal(length: int, count: int) -> Floats:
            return rng.standard_normal((1, length, count * self.head_dim), np.float32)

        caches = [(normal(self.keys, kv_heads), normal(self.keys, kv_heads)) for _ in range(self.caches)]
        return normal(self.queries, heads), caches


class Ours:
    """A chain of attentions, compiled; the sizes of caches and prompts are dynamic, as in a model."""

    def __init__(self, problem: Problem, threads: int) -> None:
        self.problem = problem
        heads, kv_heads = problem.heads
        decode = problem.queries == 1
        graph = rlx.GraphModule.mir("attention")
        own = problem.dtype if problem.narrow else "f32"
        result = graph.input("q", [1, 1 if decode else "seq", heads * problem.head_dim], own)
        pos = graph.input("pos", [1], "i32")
        q, numbers = problem.numbers()
        q = q.astype(DTYPES[own])
        arrays: dict[str, Any] = {"q": q, "pos": np.array([problem.keys - problem.queries], np.int32)}
        caches: list[list[Any]] = []
        for number, own in enumerate(numbers):
            caches.append([])
            for name, x in zip((f"k_{number}", f"v_{number}"), own, strict=True):
                arrays[name] = empty_aligned((1, CONTEXT, x.shape[2]), DTYPES[problem.dtype])
                arrays[name][...] = np.nan
                arrays[name][:, : problem.keys] = x
                caches[-1].append(graph.input(name, [1, "context", x.shape[2]], problem.dtype))
        for layer in range(problem.layers):
            result = graph.attention(
                result,
                *caches[layer % problem.caches],
                num_heads=heads,
                num_kv_heads=kv_heads,
                head_dim=problem.head_dim,
                mask_kind="causal" if problem.window is None else "sliding_window",
                window=problem.window,
                pos=pos,
            )
        graph.set_outputs({"out": result})
        sizes = {"context": CONTEXT} if decode else {"context": CONTEXT, "seq": problem.queries}
        self.executable = rlx.compile(graph, threads=threads, maxima=sizes)
        (kernel, how), *_ = self.executable.artifact.templates.items()
        if how.startswith("generic"):
            raise SystemExit(f"{problem.what}: {kernel} has no template, {how}")
        self.arrays = arrays
        self.out = {"out": np.empty(q.shape, q.dtype)}

    def run(self) -> Floats:
        """The result [1, Sq, H D] of the last attention."""
        self.executable.run(self.arrays, outputs=self.out)
        return self.out["out"].astype(np.float32)


class Torch:
    """The same chain by torch; `repeated` gives every query head keys and values of its own, before the clock."""

    def __init__(self, problem: Problem, threads: int, *, repeated: bool) -> None:
        import torch

        torch.set_num_threads(threads)
        self.problem, self.torch, self.threads = problem, torch, threads
        heads, kv_heads = problem.heads
        dtype = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}[problem.dtype]
        q, numbers = problem.numbers()

        def by_head(x: Floats, count: int) -> Any:
            return torch.from_numpy(x).reshape(1, -1, count, problem.head_dim).transpose(1, 2).contiguous().to(dtype)

        self.q = by_head(q, heads)
        times = heads // kv_heads if repeated else 1
        self.caches = [
            tuple(by_head(x, kv_heads).repeat_interleave(times, 1).contiguous() for x in (k, v)) for k, v in numbers
        ]
        self.options: dict[str, Any] = {"enable_gqa": not repeated and heads != kv_heads}
        if problem.window is not None and problem.queries == 1:
            self.caches = [tuple(x[:, :, -problem.window :] for x in cache) for cache in self.caches]
        elif problem.window is not None:
            behind = torch.arange(problem.keys - problem.queries, problem.keys)[:, None] - torch.arange(problem.keys)
            self.options["attn_mask"] = (behind >= 0) & (behind < problem.window)
        elif problem.queries > 1:
            self.options["is_causal"] = True

    def run(self) -> Floats:
        """The result [1, Sq, H D] of the last attention."""
        if self.torch.get_num_threads() != self.threads:
            self.torch.set_num_threads(self.threads)
        x = self.q
        with self.torch.inference_mode():
            for layer in range(self.problem.layers):
                k, v = self.caches[layer % self.problem.caches]
                x = self.torch.nn.functional.scaled_dot_product_attention(x, k, v, **self.options)
            return x.transpose(1, 2).reshape(1, self.problem.queries, -1).float().numpy()


CLOCKS = {"wall": time.perf_counter, "cpu": time.thread_time}


def microseconds(
    run: Callable[[], object], layers: int, floor: float, clock: Callable[[], float]
) -> Callable[[], float]:
    """A figure for `interleave`: microseconds of one attention, over at least `floor` seconds of calls."""

    seconds = seconds_per_call(run, floor, clock)
    return lambda: seconds() / layers * 1e6


def compare(problem: Problem, threads: int, options: argparse.Namespace, with_torch: bool) -> dict[str, object]:
    """One row: medians of both, and how many times faster ours is than torch's faster form."""
    runs: dict[str, Any] = {"ours": Ours(problem, threads)}
    if with_torch:
        runs["gqa"] = Torch(problem, threads, repeated=False)
        runs["repeated"] = Torch(problem, threads, repeated=True)
        tolerance = 2e-5 if problem.dtype == "f32" else 3e-2
        np.testing.assert_allclose(runs["ours"].run(), runs["gqa"].run(), atol=tolerance, rtol=tolerance)
    measures = {
        name: microseconds(own.run, problem.layers, options.floor, CLOCKS[options.clock]) for name, own in runs.items()
    }
    series = interleave(measures, options.rounds)
    ours = series.pop("ours")
    row: dict[str, object] = {"what": problem.what, "threads": threads, "us": ours.median, "spread": ours.spread}
    if series:
        form = min(series, key=lambda name: series[name].median)
        rival = series[form]
        ratio = rival.median / ours.median
        noisy = max(ours.spread, rival.spread) > NOISY
        row |= {"torch us": rival.median, "torch spread": rival.spread, "form": form, "ratio": ratio, "noisy": noisy}
    return row


def problems(options: argparse.Namespace) -> list[Problem]:
    """What the command line asks for."""
    shapes = [(HEADS[name], size) for name in options.heads for size in options.head_dims]
    chosen = [
        Problem(heads, size, 1, keys, options.dtype, options.window, options.queries == "narrow")
        for heads, size in shapes
        for keys in options.decode
    ]
    chosen += [
        Problem(heads, size, keys, keys, options.dtype, options.window, options.queries == "narrow")
        for heads, size in shapes
        for keys in options.prompts
    ]
    return chosen


def main(arguments: Sequence[str] | None = None) -> None:
    """Parses the command line, measures, and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--heads", nargs="+", default=list(HEADS), choices=list(HEADS))
    parser.add_argument("--head-dims", type=int, nargs="+", default=[64, 128, 256])
    parser.add_argument("--decode", type=int, nargs="*", default=[512, 1024, 2048, 4096], help="keys in the cache")
    parser.add_argument("--prompts", type=int, nargs="*", default=[512, 1024, 2048], help="tokens of a prompt")
    parser.add_argument("--dtype", default="f32", choices=["f32", "f16", "bf16"], help="of keys and values")
    parser.add_argument("--queries", default="f32", choices=["f32", "narrow"], help="narrow: of --dtype, as torch's")
    parser.add_argument("--window", type=int, help="keys that a query sees, its own included; all by default")
    parser.add_argument("--clock", default="wall", choices=list(CLOCKS), help="cpu needs --threads 1")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--floor", type=float, default=0.02, help="seconds of calls for one measurement")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    if options.clock == "cpu" and options.threads != [1]:
        parser.error("--clock cpu measures one thread: it needs --threads 1")
    with_torch = importlib.util.find_spec("torch") is not None
    if not with_torch:
        print("torch isn't installed: there is nothing to compare with, only our figures follow", file=sys.stderr)
    rows = [
        compare(problem, threads, options, with_torch) for threads in options.threads for problem in problems(options)
    ]
    about = versions(["rlx-mlir", "torch", "numpy"])
    report(f"attention, median of {options.rounds} rounds", rows, about, options.json)


if __name__ == "__main__":
    main()
