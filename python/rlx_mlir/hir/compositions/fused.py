# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Fused operations: products with what follows them, norms of sums, gated halves."""

from __future__ import annotations

from rlx_mlir.dialects import mir
from rlx_mlir.hir.compositions.registry import Builders, composition, narrow, wide
from rlx_mlir.hir.values import Value


@composition(mir.FusedMatmulBiasActOp)
def fused_matmul_bias_act(
    m: Builders,
    x: Value,
    weight: Value,
    bias: Value,
    *,
    activation: str | None = None,
    transpose_rhs: bool = False,
) -> Value:
    """activation(x weight + bias)"""
    own, kernel, shift = wide(m, x, weight, bias)
    rows = m.reshape(own, [1, -1]) if x.ndim == 1 else own
    total = m.add(m.matmul(rows, kernel, transpose_rhs=transpose_rhs), shift)
    total = m.reshape(total, [-1]) if x.ndim == 1 else total
    return narrow(m, total if activation is None else m.activation(activation, total), x)


@composition(mir.FusedSwigluOp)
def fused_swiglu(m: Builders, x: Value, *, gate_first: bool = False) -> Value:
    """up silu(gate), of [.., up, gate], or of [.., gate, up]"""
    (own,) = wide(m, x)
    half = m.size(x.shape[-1]) // 2
    first, second = m.slice(own, -1, 0, half), m.slice(own, -1, half)
    up, gate = (second, first) if gate_first else (first, second)
    return narrow(m, m.mul(up, m.silu(gate)), x)


@composition(mir.FusedResidualRmsNormOp)
def fused_residual_rms_norm(
    m: Builders, x: Value, residual: Value, bias: Value | None, gamma: Value, beta: Value | None, *, eps: float
) -> Value:
    """rms_norm(x + residual + bias)"""
    scale, shift = _wide(m, gamma), _wide(m, beta)
    assert scale is not None
    return narrow(m, m.rms_norm(_sum(m, x, residual, bias), scale, shift, eps=eps), x)


@composition(mir.FusedResidualLayerNormOp)
def fused_residual_layer_norm(
    m: Builders, x: Value, residual: Value, bias: Value | None, gamma: Value, beta: Value | None, *, eps: float
) -> Value:
    """layer_norm(x + residual + bias)"""
    scale, shift = _wide(m, gamma), _wide(m, beta)
    assert scale is not None
    return narrow(m, m.layer_norm(_sum(m, x, residual, bias), scale, shift, eps=eps), x)


def _sum(m: Builders, x: Value, residual: Value, bias: Value | None) -> Value:
    """x + residual (+ bias), not rounded."""
    total = m.add(*wide(m, x, residual))
    shift = _wide(m, bias)
    return total if shift is None else m.add(total, shift)


def _wide(m: Builders, x: Value | None) -> Value | None:
    """A value in the type that is computed in; None stays None."""
    return None if x is None else wide(m, x)[0]
