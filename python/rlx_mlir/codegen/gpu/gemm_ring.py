# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A product's kernel around its core: the ring of stages that feeds it, and the epilogue over staged accumulators.

A core knows how a stage is filled and multiplied, and how its accumulators get into shared memory at the end. From
there each thread takes neighbouring columns through the epilogue, so that memory is read and written in whole pieces,
whatever fragments look like.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from rlx_mlir.codegen.gpu.emit import DeviceEmitter, Index, Value, vec
from rlx_mlir.codegen.gpu.gemm_base import (
    Access,
    Body,
    Gemm,
    Ring,
    WeightLoader,
    both,
    guard,
    open_kernel,
    pipeline,
    together,
)
from rlx_mlir.codegen.gpu.gemm_config import Tile


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
        row, column = warp // across * tile.wm, warp % across * tile.wn
        return WarpTile(row, column, em.lane(), warp)


Sums = list[list[list[list[Value]]]]
"""A thread's accumulators: [product][rows][columns], each some neighbouring elements of a tile."""


class Core(Protocol):
    """What multiplies: see `ring_kernel` for the order of the calls."""

    def parts(self, ring: Ring) -> None:
        """Takes the parts of a stage."""

    def bind(self, em: DeviceEmitter, body: Body, access: Access) -> None:
        """Makes `em`, in a kernel with this body, what code goes to."""

    def issue_x(self, stage: Value, step: Index) -> None:
        """Starts the copies of a step of x."""

    def issue_weights(self, stage: Value, step: Index) -> Callable[[], None] | None:
        """Starts those of the weights; returns what is to be done after the present step's products, if anything."""

    def zeros(self) -> Sums:
        """Accumulators of nothing."""

    def multiply(self, stage: Value, sums: Sums, copy: Callable[[], None]) -> Sums:
        """The accumulators after a stage, which may be the same lists with other values; calls `copy` once, after its
        first reads of the stage."""

    def stage(self, staged: Staged, sums: Sums) -> None:
        """Stores the warp's accumulators of the rows that `staged` holds."""


class TileCore:
    """What cores share that have a part of a stage for a tile of x, and one for a tile of each weight."""

    em: DeviceEmitter
    body: Body
    x_part: int
    w_parts: list[int]
    x_loader: WeightLoader
    w_loaders: Sequence[WeightLoader]

    def __init__(self, tile: Tile, products: int) -> None:
        self.tile, self.products = tile, products

    def bind(self, em: DeviceEmitter, body: Body, access: Access) -> None:
        """Makes `em`, in a kernel with this body, what code goes to."""
        self.em, self.body, self.warp = em, body, WarpTile.of(em, self.tile)

    def issue_x(self, stage: Value, step: Index) -> None:
        """Starts the copies of a step of x."""
        tile, body = self.tile, self.body
        rows, along = (body.place.row, body.sizes.m, tile.bm), (step * tile.bk, body.limit, 0)
        self.x_loader.fill(self.em.at(stage, self.x_part, "i8"), rows, along)

    def issue_weights(self, stage: Value, step: Index) -> Callable[[], None] | None:
        """Starts those of the weights."""
        em, tile, body = self.em, self.tile, self.body
        columns, along = (body.place.column, body.sizes.n, tile.bn), (step * tile.bk, body.limit, 0)
        return together(
            loader.fill(em.at(stage, part, "i8"), columns, along)
            for loader, part in zip(self.w_loaders, self.w_parts, strict=True)
        )


