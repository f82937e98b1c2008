# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Packed weights inside of product kernels: tiles of decoded values, of runs of 32 elements of rows in planes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rlx_mlir.codegen.gpu.emit import DeviceEmitter, Index, Value
from rlx_mlir.codegen.gpu.gemm_base import Body, Extent, Tasks, swizzle
from rlx_mlir.codegen.gpu.gemm_config import Tile
from rlx_mlir.codegen.gpu.gemm_fma import PAD
from rlx_mlir.codegen.gpu.planes import PackedRows, quads_of, values
from rlx_mlir.formats.descriptions import RUN
from rlx_mlir.formats.planes import PlaneLayout


def packed_rows(em: DeviceEmitter, body: Body, layout: PlaneLayout, n: int, k: int) -> list[PackedRows]:
    """The rows of each weight, [N, K] in planes."""
    return [PackedRows(em, layout, k, pointer, n) for pointer in body.weights]


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
        for quad in quads_of(self.rows.layout, records):
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
