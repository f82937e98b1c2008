# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Products of block-quantised activations with weights in panels: integer dot products, f32 across blocks.

For each block of 32 along K, row m and column n:

    acc += d_w * float(u . q - bias * sum) * scale      (+= m_w * (scale * float(sum)) where minima are stored)

Where the weight has two scales in a block, this is done for each half, with the half's u . q and sum of q. The integers
are exact; q of more than 8 bits is multiplied digit by digit (`digits`). The chain along K is the same for every tile
and every path, so results are the same bits for any number of rows and any cut of the units.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from rlx_mlir.activations import DIGITS
from rlx_mlir.codegen.emit import Emitter, Index, Value, vec
from rlx_mlir.codegen.kernel import Buffers
from rlx_mlir.codegen.specs import ProductSpec
from rlx_mlir.codegen.structures import Structure, mapped
from rlx_mlir.runtime.tiles import GEMM_AMX
from rlx_mlir.tuning.cpu import SHARED

from . import UnsupportedByTemplate
from .byte_dots import Dot, Dots, by_avx2
from .digits import BASE_BITS, has_room
from .gemm_amx import SIDE
from .gemm_amx_int8 import IntegerTiles, uses_integer_tiles
from .gemm_packed import PREFETCH_BYTES, REGISTER_TILES, are_single_rows, panels_per_unit, tile_groups
from .kernel import (
    Accumulators,
    Product,
    Scratch,
    block_counts,
    needed_tiles,
    row_blocks,
    row_count,
    row_tiles,
    write_product,
)
from .panels import PANEL_ROWS, RUN, Panel, PanelLayout, Run, find_layout, over_runs, panel_operands, panel_product
from .quantized_rows import ROW_BLOCK, GivenRows, QuantizedRows, Rows, Tables
from .registry import Generator
from .target import Target

BLOCK = RUN
"""Elements of K that share a scale."""

LINE = 64
"""Bytes of a cache line."""

FEW_ROWS = 4
"""The largest M, times digits, whose weights are joined to bytes in registers."""

HEAD_WIDTH = 6
"""Columns for each element of K from which on a product is taken for a model's head."""

NEAR_BYTES = 256
"""How far ahead few rows ask for the panel that they read: it helps over the ends of pages; further is slower."""


# -- the product ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Weights:
    """One block of a tile's columns: bytes(first, i, v) of quad first + i of vector v, scale, minimum of (part, v)."""

    bytes: Callable[[Index, int, int], Value]
    scale: Callable[[Index, int], Value]
    minimum: Callable[[Index, int], Value | None]


class _Source(Protocol):
    """Goes along the blocks of some columns: calls step(block, weights, carry) for each; returns the last carry.

    Where `leads` holds, it asks for the weights that come next.
    """

    def __call__(
        self, carry: Structure, step: Callable[[Index, _Weights, Structure], Structure], leads: Value | None
    ) -> Structure: ...


def int8_target(target: Target) -> Target:
    """AVX-512 without VNNI has no better way than AVX2 here."""
    return target if target.vnni or target.vector_bits < 512 else target.narrow(256)


def _tile_rows(target: Target, rows: int | None, few: bool) -> tuple[int, ...]:
    """Rows of the register tiles, which hold an integer and an f32 sum for each vector; few rows are one tile."""
    if target.vector_bits == 512:
        sizes: tuple[int, ...] = (6, 4, 2, 1)
    elif target.registers == 32:
        sizes = (3, 1)
    else:
        sizes = (2, 1) if target.vector_bits == 256 else (1,)
    return (rows,) if few and rows and rows <= sizes[0] else target.choices.limited(sizes)


def gemm_int8(target: Target, product: Product, scheme: str, bits: int = 8) -> str:
    """The kernel of `block_dot` with an epilogue.

    product.x_shape is that of q. Operands: q [..., K] of integers with so many bits, within +-127 * 2^(bits - 8), scale
    [..., K / 32] f32, sum [..., K / 32] i32, then the weights [ceil(N / 16), panel bytes] i8 of a block scheme, then
    the program's arguments; then the outputs
    [..., N] f32. Units are panels, or pairs of them.
    """
    layout = find_layout(scheme, product.k)
    if layout.dense:
        raise UnsupportedByTemplate(
            f"{product.name}: integer products need a block scheme, but the weights are {scheme}"
        )
    if not has_room(layout, bits):
        raise UnsupportedByTemplate(f"{product.name}: sums of products of {scheme} with {bits} bits don't fit in 32")
    target = int8_target(target)
    kernel = IntegerProduct(target, product, layout, GivenRows(target, product.k, layout, bits))
    return write_product(product, kernel.operands, lambda em, values: kernel.units, kernel.parts, kernel.body)


