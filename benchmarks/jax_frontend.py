# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Milliseconds of a Llama of JAX with drawn weights, and of its loss with gradients: ours by from_jax, and jax.jit.

    python benchmarks/jax_frontend.py --rounds 15
    python benchmarks/jax_frontend.py forward --length 64 --json

Calls take turns, on one thread each, and results are compared. `vs` says how many times longer jax.jit takes.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")

import jax
import numpy as np
from harness import interleave, ratios, report, versions
from networks import llama_jax as networks

import rlx_mlir as rlx


def timed(run: Callable[[], Any]) -> Callable[[], float]:
    """Milliseconds of a call."""

    def measured() -> float:
        begin = time.perf_counter()
        run()
        return (time.perf_counter() - begin) * 1e3

    return measured


def calls(what: str, layers: int, batch: int, length: int) -> dict[str, Callable[[], Any]]:
    """A call of each side."""
    parameters = networks.parameters(vocabulary=4096, width=256, inner=704, layers=layers)
    ids = np.random.default_rng(0).integers(0, 4096, (batch, length)).astype(np.int32)
    if what == "forward":
        function, given = networks.llama, {"params": 0}
    else:
        function, given = jax.value_and_grad(networks.loss), {}
    jitted = jax.jit(function)
    run = rlx.from_jax(jitted, parameters, ids, **given).compile(threads=1)
    device = jax.device_put(parameters)
    arguments = (ids,) if given else (parameters, ids)
    for ours, theirs in zip(
        jax.tree_util.tree_leaves(run(*arguments)), jax.tree_util.tree_leaves(jitted(device, ids)), strict=True
    ):
        np.testing.assert_allclose(ours, theirs, atol=2e-3, rtol=2e-3)
    return {"ours": lambda: run(*arguments), "jax.jit": lambda: jax.block_until_ready(jitted(device, ids))}


def main() -> None:
    """Prints a row for each of what is measured."""
    parser = argparse.ArgumentParser(description="A Llama of JAX, compiled by us and by JAX.")
    parser.add_argument("what", nargs="*", help="forward or gradient; both by default")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    rows = []
    for what in given.what or ["forward", "gradient"]:
        runs = calls(what, given.layers, given.batch, given.length)
        series = interleave({name: timed(run) for name, run in runs.items()}, given.rounds)
        rows.append({"what": f"{what} b={given.batch} s={given.length}", **ratios(series)})
    about = versions(["rlx-mlir", "jax", "jaxlib", "numpy"])
    report(f"milliseconds of a call, medians of {given.rounds} rounds", rows, about, given.json)


if __name__ == "__main__":
    main()
