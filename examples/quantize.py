# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""One product with its weight in several formats: bytes, error, and what int8 activations add to it.

Usage:

    python examples/quantize.py                  some formats
    python examples/quantize.py q4_k q6_k bf16   these
"""

from __future__ import annotations

import sys

import numpy as np

import rlx_mlir as rlx
from rlx_mlir import formats

INPUTS, OUTPUTS, ROWS = 512, 256, 16


def product(weight_format: str, activations: str) -> rlx.Executable:
    """x w^T with a weight [OUTPUTS, INPUTS] that stays packed at run time."""
    m = rlx.GraphModule.hir("product")
    weight = m.param("w", [OUTPUTS, INPUTS], packed=weight_format)
    m.set_outputs(m.dequant_matmul(m.input("x", ["rows", INPUTS]), weight))
    return rlx.compile(m, maxima={"rows": ROWS}, activations=activations)


def main() -> None:
    """Prints a line for each format."""
    rng = np.random.default_rng(0)
    w = rng.standard_normal((OUTPUTS, INPUTS), np.float32)
    x = rng.standard_normal((ROWS, INPUTS), np.float32)
    exact = x @ w.T

    def error(found: np.ndarray) -> float:
        """Root mean square error, to the root mean square of the results."""
        return float(np.sqrt(np.mean((found - exact) ** 2) / np.mean(exact**2)))

    print(f"{'format':<8} {'bits a weight':>14} {'error, exact':>14} {'error, int8':>14}")
    for name in sys.argv[1:] or ["f32", "bf16", "q8_0", "q6_k", "q5_1", "q4_1", "q4_0", "q2_k"]:
        rows = formats.encode(name, w)
        found = []
        for activations in ("exact", "int8"):
            executable = product(name, activations)
            executable.set_params({"w": rows})
            found.append(error(executable(x)))
        print(f"{name:<8} {rows.nbytes * 8 / w.size:>14.2f} {found[0]:>14.1e} {found[1]:>14.1e}")


if __name__ == "__main__":
    main()
