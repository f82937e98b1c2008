# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operators of transformers that onnxruntime added, in the domain `com.microsoft`."""

from __future__ import annotations

import numpy as np

from rlx_mlir.errors import OnnxError
from rlx_mlir.frontends.tensors import Tensor, plain
from rlx_mlir.hir import Value
from rlx_mlir.mir.dims import Size

from ..call import Call
from ..registry import MICROSOFT, Refused, operator
from ..types import is_integer
from .attention import heads_first, heads_last, mask_shape
from .indexing import counted
from .norms import layer_normed, rms_normed
from .quantisation import integer_product

_I32 = np.dtype(np.int32)


def _biased(call: Call) -> Value:
    x = call.value(0)
    return call.m.add(x, call.value(1)) if call.has(1) else x


@operator("FastGelu", domain=MICROSOFT)
def _fast_gelu(call: Call) -> Tensor:
    return call.out(call.m.gelu_approx(_biased(call)))


@operator("BiasGelu", "Gelu", domain=MICROSOFT)
def _bias_gelu(call: Call) -> Tensor:
    return call.out(call.m.gelu(_biased(call)))


# Norms ----------------------------------------------------------------------------------------------


def _skipped(call: Call, bias: int) -> Value:
    """The sum that a norm with a shortcut is of."""
    m, x, skip = call.m, call.value(0), call.value(1)
    x = m.add(x, skip)
    return m.add(x, call.value(bias)) if call.has(bias) else x


def _with_sum(call: Call, y: Value, x: Value, eps: float, *, centred: bool) -> list[Tensor | None]:
    """A norm, the mean and the inverse deviation that it is of, and the sum."""
    mean = inverse = None
    if call.wants(1) or call.wants(2):
        m, wide = call.m, call.wide(x)
        if centred:
            centre = m.mean(wide, -1, keep_dims=True)
            mean, wide = call.out(centre), wide - centre
        inverse = call.out(1.0 / m.sqrt(m.mean(wide * wide, -1, keep_dims=True) + eps))
    return [call.out(y), mean, inverse, call.out(x)]


@operator("SkipLayerNormalization", domain=MICROSOFT)
def _skip_layer_norm(call: Call) -> list[Tensor | None]:
    x, eps = _skipped(call, 4), call.number("epsilon", 1e-12)
    y = layer_normed(call, x, x.ndim - 1, call.value(2), call.maybe_value(3), eps)
    return _with_sum(call, y, x, eps, centred=True)


@operator("SkipSimplifiedLayerNormalization", domain=MICROSOFT)
def _skip_rms_norm(call: Call) -> list[Tensor | None]:
    x, eps = _skipped(call, 3), call.number("epsilon", 1e-12)
    return _with_sum(call, rms_normed(call, x, x.ndim - 1, call.value(2), eps), x, eps, centred=False)


@operator("SimplifiedLayerNormalization", domain=MICROSOFT)
def _rms_norm(call: Call) -> Tensor:
    axis = call.axis(-1, call.rank(0))
    return call.out(rms_normed(call, call.value(0), axis, call.value(1), call.number("epsilon", 1e-5)))


@operator("EmbedLayerNormalization", domain=MICROSOFT)
def _embed_layer_norm(call: Call) -> list[Tensor]:
    m = call.m

    def rows(table: int, indices: int) -> Value:
        found = counted(call, indices, call.shape(table)[0])
        if not isinstance(found, Value):
            found = call.importer.value(Tensor.of(found))
        return m.gather(call.value(table), found, 0)

    x = rows(2, 0)
    if call.has(8):
        x = m.add(x, rows(3, 8))
    else:
        length = call.shape(0)[1]
        x = m.add(x, m.slice(call.value(3), 0, 0, plain([length])[0]))
    if call.has(4):  # without segments, all tokens are of the first one
        x = m.add(x, rows(4, 1) if call.has(1) else m.narrow(call.value(4), 0, 0, 1))
    y = layer_normed(call, x, 2, call.value(5), call.value(6), call.number("epsilon", 1e-12))
    if call.has(7):
        counts = m.sum(m.cast(m.ne(call.value(7), call.scalar(0, call.value(7))), _I32), 1)
    else:
        counts = call.filled(0, call.shape(0)[:1], _I32)
    return [call.out(y), call.out(counts), call.out(x)]


# Rotation -------------------------------------------------------------------------------------------


