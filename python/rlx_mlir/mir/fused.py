# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Fused operations that belong to no other family."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rlx_mlir import ir
from rlx_mlir.dialects import mir
from rlx_mlir.mir.attention import attention, rope
from rlx_mlir.mir.cost import Cost, Sizes, cost, per_element
from rlx_mlir.mir.dims import Size
from rlx_mlir.mir.elementwise import SILU
from rlx_mlir.mir.functions import FUNCTIONS
from rlx_mlir.mir.linalg import SizeLike, divided, elementwise, extract_slice, sizes_of
from rlx_mlir.mir.norms import layer_norm
from rlx_mlir.mir.numerics import narrow, widen
from rlx_mlir.mir.registry import TO_LINALG, dim_rule, reference
from rlx_mlir.mir.scalars import Scalar, compute
from rlx_mlir.rewriting import Rewriter


@reference(mir.FusedSwigluOp)
def fused_swiglu(x: np.ndarray, *, gate_first: bool = False) -> np.ndarray:
    """up * silu(gate), with `x` = [.., up, gate], or [.., gate, up] with `gate_first`."""
    first, second = np.split(widen(x), 2, axis=-1)
    up, gate = (second, first) if gate_first else (first, second)
    return narrow(up * SILU.apply(gate), x.dtype)


@reference(mir.FusedAttentionBlockOp)
def fused_attention_block(
    hidden: np.ndarray,
    qkv_w: np.ndarray,
    out_w: np.ndarray,
    mask: np.ndarray,
    qkv_b: np.ndarray | None = None,
    out_b: np.ndarray | None = None,
    cos: np.ndarray | None = None,
    sin: np.ndarray | None = None,
    *,
    num_heads: int,
    head_dim: int,
) -> np.ndarray:
    """attention(rope(q), rope(k), v, mask) out_w + out_b, with q, k, v the thirds of hidden qkv_w + qkv_b."""
    own = widen(hidden)
    q, k, v = np.split(_linear(own, qkv_w, qkv_b), 3, axis=-1)
    if cos is not None and sin is not None:
        q, k = (rope(x, cos, sin, head_dim=head_dim) for x in (q, k))
    seen = mask if mask.dtype == np.bool_ else widen(mask)
    mixed = attention(q, k, v, seen, num_heads=num_heads, head_dim=head_dim, mask_kind="custom")
    return narrow(_linear(mixed, out_w, out_b), hidden.dtype)


@reference(mir.FusedTransformerLayerOp)
def fused_transformer_layer(
    hidden: np.ndarray,
    qkv_w: np.ndarray,
    out_w: np.ndarray,
    ln1_g: np.ndarray,
    fc1_w: np.ndarray,
    fc2_w: np.ndarray,
    ln2_g: np.ndarray,
    mask: np.ndarray,
    qkv_b: np.ndarray | None = None,
    out_b: np.ndarray | None = None,
    ln1_b: np.ndarray | None = None,
    fc1_b: np.ndarray | None = None,
    fc2_b: np.ndarray | None = None,
    ln2_b: np.ndarray | None = None,
    *,
    num_heads: int,
    head_dim: int,
    activation: str,
    eps1: float = 1e-5,
    eps2: float = 1e-5,
) -> np.ndarray:
    """h = ln(attention block of hidden + hidden); ln(activation(h fc1) fc2 + h)"""
    own = widen(hidden)
    seen = mask if mask.dtype == np.bool_ else widen(mask)
    first, second = (None if x is None else widen(x) for x in (qkv_b, out_b))
    block = fused_attention_block(
        own, widen(qkv_w), widen(out_w), seen, first, second, num_heads=num_heads, head_dim=head_dim
    )
    h = _normalised(block + own, ln1_g, ln1_b, eps1)
    inner = FUNCTIONS[activation].apply(_linear(h, fc1_w, fc1_b))
    return narrow(_normalised(_linear(inner, fc2_w, fc2_b) + h, ln2_g, ln2_b, eps2), hidden.dtype)


def _linear(x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None) -> np.ndarray:
    """x weight + bias, in the type of x."""
    total = np.matmul(x, widen(weight))
    return total if bias is None else total + widen(bias)


def _normalised(x: np.ndarray, gamma: np.ndarray, beta: np.ndarray | None, eps: float) -> np.ndarray:
    """layer_norm along the last dimension, in the type of x."""
    return layer_norm(x, widen(gamma), None if beta is None else widen(beta), eps=eps)


#: up * silu(gate)
cost(mir.FusedSwigluOp)(per_element(2))


def _attention_block_flops(op: ir.AnyOp, sizes: Sizes) -> Size:
    """The projections, and 4 for each query, key and element of the heads."""
    (batch, length, inner), (_, three) = sizes[op.hidden], sizes[op.qkv_w]
    return batch * length * (2 * inner * three + 4 * length * three // 3 + 2 * inner * three // 3)


@cost(mir.FusedAttentionBlockOp)
def fused_attention_block_cost(op: ir.AnyOp, sizes: Sizes) -> Cost:
    """What its products take."""
    return Cost(_attention_block_flops(op, sizes))


@cost(mir.FusedTransformerLayerOp)
def fused_transformer_layer_cost(op: ir.AnyOp, sizes: Sizes) -> Cost:
    """What its products take."""
    return Cost(_attention_block_flops(op, sizes) + 4 * sizes.count(op.hidden) * sizes[op.fc1_w][1])


@dim_rule(mir.FusedAttentionBlockOp, mir.FusedTransformerLayerOp)
def encoder_dims(op: ir.AnyOp, operands: Sequence[tuple[Size, ...]]) -> tuple[Size, ...]:
    """Those of `hidden`."""
    return operands[0]


@dim_rule(mir.FusedSwigluOp)
def fused_swiglu_dims(op: ir.AnyOp, operands: Sequence[tuple[Size, ...]]) -> tuple[Size, ...]:
    """Those of `x`, the last halved."""
    *rest, width = operands[0]
    return (*rest, width // 2)  # an odd width is refused when it is given


@TO_LINALG.pattern(mir.FusedSwigluOp)
def lower_fused_swiglu(op: ir.AnyOp, rewriter: Rewriter) -> None:
    """fused_swiglu(x) -> the halves by tensor.extract_slice, then generic: up * silu(gate)"""
    *outer, width = sizes_of(op.x)
    half = divided(width, 2)
    starts: list[SizeLike] = [0, half]
    first, second = (extract_slice(op.x, [*[0] * len(outer), start], [*outer, half]) for start in starts)
    up, gate = (second, first) if op.gate_first else (first, second)

    def gated(up: Scalar, gate: Scalar) -> Scalar:
        return up * compute(SILU, gate)

    rewriter.replace(op, elementwise(op.result.type, [up, gate], gated))
