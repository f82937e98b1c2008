# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Factors of matrices, in the words of the builders: what readers of graphs share.

Matrices are [B, M, N] of f32 or f64 with known M and N. Loops go over columns, or over rounds of rotations, so that
modules don't grow with the sizes; a step costs M N operations for each matrix. A matrix that has no such factors gives
NaN.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rlx_mlir.errors import UnsupportedError
from rlx_mlir.hir import GraphModule, Value
from rlx_mlir.hir.values import ValueOrTuple

__all__ = ["cholesky", "determinant", "eigh", "log_determinant", "qr", "svd"]

#: Sweeps of rotations, at most. They converge quadratically: few matrices need ten.
SWEEPS = 30


def _sizes(a: Value) -> tuple[int, int]:
    """M and N; UnsupportedError where they aren't known or 0."""
    rows, columns = a.shape[-2:]
    if not isinstance(rows, int) or not isinstance(columns, int) or not rows * columns:
        raise UnsupportedError(f"factors of matrices of {rows} x {columns} elements: both sizes are known, and not 0")
    return rows, columns


def _number(m: GraphModule, like: Value, value: float) -> Value:
    return m.constant(np.asarray(value, like.dtype))


def _places(m: GraphModule, count: int | str) -> Value:
    return m.iota([count], 0, "i32")


def _column(m: GraphModule, a: Value, at: Value) -> Value:
    """Column `at` of each matrix, [B, M]."""
    return m.reshape(m.gather(a, m.reshape(at, [1]), 2), list(a.shape[:2]))


def _outer(m: GraphModule, x: Value, y: Value) -> Value:
    """x [B, M] times y [B, N], element by element: [B, M, N]."""
    return m.mul(m.reshape(x, [*x.shape, 1]), m.reshape(y, [y.shape[0], 1, y.shape[1]]))


def _picked(m: GraphModule, x: Value, which: Value) -> Value:
    """The one element along the last dimension that a condition holds for, [.., 1]."""
    return m.sum(m.where(which, x, _number(m, x, 0)), [x.ndim - 1], keep_dims=True)


def _diagonal(m: GraphModule, rows: int | str, columns: int | str) -> Value:
    """The condition of elements on the diagonal, [1, rows, columns]."""
    return m.eq(m.iota([1, rows, 1], 1, "i32"), m.iota([1, 1, columns], 2, "i32"))


def _identity(m: GraphModule, a: Value, rows: int, columns: int) -> Value:
    """Matrices with ones on the diagonal, [B, rows, columns], as many as `a` has, and of its type."""
    one = m.cast(_diagonal(m, rows, columns), a.dtype)
    return m.expand(one, [a.shape[0], rows, columns])


# Triangles -------------------------------------------------------------------------------------------


def cholesky(m: GraphModule, a: Value) -> Value:
    """The L, of zeros above the diagonal, for which L L^T is a, of which what is above the diagonal isn't read.

    Column by column, each is taken from what is left: A - l l^T.
    """
    places = _places(m, _sizes(a)[0])

    def step(rest: Value, at: Value) -> tuple[Value, Value]:
        column = _column(m, rest, at)
        root = m.sqrt(_picked(m, column, m.eq(places, at)))
        own = m.where(m.ge(places, at), m.div(column, root), _number(m, a, 0))
        return m.sub(rest, _outer(m, own, own)), own

    _, columns = m.scan(step, a, places)
    return m.transpose(columns, [1, 2, 0])


