# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Products of f16 and bf16 by the tensor cores of warps (sm_80 on): mma m16n8k16, f32 accumulation.

Tiles of both operands pass through a ring of stages in shared memory by cp.async; ldmatrix reads fragments from there,
without conflicts of banks, as chunks of 16 bytes are swizzled. The accumulators end in shared memory, from where each
thread takes eight neighbouring columns through the epilogue. A row's result is the same bits for any number of rows of
the same tile.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace

from rlx_mlir.codegen import UnsupportedByTemplate
from rlx_mlir.codegen.gpu.emit import DeviceEmitter, Index, Value
from rlx_mlir.codegen.gpu.gemm_base import (
    Access,
    Body,
    Gemm,
    Ring,
    WeightLoader,
    dense_loaders,
    size_bytes,
    swizzle,
    x_loader,
)
from rlx_mlir.codegen.gpu.gemm_config import MMA_TILES, TF32_TILES, Tile
from rlx_mlir.codegen.gpu.gemm_host import dense_operands, line_access, product_kernel
from rlx_mlir.codegen.gpu.gemm_ring import Staged, Sums, TileCore, WarpTile
from rlx_mlir.codegen.gpu.kernel import DeviceKernel


def chunk_place(line: Index, chunk: Index, chunks: int) -> Index:
    """The byte of a swizzled tile at which a chunk of a line of `chunks` lies."""
    return (line * chunks + swizzle(line, chunk, chunks)) * 16


