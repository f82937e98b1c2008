# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The schedule for what moves whole runs of elements: parts, joins, repetitions, transposes that keep the last axis.

Each input is a copy of its own, as `codegen/moves.py` says. All copies are one launch, in which the second number of a
block says which. A thread moves one vector, of 16 bytes where sizes and distances are whole ones; where they are known
only at the call, the host chooses between that and single elements.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext

from rlx_mlir.codegen import UnsupportedByTemplate
from rlx_mlir.codegen.emit import Index, Value, element_of, vec
from rlx_mlir.codegen.gpu.emit import BITS, DeviceEmitter
from rlx_mlir.codegen.gpu.kernel import Constants, DeviceKernel, HostEmitter, write_sized_kernel
from rlx_mlir.codegen.moves import Copy, copies_of, moves_last, places_of, product
from rlx_mlir.codegen.specs import MoveSpec

THREADS = 256
#: Inputs of one launch.
MOST_INPUTS = 16
_WORDS = {1: "i8", 2: "i16", 4: "i32", 8: "i64"}


def emit_copies(name: str, spec: MoveSpec, chip: str, constants: Constants = frozenset()) -> DeviceKernel:
    """The kernel of a `MoveSpec`.

    Raises UnsupportedByTemplate for transposes that move the last axis, and for many inputs.
    """
    element = element_of(spec.result)
    if element not in BITS:
        raise UnsupportedByTemplate(f"{name}: elements of {element} have no schedule")
    if len(spec.inputs) > MOST_INPUTS:
        raise UnsupportedByTemplate(f"{name}: expects at most {MOST_INPUTS} inputs, but there are {len(spec.inputs)}")
    if spec.op == "transpose" and moves_last(spec):
        raise UnsupportedByTemplate(f"{name}: elements that are neighbours are so no more")
    operands = [(f"arg{i}", type) for i, type in enumerate(spec.inputs)]
    em = DeviceEmitter(chip)

    def body(buffers: list[Value], copies: list[Copy], lanes: int) -> None:
        *sources, target = buffers
        for i, (copy, source) in enumerate(zip(copies, sources, strict=True)):
            with nullcontext() if len(copies) == 1 else em.if_(em.cmpi("eq", em.block("y"), i)):
                _move(em, copy, source, target, element, lanes)

    def grid(host: HostEmitter, copies: list[Copy], lanes: int) -> list[Index]:
        largest, *counts = [product([axis.size for axis in copy.axes]) // lanes for copy in copies]
        for count in counts:
            largest = host.imax(largest, count)
        return [host.iceildiv(largest, THREADS), len(copies)]

    return write_sized_kernel(
        em,
        name,
        "copies",
        operands,
        [("out", spec.result)],
        lambda host, buffers: copies_of(host, spec, buffers[:-1]),
        body,
        grid,
        threads=THREADS,
        symbol="copy",
        widths=lambda copies: _vectors(copies, element),
        divisors=lambda copies: [own for copy in copies for own in copy.divisors()],
        constants=constants,
        order=spec.order,
    )


@contextmanager
def own_vector(em: DeviceEmitter, sizes: Sequence[Index], lanes: int) -> Iterator[tuple[Value, Value, Iterator[Index]]]:
    """The thread's vector along the last of some axes, where it exists: its number, its first element along that axis,
    and its places along the others, of which the innermost comes first."""
    number = em.wide(em.block()) * THREADS + em.wide(em.thread())
    *outer, last = sizes
    per_run = last // lanes
    with em.if_(em.cmpi("ult", number, em.wide(product([per_run, *outer])))):
        yield number, number % per_run * lanes, places_of(number // per_run, outer)


def _vectors(copies: Sequence[Copy], element: str) -> tuple[int, ...]:
    """Elements that a thread moves: one number, or two where the host has to choose."""
    divisors = [own for copy in copies for own in copy.divisors()]
    known = math.gcd(*(own for own in divisors if isinstance(own, int)))
    lanes = 128 // BITS[element]
    while known % lanes:
        lanes //= 2
    return (lanes,) if lanes == 1 or all(isinstance(own, int) for own in divisors) else (lanes, 1)


def _move(em: DeviceEmitter, copy: Copy, source: Value, target: Value, element: str, lanes: int) -> None:
    """Moves the thread's vector, where it exists."""
    with own_vector(em, [axis.size for axis in copy.axes], lanes) as (_, along, places):
        read = copy.source if copy.repeats() else along + copy.source
        write = along + copy.target
        for axis, at in zip(copy.axes[-2::-1], places, strict=True):
            read, write = read + at * axis.source, write + at * axis.target
        nbytes = BITS[element] // 8
        unit = _WORDS[nbytes]
        if copy.repeats():
            value = em.ld(em.at(source, em.wide(read), unit), unit)
            value = em.broadcast(value, vec(lanes, unit)) if lanes > 1 else value
        else:
            value = em.ld(em.at(source, em.wide(read), unit), _word(nbytes * lanes))
        em.st(value, em.at(target, em.wide(write), unit))


def _word(nbytes: int) -> str:
    """The type by which so many bytes are moved."""
    return vec(nbytes // 4, "i32") if nbytes > 4 else _WORDS[nbytes]
