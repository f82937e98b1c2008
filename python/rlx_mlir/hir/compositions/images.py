# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operations on images that are others' words for one of a different shape."""

from __future__ import annotations

import numpy as np

from rlx_mlir import ir
from rlx_mlir.dialects import mir
from rlx_mlir.hir.compositions.registry import Builders, composition
from rlx_mlir.hir.values import Value
from rlx_mlir.mir.images import axial_tables


@composition(mir.AxialRope2dOp)
def axial_rope2d(
    m: Builders, x: Value, *, end_x: int, end_y: int, head_dim: int, theta: float = 1e4, repeat_factor: int = 1
) -> Value:
    """rope with tables of each token's column and row"""
    dtype = np.dtype(np.float64 if x.dtype == np.float64 else np.float32)
    tables = axial_tables(end_x, end_y, head_dim, theta, repeat_factor, dtype)
    cos, sin = map(m.constant, tables)
    if isinstance(x.shape[1], int):
        return m.rope(x, cos, sin, head_dim=head_dim, style="interleaved")
    # Tables may have more rows than there are tokens: reshapes there and back say that there are as many.
    tokens = m.reshape(x, [-2, len(tables[0]), -2])
    rotated = m.rope(tokens, cos, sin, head_dim=head_dim, style="interleaved")
    back = {"new_shape": [-2, -3, -2], "sizes": ir.ArrayAttr.get([ir.StringAttr.get("d0", m._context)], m._context)}
    return m._emit("mir.reshape", {"x": rotated, "like": [x]}, {**back, "like_dims": [1]})[0]


@composition(mir.GroupNormBackwardBetaOp)
def group_norm_backward_beta(m: Builders, dy: Value) -> Value:
    """the sum over all but the channels"""
    return m.sum(dy, [0, 2, 3])
