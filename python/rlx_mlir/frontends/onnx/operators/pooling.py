# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Pooling of one to three dimensions.

Windows without gaps over images with equal padding on both sides are `mir.pool`. The others are computed of slices: one
for each place of a window, that of all windows at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product as combinations

import numpy as np

from rlx_mlir.frontends.tensors import Tensor
from rlx_mlir.frontends.windows import Windows, taken
from rlx_mlir.hir import Value
from rlx_mlir.mir.dims import Size

from ..call import Call
from ..registry import Refused, operator
from ..types import FLOATS
from ..windows import windows

#: Places of a window that is computed of slices.
MOST_PLACES = 1024


def _lowest(dtype: np.dtype) -> object:
    return float("-inf") if dtype in FLOATS else np.iinfo(dtype).min


def _windows(call: Call) -> tuple[Windows, Windows]:
    """The windows of a node, and those that count for `ceil_mode`."""
    sizes = call.shape(0)[2:]
    kernel = call.ints("kernel_shape", [])
    over = windows(call, kernel, sizes)
    if not call.flag("ceil_mode"):
        return over, over
    known = [size.constant for size in sizes if size.constant is not None]
    if len(known) < len(sizes):
        raise Refused(f"'ceil_mode' for a dimension of {next(size for size in sizes if size.constant is None)}")
    return over, over.rounded_up(known)


def places(call: Call, padded: Value, over: Windows) -> Iterator[Value]:
    """For each place of a window, the elements there of all windows: slices of what is padded already."""
    if int(np.prod(over.kernel)) > MOST_PLACES:
        raise Refused(f"windows of {list(over.kernel)}")
    for place in combinations(*(range(k) for k in over.kernel)):
        yield taken(call.m, padded, over, place, 2)


def combined(call: Call, x: Value, over: Windows, fill: object, combine: Callable[[Value, Value], Value]) -> Value:
    """The elements of each window combined, one after the other."""
    padded = call.padded(x, [(0, 0), (0, 0), *over.pads], fill)
    total: Value | None = None
    for part in places(call, padded, over):
        total = part if total is None else combine(total, part)
    assert total is not None
    return total


def _is_plain(over: Windows, rank: int) -> bool:
    """Whether `mir.pool` has such windows."""
    return rank == 4 and set(over.dilation) == {1} and all(before == after for before, after in over.pads)


def pooled(call: Call, x: Value, kind: str, over: Windows) -> Value:
    """The largest, or the sum, of each window; the padding changes nothing."""
    if _is_plain(over, x.ndim):
        padding = [before for before, _ in over.pads]
        return call.m.pool(x, kind, list(over.kernel), stride=list(over.stride), padding=padding)
    if kind == "max":
        return combined(call, x, over, _lowest(x.dtype), call.m.maximum)
    return combined(call, x, over, 0, call.m.add)


@operator("MaxPool")
def _max_pool(call: Call) -> list[Tensor]:
    x = call.value(0)
    _, over = _windows(call)
    found = [call.out(pooled(call, x, "max", over))]
    if call.wants(1):
        found.append(call.out(_first_places(call, x, over)))
    return found


def _first_places(call: Call, x: Value, over: Windows) -> Value:
    """Where the largest element of each window is, in the flattened tensor."""
    m, shape = call.m, call.shape(0)
    if any(size.constant is None for size in shape):
        raise Refused("places of largest elements where calls decide about sizes")
    sizes = [size.constant or 0 for size in shape]
    call.affordable(*sizes)
    order = list(range(len(sizes)))
    if call.integer("storage_order", 0):  # the last two dimensions the other way round
        order[-2], order[-1] = order[-1], order[-2]
    numbers = np.arange(int(np.prod(sizes)), dtype=np.int64).reshape([sizes[i] for i in order]).transpose(order)
    where = call.importer.value(Tensor.of(np.ascontiguousarray(numbers)))
    pads = [(0, 0), (0, 0), *over.pads]
    values = places(call, call.padded(x, pads, _lowest(x.dtype)), over)
    best: tuple[Value, Value] | None = None
    for value, place in zip(values, places(call, call.padded(where, pads, 0), over), strict=True):
        if best is None:
            best = (value, place)
        else:
            better = m.gt(value, best[0])
            best = (m.where(better, value, best[0]), m.where(better, place, best[1]))
    assert best is not None
    return best[1]


@operator("AveragePool")
def _average_pool(call: Call) -> Tensor:
    x = call.value(0)
    given, over = _windows(call)
    wide = call.wide(x)
    total = pooled(call, wide, "sum", over)
    return call.out(call.narrowed(total / _counts(call, wide, given, over), x.dtype))


def _counts(call: Call, x: Value, given: Windows, over: Windows) -> Value | float:
    """By how many elements each window is divided."""
    include = call.flag("count_include_pad")
    no_pads = all(pad == (0, 0) for pad in over.pads)
    if no_pads or (include and given == over):
        return float(np.prod(over.kernel))
    shape = [Size.of(1), Size.of(1), *call.shape(0)[2:]]
    ones = call.filled(1, shape, x.dtype)
    if include:
        ones = call.padded(ones, [(0, 0), (0, 0), *given.pads], 1)
        pads = tuple((0, b[1] - a[1]) for a, b in zip(given.pads, over.pads, strict=True))
        over = Windows(over.kernel, over.stride, over.dilation, pads)
    return combined(call, ones, over, 0, call.m.add)


@operator("LpPool")
def _lp_pool(call: Call) -> Tensor:
    m, x = call.m, call.value(0)
    _, over = _windows(call)
    p, size = call.integer("p", 2), m.abs(call.wide(x))
    powers = size if p == 1 else m.pow(size, float(p))
    total = pooled(call, powers, "sum", over)
    return call.out(call.narrowed(total if p == 1 else m.pow(total, 1.0 / p), x.dtype))


@operator("GlobalAveragePool")
def _global_average(call: Call) -> Tensor:
    x = call.value(0)
    return call.out(call.m.mean(x, list(range(2, call.rank(0))), keep_dims=True))


@operator("GlobalMaxPool")
def _global_max(call: Call) -> Tensor:
    return call.out(call.m.max(call.value(0), list(range(2, call.rank(0))), keep_dims=True))


@operator("GlobalLpPool")
def _global_lp(call: Call) -> Tensor:
    m, x = call.m, call.value(0)
    p, size = call.integer("p", 2), m.abs(call.wide(x))
    total = m.sum(m.pow(size, float(p)), list(range(2, call.rank(0))), keep_dims=True)
    return call.out(call.narrowed(m.pow(total, 1.0 / p), x.dtype))
