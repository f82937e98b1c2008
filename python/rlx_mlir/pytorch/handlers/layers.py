# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operators that are layers of a network: products, norms, attention."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx_mlir.dtypes import DTYPES
from rlx_mlir.frontends.positions import Conditions
from rlx_mlir.hir.values import Value
from rlx_mlir.mir.dims import Size, product
from rlx_mlir.pytorch.graph import Dimension, Importer, Operand, Results, Unhandled, folds, handles, size_of
from rlx_mlir.pytorch.handlers.images import scaled_convolution


@handles("aten.linear.default")
def linear(im: Importer, x: Value, weight: Value, bias: Value | None = None) -> Value:
    """x weight^T + bias: weights have a row for each output."""
    product = im.m.matmul(x, weight, transpose_rhs=True) if x.ndim > 1 else _of_vector(im, x, weight)
    return product if bias is None else product + bias


def _of_vector(im: Importer, x: Value, weight: Value) -> Value:
    return im.m.reshape(im.m.matmul(im.m.reshape(x, [1, -1]), weight, transpose_rhs=True), [-1])


@handles("aten.mm.default", "aten.bmm.default")
def mm(im: Importer, x: Value, y: Value) -> Value:
    """Matrices, or as many of them."""
    return im.m.matmul(x, y)


@handles("aten.matmul.default")
def matmul(im: Importer, x: Value, y: Value) -> Value:
    """Products of matrices and vectors, whose leading dimensions broadcast."""
    left = im.m.reshape(x, [1, x.shape[0]]) if x.ndim == 1 else x
    right = im.m.reshape(y, [y.shape[0], 1]) if y.ndim == 1 else y
    return im.reshaped(im.m.matmul(left, right))


@handles("aten.addmm.default", "aten.baddbmm.default")
def addmm(im: Importer, bias: Value, x: Value, y: Value, *, beta: Operand = 1, alpha: Operand = 1) -> Value:
    """beta bias + alpha x y"""
    product = im.m.matmul(x, y)
    product = product if alpha == 1 else product * im.scalar(alpha, im.dtype())
    return product + (bias if beta == 1 else bias * im.scalar(beta, im.dtype()))


@handles("aten.mv.default")
def mv(im: Importer, x: Value, vector: Value) -> Value:
    """A matrix times a vector."""
    return im.reshaped(im.m.matmul(x, im.m.reshape(vector, [-1, 1])))


@handles("aten.dot.default")
def dot(im: Importer, x: Value, y: Value) -> Value:
    """The sum of products."""
    return im.m.sum(x * y)


# -- norms -------------------------------------------------------------------------------------------------------------


def _flattened(im: Importer, x: Value, shape: Sequence[Dimension]) -> Value:
    """x with the dimensions that are normalised as one."""
    count = len(shape)
    return x if count == 1 else im.m.reshape(x, [*x.shape[: x.ndim - count], -1])


def _vector(im: Importer, given: Value | None, x: Value, default: float | None) -> Value | None:
    """A factor or shift as a vector as long as the last dimension of x; a number throughout without one."""
    if given is not None:
        return given if given.ndim == 1 else im.m.reshape(given, [-1])
    if default is None:
        return None
    size = x.shape[-1]
    if not isinstance(size, int):
        raise Unhandled("without a weight along a symbolic dimension")
    return im.m.constant(np.full(size, default, DTYPES[im.dtype(im.node.args[0].meta["val"])]))


@handles("aten.layer_norm.default")
def layer_norm(
    im: Importer,
    x: Value,
    shape: Sequence[Dimension],
    weight: Value | None = None,
    bias: Value | None = None,
    eps: float = 1e-5,
    *_: object,
) -> Value:
    """Mean 0 and variance 1 along the last dimensions."""
    flat = _flattened(im, x, shape)
    gamma, beta = _vector(im, weight, flat, 1.0), _vector(im, bias, flat, None)
    assert gamma is not None
    return im.reshaped(im.m.layer_norm(flat, gamma, beta, eps=eps), list(x.shape))


@handles("aten.rms_norm.default")
def rms_norm(
    im: Importer, x: Value, shape: Sequence[Dimension], weight: Value | None = None, eps: float | None = None
) -> Value:
    """Root mean square 1 along the last dimensions."""
    flat = _flattened(im, x, shape)
    gamma = _vector(im, weight, flat, 1.0)
    assert gamma is not None
    if eps is None:
        import torch

        eps = float(torch.finfo(im.node.meta["val"].dtype).eps)
    return im.reshaped(im.m.primitives.rms_norm(flat, gamma, eps=eps), list(x.shape))


