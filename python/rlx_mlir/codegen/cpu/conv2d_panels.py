# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Convolutions of images whose kernels are parameters: **lanes run over outputs**, whose weights lie side by side.

A unit is some outputs of a group at the places of some rows of an image's result, or of a part of one row. For some
channels at a time it copies what its places see into scratch, with zeros where nothing is seen, each pixel once. A tile
of registers has 16 or 32 outputs at neighbouring places of a row: each tap takes one vector of weights and, for each
place, one pixel of the copy, wherever stride and dilation put it. So no width of an image leaves lanes idle. Sums lie
place by place; when they are complete, squares of them are turned, and the epilogue writes rows of places. Every output
is one chain of operations along the sum, channel by channel, whatever tiles and units are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rlx_mlir.codegen.emit import Emitter, Index, Value
from rlx_mlir.codegen.specs import Conv2dSpec
from rlx_mlir.formats import PANEL_ROWS

from .conv2d import Convolution, Cut, copy_pixels, write_convolution, zeros
from .gemm import transpose
from .gemm_packed import multiply_tile
from .kernel import Accumulators, Scratch, row_tiles
from .registry import Generator
from .target import Target

DEPTH = 288
"""Elements of the sum whose channels are copied at once, about: their weights for a tile stay in near caches."""

PLACES = 224
"""Places of a unit at most, whole vectors: what they see of a block of channels stays in the second cache."""


@dataclass(frozen=True)
class _Seen:
    """What the places of a unit see, in scratch: channel by channel, row by row.

    Attributes:
        rows, columns: of a channel.
        steps: for each element of the sum, how far its pixel lies behind the first one that a place sees.
    """

    data: Value
    rows: Index
    columns: Index
    steps: Value


class _Pixels:
    """What neighbouring places see, as products read it: places are rows.

    The steps come from memory: if it knew them, LLVM would keep pixels that several taps read in registers, which there
    are too few of.
    """

    def __init__(self, em: Emitter, seen: _Seen, first: Index, corner: Index, stride: int) -> None:
        self._em, self._seen, self._first, self._corner, self._stride = em, seen, first, corner, stride

    def load(self, row: Index, k: Index) -> Value:
        """What place `row` sees with element k of the sum; `first` is the element of the first step."""
        em = self._em
        step = em.cast("arith.index_cast", em.load(self._seen.steps, [k - self._first]), "index")
        return em.load(self._seen.data, [step + self._corner + row * self._stride])


@dataclass(frozen=True)
class _Parts:
    """Scratch memory of a thread: pixels, sums by place, and sums by output for the epilogue."""

    seen: _Seen
    sums: Value
    turned: Accumulators


def emit_conv2d_panels(name: str, spec: Conv2dSpec, target: Target) -> str:
    """The functions `@name.body`, `@name.units` and `@name.scratch`, as text."""
    return write_convolution(name, spec, _Convolution(spec, target))


