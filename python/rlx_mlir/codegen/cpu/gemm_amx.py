# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Products of bf16 or f16 operands by the tile registers of AMX.

The right operand's block of 32 columns is copied into scratch with pairs of K side by side, as tiles want them, and
multiplied with 32 rows at a time: four tiles of sums over two of rows and two of columns. Rows that fill no tile, and
rows whose length is no multiple of 32, are copied next to zeros. Every output is one chain of operations along K: a
row's result is the same bits in any batch, and for any cut of the units.

Tiles round each addition to f32, as fused multiply-add does, but take subnormal sums, and operands of bf16, for zero.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rlx_mlir.codegen.emit import Emitter, Index, Value, element_of, memref, vec

from . import UnsupportedByTemplate
from .gemm import Matrix, transpose
from .kernel import Accumulators, Finished, Product, Scratch, row_count, write_kernel
from .panels import PANEL_ROWS, find_layout, panel_weights
from .target import Target

__all__ = ["COLUMNS", "ROWS", "SIDE", "STEP", "TileUnit", "Tiles", "copy_pairs", "gemm_amx"]

STEP = 32
"""Elements of K in a tile: 64 bytes."""

SIDE = 16
"""Rows of a tile, and columns of a tile of sums."""

ROWS = COLUMNS = 2 * SIDE
"""Rows, and columns, that are multiplied at a time."""

PREFETCH_BYTES = 1024
"""Bytes of a panel that are fetched ahead of its copy."""

