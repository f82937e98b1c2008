# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Products of f16 and bf16 with packed weights, as exact as in f32: scales never meet the tensor cores.

Tiles of a weight are decoded to its integers q - bias, of 8 bits and a sign, which both types hold exactly. Their
products with x begin at zero for each run that has a scale. f32 accumulators add them up by it, and by the minimum
times the sum of x, which a product with ones gives. Decoded weights as such would be rounded to the type of x, by 2^-8
of each in bf16, and those above 65504 are infinite in f16.

A row of x with infinities gives NaN where a format has minima and the reference may have infinities.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rlx_mlir.codegen.gpu.emit import DeviceEmitter, Index, Value, vec
from rlx_mlir.codegen.gpu.gemm_base import Access, Extent, Ring
from rlx_mlir.codegen.gpu.gemm_config import Tile
from rlx_mlir.codegen.gpu.gemm_decode import packed_rows, store_halves, tile_runs
from rlx_mlir.codegen.gpu.gemm_mma import MmaCore, a_fragments, chunk_place
from rlx_mlir.codegen.gpu.gemm_ring import Sums
from rlx_mlir.codegen.gpu.planes import PackedRows, quads_of, values
from rlx_mlir.formats.descriptions import RUN
from rlx_mlir.formats.planes import PlaneLayout

STEP = 16
"""Elements along K of one mma."""
#: Two ones, of each type.
_ONES = {"f16": 0x3C003C00, "bf16": 0x3F803F80}


@dataclass(frozen=True)
class _Loader:
    """Fills a tile with a weight's integers, and what follows it with factors [part of K][scale, minimum][column]."""

    em: DeviceEmitter
    rows: PackedRows
    tile: Tile
    element: str

    def fill(self, target: Value, columns: Extent, along: Extent) -> Callable[[], None]:
        """Loads a tile's runs; what it returns decodes and stores them."""
        em, tile, rows = self.em, self.tile, self.rows
        shared, runs = tile_runs(rows, tile, columns, along)
        made = [(n, run, rows.records(row, here), self._factors(row, here)) for n, run, row, here in runs]
        store = store_halves(em, tile, self.element)

        def decode() -> None:
            with shared.mine():
                for n, run, records, factors in made:
                    integers = [x for quad in quads_of(rows.layout, records) for x in values(em, quad, rows.layout)]
                    store(target, n, run, integers)
                    first = run * len(factors) * tile.bn + n
                    for number, factor in enumerate(factors):
                        place = first + (number * tile.bn + tile.bn * tile.bk // 2)
                        em.st(factor, em.at(target, place, "f32"))

        return decode

    def _factors(self, row: Value, run: Index) -> list[Value]:
        """Scales, each with its minimum where there are some, of a run."""
        own = [factor for factor in (self.rows.layout.scale, self.rows.layout.minimum) if factor is not None]
        return [self.rows.factor(row, run, sub, factor) for sub in range(self.rows.per_run) for factor in own]


class ExactMmaCore(MmaCore):
    """Products with packed weights whose integers are multiplied by mma; accumulators are those of `MmaCore`."""

    def __init__(self, tile: Tile, element: str, products: int, layout: PlaneLayout, n: int, k: int) -> None:
        super().__init__(tile, element, products, transpose_rhs=True)
        self._layout, self._n, self._k = layout, n, k
        self._per_run = max(1, RUN // layout.sub)
        """Scales of a run."""
        self._kinds = 1 if layout.minimum is None else 2
        """Factors for each: a scale, and a minimum."""

    def parts(self, ring: Ring) -> None:
        """Takes the parts of a stage: a weight's factors follow its integers."""
        tile = self.tile
        self.x_part = ring.take(tile.bm * tile.bk * 2)
        factors = 4 * tile.bn * tile.bk // RUN * self._per_run * self._kinds
        self.w_parts = [ring.take(tile.bn * tile.bk * 2 + factors) for _ in range(self.products)]

    def weight_loaders(self, access: Access) -> Sequence[_Loader]:
        """What decodes tiles to integers."""
        em = self.em
        packed = packed_rows(em, self.body, self._layout, self._n, self._k)
        return [_Loader(em, own, self.tile, self.element) for own in packed]

    def multiply(self, stage: Value, sums: Sums, copy: Callable[[], None]) -> Sums:
        """The accumulators after a stage; calls `copy` after its first reads."""
        em, chunks = self.em, self.tile.bk // self.width
        steps = RUN // STEP // self._per_run
        for part in range(self.tile.bk // RUN * self._per_run):
            own = range(part * steps, (part + 1) * steps)
            a = [a_fragments(em, self.warp, self.tile, stage, self.x_part, step, chunks) for step in own]
            totals = self._totals(a)
            if part == 0:
                copy()
            for w_part, of_weight in zip(self.w_parts, sums, strict=True):
                self._add(em.at(stage, w_part, "i8"), part, own, a, totals, of_weight)
        return sums

    def _totals(self, a: Sequence[list[list[Value]]]) -> list[list[Value]]:
        """Sums of x over a part of K, of each 16 rows: those of rows g and g + 8; none where nothing needs them."""
        em = self.em
        if self._kinds == 1:
            return []
        ones = [em.const(_ONES[self.element])] * 2
        result = []
        for i in range(self.rows):
            dots = [em.const(0.0, "f32")] * 4
            for step in a:
                dots = em.mma(self.kind, step[i], ones, dots)
            result.append(dots[::2])
        return result

    def _add(
        self,
        w: Value,
        part: int,
        steps: range,
        a: Sequence[list[list[Value]]],
        totals: Sequence[Sequence[Value]],
        sums: list[list[list[Value]]],
    ) -> None:
        """Adds to the accumulators of one weight what a part of K gives that has one scale."""
        em, tile = self.em, self.tile
        lane = self.warp.lane % 4 * 2
        for pair in range(0, self.columns, 2):
            fragments = [self._b_pair(w, pair, step) for step in steps]
            for own, j in enumerate(range(pair, min(pair + 2, self.columns))):
                column = self.warp.column + lane + (8 * j + tile.bn * tile.bk // 2)
                scale, *minimum = (self._factors(w, column, self._kinds * part + kind) for kind in range(self._kinds))
                for i in range(self.rows):
                    dots = [em.const(0.0, "f32")] * 4
                    for step, b in zip(a, fragments, strict=True):
                        dots = em.mma(self.kind, step[i], b[own], dots)
                    four = sums[i][j]
                    for e, dot in enumerate(dots):
                        value = em.fmaf(dot, scale[e % 2], four[e])
                        four[e] = em.fmaf(totals[i][e // 2], minimum[0][e % 2], value) if minimum else value

    def _factors(self, w: Value, column: Index, number: int) -> list[Value]:
        """Two neighbouring columns' factors; `column` counts from the beginning of a weight's part of a stage."""
        em = self.em
        return em.lanes(em.ld(em.at(w, column + number * self.tile.bn, "f32"), vec(2, "f32")))

    def _b_pair(self, w: Value, pair: int, step: int) -> list[list[Value]]:
        """The registers of a weight for 16 elements along K, of two blocks of 8 columns."""
        em, lane = self.em, self.warp.lane
        own = lane % 8 + lane // 16 * 8
        line = self.warp.column + 8 * pair + own
        chunk = lane // 8 % 2 + 2 * step
        registers = em.ldmatrix(em.at(w, chunk_place(line, chunk, self.tile.bk // self.width), "i8"))
        return [registers[:2], registers[2:]]
