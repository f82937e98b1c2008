# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Builds one block and shows it at every stage of compilation, then runs it and its definition.

Usage:

    python examples/stages.py            a summary of each stage
    python examples/stages.py --stage lir    the whole text of one
"""

from __future__ import annotations

import argparse

import numpy as np

import rlx_mlir as rlx
from rlx_mlir.compiler import STAGES


def build() -> rlx.GraphModule:
    """A feed-forward block with its norm and residual: x + swiglu(rms_norm(x))."""
    m = rlx.GraphModule.hir("ffn")
    x = m.input("x", ["tokens", 64])
    gamma = m.param("gamma", [64])
    weights = {
        "gate_w": m.param("gate_w", [64, 256]),
        "up_w": m.param("up_w", [64, 256]),
        "down_w": m.param("down_w", [256, 64]),
    }
    with m.scope("layer0"):
        y = x + m.swiglu(m.rms_norm(x, gamma), **weights)
    m.set_outputs({"y": y})
    return m


def main() -> None:
    """Prints, and checks that compiled code does what the blocks mean."""
    parser = argparse.ArgumentParser(description="Shows a block at every stage of compilation.")
    parser.add_argument("--stage", choices=STAGES, help="print the module at this stage, and nothing else")
    stage = parser.parse_args().stage
    m = build()
    if stage is not None:
        print(rlx.emit(m, stage, maxima={"tokens": 128}))
        return

    print(m.inspect())
    print(m.lower().inspect())
    for name in STAGES[2:]:
        text = rlx.emit(m, name, maxima={"tokens": 128})
        print(f"{name:<8} {len(text.splitlines()):>5} lines")

    ffn = rlx.compile(m, maxima={"tokens": 128})
    rng = np.random.default_rng(0)
    params = {spec.name: rng.standard_normal(spec.shape, np.float32) / 8 for spec in ffn.params}
    ffn.set_params(params)
    for tokens in (1, 5, 128):
        x = rng.standard_normal((tokens, 64), np.float32)
        expected = rlx.interpret(m, {"x": x, **params})["y"]
        print(f"{tokens:>3} tokens: largest difference {np.abs(ffn(x=x) - expected).max():.1e}")


if __name__ == "__main__":
    main()
