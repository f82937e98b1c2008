# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Products of few rows by blocks that stay: a ring of rows of weights in shared memory (sm_90 on)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rlx_mlir.codegen.gpu.emit import DeviceEmitter, Index, Value
from rlx_mlir.codegen.gpu.gemv_config import GemvConfig
from rlx_mlir.codegen.gpu.gemv_core import Gemv, Products, Task, parameters_of
from rlx_mlir.codegen.gpu.gemv_prologue import Team
from rlx_mlir.codegen.gpu.gemv_rows import Activations, Row
from rlx_mlir.codegen.gpu.gemv_stage import stage, staged_bytes
from rlx_mlir.codegen.gpu.tma_ring import Slot, TmaRing

#: Number of the barrier of the warps that compute.
_BARRIER = 1


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
        row = group * self.rows
        return em.imin(row, spec.n - self.rows) if spec.n % self.rows else row


def _ring(spec: Gemv, config: GemvConfig) -> _Ring:
    return _Ring(config.slots, config.warp_rows, spec.row_bytes, spec.weights)


def persistent_bytes(spec: Gemv, config: GemvConfig) -> int:
    """Bytes of dynamic shared memory of a kernel: the ring, x, and what warps exchange for norms."""
    return _ring(spec, config).x + staged_bytes(spec, config.tile) + 4 * config.warps


def emit_persistent(em: DeviceEmitter, name: str, spec: Gemv, config: GemvConfig) -> None:
    """A block for each multiprocessor; block b takes groups b, b + blocks, ... of rows."""
    ring = _ring(spec, config)
    groups = -(-spec.n // ring.rows)
    with em.kernel(name, parameters_of(spec), 32 * (config.warps + 1)) as values:
        em.launch_dependents()
        task = Task(em, spec, config.tile, config.lanes, values)
        warp, lane = em.warp(), em.lane()
        memory = em.shared()
        slots = TmaRing(em, memory, config.slots, ring.barriers, ring.barriers + 8 * config.slots)
        with em.loop(em.thread(), 2 * config.slots, 32 * (config.warps + 1), hint="slot") as loop:
            em.mbarrier_init(slots.full(loop.iv), 1)  # those of empty slots follow
        em.mbarrier_fence()
        em.barrier()
        # Where a GPU has fewer multiprocessors than the grid was made for, blocks beyond them would start when others
        # end, with as many groups still to do: these have none.
        blocks = em.index(em.imin(em.blocks(), em.sreg("nsmid")))
        begin = em.select(em.cmpi("ult", em.block(), blocks), em.block(), groups)
        with em.if_(em.cmpi("eq", warp, config.warps)) as role:
            if not spec.fixed:
                em.wait_dependencies()
            with em.if_(em.elect()), em.loop(begin, groups, blocks, slots.first_to_fill()) as turn:
                slot = turn.carry.stage
                slots.wait_empty(turn.carry)
                _fill(em, spec, ring, task.w, em.at(memory, slot * ring.slot, "i8"), slots.full(slot), turn.iv)
                turn.yield_(slots.advance(turn.carry))
            role.else_()
            em.wait_dependencies()
            team = Team(
                32 * config.warps,
                em.shared(persistent_bytes(spec, config) - 4 * config.warps),
                lambda: em.barrier(_BARRIER, 32 * config.warps),
            )
            staged = stage(em, spec, task, team, _ring(spec, config).x)
            team.barrier()
            own, group = lane & (config.lanes - 1), lane >> (config.lanes.bit_length() - 1)
            x = Activations(em, task.x, spec.x_element, spec.k, [], spec.unit, own, staged)
            # Of the block's turns, each warp takes every `warps`-th, beginning with that of its number.
            first_turn, step = begin + warp * blocks, blocks * config.warps
            with em.loop(first_turn, groups, step, Slot(warp, em.const(0))) as turn:
                slot, phase = turn.carry
                slots.wait_full(turn.carry)
                base = em.at(memory, slot * ring.slot, "i8")
                mine = group * (config.rows * ring.row_bytes)
                rows = [
                    [Row(em.at(base, mine + (w * ring.rows + i) * ring.row_bytes, "i8")) for w in range(spec.weights)]
                    for i in range(config.rows)
                ]
                sums = Products(em, spec, config, rows, own, config.lanes).sums(x)
                em.warp_sync()
                slots.release(slot, em.cmpi("eq", lane, 0))
                first = ring.first(em, spec, turn.iv) + group * config.rows
                task.finish(task.join(sums), first, own)
                following = slot + config.warps
                wraps = em.cmpi("uge", following, config.slots)
                following = em.select(wraps, following - config.slots, following)
                turn.yield_(Slot(following, em.select(wraps, phase ^ 1, phase)))


def _fill(
    em: DeviceEmitter, spec: Gemv, ring: _Ring, weights: Sequence[Value], slot: Value, full: Value, group: Value
) -> None:
    """Starts the copies of the rows of a group to a slot."""
    row, count = ring.first(em, spec, group), ring.rows * ring.row_bytes
    em.mbarrier_expect(full, ring.slot)
    for i, weight in enumerate(weights):
        source = em.at(weight, em.wide(row) * ring.row_bytes, "i8")
        em.bulk_load(em.at(slot, i * count, "i8"), source, count, full)
