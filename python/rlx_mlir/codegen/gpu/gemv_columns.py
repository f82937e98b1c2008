# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Products of few rows with dense weights [K, N]: neighbouring lanes read neighbouring columns.

A block has some columns; its threads share K: each lane adds up its columns over the rows of the weight that are its
own. Sums are joined by shuffles within warps and in shared memory between them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from rlx_mlir.codegen.gpu.emit import BITS, DeviceEmitter, Index, Value, vec
from rlx_mlir.codegen.gpu.gemm_config import resources
from rlx_mlir.codegen.gpu.gemv_core import Gemv, Task, parameters_of
from rlx_mlir.codegen.structures import mapped

#: Sums that a thread holds at most.
MAX_SUMS = 64
#: Shared memory that a block may have without asking for more than chips have by default.
MEMORY = 48 << 10


@dataclass(frozen=True)
class ColumnsConfig:
    """How a block shares its columns.

    Attributes:
        tile: rows of x that are worked on at one time.
        columns: columns of a lane, at most 16 bytes of them.
        lanes: lanes of a warp that have different columns; the others have other rows of the weight.
        unroll: rows of the weight that a lane loads before it computes.
        warps: warps of a block.
    """

    tile: int
    columns: int
    lanes: int
    unroll: int
    warps: int

    @property
    def width(self) -> int:
        """Columns of a block."""
        return self.columns * self.lanes

    @property
    def rows(self) -> int:
        """Rows of the weight that a block reads at one time."""
        return 32 // self.lanes * self.warps