class _Convolution(Convolution):
    def __init__(self, spec: Conv2dSpec, target: Target) -> None:
        super().__init__(spec, target)
        self.taps = math.prod(self.kernel)
        most = min(self.inputs, max(1, DEPTH // self.taps))
        self.channels = -(-self.inputs // -(-self.inputs // most))
        self.together = 2 if target.vector_bits == 512 else 1
        self.tiles = tile_places(target)

    def units(self, em: Emitter, x: Value) -> Index:
        """Parts of rows, for each block of rows, each block of a group's outputs, each group, each image."""
        cut = Cut.of(em, self.spec, x, PLACES)
        return cut.blocks * cut.parts * (self.row_blocks * self.spec.groups) * em.dim(x, 0)

    def parts(self, em: Emitter, x: Value, scratch: Scratch) -> _Parts:
        """Takes the scratch memory; the last vector of a row of pixels may reach beyond it."""
        cut = Cut.of(em, self.spec, x, PLACES)
        rows, columns = (self.reach(size, axis) for axis, size in enumerate((cut.tall, cut.wide)))
        room = cut.room(PLACES, lambda tall, wide: self.reach(tall, 0) * self.reach(wide, 1) * self.channels)
        pixels = scratch.take([room + self.lanes], "f32")
        steps = scratch.take([self.channels * self.taps], "i32")
        sums = scratch.take([PLACES + self.lanes, self.rows], "f32")
        turned = Accumulators(em, self.target, self.finishing, PLACES, scratch, PANEL_ROWS)
        return _Parts(_Seen(pixels, rows, columns, steps), sums, turned)

    def body(
        self, em: Emitter, values: list[Value], outputs: list[Value], begin: Value, end: Value, scratch: Scratch
    ) -> None:
        """Computes a range of units."""
        x, weight, *arguments = values
        arguments, outputs = self.finishing.flat(em, arguments), self.finishing.flat(em, outputs)
        parts, cut = self.parts(em, x, scratch), Cut.of(em, self.spec, x, PLACES)
        self._step(em, parts.seen)
        with em.loop(begin, end, hint="unit") as unit:
            part, rest = unit.iv % cut.parts, unit.iv // cut.parts
            block, rest = rest % cut.blocks, rest // cut.blocks
            first, group = rest % self.row_blocks * self.rows, rest // self.row_blocks  # groups of all images
            at, sizes = cut.area(em, block, part)
            count = self.count(em, first)
            own = group % self.spec.groups * self.per_group + first
            self._clear(em, parts.sums, sizes[0] * sizes[1], count)
            with em.loop(0, self.inputs, self.channels, hint="cb") as cb:
                some = em.imin(self.inputs - cb.iv, self.channels)
                self._copy(em, parts.seen, x, (group * self.inputs + cb.iv, some), at, sizes)
                ks = (cb.iv * self.taps, (cb.iv + some) * self.taps)
                self._multiply(em, parts, weight, (own // PANEL_ROWS, count // PANEL_ROWS), ks, sizes)
            start = at[0] * cut.places[1] + at[1]
            rows = (
                group * self.per_group + first,
                count,
                group // self.spec.groups * (self.per_group * self.spec.groups),
            )
            places = (start, sizes[0] * sizes[1])
            finish_turned(em, parts.sums, parts.turned, arguments, outputs, places, rows)

    def _step(self, em: Emitter, seen: _Seen) -> None:
        """Writes the steps."""
        down, across = self.kernel
        with (
            em.loop(0, self.channels, hint="c") as c,
            em.loop(0, down, hint="u") as u,
            em.loop(0, across, hint="v") as v,
        ):
            row = c.iv * seen.rows + u.iv * self.spec.dilation[0]
            step = row * seen.columns + v.iv * self.spec.dilation[1]
            em.store(em.cast("arith.index_cast", step, "i32"), seen.steps, [(c.iv * down + u.iv) * across + v.iv])

    def _clear(self, em: Emitter, sums: Value, places: Index, outputs: Index) -> None:
        zero = em.zero(self.type)
        with em.loop(0, places, hint="place") as place, em.loop(0, outputs, self.lanes, hint="o") as o:
            em.vstore(zero, sums, [place.iv, o.iv])

    # -- pixels -------------------------------------------------------------------------------------------------------

    def _copy(
        self,
        em: Emitter,
        seen: _Seen,
        x: Value,
        channels: tuple[Index, Index],
        at: tuple[Index, Index],
        sizes: Sequence[Index],
    ) -> None:
        """Pixels of some channels, counted through all images, that the places from `at` on see."""
        spec, flat = self.spec, em.rows(x)
        height, width = em.dim(x, 2), em.dim(x, 3)
        top, left = (own * stride - padding for own, stride, padding in zip(at, spec.stride, spec.padding, strict=True))
        rows, columns = (self.reach(size, axis) for axis, size in enumerate(sizes))
        low = em.imin(em.imax(0 - left, 0), columns)
        high = em.imax(em.imin(width - left, columns), low)
        with em.loop(0, channels[1], hint="c") as c, em.loop(0, rows, hint="i") as i:
            to = (c.iv * seen.rows + i.iv) * seen.columns
            y = i.iv + top
            inside = em.cmpi("ult", em.index(y), height)
            first, last = em.select(inside, low, columns), em.select(inside, high, columns)
            zeros(em, self.target, seen.data, to, to + first)
            row = (channels[0] + c.iv) * height + y
            copy_pixels(em, self.target, flat, (row, 0 - left), (first, last), 1, seen.data, 0 - to)
            zeros(em, self.target, seen.data, to + last, to + columns)

    # -- products -----------------------------------------------------------------------------------------------------

    def _multiply(
        self,
        em: Emitter,
        parts: _Parts,
        weight: Value,
        panels: tuple[Index, Index],
        ks: tuple[Index, Index],
        sizes: Sequence[Index],
    ) -> None:
        """Adds the products of elements `ks` of the sum to the sums of `panels[1]` panels, from `panels[0]` on."""
        spec = self.spec

        def over_places(panel: Index, side_by_side: int) -> None:
            with em.loop(0, sizes[0], hint="row") as row:

                def tile(column: Index, size: int) -> None:
                    place = row.iv * sizes[1] + column
                    corner = row.iv * spec.stride[0] * parts.seen.columns + column * spec.stride[1]
                    own = (panels[0] + panel, panel * PANEL_ROWS, side_by_side)
                    self._tile(em, parts, weight, own, ks, (place, corner, size))

                row_tiles(em, sizes[1], self.tiles, tile)

        row_tiles(em, panels[1], tuple(range(self.together, 0, -1)), over_places)

    def _tile(
        self,
        em: Emitter,
        parts: _Parts,
        weight: Value,
        panels: tuple[Index, Index, int],
        ks: tuple[Index, Index],
        places: tuple[Index, Index, int],
    ) -> None:
        """Adds to the sums of a tile the products of elements `ks` of the sum.

        panels: the first one, its output among the sums, and how many. places: the first one, where its first pixel
        lies in a channel, and how many.
        """
        here: list[tuple[Index, int, Index]] = [
            (panels[0] + p, lane, panels[1] + (p * PANEL_ROWS + lane))
            for p in range(panels[2])
            for lane in range(0, PANEL_ROWS, self.lanes)
        ]

        def load(k: Index, v: int) -> Value:
            panel, lane, _ = here[v]
            return em.vload(weight, [panel, k, lane], self.type)

        sums = [[em.vload(parts.sums, [places[0] + j, o], self.type) for _, _, o in here] for j in range(places[2])]
        pixels = _Pixels(em, parts.seen, ks[0], places[1], self.spec.stride[1])
        whole = self.channels * self.taps % 4 == 0 or self.channels == self.inputs
        new = multiply_tile(em, self.target, pixels, ks, self.inputs * self.taps if whole else None, load, sums)
        for j, own in enumerate(new):
            for total, (_, _, o) in zip(own, here, strict=True):
                em.vstore(total, parts.sums, [places[0] + j, o])


def finish_turned(
    em: Emitter,
    sums: Value,
    turned: Accumulators,
    arguments: Sequence[Value],
    outputs: Sequence[Value],
    places: tuple[Index, Index],
    rows: tuple[Index, Index, Index],
    at: Index = 0,
) -> None:
    """Turns sums [place, output], 16 outputs at a time, and writes what the program makes of them.

    Args:
        sums: those of the first place are in row `at`; rows behind the last place, up to a whole vector, are read.
        turned: room for the places of 16 outputs.
        arguments, outputs: buffers of the program, as `Finishing.flat` gives them.
        places: the first one in the image, and how many.
        rows: the first output, counted through all images, how many, and how many there are before its image.
    """
    lanes = turned.lanes
    with em.loop(0, rows[1], PANEL_ROWS, hint="o") as o:
        with em.loop(0, places[1], lanes, hint="p") as p:
            for v in range(0, PANEL_ROWS, lanes):
                square = [em.vload(sums, [p.iv + (at + i), o.iv + v], turned.type) for i in range(lanes)]
                for i, line in enumerate(transpose(em, square)):
                    em.vstore(line, turned.data, [v + i, p.iv])
        columns = (places[0], places[0] + places[1])
        turned.finish(arguments, outputs, 0, rows[0] + o.iv, PANEL_ROWS, columns=columns, above=rows[2])


def tile_places(target: Target) -> tuple[int, ...]:
    """Places of the register tiles, largest first; a tile has 32 (512 bits) or 16 outputs. 7 divides many images."""
    if target.vector_bits == 512:
        return target.choices.limited((14, 7, 4, 2, 1))
    if target.vector_bits == 256 or target.registers == 32:
        return target.choices.limited((6, 4, 2, 1))
    return target.choices.limited((2, 1))


def _configure(name: str, spec: Conv2dSpec, target: Target) -> Conv2dSpec | None:
    return spec if spec.in_panels else None


GENERATORS = (Generator("conv2d_panels", "conv2d", _configure, emit_conv2d_panels),)
