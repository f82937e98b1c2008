# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tokens per second of rlx-mlir and llama.cpp (llama-cpp-python) on one GGUF file, in turns, with equal threads.

    python benchmarks/vs_llama_cpp.py smollm2 --threads 1 2 --rounds 5

Each figure is a median over rounds of one interleaved run; a round is one prompt of each length from an empty cache,
and a number of greedy decode steps after a short prompt. Needs llama-cpp-python beside rlx-mlir.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from harness import interleave, ratio_row, report, versions

import rlx_mlir as rlx
from rlx_mlir.models.hub import resolve


def tokens(count: int) -> list[int]:
    """A fixed sequence of ordinary token ids."""
    return [int(token) for token in np.arange(count) * 37 % 40000 + 100]


class Ours:
    """rlx-mlir: the sessions that `Model.generate` uses."""

    def __init__(self, path: str, threads: int, activations: str) -> None:
        self.model = rlx.load_model(path, threads=threads, activations=activations)

    def prefill(self, ids: list[int]) -> float:
        """Tokens per second of one prompt."""
        for _ in self.model.generate(ids, max_tokens=1, greedy=True):
            pass
        return self.model.stats.prompt_tokens / self.model.stats.prompt_seconds

    def decode(self, ids: list[int], steps: int) -> float:
        """Tokens per second of steps after a prompt."""
        for _ in self.model.generate(ids, max_tokens=steps, greedy=True):
            pass
        return self.model.stats.generated_tokens / self.model.stats.decode_seconds


class LlamaCpp:
    """llama.cpp through its Python package."""

    def __init__(self, path: str, threads: int) -> None:
        import llama_cpp

        self.model = llama_cpp.Llama(
            path, n_ctx=2048, n_batch=512, n_threads=threads, n_threads_batch=threads, verbose=False
        )

    def prefill(self, ids: list[int]) -> float:
        """Tokens per second of one prompt."""
        self.model.reset()
        begin = time.perf_counter()
        self.model.eval(ids)
        return len(ids) / (time.perf_counter() - begin)

    def decode(self, ids: list[int], steps: int) -> float:
        """Tokens per second of steps after a prompt."""
        self.model.reset()
        self.model.eval(ids)
        begin = time.perf_counter()
        for step in range(steps):
            self.model.eval([100 + step])
        return steps / (time.perf_counter() - begin)


def main() -> None:
    """Parses the command line, measures, and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default="smollm2", help="a path to a .gguf, or a known name")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--prompts", type=int, nargs="+", default=[16, 128, 512])
    parser.add_argument("--steps", type=int, default=48, help="decode steps of a round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--activations", nargs="+", default=["int8", "exact"])
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    path = str(resolve(options.model))
    rows = []
    for threads in options.threads:
        rival = LlamaCpp(path, threads)
        for activations in options.activations:
            ours = Ours(path, threads, activations)
            for length in options.prompts:
                ids = tokens(length)
                runs = interleave(
                    {"ours": lambda o=ours, i=ids: o.prefill(i), "rival": lambda r=rival, i=ids: r.prefill(i)},
                    options.rounds,
                )
                rows.append(ratio_row(f"prefill {length}, {threads} t, {activations}", runs["ours"], runs["rival"]))
            ids, steps = tokens(32), options.steps
            runs = interleave(
                {
                    "ours": lambda o=ours, i=ids, s=steps: o.decode(i, s),
                    "rival": lambda r=rival, i=ids, s=steps: r.decode(i, s),
                },
                options.rounds,
            )
            rows.append(ratio_row(f"decode, {threads} t, {activations}", runs["ours"], runs["rival"]))
    report(
        f"{options.model}: tokens per second, ours against llama.cpp",
        rows,
        versions(["rlx-mlir", "llama-cpp-python", "numpy"]),
        options.json,
    )


if __name__ == "__main__":
    main()
