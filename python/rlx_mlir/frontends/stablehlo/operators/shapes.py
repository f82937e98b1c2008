# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operations that move elements by rules of their shapes, and that repeat them or count."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rlx_mlir import ir
from rlx_mlir.frontends.tensors import plain
from rlx_mlir.hir import Value
from rlx_mlir.mir.dims import Size

from ..call import Call
from ..entries import Entry, Repeated, as_sizes, is_known, shape_of
from ..registry import Refused, operator
from . import known

_COUNTED = ("float32", "int32", "int64", "uint8", "uint16", "uint32")


@operator("iota")
def _iota(call: Call) -> Entry:
    return _counted(call, list(map(Size.of, call.result_shape())))


@operator("dynamic_iota")
def _dynamic_iota(call: Call) -> Entry:
    return _counted(call, call.sizes(0, "sizes"))


def _counted(call: Call, shape: Sequence[Size]) -> Entry:
    axis, dtype = call.integer("iota_dimension"), call.result_dtype()
    own = [size if at == axis else Size.of(1) for at, size in enumerate(shape)]
    for size in own:
        call.importer.carry(size)
    counted = call.m.iota(plain(own), axis, dtype if dtype.name in _COUNTED else "i64")
    return call.importer.spread(call.cast(counted, dtype), shape)


# Repeating ------------------------------------------------------------------------------------------


@operator("broadcast_in_dim")
def _broadcast_in_dim(call: Call) -> Entry:
    return _broadcast(call, tuple(map(Size.of, call.result_shape())))


@operator("dynamic_broadcast_in_dim")
def _dynamic_broadcast_in_dim(call: Call) -> Entry:
    return _broadcast(call, tuple(call.sizes(1, "sizes")))


def _broadcast(call: Call, shape: tuple[Size, ...]) -> Entry:
    entry, dims = call.operands[0], call.ints("broadcast_dimensions")
    if is_known(entry):
        found = known.broadcast(entry, shape, dims)
        if found is not None:
            return found
    x = call.importer.compact(entry)
    if not x.ndim:
        return call.importer.spread(x, shape)
    sizes = _aligned(shape_of(x), len(shape_of(entry)))
    x = call.reshaped(x, sizes)
    order = sorted(range(len(dims)), key=dims.__getitem__)
    x = call.transposed(x, order)
    first = min(dims)
    inner = [Size.of(1)] * (len(shape) - first)
    for at in order:
        inner[dims[at] - first] = sizes[at]
    return call.importer.spread(call.reshaped(x, inner), shape)


def _aligned(sizes: Sequence[Size], rank: int) -> list[Size]:
    """Sizes with such of 1 before them, as numpy broadcasts."""
    return [Size.of(1)] * (rank - len(sizes)) + list(sizes)


# The same elements in other shapes ------------------------------------------------------------------


@operator("reshape")
def _reshape(call: Call) -> Entry:
    shape = call.result_shape()
    if any(size < 0 for size in shape):
        raise Refused("a shape with dynamic sizes that no operand gives")
    return _reshaped(call, tuple(map(Size.of, shape)))


@operator("dynamic_reshape")
def _dynamic_reshape(call: Call) -> Entry:
    return _reshaped(call, tuple(call.sizes(1, "sizes")))


def _reshaped(call: Call, shape: tuple[Size, ...]) -> Entry:
    entry = call.operands[0]
    if is_known(entry):
        found = known.reshape(entry, shape)
        if found is not None:
            return found
    if isinstance(entry, Repeated):
        found_value = _reshaped_before(call, entry, shape)
        if found_value is not None:
            return found_value
    return call.reshaped(call.value(0), shape)


def _reshaped_before(call: Call, entry: Repeated, shape: tuple[Size, ...]) -> Entry | None:
    """A reshape that adds or takes dimensions of size 1 alone, before elements are repeated."""
    if not entry.value.ndim:
        return Repeated(entry.value, shape)
    own = _aligned(shape_of(entry.value), len(entry.shape))
    kept = [at for at, size in enumerate(entry.shape) if size.constant != 1]
    if [entry.shape[at] for at in kept] != [size for size in shape if size.constant != 1]:
        return None
    rest = iter(kept)
    inner = [Size.of(1) if size.constant == 1 else own[next(rest)] for size in shape]
    return call.importer.spread(call.reshaped(entry.value, inner), shape)


@operator("transpose")
def _transpose(call: Call) -> Entry:
    entry, order = call.operands[0], call.ints("permutation")
    x = call.importer.compact(entry)
    shape = tuple(shape_of(entry)[at] for at in order)
    if x.ndim:
        x = call.transposed(call.reshaped(x, _aligned(shape_of(x), len(order))), order)
    return call.importer.spread(x, shape)


@operator("reverse")
def _reverse(call: Call) -> Entry:
    x = call.value(0)
    for axis in call.ints("dimensions"):
        x = call.m.flip(x, axis)
    return x


@operator("concatenate")
def _concatenate(call: Call) -> Entry:
    axis = call.integer("dimension")
    values = [value for value in call.values() if value.shape[axis] != 0]
    if not values:
        return call.value(0)
    return call.m.concat(values, axis) if len(values) > 1 else values[0]


# Parts ----------------------------------------------------------------------------------------------


@operator("slice")
def _slice(call: Call) -> Entry:
    starts, limits = (list(map(Size.of, call.ints(name))) for name in ("start_indices", "limit_indices"))
    return _cut(call, starts, limits, call.ints("strides"))


