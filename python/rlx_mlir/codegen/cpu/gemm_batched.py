# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Products of two activations: batches that broadcast, and sizes of which any may be dynamic.

A unit is a block of rows times a block of columns of one batch element: the block of the right operand is copied into
scratch, as f32 (f64 of f64), and multiplied with register tiles. Every output is one chain of operations along K,
whatever the batch, the tiles and the units are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from rlx_mlir.codegen.emit import Emitter, Index, Value, memref
from rlx_mlir.codegen.kernel import Buffers, batch_element
from rlx_mlir.codegen.program import IDENTITY, Program
from rlx_mlir.codegen.specs import ProductSpec
from rlx_mlir.codegen.specs.products import argument_buffers, result_buffers
from rlx_mlir.runtime.tiles import GEMM_AMX
from rlx_mlir.tuning.cpu import SHARED

from . import UnsupportedByTemplate
from .gemm import Matrix, column_reader, copy_columns, copy_transposed
from .gemm_amx import COLUMNS, ROWS, SIDE, NarrowTiles, copy_pairs
from .gemm_amx import ROW_BLOCK as AMX_ROW_BLOCK
from .gemm_packed import FEW_ROWS, K_BLOCK, are_single_rows, block_length, multiply_tile, tile_rows
from .kernel import Accumulators, RowReader, Scratch, line_columns, need_floats, row_tiles, write_product
from .registry import Generator
from .target import ELEMENT_BITS, Target, wide_type

ROW_BLOCK = 256
"""Rows of a unit at most: copying the right operand costs little beside their products."""

FEWEST_ROWS = 64
"""Rows of a unit where the right operand is small."""

SHARED_ELEMENTS = 1 << 17
"""A right operand of at most so many elements may well be in the caches of all cores."""

Shape = tuple[int | None, ...]


@dataclass(frozen=True)
class BatchedProduct:
    """outputs = program(x W_0, x W_1, ..., arguments), with x [..., M, K] and W_i [..., K, N], or [..., N, K].

    Batch sizes broadcast where an operand's type says 1; two dynamic ones are equal. None stands for a dynamic size.
    The program's arguments are of the output's shape, [N], or one element.
    element: type of all operands and outputs: f64, f32, f16 or bf16. Products and program are f64 for f64, else f32.
    operand_order: as for `Product`.
    """

    name: str
    x_shape: Shape
    w_shape: Shape
    out_shape: Shape
    program: Program = IDENTITY
    operand_order: tuple[int, ...] | None = None
    element: str = "f32"
    transpose_rhs: bool = False

    def __post_init__(self) -> None:
        need_floats(self.name, self.element)
        if len(self.x_shape) < 2 or len(self.w_shape) < 2 or 0 in (*self.x_shape, *self.w_shape):
            shapes = f"they are {self.x_shape} and {self.w_shape}"
            raise UnsupportedByTemplate(
                f"{self.name}: expects operands of at least two dimensions, not empty, but {shapes}"
            )

    @classmethod
    def of(cls, spec: ProductSpec) -> BatchedProduct:
        """A kernel as a batch of products of dense operands."""
        shapes = (spec.x, spec.weight, spec.result)
        return cls(spec.name, *shapes, spec.program, spec.order, spec.element, spec.transposed)

    @property
    def m(self) -> int | None:
        return self.x_shape[-2]

    @property
    def k(self) -> int | None:
        """K, where a type says it."""
        own, other = self.x_shape[-1], self.w_shape[-1 if self.transpose_rhs else -2]
        return other if own is None else own

    @property
    def n(self) -> int | None:
        return self.w_shape[-2 if self.transpose_rhs else -1]

    def operands(self) -> Buffers:
        """The buffers of x and of the right operands, then the program's arguments."""
        right = [(f"w{i}", memref(self.w_shape, self.element)) for i in range(self.program.accumulators)]
        arguments = argument_buffers(self.program, self.out_shape, self.element)
        return [("x", memref(self.x_shape, self.element)), *right, *arguments]

    def outputs(self) -> Buffers:
        """The buffers of the results."""
        return result_buffers(self.program, self.out_shape, self.element)

    @property
    def batched(self) -> bool:
        """Whether the right operand has batches; where it has none, those of x are further rows."""
        return any(size != 1 for size in self.w_shape[:-2])


@dataclass(frozen=True)
class Place:
    """Some rows of one batch element: how many, and the first of them in x, in the outputs and in the right operand."""

    rows: Index
    x_row: Index
    out_row: Index
    base: Index


