# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Products with low-rank updates."""

from __future__ import annotations

from rlx_mlir.dialects import mir
from rlx_mlir.hir.compositions.registry import Builders, composition, narrow, wide
from rlx_mlir.hir.values import Value


@composition(mir.LoraMatmulOp)
def lora_matmul(m: Builders, x: Value, weight: Value, a: Value, b: Value, *, scale: float) -> Value:
    """x weight + (scale (x a)) b"""
    own, kernel, down, up = wide(m, x, weight, a, b)
    rows = m.reshape(own, [1, -1]) if x.ndim == 1 else own
    update = m.matmul(m.mul(m.matmul(rows, down), scale), up)
    total = m.add(m.matmul(rows, kernel), update)
    return narrow(m, m.reshape(total, [-1]) if x.ndim == 1 else total, x)
