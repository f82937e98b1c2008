# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operators that move elements: shapes, slices, lookups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from rlx_mlir.frontends import positions
from rlx_mlir.hir.values import Value
from rlx_mlir.mir.dims import Size
from rlx_mlir.pytorch.graph import (
    Bound,
    Dimension,
    Importer,
    Lengths,
    Unhandled,
    element_count,
    handles,
    size_of,
    static,
)
from rlx_mlir.pytorch.handlers.known import is_whole


@handles(
    "aten.view.default",
    "aten._unsafe_view.default",
    "aten.reshape.default",
    "aten.flatten.using_ints",
    "aten.unflatten.int",
    "aten.unsqueeze.default",
    "aten.squeeze.dim",
    "aten.squeeze.dims",
    "aten.squeeze.default",
)
def reshape(im: Importer, x: Value, *_: object) -> Value:
    """The same elements in the shape of the result."""
    return im.reshaped(x)


@handles("aten.expand.default", "aten.broadcast_to.default")
def expand(im: Importer, x: Value, *_: object, **__: object) -> Value:
    """Repeated to the shape of the result."""
    return im.expanded(x)


@handles("aten.permute.default")
def permute(im: Importer, x: Value, order: Sequence[int]) -> Value:
    """Dimensions in another order."""
    return im.m.transpose(x, [dim % len(order) for dim in order])


@handles("aten.transpose.int")
def transpose(im: Importer, x: Value, first: int, second: int) -> Value:
    """Two dimensions changed for each other."""
    order = list(range(x.ndim))
    order[first], order[second] = order[second], order[first]
    return im.m.transpose(x, order)


@handles("aten.t.default", "aten.numpy_T.default")
def t(im: Importer, x: Value) -> Value:
    """A matrix with its dimensions changed for each other."""
    return im.m.transpose(x) if x.ndim > 1 else x


@handles("aten.slice.Tensor")
def slice(im: Importer, x: Value, dim: int = 0, start: Bound = None, end: Bound = None, step: Dimension = 1) -> Value:
    """Elements from one to before another; bounds outside are moved to the ends."""
    return _sliced(im, x, dim, start, end, static(step, "a step"), im.shape())


def _sliced(im: Importer, x: Value, dim: int, start: Bound, end: Bound, step: int, shape: Sequence[int | str]) -> Value:
    axis = dim % x.ndim
    begin = None if start is None or start == 0 or start == Size.of(0) else start
    stop = None if is_whole(end) else end
    if begin is None and step == 1 and (stop is None or x.shape[axis] == shape[axis]):
        return x
    wanted = shape[axis]
    length = wanted if isinstance(wanted, int) else None
    begin, stop = (_number(bound) for bound in (begin, stop))
    size, first = x.shape[axis], begin or 0
    if length is not None and step == 1 and isinstance(size, int) and isinstance(first, int):
        return im.m.narrow(x, axis, max(first + size, 0) if first < 0 else min(first, size), int(length))
    if isinstance(stop, int) and stop > 2**62:
        stop = None
    if size == 1:  # of bounds that calls decide: the exporter has seen that the element is taken, and broadcasts it
        length = 1
    return im.m.slice(x, axis, begin, stop, step, length=length)


_Position = TypeVar("_Position", Bound, Dimension)


def _number(bound: _Position) -> _Position | int:
    return bound.constant if isinstance(bound, Size) and bound.constant is not None else bound


@handles("aten.select.int")
def select(im: Importer, x: Value, dim: int, index: Dimension) -> Value:
    """One element along a dimension, which goes."""
    axis, at = dim % x.ndim, _number(index)
    size = x.shape[axis]
    if isinstance(at, int) and isinstance(size, int):
        one = im.m.narrow(x, axis, at % size, 1)
    elif isinstance(at, int):
        one = im.m.slice(x, axis, at, at + 1 or None, length=1)
    elif isinstance(at, Value):
        raise Unhandled("an index that is computed")
    else:
        one = im.m.slice(x, axis, at, at + 1, length=1)
    return im.reshaped(one)


@handles("aten.narrow.default")
def narrow(im: Importer, x: Value, dim: int, start: Dimension, length: Dimension) -> Value:
    """So many elements from one on."""
    return _sliced(im, x, dim, start, Size.of(start) + Size.of(length), 1, im.shape())


def _pieces(im: Importer, x: Value, dim: int) -> tuple[Value, ...]:
    """What a node splits x into, by the sizes of its results."""
    found, at = [], Size.of(0)
    for fake in im.node.meta["val"]:
        size = im.sizes(fake)[dim % x.ndim]
        found.append(_sliced(im, x, dim, at, at + size, 1, im.shape(fake)))
        at += size
    return tuple(found)


