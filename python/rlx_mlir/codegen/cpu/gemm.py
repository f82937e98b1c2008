# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Activations times dense weights of one type, [K, N] or [N, K], as they are: nothing is packed beforehand.

The tiled path copies the columns of a unit into scratch, side by side, and multiplies as panels do. Few rows (static M
of at most 4) by [K, N] read the weights where they are, which is the same chain along K; so do single rows
(`are_single_rows`) by [N, K], which are dot products along vectors. So a row's result is the same bits for any M of
[K, N]; of [N, K] for any number of single rows, and for any M of others; and for any cut of the units.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

from rlx_mlir.codegen.emit import Emitter, Index, Value, element_of, memref, vec, with_element
from rlx_mlir.codegen.specs import ProductSpec
from rlx_mlir.tuning.cpu import SHARED

from . import UnsupportedByTemplate
from .gemm_packed import (
    K_BLOCK,
    PREFETCH_BYTES,
    ROW_BLOCK,
    ExactTiles,
    are_single_rows,
    block_length,
    over_row_groups,
    panels_per_unit,
    row_reader,
    tile_groups,
    tile_rows,
)
from .kernel import (
    Accumulators,
    Product,
    RowReader,
    Scratch,
    add_products,
    line_columns,
    row_blocks,
    row_count,
    write_product,
)
from .panels import PANEL_ROWS
from .registry import Generator
from .target import ELEMENT_BITS, Target, wide_type

SMALL_BYTES = 32768
"""A weight of at most so many bytes as f32, or f64, stays in the nearest cache: its columns are read where they are."""

WIDE_COLUMNS = 512
"""From so many columns on, a unit has four vectors of them side by side, where vectors have 512 bits.

Six rows of x that lie a power of two apart stay in a nearest cache of eight ways; the twelve of tiles of two vectors
don't. Besides, x is read half as often, and rows of weights are copied 256 bytes at a time."""

UNIT_ROWS = 256
"""About so many rows are a unit's, where there are twice as many: copying columns of weights costs little beside their
products, sums of blocks of K stay in a near cache, and threads have enough units."""

FEW_ROWS = 4
"""The largest static M that reads rows of weights [K, N] where they are."""

FEW_VECTORS = 4
"""Vectors of columns that a unit of few rows has; rows of a transposed weight that they are multiplied with at once."""

FEW_FACTORS = 8
"""Elements of x whose products with rows of a weight are added to a vector of sums at once."""

FEW_BYTES = 16384
"""Sums of few rows that wait while rows of weights are read: they stay in the nearest cache."""


def gemm_dense(target: Target, product: Product, *, transpose_rhs: bool = False) -> str:
    """The kernel of a product with dense weights.

    Operands: x [..., K], then the weights [K, N] ([N, K] with transpose_rhs), then the program's arguments; then the
    outputs [..., N]; all of the product's element type. Units are neighbouring columns, of many rows some.
    """
    weights = product.program.accumulators
    few = are_single_rows(product.x_shape) if transpose_rhs else product.rows is not None and product.rows <= FEW_ROWS
    shape = (product.n, product.k) if transpose_rhs else (product.k, product.n)
    operands = [
        ("x", memref(product.x_shape, product.element)),
        *((f"w{i}", memref(shape, product.element)) for i in range(weights)),
        *product.arguments(),
    ]
    kernel = (_FewRows if few else _Tiled)(target, product, transpose_rhs)
    return write_product(product, operands, kernel.units, kernel.parts, kernel.body)


