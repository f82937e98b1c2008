# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What products by wgmma end with: the program on accumulators, rounding, and stores.

Outputs of 16 bits are staged in shared memory, in boxes of 64 columns that TMA writes: rows and columns beyond the
output are left out by it. Those of f32 are stored as they are. Parts of K go to memory in f32, and a second kernel adds
them up in a fixed order.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from rlx_mlir.codegen.emit import Emitter
from rlx_mlir.codegen.gpu.emit import DeviceEmitter, Index, Value, vec
from rlx_mlir.codegen.gpu.epilogue import DEVICE_UNARY, Epilogue, exp2_approx, reciprocal
from rlx_mlir.codegen.gpu.gemm_base import Gemm
from rlx_mlir.codegen.gpu.gemm_hopper_config import Layout, Tile
from rlx_mlir.codegen.gpu.gemm_hopper_loop import Accumulators, Mainloop, TilePlace
from rlx_mlir.codegen.program import Unary

BOX = 64
"""Columns of a box of outputs: 128 bytes."""


def _exp(em: Emitter, x: Value, scale: float = 1.0) -> Value:
    """e^(scale x) for results of 16 bits: a relative error of 2^-22, and of 2^-17 for the largest x."""
    assert isinstance(em, DeviceEmitter)
    return exp2_approx(em, x * (scale * math.log2(math.e)))


def _sigmoid(em: Emitter, x: Value, scale: float = 1.0) -> Value:
    assert isinstance(em, DeviceEmitter)
    return reciprocal(em, _exp(em, x, -scale) + 1.0)


def _gelu_approx(em: Emitter, x: Value) -> Value:
    # (1 + tanh u) / 2 = 1 / (1 + e^-2u)
    inner = x * (x * x * 0.044715 + 1.0)
    return x * _sigmoid(em, inner, 2.0 * math.sqrt(2.0 / math.pi))


UNARY_16: Mapping[str, Unary] = {
    **DEVICE_UNARY,
    "exp": _exp,
    "sigmoid": _sigmoid,
    "silu": lambda em, x: x * _sigmoid(em, x),
    "gelu_approx": _gelu_approx,
}
"""Operations of one operand, short: a block has few threads, each with many accumulators, and results have 16 bits."""


@dataclass(frozen=True)
class _Lane:
    """A thread's place in the accumulators of its warpgroup: row and first column of a pair in 16 x 8 elements."""

    warp: Value
    lane: Value
    row: Value
    column: Value

    @staticmethod
    def of(thread: Value) -> _Lane:
        warp, lane = thread >> 5, thread & 31
        row = warp * 16 + (lane >> 2)
        return _Lane(warp, lane, row, (lane & 3) << 1)


class _Finisher:
    """What both ways of storing share: which output an accumulator belongs to.

    Accumulators of one product and one block of 64 rows are `columns / 2` registers: of columns 8 j + (0, 1) of the
    thread's column pair, register 4 j + (0, 1) in the thread's row, and 4 j + (2, 3) eight rows below.
    """

    def __init__(self, em: DeviceEmitter, gemm: Gemm, main: Mainloop) -> None:
        assert gemm.n is not None
        self.em, self.gemm, self.main = em, gemm, main
        self.tile: Tile = main.tile
        self.layout: Layout = main.layout
        self.values = main.values
        self.products = gemm.program.accumulators
        self.n = gemm.n

    def first_row(self, place: TilePlace, consumer: Value, block: int) -> Value:
        """The first row of the left operand in a block of rows."""
        return place.left + consumer * (64 * self.tile.blocks) + 64 * block


