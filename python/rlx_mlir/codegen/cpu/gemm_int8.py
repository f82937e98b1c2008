# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Products of block-quantised activations with weights in panels: integer dot products, f32 across blocks.

For each block of 32 along K, row m and column n, where the block has one weight scale:

    acc += d_w * float(u . q - bias * sum) * scale        (+= m_w * (scale * float(sum)) where minima are stored)

and where it has two, each for 16 elements, u . q and sum are those of the halves:

    acc += (d_0 * float(u_0 . q_0 - bias * sum_0) + d_1 * float(u_1 . q_1 - bias * sum_1)) * scale       (+= ...)

The integers are exact. The chain along K is the same for every tile and every path, so results are the same bits for
any number of rows and any cut of the units.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from . import UnsupportedByTemplate
from .emit import Emitter, Index, Value, memref, vec
from .gemm_packed import FEW_ROWS, PREFETCH_BYTES, panels_per_unit, tile_groups
from .kernel import Accumulators, Product, Scratch, row_count, row_tiles, write_kernel
from .panels import PANEL_ROWS, RUN, Panel, PanelLayout, Run, find_layout, over_runs
from .target import Target

__all__ = ["BLOCK", "block_quantize", "gemm_int8"]

BLOCK = 32
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
    def centred(self) -> int:
        """What is subtracted from u before the product already."""
        return 128 if self.limit > 127 and (self.avx2 or self.target.dotprod) else 0

    @property
    def avx2(self) -> bool:
        return self.target.vector_bits == 256 and self.target.has("avx2") and not self.target.vnni

    @property
    def words(self) -> str:
        return vec(2 * self.target.lanes("i32"), "i16")

    def products(self, u: Value, q: Value) -> list[Value]:
        """i16 lanes whose sum is the dot product; each holds one product, or two neighbours' sum where that fits."""
        em = self.em
        if self.avx2 and self.limit > 127:
            # u = w + 128 with signed w: |w| times q with the sign of w fits, as 2 * 128 * 127 does.
            w = em.xori(u, -128)
            signed = em.intrinsic("llvm.x86.avx2.psign.b", [em.bitcast(q, u.type), w], u.type)
            return [em.intrinsic("llvm.x86.avx2.pmadd.ub.sw", [em.unary("math.absi", w), signed], self.words)]
        if self.avx2:
            return [em.intrinsic("llvm.x86.avx2.pmadd.ub.sw", [u, em.bitcast(q, u.type)], self.words)]
        weights, values = em.bitcast(u, self.words), em.bitcast(q, self.words)
        even, odd = em.binary("arith.shrsi", em.shli(values, 8), 8), em.binary("arith.shrsi", values, 8)
        return [em.muli(em.andi(weights, 0xFF), even), em.muli(em.shrui(weights, 8), odd)]

    def widened(self, words: Value) -> Value:
        """i32 sums of neighbouring i16."""
        em = self.em
        wide = self.target.vector("i32")
        if self.avx2:
            return em.intrinsic("llvm.x86.avx2.pmadd.wd", [words, em.const(1, words.type)], wide)
        pairs = em.bitcast(words, wide)
        low = em.binary("arith.shrsi", em.shli(pairs, 16), 16)
        return em.addi(low, em.binary("arith.shrsi", pairs, 16))


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
            signed = em.xori(u, -128) if self.dots.limit > 127 else u
            name = "llvm.aarch64.neon.sdot.v4i32.v16i8"
            self.total = em.intrinsic(name, [self.total, signed, em.bitcast(q, u.type)], self.total.type)
            return
        self.waiting += self.dots.products(u, q)
        self.count += 1
        if self.dots.limit > 127:
            for words in self.waiting:
                self.total = em.addi(self.total, self.dots.widened(words))
            self.waiting, self.count = [], 0
            return
        self.waiting = [_tree(em, self.waiting)]
        if (self.count + 1) * 2 * self.dots.limit * 127 > 32767:
            self.finish()

    def finish(self) -> Value:
        """The sum, i32."""
        if self.waiting:
            self.total = self.dots.em.addi(self.total, self.dots.widened(self.waiting[0]))
            self.waiting, self.count = [], 0
        return self.total