class _Tiled:
    """The code of a product of many rows: units are blocks of columns, of some rows each."""

    def __init__(self, target: Target, product: Product, transposed: bool) -> None:
        self.target, self.product, self.transposed = target, product, transposed
        self.weights = product.program.accumulators
        self.wide = wide_type(product.element)
        self.lanes, self.line = target.lanes(self.wide), line_columns(self.wide)
        self.groups = tile_groups(target, self.weights)
        self.block = block_length(product.k, 32)
        lines = panels_per_unit(target, self.weights)
        if self._is_wide(2 * lines * self.line):
            lines *= 2
            self.groups = [[(0, p) for p in range(lines)]]
            self.block = block_length(product.k, 32, K_BLOCK)
        self.columns = lines * self.line
        self.tiles = tile_rows(target, lines * self.line // self.lanes)
        self.direct = not transposed and product.n * product.k * ELEMENT_BITS[self.wide] <= 8 * SMALL_BYTES

    def _is_wide(self, columns: int) -> bool:
        """Whether units are twice as wide, `columns`: that makes neither few units nor many columns beyond N."""
        n = self.product.n
        is_even = n % (2 * columns) == 0 or n >= 4 * WIDE_COLUMNS
        return self.target.vector_bits == 512 and self.weights == 1 and n >= WIDE_COLUMNS and is_even

    def _rows(self, em: Emitter, x: Value) -> tuple[Index, Index, Index]:
        """All rows, the number of blocks of them, and how many a block has: whole tiles, but for the last one."""
        rows = row_count(em, x)
        blocks = em.imax(rows // UNIT_ROWS, 1)
        return rows, blocks, em.iceildiv(em.iceildiv(rows, blocks), self.tiles[0]) * self.tiles[0]

    def units(self, em: Emitter, values: list[Value]) -> Index:
        """Blocks of columns, and of rows."""
        return self._rows(em, values[0])[1] * -(-self.product.n // self.columns)

    def parts(self, em: Emitter, values: list[Value], scratch: Scratch) -> tuple[Accumulators, RowReader, Value]:
        """Takes the scratch memory."""
        reader = RowReader(em, self.target, self.product.element, scratch, self.tiles[0], self.block)
        shape = [0 if self.direct else len(self.groups), self.block, len(self.groups[0]) * self.line]
        part = scratch.take(shape, self.wide, ELEMENT_BITS[self.wide] // 8)
        count = self._rows(em, values[0])[2] if self.block < self.product.k else self.tiles[0]
        return Accumulators(em, self.target, self.product, self.columns, scratch, count), reader, part

    def body(
        self, em: Emitter, values: list[Value], outputs: list[Value], begin: Value, end: Value, scratch: Scratch
    ) -> None:
        """Computes a range of units: those of the same columns follow each other."""
        parts = self.parts(em, values, scratch)
        rows, blocks, size = self._rows(em, values[0])
        x = em.rows(values[0])
        counts: tuple[int, ...] = ()
        if isinstance(rows, int) and isinstance(size, int) and isinstance(blocks, int):
            counts = tuple({min(max(rows - block * size, 0), size) for block in range(blocks)})
        groups = self.groups
        tiles = ExactTiles(em, self.target, self.product, x, values, outputs, parts, groups, self.block, counts)
        with em.loop(begin, end, hint="unit") as unit:
            column, first = unit.iv // blocks, unit.iv % blocks * size
            is_one = isinstance(blocks, int) and blocks == 1
            count = rows if is_one else em.imin(em.imax(rows - first, 0), size)
            # Units of the same columns follow each other: what the first of them has copied is there for the others.
            is_new = None
            if not is_one and self.block >= self.product.k:
                is_new = em.cmpi("eq", unit.iv, begin) | em.cmpi("eq", em.index(first), 0)
            tiles.unit(column, (first, count), functools.partial(self._decode, em, values, column, is_new))

    def _decode(
        self,
        em: Emitter,
        values: Sequence[Value],
        unit: Index,
        is_new: Value | None,
        g: int,
        k0: Index,
        k1: Index,
        decoded: Value,
    ) -> Callable[[Index, int], Value] | None:
        """Copies a unit's columns of a group of weights, where `is_new` is None or holds; or says how they are read
        where they are."""
        dense, line, group = values[1 : 1 + self.weights], self.line, self.groups[g]
        starts = [(dense[weight], unit * self.columns + line * p) for weight, p in group]
        n, k = self.product.n, self.product.k
        if self.direct:
            readers = [
                column_reader(em, self.target, n, self.columns, weight, start + i)
                for weight, start in starts
                for i in range(0, line, self.lanes)
            ]
            return lambda k, v: readers[v](k)
        copy = copy_transposed if self.transposed else copy_columns
        together = len(group) if self.weights == 1 else 1  # lines of one weight stand beside each other
        with em.if_(is_new) if is_new is not None else nullcontext():
            for p, (weight, start) in enumerate(starts[::together]):
                copy(em, self.target, Matrix(weight, n, k), (start, line * together), (k0, k1), decoded, (g, p * line))
        return None


class _FewRows:
    """The code of a product of few rows, which reads weights where they are: units are blocks of columns."""

    def __init__(self, target: Target, product: Product, transposed: bool) -> None:
        self.target, self.product, self.transposed = target, product, transposed
        self.weights = product.program.accumulators
        wide = wide_type(product.element)
        self.columns = PANEL_ROWS if transposed else FEW_VECTORS * target.lanes(wide)
        waiting = self.columns * self.weights * (product.rows or 1) * ELEMENT_BITS[wide]
        self.together = 0 if transposed else max(1, FEW_BYTES * 8 // waiting)

    def units(self, em: Emitter, values: list[Value]) -> Index:
        """Blocks of columns."""
        return -(-self.product.n // self.columns)

    def parts(self, em: Emitter, values: list[Value], scratch: Scratch) -> tuple[Accumulators, RowReader]:
        """Takes the scratch memory."""
        most = em.imin(row_count(em, values[0]), ROW_BLOCK)
        reader = row_reader(em, self.target, self.product, scratch, most, self.product.k)
        waiting = em.imax(most, 1) * max(self.together, 1)
        return Accumulators(em, self.target, self.product, self.columns, scratch, waiting), reader

    def body(
        self, em: Emitter, values: list[Value], outputs: list[Value], begin: Value, end: Value, scratch: Scratch
    ) -> None:
        """Computes a range of units."""
        accumulators, reader = self.parts(em, values, scratch)
        x, k = em.rows(values[0]), self.product.k
        lanes = accumulators.lanes

        def rows_of(first: Index, count: Index) -> None:
            reader.bind(x, first, count, 0, k, whole=k % lanes == 0)
            units = _Units(self.target, self.product, values, outputs, (begin, end), (first, count))
            _few_units(units, self.together, accumulators, reader)

        row_blocks(em, row_count(em, values[0]), ROW_BLOCK, rows_of)


def _column_mask(em: Emitter, n: Index, column: Index, lanes: int) -> Value:
    """The columns from `column` on that exist."""
    return em.mask(em.imax(n - column, 0), lanes)


def _divides(whole: int, n: Index) -> bool:
    return isinstance(n, int) and n % whole == 0


def column_reader(
    em: Emitter, target: Target, n: Index, whole: int, weight: Value, column: Index
) -> Callable[[Index], Value]:
    """Loads of w[k, column ...] as f32 (f64 of f64), zeros beyond N; masked only if units of `whole` columns don't
    divide N."""
    element = element_of(weight.type)
    lanes = target.lanes(wide_type(element))
    type = vec(lanes, element)
    mask = None if _divides(whole, n) else _column_mask(em, n, column, lanes)
    return lambda k: target.widen(em, em.vload(weight, [k, column], type, mask))


# -- copies into scratch ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Matrix:
    """A weight [K, N], or [N, K], in a buffer of two dimensions, from the row `base` on; k is None where dynamic."""

    data: Value
    n: Index
    k: int | None
    base: Index = 0


def copy_columns(
    em: Emitter,
    target: Target,
    weight: Matrix,
    columns: tuple[Index, int],
    ks: tuple[Index, Index],
    decoded: Value,
    to: tuple[Index, int],
) -> None:
    """w[k, first : first + width] into decoded[g, k - k0, column ...]: columns = (first, width), (g, column) = to.

    Where that is more than two lines (`line_columns`), as many columns behind them are asked for: their lines of memory
    lie on pages that are at hand, and they are copied next.
    """
    wide = wide_type(element_of(weight.data.type))
    (first, width), lanes, line = columns, target.lanes(wide), line_columns(wide)
    whole = max(width, 2 * line)
    readers = [column_reader(em, target, weight.n, whole, weight.data, first + i) for i in range(0, width, lanes)]
    with em.loop(*ks, hint="k") as k:
        row = weight.base + k.iv
        for next_line in range(width, 2 * width, line) if width > 2 * line else ():
            em.prefetch(weight.data, [row, first + next_line], 2)
        for v, read in enumerate(readers):
            em.vstore(read(row), decoded, [to[0], k.iv - ks[0], to[1] + v * lanes])


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


def copy_transposed(
    em: Emitter,
    target: Target,
    weight: Matrix,
    columns: tuple[Index, int],
    ks: tuple[Index, Index],
    decoded: Value,
    to: tuple[Index, int],
) -> None:
    """w[first : first + width, k] into decoded[g, k - k0, column ...]; rows beyond N repeat the last one."""
    element = element_of(weight.data.type)
    lanes, line = target.lanes(wide_type(element)), line_columns(wide_type(element))
    (first, width), stored = columns, vec(lanes, element)
    k0, k1 = ks
    # A block of K is a multiple of `lanes` unless it is the last one.
    whole = weight.k is not None and weight.k % lanes == 0
    main = k1 if whole else k1 - (k1 - k0) % lanes

    def row_of(i: Index) -> Index:
        row = first + i
        inside = row if _divides(max(width, 2 * line), weight.n) else em.imin(row, weight.n - 1)
        return weight.base + inside

    with em.loop(0, width, lanes, hint="row") as group:
        rows = [row_of(group.iv + i) for i in range(lanes)]
        with em.loop(k0, main, lanes, hint="k") as k:
            square = [target.widen(em, em.vload(weight.data, [row, k.iv], stored)) for row in rows]
            for j, column in enumerate(transpose(em, square)):
                at = k.iv - k0 + j
                em.vstore(column, decoded, [to[0], at, group.iv + to[1]])
    if not whole:
        with em.loop(0, width, hint="row") as one, em.loop(main, k1, hint="k") as k:
            value = target.widen(em, em.load(weight.data, [row_of(one.iv), k.iv]))
            em.store(value, decoded, [to[0], k.iv - k0, one.iv + to[1]])


# -- few rows ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Units:
    """Some units of a kernel, and the rows that are computed of them.

    Attributes:
        values, outputs: the kernel's operands and results.
        bounds: the first unit, and the one after the last.
        rows: the first row, and how many.
    """

    target: Target
    product: Product
    values: Sequence[Value]
    outputs: Sequence[Value]
    bounds: tuple[Value, Value]
    rows: tuple[Index, Index]

    @property
    def weights(self) -> Sequence[Value]:
        return self.values[1 : 1 + self.product.program.accumulators]

    def finish(self, accumulators: Accumulators, unit: Index, at: Index) -> None:
        """Results of a unit, whose products begin at row `at`."""
        arguments = self.values[1 + self.product.program.accumulators :]
        accumulators.finish(arguments, self.outputs, unit, *self.rows, at)


def _few_units(units: _Units, together: int, accumulators: Accumulators, reader: RowReader) -> None:
    """Computes some units. together: those whose columns are read side by side; 0 for weights [N, K]."""
    em, rows = accumulators.em, units.rows[1]
    with em.loop(*units.bounds, max(together, 1), hint="span") as span:
        count: Index = 1
        if together:
            count = em.imin(units.bounds[1] - span.iv, together)
            _few_rows(em, units.target, units.product, reader, units.weights, (span.iv, count), accumulators)
        else:
            for i, weight in enumerate(units.weights):
                _single_transposed(units, reader, weight, span.iv, i * accumulators.columns, accumulators)
        with em.loop(0, count, hint="unit") as unit:
            units.finish(accumulators, span.iv + unit.iv, unit.iv * rows)


def _few_rows(
    em: Emitter,
    target: Target,
    product: Product,
    x: RowReader,
    weights: Sequence[Value],
    units: tuple[Index, Index],
    accumulators: Accumulators,
) -> None:
    """All rows times the columns of some units of each w [K, N], along k in order; a unit's sums begin at row
    `unit - first unit` * M.

    Memory delivers rows of w fastest in the order in which they lie: some rows at a time, over all of the columns. Sums
    wait in the nearest cache meanwhile.
    """
    lanes, type, rows = accumulators.lanes, accumulators.type, product.rows or 0
    first, count = units
    depth = FEW_FACTORS // max(rows, 1)
    main = product.k - product.k % depth

    def over_columns(ks: Sequence[Index]) -> None:
        factors = [[em.broadcast(x.load(row, k), type) for row in range(rows)] for k in ks]
        for i, weight in enumerate(weights):
            with em.loop(0, count, hint="unit") as unit:
                start = (unit.iv + first) * accumulators.columns
                for v in range(0, accumulators.columns, lanes):
                    read = column_reader(em, target, product.n, accumulators.columns, weight, start + v)
                    at: list[list[Index]] = [
                        [unit.iv * rows + row, i * accumulators.columns + v] for row in range(rows)
                    ]
                    sums = [[em.vload(accumulators.data, place, type)] for place in at]
                    for k, own in zip(ks, factors, strict=True):
                        sums = add_products(em, target, own, [read(k)], sums)
                    for place, (total,) in zip(at, sums, strict=True):
                        em.vstore(total, accumulators.data, place)

    accumulators.clear(count * rows)
    with em.loop(0, main, depth, hint="k") as k:
        over_columns([k.iv + u for u in range(depth)])
    if main < product.k:
        over_columns(range(main, product.k))


def _single_transposed(
    units: _Units, x: RowReader, weight: Value, unit: Value, column: int, accumulators: Accumulators
) -> None:
    """All rows times 16 rows of w [N, K]: dot products along vectors of k."""
    em, target, product = accumulators.em, units.target, units.product
    lanes, type = accumulators.lanes, accumulators.type
    stored = with_element(type, product.element)
    main = product.k - product.k % lanes
    rest = em.mask(product.k - main, lanes) if main < product.k else None

    def step(
        k: Index, lines: Sequence[Index], rows: Sequence[Index], sums: list[list[Value]], mask: Value | None
    ) -> list[list[Value]]:
        def read(row: Index) -> Value:
            return target.widen(em, em.vload(weight, [row, k], stored, mask))

        values = [read(line) for line in lines]
        return add_products(em, target, (x.vload(row, k, mask) for row in rows), values, sums)

    with em.loop(0, PANEL_ROWS, FEW_VECTORS, hint="line") as lines:
        local = [lines.iv + j for j in range(FEW_VECTORS)]
        here: list[Index] = [unit * PANEL_ROWS + j for j in local]
        if product.n % PANEL_ROWS:
            here = [em.imin(line, product.n - 1) for line in here]

        def tile(first: Index, size: int, local: Sequence[Index] = local, here: Sequence[Index] = here) -> None:
            rows = [first + r for r in range(size)]
            with em.loop(0, main, lanes, [[em.zero(type)] * FEW_VECTORS] * len(rows), hint="k") as loop:
                for line in here:
                    em.prefetch(weight, [line, loop.iv + PREFETCH_BYTES * 8 // ELEMENT_BITS[product.element]])
                loop.yield_(step(loop.iv, here, rows, loop.carry, None))
            sums = loop.result if rest is None else step(main, here, rows, loop.result, rest)
            for row, own in zip(rows, sums, strict=True):
                for place, value in zip(local, own, strict=True):
                    em.store(em.reduce("add", value, "reassoc"), accumulators.data, [row, place + column])

        over_row_groups(em, target, units.rows[1], tile)


def _configure(name: str, spec: ProductSpec, target: Target) -> tuple[Product, bool] | None:
    if spec.kind == "scaled_matmul":
        raise UnsupportedByTemplate(f"{name}: products of {spec.float8} have no template")
    if spec.kind != "matmul" or len(spec.weight) != 2:  # several matrices are batched products, of which some decline
        return None
    return Product.of(spec), spec.transposed


GENERATORS = (
    Generator(
        "gemm_dense",
        "gemm",
        _configure,
        lambda name, config, target: gemm_dense(target, config[0], transpose_rhs=config[1]),
        knobs=SHARED,
    ),
)
