# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operations on images that are others' words for one of a different shape."""

from __future__ import annotations

import numpy as np

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
    cos, sin = map(m.constant, axial_tables(end_x, end_y, head_dim, theta, repeat_factor, dtype))
    return m.rope(x, cos, sin, head_dim=head_dim, style="interleaved")


@composition(mir.GroupNormBackwardBetaOp)
def group_norm_backward_beta(m: Builders, dy: Value) -> Value:
    """the sum over all but the channels"""
    return m.sum(dy, [0, 2, 3])
