# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Sorting, and the largest elements."""

from __future__ import annotations

import numpy as np

from rlx_mlir import ir
from rlx_mlir.hir import Value

from .. import regions
from ..call import Call, is_float
from ..entries import Entry, shape_of
from ..registry import Refused, operator


def _keys(call: Call, x: Value) -> Value:
    """Elements as floats that are in the same order."""
    if is_float(x.dtype):
        return x
    if x.dtype.itemsize > 4:
        raise Refused(f"an order of elements of {x.dtype}")
    return call.m.cast(x, "f32" if x.dtype.itemsize < 3 else "f64")


@operator("sort")
def _sort(call: Call) -> list[Entry]:
    m, axis = call.m, call.integer("dimension", -1)
    call.refuse_unsigned()
    values = call.values()
    rank = values[0].ndim
    axis = axis % rank if rank else 0
    key, descending = regions.order_of(call.op.regions[0].blocks[0], [value.dtype for value in values])
    size = shape_of(values[0])[axis].constant
    if size is None:
        raise Refused(f"a sort along a dimension of {shape_of(values[0])[axis]}")
    if size < 2:
        return list(call.operands)
    order = [i for i in range(rank) if i != axis] + [axis]
    back = [order.index(i) for i in range(rank)]
    rows = [call.transposed(value, order) for value in values]
    keys = _keys(call, rows[key])
    _, places = m.top_k(keys if descending else m.neg(keys), size)
    found = [m.gather(row, places, rank - 1, batch_dims=rank - 1) for row in rows]
    return [call.transposed(value, back) for value in found]


@operator("chlo.top_k", "@mhlo.topk", "@stablehlo.dynamic_top_k")
def _top_k(call: Call) -> list[Entry]:
    m, x = call.m, call.value(0)
    if "mhlo.attributes" in call.op.attributes:
        largest = ir.DictAttr(call.op.attributes["mhlo.attributes"])
        if "largest" in largest and not ir.BoolAttr(largest["largest"]).value:
            raise Refused("the smallest elements")
    count = call.result_shape()[-1]
    if count < 0:
        raise Refused("a symbolic number of elements")
    if count == 0:
        shape = [size.constant or 0 for size in shape_of(x)[:-1]]
        return [m.constant(np.zeros([*shape, 0], dtype)) for dtype in (x.dtype, call.result_dtype(1))]
    _, places = m.top_k(_keys(call, x), count)
    values = m.gather(x, places, x.ndim - 1, batch_dims=x.ndim - 1)
    return [values, call.cast(places, call.result_dtype(1))]