def rotated(call: Call, x: Value, cos: Value, sin: Value, interleaved: bool) -> Value:
    """The first columns of x [B, H, S, D] rotated by angles whose cosines and sines are [B or 1, 1, S, n / 2]."""
    m, shape = call.m, Tensor.running(x).shape
    half, width = Tensor.running(cos).shape[3].constant, shape[3].constant
    if half is None or width is None or 2 * half > width:
        raise Refused(f"a rotation of {Tensor.running(cos).shape[3]} pairs of {shape[3]} columns")
    turned = m.narrow(x, 3, 0, 2 * half) if 2 * half < width else x
    cos, sin = call.narrowed(cos, x.dtype), call.narrowed(sin, x.dtype)
    if interleaved:
        pairs = call.reshaped(turned, [*shape[:3], half, 2])
        a, b = (call.reshaped(m.narrow(pairs, 4, i, 1), [*shape[:3], half]) for i in range(2))
    else:
        a, b = (m.narrow(turned, 3, i * half, half) for i in range(2))
    parts = [m.sub(m.mul(a, cos), m.mul(b, sin)), m.add(m.mul(b, cos), m.mul(a, sin))]
    if interleaved:
        y = m.concat([call.reshaped(part, [*shape[:3], half, 1]) for part in parts], 4)
        y = call.reshaped(y, [*shape[:3], 2 * half])
    else:
        y = m.concat(parts, 3)
    return m.concat([y, m.narrow(x, 3, 2 * half, width - 2 * half)], 3) if 2 * half < width else y


def _angles(call: Call, table: Value, positions: Value) -> Value:
    """Rows of a table [P, n] at positions [B, S], as [B, 1, S, n]."""
    found = call.m.gather(table, positions, 0)
    batch, length, count = Tensor.running(found).shape
    return call.reshaped(found, [batch, 1, length, count])