@handles("aten.native_layer_norm.default")
def native_layer_norm(
    im: Importer, x: Value, shape: Sequence[Dimension], weight: Value | None, bias: Value | None, eps: float
) -> tuple[Value, Value, Value]:
    """`layer_norm`, the mean, and one over the deviation."""
    m, axes = im.m, list(range(x.ndim - len(shape), x.ndim))
    mean = m.mean(x, axes, keep_dims=True)
    centred = x - mean
    deviation = m.rsqrt(m.mean(centred * centred, axes, keep_dims=True) + eps)
    flat = _flattened(im, x, shape)
    gamma, beta = _vector(im, weight, flat, 1.0), _vector(im, bias, flat, None)
    assert gamma is not None
    return im.reshaped(m.layer_norm(flat, gamma, beta, eps=eps), list(x.shape)), mean, deviation


@handles("aten._fused_rms_norm.default")
def fused_rms_norm(
    im: Importer, x: Value, shape: Sequence[Dimension], weight: Value | None, eps: float | None
) -> Results:
    """`rms_norm`, and one over the root mean square."""
    m, axes = im.m, list(range(x.ndim - len(shape), x.ndim))
    if eps is None:
        import torch

        eps = float(torch.finfo(im.node.meta["val"][0].dtype).eps)
    flat = _flattened(im, x, shape)
    gamma = _vector(im, weight, flat, 1.0)
    assert gamma is not None
    found = im.reshaped(m.primitives.rms_norm(flat, gamma, eps=eps), list(x.shape))
    return found, m.rsqrt(m.mean(x * x, axes, keep_dims=True) + eps)


@handles(
    "aten._native_batch_norm_legit_no_training.default",
    "aten._native_batch_norm_legit.default",
    "aten.batch_norm.default",
)
def batch_norm(
    im: Importer, x: Value, weight: Value | None, bias: Value | None, mean: Value, variance: Value, *rest: float
) -> Value | Results:
    """(x - mean) / sqrt(variance + eps) weight + bias, channel by channel, by what was seen in training.

    Computed from vectors as x times one plus another: such vectors are made once where all are parameters. After a
    convolution that nothing else reads, its weights take them.
    """
    is_plain = "batch_norm.default" in str(im.node.target)
    if len(rest) > 2 and rest[0]:
        raise Unhandled("running statistics that training writes to")
    eps = rest[2] if len(rest) > 2 else rest[1]
    m, channels = im.m, [-1, *[1] * (x.ndim - 2)]
    # By operations that are done once where all are parameters.
    factor = (1.0 if weight is None else weight) / m.sqrt(variance + float(eps))
    shift = -(mean * factor) if bias is None else bias - mean * factor
    found = scaled_convolution(im, im.node.args[0], factor, shift)
    if found is None:
        found = x * m.reshape(factor, channels) + m.reshape(shift, channels)
    return found if is_plain else (found, None, None)


def _batch_norm(
    im: Importer, x: Value, weight: Value | None, bias: Value | None, eps: float
) -> tuple[Value, Value, Value, Value]:
    """x normalised by statistics of the batch, and by channel the mean, the variance, and 1 / deviation."""
    m, axes = im.m, [at for at in range(x.ndim) if at != 1]
    mean = m.mean(x, axes, keep_dims=True)
    centred = x - mean
    variance = m.mean(centred * centred, axes, keep_dims=True)
    scale = m.rsqrt(variance + float(eps))
    found, channels = centred * scale, [-1, *[1] * (x.ndim - 2)]
    found = found if weight is None else found * m.reshape(weight, channels)
    found = found if bias is None else found + m.reshape(bias, channels)
    return found, m.reshape(mean, [-1]), m.reshape(variance, [-1]), m.reshape(scale, [-1])


@handles("aten._native_batch_norm_legit.no_stats")
def batch_statistics(
    im: Importer, x: Value, weight: Value | None, bias: Value | None, training: bool, momentum: float, eps: float
) -> Results:
    """(x - mean) / sqrt(variance + eps) weight + bias by statistics of the batch; these, as mean and 1 / deviation."""
    found, mean, _, scale = _batch_norm(im, x, weight, bias, eps)
    return found, mean, scale


