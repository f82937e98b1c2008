# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Where rows of x lie in shared memory or scratch memory for products of few rows, and how they get there."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rlx_mlir.codegen.gpu.emit import BITS, DeviceEmitter, Index, Value, pointer
from rlx_mlir.codegen.gpu.gemv_core import Gemv, Task
from rlx_mlir.codegen.gpu.gemv_prologue import MOST_LOADS, Sink, Team, apply_prologue
from rlx_mlir.codegen.gpu.gemv_rows import Staged, chunk_place
from rlx_mlir.codegen.gpu.quantize import QUAD
from rlx_mlir.formats.descriptions import RUN

#: Threads of a block that prepares a row of x in global memory.
PROLOGUE_THREADS = 256


def _row_bytes(spec: Gemv) -> tuple[int, int]:
    """Bytes of a row of elements, and of a row of scales, or of sums, in shared memory."""
    blocks = -(-spec.k // RUN * 4 // 16) * 16 if spec.quantised else 0
    return -(-spec.k * BITS[spec.x_element] // 8 // 128) * 128, blocks


def staged_bytes(spec: Gemv, tile: int) -> int:
    """Bytes of shared memory that the rows of a tile take."""
    row, blocks = _row_bytes(spec)
    return tile * (row + 2 * blocks)


def stage(em: DeviceEmitter, spec: Gemv, task: Task, team: Team, first: int) -> Staged:
    """Brings the tile's rows of x to shared memory, from byte `first` on, by the team; a barrier has to follow."""
    row, blocks = _row_bytes(spec)
    staged = Staged(em.shared(first), row, blocks, task.tile)
    for m, number in enumerate(task.x_rows()):
        wide = em.wide(number)
        if spec.prologue:
            source = em.at(task.x[0], wide * spec.k, spec.element)
            gamma = task.x[1] if spec.prologue.norm else None
            apply_prologue(
                em, spec.prologue, team, source, gamma, spec.element, spec.k, _shared_sink(em, spec, staged, m)
            )
        else:
            _copy_row(em, spec, task, team, staged, m, wide)
    return staged


def _shared_sink(em: DeviceEmitter, spec: Gemv, staged: Staged, m: int) -> Sink:
    """Where row m of the tile goes in shared memory."""
    size = QUAD * BITS[spec.x_element] // 8
    per_chunk, per_unit = 16 // size, spec.unit * BITS[spec.x_element] // 8 // 16
    base = em.at(staged.base, m * staged.row, "i8")
    scales = staged.rows * staged.row + m * staged.blocks
    sums = scales + staged.rows * staged.blocks

    def elements(quad: Index, value: Value) -> None:
        place = chunk_place(em, quad // per_chunk, per_unit) * 16
        place = place + quad % per_chunk * size
        em.st(value, em.at(base, place, "i8"), align=size)

    def block(number: Index, scale: Value, total: Value) -> None:
        em.st(scale, em.at(staged.base, number * 4 + scales, "i8"))
        em.st(total, em.at(staged.base, number * 4 + sums, "i8"))

    return Sink(elements, block)


def _copy_row(em: DeviceEmitter, spec: Gemv, task: Task, team: Team, staged: Staged, m: int, row: Value) -> None:
    """Copies a row of x as it is, 16 bytes a thread."""
    size = BITS[spec.x_element] // 8

    def copy(source: Value, target: Value, nbytes: int, per_unit: int, width: int) -> None:
        """A row of `nbytes`, in chunks of `width` bytes; several of a thread are under way together."""
        type = {16: "vector<4xi32>", 8: "vector<2xi32>", 4: "i32"}[width]
        full, rest = divmod(nbytes // width, team.threads)

        def move(numbers: Sequence[Index]) -> None:
            values = [em.ld(em.at(source, number * width, "i8"), type, align=width) for number in numbers]
            for number, value in zip(numbers, values, strict=True):
                place = chunk_place(em, number, per_unit) * width
                em.st(value, em.at(target, place, "i8"), align=width)

        chunks = [em.thread() + turn * team.threads for turn in range(full)]
        for begin in range(0, full, MOST_LOADS):
            move(chunks[begin : begin + MOST_LOADS])
        if rest:
            with em.if_(em.cmpi("ult", em.thread(), rest)):
                move([em.thread() + full * team.threads])

    source = em.at(task.x[0], row * (spec.k * size), "i8")
    copy(source, em.at(staged.base, m * staged.row, "i8"), spec.k * size, spec.unit * size // 16, 16)
    blocks = spec.k // RUN * 4
    for part in range(2 if spec.quantised else 0):
        source = em.at(task.x[1 + part], row * blocks, "i8")
        first = staged.rows * staged.row + (part * staged.rows + m) * staged.blocks
        copy(source, em.at(staged.base, first, "i8"), blocks, 1, math.gcd(blocks, 16))


def emit_prologue(em: DeviceEmitter, name: str, spec: Gemv) -> None:
    """A kernel that applies the prologue alone, a block for each row of x: for forms that read x in global memory.

    Its parameters are x, gamma where there is a norm, and q, scale and sum, or y.
    """
    norm, quantise = spec.prologue.norm, spec.prologue.quantise
    results = ("q", "scale", "sum") if quantise else ("y",)
    parameters = [pointer(key, readonly=True) for key in ("x", "gamma")[: spec.inputs]]
    with em.kernel(name, [*parameters, *map(pointer, results)], PROLOGUE_THREADS, chained=True) as values:
        x, gamma, outputs = values[0], values[1] if norm else None, values[spec.inputs :]
        row = em.wide(em.block())
        source, first = em.at(x, row * spec.k, spec.element), row * spec.k
        blocks = row * (spec.k // RUN)

        def elements(quad: Index, value: Value) -> None:
            em.st(value, em.at(em.at(outputs[0], first, spec.x_element), quad * QUAD, spec.x_element))

        def block(number: Index, scale: Value, total: Value) -> None:
            place = blocks + em.wide(number)
            em.st(scale, outputs[1], place)
            em.st(total, outputs[2], place)

        team = Team(PROLOGUE_THREADS, em.shared(), em.barrier)
        apply_prologue(em, spec.prologue, team, source, gamma, spec.element, spec.k, Sink(elements, block))