def _tree(em: Emitter, values: Sequence[Value]) -> Value:
    parts = list(values)
    while len(parts) > 1:
        parts = [em.addi(*parts[i : i + 2]) if i + 1 < len(parts) else parts[i] for i in range(0, len(parts), 2)]
    return parts[0]


# -- the product ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Activations:
    """q [M, K] i8, scale [M, K / 32] f32, sum [M, K / 32] i32."""

    q: Value
    scale: Value
    sum: Value

    def dword(self, em: Emitter, row: Index, k: Index, type: str) -> Value:
        """Elements k .. k + 3 of a row, in every lane."""
        four = em.vload(self.q, [row, k], vec(4, "i8"))
        return em.broadcast(em.extract(em.bitcast(four, vec(1, "i32")), 0), type)


@dataclass(frozen=True)
class _Weights:
    """One block of a tile's columns: weight bytes of (quad, vector), scale and minimum of (part, vector)."""

    bytes: Callable[[int, int], Value]
    scale: Callable[[int, int], Value]
    minimum: Callable[[int, int], Value | None]


_Step = Callable[[Index, _Weights, list[Value]], list[Value]]
_Source = Callable[[Sequence[Value], _Step], list[Value]]
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
    return (rows,) if few and rows and rows <= sizes[0] else sizes


