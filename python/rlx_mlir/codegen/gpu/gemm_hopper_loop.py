# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Matrix products by wgmma (sm_90a): loads and products of the kernel.

One warpgroup loads, one or two multiply. A single thread of the loading group fills a ring of stages by TMA: a stage is
128 bytes of K of both operands, in the layout of 128-byte swizzling that wgmma reads. Two barriers for each stage say
that it is full, and that it may be filled again. Blocks stay for several tiles, so loads of the next tile run while
outputs of the last one are stored; tiles are numbered so that the blocks of a wave share operands in L2.

Of floats of 8 bits, wgmma adds products with fewer bits than f32 has. Unless that is enough (`promote`), the sums of
each stage begin at zero, and are added up in f32 by other instructions.

What TMA reads beyond a tensor are zeros, and what it stores there is left out: rows, columns and K of any number need
no other code.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from rlx_mlir.codegen.gpu.emit import DeviceEmitter, Index, Value, struct_of
from rlx_mlir.codegen.gpu.gemm_hopper_config import STEP_BYTES, Choice, Layout, Tile
from rlx_mlir.codegen.gpu.tma_ring import Slot, TmaRing
from rlx_mlir.codegen.structures import mapped

_PRODUCER_REGISTERS, _CONSUMER_REGISTERS = 24, 240
"""Registers of a thread that loads, and of one that multiplies, with two consumers: 65,536 in all."""


@dataclass(frozen=True)
class Operands:
    """What the kernel has to know of a product.

    Attributes:
        kinds: what wgmma calls the types of x and of the weights: f16 or bf16 both, or each e4m3 or e5m2.
        products: weights that share x.
        n_major: whether weights are stored [K, N].
        batched: whether weights have batches, as x has.
        outputs: of the program; none where parts of K go to memory.
        constant: whether nothing writes the weights while kernels run, so that they may be read ahead of the kernels
            before.
        promote: whether the sums of a stage are added up in f32 by other instructions.
    """

    kinds: tuple[str, str]
    products: int = 1
    n_major: bool = False
    batched: bool = False
    outputs: int = 1
    constant: bool = False
    promote: bool = False

    @property
    def k_step(self) -> int:
        """Elements of K in one stage."""
        return STEP_BYTES if self.kinds[0] in ("e4m3", "e5m2") else STEP_BYTES // 2


@dataclass(frozen=True)
class TilePlace:
    """The tile at hand: first row of the left operand, first column of the right one, batch, part of K."""

    left: Value
    right: Value
    batch: Index | None
    part: Index | None
    steps: tuple[Index, Index]


Accumulators = Sequence[Sequence[Sequence[Value]]]


class Finisher(Protocol):
    """What turns accumulators into outputs."""

    def finish(self, place: TilePlace, accumulators: Accumulators, consumer: Value, thread: Value) -> None:
        """Outputs of one tile: accumulators are f32, [block][product][register]; `thread` counts in the warpgroup."""

    def close(self, thread: Value) -> None:
        """Comes after the last tile."""


