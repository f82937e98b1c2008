# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operators that choose elements by indices, or put elements where indices say."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rlx_mlir.errors import OnnxError
from rlx_mlir.frontends import indexing
from rlx_mlir.frontends.tensors import Tensor, plain
from rlx_mlir.hir import Value
from rlx_mlir.mir.dims import Size, product

from ..call import Call
from ..registry import Refused, operator

_I64 = np.dtype(np.int64)


def counted(call: Call, number: int, size: Size) -> Value | np.ndarray:
    """Indices from 0 on, i64 or i32: those that are negative count from the end of a dimension."""
    tensor, m = call.tensor(number), call.m
    numbers = tensor.numbers
    if numbers is not None and (size.constant is not None or np.all(numbers >= 0)):
        known = numbers.astype(np.int64)
        return np.where(known < 0, known + (size.constant or 0), known)
    indices = call.value(number)
    if indices.dtype not in (np.dtype(np.int32), _I64):
        indices = m.cast(indices, "i64")
    end = m.constant(np.array(size.constant, indices.dtype)) if size.constant is not None else None
    if end is None:
        end = call.narrowed(call.importer.size(size), indices.dtype)
    return m.where(m.lt(indices, call.scalar(0, indices)), m.add(indices, end), indices)


def _as_value(call: Call, indices: Value | np.ndarray) -> Value:
    return indices if isinstance(indices, Value) else call.importer.value(Tensor.of(indices))


@operator("Gather")
def _gather(call: Call) -> Tensor:
    axis = call.axis(0, call.rank(0))
    size = call.shape(0)[axis]
    indices = counted(call, 1, size)
    if isinstance(indices, np.ndarray) and indices.ndim == 0 and size.constant is not None:
        taken = call.m.narrow(call.value(0), axis, _within(call, int(indices), size.constant), 1)
        return call.out(call.reshaped(taken, [own for i, own in enumerate(call.shape(0)) if i != axis]))
    return call.out(call.m.gather(call.value(0), _as_value(call, indices), axis))


def _within(call: Call, index: int, size: int) -> int:
    if not 0 <= index < size:
        raise OnnxError(f"node '{call.name}': index {index} isn't one of {size} entries")
    return index


@operator("GatherElements")
def _gather_elements(call: Call) -> Tensor:
    m, rank = call.m, call.rank(0)
    axis = call.axis(0, rank)
    indices = _as_value(call, counted(call, 1, call.shape(0)[axis]))
    x = call.value(0)
    for other, (own, wanted) in enumerate(zip(call.shape(0), call.shape(1), strict=True)):
        if other != axis and own != wanted:
            x = m.slice(x, other, 0, plain([wanted])[0])
    return call.out(indexing.picked(m, x, indices, axis))


def _added(call: Call, total: Value | None, index: Value, by: Size) -> Value:
    """A position so far and an index along one more dimension, whose steps are of so many elements."""
    part = index if by == Size.of(1) else call.m.mul(index, call.importer.size(by))
    return part if total is None else call.m.add(total, part)


def _linear(call: Call, indices: Value, shape: Sequence[Size]) -> Value:
    """Positions in a flattened tensor, of its first dimensions' indices in the last dimension of `indices`."""
    m = call.m
    total: Value | None = None
    for number in range(len(shape)):
        part = m.narrow(indices, -1, number, 1)
        size = shape[number]
        end = call.importer.size(size)
        part = m.where(m.lt(part, np.int64(0)), m.add(part, end), part)
        total = _added(call, total, part, product(shape[number + 1 :]))
    assert total is not None
    return call.reshaped(total, Tensor.running(indices).shape[:-1])


def _depth(call: Call, number: int) -> int:
    """How many indices a row of an operand has."""
    depth = call.shape(number)[-1].constant
    if not depth:
        raise Refused(f"rows of {call.shape(number)[-1]} indices")
    return depth


@operator("GatherND")
def _gather_nd(call: Call) -> Tensor:
    m, batch = call.m, call.integer("batch_dims", 0)
    x, shape, depth = call.value(0), call.shape(0), _depth(call, 1)
    indices = call.narrowed(call.value(1), _I64)
    if not 0 <= batch + depth <= len(shape):
        raise OnnxError(f"node '{call.name}': {depth} indices and {batch} batch dimensions for {len(shape)} dimensions")
    places = _linear(call, indices, shape[batch : batch + depth])
    flat = call.reshaped(x, [*shape[:batch], product(shape[batch : batch + depth]), *shape[batch + depth :]])
    return call.out(m.gather(flat, places, batch, batch_dims=batch))


# Scattering -----------------------------------------------------------------------------------------


#: Pairs of a place and an update that are compared where entries aren't added.
MOST_PAIRS = 1 << 20


