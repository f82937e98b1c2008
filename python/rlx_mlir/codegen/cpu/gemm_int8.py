# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Products of block-quantised activations with weights in panels: integer dot products, f32 across blocks.

For each block of 32 along K, row m and column n:

    acc += d_w * float(u . q - bias * sum) * scale      (+= m_w * (scale * float(sum)) where minima are stored)

Where the weight has two scales in a block, this is done for each half, with the half's u . q and sum of q. The integers
are exact. The chain along K is the same for every tile and every path, so results are the same bits for any number of
rows and any cut of the units.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from rlx_mlir.codegen.emit import Emitter, Index, Value, memref, vec, with_element
from rlx_mlir.codegen.specs import ProductSpec
from rlx_mlir.codegen.structures import Structure
from rlx_mlir.runtime.tiles import GEMM_AMX
from rlx_mlir.tuning.cpu import SHARED

from . import UnsupportedByTemplate
from .gemm_amx import SIDE
from .gemm_amx_int8 import IntegerTiles, uses_integer_tiles
from .gemm_packed import FEW_ROWS, PREFETCH_BYTES, REGISTER_TILES, panels_per_unit, tile_groups
from .kernel import Accumulators, Product, Scratch, row_count, row_tiles, write_kernel
from .panels import PANEL_ROWS, RUN, Panel, PanelLayout, Run, find_layout, over_runs, panel_product, panel_weights
from .registry import Generator, as_it_is
from .target import Target

__all__ = ["BLOCK", "block_quantize", "gemm_int8"]

BLOCK = RUN
"""Elements of K that share a scale."""


# -- dot products of bytes --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Dots:
    """How to add up u * q for the four bytes of each dword, u unsigned up to `limit`, q signed within +-127."""

    em: Emitter
    target: Target
    limit: int

    def begin(self, start: Value) -> _Dot:
        """A sum over one block, beginning at `start`, i32."""
        return _Dot(self, start, [])

    @property
    def avx2(self) -> bool:
        return _by_avx2(self.target)

    @property
    def words(self) -> str:
        return vec(2 * self.target.lanes("i32"), "i16")

    def products(self, u: Value, q: Value) -> list[Value]:
        """i16 lanes whose sum is the dot product; each holds one product, or two neighbours' sum where that fits."""
        em = self.em
        if self.avx2 and self.limit > 127:
            # u = w + 128 with signed w: |w| times q with the sign of w fits, as 2 * 128 * 127 does.
            w = u ^ -128
            signed = em.intrinsic("llvm.x86.avx2.psign.b", [em.bitcast(q, u.type), w], u.type)
            return [em.intrinsic("llvm.x86.avx2.pmadd.ub.sw", [em.unary("math.absi", w), signed], self.words)]
        if self.avx2:
            return [em.intrinsic("llvm.x86.avx2.pmadd.ub.sw", [u, em.bitcast(q, u.type)], self.words)]
        weights, values = em.bitcast(u, self.words), em.bitcast(q, self.words)
        even, odd = em.binary("arith.shrsi", values << 8, 8), em.binary("arith.shrsi", values, 8)
        return [(weights & 0xFF) * even, (weights >> 8) * odd]

    def widened(self, words: Value) -> Value:
        """i32 sums of neighbouring i16."""
        em = self.em
        wide = self.target.vector("i32")
        if self.avx2:
            return em.intrinsic("llvm.x86.avx2.pmadd.wd", [words, em.const(1, words.type)], wide)
        pairs = em.bitcast(words, wide)
        low = em.binary("arith.shrsi", pairs << 16, 16)
        return low + em.binary("arith.shrsi", pairs, 16)


def _by_avx2(target: Target) -> bool:
    return target.vector_bits == 256 and target.has("avx2") and not target.vnni


def _bias(target: Target, layout: PanelLayout) -> int:
    """What is left to subtract from u, after what products by the target's instructions have subtracted."""
    return layout.bias - (128 if layout.top > 127 and (_by_avx2(target) or target.dotprod) else 0)


