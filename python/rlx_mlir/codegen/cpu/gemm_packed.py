# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Activations (f32, f16, bf16) times weights in panels, with exact (f32) arithmetic on the activations.

A unit of work is the same one or two panels of each weight. There are two paths, whose order of operations along K
differs, and depends on neither M, tiles nor units: a row's result is the same bits for any M of its path.

- Single rows (`are_single_rows`: a static M of at most 8, and x of [..., 1, K]) decode in registers, some rows at a
  time. A unit comes from memory for the first of them, from a near cache for others. A token's result is the same bits
  alone, beside those of any number of sequences, and beside seven that follow it.
- Others decode a unit once into scratch and multiply it with register tiles.
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from rlx_mlir.codegen.emit import Emitter, Index, Value, shape_of
from rlx_mlir.codegen.specs import ProductSpec
from rlx_mlir.codegen.specs.products import Sizes, known_product
from rlx_mlir.codegen.structures import flatten, mapped, pairwise
from rlx_mlir.tuning.cpu import SHARED

from .kernel import (
    Accumulators,
    FloatElements,
    FloatRows,
    Product,
    RowReader,
    Scratch,
    add_products,
    needed_tiles,
    row_blocks,
    row_count,
    row_tiles,
    write_product,
)
from .panels import PANEL_ROWS, RUN, Panel, PanelLayout, Run, find_layout, over_runs, panel_operands, panel_product
from .registry import Candidates, Generator
from .target import Target

FEW_ROWS = 8
"""The largest static M whose rows are computed as single ones are."""

UNROLLED_ROWS = 4
"""Up to so many rows, groups of them stand one after the other in the code; more go in loops."""

ROW_BLOCK = 128
"""Single rows that go through all weights together: they stay in near caches, and weights are read once for so many."""

K_WHOLE, K_BLOCK = 2048, 1024
"""Up to K_WHOLE elements of K are decoded at once (256 KiB for 32 columns), longer ones in blocks of about K_BLOCK."""

PREFETCH_BYTES = 1024
FAR_BYTES = 4096
"""How far ahead panels are asked for: of blocks, whose elements take many operations each, and of floats."""

Group = list[tuple[int, int]]
"""Panels that a register tile covers side by side: (weight, panel within the unit)."""


def are_single_rows(x: Sizes) -> bool:
    """Whether each row of x is computed in the order that a product of one row has, for the sizes of x [..., K].

    Few rows are, and single tokens of any number of sequences, [..., 1, K]: so a token has the same bits alone, beside
    those of other sequences, and beside those that follow it. Every schedule that adds up otherwise has to ask.
    """
    rows = known_product(x[:-1])
    return (rows is not None and rows <= FEW_ROWS) or (len(x) > 1 and x[-2] == 1)


def tile_rows(target: Target, vectors: int = 2) -> tuple[int, ...]:
    """Rows of the register tiles, largest first.

    A tile is 32 (512 bits) or 16 columns wide; with 512 bits it may be of four vectors, and of half as many rows.
    """
    if target.vector_bits == 512:
        return target.choices.limited((6, 4, 2, 1) if vectors > 2 else (12, 8, 4, 2, 1))
    if target.vector_bits == 256 or target.registers == 32:
        return target.choices.limited((6, 4, 2, 1))
    return target.choices.limited((2, 1))


def panels_per_unit(target: Target, weights: int) -> int:
    """Panels of each weight in a unit of the tiled path: a tile of 32 columns is two panels or one of two weights."""
    return 2 if target.vector_bits == 512 and weights == 1 else 1


def tile_groups(target: Target, weights: int) -> list[Group]:
    """The tiles, side by side, that a unit has."""
    if target.vector_bits == 512 and weights <= 2:
        return [[(0, 0), (0, 1)]] if weights == 1 else [[(0, 0), (1, 0)]]
    return [[(weight, 0)] for weight in range(weights)]


