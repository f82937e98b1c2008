# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operators that put elements in order, look for places in an order, or run along a dimension.

An order is found by `mir.top_k` of all elements along the last dimension. NaN is the largest.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from rlx_mlir.frontends import indexing
from rlx_mlir.hir.values import Value
from rlx_mlir.mir.dims import Size, floordiv, maximum
from rlx_mlir.pytorch.graph import Dimension, Importer, Results, Unhandled, handles, size_of, static


def _last(im: Importer, x: Value, dim: int) -> tuple[Value, Callable[[Value], Value]]:
    """x with a dimension at the end, and what puts it back."""
    if not x.ndim:
        return im.m.reshape(x, [1]), lambda y: im.m.reshape(y, [])
    return indexing.with_last(im.m, x, dim % x.ndim)


def _length(x: Value, dim: int) -> Size:
    """The size of a dimension; 1 of a number without dimensions."""
    return size_of(x.shape[dim]) if x.ndim else Size.of(1)


def _places(im: Importer, x: Value, count: Size, *, descending: bool) -> Value:
    """Places (i64) of the first elements along the last dimension, of equal ones the first before the others."""
    keys = im.cast(x, "ui8") if x.dtype.kind == "b" else x
    return im.m.cast(im.m.top_k(keys, count, smallest=not descending, nan_largest=True)[1], "i64")


def _ordered(im: Importer, x: Value, count: Size, dim: int, *, descending: bool) -> tuple[Value, Value]:
    turned, back = _last(im, x, dim)
    if _length(turned, -1).constant == 0:
        return x, im.m.cast(x, "i64")
    places = _places(im, turned, count, descending=descending)
    values = indexing.picked(im.m, turned, places, turned.ndim - 1)
    return back(values), back(places)


@handles("aten.sort.default")
def sort(im: Importer, x: Value, dim: int = -1, descending: bool = False) -> tuple[Value, Value]:
    """All elements along a dimension in order, and where they were; equal ones stay in order."""
    return _ordered(im, x, _length(x, dim), dim, descending=descending)


@handles("aten.sort.stable")
def sort_stable(
    im: Importer, x: Value, *, stable: bool | None = None, dim: int = -1, descending: bool = False
) -> tuple[Value, Value]:
    """See `sort`."""
    return sort(im, x, dim, descending)


@handles("aten.argsort.default", "aten.argsort.stable")
def argsort(im: Importer, x: Value, dim: int = -1, descending: bool = False, *, stable: bool = False) -> Value:
    """Where the elements along a dimension were, in order."""
    return sort(im, x, dim, descending)[1]


@handles("aten.topk.default")
def topk(im: Importer, x: Value, k: Dimension, dim: int = -1, largest: bool = True, sorted: bool = True) -> Results:
    """The largest, or smallest, elements along a dimension, and where they are."""
    return _ordered(im, x, Size.of(k), dim, descending=largest)


@handles("aten.median.dim", "aten.nanmedian.dim")
def median(im: Importer, x: Value, dim: int, keepdim: bool = False) -> tuple[Value, Value]:
    """The element in the middle, of two the smaller one, and where it is; NaN is the largest, or is left out."""
    m = im.m
    turned, size = _last(im, x, dim)[0], _length(x, dim)
    at: Size | Value = floordiv(maximum(size - 1, Size.of(0)), Size.of(2))
    if x.dtype.kind not in "iub":
        known = size.constant
        last = m.constant(np.int64(known - 1)) if known is not None else m.sub(m.dim(turned, -1, "i64"), np.int64(1))
        missing = m.sum(m.cast(m.ne(turned, turned), "i64"), [turned.ndim - 1], keep_dims=True)
        if "nanmedian" in str(im.node.target):
            at = m.maximum(m.floor_div(m.sub(last, missing), np.int64(2)), np.int64(0))
        else:
            at = m.where(m.gt(missing, np.int64(0)), last, m.floor_div(last, np.int64(2)))
    return _at(im, x, dim, at)


@handles("aten.kthvalue.default")
def kthvalue(im: Importer, x: Value, k: Dimension, dim: int = -1, keepdim: bool = False) -> tuple[Value, Value]:
    """The k-th smallest element, and where it is."""
    return _at(im, x, dim, Size.of(k) - 1)