@handles("aten._native_batch_norm_legit_functional.default")
def batch_norm_of_training(
    im: Importer,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    mean: Value,
    variance: Value,
    training: bool,
    momentum: float,
    eps: float,
) -> Results:
    """See `batch_statistics`; and the running statistics with their part of these, the variance by one element less."""
    if not training:
        raise Unhandled("without training")
    found, own_mean, own_variance, scale = _batch_norm(im, x, weight, bias, eps)
    count = product(size_of(size) for axis, size in enumerate(x.shape) if axis != 1)
    elements = im.scalar(count, im.dtype(im.node.meta["val"][0]))
    unbiased = own_variance * (elements / (elements - 1.0))
    old, new = 1.0 - float(momentum), float(momentum)
    return found, own_mean, scale, mean * old + own_mean * new, variance * old + unbiased * new


@handles("aten.native_group_norm.default")
def native_group_norm(
    im: Importer,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    n: Dimension,
    c: Dimension,
    hw: Dimension,
    groups: int,
    eps: float,
) -> Results:
    """See `group_norm`; mean and 1 / deviation [N, groups] are built where something reads them."""
    m = im.m

    def statistics() -> tuple[Value, Value]:
        rows = m.reshape(x, [x.shape[0], groups, -1])
        mean = m.mean(rows, [2], keep_dims=True)
        centred = rows - mean
        scale = m.rsqrt(m.mean(centred * centred, [2]) + float(eps))
        return m.reshape(mean, [x.shape[0], groups]), scale

    found = _group_norm(im, x, groups, weight, bias, eps)
    return found, lambda: statistics()[0], lambda: statistics()[1]


@handles("aten.group_norm.default")
def group_norm(
    im: Importer,
    x: Value,
    groups: int,
    weight: Value | None = None,
    bias: Value | None = None,
    eps: float = 1e-5,
    *_: object,
) -> Value:
    """Mean 0 and variance 1 over groups of channels of images."""
    return _group_norm(im, x, groups, weight, bias, eps)


def _group_norm(im: Importer, x: Value, groups: int, weight: Value | None, bias: Value | None, eps: float) -> Value:
    m, shape = im.m, list(x.shape)
    channels = int(shape[1])
    weight, bias = (
        m.constant(np.full(channels, value, x.dtype)) if own is None else own for own, value in ((weight, 1), (bias, 0))
    )
    image = x if x.ndim == 4 else m.reshape(x, [*shape[:2], 1, -1])
    return im.reshaped(m.group_norm(image, weight, bias, num_groups=groups, eps=eps), shape)


# -- attention ---------------------------------------------------------------------------------------------------------

#: Attention as models call it, and as PyTorch calls it for CPUs where it traces gradients.
_ATTENTION = "aten.scaled_dot_product_attention.default"
_FLASH = "aten._scaled_dot_product_flash_attention_for_cpu.default"


@folds(_ATTENTION)
def attention_of_known_mask(
    im: Importer,
    q: Value,
    k: Value,
    v: Value,
    mask: object = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    **options: Any,
) -> Value | None:
    """With a mask that follows from positions: none where all is seen, causal where queries see what is before."""
    if not isinstance(mask, Conditions):
        return None
    rows, columns = size_of(q.shape[-2]), size_of(k.shape[-2])
    word = mask_word(mask, rows, columns)
    if word is None:
        return None
    return _attention(im, q, k, v, None, word, dropout_p, **options)


def mask_word(mask: Conditions, rows: Size, columns: Size) -> str | None:
    """`none` or `causal`, where a mask of queries and keys is one of these; else None."""
    if mask.constant is True:
        return "none"
    if len(mask.parts) != 1:
        return None
    ((kind, base, steps),) = mask.parts
    others = any(steps[:-2])
    if others or rows != columns:
        return None
    before = (kind, steps[-2:]) in (("le", (-1, 1)), ("ge", (1, -1)))
    strictly = (kind, steps[-2:]) in (("lt", (-1, 1)), ("gt", (1, -1)))
    if (before and base.constant == 0) or (strictly and base.constant == (-1 if kind == "lt" else 1)):
        return "causal"
    return None


@handles(_ATTENTION)
def attention(
    im: Importer,
    q: Value,
    k: Value,
    v: Value,
    mask: Value | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    **options: Any,
) -> Value:
    """softmax(scale q k^T + mask) v, of [..., S, E]; with `is_causal` the first query stands at the first key."""
    if is_causal:
        if q.shape[-2] != k.shape[-2]:
            rows, columns = im.iota([q.shape[-2], 1], 0, "i64"), im.iota([1, k.shape[-2]], 1, "i64")
            return _attention(im, q, k, v, im.m.le(columns, rows), "custom", dropout_p, **options)
        return _attention(im, q, k, v, None, "causal", dropout_p, **options)
    if mask is None:
        return _attention(im, q, k, v, None, "none", dropout_p, **options)
    return _attention(im, q, k, v, mask, "custom" if mask.dtype.kind == "b" else "bias", dropout_p, **options)


