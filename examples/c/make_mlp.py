# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes a small network as a shared library, for mlp.c here, ../cpp/mlp.cpp and ../ctypes/mlp.py.

Usage:

    python examples/c/make_mlp.py build/libmlp.so
"""

from __future__ import annotations

import sys

import numpy as np

import rlx_mlir as rlx


def make() -> rlx.Executable:
    """Two layers, for up to 16 rows at once, with weights from a seed."""
    graph = rlx.GraphModule.hir("forward")
    x = graph.input("x", ["batch", 20], "f32")
    hidden = graph.gelu(graph.linear(x, graph.param("w1", [20, 33], "f32"), graph.param("b1", [33], "f32")))
    graph.set_outputs({"y": graph.linear(hidden, graph.param("w2", [33, 5], "f32"))})
    executable = rlx.compile(graph, maxima={"batch": 16})
    generator = np.random.default_rng(0)
    executable.set_params(
        {
            "w1": generator.standard_normal((20, 33), np.float32),
            "b1": generator.standard_normal(33, np.float32),
            "w2": generator.standard_normal((33, 5), np.float32),
        }
    )
    return executable


if __name__ == "__main__":
    written = rlx.save_shared(make(), sys.argv[1])
    print(f"wrote {written.path} and {written.header}")
