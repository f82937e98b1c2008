# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reductions: of whole dimensions, and of windows that slide over them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product as combinations

import numpy as np

from rlx_mlir.frontends.positions import Positions
from rlx_mlir.frontends.tensors import plain
from rlx_mlir.hir import Value
from rlx_mlir.mir.dims import Size, product

from .. import regions
from ..call import Call, is_float
from ..entries import Entry, as_array, as_positions, shape_of
from ..registry import Refused, operator

#: Places of a window that is computed of slices.
MOST_PLACES = 1024
#: The operation that joins two parts of a reduction.
JOINED = {"sum": "add", "prod": "mul", "max": "max", "min": "min", "any": "or", "all": "and"}


def neutral(kind: str, dtype: np.dtype) -> object:
    """What changes nothing that it is combined with."""
    if kind in ("sum", "any"):
        return 0
    if kind in ("prod", "all"):
        return 1
    if is_float(dtype):
        return -np.inf if kind == "max" else np.inf
    return np.iinfo(dtype).min if kind == "max" else np.iinfo(dtype).max


def _with_init(call: Call, found: Value, kind: str, init: Entry) -> Value:
    """A reduction joined with what it begins with, where that isn't neutral."""
    known = as_array(init)
    if known is not None and known.dtype != object:
        number = known.reshape(-1)[0]
        if number == np.asarray(neutral(kind, found.dtype)).astype(found.dtype):
            return found
    return call.m.binary(JOINED[kind], found, call.importer.compact(init))


@operator("reduce")
def _reduce(call: Call) -> Entry | list[Entry]:
    block, axes = call.op.regions[0].blocks[0], call.ints("dimensions")
    count = len(call.operands) // 2
    if count == 2:
        return _extreme(call, axes)
    if count != 1:
        raise Refused(f"a reduction of {count} operands")
    call.refuse_unsigned()
    x, dtype = call.value(0), call.dtype(0)
    kind = regions.kind_of(block, dtype)
    if kind not in JOINED:
        raise Refused("a reduction that keeps one of its elements")
    if not axes:
        return call.operands[0]
    return _with_init(call, call.m.reduce(x, kind, axes), kind, call.operands[1])


def _extreme(call: Call, axes: Sequence[int]) -> list[Entry]:
    """The largest or smallest elements, and their places, which are counted along the dimension."""
    m, places = call.m, as_positions(call.operands[1])
    if len(axes) != 1 or not _counts(places, axes[0]):
        raise Refused("a reduction of two operands that aren't elements and their places")
    x, dtype = call.value(0), call.dtype(1)
    kind = regions.extreme_of(call.op.regions[0].blocks[0], call.dtype(0))
    top = m.reduce(x, kind, axes, keep_dims=True) if x.dtype != np.bool_ else None
    if top is None:
        top = m.reduce(x, "any" if kind == "max" else "all", axes, keep_dims=True)
        hit = m.bitwise_not(m.bitwise_xor(x, top))
    else:
        hit = m.eq(x, top)
        hit = m.bitwise_or(hit, m.ne(x, x)) if is_float(x.dtype) else hit
    last = m.constant(np.array(np.iinfo(dtype).max, dtype))
    found = m.reduce(m.where(hit, call.importer.compact(call.operands[1]), last), "min", axes)
    shape = [size for axis, size in enumerate(shape_of(x)) if axis not in axes]
    return [call.reshaped(top, shape), found]


def _counts(places: Positions | None, axis: int) -> bool:
    """Whether positions are 0, 1, 2, … along a dimension."""
    if places is None or places.base.constant != 0:
        return False
    return all(
        step == int(at == axis and size.constant != 1)
        for at, (step, size) in enumerate(zip(places.steps, places.shape, strict=True))
    )


# Windows --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Windows:
    """Windows over the dimensions of a tensor.

    Attributes:
        size, stride, dilation: of windows, along each dimension.
        base: steps between elements of the tensor, which has neutral ones between.
        pads: elements before and after.
    """

    size: list[int]
    stride: list[int]
    dilation: list[int]
    base: list[int]
    pads: list[tuple[int, int]]

    @property
    def active(self) -> list[int]:
        """The dimensions along which anything changes."""
        plain = ([1] * len(self.size), [1] * len(self.size), [1] * len(self.size), [(0, 0)] * len(self.size))
        own = zip(self.size, self.stride, self.base, self.pads, strict=True)
        return [axis for axis, found in enumerate(own) if found != tuple(each[axis] for each in plain)]


def windows_of(call: Call, rank: int) -> Windows:
    """The windows of an operation."""
    ones = [1] * rank
    flat = call.ints("padding", [0] * (2 * rank))
    flat = flat * (2 * rank) if len(flat) == 1 else flat
    return Windows(
        call.ints("window_dimensions"),
        call.ints("window_strides", ones),
        call.ints("window_dilations", ones),
        call.ints("base_dilations", ones),
        list(zip(flat[::2], flat[1::2], strict=True)),
    )


@operator("reduce_window")
def _reduce_window(call: Call) -> Entry:
    if len(call.operands) != 2:
        raise Refused(f"windows of {len(call.operands) // 2} operands")
    x, dtype = call.value(0), call.dtype(0)
    kind = regions.kind_of(call.op.regions[0].blocks[0], dtype)
    if kind not in JOINED:
        raise Refused("windows of which one element is kept")
    over = windows_of(call, x.ndim)
    if not over.active:
        return _with_init(call, x, kind, call.operands[1])
    found = _running(call, x, kind, over)
    if found is None:
        fill = call.constant(neutral(kind, dtype), dtype)
        for axis, step in enumerate(over.base):
            x = call.interleaved(x, axis, step - 1, fill)
        found = _pooled(call, x, kind, over) if _is_pool(over, dtype) else _combined(call, x, kind, over, fill)
    return _with_init(call, found, kind, call.operands[1])


