# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Products of few rows with rows of weights: bound by reading the weights, each of which is read once.

The rows of x that are served at one time, the tile, are at most 8; more are served in turns. A row of weights is shared
by the lanes of a warp, or of a part of one, or by several warps; each lane takes one unit of it after the other
(`codegen.gpu.gemv_rows`), and the lanes' sums are joined by shuffles. Then one lane for each output runs the program.

Two forms:

- Portable: warps load rows from global memory by themselves.
- Persistent (sm_90 on): a block for each multiprocessor; one warp fills a ring of rows in shared memory by bulk copies,
  the others take slots of it in turn. Where weights are fixed, copies start before the kernels before have ended, and
  only x waits for them.

Weights in planes with x in f32, f16 or bf16 are decoded exactly; with x quantised (`mir.block_quantize`) products are
those of bytes, with the meaning of `mir.block_dot`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from rlx_mlir.codegen import UnsupportedByTemplate
from rlx_mlir.codegen.emit import memref
from rlx_mlir.codegen.gpu.chips import sm_version
from rlx_mlir.codegen.gpu.emit import DeviceEmitter, Index, Parameter, Value, pointer
from rlx_mlir.codegen.gpu.epilogue import Epilogue
from rlx_mlir.codegen.gpu.gemm_config import resources
from rlx_mlir.codegen.gpu.gemv_columns import ColumnsConfig, ColumnsTask, choose_columns, columns_bytes, emit_columns
from rlx_mlir.codegen.gpu.gemv_config import GemvConfig, Work, choose_persistent, choose_portable, tiles
from rlx_mlir.codegen.gpu.gemv_rows import (
    DENSE,
    Activations,
    DenseUnit,
    PackedUnit,
    Row,
    Staged,
    chunk_place,
    sum_float,
    sum_start,
    unit_of,
)
from rlx_mlir.codegen.gpu.kernel import DeviceKernel, HostEmitter, Scratch, symbol_of, write_device_kernel
from rlx_mlir.codegen.program import IDENTITY, Program
from rlx_mlir.formats import PlaneLayout, get_format, plane_layout
from rlx_mlir.formats.blocks import RUN

__all__ = ["MAX_ROWS", "Gemv", "emit_kernels", "gemv", "launch"]

#: Rows of x for which the schedule is meant; more work, each eight of them reading the weights again.
MAX_ROWS = 8
_ONES = 0x01010101
_BARRIER = 1


