# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the blocks mean, in plain numpy: written from their definitions, not from the primitives they lower to.

Attention is a loop over batch items, heads and queries here, for example. Computed in f32 for f16, bf16 and f32, in
f64 for f64, and rounded to the element type where the block's description says so.
"""

from __future__ import annotations

import math

import numpy as np

from rlx_mlir import ir
from rlx_mlir.attributes import elements_array
from rlx_mlir.errors import InputError
from rlx_mlir.mir.functions import FUNCTIONS
from rlx_mlir.mir.kept import decoded, encoded
from rlx_mlir.mir.numerics import decode_indices, narrow, widen
from rlx_mlir.mir.packed import PackedWeight
from rlx_mlir.mir.registry import reference
from rlx_mlir.mir.scaled import dequant_matmul_scaled
from rlx_mlir.semantics.ops import blocks

Weight = np.ndarray | PackedWeight


def matrix(weight: Weight, transpose_weight: bool) -> np.ndarray:
    """A weight as [K, N], in the type in which products are computed."""
    if isinstance(weight, PackedWeight):
        dense: np.ndarray = weight.dequantize().T
        return dense
    return widen(weight.T if transpose_weight else weight)


def times(x: np.ndarray, weight: Weight, transpose_weight: bool) -> np.ndarray:
    """x [..., K] times a weight, not rounded yet."""
    rows = widen(x).reshape(math.prod(x.shape[:-1]), x.shape[-1])  # -1 can't be told where K is 0
    product: np.ndarray = rows @ matrix(weight, transpose_weight).astype(rows.dtype, copy=False)
    result: np.ndarray = product.reshape(*x.shape[:-1], product.shape[-1])
    return result


def norm(x: np.ndarray, gamma: np.ndarray, beta: np.ndarray | None, eps: float) -> np.ndarray:
    """x / sqrt(mean(x^2) + eps) * gamma + beta for each row, not rounded yet."""
    mean_square = np.einsum("...e,...e->...", x, x)[..., None] / x.dtype.type(x.shape[-1])
    result: np.ndarray = x / np.sqrt(mean_square + x.dtype.type(eps)) * widen(gamma)
    if beta is not None:
        result = result + widen(beta)
    return result


@reference(*blocks("constant"))
def constant(*, value: ir.Attribute) -> np.ndarray:
    """The tensor that the elements attribute holds."""
    return elements_array(value)


@reference(*blocks("linear", "linear_fused"))
def linear(
    x: np.ndarray,
    weight: Weight,
    bias: np.ndarray | None = None,
    *,
    activation: str | None = None,
    transpose_weight: bool = False,
) -> np.ndarray:
    """activation(x weight + bias), rounded once."""
    y = times(x, weight, transpose_weight)
    if bias is not None:
        y = y + widen(bias)
    return narrow(y if activation is None else FUNCTIONS[activation].apply(y), x.dtype)


@reference(*blocks("shared_linear_pair"))
def shared_linear_pair(
    x: np.ndarray, w_first: Weight, w_second: Weight, *, transpose_weight: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """(x w_first, x w_second)."""
    first, second = (narrow(times(x, w, transpose_weight), x.dtype) for w in (w_first, w_second))
    return first, second


@reference(*blocks("swiglu"))
def swiglu(
    x: np.ndarray, gate_w: Weight, up_w: Weight, down_w: Weight, *, transpose_weight: bool = False
) -> np.ndarray:
    """(silu(x gate_w) * (x up_w)) down_w; the hidden layer is rounded."""
    gate, up = times(x, gate_w, transpose_weight), times(x, up_w, transpose_weight)
    hidden = narrow(gate / (1 + np.exp(-gate)) * up, x.dtype)
    return narrow(times(hidden, down_w, transpose_weight), x.dtype)


@reference(*blocks("dequant_matmul"))
def dequant_matmul(x: np.ndarray, weight: PackedWeight) -> np.ndarray:
    """x times a packed weight."""
    return narrow(times(x, weight, False), x.dtype)


reference(*blocks("dequant_matmul_scaled"))(dequant_matmul_scaled)  # what the primitive means


@reference(*blocks("rms_norm"))
def rms_norm(x: np.ndarray, gamma: np.ndarray, beta: np.ndarray | None = None, *, eps: float) -> np.ndarray:
    """x / sqrt(mean(x^2) + eps) * gamma + beta over the last dimension."""
    return narrow(norm(widen(x), gamma, beta, eps), x.dtype)


@reference(*blocks("residual_rms_norm"))
def residual_rms_norm(
    x: np.ndarray, residual: np.ndarray, gamma: np.ndarray, beta: np.ndarray | None = None, *, eps: float
) -> np.ndarray:
    """rms_norm(x + residual); the sum isn't rounded."""
    return narrow(norm(widen(x) + widen(residual), gamma, beta, eps), x.dtype)