@dataclass
class _Dot:
    """A running sum: i32, and up to as many i16 products as cannot overflow."""

    dots: _Dots
    total: Value
    waiting: list[Value]
    count: int = 0

    def add(self, u: Value, q: Value) -> None:
        """Adds the dot products of the weight bytes u with q, an activation dword in every lane."""
        em, target = self.dots.em, self.dots.target
        if target.vnni:
            name = f"llvm.x86.avx512.vpdpbusd.{target.vector_bits}"
            self.total = em.intrinsic(name, [self.total, u, em.bitcast(q, u.type)], self.total.type)
            return
        if target.dotprod:
            signed = u ^ -128 if self.dots.limit > 127 else u
            name = "llvm.aarch64.neon.sdot.v4i32.v16i8"
            self.total = em.intrinsic(name, [self.total, signed, em.bitcast(q, u.type)], self.total.type)
            return
        self.waiting += self.dots.products(u, q)
        self.count += 1
        if self.dots.limit > 127:
            for words in self.waiting:
                self.total = self.total + self.dots.widened(words)
            self.waiting, self.count = [], 0
            return
        self.waiting = [_tree(self.waiting)]
        if (self.count + 1) * 2 * self.dots.limit * 127 > 32767:
            self.finish()

    def finish(self) -> Value:
        """The sum, i32."""
        if self.waiting:
            self.total = self.total + self.dots.widened(self.waiting[0])
            self.waiting, self.count = [], 0
        return self.total


def _tree(values: Sequence[Value]) -> Value:
    parts = list(values)
    while len(parts) > 1:
        parts = [parts[i] + parts[i + 1] if i + 1 < len(parts) else parts[i] for i in range(0, len(parts), 2)]
    return parts[0]


# -- the product ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Activations:
    """q [M, K] i8, scale [M, K / 32] f32, sum [M, K / 32] i32; what `_add_shifts` makes of them, where it's needed.

    corrections: -bias * (sum of q over a part of a block, which shares a scale), i32 [M, K / part].
    shifts: scale * that sum, f32 [M, K / part].
    """

    q: Value
    scale: Value
    sum: Value
    corrections: Value | None
    shifts: Value | None
    parts: int

    def dword(self, em: Emitter, row: Index, k: Index, type: str) -> Value:
        """Elements k .. k + 3 of a row, in every lane."""
        four = em.vload(self.q, [row, k], vec(4, "i8"))
        return em.broadcast(em.extract(em.bitcast(four, vec(1, "i32")), 0), type)

    def at(self, em: Emitter, table: Value, row: Index, block: Index, part: Index, type: str) -> Value:
        """An element of `corrections` or `shifts`, in every lane."""
        return em.broadcast(em.load(table, [row, block * self.parts + part]), type)


@dataclass(frozen=True)
class _Weights:
    """One block of a tile's columns: bytes(first, i, v) of quad first + i of vector v, scale, minimum of (part, v)."""

    bytes: Callable[[Index, int, int], Value]
    scale: Callable[[Index, int], Value]
    minimum: Callable[[Index, int], Value | None]


class _Source(Protocol):
    """Goes along the blocks of some columns: calls step(block, weights, carry) for each; returns the last carry."""

    def __call__(self, carry: Structure, step: Callable[[Index, _Weights, Structure], Structure]) -> Structure: ...


"""(initial values, step): calls `step(block, weights, values)` for the blocks along K and returns the last values."""


def _int8_target(target: Target) -> Target:
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