def _eliminated(m: GraphModule, a: Value) -> tuple[Value, Value]:
    """The sign of the rows' order, [B], and the pivots, [N, B], of an elimination of square matrices.

    A row stays where it is once its pivot was taken; how many rows before it are left says how the order changes.
    """
    places = _places(m, _sizes(a)[0])
    one, none = _number(m, a, 1), _number(m, a, 0)

    def step(rest: Value, left: Value, sign: Value, at: Value) -> tuple[tuple[Value, ...], Value]:
        column = _column(m, rest, at)
        sizes = m.where(m.gt(left, none), m.abs(column), _number(m, a, -1))
        chosen = m.top_k(sizes, 1)[1]
        row = m.reshape(m.gather(rest, chosen, 1, batch_dims=1), list(column.shape))
        pivot = _picked(m, row, m.eq(places, at))
        before = m.sum(m.where(m.lt(places, chosen), left, none), [1])
        sign = m.where(m.eq(m.floor_rem(m.cast(before, "i32"), 2), 0), sign, -sign)
        left = m.where(m.eq(places, chosen), none, left)
        factors = m.where(m.eq(pivot, none), none, m.div(m.mul(column, left), m.where(m.eq(pivot, none), one, pivot)))
        return (m.sub(rest, _outer(m, factors, row)), left, sign), m.reshape(pivot, [-1])

    ones = m.expand(m.reshape(one, [1, 1]), list(a.shape[:2]))
    (_, _, sign), pivots = m.scan(step, (a, ones, m.reshape(m.narrow(ones, 1, 0, 1), [-1])), places)
    return sign, pivots


def determinant(m: GraphModule, a: Value) -> Value:
    """Determinants of square matrices, [B]."""
    sign, pivots = _eliminated(m, a)
    return m.mul(sign, m.reduce(pivots, "prod", [0]))


def log_determinant(m: GraphModule, a: Value) -> tuple[Value, Value]:
    """Signs of determinants, 0 of singular matrices, and logarithms of their absolute values, [B] both."""
    sign, pivots = _eliminated(m, a)
    signs = m.where(m.lt(pivots, 0.0), _number(m, a, -1), m.where(m.gt(pivots, 0.0), _number(m, a, 1), pivots))
    return m.mul(sign, m.reduce(signs, "prod", [0])), m.sum(m.log(m.abs(pivots)), [0])


def qr(m: GraphModule, a: Value, *, complete: bool = False) -> tuple[Value, Value]:
    """Q of orthonormal columns, and R of zeros below the diagonal, whose product is a: by Householder's reflections.

    Args:
        complete: Q is [B, M, M]; otherwise it has as many columns as a has rows or columns, whichever are fewer.
    """
    height, width = _sizes(a)
    places, none = _places(m, height), _number(m, a, 0)
    count = min(height, width)

    def reflected(x: Value, v: Value, scaled: Value) -> Value:
        """x - scaled (v^T x)"""
        along = m.sum(m.mul(x, m.reshape(v, [*v.shape, 1])), [1])
        return m.sub(x, _outer(m, scaled, along))

    def step(rest: Value, at: Value) -> tuple[Value, tuple[Value, Value]]:
        column = _column(m, rest, at)
        own = _picked(m, column, m.eq(places, at))
        below = m.where(m.gt(places, at), column, none)
        squares = m.sum(m.mul(below, below), [1], keep_dims=True)
        norm = m.sqrt(m.add(m.mul(own, own), squares))
        first = m.add(own, m.where(m.lt(own, none), -norm, norm))
        v = m.where(m.eq(places, at), first, below)
        flat = m.eq(squares, none)  # such a column stays as it is
        whole = m.where(flat, _number(m, a, 1), m.add(m.mul(first, first), squares))
        scaled = m.div(m.mul(v, m.where(flat, none, _number(m, a, 2))), whole)
        return reflected(rest, v, scaled), (v, scaled)

    rest, reflections = m.scan(step, a, _places(m, count))

    def back(q: Value, v: Value, scaled: Value) -> tuple[Value, None]:
        return reflected(q, v, scaled), None

    size = height if complete else count
    q, _ = m.scan(back, _identity(m, a, height, size), reflections, reverse=True)
    upper = m.le(m.iota([1, size, 1], 1, "i32"), m.iota([1, 1, width], 2, "i32"))
    return q, m.where(upper, m.narrow(rest, 1, 0, size), none)