class Mainloop:
    """Emits loads and products of one kernel; the caller turns accumulators into outputs."""

    def __init__(self, em: DeviceEmitter, operands: Operands, choice: Choice, values: dict[str, Value]) -> None:
        self.em, self.operands, self.choice = em, operands, choice
        self.tile: Tile = choice.tile
        self.layout = Layout(self.tile, operands.products, operands.n_major, operands.outputs)
        self.values = values
        self.type = struct_of(["f32"] * (self.tile.columns // 2))
        self.shared = em.shared()
        barriers, stages = em.at(self.shared, self.layout.barriers_at, "i8"), self.layout.stages
        self.ring = TmaRing(em, barriers, stages, 0, 8 * stages)

    def start(self, thread: Value) -> None:
        """Initialises the barriers; all threads of the block come here."""
        em = self.em
        with em.if_(em.cmpi("eq", thread, 0)):
            for stage in range(self.layout.stages):
                em.mbarrier_init(self.ring.full(stage), 1)
                em.mbarrier_init(self.ring.empty(stage), self.tile.consumers)
            em.mbarrier_fence()
            for name in self.maps():
                em.tma_prefetch(self.values[name])
        em.barrier()
        em.launch_dependents()

    def maps(self) -> list[str]:
        """The tensor maps of the operands."""
        return [f"left{i}" for i in range(self.layout.lefts)] + [f"right{i}" for i in range(self.layout.rights)]

    # -- tiles --------------------------------------------------------------------------------------------------------

    def total(self) -> Value:
        """The number of tiles."""
        total = self.values["left_tiles"] * self.values["right_tiles"]
        if self.operands.batched:
            total = total * self.values["batches"]
        return total * self.choice.splits if self.choice.splits > 1 else total

    def span(self) -> tuple[Value, Value, Value]:
        """The tiles of the block: the first one, their number, and the distance of two.

        Each multiprocessor has room for one block: where a GPU has fewer of them than the grid was made for, blocks
        beyond them would start when others end, with as many tiles still to do.
        """
        em = self.em
        block, total = em.block(), self.total()
        blocks = em.index(em.imin(em.blocks(), em.sreg("nsmid")))
        return em.select(em.cmpi("ult", block, blocks), block, total), total, blocks

    def place(self, number: Index) -> TilePlace:
        """Where tile `number` is: `group` tiles of rows go along all columns together."""
        em, tile, splits = self.em, self.tile, self.choice.splits
        left_tiles, right_tiles = self.values["left_tiles"], self.values["right_tiles"]
        part: Index | None = None
        batch: Index | None = None
        if splits > 1:
            part = number % splits
            number = number // splits
        if self.operands.batched:
            each = left_tiles * right_tiles
            batch = number // each
            number = number % each
        if tile.group == 1:
            left = number // right_tiles
            right = number % right_tiles
        else:
            swept = right_tiles * tile.group
            first = number // swept * tile.group
            rest = number % swept
            height = em.imin(left_tiles - first, tile.group)
            left = first + rest % height
            right = rest // height
        return TilePlace(left * tile.rows, right * tile.columns, batch, part, self._steps(part))

    def _steps(self, part: Index | None) -> tuple[Index, Index]:
        """The steps along K of a part: each part has at least one."""
        steps, splits = self.values["steps"], self.choice.splits
        if part is None:
            return 0, steps
        bounds = [index * steps for index in (part, part + 1)]
        first, end = (bound // splits for bound in bounds)
        return first, end

    # -- loads --------------------------------------------------------------------------------------------------------

    def produce(self) -> None:
        """The loading thread: fills the ring for all tiles of the block."""
        em, ring = self.em, self.ring
        block, total, blocks = self.span()
        skip: Value = em.const(0)
        slot = ring.first_to_fill()
        if self.operands.constant:
            # Weights of the first stages don't wait for the kernels before.
            place = self.place(block)
            count = em.imin(place.steps[1] - place.steps[0], ring.stages)
            skip = em.select(em.cmpi("ult", block, total), count, 0)
            with em.loop(0, skip) as loop:
                em.mbarrier_expect(self.ring.full(loop.iv), self.layout.stage_bytes)
                self._load(place, loop.iv, place.steps[0] + loop.iv, weights=True, activations=False)
            em.wait_dependencies()
            with em.loop(0, skip) as loop:
                self._load(place, loop.iv, place.steps[0] + loop.iv, weights=False, activations=True)
            wraps = em.cmpi("eq", skip, ring.stages)
            slot = Slot(em.select(wraps, 0, skip), em.select(wraps, 0, slot.phase))
        else:
            em.wait_dependencies()
        with em.loop(block, total, blocks, (slot, skip), hint="tile") as tiles:
            place = self.place(tiles.iv)
            slot, skip = tiles.carry
            with em.loop(place.steps[0] + skip, place.steps[1], 1, slot, hint="k") as filled:
                stage = filled.carry.stage
                ring.wait_empty(filled.carry)
                em.mbarrier_expect(ring.full(stage), self.layout.stage_bytes)
                self._load(place, stage, filled.iv, weights=True, activations=True)
                filled.yield_(ring.advance(filled.carry))
            tiles.yield_((filled.result, em.const(0)))

    def _load(self, place: TilePlace, stage: Value, step: Index, *, weights: bool, activations: bool) -> None:
        """Starts the loads of a stage: of the weights, of x, or of both."""
        em, layout, swapped = self.em, self.layout, self.tile.swapped
        base = em.at(self.shared, stage * layout.stage_bytes, "i8")
        k = step * self.operands.k_step
        barrier = self.ring.full(stage)
        for i in range(layout.lefts):
            if weights if swapped else activations:
                target = em.at(base, i * layout.left_bytes, "i8")
                self._operand(target, f"left{i}", place.left, self.tile.rows, k, place, barrier, weight=swapped)
        for i in range(layout.rights):
            if activations if swapped else weights:
                target = em.at(base, layout.lefts * layout.left_bytes + i * layout.right_bytes, "i8")
                width = self.tile.columns
                self._operand(target, f"right{i}", place.right, width, k, place, barrier, weight=not swapped)

    def _operand(
        self,
        target: Value,
        name: str,
        first: Value,
        extent: int,
        k: Index,
        place: TilePlace,
        barrier: Value,
        *,
        weight: bool,
    ) -> None:
        em = self.em
        outer: list[Index] = []
        if place.batch is not None:
            side = "weight" if weight else "x"
            inner, count = self.values[f"{side}_inner"], self.values[f"{side}_count"]
            outer = [place.batch // inner % count]
        if not (weight and self.operands.n_major):
            em.tma_load(target, self.values[name], [k, first, *outer], barrier)
            return
        span = self.layout.span
        for box in range(2 * extent // span):
            at = em.at(target, box * self.operands.k_step * span, "i8")
            em.tma_load(at, self.values[name], [first + span // 2 * box, k, *outer], barrier)

    # -- products -----------------------------------------------------------------------------------------------------

    def _descriptors(self, stage: Value, consumer: Value) -> tuple[list[list[Value]], list[Value], int, int]:
        """Descriptors of the left operands [block][product] and the right ones, and their strides for 32 bytes of K."""
        em, layout, tile = self.em, self.layout, self.tile
        base = self.address + stage * layout.stage_bytes
        left_major, right_major = (self.operands.n_major and tile.swapped, self.operands.n_major and not tile.swapped)
        rows = base + consumer * (tile.blocks * 64 * STEP_BYTES)

        span = self.layout.span

        def descriptor(address: Value, *, major: bool) -> Value:
            # Along K 8 rows of 128 bytes are a swizzled block; along N 8 of `span` bytes, in boxes of a step's rows.
            if major:
                return em.wgmma_descriptor(address, self.operands.k_step * span, 8 * span, span)
            return em.wgmma_descriptor(address, 16, 8 * STEP_BYTES)

        lefts = [
            [
                descriptor(rows + (i * layout.left_bytes + block * 64 * STEP_BYTES), major=left_major)
                for i in range(layout.lefts)
            ]
            for block in range(tile.blocks)
        ]
        columns = base + layout.lefts * layout.left_bytes
        rights = [descriptor(columns + i * layout.right_bytes, major=right_major) for i in range(layout.rights)]
        return lefts, rights, span if left_major else 2, span if right_major else 2

    def _multiply(
        self, accumulators: list[list[Value]], stage: Value, consumer: Value, *, first: bool = False
    ) -> list[list[Value]]:
        """Starts the products of one stage; accumulators are [block][product], whose values `first` leaves out."""
        em, tile = self.em, self.tile
        lefts, rights, left_stride, right_stride = self._descriptors(stage, consumer)
        major = self.operands.n_major
        layouts = ("col" if major and tile.swapped else "row", "row" if major and not tile.swapped else "col")
        em.wgmma_fence()
        x, weight = self.operands.kinds
        kinds = (weight, x) if tile.swapped else (x, weight)
        for k in range(STEP_BYTES // 32):

            def product(block: int, i: int, total: Value, k: int = k) -> Value:
                left, right = lefts[block][i if tile.swapped else 0], rights[0 if tile.swapped else i]
                return em.wgmma(
                    kinds[0],
                    tile.columns,
                    left + k * left_stride if k else left,
                    right + k * right_stride if k else right,
                    total,
                    first=first and k == 0,
                    right=kinds[1],
                    layouts=layouts,
                )

            accumulators = [
                [product(block, i, total) for i, total in enumerate(own)] for block, own in enumerate(accumulators)
            ]
        em.wgmma_commit()
        return accumulators

    def _registers(self, accumulators: list[list[Value]]) -> list[list[list[Value]]]:
        """The accumulators' registers, by block and product, when all products are done.

        They pass through the wait, so that no code that reads them moves before it.
        """
        em, each = self.em, self.tile.columns // 2
        fields = [[em.fields(part, ["f32"] * each) for part in own] for own in accumulators]
        return em.wgmma_wait_tied(0, fields)

    def consume(self, group: Value, finisher: Finisher) -> None:
        """A multiplying warpgroup."""
        em = self.em
        consumer = group - 1
        thread = em.thread() & 127
        leader = em.cmpi("eq", thread, 0)
        self.address = em.address(self.shared)
        zero = em.op(f"llvm.mlir.zero : {self.type}", self.type)
        zeros = [[zero] * self.operands.products] * self.tile.blocks
        em.wait_dependencies()
        with em.loop(*self.span(), Slot(em.const(0), em.const(0)), hint="tile") as tiles:
            place = self.place(tiles.iv)
            summed = self._promoted if self.operands.promote else self._summed
            registers, slot = summed(place, zeros, tiles.carry, consumer, leader)
            finisher.finish(place, registers, consumer, thread)
            tiles.yield_(slot)
        finisher.close(thread)

    def _summed(
        self, place: TilePlace, zeros: list[list[Value]], slot: Slot, consumer: Value, leader: Value
    ) -> tuple[list[list[list[Value]]], Slot]:
        """The sums of a tile in their registers, and the next stage: wgmma adds up all of them."""
        em = self.em
        self.ring.wait_full(slot)
        accumulators = self._multiply(zeros, slot.stage, consumer)
        carried = accumulators, self.ring.advance(slot), slot.stage
        with em.loop(place.steps[0] + 1, place.steps[1], 1, carried, hint="k") as loop:
            accumulators, slot, before = loop.carry
            self.ring.wait_full(slot)
            accumulators = self._multiply(accumulators, slot.stage, consumer)
            # The products before these are done, and the stage that they read is free.
            em.wgmma_wait(1)
            self.ring.release(before, leader)
            loop.yield_((accumulators, self.ring.advance(slot), slot.stage))
        accumulators, slot, before = loop.result
        registers = self._registers(accumulators)
        self.ring.release(before, leader)
        return registers, slot

    def _promoted(
        self, place: TilePlace, zeros: list[list[Value]], slot: Slot, consumer: Value, leader: Value
    ) -> tuple[list[list[list[Value]]], Slot]:
        """As `_summed`, but wgmma adds up those of a stage. While one consumer adds these, the other multiplies."""
        em, each = self.em, self.tile.columns // 2
        sums = [[[em.const(0.0, "f32")] * each for _ in own] for own in zeros]
        # The registers of a stage's sums are those of the stage before: nothing has to clear them.
        with em.loop(*place.steps, 1, (sums, zeros, slot), hint="k") as loop:
            sums, accumulators, slot = loop.carry
            self.ring.wait_full(slot)
            registers = self._registers(self._multiply(accumulators, slot.stage, consumer, first=True))
            self.ring.release(slot.stage, leader)
            sums = mapped(operator.add, sums, registers)
            structs = [[em.struct(part) for part in own] for own in registers]
            loop.yield_((sums, structs, self.ring.advance(slot)))
        sums, _, slot = loop.result
        return sums, slot


def warp_specialised(main: Mainloop, finisher: Finisher) -> None:
    """The body of a kernel: the first warpgroup loads, the others multiply."""
    em = main.em
    thread = em.thread()
    group = em.uniform(thread >> 7)
    main.start(thread)
    several = main.tile.consumers > 1
    with em.if_(em.cmpi("eq", group, 0)) as branch:
        if several:
            em.max_registers("decrease", _PRODUCER_REGISTERS)
        with em.if_(em.cmpi("eq", thread >> 5, 0)), em.if_(em.elect()):
            main.produce()
        branch.else_()
        if several:
            em.max_registers("increase", _CONSUMER_REGISTERS)
        main.consume(group, finisher)