def _running(call: Call, x: Value, kind: str, over: Windows) -> Value | None:
    """Windows that hold all elements up to each, or from each on; None where they are others."""
    if len(over.active) != 1:
        return None
    (axis,) = over.active
    size = over.size[axis]
    if shape_of(x)[axis] != Size.of(size) or (over.stride[axis], over.dilation[axis], over.base[axis]) != (1, 1, 1):
        return None
    if over.pads[axis] not in ((size - 1, 0), (0, size - 1)) or x.dtype == np.bool_:
        return None
    m, backwards = call.m, over.pads[axis][0] == 0
    if kind == "sum":
        y = m.cumsum(m.flip(x, axis) if backwards else x, axis)
        return m.flip(y, axis) if backwards else y
    order = [axis, *(i for i in range(x.ndim) if i != axis)]
    rows = call.transposed(x, order)
    sizes = [own for i, own in enumerate(shape_of(x)) if i != axis]
    start = call.expanded(call.constant(neutral(kind, x.dtype), x.dtype), sizes)

    def step(total: Value, row: Value) -> tuple[Value, Value]:
        following = m.binary(JOINED[kind], total, row)
        return following, following

    _, found = m.scan(step, start, rows, reverse=backwards)
    return call.transposed(found, [order.index(i) for i in range(x.ndim)])


def _is_pool(over: Windows, dtype: np.dtype) -> bool:
    return len(over.active) <= 2 and all(own == 1 for own in over.dilation) and dtype != np.bool_


def images_of(call: Call, x: Value, active: Sequence[int]) -> tuple[Value, list[int]]:
    """[1, rest, H, W] of a tensor whose at most two dimensions are `active`, and the order of its dimensions."""
    rest = [axis for axis in range(x.ndim) if axis not in active]
    order = [*rest, *active]
    turned = call.transposed(x, order)
    shape = shape_of(turned)
    sides = [Size.of(1)] * (2 - len(active)) + list(shape[len(rest) :])
    return call.reshaped(turned, [1, product(shape[: len(rest)]), *sides]), order


def of_images(call: Call, y: Value, order: Sequence[int], x: Value, active: Sequence[int]) -> Value:
    """A tensor like x, but along `active`, of such images."""
    own = shape_of(x)
    sides = shape_of(y)[4 - len(active) :]
    turned = call.reshaped(y, [*(own[axis] for axis in order[: x.ndim - len(active)]), *sides])
    return call.transposed(turned, [list(order).index(axis) for axis in range(x.ndim)])


def _pooled(call: Call, x: Value, kind: str, over: Windows) -> Value:
    """Windows over at most two dimensions."""
    active = over.active
    fill = call.constant(neutral(kind, x.dtype), x.dtype)
    padding = []
    for axis in active:
        before, after = over.pads[axis]
        if before != after or before < 0:
            x = call.padded(x, axis, before, after, fill)
        padding.append(before if before == after and before >= 0 else 0)
    images, order = images_of(call, x, active)
    lead = [1] * (2 - len(active))
    kernel = [*lead, *(over.size[axis] for axis in active)]
    stride = [*lead, *(over.stride[axis] for axis in active)]
    y = call.m.pool(images, kind, kernel, stride=stride, padding=[*(0 for _ in lead), *padding])
    return of_images(call, y, order, x, active)


def _combined(call: Call, x: Value, kind: str, over: Windows, fill: Value) -> Value:
    """The elements of each window combined, one after the other: slices, one for each place of a window."""
    if math.prod(over.size) > MOST_PLACES:
        raise Refused(f"windows of {over.size}")
    for axis, (before, after) in enumerate(over.pads):
        x = call.padded(x, axis, before, after, fill)
    shape = shape_of(x)
    total: Value | None = None
    for place in combinations(*map(range, over.size)):
        part = x
        for axis in over.active:
            start = Size.of(place[axis] * over.dilation[axis])
            reach = (over.size[axis] - 1) * over.dilation[axis] + 1
            count = (shape[axis] - reach) // over.stride[axis] + 1
            bounds = plain([start, start + (count - 1) * over.stride[axis] + 1])
            part = call.m.slice(part, axis, bounds[0], bounds[1], over.stride[axis])
        total = part if total is None else call.m.binary(JOINED[kind], total, part)
    assert total is not None
    return total


@operator("select_and_scatter")
def _select_and_scatter(call: Call) -> Entry:
    """Each element of the source added where the largest element of its window is."""
    x, source = call.values(0, 2)
    over = windows_of(call, x.ndim)
    select, scatter = (region.blocks[0] for region in call.op.regions)
    if not is_float(x.dtype) or regions.kind_of(scatter, x.dtype) != "sum" or not regions.is_at_least(select, x.dtype):
        raise Refused("windows of which another element than the largest is chosen, or is replaced")
    active = over.active
    if len(active) > 2:
        raise Refused(f"windows over {len(active)} dimensions")
    fill = call.constant(-np.inf, x.dtype)
    padded = x
    for axis in active:
        padded = call.padded(padded, axis, *over.pads[axis], fill)
    lead = [1] * (2 - len(active))
    kernel = [*lead, *(over.size[axis] for axis in active)]
    stride = [*lead, *(over.stride[axis] for axis in active)]
    images, order = images_of(call, padded, active)
    gradients, _ = images_of(call, source, active)
    y = call.m.maxpool2d_backward(images, gradients, kernel_size=kernel, stride=stride)
    y = of_images(call, y, order, padded, active)
    for axis in active:
        before, after = over.pads[axis]
        y = call.m.slice(y, axis, before, plain([shape_of(y)[axis] - after])[0])
    return _with_init(call, y, "sum", call.operands[2])
