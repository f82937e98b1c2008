# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""f32 activations times dense f32 weights, [K, N] or [N, K], as they are: nothing is packed beforehand.

The tiled path copies the columns of a unit into scratch, side by side, and multiplies as panels do; few rows (static M
of at most 4) read the weights where they are. A row's result is the same bits for any M of its path, and for any cut of
the units.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .emit import Emitter, Index, Value, memref
from .gemm_packed import (
    FEW_ROWS,
    PREFETCH_BYTES,
    block_length,
    exact_gemm,
    panels_per_unit,
    row_group,
    tile_groups,
    tile_rows,
)
from .kernel import Accumulators, Product, Scratch, row_count, write_kernel
from .panels import PANEL_ROWS
from .target import Target

__all__ = ["gemm_dense", "transpose"]

FEW_VECTORS = 4
"""Vectors of columns, or rows of a transposed weight, that few rows are multiplied with at once."""


def gemm_dense(target: Target, product: Product, *, transpose_rhs: bool = False) -> str:
    """The kernel of a product with dense weights.

    Operands: x [..., K] f32, then the weights [K, N] f32 ([N, K] with transpose_rhs), then the program's arguments;
    then the outputs [..., N] f32. Units are groups of neighbouring columns.
    """
    weights = product.program.accumulators
    few = product.rows is not None and product.rows <= FEW_ROWS
    lanes = target.lanes("f32")
    if not few:
        columns = panels_per_unit(target, weights) * PANEL_ROWS
    else:
        columns = PANEL_ROWS if transpose_rhs else FEW_VECTORS * lanes
    shape = (product.n, product.k) if transpose_rhs else (product.k, product.n)
    operands = [
        ("x", memref(product.x_shape, "f32")),
        *((f"w{i}", memref(shape, "f32")) for i in range(weights)),
        *product.arguments(),
    ]
    groups = tile_groups(target, weights)
    block = block_length(product.k, 32)

    def layout(em: Emitter, values: list[Value], scratch: Scratch) -> tuple[Accumulators, Value | None]:
        if few:
            return Accumulators(em, target, product, columns, scratch, product.rows or 0), None
        part = scratch.take([len(groups), block, len(groups[0]) * PANEL_ROWS], "f32")
        count = row_count(em, values[0]) if block < product.k else tile_rows(target)[0]
        return Accumulators(em, target, product, columns, scratch, count), part

    def body(
        em: Emitter, values: list[Value], outputs: list[Value], begin: Value, end: Value, scratch: Scratch
    ) -> None:
        accumulators, part = layout(em, values, scratch)
        dense = values[1 : 1 + weights]
        if part is None:
            x = em.rows(values[0])
            multiply = _few_transposed if transpose_rhs else _few_rows
            with em.loop(begin, end, hint="unit") as unit:
                for i, weight in enumerate(dense):
                    multiply(em, target, product, x, weight, unit.iv, i * columns, accumulators)
                accumulators.finish(values[1 + weights :], outputs, unit.iv, 0, product.rows or 0)
            return

        def decode(unit: Index, g: int, k0: Index, k1: Index, decoded: Value) -> Callable[[Index, int], Value] | None:
            copy = _copy_transposed if transpose_rhs else _copy
            for p, (weight, position) in enumerate(groups[g]):
                first = em.iadd(em.imul(unit, columns), position * PANEL_ROWS)
                copy(em, target, product, dense[weight], first, (k0, k1), decoded, (g, p * PANEL_ROWS))
            return None

        parts = (accumulators, part)
        exact_gemm(em, target, product, values, outputs, (begin, end), parts, groups, 32, decode)

    return write_kernel(
        product.name,
        operands,
        product.outputs(),
        units=lambda em, values: -(-product.n // columns),
        scratch=layout,
        body=body,
        order=product.operand_order,
    )


def _column_mask(em: Emitter, n: int, column: Index, lanes: int) -> Value:
    """The columns from `column` on that exist."""
    return em.mask(em.imax(em.isub(n, column), 0), lanes)


def _reader(em: Emitter, target: Target, n: int, whole: int, weight: Value, column: Index) -> Callable[[Index], Value]:
    """Loads of w[k, column ...], zeros beyond N; masked only if units of `whole` columns don't divide N."""
    type = target.vector("f32")
    if n % whole == 0:
        return lambda k: em.vload(weight, [k, column], type)
    mask = _column_mask(em, n, column, target.lanes("f32"))
    return lambda k: em.masked_load(weight, [k, column], mask, em.zero(type))


# -- copies into scratch ----------------------------------------------------------------------------------------------


def _copy(
    em: Emitter,
    target: Target,
    product: Product,
    weight: Value,
    first: Index,
    ks: tuple[Index, Index],
    decoded: Value,
    to: tuple[int, int],
) -> None:
    """w[k, first : first + 16] into decoded[g, k - k0, column ...], (g, column) = to."""
    lanes = target.lanes("f32")
    readers = [
        _reader(em, target, product.n, 2 * PANEL_ROWS, weight, em.iadd(first, i)) for i in range(0, PANEL_ROWS, lanes)
    ]
    with em.loop(*ks, hint="k") as k:
        for v, read in enumerate(readers):
            em.vstore(read(k.iv), decoded, [to[0], em.isub(k.iv, ks[0]), to[1] + v * lanes])


def transpose(em: Emitter, rows: Sequence[Value]) -> list[Value]:
    """The columns of a square of vectors, as vectors: a power of two of them, by interleaving halves."""
    count = len(rows)
    low = [i // 2 + (count if i % 2 else 0) for i in range(count)]
    high = [lane + count // 2 for lane in low]
    values = list(rows)
    for _ in range(count.bit_length() - 1):
        pairs = [(values[i], values[i + count // 2]) for i in range(count // 2)]
        values = [em.shuffle(a, b, lanes) for a, b in pairs for lanes in (low, high)]
    return values


def _copy_transposed(
    em: Emitter,
    target: Target,
    product: Product,
    weight: Value,
    first: Index,
    ks: tuple[Index, Index],
    decoded: Value,
    to: tuple[int, int],
) -> None:
    """w[first : first + 16, k] into decoded[g, k - k0, column ...]; rows beyond N repeat the last one."""
    lanes = target.lanes("f32")
    k0, k1 = ks
    # A block of K is a multiple of `lanes` unless it is the last one.
    main = em.isub(k1, em.irem(em.isub(k1, k0), lanes)) if product.k % lanes else k1

    def row_of(i: Index) -> Index:
        row = em.iadd(first, i)
        return row if product.n % (2 * PANEL_ROWS) == 0 else em.imin(row, product.n - 1)

    with em.loop(0, PANEL_ROWS, lanes, hint="row") as group:
        rows = [row_of(em.iadd(group.iv, i)) for i in range(lanes)]
        with em.loop(k0, main, lanes, hint="k") as k:
            square = [em.vload(weight, [row, k.iv], target.vector("f32")) for row in rows]
            for j, column in enumerate(transpose(em, square)):
                at = em.iadd(em.isub(k.iv, k0), j)
                em.vstore(column, decoded, [to[0], at, em.iadd(group.iv, to[1])])
    if product.k % lanes:
        with em.loop(0, PANEL_ROWS, hint="row") as one, em.loop(main, k1, hint="k") as k:
            value = em.load(weight, [row_of(one.iv), k.iv])
            em.store(value, decoded, [to[0], em.isub(k.iv, k0), em.iadd(one.iv, to[1])])


# -- few rows ---------------------------------------------------------------------------------------------------------


def _few_rows(
    em: Emitter,
    target: Target,
    product: Product,
    x: Value,
    weight: Value,
    unit: Value,
    column: int,
    accumulators: Accumulators,
) -> None:
    """All rows times the unit's columns of w [K, N], along k in order."""
    lanes, type = target.lanes("f32"), target.vector("f32")
    width = FEW_VECTORS * lanes
    start = em.imul(unit, width)
    starts = [em.iadd(start, v * lanes) for v in range(FEW_VECTORS)]
    readers = [_reader(em, target, product.n, width, weight, at) for at in starts]
    total = product.rows or 0
    group = row_group(target)

    def step(k: Index, rows: range, sums: Sequence[Value]) -> list[Value]:
        values = [read(k) for read in readers]
        result = []
        for i, row in enumerate(rows):
            factor = em.broadcast(em.load(x, [row, k]), type)
            result += [target.fma(em, factor, w, sums[i * FEW_VECTORS + v]) for v, w in enumerate(values)]
        return result

    for first in range(0, total, group):
        rows = range(first, min(first + group, total))
        main = product.k - product.k % 4
        with em.loop(0, main, 4, [em.zero(type)] * (len(rows) * FEW_VECTORS), hint="k") as loop:
            sums: list[Value] = loop.args
            for u in range(4):
                k = em.iadd(loop.iv, u)
                for line in range(0, 4 * width, 64):
                    em.prefetch(weight, [em.iadd(k, 16), em.iadd(start, line // 4)])
                sums = step(k, rows, sums)
            loop.yield_(sums)
        sums = loop.results
        for k in range(main, product.k):
            sums = step(k, rows, sums)
        for i, row in enumerate(rows):
            for v in range(FEW_VECTORS):
                em.vstore(sums[i * FEW_VECTORS + v], accumulators.data, [row, column + v * lanes])


def _few_transposed(
    em: Emitter,
    target: Target,
    product: Product,
    x: Value,
    weight: Value,
    unit: Value,
    column: int,
    accumulators: Accumulators,
) -> None:
    """All rows times 16 rows of w [N, K]: dot products along vectors of k."""
    lanes, type = target.lanes("f32"), target.vector("f32")
    total = product.rows or 0
    group = row_group(target)
    main = product.k - product.k % lanes
    rest = em.mask(product.k - main, lanes) if main < product.k else None

    def step(k: Index, lines: Sequence[Index], rows: range, sums: Sequence[Value], mask: Value | None) -> list[Value]:
        def read(buffer: Value, row: Index) -> Value:
            if mask is None:
                return em.vload(buffer, [row, k], type)
            return em.masked_load(buffer, [row, k], mask, em.zero(type))

        values = [read(weight, line) for line in lines]
        result = []
        for i, row in enumerate(rows):
            factor = read(x, row)
            result += [target.fma(em, factor, w, sums[i * len(lines) + j]) for j, w in enumerate(values)]
        return result

    with em.loop(0, PANEL_ROWS, FEW_VECTORS, hint="line") as lines:
        local = [em.iadd(lines.iv, j) for j in range(FEW_VECTORS)]
        here = [em.iadd(em.imul(unit, PANEL_ROWS), j) for j in local]
        if product.n % PANEL_ROWS:
            here = [em.imin(line, product.n - 1) for line in here]
        for first in range(0, total, group):
            rows = range(first, min(first + group, total))
            with em.loop(0, main, lanes, [em.zero(type)] * (len(rows) * FEW_VECTORS), hint="k") as loop:
                for line in here:
                    em.prefetch(weight, [line, em.iadd(loop.iv, PREFETCH_BYTES // 4)])
                loop.yield_(step(loop.iv, here, rows, loop.args, None))
            sums = loop.results if rest is None else step(main, here, rows, loop.results, rest)
            for i, row in enumerate(rows):
                for j, place in enumerate(local):
                    value = em.reduce("add", sums[i * FEW_VECTORS + j], "reassoc")
                    em.store(value, accumulators.data, [row, em.iadd(place, column)])
