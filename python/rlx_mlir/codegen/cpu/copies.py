# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What moves whole runs of elements: parts, joins, repetitions, transposes that keep the last axis.

Each input is a copy, as `codegen/moves.py` says, whose units are its own: they are numbered one input after the other.
A unit is about `UNIT` bytes of the result: some runs, or a piece of a long one. Runs are copied by vectors, what is
left of them by narrower ones or element by element; where neighbours are the same element, it is read once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rlx_mlir.codegen.emit import Emitter, Index, Value, element_of, shape_of, vec
from rlx_mlir.codegen.moves import Copy, copies_of, moves_last, places_of, product
from rlx_mlir.codegen.specs import MoveSpec

from . import UnsupportedByTemplate
from .kernel import Scratch, write_kernel
from .registry import Generator
from .target import ELEMENT_BITS, Target

UNIT = 1 << 14
"""Bytes of a unit's results, about."""


def copy_run(
    em: Emitter,
    source: tuple[Value, Index],
    target: tuple[Value, Index],
    count: Index,
    lanes: int,
    before: Callable[[Index, int], None] = lambda at, width: None,
) -> None:
    """Copies `count` elements by vectors, and what is left by narrower ones where it is known, else one by one.

    Args:
        source, target: flat buffers, and the first element in each.
        lanes: elements of a vector, a power of two; 1 for those that vectors don't have.
        before: called with the number of a vector's first element and how many it has, before they are copied.
    """
    (x, begin), (out, place) = source, target
    element = element_of(out.type)

    def piece(at: Index, width: int) -> None:
        if width == 1:
            em.store(em.load(x, [begin + at]), out, [place + at])
        else:
            before(at, width)
            em.vstore(em.vload(x, [begin + at], vec(width, element)), out, [place + at])

    _in_vectors(em, count, lanes, piece)


def fill_run(em: Emitter, value: Value, target: tuple[Value, Index], count: Index, lanes: int) -> None:
    """The same with one element for all."""
    out, place = target

    def piece(at: Index, width: int) -> None:
        if width == 1:
            em.store(value, out, [place + at])
        else:
            em.vstore(em.broadcast(value, vec(width, element_of(out.type))), out, [place + at])

    _in_vectors(em, count, lanes, piece)


def _in_vectors(em: Emitter, count: Index, lanes: int, piece: Callable[[Index, int], None]) -> None:
    """piece(first, how many) for vectors of `count` elements, then for what is left of them."""
    whole = count // lanes * lanes
    if not isinstance(whole, int) or whole:
        with em.loop(0, whole, lanes, hint="t") as t:
            piece(t.iv, lanes)
    if not isinstance(whole, int) or not isinstance(count, int):
        with em.loop(whole, count, hint="t") as t:
            piece(t.iv, 1)
        return
    width = lanes
    while whole < count:
        width //= 2
        if whole + width <= count:
            piece(whole, width)
            whole += width


def configure(name: str, spec: MoveSpec, target: Target) -> MoveSpec | None:
    """The kernel as it is; None for transposes that move the last axis, which have a template of their own.

    UnsupportedByTemplate for elements that aren't numbers of whole bytes, and for repetitions of which only a call says
    along which axes they go.
    """
    if spec.op == "transpose" and moves_last(spec):
        return None
    if element_of(spec.result) not in ELEMENT_BITS:
        raise UnsupportedByTemplate(f"{name}: copies of {element_of(spec.result)} have no template")
    if spec.op == "expand":
        given, wanted = shape_of(spec.inputs[0]), shape_of(spec.result)
        for own, size in zip(given, wanted[len(wanted) - len(given) :], strict=True):
            if own is None and size is not None:
                raise UnsupportedByTemplate(f"{name}: whether {spec.inputs[0]} is repeated is known at calls alone")
    return spec


def emit_copies(name: str, spec: MoveSpec, target: Target) -> str:
    """The functions `@name.body`, `@name.units` and `@name.scratch`, as text."""
    element = element_of(spec.result)

    def runs(em: Emitter, values: Sequence[Value]) -> list[_Runs]:
        return [_Runs.of(em, copy, ELEMENT_BITS[element]) for copy in copies_of(em, spec, values)]

    def units(em: Emitter, values: list[Value]) -> Index:
        total: Index = 0
        for own in runs(em, values):
            total = total + own.units
        return total

    def body(em: Emitter, values: list[Value], outs: list[Value], begin: Value, end: Value, parts: Scratch) -> None:
        out = em.flat(outs[0])
        before: Index = 0
        for own, value in zip(runs(em, values), values, strict=True):
            source = em.flat(value)
            first, last = em.imax(begin - before, 0), em.imin(end - before, own.units)
            with em.loop(first, last, hint="unit") as unit:
                _copy_unit(em, own, unit.iv, (source, out), target)
            before = before + own.units

    operands = [(f"arg{number}", type) for number, type in enumerate(spec.inputs)]
    return write_kernel(name, operands, [("result", spec.result)], units=units, body=body, order=spec.order)


@dataclass(frozen=True)
class _Runs:
    """The runs of a copy, and how they are cut in units.

    Attributes:
        copy: what is moved.
        count: runs.
        length: elements of a run.
        most: elements of a unit, whole vectors, where a run has more of them.
        high: runs of a unit.
        pieces: units of a run.
        units: of all of them: pieces of a block of runs, one block after the other.
    """

    copy: Copy
    count: Index
    length: Index
    most: int
    high: Index
    pieces: Index
    units: Index

    @classmethod
    def of(cls, em: Emitter, copy: Copy, bits: int) -> _Runs:
        """The runs of a copy of elements of so many bits."""
        *outer, last = copy.axes
        most = UNIT * 8 // bits
        high = em.imax(most // em.imax(last.size, 1), 1)
        count, pieces = product([axis.size for axis in outer]), em.iceildiv(last.size, most)
        return cls(copy, count, last.size, most, high, pieces, em.iceildiv(count, high) * pieces)


def _copy_unit(em: Emitter, runs: _Runs, unit: Value, buffers: tuple[Value, Value], target: Target) -> None:
    """Copies one unit, from a buffer to another, both of one dimension."""
    block, begin = unit // runs.pieces, unit % runs.pieces * runs.most
    end = em.imin(begin + runs.most, runs.length)
    with em.loop(block * runs.high, em.imin(block * runs.high + runs.high, runs.count), hint="run") as run:
        source, place = runs.copy.source, runs.copy.target
        outer = runs.copy.axes[:-1]
        for axis, at in zip(reversed(outer), places_of(run.iv, [axis.size for axis in outer]), strict=True):
            source, place = source + at * axis.source, place + at * axis.target
        _copy_run(em, runs, (begin, end), buffers, (source, place), target)


def _copy_run(
    em: Emitter,
    runs: _Runs,
    span: tuple[Index, Index],
    buffers: tuple[Value, Value],
    starts: tuple[Index, Index],
    target: Target,
) -> None:
    """Copies the elements of a run from span[0] up to span[1]; `starts` is where the run is in the buffers."""
    (source, out), (read, write), (begin, end) = buffers, starts, span
    lanes = target.lanes(element_of(out.type))
    one = em.load(source, [read]) if runs.copy.repeats() else None
    # Pieces of a long run are whole vectors but for the last one, whose length is that of what is left.
    count = runs.length if runs.pieces == 1 else end - begin
    if one is None:
        copy_run(em, (source, read + begin), (out, write + begin), count, lanes)
    else:
        fill_run(em, one, (out, write + begin), count, lanes)


GENERATORS = (Generator("copies", "move", configure, emit_copies),)
