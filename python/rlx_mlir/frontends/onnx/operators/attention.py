# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attention as ONNX defines it: `mir.attention` where that means the same, else the body that ONNX gives.

Both give zeros for a query that sees no key, and add a mask after the softcap.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rlx_mlir.frontends.tensors import Tensor, Thing
from rlx_mlir.hir import Value
from rlx_mlir.mir.dims import Size

from ..call import Call
from ..registry import Refused, operator
from ..types import FLOATS


def heads_first(call: Call, x: Value, heads: int) -> Value:
    """[B, S, heads * D] as [B, heads, S, D]."""
    batch, length, width = Tensor.running(x).shape
    each = width.constant
    if heads <= 0 or each is None or each % heads:
        raise Refused(f"{heads} heads in {width} columns")
    return call.m.transpose(call.reshaped(x, [batch, length, heads, each // heads]), [0, 2, 1, 3])


def heads_last(call: Call, x: Value) -> Value:
    """[B, heads, S, D] as [B, S, heads * D]."""
    batch, heads, length, width = Tensor.running(x).shape
    return call.reshaped(call.m.transpose(x, [0, 2, 1, 3]), [batch, length, heads * width])


def mask_shape(shape: Sequence[Size]) -> list[Size]:
    """The shape of a mask [..., Sq, Sk] with all four dimensions that ours have."""
    return [*[Size.of(1)] * (4 - len(shape)), *shape]


@operator("Attention", since=23)
def _attention(call: Call) -> Sequence[Thing | None]:
    found = _as_ours(call)
    return call.importer.body(call) if found is None else found


def _as_ours(call: Call) -> list[Thing | None] | None:
    """What our operation gives; None where the node means something else."""
    m = call.m
    if call.has(6) or call.wants(3) or any(call.integer(f"{side}_window_size", -1) >= 0 for side in ("left", "right")):
        return None
    dtypes = {call.dtype(number) for number in (0, 1, 2, 4, 5) if call.has(number)}
    if len(dtypes) != 1 or call.dtype(0) not in FLOATS:
        return None
    flat = call.rank(0) == 3
    q, k, v = (call.value(number) for number in range(3))
    if flat:
        own, keys = call.integer("q_num_heads", 0), call.integer("kv_num_heads", 0)
        q, k, v = (heads_first(call, x, heads) for x, heads in ((q, own), (k, keys), (v, keys)))
    if call.has(4):
        k, v = m.concat([call.value(4), k], 2), m.concat([call.value(5), v], 2)
    (_, heads, queries, width), (_, kv_heads, keys_, _) = Tensor.running(q).shape, Tensor.running(k).shape
    fits = Tensor.running(v).shape[3] == width and None not in (heads.constant, kv_heads.constant, width.constant)
    causal, softcap = call.flag("is_causal"), call.number("softcap", 0.0)
    if not fits or not width.constant or keys_.constant == 0 or (causal and not call.has(4) and queries != keys_):
        return None
    mask, kind = None, "causal" if causal else "none"
    if call.has(3):
        mask = call.value(3)
        shape = mask_shape(Tensor.running(mask).shape)
        if causal or shape[3] != keys_ or shape[2].constant == 1 != queries.constant or mask.ndim > 4:
            return None
        kind = "custom" if mask.dtype == np.bool_ else "bias"
        if kind == "bias" and mask.dtype != q.dtype:
            return None
        mask = call.reshaped(mask, shape)
    y = m.attention(
        q,
        k,
        v,
        mask,
        num_heads=heads.constant or 0,
        num_kv_heads=kv_heads.constant,
        head_dim=width.constant,
        mask_kind=kind,
        scale=call.maybe_float("scale"),
        softcap=softcap if softcap > 0 else None,
        layout="bhsd",
    )
    return [call.out(heads_last(call, y) if flat else y), call.out(k), call.out(v)]