def gemm_int8(target: Target, product: Product, scheme: str) -> str:
    """The kernel of `block_dot` with an epilogue.

    product.x_shape is that of q. Operands: q [..., K] i8 within +-127, scale [..., K / 32] f32, sum [..., K / 32] i32,
    then the weights [ceil(N / 16), panel bytes] i8 of a block scheme, then the program's arguments; then the outputs
    [..., N] f32. Units are panels, or pairs of them.
    """
    panel_layout = find_layout(scheme, product.k)
    if panel_layout.dense:
        raise UnsupportedByTemplate(
            f"{product.name}: integer products need a block scheme, but the weights are {scheme}"
        )
    target = _int8_target(target)
    weights = product.program.accumulators
    panels = -(-product.n // PANEL_ROWS)
    per_unit = panels_per_unit(target, weights)
    groups = tile_groups(target, weights)
    vectors = len(groups[0]) * PANEL_ROWS // target.lanes("f32")
    few = product.rows is not None and product.rows <= FEW_ROWS
    # Nibbles are spread to bytes once for all tiles; few rows do it in registers, as do bytes, which need nothing.
    spread = scheme.kind == "nibble" and not few
    sizes = _tile_rows(target, product.rows, few)
    leading = product.x_shape[:-1]
    blocks = product.k // BLOCK
    packed = memref((panels, scheme.panel_bytes(product.k)), "i8")
    operands = [
        ("q", memref(product.x_shape, "i8")),
        ("scale", memref((*leading, blocks), "f32")),
        ("sum", memref((*leading, blocks), "i32")),
        *((f"w{i}", packed) for i in range(weights)),
        *product.arguments(),
    ]

    def layout(em: Emitter, values: list[Value], scratch: Scratch) -> tuple[Accumulators, Value, Value]:
        columns = vectors * target.lanes("f32")
        count = len(groups) if spread else 0
        data = scratch.take([count, blocks, 8, columns], "i32")
        factors = scratch.take([count, blocks, 2 if scheme.minima else 1, columns], "f32")
        return Accumulators(em, target, product, per_unit * PANEL_ROWS, scratch, sizes[0]), data, factors

    def body(
        em: Emitter, values: list[Value], outputs: list[Value], begin: Value, end: Value, scratch: Scratch
    ) -> None:
        accumulators, data, factors = layout(em, values, scratch)
        x = _Activations(*(em.rows(value) for value in values[:3]))
        flat = [em.bytes(value) for value in values[3 : 3 + weights]]

        def panel_of(unit: Value, weight: int, position: int) -> Panel:
            index = em.iadd(em.imul(unit, per_unit), position)
            if panels % per_unit and position:
                index = em.imin(index, panels - 1)  # beyond the last one; these columns are never stored
            return Panel(em, target, scheme, flat[weight], em.imul(index, scheme.panel_bytes(product.k)))

        with em.loop(begin, end, hint="unit") as unit:
            sources = []
            for g, group in enumerate(groups):
                here = [panel_of(unit.iv, weight, position) for weight, position in group]
                if spread:
                    _spread(em, here, blocks, g, data, factors)
                    sources.append(_from_scratch(em, target, g, data, factors))
                else:
                    sources.append(_from_panels(em, here))

            def tile(first: Index, size: int) -> None:
                for g, source in enumerate(sources):
                    prefetch = [panel_of(unit.iv, *place) for place in groups[g]] if few else []
                    sums = _multiply(em, target, scheme, x, first, size, vectors, blocks, source, prefetch)
                    for r in range(size):
                        for v in range(vectors):
                            column = (g * vectors + v) * target.lanes("f32")
                            em.vstore(sums[r * vectors + v], accumulators.data, [r, column])
                accumulators.finish(values[3 + weights :], outputs, unit.iv, first, size)

            row_tiles(em, row_count(em, values[0]), sizes, tile)

    return write_kernel(
        product.name,
        operands,
        product.outputs(),
        units=lambda em, values: -(-panels // per_unit),
        scratch=layout,
        body=body,
        order=product.operand_order,
    )


def _from_panels(em: Emitter, panels: Sequence[Panel]) -> _Weights:
    vectors = panels[0].vectors

    def place(block: Index, v: int) -> tuple[Panel, Index, int]:
        panel = panels[v // vectors]
        return panel, panel.at(block), v % vectors

    def read(block: Index, c: int, v: int) -> Value:
        panel, at, lane = place(block, v)
        if panel.scheme.kind == "nibble":
            return panel.bytes(panel.dword(at, c // 2, lane), c % 2)
        return panel.bytes(panel.dword(at, c, lane), 0)

    def scale(block: Index, v: int) -> Value:
        panel, at, lane = place(block, v)
        return panel.scale(at, lane)

    def minimum(block: Index, v: int) -> Value:
        panel, at, lane = place(block, v)
        return panel.minimum(at, lane)

    return _Weights(read, scale, minimum)


def _spread(em: Emitter, panels: Sequence[Panel], blocks: int, g: int, data: Value, factors: Value) -> None:
    """Nibble panels into scratch: data[g, block, chunk, column], four bytes, and factors[g, block, d or m, column]."""
    source = _from_panels(em, panels)
    lanes = panels[0].lanes
    with em.loop(0, blocks, hint="block") as block:
        for panel in panels:
            panel.prefetch(panel.at(block.iv), PREFETCH_BYTES)
        for v in range(len(panels) * panels[0].vectors):
            em.vstore(source.scale(block.iv, v), factors, [g, block.iv, 0, v * lanes])
            if panels[0].scheme.minima:
                em.vstore(source.minimum(block.iv, v), factors, [g, block.iv, 1, v * lanes])
            for c in range(8):
                dwords = em.bitcast(source.bytes(block.iv, c, v), vec(lanes, "i32"))
                em.vstore(dwords, data, [g, block.iv, c, v * lanes])


def _from_scratch(em: Emitter, target: Target, g: int, data: Value, factors: Value) -> _Weights:
    lanes = target.lanes("f32")

    def read(block: Index, c: int, v: int) -> Value:
        return em.bitcast(em.vload(data, [g, block, c, v * lanes], vec(lanes, "i32")), vec(4 * lanes, "i8"))

    def factor(block: Index, which: int, v: int) -> Value:
        return em.vload(factors, [g, block, which, v * lanes], vec(lanes, "f32"))

    return _Weights(read, lambda block, v: factor(block, 0, v), lambda block, v: factor(block, 1, v))


def _multiply(
    em: Emitter,
    target: Target,
    scheme: Scheme,
    x: _Activations,
    first: Index,
    size: int,
    vectors: int,
    blocks: int,
    weights: _Weights,
    prefetch: Sequence[Panel],
) -> list[Value]:
    """x[first : first + size] times `vectors` columns, block by block."""
    floats, ints = target.vector("f32"), target.vector("i32")
    dots = _Dots(em, target, {"nibble": 15, "byte": 255 if scheme.offset == 128 else 31}[scheme.kind])
    offset = scheme.offset - dots.centred
    with em.loop(0, blocks, 1, [em.zero(floats)] * (size * vectors), hint="block") as loop:
        block = loop.iv
        for panel in prefetch:
            panel.prefetch(panel.at(block), PREFETCH_BYTES)
        k = em.imul(block, BLOCK)
        rows = [em.iadd(first, r) for r in range(size)]
        totals = [em.load(x.sum, [row, block]) if offset or scheme.minima else None for row in rows]
        running = []
        for total in totals:
            start = em.zero(ints)
            if offset and total is not None:
                start = em.broadcast(em.muli(total, -offset), ints)
            running.append([dots.begin(start) for _ in range(vectors)])
        for c in range(8):
            columns = [weights.bytes(block, c, v) for v in range(vectors)]
            for r, row in enumerate(rows):
                factor = x.dword(em, row, em.iadd(k, 4 * c), ints)
                for v in range(vectors):
                    running[r][v].add(columns[v], factor)
        scales = [weights.scale(block, v) for v in range(vectors)]
        minima = [weights.minimum(block, v) for v in range(vectors)] if scheme.minima else []
        result = []
        for r, (row, total) in enumerate(zip(rows, totals, strict=True)):
            x_scale = em.load(x.scale, [row, block])
            for v in range(vectors):
                value = em.mulf(em.cast("arith.sitofp", running[r][v].finish(), floats), scales[v])
                sums = target.fma(em, value, em.broadcast(x_scale, floats), loop.args[r * vectors + v])
                if minima and total is not None:
                    shift = em.mulf(em.cast("arith.sitofp", total, "f32"), x_scale)
                    sums = target.fma(em, minima[v], em.broadcast(shift, floats), sums)
                result.append(sums)
        loop.yield_(result)
    return loop.results


# -- quantisation -----------------------------------------------------------------------------------------------------


def block_quantize(target: Target, name: str, x_shape: tuple[int | None, ...]) -> str:
    """The kernel of `block_quantize`: per row and block of 32, d = max|x| / 127, q = round-half-even(x / d), sum of q.

    Operand: x [..., K] f32, K a static multiple of 32; results q [..., K] i8, scale [..., K / 32] f32 and
    sum [..., K / 32] i32. Units are rows. Where d is 0, q is 0; a block with NaN or infinity has that in its scale, and
    q = 0 for what isn't a number.
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
            first = em.imul(block.iv, BLOCK)
            starts = [em.iadd(first, i) for i in range(0, BLOCK, lanes)]
            parts = [em.vload(x, [row.iv, start], floats) for start in starts]
            sizes = [em.unary("math.absf", part) for part in parts]
            while len(sizes) > 1:
                sizes = [em.maximumf(sizes[i], sizes[i + 1]) for i in range(0, len(sizes), 2)]
            scale = em.divf(em.reduce("maximumf", sizes[0]), 127.0)
            em.store(scale, scales, [row.iv, block.iv])
            divisor = em.broadcast(em.select(em.cmpf("oeq", scale, 0.0), 1.0, scale), floats)
            zero = em.cmpf("oeq", em.broadcast(scale, floats), 0.0)
            rounded = []
            for part, start in zip(parts, starts, strict=True):
                quotient = em.unary("math.roundeven", em.divf(part, divisor))
                # inf / inf and NaN have no integer; subnormal scales are too coarse to keep quotients within 127.
                empty = em.ori(zero, em.cmpf("uno", quotient, 0.0))
                number = em.cast("arith.fptosi", em.select(empty, 0.0, quotient), ints)
                number = em.binary("arith.maxsi", em.binary("arith.minsi", number, 127), -127)
                em.vstore(em.cast("arith.trunci", number, vec(lanes, "i8")), q, [row.iv, start])
                rounded.append(number)
            em.store(em.reduce("add", _tree(em, rounded)), sums, [row.iv, block.iv])

    blocks = (*leading, k // BLOCK)
    return write_kernel(
        name,
        [("x", memref(x_shape, "f32"))],
        [("q", memref(x_shape, "i8")), ("scale", memref(blocks, "f32")), ("sum", memref(blocks, "i32"))],
        units=lambda em, values: row_count(em, values[0]),
        scratch=lambda em, values, scratch: None,
        body=body,
    )