def choose_columns(k: int, n: int, element: str, weights: int, tile: int, chip: str) -> ColumnsConfig:
    """Wide enough for whole sectors, narrow enough that there are blocks for all multiprocessors."""
    size = BITS[element] // 8
    columns = math.gcd(n, 16 // size)
    while columns > 1 and columns * tile * weights > MAX_SUMS:
        columns //= 2
    lanes = 32
    while lanes > 2 and (lanes * columns * size > 128 or -(-n // (lanes * columns)) < resources(chip).processors):
        if lanes * columns * size <= 32:
            break
        lanes //= 2
    warps = 16 if columns * tile * weights <= 32 else 8  # registers
    while warps > 1 and (32 // lanes * warps > k or _bytes(warps, weights, tile, lanes * columns) > MEMORY):
        warps //= 2
    unroll = 4 if columns * tile * weights <= 32 else 2
    return ColumnsConfig(tile, columns, lanes, max(1, min(unroll, k // (32 // lanes * warps))), warps)


def splits_of(config: ColumnsConfig, k: int, weights: int) -> list[int]:
    """Numbers of warps that may share K in place of the rule's."""
    most = 16 if config.columns * config.tile * weights <= 32 else 8
    return [
        warps
        for warps in (1, 2, 4, 8, 16)
        if warps <= most
        and (warps == 1 or 32 // config.lanes * warps <= k)
        and _bytes(warps, weights, config.tile, config.width) <= MEMORY
    ]


def _bytes(warps: int, weights: int, tile: int, width: int) -> int:
    return 4 * warps * weights * tile * width


def columns_bytes(config: ColumnsConfig, weights: int) -> int:
    """Bytes of dynamic shared memory."""
    return _bytes(config.warps, weights, config.tile, config.width)


def emit_columns(em: DeviceEmitter, name: str, spec: Gemv, config: ColumnsConfig) -> None:
    """The kernel; block b has columns from `b * config.width` on."""
    with em.kernel(name, parameters_of(spec), 32 * config.warps, chained=True) as values:
        task = Task(em, spec, config.tile, config.lanes, values)
        lane, warp = em.lane(), em.warp()
        own = lane & (config.lanes - 1)
        line = warp * (32 // config.lanes) + (lane >> (config.lanes.bit_length() - 1))
        begin = em.block() * config.width
        sums = _sums(task, config, line, begin + own * config.columns)
        joined = mapped(lambda x: em.warp_reduce("add", x, 32 // config.lanes, stride=config.lanes), sums)
        _finish(task, config, joined, (own, lane, warp), begin)


def _sums(task: Task, config: ColumnsConfig, line: Value, column: Index) -> list[list[list[Value]]]:
    """Of each weight and row of x, the sums of a lane's columns over its rows of the weight, from `line` on."""
    em, spec = task.em, task.spec
    # Columns that don't exist are the last ones; they aren't stored.
    column = em.imin(column, spec.n - config.columns) if spec.n % config.width else column
    size = BITS[spec.element] // 8
    x = [
        em.at(em.at(task.x[0], em.wide(row) * spec.k, spec.element), em.wide(line), spec.element)
        for row in task.x_rows()
    ]
    start = em.wide(line) * spec.n + em.wide(column)
    w = [em.at(one, start, spec.element) for one in task.w]
    kind = spec.element if config.columns == 1 else vec(config.columns, spec.element)

    def step(offsets: Sequence[Index], sums: list[list[list[Value]]]) -> list[list[list[Value]]]:
        """Adds rows of the weight: the lane's own, plus these offsets."""
        values = [list(own) for own in sums]
        loaded = [
            [em.ld(one, kind, _times(em, offset, spec.n), align=config.columns * size) for one in w]
            for offset in offsets
        ]
        for offset, weights in zip(offsets, loaded, strict=True):
            activations = [em.widen(em.ld(row, spec.element, offset)) for row in x]
            for weight, own in zip(weights, values, strict=True):
                elements = em.floats(weight)
                for row, activation in enumerate(activations):
                    own[row] = [em.fmaf(activation, x, total) for x, total in zip(elements, own[row], strict=True)]
        return values

    sums = [[[em.zero("f32")] * config.columns] * config.tile] * len(w)
    full, rest = divmod(spec.k, config.rows)
    turns = full // config.unroll
    if turns:
        stride = config.unroll * config.rows
        with em.loop(0, turns * stride, stride, sums, hint="row") as loop:
            offsets = [loop.iv + i * config.rows for i in range(config.unroll)]
            loop.yield_(step(offsets, loop.carry))
        sums = loop.result
    if left := range(turns * config.unroll, full):
        sums = step([i * config.rows for i in left], sums)
    if rest:
        with em.if_(em.cmpi("ult", line, rest), sums) as branch:
            branch.yield_(step([full * config.rows], sums))
            branch.else_()
            branch.yield_(sums)
        sums = branch.result
    return sums


def _times(em: DeviceEmitter, offset: Index, n: int) -> Index:
    """The number of the first element of a row, i64 where it isn't a number."""
    return offset * n if isinstance(offset, int) else em.wide(offset) * n


def _finish(
    task: Task, config: ColumnsConfig, sums: list[list[list[Value]]], thread: tuple[Value, Value, Value], begin: Index
) -> None:
    """Joins the warps' sums, [warp][weight][row of x][column] in shared memory, and runs the program.

    thread: its number among those with other columns, in the warp, and the warp's.
    """
    em, spec, (own, lane, warp) = task.em, task.spec, thread
    memory, weights, width = em.shared(), len(task.w), config.width
    with em.if_(em.cmpi("ult", lane, config.lanes)):
        for part, values in enumerate(itertools.chain(*sums)):
            place = warp * (weights * config.tile * width) + part * width
            place = place + own * config.columns
            for i, value in enumerate(values):
                em.st(value, memory, place + i)
    em.barrier()
    # Lanes beyond the end have repeated the last columns: these are stored where they belong, by their own lanes.
    with em.loop(em.thread(), config.tile * width, 32 * config.warps, hint="output") as loop:
        row, local = task.first + loop.iv // width, loop.iv % width
        column = begin + local
        with em.if_(task.exists(em.cmpi("ult", column, spec.n), row)):
            products = []
            for weight in range(weights):
                parts = [
                    em.ld(memory, "f32", loop.iv + (part * weights + weight) * config.tile * width)
                    for part in range(config.warps)
                ]
                products.append([em.tree("add", parts)])
            task.epilogue.store(products, row, column)
