# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operators that move elements: shapes, slices, lookups."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from rlx_mlir.dtypes import DTYPES
from rlx_mlir.frontends import positions
from rlx_mlir.hir.values import Value
from rlx_mlir.mir.dims import Size
from rlx_mlir.pytorch.graph import Importer, Unhandled, element_count, handles, static
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
def reshape(im: Importer, x: Value, *_: Any) -> Value:
    """The same elements in the shape of the result."""
    return im.reshaped(x)


@handles("aten.expand.default", "aten.broadcast_to.default")
def expand(im: Importer, x: Value, *_: Any, **__: Any) -> Value:
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
def slice(im: Importer, x: Value, dim: int = 0, start: Any = None, end: Any = None, step: Any = 1) -> Value:
    """Elements from one to before another; bounds outside are moved to the ends."""
    return _sliced(im, x, dim, start, end, static(step, "a step"), im.shape())


def _sliced(im: Importer, x: Value, dim: int, start: Any, end: Any, step: int, shape: Sequence[int | str]) -> Value:
    axis = dim % x.ndim
    begin = None if start is None or start == 0 or start == Size.of(0) else start
    stop = None if is_whole(end) else end
    if begin is None and step == 1 and (stop is None or x.shape[axis] == shape[axis]):
        return x
    wanted = shape[axis]
    length = wanted if isinstance(wanted, int) else None
    begin, stop = (_number(bound) for bound in (begin, stop))
    if length is not None and step == 1 and isinstance(x.shape[axis], int) and isinstance(begin or 0, int):
        size = int(x.shape[axis])
        first = begin or 0
        return im.m.narrow(x, axis, max(first + size, 0) if first < 0 else min(first, size), int(length))
    if isinstance(stop, int) and stop > 2**62:
        stop = None
    return im.m.slice(x, axis, begin, stop, step, length=length)


def _number(bound: Any) -> Any:
    return bound.constant if isinstance(bound, Size) and bound.constant is not None else bound


@handles("aten.select.int")
def select(im: Importer, x: Value, dim: int, index: Any) -> Value:
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
def narrow(im: Importer, x: Value, dim: int, start: Any, length: Any) -> Value:
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
def split(im: Importer, x: Value, sizes: Any, dim: int = 0) -> tuple[Value, ...]:
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
def repeat(im: Importer, x: Value, repeats: Sequence[Any]) -> Value:
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
        at = -static(shift, "a shift") % static(Size.parse(str(size)), "a rolled dimension")
        if at:
            parts = [im.m.slice(x, dim % x.ndim, at, None), im.m.slice(x, dim % x.ndim, None, at)]
            x = im.m.concat(parts, dim % x.ndim)
    return x


# -- lookups -----------------------------------------------------------------------------------------------------------


@handles("aten.embedding.default")
def embedding(im: Importer, table: Value, indices: Value, *_: Any, **__: Any) -> Value:
    """Rows of a table."""
    return im.m.gather(table, indices)


@handles("aten.index_select.default")
def index_select(im: Importer, x: Value, dim: int, indices: Value) -> Value:
    """Elements along a dimension."""
    return im.m.gather(x, _counted(im, indices, x.shape[dim % x.ndim]), dim % x.ndim)


def _counted(im: Importer, indices: Value, size: int | str) -> Value:
    """Indices from the front, of such that may count from the end."""
    zero = im.m.constant(indices.dtype.type(0))
    length: Any = size if isinstance(size, int) else positions.first(im.m, Size.parse(size), 0, im_word(indices))
    return im.m.where(im.m.lt(indices, zero), indices + length, indices)


def im_word(x: Value) -> str:
    """The word of a value's element type."""
    return next(word for word, dtype in DTYPES.items() if dtype == x.dtype)


@handles("aten.gather.default")
def gather(im: Importer, x: Value, dim: int, indices: Value, **_: Any) -> Value:
    """x[..., indices[..., i, ...], ...]: all dimensions but one are those of the indices."""
    axis = dim % x.ndim
    own, wanted = list(x.shape), list(indices.shape)
    if any(a != b for at, (a, b) in enumerate(zip(own, wanted, strict=True)) if at != axis):
        raise Unhandled(f"indices {wanted} of a tensor {own}")
    if axis == x.ndim - 1:
        return im.m.gather(x, indices, axis, batch_dims=axis)
    order = [at for at in range(x.ndim) if at != axis] + [axis]
    moved = im.m.gather(
        im.m.transpose(x, order), im.m.transpose(indices, order), axis=x.ndim - 1, batch_dims=x.ndim - 1
    )
    return im.m.transpose(moved, [order.index(at) for at in range(x.ndim)])