PAIRS = [lane // 2 + SIDE * (lane % 2) for lane in range(2 * SIDE)]
"""Two vectors of 16 elements, side by side in pairs."""


def gemm_amx(target: Target, product: Product) -> str:
    """The kernel of a product with panels of the activations' type, bf16 or f16.

    Operands: x [..., K], then the weights [ceil(N / 16), panel bytes] i8, then the program's arguments; then the
    outputs [..., N]. Units are pairs of panels.
    """
    if not target.tiles(product.element):
        raise UnsupportedByTemplate(f"{product.name}: the target has no tiles of {product.element}")
    layout = find_layout(product.element, product.k)
    weights = product.program.accumulators
    panels = -(-product.n // PANEL_ROWS)
    operands = [
        ("x", memref(product.x_shape, product.element)),
        *panel_weights(product, layout),
        *product.arguments(),
    ]

    def parts(em: Emitter, values: list[Value], scratch: Scratch) -> TileUnit:
        return TileUnit(em, target, product, product.k, scratch)

    def body(
        em: Emitter, values: list[Value], outputs: list[Value], begin: Value, end: Value, scratch: Scratch
    ) -> None:
        tiles = parts(em, values, scratch)
        x, rows = em.rows(values[0]), row_count(em, values[0])
        flat = [em.bytes(value) for value in values[1 : 1 + weights]]
        tiles.configure()
        with em.loop(begin, end, hint="unit") as unit:
            for weight, data in enumerate(flat):
                for side in range(2):
                    # A panel beyond the last one is read as the last one: its columns aren't stored.
                    panel = em.imin(em.iadd(em.imul(unit.iv, 2), side), panels - 1)
                    base = em.imul(panel, layout.panel_bytes(product.k))
                    _copy_panel(em, tiles, data, base, (weight, side), target.choices.ahead(PREFETCH_BYTES))
            tiles.rows(x, (0, 0), rows, unit.iv, values[1 + weights :], outputs)
        tiles.release()

    return write_kernel(
        product.name,
        operands,
        product.outputs(),
        units=lambda em, values: -(-panels // 2),
        scratch=parts,
        body=body,
        order=product.operand_order,
    )


class Tiles:
    """The instructions on tile registers, whose shape stands in a thread's scratch."""

    def __init__(self, em: Emitter, scratch: Scratch) -> None:
        self._em = em
        self._config = scratch.take([16], "i32")

    def emit(self, name: str, *operands: int | Value) -> None:
        """One instruction; numbers name registers."""
        em = self._em
        values = [em.const(operand, "i8") if isinstance(operand, int) else operand for operand in operands]
        types = ", ".join(value.type for value in values)
        em.line(f'llvm.call_intrinsic "llvm.x86.{name}"({", ".join(values)}) : ({types}) -> ()')

    def pointer(self, buffer: Value, offset: Index) -> Value:
        """The address `offset` bytes after the buffer's first element."""
        em = self._em
        start = em.op(f"memref.extract_aligned_pointer_as_index {buffer} : {buffer.type} -> index", "index", "start")
        number = em.cast("arith.index_cast", em.index(em.iadd(start, offset)), "i64")
        return em.op(f"llvm.inttoptr {number} : i64 to !llvm.ptr", "!llvm.ptr", "pointer")

    def stride(self, bytes_: Index) -> Value:
        """Bytes between the rows of a tile in memory."""
        em = self._em
        return em.const(bytes_, "i64") if isinstance(bytes_, int) else em.cast("arith.index_cast", bytes_, "i64")

    def configure(self) -> None:
        """Eight tiles of 16 rows of 64 bytes."""
        self.configure_shapes(dict.fromkeys(range(8), (SIDE, 64)))

    def configure_shapes(self, shapes: Mapping[int, tuple[int, int]]) -> None:
        """Tiles of their own shapes, (rows, bytes of a row) by register."""
        widths = [shapes.get(tile, (0, 0))[1] for tile in range(8)]
        heights = [shapes.get(tile, (0, 0))[0] for tile in range(8)]
        words = [1, 0, 0, 0]
        words += [low | high << 16 for low, high in zip(widths[::2], widths[1::2], strict=True)]
        words += [0, 0, 0, 0]
        words += [sum(height << 8 * place for place, height in enumerate(heights[at : at + 4])) for at in (0, 4)]
        words += [0, 0]
        self._em.vstore(self._em.const(words, vec(16, "i32")), self._config, [0])
        self.emit("ldtilecfg", self.pointer(self._config, 0))

    def configure_rows(self, count: Index) -> None:
        """Tiles for `count` rows, from 1 to 32, whose products take less time where they are fewer.

        Registers 0, 1 and 4 have the first 16, registers 2, 3 and 5 the others, or one row where there are none.
        """
        em = self._em
        first, second = em.imin(count, SIDE), em.imax(em.isub(count, SIDE), 1)
        sums = em.iadd(em.imul(first, 0x0101), em.imul(second, 0x01010000))
        operands = em.iadd(em.iadd(first, em.imul(second, 0x0100)), 0x10100000)
        for place, word in ((12, sums), (13, operands)):
            em.store(em.cast("arith.index_cast", em.index(word), "i32"), self._config, [place])
        self.emit("ldtilecfg", self.pointer(self._config, 0))

    def release(self) -> None:
        """Gives the registers back: a thread that holds some is slower to switch."""
        self.emit("tilerelease")


class TileUnit(Tiles):
    """What a unit works with, in a thread's scratch.

    Registers have numbers: 0 to 3 are sums, 4 and 5 rows, 6 and 7 columns.
    """

    def __init__(self, em: Emitter, target: Target, product: Finished, k: Index, scratch: Scratch) -> None:
        super().__init__(em, scratch)
        self._element, self.k = product.element, k
        self._count = product.program.accumulators
        self._steps = em.iceildiv(k, STEP)
        self._padded = em.imul(self._steps, STEP)
        self._sums = Accumulators(em, target, product, COLUMNS, scratch, ROWS)
        self._weights = scratch.take([self._count, 2, em.imul(self._steps, STEP // 2), 2 * SIDE], "i16", 2)
        self._rows = scratch.take([ROWS, self._padded], "i16", 2)

    # -- columns ------------------------------------------------------------------------------------------------------

    def store_pair(self, value: Value, place: tuple[int, int], pair: Index) -> None:
        """16 columns of a pair of K, 32 x i16; place: (weight, half of the columns)."""
        self._em.vstore(value, self._weights, [*place, pair, 0])

    def clear_pairs(self, place: tuple[int, int], first: Index) -> None:
        """Zeros from the pair `first` on."""
        with self._em.loop(first, self._em.imul(self._steps, STEP // 2), hint="pair") as pair:
            self.store_pair(self._em.zero(vec(2 * SIDE, "i16")), place, pair.iv)

    # -- rows ---------------------------------------------------------------------------------------------------------

    def rows(
        self,
        x: Value,
        firsts: tuple[Index, Index],
        count: Index,
        column_block: Index,
        arguments: Sequence[Value],
        outputs: Sequence[Value],
    ) -> None:
        """Outputs of `count` rows; the first one is at firsts[0] of x and firsts[1] of the outputs."""
        em = self._em
        main = em.isub(count, em.irem(count, ROWS))
        if isinstance(self.k, int):
            main = main if self.k % STEP == 0 else 0
        else:
            fills = em.cmpi("eq", em.index(em.irem(self.k, STEP)), 0)
            main = em.select(fills, em.index(main), 0)
        with em.loop(0, main, ROWS, hint="row") as row:  # rows that fill tiles are read where they are
            stride = em.imul(self.k, 2)
            start = em.imul(em.iadd(firsts[0], row.iv), stride)
            self._tile(x, start, stride)
            self._sums.finish(arguments, outputs, column_block, em.iadd(firsts[1], row.iv), ROWS)
        with em.loop(main, count, ROWS, hint="row") as row:
            own = em.imin(em.isub(count, row.iv), ROWS)
            self._copy_rows(x, em.iadd(firsts[0], row.iv), own)
            self._tile(self._rows, 0, em.imul(self._padded, 2))
            self._sums.finish(arguments, outputs, column_block, em.iadd(firsts[1], row.iv), own)

    def _copy_rows(self, x: Value, first: Index, count: Index) -> None:
        """Rows of x into scratch, zeros where K ends; rows beyond the last one hold anything, and aren't stored."""
        em, stored = self._em, vec(STEP, self._element)
        main = em.isub(self.k, em.irem(self.k, STEP))
        with em.loop(0, count, hint="copied") as row:
            source = em.iadd(first, row.iv)
            with em.loop(0, main, STEP, hint="k") as k:
                value = em.vload(x, [source, k.iv], stored)
                em.vstore(em.bitcast(value, vec(STEP, "i16")), self._rows, [row.iv, k.iv])
            with em.loop(main, self.k, STEP, hint="k") as k:
                value = em.masked_load(x, [source, k.iv], em.mask(em.isub(self.k, k.iv), STEP), em.zero(stored))
                em.vstore(em.bitcast(value, vec(STEP, "i16")), self._rows, [row.iv, k.iv])

    def _tile(self, rows: Value, start: Index, stride: Index) -> None:
        """The sums of 32 rows, `stride` bytes apart from byte `start` of a buffer on."""
        em = self._em
        line, between, width = self.stride(64), self.stride(stride), 4 * self._count * COLUMNS
        half = em.imul(self._padded, 2 * SIDE)
        for weight in range(self._count):
            for tile in range(4):
                self.emit("tilezero", tile)
            with em.loop(0, self._steps, hint="step") as step:
                for side in range(2):
                    at = em.iadd(em.iadd(start, em.imul(stride, side * SIDE)), em.imul(step.iv, 2 * STEP))
                    self.emit("tileloadd64", 4 + side, self.pointer(rows, at), between)
                    at = em.iadd(em.imul(step.iv, SIDE * 64), em.imul(half, 2 * weight + side))
                    self.emit("tileloadd64", 6 + side, self.pointer(self._weights, at), line)
                for tile in range(4):
                    product = {"bf16": "tdpbf16ps", "f16": "tdpfp16ps"}[self._element]
                    self.emit(product, tile, 4 + tile // 2, 6 + tile % 2)
            for tile in range(4):
                at = (tile // 2) * SIDE * width + 4 * (weight * COLUMNS + (tile % 2) * SIDE)
                self.emit("tilestored64", tile, self.pointer(self._sums.data, at), self.stride(width))


def _copy_panel(em: Emitter, tiles: TileUnit, data: Value, base: Index, place: tuple[int, int], ahead: int) -> None:
    """A panel from byte `base` on, in pairs, fetched so many bytes ahead."""
    k, line = tiles.k, 2 * PANEL_ROWS
    assert isinstance(k, int)

    def elements(index: Index) -> Value:
        at = em.iadd(base, em.imul(index, line))
        return em.bitcast(em.vload(data, [at], vec(line, "i8")), vec(SIDE, "i16"))

    with em.loop(0, k // 2, hint="pair") as pair:
        first = em.imul(pair.iv, 2)
        if ahead:
            em.prefetch(data, [em.iadd(base, em.iadd(em.imul(first, line), ahead))])
        tiles.store_pair(em.shuffle(elements(first), elements(em.iadd(first, 1)), PAIRS), place, pair.iv)
    if k % 2:
        tiles.store_pair(em.shuffle(elements(k - 1), em.zero(vec(SIDE, "i16")), PAIRS), place, k // 2)
    tiles.clear_pairs(place, -(-k // 2))


def copy_pairs(
    em: Emitter, tiles: TileUnit, weight: Matrix, column: Index, place: tuple[int, int], *, transpose_rhs: bool
) -> None:
    """16 columns of a matrix [K, N], or 16 rows of one [N, K], in pairs; columns beyond N repeat one, or are 0."""
    element = element_of(weight.data.type)
    if transpose_rhs:
        stored = vec(STEP, element)
        last = em.isub(weight.n, 1)
        lines = [em.iadd(weight.base, em.imin(em.iadd(column, i), last)) for i in range(SIDE)]
        with em.loop(0, tiles.k, STEP, hint="k") as k:
            mask = em.mask(em.isub(tiles.k, k.iv), STEP)
            square = [em.masked_load(weight.data, [line, k.iv], mask, em.zero(stored)) for line in lines]
            dwords = transpose(em, [em.bitcast(row, vec(SIDE, "i32")) for row in square])
            for i, pair in enumerate(dwords):
                at = em.iadd(em.idiv(k.iv, 2), i)
                tiles.store_pair(em.bitcast(pair, vec(2 * SIDE, "i16")), place, at)
        return
    mask = em.mask(em.imax(em.isub(weight.n, column), 0), SIDE)
    stored = vec(SIDE, element)

    def elements(k: Index) -> Value:
        row = em.masked_load(weight.data, [em.iadd(weight.base, k), column], mask, em.zero(stored))
        return em.bitcast(row, vec(SIDE, "i16"))

    half = em.idiv(tiles.k, 2)
    with em.loop(0, half, hint="pair") as loop:
        first = em.imul(loop.iv, 2)
        tiles.store_pair(em.shuffle(elements(first), elements(em.iadd(first, 1)), PAIRS), place, loop.iv)
    with em.loop(half, em.iceildiv(tiles.k, 2), hint="pair") as loop:
        single = elements(em.imul(loop.iv, 2))
        tiles.store_pair(em.shuffle(single, em.zero(vec(SIDE, "i16")), PAIRS), place, loop.iv)
    tiles.clear_pairs(place, em.iceildiv(tiles.k, 2))
