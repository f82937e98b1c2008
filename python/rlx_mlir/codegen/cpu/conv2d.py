# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Convolutions of images, as products of the kernels with what they see: nothing but parts of that is ever stored.

A unit is some outputs of a group at some neighbouring places of one image. For a block of the sum (channels and taps,
in the order of the weights) it copies what the places see into scratch, a row for each element of the sum, and
multiplies it with tiles of outputs and places. **Lanes run over places**, from one row of the image into the next: rows
that are shorter than vectors fill these, too. What is outside of the image is written as zeros, so no padded image is
made. Every output is one chain of operations along the sum, whatever tiles and units are.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rlx_mlir.codegen.emit import Emitter, Index, Value, element_of, shape_of, vec
from rlx_mlir.codegen.program import Program
from rlx_mlir.codegen.specs import Conv2dSpec
from rlx_mlir.codegen.specs.tensors import why_no_convolution

from . import UnsupportedByTemplate
from .gemm_packed import multiply_tile, tile_rows
from .kernel import Accumulators, RowReader, Scratch, row_tiles, write_kernel
from .panels import PANEL_ROWS
from .registry import Generator
from .target import Target

DEPTH = 256
"""Elements of the sum that are copied at once, about."""

PLACES = 112
"""Places of a unit: their rows of a block stay in the second cache while tiles of outputs pass by."""

OUTPUTS = 128
"""Outputs of a unit at most: so many products for each number that is copied."""


@dataclass(frozen=True)
class Finishing:
    """What `Accumulators` has to know of a convolution, whose results are [Co of all images, places]."""

    spec: Conv2dSpec

    @property
    def element(self) -> str:
        return element_of(self.spec.weight)

    @property
    def program(self) -> Program:
        return self.spec.program

    def flat(self, em: Emitter, buffers: Sequence[Value]) -> list[Value]:
        """Images as rows of places, for each output; other buffers as they are."""
        return [em.collapse(own, [[0, 1], [2, 3]]) if own.type == self.spec.result else own for own in buffers]


def counts(em: Emitter, spec: Conv2dSpec, x: Value) -> tuple[Index, Index]:
    """Places of the kernels on x, along each direction."""
    _, _, *kernel = (size or 0 for size in shape_of(spec.weight))
    spans = [dilation * (size - 1) + 1 for size, dilation in zip(kernel, spec.dilation, strict=True)]
    return windows(em, x, spans, spec.stride, spec.padding)


