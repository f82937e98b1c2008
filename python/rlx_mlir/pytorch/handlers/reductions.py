# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operators that combine elements along dimensions."""

from __future__ import annotations

from collections.abc import Sequence

from rlx_mlir.frontends import positions
from rlx_mlir.hir.values import Value
from rlx_mlir.mir.dims import product
from rlx_mlir.pytorch.graph import Axes, Handler, Importer, Results, handles, size_of


def _axes(x: Value, dims: Axes) -> list[int]:
    """The dimensions that are named, all of them for none."""
    if dims is None or (isinstance(dims, Sequence) and not dims):
        return list(range(x.ndim))
    listed = dims if isinstance(dims, Sequence) else [dims]
    return [dim % x.ndim if x.ndim else 0 for dim in listed]


def _reduced(im: Importer, kind: str, x: Value, dims: Axes, keep: bool) -> Value:
    if not x.ndim:
        return x
    return im.m.reduce(x, kind, _axes(x, dims), keep_dims=keep)


def _reduction(kind: str) -> Handler:
    def build(im: Importer, x: Value, dims: Axes = None, keepdim: bool = False, **_: object) -> Value:
        dtype = "i1" if kind in ("any", "all") else im.dtype()
        return _reduced(im, kind, im.cast(x, dtype), dims, keepdim)

    return build


for _kind, _names in {
    "sum": ("aten.sum.default", "aten.sum.dim_IntList"),
    "mean": ("aten.mean.default", "aten.mean.dim"),
    "max": ("aten.amax.default", "aten.max.default"),
    "min": ("aten.amin.default", "aten.min.default"),
    "prod": ("aten.prod.default", "aten.prod.dim_int"),
    "any": ("aten.any.default", "aten.any.dim", "aten.any.dims"),
    "all": ("aten.all.default", "aten.all.dim", "aten.all.dims"),
}.items():
    handles(*_names)(_reduction(_kind))


@handles("aten.var.correction", "aten.var.dim")
def var(
    im: Importer, x: Value, dims: Axes = None, correction: float | None = None, keepdim: bool = False, **_: object
) -> Value:
    """The mean of squared differences from the mean, with a count that is smaller by a correction (1)."""
    axes = _axes(x, dims)
    lessened = 1 if correction is None else int(correction)
    centred = x - im.m.mean(x, axes, keep_dims=True)
    total = im.m.sum(centred * centred, axes, keep_dims=keepdim)
    count = product(size_of(x.shape[axis]) for axis in axes)
    if count.constant is not None:
        return total * (1.0 / max(count.constant - lessened, 1))
    return total / (positions.first(im.m, count, 0, im.dtype()) - float(lessened))


@handles("aten.var_mean.correction")
def var_mean(
    im: Importer, x: Value, dims: Axes = None, *, correction: float | None = None, keepdim: bool = False
) -> Results:
    """Variance and mean."""
    return var(im, x, dims, correction, keepdim), im.m.mean(x, _axes(x, dims), keep_dims=keepdim)


@handles("aten.max.dim", "aten.min.dim")
def extreme(im: Importer, x: Value, dim: int, keepdim: bool = False) -> tuple[Value, Value]:
    """The largest, or smallest, elements along a dimension, and where the first of each is."""
    largest = "max" in str(im.node.target)
    values = im.m.reduce(x, "max" if largest else "min", [dim % x.ndim], keep_dims=keepdim)
    return values, _place(im, x, dim, keepdim, largest=largest, dtype="i64")


@handles("aten.argmax.default", "aten.argmin.default")
def place(im: Importer, x: Value, dim: int | None = None, keepdim: bool = False) -> Value:
    """Where the first largest, or smallest, element along a dimension is."""
    if dim is None:
        x, dim = im.m.reshape(x, [-1]), 0
    return im.reshaped(_place(im, x, dim, keepdim, largest="argmax" in str(im.node.target), dtype=im.dtype()))


def _place(im: Importer, x: Value, dim: int, keepdim: bool, *, largest: bool, dtype: str) -> Value:
    """The smallest index whose element is the extreme one; NaN counts as such."""
    m, axis = im.m, dim % x.ndim
    best = m.reduce(x, "max" if largest else "min", [axis], keep_dims=True)
    found = m.eq(x, best)
    if x.dtype.kind not in "iub":
        found = m.bitwise_or(found, m.ne(x, x))
    end = positions.first(m, size_of(x.shape[axis]), 0, "i64")
    return im.cast(m.min(m.where(found, im.counter(x.shape, axis), end), [axis], keep_dims=keepdim), dtype)


@handles("aten.cumsum.default")
def cumsum(im: Importer, x: Value, dim: int, **_: object) -> Value:
    """Running sums; of truths, how many."""
    own = im.cast(x, im.dtype())
    return im.m.cumsum(own, dim % x.ndim) if x.ndim else own


@handles("aten._softmax.default", "aten.softmax.int", "aten._safe_softmax.default")
def softmax(im: Importer, x: Value, dim: int, *rest: object, **_: object) -> Value:
    """exp(x) / sum(exp(x)) along a dimension; the safe one is zeros where all is -inf."""
    own = im.cast(x, im.dtype())
    found = im.m.softmax(own, dim % x.ndim)
    if "_safe_softmax" not in str(im.node.target):
        return found
    lowest = im.number(float("-inf"), im.dtype())
    hidden = im.m.eq(im.m.max(own, [dim % x.ndim], keep_dims=True), lowest)
    return im.m.where(hidden, im.number(0, im.dtype()), found)


@handles("aten._log_softmax.default", "aten.log_softmax.int")
def log_softmax(im: Importer, x: Value, dim: int, *_: object) -> Value:
    """x - max - log(sum(exp(x - max)))"""
    own, axis = im.cast(x, im.dtype()), dim % x.ndim
    centred = own - im.m.max(own, [axis], keep_dims=True)
    return centred - im.m.log(im.m.sum(im.m.exp(centred), [axis], keep_dims=True))


@handles("aten.linalg_vector_norm.default")
def vector_norm(
    im: Importer, x: Value, order: float = 2, dims: Axes = None, keepdim: bool = False, **_: object
) -> Value:
    """sum(|x|^p)^(1 / p); for p = 0 how many aren't 0, for infinities the largest and the smallest magnitude."""
    own = im.cast(x, im.dtype())
    if order == 2:
        return im.m.sqrt(_reduced(im, "sum", own * own, dims, keepdim))
    size = im.m.abs(own)
    if order in (float("inf"), float("-inf")):
        return _reduced(im, "max" if order > 0 else "min", size, dims, keepdim)
    if order == 0:
        return _reduced(im, "sum", im.cast(im.m.ne(size, 0.0), im.dtype()), dims, keepdim)
    if order == 1:
        return _reduced(im, "sum", size, dims, keepdim)
    return im.m.pow(_reduced(im, "sum", im.m.pow(size, float(order)), dims, keepdim), 1.0 / float(order))