# Rotations -------------------------------------------------------------------------------------------


def _partners(m: GraphModule, count: int, turn: Value) -> Value:
    """With whom each of `count` meets in a turn, from 0, of a tournament, [count]; itself where with none.

    With q one less than the next even number, i meets turn - i modulo q; who would meet itself meets q.
    """
    q = count - 1 + count % 2
    places = _places(m, count)
    other = m.floor_rem(m.sub(turn, places), q)
    other = m.where(m.eq(other, places), np.int32(q), other)
    alone = m.floor_rem(m.mul(turn, (q + 1) // 2), q)  # twice this is the turn, modulo q
    other = m.where(m.eq(places, q), alone, other)
    return m.where(m.ge(other, count), places, other)


class _Rotation:
    """Rotations of pairs of rows that make their products 0: of two that meet, x becomes c x - s y.

    Args:
        squares: products of rows with themselves, [B, N].
        products: of rows with those that they meet, [B, N]; 0 of one that meets none.
        partners: which those are, [N].
    """

    def __init__(self, m: GraphModule, squares: Value, products: Value, partners: Value) -> None:
        self._m, self._partners = m, partners
        one, none = _number(m, squares, 1), _number(m, squares, 0)
        others = m.gather(squares, partners, 1)
        flat = m.eq(products, none)
        slope = m.div(m.sub(others, squares), m.where(flat, one, m.add(products, products)))
        # Of two whose squares are equal, one turns to the left, and the other one to the right.
        leads = m.where(m.eq(slope, none), m.lt(_places(m, squares.shape[1]), partners), m.gt(slope, none))
        size = m.div(one, m.add(m.abs(slope), m.sqrt(m.add(m.mul(slope, slope), one))))
        tangent = m.where(flat, none, m.where(leads, size, -size))
        cosine = m.div(one, m.sqrt(m.add(m.mul(tangent, tangent), one)))
        self._cosine, self._sine = (m.reshape(x, [*x.shape, 1]) for x in (cosine, m.mul(cosine, tangent)))

    def __call__(self, rows: Value) -> Value:
        """Rows [B, N, K], turned."""
        m = self._m
        return m.sub(m.mul(self._cosine, rows), m.mul(self._sine, m.gather(rows, self._partners, 1)))


def _swept(
    m: GraphModule, turned: Callable[[Value, Value, Value], tuple[Value, Value, Value]], rows: Value, count: int
) -> tuple[Value, Value]:
    """Rows, and an identity, that rotations turn sweep by sweep, until a sweep finds nothing to do.

    Args:
        turned: of rows, those of the other matrix and the partners of a turn: both, and what was left to do, [].
        count: how many rows meet one another.
    """
    turns = _places(m, count - 1 + count % 2)

    def turn(a: Value, b: Value, worst: Value, at: Value) -> tuple[tuple[Value, ...], None]:
        a, b, own = turned(a, b, _partners(m, count, at))
        return (a, b, m.maximum(worst, own)), None

    def sweep(a: Value, b: Value, _: Value) -> ValueOrTuple:
        return m.scan(turn, (a, b, _number(m, rows, 0)), turns)[0]

    start = (rows, _identity(m, rows, count, count), _number(m, rows, 1))
    found = m.while_loop(lambda a, b, worst: m.gt(worst, _number(m, rows, 0)), sweep, start, limit=SWEEPS)
    return found[0], found[1]


def _epsilon(x: Value) -> float:
    return float(np.finfo(x.dtype).eps)


def _left(m: GraphModule, products: Value, first: Value, second: Value) -> Value:
    """Whether there are products [B, N] that count beside the roots of those of two values, as a number []."""
    small = _number(m, products, _epsilon(products) ** 2)
    counts = m.gt(m.mul(products, products), m.mul(small, m.mul(first, second)))
    return m.reduce(m.cast(counts, products.dtype), "max", [0, 1])


def eigh(m: GraphModule, a: Value) -> tuple[Value, Value]:
    """Eigenvalues [B, N] in ascending order, and eigenvectors as columns, of symmetric matrices, by Jacobi's rotations.

    What is above the diagonal isn't read.
    """
    size = _sizes(a)[0]
    none, diagonal = _number(m, a, 0), _diagonal(m, size, size)
    turned_over = [0, 2, 1]
    below = m.ge(m.iota([1, size, 1], 1, "i32"), m.iota([1, 1, size], 2, "i32"))
    whole = m.where(below, a, m.transpose(a, turned_over))
    places = _places(m, size)

    def turned(rows: Value, vectors: Value, partners: Value) -> tuple[Value, Value, Value]:
        meets = m.reshape(m.where(m.eq(partners, places), np.int32(-1), partners), [1, size, 1])
        pair = m.eq(m.iota([1, 1, size], 2, "i32"), meets)
        values, products = (m.sum(m.where(which, rows, none), [2]) for which in (diagonal, pair))
        rotation = _Rotation(m, values, products, partners)
        both = rotation(m.transpose(rotation(rows), turned_over))
        norm = m.sum(m.mul(values, values), [1], keep_dims=True)
        left = _left(m, products, norm, _number(m, a, 1))
        return m.where(pair, none, both), rotation(vectors), left

    rows, vectors = _swept(m, turned, whole, size)
    values, order = m.top_k(m.sum(m.where(diagonal, rows, none), [2]), size, smallest=True)
    return values, m.transpose(m.gather(vectors, order, 1, batch_dims=1), turned_over)


def svd(m: GraphModule, a: Value, *, complete: bool = False) -> tuple[Value, Value, Value]:
    """U, the singular values in descending order, [B, K], and V^T, by rotations of columns that make them orthogonal.

    Args:
        complete: U is [B, M, M] and V^T [B, N, N]; otherwise they have K columns and rows, as many as a has rows or
            columns, whichever are fewer.
    """
    height, width = _sizes(a)
    turned_over = [0, 2, 1]
    if height < width:
        u, values, v = svd(m, m.transpose(a, turned_over), complete=complete)
        return m.transpose(v, turned_over), values, m.transpose(u, turned_over)
    none, places = _number(m, a, 0), _places(m, width)

    def turned(rows: Value, vectors: Value, partners: Value) -> tuple[Value, Value, Value]:
        squares = m.sum(m.mul(rows, rows), [2])
        met = m.sum(m.mul(rows, m.gather(rows, partners, 1)), [2])
        products = m.where(m.eq(partners, places), none, met)
        rotation = _Rotation(m, squares, products, partners)
        # Columns that are rounding errors of the largest one count as that small.
        least = m.mul(m.reduce(squares, "max", [1], keep_dims=True), _number(m, a, _epsilon(a) ** 2))
        sides = m.maximum(squares, least)
        left = _left(m, m.div(products, _number(m, a, height**0.5)), sides, m.gather(sides, partners, 1))
        return rotation(rows), rotation(vectors), left

    rows, vectors = _swept(m, turned, m.transpose(a, turned_over), width)
    values, order = m.top_k(m.sqrt(m.sum(m.mul(rows, rows), [2])), width)
    rows, vectors = (m.gather(own, order, 1, batch_dims=1) for own in (rows, vectors))
    # Orthonormal, where columns are 0, too.
    u, r = qr(m, m.transpose(rows, turned_over), complete=complete)
    own = m.sum(m.where(_diagonal(m, r.shape[1], width), r, none), [2])
    return (
        m.mul(u, m.reshape(m.where(m.lt(own, none), _number(m, a, -1), _number(m, a, 1)), [-1, 1, r.shape[1]])),
        values,
        vectors,
    )
