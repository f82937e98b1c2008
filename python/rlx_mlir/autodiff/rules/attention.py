# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attention, which computes its weights again, rotations, and caches."""

from __future__ import annotations

from typing import Any

from rlx_mlir.autodiff.builders import Builders
from rlx_mlir.autodiff.registry import Forward, Reverse, jvp, linear, vjp, zeros_like
from rlx_mlir.dialects import mir
from rlx_mlir.hir.values import Value


@vjp(mir.AttentionOp)
def attention(
    m: Builders,
    at: Reverse,
    q: Value,
    k: Value,
    v: Value,
    mask: Value | None = None,
    pos: Value | None = None,
    **attributes: Any,
) -> tuple[Value, Value, Value]:
    """By q, k and v; the mask and the positions have none."""
    return m.attention_backward_all(q, k, v, at.dy, mask, pos=pos, **attributes)


@vjp(mir.RopeOp)
def rope(
    m: Builders, at: Reverse, x: Value, cos: Value, sin: Value, pos: Value | None = None, **attributes: Any
) -> Value:
    """The rotation by negative angles; tables have no gradient."""
    return m.rope_backward(at.dy, cos, sin, pos=pos, **attributes)


@jvp(mir.RopeOp)
def rope_forward(
    m: Builders, at: Forward, x: Value, cos: Value, sin: Value, pos: Value | None = None, **attributes: Any
) -> Value | None:
    """The same rotation of the tangent."""
    if at.tangents[0] is None:
        return None
    return m.copied(at.op, [at.tangents[0], *m.values(list(at.op.operands)[1:])])[0]


@vjp(mir.CacheUpdateOp)
def cache_update(m: Builders, at: Reverse, cache: Value, new: Value, pos: Value) -> tuple[Value, Value]:
    """Zeros where the cache was replaced; what replaced it."""
    rows = m.add(m.reshape(pos, [-1, 1]), m.iota([m.sizes_of(new)[1]], 0, pos.dtype))
    part = m.gather(at.dy, rows, 1, batch_dims=1)
    return m.cache_update(at.dy, zeros_like(m, new), pos), m.cast(part, new.dtype)


linear(mir.CacheUpdateOp, by=(0, 1))
