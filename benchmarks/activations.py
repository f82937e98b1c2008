# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Milliseconds of products with packed weights, by the ways in which activations meet them, in turns.

    python benchmarks/activations.py --rounds 9 --threads 2
    python benchmarks/activations.py --products 1x4096x11008 128x4096x11008 --schemes q4_0 q8_0
    python benchmarks/activations.py --model smollm2 --rounds 5 --llama-cpp

A product is rows x K x N. `int8` and `int16` have activations of 8 and 15 bits, `exact` what `rlx.compile` has by
default, `multiply-adds` is exact without products of floats by dot products of bytes. `error` is the root mean square
of the differences from a product in f64, over that of the product. With a model: tokens per second of prompts and of
decoding by each of the three ways, and by llama.cpp where llama-cpp-python is there.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np
from harness import Series, interleave, report, seconds_per_call, versions

import rlx_mlir as rlx
from rlx_mlir.activations import ACTIVATIONS
from rlx_mlir.measure.models import LlamaCpp, Ours, Setting

PRODUCTS = ("1x2048x8192", "128x2048x8192", "512x2048x8192", "128x4096x11008")
SCHEMES = ("q4_0", "q4_k", "q6_k", "q8_0")

#: Options of `compile` by the name of the way.
WAYS: dict[str, dict[str, Any]] = {
    **{way: {"activations": way} for way in ACTIVATIONS},
    "multiply-adds": {"disable_templates": ("gemm_digits",)},
}


def product(text: str, scheme: str, rounds: int, threads: int) -> list[dict[str, object]]:
    """Rows of the table: of one product, each way."""
    rows, k, n = map(int, text.split("x"))
    rng = np.random.default_rng(0)
    x = rng.standard_normal((rows, k), np.float32)
    weight = rlx.formats.encode(scheme, rng.standard_normal((n, k), np.float32))
    m = rlx.GraphModule.hir("product")
    m.set_outputs({"y": m.dequant_matmul(m.input("x", ["rows", k]), m.param("w", [n, k], packed=scheme))})

    def call(options: dict[str, Any]) -> Callable[[], np.ndarray]:
        executable = rlx.compile(m, threads=threads, maxima={"rows": rows}, **options)
        executable.set_params({"w": weight})
        return lambda: executable.run({"x": x})["y"]

    calls = {name: call(options) for name, options in WAYS.items()}
    few = slice(0, min(rows, 16))
    truth = x[few].astype(np.float64) @ rlx.formats.decode(scheme, weight, k).astype(np.float64).T
    series = interleave({name: seconds_per_call(run, 0.05) for name, run in calls.items()}, rounds)
    found: list[dict[str, object]] = []
    for name, own in series.items():
        error = np.linalg.norm(calls[name]()[few] - truth) / np.linalg.norm(truth)
        speed = {"ms": own.median * 1e3, "spread": f"{own.spread:.0%}", "Gop/s": 2e-9 * rows * k * n / own.median}
        relative = {"of int8's speed": f"{series['int8'].median / own.median:.2f}", "error": f"{error:.1e}"}
        found.append({"product": text, "weights": scheme, "activations": name, **speed, **relative})
    return found


def model(path: str, rounds: int, threads: int, llama_cpp: bool) -> list[dict[str, object]]:
    """Rows of the table: of prompts and of decoding."""
    setting = Setting(path, threads, 2048)
    implementations: dict[str, Any] = {way: Ours(setting, way) for way in ACTIVATIONS}
    if llama_cpp:
        implementations["llama.cpp"] = LlamaCpp(setting, "f16")
    rng = np.random.default_rng(0)
    rates: dict[tuple[str, str], list[float]] = {}
    for _ in range(rounds):
        for length in (128, 512):
            ids = [int(token) for token in rng.integers(300, 20000, length)]
            for name, own in implementations.items():
                rates.setdefault((f"prompt of {length}", name), []).append(own.prefill(ids))
        ids = [int(token) for token in rng.integers(300, 20000, 16)]
        for name, own in implementations.items():
            rates.setdefault(("decode", name), []).append(own.decode(ids, 24))
    rows = []
    for what in dict.fromkeys(what for what, _ in rates):
        medians = {name: Series(rates[what, name]).median for name in implementations}
        row: dict[str, object] = {"what": what} | {f"{name} tok/s": rate for name, rate in medians.items()}
        rows.append(row | {"int16/int8": f"{medians['int16'] / medians['int8']:.2f}"})
    return rows


def main() -> None:
    """Measures and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--products", nargs="+", default=PRODUCTS, metavar="MxKxN", help="sizes of products")
    parser.add_argument("--schemes", nargs="+", default=SCHEMES, help="formats of weights")
    parser.add_argument("--model", help="a .gguf file or the name of a known model, in place of products")
    parser.add_argument("--llama-cpp", action="store_true", help="with a model: llama.cpp in turns with ours")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    given = parser.parse_args()
    if given.model:
        rows = model(given.model, given.rounds, given.threads, given.llama_cpp)
    else:
        sizes = [(text, scheme) for scheme in given.schemes for text in given.products]
        rows = [row for own in sizes for row in product(*own, given.rounds, given.threads)]
    report("activations", rows, versions(["rlx-mlir", "numpy", "llama-cpp-python"]), given.json)


if __name__ == "__main__":
    main()
