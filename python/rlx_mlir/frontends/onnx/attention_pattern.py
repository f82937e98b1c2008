# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attention that files write as products, a softmax and what is between: it becomes `mir.attention`.

The one difference is a query that sees no key: softmax of -inf alone gives NaN, ours zeros. So the pattern is taken
where there is no mask, where the file itself puts zeros for NaN, or where a mask is seen to be finite.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rlx_mlir.frontends.tensors import Tensor
from rlx_mlir.hir import Value
from rlx_mlir.mir.dims import Size

from .call import Call
from .patterns import made_by, transposed, unscaled
from .types import FLOATS

#: Operators whose results hold elements of their first operand alone.
_MOVES = ("Expand", "Unsqueeze", "Squeeze", "Reshape", "Slice", "Identity", "Transpose", "Gather", "Cast")


@dataclass(frozen=True)
class _Scores:
    """Scaled products of queries [B, H, Sq, D] and keys [B, H, Sk, D]."""

    q: Tensor
    k: Tensor
    scale: float


def attention(call: Call) -> Value | None:
    """What the product of a softmax and values is as attention [B, H, Sq, D]; None where it isn't one."""
    weights, values = call.tensor(0), call.tensor(1)
    if weights.handle is None or values.rank != 4 or weights.rank != 4:
        return None
    weights, guarded = _without_guard(call, weights)
    softmax = made_by(call, weights, "Softmax")
    if softmax is None or softmax.along(softmax.integer("axis", -1 if softmax.version >= 13 else 1), 4) != 3:
        return None
    scores, mask = _without_mask(call, softmax.tensor(0))
    if scores is None or (mask is not None and not guarded and not _is_finite(call, mask)):
        return None
    return _built(call, scores, values, mask)


def _without_guard(call: Call, tensor: Tensor) -> tuple[Tensor, bool]:
    """Weights without zeros in place of NaN, and whether there were such."""
    where = made_by(call, tensor, "Where")
    if where is None or not where.has(2):
        return tensor, False
    test = made_by(call, where.tensor(0), "IsNaN")
    zeros = where.tensor(1).numbers
    if test is None or test.tensor(0).handle is not where.tensor(2).handle or zeros is None or np.any(zeros):
        return tensor, False
    return where.tensor(2), True


def _without_mask(call: Call, tensor: Tensor) -> tuple[_Scores | None, Tensor | None]:
    """The products that a tensor is the sum of with a mask, or that it is."""
    add = made_by(call, tensor, "Add")
    if add is None:
        return _products(call, tensor), None
    for number in (0, 1):
        scores = _products(call, add.tensor(number))
        if scores is not None:
            return scores, add.tensor(1 - number)
    return None, None


def _products(call: Call, tensor: Tensor) -> _Scores | None:
    scaled, scale = unscaled(call, tensor)
    product = made_by(call, scaled, "MatMul")
    if product is None or product.rank(0) != 4 or product.rank(1) != 4:
        return None
    q, of_queries = unscaled(call, product.tensor(0))
    turned, of_keys = unscaled(call, product.tensor(1))
    k = _turned_back(call, turned)
    return None if k is None else _Scores(q, k, scale * of_queries * of_keys)


def _turned_back(call: Call, tensor: Tensor) -> Tensor | None:
    """The keys [B, H, Sk, D] of which a tensor is [B, H, D, Sk]."""
    transpose = made_by(call, tensor, "Transpose")
    if transpose is not None:
        order = transpose.ints("perm", [])
        if len(order) != 4:
            return None
        order = [order[0], order[1], order[3], order[2]]
        if order == [0, 1, 2, 3]:
            return transpose.tensor(0)
        return call.out(transposed(call, transpose.value(0), order))
    outer = made_by(call, tensor, "Reshape")
    flat = None if outer is None else made_by(call, outer.tensor(0), "Transpose")
    inner = None if flat is None or flat.ints("perm", []) != [0, 2, 1] else made_by(call, flat.tensor(0), "Reshape")
    if inner is None or inner.rank(0) != 4:
        return None
    batch, heads, length, width = inner.shape(0)
    return inner.tensor(0) if tensor.shape == (batch, heads, width, length) else None


def _is_finite(call: Call, tensor: Tensor, depth: int = 32) -> bool:
    """Whether no element of a mask is infinite, but for overflows of products of finite numbers."""
    if tensor.handle is None:
        return tensor.numbers is not None and bool(np.isfinite(tensor.numbers.astype(np.float64)).all())
    if tensor.dtype not in FLOATS:
        return True
    made = call.importer.origin(tensor)
    if made is None or not depth or made.domain:
        return False
    if made.op in _MOVES:
        return _is_finite(call, made.tensor(0), depth - 1)
    if made.op in ("Mul", "Sub", "Add"):
        return all(_is_finite(call, made.tensor(number), depth - 1) for number in (0, 1))
    return made.op == "Where" and all(_is_finite(call, made.tensor(number), depth - 1) for number in (1, 2))


def _fits(sizes: tuple[Size, ...], wanted: tuple[Size, ...]) -> bool:
    """Whether a mask is one of ours: as the scores, or 1 along the dimensions before keys."""
    return sizes[3] == wanted[3] and all(
        own.constant == 1 or own == size for own, size in zip(sizes, wanted, strict=True)
    )


def _built(call: Call, scores: _Scores, values: Tensor, mask: Tensor | None) -> Value | None:
    m = call.m
    (batch, heads, queries, width), keys = scores.q.shape, scores.k.shape
    if heads.constant is None or width.constant is None or not width.constant or not heads.constant:
        return None
    if keys != values.shape or keys[:2] != (batch, heads) or keys[3] != width or keys[2].constant == 0:
        return None
    if len({scores.q.dtype, scores.k.dtype, values.dtype}) != 1 or scores.q.dtype not in FLOATS:
        return None
    bias = None
    if mask is not None:
        shape = (*[Size.of(1)] * (4 - mask.rank), *mask.shape)
        if mask.rank > 4 or mask.dtype != scores.q.dtype or not _fits(shape, (batch, heads, queries, keys[2])):
            return None
        bias = call.reshaped(call.importer.value(mask), shape)
    parts = [call.importer.value(tensor) for tensor in (scores.q, scores.k, values)]
    rows = [row for row in (_rows(call, part) for part in parts) if row is not None]
    packed = len(rows) == 3
    q, k, v = rows if packed else parts
    y: Value = m.attention(
        q,
        k,
        v,
        bias,
        num_heads=heads.constant,
        head_dim=width.constant,
        mask_kind="none" if bias is None else "bias",
        scale=scores.scale,
        layout="bshd" if packed else "bhsd",
    )
    return transposed(call, y, [0, 2, 1, 3]) if packed else y


def _rows(call: Call, value: Value) -> Value | None:
    """[B, S, H, D] of which a value is the transposed one; None where it isn't."""
    source = call.importer.turned(value)
    return source[0] if source is not None and source[1] == [0, 2, 1, 3] else None
