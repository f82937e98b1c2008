# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Norms, softmax, attention, rotations and losses, which are made of several operations: in f32, rounded once."""

from __future__ import annotations

import math

import numpy as np

from rlx_mlir.exports.stablehlo.builder import SIZES, Writing
from rlx_mlir.exports.stablehlo.registry import writes
from rlx_mlir.exports.stablehlo.tensors import Tensor, is_static, plain
from rlx_mlir.mir.dims import Size, product


def _softmax_of(w: Writing, x: Tensor, axis: int) -> Tensor:
    shifted = w.sub(x, w.reduce(x, "max", [axis], keep=True))
    power = w.unary("exponential", shifted)
    return w.div(power, w.reduce(power, "sum", [axis], keep=True))


@writes("softmax")
def _softmax(w: Writing, x: Tensor, *, axis: int = -1) -> Tensor:
    return w.cast(_softmax_of(w, w.wide(x), axis % x.rank), x.word)


def _along(w: Writing, vector: Tensor, axis: int, rank: int) -> Tensor:
    """A vector along a dimension of others of size 1."""
    return w.reshape(w.wide(vector), [vector.shape[0] if at == axis else 1 for at in range(rank)])


@writes("rms_norm")
def _rms_norm(
    w: Writing, x: Tensor, gamma: Tensor, beta: Tensor | None = None, *, axis: int = -1, eps: float = 1e-5
) -> Tensor:
    at, wide = axis % x.rank, w.wide(x)
    mean = w.reduce(w.mul(wide, wide), "mean", [at], keep=True)
    y = w.mul(w.mul(wide, w.unary("rsqrt", w.add(mean, eps))), w.cast(_along(w, gamma, at, x.rank), wide.word))
    y = y if beta is None else w.add(y, w.cast(_along(w, beta, at, x.rank), wide.word))
    return w.cast(y, x.word)


@writes("layer_norm")
def _layer_norm(
    w: Writing, x: Tensor, gamma: Tensor, beta: Tensor | None = None, *, axis: int = -1, eps: float = 1e-5
) -> Tensor:
    at, wide = axis % x.rank, w.wide(x)
    centred = w.sub(wide, w.reduce(wide, "mean", [at], keep=True))
    variance = w.reduce(w.mul(centred, centred), "mean", [at], keep=True)
    y = w.mul(w.mul(centred, w.unary("rsqrt", w.add(variance, eps))), w.cast(_along(w, gamma, at, x.rank), wide.word))
    y = y if beta is None else w.add(y, w.cast(_along(w, beta, at, x.rank), wide.word))
    return w.cast(y, x.word)


