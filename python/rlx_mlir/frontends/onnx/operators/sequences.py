# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Sequences and optional tensors whose lengths are known while the file is read: they leave no trace in the graph."""

from __future__ import annotations

import numpy as np

from rlx_mlir.errors import OnnxError
from rlx_mlir.frontends.tensors import Several, Tensor, Thing, plain
from rlx_mlir.mir.dims import Size

from ..call import Call
from ..registry import Refused, operator


@operator("SequenceConstruct")
def _construct(call: Call) -> Several:
    return Several(tuple(call.tensor(number) for number in range(len(call.inputs))))


@operator("SequenceEmpty")
def _empty(call: Call) -> Several:
    return Several(())


def _place(call: Call, number: int, count: int) -> int:
    (place,) = call.known_ints(number, "the position")
    place = place + count if place < 0 else place
    if not 0 <= place < count:
        raise OnnxError(f"node '{call.name}': there is no entry {place} of {count}")
    return place


@operator("SequenceAt")
def _at(call: Call) -> Tensor:
    items = call.several(0).items
    return items[_place(call, 1, len(items))]


@operator("SequenceInsert")
def _insert(call: Call) -> Several:
    items = list(call.several(0).items)
    items.insert(_place(call, 2, len(items) + 1) if call.has(2) else len(items), call.tensor(1))
    return Several(tuple(items))


@operator("SequenceErase")
def _erase(call: Call) -> Several:
    items = list(call.several(0).items)
    del items[_place(call, 1, len(items)) if call.has(1) else -1]
    return Several(tuple(items))


@operator("SequenceLength")
def _length(call: Call) -> Tensor:
    return Tensor.of(np.array(len(call.several(0).items), np.int64))


@operator("SplitToSequence")
def _split(call: Call) -> Several:
    x, axis = call.value(0), call.axis(0, call.rank(0))
    total = call.shape(0)[axis]
    if call.has(1) and call.rank(1):
        parts = call.sizes(1, "the parts")
    else:
        each = int(call.known(1, "the part").reshape(-1)[0]) if call.has(1) else 1
        if total.constant is None or each <= 0:
            raise Refused(f"parts of {each} of a dimension of {total}")
        parts = [Size.of(min(each, total.constant - start)) for start in range(0, total.constant, each)]
    start, items = Size.of(0), []
    for part in parts:
        bounds = plain([start, start + part])
        value = call.m.slice(x, axis, bounds[0], bounds[1])
        if not call.has(1) and not call.flag("keepdims", True):
            value = call.reshaped(value, [size for i, size in enumerate(call.shape(0)) if i != axis])
        items.append(call.out(value))
        start = start + part
    return Several(tuple(items))


@operator("ConcatFromSequence")
def _concat(call: Call) -> Tensor:
    values = [call.importer.value(item) for item in call.several(0).items]
    if not values:
        raise Refused("an empty sequence")
    new, rank = call.flag("new_axis"), values[0].ndim
    axis = call.along(call.integer("axis", 0), rank + new)
    if new:
        rows = []
        for value in values:
            shape = list(Tensor.running(value).shape)
            shape.insert(axis, Size.of(1))
            rows.append(call.reshaped(value, shape))
        values = rows
    return call.out(call.m.concat(values, axis) if len(values) > 1 else values[0])


@operator("Optional")
def _optional(call: Call) -> Several:
    return Several((call.tensor(0),) if call.has(0) else (), optional=True)


@operator("OptionalHasElement")
def _has_element(call: Call) -> Tensor:
    thing = call.inputs[0] if call.inputs else None
    found = thing is not None and (not isinstance(thing, Several) or not thing.optional or bool(thing.items))
    return Tensor.of(np.array(found))


@operator("OptionalGetElement")
def _get_element(call: Call) -> list[Thing | None]:
    thing = call.inputs[0]
    if isinstance(thing, Several) and thing.optional:
        if not thing.items:
            raise OnnxError(f"node '{call.name}': what is optional isn't there")
        return [thing.items[0]]
    return [thing]
