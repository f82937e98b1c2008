# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Products of quantised matrices, quantised again: exact sums of i32, by the integer products that a target has.

A unit is a chunk of rows times a group of columns. It goes along K block by block: the group's columns are copied to
scratch with neighbours along K side by side, as products want them, and so are the chunk's rows; tiles of both are then
multiplied in registers, and added to sums in scratch. **Lanes run over columns.** There are two forms of the copies:

- Pairs of i16 without their zero points, where products are of i16: `pmaddwd` on x86, multiplications of i32 elsewhere.
  A pair of products of 9 bit integers fits i32, so that nothing is left to do.
- Quads of bytes as they are, where there are dot products of bytes: `vpdpbusd`, the tiles of AMX, `sdot`. With X and W
  the sums of a row and of a column,

      sum (x - x_zp) (w - w_zp) = sum x w - w_zp X - x_zp W + K x_zp w_zp

  Where an instruction takes bytes without sign, columns hold w + 128, and so does w_zp.

i32 wraps around, so that all sums are the same bits in any order, for any cut of the units and on every target.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rlx_mlir.codegen.emit import Emitter, Index, Value, shape_of, vec
from rlx_mlir.codegen.specs import QMatmulSpec
from rlx_mlir.runtime.tiles import GEMM_AMX
from rlx_mlir.tuning.cpu import SHARED

from .gemm_amx import SIDE, Tiles
from .kernel import Scratch, row_tiles, write_kernel
from .registry import Generator
from .target import ELEMENT_BITS, Target

CHUNK = 96
"""Rows whose sums are in scratch at once."""

WIDTH = 64
"""Columns of a unit: a line of each row of the weight."""

PANEL = 16
"""Columns that are copied, and finished, at a time."""

DEPTH = 512
"""Elements of K that are copied at once: those of a tile stay in the nearest cache while rows pass by."""

AHEAD = 8
"""Rows of the weight that are asked for before they are read."""

STEP = 64
"""Bytes of a row that a tile of AMX has."""

CLAMP = 512
"""Beyond what 8 bits hold, whatever the zero point: numbers are cut here before they become integers."""


@dataclass(frozen=True)
class _Dots:
    """How a target multiplies what stands along K in a dword of each lane, and adds that up.

    Attributes:
        count, element: what a dword holds of rows and columns.
        unsigned: whether columns are bytes without sign.
    """

    em: Emitter
    target: Target
    count: int
    element: str
    unsigned: bool = False

    @classmethod
    def of(cls, em: Emitter, target: Target) -> _Dots:
        """The best that a target has."""
        if target.vnni or target.dotprod:
            return cls(em, target, 4, "i8", target.vnni)
        return cls(em, target, 2, "i16")

    @property
    def type(self) -> str:
        """A full vector of dwords, by what they hold."""
        return self.target.vector(self.element)

    @property
    def bytes(self) -> int:
        """Of an element."""
        return ELEMENT_BITS[self.element] // 8

    def add(self, total: Value, columns: Value, rows: Value) -> Value:
        """The sums of i32 with the products of each dword's elements added."""
        em, target = self.em, self.target
        if self.element == "i8":
            name = f"x86.avx512.vpdpbusd.{target.vector_bits}" if target.vnni else "aarch64.neon.sdot.v4i32.v16i8"
            return em.intrinsic(f"llvm.{name}", [total, columns, rows], total.type)
        if target.x86:
            name = {128: "sse2.pmadd.wd", 256: "avx2.pmadd.wd", 512: "avx512.pmaddw.d.512"}[target.vector_bits]
            return total + em.intrinsic(f"llvm.x86.{name}", [columns, rows], total.type)
        low, high = ([self._half(x, odd) for x in (columns, rows)] for odd in (False, True))
        return total + low[0] * low[1] + high[0] * high[1]

    def _half(self, x: Value, odd: bool) -> Value:
        """The first or second i16 of each dword, as i32."""
        pairs = self.em.bitcast(x, self.target.vector("i32"))
        return self.em.binary("arith.shrsi", pairs if odd else pairs << 16, 16)

    def spread(self, buffer: Value, row: Index, k: Index) -> Value:
        """A dword of a row in all lanes."""
        em = self.em
        own = em.bitcast(em.vload(buffer, [row, k], vec(self.count, self.element)), vec(1, "i32"))
        return em.bitcast(em.broadcast(em.extract(own, 0), self.target.vector("i32")), self.type)