def _scattered(call: Call, x: Value, places: Value, updates: Value, reduction: str) -> Value:
    """Rows of x [N, t...] with `updates` [i..., t...] at places [i...], or combined with what is there.

    Without a reduction, ONNX has each place once.
    """
    if reduction == "add":
        return indexing.added(call.m, x, places, updates)
    if reduction not in indexing.REDUCTIONS:
        return indexing.replaced(call.m, x, places, updates)
    own, given = Tensor.running(x).shape, Tensor.running(updates).shape
    count = product(Tensor.running(places).shape)
    pairs = product([count, *own]).constant
    if pairs is None or pairs > MOST_PAIRS:
        raise Refused(f"'reduction' is '{reduction}' for {count} updates of {list(map(str, own))}")
    flat = call.reshaped(places, [count]), call.reshaped(updates, [count, *given[places.ndim :]])
    return indexing.reduced(call.m, x, *flat, reduction)


@operator("ScatterND")
def _scatter_nd(call: Call) -> Tensor:
    x, shape, depth = call.value(0), call.shape(0), _depth(call, 1)
    indices = call.narrowed(call.value(1), _I64)
    places = _linear(call, indices, shape[:depth])
    flat = call.reshaped(x, [product(shape[:depth]), *shape[depth:]])
    found = _scattered(call, flat, places, call.value(2), call.text("reduction", "none"))
    return call.out(call.reshaped(found, shape))


@operator("ScatterElements", "Scatter")
def _scatter_elements(call: Call) -> Tensor:
    rank, shape = call.rank(0), call.shape(0)
    axis = call.axis(0, rank)
    indices = call.narrowed(_as_value(call, counted(call, 1, shape[axis])), _I64)
    total: Value | None = None
    own = Tensor.running(indices).shape
    for dimension in range(rank):
        part = indices if dimension == axis else call.iota(own, dimension)
        total = _added(call, total, part, product(shape[dimension + 1 :]))
    assert total is not None
    flat = call.reshaped(call.value(0), [product(shape)])
    found = _scattered(call, flat, total, call.value(2), call.text("reduction", "none"))
    return call.out(call.reshaped(found, shape))


# Conditions and classes -----------------------------------------------------------------------------


@operator("OneHot")
def _one_hot(call: Call) -> Tensor:
    m, rank = call.m, call.rank(0)
    depth = call.known(1, "the depth").reshape(-1)
    axis = call.along(call.integer("axis", -1), rank + 1)
    count = int(depth[0])
    indices = call.value(0)
    indices = m.cast(indices, "i64") if indices.dtype != _I64 else indices
    indices = m.where(m.lt(indices, np.int64(0)), indices + np.int64(count), indices)
    shape = list(call.shape(0))
    spread = call.reshaped(indices, [*shape[:axis], 1, *shape[axis:]])
    hit = m.eq(spread, call.iota([count, *[1] * (rank - axis)], 0))
    values = call.value(2)
    off, on = (call.reshaped(m.narrow(values, 0, number, 1), []) for number in range(2))
    return call.out(m.where(hit, on, off))


@operator("Compress")
def _compress(call: Call) -> Tensor:
    chosen = np.flatnonzero(call.known(1, "the condition"))
    axis = call.maybe_int("axis")
    x = call.value(0)
    if axis is None:
        x, axis = call.reshaped(x, [product(call.shape(0))]), 0
    axis = call.along(axis, x.ndim)
    return call.out(call.m.gather(x, chosen.astype(np.int64), axis))


@operator("NonZero")
def _non_zero(call: Call) -> Tensor:
    found = np.nonzero(call.known(0, "which elements are 0"))
    return Tensor.of(np.array(found, np.int64).reshape(len(found), -1))


@operator("TensorScatter")
def _tensor_scatter(call: Call) -> Tensor:
    m, rank = call.m, call.rank(0)
    if call.choice("mode", "linear", ("linear", "circular")) == "circular":
        raise Refused("'mode' is 'circular'")
    axis = call.axis(-2, rank)
    if not call.has(2):
        return call.out(m.dynamic_update_slice(call.value(0), call.value(1), 0, axis))
    cache, update = call.value(0), call.value(1)
    places = call.iota(call.shape(0), axis)
    starts = call.narrowed(call.value(2), _I64)
    starts = call.reshaped(starts, [*Tensor.running(starts).shape, *[1] * (rank - 1)])
    length = call.shape(1)[axis]
    end = call.importer.size(length)
    offset = m.sub(places, starts)
    inside = m.ge(offset, np.int64(0)) & m.lt(offset, end)
    return call.out(m.where(inside, indexing.picked(m, update, offset, axis), cache))
