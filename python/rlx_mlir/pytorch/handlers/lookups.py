# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operators that choose elements by indices, or put elements where indices say."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rlx_mlir.dtypes import DTYPES
from rlx_mlir.frontends import indexing, windows
from rlx_mlir.frontends.windows import Windows
from rlx_mlir.hir.values import Value
from rlx_mlir.pytorch.graph import Dimension, Importer, Operand, Results, Unhandled, handles, size_of, static, whole


@handles("aten.embedding.default")
def embedding(im: Importer, table: Value, indices: Value, *_: object, **__: object) -> Value:
    """Rows of a table."""
    return im.m.gather(table, indices)


@handles("aten.index_select.default")
def index_select(im: Importer, x: Value, dim: int, indices: Value) -> Value:
    """Elements along a dimension."""
    return im.m.gather(x, counted(im, indices, x.shape[dim % x.ndim]), dim % x.ndim)


def counted(im: Importer, indices: Value, size: int | str) -> Value:
    """Indices from the front, of such that may count from the end."""
    word = im_word(indices)
    return im.m.where(im.m.lt(indices, im.scalar(0, word)), indices + im.scalar(size_of(size), word), indices)


def im_word(x: Value) -> str:
    """The word of a value's element type."""
    return next(word for word, dtype in DTYPES.items() if dtype == x.dtype)


@handles("aten.gather.default")
def gather(im: Importer, x: Value, dim: int, indices: Value, **_: object) -> Value:
    """x[..., indices[..., i, ...], ...]: other dimensions may be smaller than those of x, whose front is read."""
    if not x.ndim:
        return im.reshaped(im.expanded(im.m.reshape(x, [1] * indices.ndim)))
    axis = dim % x.ndim
    x = _front(im, x, list(indices.shape), axis)
    return indexing.picked(im.m, x, indices, axis)


def _front(im: Importer, x: Value, shape: Sequence[int | str], axis: int | None) -> Value:
    """x cut to a shape, but for one dimension."""
    for at, (own, wanted) in enumerate(zip(x.shape, shape, strict=True)):
        if at != axis and own != wanted:
            x = im.m.slice(x, at, 0, wanted if isinstance(wanted, int) else size_of(wanted))
    return x


def _places(im: Importer, x: Value, indices: Sequence[Value | None]) -> tuple[list[int], Value]:
    """The dimensions that are indexed, and places (i64, of the shape that indices broadcast to) in them as one."""
    given = [dim for dim, own in enumerate(indices) if own is not None]
    if any(own is not None and own.dtype.kind == "b" for own in indices):
        raise Unhandled("a mask as an index: its result has a size that depends on values")
    parts = [counted(im, im.cast(indices[dim], "i64"), x.shape[dim]) for dim in given]  # type: ignore[arg-type]
    return given, im.numbered(parts, [x.shape[dim] for dim in given])


def _follow(given: Sequence[int]) -> bool:
    """Whether dimensions are next to each other: what is indexed stays in their place, else it comes first."""
    return list(given) == list(range(given[0], given[-1] + 1))


@handles("aten.index.Tensor", "aten._unsafe_index.Tensor")
def index(im: Importer, x: Value, indices: Sequence[Value | None]) -> Value:
    """x at indices of some dimensions, which broadcast."""
    given, at = _places(im, x, indices)
    first = given[0]
    if not _follow(given):
        order = [*given, *(dim for dim in range(x.ndim) if dim not in given)]
        x, first = im.m.transpose(x, order), 0
    if len(given) > 1:
        end = first + len(given)
        x = im.m.reshape(x, [*x.shape[:first], whole(x.shape[first:end]), *x.shape[end:]])
    return im.expanded(im.m.gather(x, at, first))


