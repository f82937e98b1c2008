# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operators of linear algebra: solves, factors of matrices, distances, products of three."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from rlx_mlir.frontends import factors
from rlx_mlir.hir.values import Value
from rlx_mlir.pytorch.graph import Importer, Results, Unhandled, handles, size_of, whole


def _solved(im: Importer, a: Value, b: Value) -> Value:
    """The X for which a X = b, of matrices [..., N, N] and [..., N, K]; NaN where a is singular."""
    m = im.m
    if a.ndim == 2 and b.ndim == 2:
        return m.dense_solve(a, b)
    leading = list(a.shape[:-2])
    b = im.expanded(b, [*leading, *b.shape[-2:]])
    flat = (m.reshape(each, [whole(leading), *each.shape[-2:]]) for each in (a, b))
    return m.reshape(m.batched_dense_solve(*flat), list(b.shape))


def _solution(im: Importer, a: Value, b: Value, left: bool) -> Value:
    if not left:
        raise Unhandled("X a = b")
    is_vector = b.ndim == 1 or (b.ndim == a.ndim - 1 and b.shape == a.shape[:-1])
    return _solved(im, a, im.m.reshape(b, [*b.shape, 1]) if is_vector else b)


@handles("aten.linalg_solve.default")
def solve(im: Importer, a: Value, b: Value, *, left: bool = True) -> Value:
    """The X for which a X = b; NaN where there is none, of which PyTorch makes an error."""
    return im.reshaped(_solution(im, a, b, left))


@handles("aten._linalg_solve_ex.default")
def solve_ex(im: Importer, a: Value, b: Value, *, left: bool = True, check_errors: bool = False) -> Results:
    """See `solve`; and a number that isn't 0 where there is none. Factors of a aren't there."""
    found = _solution(im, a, b, left)
    return im.reshaped(found, im.shape(im.node.meta["val"][0])), None, None, lambda: _missing(im, found)


def _missing(im: Importer, found: Value) -> Value:
    """1 for each matrix whose solution has NaN, else 0, i32."""
    return im.m.cast(im.m.any(im.m.ne(found, found), [found.ndim - 2, found.ndim - 1]), "i32")


def _inverse(im: Importer, a: Value) -> Value:
    m, size = im.m, a.shape[-1]
    rows, columns = im.iota([size, 1], 0, "i64"), im.iota([1, size], 1, "i64")
    return _solved(im, a, im.cast(m.eq(rows, columns), im.dtype(im.node.args[0].meta["val"])))


@handles("aten.linalg_inv.default", "aten.inverse.default")
def inverse(im: Importer, a: Value) -> Value:
    """The inverse; NaN where there is none, of which PyTorch makes an error."""
    return _inverse(im, a)


@handles("aten.linalg_inv_ex.default")
def inverse_ex(im: Importer, a: Value, *, check_errors: bool = False) -> Results:
    """The inverse, and a number that isn't 0 where there is none."""
    found = _inverse(im, a)
    return found, lambda: _missing(im, found)


# -- factors ----------------------------------------------------------------------------------------------------------


def _matrices(im: Importer, a: Value) -> tuple[Value, Callable[[Value], Value]]:
    """Matrices [..., M, N] as [B, M, N], and what gives a result [B, ...] the leading sizes."""
    leading = list(a.shape[:-2])
    if len(leading) == 1:
        return a, lambda y: y
    flat = im.m.reshape(a, [whole(leading), *a.shape[-2:]])
    return flat, lambda y: im.m.reshape(y, [*leading, *y.shape[1:]])


@handles("aten.linalg_cholesky.default")
def cholesky(im: Importer, a: Value, *, upper: bool = False) -> Value:
    """A triangle whose product with itself is a; NaN where there is none, of which PyTorch makes an error."""
    m = im.m
    flat, back = _matrices(im, a)
    found = factors.cholesky(m, m.transpose(flat, [0, 2, 1]) if upper else flat)
    return back(m.transpose(found, [0, 2, 1]) if upper else found)


@handles("aten.linalg_cholesky_ex.default")
def cholesky_ex(im: Importer, a: Value, *, upper: bool = False, check_errors: bool = False) -> Results:
    """See `cholesky`; and a number that isn't 0 where there is none."""
    found = cholesky(im, a, upper=upper)
    return found, lambda: _missing(im, found)


@handles("aten._linalg_det.default")
def determinant(im: Importer, a: Value) -> Results:
    """Determinants. Factors of a aren't there."""
    flat, back = _matrices(im, a)
    return back(factors.determinant(im.m, flat)), None, None


