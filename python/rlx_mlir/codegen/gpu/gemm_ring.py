# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A product's kernel around its core: the ring of stages that feeds it, and the epilogue over staged accumulators.

A core knows how a stage is filled and multiplied, and how its accumulators get into shared memory at the end. From
there each thread takes neighbouring columns through the epilogue, so that memory is read and written in whole pieces,
whatever fragments look like.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from rlx_mlir.codegen.gpu.emit import DeviceEmitter, Index, Value, vec
from rlx_mlir.codegen.gpu.gemm_base import Access, Body, Gemm, Ring, both, guard, open_kernel, pipeline
from rlx_mlir.codegen.gpu.gemm_config import Tile

__all__ = ["Core", "Staged", "WarpTile", "ring_kernel"]


@dataclass(frozen=True)
class WarpTile:
    """Which part of a block's tile a warp computes: its first row and column, and the thread's number in the warp."""

    row: Index
    column: Index
    lane: Value
    number: Index

    @staticmethod
    def of(em: DeviceEmitter, tile: Tile) -> WarpTile:
        """The part of the running warp."""
        warp, across = em.warp(), tile.bn // tile.wn
        row, column = em.imul(em.idiv(warp, across), tile.wm), em.imul(em.irem(warp, across), tile.wn)
        return WarpTile(row, column, em.lane(), warp)


class Core(Protocol):
    """What multiplies: see `ring_kernel` for the order of the calls."""

    def parts(self, ring: Ring) -> None:
        """Takes the parts of a stage."""

    def bind(self, em: DeviceEmitter, body: Body, access: Access) -> None:
        """Makes `em`, in a kernel with this body, what code goes to."""

    def issue(self, stage: Value, step: Index) -> Callable[[], None] | None:
        """Starts the copies of a step; returns what is to be done after the present step's products, if anything."""

    def zeros(self) -> list[Value]:
        """Accumulators of nothing."""

    def multiply(self, stage: Value, sums: list[Value]) -> list[Value]:
        """The accumulators after a stage."""

    def stage(self, staged: Staged, sums: list[Value]) -> None:
        """Stores the warp's accumulators."""


@dataclass(frozen=True)
class Staged:
    """A warp's accumulators in shared memory: [product][row][column], groups of 8 columns swizzled by rows."""

    em: DeviceEmitter
    base: Value
    tile: Tile
    products: int
    warp: WarpTile

    @staticmethod
    def of(em: DeviceEmitter, tile: Tile, products: int) -> Staged:
        """The place of the running warp's accumulators, at the beginning of shared memory."""
        warp = WarpTile.of(em, tile)
        return Staged(em, em.shared(em.imul(warp.number, 4 * products * tile.wm * tile.wn)), tile, products, warp)

    def store(self, value: Value, product: int, row: Index, column: Index) -> None:
        """Stores a scalar or a vector of neighbouring columns in one group; row and column are the warp's."""
        em = self.em
        at = self.place(product, row, em.idiv(column, 8), em.irem(column, 8))
        em.st(value, em.at(self.base, at, "f32"))

    def place(self, product: int, row: Index, group: Index, column: Index) -> Index:
        """Where column `column` of a group lies, in elements."""
        em, width = self.em, self.tile.wn
        turn = em.irem(row, min(4, width // 8))
        start = em.iadd(em.imul(row, width), product * self.tile.wm * width)
        return em.iadd(em.iadd(start, em.imul(em.xor(group, turn), 8)), column)

    def chunks(self, width: int) -> Iterator[tuple[Index, Index, list[Value]]]:
        """Goes over the warp's tile in a loop, `width` (8, 4 or 1) neighbouring columns at a time: row and column in
        it, and the products there."""
        em, tile = self.em, self.tile
        across = tile.wn // width
        with em.loop(0, tile.wm * across // 32, hint="chunk") as loop:
            number = em.iadd(em.imul(loop.iv, 32), self.warp.lane)
            row, column = em.idiv(number, across), em.imul(em.irem(number, across), width)
            products = []
            for p in range(self.products):
                at = em.at(self.base, self.place(p, row, em.idiv(column, 8), em.irem(column, 8)), "f32")
                if width == 8:
                    low, high = (em.ld(em.at(at, 4 * i, "f32"), vec(4, "f32")) for i in range(2))
                    products.append(em.shuffle(low, high, range(8)))
                else:
                    products.append(em.ld(at, "f32" if width == 1 else vec(4, "f32")))
            yield row, column, products


def ring_kernel(
    em: DeviceEmitter, name: str, gemm: Gemm, tile: Tile, access: Access, splits: int, core: Core, more: int = 0
) -> int:
    """Emits the kernel `name`, whose parameters are those of `open_kernel`; returns the bytes of shared memory.

    more: pointers that belong to x, after it.
    """
    ring = Ring(tile.stages)
    core.parts(ring)
    products = gemm.program.accumulators
    with open_kernel(em, name, gemm, tile, splits, more) as body:
        core.bind(em, body, access)
        sums = pipeline(em, ring, *body.steps, core.zeros(), core.issue, core.multiply)
        em.cp_async_wait(0)
        em.barrier()
        staged = Staged.of(em, tile, products)
        core.stage(staged, sums)
        em.warp_sync()
        _finish(em, body, tile, staged, access.columns)
    return max(ring.nbytes, 4 * tile.bm * tile.bn * products)


def _finish(em: DeviceEmitter, body: Body, tile: Tile, staged: Staged, columns: int) -> None:
    """Runs the epilogue over a warp's accumulators, so many columns at a time."""
    sizes, place, warp = body.sizes, body.place, staged.warp
    for row, column, products in staged.chunks(columns):
        here = em.iadd(em.iadd(place.row, warp.row), row)
        there = em.iadd(em.iadd(place.column, warp.column), column)
        inside = both(em, guard(em, here, sizes.m, tile.bm), guard(em, there, sizes.n, tile.bn))
        if inside is None:
            body.finisher.finish(here, there, products)
        else:
            with em.if_(inside):
                body.finisher.finish(here, there, products)