def gemm_int8(target: Target, product: Product, scheme: str) -> str:
    """The kernel of `block_dot` with an epilogue.

    product.x_shape is that of q. Operands: q [..., K] i8 within +-127, scale [..., K / 32] f32, sum [..., K / 32] i32,
    then the weights [ceil(N / 16), panel bytes] i8 of a block scheme, then the program's arguments; then the outputs
    [..., N] f32. Units are panels, or pairs of them.
    """
    layout = find_layout(scheme, product.k)
    if layout.dense:
        raise UnsupportedByTemplate(
            f"{product.name}: integer products need a block scheme, but the weights are {scheme}"
        )
    kernel = _IntegerProduct(_int8_target(target), product, layout)
    *leading, k = product.x_shape
    operands = [
        ("q", memref((*leading, k), "i8")),
        ("scale", memref((*leading, kernel.blocks), "f32")),
        ("sum", memref((*leading, kernel.blocks), "i32")),
        *panel_weights(product, layout),
        *product.arguments(),
    ]
    return write_kernel(
        product.name,
        operands,
        product.outputs(),
        units=lambda em, values: -(-kernel.panels // kernel.per_unit),
        scratch=kernel.parts,
        body=kernel.body,
        order=product.operand_order,
    )


@dataclass(frozen=True)
class _Parts:
    """The scratch memory of a kernel: of rows of results, of weights for all tiles, of what activations lack."""

    accumulators: Accumulators
    data: Value
    factors: Value
    corrections: Value | None
    shifts: Value | None
    tiles: IntegerTiles | None


class _IntegerProduct:
    """The code of one kernel, and what follows from the product's sizes and the target."""

    def __init__(self, target: Target, product: Product, layout: PanelLayout) -> None:
        self._target, self._product, self._layout = target, product, layout
        self._weights = product.program.accumulators
        self.blocks = product.k // BLOCK
        self.panels = -(-product.n // PANEL_ROWS)
        self.per_unit = panels_per_unit(target, self._weights)
        self._groups = tile_groups(target, self._weights)
        self._lanes = target.lanes("f32")
        self._vectors = len(self._groups[0]) * PANEL_ROWS // self._lanes
        self._few = product.rows is not None and product.rows <= FEW_ROWS
        self._tiled = uses_integer_tiles(target, product.rows, layout)
        # Planes are joined to bytes once for all tiles; few rows do it in registers, and bytes need nothing.
        self._joined = layout.bits < 8 and not self._few
        self._sizes = _tile_rows(target, product.rows, self._few)

    def parts(self, em: Emitter, values: list[Value], scratch: Scratch) -> _Parts:
        """Takes the scratch memory."""
        layout = self._layout
        columns = self._vectors * self._lanes
        count = len(self._groups) if self._joined else 0
        data = scratch.take([count, self.blocks, 8, columns], "i32")
        factors = scratch.take([count, self.blocks, _factors(layout), columns], "f32")
        sums = [row_count(em, values[0]), self._product.k // layout.sub]
        corrections = scratch.take(sums, "i32") if _bias(self._target, layout) else None
        shifts = scratch.take(sums, "f32") if layout.minimum else None
        tiles = IntegerTiles(em, scratch) if self._tiled else None
        most = SIDE if self._tiled else self._sizes[0]
        columns_of_unit = self.per_unit * PANEL_ROWS
        accumulators = Accumulators(em, self._target, self._product, columns_of_unit, scratch, most)
        return _Parts(accumulators, data, factors, corrections, shifts, tiles)

    def body(
        self, em: Emitter, values: list[Value], outputs: list[Value], begin: Value, end: Value, scratch: Scratch
    ) -> None:
        """Computes a range of units."""
        parts = self.parts(em, values, scratch)
        q, scale, total = (em.rows(value) for value in values[:3])
        x = _Activations(q, scale, total, parts.corrections, parts.shifts, BLOCK // self._layout.sub)
        rows = row_count(em, values[0])
        _add_shifts(em, self._target, x, rows, self.blocks, _bias(self._target, self._layout))
        flat = [em.bytes(value) for value in values[3 : 3 + self._weights]]
        arguments = values[3 + self._weights :]
        if parts.tiles:
            parts.tiles.configure()
        with em.loop(begin, end, hint="unit") as unit:
            sources = [self._source(em, unit.iv, flat, g, parts) for g in range(len(self._groups))]

            def tile(first: Index, size: int) -> None:
                self._tile(em, x, sources, parts.accumulators, first, size)
                parts.accumulators.finish(arguments, outputs, unit.iv, first, size)

            done: Index = 0
            if parts.tiles:
                done = rows - rows % SIDE
                with em.loop(0, done, SIDE, hint="row") as row:
                    self._tiles(em, x, parts.tiles, parts, row.iv)
                    parts.accumulators.finish(arguments, outputs, unit.iv, row.iv, SIDE)
            row_tiles(em, rows, self._sizes, tile, done)
        if parts.tiles:
            parts.tiles.release()

    def _panel(self, em: Emitter, flat: Sequence[Value], unit: Value, weight: int, position: int) -> Panel:
        index: Index = unit * self.per_unit + position
        if self.panels % self.per_unit and position:
            index = em.imin(index, self.panels - 1)  # beyond the last one; these columns are never stored
        offset = index * self._layout.panel_bytes(self._product.k)
        return Panel(em, self._target, self._layout, flat[weight], offset)

    def _source(self, em: Emitter, unit: Value, flat: Sequence[Value], group: int, parts: _Parts) -> _Source:
        """Where a group of columns finds its weights: in the panels, or where they were joined."""
        here = [self._panel(em, flat, unit, weight, position) for weight, position in self._groups[group]]
        source = _from_panels(em, here, self._product.k // self._layout.block, self._few or self._joined)
        if self._joined:
            _join(em, self._target, source, self._vectors, group, parts.data, parts.factors, self._layout)
            source = _from_scratch(em, self._target, group, parts.data, parts.factors, self._layout, self.blocks)
        return source

    def _tile(
        self, em: Emitter, x: _Activations, sources: Sequence[_Source], total: Accumulators, first: Index, size: int
    ) -> None:
        """The sums of a tile of rows, by vectors."""
        for g, source in enumerate(sources):
            sums = _multiply(em, self._target, self._layout, x, first, size, self._vectors, source, self._joined)
            for r, own in enumerate(sums):
                for v, value in enumerate(own):
                    em.vstore(value, total.data, [r, (g * self._vectors + v) * self._lanes])

    def _tiles(self, em: Emitter, x: _Activations, tiles: IntegerTiles, parts: _Parts, row: Value) -> None:
        """The sums of a tile of rows, by tiles of AMX."""
        vectors, weights = self._vectors, (parts.data, parts.factors)
        for g, v in itertools.product(range(len(self._groups)), range(vectors)):
            sums = _multiply_tiles(em, self._target, tiles, x, row, weights, (g, v), vectors, self.blocks)
            for r, value in enumerate(sums):
                em.vstore(value, parts.accumulators.data, [r, (g * vectors + v) * SIDE])


def _factors(layout: PanelLayout) -> int:
    """Scales and minima of a column in a block of 32."""
    return BLOCK // layout.sub * (2 if layout.minimum else 1)


def _add_shifts(em: Emitter, target: Target, x: _Activations, rows: Index, blocks: int, bias: int) -> None:
    """Computes x.corrections and x.shifts of all rows, those that there are."""
    ints, floats = target.vector("i32"), target.vector("f32")

    def stored(total: Value, scale: Callable[[], Value]) -> Iterator[tuple[Value, Value]]:
        if x.corrections is not None:
            yield total * -bias, x.corrections
        if x.shifts is not None:
            yield em.cast("arith.sitofp", total, with_element(total.type, "f32")) * scale(), x.shifts

    if x.corrections is None and x.shifts is None:
        return
    if x.parts == 1:
        lanes = target.lanes("f32")
        sums, scales = em.bytes(x.sum), em.bytes(x.scale)
        count = rows * blocks
        with em.loop(0, count, lanes, hint="block") as loop:
            mask, at = em.mask(count - loop.iv, lanes), [loop.iv]
            total = em.masked_load(sums, at, mask, em.zero(ints))
            for value, table in stored(total, lambda: em.masked_load(scales, at, mask, em.zero(floats))):
                em.masked_store(value, em.bytes(table), at, mask)
        return
    half = BLOCK // 2
    with em.loop(0, rows, hint="row") as row, em.loop(0, blocks, hint="block") as block:
        q = em.vload(x.q, [row.iv, block.iv * BLOCK], vec(half, "i8"))
        first = em.reduce("add", em.cast("arith.extsi", q, vec(half, "i32")))
        for part, total in enumerate((first, em.load(x.sum, [row.iv, block.iv]) - first)):
            for value, table in stored(total, lambda: em.load(x.scale, [row.iv, block.iv])):
                em.store(value, table, [row.iv, block.iv * 2 + part])


def _from_panels(em: Emitter, panels: Sequence[Panel], end: Index, stream: bool) -> _Source:
    """The blocks [0, end) of panels side by side; `stream`: what follows is prefetched."""
    vectors = panels[0].vectors

    def run_all(carry: Structure, step: Callable[[Index, _Weights, Structure], Structure]) -> Structure:
        def at_runs(block: Index, runs: Sequence[Run], values: Structure) -> Structure:
            weights = _Weights(
                lambda first, i, v: runs[v // vectors].quad(first, i, v % vectors),
                lambda part, v: runs[v // vectors].scale(part, v % vectors),
                lambda part, v: runs[v // vectors].minimum(part, v % vectors),
            )
            return step(block, weights, values)

        ahead = panels[0].target.choices.ahead(PREFETCH_BYTES) if stream else 0
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

    source((), step)


def _from_scratch(
    em: Emitter, target: Target, g: int, data: Value, factors: Value, layout: PanelLayout, blocks: int
) -> _Source:
    """What `_join` has stored."""
    lanes = target.lanes("f32")
    parts = BLOCK // layout.sub

    def run_all(carry: Structure, step: Callable[[Index, _Weights, Structure], Structure]) -> Structure:
        with em.loop(0, blocks, 1, carry, hint="block") as loop:
            block = loop.iv

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


def _multiply(
    em: Emitter,
    target: Target,
    layout: PanelLayout,
    x: _Activations,
    first: Index,
    size: int,
    vectors: int,
    source: _Source,
    joined: bool,
) -> list[list[Value]]:
    """x[first : first + size] times `vectors` columns, block by block."""
    floats, ints = target.vector("f32"), target.vector("i32")
    dots = _Dots(em, target, layout.top)
    parts = BLOCK // layout.sub
    rows = [first + r for r in range(size)]

    def step(block: Index, weights: _Weights, carried: list[list[Value]]) -> list[list[Value]]:
        if joined and parts > 1:
            with em.loop(0, parts, 1, carried, hint="part") as loop:  # a loop: as one block, LLVM spills
                loop.yield_(one(block, loop.iv, weights, loop.carry))
            return loop.result
        for part in range(parts):
            carried = one(block, part, weights, carried)
        return carried

    def one(block: Index, part: Index, weights: _Weights, carried: list[list[Value]]) -> list[list[Value]]:
        """Adds the products of the elements that share a scale."""
        running = []
        for row in rows:
            start = em.zero(ints)
            if x.corrections is not None:
                start = x.at(em, x.corrections, row, block, part, ints)
            running.append([dots.begin(start) for _ in range(vectors)])
        quads = 8 // parts
        first_quad = part * quads
        k = block * BLOCK + first_quad * 4
        for i in range(quads):
            columns = [weights.bytes(first_quad, i, v) for v in range(vectors)]
            for r, row in enumerate(rows):
                factor = x.dword(em, row, k + 4 * i, ints)
                for v in range(vectors):
                    running[r][v].add(columns[v], factor)
        scales = [weights.scale(part, v) for v in range(vectors)]
        minima = [weights.minimum(part, v) for v in range(vectors)]
        result: list[list[Value]] = []
        for row, dot_of, sums_of in zip(rows, running, carried, strict=True):
            x_scale = em.broadcast(em.load(x.scale, [row, block]), floats)
            shift = x.at(em, x.shifts, row, block, part, floats) if x.shifts is not None else None
            result.append([])
            for dot, scale, minimum, total in zip(dot_of, scales, minima, sums_of, strict=True):
                value = em.cast("arith.sitofp", dot.finish(), floats) * scale
                total = target.fma(em, value, x_scale, total)
                if minimum is not None and shift is not None:
                    total = target.fma(em, minimum, shift, total)
                result[-1].append(total)
        return result

    return source([[em.zero(floats)] * vectors] * size, step)


def _multiply_tiles(
    em: Emitter,
    target: Target,
    tiles: IntegerTiles,
    x: _Activations,
    first: Index,
    joined: tuple[Value, Value],
    place: tuple[int, int],
    vectors: int,
    blocks: int,
) -> list[Value]:
    """What `_multiply` gives for 16 rows and one vector of columns, place: (group, vector), of what `_join` stored."""
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
            value = target.fma(em, value, em.broadcast(em.load(x.scale, [row, block]), floats), carried[r])
            if minimum is not None and x.shifts is not None:
                value = target.fma(em, minimum, x.at(em, x.shifts, row, block, 0, floats), value)
            result.append(value)
        return result

    k = blocks * BLOCK
    line = 4 * vectors * SIDE
    start = g * blocks * (BLOCK // 4) * line + 4 * column
    return tiles.over_steps((x.q, first * k, k), (data, start, line), blocks, [em.zero(floats)] * SIDE, add)


# -- quantisation -----------------------------------------------------------------------------------------------------


def block_quantize(name: str, x_shape: tuple[int | None, ...], target: Target) -> str:
    """The kernel of `block_quantize`: per row and block of 32, d = max|x| / 127, q = round-half-even(x / d), sum of q.

    Operand: x [..., K] f32, K a static multiple of 32; results q [..., K] i8, scale [..., K / 32] f32 and
    sum [..., K / 32] i32. Units are rows. Where d is 0, q is 0; a block with NaN or infinity has scale NaN and q 0.
    """
    k = x_shape[-1]
    if not k or k % BLOCK:
        raise UnsupportedByTemplate(f"{name}: K has to be a static multiple of {BLOCK}, but x is {x_shape}")
    leading = x_shape[:-1]
    lanes = target.lanes("f32")
    floats, ints = target.vector("f32"), target.vector("i32")

    def body(
        em: Emitter, values: list[Value], outputs: list[Value], begin: Value, end: Value, scratch: Scratch
    ) -> None:
        x = em.rows(values[0])
        q, scales, sums = (em.rows(output) for output in outputs)
        with em.loop(begin, end, hint="row") as row, em.loop(0, k // BLOCK, hint="block") as block:
            first = block.iv * BLOCK
            starts = [first + i for i in range(0, BLOCK, lanes)]
            parts = [em.vload(x, [row.iv, start], floats) for start in starts]
            sizes = [em.unary("math.absf", part) for part in parts]
            while len(sizes) > 1:
                sizes = [em.maximumf(sizes[i], sizes[i + 1]) for i in range(0, len(sizes), 2)]
            largest = em.reduce("maximumf", sizes[0])
            # NaN for infinity, too: what is computed from the block then is NaN.
            scale = largest / 127.0 + (largest - largest)
            em.store(scale, scales, [row.iv, block.iv])
            divisor = em.broadcast(em.select(em.cmpf("oeq", scale, 0.0), 1.0, scale), floats)
            zero = em.cmpf("oeq", em.broadcast(scale, floats), 0.0)
            rounded = []
            for part, start in zip(parts, starts, strict=True):
                quotient = em.unary("math.roundeven", part / divisor)
                # NaN has no integer; subnormal scales are too coarse to keep quotients within 127.
                empty = zero | em.cmpf("uno", quotient, 0.0)
                number = em.cast("arith.fptosi", em.select(empty, 0.0, quotient), ints)
                number = em.binary("arith.maxsi", em.binary("arith.minsi", number, 127), -127)
                em.vstore(em.cast("arith.trunci", number, vec(lanes, "i8")), q, [row.iv, start])
                rounded.append(number)
            em.store(em.reduce("add", _tree(rounded)), sums, [row.iv, block.iv])

    blocks = (*leading, k // BLOCK)
    return write_kernel(
        name,
        [("x", memref(x_shape, "f32"))],
        [("q", memref(x_shape, "i8")), ("scale", memref(blocks, "f32")), ("sum", memref(blocks, "i32"))],
        units=lambda em, values: row_count(em, values[0]),
        scratch=lambda em, values, scratch: None,
        body=body,
    )


def _configure(name: str, spec: ProductSpec, target: Target) -> tuple[Product, str] | None:
    product = panel_product(spec, "block_dot")
    return None if product is None else (product, spec.scheme)


def _configure_tiles(name: str, spec: ProductSpec, target: Target) -> tuple[Product, str] | None:
    config = _configure(name, spec, target)
    if config is None or not uses_integer_tiles(target, spec.rows, find_layout(spec.scheme, config[0].k)):
        return None
    return config


def _emit(name: str, config: tuple[Product, str], target: Target) -> str:
    return gemm_int8(target, *config)


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
    Generator("block_quantize", "quantize", as_it_is, block_quantize),
)
