# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Products of f32 by fused multiply-adds (sm_80 on): exact, one chain of additions along K for each output.

That is the default for f32. With `tf32`, which rounds both operands to ten bits of fraction before they are multiplied,
tensor cores compute the same tiles: `gemm_tf32`.

Tiles stand in shared memory with K outermost, where a thread reads four neighbouring rows of x, and four columns of a
weight, at once. Operands whose lines run along K are transposed on the way, by copies of four bytes.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rlx_mlir.codegen import UnsupportedByTemplate
from rlx_mlir.codegen.gpu.emit import DeviceEmitter, Index, Value, vec
from rlx_mlir.codegen.gpu.gemm_base import (
    Access,
    Body,
    Extent,
    Gemm,
    Ring,
    WeightLoader,
    both,
    dense_loaders,
    guard,
    offset64,
    swizzle,
)
from rlx_mlir.codegen.gpu.gemm_config import FMA_TILES, Tile
from rlx_mlir.codegen.gpu.gemm_host import dense_operands, line_access, product_kernel
from rlx_mlir.codegen.gpu.gemm_ring import Staged, Sums, TileCore
from rlx_mlir.codegen.gpu.kernel import DeviceKernel

_ALONG = 8
"""Neighbours along K, and so along memory, that threads copy together: a sector of 32 bytes."""
PAD = 4
"""Elements between lines of a transposed tile, so that what threads copy together goes to different banks."""