@writes("group_norm")
def _group_norm(
    w: Writing, x: Tensor, gamma: Tensor, beta: Tensor | None = None, *, num_groups: int, eps: float = 1e-5
) -> Tensor:
    size = plain(product(x.shape[1:]) // num_groups)
    wide = w.reshape(w.wide(x), (x.shape[0], num_groups, size))
    centred = w.sub(wide, w.reduce(wide, "mean", [2], keep=True))
    variance = w.reduce(w.mul(centred, centred), "mean", [2], keep=True)
    y = w.reshape(w.mul(centred, w.unary("rsqrt", w.add(variance, eps))), x.shape)
    y = w.mul(y, w.cast(_along(w, gamma, 1, x.rank), y.word))
    y = y if beta is None else w.add(y, w.cast(_along(w, beta, 1, x.rank), y.word))
    return w.cast(y, x.word)


# Attention ------------------------------------------------------------------------------------------


def _heads(w: Writing, x: Tensor, layout: str, heads: int, width: int) -> Tensor:
    """[B, heads, S, width] of the layouts of attention."""
    if layout == "bhsd":
        return x
    if x.rank == 2:
        x = w.reshape(x, (1, *x.shape))
    if layout == "packed":
        x = w.reshape(x, (*x.shape[:2], heads, width))
    return w.transpose(x, [0, 2, 1, 3])


@writes("attention")
def _attention(
    w: Writing,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    pos: Tensor | None = None,
    sinks: Tensor | None = None,
    *,
    num_heads: int,
    head_dim: int,
    num_kv_heads: int | None = None,
    mask_kind: str = "none",
    window: int | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    layout: str = "packed",
) -> Tensor:
    shared = num_heads // (num_kv_heads or num_heads)
    kv_heads = num_heads // shared
    queries = w.wide(_heads(w, q, layout, num_heads, head_dim))
    keys, values = (w.cast(w.wide(_heads(w, x, layout, kv_heads, head_dim)), queries.word) for x in (k, v))
    if shared > 1:
        keys, values = (_repeated(w, x, shared) for x in (keys, values))
    scores = w.dot(queries, keys, ([3], [3]), ([0, 1], [0, 1]))
    scores = w.mul(scores, 1 / math.sqrt(head_dim) if scale is None else scale)
    if softcap is not None:
        scores = w.mul(w.unary("tanh", w.div(scores, softcap)), softcap)
    if mask_kind == "bias":
        assert mask is not None
        scores = w.add(scores, w.cast(w.wide(mask), scores.word))
    seen = _seen(w, scores, mask, pos, mask_kind, window)
    if seen is not None:
        scores = w.where(seen, scores, -math.inf)
    sink = None if sinks is None else w.reshape(w.cast(w.wide(sinks), scores.word), (1, num_heads, 1, 1))
    found = w.dot(_weights(w, scores, sink), values, ([3], [2]), ([0, 1], [0, 1]))
    found = w.cast(found, q.word)
    return found if layout == "bhsd" else w.reshape(w.transpose(found, [0, 2, 1, 3]), w.types[0][0])


def _repeated(w: Writing, x: Tensor, times: int) -> Tensor:
    """Each head so many times."""
    b, heads, length, width = x.shape
    spread = w.spread(w.reshape(x, (b, heads, 1, length, width)), (b, heads, times, length, width))
    return w.reshape(spread, (b, heads * times, length, width))


def _weights(w: Writing, scores: Tensor, sink: Tensor | None) -> Tensor:
    """Softmax along keys and a sink, with zeros where a query sees none."""
    top = w.reduce(scores, "max", [3], keep=True)
    if sink is not None:
        top = w.binary("maximum", top, w.spread(sink, top.shape))
    finite = w.where(w.compare("eq", top, -math.inf), 0.0, top)
    power = w.unary("exponential", w.sub(scores, finite))
    total = w.reduce(power, "sum", [3], keep=True)
    if sink is not None:
        total = w.add(total, w.unary("exponential", w.sub(sink, finite)))
    return w.div(power, w.where(w.compare("eq", total, 0.0), 1.0, total))


def _seen(
    w: Writing, scores: Tensor, mask: Tensor | None, pos: Tensor | None, kind: str, window: int | None
) -> Tensor | None:
    """Which keys each query sees; None for all."""
    batch, _, queries, keys = scores.shape
    seen: Tensor | None = None
    if kind == "custom":
        assert mask is not None
        own = mask if mask.word == "i1" else w.compare("ge", mask, 0.5)
        seen = own if own.rank == 4 else w.reshape(own, (own.shape[0], 1, 1, own.shape[1]))
    if pos is None and kind not in ("causal", "sliding_window"):
        return seen
    key, query = w.iota((1, 1, 1, keys), 3), w.iota((1, 1, queries, 1), 2)
    if pos is None:
        at = w.add(query, w.extent(plain(Size.of(keys) - queries)))
    else:
        first = w.reshape(w.cast(pos, "i32"), (batch, 1, 1, 1))
        at = w.add(query, first)
        filled = w.compare("lt", key, w.add(first, w.extent(queries)))
        seen = filled if seen is None else w.binary("and", seen, filled)
    if kind in ("causal", "sliding_window"):
        before = w.compare("le", key, at)
        seen = before if seen is None else w.binary("and", seen, before)
    if kind == "sliding_window":
        assert seen is not None
        assert window is not None
        seen = w.binary("and", seen, w.compare("gt", key, w.sub(at, window)))
    return seen


@writes("rope")
def _rope(
    w: Writing,
    x: Tensor,
    cos: Tensor,
    sin: Tensor,
    pos: Tensor | None = None,
    *,
    head_dim: int,
    n_rot: int | None = None,
    style: str = "half",
) -> Tensor:
    turned, wide = n_rot or head_dim, w.wide(x)
    heads = plain(Size.of(x.shape[-1]) // head_dim)
    units = w.reshape(wide, (*x.shape[:-1], heads, head_dim))
    last = units.rank - 1
    part = w.cut(units, last, 0, turned)
    if style == "half":
        a, b = w.cut(part, last, 0, turned // 2), w.cut(part, last, turned // 2, turned)
    else:
        a, b = w.cut(part, last, 0, turned, 2), w.cut(part, last, 1, turned, 2)
    c, s = (w.cast(_rows(w, w.wide(table), x, pos, turned // 2), wide.word) for table in (cos, sin))
    first, second = w.sub(w.mul(a, c), w.mul(b, s)), w.add(w.mul(b, c), w.mul(a, s))
    if style == "half":
        joined = w.concat([first, second], last)
    else:
        pairs = [w.reshape(own, (*own.shape, 1)) for own in (first, second)]
        joined = w.reshape(w.concat(pairs, last + 1), part.shape)
    if turned < head_dim:
        joined = w.concat([joined, w.cut(units, last, turned, head_dim)], last)
    return w.cast(w.reshape(joined, x.shape), x.word)


def _rows(w: Writing, table: Tensor, x: Tensor, pos: Tensor | None, width: int) -> Tensor:
    """The rows of a table for the positions of x, [.., S, 1, width]."""
    length = x.shape[-2]
    table = w.cut(table, 1, 0, width)
    if pos is None:
        return w.reshape(w.cut(table, 0, 0, length), (length, 1, width))
    if not is_static([length, *pos.shape]):
        return _rows_of_symbols(w, table, x, pos, width)
    parts = []
    for batch in range(pos.sizes[0]):
        start = w.reshape(w.cut(pos, 0, batch, batch + 1), ())
        zero = w.constant(np.zeros((), pos.dtype), pos.word)
        own = w.op(
            "dynamic_slice",
            [table, start, zero],
            (length, width),
            table.word,
            f"slice_sizes = array<i64: {length}, {width}>",
        )
        parts.append(w.reshape(own, (1, *[1] * (x.rank - 3), length, 1, width)))
    rows = w.concat(parts, 0) if len(parts) > 1 else parts[0]
    return rows if x.rank > 2 else w.reshape(rows, (length, 1, width))


def _rows_of_symbols(w: Writing, table: Tensor, x: Tensor, pos: Tensor, width: int) -> Tensor:
    """The same, by indices: each batch from its position on, moved to where so many rows are."""
    length, batch = x.shape[-2], pos.shape[0]
    last = w.extent(plain(Size.of(table.shape[0]) - length))
    first = w.binary("maximum", w.binary("minimum", w.cast(pos, SIZES), last), 0)
    rows = w.add(w.reshape(first, (batch, 1)), w.iota((1, length), 1, SIZES))
    attributes = (
        "dimension_numbers = #stablehlo.gather<offset_dims = [2], collapsed_slice_dims = [0], start_index_map = [0], "
        f"index_vector_dim = 2>, indices_are_sorted = false, slice_sizes = array<i64: 1, {width}>"
    )
    found = w.op("gather", [table, rows], (batch, length, width), table.word, attributes)
    lead = (batch, *[1] * (x.rank - 3)) if x.rank > 2 else ()
    return w.reshape(found, (*lead, length, 1, width))


# Losses ---------------------------------------------------------------------------------------------


def _is_label(w: Writing, logits: Tensor, labels: Tensor) -> Tensor:
    """Whether a class is the label of its row; labels outside are moved to the first or last class."""
    own = w.cast(labels, "i32") if labels.is_float else labels
    own = w.binary("minimum", w.binary("maximum", own, 0), logits.sizes[1] - 1)
    return w.compare("eq", w.reshape(own, (logits.shape[0], 1)), w.iota((1, logits.shape[1]), 1, own.word))


@writes("softmax_cross_entropy_with_logits")
def _cross_entropy(w: Writing, logits: Tensor, labels: Tensor) -> Tensor:
    wide = w.wide(logits)
    shifted = w.sub(wide, w.reduce(wide, "max", [1], keep=True))
    total = w.unary("log", w.reduce(w.unary("exponential", shifted), "sum", [1]))
    own = w.reduce(w.where(_is_label(w, logits, labels), shifted, 0.0), "sum", [1])
    return w.cast(w.sub(total, own), w.types[0][1])


@writes("softmax_cross_entropy_backward")
def _cross_entropy_backward(w: Writing, logits: Tensor, labels: Tensor, d_loss: Tensor) -> Tensor:
    wide = w.wide(logits)
    hit = w.cast(_is_label(w, logits, labels), wide.word)
    own = w.cast(w.wide(w.reshape(d_loss, (logits.shape[0], 1))), wide.word)
    return w.cast(w.mul(w.sub(_softmax_of(w, wide, 1), hit), own), w.types[0][1])