class Storer(_Finisher):
    """Runs the program, stages what it gives, and stores it by TMA: `finish` each tile, then `close`."""

    def finish(self, place: TilePlace, accumulators: Accumulators, consumer: Value, thread: Value) -> None:
        """Outputs of one tile, by the warpgroup `consumer`."""
        em, tile = self.em, self.tile
        self.place = place
        self._lane = _Lane.of(thread)
        self._staged = em.at(
            em.at(self.main.shared, self.layout.staged_at, "i8"), consumer * self.layout.staged_bytes, "i8"
        )
        self._barrier = consumer + 1
        self._leader = em.cmpi("eq", thread, 0)
        for block in range(tile.blocks):
            fields = accumulators[block]
            row = self.first_row(place, consumer, block)
            if tile.swapped:
                self._swapped(fields, row)
            else:
                self._straight(fields, row)

    def close(self, thread: Value) -> None:
        """Waits for the stores: shared memory must last until they have read it."""
        with self.em.if_(self.em.cmpi("eq", thread, 0)):
            self.em.bulk_wait(0)

    # -- operands in order: accumulators are rows of the output -------------------------------------------------------

    def _straight(self, fields: Sequence[Sequence[Value]], row: Value) -> None:
        em, tile, outputs = self.em, self.tile, len(self.gemm.program.results)
        # The last box may overlap the one before it: its columns are stored twice, with the same values.
        starts = [min(start, tile.columns - BOX) for start in range(0, tile.columns, BOX)]
        together = self.layout.staged_boxes // outputs
        lane = self._lane
        matrix = lane.lane >> 3
        local = lane.warp * 16 + (lane.lane & 7) + (matrix & 1) * 8
        line = em.at(self._staged, local * 128, "i8")
        turn, chunk = local & 7, matrix >> 1
        for first in range(0, len(starts), together):
            group = starts[first : first + together]
            # Stores of what was staged before go on while the program runs.
            boxes = [self._box(fields, row, start) for start in group]
            self._wait_for_stage()
            for box, packed in enumerate(boxes):
                for output, values in enumerate(packed):
                    at = (box * outputs + output) * self.layout.box_bytes
                    for c in range(0, BOX // 8, 2):
                        address = ((chunk + c) ^ turn) << 4
                        em.stmatrix(em.at(line, address + at, "i8"), values[2 * c : 2 * c + 4])
            with self._stored():
                for box, start in enumerate(group):
                    for output in range(outputs):
                        at = (box * outputs + output) * self.layout.box_bytes
                        self._store(output, at, self.place.right + start, row)

    def _box(self, fields: Sequence[Sequence[Value]], row: Value, start: int) -> list[list[Value]]:
        """Packed outputs of 64 columns from `start`: for each output, pairs by 8 columns, upper then lower rows."""
        em, lane = self.em, self._lane
        rows = [row + lane.row + 8 * half for half in range(2)]
        columns = [self.place.right + (start + 8 * j) + lane.column for j in range(BOX // 8)]
        arguments = _Arguments(self, rows, columns)
        arguments.prefetch(BOX // 8)
        result: list[list[Value]] = [[] for _ in self.gemm.program.results]
        for j in range(BOX // 8):
            for half in range(2):
                at = 4 * (start // 8 + j) + 2 * half
                pair = [
                    self.gemm.program.emit(
                        em,
                        [product[at + e] for product in fields],
                        lambda i, e=e, j=j, half=half: arguments.pair(i, half, j)[e],  # type: ignore[misc]
                        UNARY_16,
                    )
                    for e in range(2)
                ]
                for output, values in enumerate(result):
                    values.append(em.pack(pair[0][output], pair[1][output], self.gemm.element))
        return result

    # -- swapped operands: accumulators are columns of the output -----------------------------------------------------

    def _swapped(self, fields: Sequence[Sequence[Value]], column: Value) -> None:
        em, tile, lane, outputs = self.em, self.tile, self._lane, len(self.gemm.program.results)
        columns = [column + lane.row + 8 * half for half in range(2)]
        rows = [self.place.right + 8 * j + lane.column for j in range(tile.columns // 8)]
        arguments = _Arguments(self, rows, columns)
        matrix, turn = lane.lane >> 3, lane.lane & 7
        chunk = (lane.warp << 1) + (matrix & 1)
        line = ((matrix >> 1) * 8 + turn) * 128
        address = em.at(self._staged, line + ((chunk ^ turn) << 4), "i8")
        self._wait_for_stage()
        for j in range(0, tile.columns // 8, 2):
            packed: list[list[Value]] = [[] for _ in self.gemm.program.results]
            for group, half in ((j, 0), (j, 1), (j + 1, 0), (j + 1, 1)):
                pair = [
                    self.gemm.program.emit(
                        em,
                        [product[4 * group + 2 * half + e] for product in fields],
                        lambda i, e=e, group=group, half=half: arguments.element(i, group, e, half),  # type: ignore[misc]
                        UNARY_16,
                    )
                    for e in range(2)
                ]
                for output, values in enumerate(packed):
                    values.append(em.pack(pair[0][output], pair[1][output], self.gemm.element))
            for output, values in enumerate(packed):
                at = output * self.layout.box_bytes + 8 * j * 128
                em.stmatrix(em.at(address, at, "i8"), values, transpose=True)
        with self._stored():
            for output in range(outputs):
                self._store(output, output * self.layout.box_bytes, column, self.place.right)

    # -- staging ------------------------------------------------------------------------------------------------------

    def _wait_for_stage(self) -> None:
        """Waits until the stores before have read what is staged."""
        em = self.em
        with em.if_(self._leader):
            em.bulk_wait(0, read=True)
        em.barrier(self._barrier, 128)

    @contextmanager
    def _stored(self) -> Iterator[None]:
        """One thread stores what all have staged."""
        em = self.em
        em.fence_async()
        em.barrier(self._barrier, 128)
        with em.if_(self._leader):
            yield
            em.bulk_commit()

    def _store(self, output: int, at: int, column: Index, row: Index) -> None:
        em, batch = self.em, self.place.batch
        outer = [] if batch is None else [batch]
        em.tma_store(self.values[f"out{output}"], em.at(self._staged, at, "i8"), [column, row, *outer])


class _Arguments:
    """The program's arguments at a thread's elements, as f32; what is beyond the output is some other element's.

    rows, columns: i32, of the output. Of straight operands a thread has two rows and pairs of columns; of swapped ones
    pairs of rows and two columns. Loads stand where they are first asked for.
    """

    def __init__(self, storer: Storer | DirectStorer, rows: Sequence[Value], columns: Sequence[Value]) -> None:
        em, gemm = storer.em, storer.gemm
        self.em, self.gemm = em, gemm
        self.kinds = [argument.broadcast for argument in gemm.program.arguments]
        self.elements = [argument.element or gemm.element for argument in gemm.program.arguments]
        self.pointers = [storer.values[f"arg{i}"] for i in range(len(self.kinds))]
        self.loaded: dict[tuple[int, ...], list[Value]] = {}
        if not self.kinds:
            return
        assert gemm.n is not None
        self.rows = rows
        # Neighbouring columns exist both or neither: rows are of a multiple of 8 elements.
        whole = gemm.n % storer.tile.out_columns == 0
        limit = em.const(gemm.n - (1 if storer.tile.swapped else 2))
        self.columns = [c if whole else em.index(em.imin(c, limit)) for c in columns]
        self.batch, self.count = storer.place.batch, storer.values["rows"]

    def prefetch(self, pairs: int) -> None:
        """Starts the loads at all pairs of columns, before the first is used."""
        for i, kind in enumerate(self.kinds):
            for j in range(pairs):
                if kind in ("row", "full"):
                    for half in range(1 if kind == "row" else 2):
                        self.pair(i, half, j)

    def _row(self, row: Value) -> Value:
        """The row in [batch x M, N], i32."""
        em = self.em
        last = self.count - 1
        bounded = em.index(em.imin(row, last))
        return bounded if self.batch is None else self.batch * self.count + bounded

    def _once(self, key: tuple[int, ...], type: str, i: int, offset: Index) -> list[Value]:
        if key not in self.loaded:
            em = self.em
            self.loaded[key] = em.lanes(em.widen(em.ld(self.pointers[i], type, offset)))
        return self.loaded[key]

    def _place(self, row: Value, column: Value) -> Value:
        em = self.em
        return em.wide(self._row(row)) * em.wide(self.gemm.n or 0) + em.wide(column)

    def pair(self, i: int, half: int, j: int) -> list[Value]:
        """Argument i at row `half` and the two columns of pair j."""
        em, kind, element = self.em, self.kinds[i], self.elements[i]
        if kind == "scalar":
            return self._once((i,), element, i, 0) * 2
        if kind == "column":
            return self._once((i, half), element, i, em.wide(self._row(self.rows[half]))) * 2
        if kind == "row":
            return self._once((i, j), vec(2, element), i, em.wide(self.columns[j]))
        return self._once((i, half, j), vec(2, element), i, self._place(self.rows[half], self.columns[j]))

    def element(self, i: int, group: int, e: int, half: int) -> Value:
        """Argument i at row `e` of the pair `group` and column `half`."""
        em, kind, element = self.em, self.kinds[i], self.elements[i]
        row = self.rows[group] + e
        if kind == "scalar":
            return self._once((i,), element, i, 0)[0]
        if kind == "column":
            return self._once((i, group, e), element, i, em.wide(self._row(row)))[0]
        if kind == "row":
            return self._once((i, half), element, i, em.wide(self.columns[half]))[0]
        return self._once((i, group, e, half), element, i, self._place(row, self.columns[half]))[0]


class DirectStorer(_Finisher):
    """Runs the program, and stores outputs of f32 from registers: pairs of columns, or single ones where swapped."""

    def finish(self, place: TilePlace, accumulators: Accumulators, consumer: Value, thread: Value) -> None:
        """Outputs of one tile, by the warpgroup `consumer`."""
        tile = self.tile
        self.place = place
        lane = _Lane.of(thread)
        for block in range(tile.blocks):
            left = self.first_row(place, consumer, block) + lane.row
            own = [left + 8 * half for half in range(2)]
            across = [place.right + lane.column + 8 * j for j in range(tile.columns // 8)]
            rows, columns = (across, own) if tile.swapped else (own, across)
            arguments = _Arguments(self, rows, columns)
            for j in range(tile.columns // 8):
                for half in range(2):
                    at = 4 * j + 2 * half
                    pair = [[product[at + e] for product in accumulators[block]] for e in range(2)]
                    if tile.swapped:
                        self._swapped(pair, arguments, rows[j], columns[half], (j, half))
                    else:
                        self._straight(pair, arguments, rows[half], columns[j], (half, j))

    def _straight(
        self, pair: list[list[Value]], arguments: _Arguments, row: Value, column: Value, at: tuple[int, int]
    ) -> None:
        em, program = self.em, self.gemm.program
        lanes = [
            program.emit(em, pair[e], lambda i, e=e: arguments.pair(i, *at)[e], DEVICE_UNARY)  # type: ignore[misc]
            for e in range(2)
        ]
        exists = em.cmpi("ult", row, self.values["rows"]) & em.cmpi("ult", column, self.n)
        with em.if_(exists):
            for output, values in enumerate(zip(*lanes, strict=True)):
                em.st(em.vector(values), self.values[f"out{output}"], self._place(row, column), align=8)

    def _swapped(
        self, pair: list[list[Value]], arguments: _Arguments, row: Value, column: Value, at: tuple[int, int]
    ) -> None:
        em, program = self.em, self.gemm.program
        for e in range(2):
            values = program.emit(
                em,
                pair[e],
                lambda i, e=e: arguments.element(i, at[0], e, at[1]),  # type: ignore[misc]
                DEVICE_UNARY,
            )
            here = row + e
            exists = em.cmpi("ult", here, self.values["rows"]) & em.cmpi("ult", column, self.n)
            with em.if_(exists):
                for output, value in enumerate(values):
                    em.st(value, self.values[f"out{output}"], self._place(here, column))

    def _place(self, row: Value, column: Value) -> Value:
        em, batch = self.em, self.place.batch
        flat = em.wide(row)
        if batch is not None:
            flat = em.wide(batch) * em.wide(self.values["rows"]) + flat
        return flat * em.wide(self.n) + em.wide(column)

    def close(self, thread: Value) -> None:
        """Nothing is under way."""


class PartStorer(_Finisher):
    """Stores accumulators of parts of K in f32: [part, product, M, N]."""

    def finish(self, place: TilePlace, accumulators: Accumulators, consumer: Value, thread: Value) -> None:
        """The sums of one tile, by the warpgroup `consumer`."""
        em, tile, swapped = self.em, self.tile, self.tile.swapped
        assert place.part is not None
        lane = _Lane.of(thread)
        rows, parts = self.values["rows"], self.values["parts"]
        for block in range(tile.blocks):
            for product, fields in enumerate(accumulators[block]):
                first = (place.part * self.products + product) * rows
                left = self.first_row(place, consumer, block) + lane.row
                right = place.right + lane.column
                for half in range(2):
                    at = left + 8 * half
                    for j in range(tile.columns // 8):
                        pair = fields[4 * j + 2 * half : 4 * j + 2 * half + 2]
                        across = right + 8 * j
                        if not swapped:
                            exists = em.cmpi("ult", at, rows) & em.cmpi("ult", across, self.n)
                            with em.if_(exists):
                                em.st(em.vector(pair), parts, self._place(first + at, across), align=8)
                            continue
                        for e, value in enumerate(pair):
                            row = across + e
                            exists = em.cmpi("ult", row, rows) & em.cmpi("ult", at, self.n)
                            with em.if_(exists):
                                em.st(value, parts, self._place(first + row, at))

    def _place(self, row: Value, column: Value) -> Value:
        em = self.em
        return em.wide(row) * em.wide(self.n) + em.wide(column)

    def close(self, thread: Value) -> None:
        """Nothing is under way."""


REDUCE_THREADS, REDUCE_COLUMNS = 128, 4
"""Threads of a block that adds up parts of K, and neighbouring columns of one thread."""


def reduce_parts(em: DeviceEmitter, gemm: Gemm, splits: int, values: dict[str, Value]) -> None:
    """The body of the kernel that adds up the parts of K in their order, runs the program and stores."""
    assert gemm.n is not None
    rows, parts, products = values["rows"], values["parts"], gemm.program.accumulators
    pointers = [values[f"arg{i}"] for i in range(len(gemm.program.arguments))]
    outputs = [values[f"out{i}"] for i in range(len(gemm.program.results))]
    epilogue = Epilogue(em, gemm.program, gemm.element, pointers, outputs, gemm.n)
    number = em.block() * REDUCE_THREADS + em.thread()
    per_row = em.const(gemm.n // REDUCE_COLUMNS)
    row = number // per_row
    column = number % per_row * REDUCE_COLUMNS
    with em.if_(em.cmpi("ult", row, rows)):
        place = em.wide(row) * em.wide(gemm.n) + em.wide(column)
        stride = em.wide(rows) * em.wide(gemm.n)
        sums: list[list[Value]] = []
        for product in range(products):
            total: Value | None = None
            for part in range(splits):
                at = place + stride * (part * products + product)
                value = em.ld(parts, vec(REDUCE_COLUMNS, "f32"), at)
                total = value if total is None else total + value
            assert total is not None
            sums.append(em.lanes(total))
        epilogue.store(sums, row, column)