def windows(
    em: Emitter, x: Value, spans: Sequence[int], stride: Sequence[int], padding: Sequence[int]
) -> tuple[Index, Index]:
    """How many windows that spread over `spans` pixels x [N, C, H, W] has, down and across."""
    sides = zip((2, 3), spans, stride, padding, strict=True)
    down, across = (em.imax(em.dim(x, axis) + (2 * p - span + s), 0) // s for axis, span, s, p in sides)
    return down, across


@dataclass(frozen=True)
class Cut:
    """How the places of an image's result are cut into units: `tall` rows, or of one row `wide` places.

    Attributes:
        places: rows and columns of the result.
        blocks, parts: blocks of rows, and parts of a row.
    """

    places: tuple[Index, Index]
    tall: Index
    wide: Index
    blocks: Index
    parts: Index

    @classmethod
    def of(cls, em: Emitter, spec: Conv2dSpec, x: Value, most: int) -> Cut:
        """The cut of an image's result into units of up to `most` places."""
        return cls.over(em, counts(em, spec, x), most)

    @classmethod
    def over(cls, em: Emitter, places: tuple[Index, Index], most: int) -> Cut:
        """Equal blocks of rows with up to `most` places; of longer rows, equal parts."""
        height, width = places
        parts = em.imax(em.iceildiv(width, most), 1)
        wide = em.imax(em.iceildiv(width, parts), 1)
        blocks = em.imax(em.iceildiv(height, most // wide), 1)
        tall = em.imax(em.iceildiv(height, blocks), 1)
        return cls((height, width), tall, wide, em.iceildiv(height, tall), em.iceildiv(width, wide))

    def room(self, most: int, size: Callable[[Index, Index], Index]) -> Index:
        """size(tall, wide), which grows with both; of dynamic sizes, the most that it is for up to `most` places.

        Scratch memory is planned for the largest images, and smaller ones may have larger units.
        """
        own: Index = size(self.tall, self.wide)
        return own if isinstance(own, int) else max(size(tall, most // tall) for tall in range(1, most + 1))

    def area(self, em: Emitter, block: Index, part: Index) -> tuple[tuple[Index, Index], tuple[Index, Index]]:
        """The first place of a unit, and how many it has, down and across."""
        at = (block * self.tall, part * self.wide)
        return at, (em.imin(self.places[0] - at[0], self.tall), em.imin(self.places[1] - at[1], self.wide))


class Convolution(ABC):
    """The code of one kernel, and what follows from its sizes and the target.

    Attributes:
        inputs: channels that an output sees; kernel: taps down and across.
        rows: outputs of a unit, where units have several; row_blocks: so many units have those of a group.
        lanes, type: of vectors.
    """

    def __init__(self, spec: Conv2dSpec, target: Target) -> None:
        self.spec, self.target = spec, target
        self.outputs, self.inputs, *self.kernel = (size or 0 for size in shape_of(spec.weight))
        self.per_group = self.outputs // spec.groups
        self.rows = min(self.per_group, OUTPUTS)
        self.row_blocks = -(-self.per_group // self.rows)
        self.lanes, self.type = target.lanes("f32"), target.vector("f32")
        self.finishing = Finishing(spec)

    @abstractmethod
    def units(self, em: Emitter, x: Value) -> Index:
        """How many units of work there are."""

    @abstractmethod
    def parts(self, em: Emitter, x: Value, scratch: Scratch) -> object:
        """Takes the scratch memory."""

    @abstractmethod
    def body(
        self, em: Emitter, values: list[Value], outputs: list[Value], begin: Value, end: Value, scratch: Scratch
    ) -> None:
        """Computes a range of units."""

    def count(self, em: Emitter, first: Index) -> Index:
        """Outputs of the unit whose first one is number `first` of its group."""
        return em.imin(self.per_group - first, self.rows) if self.per_group % self.rows else self.rows

    def reach(self, places: Index, axis: int) -> Index:
        """Pixels along an axis that neighbouring places see."""
        spec = self.spec
        return (places - 1) * spec.stride[axis] + (spec.dilation[axis] * (self.kernel[axis] - 1) + 1)


def write_convolution(name: str, spec: Conv2dSpec, kernel: Convolution) -> str:
    """The functions `@name.body`, `@name.units` and `@name.scratch`, as text."""
    return write_kernel(
        name,
        spec.operands,
        spec.results,
        units=lambda em, values: kernel.units(em, values[0]),
        scratch=lambda em, values, scratch: kernel.parts(em, values[0], scratch),
        body=kernel.body,
        order=spec.order,
    )


def zeros(em: Emitter, target: Target, data: Value, first: Index, last: Index) -> None:
    """Zeros in a row of f32; the last vector may reach further, into what is written afterwards."""
    lanes, type = target.lanes("f32"), target.vector("f32")
    with em.loop(first, last, lanes, hint="z") as z:
        em.vstore(em.zero(type), data, [z.iv])


@dataclass(frozen=True)
class _Parts:
    """Scratch memory of a thread."""

    sums: Accumulators
    reader: RowReader
    row: Value
    panels: Value


def emit_conv2d(name: str, spec: Conv2dSpec, target: Target) -> str:
    """The functions `@name.body`, `@name.units` and `@name.scratch`, as text.

    Raises UnsupportedByTemplate for elements other than f32, f16 and bf16, and for dynamic kernels or channels.
    """
    if reason := why_no_convolution(spec.x, spec.weight, spec.result):
        raise UnsupportedByTemplate(f"{name}: {reason}")
    return write_convolution(name, spec, _Convolution(spec, target))


class _Convolution(Convolution):
    def __init__(self, spec: Conv2dSpec, target: Target) -> None:
        super().__init__(spec, target)
        self.sum = self.inputs * math.prod(self.kernel)
        self.depth = -(-self.sum // (-(-self.sum // DEPTH) * 16)) * 16
        self.panel = 2 * PANEL_ROWS if target.vector_bits == 512 else PANEL_ROWS
        self.places = PLACES // self.panel * self.panel
        self.tiles = tile_rows(target)

    def units(self, em: Emitter, x: Value) -> Index:
        """Blocks of places, for each block of a group's outputs, for each group, for each image."""
        height, width = counts(em, self.spec, x)
        return em.iceildiv(height * width, self.places) * (self.row_blocks * self.spec.groups) * em.dim(x, 0)

    def parts(self, em: Emitter, x: Value, scratch: Scratch) -> _Parts:
        """Takes the scratch memory: sums, rows of narrow weights, a row of what is seen, and blocks of rows in panels.

        The last vector of a row may reach beyond its places.
        """
        reader = RowReader(em, self.target, self.finishing.element, scratch, self.tiles[0], self.depth)
        row = scratch.take([self.places + self.lanes], "f32")
        panels = scratch.take([self.places // self.panel, self.depth, self.panel], "f32")
        sums = Accumulators(em, self.target, self.finishing, self.places, scratch, self.rows)
        return _Parts(sums, reader, row, panels)

    def body(
        self, em: Emitter, values: list[Value], outputs: list[Value], begin: Value, end: Value, scratch: Scratch
    ) -> None:
        """Computes a range of units."""
        (x, weight, *others), out = values, outputs[0]
        parts = self.parts(em, x, scratch)
        kernels = em.collapse(weight, [[0], [1, 2, 3]])
        arguments, flat = self.finishing.flat(em, others), self.finishing.flat(em, outputs)
        places = em.dim(out, 2) * em.dim(out, 3)
        blocks = em.iceildiv(places, self.places)
        with em.loop(begin, end, hint="unit") as unit:
            block, rest = unit.iv % blocks, unit.iv // blocks
            first, group = rest % self.row_blocks * self.rows, rest // self.row_blocks
            count = self.count(em, first)
            start = block * self.places
            width = em.imin(places - start, self.places)
            seen = _Seen(self, em, x, group * self.inputs, start, width, em.dim(out, 3))
            kernel = group % self.spec.groups * self.per_group + first
            parts.sums.clear(count)
            with em.loop(0, self.sum, self.depth, hint="kb") as kb:
                ks = (kb.iv, em.imin(kb.iv + self.depth, self.sum))
                seen.copy(ks, parts)
                with em.loop(0, width, self.panel, hint="panel") as panel:

                    def tile(row: Index, size: int, at: Value = panel.iv, ks: tuple[Index, Index] = ks) -> None:
                        parts.reader.bind(kernels, kernel + row, size, *ks, whole=self.sum % self.lanes == 0)
                        self._tile(em, parts, (row, size), at, ks)

                    row_tiles(em, count, self.tiles, tile)
            above = group // self.spec.groups * (self.per_group * self.spec.groups)
            parts.sums.finish(arguments, flat, block, group * self.per_group + first, count, above=above)

    def _tile(
        self, em: Emitter, parts: _Parts, rows: tuple[Index, int], column: Value, ks: tuple[Index, Index]
    ) -> None:
        """Adds the products of a tile of outputs and the panel of places from `column` on to its sums."""
        sums, panel = parts.sums, column // self.panel
        columns = [column + v * self.lanes for v in range(self.panel // self.lanes)]
        at = [[(rows[0] + r, own) for own in columns] for r in range(rows[1])]
        old = [[em.vload(sums.data, place, sums.type) for place in own] for own in at]

        def load(k: Index, v: int) -> Value:
            return em.vload(parts.panels, [panel, k - ks[0], v * self.lanes], sums.type)

        new = multiply_tile(em, self.target, parts.reader, ks, self.sum, load, old)
        for own, totals in zip(at, new, strict=True):
            for place, total in zip(own, totals, strict=True):
                em.vstore(total, sums.data, place)


class _Seen:
    """What some places of an image see: `width` of them from `start` on, through the rows of the result.

    Attributes:
        channel: the first one of the group, counted through all images.
        columns: places of a row of the result.
    """

    def __init__(
        self, kernel: _Convolution, em: Emitter, x: Value, channel: Index, start: Index, width: Index, columns: Index
    ) -> None:
        self.kernel, self.em, self.x = kernel, em, em.rows(x)
        self.channel, self.start, self.width, self.columns = channel, start, width, columns
        self.sizes = em.dim(x, 2), em.dim(x, 3)
        self.rows = start // columns, (start + width - 1) // columns + 1
        self.type = kernel.target.vector("f32")

    def copy(self, ks: tuple[Index, Index], parts: _Parts) -> None:
        """A row for each element of the sum, cut into panels; zeros where nothing is seen."""
        em, spec, target, (height, width) = self.em, self.kernel.spec, self.kernel.target, self.sizes
        across = self.kernel.kernel[1]
        taps = self.kernel.kernel[0] * across
        end = em.iceildiv(self.width, self.kernel.panel) * self.kernel.panel
        with em.loop(*ks, hint="k") as k:
            channel, tap = k.iv // taps + self.channel, k.iv % taps
            left = spec.padding[1] - tap % across * spec.dilation[1]
            low, high = (em.iceildiv(em.imax(edge, 0), spec.stride[1]) for edge in (left, left + width))
            with em.loop(*self.rows, hint="i") as i:
                begin = self.start - i.iv * self.columns  # the place in this row that is the first one copied
                first, last = em.imax(begin, 0), em.imin(begin + self.width, self.columns)
                y = i.iv * spec.stride[0] + tap // across * spec.dilation[0] - spec.padding[0]
                inside = em.cmpi("ult", y, height)
                low_here = em.select(inside, em.imin(em.imax(low, first), last), last)
                high_here = em.imax(em.imin(high, last), low_here)
                zeros(em, target, parts.row, first - begin, low_here - begin)
                row = channel * height + y
                source, places = (row, left), (low_here, high_here)
                copy_pixels(em, target, self.x, source, places, spec.stride[1], parts.row, begin)
                zeros(em, target, parts.row, high_here - begin, last - begin)
            zeros(em, target, parts.row, self.width, end)
            self._cut(parts, k.iv - ks[0], end)

    def _cut(self, parts: _Parts, at: Index, end: Index) -> None:
        """Copies a row into panels, whose rows lie side by side: a tile reads one from its beginning to its end."""
        em, panel, lanes = self.em, self.kernel.panel, self.kernel.lanes
        with em.loop(0, end, panel, hint="cut") as own:
            for column in range(0, panel, lanes):
                value = em.vload(parts.row, [own.iv + column], self.type)
                em.vstore(value, parts.panels, [own.iv // panel, at, column])


def copy_pixels(
    em: Emitter,
    target: Target,
    x: Value,
    source: tuple[Index, Index],
    places: tuple[Index, Index],
    stride: int,
    copied: Value,
    begin: Index,
) -> None:
    """Pixels of a row of x [rows, width], as f32, from place `begin` on, where `copied` begins.

    source: the row, and how far left of it the first place begins. places: the first one, and the end.
    """
    lanes, (row, left), (low, high) = target.lanes("f32"), source, places
    narrow = vec(lanes, element_of(x.type))
    # Of pairs, both are loaded: those of the last place might be beyond the image.
    main = low + em.imax(high - low - (stride - 1), 0) // lanes * lanes
    with em.loop(low, main, lanes, hint="j") as j:
        where = j.iv * stride - left
        if stride == 1:
            value = em.vload(x, [row, where], narrow)
        elif stride == 2:
            first, second = (em.vload(x, [row, where + part], narrow) for part in (0, lanes))
            value = em.shuffle(first, second, range(0, 2 * lanes, 2))
        else:
            value = gathered(em, x, [row, where], stride, em.mask(lanes, lanes))
        em.vstore(target.widen(em, value), copied, [j.iv - begin])
    with em.loop(main, high, lanes, hint="j") as j:
        where, zero = j.iv * stride - left, em.zero(narrow)
        if stride <= 2:
            # Of the last pair, only the first pixel is in the image for certain.
            count = (high - j.iv) * stride - (stride - 1)
            value = em.masked_load(x, [row, where], em.mask(count, lanes), zero)
            if stride == 2:
                mask = em.mask(em.imax(count - lanes, 0), lanes)
                second = em.masked_load(x, [row, where + lanes], mask, zero)
                value = em.shuffle(value, second, range(0, 2 * lanes, 2))
        else:
            value = gathered(em, x, [row, where], stride, em.mask(high - j.iv, lanes))
        em.vstore(target.widen(em, value), copied, [j.iv - begin])


def repeated(
    em: Emitter, bounds: tuple[Index, Index], unrolled: int, total: Value, step: Callable[[Index, Value], Value]
) -> Value:
    """What the steps make of a number: one after the other in the code up to so many, where that is known."""
    first, last = bounds
    if isinstance(first, int) and isinstance(last, int) and last - first <= unrolled:
        for number in range(first, last):
            total = step(number, total)
        return total
    with em.loop(first, last, 1, total, hint="tap") as loop:
        loop.yield_(step(loop.iv, loop.carry))
    return loop.result


def gathered(em: Emitter, x: Value, where: Sequence[Index], stride: int, mask: Value) -> Value:
    """Pixels that the places of neighbouring lanes see."""
    lanes = shape_of(mask.type)[0] or 0
    narrow = vec(lanes, element_of(x.type))
    steps = em.const([lane * stride for lane in range(lanes)], vec(lanes, "i32"))
    at = f"{x}[{', '.join(em.index(index) for index in where)}] [{steps}], {mask}, {em.zero(narrow)}"
    return em.op(f"vector.gather {at} : {x.type}, {steps.type}, {mask.type}, {narrow} into {narrow}", narrow)


def _configure(name: str, spec: Conv2dSpec, target: Target) -> Conv2dSpec | None:
    return None if spec.in_panels or spec.has_few_products else spec


GENERATORS = (Generator("conv2d", "conv2d", _configure, emit_conv2d),)
