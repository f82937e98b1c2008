# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Products of f32 by the tile registers of AMX, which multiply bf16.

Each number is cut into three of bf16, x = x1 + x2 + x3, which is exact: 8 bits of the mantissa each. Six products of
parts stand for one of f32, x3 y1 + x2 y1 + x2 y2 + x1 y2 + x1 y3 + x1 y1. What is left out is 2^-24 of |x y| at most,
as much as one rounding, and of either sign. A tile adds the products of 32 elements of K at once, and blocks of K are
summed apart, so that an output takes fewer roundings of its own size than in a chain of multiply-adds: errors are about
half as large where K is short, a fifth where it is long.

Where a result isn't finite, it is computed again as a chain of multiply-adds: infinities and NaN are cut into parts
that make every result NaN or infinite, and so do numbers that are infinite once they are rounded to bf16. Tiles take
subnormal operands and sums for zero: each product may lose 2^-126 (6 + 3 |x| + 3 |y|) beside its rounding.

Rows are cut into scratch, which stays in near caches, a block of K at a time; columns are cut on the way, while tiles
multiply those before, again for each 32 rows but where K is short. An output's sum depends on K alone, its row and its
column: a row's result is the same bits in any batch, and for any cut of the units.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from rlx_mlir.codegen.emit import Branch, Emitter, Index, Value, vec, with_element
from rlx_mlir.codegen.specs import ProductSpec
from rlx_mlir.runtime.tiles import GEMM_AMX_F32
from rlx_mlir.tuning.cpu import SHARED, Knob

from . import UnsupportedByTemplate
from .gemm import Matrix, column_reader, copy_transposed
from .gemm_amx import COLUMNS, ROWS, SIDE, STEP, Tiles
from .gemm_batched import BatchedProduct, Sizes
from .gemm_packed import FEW_ROWS, are_single_rows, decode_panel, multiply_tile
from .kernel import Accumulators, Finished, Product, RowReader, Scratch, row_count, write_product
from .panels import PANEL_ROWS, Panel, PanelLayout, find_layout, panel_operands, panel_product
from .registry import Candidates, Generator
from .target import Target

FEWEST_K, FEWEST_ELEMENTS = 32, 8192
"""The smallest static K that fills a tile, and elements of x, M times K, that pay for cutting the columns."""

ROW_BLOCK = 256
"""Rows that go through all columns of a group, one block of K after the other."""

K_BLOCK = 256
"""Elements of K of 32 rows that are cut at once: their parts, 48 KiB, stay in near caches."""

GROUP = 24
"""Units, of one weight, that share each cutting of rows; their sums wait in scratch for the next block of K."""

KEPT_K = 128
"""The largest K of which the parts of all columns are kept for the next rows: those of more would fill a cache."""

BUFFERS = 2
"""Steps of columns whose parts are in scratch at a time, where they aren't kept."""

PARTS = 3
PRODUCTS = ((2, 0), (1, 0), (1, 1), (0, 1), (0, 2), (0, 0))
"""Which part of the rows meets which part of the columns: small products first, and one new part at a time."""

LINE = 4 * SIDE
"""Bytes of a row of a tile: 16 pairs of bf16, which are an i32 each."""

BUFFER = 2 * SIDE * PARTS * LINE
"""Bytes of the tiles of a step, rows or columns: two of each part, whose rows stand side by side, part by part."""

HIGH = -0x10000
"""The bits of an f32 that a bf16 has."""

INFINITE = 0x7F800000

Loader = Callable[[Index, int], Value]
"""(k, half of the columns) -> 16 columns of an element of K, f32."""


@dataclass(frozen=True)
class Columns:
    """Where a kernel's columns come from.

    Attributes:
        loader: (unit, weight, slot, first k) -> how to load a unit's columns from that k on.
        prepare: (unit, weight, slot, first k, end of k): makes them ready in a slot of scratch; None where that isn't
            needed.
        fetch: (unit, weight) -> asks for the memory that (k, half of the columns) is loaded from; the unit need not
            exist.
    """

    loader: Callable[[Index, int, Index, Index], Loader]
    prepare: Callable[[Index, int, Index, Index, Index], None] | None = None
    fetch: Callable[[Index, int], Callable[[Index, int], None]] | None = None


