# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tokens per second of rlx-mlir and llama.cpp on one GGUF file, in turns, with equal threads: `rlx bench --model`.

    python benchmarks/vs_llama_cpp.py smollm2 --threads 1,2 --rounds 5

Options are those of `rlx bench`. Each figure is a median over rounds; a round is one prompt of each length from an
empty cache, and a number of greedy decode steps after a short prompt. Needs llama-cpp-python beside rlx-mlir.
"""

from __future__ import annotations

import sys

from rlx_mlir.tools.cli import app

#: Both ways of our model, as the table in docs/performance.md has them.
DEFAULTS = ["--vs", "llama.cpp", "--activations", "int8", "--activations", "exact"]


def main() -> None:
    """Runs the command on the command line's model and options."""
    arguments = sys.argv[1:]
    model = arguments.pop(0) if arguments and not arguments[0].startswith("-") else "smollm2"
    app(["bench", "--model", model, *DEFAULTS, *arguments])


if __name__ == "__main__":
    main()
