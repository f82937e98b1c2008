# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Figures for the log of a change: a prompt's and a decode's rates on the products of a 1B model, beside the machine.

    python benchmarks/figures.py

Prints one line of JSON. Shares are of what kernels that only read, or only multiply, reached in the same rounds: they
say more than rates where the machine is another one each time. The model has few of its layers, and all of its head:
each product has the shape that it has in the whole model, but the head's share of a decode step is larger.
"""

from __future__ import annotations

import argparse
import json
import sys

from rlx_mlir import native
from rlx_mlir.measure.bench import Request, Row
from rlx_mlir.measure.shapes import Shape, named, shape_file
from rlx_mlir.tools.bench import run_apart

PROMPTS = (16, 128, 512)


def figures(shape: Shape, threads: int, rounds: int, prompts: tuple[int, ...] = PROMPTS) -> Row:
    """The line: by figure its rate, its share of what bounds it, and why it says nothing, where it doesn't."""
    path = shape_file(shape, say=lambda text: print(text, file=sys.stderr), progress=None)
    request = Request(threads, model=str(path), prompts=prompts, decode=16, rounds=rounds)
    about, rows = run_apart(request, None)
    found = {
        row["what"]: {
            "tokens_per_second": round(row["ours"]["median"], 1),
            "share": round(row["roofline"], 3),
            "of": row["bound"],
            "noise": row["noise"],
        }
        for row in rows
    }
    return {"shape": shape.name, "layers": shape.layers, "threads": threads, "figures": found, "about": about}


def main() -> None:
    """Prints them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", default="1b-q4_k_m")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=native.default_threads())
    given = parser.parse_args()
    print(json.dumps(figures(named(given.shape, given.layers), given.threads, given.rounds)))


if __name__ == "__main__":
    main()