def a_fragments(
    em: DeviceEmitter, warp: WarpTile, tile: Tile, stage: Value, part: int, step: int, chunks: int
) -> list[list[Value]]:
    """The registers of x for 32 bytes along k, of each 16 rows; lane i reads row i % 16, half i / 16.

    part: where the tile of x is in the stage, lines of `chunks` pieces of 16 bytes. step: which 32 bytes.
    """
    line, half = warp.row + warp.lane % 16, warp.lane // 16
    place = em.at(stage, chunk_place(line, half + 2 * step, chunks) + part, "i8")
    return [em.ldmatrix(em.at(place, 16 * i * chunks * 16, "i8")) for i in range(tile.wm // 16)]


class FragmentCore(TileCore):
    """A core whose accumulators are of each product, of each 16 rows, of each 8 columns, the four of m16n8."""

    def __init__(self, tile: Tile, products: int) -> None:
        super().__init__(tile, products)
        self.rows, self.columns = tile.wm // 16, tile.wn // 8

    def zeros(self) -> Sums:
        """Accumulators of nothing."""
        return [[[[self.em.const(0.0, "f32")] * 4] * self.columns] * self.rows] * self.products

    def stage(self, staged: Staged, sums: Sums) -> None:
        """Stores the warp's accumulators: a thread has two neighbouring columns of rows lane / 4 and lane / 4 + 8."""
        em, row, column = self.em, self.warp.lane // 4, self.warp.lane % 4 * 2
        for product, own in enumerate(sums):
            for i, j, half in itertools.product(staged.blocks(), range(len(own[0])), range(2)):
                values = em.vector(own[i][j][2 * half : 2 * half + 2])
                staged.store(values, product, row + (16 * i + 8 * half), column + 8 * j)


class MmaCore(FragmentCore):
    """Fragments and products of one warp, for operands in a stage of the ring; f32 operands are rounded to tf32."""

    def __init__(
        self, tile: Tile, element: str, products: int, *, transpose_rhs: bool, stride: int | None = None
    ) -> None:
        super().__init__(tile, products)
        self.element, self.transpose_rhs, self.stride = element, transpose_rhs, stride
        self.kind = "tf32" if element == "f32" else element
        self.width = 16 // size_bytes(element)

    def parts(self, ring: Ring) -> None:
        """Takes the parts of a stage."""
        tile, nbytes = self.tile, size_bytes(self.element)
        self.x_part = ring.take(tile.bm * tile.bk * nbytes)
        self.w_parts = [ring.take(tile.bn * tile.bk * nbytes) for _ in range(self.products)]

    def bind(self, em: DeviceEmitter, body: Body, access: Access) -> None:
        """Makes `em`, in a kernel with this body, what code goes to."""
        super().bind(em, body, access)
        self.x_loader = x_loader(em, body, self.tile, self.element, access.x)
        self.w_loaders = self.weight_loaders(access)

    def weight_loaders(self, access: Access) -> Sequence[WeightLoader]:
        """What fills the parts of the weights."""
        return dense_loaders(
            self.em,
            self.body,
            self.tile,
            self.element,
            access.w,
            transpose_rhs=self.transpose_rhs,
            stride=self.stride,
            pairs=self._pairs,
        )

    @property
    def _pairs(self) -> int:
        """How weights are swizzled: fragments of tf32 from lines along N are read element by element, four lines at
        once."""
        return 2 if self.kind == "tf32" and not self.transpose_rhs else 1

    def _rounded(self, registers: list[Value]) -> list[Value]:
        """Registers as the tensor cores take them: f32 rounded to tf32, not cut off."""
        em = self.em
        if self.kind != "tf32":
            return registers
        return [em.pure("cvt.rna.tf32.f32 $0, $1;", [em.bitcast(x, "f32")], "i32") for x in registers]

    def _b_fragments(self, w: Value, step: int) -> list[list[Value]]:
        """The registers of a weight for 32 bytes along k, of each 8 columns."""
        if self._pairs == 2:
            return self._b_elements(w, step)
        em, lane = self.em, self.warp.lane
        result = []
        for i in range(0, self.columns, 2):
            if self.transpose_rhs:
                chunks = self.tile.bk // self.width
                own = lane % 8 + lane // 16 * 8
                line = self.warp.column + 8 * i + own
                chunk = lane // 8 % 2 + 2 * step
            else:
                chunks = self.tile.bn // self.width
                line = lane % 16 + 16 * step
                chunk = self.warp.column // 8 + i + lane // 16
            place = em.at(w, chunk_place(line, chunk, chunks), "i8")
            registers = self._rounded(em.ldmatrix(place, transpose=not self.transpose_rhs))
            result += [registers[:2], registers[2:]]
        return result

    def _b_elements(self, w: Value, step: int) -> list[list[Value]]:
        """As `_b_fragments`, for lines of f32 along N: elements (t, g) and (t + 4, g), t = lane % 4, g = lane / 4."""
        em, chunks = self.em, self.tile.bn // self.width
        line, own = self.warp.lane % 4 + 8 * step, self.warp.lane // 4
        result = []
        for j in range(self.columns):
            column = self.warp.column + 8 * j + own
            registers = []
            for half in range(2):
                here = line + 4 * half
                chunk = swizzle(here, column // 4, chunks, 2)
                place = (here * chunks + chunk) * 4 + column % 4
                registers.append(em.ld(em.at(w, place, "f32"), "i32"))
            result.append(self._rounded(registers))
        return result

    def multiply(self, stage: Value, sums: Sums, copy: Callable[[], None]) -> Sums:
        """The accumulators after a stage; calls `copy` after its first reads."""
        em, chunks = self.em, self.tile.bk // self.width
        for step in range(chunks // 2):
            fragments = a_fragments(em, self.warp, self.tile, stage, self.x_part, step, chunks)
            a = [self._rounded(registers) for registers in fragments]
            for number, part in enumerate(self.w_parts):
                b = self._b_fragments(em.at(stage, part, "i8"), step)
                if step == number == 0:
                    copy()
                for left, own in zip(a, sums[number], strict=True):
                    own[:] = [em.mma(self.kind, left, right, four) for right, four in zip(b, own, strict=True)]
        return sums


def mma_core(gemm: Gemm) -> Callable[[Tile], MmaCore]:
    """What multiplies dense operands by a tile."""
    products, across, stride = gemm.program.accumulators, gemm.transpose_rhs, gemm.w_stride
    return lambda tile: MmaCore(tile, gemm.element, products, transpose_rhs=across, stride=stride)


def gemm_mma(chip: str, gemm: Gemm) -> DeviceKernel:
    """The kernels of a product of f16 or bf16.

    Operands: x [..., K], then the weights [..., K, N] ([..., N, K] with transpose_rhs), then the program's arguments;
    then the outputs [..., N].

    Raises UnsupportedByTemplate for other element types.
    """
    if gemm.element not in ("f16", "bf16"):
        raise UnsupportedByTemplate(f"{gemm.name}: mma multiplies f16 and bf16, but the product is of {gemm.element}")
    access = line_access(gemm, 2)
    modest = replace(MMA_TILES[-2], bk=MMA_TILES[-2].bk // 2)
    return product_kernel(
        chip, "gemm_mma", gemm, dense_operands(gemm), MMA_TILES, mma_core(gemm), access, modest=modest
    )


def gemm_tf32(chip: str, gemm: Gemm) -> DeviceKernel:
    """The kernels of a product of f32 whose operands are rounded to tf32: ten bits of fraction. Only on request.

    Raises UnsupportedByTemplate for other element types.
    """
    if gemm.element != "f32":
        raise UnsupportedByTemplate(f"{gemm.name}: tf32 stands for f32, but the product is of {gemm.element}")
    return product_kernel(
        chip, "gemm_tf32", gemm, dense_operands(gemm), TF32_TILES, mma_core(gemm), line_access(gemm, 4)
    )
