# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Products with packed weights of many rows (sm_80 on); weights are in layout `planes`.

- Of activations quantised in blocks of 32 (`mir.block_dot`): the planes of a tile pass through the ring as they are;
  each thread makes its fragments of them by shifts and masks, and mma m16n8k32 of signed bytes (two of k16, where a
  block has two scales) gives the exact integer products of a block, which f32 accumulators add up by scale.
- Of f32 (`mir.dequant_matmul`): tiles are decoded to f32, exactly as the reference does, and multiplied by FMA.
- Of f16 and bf16: tiles are decoded to integers and multiplied by mma, and scales follow in f32 (`gemm_exact`). Dense
  elements are rounded to the activations' type.

Weights are decoded once for each tile of rows, so many rows share the work. Scales that aren't finite, which only
broken files have, may give NaN where the references give infinities.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rlx_mlir.codegen import UnsupportedByTemplate
from rlx_mlir.codegen.emit import memref
from rlx_mlir.codegen.gpu.emit import DeviceEmitter, Index, Value, vec
from rlx_mlir.codegen.gpu.gemm_base import (
    Access,
    Body,
    Gemm,
    Ring,
    Tasks,
    WeightLoader,
    both,
    guard,
    offset64,
    together,
    x_loader,
)
from rlx_mlir.codegen.gpu.gemm_config import DECODE_FMA_TILES, EXACT_TILES, MMA_TILES, QUANT_TILES, Tile
from rlx_mlir.codegen.gpu.gemm_decode import DecodeLoader, packed_rows, store_halves, store_transposed
from rlx_mlir.codegen.gpu.gemm_exact import ExactMmaCore
from rlx_mlir.codegen.gpu.gemm_fma import FmaCore
from rlx_mlir.codegen.gpu.gemm_host import arguments_of, product_kernel
from rlx_mlir.codegen.gpu.gemm_mma import FragmentCore, MmaCore, a_fragments
from rlx_mlir.codegen.gpu.gemm_ring import Sums
from rlx_mlir.codegen.gpu.kernel import DeviceKernel
from rlx_mlir.codegen.gpu.planes import PackedRows, quad_at, signed_bytes
from rlx_mlir.formats.descriptions import RUN
from rlx_mlir.formats.planes import PlaneLayout, plane_layout

_CENTRE = 0x4B400000
_CENTRE_VALUE = 1.5 * 2.0**23
"""What integer accumulators start from, and the f32 of these bits: the accumulators' bits are then the f32 that is the
sum plus this number, which needs no conversion."""


class DecodedMmaCore(MmaCore):
    """Products of halves with weights of another type, which are rounded to halves on the way into the ring."""

    def __init__(self, tile: Tile, element: str, products: int, layout: PlaneLayout, n: int, k: int) -> None:
        super().__init__(tile, element, products, transpose_rhs=True)
        self._layout, self._n, self._k = layout, n, k

    def weight_loaders(self, access: Access) -> Sequence[WeightLoader]:
        """What decodes tiles."""
        em = self.em
        store = store_halves(em, self.tile, self.element)
        packed = packed_rows(em, self.body, self._layout, self._n, self._k)
        return [DecodeLoader(em, rows, self.tile, store) for rows in packed]


class DecodedFmaCore(FmaCore):
    """Products of f32 with packed weights, whose tiles are decoded on the way into the ring."""

    def __init__(self, tile: Tile, products: int, layout: PlaneLayout, n: int, k: int) -> None:
        super().__init__(tile, products, transpose_rhs=True)
        self._layout, self._n, self._k = layout, n, k

    def weight_loaders(self, access: Access) -> Sequence[WeightLoader]:
        """What decodes tiles."""
        em = self.em
        store = store_transposed(em, self.tile)
        packed = packed_rows(em, self.body, self._layout, self._n, self._k)
        return [DecodeLoader(em, rows, self.tile, store) for rows in packed]


@dataclass(frozen=True)
class _WeightParts:
    """Offsets in a stage of one weight: planes [run][column][record], scales and minima [run][part of run][column]."""

    planes: tuple[int, ...]
    scale: int
    minimum: int | None


