# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What is done to the rows of x before a product of few rows reads them, by every block again: it is little work.

An RMS norm, quantisation in blocks of 32 (`mir.block_quantize`), both, or neither. The threads of a block take 4
neighbouring elements at a time; the caller says where results go: to shared memory, or to global memory for products
that read that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rlx_mlir.codegen.gpu.emit import BITS, DeviceEmitter, Index, Value, vec
from rlx_mlir.codegen.gpu.epilogue import rsqrt_approx
from rlx_mlir.codegen.gpu.quantize import GROUP, QUAD, quantize_block

#: Loads of a thread that are under way together.
MOST_LOADS = 5


@dataclass(frozen=True)
class Prologue:
    """y = block_quantize(rms_norm(x, gamma)), or a part of it.

    Attributes:
        eps: of the norm; None where there is no norm.
        quantise: whether the result is q, scale and sum of blocks of 32.
    """

    eps: float | None = None
    quantise: bool = False

    @property
    def norm(self) -> bool:
        return self.eps is not None

    def __bool__(self) -> bool:
        return self.norm or self.quantise


IDENTITY_PROLOGUE = Prologue()
"""x as it is."""


@dataclass(frozen=True)
class Team:
    """Threads that work on a row together.

    Attributes:
        threads: how many, whole warps; the first of a block.
        memory: shared memory of 4 bytes for each warp.
        barrier: waits for all of them.
    """

    threads: int
    memory: Value
    barrier: Callable[[], None]


@dataclass(frozen=True)
class Sink:
    """Where a row goes.

    Attributes:
        elements: (quad, values) stores 4 elements of the row's type, or a word of 4 bytes where they are quantised.
        block: (block, scale, sum) stores what belongs to 32 elements; by one thread.
    """

    elements: Callable[[Index, Value], None]
    block: Callable[[Index, Value, Value], None]


def apply_prologue(
    em: DeviceEmitter, prologue: Prologue, team: Team, x: Value, gamma: Value | None, element: str, k: int, sink: Sink
) -> None:
    """One row of x [k], k a multiple of 32. The norm is in f32, and rounded to x's type, as one apart from it is."""
    row = _Row(em, team, element, k)
    turns = -(-row.quads // team.threads)
    batches = -(-turns // MOST_LOADS)
    batch = -(-turns // batches)
    loaded = [row.load(x, i) for i in range(batch)] if batches == 1 else []
    inverse: Value | None = None
    if prologue.eps is not None:
        total = em.zero("f32")
        if batches == 1:
            total = row.squares(total, loaded, range(batch))
        else:
            with em.loop(0, batches * batch, batch, total, hint="turn") as summed:
                here = [summed.iv + i for i in range(batch)]
                summed.yield_(row.squares(summed.carry, [row.load(x, turn) for turn in here], here))
            total = summed.result
        inverse = rsqrt_approx(em, em.fmaf(_team_sum(em, team, total), 1.0 / k, prologue.eps))

    def finish(values: Sequence[Value], here: Sequence[Index]) -> None:
        factors = [None if gamma is None else row.load(gamma, turn) for turn in here]
        for value, factor, turn in zip(values, factors, here, strict=True):
            made = value if inverse is None else row.scaled(value, inverse, factor)
            quad, exists = row.place(turn)
            if not prologue.quantise:
                with em.if_(exists):
                    sink.elements(quad, made)
                continue
            words, scale, total = quantize_block(em, [em.lanes(em.widen(made))])
            with em.if_(exists):
                sink.elements(quad, words[0])
                with em.if_(em.cmpi("eq", em.thread() & (GROUP - 1), 0)):
                    sink.block(quad // GROUP, scale, total)

    if batches == 1:
        finish(loaded, range(batch))
        return
    with em.loop(0, batches * batch, batch, hint="turn") as loop:
        here = [loop.iv + i for i in range(batch)]
        finish([row.load(x, turn) for turn in here], here)


class _Row:
    """The quads of a row, of which each thread takes one a turn.

    All threads do all turns: lanes that share a block exchange what they have. Beyond the end, the last is repeated.
    """

    def __init__(self, em: DeviceEmitter, team: Team, element: str, k: int) -> None:
        self.em, self.threads, self.element, self.quads = em, team.threads, element, k // QUAD

    def place(self, turn: Index) -> tuple[Value, Value]:
        """The thread's quad of a turn, and whether it exists."""
        em = self.em
        quad = em.index(em.thread() + turn * self.threads)
        return em.index(em.imin(quad, self.quads - 1)), em.cmpi("ult", quad, self.quads)

    def load(self, base: Value, turn: Index) -> Value:
        """The thread's elements of a turn."""
        em, size = self.em, QUAD * BITS[self.element] // 8
        return em.ld(base, vec(QUAD, self.element), self.place(turn)[0] * QUAD, align=size)

    def squares(self, total: Value, values: Sequence[Value], turns: Sequence[Index]) -> Value:
        """The total and the squares of elements that exist."""
        em = self.em
        for value, turn in zip(values, turns, strict=True):
            added = total
            for lane in em.lanes(em.widen(value)):
                added = em.fmaf(lane, lane, added)
            total = em.select(self.place(turn)[1], added, total)
        return total

    def scaled(self, value: Value, inverse: Value, gamma: Value | None) -> Value:
        """Elements times the norm's factor and their own, rounded to x's type."""
        em = self.em
        lanes = [lane * inverse for lane in em.lanes(em.widen(value))]
        if gamma is not None:
            factors = em.lanes(em.widen(gamma))
            lanes = [lane * factor for lane, factor in zip(lanes, factors, strict=True)]
        return em.narrow(em.vector(lanes), self.element)


def _team_sum(em: DeviceEmitter, team: Team, value: Value) -> Value:
    """The sum over all threads of the team, the same bits in each."""
    total = em.warp_reduce("add", value)
    team.barrier()
    with em.if_(em.cmpi("eq", em.lane(), 0)):
        em.st(total, team.memory, em.thread() >> 5)
    team.barrier()
    return em.tree("add", [em.ld(team.memory, "f32", i) for i in range(team.threads // 32)])