@operator("RotaryEmbedding", domain=MICROSOFT)
def _rotary(call: Call) -> Tensor:
    m, flat = call.m, call.rank(0) == 3
    if call.flag("is_packed_batching"):
        raise Refused("batches of packed lengths")
    cos, sin = call.value(2), call.value(3)
    x = call.value(0)
    if flat:
        width = call.shape(0)[2].constant or 0
        rotary = call.integer("rotary_embedding_dim", 0)
        half = Tensor.running(cos).shape[1].constant or 0
        heads = call.integer("num_heads", 0) or (0 if rotary or not half else width // (2 * half))
        x = heads_first(call, x, heads)
    length = Tensor.running(x).shape[2]
    positions = call.narrowed(call.value(1), np.dtype(np.int64))
    if call.rank(1) == 1:  # where the first position of all stands
        positions = m.add(call.iota([1, length], 1), call.reshaped(positions, [1, 1]))
    y = rotated(call, x, _angles(call, cos, positions), _angles(call, sin, positions), call.flag("interleaved"))
    scale = call.number("scale", 1.0)
    y = m.mul(y, call.scalar(scale, y)) if scale != 1.0 else y
    return call.out(heads_last(call, y) if flat else y)


# Attention ------------------------------------------------------------------------------------------


def _attended(
    call: Call, q: Value, k: Value, v: Value, mask: Value | None, kind: str, scale: float, pos: Value | None = None
) -> Value:
    """Attention of [B, heads, S, D]."""
    (_, heads, _, width), (_, kv_heads, _, _) = Tensor.running(q).shape, Tensor.running(k).shape
    if Tensor.running(v).shape[3] != width:
        raise Refused("values of another width than the keys")
    window = call.integer("local_window_size", -1)
    softcap = call.number("softcap", 0.0)
    y: Value = call.m.attention(
        q,
        k,
        v,
        mask,
        num_heads=heads.constant or 0,
        num_kv_heads=kv_heads.constant,
        head_dim=width.constant or 0,
        mask_kind="sliding_window" if kind == "causal" and window > 0 else kind,
        window=window if kind == "causal" and window > 0 else None,
        scale=scale or None,
        softcap=softcap if softcap > 0 else None,
        layout="bhsd",
        pos=pos,
    )
    return y


def _mask(call: Call, number: int, batch: Size, queries: Size, keys: Size) -> Value | None:
    """A mask of keys as i1 [B, Sk] or [B, 1, Sq, Sk]; None without one."""
    if not call.has(number):
        return None
    m, value, shape = call.m, call.value(number), call.shape(number)
    if not is_integer(value.dtype) and value.dtype != np.bool_:
        raise Refused(f"a mask of {value.dtype}")
    if len(shape) == 1 and shape[0] == batch:  # as many keys as the numbers say
        lengths = call.reshaped(call.narrowed(value, np.dtype(np.int64)), [batch, 1])
        return m.lt(call.iota([1, keys], 1), lengths)
    held = m.ne(value, call.scalar(0, value)) if value.dtype != np.bool_ else value
    if len(shape) == 2:
        return held
    if len(shape) == 3:
        return call.reshaped(held, [shape[0], 1, *shape[1:]])
    raise Refused(f"a mask of shape {list(map(str, shape))}")


def _joined(
    call: Call, mask: Value | None, bias: Value | None, causal: bool, queries: Size, keys: Size
) -> Value | None:
    """Everything that hides keys as one bias [B or 1, H or 1, Sq or 1, Sk]; None where there is nothing."""
    m = call.m
    total = None if bias is None else call.reshaped(bias, mask_shape(Tensor.running(bias).shape))
    dtype = call.dtype(0) if total is None else total.dtype
    conditions = []
    if mask is not None:
        shape = Tensor.running(mask).shape
        conditions.append(call.reshaped(mask, [shape[0], 1, 1, shape[1]]) if len(shape) == 2 else mask)
    if causal:
        places = m.add(call.iota([1, 1, queries, keys], 2), call.importer.size(keys - queries))
        conditions.append(m.le(call.iota([1, 1, queries, keys], 3), places))
    for condition in conditions:
        zero, hidden = (m.constant(np.array(number).astype(dtype)) for number in (0.0, -np.inf))
        own = m.where(condition, zero, hidden)
        total = own if total is None else m.add(total, own)
    return total


def _masked_attention(
    call: Call, q: Value, k: Value, v: Value, mask: Value | None, bias: Value | None, causal: bool
) -> Value:
    """Attention with what hides keys: by our kinds of masks where there is one, else by a bias."""
    queries, keys = Tensor.running(q).shape[2], Tensor.running(k).shape[2]
    scale = call.number("scale", 0.0)
    if bias is None and mask is None:
        return _attended(call, q, k, v, None, "causal" if causal else "none", scale)
    if bias is None and not causal:
        return _attended(call, q, k, v, mask, "custom", scale)
    joined = _joined(call, mask, bias, causal, queries, keys)
    return _attended(call, q, k, v, joined, "bias", scale)


@operator("Attention", domain=MICROSOFT)
def _attention(call: Call) -> list[Tensor | None]:
    m = call.m
    if call.flag("do_rotary") or call.has(6):
        raise Refused("rotations and shared buffers of the past within the operator")
    x = m.matmul(call.value(0), call.value(1))
    x = m.add(x, call.value(2)) if call.has(2) else x
    return _of_joined(call, x, mask=3, past=4, bias=call.maybe_value(5))


@operator("QAttention", domain=MICROSOFT)
def _quantised_attention(call: Call) -> list[Tensor | None]:
    """The same with bytes for x and the weight, whose product is exact before it is scaled."""
    m = call.m
    if call.flag("do_rotary") or call.flag("past_present_share_buffer"):
        raise Refused("rotations and shared buffers of the past within the operator")
    total = m.cast(integer_product(call, 0, 1, 6, 7), np.float32)
    x = m.mul(total, m.mul(call.value(3), call.value(4)))
    return _of_joined(call, m.add(x, call.value(2)), mask=5, past=8, bias=None)


def _of_joined(call: Call, x: Value, *, mask: int, past: int, bias: Value | None) -> list[Tensor | None]:
    """Attention of queries, keys and values that are beside each other in x [B, S, W]; `mask` and `past` are numbers of
    operands."""
    m, heads = call.m, call.integer("num_heads", 0)
    batch, length, _ = call.shape(0)
    width = call.shape(1)[1].constant
    if width is None:
        raise Refused("a weight whose size calls decide")
    sizes = call.ints("qkv_hidden_sizes", [width // 3] * 3)
    starts = [0, sizes[0], sizes[0] + sizes[1]]
    parts = [m.narrow(x, 2, start, size) for start, size in zip(starts, sizes, strict=True)]
    q, k, v = (heads_first(call, part, heads) for part in parts)
    present: Value | None = None
    if call.has(past):
        before = call.value(past)
        shape = Tensor.running(before).shape
        k, v = (m.concat([call.reshaped(m.narrow(before, 0, i, 1), shape[1:]), own], 2) for i, own in enumerate((k, v)))
    if call.wants(1):
        present = m.concat([call.reshaped(own, [1, *Tensor.running(own).shape]) for own in (k, v)], 0)
    seen = _mask(call, mask, batch, length, Tensor.running(k).shape[2])
    y = _masked_attention(call, q, k, v, seen, bias, call.flag("unidirectional"))
    return [call.out(heads_last(call, y)), None if present is None else call.out(present)]


@operator("MultiHeadAttention", domain=MICROSOFT)
def _multi_head(call: Call) -> list[Tensor]:
    m, heads = call.m, call.integer("num_heads", 0)
    if not call.has(1) or not call.has(2):
        raise Refused("queries, keys and values in one operand")
    if any(call.has(number) for number in (8, 9)):
        raise Refused("shared buffers of the past")
    values = [call.value(number) for number in range(3)]
    if call.has(3):
        start = 0
        for number, value in enumerate(values):
            if value.ndim != 3:
                raise Refused("a bias of keys that have heads already")
            size = Tensor.running(value).shape[2].constant or 0
            values[number] = m.add(value, m.narrow(call.value(3), 0, start, size))
            start += size
    q, k, v = (heads_first(call, value, heads) if value.ndim == 3 else value for value in values)
    if call.has(6):
        k, v = m.concat([call.value(6), k], 2), m.concat([call.value(7), v], 2)
    batch, _, length, _ = Tensor.running(q).shape
    mask = _mask(call, 4, batch, length, Tensor.running(k).shape[2])
    y = _masked_attention(call, q, k, v, mask, call.maybe_value(5), call.flag("unidirectional"))
    return [call.out(heads_last(call, y)), call.out(k), call.out(v)]


@operator("GroupQueryAttention", domain=MICROSOFT)
def _group_query(call: Call) -> list[Tensor]:
    """Attention over a cache: the new keys stand after so many as each sequence had, `seqlens_k + 1 - S`."""
    m = call.m
    heads, kv_heads = call.integer("num_heads", 0), call.integer("kv_num_heads", 0)
    for number, what in ((10, "a bias"), (11, "sinks")):
        if call.has(number):
            raise Refused(f"{what} as operand")
    if call.flag("smooth_softmax"):
        raise Refused("a smooth softmax")
    q, k, v = _separate(call, heads, kv_heads)
    batch, length, _ = call.shape(0)
    lengths = call.reshaped(call.narrowed(call.value(5), _I32), [batch])
    count = call.narrowed(call.importer.size(length), _I32) if length.constant is None else np.int32(length.constant)
    before = m.maximum(m.sub(m.add(lengths, np.int32(1)), count), np.int32(0))
    if call.flag("do_rotary"):
        places = m.add(call.iota([1, length], 1, "i32"), call.reshaped(before, [batch, 1]))
        if call.has(9):
            places = call.value(9)
        cos, sin = (_angles(call, call.value(number), places) for number in (7, 8))
        q, k = (rotated(call, x, cos, sin, call.flag("rotary_interleaved")) for x in (q, k))
    if call.has(3):
        k, v = (_cached(call, number, new, before) for number, new in ((3, k), (4, v)))
    y = _attended(call, q, k, v, None, "causal", call.number("scale", 0.0), before)
    return [call.out(heads_last(call, y)), call.out(k), call.out(v)]


def _separate(call: Call, heads: int, kv_heads: int) -> tuple[Value, Value, Value]:
    """Queries, keys and values with heads first; they may be one operand."""
    m, x = call.m, call.value(0)
    if call.has(1) and call.has(2):
        parts = [x, call.value(1), call.value(2)]
    else:
        width = call.shape(0)[2].constant
        if width is None or width % (heads + 2 * kv_heads):
            raise OnnxError(f"node '{call.name}': {heads} and twice {kv_heads} heads in {call.shape(0)[2]} columns")
        each = width // (heads + 2 * kv_heads)
        starts = [0, heads * each, (heads + kv_heads) * each]
        parts = [m.narrow(x, 2, start, n * each) for start, n in zip(starts, (heads, kv_heads, kv_heads), strict=True)]
    q, k, v = (heads_first(call, part, n) for part, n in zip(parts, (heads, kv_heads, kv_heads), strict=True))
    return q, k, v


def _cached(call: Call, number: int, new: Value, before: Value) -> Value:
    """The past [B, H, P, D] with new entries [B, H, S, D] after those that are filled: [B, H, P + S, D]."""
    m, past = call.m, call.value(number)
    (batch, heads, _, width), length = Tensor.running(past).shape, Tensor.running(new).shape[2]
    room = m.concat([past, m.mul(new, call.scalar(0, new))], 2)
    total = Tensor.running(room).shape[2]
    rows = [
        call.reshaped(m.transpose(x, [0, 2, 1, 3]), [batch, n, heads * width])
        for x, n in ((room, total), (new, length))
    ]
    found = m.cache_update(rows[0], rows[1], before)
    return m.transpose(call.reshaped(found, [batch, total, heads, width]), [0, 2, 1, 3])