@handles("aten.index_put.default", "aten._unsafe_index_put.default")
def index_put(
    im: Importer, x: Value, indices: Sequence[Value | None], values: Value, accumulate: bool = False
) -> Value:
    """x with entries replaced at indices, the last one of each place, or with entries added."""
    m = im.m
    masks = [own for own in indices if own is not None and own.dtype.kind == "b"]
    if len(masks) == 1 and len(indices) == 1 and not values.ndim and not accumulate:
        mask = m.reshape(masks[0], [*masks[0].shape, *[1] * (x.ndim - masks[0].ndim)])
        return im.expanded(m.where(mask, im.cast(values, im.dtype()), x))
    given, at = _places(im, x, indices)
    order = [*given, *(dim for dim in range(x.ndim) if dim not in given)]
    sizes, rest = ([x.shape[dim] for dim in own] for own in (given, order[len(given) :]))
    turned = m.reshape(m.transpose(x, order), [whole(sizes), *rest])
    first = given[0] if _follow(given) else 0  # where the dimensions of the indices are in the values
    values = im.expanded(im.cast(values, im.dtype()), [*rest[:first], *at.shape, *rest[first:]])
    places = list(range(first, first + at.ndim))
    values = m.transpose(values, [*places, *(dim for dim in range(values.ndim) if dim not in places)])
    flat, entries = m.reshape(at, [-1]), m.reshape(values, [-1, *rest])
    if accumulate:
        found = indexing.added(m, turned, flat, entries)
    else:
        found = indexing.replaced(m, turned, indexing.last_of_each(m, flat), entries)
    return m.transpose(m.reshape(found, [*sizes, *rest]), [order.index(dim) for dim in range(x.ndim)])


@handles("aten.masked_scatter.default")
def masked_scatter(im: Importer, x: Value, mask: Value, source: Value) -> Value:
    """x with the elements of a source, in their order, where the mask holds."""
    m, shape = im.m, im.shape()
    hit, x = im.expanded(mask, shape), im.expanded(x, shape)
    counted = m.cumsum(m.reshape(m.cast(hit, "i64"), [whole(shape)]), 0)
    places = m.sub(counted, np.int64(1))  # before the first one -1, which reads what isn't wanted
    taken = m.gather(m.reshape(source, [whole(source.shape)]), places, 0)
    return m.where(hit, m.reshape(taken, shape), x)


@handles("aten.index_add.default")
def index_add(im: Importer, x: Value, dim: int, indices: Value, source: Value, *, alpha: Operand = 1) -> Value:
    """x with entries added along a dimension."""
    axis = dim % x.ndim
    source = source if alpha == 1 else source * im.scalar(alpha, im.dtype())
    return x + im.m.scatter_add(source, counted(im, indices, x.shape[axis]), x, axis)


@handles("aten.index_copy.default")
def index_copy(im: Importer, x: Value, dim: int, indices: Value, source: Value) -> Value:
    """x with entries replaced along a dimension."""
    axis = dim % x.ndim
    order = [axis, *(at for at in range(x.ndim) if at != axis)]
    places = indexing.last_of_each(im.m, counted(im, im.cast(indices, "i64"), x.shape[axis]))
    found = indexing.replaced(im.m, im.m.transpose(x, order), places, im.m.transpose(source, order))
    return im.m.transpose(found, [order.index(at) for at in range(x.ndim)])


@handles("aten.scatter.value", "aten.scatter.src", "aten.scatter_add.default", "aten.scatter_reduce.two")
def scatter(
    im: Importer,
    x: Value,
    dim: int,
    indices: Value,
    source: Operand,
    reduce: str = "",
    *,
    include_self: bool = True,
) -> Value:
    """x[..., indices[..., i, ...], ...] replaced by, or combined with, source[..., i, ...]: the last of each place."""
    m, axis = im.m, dim % max(x.ndim, 1)
    kind = {"": "", "sum": "add", "prod": "mul", "amax": "max", "amin": "min", "mean": "mean"}[reduce]
    kind = "add" if "scatter_add" in str(im.node.target) else kind
    if kind not in ("", "add") and (not include_self or kind == "mean"):
        raise Unhandled("without the elements that are there, or their mean")
    own = im.scalar(source, im.dtype()) if not isinstance(source, Value) else source
    shape = list(indices.shape)
    own = im.expanded(own, shape) if not own.ndim else _front(im, own, shape, None)
    if (
        kind == ""
        and shape[axis] == 1
        and [*shape[:axis], *shape[axis + 1 :]] == [*x.shape[:axis], *x.shape[axis + 1 :]]
    ):
        return m.where(m.eq(im.counter(x.shape, axis), im.cast(indices, "i64")), own, x)
    places = counted(im, im.cast(indices, "i64"), x.shape[axis])
    if kind == "":
        rows, back = indexing.with_last(m, places, axis)
        places = back(indexing.last_of_each(m, rows))
    parts = [places if number == axis else im.counter(shape, number) for number in range(x.ndim)]
    at = im.numbered(parts, x.shape)
    at = m.where(m.lt(places, np.int64(0)), np.int64(-1), at)  # -1 is none in the whole, too
    flat, at, own = (m.reshape(each, [-1]) for each in (x, im.expanded(at, shape), own))
    if kind == "":
        return im.reshaped(indexing.replaced(m, flat, at, own))
    if kind == "add":
        return im.reshaped(indexing.added(m, flat, at, own))
    return im.reshaped(indexing.reduced(m, flat, at, own, kind))


