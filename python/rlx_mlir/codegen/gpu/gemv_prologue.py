# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What is done to the rows of x before a product of few rows reads them, by every block again: it is little work.

An RMS norm, quantisation in blocks of 32 (`mir.block_quantize`), both, or neither. The threads of a block take 4
neighbouring elements at a time; the caller says where results go: to shared memory, or to global memory for products
that read that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rlx_mlir.codegen.gpu.emit import BITS, DeviceEmitter, Index, Value, vec
from rlx_mlir.codegen.gpu.epilogue import rsqrt_approx
from rlx_mlir.codegen.gpu.quantize import GROUP, QUAD, quantize_block

__all__ = ["IDENTITY_PROLOGUE", "Prologue", "Sink", "Team", "apply_prologue"]


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
    """One row of x [k], k a multiple of 32. The norm is in f32, and rounded to x's type, as a kernel of its own does."""
    quads, size = k // QUAD, BITS[element] // 8
    kind = vec(QUAD, element)
    thread = em.thread()

    def load(base: Value, quad: Index) -> Value:
        return em.ld(base, kind, em.imul(quad, QUAD), align=QUAD * size)

    inverse: Value | None = None
    if prologue.eps is not None:
        with em.loop(thread, quads, team.threads, [em.zero("f32")], hint="quad") as loop:
            total = loop.args[0]
            for value in em.lanes(em.widen(load(x, loop.iv))):
                total = em.fmaf(value, value, total)
            loop.yield_([total])
        warps = team.threads // 32
        total = em.warp_reduce("add", loop.results[0])
        team.barrier()
        with em.if_(em.cmpi("eq", em.lane(), 0)):
            em.st(total, team.memory, em.shrui(thread, 5))
        team.barrier()
        total = em.tree("add", [em.ld(team.memory, "f32", i) for i in range(warps)])
        inverse = rsqrt_approx(em, em.fmaf(total, 1.0 / k, prologue.eps))

    def values(quad: Index) -> Value:
        """The elements of a quad, rounded to x's type."""
        loaded = load(x, quad)
        if inverse is None:
            return loaded
        scaled = [em.mulf(value, inverse) for value in em.lanes(em.widen(loaded))]
        if gamma is not None:
            factors = em.lanes(em.widen(load(gamma, quad)))
            scaled = [em.mulf(value, factor) for value, factor in zip(scaled, factors, strict=True)]
        return em.narrow(em.vector(scaled), element)

    # Whole warps go round: lanes that share a block exchange what they have. Those beyond the end repeat the last.
    warp_first = em.andi(thread, -32)
    with em.loop(warp_first, quads, team.threads, hint="quad") as loop:
        quad = em.index(em.iadd(loop.iv, em.andi(thread, 31)))
        exists = em.cmpi("ult", quad, quads)
        here = em.imin(quad, quads - 1) if quads % 32 else quad
        if prologue.quantise:
            words, scale, total = quantize_block(em, [em.lanes(em.widen(values(here)))])
            with em.if_(exists):
                sink.elements(here, words[0])
                with em.if_(em.cmpi("eq", em.andi(thread, GROUP - 1), 0)):
                    sink.block(em.idiv(here, GROUP), scale, total)
        else:
            result = values(here)
            with em.if_(exists):
                sink.elements(here, result)
