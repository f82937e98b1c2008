# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Gradients of attention, from products and weights that are computed again."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rlx_mlir.attributes import PythonValue
from rlx_mlir.dialects import mir
from rlx_mlir.hir.compositions.registry import Builders, composition, narrow, wide
from rlx_mlir.hir.values import Value
from rlx_mlir.mir.dims import Size, is_never_negative

#: Causal queries go in blocks of so many at least, and in so many blocks at most: half of the scores aren't seen.
_BLOCK, _MOST_BLOCKS = 128, 4


def split_heads(m: Builders, x: Value, heads: int, layout: str) -> Value:
    """An operand of any layout as [B, heads, S, D]."""
    if layout == "bhsd":
        return x
    if layout == "packed":
        batch, rows, columns = m.sizes_of(x) if x.ndim == 3 else [Size.of(1), *m.sizes_of(x)]
        x = m.reshape(x, [batch, rows, heads, columns // heads])
    return m.transpose(x, [0, 2, 1, 3])


def merge_heads(m: Builders, x: Value, layout: str, like: Value) -> Value:
    """[B, heads, S, D] in the layout of an operand, whose sizes the result has."""
    if layout == "bhsd":
        return x
    together = m.transpose(x, [0, 2, 1, 3])
    return together if layout == "bshd" else m.reshape(together, m.sizes_of(like))


def visible_keys(
    m: Builders, q: Value, k: Value, mask_kind: str, mask: Value | None, pos: Value | None, window: int | None
) -> Value | None:
    """Which keys each query of q [B, H, Sq, D] may see of k [B, H, Sk, D]: i1 that broadcasts; None for all of them."""
    key = m.iota([m.sizes_of(k)[2]], 0, "i32")
    seen: list[Value] = []
    if pos is not None:
        offset = m.reshape(pos, [-1, 1, 1, 1])
        seen.append(m.lt(key, m.add(offset, m.dim(q, 2, "i32"))))
    else:
        offset = m.sub(m.dim(k, 2, "i32"), m.dim(q, 2, "i32"))
    if mask_kind in ("causal", "sliding_window"):
        position = m.add(m.reshape(m.iota([m.sizes_of(q)[2]], 0, "i32"), [-1, 1]), offset)
        seen.append(m.le(key, position))
        if window is not None:
            seen.append(m.gt(key, m.sub(position, window)))
    if mask_kind == "custom":
        assert mask is not None, "C5"
        shown = mask if mask.dtype.name == "bool" else m.ge(wide(m, mask)[0], 0.5)
        if shown.ndim == 2:
            batch, keys = m.sizes_of(shown)
            shown = m.reshape(shown, [batch, 1, 1, keys])
        seen.append(shown)
    if not seen:
        return None
    found = seen[0]
    for other in seen[1:]:
        found = m.bitwise_and(found, other)
    return found


@dataclass(frozen=True)
class Scores:
    """What gradients of attention are made of, with heads as dimensions, in the type that is computed in.

    Attributes:
        queries, gradient: [B, H, Sq, D]; `gradient` is that by the result.
        keys, values: [B, Hkv, Sk, D].
        weights: [B, H, Sq, Sk].
        by_sum: the gradient by what the weights are the softmax of, which is that by a bias, too: [B, H, Sq, Sk].
        by_product: the gradient by the products of queries and keys.
        by_sinks: the gradient by sinks, [H]; None without them.
    """

    queries: Value
    gradient: Value
    keys: Value
    values: Value
    weights: Value
    by_sum: Value
    by_product: Value
    by_sinks: Value | None


def _of_groups(m: Builders, x: Value, heads: int, kv_heads: int) -> Value:
    """[B, H, Sq, n] as [B, Hkv, G Sq, n]: the queries of a group are rows of one product."""
    batch, _, rows, columns = m.sizes_of(x)
    return m.reshape(x, [batch, kv_heads, rows * (heads // kv_heads), columns])


def score_gradients(
    m: Builders,
    q: Value,
    k: Value,
    v: Value,
    dy: Value,
    mask: Value | None = None,
    pos: Value | None = None,
    sinks: Value | None = None,
    *,
    num_heads: int,
    head_dim: int,
    num_kv_heads: int | None = None,
    mask_kind: str = "none",
    window: int | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    layout: str = "packed",
) -> Scores:
    """ds = p (dp - sum(p dp)) of the weights p = softmax(scale q k^T) and dp = dy v^T.

    A sink has a weight, too, whose dp is 0.
    """
    kv_heads = num_heads if num_kv_heads is None else num_kv_heads
    queries, gradient = (split_heads(m, x, num_heads, layout) for x in wide(m, q, dy))
    keys, values = (split_heads(m, m.cast(x, queries.dtype), kv_heads, layout) for x in (k, v))

    def product(lhs: Value, rhs: Value) -> Value:
        """Rows of all heads by those of their groups: [B, H, Sq, Sk]."""
        found = m.matmul(_of_groups(m, lhs, num_heads, kv_heads), rhs, transpose_rhs=True)
        batch, _, rows, _ = m.sizes_of(lhs)
        return m.reshape(found, [batch, num_heads, rows, m.sizes_of(rhs)[2]])

    factor = 1 / math.sqrt(head_dim) if scale is None else scale
    scores = m.mul(product(queries, keys), factor)
    steepness: Value | None = None
    if softcap is not None:
        capped = m.tanh(m.div(scores, softcap))
        scores, steepness = m.mul(capped, softcap), m.sub(1.0, m.mul(capped, capped))
    if mask_kind == "bias":
        assert mask is not None, "C5"
        scores = m.add(scores, wide(m, mask)[0])
    seen = visible_keys(m, queries, keys, mask_kind, mask, pos, window)

    def shown(x: Value, otherwise: float) -> Value:
        return x if seen is None else m.where(seen, x, otherwise)

    # Where every query sees a key, no row is -inf throughout.
    more = m.sizes_of(keys)[2] - m.sizes_of(queries)[2]
    sees_own = mask_kind in ("causal", "sliding_window") and pos is None and is_never_negative(more)
    all_see = sees_own or (seen is None and mask_kind != "bias")
    of_sinks: Value | None = None
    if sinks is not None:
        sink = m.reshape(m.cast(sinks, scores.dtype), [1, num_heads, 1, 1])
        weights, of_sinks = _weights_beside(m, shown(scores, -math.inf), sink)
    else:
        weights = m.softmax(shown(scores, -math.inf), -1) if all_see else _weights(m, shown(scores, -math.inf))
    by_weight = shown(product(gradient, values), 0.0)
    mean = m.sum(m.mul(weights, by_weight), -1, keep_dims=True)
    by_sum = m.mul(weights, m.sub(by_weight, mean))
    by_score = by_sum if steepness is None else shown(m.mul(by_sum, steepness), 0.0)
    by_sinks = None if of_sinks is None else m.neg(m.sum(m.mul(of_sinks, mean), [0, 2, 3]))
    return Scores(queries, gradient, keys, values, weights, by_sum, m.mul(by_score, factor), by_sinks)


@composition(mir.AttentionBackwardOp)
def attention_backward(
    m: Builders,
    q: Value,
    k: Value,
    v: Value,
    dy: Value,
    mask: Value | None = None,
    pos: Value | None = None,
    *,
    num_heads: int,
    num_kv_heads: int | None = None,
    layout: str = "packed",
    **attributes: PythonValue,
) -> tuple[Value, Value, Value]:
    """The gradients by scores; then products of them. Causal queries go in blocks, with the keys that these see."""
    kv_heads = num_heads if num_kv_heads is None else num_kv_heads
    given = [split_heads(m, x, num_heads, layout) for x in wide(m, q, dy)]
    others = [split_heads(m, m.cast(x, given[0].dtype), kv_heads, layout) for x in (k, v)]
    attributes |= {"num_heads": num_heads, "num_kv_heads": num_kv_heads, "layout": "bhsd"}
    rows, columns = (m.sizes_of(x)[2].constant for x in (given[0], others[0]))
    is_square = attributes.get("mask_kind") == "causal" and pos is None and rows is not None and rows == columns
    count = min(_MOST_BLOCKS, (rows or 0) // _BLOCK) if is_square else 1
    if count < 2:
        own = score_gradients(m, given[0], others[0], others[1], given[1], mask, pos, **attributes)
        found = _products(m, own, num_heads, kv_heads)
    else:
        assert rows is not None, "which the number of blocks is of"
        ends = [rows * (number + 1) // count for number in range(count)]
        found = _in_blocks(m, given, others, ends, attributes)
    merged = [narrow(m, merge_heads(m, x, layout, like), like) for x, like in zip(found, (q, k, v), strict=True)]
    return merged[0], merged[1], merged[2]


def gradients_beside_sinks(
    m: Builders,
    q: Value,
    k: Value,
    v: Value,
    dy: Value,
    mask: Value | None,
    pos: Value | None,
    sinks: Value,
    **attributes: PythonValue,
) -> tuple[tuple[Value, Value, Value], Scores]:
    """The gradients by q, k and v of attention with sinks, and those by scores and sinks, which they are made of."""
    heads, layout = attributes["num_heads"], attributes.get("layout", "packed")
    kv_heads = attributes.get("num_kv_heads") or heads
    own = score_gradients(m, q, k, v, dy, mask, pos, sinks, **attributes)
    found = zip(_products(m, own, heads, kv_heads), (q, k, v), strict=True)
    by_q, by_k, by_v = (narrow(m, merge_heads(m, x, layout, like), like) for x, like in found)
    return (by_q, by_k, by_v), own


def _in_blocks(
    m: Builders,
    given: Sequence[Value],
    others: Sequence[Value],
    ends: Sequence[int],
    attributes: dict[str, PythonValue],
) -> tuple[Value, Value, Value]:
    """The gradients by q, k and v, [B, H, S, D], of causal attention, a block of queries at a time.

    Args:
        given: q and the gradient by the result.
        others: k and v.
        ends: of the blocks.
        attributes: of the operation.
    """
    kv_heads = attributes["num_kv_heads"] or attributes["num_heads"]
    starts = [0, *ends[:-1]]
    parts = []
    for start, end in zip(starts, ends, strict=True):
        queries, gradient = (m.slice(x, 2, start, end) for x in given)
        keys, values = (m.slice(x, 2, 0, end) for x in others)
        own = score_gradients(m, queries, keys, values, gradient, **attributes)
        parts.append(_products(m, own, attributes["num_heads"], kv_heads))

    def summed(of_blocks: Sequence[Value]) -> Value:
        """The sums of what blocks give for the keys that each of them sees."""
        pieces = []
        for number, (start, end) in enumerate(zip(starts, ends, strict=True)):
            total = m.slice(of_blocks[number], 2, start, end)
            for later in of_blocks[number + 1 :]:
                total = m.add(total, m.slice(later, 2, start, end))
            pieces.append(total)
        return m.concat(pieces, 2)

    by_queries, by_keys, by_values = zip(*parts, strict=True)
    return m.concat(list(by_queries), 2), summed(by_keys), summed(by_values)


def _products(m: Builders, own: Scores, num_heads: int, kv_heads: int) -> tuple[Value, Value, Value]:
    """The gradients by q, k and v, [B, H, S, D], from those by scores."""

    def of_groups(x: Value) -> Value:
        return _of_groups(m, x, num_heads, kv_heads)

    def by_columns(x: Value, of_rows: Value) -> Value:
        """x^T times rows, [B, Hkv, Sk, D]: what is transposed are rows and result, which are smaller than x."""
        turned = m.transpose(of_groups(of_rows), [0, 1, 3, 2])
        return m.transpose(m.matmul(turned, of_groups(x)), [0, 1, 3, 2])

    batch, _, rows, columns = m.sizes_of(own.queries)
    dq = m.reshape(m.matmul(of_groups(own.by_product), own.keys), [batch, num_heads, rows, columns])
    return dq, by_columns(own.by_product, own.queries), by_columns(own.weights, own.gradient)


def _weights(m: Builders, scores: Value) -> Value:
    """softmax(scores), and zeros in rows that are -inf throughout."""
    largest = m.max(scores, -1, keep_dims=True)
    lowest = m.eq(largest, -math.inf)
    powers = m.exp(m.sub(scores, m.where(lowest, 0.0, largest)))
    return m.where(lowest, 0.0, m.div(powers, m.sum(powers, -1, keep_dims=True)))


def _weights_beside(m: Builders, scores: Value, sink: Value) -> tuple[Value, Value]:
    """softmax(scores) with one more score, [1, H, 1, 1], and the weight of that; zeros where all are -inf."""
    largest = m.maximum(m.max(scores, -1, keep_dims=True), sink)
    lowest = m.eq(largest, -math.inf)
    shift = m.where(lowest, 0.0, largest)
    powers, of_sink = m.exp(m.sub(scores, shift)), m.exp(m.sub(sink, shift))
    total = m.add(m.sum(powers, -1, keep_dims=True), of_sink)
    return m.where(lowest, 0.0, m.div(powers, total)), m.where(lowest, 0.0, m.div(of_sink, total))