def _at(im: Importer, x: Value, dim: int, at: Size | Value) -> tuple[Value, Value]:
    """The element that has a place in the order of a dimension, and where it is, in the shapes of the results."""
    m = im.m
    turned, back = _last(im, x, dim)
    places, last = _places(im, turned, _length(x, dim), descending=False), turned.ndim - 1
    if isinstance(at, Value):
        place = indexing.picked(m, places, at, last)
    elif at.constant is not None:
        place = m.narrow(places, last, at.constant, 1)
    else:
        place = m.slice(places, last, at, at + 1, length=1)
    value = indexing.picked(m, turned, place, last)
    shape = im.shape(im.node.meta["val"][0])
    return im.reshaped(back(value), shape), im.reshaped(back(place), shape)


@handles("aten.searchsorted.Tensor", "aten.bucketize.Tensor")
def searchsorted(im: Importer, first: Value, second: Value, **options: Any) -> Value:
    """How many of a sorted row are smaller than each number, or with `right` not larger."""
    m = im.m
    order, x = (second, first) if "bucketize" in str(im.node.target) else (first, second)
    if options.get("sorter") is not None:
        raise Unhandled("with an order beside the row")
    right = options.get("right", False) or options.get("side") == "right"
    word = im.promoted(*im.operand_meta(*im.node.args[:2]))
    order, x = im.cast(order, word), im.cast(x, word)
    return im.cast(indexing.places_in_order(m, order, x, right=right), im.dtype())


@handles("aten.histc.default")
def histc(im: Importer, x: Value, bins: Dimension = 100, min: float = 0, max: float = 0) -> Value:
    """How many elements are in each of some intervals of one length, the last of which has its upper end, too."""
    m, word, count = im.m, im.dtype(), static(bins, "the number of intervals")
    flat = m.reshape(x, [-1])
    low, high = im.number(min, word), im.number(max, word)
    if min == max:  # then they are those of the data, or around its only number
        if flat.shape[0] != 0:
            low, high = (m.reduce(flat, kind, [0]) for kind in ("min", "max"))
        same = m.eq(low, high)
        low, high = m.where(same, low - 1.0, low), m.where(same, high + 1.0, high)
    inside = m.ge(flat, low) & m.le(flat, high)
    place = m.cast((flat - low) * float(count) / (high - low), "i32")
    place = m.minimum(place, im.number(count - 1, "i32"))
    ones = im.expanded(m.reshape(im.number(1, word), [1]), flat.shape)
    return m.scatter_add(ones, m.where(inside, place, im.number(-1, "i32")), count)


# -- along a dimension -----------------------------------------------------------------------------------------------


def _running(im: Importer, x: Value, dim: int, step: Callable[[Value, Value], Value]) -> Value:
    """What a function makes of each element and of what it made of those before."""
    m = im.m
    if not x.ndim:
        return x
    axis = dim % x.ndim
    order = [axis, *(at for at in range(x.ndim) if at != axis)]
    rows = m.transpose(x, order)
    first = m.reshape(m.narrow(rows, 0, 0, 1), list(rows.shape[1:]))

    def one(total: Value, row: Value) -> tuple[Value, Value]:
        following = step(total, row)
        return following, following

    _, found = m.scan(one, first, m.slice(rows, 0, 1, None))
    whole = m.concat([m.reshape(first, [1, *rows.shape[1:]]), found], 0)
    return m.transpose(whole, [order.index(at) for at in range(x.ndim)])


@handles("aten.cumprod.default")
def cumprod(im: Importer, x: Value, dim: int, **_: object) -> Value:
    """Running products."""
    return im.reshaped(_running(im, im.cast(x, im.dtype()), dim, im.m.mul))


@handles("aten.cummax.default", "aten.cummin.default")
def cummax(im: Importer, x: Value, dim: int) -> Results:
    """Running extremes; where they are isn't there."""
    combine = im.m.maximum if "cummax" in str(im.node.target) else im.m.minimum
    return im.reshaped(_running(im, x, dim, combine), im.shape(im.node.meta["val"][0])), None


@handles("aten.logcumsumexp.default")
def logcumsumexp(im: Importer, x: Value, dim: int) -> Value:
    """Running logarithms of sums of exponentials."""
    m = im.m

    def step(total: Value, row: Value) -> Value:
        top = m.maximum(total, row)
        base = m.where(m.eq(m.abs(top), math.inf), 0.0, top)
        return base + m.log(m.exp(total - base) + m.exp(row - base))

    return im.reshaped(_running(im, x, dim, step))
