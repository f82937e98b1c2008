# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Packed weights inside of product kernels: runs of 32 elements of a row in layout `planes` (`formats.planes`).

Everything follows from the layout, which follows from the format's description.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rlx_mlir.codegen.gpu.emit import DeviceEmitter, Index, Value, vec
from rlx_mlir.codegen.gpu.gemm_base import Extent, Tasks, offset64, swizzle
from rlx_mlir.codegen.gpu.gemm_config import Tile
from rlx_mlir.codegen.gpu.gemm_fma import PAD
from rlx_mlir.formats import Factor, PlaneLayout
from rlx_mlir.formats.blocks import RUN

__all__ = ["DecodeLoader", "PackedRows", "quad_place", "signed_bytes", "store_halves", "store_transposed", "tile_runs"]

_MAGIC = 0x4B000000
"""2^23 as f32: its low bits are integers."""


def quad_place(widths: Sequence[int], plane: int, quad: Index) -> tuple[Index, Index]:
    """The dword of a run's record in a plane of bits that holds a quad of elements, and the shift there."""
    per_dword = 8 // widths[plane]
    return quad // per_dword, quad % per_dword * widths[plane]


@dataclass(frozen=True)
class PackedRows:
    """The rows [N, K] of a packed weight; rows and runs beyond the last are read as the last.

    What they are multiplied with is zero, or what comes of them isn't stored.
    """

    em: DeviceEmitter
    layout: PlaneLayout
    base: Value
    n: int
    k: int

    @property
    def per_run(self) -> int:
        """Scales of one run."""
        return max(1, RUN // self.layout.sub)

    def row(self, n: Index) -> Value:
        """The address of a row, or of the last."""
        em = self.em
        inside = em.imin(n, self.n - 1)
        return em.at(self.base, offset64(em, (inside, self.layout.row_bytes(self.k))), "i8")

    def run(self, run: Index) -> Index:
        """A run's number, or the last."""
        return self.em.imin(run, self.k // RUN - 1)

    def elements(self, row: Value, run: Index) -> list[Value]:
        """The 32 elements of a run of a dense format, as f32."""
        em, element = self.em, self.layout.name
        width = 16 // self.layout.format.nbytes
        address = em.at(row, run * RUN, element)
        values = []
        for i in range(0, RUN, width):
            values += em.lanes(em.widen(em.ld(em.at(address, i, element), vec(width, element))))
        return values

    def records(self, row: Value, run: Index) -> list[list[Value]]:
        """The dwords of a run of each plane of integers q."""
        em, layout = self.em, self.layout
        result = []
        for plane, start in zip(layout.quants, layout.offsets(self.k), strict=False):
            count = plane.nbytes // 4
            address = em.at(row, run * plane.nbytes + start, "i8")
            result.append(em.lanes(em.ld(address, vec(count, "i32") if count > 1 else "i32")))
        return result

    def quads(self, records: list[list[Value]]) -> list[Value]:
        """The integers of a run, as stored: eight dwords of four bytes."""
        layout = self.layout
        if layout.widths == (8,):
            return [*records[0], *records[1]]
        quads = []
        for quad in range(RUN // 4):
            total: Value | None = None
            into = 0
            for plane, width in enumerate(layout.widths):
                dword, shift = quad_place(layout.widths, plane, quad)
                assert isinstance(dword, int)
                assert isinstance(shift, int)
                bits = _shifted(records[plane][dword], shift - into) & _bytes(((1 << width) - 1) << into)
                total = bits if total is None else total | bits
                into += width
            assert total is not None, "a format with planes"
            quads.append(total)
        return quads

    def factor(self, row: Value, run: Index, sub: Index, factor: Factor) -> Value:
        """A scale or minimum, f32, of a sub-block of a run."""
        em, layout = self.em, self.layout
        starts = layout.offsets(self.k)
        assert layout.floats is not None, "a quantised format"
        block = run // (layout.format.block // RUN)
        place = block * layout.floats.nbytes + (starts[-1] + factor.number * layout.float_bytes)
        value = em.widen(em.ld(em.at(row, place, "i8"), "f16" if layout.float_bytes == 2 else "f32"))
        if factor.at is not None:
            assert layout.integers is not None, "a format with integers"
            number = run * self.per_run + sub
            if layout.sub > RUN:
                number = run // (layout.sub // RUN)
            place = number * layout.integers.nbytes + (starts[-2] + factor.at)
            stored = em.ld(em.at(row, place, "i8"), "i8")
            if factor.bits == 8:
                integer = em.cast("arith.extsi", stored, "i32")
            else:
                wide = em.cast("arith.extui", stored, "i32")
                integer = (wide >> factor.shift) & ((1 << factor.bits) - 1)
            value = value * em.cast("arith.sitofp", integer, "f32")
        return -value if factor.sign < 0 else value


def _shifted(x: Value, right: int) -> Value:
    """x shifted right; left where it is negative. What crosses bytes is masked by the caller."""
    if right == 0:
        return x
    return x >> right if right > 0 else x << -right


def _bytes(value: int) -> int:
    """The byte in all four bytes of a dword, as a signed number."""
    word = 0x01010101 * value
    return word - (1 << 32) if word >> 31 else word


def signed_bytes(quad: Value, layout: PlaneLayout) -> Value:
    """q - bias of four elements, as signed bytes."""
    if layout.signed or not layout.bias:
        return quad
    # With the top bits set, no byte borrows from its neighbour.
    moved = (quad | _bytes(0x80)) - _bytes(layout.bias)
    return moved ^ _bytes(0x80)


def values(em: DeviceEmitter, quad: Value, layout: PlaneLayout) -> list[Value]:
    """q - bias of four elements, as f32, exactly."""
    unsigned, bias = (quad ^ _bytes(0x80), 128) if layout.signed else (quad, layout.bias)
    result = []
    for byte in range(4):
        # The bytes (q, 0, 0, 0x4B) are the float 2^23 + q.
        word = em.pure(f"prmt.b32 $0, $1, $2, {0x7440 + byte};", [unsigned, em.const(_MAGIC, "i32")], "i32")
        result.append(em.bitcast(word, "f32") - float((1 << 23) + bias))
    return result


def tile_runs(
    rows: PackedRows, tile: Tile, columns: Extent, along: Extent
) -> tuple[Tasks, list[tuple[Index, Index, Value, Index]]]:
    """How a tile's runs are shared out: of each of the thread's, its column and number in the tile, its row's address,
    and its number in the row."""
    em, per_row = rows.em, tile.bk // RUN
    shared, first_run = Tasks(em, tile.bn * per_row, tile.threads), along[0] // RUN
    found = []
    for task in shared.numbers():
        run, n = task % per_row, task // per_row
        found.append((n, run, rows.row(columns[0] + n), rows.run(first_run + run)))
    return shared, found


@dataclass(frozen=True)
class DecodeLoader:
    """Fills a tile of a weight with decoded values: loads a step's integers before its products, decodes after them.

    store(target, n, run, values): puts 32 values (f32) of column `n` of the tile, from 32 `run` on along K.
    """

    em: DeviceEmitter
    rows: PackedRows
    tile: Tile
    store: Callable[[Value, Index, Index, list[Value]], None]

    def fill(self, target: Value, columns: Extent, along: Extent) -> Callable[[], None]:
        """Loads a tile's runs; what it returns decodes and stores them."""
        shared, runs = tile_runs(self.rows, self.tile, columns, along)
        made = [(n, run, self._loaded(row, here)) for n, run, row, here in runs]

        def decode() -> None:
            with shared.mine():
                for n, run, decoded in made:
                    self.store(target, n, run, decoded())

        return decode

    def _loaded(self, row: Value, run: Index) -> Callable[[], list[Value]]:
        """Loads a run; what it returns decodes it."""
        if self.rows.layout.dense:
            elements = self.rows.elements(row, run)
            return lambda: elements
        records, factors = self.rows.records(row, run), self._factors(row, run)
        return lambda: self._decoded(records, factors)

    def _factors(self, row: Value, run: Index) -> list[tuple[Value, Value | None]]:
        layout = self.rows.layout
        assert layout.scale is not None, "a quantised format"
        result = []
        for sub in range(self.rows.per_run):
            minimum = None if layout.minimum is None else self.rows.factor(row, run, sub, layout.minimum)
            result.append((self.rows.factor(row, run, sub, layout.scale), minimum))
        return result

    def _decoded(self, records: list[list[Value]], factors: list[tuple[Value, Value | None]]) -> list[Value]:
        em = self.em
        result: list[Value] = []
        per_factor = RUN // len(factors)
        for quad in self.rows.quads(records):
            for q in values(em, quad, self.rows.layout):
                scale, minimum = factors[len(result) // per_factor]
                value = q * scale
                result.append(value if minimum is None else value + minimum)
        return result


def store_halves(em: DeviceEmitter, tile: Tile, element: str) -> Callable[[Value, Index, Index, list[Value]], None]:
    """Stores decoded values rounded to f16 or bf16, as lines along K, as `TileLoader` does."""
    chunks = tile.bk // 8

    def store(target: Value, n: Index, run: Index, values: list[Value]) -> None:
        for i in range(RUN // 8):
            chunk = run * (RUN // 8) + i
            place = (n * chunks + swizzle(n, chunk, chunks)) * 16
            words = [em.pack(values[8 * i + j], values[8 * i + j + 1], element) for j in range(0, 8, 2)]
            em.st(em.vector(words), em.at(target, place, "i8"))

    return store


def store_transposed(em: DeviceEmitter, tile: Tile) -> Callable[[Value, Index, Index, list[Value]], None]:
    """Stores decoded values as f32 [K][columns + pad], as `TransposingLoader` does."""
    width = tile.bn + PAD

    def store(target: Value, n: Index, run: Index, values: list[Value]) -> None:
        first = em.at(target, run * (RUN * width) + n, "f32")
        for i, value in enumerate(values):
            em.st(value, em.at(first, i * width, "f32"))

    return store