def block_length(k: int, multiple: int, whole: int = K_WHOLE) -> int:
    """Elements of K that are decoded at once: up to `whole` K itself, else nearly equal blocks of whole `multiple`s."""
    if k <= whole:
        return k
    blocks = -(-k // K_BLOCK)
    return -(-k // (blocks * multiple)) * multiple


def row_reader(
    em: Emitter, target: Target, product: Product, scratch: Scratch, single: Index | None, block: int
) -> RowReader:
    """Room for rows of x: for all of K of as many as go together where they are single, else for those of a tile and a
    block of K."""
    rows = tile_rows(target)[0] if single is None else single
    length = block if single is None else product.k
    return RowReader(em, target, product.element, scratch, rows, length)


@dataclass(frozen=True)
class ExactTiles:
    """The tiled product: for a unit, and every block of K, decode each group, then tiles over the unit's rows.

    Attributes:
        operands: x, weights, arguments; `x` is the first of them as [M, K].
        parts: in scratch: products, rows of x as f32 if x is narrower, and decoded weights [groups, block, columns], of
            the products' type.
        groups: the tiles of a unit, side by side.
        block: elements of K that are decoded at once, as of `block_length`.
        counts: the numbers of rows that units have, where they are known: no code is made for tiles of others.
    """

    em: Emitter
    target: Target
    product: Product
    x: Value
    operands: Sequence[Value]
    outputs: Sequence[Value]
    parts: tuple[Accumulators, RowReader, Value]
    groups: Sequence[Group]
    block: int
    counts: Sequence[int] = ()

    @property
    def _blocked(self) -> bool:
        """Whether sums wait in scratch between blocks of K."""
        return self.block < self.product.k

    def unit(
        self,
        unit: Index,
        rows: tuple[Index, Index],
        decode: Callable[[int, Index, Index, Value], Callable[[Index, int], Value] | None],
    ) -> None:
        """Computes a unit of columns, of some rows: (the first one, how many).

        decode(group, first k, end of k, scratch) makes a group's elements ready in scratch, or returns a function
        (k, vector) that loads them from where they are.
        """
        em, k = self.em, self.product.k
        accumulators, _, decoded = self.parts
        arguments = self.operands[1 + self.product.program.accumulators :]
        first_row, count = rows
        vectors = (shape_of(decoded.type)[-1] or 0) // accumulators.lanes
        sizes = tile_rows(self.target, vectors)
        sizes = needed_tiles(sizes, self.counts) if self.counts else sizes

        def over_rows(k0: Index, k1: Index) -> None:
            loads = [decode(g, k0, k1, decoded) for g in range(len(self.groups))]

            def one(first: Index, size: int) -> None:
                self._tile(first_row, first, size, (k0, k1), loads)
                if not self._blocked:
                    accumulators.finish(arguments, self.outputs, unit, first_row + first, size)

            row_tiles(em, count, sizes, one)

        if not self._blocked:
            over_rows(0, k)
            return
        accumulators.clear(count)
        with em.loop(0, k, self.block, hint="kb") as kb:
            over_rows(kb.iv, em.imin(kb.iv + self.block, k))
        accumulators.finish(arguments, self.outputs, unit, first_row, count)

    def _tile(
        self,
        first_row: Index,
        first: Index,
        size: int,
        ks: tuple[Index, Index],
        loads: Sequence[Callable[[Index, int], Value] | None],
    ) -> None:
        """The sums of a tile of rows, `first` of which is counted from `first_row`, along a block of K."""
        em, (accumulators, reader, decoded) = self.em, self.parts
        group_columns, lanes, type = shape_of(decoded.type)[-1] or 0, accumulators.lanes, accumulators.type
        vectors = group_columns // lanes
        at = first if self._blocked else 0
        reader.bind(self.x, first_row + first, size, *ks, whole=self.product.k % lanes == 0)
        for g, own_load in enumerate(loads):

            def from_scratch(k: Index, v: int, g: int = g) -> Value:
                return em.vload(decoded, [g, k - ks[0], v * lanes], type)

            columns = [g * group_columns + v * lanes for v in range(vectors)]
            sums = [[em.zero(type)] * vectors] * size
            if self._blocked:
                sums = [[em.vload(accumulators.data, [at + r, c], type) for c in columns] for r in range(size)]
            sums = multiply_tile(em, self.target, reader, ks, self.product.k, own_load or from_scratch, sums)
            for r, own in enumerate(sums):
                for total, column in zip(own, columns, strict=True):
                    em.vstore(total, accumulators.data, [at + r, column])


def multiply_tile(
    em: Emitter,
    target: Target,
    x: FloatElements,
    ks: tuple[Index, Index],
    k_total: int | None,
    load: Callable[[Index, int], Value],
    sums: list[list[Value]],
) -> list[list[Value]]:
    """sums[row][vector of columns] + x times columns, over the elements `ks` of K, in order; unrolled by 4.

    k_total: K, None where dynamic; all blocks but the last one are multiples of 4.
    """
    k0, k1 = ks
    unroll = 4
    type = sums[0][0].type

    def step(k: Index, sums: list[list[Value]]) -> list[list[Value]]:
        columns = [load(k, v) for v in range(len(sums[0]))]
        factors = (em.broadcast(x.load(r, k), type) for r in range(len(sums)))
        return add_products(em, target, factors, columns, sums)

    exact = k_total is not None and k_total % unroll == 0
    main = k1 if exact else k1 - (k1 - k0) % unroll
    with em.loop(k0, main, unroll, sums, hint="k") as loop:
        sums = loop.carry
        for u in range(unroll):
            sums = step(loop.iv + u, sums)
        loop.yield_(sums)
    if exact:
        return loop.result
    with em.loop(main, k1, 1, loop.result, hint="k") as tail:
        tail.yield_(step(tail.iv, tail.carry))
    return tail.result


# -- panels -----------------------------------------------------------------------------------------------------------


class TiledPanels:
    """The tiled product with weights in panels, exact in the activations.

    per_unit: panels of each weight in a unit of work.
    """

    def __init__(self, target: Target, product: Product, layout: PanelLayout, per_unit: int) -> None:
        self._target, self._product, self._layout, self._per_unit = target, product, layout, per_unit
        self._weights = product.program.accumulators
        self._panels = -(-product.n // PANEL_ROWS)
        self._groups = tile_groups(target, self._weights)
        self.block = block_length(product.k, max(RUN, layout.block))

    @property
    def units(self) -> int:
        """Units of work."""
        return -(-self._panels // self._per_unit)

    @property
    def columns(self) -> int:
        """Columns of each weight in a unit."""
        return self._per_unit * PANEL_ROWS

    def panel(self, em: Emitter, data: Value, unit: Value, position: int) -> Panel:
        """A panel of a unit; one beyond the last is read as the last: nothing of its columns, beyond N, is stored."""
        index: Index = unit * self._per_unit + position
        if self._panels % self._per_unit and position:
            index = em.imin(index, self._panels - 1)
        layout = self._layout
        return Panel(em, self._target, layout, data, index * layout.panel_bytes(self._product.k))

    def decoded(self, scratch: Scratch) -> Value:
        """Room for decoded weights."""
        direct = self._layout.name == "f32"
        shape = [0 if direct else len(self._groups), self.block, len(self._groups[0]) * PANEL_ROWS]
        return scratch.take(shape, "f32")

    def run(
        self,
        em: Emitter,
        values: Sequence[Value],
        outputs: Sequence[Value],
        units: tuple[Value, Value],
        parts: tuple[Accumulators, RowReader, Value],
        row: Index | None = None,
    ) -> None:
        """Computes some units, of all rows or of one. values: x, weights, arguments; parts: as of `ExactTiles`."""
        flat = [em.flat(value) for value in values[1 : 1 + self._weights]]
        x = em.rows(values[0])
        rows = (0, row_count(em, values[0])) if row is None else (row, 1)
        tiles = ExactTiles(em, self._target, self._product, x, values, outputs, parts, self._groups, self.block)
        with em.loop(*units, hint="unit") as unit:

            def decode(g: int, k0: Index, k1: Index, decoded: Value) -> Callable[[Index, int], Value] | None:
                here = [self.panel(em, flat[weight], unit.iv, position) for weight, position in self._groups[g]]
                if self._layout.name == "f32":
                    return lambda k, v: here[v // here[0].vectors].floats(k, v % here[0].vectors)
                for p, panel in enumerate(here):
                    decode_panel(em, panel, decoded, (g, p * PANEL_ROWS), k0, k1)
                return None

            tiles.unit(unit.iv, rows, decode)


def gemm_panels(target: Target, product: Product, scheme: str) -> str:
    """The kernel of a product with weights in panels, exact in the activations.

    Operands: x [..., K], then the weights [ceil(N / 16), panel bytes] i8 of `scheme`, then the program's arguments;
    then the outputs [..., N]. Units are panels, or pairs of them.
    """
    layout = find_layout(scheme, product.k)
    weights = product.program.accumulators
    single, known = are_single_rows(product.x_shape), product.rows
    most = max(_group_sizes(target, known, dense=layout.dense))
    per_unit = panels_per_unit(target, weights)
    if single and per_unit * weights * most > 4 and (not layout.dense or _is_unrolled(known)):
        per_unit = 1  # two panels at once would leave too few registers, but for the last rows of many
    tiled = TiledPanels(target, product, layout, per_unit)

    def parts(em: Emitter, values: list[Value], scratch: Scratch) -> tuple[Accumulators, RowReader, Value]:
        most = em.imin(row_count(em, values[0]), ROW_BLOCK) if single else None
        reader = row_reader(em, target, product, scratch, most, tiled.block)
        if most is not None:
            rows = most
            part = scratch.take([most, product.k // layout.sub if layout.minimum else 0], "f32")
        else:
            rows = row_count(em, values[0]) if tiled.block < product.k else tile_rows(target)[0]
            part = tiled.decoded(scratch)
        return Accumulators(em, target, product, tiled.columns, scratch, rows), reader, part

    def body(
        em: Emitter, values: list[Value], outputs: list[Value], begin: Value, end: Value, scratch: Scratch
    ) -> None:
        accumulators, reader, part = parts(em, values, scratch)
        if not single:
            tiled.run(em, values, outputs, (begin, end), (accumulators, reader, part))
            return
        flat = [em.flat(value) for value in values[1 : 1 + weights]]

        def block(first: Index, count: Index) -> None:
            reader.bind(em.rows(values[0]), first, count, 0, product.k, whole=product.k % RUN == 0)
            if layout.minimum:
                sub_block_sums(em, target, reader, part, product.k, layout.sub, count)
            with em.loop(begin, end, hint="unit") as unit:
                panels_here = [tiled.panel(em, data, unit.iv, p) for data in flat for p in range(per_unit)]
                single_rows(em, target, product, reader, panels_here, part, accumulators, count)
                accumulators.finish(values[1 + weights :], outputs, unit.iv, first, count)

        row_blocks(em, row_count(em, values[0]), ROW_BLOCK, block)

    return write_product(product, panel_operands(product, layout), lambda em, values: tiled.units, parts, body)


def decode_panel(em: Emitter, panel: Panel, decoded: Value, place: tuple[Index, Index], k0: Index, k1: Index) -> None:
    """Elements [k0, k1) of a panel, f32, into decoded[g, k - k0, column + row], (g, column) being `place`."""
    layout = panel.layout
    g, column = place

    def store(value: Value, k: Index, v: int) -> None:
        em.vstore(value, decoded, [g, k - k0, column + v * panel.lanes])

    if layout.dense:
        with em.loop(k0, k1, hint="k") as loop:
            for v in range(panel.vectors):
                store(panel.floats(loop.iv, v), loop.iv, v)
        return

    def quads(run: Run, first: Index, count: int, k: Index, v: int, scale: Value, minimum: Value | None) -> None:
        for i in range(count):
            for e, number in enumerate(run.numbers(first, i, v)):
                value = scale * number if minimum is None else panel.target.fma(em, scale, number, minimum)
                store(value, k + (4 * i + e), v)

    def step(number: Index, runs: Sequence[Run], _: tuple[()]) -> tuple[()]:
        (run,) = runs
        per_part = layout.sub // 4
        together = min(run.group, per_part)
        for part, v in itertools.product(range(run.parts), range(panel.vectors)):
            scale, minimum = run.scale(part, v), run.minimum(part, v)
            scale = scale * 2.0**-run.shift if run.shift else scale
            k = number * RUN + part * layout.sub
            if together == per_part:
                start = part * per_part
                quads(run, start, per_part, k, v, scale, minimum)
                continue
            with em.loop(0, per_part, together, hint="quad") as loop:
                first = loop.iv + part * per_part
                quads(run, first, together, k + loop.iv * 4, v, scale, minimum)
        return ()

    ahead = panel.target.choices.ahead(PREFETCH_BYTES)
    over_runs([panel], k0 // layout.block, k1 // layout.block, (), step, ahead)


# -- single rows ------------------------------------------------------------------------------------------------------


def row_group(target: Target) -> int:
    """Rows that share one decoding of the weights, so that their sums stay in registers."""
    return {512: 4, 256: 2, 128: 1}[target.vector_bits] * (2 if not target.x86 else 1)


def _is_unrolled(rows: Index | None) -> bool:
    """Whether groups of rows stand one after the other; rows: None, or a value, where their number is dynamic."""
    return isinstance(rows, int) and rows <= UNROLLED_ROWS


def _group_sizes(target: Target, rows: Index | None, *, dense: bool) -> tuple[int, ...]:
    """Sizes of groups of rows, descending. dense: those of weights that are floats, which take few registers."""
    group = row_group(target)
    if isinstance(rows, int) and _is_unrolled(rows):
        return (min(group, rows),)
    if dense and target.vector_bits > 128:
        return (6, 4, 2, 1) if target.vector_bits == 512 else (3, 2, 1)
    return tuple(size for size in (4, 2, 1) if size <= (2 * group if dense else group))


def over_row_groups(em: Emitter, target: Target, rows: Index, tile: Callable[[Index, int], None]) -> None:
    """Covers single rows by groups: tile(first row, size)."""
    if isinstance(rows, int) and _is_unrolled(rows):
        group = row_group(target)
        for first in range(0, rows, group):
            tile(first, min(group, rows - first))
    else:
        row_tiles(em, rows, _group_sizes(target, rows, dense=False), tile)


def sub_block_sums(em: Emitter, target: Target, x: FloatRows, sums: Value, k: int, length: int, rows: Index) -> None:
    """sums[m, s] = the sum of elements s * length .. of row m, of K."""
    lanes = target.lanes("f32")
    with em.loop(0, rows, hint="row") as row, em.loop(0, k // length, hint="sub") as sub:
        first = sub.iv * length
        parts = [x.vload(row.iv, first + i) for i in range(0, length, lanes)]
        em.store(em.reduce("add", pairwise(operator.add, parts), "reassoc"), sums, [row.iv, sub.iv])


def single_rows(
    em: Emitter,
    target: Target,
    product: Product,
    x: FloatRows,
    panels: Sequence[Panel],
    sums: Value,
    accumulators: Accumulators,
    rows: Index,
) -> None:
    """Products of rows with the panels, in groups of rows and panels that fit the registers.

    All groups go through panels before the next ones do: after the first group, these come from a near cache.
    """

    def over_panels(size: int, cover: Callable[[Callable[[Index, int], None]], None]) -> None:
        # Panels go side by side only where all sums stay in registers. One row of floats waits for memory, which is
        # read fastest as one stream.
        fit = len(panels) * size <= 4 and target.vector_bits == 512
        together = len(panels) if fit and not (rows == 1 and panels[0].layout.dense) else 1
        for start in range(0, len(panels), together):
            cover(functools.partial(tile, start, panels[start : start + together]))

    def tile(start: int, here: Sequence[Panel], first: Index, size: int) -> None:
        if here[0].layout.dense:
            # Floats take so few operations that asking for lines would hold up few rows; processors find such streams
            # themselves. With more rows, one panel at a time is slower than memory.
            ahead = target.choices.ahead(0 if size <= 2 or _is_unrolled(rows) else FAR_BYTES)
            values = _single_float(em, target, product, x, here, first, size, ahead)
        else:
            values = _single_blocks(em, target, product, x, here, first, size, sums)
            if here[0].layout.minimum:
                values = _repaired(em, target, product, x, here, first, values)
        for r, own in enumerate(values):
            for i, value in enumerate(own):
                em.vstore(value, accumulators.data, [first + r, start * PANEL_ROWS + i * here[0].lanes])

    sizes = _group_sizes(target, rows, dense=panels[0].layout.dense)
    if _is_unrolled(rows):
        over_panels(sizes[0], lambda tile: over_row_groups(em, target, rows, tile))
        return
    done: Index = 0
    for size in sizes:
        end = rows - (rows - done) % size
        over_panels(size, functools.partial(row_tiles, em, end, (size,), done=done))
        done = end


def _repaired(
    em: Emitter,
    target: Target,
    product: Product,
    x: FloatRows,
    panels: Sequence[Panel],
    first: Index,
    sums: list[list[Value]],
) -> list[list[Value]]:
    """Sums of block panels; those that aren't finite are computed again, each element decoded first.

    Of an x that is infinite, and of numbers * x that exceed f32, the scale's part and the minimum's are infinities that
    make NaN of each other, while their sum, times x, is a number or an infinity.
    """
    type = sums[0][0].type
    marks = [[value * 0.0 for value in own] for own in sums]  # NaN where the sum isn't finite
    probe = functools.reduce(operator.add, flatten(marks))
    columns = [(i, v) for i, panel in enumerate(panels) for v in range(panel.vectors)]
    layout = panels[0].layout

    def step(number: Index, runs: Sequence[Run], carried: list[list[Value]]) -> list[list[Value]]:
        per_part = layout.sub // 4
        together = min(runs[0].group, per_part)
        for part in range(runs[0].parts):
            factors = []
            for i, v in columns:
                scale, minimum = runs[i].scale(part, v), runs[i].minimum(part, v)
                assert minimum is not None
                factors.append((scale * 2.0 ** -runs[0].shift if runs[0].shift else scale, minimum))
            with em.loop(0, per_part, together, carried, hint="quad") as loop:
                totals = loop.carry
                for quad in range(together):
                    k = number * RUN + part * layout.sub
                    k = k + (loop.iv + quad) * 4
                    for at, ((i, v), (scale, minimum)) in enumerate(zip(columns, factors, strict=True)):
                        numbers = runs[i].numbers(loop.iv + part * per_part, quad, v)
                        for e, (r, own) in itertools.product(range(4), enumerate(totals)):
                            weight = target.fma(em, scale, numbers[e], minimum)
                            factor = em.broadcast(x.load(first + r, k + e), type)
                            own[at] = target.fma(em, weight, factor, own[at])
                loop.yield_(totals)
            carried = loop.result
        return carried

    with em.if_(em.reduce("or", em.cmpf("uno", probe, probe)), sums) as branch:
        again = over_runs(panels, 0, product.k // layout.block, [[em.zero(type)] * len(columns)] * len(sums), step)

        def kept(mark: Value, new: Value, old: Value) -> Value:
            return em.select(em.cmpf("uno", mark, mark), new, old)

        branch.yield_(mapped(kept, marks, again, sums))
        branch.else_()
        branch.yield_(sums)
    return branch.result


def _single_float(
    em: Emitter,
    target: Target,
    product: Product,
    x: FloatRows,
    panels: Sequence[Panel],
    first: Index,
    size: int,
    ahead: int,
) -> list[list[Value]]:
    """Float panels: `unroll` interleaved chains along K, added at the end. ahead: bytes by which lines
    are asked for; 0: none are."""
    unroll = {512: 4, 256: 2, 128: 1}[target.vector_bits]
    columns = [(panel, v) for panel in panels for v in range(panel.vectors)]
    type = target.vector("f32")

    def step(k: Index, sums: list[list[Value]]) -> list[list[Value]]:
        values = [panel.floats(k, v) for panel, v in columns]
        result = []
        for r, own in enumerate(sums):
            factor = em.broadcast(x.load(first + r, k), type)
            result.append([target.fma(em, value, factor, total) for value, total in zip(values, own, strict=True)])
        return result

    zeros = [[em.zero(type)] * len(columns)] * size
    main = product.k - product.k % unroll
    with em.loop(0, main, unroll, [zeros] * unroll, hint="k") as loop:
        for panel in panels if ahead else ():
            panel.prefetch(panel.at(loop.iv), ahead, unroll * panel.layout.block_bytes)
        loop.yield_([step(loop.iv + u, chain) for u, chain in enumerate(loop.carry)])
    chains = loop.result
    for k in range(main, product.k):
        chains[k - main] = step(k, chains[k - main])
    return pairwise(functools.partial(mapped, operator.add), chains)


def _single_blocks(
    em: Emitter,
    target: Target,
    product: Product,
    x: FloatRows,
    panels: Sequence[Panel],
    first: Index,
    size: int,
    sums: Value,
) -> list[list[Value]]:
    """Block panels: per sub-block the scale times the sum of numbers * x, summed in one or two chains, plus the minimum
    times the sum of x."""
    chains = 2 if target.vector_bits == 512 else 1
    type = target.vector("f32")
    columns = [(i, v) for i, panel in enumerate(panels) for v in range(panel.vectors)]

    def step(number: Index, runs: Sequence[Run], carried: list[list[Value]]) -> list[list[Value]]:
        if runs[0].parts > 1 and runs[0].group <= panels[0].layout.sub // 4:
            with em.loop(0, runs[0].parts, 1, carried, hint="part") as loop:  # a loop: as one block, LLVM spills
                loop.yield_(one(number, loop.iv, runs, loop.carry))
            return loop.result
        for part in range(runs[0].parts):
            carried = one(number, part, runs, carried)
        return carried

    def one(number: Index, part: Index, runs: Sequence[Run], carried: list[list[Value]]) -> list[list[Value]]:
        """Adds the products of a sub-block."""
        quads = panels[0].layout.sub // 4
        k = number * RUN + part * (4 * quads)
        partial: list[list[list[Value | None]]] = [[[None] * chains for _ in columns] for _ in range(size)]
        for q in range(quads):
            numbers = [runs[i].numbers(part * quads, q, v) for i, v in columns]
            for e, r in itertools.product(range(4), range(size)):
                factor = em.broadcast(x.load(first + r, k + (4 * q + e)), type)
                for chain, values in zip(partial[r], numbers, strict=True):
                    so_far = chain[e % chains]
                    chain[e % chains] = (
                        values[e] * factor if so_far is None else target.fma(em, values[e], factor, so_far)
                    )
        scales = [runs[i].scale(part, v) for i, v in columns]
        if runs[0].shift:
            scales = [scale * 2.0 ** -runs[0].shift for scale in scales]
        minima = [runs[i].minimum(part, v) for i, v in columns]
        result: list[list[Value]] = []
        for r, (own, chain_of) in enumerate(zip(carried, partial, strict=True)):
            total = None
            if minima[0] is not None:
                sub = number * runs[0].parts + part
                total = em.broadcast(em.load(sums, [first + r, sub]), type)
            result.append([])
            for scale, minimum, chain, accumulator in zip(scales, minima, chain_of, own, strict=True):
                links = [link for link in chain if link is not None]
                block = links[0] + links[1] if len(links) > 1 else links[0]
                accumulator = target.fma(em, scale, block, accumulator)
                if total is not None and minimum is not None:
                    accumulator = target.fma(em, minimum, total, accumulator)
                result[r].append(accumulator)
        return result

    zeros = [[em.zero(type)] * len(columns)] * size
    return over_runs(panels, 0, product.k // panels[0].layout.block, zeros, step, target.choices.ahead(PREFETCH_BYTES))


def _configure(name: str, spec: ProductSpec, target: Target) -> tuple[Product, str] | None:
    product = panel_product(spec, "dequant_matmul")
    return None if product is None else (product, spec.scheme)


#: What tuning tries for register tiles: single tokens wait for memory, prompts compute.
REGISTER_TILES: Mapping[str, Candidates] = {
    "prefill": [{"tile_rows": 4}, {"tile_rows": 2}, {"prefetch": 0}],
    "decode": [{"prefetch": 0}, {"prefetch": 512}, {"prefetch": 2048}, {"prefetch": 4096}],
}

GENERATORS = (
    Generator(
        "gemm_panels",
        "gemm",
        _configure,
        lambda name, config, target: gemm_panels(target, *config),
        knobs=SHARED,
        candidates=REGISTER_TILES,
    ),
)