class IntegerCore(FragmentCore):
    """Integer products of a block's tile, and their sum by scales."""

    def __init__(self, tile: Tile, products: int, layout: PlaneLayout, n: int, k: int) -> None:
        super().__init__(tile, products)
        self.layout, self.n, self.k = layout, n, k
        self.runs = tile.bk // RUN
        self.halves = max(1, RUN // layout.sub)

    @property
    def _needs_sums(self) -> bool:
        """Whether sums of x's blocks are read; those of half blocks are made of x."""
        return self.layout.minimum is not None and self.halves == 1

    def parts(self, ring: Ring) -> None:
        """Takes the parts of a stage."""
        tile, layout = self.tile, self.layout
        self.x_part = ring.take(tile.bm * tile.bk)
        self.scale_part = ring.take(4 * tile.bm * self.runs)
        self.sum_part = ring.take(4 * tile.bm * self.runs) if self._needs_sums else 0
        factors = 4 * tile.bn * self.runs * self.halves
        self.packed_parts = [
            _WeightParts(
                tuple(ring.take(plane.nbytes * tile.bn * self.runs) for plane in layout.quants),
                ring.take(factors),
                None if layout.minimum is None else ring.take(factors),
            )
            for _ in range(self.products)
        ]

    def bind(self, em: DeviceEmitter, body: Body, access: Access) -> None:
        """Makes `em`, in a kernel with this body, what code goes to."""
        super().bind(em, body, access)
        self.x_loader = x_loader(em, body, self.tile, "i8", 16)
        self.packed = packed_rows(em, body, self.layout, self.n, self.k)

    # -- into the ring ------------------------------------------------------------------------------------------------

    def issue_x(self, stage: Value, step: Index) -> None:
        """Starts the copies of a step of x."""
        super().issue_x(stage, step)
        self._x_factors(stage, step * self.runs)

    def issue_weights(self, stage: Value, step: Index) -> Callable[[], None] | None:
        """Starts those of the weights, whose scales are stored later."""
        first = step * self.runs
        return together(
            self._weight(stage, first, own, parts) for own, parts in zip(self.packed, self.packed_parts, strict=True)
        )

    def _weight(self, stage: Value, first: Index, own: PackedRows, parts: _WeightParts) -> Callable[[], None]:
        """Copies planes of a weight's tile; what it returns stores its scales and minima."""
        em, tile, runs = self.em, self.tile, self.runs
        starts = self.layout.offsets(self.k)
        stores = []
        shared = Tasks(em, tile.bn * runs, tile.threads)
        for task in shared.numbers():
            run, n = task % runs, task // runs
            row, here = own.row(self.body.place.column + n), own.run(first + run)
            place = run * tile.bn + n
            with shared.mine():
                for plane, start, part in zip(self.layout.quants, starts, parts.planes, strict=False):
                    source = em.at(row, here * plane.nbytes + start, "i8")
                    target = em.at(stage, place * plane.nbytes + part, "i8")
                    em.cp_async(target, source, plane.nbytes)
            stores.append(self._w_factors(stage, own, parts, (row, here), (run, n)))

        def later() -> None:
            with shared.mine():
                for store in stores:
                    store()

        return later

    def _x_factors(self, stage: Value, first: Index) -> None:
        """Copies scales, and sums, of the step's blocks of x as [run][row]; zeros beyond the last."""
        em, tile, body, runs = self.em, self.tile, self.body, self.runs
        scales, sums = body.more
        limit = body.limit // RUN
        shared = Tasks(em, tile.bm * runs, tile.threads)
        with shared.mine():
            for task in shared.numbers():
                run, local = task % runs, task // runs
                row, block = body.place.row + local, first + run
                exists = both(guard(em, row, body.sizes.m, tile.bm), guard(em, block, limit, 0))
                size = None if exists is None else em.select(exists, 4, 0)
                at = offset64(em, (row, self.k // RUN), (block, 1))
                place = run * tile.bm + local
                for pointer, part in ((scales, self.scale_part), (sums, self.sum_part)):
                    if pointer is scales or self._needs_sums:
                        target = em.at(stage, place * 4 + part, "i8")
                        em.cp_async(target, em.at(pointer, at, "f32"), 4, count=size)

    def _w_factors(
        self,
        stage: Value,
        own: PackedRows,
        parts: _WeightParts,
        source: tuple[Value, Index],
        local: tuple[Index, Index],
    ) -> Callable[[], None]:
        """Loads scales and minima of a run; what it returns stores them."""
        em, layout, tile = self.em, self.layout, self.tile
        wanted = [(layout.scale, parts.scale), (layout.minimum, parts.minimum)]
        made = []
        for sub in range(self.halves):
            place = (local[0] * self.halves + sub) * tile.bn + local[1]
            for factor, part in wanted:
                if factor is not None and part is not None:
                    made.append((own.factor(*source, sub, factor), place * 4 + part))

        def store() -> None:
            for value, at in made:
                em.st(value, em.at(stage, at, "i8"))

        return store

    # -- products -----------------------------------------------------------------------------------------------------

    def _b_fragment(self, stage: Value, parts: _WeightParts, run: int, j: int) -> list[Value]:
        """The registers of a weight for a run and 8 columns: bytes of the quads t and t + 4, t = lane % 4."""
        em, layout, lane = self.em, self.layout, self.warp.lane
        n = self.warp.column + (8 * j + run * self.tile.bn) + lane // 4
        quad = lane % 4

        def word(plane: int, number: Index) -> Value:
            at = n * layout.quants[plane].nbytes + number * 4
            return em.ld(em.at(stage, at + parts.planes[plane], "i8"), "i32")

        result = []
        for half in range(2):
            if layout.widths == (8,):
                at = n * 16 + quad * 4
                stored = em.ld(em.at(stage, at + parts.planes[half], "i8"), "i32")
            else:
                stored = quad_at(layout, quad + 4 * half, word)
            result.append(signed_bytes(stored, layout))
        return result

    def _dots(self, a: Sequence[Value], b: Sequence[Value]) -> list[Value]:
        """The four integer products of m16n8 with 32 or 16 elements along k, as f32, plus `_CENTRE_VALUE`."""
        em = self.em
        start = [em.const(_CENTRE, "i32")] * 4
        return [em.bitcast(x, "f32") for x in em.mma("s8", a, b, start, 32 if len(b) == 2 else 16)]

    def _scaled(self, dot: Value, scale: Value, moved: Value) -> Value:
        """A dot product times its scale; `moved` is -_CENTRE_VALUE times the scale.

        That is exact for scales of f16 times integers of 8 bits, so one multiply-add rounds as the product alone does.
        """
        em = self.em
        if self.layout.float_bytes == 2:
            return em.fmaf(dot, scale, moved)
        return (dot - _CENTRE_VALUE) * scale

    def _per_row(self, stage: Value, part: int, run: int, type: str) -> list[list[Value]]:
        """Values [run][row] of x's blocks, for rows g and g + 8 of each 16."""
        em = self.em
        first = self.warp.row + self.warp.lane // 4 + run * self.tile.bm
        base = em.at(stage, first * 4 + part, "i8")
        return [[em.ld(base, type, 16 * i + 8 * half) for half in range(2)] for i in range(self.rows)]

    def multiply(self, stage: Value, sums: Sums, copy: Callable[[], None]) -> Sums:
        """The accumulators after a stage; calls `copy` after its first reads."""
        for run in range(self.runs):
            a = a_fragments(self.em, self.warp, self.tile, stage, self.x_part, run, self.tile.bk // 16)
            scales = self._per_row(stage, self.scale_part, run, "f32")
            totals = self._totals(stage, a, run)
            if run == 0:
                copy()
            for parts, own in zip(self.packed_parts, sums, strict=True):
                self._run(stage, parts, run, a, scales, totals, own)
        return sums

    def _totals(self, stage: Value, a: list[list[Value]], run: int) -> list[list[list[Value]]]:
        """Sums of x, f32, of each part of the run, each 16 rows, rows g and g + 8; none where nothing needs them."""
        em = self.em
        if self.layout.minimum is None:
            return []
        if self.halves == 1:
            whole = self._per_row(stage, self.sum_part, run, "i32")
            return [[[em.cast("arith.sitofp", x, "f32") for x in two] for two in whole]]
        ones = [em.const(0x01010101, "i32")]
        return [
            [
                [dot - _CENTRE_VALUE for dot in self._dots(a[i][2 * half : 2 * half + 2], ones)[::2]]
                for i in range(self.rows)
            ]
            for half in range(self.halves)
        ]

    def _run(
        self,
        stage: Value,
        parts: _WeightParts,
        run: int,
        a: list[list[Value]],
        scales: list[list[Value]],
        totals: list[list[list[Value]]],
        sums: list[list[list[Value]]],
    ) -> None:
        """Adds one run to the accumulators of one weight."""
        em, tile = self.em, self.tile
        column = self.warp.column + self.warp.lane % 4 * 2

        def factors(part: int, half: int, j: int) -> list[Value]:
            at = (column + (8 * j + (run * self.halves + half) * tile.bn)) * 4 + part
            return em.lanes(em.ld(em.at(stage, at, "i8"), vec(2, "f32")))

        for j in range(self.columns):
            b = self._b_fragment(stage, parts, run, j)
            d = [factors(parts.scale, half, j) for half in range(self.halves)]
            moved = [[x * -_CENTRE_VALUE for x in own] for own in d]
            m = [] if parts.minimum is None else [factors(parts.minimum, half, j) for half in range(self.halves)]
            for i in range(self.rows):
                values: list[Value] = []
                for half in range(self.halves):
                    cut = (a[i], b) if self.halves == 1 else (a[i][2 * half : 2 * half + 2], b[half : half + 1])
                    dots = self._dots(*cut)
                    for e in range(4):
                        value = self._scaled(dots[e], d[half][e % 2], moved[half][e % 2])
                        if m:
                            value = em.fmaf(m[half][e % 2], totals[half][i][e // 2], value)
                        values[e : e + 1] = [values[e] + value if half else value]
                pairs = enumerate(zip(values, sums[i][j], strict=True))
                sums[i][j] = [em.fmaf(value, scales[i][e // 2], total) for e, (value, total) in pairs]


# ----------------------------------------------------------------------------------------------------------------------
# Kernels
# ----------------------------------------------------------------------------------------------------------------------


def _layout(gemm: Gemm, scheme: str, *, dense: bool) -> PlaneLayout:
    layout = plane_layout(scheme)
    whole = gemm.k is not None and gemm.k % RUN == 0
    if (layout.dense and not dense) or not whole or gemm.n is None or gemm.batched:
        raise UnsupportedByTemplate(f"{gemm.name}: {scheme} weights [{gemm.n}, {gemm.k}] have no schedule of this kind")
    return layout


def _weights(gemm: Gemm, layout: PlaneLayout) -> list[tuple[str, str]]:
    assert gemm.k is not None
    type = memref((gemm.n, layout.row_bytes(gemm.k)), "i8")
    return [(f"w{i}", type) for i in range(gemm.program.accumulators)]


def _columns(gemm: Gemm, width: int) -> int:
    assert gemm.n is not None
    return width if gemm.n % width == 0 else 1


def _fitting(tiles: tuple[Tile, ...], layout: PlaneLayout) -> tuple[Tile, ...]:
    """Tiles whose threads have the registers: with two scales and minima a run, there are none for the largest."""
    return tiles[1:] if layout.sub < RUN and layout.minimum is not None else tiles


def gemm_decoded(chip: str, gemm: Gemm, scheme: str) -> DeviceKernel:
    """The kernels of a product with packed weights, decoded: `mir.dequant_matmul`.

    Operands: x [..., K] f32, f16 or bf16; the weights, uint8 [N, row bytes] in planes of `scheme`; the program's
    arguments; then the outputs. gemm.w_shape is (N, K), with transpose_rhs.
    """
    layout = _layout(gemm, scheme, dense=True)
    n, k, products = gemm.n or 0, gemm.k or 0, gemm.program.accumulators
    operands = [("x", memref(gemm.x_shape, gemm.element)), *_weights(gemm, layout), *arguments_of(gemm)]

    def core(tile: Tile) -> DecodedMmaCore | DecodedFmaCore | ExactMmaCore:
        if gemm.element == "f32":
            return DecodedFmaCore(tile, products, layout, n, k)
        if not layout.dense:
            return ExactMmaCore(tile, gemm.element, products, layout, n, k)
        return DecodedMmaCore(tile, gemm.element, products, layout, n, k)

    width = 4 if gemm.element == "f32" else 8
    tiles = DECODE_FMA_TILES if gemm.element == "f32" else MMA_TILES if layout.dense else _fitting(EXACT_TILES, layout)
    return product_kernel(chip, "gemm_decoded", gemm, operands, tiles, core, [Access(16, 16, _columns(gemm, width))])


def gemm_block_dot(chip: str, gemm: Gemm, scheme: str) -> DeviceKernel:
    """The kernels of integer products with packed weights: `mir.block_dot`.

    Operands: q [..., K] i8, scale [..., K / 32] f32 and sum [..., K / 32] i32 of `mir.block_quantize`; the weights, in
    planes of `scheme`; the program's arguments; then the outputs, f32. gemm.x_shape is that of q, w_shape is (N, K).
    """
    layout = _layout(gemm, scheme, dense=False)
    n, k, products = gemm.n or 0, gemm.k or 0, gemm.program.accumulators
    if gemm.element != "f32":
        raise UnsupportedByTemplate(f"{gemm.name}: integer products give f32, but the outputs are {gemm.element}")
    blocks = (*gemm.x_shape[:-1], k // RUN)
    quantised = [("x", memref(gemm.x_shape, "i8")), ("scale", memref(blocks, "f32")), ("sum", memref(blocks, "i32"))]
    operands = [*quantised, *_weights(gemm, layout), *arguments_of(gemm)]

    def core(tile: Tile) -> IntegerCore:
        return IntegerCore(tile, products, layout, n, k)

    access, tiles = [Access(16, 16, _columns(gemm, 4))], _fitting(QUANT_TILES, layout)
    return product_kernel(chip, "gemm_block_dot", gemm, operands, tiles, core, access, more=2)