@dataclass(frozen=True)
class Following:
    """What is cut while tiles multiply the step before: elements of K from `first` on, into a place of scratch."""

    load: Loader
    first: Index
    place: Index
    fetch: Callable[[Index, int], None] | None = None


@dataclass(frozen=True)
class Part:
    """What is multiplied between two cuttings of rows: the units [first, last), the elements of K [k0, k1)."""

    first: Index
    last: Index
    k0: Index
    k1: Index


def row_block(target: Target) -> int:
    """Rows that go through all columns of a group, one block of K after the other."""
    return target.choices.get("amx_rows") or ROW_BLOCK


def splits(target: Target, element: str, rows: int | None, k: int | None) -> bool:
    """Whether a product is computed in parts: of f32, where there are tiles and enough work for them.

    rows: that share a right operand; None, as k, where dynamic.
    """
    if element != "f32" or not target.tiles("bf16"):
        return False
    fills = k is None or k >= FEWEST_K
    return fills and (rows is None or (rows > FEW_ROWS and (k is None or rows * k >= FEWEST_ELEMENTS)))


def split(em: Emitter, low: Value, high: Value, parts: int = PARTS, *, rounded: bool = True) -> list[Value]:
    """Parts of two vectors of f32, as pairs of bf16: low in the low half of each lane, high in the high one.

    Args:
        rounded: whether what a part leaves to the next ones is of either sign; else parts have the number's sign.
    """
    bits, floats = with_element(low.type, "i32"), low.type
    found = []
    values = [low, high]
    for part in range(parts):
        words = [em.bitcast(value, bits) for value in values]
        last = part == parts - 1
        if rounded and not last:
            words = [word + 0x8000 for word in words]
        moved = words[0] >> 16
        if last:
            # moved | (high & HIGH) in one instruction; as two, they become a shuffle that takes three.
            operands = [moved, words[1], em.const(HIGH, bits), em.const(0xF8, "i32")]
            found.append(em.intrinsic("llvm.x86.avx512.pternlog.d.512", operands, bits))
            break
        kept = [word & HIGH for word in words]
        found.append(moved | kept[1])
        values = [value - em.bitcast(own, floats) for value, own in zip(values, kept, strict=True)]
    return found