@handles("aten._embedding_bag.default", "aten._embedding_bag_forward_only.default")
def embedding_bag(
    im: Importer,
    table: Value,
    indices: Value,
    offsets: Value,
    scale_by_count: bool = False,
    mode: int = 0,
    sparse: bool = False,
    weights: Value | None = None,
    include_last_offset: bool = False,
    padding: int = -1,
) -> Results:
    """Rows of a table, summed (mode 0) or averaged (1) over bags, which begin at offsets."""
    m = im.m
    if mode == 2 or include_last_offset or padding != -1:
        raise Unhandled("the largest of a bag, an offset for the end, or an index that pads")
    rows = m.gather(table, indices)
    if weights is not None:
        rows = rows * m.reshape(weights, [-1, 1])
    number = im.iota([indices.shape[0], 1], 0, "i64")
    begun = m.le(m.reshape(im.cast(offsets, "i64"), [1, -1]), number)
    bag = m.sum(m.cast(begun, "i64"), [1]) - np.int64(1)
    size = offsets if isinstance(offsets.shape[0], str) else offsets.shape[0]
    bags = m.scatter_add(rows, bag, size, 0)
    if mode == 1:
        ones = m.cast(m.eq(bag, bag), im.dtype(im.node.meta["val"][0]))
        bags = bags / m.reshape(m.maximum(m.scatter_add(ones, bag, size, 0), 1.0), [-1, 1])
    return bags, None, None, None


@handles("aten.diagonal.default", "aten.diagonal_copy.default")
def diagonal(im: Importer, x: Value, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Value:
    """A diagonal of two dimensions, as the last one."""
    m, (first, second) = im.m, (dim1 % x.ndim, dim2 % x.ndim)
    order = [*(at for at in range(x.ndim) if at not in (first, second)), first, second]
    turned = m.transpose(x, order)
    length = im.shape()[-1]
    count = im.iota([length], 0)
    flat = im.numbered([count + np.int64(max(-offset, 0)), count + np.int64(max(offset, 0))], turned.shape[-2:])
    joined = m.reshape(turned, [*turned.shape[:-2], whole(turned.shape[-2:])])
    return im.reshaped(m.gather(joined, flat, joined.ndim - 1))


@handles("aten.unfold.default")
def unfold(im: Importer, x: Value, dim: int, size: int, step: int) -> Value:
    """Windows of a dimension, whose elements are the last dimension."""
    m, axis = im.m, dim % max(x.ndim, 1)
    places = im.iota([im.shape()[axis], 1], 0, "i64") * np.int64(step) + im.iota([1, size], 1, "i64")
    found = m.gather(x, places, axis)
    order = [*range(axis + 1), *range(axis + 2, found.ndim), axis + 1]
    return im.reshaped(m.transpose(found, order))


@handles("aten.col2im.default")
def col2im(
    im: Importer,
    x: Value,
    size: Sequence[Dimension],
    kernel: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> Value:
    """Windows [N, C kH kW, L] added up to the images [N, C, H, W] that they are of."""
    over = Windows(tuple(kernel), tuple(stride), tuple(dilation), tuple((own, own) for own in padding))
    image = [static(own, "the size of an image") for own in size]
    return im.reshaped(windows.added(im.m, x, over, image))