@dataclass(frozen=True)
class TransposingLoader:
    """Copies `lines` lines of a matrix of f32 rows, `span` elements each, into shared memory as [span][lines + pad].

    What lies beyond the matrix becomes zeros. ld: elements between lines.
    """

    em: DeviceEmitter
    base: Value
    ld: Index
    lines: int
    span: int
    threads: int

    @staticmethod
    def nbytes(lines: int, span: int) -> int:
        """Shared memory of a tile."""
        return 4 * span * (lines + PAD)

    def place(self, line: Index, k: Index) -> Index:
        """Where an element lies, in elements."""
        return k * (self.lines + PAD) + line

    def fill(self, target: Value, columns: Extent, along: Extent) -> None:
        """Starts the copies of a tile: `columns` of N, or rows of x, and where it is along K."""
        em = self.em
        (line, line_limit, line_step), (at, limit, step) = columns, along
        thread, height = em.thread(), self.threads // _ALONG
        own_k, own_line = thread % _ALONG, thread // _ALONG
        for i in range(self.lines // height):
            local = own_line + i * height
            row = line + local
            inside = guard(em, row, line_limit, line_step)
            for j in range(self.span // _ALONG):
                k = own_k + j * _ALONG
                here = at + k
                exists = both(inside, guard(em, here, limit, step))
                source = em.at(self.base, offset64(em, (row, self.ld), (here, 1)), "f32")
                size = None if exists is None else em.select(exists, 4, 0)
                em.cp_async(em.at(target, self.place(local, k), "f32"), source, 4, count=size)


class FmaCore(TileCore):
    """Products of one thread: rows in groups of four, 16 apart, and columns in groups of four, 32 apart.

    Accumulators are of each product, row and group of columns.
    """

    def __init__(self, tile: Tile, products: int, *, transpose_rhs: bool, stride: int | None = None) -> None:
        super().__init__(tile, products)
        self.transpose_rhs, self.stride = transpose_rhs, stride
        self.row_groups, self.column_groups = tile.wm // 16, tile.wn // 32

    def parts(self, ring: Ring) -> None:
        """Takes the parts of a stage."""
        tile = self.tile
        self.x_part = ring.take(TransposingLoader.nbytes(tile.bm, tile.bk))
        size = TransposingLoader.nbytes(tile.bn, tile.bk) if self.transpose_rhs else 4 * tile.bn * tile.bk
        self.w_parts = [ring.take(size) for _ in range(self.products)]

    def bind(self, em: DeviceEmitter, body: Body, access: Access) -> None:
        """Makes `em`, in a kernel with this body, what code goes to."""
        super().bind(em, body, access)
        tile, sizes = self.tile, body.sizes
        start = offset64(em, (offset64(em, (body.place.x_batch, sizes.m)), sizes.k))
        base = em.at(body.x, start, "f32")
        self.x_loader = TransposingLoader(em, base, sizes.k, tile.bm, tile.bk, tile.threads)
        self.w_loaders = self.weight_loaders(access)

    def weight_loaders(self, access: Access) -> Sequence[WeightLoader]:
        """What fills the parts of the weights."""
        em, body, tile = self.em, self.body, self.tile
        if not self.transpose_rhs:
            return dense_loaders(em, body, tile, "f32", access.w, transpose_rhs=False)
        sizes = body.sizes
        start = offset64(em, (offset64(em, (body.place.w_batch, sizes.k)), sizes.n))
        return [
            TransposingLoader(em, em.at(pointer, start, "f32"), self.stride or sizes.k, tile.bn, tile.bk, tile.threads)
            for pointer in body.weights
        ]

    def zeros(self) -> Sums:
        """Accumulators of nothing."""
        return [[[[self.em.const(0.0, "f32")] * 4] * self.column_groups] * (4 * self.row_groups)] * self.products

    def _four(self, base: Value, place: Index) -> list[Value]:
        em = self.em
        return em.lanes(em.ld(em.at(base, place, "f32"), vec(4, "f32")))

    def _columns(self, part: Value, k: int) -> list[list[Value]]:
        """A thread's elements of a weight at k, by groups."""
        tile = self.tile
        first = self.warp.column + self.warp.lane % 8 * 4
        values = []
        for group in range(self.column_groups):
            column = first + 32 * group
            if self.transpose_rhs:
                values.append(self._four(part, column + k * (tile.bn + PAD)))
            else:
                chunk = swizzle(k, column // 4, tile.bn // 4)
                values.append(self._four(part, (chunk + k * (tile.bn // 4)) * 4))
        return values

    def multiply(self, stage: Value, sums: Sums, copy: Callable[[], None]) -> Sums:
        """The accumulators after a stage; calls `copy` after its first reads."""
        em, tile = self.em, self.tile
        x = em.at(stage, self.x_part, "i8")
        first = self.warp.row + self.warp.lane // 8 * 4
        for k in range(tile.bk):
            rows = []
            for group in range(self.row_groups):
                rows += self._four(x, first + (16 * group + k * (tile.bm + PAD)))
            for number, part in enumerate(self.w_parts):
                columns = self._columns(em.at(stage, part, "i8"), k)
                if k == number == 0:
                    copy()
                for row, own in zip(rows, sums[number], strict=True):
                    for four, totals in zip(columns, own, strict=True):
                        totals[:] = [em.fmaf(row, column, total) for column, total in zip(four, totals, strict=True)]
        return sums

    def stage(self, staged: Staged, sums: Sums) -> None:
        """Stores the warp's accumulators."""
        em, lane = self.em, self.warp.lane
        first_row, first_column = lane // 8 * 4, lane % 8 * 4
        for product, i, r, j in itertools.product(
            range(self.products), staged.blocks(), range(4), range(self.column_groups)
        ):
            value = em.vector(sums[product][4 * i + r][j])
            staged.store(value, product, first_row + (16 * i + r), first_column + 32 * j)


def fma_core(gemm: Gemm) -> Callable[[Tile], FmaCore]:
    """What multiplies dense operands by a tile."""
    products, across, stride = gemm.program.accumulators, gemm.transpose_rhs, gemm.w_stride
    return lambda tile: FmaCore(tile, products, transpose_rhs=across, stride=stride)


def gemm_fma(chip: str, gemm: Gemm) -> DeviceKernel:
    """The kernels of a product of f32; operands as for `gemm_mma`.

    Raises UnsupportedByTemplate for other element types.
    """
    if gemm.element != "f32":
        raise UnsupportedByTemplate(f"{gemm.name}: FMA tiles are for f32, but the product is of {gemm.element}")
    return product_kernel(chip, "gemm_fma", gemm, dense_operands(gemm), FMA_TILES, fma_core(gemm), line_access(gemm, 4))