@dataclass(frozen=True)
class Gemv:
    """outputs = program(x W_0^T, x W_1^T, ..., arguments), with rows of weights.

    Attributes:
        name: of the kernel.
        x_shape: of x (or q), [.., K]; None stands for a dynamic size. K is known.
        n: rows of each weight.
        scheme: format of the weights: in planes, or the element type of dense ones [N, K].
        program: what follows the products, one for each weight.
        order: the kernel's operand for each of x (q, scale and sum where quantised), weights, arguments.
        element: type of arguments and outputs, and of x where it isn't quantised: f32, f16 or bf16.
        quantised: whether x is given as q, scale and sum of blocks of 32.
        dense: whether weights are tensors [N, K] of the scheme's elements, not of bytes in planes.
        columns: whether dense weights are [K, N].
        fixed: whether weights are parameters, which no kernel writes.
    """

    name: str
    x_shape: tuple[int | None, ...]
    n: int
    scheme: str
    program: Program = IDENTITY
    order: tuple[int, ...] | None = None
    element: str = "f32"
    quantised: bool = False
    dense: bool = False
    columns: bool = False
    fixed: bool = True

    def __post_init__(self) -> None:
        fmt = get_format(self.scheme)
        if self.element not in DENSE:
            raise UnsupportedByTemplate(f"{self.name}: products of {self.element} have no schedule")
        if not self.x_shape or not self.x_shape[-1] or self.n < 1:
            raise UnsupportedByTemplate(f"{self.name}: expects a known K and N, but x is {self.x_shape}, N {self.n}")
        if not fmt.has_planes or (self.quantised and not fmt.has_integers):
            raise UnsupportedByTemplate(f"{self.name}: no schedule reads weights of {self.scheme}")
        if self.columns and not (self.dense and self.scheme == self.element):
            raise UnsupportedByTemplate(f"{self.name}: weights [K, N] are dense, and of the type of x")
        if self.quantised and self.element != "f32":
            raise UnsupportedByTemplate(f"{self.name}: products of integers give f32, not {self.element}")

    @property
    def k(self) -> int:
        k = self.x_shape[-1]
        assert k is not None
        return k

    @property
    def m(self) -> int | None:
        """Rows of x, None where dynamic."""
        known = [size for size in self.x_shape[:-1] if size is not None]
        return math.prod(known) if len(known) == len(self.x_shape) - 1 else None

    @property
    def layout(self) -> PlaneLayout | None:
        """The planes of the weights; None where the elements are floats."""
        layout = plane_layout(self.scheme)
        return None if layout.dense else layout

    @property
    def unit(self) -> int:
        """Elements of a unit."""
        return unit_of(self.scheme, self.k) if self.layout is None else RUN

    @property
    def row_bytes(self) -> int:
        """Bytes of a row of weights."""
        return self.k * DENSE[self.scheme] if self.dense else plane_layout(self.scheme).row_bytes(self.k)

    @property
    def weights(self) -> int:
        """Weights that share x."""
        return self.program.accumulators

    @property
    def x_element(self) -> str:
        """Type of x, or of q."""
        return "i8" if self.quantised else self.element

    @property
    def operands(self) -> list[tuple[str, str]]:
        """The schedule's operands: names and types of buffers."""
        leading = self.x_shape[:-1]
        given = [("x", memref(self.x_shape, self.x_element))]
        if self.quantised:
            given += [(key, memref((*leading, self.k // RUN), of)) for key, of in (("scale", "f32"), ("sum", "i32"))]
        weight = memref((self.n, self.row_bytes), "i8")
        if self.dense:
            weight = memref((self.k, self.n) if self.columns else (self.n, self.k), self.scheme)
        natural = {"full": (*leading, self.n), "row": (self.n,), "column": leading, "scalar": ()}
        arguments = [
            memref(natural[argument.broadcast] if argument.shape is None else argument.shape, self.element)
            for argument in self.program.arguments
        ]
        return [
            *given,
            *((f"w{i}", weight) for i in range(self.weights)),
            *((f"arg{i}", type) for i, type in enumerate(arguments)),
        ]

    @property
    def results(self) -> list[tuple[str, str]]:
        """Names and types of the outputs' buffers."""
        type = memref((*self.x_shape[:-1], self.n), self.element)
        return [(f"out{i}", type) for i in range(len(self.program.results))]

    def work(self, tile: int) -> Work:
        """The sizes that a configuration depends on."""
        size = 1 if self.quantised else DENSE[self.element]
        x_bytes = self.k * size + (self.k // RUN * 8 if self.quantised else 0)
        return Work(self.n, self.k // self.unit, self.row_bytes, self.weights, tile, x_bytes)


# ----------------------------------------------------------------------------------------------------------------------
# Sums
# ----------------------------------------------------------------------------------------------------------------------

Sums = list[list[list[Value]]]
"""f32 of each row of weights, weight and row of the tile."""


class _Products:
    """The products of some rows of weights with the tile, of the units that one lane takes."""

    def __init__(
        self, em: DeviceEmitter, spec: Gemv, config: GemvConfig, rows: Sequence[Sequence[Row]], lane: Value, stride: int
    ) -> None:
        """rows: for each row, its place in each weight. lane: the lane's first unit; `stride` leads to its next."""
        self.em, self.spec, self.config, self.rows = em, spec, config, rows
        self.lane, self.stride = lane, stride
        layout = spec.layout
        self.unit: PackedUnit | DenseUnit = (
            DenseUnit(em, spec.scheme, spec.k, lane, stride)
            if layout is None
            else PackedUnit(em, layout, spec.k, lane, stride)
        )

    def sums(self, x: Activations) -> Sums:
        """All units, one turn after the other."""
        em, units, config = self.em, self.spec.k // self.spec.unit, self.config
        full, rest = divmod(units, self.stride)
        values = [em.zero("f32")] * (len(self.rows) * self.spec.weights * config.tile)
        turns = full // config.unroll if full > config.unroll else 0
        if turns:
            step = config.unroll * self.stride
            with em.loop(0, turns * step, step, values, hint="unit") as loop:
                offsets = [em.iadd(loop.iv, i * self.stride) for i in range(config.unroll)]
                loop.yield_(self._turn(x, offsets, loop.args))
            values = loop.results
        if remaining := range(turns * config.unroll, full):
            values = self._turn(x, [i * self.stride for i in remaining], values)
        if rest:
            with em.if_(em.cmpi("ult", self.lane, rest), ["f32"] * len(values)) as branch:
                branch.yield_(self._turn(x, [full * self.stride], values))
                branch.else_()
                branch.yield_(values)
            values = branch.results
        step = config.tile
        parts = [values[i : i + step] for i in range(0, len(values), step)]
        return [parts[i : i + self.spec.weights] for i in range(0, len(parts), self.spec.weights)]

    def _turn(self, x: Activations, offsets: Sequence[Index], sums: Sequence[Value]) -> list[Value]:
        """Adds the products of some units: all loads of weights come first."""
        places = [place for row in self.rows for place in row]
        loaded = [[self.unit.load(place, offset) for place in places] for offset in offsets]
        tile, values = self.config.tile, list(sums)
        for offset, units in zip(offsets, loaded, strict=True):
            split = [values[i : i + tile] for i in range(0, len(values), tile)]
            split = (
                self._quantised(x, offset, units, split) if x.element == "i8" else self._exact(x, offset, units, split)
            )
            values = [value for part in split for value in part]
        return values

    def _quantised(self, x: Activations, offset: Index, units: Sequence, sums: list[list[Value]]) -> list[list[Value]]:
        """sums += scale * (d <q_w, q> + m sum)"""
        em, unit = self.em, self.unit
        assert isinstance(unit, PackedUnit)
        layout, parts = unit.layout, unit.parts
        factors = [unit.factors(one) for one in units]
        words = [unit.quads(one) for one in units]
        per_part = len(words[0]) // parts
        minima = layout.minimum is not None
        for m in range(self.config.tile):
            q = x.quads(m, offset)
            scale, total = x.block(m, offset)
            totals = [total]
            if parts == 2 and (minima or layout.bias):
                first = em.const(0)
                for word in q[:per_part]:
                    first = em.dp4a(em.const(_ONES), word, first)
                totals = [first, em.subi(total, first)]
            starts = [
                sum_start(em, em.muli(totals[part], -layout.bias) if layout.bias else None) for part in range(parts)
            ]
            added = [sum_float(em, sum_start(em, one)) for one in totals] if minima else []
            for number, (own, factor) in enumerate(zip(words, factors, strict=True)):
                value: Value | None = None
                for part in range(parts):
                    dot = starts[part]
                    for i in range(part * per_part, (part + 1) * per_part):
                        dot = em.dp4a(own[i], q[i], dot, signed=(layout.signed, True))
                    exact = sum_float(em, dot)
                    d = factor.scales[part]
                    value = em.mulf(d, exact) if value is None else em.fmaf(d, exact, value)
                    if minima:
                        value = em.fmaf(factor.minima[part], added[part], value)
                assert value is not None
                sums[number][m] = em.fmaf(scale, value, sums[number][m])
        return sums

    def _exact(self, x: Activations, offset: Index, units: Sequence, sums: list[list[Value]]) -> list[list[Value]]:
        """sums += x W, with W decoded"""
        em, unit, tile = self.em, self.unit, self.config.tile
        if isinstance(unit, DenseUnit):
            elements = [unit.floats(one) for one in units]
            for m in range(tile):
                row = x.floats(m, offset, 0, unit.size)
                for own, weights in zip(sums, elements, strict=True):
                    for weight, value in zip(weights, row, strict=True):
                        own[m] = em.fmaf(weight, value, own[m])
            return sums
        factors = [unit.factors(one) for one in units]
        words = [unit.quads(one) for one in units]
        count = 16 // x.bytes  # elements of a chunk of x: one quad, or two
        per_part = RUN // unit.parts
        for part in range(unit.parts):
            partial = [[em.zero("f32")] * tile for _ in units]
            for first in range(part * per_part, (part + 1) * per_part, count):
                values = [x.floats(m, offset, first, count) for m in range(tile)]
                for number, (own, factor) in enumerate(zip(words, factors, strict=True)):
                    weights = [w for quad in own[first // 4 : (first + count) // 4] for w in unit.floats(quad)]
                    if factor.minima:
                        # Decoded in full: a sum of x apart would make NaN of infinities.
                        weights = [em.fmaf(factor.scales[part], w, factor.minima[part]) for w in weights]
                    for m in range(tile):
                        for weight, value in zip(weights, values[m], strict=True):
                            partial[number][m] = em.fmaf(weight, value, partial[number][m])
            for number, factor in enumerate(factors):
                for m in range(tile):
                    own = sums[number]
                    if factor.minima:
                        own[m] = em.addf(own[m], partial[number][m])
                    else:
                        own[m] = em.fmaf(factor.scales[part], partial[number][m], own[m])
        return sums


# ----------------------------------------------------------------------------------------------------------------------
# Outputs
# ----------------------------------------------------------------------------------------------------------------------


class _Task:
    """What the forms share: parameters of the kernel, and the end of a row."""

    def __init__(
        self, em: DeviceEmitter, spec: Gemv, config: GemvConfig | ColumnsConfig, values: Sequence[Value]
    ) -> None:
        self.em, self.spec = em, spec
        self.tile, self.lanes = config.tile, config.lanes
        count = 3 if spec.quantised else 1
        arguments = len(spec.program.arguments)
        self.x = values[:count]
        self.w = values[count : count + spec.weights]
        first = count + spec.weights
        self.arguments = values[first : first + arguments]
        self.outputs = values[first + arguments : first + arguments + len(spec.program.results)]
        self.m: Index = values[-1] if spec.m is None else spec.m
        # Rows of x beyond the first tile are those of blocks further along y.
        self.first: Index = 0 if spec.m is not None and spec.m <= self.tile else em.imul(em.block("y"), self.tile)
        self.epilogue = Epilogue(em, spec.program, spec.element, self.arguments, self.outputs, spec.n)

    def x_rows(self) -> list[Index]:
        """The rows of x of the tile; ones that don't exist are the last one's."""
        rows = [self.em.iadd(self.first, i) for i in range(self.tile)]
        if isinstance(self.m, int) and self.m % self.tile == 0:
            return rows
        return [self.em.imin(row, self.em.isub(self.m, 1)) for row in rows]

    def join(self, sums: Sums) -> Sums:
        """The sums of all lanes that share a row; each of them gets them."""
        return [[[self.em.warp_reduce("add", s, self.lanes) for s in weight] for weight in row] for row in sums]

    def finish(self, sums: Sums, first_row: Index, lane: Value) -> None:
        """Runs the program: lane i of those that share rows takes the i-th of the outputs (row, row of x).

        first_row: the first of the lanes' rows. lane: among those that share a row.
        """
        em, tile = self.em, self.tile
        count = len(sums) * tile
        for start in range(0, count, self.lanes):
            here = range(start, min(start + self.lanes, count))
            chosen = [sums[start // tile][weight][start % tile] for weight in range(self.spec.weights)]
            for number in here[1:]:
                mine = em.cmpi("eq", lane, number - start)
                for weight in range(self.spec.weights):
                    chosen[weight] = em.select(mine, sums[number // tile][weight][number % tile], chosen[weight])
            number_of: Index = em.iadd(lane, start)
            row = em.iadd(first_row, em.idiv(number_of, tile))
            m = em.iadd(self.first, em.irem(number_of, tile))
            exists = em.andi(em.cmpi("ult", lane, len(here)), em.cmpi("ult", em.index(row), self.spec.n))
            if not (isinstance(self.m, int) and self.m % tile == 0):
                exists = em.andi(exists, em.cmpi("ult", em.index(m), self.m))
            with em.if_(exists):
                self.epilogue.store([[value] for value in chosen], m, row)


def _parameters(spec: Gemv) -> list[Parameter]:
    """The kernels' parameters."""
    given = [pointer(key, readonly=True) for key in (("q", "scale", "sum") if spec.quantised else ("x",))]
    given += [pointer(f"w{i}", readonly=True, constant=spec.fixed) for i in range(spec.weights)]
    given += [pointer(f"arg{i}", readonly=True) for i in range(len(spec.program.arguments))]
    given += [pointer(f"out{i}") for i in range(len(spec.program.results))]
    return [*given, ("m", "i32")] if spec.m is None else given


def _portable(em: DeviceEmitter, name: str, spec: Gemv, config: GemvConfig) -> None:
    """Each block has its rows; their warps load them from global memory."""
    with em.kernel(name, _parameters(spec), 32 * config.warps) as values:
        em.launch_dependents()
        em.wait_dependencies()
        task = _Task(em, spec, config, values)
        lane, warp = em.lane(), em.warp()
        own, group = em.andi(lane, config.lanes - 1), em.shrui(lane, config.lanes.bit_length() - 1)
        part, line = em.irem(warp, config.split), em.idiv(warp, config.split)
        first = em.imul(em.iadd(em.imul(em.block(), config.warps // config.split), line), config.warp_rows)
        row = em.iadd(first, em.imul(group, config.rows)) if config.lanes < 32 else first
        rows = []
        for i in range(config.rows):
            # Rows that don't exist are the last one's; they aren't stored.
            number = em.imin(em.iadd(row, i), spec.n - 1)
            rows.append([Row(em.at(w, em.imul(em.wide(number), spec.row_bytes), "i8")) for w in task.w])
        unit = em.iadd(em.imul(part, config.lanes), own) if config.split > 1 else own
        products = _Products(em, spec, config, rows, em.index(unit), config.lanes * config.split)
        x = Activations(em, task.x, spec.x_element, spec.k, task.x_rows(), spec.unit, em.index(unit))
        sums = task.join(products.sums(x))
        if config.split == 1:
            task.finish(sums, row, own)
            return
        # Partial sums of the warps that share rows: [line][part][row][weight][row of x].
        flat = [s for by_row in sums for by_weight in by_row for s in by_weight]
        memory = em.shared()
        place = em.imul(warp, len(flat))
        with em.if_(em.cmpi("eq", lane, 0)):
            for i, s in enumerate(flat):
                em.st(s, memory, em.iadd(place, i))
        em.barrier()
        with em.if_(em.cmpi("eq", em.index(part), 0)):
            totals = [
                em.tree("add", [em.ld(memory, "f32", em.iadd(place, j * len(flat) + i)) for j in range(config.split)])
                for i in range(len(flat))
            ]
            parts = [totals[i : i + config.tile] for i in range(0, len(totals), config.tile)]
            grouped = [parts[i : i + spec.weights] for i in range(0, len(parts), spec.weights)]
            task.finish(grouped, row, own)


# ----------------------------------------------------------------------------------------------------------------------
# The persistent form
# ----------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Ring:
    """Shared memory of the persistent form: slots, two barriers for each, x.

    Attributes:
        rows: rows of each weight in a slot.
        row_bytes: bytes of a row. weights: how many weights there are.
    """

    slots: int
    rows: int
    row_bytes: int
    weights: int

    @property
    def slot(self) -> int:
        """Bytes of a slot: its rows of the first weight, then of the next."""
        return self.rows * self.row_bytes * self.weights

    @property
    def barriers(self) -> int:
        """First byte of the barriers: full ones, then empty ones."""
        return self.slots * self.slot

    @property
    def x(self) -> int:
        """First byte of x."""
        return -(-(self.barriers + 16 * self.slots) // 128) * 128

    def first(self, em: DeviceEmitter, spec: Gemv, group: Value) -> Index:
        """First row of a group. The last group is as long as all others: rows that it shares are computed twice."""
        row = em.imul(group, self.rows)
        return em.imin(row, spec.n - self.rows) if spec.n % self.rows else row


def _ring(spec: Gemv, config: GemvConfig) -> _Ring:
    return _Ring(config.slots, config.warp_rows, spec.row_bytes, spec.weights)


def _staged(em: DeviceEmitter, spec: Gemv, config: GemvConfig) -> Staged:
    blocks = -(-spec.k // RUN * 4 // 16) * 16 if spec.quantised else 0
    size = 1 if spec.quantised else DENSE[spec.element]
    return Staged(em.shared(_ring(spec, config).x), -(-spec.k * size // 128) * 128, blocks, config.tile)


def shared_bytes(spec: Gemv, config: GemvConfig | ColumnsConfig) -> int:
    """Bytes of dynamic shared memory of a kernel."""
    if isinstance(config, ColumnsConfig):
        return columns_bytes(config, spec.weights)
    if config.slots:
        blocks = -(-spec.k // RUN * 4 // 16) * 16 if spec.quantised else 0
        size = 1 if spec.quantised else DENSE[spec.element]
        row = -(-spec.k * size // 128) * 128
        return _ring(spec, config).x + config.tile * (row + 2 * blocks)
    return 4 * config.warps * config.rows * spec.weights * config.tile if config.split > 1 else 0


def _persistent(em: DeviceEmitter, name: str, spec: Gemv, config: GemvConfig) -> None:
    """A block for each multiprocessor; block b takes groups b, b + blocks, ... of rows."""
    ring = _ring(spec, config)
    groups = -(-spec.n // ring.rows)
    with em.kernel(name, _parameters(spec), 32 * (config.warps + 1)) as values:
        em.launch_dependents()
        task = _Task(em, spec, config, values)
        warp, lane = em.warp(), em.lane()
        memory = em.shared()

        def barrier(slot: Index, side: int) -> Value:
            return em.at(memory, em.iadd(em.imul(slot, 8), ring.barriers + 8 * config.slots * side), "i8")

        with em.loop(em.thread(), 2 * config.slots, 32 * (config.warps + 1), hint="slot") as loop:
            em.mbarrier_init(barrier(loop.iv, 0), 1)
        em.mbarrier_fence()
        em.barrier()
        with em.if_(em.cmpi("eq", warp, config.warps)) as role:
            if not spec.fixed:
                em.wait_dependencies()
            with em.if_(em.elect()), em.loop(em.block(), groups, em.blocks(), [em.const(0), em.const(1)]) as turn:
                slot, phase = turn.args
                em.mbarrier_wait(barrier(slot, 1), phase)
                _fill(em, spec, ring, task.w, em.at(memory, em.imul(slot, ring.slot), "i8"), barrier(slot, 0), turn.iv)
                turn.yield_(list(em.advance(slot, phase, config.slots)))
            role.else_()
            em.wait_dependencies()
            staged = _staged(em, spec, config)
            _stage(em, spec, config, task, staged)
            em.barrier(_BARRIER, 32 * config.warps)
            own, group = em.andi(lane, config.lanes - 1), em.shrui(lane, config.lanes.bit_length() - 1)
            x = Activations(em, task.x, spec.x_element, spec.k, [], spec.unit, own, staged)
            # Of the block's turns, each warp takes every `warps`-th, beginning with that of its number.
            begin = em.iadd(em.block(), em.imul(warp, em.blocks()))
            step = em.imul(em.blocks(), config.warps)
            with em.loop(begin, groups, step, [warp, em.const(0)]) as turn:
                slot, phase = turn.args
                em.mbarrier_wait(barrier(slot, 0), phase)
                base = em.at(memory, em.imul(slot, ring.slot), "i8")
                mine = em.imul(group, config.rows * ring.row_bytes)
                rows = [
                    [
                        Row(em.at(base, em.iadd(mine, (w * ring.rows + i) * ring.row_bytes), "i8"))
                        for w in range(spec.weights)
                    ]
                    for i in range(config.rows)
                ]
                sums = _Products(em, spec, config, rows, own, config.lanes).sums(x)
                em.warp_sync()
                with em.if_(em.cmpi("eq", lane, 0)):
                    em.mbarrier_arrive(barrier(slot, 1))
                first = em.iadd(ring.first(em, spec, turn.iv), em.imul(group, config.rows))
                task.finish(task.join(sums), first, own)
                following = em.addi(slot, config.warps)
                wraps = em.cmpi("uge", following, config.slots)
                following = em.select(wraps, em.subi(following, config.slots), following)
                turn.yield_([following, em.select(wraps, em.xori(phase, 1), phase)])


def _fill(
    em: DeviceEmitter, spec: Gemv, ring: _Ring, weights: Sequence[Value], slot: Value, full: Value, group: Value
) -> None:
    """Starts the copies of the rows of a group to a slot."""
    row, count = ring.first(em, spec, group), ring.rows * ring.row_bytes
    em.mbarrier_expect(full, ring.slot)
    for i, weight in enumerate(weights):
        source = em.at(weight, em.imul(em.wide(row), ring.row_bytes), "i8")
        em.bulk_load(em.at(slot, i * count, "i8"), source, count, full)


def _stage(em: DeviceEmitter, spec: Gemv, config: GemvConfig, task: _Task, staged: Staged) -> None:
    """Copies the tile of x to shared memory, 16 bytes a thread."""
    threads = 32 * config.warps
    size = 1 if spec.quantised else DENSE[spec.element]
    per_unit = spec.unit * size // 16

    def copy(source: Value, target: Value, nbytes: int, per_unit: int, width: int) -> None:
        """A row of `nbytes`, in chunks of `width` bytes."""
        type = {16: "vector<4xi32>", 8: "vector<2xi32>", 4: "i32"}[width]
        with em.loop(em.thread(), nbytes // width, threads, hint="chunk") as loop:
            value = em.ld(em.at(source, em.imul(loop.iv, width), "i8"), type, align=width)
            place = chunk_place(em, loop.iv, per_unit)
            em.st(value, em.at(target, em.imul(place, width), "i8"), align=width)

    blocks = spec.k // RUN * 4
    for m, row in enumerate(task.x_rows()):
        wide = em.wide(row)
        source = em.at(task.x[0], em.imul(wide, spec.k * size), "i8")
        copy(source, em.at(staged.base, m * staged.row, "i8"), spec.k * size, per_unit, 16)
        for part in range(2 if spec.quantised else 0):
            source = em.at(task.x[1 + part], em.imul(wide, blocks), "i8")
            first = staged.rows * staged.row + (part * staged.rows + m) * staged.blocks
            copy(source, em.at(staged.base, first, "i8"), blocks, 1, math.gcd(blocks, 16))


# ----------------------------------------------------------------------------------------------------------------------
# Kernels and launches
# ----------------------------------------------------------------------------------------------------------------------


def _columns(em: DeviceEmitter, name: str, spec: Gemv, config: ColumnsConfig) -> None:
    """Weights [K, N]."""
    with em.kernel(name, _parameters(spec), 32 * config.warps) as values:
        em.launch_dependents()
        em.wait_dependencies()
        task = _Task(em, spec, config, values)
        sizes = (spec.k, spec.n, spec.element, spec.program)
        emit_columns(
            em, ColumnsTask(*sizes, task.x[0], task.w, task.arguments, task.outputs, task.m, task.first), config
        )


Configs = Mapping[int, GemvConfig | ColumnsConfig]
"""For each tile, how threads share the work."""


def configurations(spec: Gemv, chip: str) -> Configs:
    """For each tile that the number of rows may need, how threads share the work."""
    chosen: dict[int, GemvConfig | ColumnsConfig] = {}
    for tile in tiles(spec.m):
        if spec.columns:
            chosen[tile] = choose_columns(spec.k, spec.n, spec.scheme, spec.weights, tile, chip)
            continue
        work = spec.work(tile)
        aligned = spec.quantised or spec.k * DENSE[spec.element] % 16 == 0
        chosen[tile] = (choose_persistent(work, chip) if aligned else None) or choose_portable(work, chip)
    return chosen


def emit_kernels(em: DeviceEmitter, spec: Gemv, configs: Configs) -> None:
    """The device's functions, one for each tile: `NAME_gemv<tile>`."""
    for tile, config in configs.items():
        name = f"{symbol_of(spec.name)}_gemv{tile}"
        if isinstance(config, ColumnsConfig):
            _columns(em, name, spec, config)
        elif config.slots:
            _persistent(em, name, spec, replace(config, tile=tile))
        else:
            _portable(em, name, spec, replace(config, tile=tile))


def launch(
    em: HostEmitter,
    spec: Gemv,
    configs: Configs,
    chip: str,
    operands: Sequence[Value],
    results: Sequence[Value],
) -> None:
    """The host's part: launches the kernel of the smallest tile that has room for all rows, or of the largest."""
    m: Index = 1
    for axis in range(len(spec.x_shape) - 1):
        m = em.imul(m, em.dim(operands[0], axis))

    def start(tile: int, config: GemvConfig | ColumnsConfig) -> None:
        if isinstance(config, ColumnsConfig):
            blocks, threads = -(-spec.n // config.width), 32 * config.warps
        elif config.slots:
            groups, threads = -(-spec.n // config.warp_rows), 32 * (config.warps + 1)
            blocks = min(groups, resources(chip).processors)
        else:
            blocks, threads = -(-spec.n // config.block_rows), 32 * config.warps
        arguments = [*operands, *results, *([em.i32(m)] if spec.m is None else [])]
        em.launch(
            f"{symbol_of(spec.name)}_gemv{tile}",
            [blocks, em.iceildiv(m, tile)],
            threads,
            arguments,
            shared=shared_bytes(spec, config),
            pdl=sm_version(chip) >= 90,
        )

    def choose(left: list[tuple[int, GemvConfig | ColumnsConfig]]) -> None:
        (tile, config), *rest = left
        if not rest:
            start(tile, config)
            return
        assert isinstance(m, Value)
        with em.if_(em.cmpi("ule", m, tile)) as branch:
            start(tile, config)
            branch.else_()
            choose(rest)

    choose(sorted(configs.items()))


def gemv(chip: str, spec: Gemv, configs: Configs | None = None) -> DeviceKernel:
    """The kernel of a product of few rows.

    Args:
        configs: a configuration for each tile; those of `configurations` where they aren't given.
    """
    chosen = configurations(spec, chip) if configs is None else configs
    device = DeviceEmitter(chip)
    emit_kernels(device, spec, chosen)

    def host(em: HostEmitter, operands: list[Value], results: list[Value], scratch: Scratch) -> None:
        launch(em, spec, chosen, chip, operands, results)

    return write_device_kernel(spec.name, "gemv", spec.operands, spec.results, device, host, order=spec.order)