@handles("aten.split.Tensor", "aten.split_with_sizes.default", "aten.chunk.default")
def split(im: Importer, x: Value, sizes: Lengths, dim: int = 0) -> tuple[Value, ...]:
    """Parts along a dimension."""
    return _pieces(im, x, dim)


@handles("aten.unbind.int")
def unbind(im: Importer, x: Value, dim: int = 0) -> tuple[Value, ...]:
    """Each element along a dimension, which goes."""
    axis = dim % x.ndim
    fakes = im.node.meta["val"]
    return tuple(im.reshaped(im.m.narrow(x, axis, at, 1), im.shape(fake)) for at, fake in enumerate(fakes))


@handles("aten.cat.default")
def cat(im: Importer, values: Sequence[Value], dim: int = 0) -> Value:
    """One after the other along a dimension."""
    rank, dtype = len(im.shape()), im.dtype()
    kept = [im.cast(value, dtype) for value in values if value.ndim == rank and value.shape != (0,)]
    return kept[0] if len(kept) == 1 else im.m.concat(kept, dim % rank)


@handles("aten.stack.default")
def stack(im: Importer, values: Sequence[Value], dim: int = 0) -> Value:
    """One after the other along a new dimension."""
    shape, axis = im.shape(), dim % len(im.shape())
    one = [1 if at == axis else size for at, size in enumerate(shape)]
    return im.m.concat([im.m.reshape(im.cast(value, im.dtype()), one) for value in values], axis)


@handles("aten.repeat.default")
def repeat(im: Importer, x: Value, repeats: Sequence[Dimension]) -> Value:
    """The whole several times along each dimension."""
    times, shape = list(repeats), [1] * (len(repeats) - x.ndim) + list(x.shape)
    apart: list[int | str] = []
    wide: list[int | str] = []
    for count, size in zip(times, shape, strict=True):
        apart += [1, size]
        wide += [positions.words([Size.of(count)])[0], size]
    return im.reshaped(im.m.expand(im.m.reshape(x, apart), wide))


@handles("aten.flip.default")
def flip(im: Importer, x: Value, dims: Sequence[int]) -> Value:
    """Dimensions in the opposite order."""
    for dim in dims:
        x = im.m.slice(x, dim % x.ndim, None, None, -1)
    return x


@handles("aten.roll.default")
def roll(im: Importer, x: Value, shifts: Sequence[int], dims: Sequence[int] = ()) -> Value:
    """Elements moved along dimensions, those at the end to the front."""
    if len(dims) != len(shifts):
        raise Unhandled("without dimensions")
    for shift, dim in zip(shifts, dims, strict=True):
        size = x.shape[dim % x.ndim]
        at = -static(shift, "a shift") % static(size_of(size), "a rolled dimension")
        if at:
            parts = [im.m.slice(x, dim % x.ndim, at, None), im.m.slice(x, dim % x.ndim, None, at)]
            x = im.m.concat(parts, dim % x.ndim)
    return x


@handles("aten.slice_scatter.default")
def slice_scatter(
    im: Importer, x: Value, source: Value, dim: int = 0, start: Bound = None, end: Bound = None, step: Dimension = 1
) -> Value:
    """x with a slice replaced."""
    if static(step, "a step") != 1:
        raise Unhandled("a step")
    axis = dim % x.ndim
    before, after = [], []
    if start not in (None, 0, Size.of(0)):
        before = [im.m.slice(x, axis, None, _number(start))]
    if end is not None and not is_whole(end) and Size.of(end) != size_of(x.shape[axis]):
        after = [im.m.slice(x, axis, _number(end), None)]
    return im.m.concat([*before, source, *after], axis) if before or after else source


@handles("aten.select_scatter.default")
def select_scatter(im: Importer, x: Value, source: Value, dim: int, index: Dimension) -> Value:
    """x with one element along a dimension replaced."""
    axis = dim % x.ndim
    at = static(index, "an index") % static(size_of(x.shape[axis]), "an indexed dimension")
    one = im.m.reshape(source, [1 if own == axis else size for own, size in enumerate(x.shape)])
    parts = [im.m.slice(x, axis, None, at)] if at else []
    return im.m.concat([*parts, one, im.m.slice(x, axis, at + 1, None)], axis)


@handles("aten.as_strided.default")
def as_strided(
    im: Importer, x: Value, size: Sequence[Dimension], stride: Sequence[Dimension], offset: Bound = 0
) -> Value:
    """Where it gives the elements as they lie, the same in another shape."""
    count = element_count(im.shape())
    if offset in (None, 0) and count is not None and count == element_count(list(x.shape)):
        dense, expected = 1, []
        for own in reversed(im.shape()):
            expected.append(dense)
            dense *= int(own)
        if [static(own, "a stride") for own in stride] == expected[::-1]:
            return im.reshaped(x)
    raise Unhandled("strides of its own")
