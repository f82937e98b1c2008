# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Sorting, and the largest elements."""

from __future__ import annotations

from rlx_mlir import ir
from rlx_mlir.hir import Value
from rlx_mlir.mir.dims import Size

from .. import regions
from ..call import Call
from ..entries import Entry, shape_of
from ..registry import Refused, operator


def _keys(call: Call, x: Value) -> Value:
    """Elements that there is an order of, in the same order."""
    return call.m.cast(x, "ui8") if x.dtype.kind == "b" else x


@operator("sort")
def _sort(call: Call) -> list[Entry]:
    m, axis = call.m, call.integer("dimension", -1)
    call.refuse_unsigned()
    values = call.values()
    rank = values[0].ndim
    axis = axis % rank if rank else 0
    key, descending = regions.order_of(call.op.regions[0].blocks[0], [value.dtype for value in values])
    size = shape_of(values[0])[axis] if rank else Size.of(1)
    if size.constant is not None and size.constant < 2:
        return list(call.operands)
    order = [i for i in range(rank) if i != axis] + [axis]
    back = [order.index(i) for i in range(rank)]
    rows = [call.transposed(value, order) for value in values]
    _, places = m.top_k(_keys(call, rows[key]), size, smallest=not descending, nan_largest=not descending)
    found = [m.gather(row, places, rank - 1, batch_dims=rank - 1) for row in rows]
    return [call.transposed(value, back) for value in found]


@operator("chlo.top_k", "@mhlo.topk", "@stablehlo.dynamic_top_k")
def _top_k(call: Call) -> list[Entry]:
    m, x = call.m, call.value(0)
    if "mhlo.attributes" in call.op.attributes:
        largest = ir.DictAttr(call.op.attributes["mhlo.attributes"])
        if "largest" in largest and not ir.BoolAttr(largest["largest"]).value:
            raise Refused("the smallest elements")
    count = Size.of(call.result_shape()[-1])
    if count.constant == -1:
        (count,) = call.sizes(1, "numbers of elements")
    _, places = m.top_k(_keys(call, x), count)
    values = m.gather(x, places, x.ndim - 1, batch_dims=x.ndim - 1)
    return [values, call.cast(places, call.result_dtype(1))]
