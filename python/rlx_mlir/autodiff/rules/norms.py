# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Norms: their gradients have operations of their own."""

from __future__ import annotations

from rlx_mlir.autodiff.builders import Builders
from rlx_mlir.autodiff.registry import Reverse, vjp
from rlx_mlir.dialects import mir
from rlx_mlir.hir.values import Value


@vjp(mir.LayerNormOp)
def layer_norm(
    m: Builders, at: Reverse, x: Value, gamma: Value, beta: Value | None = None, *, axis: int = -1, eps: float = 1e-5
) -> tuple[Value | None, ...]:
    """By x, gamma and beta."""
    return (
        m.layer_norm_backward_input(x, gamma, at.dy, axis=axis, eps=eps),
        m.layer_norm_backward_gamma(x, at.dy, axis=axis, eps=eps),
        None if beta is None else m.layer_norm_backward_beta(at.dy, axis=axis),
    )


@vjp(mir.RmsNormOp)
def rms_norm(
    m: Builders, at: Reverse, x: Value, gamma: Value, beta: Value | None = None, *, axis: int = -1, eps: float = 1e-5
) -> tuple[Value | None, ...]:
    """By x, gamma and beta."""
    return (
        m.rms_norm_backward_input(x, gamma, at.dy, axis=axis, eps=eps),
        m.rms_norm_backward_gamma(x, at.dy, axis=axis, eps=eps),
        None if beta is None else m.rms_norm_backward_beta(at.dy, axis=axis),
    )
