# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attention, which computes its weights again, rotations, and caches."""

from __future__ import annotations

from rlx_mlir.attributes import PythonValue
from rlx_mlir.autodiff.builders import Builders
from rlx_mlir.autodiff.registry import Forward, Reverse, as_index, jvp, unbroadcast, vjp, zeros_like
from rlx_mlir.dialects import mir
from rlx_mlir.errors import UnsupportedError
from rlx_mlir.hir.compositions.attention import gradients_beside_sinks, score_gradients
from rlx_mlir.hir.compositions.registry import wide
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
    sinks: Value | None = None,
    **attributes: PythonValue,
) -> tuple[Value | None, ...]:
    """By q, k and v, by what is added to scores, and by sinks; other masks and positions have none."""
    if attributes.pop("k_scheme", None) or attributes.pop("v_scheme", None):
        raise UnsupportedError("keys and values that are kept as blocks have no derivatives: train with floats")
    kept = k.dtype, v.dtype
    if k.dtype != v.dtype:
        k, v = m.cast(k, q.dtype), m.cast(v, q.dtype)
    if sinks is not None:
        (dq, dk, dv), own = gradients_beside_sinks(m, q, k, v, at.dy, mask, pos, sinks, **attributes)
        by_mask: Value | None = None
        if mask is not None and attributes.get("mask_kind") == "bias":
            by_mask = m.cast(unbroadcast(m, own.by_sum, mask), mask.dtype)
        assert own.by_sinks is not None, "there are sinks"
        return dq, m.cast(dk, kept[0]), m.cast(dv, kept[1]), by_mask, None, m.cast(own.by_sinks, sinks.dtype)
    dq, dk, dv = m.attention_backward_all(q, k, v, at.dy, mask, pos=pos, **attributes)
    found = dq, m.cast(dk, kept[0]), m.cast(dv, kept[1])
    if mask is None or attributes.get("mask_kind") != "bias":
        return found
    by_scores = score_gradients(m, q, k, v, at.dy, mask, pos, **attributes).by_sum
    return *found, m.cast(unbroadcast(m, by_scores, mask), mask.dtype)


@vjp(mir.RopeOp)
def rope(
    m: Builders, at: Reverse, x: Value, cos: Value, sin: Value, pos: Value | None = None, **attributes: PythonValue
) -> tuple[Value, Value, Value]:
    """By x, the rotation by negative angles; by the tables, sums of products of dy and x over all that read a row."""
    by_x = m.rope_backward(at.dy, cos, sin, pos=pos, **attributes)
    (ya, yb), (xa, xb) = (_pairs(m, wide(m, value)[0], **attributes) for value in (at.dy, x))
    by_cos, by_sin = m.add(m.mul(ya, xa), m.mul(yb, xb)), m.sub(m.mul(yb, xa), m.mul(ya, xb))
    return by_x, _by_rows(m, by_cos, cos, x, pos), _by_rows(m, by_sin, sin, x, pos)


def _pairs(
    m: Builders, x: Value, *, head_dim: int, n_rot: int | None = None, style: str = "half"
) -> tuple[Value, Value]:
    """What is rotated together, [..., S, heads, n_rot / 2]: the first ones, and the second ones."""
    count = head_dim if n_rot is None else n_rot
    *outer, width = m.sizes_of(x)
    heads = m.reshape(x, [*outer, width // head_dim, head_dim])
    if style == "half":
        return m.narrow(heads, -1, 0, count // 2), m.narrow(heads, -1, count // 2, count // 2)
    return m.slice(heads, -1, 0, count, 2), m.slice(heads, -1, 1, count, 2)


def _by_rows(m: Builders, terms: Value, table: Value, x: Value, pos: Value | None) -> Value:
    """Sums over heads, and over all batches that read a row of a table, as a gradient by the table."""
    tokens = m.sizes_of(x)[x.ndim - 2]
    rows = m.iota([tokens], 0, "i32")
    each = pos is not None and x.ndim > 2  # has rows of its own for each of the first dimension
    if pos is not None:
        rows = m.add(m.reshape(m.cast(pos, "i32"), [-1, 1] if each else [1]), rows)
    summed = m.sum(terms, [*range(int(each), x.ndim - 2), x.ndim - 1])
    found = m.scatter_add(summed, rows, table, 0)
    count, read = (int(value.shape[-1]) for value in (table, found))
    if read < count:
        zeros = m.expand(m.constant(0.0, found.dtype), [m.sizes_of(table)[0], count - read])
        found = m.concat([found, zeros], 1)
    return m.cast(found, table.dtype)


@jvp(mir.RopeOp)
def rope_forward(
    m: Builders,
    at: Forward,
    x: Value,
    cos: Value,
    sin: Value,
    pos: Value | None = None,
    *,
    head_dim: int,
    n_rot: int | None = None,
    style: str = "half",
) -> Value:
    """The same rotation of the tangent, and x with the tangents of the tables, in the part that is rotated."""
    tangent, *tables = at.tangents[:3]

    def turned(x: Value, cos: Value, sin: Value) -> Value:
        return m.rope(x, cos, sin, head_dim=head_dim, n_rot=n_rot, style=style, pos=pos)

    total = None if tangent is None else turned(tangent, cos, sin)
    if tables == [None, None]:
        assert total is not None, "one of the tangents isn't zeros"
        return total
    by_cos, by_sin = (zeros_like(m, own) if t is None else t for own, t in zip((cos, sin), tables, strict=True))
    *outer, width = m.sizes_of(x)
    rotated = m.lt(m.iota([head_dim], 0, "i32"), head_dim if n_rot is None else n_rot)
    heads = m.where(rotated, m.reshape(x, [*outer, width // head_dim, head_dim]), m.constant(0.0, x.dtype))
    term = turned(m.reshape(heads, [*outer, width]), by_cos, by_sin)
    return term if total is None else m.add(total, term)


@vjp(mir.CacheUpdateOp)
def cache_update(
    m: Builders, at: Reverse, cache: Value, new: Value, pos: Value, *, scheme: str | None = None
) -> tuple[Value, Value]:
    """Zeros where the cache was replaced; what replaced it. Blocks are bytes, which have no cotangents."""
    assert scheme is None, "a result of floats"
    own = as_index(m, pos)
    rows = m.add(m.reshape(own, [-1, 1]), m.iota([m.sizes_of(new)[1]], 0, own.dtype))
    part = m.gather(at.dy, rows, 1, batch_dims=1)
    return m.cache_update(at.dy, zeros_like(m, new), pos), m.cast(part, new.dtype)


@jvp(mir.CacheUpdateOp)
def cache_update_forward(
    m: Builders, at: Forward, cache: Value, new: Value, pos: Value, *, scheme: str | None = None
) -> Value | None:
    """The same update of the tangents; none of blocks, which are bytes."""
    of_cache, of_new = at.tangents[:2]
    if scheme is not None or (of_cache is None and of_new is None):
        return None
    cache, new = (zeros_like(m, x) if t is None else t for x, t in ((cache, of_cache), (new, of_new)))
    return m.cache_update(cache, new, pos)
