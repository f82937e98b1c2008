# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attention, rotary positions, and the cache of keys and values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from rlx_mlir import ir
from rlx_mlir.attributes import python_value
from rlx_mlir.dialects import mir
from rlx_mlir.errors import InputError
from rlx_mlir.mir.cost import Cost, Sizes, cost, element_bytes
from rlx_mlir.mir.dims import Size, maximum, minimum
from rlx_mlir.mir.kept import decoded, decoded_tensor, encoded, encoded_tensor
from rlx_mlir.mir.linalg import (
    Map,
    SizeLike,
    as_index,
    cast_shape,
    collapse,
    element_type,
    empty,
    extract_slice,
    for_each,
    generic,
    reduced,
    size_of,
    sizes_of,
    split_dims,
    write_slice,
)
from rlx_mlir.mir.numerics import narrow, widen
from rlx_mlir.mir.registry import TO_LINALG, dim_rule, reference
from rlx_mlir.mir.scalars import Scalar, accumulator, exp, extract, index, tanh
from rlx_mlir.rewriting import Rewriter

# ----------------------------------------------------------------------------------------------------------------------
# References
# ----------------------------------------------------------------------------------------------------------------------


def split_heads(x: np.ndarray, heads: int, layout: str) -> np.ndarray:
    """An operand of any layout as [B, heads, S, D], without a copy."""
    if layout == "bhsd":
        return x
    if layout == "bshd":
        return x.transpose(0, 2, 1, 3)
    batched = x[None] if x.ndim == 2 else x
    return batched.reshape(*batched.shape[:2], heads, batched.shape[2] // heads).transpose(0, 2, 1, 3)


def merge_heads(x: np.ndarray, layout: str, shape: Sequence[int]) -> np.ndarray:
    """Inverse of `split_heads`: [B, heads, S, D] in the layout and shape of the result."""
    return (x if layout == "bhsd" else x.transpose(0, 2, 1, 3)).reshape(shape)


def visible_keys(
    mask_kind: str,
    batch: int,
    queries: int,
    keys: int,
    *,
    mask: np.ndarray | None = None,
    pos: np.ndarray | None = None,
    window: int | None = None,
) -> np.ndarray:
    """Which keys each query may see: bool, broadcastable to [B, H, Sq, Sk]."""
    offset = np.full(batch, keys - queries) if pos is None else pos.astype(np.int64)
    offset = offset[:, None, None, None]
    position = offset + np.arange(queries)[:, None]
    key = np.arange(keys)
    visible = np.ones((1, 1, 1, keys), np.bool_) if pos is None else key < offset + queries
    if mask_kind in ("causal", "sliding_window"):
        visible = visible & (key <= position)
    if mask_kind == "sliding_window":
        assert window is not None, "C7"
        visible = visible & (key > position - window)
    if mask_kind == "custom":
        assert mask is not None, "C5"
        shown = mask if mask.dtype == np.bool_ else widen(mask) >= 0.5
        visible = visible & (shown[:, None, None, :] if mask.ndim == 2 else shown)
    return visible


@dataclass(frozen=True)
class Scores:
    """What queries and keys are to each other.

    Attributes:
        queries: [B, Hkv, G, Sq, D]: those of a group share their keys and values, which nothing repeats.
        keys, values: [B, Hkv, Sk, D].
        factor: of products of queries and keys.
        scores: [B, Hkv, G, Sq, Sk], -inf where a key isn't seen.
        seen: where one is, of the same shape.
        sinks: one more score of each softmax, which no key has: [Hkv, G, 1, 1]; None without them.
        capped: tanh(score / softcap), without biases and masks; None without softcap.
    """

    queries: np.ndarray
    keys: np.ndarray
    values: np.ndarray
    factor: np.floating
    scores: np.ndarray
    seen: np.ndarray
    sinks: np.ndarray | None
    capped: np.ndarray | None

    @classmethod
    def of(
        cls,
        q: np.ndarray,
        k: np.ndarray,
        v: np.ndarray,
        mask: np.ndarray | None,
        pos: np.ndarray | None,
        sinks: np.ndarray | None = None,
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
        """Those of an operation's operands and attributes: cap(scale <q, k>) + bias over the visible keys."""
        kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        group = num_heads // kv_heads
        queries = split_heads(widen(q), num_heads, layout)
        keys, values = (split_heads(widen(x), kv_heads, layout).astype(queries.dtype) for x in (k, v))
        dtype = queries.dtype.type
        batch, _, rows, _ = queries.shape
        columns = keys.shape[2]
        queries = queries.reshape(batch, kv_heads, group, rows, head_dim)
        factor = dtype(1 / math.sqrt(head_dim) if scale is None else np.float32(scale))
        scores = np.matmul(queries, keys[:, :, None].swapaxes(-1, -2)) * factor

        def grouped(x: np.ndarray) -> np.ndarray:
            heads = (kv_heads, group) if x.shape[1] == num_heads else (1, 1)
            return x.reshape(x.shape[0], *heads, *x.shape[2:])

        capped = None
        if softcap is not None:
            cap = dtype(np.float32(softcap))
            capped = np.tanh(scores / cap)
            scores = cap * capped
        if mask_kind == "bias":
            assert mask is not None, "C5"
            scores = scores + grouped(widen(mask))
        seen = visible_keys(mask_kind, batch, rows, columns, mask=mask, pos=pos, window=window)
        seen = np.broadcast_to(grouped(seen), scores.shape)
        own = None if sinks is None else widen(sinks).astype(dtype).reshape(kv_heads, group, 1, 1)
        return cls(queries, keys, values, factor, np.where(seen, scores, dtype(-np.inf)), seen, own, capped)

    def weights(self) -> tuple[np.ndarray, np.ndarray]:
        """The exponentials of the scores, of which the largest of a row is 1, and their sums: 0 where all are -inf.

        A sink is one of the scores that sums and the largest are of.
        """
        largest = np.max(self.scores, axis=-1, keepdims=True, initial=-np.inf)
        if self.sinks is not None:
            largest = np.maximum(largest, self.sinks)
        # Where all scores are -inf, each weight is 0 rather than exp(-inf + inf).
        shift = np.where(np.isneginf(largest), 0, largest)
        weights = np.exp(self.scores - shift)
        total = np.sum(weights, axis=-1, keepdims=True)
        return weights, total if self.sinks is None else total + np.exp(self.sinks - shift)


@reference(mir.AttentionOp)
def attention(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    mask: np.ndarray | None = None,
    pos: np.ndarray | None = None,
    sinks: np.ndarray | None = None,
    *,
    num_heads: int,
    head_dim: int,
    num_kv_heads: int | None = None,
    mask_kind: str = "none",
    window: int | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    layout: str = "packed",
    k_scheme: str | None = None,
    v_scheme: str | None = None,
) -> np.ndarray:
    """softmax(cap(scale <q, k>) + bias) v over a query's visible keys and its sink; zeros where it sees none."""
    k, v = (x if scheme is None else decoded(x, scheme) for x, scheme in ((k, k_scheme), (v, v_scheme)))
    found = Scores.of(
        *(q, k, v, mask, pos, sinks),
        num_heads=num_heads,
        head_dim=head_dim,
        num_kv_heads=num_kv_heads,
        mask_kind=mask_kind,
        window=window,
        scale=scale,
        softcap=softcap,
        layout=layout,
    )
    weights, total = found.weights()
    result = _weighted_sum(weights, found.values, found.seen)
    result = np.divide(result, total, out=np.zeros_like(result), where=total != 0)
    batch, _, _, rows, _ = result.shape
    return narrow(merge_heads(result.reshape(batch, num_heads, rows, head_dim), layout, q.shape), q.dtype)


def _weighted_sum(weights: np.ndarray, values: np.ndarray, seen: np.ndarray) -> np.ndarray:
    """weights [B, Hkv, G, Sq, Sk] @ values [B, Hkv, Sk, D], in which keys that aren't seen count as nothing."""
    finite = np.isfinite(values)
    result = np.matmul(weights, np.where(finite, values, 0)[:, :, None])
    if finite.all():
        return result
    # Infinities and NaN join where they are seen; memory that isn't filled yet mostly isn't.
    for key in np.nonzero(~finite.all(axis=(0, 1, 3)) & seen.any(axis=(0, 1, 2, 3)))[0]:
        rest = np.where(finite[:, :, key], 0, values[:, :, key])[:, :, None, None]
        where = seen[..., key, None] & ~finite[:, :, key][:, :, None, None]
        result = result + np.where(where, weights[..., key, None] * rest, 0)
    return result


@reference(mir.RopeOp)
def rope(
    x: np.ndarray,
    cos: np.ndarray,
    sin: np.ndarray,
    pos: np.ndarray | None = None,
    *,
    head_dim: int,
    n_rot: int | None = None,
    style: str = "half",
) -> np.ndarray:
    """Rotates the pairs (u, w) of each head: u' = u c - w s, w' = w c + u s.

    Raises InputError where a row isn't in the table.
    """
    half = (head_dim if n_rot is None else n_rot) // 2
    wide = widen(x)
    heads = wide.reshape(*wide.shape[:-1], x.shape[-1] // head_dim, head_dim)
    row = np.arange(x.shape[-2])
    for batch, start in enumerate([0] if pos is None else pos.tolist()):
        if len(row) and not 0 <= start <= len(cos) - len(row):
            raise InputError(
                f"mir.rope: rows {start} to {start + len(row) - 1} of batch {batch} must lie in a table of {len(cos)} "
                "rows"
            )
    if pos is not None:
        row = row + pos.astype(np.int64).reshape(-1, *[1] * (x.ndim - 2))
    c, s = (table.astype(wide.dtype)[row][..., None, :half] for table in (cos, sin))
    if style == "half":
        first, second = slice(0, half), slice(half, 2 * half)
    else:
        first, second = slice(0, 2 * half, 2), slice(1, 2 * half, 2)
    result = heads.copy()
    result[..., first] = heads[..., first] * c - heads[..., second] * s
    result[..., second] = heads[..., second] * c + heads[..., first] * s
    return narrow(result.reshape(x.shape), x.dtype)


@reference(mir.CacheUpdateOp)
def cache_update(cache: np.ndarray, new: np.ndarray, pos: np.ndarray, *, scheme: str | None = None) -> np.ndarray:
    """`cache` with rows pos[b] .. pos[b] + S - 1 replaced by those of `new`, rounded to its element type or blocks.

    Raises InputError where they don't fit.
    """
    result = cache.copy()
    rows = new.shape[1]
    for batch, start in enumerate(pos.tolist()):
        if rows and not 0 <= start <= cache.shape[1] - rows:
            raise InputError(
                f"mir.cache_update: rows {start} to {start + rows - 1} of batch {batch} "
                f"must lie in a cache of {cache.shape[1]} rows"
            )
        own = new[batch]
        result[batch, start : start + rows] = narrow(own, cache.dtype) if scheme is None else encoded(own, scheme)
    return result


# ----------------------------------------------------------------------------------------------------------------------
# Costs
# ----------------------------------------------------------------------------------------------------------------------


@cost(mir.AttentionOp)
def attention_cost(op: ir.AnyOp, sizes: Sizes) -> Cost:
    """For each query, key that it sees and head: two products of `head_dim`, and five for the softmax.

    Of keys and values, those are read that some query sees; a mask of values hides none here.
    """
    axis = -2 if python_value(op.layout) in ("packed", "bhsd") else -3
    queries, keys, head_dim = sizes[op.q][axis], sizes[op.k][axis], python_value(op.head_dim)
    offset = keys - queries if op.pos is None else sizes.position
    last = keys if op.pos is None else minimum(keys, offset + queries)
    kind = python_value(op.mask_kind)
    seen, first = last * queries, Size.of(0)
    if kind in ("causal", "sliding_window"):
        most = last
        if kind == "sliding_window":
            most = minimum(last, Size.of(python_value(op.window)))
            first = maximum(offset + 1 - python_value(op.window), first)
        seen = _capped_sum(offset + queries, most) - _capped_sum(offset, most)
    rows = maximum(last - first, Size.of(0))
    reads = {value: sizes.bytes(value, without=axis) * rows for value in (op.k, op.v)}
    heads = sizes.count(op.q, without=axis) // head_dim  # of all sequences
    return Cost(heads * seen * (4 * head_dim + 5), reads=reads)


def _capped_sum(count: Size, most: Size) -> Size:
    """The sum of min(n, most) for n from 1 to count; 0 for a count below."""
    whole = maximum(minimum(count, most), Size.of(0))
    return whole * (whole + 1) // 2 + most * maximum(count - most, Size.of(0))


@cost(mir.RopeOp)
def rope_cost(op: ir.AnyOp, sizes: Sizes) -> Cost:
    """Two products and a sum for each element; a row of the tables for each position."""
    rows, tables = sizes[op.x][-2] if len(sizes[op.x]) > 1 else Size.of(1), (op.cos, op.sin)
    reads = {table: minimum(rows * sizes[table][-1] * element_bytes(table), sizes.bytes(table)) for table in tables}
    return Cost(3 * sizes.count(op.x), reads=reads)


@cost(mir.CacheUpdateOp)
def cache_update_cost(op: ir.AnyOp, sizes: Sizes) -> Cost:
    """The new rows are read and written; the others stay where they are."""
    rows, width = sizes.count(op.new, without=-1), sizes[op.cache][-1]
    return Cost(
        0 if op.scheme is None else 4 * sizes.count(op.new),  # magnitude, largest, times, plus
        reads={op.cache: 0},
        writes={0: rows * width * element_bytes(op.cache)},
    )


# ----------------------------------------------------------------------------------------------------------------------
# Dimensions
# ----------------------------------------------------------------------------------------------------------------------


@dim_rule(mir.AttentionOp, mir.CacheUpdateOp)
def same_dims(op: ir.AnyOp, operands: Sequence[tuple[Size, ...]]) -> tuple[Size, ...]:
    """Those of the first operand."""
    return operands[0]


@dim_rule(mir.RopeOp)
def rope_dims(op: ir.AnyOp, operands: Sequence[tuple[Size, ...]]) -> tuple[Size, ...]:
    """Those of `x`."""
    return operands[0]


# ----------------------------------------------------------------------------------------------------------------------
# Lowering to linalg
# ----------------------------------------------------------------------------------------------------------------------


class _Heads:
    """Views of attention's operands by head, and the loops that run along them.

    Loops are b, h, g, i, j, d: batch, head of keys, query head in its group, query, key, element.
    """

    def __init__(self, op: ir.AnyOp) -> None:
        self.layout = python_value(op.layout)
        self.heads = python_value(op.num_heads)
        self.kv_heads = python_value(op.num_kv_heads) or self.heads
        self.group = self.heads // self.kv_heads
        self.head_dim = python_value(op.head_dim)
        self.q = op.q
        self.k, self.v = (
            x if scheme is None else decoded_tensor(x, python_value(scheme), self.kv_heads * self.head_dim)
            for x, scheme in ((op.k, op.k_scheme), (op.v, op.v_scheme))
        )
        sequence = {"packed": -2, "bhsd": 2, "bshd": 1}[self.layout]
        self.batch: SizeLike = 1 if op.q.type.rank == 2 else size_of(op.q, 0)
        self.queries, self.keys = size_of(op.q, sequence), size_of(op.k, sequence)

    def _sizes(self, sequence: SizeLike, heads: Sequence[SizeLike]) -> list[SizeLike]:
        if self.layout == "bhsd":
            return [self.batch, *heads, sequence, self.head_dim]
        return [self.batch, sequence, *heads, self.head_dim]

    def _groups(self, rank: int, heads: int) -> list[list[int]]:
        """Which dimensions of the view are one of the operand."""
        first = 1 if self.layout == "bhsd" else 2
        split = list(range(first, first + heads))
        if self.layout == "packed":
            split.append(first + heads)
            return [[0, 1], split] if rank == 2 else [[0], [1], split]
        return [*([dim] for dim in range(first)), split, *([dim] for dim in range(first + heads, 3 + heads))]

    def queries_by_head(self) -> tuple[ir.Value, Map]:
        """q by group: dimensions b, i, h, g, d, and their loops."""
        sizes = self._sizes(self.queries, [self.kv_heads, self.group])
        return split_dims(self.q, self._groups(self.q.type.rank, 2), sizes), self.query_map

    def keys_by_head(self, operand: ir.Value) -> tuple[ir.Value, Map]:
        """k or v: dimensions b, j, h, d, and their loops."""
        sizes = self._sizes(self.keys, [self.kv_heads])
        order = [0, 1, 4, 5] if self.layout == "bhsd" else [0, 4, 1, 5]
        return split_dims(operand, self._groups(operand.type.rank, 1), sizes), order

    @property
    def query_map(self) -> list[int]:
        """The loops of the dimensions of q and of the result by head."""
        return [0, 1, 2, 3, 5] if self.layout == "bhsd" else [0, 3, 1, 2, 5]

    def query_sizes(self) -> list[SizeLike]:
        """The sizes of the result by head."""
        return self._sizes(self.queries, [self.kv_heads, self.group])

    def merged(self, result: ir.Value) -> ir.Value:
        """The result by head in the shape of q."""
        return cast_shape(collapse(result, self._groups(self.q.type.rank, 2)), sizes_of(self.q))


class _Visibility:
    """Which keys a query sees, as a condition in the body of loops that start with b, h, g, i, j."""

    def __init__(self, op: ir.AnyOp, heads: _Heads) -> None:
        self.kind = python_value(op.mask_kind)
        self.window = python_value(op.window)
        self.operands: list[tuple[ir.Value, Map]] = []
        self._queries, self._keys = as_index(heads.queries), as_index(heads.keys)
        self.by_position = op.pos is not None
        if op.pos is not None:
            self.operands.append((op.pos, [0]))
        if self.kind == "custom":
            self.operands.append(mask_by_head(op.mask, heads))

    @property
    def trivial(self) -> bool:
        """Whether every query sees every key."""
        return self.kind in ("none", "bias") and not self.by_position

    def condition(self, *values: Scalar) -> Scalar:
        """i1, from the scalars of `operands`."""
        rest = list(values)
        i, j = index(3), index(4)
        queries = Scalar(self._queries)
        offset = rest.pop(0).to("index") if self.by_position else Scalar(self._keys) - queries
        terms = [j < offset + queries] if self.by_position else []
        if self.kind in ("causal", "sliding_window"):
            terms.append(j <= offset + i)
        if self.kind == "sliding_window":
            terms.append(j > offset + i - self.window)
        if self.kind == "custom":
            mask = rest.pop(0)
            terms.append(mask if mask.word == "i1" else mask.widen() >= 0.5)
        return reduce(lambda a, b: a & b, terms)


def mask_by_head(mask: ir.Value, heads: _Heads) -> tuple[ir.Value, Map]:
    """A mask [B, Sk] or [B, H, Sq, Sk], in which each size but Sk may be 1, and its loops."""
    own = sizes_of(mask)

    def loop(size: SizeLike, dim: int) -> int | None:
        return None if size == 1 else dim

    if len(own) == 2:
        return mask, [loop(own[0], 0), 4]
    outer = [loop(own[0], 0)]
    if own[1] == 1:
        return mask, [*outer, None, loop(own[2], 3), 4]
    sizes = [own[0], heads.kv_heads, heads.group, own[2], own[3]]
    view = split_dims(mask, [[0], [1, 2], [3], [4]], sizes)
    return view, [*outer, 1, 2, loop(own[2], 3), 4]


@TO_LINALG.pattern(mir.AttentionOp)
def lower_attention(op: ir.AnyOp, rewriter: Rewriter) -> None:
    """attention(q, k, v) -> s = cap(scale <q, k>) + bias; m = max s; w = exp(s - m); (sum_j w v) / sum_j w

    Heads are views: nothing repeats the keys and values of a group. A sink is among what m and the last sum are of.
    """
    heads = _Heads(op)
    visible = _Visibility(op, heads)
    b, h, g, i, j = range(5)
    rows = [b, h, g, i]
    row_sizes = [heads.batch, heads.kv_heads, heads.group, heads.queries]
    wide = accumulator(element_type(op.q))
    scale = 1 / math.sqrt(heads.head_dim) if op.scale is None else python_value(op.scale)
    softcap = python_value(op.softcap)

    products = reduced(
        6,
        [heads.queries_by_head(), heads.keys_by_head(heads.k)],
        [*row_sizes, heads.keys],
        [*rows, j],
        0,
        lambda q, k, total: total + q * k,
    )
    bias = [mask_by_head(op.mask, heads)] if visible.kind == "bias" else []

    def score(product: Scalar, *rest: Scalar) -> Scalar:
        s = product * scale
        if softcap is not None:
            s = tanh(s / softcap) * softcap
        if bias:
            s = s + rest[0].widen()
        return s if visible.trivial else visible.condition(*rest[len(bias) : -1]).select(s, -math.inf)

    inputs: list[tuple[ir.Value, Map]] = [(products, [*rows, j]), *bias, *visible.operands]
    scores = generic(5, inputs, [(empty([*row_sizes, heads.keys], wide), [*rows, j])], score)
    largest = reduced(5, [(scores, [*rows, j])], row_sizes, rows, -math.inf, lambda s, most: most.max(s))

    def weight(s: Scalar, most: Scalar, _: Scalar) -> Scalar:
        # Where all scores are -inf, each weight is 0 rather than exp(-inf + inf).
        return s.compare("eq", -math.inf).select(0, exp(s - most))

    if op.sinks is not None:
        sinks = split_dims(op.sinks, [[0, 1]], [heads.kv_heads, heads.group]), [h, g]

        def highest(most: Scalar, sink: Scalar, _: Scalar) -> Scalar:
            return most.max(sink.to(wide))

        destination = [(empty(row_sizes, wide), rows)]
        largest = generic(4, [(largest, rows), sinks], destination, highest)

    weights = generic(
        5, [(scores, [*rows, j]), (largest, rows)], [(empty([*row_sizes, heads.keys], wide), [*rows, j])], weight
    )
    total = reduced(5, [(weights, [*rows, j])], row_sizes, rows, 0, lambda w, total: total + w)
    if op.sinks is not None:

        def with_sink(total: Scalar, most: Scalar, sink: Scalar, _: Scalar) -> Scalar:
            return total + weight(sink.to(wide), most, total)

        total = generic(4, [(total, rows), (largest, rows), sinks], destination, with_sink)

    def weigh(w: Scalar, v: Scalar, *rest: Scalar) -> Scalar:
        *operands, total = rest
        contribution = w * v
        if not visible.trivial:  # what isn't seen may be NaN
            contribution = visible.condition(*operands).select(contribution, 0)
        return total + contribution

    sizes = heads.query_sizes()
    inputs = [(weights, [*rows, j]), heads.keys_by_head(heads.v), *visible.operands]
    sums = reduced(6, inputs, sizes, heads.query_map, 0, weigh)
    # Without the loop along keys, the elements are loop 4.
    by_head = [4 if loop == 5 else loop for loop in heads.query_map]
    target = element_type(op.q)

    def divide(value: Scalar, total: Scalar, _: Scalar) -> Scalar:
        return total.compare("eq", 0).select(0, value / total).to(target)

    result = generic(5, [(sums, by_head), (total, rows)], [(empty(sizes, target), by_head)], divide)
    rewriter.replace(op, heads.merged(result))


@TO_LINALG.pattern(mir.RopeOp)
def lower_rope(op: ir.AnyOp, rewriter: Rewriter) -> None:
    """rope(x, cos, sin) -> generic over x: x c -+ partner s, with the partner by tensor.extract"""
    rank = op.x.type.rank
    head_dim = python_value(op.head_dim)
    rotated = python_value(op.n_rot) or head_dim
    half = rotated // 2
    interleaved = python_value(op.style) == "interleaved"
    last = as_index(size_of(op.cos, 0))
    positions: list[tuple[ir.Value, Map]] = [] if op.pos is None else [(op.pos, [0 if rank > 2 else None])]
    target = element_type(op.x)

    def rotate(x: Scalar, *rest: Scalar) -> Scalar:
        at = [index(dim) for dim in range(rank)]
        row = at[-2] if op.pos is None else at[-2] + rest[0].to("index")
        row = row.min(Scalar(last) - 1).max(0)
        e = at[-1] % head_dim
        start = at[-1] - e
        inside = e.min(rotated - 1)  # elements that aren't rotated read a pair, too
        if interleaved:
            pair, second = inside // 2, inside % 2
            partner = inside + 1 - second * 2
        else:
            pair, second = inside % half, inside // half
            partner = pair + (1 - second) * half
        c, s = (extract(table, [row, pair]).to(x.widen().type) for table in (op.cos, op.sin))
        other = extract(op.x, [*at[:-1], start + partner]).widen() * s
        own = x.widen() * c
        result = second.compare("eq", 0).select(own - other, own + other)
        if rotated < head_dim:
            result = (e < rotated).select(result, x.widen())
        return result.to(target)

    loops = range(rank)
    destination = (empty(sizes_of(op.x), target), loops)
    rewriter.replace(op, generic(rank, [(op.x, loops), *positions], [destination], rotate))


@TO_LINALG.pattern(mir.CacheUpdateOp)
def lower_cache_update(op: ir.AnyOp, rewriter: Rewriter) -> None:
    """cache_update(cache, new, pos) -> a loop over batches: writes new[b], rounded, into the slice at row pos[b]

    With a scheme, all of `new` becomes blocks first.

    Executables refuse positions whose rows don't fit. Those that they can't see, since they are computed, are clamped:
    nothing outside of the cache is written.
    """
    batch, length, width = sizes_of(op.cache)
    rows = size_of(op.new, 1)
    last = Scalar(as_index(length)) - Scalar(as_index(rows))
    stored = element_type(op.cache)
    new = op.new if op.scheme is None else encoded_tensor(op.new, python_value(op.scheme))

    def step(b: ir.Value, cache: ir.Value) -> list[ir.Value]:
        start = extract(op.pos, [Scalar(b)]).to("index").min(last).max(0).value
        source = extract_slice(new, [b, 0, 0], [1, rows, width], drop=[0])
        return [write_slice(source, cache, [b, start, 0], [1, rows, width], drop=[0], body=lambda x: x.to(stored))]

    rewriter.replace(op, *for_each(0, batch, [op.cache], step))