@reference(*blocks("rope"))
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
    """Each pair of a head turned by the angle in the row `pos[b] + s` of the tables."""
    wide = widen(x)
    pairs = (head_dim if n_rot is None else n_rot) // 2
    result = wide.copy()
    for b in range(x.shape[0]):
        start = 0 if pos is None else int(pos[b])
        if not 0 <= start <= len(cos) - x.shape[1]:
            raise InputError(
                f"hir.rope: positions {start} to {start + x.shape[1] - 1} of batch {b} must lie in tables of "
                f"{len(cos)} rows"
            )
        for s in range(x.shape[1]):
            c, t = widen(cos)[start + s, :pairs], widen(sin)[start + s, :pairs]
            for head in range(0, x.shape[2], head_dim):
                own = wide[b, s, head : head + head_dim]
                if style == "half":
                    first, second = np.arange(pairs), np.arange(pairs, 2 * pairs)
                else:
                    first, second = np.arange(0, 2 * pairs, 2), np.arange(1, 2 * pairs, 2)
                # Not as complex numbers: numpy's products of those turn infinities into NaN.
                result[b, s, head + first] = own[first] * c - own[second] * t
                result[b, s, head + second] = own[second] * c + own[first] * t
    return narrow(result, x.dtype)


def kept_keys(kind: str, position: int, keys: int, window: int | None, shown: np.ndarray | None) -> np.ndarray:
    """Which of the keys a query at a position keeps, as bool [keys]; `shown` is its row of a custom mask."""
    j = np.arange(keys)
    if kind == "causal":
        return j <= position
    if kind == "sliding_window":
        assert window is not None, "the verifier's rule"
        return (j <= position) & (j > position - window)
    if kind == "custom":
        assert shown is not None, "the verifier's rule"
        return shown if shown.dtype == np.bool_ else ~(shown < 0.5)
    return np.ones(keys, np.bool_)


def mask_row(mask: np.ndarray | None, b: int, h: int, i: int) -> np.ndarray | None:
    """The entries of a mask, [B, Sk] or [B, H, Sq, Sk] with ones for all alike, for one query."""
    if mask is None:
        return None
    wide = mask if mask.dtype == np.bool_ else widen(mask)
    place = (b % mask.shape[0],) if mask.ndim == 2 else (b % mask.shape[0], h % mask.shape[1], i % mask.shape[2])
    row: np.ndarray = wide[place]
    return row