@handles("aten.index.Tensor", "aten._unsafe_index.Tensor")
def index(im: Importer, x: Value, indices: Sequence[Value | None]) -> Value:
    """x at indices of leading dimensions, or of some that follow each other, which broadcast."""
    m = im.m
    given = [dim for dim, own in enumerate(indices) if own is not None]
    if given != list(range(given[0], given[-1] + 1)):
        raise Unhandled("indices of dimensions that aren't next to each other")
    if indices[given[0]].dtype.kind == "b":  # type: ignore[union-attr]
        raise Unhandled("a mask as an index: its result has a size that depends on values")
    first, count = given[0], len(given)
    sizes = list(x.shape[first : first + count])
    at: Value | None = None
    for dim, size in zip(given, sizes, strict=True):
        own = _counted(im, im.cast(indices[dim], "i64"), size)  # type: ignore[arg-type]
        if at is not None:
            length: Any = size if isinstance(size, int) else positions.first(m, Size.parse(size), 0, "i64")
            at = at * length
        at = own if at is None else at + own
    assert at is not None
    if count > 1:
        flat = math.prod(sizes) if all(isinstance(size, int) for size in sizes) else -1
        x = m.reshape(x, [*x.shape[:first], flat, *x.shape[first + count :]])
    return im.expanded(m.gather(x, at, first))


@handles("aten.slice_scatter.default")
def slice_scatter(
    im: Importer, x: Value, source: Value, dim: int = 0, start: Any = None, end: Any = None, step: Any = 1
) -> Value:
    """x with a slice replaced."""
    if static(step, "a step") != 1:
        raise Unhandled("a step")
    axis = dim % x.ndim
    before, after = [], []
    if start not in (None, 0, Size.of(0)):
        before = [im.m.slice(x, axis, None, _number(start))]
    if not is_whole(end) and Size.of(end) != Size.parse(str(x.shape[axis])):
        after = [im.m.slice(x, axis, _number(end), None)]
    return im.m.concat([*before, source, *after], axis) if before or after else source


@handles("aten.select_scatter.default")
def select_scatter(im: Importer, x: Value, source: Value, dim: int, index: Any) -> Value:
    """x with one element along a dimension replaced."""
    axis = dim % x.ndim
    at = static(index, "an index") % static(Size.parse(str(x.shape[axis])), "an indexed dimension")
    one = im.m.reshape(source, [1 if own == axis else size for own, size in enumerate(x.shape)])
    parts = [im.m.slice(x, axis, None, at)] if at else []
    return im.m.concat([*parts, one, im.m.slice(x, axis, at + 1, None)], axis)


@handles("aten.constant_pad_nd.default", "aten.pad.default")
def pad(im: Importer, x: Value, widths: Sequence[Any], *rest: Any, **_: Any) -> Value:
    """x with a number around it, or with less at a border where a width is negative."""
    value = rest[-1] if rest and not isinstance(rest[-1], str) and rest[-1] is not None else 0.0
    if isinstance(rest[0] if rest else None, str) and rest[0] != "constant":
        raise Unhandled(f"padding by '{rest[0]}'")
    for number in range(len(widths) // 2):
        axis = x.ndim - 1 - number
        low, high = static(widths[2 * number], "padding"), static(widths[2 * number + 1], "padding")
        if low < 0 or high < 0:
            x = im.m.slice(x, axis, -low if low < 0 else None, high if high < 0 else None)
        parts = [_border(im, x, axis, low, value), x, _border(im, x, axis, high, value)]
        kept = [part for part in parts if part is not None]
        x = im.m.concat(kept, axis) if len(kept) > 1 else x
    return x


def _border(im: Importer, x: Value, axis: int, width: int, value: Any) -> Value | None:
    if width <= 0:
        return None
    shape = [width if at == axis else size for at, size in enumerate(x.shape)]
    return im.m.expand(im.m.reshape(im.scalar(value, im.dtype()), [1] * len(shape)), shape)


@handles("aten.as_strided.default")
def as_strided(im: Importer, x: Value, size: Any, stride: Any, offset: Any = 0) -> Value:
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


@handles("aten.scatter_add.default", "aten.index_add.default")
def index_add(im: Importer, x: Value, dim: int, indices: Value, source: Value, **options: Any) -> Value:
    """x with entries added along a dimension."""
    if "scatter" in str(im.node.target) or options.get("alpha", 1) != 1:
        raise Unhandled("")
    axis = dim % x.ndim
    return x + im.m.scatter_add(source, indices, x, axis)


@handles("aten.index_put.default", "aten._unsafe_index_put.default")
def index_put(im: Importer, x: Value, indices: Sequence[Any], values: Value, accumulate: bool = False) -> Value:
    """Entries of the first dimension added."""
    if not accumulate or len(indices) != 1:
        raise Unhandled("entries that are replaced at computed places")
    own = _counted(im, indices[0], x.shape[0])
    wanted = [*own.shape, *x.shape[1:]]
    return x + im.m.scatter_add(im.expanded(values, wanted), own, x, 0)


@handles("aten.scatter.value", "aten.scatter.src")
def scatter(im: Importer, x: Value, dim: int, indices: Value, source: Any, **_: Any) -> Value:
    """x with one element along a dimension replaced, where an index says."""
    m, axis = im.m, dim % x.ndim
    if indices.shape[axis] != 1 or any(
        a != b for at, (a, b) in enumerate(zip(x.shape, indices.shape, strict=True)) if at != axis
    ):
        raise Unhandled("of more than one element along the dimension")
    places = m.iota([size if at == axis else 1 for at, size in enumerate(x.shape)], axis, "i64")
    return m.where(m.eq(places, im.cast(indices, "i64")), im.scalar(source, im.dtype()), x)