class Sizes:
    """The sizes of one call, and how its units are numbered: blocks of columns fastest, then of rows, then batches.

    A thread's units are a range. Where the right operand is small, blocks of rows are: each thread computes rows of its
    own then, of every product in a chain. Where it is large, threads rather share out its columns.

    Attributes:
        most: rows of a block at most.
        row_block: rows of a unit.
    """

    def __init__(
        self,
        em: Emitter,
        product: BatchedProduct,
        x: Value,
        w: Value,
        columns: int,
        *,
        most: int = ROW_BLOCK,
        fewest: int = FEWEST_ROWS,
    ) -> None:
        self._em, self.most = em, most
        self._product = product
        rank = len(product.out_shape)
        self.k: Index = em.dim(x, len(product.x_shape) - 1) if product.k is None else product.k
        self.n = em.dim(w, len(product.w_shape) - (2 if product.transpose_rhs else 1))
        self.rows = em.dim(x, len(product.x_shape) - 2)
        self.batch: list[Index] = []
        if product.batched:
            self.batch = [self._batch_size(axis - rank, x, w) for axis in range(rank - 2)]
        else:
            for axis in range(len(product.x_shape) - 2):
                self.rows = self.rows * em.dim(x, axis)
        elements = self.k * self.n
        self.row_block: Index = fewest
        if isinstance(elements, int):
            self.row_block = fewest if elements <= SHARED_ELEMENTS else most
        else:
            small = em.cmpi("ule", elements, SHARED_ELEMENTS)
            self.row_block = em.select(small, fewest, most)
        self.row_blocks = (self.rows + (self.row_block - 1)) // self.row_block
        self.column_blocks = em.iceildiv(self.n, columns)

    def _batch_size(self, axis: int, x: Value, w: Value) -> Index:
        """The size of a batch dimension, counted from the end: that of an operand which doesn't broadcast there."""
        size: Index = 1
        for value, shape in ((x, self._product.x_shape), (w, self._product.w_shape)):
            if len(shape) >= -axis and size == 1:
                size = self._em.dim(value, len(shape) + axis)
        return size

    @property
    def units(self) -> Index:
        count = self.row_blocks * self.column_blocks
        for size in self.batch:
            count = count * size
        return count

    def place(self, unit: Index) -> tuple[Place, Index]:
        """What a unit computes: rows, and the block of columns."""
        number = unit // self.column_blocks
        return self._rows_at(number, 1), unit % self.column_blocks

    @contextmanager
    def pieces(self, begin: Value, end: Value) -> Iterator[tuple[Place, tuple[Index, Index]]]:
        """Loops over a range of units, as rows (`most` at a time) of one batch element times blocks of columns.

        A range is some columns of a first block of rows, all columns of others, which go together, some of a last.
        """
        em, columns = self._em, self._em.imax(self.column_blocks, 1)
        first, last = begin // columns, end // columns
        head, tail = begin % columns, end % columns
        whole = (begin + (columns - 1)) // columns
        for_each = self.row_blocks if self.batch else None
        with em.loop(0, 3, hint="phase") as phase:
            is_head, is_tail = (em.cmpi("eq", phase.iv, own) for own in (0, 2))

            def choose(at_head: Index, between: Index, at_tail: Index) -> Index:
                return em.select(is_head, at_head, em.select(is_tail, at_tail, between))

            # The block that a range both begins and ends in belongs to its head.
            start = choose(first, whole, em.imax(last, whole))
            stop = choose(whole, last, (end + (columns - 1)) // columns)
            units = (choose(head, 0, 0), choose(em.imin(columns, end - first * columns), columns, tail))
            if for_each is None:
                with em.loop(start, stop, self.together, hint="rb") as block:
                    yield self._rows_at(block.iv, em.imin(stop - block.iv, self.together)), units
                return
            every = em.imax(for_each, 1)
            final = (stop + (every - 1)) // every
            with em.loop(start // every, final, hint="batch") as batch:
                base = batch.iv * every
                bounds = em.imax(start, base), em.imin(stop, base + every)
                with em.loop(*bounds, self.together, hint="rb") as block:
                    yield self._rows_at(block.iv, em.imin(bounds[1] - block.iv, self.together)), units

    @property
    def together(self) -> Index:
        """Blocks of rows that `pieces` has go together."""
        return self.most // self.row_block

    def _rows_at(self, number: Index, blocks: Index) -> Place:
        """Some blocks of rows of one batch element; those are counted through all of them."""
        em, product, block = self._em, self._product, self.row_block
        batch: Index = 0
        local = number
        if self.batch:
            batch, local = number // self.row_blocks, number % self.row_blocks
        first = local * block
        rows = em.imin(self.rows - first, block * blocks)
        if isinstance(self.rows, int) and blocks == 1 and isinstance(block, int):
            rows = min(self.rows, block) if self.rows <= block or self.rows % block == 0 else rows
        return Place(
            rows,
            batch_element(batch, self.batch, product.x_shape) * self.rows + first,
            batch * self.rows + first,
            batch_element(batch, self.batch, product.w_shape) * (self.n if product.transpose_rhs else self.k),
        )


def uses_tiles(target: Target, product: BatchedProduct) -> bool:
    """Whether the product is computed by tiles of AMX: few rows would leave most of a tile empty."""
    return target.tiles(product.element) and (product.m is None or product.m > FEW_ROWS or not product.batched)


def gemm_batched(target: Target, product: BatchedProduct) -> str:
    """The kernel of a product of two activations.

    Operands: x, the right operands (one for each of the program's products), the program's arguments; then the outputs.
    """
    if uses_tiles(target, product):
        return _gemm_tiles(target, product)
    kernel = _Blocks(target, product)
    operands = product.operands()
    return write_product(
        product, operands, lambda em, values: kernel.sizes(em, values).units, kernel.parts, kernel.body
    )


class _Blocks:
    """The code of one kernel of vectors, and what follows from the product's sizes and the target."""

    def __init__(self, target: Target, product: BatchedProduct) -> None:
        self.target, self.product = target, product
        self.weights = product.program.accumulators
        self.wide = wide_type(product.element)
        self.lanes = target.lanes(self.wide)
        self.tiles = tile_rows(target)
        self.columns = line_columns(self.wide) * (2 if target.vector_bits == 512 else 1)
        self.vectors = self.columns // self.lanes
        self.block = K_BLOCK if product.k is None else block_length(product.k, 32)
        self.blocked = product.k is None or self.block < product.k
        # One tile of rows reads the right operand once: as it is, where its rows lie along the columns.
        few = product.batched and product.m is not None and product.m <= self.tiles[0]
        self.direct = not product.transpose_rhs and few

    def sizes(self, em: Emitter, values: Sequence[Value]) -> Sizes:
        """Rows, columns and units."""
        return Sizes(em, self.product, values[0], values[1], self.columns)

    def parts(self, em: Emitter, values: list[Value], scratch: Scratch) -> tuple[Accumulators, RowReader, Value]:
        """Takes the scratch memory."""
        reader = RowReader(em, self.target, self.product.element, scratch, self.tiles[0], self.block)
        shape = [0 if self.direct else self.weights, self.block, self.columns]
        copied = scratch.take(shape, self.wide, ELEMENT_BITS[self.wide] // 8)
        rows = ROW_BLOCK if self.blocked else self.tiles[0]
        return Accumulators(em, self.target, self.product, self.columns, scratch, rows), reader, copied

    def body(
        self, em: Emitter, values: list[Value], outputs: list[Value], begin: Value, end: Value, scratch: Scratch
    ) -> None:
        """Computes a range of units."""
        parts = self.parts(em, values, scratch)
        x, dense = em.rows(values[0]), [em.rows(value) for value in values[1 : 1 + self.weights]]
        arguments = values[1 + self.weights :]
        sizes = self.sizes(em, values)
        with em.loop(begin, end, hint="unit") as unit:
            here, column_block = sizes.place(unit.iv)
            own = _Unit(self, em, sizes, here, column_block * self.columns, x, dense, parts)

            def finish(start: Index, size: Index) -> None:
                parts[0].finish(arguments, outputs, column_block, start, size)

            if not self.blocked:
                own.over_rows(0, sizes.k, lambda start, size: finish(here.out_row + start, size))
            else:
                parts[0].clear(here.rows)
                with em.loop(0, sizes.k, self.block, hint="kb") as kb:
                    own.over_rows(kb.iv, em.imin(kb.iv + self.block, sizes.k))
                finish(here.out_row, here.rows)


@dataclass(frozen=True)
class _Unit:
    """One unit: rows of one product by the columns from `column` on."""

    kernel: _Blocks
    em: Emitter
    sizes: Sizes
    place: Place
    column: Index
    x: Value
    dense: Sequence[Value]
    parts: tuple[Accumulators, RowReader, Value]

    def over_rows(self, k0: Index, k1: Index, finish: Callable[[Index, int], None] | None = None) -> None:
        """Adds the products along [k0, k1) to all rows; `finish` makes results of each tile of them."""
        if not self.kernel.direct:
            self._copy(k0, k1)
        sources = [self._loads(i, k0) for i in range(self.kernel.weights)]

        def tile(start: Index, size: int) -> None:
            self._tile(start, size, sources, k0, k1)
            if finish is not None:
                finish(start, size)

        row_tiles(self.em, self.place.rows, self.kernel.tiles, tile)

    def _copy(self, k0: Index, k1: Index) -> None:
        """Copies the right operands' block of rows and columns to scratch memory, as what is computed in."""
        kernel, em = self.kernel, self.em
        write = copy_transposed if kernel.product.transpose_rhs else copy_columns
        for i, weight in enumerate(self.dense):
            matrix = Matrix(weight, self.sizes.n, kernel.product.k, self.place.base)
            write(em, kernel.target, matrix, (self.column, kernel.columns), (k0, k1), self.parts[2], (i, 0))

    def _loads(self, i: int, k0: Index) -> Callable[[Index, int], Value]:
        """What reads a vector of a row of a right operand."""
        kernel, em, (accumulators, _, copied) = self.kernel, self.em, self.parts
        if not kernel.direct:
            return lambda k, v: em.vload(copied, [i, k - k0, v * kernel.lanes], accumulators.type)
        readers = [
            column_reader(
                em, kernel.target, self.sizes.n, kernel.columns, self.dense[i], self.column + v * kernel.lanes
            )
            for v in range(kernel.vectors)
        ]
        return lambda k, v: readers[v](self.place.base + k)

    def _tile(
        self, start: Index, size: int, sources: Sequence[Callable[[Index, int], Value]], k0: Index, k1: Index
    ) -> None:
        """The sums of a tile of rows."""
        kernel, em, (accumulators, reader, _) = self.kernel, self.em, self.parts
        k, vectors = kernel.product.k, kernel.vectors
        whole = k is not None and k % kernel.lanes == 0
        reader.bind(self.x, self.place.x_row + start, size, k0, k1, whole=whole)
        for i, load in enumerate(sources):
            columns = [i * kernel.columns + v * kernel.lanes for v in range(vectors)]
            at = [[(start + r if kernel.blocked else r, column) for column in columns] for r in range(size)]
            sums = [
                [
                    em.vload(accumulators.data, place, accumulators.type)
                    if kernel.blocked
                    else em.zero(accumulators.type)
                    for place in own
                ]
                for own in at
            ]
            sums = multiply_tile(em, kernel.target, reader, (k0, k1), k, load, sums)
            for own, places in zip(sums, at, strict=True):
                for total, place in zip(own, places, strict=True):
                    em.vstore(total, accumulators.data, place)


def _gemm_tiles(target: Target, product: BatchedProduct) -> str:
    """The same by tiles of AMX."""
    weights = product.program.accumulators

    def sizes_of(em: Emitter, values: list[Value]) -> Sizes:
        return Sizes(em, product, values[0], values[1], COLUMNS, most=AMX_ROW_BLOCK, fewest=ROWS)

    def parts(em: Emitter, values: list[Value], scratch: Scratch) -> tuple[NarrowTiles, Sizes]:
        sizes = sizes_of(em, values)
        return NarrowTiles(em, target, product, sizes.k, sizes.rows, scratch), sizes

    def body(
        em: Emitter, values: list[Value], outputs: list[Value], begin: Value, end: Value, scratch: Scratch
    ) -> None:
        tiles, sizes = parts(em, values, scratch)
        x, dense = em.rows(values[0]), [em.rows(value) for value in values[1 : 1 + weights]]
        tiles.configure()
        with sizes.pieces(begin, end) as (here, units):
            matrices = [Matrix(weight, sizes.n, product.k, here.base) for weight in dense]

            def copy(unit: Index, weight: int, slot: Index, k0: Index, k1: Index) -> None:
                for side in range(2):
                    column = unit * COLUMNS + side * SIDE
                    copy_pairs(
                        em, tiles, matrices[weight], column, (slot, side), (k0, k1), transpose_rhs=product.transpose_rhs
                    )

            places = (here.x_row, here.out_row)
            tiles.multiply(x, places, here.rows, units, copy, values[1 + weights :], outputs)
        tiles.release()

    return write_product(product, product.operands(), lambda em, values: sizes_of(em, values).units, parts, body)


def _configure(name: str, spec: ProductSpec, target: Target) -> BatchedProduct | None:
    by_tiles = target.tiles(spec.element) and not are_single_rows(spec.x)
    if spec.kind != "matmul" or (spec.is_matrix and not by_tiles):
        return None
    return BatchedProduct.of(spec)


def _configure_tiles(name: str, spec: ProductSpec, target: Target) -> BatchedProduct | None:
    product = _configure(name, spec, target)
    return product if product is not None and uses_tiles(target, product) else None


def _emit(name: str, product: BatchedProduct, target: Target) -> str:
    return gemm_batched(target, product)


GENERATORS = (
    Generator(
        GEMM_AMX + "_batched",
        "gemm",
        _configure_tiles,
        _emit,
        knobs=SHARED,
        candidates={"prefill": [{"amx": 0}]},
    ),
    Generator("gemm_batched", "gemm", _configure, _emit, knobs=SHARED),
)