@reference(*blocks("attention"))
def attention(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    mask: np.ndarray | None = None,
    k_cache: np.ndarray | None = None,
    v_cache: np.ndarray | None = None,
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
    k_scheme: str | None = None,
    v_scheme: str | None = None,
) -> np.ndarray | tuple[np.ndarray, ...]:
    """softmax(scale q k^T, masked) v, a sink among the scores; one query at a time."""
    group = num_heads // (num_heads if num_kv_heads is None else num_kv_heads)
    queries = q.shape[1]
    caches: tuple[np.ndarray, ...] = ()
    if k_cache is not None and v_cache is not None and pos is not None:
        k, v = stored(k_cache, k, pos, k_scheme), stored(v_cache, v, pos, v_scheme)
        caches = (k, v)
    keys, values = (widen(x) if scheme is None else decoded(x, scheme) for x, scheme in ((k, k_scheme), (v, v_scheme)))
    rows = widen(q)
    real = rows.dtype.type
    factor = real(1 / math.sqrt(head_dim)) if scale is None else real(scale)
    result = np.zeros_like(rows)
    for b in range(q.shape[0]):
        offset = k.shape[1] - queries if pos is None else int(pos[b])
        filled = k.shape[1] if pos is None else offset + queries
        for h in range(num_heads):
            own = slice(h * head_dim, (h + 1) * head_dim)
            shared = slice(h // group * head_dim, (h // group + 1) * head_dim)
            for i in range(queries):
                entries = mask_row(mask, b, h, i)
                keep = kept_keys(mask_kind, offset + i, k.shape[1], window, entries)
                kept = np.flatnonzero(keep[:filled])
                if not len(kept):
                    continue
                scores = keys[b, kept, shared] @ rows[b, i, own] * factor
                if softcap is not None:
                    scores = real(softcap) * np.tanh(scores / real(softcap))
                if mask_kind == "bias":
                    assert entries is not None, "the verifier's rule"
                    scores = scores + entries[kept]
                if sinks is not None:
                    scores = np.append(scores, widen(sinks)[h].astype(real))
                if np.all(np.isneginf(scores)):
                    continue  # a bias of -inf hides a key as a mask does
                weights = np.exp(scores - scores.max())
                result[b, i, own] = weights[: len(kept)] @ values[b, kept, shared] / weights.sum()
    out = narrow(result, q.dtype)
    return (out, *caches) if caches else out


def stored(cache: np.ndarray, new: np.ndarray, pos: np.ndarray, scheme: str | None) -> np.ndarray:
    """A cache with new rows, in its element type or in blocks, at pos[b], pos[b] + 1, … of each batch item."""
    result: np.ndarray = cache.copy()
    for b in range(len(cache)):
        start, rows = int(pos[b]), new.shape[1]
        if not 0 <= start <= cache.shape[1] - rows:
            raise InputError(
                f"hir.attention: rows {start} to {start + rows - 1} of batch {b} must lie in a cache of "
                f"{cache.shape[1]} rows"
            )
        result[b, start : start + rows] = narrow(new[b], cache.dtype) if scheme is None else encoded(new[b], scheme)
    return result


@reference(*blocks("llama_decoder_block"))
def llama_decoder_block(
    x: np.ndarray,
    ln1_gamma: np.ndarray,
    q_w: Weight,
    k_w: Weight,
    v_w: Weight,
    o_w: Weight,
    ln2_gamma: np.ndarray,
    gate_w: Weight,
    up_w: Weight,
    down_w: Weight,
    cos: np.ndarray,
    sin: np.ndarray,
    ln1_beta: np.ndarray | None = None,
    ln2_beta: np.ndarray | None = None,
    mask: np.ndarray | None = None,
    k_cache: np.ndarray | None = None,
    v_cache: np.ndarray | None = None,
    pos: np.ndarray | None = None,
    *,
    num_heads: int,
    num_kv_heads: int,
    head_dim: int,
    eps: float,
    mask_kind: str = "none",
    window: int | None = None,
    style: str = "half",
    transpose_weight: bool = False,
    k_scheme: str | None = None,
    v_scheme: str | None = None,
) -> np.ndarray | tuple[np.ndarray, ...]:
    """h = x + attention(rms_norm(x)) o_w; h + swiglu(rms_norm(h)), rounded after each part."""

    def rounded(y: np.ndarray) -> np.ndarray:
        return narrow(y, x.dtype)

    n1 = rms_norm(x, ln1_gamma, ln1_beta, eps=eps)
    q, k, v = (rounded(times(n1, w, transpose_weight)) for w in (q_w, k_w, v_w))
    q, k = (rope(y, cos, sin, pos, head_dim=head_dim, style=style) for y in (q, k))
    cached = k_cache is not None
    attended = attention(
        q,
        k,
        v,
        mask,
        k_cache,
        v_cache,
        pos if cached else None,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        mask_kind=mask_kind,
        window=window,
        k_scheme=k_scheme,
        v_scheme=v_scheme,
    )
    out, caches = (attended[0], attended[1:]) if isinstance(attended, tuple) else (attended, ())
    h = rounded(widen(x) + widen(rounded(times(out, o_w, transpose_weight))))
    n2 = rms_norm(h, ln2_gamma, ln2_beta, eps=eps)
    y = swiglu(n2, gate_w, up_w, down_w, transpose_weight=transpose_weight)
    result = rounded(widen(h) + widen(y))
    return (result, *caches) if caches else result


@reference(*blocks("depthwise_conv1d_causal"))
def depthwise_conv1d_causal(input: np.ndarray, weight: np.ndarray, left_pad: np.ndarray) -> np.ndarray:
    """Each token as the sum of the last K tokens, of which each channel is scaled by its own tap."""
    padded = widen(np.concatenate([left_pad, input], axis=1))
    taps = widen(weight)[:, 0, 0]
    steps = input.shape[1]
    total = sum(padded[:, j : j + steps] * taps[:, j] for j in range(taps.shape[1]))
    return narrow(np.asarray(total), input.dtype)


@reference(*blocks("gated_delta_net"))
def gated_delta_net(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    g: np.ndarray,
    beta: np.ndarray,
    state: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """A memory [n, n] for each batch item and head, which decays and is corrected by outer(k, d) at each token."""
    batch, steps, heads, n = q.shape
    result = widen(np.zeros_like(q))
    real = result.dtype.type
    final = np.zeros((batch, heads, n, n), result.dtype)
    for b in range(batch):
        for h in range(heads):
            memory = final[b, h] if state is None else state[b, h]
            for t in range(steps):
                query, key, value = (widen(x[b, t, h]) for x in (q, k, v))
                memory = memory * np.exp(widen(g[b, t, h]))
                memory = memory + np.outer(key, (value - key @ memory) * widen(beta[b, t, h]))
                result[b, t, h] = query @ memory / real(math.sqrt(n))
            final[b, h] = memory
    return narrow(result, q.dtype), final


@reference(*blocks("qwen35_mtp_head"))
def qwen35_mtp_head(
    h_pre_norm: np.ndarray,
    input_ids: np.ndarray,
    cos: np.ndarray,
    sin: np.ndarray,
    last_token_idx: np.ndarray,
    embed_w: Weight,
    hnorm_w: np.ndarray,
    hnorm_b: np.ndarray | None,
    enorm_w: np.ndarray,
    enorm_b: np.ndarray | None,
    eh_w: Weight,
    attn_norm_w: np.ndarray,
    attn_norm_b: np.ndarray | None,
    q_gate_w: Weight,
    k_w: Weight,
    v_w: Weight,
    q_norm_w: np.ndarray,
    q_norm_b: np.ndarray | None,
    k_norm_w: np.ndarray,
    k_norm_b: np.ndarray | None,
    o_w: Weight,
    post_norm_w: np.ndarray,
    post_norm_b: np.ndarray | None,
    gate_w: Weight,
    up_w: Weight,
    down_w: Weight,
    head_norm_w: np.ndarray,
    head_norm_b: np.ndarray | None,
    lm_head_w: Weight,
    *,
    num_heads: int,
    num_kv_heads: int,
    head_dim: int,
    n_rot: int | None = None,
    eps: float,
    style: str = "half",
    transpose_weight: bool = False,
) -> np.ndarray:
    """Scores of the token after the next one: one decoder layer over [embedding, hidden state], rounded between parts.

    Each batch item gives the row of its own last token.
    """
    dtype = h_pre_norm.dtype
    batch, tokens, _ = h_pre_norm.shape

    def product(x: np.ndarray, weight: Weight) -> np.ndarray:
        return narrow(times(x, weight, transpose_weight), dtype)

    def heads_of(x: np.ndarray, count: int, gamma: np.ndarray, beta: np.ndarray | None) -> np.ndarray:
        normed = rms_norm(x.reshape(batch, tokens, count, head_dim), gamma, beta, eps=eps)
        flat = normed.reshape(batch, tokens, count * head_dim)
        return rope(flat, cos, sin, head_dim=head_dim, n_rot=n_rot, style=style)

    rows = embed_w.n if isinstance(embed_w, PackedWeight) else len(embed_w)
    ids = decode_indices(input_ids, rows)
    embedding = narrow(embed_w.take(ids), dtype) if isinstance(embed_w, PackedWeight) else embed_w[ids]
    joined = [rms_norm(embedding, enorm_w, enorm_b, eps=eps), rms_norm(h_pre_norm, hnorm_w, hnorm_b, eps=eps)]
    x = product(np.concatenate(joined, axis=-1), eh_w)

    n = rms_norm(x, attn_norm_w, attn_norm_b, eps=eps)
    both = product(n, q_gate_w).reshape(batch, tokens, num_heads, 2, head_dim)
    q = heads_of(both[:, :, :, 0], num_heads, q_norm_w, q_norm_b)
    k = heads_of(product(n, k_w), num_kv_heads, k_norm_w, k_norm_b)
    attended = attention(
        q, k, product(n, v_w), num_heads=num_heads, num_kv_heads=num_kv_heads, head_dim=head_dim, mask_kind="causal"
    )
    assert isinstance(attended, np.ndarray), "without caches"
    gate = narrow(1 / (1 + np.exp(-widen(both[:, :, :, 1].reshape(attended.shape)))), dtype)
    opened = narrow(widen(attended) * widen(gate), dtype)
    h = narrow(widen(x) + widen(product(opened, o_w)), dtype)

    m = rms_norm(h, post_norm_w, post_norm_b, eps=eps)
    y = swiglu(m, gate_w, up_w, down_w, transpose_weight=transpose_weight)
    h = narrow(widen(h) + widen(y), dtype)
    last = h[np.arange(batch), decode_indices(last_token_idx, tokens)][:, None]
    return product(rms_norm(last, head_norm_w, head_norm_b, eps=eps), lm_head_w)