class SplitTiles(Tiles):
    """A thread's scratch, and what is done with it.

    Registers have numbers: 0 to 3 are sums, 4 and 5 rows, 6 and 7 columns. Elements of K are paired 16 apart.
    """

    k_block, most_units = K_BLOCK, GROUP

    def __init__(
        self,
        em: Emitter,
        target: Target,
        product: Finished,
        k: Index,
        rows: Index,
        scratch: Scratch,
        *,
        multiple: int = STEP,
        decoded: bool,
        again: bool = False,
    ) -> None:
        """Lays out the scratch for `rows` rows at most; blocks of K are `multiple`s.

        decoded: there are columns that take room. again: they are decoded only for what is computed again, and sums
        are in memory after each block of K.
        """
        super().__init__(em, scratch)
        self._target, self.k, self._k_total = target, k, k if isinstance(k, int) else None
        self._count = product.program.accumulators
        most = target.choices.get("amx_group") or self.most_units
        self._group = max(1, most // (2 if decoded else 1) // self._count)  # decoded columns take room, too
        self._block = -(-(target.choices.get("amx_k") or self.k_block) // multiple) * multiple
        self._blocked = again or self._k_total is None or self._k_total > self._block
        steps = self._steps = -(-(self._block if self._blocked else self._k_total or 0) // STEP)
        self._capacity = em.iceildiv(em.imin(rows, row_block(target)), ROWS) * ROWS if self._blocked else ROWS
        self._reader = RowReader(em, target, "f32", scratch, 1, 0)
        self._left = scratch.take([steps, 2, SIDE, PARTS, SIDE], "i32")
        self._keeps = not again and self._k_total is not None and self._k_total <= KEPT_K
        places = self._group * self._count * steps if self._keeps else BUFFERS
        self._right = scratch.take([places, 2, SIDE, PARTS, SIDE], "i32")
        self._sums = Accumulators(em, target, product, COLUMNS, scratch, self._capacity * self._group)
        self._partial = scratch.take([ROWS if self._blocked else 0, COLUMNS], "f32")
        self._again = scratch.take([ROWS, self.width], "f32")
        # The last slot is none of the group's: strips that follow read those again.
        self._spare = 0 if again else self._group * self._count
        self.decoded = scratch.take([self._spare + 1 if decoded else 0, self._block, COLUMNS], "f32")

    @property
    def width(self) -> int:
        """Products of a row in a unit."""
        return COLUMNS * self._count

    def read(self, weights: Sequence[Value]) -> None:
        """Says where packed weights are, bytes in one dimension, before anything is multiplied."""

    # -- parts --------------------------------------------------------------------------------------------------------

    def _store(self, low: Value, high: Value, buffer: Value, place: Sequence[Index]) -> None:
        """A row of tiles, one for each part."""
        em = self._em
        for part, value in enumerate(split(em, low, high)):
            em.vstore(value, buffer, [*place, part, 0])

    def _split_rows(self, x: Value, first: Index, count: Index, part: Part) -> None:
        """Rows in parts, with zeros where K ends."""
        em, type, k0, k1 = self._em, vec(SIDE, "f32"), part.k0, part.k1
        length = k1 - k0
        main, steps = length // STEP, em.iceildiv(length, STEP)
        with em.loop(0, count, hint="row") as row:
            source = first + row.iv
            place = [row.iv // SIDE, row.iv % SIDE]
            with em.loop(0, main, hint="step") as step:
                k = k0 + step.iv * STEP
                low, high = (em.vload(x, [source, k + half], type) for half in (0, SIDE))
                self._store(low, high, self._left, [step.iv, *place])
            if self._k_total is None or self._k_total % STEP:
                with em.loop(main, steps, hint="step") as step:
                    values = []
                    for half in (0, SIDE):
                        k = k0 + (step.iv * STEP + half)
                        mask = em.mask(em.imax(k1 - k, 0), SIDE)
                        values.append(em.vload(x, [source, k], type, mask))
                    self._store(values[0], values[1], self._left, [step.iv, *place])

    def _split_pair(self, following: Following, end: Index, side: int, pair: Index) -> None:
        """16 columns of two elements of K into a row of tiles.

        Elements from `end` on are read as the last one: they meet zeros, and what isn't finite shows anyway.
        """
        em = self._em
        ks = [following.first + pair + half for half in (0, SIDE)]
        if self._k_total is None or self._k_total % STEP:
            ks = [em.imin(k, end - 1) for k in ks]
        low, high = (following.load(k, side) for k in ks)
        self._store(low, high, self._right, [following.place, side, pair])
        if following.fetch is not None:
            for k in ks:
                following.fetch(k, side)

    # -- products -----------------------------------------------------------------------------------------------------

    def multiply(
        self,
        x: Value,
        firsts: tuple[Index, Index],
        count: Index,
        units: tuple[Index, Index],
        columns: Columns,
        arguments: Sequence[Value],
        outputs: Sequence[Value],
    ) -> None:
        """Outputs of `count` rows, at most `row_block`, for a range of units.

        The first row is at firsts[0] of x and firsts[1] of the outputs.
        """
        em = self._em
        # Without elements of K there is a block, too: of none, whose sums are zeros.
        length = em.imax(self.k, 1) if self._k_total is None else self.k
        with (
            em.loop(*units, self._group, hint="group") as group,
            em.loop(0, length, self._block, hint="kb") as kb,
        ):
            last = em.imin(group.iv + self._group, units[1])
            part = Part(group.iv, last, kb.iv, em.imin(kb.iv + self._block, self.k))
            self._prepare(part, columns)
            with em.loop(0, count, ROWS, hint="strip") as strip:
                own = em.imin(count - strip.iv, ROWS)
                row = firsts[0] + strip.iv
                self.configure_rows(own)
                self._split_rows(x, row, own, part)

                def finish(unit: Index, at: Index) -> None:
                    # What isn't finite is seen on the way out, computed again, and goes out again.
                    with em.loop(0, 2, 1, em.const(True, "i1"), hint="attempt") as attempt:
                        with em.if_(attempt.carry, "i1") as branch:
                            out_row = firsts[1] + strip.iv
                            largest = self._sums.finish(arguments, outputs, unit, out_row, own, at, watched=True)
                            assert largest is not None
                            bad = em.cmpi("uge", em.reduce("maxui", largest), INFINITE)
                            again = em.binary("arith.andi", bad, em.cmpi("eq", attempt.iv, 0))
                            with em.if_(again):
                                self._repair(x, row, own, unit, at, columns)
                            branch.yield_(again)
                            branch.else_()
                            branch.yield_(attempt.carry)
                        attempt.yield_(branch.result)

                first = em.cmpi("eq", strip.iv, 0)
                for weight in range(self._count):
                    place = (strip.iv if self._blocked else 0, own)
                    self._strip(part, place, first, columns, weight, finish if weight == self._count - 1 else None)

    def _prepare(self, part: Part, columns: Columns) -> None:
        """Decodes the columns of a part, if need be."""
        if columns.prepare is not None:
            with self._em.loop(part.first, part.last, hint="unit") as unit:
                for weight in range(self._count):
                    columns.prepare(unit.iv, weight, self._slot(part, unit.iv, weight), part.k0, part.k1)

    def _slot(self, part: Part, unit: Index, weight: int) -> Index:
        """Where a unit's columns are decoded."""
        return (unit - part.first) * self._count + weight

    def _strip(
        self,
        part: Part,
        rows: tuple[Index, Index],
        first: Value,
        columns: Columns,
        weight: int,
        finish: Callable[[Index, Index], None] | None,
    ) -> None:
        """Adds the products of 32 rows with the columns of all units, which are cut one step ahead.

        rows: where their sums begin among those of a unit, and how many there are. first: whether no others went before
        them. finish(unit, first row of sums) makes outputs of sums.
        """
        em, (row, own) = self._em, rows
        steps = em.iceildiv(part.k1 - part.k0, STEP)

        def cut(unit: Index, step: Index, place: Index) -> Following:
            load = columns.loader(unit, weight, self._slot(part, unit, weight), part.k0)
            fetch = None if columns.fetch is None else columns.fetch(unit + 1, weight)
            return Following(load, part.k0 + step * STEP, place, fetch)

        def place_of(unit: Index, step: Index) -> Index:
            if self._keeps:
                return self._slot(part, unit, weight) * self._steps + step
            return ((unit - part.first) * steps + step) % BUFFERS

        with self._cutting(first):
            following = cut(part.first, 0, place_of(part.first, 0))
            with em.loop(0, SIDE if self._k_total else em.imin(steps * SIDE, SIDE), hint="pair") as pair:
                for side in range(2):
                    self._split_pair(following, part.k1, side, pair.iv)
        with em.loop(part.first, part.last, hint="unit") as unit:
            at = (unit.iv - part.first) * self._capacity + row
            for tile in range(4):
                self.emit("tilezero", tile)
            with em.loop(0, steps, hint="step") as step:
                place = place_of(unit.iv, step.iv)
                with self._cutting(first) as branch:
                    turn = em.cmpi("eq", step.iv + 1, steps)
                    next_unit = em.select(turn, em.imin(unit.iv + 1, part.last - 1), unit.iv)
                    next_step = em.select(turn, 0, step.iv + 1)
                    # After the last step comes the first one of the last unit, which nobody uses, or which is the same.
                    there = place_of(next_unit, next_step) if self._keeps else 1 - place
                    self._step(step.iv, place, cut(next_unit, next_step, there), part.k1)
                    if branch is not None:
                        branch.else_()
                        self._step(step.iv, place, None, part.k1)
            self._add(part, at, own, weight)
            if finish is not None and not self._blocked:
                finish(unit.iv, at)
            elif finish is not None:
                with em.if_(em.cmpi("sge", part.k1, self.k)):
                    finish(unit.iv, at)

    @contextmanager
    def _cutting(self, first: Value) -> Iterator[Branch[tuple[()]] | None]:
        """What cuts columns: only the first rows do where parts are kept."""
        if not self._keeps:
            yield None
            return
        with self._em.if_(first) as branch:
            yield branch

    def _add(self, part: Part, row: Index, own: Index, weight: int) -> None:
        """The tiles' sums over a block of K into memory, where those of other blocks are, if there are some."""
        em, type = self._em, self._sums.type

        def store(buffer: Value, row: Index, width: int, column: int) -> None:
            for tile in range(4):
                line = (row + (tile // 2) * SIDE) * width
                start = (line + (column + (tile % 2) * SIDE)) * 4
                self.emit("tilestored64", tile, self.pointer(buffer, start), self.stride(4 * width))

        if not self._blocked:
            store(self._sums.data, row, self.width, weight * COLUMNS)
            return
        with em.if_(em.cmpi("eq", part.k0, 0)) as branch:
            store(self._sums.data, row, self.width, weight * COLUMNS)
            branch.else_()
            store(self._partial, 0, COLUMNS, 0)
            with em.loop(0, own, hint="r") as local:
                for side in range(2):
                    place: list[Index] = [row + local.iv, weight * COLUMNS + side * SIDE]
                    more = em.vload(self._partial, [local.iv, side * SIDE], type)
                    em.vstore(em.vload(self._sums.data, place, type) + more, self._sums.data, place)

    def _step(self, step: Index, place: Index, following: Following | None, end: Index) -> None:
        """The six products of 32 elements of K; columns of the following step are cut in between, if there is one."""
        line = self.stride(PARTS * LINE)
        bases = [step * BUFFER, place * BUFFER]
        waiting = [(side, pair) for pair in range(SIDE) for side in range(2)]
        done, total = 0, 4 * len(PRODUCTS)
        loaded = [-1, -1]
        for parts in PRODUCTS:
            for which, (part, source) in enumerate(zip(parts, (self._left, self._right), strict=True)):
                if loaded[which] == part:
                    continue
                loaded[which] = part
                for side in range(2):
                    start = bases[which] + (part * LINE + side * BUFFER // 2)
                    self.emit("tileloadd64", 4 + 2 * which + side, self.pointer(source, start), line)
            for tile in range(4):
                self.emit("tdpbf16ps", tile, 4 + tile // 2, 6 + tile % 2)
                done += 1
                while following is not None and len(waiting) > 2 * SIDE - 2 * SIDE * done // total:
                    side, pair = waiting.pop(0)
                    self._split_pair(following, end, side, pair)

    # -- what isn't finite --------------------------------------------------------------------------------------------

    def _is_finite(self, row: Index) -> Value:
        """Whether all sums of a row are."""
        em = self._em
        largest = em.zero(vec(SIDE, "i32"))
        for column in range(0, self.width, SIDE):
            bits = em.bitcast(em.vload(self._sums.data, [row, column], self._sums.type), largest.type)
            largest = em.binary("arith.maxui", largest, bits & 0x7FFFFFFF)
        return em.cmpi("ult", em.reduce("maxui", largest), INFINITE)

    def _repair(self, x: Value, first: Index, count: Index, unit: Index, at: Index, columns: Columns) -> None:
        """Computes sums that aren't finite again, element by element along K."""
        em, bits = self._em, vec(SIDE, "i32")
        self._chains(x, first, count, unit, at, columns)
        with em.loop(0, count, hint="row") as row, em.loop(0, self.width, SIDE, hint="column") as column:
            place = [at + row.iv, column.iv]
            total = em.vload(self._sums.data, place, self._sums.type)
            size = em.bitcast(total, bits) & 0x7FFFFFFF
            other = em.vload(self._again, [row.iv, column.iv], total.type)
            em.vstore(em.select(em.cmpi("ult", size, INFINITE), total, other), self._sums.data, place)

    def _chains(self, x: Value, first: Index, count: Index, unit: Index, at: Index, columns: Columns) -> None:
        """Rows that have a sum which isn't finite, as the templates without tiles compute them."""
        em, type = self._em, self._sums.type
        with em.loop(0, count, hint="row") as row, em.loop(0, self.width, SIDE, hint="column") as column:
            em.vstore(em.zero(type), self._again, [row.iv, column.iv])
        with em.loop(0, self.k, self._block, hint="kb") as kb:
            ks = (kb.iv, em.imin(kb.iv + self._block, self.k))
            for weight in range(self._count):
                if columns.prepare is not None:
                    columns.prepare(unit, weight, self._spare, *ks)
                load = columns.loader(unit, weight, self._spare, kb.iv)
                with em.loop(0, count, hint="row") as row:
                    finite = self._is_finite(at + row.iv)
                    with em.if_(finite) as branch:
                        branch.else_()
                        self._reader.bind(x, first + row.iv, 1, *ks, whole=False)
                        places: list[list[Index]] = [[row.iv, weight * COLUMNS + side * SIDE] for side in range(2)]
                        before = [[em.vload(self._again, place, type) for place in places]]
                        (sums,) = multiply_tile(em, self._target, self._reader, ks, self._k_total, load, before)
                        for total, place in zip(sums, places, strict=True):
                            em.vstore(total, self._again, place)

    def from_scratch(self, slot: Index, first: Index) -> Loader:
        """Loads what was decoded from k `first` on."""
        em, type = self._em, vec(SIDE, "f32")
        return lambda k, side: em.vload(self.decoded, [slot, k - first, side * SIDE], type)


# -- kernels ----------------------------------------------------------------------------------------------------------


def need_tiles(name: str, element: str, target: Target) -> None:
    """Raises UnsupportedByTemplate where a product can't be computed in parts."""
    if element != "f32" or not target.tiles("bf16"):
        raise UnsupportedByTemplate(f"{name}: products of {element} in parts need f32 and tiles of bf16")


def gemm_split(target: Target, product: Product, scheme: str) -> str:
    """The kernel of a product of f32 with weights in panels of `scheme`.

    Operands: x [..., K], then the weights [ceil(N / 16), panel bytes] i8, then the program's arguments; then the
    outputs [..., N]. Units are pairs of panels.
    """
    need_tiles(product.name, product.element, target)
    layout = find_layout(scheme, product.k)

    def parts(em: Emitter, values: list[Value], scratch: Scratch) -> SplitTiles:
        rows, multiple = row_count(em, values[0]), math.lcm(STEP, layout.block)
        decoded = scheme != "f32"
        return SplitTiles(em, target, product, product.k, rows, scratch, multiple=multiple, decoded=decoded)

    return panel_kernel(target, product, layout, parts)


def panel_number(em: Emitter, product: Product, unit: Index, side: Index) -> Index:
    """The panel of half a unit's columns; one beyond the last is read as the last one: its columns aren't stored."""
    panels = -(-product.n // PANEL_ROWS)
    index = unit * 2 + side
    return em.imin(index, panels - 1) if panels % 2 and side != 0 else index


def panel_kernel(
    target: Target,
    product: Product,
    layout: PanelLayout,
    parts: Callable[[Emitter, list[Value], Scratch], SplitTiles],
) -> str:
    """The kernel of a product with weights in panels, whose units are pairs of them, by tiles in scratch."""
    weights = product.program.accumulators
    panels = -(-product.n // PANEL_ROWS)

    def body(
        em: Emitter, values: list[Value], outputs: list[Value], begin: Value, end: Value, scratch: Scratch
    ) -> None:
        tiles = parts(em, values, scratch)
        x, rows = em.rows(values[0]), row_count(em, values[0])
        flat = [em.flat(value) for value in values[1 : 1 + weights]]
        is_f32 = layout.name == "f32"
        floats = [em.view(data, 0, [panels, product.k, PANEL_ROWS], "f32") for data in flat if is_f32]

        def load_panels(unit: Index, weight: int, slot: Index, first: Index) -> Loader:
            here = [panel_number(em, product, unit, side) for side in range(2)]
            return lambda k, side: em.vload(floats[weight], [here[side], k, 0], vec(SIDE, "f32"))

        def decode(unit: Index, weight: int, slot: Index, k0: Index, k1: Index) -> None:
            with em.loop(0, 2, hint="side") as side:
                base = panel_number(em, product, unit, side.iv) * layout.panel_bytes(product.k)
                panel = Panel(em, target, layout, flat[weight], base)
                decode_panel(em, panel, tiles.decoded, (slot, side.iv * PANEL_ROWS), k0, k1)

        def fetch(unit: Index, weight: int) -> Callable[[Index, int], None]:
            here = [panel_number(em, product, unit, side) for side in range(2)]
            return lambda k, side: em.prefetch(floats[weight], [here[side], k, 0], 2)

        columns = Columns(load_panels, fetch=fetch)
        if not is_f32:
            columns = Columns(lambda unit, weight, slot, first: tiles.from_scratch(slot, first), decode)
        tiles.read(flat)
        tiles.configure()
        block = row_block(target)
        with em.loop(0, rows, block, hint="rb") as first:
            count = em.imin(rows - first.iv, block)
            places = (first.iv, first.iv)
            tiles.multiply(x, places, count, (begin, end), columns, values[1 + weights :], outputs)
        tiles.release()

    return write_product(product, panel_operands(product, layout), lambda em, values: -(-panels // 2), parts, body)


def gemm_split_batched(target: Target, product: BatchedProduct) -> str:
    """The kernel of a product of two activations.

    Operands: x, the right operands (one for each of the program's products), the program's arguments; then the outputs.
    Units are blocks of columns of one block of rows, then of the next one.
    """
    need_tiles(product.name, product.element, target)
    weights = product.program.accumulators

    def sizes_of(em: Emitter, values: list[Value]) -> Sizes:
        return Sizes(em, product, values[0], values[1], COLUMNS, most=row_block(target), fewest=ROWS)

    def parts(em: Emitter, values: list[Value], scratch: Scratch) -> tuple[SplitTiles, Sizes]:
        sizes = sizes_of(em, values)
        tiles = SplitTiles(em, target, product, sizes.k, sizes.rows, scratch, decoded=product.transpose_rhs)
        return tiles, sizes

    def body(
        em: Emitter, values: list[Value], outputs: list[Value], begin: Value, end: Value, scratch: Scratch
    ) -> None:
        tiles, sizes = parts(em, values, scratch)
        x, dense = em.rows(values[0]), [em.rows(value) for value in values[1 : 1 + weights]]
        tiles.configure()
        with sizes.pieces(begin, end) as (here, units):

            def load_rows(unit: Index, weight: int, slot: Index, first: Index) -> Loader:
                at = [unit * COLUMNS + side * SIDE for side in range(2)]
                readers = [column_reader(em, target, sizes.n, COLUMNS, dense[weight], column) for column in at]
                return lambda k, side: readers[side](here.base + k)

            def transpose(unit: Index, weight: int, slot: Index, k0: Index, k1: Index) -> None:
                matrix = Matrix(dense[weight], sizes.n, product.k, here.base)
                copy_transposed(em, target, matrix, (unit * COLUMNS, COLUMNS), (k0, k1), tiles.decoded, (slot, 0))

            def fetch(unit: Index, weight: int) -> Callable[[Index, int], None]:
                at = [unit * COLUMNS + side * SIDE for side in range(2)]
                return lambda k, side: em.prefetch(dense[weight], [here.base + k, at[side]], 2)

            columns = Columns(load_rows, fetch=fetch)
            if product.transpose_rhs:
                columns = Columns(lambda unit, weight, slot, first: tiles.from_scratch(slot, first), transpose)
            places = (here.x_row, here.out_row)
            tiles.multiply(x, places, here.rows, units, columns, values[1 + weights :], outputs)
        tiles.release()

    return write_product(product, product.operands(), lambda em, values: sizes_of(em, values).units, parts, body)


def _configure_batched(name: str, spec: ProductSpec, target: Target) -> BatchedProduct | None:
    in_parts = not are_single_rows(spec.x) and splits(target, spec.element, spec.sharing, spec.x[-1])
    if spec.kind != "matmul" or not in_parts or len(spec.x) < 2 or 0 in spec.weight:
        return None
    return BatchedProduct.of(spec)


def _configure(name: str, spec: ProductSpec, target: Target) -> tuple[Product, str] | None:
    product = panel_product(spec, "dequant_matmul")
    if product is None or are_single_rows(spec.x) or not splits(target, spec.element, spec.sharing, product.k):
        return None
    return product, spec.scheme


#: Of products in parts: rows, and elements of K, that are cut at a time; blocks of 32 columns that share each cutting.
KNOBS: Mapping[str, Knob] = {
    **SHARED,
    "amx_rows": Knob(range(32, 4097, 32)),
    "amx_k": Knob(range(32, 4097, 32), changes_bits=True),
    "amx_group": Knob(range(1, 257)),
}

CANDIDATES: Mapping[str, Candidates] = {
    "prefill": [
        {"amx": 0},
        {"amx_rows": 128},
        {"amx_rows": 512},
        {"amx_group": 12},
        {"amx_group": 48},
        {"amx_k": 128},
        {"amx_k": 512},
    ],
}

GENERATORS = (
    Generator(
        GEMM_AMX_F32 + "_batched",
        "gemm",
        _configure_batched,
        lambda name, product, target: gemm_split_batched(target, product),
        switch=GEMM_AMX_F32,
        knobs=KNOBS,
        candidates=CANDIDATES,
    ),
    Generator(
        GEMM_AMX_F32,
        "gemm",
        _configure,
        lambda name, config, target: gemm_split(target, *config),
        switch=GEMM_AMX_F32,
        knobs=KNOBS,
        candidates=CANDIDATES,
    ),
)
