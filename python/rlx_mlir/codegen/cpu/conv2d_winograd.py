# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Convolutions of 3 x 3 with fewer products, by Winograd's F(2 x 2, 3 x 3): 16 products of a channel give four places.

    y = A' (sum of (G w G') * (B' d B) over channels) A

d is a square of 4 x 4 pixels, and y what two by two places make of it. G w G' is prepared, see `lowering/winograd.py`.
A unit is some outputs at the squares of some rows of squares, or of a part of one row. It writes B' d B of all
channels to scratch, and multiplies each of the 16 numbers of squares with those of weights like a matrix: **lanes run
over outputs**, and tiles of registers have some squares. The products of 16 or 32 outputs at a time become sums by
place, with which the epilogue goes on as that of `conv2d_panels`. Every product is one chain of operations along the
channels, and squares begin at even places, whatever tiles and units are.

B' and A' add and subtract alone, and **the sum of a place is made of pixels that it sees alone**, unlike those of
larger squares: what lies beside them rounds nothing. Infinities and NaN, and what exceeds f32 on the way, make sums
that aren't finite: these are computed again as the definition has them, product by product.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rlx_mlir.codegen.emit import Emitter, Index, Value, with_element
from rlx_mlir.codegen.specs import Conv2dSpec
from rlx_mlir.formats import PANEL_ROWS
from rlx_mlir.tuning.cpu import Knob

from .conv2d import Convolution, Cut, counts, write_convolution, zeros
from .conv2d_panels import finish_turned, tile_places
from .gemm_packed import multiply_tile
from .kernel import Accumulators, Scratch, row_tiles
from .registry import Generator
from .target import Target

SIDE = 4
"""Rows and columns of a square; it has two places along each, and those of its neighbours lie two pixels further."""

SQUARES = 56
"""Squares of a unit at most."""

SEEN = 1 << 17
"""Numbers of the squares of a unit, about, in half of the second cache: more channels leave it fewer squares."""

FEWEST = 14
"""But not fewer than these, for which a weight is read once."""

INFINITE = 0x7F800000
"""From these bits on, without the sign, a number of f32 isn't finite."""


@dataclass(frozen=True)
class _Parts:
    """Scratch memory of a thread.

    Attributes:
        lines: four lines of a row of squares, B' times pixels, each of `pitch` numbers.
        squares: for each of the 16 numbers of a square, a row: channel by channel, those of the unit's squares.
        products: [number of a square, square, output], of 16 or 32 outputs.
        sums: [place, output], of the same; one more place for those that aren't in the image.
        turned: sums by output, of 16.
    """

    lines: Value
    pitch: Index
    squares: Value
    products: Value
    sums: Value
    turned: Accumulators


@dataclass(frozen=True)
class _Unit:
    """Where a unit is.

    Attributes:
        image: its number.
        at, sizes: the first square in the image, down and across, and how many.
        places: rows and columns of places in these squares that are in the image.
        across: places of a row of the image.
    """

    image: Index
    at: tuple[Index, Index]
    sizes: tuple[Index, Index]
    places: tuple[Index, Index]
    across: Index

    @property
    def squares(self) -> Index:
        """How many squares it has."""
        return self.sizes[0] * self.sizes[1]


class _Numbers:
    """The numbers of neighbouring squares at one position of them, as products read them: squares are rows."""

    def __init__(self, em: Emitter, squares: Value, position: Index, count: Index, first: Index) -> None:
        self._em, self._squares, self._position, self._count, self._first = em, squares, position, count, first

    def load(self, row: Index, k: Index) -> Value:
        """That of square `row` and channel k."""
        return self._em.load(self._squares, [self._position, k * self._count + (self._first + row)])


def emit_conv2d_winograd(name: str, spec: Conv2dSpec, target: Target) -> str:
    """The functions `@name.body`, `@name.units` and `@name.scratch`, as text."""
    return write_convolution(name, spec, _Convolution(spec, target))


class _Convolution(Convolution):
    def __init__(self, spec: Conv2dSpec, target: Target) -> None:
        super().__init__(spec, target)
        self.most = target.choices.get("squares") or min(SQUARES, max(FEWEST, SEEN // (SIDE * SIDE * self.inputs)))
        self.together = 2 if target.vector_bits == 512 else 1
        self.tiles = tile_places(target)

    def _cut(self, em: Emitter, x: Value) -> tuple[Cut, tuple[Index, Index]]:
        """How the squares of an image are cut into units, and how many places there are."""
        places = counts(em, self.spec, x)
        return Cut.over(em, (em.iceildiv(places[0], 2), em.iceildiv(places[1], 2)), self.most), places

    def units(self, em: Emitter, x: Value) -> Index:
        """Parts of rows of squares, for each block of rows, each block of outputs, each image."""
        cut, _ = self._cut(em, x)
        return cut.blocks * cut.parts * self.row_blocks * em.dim(x, 0)

    def parts(self, em: Emitter, x: Value, scratch: Scratch) -> _Parts:
        """Takes the scratch memory; last vectors of lines, channels and outputs may reach beyond them."""
        cut, _ = self._cut(em, x)
        squares = cut.room(self.most, lambda tall, wide: tall * wide)
        pitch = cut.room(self.most, lambda _, wide: wide * 2 + (2 + 2 * self.lanes))
        wide = self.together * PANEL_ROWS
        lines = scratch.take([pitch * SIDE], "f32")
        seen = scratch.take([SIDE * SIDE, squares * self.inputs + self.lanes], "f32")
        products = scratch.take([SIDE * SIDE, squares, wide], "f32")
        sums = scratch.take([squares * 4 + self.lanes, wide], "f32")
        room = -(-4 * self.most // self.lanes) * self.lanes
        turned = Accumulators(em, self.target, self.finishing, room, scratch, PANEL_ROWS)
        return _Parts(lines, pitch, seen, products, sums, turned)

    def body(
        self, em: Emitter, values: list[Value], outputs: list[Value], begin: Value, end: Value, scratch: Scratch
    ) -> None:
        """Computes a range of units."""
        x, weight, *arguments = values
        arguments, outputs = self.finishing.flat(em, arguments), self.finishing.flat(em, outputs)
        parts, (cut, places) = self.parts(em, x, scratch), self._cut(em, x)
        with em.loop(begin, end, hint="unit") as number:
            part, rest = number.iv % cut.parts, number.iv // cut.parts
            block, rest = rest % cut.blocks, rest // cut.blocks
            first, image = rest % self.row_blocks * self.rows, rest // self.row_blocks
            at, sizes = cut.area(em, block, part)
            inside = (
                em.imin(places[0] - at[0] * 2, sizes[0] * 2),
                em.imin(places[1] - at[1] * 2, sizes[1] * 2),
            )
            unit = _Unit(image, at, sizes, inside, places[1])
            self._transform(em, parts, x, unit)
            count = self.count(em, first)

            def some(panel: Index, side_by_side: int) -> None:
                own = first // PANEL_ROWS + panel
                self._multiply(em, parts, weight, (own, side_by_side), unit.squares)
                mark = self._add(em, parts, unit, side_by_side)
                bits = em.bitcast(mark, with_element(self.type, "i32")) & 0x7FFFFFFF
                with em.if_(em.cmpi("ne", em.reduce("maxui", bits), 0)):
                    self._repair(em, parts, (x, weight), unit, (own, side_by_side))
                rows = (image * self.outputs + own * PANEL_ROWS, side_by_side * PANEL_ROWS, image * self.outputs)
                self._finish(em, parts, arguments, outputs, unit, rows)

            row_tiles(em, count // PANEL_ROWS, tuple(range(self.together, 0, -1)), some)

    # -- squares of pixels --------------------------------------------------------------------------------------------

    def _corner(self, unit: _Unit) -> tuple[Index, Index]:
        """The first pixel that the unit's squares see, down and across; it may lie outside."""
        top, left = (own * 2 - padding for own, padding in zip(unit.at, self.spec.padding, strict=True))
        return top, left

    def _transform(self, em: Emitter, parts: _Parts, x: Value, unit: _Unit) -> None:
        """Writes B' d B of all channels and squares of a unit."""
        height, width = em.dim(x, 2), em.dim(x, 3)
        top, left = self._corner(unit)
        columns = unit.sizes[1] * 2 + 2
        low = em.imin(em.imax(0 - left, 0), columns)
        high = em.imax(em.imin(width - left, columns), low)
        zeros(em, self.target, parts.lines, 0, parts.pitch * SIDE - (self.lanes - 1))
        flat = em.rows(x)
        with em.loop(0, self.inputs, hint="c") as c, em.loop(0, unit.sizes[0], hint="row") as row:
            image = (unit.image * self.inputs + c.iv) * height
            y = row.iv * 2 + top
            self._lines(em, parts, flat, (image, y, height), (left, low, high))
            self._numbers(em, parts, c.iv * unit.squares + row.iv * unit.sizes[1], unit.sizes[1])

    def _lines(
        self,
        em: Emitter,
        parts: _Parts,
        x: Value,
        rows: tuple[Index, Index, Index],
        columns: tuple[Index, Index, Index],
    ) -> None:
        """B' times the pixels of a row of squares, of one channel.

        rows: how many rows of x [.., width] are before the channel, the first one of the squares, and how many it has.
        columns: the first pixel of the squares, and which columns of them, from the first to the end, are in the image.
        """
        (above, y, height), (left, low, high) = rows, columns
        inside = [em.cmpi("ult", em.index(y + i), height) for i in range(SIDE)]
        own = [above + em.imax(em.imin(y + i, height - 1), 0) for i in range(SIDE)]

        def at(column: Value, ends: Sequence[Index] | None) -> None:
            pixels = []
            for i, line in enumerate(own):
                mask = None if ends is None else em.mask(em.imax(ends[i] - column, 0), self.lanes)
                pixels.append(em.vload(x, [line, column + left], self.type, mask))
            for i, value in enumerate(_forward(pixels)):
                em.vstore(value, parts.lines, [parts.pitch * i + column])

        with em.if_(inside[0] & inside[-1]) as branch:
            main = low + (high - low) // self.lanes * self.lanes
            with em.loop(low, main, self.lanes, hint="j") as j:
                at(j.iv, None)
            with em.loop(main, high, self.lanes, hint="j") as j:
                at(j.iv, [high] * SIDE)
            branch.else_()
            ends = [em.select(within, high, 0) for within in inside]
            with em.loop(low, high, self.lanes, hint="j") as j:
                at(j.iv, ends)

    def _numbers(self, em: Emitter, parts: _Parts, first: Index, count: Index) -> None:
        """Lines times B: the numbers of a row of `count` squares, from place `first` of their channel on.

        The last vector reaches into the squares that are written next.
        """
        even, odd = range(0, 2 * self.lanes, 2), range(1, 2 * self.lanes, 2)
        with em.loop(0, count, self.lanes, hint="s") as s:
            for i in range(SIDE):
                pixels = []
                for two in (0, 2):
                    start = parts.pitch * i + s.iv * 2 + two
                    low, high = (em.vload(parts.lines, [start + more], self.type) for more in (0, self.lanes))
                    pixels += [em.shuffle(low, high, even), em.shuffle(low, high, odd)]
                for j, value in enumerate(_forward(pixels)):
                    em.vstore(value, parts.squares, [SIDE * i + j, first + s.iv])

    # -- products -----------------------------------------------------------------------------------------------------

    def _multiply(self, em: Emitter, parts: _Parts, weight: Value, panels: tuple[Index, int], squares: Index) -> None:
        """The products of all numbers of squares with those of some panels of weights: the first one, and how many."""
        here = self._lanes_of(panels[1])
        with em.loop(0, SIDE * SIDE, hint="number") as number:
            begin = number.iv * self.inputs + self.inputs * 9

            def tile(first: Index, size: int) -> None:
                def load(k: Index, v: int) -> Value:
                    panel, lane = here[v]
                    return em.vload(weight, [panels[0] + panel, begin + k, lane], self.type)

                sums = [[em.zero(self.type) for _ in here] for _ in range(size)]
                numbers = _Numbers(em, parts.squares, number.iv, squares, first)
                new = multiply_tile(em, self.target, numbers, (0, self.inputs), self.inputs, load, sums)
                for j, own in enumerate(new):
                    for total, (panel, lane) in zip(own, here, strict=True):
                        em.vstore(total, parts.products, [number.iv, first + j, panel * PANEL_ROWS + lane])

            row_tiles(em, squares, self.tiles, tile)

    def _lanes_of(self, panels: int) -> list[tuple[int, int]]:
        """Where the vectors of some panels lie: the panel, and the first lane in it."""
        return [(panel, lane) for panel in range(panels) for lane in range(0, PANEL_ROWS, self.lanes)]

    # -- sums ---------------------------------------------------------------------------------------------------------

    def _add(self, em: Emitter, parts: _Parts, unit: _Unit, panels: int) -> Value:
        """A' products A: the sums of all places of a unit. Returns a vector that has a NaN where one isn't finite."""
        mark = em.zero(self.type)
        with em.loop(0, unit.sizes[0], carry=mark, hint="row") as row:
            with em.loop(0, unit.sizes[1], carry=row.carry, hint="column") as column:
                column.yield_(self._add_square(em, parts, unit, (row.iv, column.iv), panels, column.carry))
            row.yield_(column.result)
        return row.result

    def _add_square(
        self, em: Emitter, parts: _Parts, unit: _Unit, at: tuple[Value, Value], panels: int, mark: Value
    ) -> Value:
        """The sums of one square's places.

        Those beside the image go to a place behind all others; those below it lie behind its last row.
        """
        columns = unit.places[1]
        square, (y, x) = at[0] * unit.sizes[1] + at[1], (own * 2 for own in at)
        first, beside = y * columns + x, em.cmpi("slt", x + 1, columns)
        places = [
            own for row in (first, first + columns) for own in (row, em.select(beside, row + 1, unit.squares * 4))
        ]
        for panel, lane in self._lanes_of(panels):
            output = panel * PANEL_ROWS + lane
            numbers = [em.vload(parts.products, [n, square, output], self.type) for n in range(SIDE * SIDE)]
            columns_added = [_backward(numbers[j::SIDE]) for j in range(SIDE)]
            sums = [total for two in zip(*columns_added, strict=True) for total in _backward(two)]
            for total, place in zip(sums, places, strict=True):
                em.vstore(total, parts.sums, [place, output])
                mark = self.target.fma(em, total, em.zero(self.type), mark)
        return mark

    def _repair(
        self, em: Emitter, parts: _Parts, operands: tuple[Value, Value], unit: _Unit, panels: tuple[Index, int]
    ) -> None:
        """Computes sums that aren't finite again, tap by tap of each channel, from the weights as they were.

        What is outside of the image is zero.
        """
        bits = with_element(self.type, "i32")
        here = self._lanes_of(panels[1])
        with (
            em.loop(0, unit.places[0], hint="row") as row,
            em.loop(0, unit.places[1], hint="column") as column,
        ):
            place = row.iv * unit.places[1] + column.iv
            where: list[list[Index]] = [[place, panel * PANEL_ROWS + lane] for panel, lane in here]
            old = [em.vload(parts.sums, at, self.type) for at in where]
            fine = [em.cmpi("ult", em.bitcast(total, bits) & 0x7FFFFFFF, INFINITE) for total in old]
            with em.if_(em.reduce("and", _all(fine))) as branch:
                branch.else_()
                new = self._chain(em, operands, unit, (row.iv, column.iv), panels)
                for at, keep, one, other in zip(where, fine, old, new, strict=True):
                    em.vstore(em.select(keep, one, other), parts.sums, at)

    def _chain(
        self,
        em: Emitter,
        operands: tuple[Value, Value],
        unit: _Unit,
        place: tuple[Index, Index],
        panels: tuple[Index, int],
    ) -> list[Value]:
        """The sums of some panels at one place of a unit, product by product."""
        (x, weight), here = operands, self._lanes_of(panels[1])
        height, width = em.dim(x, 2), em.dim(x, 3)
        top, left = (corner + own for corner, own in zip(self._corner(unit), place, strict=True))
        zero = [em.zero(self.type) for _ in here]
        with em.loop(0, self.inputs * 9, carry=zero, hint="k") as k:
            y, z = k.iv % 9 // 3 + top, k.iv % 3 + left
            inside = em.cmpi("ult", y, height) & em.cmpi("ult", z, width)
            at = [unit.image, k.iv // 9, em.imax(em.imin(y, height - 1), 0), em.imax(em.imin(z, width - 1), 0)]
            pixel = em.broadcast(em.select(inside, em.load(x, at), em.const(0.0, "f32")), self.type)
            factors = [em.vload(weight, [panels[0] + panel, k.iv, lane], self.type) for panel, lane in here]
            k.yield_(
                [self.target.fma(em, pixel, factor, total) for factor, total in zip(factors, k.carry, strict=True)]
            )
        return list(k.result)

    def _finish(
        self,
        em: Emitter,
        parts: _Parts,
        arguments: Sequence[Value],
        outputs: Sequence[Value],
        unit: _Unit,
        rows: tuple[Index, Index, Index],
    ) -> None:
        """What the program makes of the sums; rows of places that are whole rows of the image go on as one."""
        down, across = unit.places
        start = unit.at[0] * 2 * unit.across + unit.at[1] * 2
        whole = em.cmpi("eq", em.index(across), unit.across)
        runs, length = em.select(whole, 1, down), em.select(whole, down * across, across)
        with em.loop(0, runs, hint="run") as run:
            places, at = (start + run.iv * unit.across, length), run.iv * across
            finish_turned(em, parts.sums, parts.turned, arguments, outputs, places, rows, at)


def _forward(pixels: Sequence[Value]) -> list[Value]:
    """B' times four numbers."""
    a, b, c, d = pixels
    return [a - c, b + c, c - b, b - d]


def _backward(numbers: Sequence[Value]) -> list[Value]:
    """A' times four numbers."""
    a, b, c, d = numbers
    return [a + b + c, b - c - d]


def _all(conditions: Sequence[Value]) -> Value:
    """Lanes in which all of them hold."""
    first, *others = conditions
    for other in others:
        first = first & other
    return first


def _configure(name: str, spec: Conv2dSpec, target: Target) -> Conv2dSpec | None:
    return spec if spec.transformed else None


GENERATORS = (
    Generator(
        "conv2d_winograd",
        "conv2d",
        _configure,
        emit_conv2d_winograd,
        switch="conv2d_winograd",
        knobs={"squares": Knob(range(1, 225))},
        candidates={"prefill": ({"squares": 28}, {"squares": 112})},
    ),
)