@dataclass(frozen=True)
class Staged:
    """Rows of a warp's accumulators in shared memory: [product][row][column], groups of 8 columns swizzled by rows.

    first, rows: which of the warp's rows; multiples of 16.
    """

    em: DeviceEmitter
    base: Value
    tile: Tile
    products: int
    warp: WarpTile
    first: int
    rows: int

    @staticmethod
    def of(em: DeviceEmitter, tile: Tile, products: int, first: int, rows: int) -> Staged:
        """The place of the running warp's accumulators, at the beginning of shared memory."""
        warp = WarpTile.of(em, tile)
        base = em.shared(warp.number * (4 * products * rows * tile.wn))
        return Staged(em, base, tile, products, warp, first, rows)

    def blocks(self) -> range:
        """Which blocks of 16 of the warp's rows are here."""
        return range(self.first // 16, (self.first + self.rows) // 16)

    def store(self, value: Value, product: int, row: Index, column: Index) -> None:
        """Stores a scalar or a vector of neighbouring columns in one group; row and column are the warp's."""
        em = self.em
        at = self.place(product, row - self.first, column // 8, column % 8)
        em.st(value, em.at(self.base, at, "f32"))

    def place(self, product: int, row: Index, group: Index, column: Index) -> Index:
        """Where column `column` of a group lies, in elements.

        Groups are turned by rows, for fragments, whose threads write eight rows at once. In half of the groups both
        halves change places, so that threads that each read half of neighbouring groups read all banks.
        """
        groups = self.tile.wn // 8
        turn = row // max(1, 4 // groups) % min(4, groups)
        swapped = (row * groups + group) // 4 % 2
        start = row * (8 * groups) + product * self.rows * 8 * groups
        return start + (group ^ turn) * 8 + (column ^ (swapped * 4))

    def chunks(self, width: int) -> Iterator[tuple[Index, Index, list[Value]]]:
        """Goes over the rows in a loop, `width` (8, 4 or 1) neighbouring columns at a time: row and column in the
        warp's tile, and the products there."""
        em, tile = self.em, self.tile
        across = tile.wn // width
        with em.loop(0, self.rows * across // 32, hint="chunk") as loop:
            number = loop.iv * 32 + self.warp.lane
            row, column = number // across, number % across * width
            products = []
            group, inside = column // 8, column % 8
            type = "f32" if width == 1 else vec(4, "f32")
            for p in range(self.products):
                halves = [inside, inside + 4] if width == 8 else [inside]
                values = [em.ld(em.at(self.base, self.place(p, row, group, half), "f32"), type) for half in halves]
                products.append(em.shuffle(values[0], values[1], range(8)) if width == 8 else values[0])
            yield row + self.first, column, products


def _passes(ring: Ring, tile: Tile, products: int) -> int:
    """In how many passes accumulators take the place of the ring: as many as let them fit into it."""
    passes = 1
    while 4 * tile.bm * tile.bn * products > passes * ring.nbytes and tile.wm % (32 * passes) == 0:
        passes *= 2
    return passes


def shared_bytes(core: Core, tile: Tile, products: int) -> int:
    """Shared memory of a kernel: the ring, and in its place at the end some rows of accumulators as f32."""
    ring = Ring(tile.stages)
    core.parts(ring)
    return max(ring.nbytes, 4 * tile.bm * tile.bn * products // _passes(ring, tile, products))


def ring_kernel(
    em: DeviceEmitter, name: str, gemm: Gemm, tile: Tile, access: Access, splits: int, core: Core, more: int = 0
) -> None:
    """Emits the kernel `name`, whose parameters are those of `open_kernel`.

    more: pointers that belong to x, after it.
    """
    ring = Ring(tile.stages)
    core.parts(ring)
    products = gemm.program.accumulators
    with open_kernel(em, name, gemm, tile, splits, more) as body:
        core.bind(em, body, access)
        copies = (core.issue_weights, core.issue_x)
        sums = pipeline(em, ring, *body.steps, core.zeros(), copies, core.multiply, early=gemm.constant)
        em.cp_async_wait(0)
        em.barrier()
        rows = tile.wm // _passes(ring, tile, products)
        for first in range(0, tile.wm, rows):
            staged = Staged.of(em, tile, products, first, rows)
            core.stage(staged, sums)
            em.warp_sync()
            _finish(em, body, tile, staged, access.columns)
            if first + rows < tile.wm:
                em.warp_sync()


def _finish(em: DeviceEmitter, body: Body, tile: Tile, staged: Staged, columns: int) -> None:
    """Runs the epilogue over a warp's accumulators, so many columns at a time."""
    sizes, place, warp = body.sizes, body.place, staged.warp
    for row, column, products in staged.chunks(columns):
        here = place.row + warp.row + row
        there = place.column + warp.column + column
        inside = both(guard(em, here, sizes.m, tile.bm), guard(em, there, sizes.n, tile.bn))
        if inside is None:
            body.finisher.finish(here, there, products)
        else:
            with em.if_(inside):
                body.finisher.finish(here, there, products)
