# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs a language model: continues a prompt, and says which tokens it thought of.

Usage:

    python examples/run_gguf.py                                  a small known model, fetched if need be
    python examples/run_gguf.py model.gguf "Once upon a time"
"""

from __future__ import annotations

import sys

import numpy as np

import rlx_mlir as rlx


def main() -> None:
    """Prints the text, rates, and the most likely first tokens with their probabilities."""
    name = sys.argv[1] if len(sys.argv) > 1 else "smollm2"
    prompt = sys.argv[2] if len(sys.argv) > 2 else "The capital of France is"

    model = rlx.load_model(name, progress=lambda step: print(step, file=sys.stderr))
    print(prompt, end="")
    for piece in model.generate(prompt, greedy=True, max_tokens=24):
        print(piece, end="", flush=True)
    stats = model.stats
    print(f"\n\nprompt {stats.prompt_rate:.0f}, then {stats.decode_rate:.0f} tokens per second")

    last = model.logits(model.tokenize(prompt))[-1].astype(np.float64)
    weights = np.exp(last - last.max())
    for token in np.argsort(-last)[:5]:
        print(f"{weights[token] / weights.sum():7.1%}  {model.detokenize([int(token)])!r}")


if __name__ == "__main__":
    main()
