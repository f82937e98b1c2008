# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Systems of linear equations: elimination with partial pivoting."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from rlx_mlir import ir
from rlx_mlir.dialects import mir
from rlx_mlir.mir.cost import Cost, Sizes, cost
from rlx_mlir.mir.dims import Size
from rlx_mlir.mir.linalg import (
    Map,
    SizeLike,
    as_index,
    cast_shape,
    collapse,
    element_type,
    empty,
    extract_slice,
    filled,
    for_each,
    generic,
    plus,
    result_size,
    split_dims,
    update_slice,
)
from rlx_mlir.mir.registry import TO_LINALG, dim_rule, reference
from rlx_mlir.mir.scalars import Scalar, absolute, element, extract, index
from rlx_mlir.rewriting import Rewriter

# ----------------------------------------------------------------------------------------------------------------------
# References
# ----------------------------------------------------------------------------------------------------------------------


@reference(mir.DenseSolveOp)
def dense_solve(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The x for which a x = b; NaN where a pivot is 0."""
    return batched_dense_solve(a[None], b[None])[0]


@reference(mir.BatchedDenseSolveOp)
def batched_dense_solve(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The x for which a x = b, of each batch item; NaN where a pivot is 0."""
    batch, n = a.shape[:2]
    rows, x = a.copy(), b.reshape(batch, n, math.prod(b.shape[2:])).copy()
    for k in range(n):
        size = np.abs(rows[:, k:, k])
        pivot = k + np.argmax(np.where(np.isnan(size), -1, size), axis=1)
        for part in (rows, x):
            for item, other in enumerate(pivot):
                part[item, [k, other]] = part[item, [other, k]]
        divisor = np.where(rows[:, k, k] == 0, np.nan, rows[:, k, k])
        factors = rows[:, k + 1 :, k] / divisor[:, None]
        rows[:, k + 1 :, k + 1 :] -= factors[:, :, None] * rows[:, None, k, k + 1 :]
        x[:, k + 1 :] -= factors[:, :, None] * x[:, None, k]
        rows[:, k, k] = divisor
    for k in reversed(range(n)):
        x[:, k] /= rows[:, k, k, None]
        x[:, :k] -= rows[:, :k, k, None] * x[:, None, k]
    return x.reshape(b.shape)


# ----------------------------------------------------------------------------------------------------------------------
# Costs, dimensions
# ----------------------------------------------------------------------------------------------------------------------


@cost(mir.DenseSolveOp, mir.BatchedDenseSolveOp)
def solve_cost(op: ir.AnyOp, sizes: Sizes) -> Cost:
    """Of each system 2/3 n^3, and 2 n^2 for each right side."""
    n = sizes[op.a][-1]
    return Cost(2 * sizes.count(op.a) * n // 3 + 2 * n * sizes.count(op.b))


@dim_rule(mir.DenseSolveOp, mir.BatchedDenseSolveOp)
def solve_dims(op: ir.AnyOp, operands: Sequence[tuple[Size, ...]]) -> tuple[Size, ...]:
    """Those of `b`; batch and n may be known of `a`."""
    a, b = operands
    lead = len(a) - 2
    dims = []
    for at, size in enumerate(b):
        alike = (size, a[at], a[-1]) if at == lead else (size, a[at]) if at < lead else (size,)
        dims.append(next((own for own in alike if own.constant is not None), size))
    return tuple(dims)


# ----------------------------------------------------------------------------------------------------------------------
# Lowering to linalg
# ----------------------------------------------------------------------------------------------------------------------


@TO_LINALG.pattern(mir.DenseSolveOp)
def lower_dense_solve(op: ir.AnyOp, rewriter: Rewriter) -> None:
    """dense_solve(a, b) -> batched_dense_solve([a], [b])[0]"""
    n = result_size(op.result, 0, op.b, 0)
    right: list[SizeLike] = [result_size(op.result, 1, op.b, 1)] if op.b.type.rank == 2 else [1]
    groups = [[0, 1], [2]] if op.b.type.rank == 2 else [[0, 1, 2]]
    a, b = (split_dims(op.a, [[0, 1], [2]], [1, n, n]), split_dims(op.b, groups, [1, n, *right]))
    rewriter.replace(op, collapse(_solved(a, b, [1, n, *right]), groups))


@TO_LINALG.pattern(mir.BatchedDenseSolveOp)
def lower_batched_dense_solve(op: ir.AnyOp, rewriter: Rewriter) -> None:
    """batched_dense_solve(a, b) -> a loop of eliminations, one of substitutions"""
    batch, n = (result_size(op.result, dim, op.b, dim) for dim in range(2))
    right: list[SizeLike] = [result_size(op.result, 2, op.b, 2)] if op.b.type.rank == 3 else [1]
    groups = [[0], [1], [2]] if op.b.type.rank == 3 else [[0], [1, 2]]
    a, b = cast_shape(op.a, [batch, n, n]), split_dims(op.b, groups, [batch, n, *right])
    rewriter.replace(op, collapse(_solved(a, b, [batch, n, *right]), groups))


def _solved(a: ir.Value, b: ir.Value, sizes: Sequence[SizeLike]) -> ir.Value:
    """x [batch, n, right sides], of a [batch, n, n] and b."""
    batch, n, right = sizes
    if 0 in sizes:  # a slice of nothing may not start at the end
        return empty(sizes, element_type(b))
    whole = range(3)
    rows = generic(3, [(a, whole)], [(empty([batch, n, n], element_type(a)), whole)], lambda x, _: x)
    x = generic(3, [(b, whole)], [(empty(sizes, element_type(b)), whole)], lambda x, _: x)
    system = _System(element_type(a), batch, n, right)
    rows, x = for_each(0, plus(n, -1), [rows, x], system.eliminate)
    (x,) = for_each(0, n, [x], lambda t, x: [system.substitute(t, rows, x)])
    return x


class _System:
    """The steps of elimination and of substitution, of all batch items at once.

    Rows aren't exchanged in memory: a step writes the pivot's row where the pivot belongs, and takes the row that was
    there for the pivot's among those that it changes. Parts keep dimensions of size 1: where they were dropped, and
    others are 1, too, MLIR mistakes these for them.
    """

    def __init__(self, type: ir.Type, batch: SizeLike, n: SizeLike, right: SizeLike) -> None:
        self._type, self._batch, self._n, self._right = type, batch, n, right
        # Made outside of the loops, so that no step allocates.
        self._lines = {
            (name, is_right): empty([batch, right if is_right else n], type)
            for name in ("old", "new")
            for is_right in (False, True)
        }
        self._factors = empty([batch, n], type)

    def _divisor(self, pivot: Scalar) -> Scalar:
        """What is divided by: NaN for 0, so that all of x becomes NaN."""
        return pivot.compare("eq", 0).select(math.nan, pivot)

    def _pivot(self, k: ir.Value, left: SizeLike, rows: ir.Value) -> ir.Value:
        """How far below row k the pivot of each batch item is: the first of the largest; NaN isn't larger."""
        column = extract_slice(rows, [0, k, k], [self._batch, left, 1])
        start: list[tuple[ir.Value, Map]] = [
            (filled([self._batch], self._type, -1), [0]),
            (filled([self._batch], element("i64"), 0), [0]),
        ]

        def better(x: Scalar, best: Scalar, at: Scalar) -> tuple[Scalar, Scalar]:
            size = absolute(x)
            wins = size > best
            return wins.select(size, best), wins.select(index(1).to("i64"), at)

        return generic(2, [(column, [0, 1, None])], start, better, reduction=[1])[1]

    def _exchanged(
        self, k: ir.Value, at: ir.Value, part: ir.Value, *, is_right: bool
    ) -> tuple[ir.Value, ir.Value, ir.Value]:
        """(the row that was at k, the pivot's, the part with the pivot's at k)"""
        width = self._right if is_right else self._n
        old, new = (self._lines[name, is_right] for name in ("old", "new"))
        line = extract_slice(part, [0, k, 0], [self._batch, 1, width])
        old = generic(2, [(line, [0, None, 1])], [(old, [0, 1])], lambda x, _: x)

        def pick(at: Scalar, _: Scalar) -> Scalar:
            return extract(part, [index(0), Scalar(k) + at.to("index"), index(1)])

        new = generic(2, [(at, [0])], [(new, [0, 1])], pick)
        return old, new, self._written(new, part, k, width)

    def _written(self, line: ir.Value, part: ir.Value, k: ir.Value, width: SizeLike) -> ir.Value:
        """The part with a line [batch, width] as its row k."""
        return update_slice([(line, [0, 2])], part, [0, k, 0], [self._batch, 1, width], body=lambda x, _: x)

    def eliminate(self, k: ir.Value, rows: ir.Value, x: ir.Value) -> list[ir.Value]:
        """Step k: multiples of the pivot's row are taken from all rows below."""
        batch, below = self._batch, plus(k, 1)
        rest = (Scalar(as_index(self._n)) - Scalar(as_index(below))).value
        at = self._pivot(k, plus(rest, 1), rows)
        old, new, rows = self._exchanged(k, at, rows, is_right=False)
        old_x, new_x, x = self._exchanged(k, at, x, is_right=True)

        def is_moved(row: Scalar, at: Scalar) -> Scalar:
            return row.to("i64").compare("eq", at)

        column = extract_slice(rows, [0, 0, k], [batch, self._n, 1])
        head = [extract_slice(line, [0, k], [batch, 1]) for line in (old, new)]
        # Of all rows, also those above, which nothing reads: part of a tensor would be another one at each step.
        factors = generic(
            2,
            [(column, [0, 1, None]), (at, [0]), *((value, [0, None]) for value in head)],
            [(self._factors, [0, 1])],
            lambda own, at, old, pivot, _: is_moved(index(1) - Scalar(k), at).select(old, own) / self._divisor(pivot),
        )
        factors = extract_slice(factors, [0, below], [batch, rest])

        def changed(part: ir.Value, start: SizeLike, width: SizeLike, old: ir.Value, new: ir.Value) -> ir.Value:
            old, new = (extract_slice(line, [0, start], [batch, width]) for line in (old, new))
            inputs: list[tuple[ir.Value, Map]] = [(factors, [0, 1]), (at, [0]), (old, [0, 2]), (new, [0, 2])]
            return update_slice(
                inputs,
                part,
                [0, below, start],
                [batch, rest, width],
                body=lambda factor, at, old, new, own: is_moved(index(1) + 1, at).select(old, own) - factor * new,
            )

        return [changed(rows, below, rest, old, new), changed(x, 0, self._right, old_x, new_x)]

    def substitute(self, t: ir.Value, rows: ir.Value, x: ir.Value) -> ir.Value:
        """Step t: the unknown of row n - 1 - t, and what it takes from those of the rows above."""
        batch, right = self._batch, self._right
        k = (Scalar(as_index(self._n)) - Scalar(t) - 1).value
        own = extract_slice(x, [0, k, 0], [batch, 1, right])
        pivot = extract_slice(rows, [0, k, k], [batch, 1, 1])
        line = generic(
            2,
            [(own, [0, None, 1]), (pivot, [0, None, None])],
            [(self._lines["new", True], [0, 1])],
            lambda x, pivot, _: x / self._divisor(pivot),
        )
        x = self._written(line, x, k, right)
        column = extract_slice(rows, [0, 0, k], [batch, k, 1])
        return update_slice(
            [(column, [0, 1, None]), (line, [0, 2])],
            x,
            [0, 0, 0],
            [batch, k, right],
            body=lambda factor, found, own: own - factor * found,
        )