@handles("aten._linalg_slogdet.default")
def log_determinant(im: Importer, a: Value) -> Results:
    """Signs and logarithms of determinants. Factors of a aren't there."""
    flat, back = _matrices(im, a)
    sign, log = factors.log_determinant(im.m, flat)
    return back(sign), back(log), None, None


@handles("aten.linalg_qr.default")
def qr(im: Importer, a: Value, mode: str = "reduced") -> Results:
    """Q and R; Q is empty, and refused, in the mode `r`."""
    flat, back = _matrices(im, a)
    q, r = factors.qr(im.m, flat, complete=mode == "complete")
    return None if mode == "r" else back(q), back(r)


@handles("aten._linalg_eigh.default")
def eigh(im: Importer, a: Value, uplo: str = "L", compute_v: bool = True) -> Results:
    """Eigenvalues in ascending order, and eigenvectors, which may be of the other sign than PyTorch's."""
    flat, back = _matrices(im, a)
    if uplo == "U":
        flat = im.m.transpose(flat, [0, 2, 1])
    values, vectors = factors.eigh(im.m, flat)
    return back(values), back(vectors) if compute_v else None


@handles("aten._linalg_svd.default")
def svd(
    im: Importer, a: Value, full_matrices: bool = False, compute_uv: bool = True, *, driver: object = None
) -> Results:
    """U, singular values in descending order, and V^T; vectors may be of the other sign than PyTorch's."""
    flat, back = _matrices(im, a)
    found = factors.svd(im.m, flat, complete=full_matrices and compute_uv)
    u, values, v = (back(own) for own in found)
    return (u, values, v) if compute_uv else (None, values, None)


@handles("aten._trilinear.default")
def trilinear(
    im: Importer,
    x: Value,
    y: Value,
    z: Value,
    new_x: Sequence[int],
    new_y: Sequence[int],
    new_z: Sequence[int],
    summed: Sequence[int],
    unroll: int = 1,
) -> Value:
    """The sum over some dimensions of x y z, each with new dimensions of size 1."""
    parts = []
    for value, new in ((x, new_x), (y, new_y), (z, new_z)):
        shape = list(value.shape)
        for axis in sorted(new):
            shape.insert(axis, 1)
        parts.append(im.m.reshape(value, shape))
    return im.reshaped(im.m.sum(parts[0] * parts[1] * parts[2], sorted(summed)))


@handles("aten._cdist_forward.default")
def cdist(im: Importer, x: Value, y: Value, p: float, mode: int | None = None) -> Value:
    """Distances [..., P, R] of each of x [..., P, M] from each of y [..., R, M]: of differences, not by products."""
    rows, columns = ([*x.shape[:-1], 1, x.shape[-1]], [*y.shape[:-2], 1, *y.shape[-2:]])
    return _distance(im, im.m.reshape(x, rows) - im.m.reshape(y, columns), p)


@handles("aten._pdist_forward.default")
def pdist(im: Importer, x: Value, p: float = 2) -> Value:
    """Distances of each of x [N, M] from those behind it: [N (N - 1) / 2]."""
    size = x.shape[0]
    if not isinstance(size, int):
        raise Unhandled("of a symbolic number of points")
    first, second = (im.m.constant(own.astype(np.int64)) for own in np.triu_indices(size, 1))
    return _distance(im, im.m.gather(x, first) - im.m.gather(x, second), p)


def _distance(im: Importer, difference: Value, p: float) -> Value:
    """The p-norm along the last dimension."""
    m, size = im.m, im.m.abs(difference)
    if p == 2:
        return m.sqrt(m.sum(difference * difference, [-1]))
    if p == 0:
        return m.sum(im.cast(m.ne(size, 0.0), im.dtype()), [-1])
    if p in (1, math.inf):
        return m.reduce(size, "sum" if p == 1 else "max", [-1])
    return m.pow(m.sum(m.pow(size, float(p)), [-1]), 1.0 / float(p))


@handles("transformers.grouped_mm_fallback.default")
def grouped_mm(im: Importer, x: Value, weight: Value, ends: Value) -> Value:
    """Rows of x times the weight of their expert: those of an expert follow each other, up to where `ends` says.

    An operator of the library transformers, for mixtures of experts; rows behind the last end are 0.
    """
    m = im.m
    row = im.iota([x.shape[0], 1], 0, "i64")
    expert = m.sum(m.cast(m.ge(row, m.reshape(im.cast(ends, "i64"), [1, -1])), "i32"), [-1])
    found = m.grouped_matmul(x, weight, expert)
    known = m.reshape(m.lt(expert, im.scalar(size_of(weight.shape[0]), "i32")), [-1, 1])
    return m.where(known, found, im.number(0, im.dtype()))