@dataclass(frozen=True)
class IntegerParts:
    """The scratch memory of a kernel: of rows of results, of weights for all tiles, of activations."""

    accumulators: Accumulators
    data: Value
    factors: Value
    rows: Tables
    tiles: IntegerTiles | None


class IntegerProduct:
    """The code of one kernel, and what follows from the product's sizes and the target."""

    def __init__(
        self, target: Target, product: Product, layout: PanelLayout, rows: Rows, per_unit: int | None = None
    ) -> None:
        """per_unit: panels of each weight in a unit, where the code for more rows says so."""
        self._target, self._product, self._layout, self._rows = target, product, layout, rows
        self._digits = DIGITS[rows.bits]
        self._weights = product.program.accumulators
        self.blocks = product.k // BLOCK
        self.panels = -(-product.n // PANEL_ROWS)
        # Sums of few rows have registers of their own for each digit.
        self._few = product.rows is not None and product.rows <= FEW_ROWS // self._digits
        # They wait for memory, which is read fastest as one stream: a panel at a time.
        rule = 1 if self._few else panels_per_unit(target, self._weights)
        self.per_unit = rule if per_unit is None else per_unit
        alone = [[panel] for panel in itertools.product(range(self._weights), range(self.per_unit))]
        self._groups = alone if self._few else tile_groups(target, self._weights)
        self._lanes = target.lanes("f32")
        self._vectors = len(self._groups[0]) * PANEL_ROWS // self._lanes
        self._tiled = uses_integer_tiles(target, product.rows, layout) and has_room(layout, rows.bits)
        # Planes are joined to bytes once for all tiles; few rows do it in registers, and bytes need nothing.
        self._joined = layout.bits < 8 and not self._few
        # AVX2 has no sums of bytes in 32 bits: loading weights once for all digits leaves registers for one row.
        self._together = self._few or (self._digits > 1 and by_avx2(target))
        self._sizes = (1,) if self._together and not self._few else _tile_rows(target, product.rows, self._few)
        if product.rows is not None and self._digits > 1 and not self._tiled:
            self._sizes = needed_tiles(self._sizes, block_counts(product.rows, ROW_BLOCK)) or self._sizes
        self._of_few = [
            IntegerProduct(target, replace(product, x_shape=(count, product.k)), layout, rows, self.per_unit)
            for count in range(1, self._fewest() + 1)
        ]

    def _fewest(self) -> int:
        """Up to how many rows have code of their own where the number isn't known here.

        Those of sequences may be few, and a head is asked for the last token of a prompt most often.
        """
        product = self._product
        if product.rows is not None:
            return 0
        if are_single_rows(product.x_shape):
            return FEW_ROWS // self._digits
        return 1 if product.n >= HEAD_WIDTH * product.k else 0

    @property
    def operands(self) -> Buffers:
        """The kernel's operands: rows, weights, the program's arguments."""
        product = self._product
        return panel_operands(product, self._layout, self._rows.operands(product))

    @property
    def units(self) -> int:
        """Panels, or pairs of them."""
        return -(-self.panels // self.per_unit)

    def parts(self, em: Emitter, values: list[Value], scratch: Scratch) -> IntegerParts:
        """Takes the scratch memory."""
        layout = self._layout
        columns = self._vectors * self._lanes
        count = len(self._groups) if self._joined else 0
        data = scratch.take([count, self.blocks, 8, columns], "i32")
        factors = scratch.take([count, self.blocks, _factors(layout), columns], "f32")
        rows = self._rows.memory(em, values[0], scratch)
        tiles = IntegerTiles(em, scratch, self._digits) if self._tiled else None
        most = SIDE if self._tiled else self._sizes[0]
        columns_of_unit = self.per_unit * PANEL_ROWS
        accumulators = Accumulators(em, self._target, self._product, columns_of_unit, scratch, most)
        return IntegerParts(accumulators, data, factors, rows, tiles)

    def body(
        self, em: Emitter, values: list[Value], outputs: list[Value], begin: Value, end: Value, scratch: Scratch
    ) -> None:
        """Computes a range of units."""
        rows = row_count(em, values[0])
        arguments = values[len(self._rows.operands(self._product)) + self._weights :]
        parts = self.parts(em, values, scratch)

        def finish(unit: Value, first: Index, count: Index) -> None:
            parts.accumulators.finish(arguments, outputs, unit, first, count)

        self.multiply(em, values, rows, (begin, end), parts, finish)

    def multiply(
        self,
        em: Emitter,
        values: Sequence[Value],
        rows: Index,
        units: tuple[Index, Index],
        parts: IntegerParts,
        finish: Callable[[Value, Index, Index], None],
        after: Callable[[Index, Index], None] | None = None,
    ) -> None:
        """Computes a range of units.

        Args:
            values: the rows, weights, and what else the kernel has.
            rows: how many there are.
            finish: stores the accumulators' first rows, for (unit, first row, count).
            after: is called behind the code for each block of rows, (first, count).
        """

        def run(count: int) -> None:
            """The code for `count` rows, where they are as few, else that for more, or for any number."""
            if count > len(self._of_few):
                self._multiply(em, values, rows, units, parts, finish, after)
                return
            with em.if_(em.cmpi("eq", rows, count)) as branch:
                self._of_few[count - 1]._multiply(em, values, count, units, parts, finish, after)
                branch.else_()
                run(count + 1)

        run(1)

    def _multiply(
        self,
        em: Emitter,
        values: Sequence[Value],
        rows: Index,
        units: tuple[Index, Index],
        parts: IntegerParts,
        finish: Callable[[Value, Index, Index], None],
        after: Callable[[Index, Index], None] | None,
    ) -> None:
        """As `multiply`, by this code."""
        given = len(self._rows.operands(self._product))
        flat = [em.flat(value) for value in values[given : given + self._weights]]
        if parts.tiles:
            parts.tiles.configure()

        def block(first: Index, count: Index) -> None:
            x = self._rows.read(em, list(values[:given]), parts.rows, first, count)
            with em.loop(units[0], units[1], hint="unit") as unit:
                sources = [self._source(em, unit.iv, flat, g, parts) for g in range(len(self._groups))]

                def tile(row: Index, size: int) -> None:
                    self._tile(em, x, sources, parts.accumulators, row, size)
                    finish(unit.iv, first + row, size)

                done: Index = 0
                if parts.tiles:
                    done = count - count % SIDE
                    with em.loop(0, done, SIDE, hint="row") as row:
                        self._tiles(em, x, parts.tiles, parts, row.iv)
                        finish(unit.iv, first + row.iv, SIDE)
                row_tiles(em, count, self._sizes, tile, done)
            if after is not None:
                after(first, count)

        if self._rows.block is None:
            block(0, rows)
        else:
            row_blocks(em, rows, self._rows.block, block)
        if parts.tiles:
            parts.tiles.release()

    def _panel(self, em: Emitter, flat: Sequence[Value], unit: Value, weight: int, position: int) -> Panel:
        index: Index = unit * self.per_unit + position
        if self.panels % self.per_unit and position:
            index = em.imin(index, self.panels - 1)  # beyond the last one; these columns are never stored
        offset = index * self._layout.panel_bytes(self._product.k)
        return Panel(em, self._target, self._layout, flat[weight], offset)

    def _source(self, em: Emitter, unit: Value, flat: Sequence[Value], group: int, parts: IntegerParts) -> _Source:
        """Where a group of columns finds its weights: in the panels, or where they were joined."""
        here = [self._panel(em, flat, unit, weight, position) for weight, position in self._groups[group]]
        rule = NEAR_BYTES if self._few else PREFETCH_BYTES if self._joined else 0
        source = _from_panels(em, here, self._product.k // self._layout.block, rule)
        if not self._joined:
            return source
        _join(em, self._target, source, self._vectors, group, parts.data, parts.factors, self._layout)
        size = self._layout.panel_bytes(self._product.k)

        def ahead(block: Index) -> None:
            """Asks for a part of the next unit's panels: memory is read while a unit is multiplied."""
            for panel in here:
                at = panel.base + (self.per_unit * size + block * (size // self.blocks))
                for line in range(0, size // self.blocks, LINE):
                    em.prefetch(panel.data, [at + line], locality=2)

        joined = parts.data, parts.factors
        return _from_scratch(em, self._target, group, joined, self._layout, self.blocks, ahead)

    def _tile(
        self, em: Emitter, x: QuantizedRows, sources: Sequence[_Source], total: Accumulators, first: Index, size: int
    ) -> None:
        """The sums of a tile of rows, by vectors."""
        ways = (self._joined, self._together)
        for g, source in enumerate(sources):
            rows = [first + r for r in range(size)]
            tile = _Tile(em, self._target, self._layout, x, rows, self._vectors, *ways)
            leads = em.cmpi("eq", first, 0) if self._joined else None
            for r, own in enumerate(tile.multiply(source, leads)):
                for v, value in enumerate(own):
                    em.vstore(value, total.data, [r, (g * self._vectors + v) * self._lanes])

    def _tiles(self, em: Emitter, x: QuantizedRows, tiles: IntegerTiles, parts: IntegerParts, row: Value) -> None:
        """The sums of a tile of rows, by tiles of AMX."""
        vectors, weights = self._vectors, (parts.data, parts.factors)
        for g, v in itertools.product(range(len(self._groups)), range(vectors)):
            sums = _multiply_tiles(em, self._target, tiles, x, row, weights, (g, v), vectors, self.blocks)
            for r, value in enumerate(sums):
                em.vstore(value, parts.accumulators.data, [r, (g * vectors + v) * SIDE])


def _factors(layout: PanelLayout) -> int:
    """Scales and minima of a column in a block of 32."""
    return BLOCK // layout.sub * (2 if layout.minimum else 1)


def _from_panels(em: Emitter, panels: Sequence[Panel], end: Index, rule: int) -> _Source:
    """The blocks [0, end) of panels side by side; rule: how many bytes ahead they are asked for; 0: they aren't."""
    vectors = panels[0].vectors
    ahead = panels[0].target.choices.ahead(rule) if rule else 0

    def run_all(
        carry: Structure, step: Callable[[Index, _Weights, Structure], Structure], leads: Value | None
    ) -> Structure:
        def at_runs(block: Index, runs: Sequence[Run], values: Structure) -> Structure:
            weights = _Weights(
                lambda first, i, v: runs[v // vectors].quad(first, i, v % vectors),
                lambda part, v: runs[v // vectors].scale(part, v % vectors),
                lambda part, v: runs[v // vectors].minimum(part, v % vectors),
            )
            return step(block, weights, values)

        return over_runs(panels, 0, end, carry, at_runs, ahead)

    return run_all


def _join(
    em: Emitter,
    target: Target,
    source: _Source,
    vectors: int,
    g: int,
    data: Value,
    factors: Value,
    layout: PanelLayout,
) -> None:
    """Panels into scratch: data[g, block, quad, column], four bytes, and factors[g, block, .., column]."""
    parts, lanes = BLOCK // layout.sub, target.lanes("f32")

    def step(block: Index, weights: _Weights, _: tuple[()]) -> tuple[()]:
        for v in range(vectors):
            for part in range(parts):
                em.vstore(weights.scale(part, v), factors, [g, block, part, v * lanes])
                if (minimum := weights.minimum(part, v)) is not None:
                    em.vstore(minimum, factors, [g, block, parts + part, v * lanes])
            for c in range(8):
                em.vstore(em.bitcast(weights.bytes(0, c, v), vec(lanes, "i32")), data, [g, block, c, v * lanes])
        return ()

    source((), step, None)


def _from_scratch(
    em: Emitter,
    target: Target,
    g: int,
    joined: tuple[Value, Value],
    layout: PanelLayout,
    blocks: int,
    ahead: Callable[[Index], None],
) -> _Source:
    """What `_join` has stored; `ahead` is called beside each block by tiles that lead."""
    lanes = target.lanes("f32")
    parts = BLOCK // layout.sub
    data, factors = joined

    def run_all(
        carry: Structure, step: Callable[[Index, _Weights, Structure], Structure], leads: Value | None
    ) -> Structure:
        with em.loop(0, blocks, 1, carry, hint="block") as loop:
            block = loop.iv
            if leads is not None:
                with em.if_(leads):
                    ahead(block)

            def read(first: Index, i: int, v: int) -> Value:
                dwords = em.vload(data, [g, block, first + i, v * lanes], vec(lanes, "i32"))
                return em.bitcast(dwords, vec(4 * lanes, "i8"))

            def factor(which: Index, v: int) -> Value:
                return em.vload(factors, [g, block, which, v * lanes], vec(lanes, "f32"))

            def minimum(part: Index, v: int) -> Value | None:
                return factor(part + parts, v) if layout.minimum else None

            loop.yield_(step(block, _Weights(read, factor, minimum), loop.carry))
        return loop.result

    return run_all


@dataclass(frozen=True)
class _Tile:
    """Some rows times some columns, in registers.

    Attributes:
        rows: by their number in `x`.
        vectors: of columns.
        joined: whether the weights were joined to bytes.
        together: whether digits have sums of their own, so that the weights' bytes are made once for all digits.
    """

    em: Emitter
    target: Target
    layout: PanelLayout
    x: QuantizedRows
    rows: Sequence[Index]
    vectors: int
    joined: bool
    together: bool

    @property
    def parts(self) -> int:
        """Parts of a block that share a scale."""
        return BLOCK // self.layout.sub

    @property
    def quads(self) -> int:
        """Fours of elements of a part."""
        return 8 // self.parts

    def multiply(self, source: _Source, leads: Value | None) -> list[list[Value]]:
        """The products, f32 [row][vector], block by block; `leads` as `_Source` says."""
        zero = self.em.zero(self.target.vector("f32"))
        return source([[zero] * self.vectors] * len(self.rows), self._block, leads)

    def _block(self, block: Index, weights: _Weights, carried: list[list[Value]]) -> list[list[Value]]:
        if self.joined and self.parts > 1:
            # A loop: as one block, LLVM spills.
            with self.em.loop(0, self.parts, 1, carried, hint="part") as loop:
                loop.yield_(self._part(block, loop.iv, weights, loop.carry))
            return loop.result
        for part in range(self.parts):
            carried = self._part(block, part, weights, carried)
        return carried

    def _part(self, block: Index, part: Index, weights: _Weights, carried: list[list[Value]]) -> list[list[Value]]:
        """Adds the products of the elements that share a scale."""
        em, x, floats = self.em, self.x, self.target.vector("f32")
        first, sums = self._sums(block, part, weights)
        scales = [weights.scale(part, v) for v in range(self.vectors)]
        minima = [weights.minimum(part, v) for v in range(self.vectors)]
        result: list[list[Value]] = []
        for r, (row, own, totals) in enumerate(zip(self.rows, sums, carried, strict=True)):
            x_scale = x.scale_of(em, row, block, floats)
            shift = x.at(em, x.shifts, row, block, part, floats) if x.shifts is not None else None
            result.append([])
            for v, (integer, scale, minimum, total) in enumerate(zip(own, scales, minima, totals, strict=True)):
                value = em.cast("arith.sitofp", integer, floats)
                if first is not None:
                    head = em.cast("arith.sitofp", first[r][v], floats)
                    value = self.target.fma(em, head, em.const(x.weight_of_first, floats), value)
                total = self.target.fma(em, value * scale, x_scale, total)
                if minimum is not None and shift is not None:
                    total = self.target.fma(em, minimum, shift, total)
                result[-1].append(total)
        return result

    def _sums(self, block: Index, part: Index, weights: _Weights) -> tuple[list[list[Value]] | None, list[list[Value]]]:
        """(the sums of the first digit, where they are apart; those of the others or of all), i32 [row][vector]."""
        digits, first_quad = range(self.x.digits), part * self.quads
        at = (first_quad, block * BLOCK + first_quad * 4)
        if self.together and len(digits) > 1:
            dots = [self._begun(block, part, digit) for digit in digits]
            self._add(at, weights, digits, dots)
            head = _finished(dots.pop(0)) if self.x.apart else None
            return head, functools.reduce(_behind, map(_finished, dots))
        # Digit by digit, in the same registers: the weights' bytes are read for each.
        first: list[list[Value]] | None = None
        sums: list[list[Value]] | None = None
        for digit in digits:
            if digit == 1 and self.x.apart:
                first, sums = sums, None
            running = self._begun(block, part, digit, sums)
            self._add(at, weights, [digit], [running])
            sums = _finished(running)
        assert sums is not None
        return first, sums

    def _begun(self, block: Index, part: Index, digit: int, before: list[list[Value]] | None = None) -> list[list[Dot]]:
        """New sums of a digit, which go on from those of the digits before."""
        em, x, ints = self.em, self.x, self.target.vector("i32")
        dots = Dots(em, self.target, self.layout.top)
        result = []
        for r, row in enumerate(self.rows):
            starts = [em.zero(ints)] * self.vectors if before is None else [v << BASE_BITS for v in before[r]]
            table = x.corrections if digit == x.digits - 1 else x.heads if digit == 0 else None
            if table is not None:
                correction = x.at(em, table, row, block, part, ints)
                starts = [correction if before is None else v + correction for v in starts]
            result.append([dots.begin(start) for start in starts])
        return result

    def _add(
        self, at: tuple[Index, Index], weights: _Weights, digits: Sequence[int], running: list[list[list[Dot]]]
    ) -> None:
        """Adds to sums, by digit, row and vector, the products with a part's digits; at: its first quad, and k."""
        first, k = at
        for i in range(self.quads):
            columns = [weights.bytes(first, i, v) for v in range(self.vectors)]
            for digit, sums in zip(digits, running, strict=True):
                for row, own in zip(self.rows, sums, strict=True):
                    factor = self.x.dword(self.em, row, k + 4 * i, digit, self.target.vector("i32"))
                    for dot, column in zip(own, columns, strict=True):
                        dot.add(column, factor)


def _finished(dots: list[list[Dot]]) -> list[list[Value]]:
    return [[dot.finish() for dot in own] for own in dots]


def _behind(high: list[list[Value]], low: list[list[Value]]) -> list[list[Value]]:
    """Sums of digits with those of the next digit."""
    return mapped(lambda above, below: (above << BASE_BITS) + below, high, low)


def _multiply_tiles(
    em: Emitter,
    target: Target,
    tiles: IntegerTiles,
    x: QuantizedRows,
    first: Index,
    joined: tuple[Value, Value],
    place: tuple[int, int],
    vectors: int,
    blocks: int,
) -> list[Value]:
    """What `_Tile` gives for 16 rows and one vector of columns, place: (group, vector), of what `_join` stored."""
    data, factors = joined
    floats, ints = target.vector("f32"), target.vector("i32")
    g, column = place[0], place[1] * SIDE

    def add(block: Index, sums: Callable[[int], Value], carried: list[Value]) -> list[Value]:
        scale = em.vload(factors, [g, block, 0, column], floats)
        minimum = em.vload(factors, [g, block, 1, column], floats) if x.shifts is not None else None
        result = []
        for r in range(SIDE):
            row, total = first + r, sums(r)
            if x.corrections is not None:
                total = total + x.at(em, x.corrections, row, block, 0, ints)
            value = em.cast("arith.sitofp", total, floats) * scale
            value = target.fma(em, value, x.scale_of(em, row, block, floats), carried[r])
            if minimum is not None and x.shifts is not None:
                value = target.fma(em, minimum, x.at(em, x.shifts, row, block, 0, floats), value)
            result.append(value)
        return result

    k = blocks * BLOCK
    row = x.digits * k
    line = 4 * vectors * SIDE
    start = g * blocks * (BLOCK // 4) * line + 4 * column
    return tiles.over_steps((x.bytes, first * row, row, k), (data, start, line), blocks, [em.zero(floats)] * SIDE, add)


# -- generators -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Config:
    """A product, the weights' scheme, and the bits of activations."""

    product: Product
    scheme: str
    bits: int


def _configure(name: str, spec: ProductSpec, target: Target) -> _Config | None:
    product = panel_product(spec, "block_dot")
    return None if product is None else _Config(product, spec.scheme, spec.bits)


def _configure_tiles(name: str, spec: ProductSpec, target: Target) -> _Config | None:
    config = _configure(name, spec, target)
    if config is None:
        return None
    return config if uses_integer_tiles(target, spec.rows, find_layout(spec.scheme, config.product.k)) else None


def _emit(name: str, config: _Config, target: Target) -> str:
    return gemm_int8(target, config.product, config.scheme, config.bits)


GENERATORS = (
    Generator(
        GEMM_AMX + "_int8",
        "gemm",
        _configure_tiles,
        _emit,
        knobs=SHARED,
        candidates={"prefill": [{"amx": 0}]},
    ),
    Generator("gemm_int8", "gemm", _configure, _emit, knobs=SHARED, candidates=REGISTER_TILES),
)
