# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The schedule for pools of images [N, C, H, W]: a thread has a place of the result, or a warp, of large windows.

What a window sees of the image is read under conditions: pixels beyond it change nothing. Small windows stand in the
code pixel by pixel, so that all reads are under way together. Bound: memory's rate of reading the image and writing the
result, since windows that overlap find pixels in L1. Numbers are f32 until the result is rounded once; NaN stay.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rlx_mlir.codegen import UnsupportedByTemplate
from rlx_mlir.codegen.conversions import IN_F32
from rlx_mlir.codegen.emit import Index, Value, element_of
from rlx_mlir.codegen.gpu.emit import DeviceEmitter
from rlx_mlir.codegen.gpu.kernel import Constants, DeviceKernel, HostEmitter, write_sized_kernel
from rlx_mlir.codegen.gpu.reduce import THREADS, WARP, Joins
from rlx_mlir.codegen.specs import PoolSpec

#: Pixels of a window that stand one after the other in the code at most, and of one that a warp shares at least.
UNROLLED, SHARED = 16, 64


@dataclass(frozen=True)
class _Image:
    """Sizes of x and of the result: channels of all images, rows and columns."""

    planes: Index
    height: Index
    width: Index
    rows: Index
    columns: Index


def emit_pool(name: str, spec: PoolSpec, chip: str, constants: Constants = frozenset()) -> DeviceKernel:
    """The kernel of a `PoolSpec`.

    Raises UnsupportedByTemplate for other types than f32, f16 and bf16.
    """
    if element_of(spec.x) not in IN_F32:
        raise UnsupportedByTemplate(f"{name}: pools of {element_of(spec.x)} have no schedule")
    em = DeviceEmitter(chip)
    team = WARP if math.prod(spec.kernel) >= SHARED else 1

    def sizes(host: HostEmitter, buffers: list[Value]) -> _Image:
        x, result = buffers
        images, channels, height, width = (host.dim(x, axis) for axis in range(4))
        return _Image(images * channels, height, width, host.dim(result, 2), host.dim(result, 3))

    return write_sized_kernel(
        em,
        name,
        "pool",
        [("x", spec.x)],
        [("result", spec.result)],
        sizes,
        lambda buffers, own, _: _Pool(em, spec, buffers, own, team).run(),
        lambda host, own, _: host.iceildiv(own.planes * own.rows * own.columns, THREADS // team),
        threads=THREADS,
        symbol="pool",
        constants=constants,
    )


@dataclass(frozen=True)
class _Pool:
    """Emits what `team` threads do for a place of the result; `buffers` are x and the result."""

    em: DeviceEmitter
    spec: PoolSpec
    buffers: Sequence[Value]
    sizes: _Image
    team: int

    def run(self) -> None:
        """One place."""
        em, sizes, team = self.em, self.sizes, self.team
        joins = Joins(em, "sum" if self.spec.kind == "mean" else self.spec.kind, "f32")
        place = em.wide(em.block()) * (THREADS // team) + em.wide(em.thread() // team)
        # The threads of a warp that share a place are all there, or none.
        with em.if_(em.cmpi("ult", place, em.wide(sizes.planes * sizes.rows * sizes.columns))):
            row, plane = place // sizes.columns % sizes.rows, place // sizes.columns // sizes.rows
            top = row * self.spec.stride[0] - self.spec.padding[0]
            left = place % sizes.columns * self.spec.stride[1] - self.spec.padding[1]
            image = em.wide(plane * (sizes.height * sizes.width))
            total = self._window(joins, image, top, left)
            if team > 1:
                total = joins.warp(total)
            if self.spec.kind == "mean":
                total = total / float(math.prod(self.spec.kernel))
            element = element_of(self.spec.x)
            with em.if_(em.cmpi("eq", em.thread() % team, 0)):
                em.st(em.narrow(total, element), self.buffers[1], place)

    def _window(self, joins: Joins, image: Value, top: Value, left: Value) -> Value:
        """What the thread has of a window, joined."""
        em, (tall, wide) = self.em, self.spec.kernel
        if tall * wide <= UNROLLED:
            return joins.tree(
                [self._pixel(joins, image, top + down, left + across) for down in range(tall) for across in range(wide)]
            )
        member = em.wide(em.thread() % self.team)
        with em.loop(member, em.const(tall * wide, "i64"), em.const(self.team, "i64"), joins.start) as tap:
            pixel = self._pixel(joins, image, top + tap.iv // wide, left + tap.iv % wide)
            tap.yield_(joins.two(tap.carry, pixel))
        return tap.result

    def _pixel(self, joins: Joins, image: Value, row: Value, column: Value) -> Value:
        """A pixel in f32; beyond the image, what changes nothing. Rows and columns before the first are large numbers
        without sign."""
        em, sizes = self.em, self.sizes
        exists = em.cmpi("ult", row, sizes.height) & em.cmpi("ult", column, sizes.width)
        pixel = em.ld_if(exists, self.buffers[0], element_of(self.spec.x), image + row * sizes.width + column)
        return em.select(exists, em.widen(pixel), joins.start)