class _ByteProduct:
    """The code of one kernel; see the module's docstring."""

    def __init__(self, em: Emitter, target: Target, spec: QMatmulSpec, values: Sequence[Value], tiled: bool) -> None:
        self.em, self.target, self.spec, self.tiled = em, target, spec, tiled
        self.x, self.weight = values[:2]
        self.bias = values[2] if spec.bias else None
        self.rows, self.k, self.n = em.dim(self.x, 0), em.dim(self.x, 1), em.dim(self.weight, 1)
        self.dots = _Dots.of(em, target)
        self.lanes = target.lanes("i32")
        self.columns = max(PANEL, 2 * self.lanes)
        """Columns of a tile in registers."""
        wide = {512: (12, 4, 1), 256: (6, 2, 1)}.get(target.vector_bits, (4, 1) if target.registers == 32 else (2, 1))
        self.sizes = target.choices.limited(wide)
        self.groups = em.iceildiv(self.n, WIDTH)
        self.units = em.iceildiv(self.rows, CHUNK) * self.groups
        quads = self.dots.count == 4
        # Zero points that products haven't taken away yet.
        self.x_zp = spec.x_zp if quads else 0
        self.w_zp = (spec.w_zp + 128 * self.dots.unsigned) if quads else 0

    def take_scratch(self, parts: Scratch) -> None:
        """A thread's scratch: copies of columns and rows, sums of both and of their products."""
        dots, width = self.dots, self.dots.bytes
        depth = self.em.iceildiv(self.em.imin(self.k, DEPTH), STEP) * STEP
        lines = self.em.iceildiv(depth, dots.count)
        self.right = parts.take([WIDTH // self.columns, lines, self.columns * dots.count], dots.element, width)
        # Rows a power of two apart would share few sets of the cache.
        self.left = parts.take([CHUNK, depth + STEP], dots.element, width)
        self.sums = parts.take([CHUNK, WIDTH], "i32")
        self.of_rows, self.of_columns = parts.take([CHUNK], "i32"), parts.take([WIDTH], "i32")
        self.tiles = Tiles(self.em, parts) if self.tiled else None

    # A unit ---------------------------------------------------------------------------------------

    def run(self, unit: Value, out: Value) -> None:
        """A chunk of rows times a group of columns."""
        em = self.em
        first, column = unit // self.groups * CHUNK, unit % self.groups * WIDTH
        rows = em.imin(self.rows - first, CHUNK)
        self._clear(rows)
        if isinstance(self.k, int) and self.k <= DEPTH:
            if self.k:
                self._block(first, rows, column, 0, self.k)
        else:
            with em.loop(0, self.k, DEPTH, hint="depth") as depth:
                self._block(first, rows, column, depth.iv, em.imin(self.k - depth.iv, DEPTH))
        self._finish(first, rows, column, out)

    def _clear(self, rows: Index) -> None:
        em = self.em
        zero = em.zero(vec(PANEL, "i32"))
        with em.loop(0, WIDTH, PANEL, hint="j") as j:
            em.vstore(zero, self.of_columns, [j.iv])
            with em.loop(0, rows, hint="row") as row:
                em.vstore(zero, self.sums, [row.iv, j.iv])
        with em.loop(0, rows, hint="row") as row:
            em.store(em.const(0, "i32"), self.of_rows, [row.iv])

    def _block(self, first: Index, rows: Index, column: Index, k: Index, length: Index) -> None:
        """What a block of K adds to the sums."""
        em, dots = self.em, self.dots
        self._copy_columns(column, k, length)
        with em.loop(0, rows, hint="row") as row:
            self._copy_row(first + row.iv, row.iv, k, length)
        if self.tiles:
            self._multiply_tiles(self.tiles, rows, length)
            return
        steps = em.iceildiv(length, dots.count)
        with em.loop(0, WIDTH, self.columns, hint="tile") as tile:
            row_tiles(em, rows, self.sizes, lambda at, size: self._multiply(at, size, tile.iv, steps))

    # Copies ---------------------------------------------------------------------------------------

    def _copy_row(self, source: Index, row: Index, k: Index, length: Index) -> None:
        """A row in a block of K, with zeros behind it that make tiles whole; its sum."""
        em, dots = self.em, self.dots

        def copy(at: Index, size: int) -> None:
            own = em.vload(self.x, [source, k + at], vec(size, "i8"))
            if dots.element == "i16":
                own = em.cast("arith.extsi", own, vec(size, "i16")) - self.spec.x_zp
            em.vstore(own, self.left, [row, at])

        whole = STEP if dots.count == 4 else 2
        end = em.iceildiv(length, whole) * whole
        row_tiles(em, length, (32, 8, 1), copy)
        with em.loop(length, end, hint="k") as rest:
            em.store(em.const(0, dots.element), self.left, [row, rest.iv])
        if self.w_zp:
            zero, ones = em.zero(self.target.vector("i32")), em.const(1, dots.type)
            with em.loop(0, end, self.target.lanes("i8"), zero, hint="k") as loop:
                loop.yield_(dots.add(loop.carry, ones, em.vload(self.left, [row, loop.iv], dots.type)))
            em.store(em.load(self.of_rows, [row]) + em.reduce("add", loop.result), self.of_rows, [row])

    def _copy_columns(self, column: Index, k: Index, length: Index) -> None:
        """The unit's columns in a block of K, in groups of neighbours along K, and their sums."""
        em, count = self.em, self.dots.count
        main = length - length % count

        def step(at: Index, present: int) -> None:
            with em.loop(0, WIDTH, PANEL, hint="j") as j:
                start = column + j.iv
                if isinstance(self.n, int) and self.n % WIDTH == 0:
                    self._copy_panel(k, at, present, start, j.iv, None)
                    return
                with em.if_(em.cmpi("sle", start + PANEL, self.n)) as branch:
                    self._copy_panel(k, at, present, start, j.iv, None)
                    branch.else_()
                    self._copy_panel(k, at, present, start, j.iv, self._mask(start))

        with em.loop(0, main, count, hint="k") as loop:
            for row in range(count):
                em.prefetch(self.weight, [k + loop.iv + (AHEAD + row), column])
            step(loop.iv, count)
        # The last rows, and as many as are missing.
        rest = length - main
        for present in [] if isinstance(self.k, int) and self.k % count == 0 else range(1, count):
            if isinstance(rest, int):
                if rest == present:
                    step(main, present)
            else:
                with em.if_(em.cmpi("eq", rest, present)):
                    step(main, present)

    def _mask(self, column: Index) -> Value:
        return self.em.mask(self.em.imax(self.n - column, 0), PANEL)

    def _copy_panel(self, k: Index, at: Index, present: int, column: Index, to: Index, mask: Value | None) -> None:
        """Some columns of rows that are neighbours along K; those that aren't there count as zeros."""
        em, dots, spec = self.em, self.dots, self.spec
        missing = em.const(spec.w_zp if dots.element == "i16" else -128 * dots.unsigned, vec(PANEL, "i8"))
        lines = [missing] * dots.count
        for row in range(present):
            place = [k + at + row, column]
            if mask is None:
                lines[row] = em.vload(self.weight, place, missing.type)
            else:
                lines[row] = em.masked_load(self.weight, place, mask, missing)
        whole = _interleaved(em, lines)
        if dots.element == "i16":
            whole = em.cast("arith.extsi", whole, vec(2 * PANEL, "i16")) - spec.w_zp
        elif dots.unsigned:
            whole = whole ^ -128
        tile, inside = to // self.columns, to % self.columns
        em.vstore(whole, self.right, [tile, at // dots.count, inside * dots.count])
        if self.x_zp:
            ones, size = em.const(1, dots.type), self.lanes * dots.count
            for first in range(0, PANEL, self.lanes):
                total = em.vload(self.of_columns, [to + first], self.target.vector("i32"))
                own = em.slice(whole, first * dots.count, size)
                em.vstore(dots.add(total, own, ones), self.of_columns, [to + first])

    # Products -------------------------------------------------------------------------------------

    def _multiply(self, row: Index, size: int, column: Index, steps: Index) -> None:
        """A tile of rows and columns, in registers."""
        em, dots = self.em, self.dots
        type = self.target.vector("i32")
        tile = column // self.columns
        places = [column + first for first in range(0, self.columns, self.lanes)]
        sums = [[em.vload(self.sums, [row + r, place], type) for place in places] for r in range(size)]
        with em.loop(0, steps, 1, sums, hint="step") as loop:
            starts = range(0, self.columns * dots.count, self.lanes * dots.count)
            columns = [em.vload(self.right, [tile, loop.iv, start], dots.type) for start in starts]
            totals = []
            for r, own in enumerate(loop.carry):
                spread = dots.spread(self.left, row + r, loop.iv * dots.count)
                totals.append([dots.add(total, x, spread) for total, x in zip(own, columns, strict=True)])
            loop.yield_(totals)
        for r, own in enumerate(loop.result):
            for place, total in zip(places, own, strict=True):
                em.vstore(total, self.sums, [row + r, place])

    def _multiply_tiles(self, tiles: Tiles, rows: Index, length: Index) -> None:
        """The sums of all rows and columns by AMX: four tiles of sums over two of rows and two of columns.

        Rows beyond the last one hold anything: their sums aren't read.
        """
        em = self.em
        depth = em.iceildiv(em.imin(self.k, DEPTH), STEP) * STEP
        of_row = depth + STEP
        row_bytes, line_bytes, sum_bytes = (tiles.stride(size) for size in (of_row, 4 * self.columns, 4 * WIDTH))
        with (
            em.loop(0, rows, 2 * SIDE, hint="row") as row,
            em.loop(0, WIDTH, 2 * SIDE, hint="column") as column,
        ):
            sums = [
                tiles.pointer(self.sums, ((row.iv + SIDE * r) * WIDTH + column.iv + SIDE * c) * 4)
                for r in range(2)
                for c in range(2)
            ]
            for tile, place in enumerate(sums):
                tiles.emit("tileloadd64", tile, place, sum_bytes)
            with em.loop(0, length, STEP, hint="k") as k:
                for side in range(2):
                    own = tiles.pointer(self.left, (row.iv + SIDE * side) * of_row + k.iv)
                    tiles.emit("tileloadd64", 4 + side, own, row_bytes)
                    own = tiles.pointer(self.right, column.iv * depth + (k.iv // 4 * self.columns + SIDE * side) * 4)
                    tiles.emit("tileloadd64", 6 + side, own, line_bytes)
                for tile in range(4):
                    tiles.emit("tdpbsud", tile, 4 + tile // 2, 6 + tile % 2)
            for tile, place in enumerate(sums):
                tiles.emit("tilestored64", tile, place, sum_bytes)

    # Results --------------------------------------------------------------------------------------

    def _finish(self, first: Index, rows: Index, column: Index, out: Value) -> None:
        """The results of a chunk: sums with what zero points and bias add, times the factor, as bytes."""
        em = self.em
        whole = isinstance(self.n, int) and self.n % WIDTH == 0
        with em.loop(0, WIDTH, PANEL, hint="j") as j:
            start = column + j.iv
            mask = None if whole else self._mask(start)
            added = self._added(j.iv, start, mask)
            with em.loop(0, rows, hint="row") as row:
                total = em.vload(self.sums, [row.iv, j.iv], added.type) + added
                if self.w_zp:
                    own = em.load(self.of_rows, [row.iv]) * em.const(self.w_zp, "i32")
                    total = total - em.broadcast(own, total.type)
                value, place = self._bytes(total), [first + row.iv, start]
                if mask is None:
                    em.vstore(value, out, place)
                else:
                    with em.if_(em.cmpi("sle", start + PANEL, self.n)) as branch:
                        em.vstore(value, out, place)
                        branch.else_()
                        em.masked_store(value, out, place, mask)

    def _added(self, own: Index, column: Index, mask: Value | None) -> Value:
        """What is added to the sums of each column."""
        em, type = self.em, vec(PANEL, "i32")
        added = em.zero(type)
        if self.bias is not None:
            place = [column]
            added = em.vload(self.bias, place, type) if mask is None else em.masked_load(self.bias, place, mask, added)
        if self.x_zp:
            added = added - em.vload(self.of_columns, [own], type) * self.x_zp
            length = em.cast("arith.index_cast", em.index(self.k), "i32")
            added = added + em.broadcast(length * em.const(self.x_zp * self.w_zp, "i32"), type)
        return added

    def _bytes(self, total: Value) -> Value:
        """clamp(round(total * mult) + out_zp), ties away from zero."""
        em, type = self.em, total.type
        x = em.cast("arith.sitofp", total, vec(PANEL, "f32")) * self.spec.mult
        x = em.select(em.cmpf("olt", x, CLAMP), x, CLAMP)
        x = em.select(em.cmpf("ogt", x, -CLAMP), x, -CLAMP)
        number = em.cast("arith.fptosi", x, type)
        rest = x - em.cast("arith.sitofp", number, x.type)  # exact
        number = number - em.cast("arith.extsi", em.cmpf("oge", rest, 0.5), type)
        number = number + em.cast("arith.extsi", em.cmpf("ole", rest, -0.5), type) + self.spec.out_zp
        number = em.binary("arith.maxsi", em.binary("arith.minsi", number, 127), -128)
        return em.cast("arith.trunci", number, vec(PANEL, "i8"))


def _interleaved(em: Emitter, lines: Sequence[Value]) -> Value:
    """The bytes of two or four vectors in turns."""

    def pair(a: Value, b: Value) -> Value:
        count = shape_of(a.type)[0] or 0
        return em.shuffle(a, b, [lane // 2 + count * (lane % 2) for lane in range(2 * count)])

    if len(lines) == 2:
        return pair(*lines)
    words = [em.bitcast(pair(*lines[at : at + 2]), vec(PANEL, "i16")) for at in (0, 2)]
    return em.bitcast(pair(*words), vec(4 * PANEL, "i8"))


def gemm_bytes(name: str, spec: QMatmulSpec, target: Target, *, tiled: bool = False) -> str:
    """The functions `@name.body`, `@name.units` and `@name.scratch`, as text.

    Args:
        tiled: whether tiles of AMX multiply.
    """
    operands = [("x", spec.x), ("weight", spec.weight), *([("bias", spec.bias)] if spec.bias else [])]

    def made(em: Emitter, values: list[Value]) -> _ByteProduct:
        return _ByteProduct(em, target, spec, values, tiled)

    def body(em: Emitter, values: list[Value], outs: list[Value], begin: Value, end: Value, parts: Scratch) -> None:
        kernel = made(em, values)
        kernel.take_scratch(parts)
        if kernel.tiles:
            kernel.tiles.configure()
        with em.loop(begin, end, hint="unit") as unit:
            kernel.run(unit.iv, outs[0])
        if kernel.tiles:
            kernel.tiles.release()

    return write_kernel(
        name,
        operands,
        [("out", spec.result)],
        units=lambda em, values: made(em, values).units,
        scratch=lambda em, values, parts: made(em, values).take_scratch(parts),
        body=body,
        order=spec.operand_order,
    )


def _configure(name: str, spec: QMatmulSpec, target: Target) -> QMatmulSpec:
    return spec


def _configure_tiles(name: str, spec: QMatmulSpec, target: Target) -> QMatmulSpec | None:
    """Few rows leave most of a tile empty."""
    rows = shape_of(spec.x)[0]
    return spec if target.tiles("i8") and target.vnni and (rows is None or rows >= SIDE) else None


GENERATORS = (
    Generator(
        GEMM_AMX + "_bytes",
        "q_matmul",
        _configure_tiles,
        lambda name, spec, target: gemm_bytes(name, spec, target, tiled=True),
        knobs=SHARED,
        candidates={"prefill": [{"amx": 0}]},
    ),
    Generator("gemm_bytes", "q_matmul", _configure, gemm_bytes, knobs=SHARED),
)
