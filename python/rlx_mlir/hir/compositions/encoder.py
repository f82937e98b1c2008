# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Layers of encoders."""

from __future__ import annotations

from rlx_mlir.dialects import mir
from rlx_mlir.hir.compositions.registry import Builders, composition, narrow, wide
from rlx_mlir.hir.values import Value


@composition(mir.FusedAttentionBlockOp)
def fused_attention_block(
    m: Builders,
    hidden: Value,
    qkv_w: Value,
    out_w: Value,
    mask: Value,
    qkv_b: Value | None,
    out_b: Value | None,
    cos: Value | None,
    sin: Value | None,
    *,
    num_heads: int,
    head_dim: int,
) -> Value:
    """attention(rope(q), rope(k), v, mask) out_w + out_b, with q, k, v the thirds of hidden qkv_w + qkv_b"""
    (own,) = wide(m, hidden)
    qkv = _linear(m, own, qkv_w, qkv_b)
    width = num_heads * head_dim
    q, k, v = (m.narrow(qkv, -1, part * width, width) for part in range(3))
    if cos is not None and sin is not None:
        tables = wide(m, cos, sin)
        q, k = (m.rope(x, *tables, head_dim=head_dim, style="half") for x in (q, k))
    (seen,) = wide(m, mask)
    mixed = m.attention(q, k, v, seen, num_heads=num_heads, head_dim=head_dim, mask_kind="custom")
    return narrow(m, _linear(m, mixed, out_w, out_b), hidden)


@composition(mir.FusedTransformerLayerOp)
def fused_transformer_layer(
    m: Builders,
    hidden: Value,
    qkv_w: Value,
    out_w: Value,
    ln1_g: Value,
    fc1_w: Value,
    fc2_w: Value,
    ln2_g: Value,
    mask: Value,
    qkv_b: Value | None,
    out_b: Value | None,
    ln1_b: Value | None,
    fc1_b: Value | None,
    fc2_b: Value | None,
    ln2_b: Value | None,
    *,
    num_heads: int,
    head_dim: int,
    activation: str,
    eps1: float,
    eps2: float,
) -> Value:
    """h = ln(attention block of hidden + hidden); ln(activation(h fc1) fc2 + h)"""
    (own,) = wide(m, hidden)
    qkv, out, (seen,) = _wide(m, qkv_w, qkv_b), _wide(m, out_w, out_b), wide(m, mask)
    heads = {"num_heads": num_heads, "head_dim": head_dim}
    block = fused_attention_block(m, own, qkv[0], out[0], seen, qkv[1], out[1], None, None, **heads)
    h = m.layer_norm(m.add(block, own), *_wide(m, ln1_g, ln1_b), eps=eps1)
    inner = m.activation(activation, _linear(m, h, fc1_w, fc1_b))
    total = m.add(_linear(m, inner, fc2_w, fc2_b), h)
    return narrow(m, m.layer_norm(total, *_wide(m, ln2_g, ln2_b), eps=eps2), hidden)


def _wide(m: Builders, weight: Value, bias: Value | None) -> tuple[Value, Value | None]:
    """A weight and a bias, which may be absent, in the type that is computed in."""
    return wide(m, weight)[0], None if bias is None else wide(m, bias)[0]


def _linear(m: Builders, x: Value, weight: Value, bias: Value | None) -> Value:
    """x weight + bias"""
    kernel, shift = _wide(m, weight, bias)
    total = m.matmul(x, kernel)
    return total if shift is None else m.add(total, shift)