@folds(_FLASH)
def flash_attention_of_known_mask(
    im: Importer,
    q: Value,
    k: Value,
    v: Value,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: object = None,
    **options: Any,
) -> Results | None:
    """See `attention_of_known_mask`."""
    if not isinstance(attn_mask, Conditions) or is_causal:
        return None
    word = mask_word(attn_mask, size_of(q.shape[-2]), size_of(k.shape[-2]))
    return None if word is None else (_attention(im, q, k, v, None, word, dropout_p, **options), _unread(im))


@handles(_FLASH)
def flash_attention(
    im: Importer,
    q: Value,
    k: Value,
    v: Value,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: Value | None = None,
    **options: Any,
) -> tuple[Value, Value]:
    """`attention`, and the logarithm of each query's sum."""
    return attention(im, q, k, v, attn_mask, dropout_p, is_causal, **options), _unread(im)


def _unread(im: Importer) -> Value:
    """In place of the sums' logarithms, which go to `flash_attention_backward` alone, and aren't read there."""
    fake = im.node.meta["val"][1]
    shape = im.shape(fake)
    return im.m.expand(im.m.reshape(im.number(0, im.dtype(fake)), [1] * len(shape)), shape)


@handles("aten._scaled_dot_product_flash_attention_for_cpu_backward.default")
def flash_attention_backward(
    im: Importer,
    dy: Value,
    q: Value,
    k: Value,
    v: Value,
    out: Value,
    sums: Value,
    dropout_p: float,
    is_causal: bool,
    *,
    attn_mask: Value | None = None,
    scale: float | None = None,
) -> Results:
    """The gradients by queries, keys and values, of weights that are computed again."""
    if dropout_p or any(x.ndim != 4 for x in (q, k, v)) or (is_causal and q.shape[2] != k.shape[2]):
        raise Unhandled("with dropout, or of other shapes than [B, H, S, E] as many times")
    mask, kind = attn_mask, "causal" if is_causal else "none"
    if mask is not None:
        kind = "custom" if mask.dtype.kind == "b" else "bias"
        mask = im.m.reshape(mask, [*[1] * (4 - mask.ndim), *mask.shape]) if mask.ndim < 4 else mask
    return im.m.attention_backward_all(
        q,
        k,
        v,
        dy,
        mask,
        num_heads=int(q.shape[1]),
        head_dim=int(q.shape[3]),
        mask_kind=kind,
        scale=scale,
        layout="bhsd",
    )


def _attention(
    im: Importer,
    q: Value,
    k: Value,
    v: Value,
    mask: Value | None,
    kind: str,
    dropout_p: float,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
    **_: object,
) -> Value:
    if dropout_p:
        raise Unhandled("random numbers of training")
    if q.shape[-1] != v.shape[-1]:
        raise Unhandled("values of another length than queries")
    fake = im.node.meta["val"]
    fake = fake[0] if isinstance(fake, tuple) else fake
    m, shape = im.m, im.shape(fake)
    width = q.shape[-1]
    if not isinstance(width, int):
        raise Unhandled("heads of a symbolic length")

    def images(x: Value) -> Value:
        """[B, H, S, E]"""
        if x.ndim == 4:
            return x
        if x.ndim < 4:
            return m.reshape(x, [*[1] * (4 - x.ndim), *x.shape])
        return m.reshape(x, [-1, *x.shape[-3:]])

    q, k, v = images(q), images(k), images(v)
    heads, shared = q.shape[1], k.shape[1]
    if not isinstance(heads, int) or not isinstance(shared, int):
        raise Unhandled("a symbolic number of heads")
    if heads != shared and not enable_gqa:
        k, v = (m.expand(x, [x.shape[0], heads, *x.shape[2:]]) for x in (k, v))
        shared = heads
    if mask is not None:
        mask = m.reshape(mask, [*[1] * (4 - mask.ndim), *mask.shape]) if mask.ndim < 4 else images(mask)
        mask = mask if kind == "custom" else im.cast(mask, im.dtype(fake))
    found = m.primitives.attention(
        q,
        k,
        v,
        mask,
        num_heads=heads,
        num_kv_heads=None if shared == heads else shared,
        head_dim=width,
        mask_kind=kind,
        scale=scale,
        layout="bhsd",
    )
    return im.reshaped(found, shape)