@operator("real_dynamic_slice")
def _real_dynamic_slice(call: Call) -> Entry:
    if not is_known(call.operands[1]) and (lengths := _lengths(call)) is not None:
        begin = call.value(1)
        own = [call.m.reshape(call.m.narrow(begin, 0, axis, 1), []) for axis in range(len(lengths))]
        return _taken(call, call.value(0), own, lengths)
    starts, limits = call.sizes(1, "bounds"), call.sizes(2, "bounds")
    return _cut(call, starts, limits, call.known_ints(3, "steps"))


def _lengths(call: Call) -> list[Size] | None:
    """The sizes of a slice whose end is the sum of its begin, which is computed, and of these; None of another one."""
    begin, end = call.op.operands[1], call.op.operands[2]
    op = None if isinstance(end.owner, ir.Block) else end.owner.operation
    if op is None or op.name != "stablehlo.add" or any(step != 1 for step in call.known_ints(3, "steps")):
        return None
    for one, other in (op.operands, list(op.operands)[::-1]):
        entry = call.importer.find(other)
        if one == begin and entry is not None and is_known(entry):
            return as_sizes(entry)
    return None


def _cut(call: Call, starts: Sequence[Size], limits: Sequence[Size], steps: Sequence[int]) -> Entry:
    entry = call.operands[0]
    if known.is_placed(entry):
        return known.cut(entry, starts, limits, steps)  # type: ignore[arg-type]
    x, shape = call.importer.compact(entry), list(shape_of(entry))
    own = _aligned(shape_of(x), len(shape))
    for axis, (start, limit, step) in enumerate(zip(starts, limits, steps, strict=True)):
        if (start, limit, step) == (Size.of(0), shape[axis], 1):
            continue
        whole = shape[axis]
        shape[axis] = (limit - start + (step - 1)) // step
        if own[axis] != whole:  # repeated along it, as often as the result has it
            continue
        x = _part(call, x, axis - len(own) + x.ndim, (start, limit), step)
    return call.importer.spread(x, shape)


def _part(call: Call, x: Value, axis: int, bounds: tuple[Size, Size], step: int) -> Value:
    """Elements along one dimension."""
    first, last = (size.constant for size in bounds)
    if step == 1 and first is not None and last is not None:
        return call.m.narrow(x, axis, first, last - first)
    start, stop = plain(bounds)
    return call.m.slice(x, axis, start, stop, step)


@operator("pad")
def _pad(call: Call) -> Entry:
    low, high = call.ints("edge_padding_low"), call.ints("edge_padding_high")
    return _padded(call, low, high, call.ints("interior_padding"))


@operator("dynamic_pad")
def _dynamic_pad(call: Call) -> Entry:
    low, high, interior = (call.known_ints(number, "numbers of padding") for number in (2, 3, 4))
    return _padded(call, low, high, interior)


def _padded(call: Call, low: Sequence[int], high: Sequence[int], interior: Sequence[int]) -> Entry:
    if not any((*low, *high, *interior)):
        return call.operands[0]
    x, fill = call.values()
    for axis, (before, after, between) in enumerate(zip(low, high, interior, strict=True)):
        x = call.interleaved(x, axis, between, fill)
        x = call.padded(x, axis, before, after, fill)
    return x


# At computed places ---------------------------------------------------------------------------------


@operator("dynamic_slice")
def _dynamic_slice(call: Call) -> Entry:
    lengths, x = call.ints("slice_sizes"), call.value(0)
    return _taken(call, x, call.operands[1:], list(map(Size.of, lengths)))


def _taken(call: Call, x: Value, starts: Sequence[Entry], lengths: Sequence[Size]) -> Value:
    """Elements from computed places on, moved to where all of them are there."""
    m, shape = call.m, shape_of(x)
    for axis, (start, length, size) in enumerate(zip(starts, lengths, shape, strict=True)):
        if length == size:
            continue
        at = known_number(start)
        if at is not None and size.constant is not None and length.constant is not None:
            first = min(max(at, 0), size.constant - length.constant)
            x = m.narrow(x, axis, first, length.constant)
        else:
            x = m.dynamic_slice(x, _position(call, start), plain([length])[0], axis)
    return x


def known_number(entry: Entry) -> int | None:
    """The number that an entry without dimensions is; None where it isn't known."""
    found = as_sizes(entry) if is_known(entry) else None
    return found[0].constant if found else None


def _position(call: Call, entry: Entry) -> Value:
    """A position as `dynamic_slice` takes it."""
    value = call.importer.value(entry)
    return value if value.dtype in (np.int32, np.int64) else call.m.cast(value, "i64")


@operator("dynamic_update_slice")
def _dynamic_update_slice(call: Call) -> Entry:
    x, update = call.values(0, 2)
    own, wanted = shape_of(x), shape_of(update)
    partial = [axis for axis, (size, part) in enumerate(zip(own, wanted, strict=True)) if size != part]
    if not partial:
        return update
    return _updated(call, x, update, partial)


def _updated(call: Call, x: Value, update: Value, axes: Sequence[int]) -> Value:
    """x with an update in it: along the last axis in its part of x along the others, which then is in x."""
    m, axis = call.m, axes[0]
    start = _position(call, call.operands[2 + axis])
    if len(axes) == 1:
        return m.dynamic_update_slice(x, update, start, axis)
    part = m.dynamic_slice(x, start, plain([shape_of(update)[axis]])[0], axis)
    return m.dynamic_update_slice(x, _updated(call, part, update, axes[1:]), start, axis)


# The same values ------------------------------------------------------------------------------------


@operator("optimization_barrier")
def _barrier(call: Call) -> list[Entry]:
    return [entry if is_known(entry) else call.m.barrier(call.importer.value(entry)) for entry in call.operands]
