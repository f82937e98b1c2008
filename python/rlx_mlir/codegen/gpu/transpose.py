# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The schedule for transposes that move the last axis: tiles of the input's and the result's last axis.

Where both axes are of whole vectors, a thread turns a square of as many vectors as a vector has elements in its
registers: it reads them along the input's last axis, and writes as many along the result's. The threads of a warp stand
4 side by side along the one and 8 along the other, so all pieces of 32 bytes that they touch are whole, without a
barrier and without shared memory. Other sizes pass through a tile of 32 x 32 elements in shared memory, whose rows are
4 bytes longer (8 of elements of 8), so that neither rows nor columns of it conflict.
"""

from __future__ import annotations

from dataclasses import dataclass

from rlx_mlir.codegen import UnsupportedByTemplate
from rlx_mlir.codegen.emit import Index, Value, element_of, vec
from rlx_mlir.codegen.gpu.emit import BITS, DeviceEmitter, Parameter, pointer, shape_of
from rlx_mlir.codegen.gpu.kernel import (
    Constants,
    DeviceKernel,
    HostEmitter,
    Numbers,
    Scratch,
    by_vectors,
    symbol_of,
    write_device_kernel,
)
from rlx_mlir.codegen.moves import Axis, merged_permutation, moves_last, product, transposed_axes
from rlx_mlir.codegen.specs import MoveSpec

#: Elements of a tile's side in shared memory, and rows of threads of its block.
SIDE, DEEP = 32, 8
#: Threads of a warp along the result's last axis, and along the input's.
ACROSS, ALONG = 8, 4
#: Warps of a block along each of them.
WARPS = (2, 4)
_UNITS = {1: "i8", 2: "i16", 4: "i32", 8: "i64"}


@dataclass(frozen=True)
class _Turn:
    """A transpose as tiles: the input's last axis, the result's last axis, and those that number the matrices."""

    columns: Axis
    rows: Axis
    outer: tuple[Axis, ...]

    def divisors(self) -> list[Index]:
        """What has to be a multiple of a vector's elements."""
        distances = [self.rows.source, self.columns.target, *(x for a in self.outer for x in (a.source, a.target))]
        return [self.columns.size, self.rows.size, *distances]


def emit_transpose(name: str, spec: MoveSpec, chip: str, constants: Constants = frozenset()) -> DeviceKernel:
    """The kernel of a transpose.

    Raises UnsupportedByTemplate for what isn't a transpose, or keeps the last axis.
    """
    element = element_of(spec.result)
    if spec.op != "transpose" or not moves_last(spec):
        raise UnsupportedByTemplate(f"{name}: neighbours stay neighbours")
    if element not in BITS:
        raise UnsupportedByTemplate(f"{name}: elements of {element} have no schedule")
    operands, results = [("x", spec.inputs[0])], [("out", spec.result)]
    known = _turn(HostEmitter(), spec, Value("%x", spec.inputs[0]))
    sizes, lanes = Numbers(known), _lanes(known, element)
    em = DeviceEmitter(chip)
    parameters: list[Parameter] = [
        pointer("x", readonly=True, constant=spec.order[0] in constants),
        pointer("out"),
        *sizes.parameters,
    ]
    whole, single = symbol_of(f"{name}_turn"), symbol_of(f"{name}_tiles")
    threads = 32 * WARPS[0] * WARPS[1]
    for symbol, used in ((whole, lanes > 1), (single, not _is_known(known, lanes))):
        if not used:
            continue
        with em.kernel(symbol, parameters, threads if symbol == whole else SIDE * DEEP, chained=True) as (
            x,
            out,
            *given,
        ):
            tiles = _Tiles(em, sizes.filled(given), x, out, element)
            if symbol == whole:
                tiles.in_registers(lanes)
            else:
                tiles.in_shared_memory()

    def host(host: HostEmitter, sources: list[Value], targets: list[Value], scratch: Scratch) -> None:
        turn = _turn(host, spec, sources[0])
        arguments = [*sources, *targets, *sizes.arguments(host, turn)]
        matrices = product([axis.size for axis in turn.outer])

        def launch(width: int) -> None:
            sides = (SIDE, SIDE) if width == 1 else _sides(width)
            tiles = host.iceildiv(turn.columns.size, sides[0]) * host.iceildiv(turn.rows.size, sides[1])
            block = SIDE * DEEP if width == 1 else threads
            shared = SIDE * _pitch(element) * BITS[element] // 8 if width == 1 else 0
            symbol = single if width == 1 else whole
            host.launch(symbol, tiles * matrices, block, arguments, shared=shared)

        widths = (lanes,) if lanes == 1 or _is_known(known, lanes) else (lanes, 1)
        by_vectors(host, widths, turn.divisors(), launch)

    return write_device_kernel(name, "transpose", operands, results, em, host, order=spec.order)


def _turn(em: HostEmitter, spec: MoveSpec, x: Value) -> _Turn:
    """The transpose of a buffer."""
    axes = transposed_axes(spec, [em.dim(x, axis) for axis in range(len(shape_of(x.type)))])
    last = max(group[-1] for group in merged_permutation(spec))
    at = next(i for i, group in enumerate(merged_permutation(spec)) if group[-1] == last)
    return _Turn(axes[at], axes[-1], tuple(axis for i, axis in enumerate(axes[:-1]) if i != at))


def _lanes(turn: _Turn, element: str) -> int:
    """Elements of a vector; 1 where what is known isn't made of vectors."""
    lanes = min(128 // BITS[element], 8)
    while any(isinstance(own, int) and own % lanes for own in turn.divisors()):
        lanes //= 2
    # Squares of pairs of bytes would be read by less than 4 bytes.
    return lanes if lanes * BITS[element] >= 32 and lanes > 1 else 1


def _is_known(turn: _Turn, lanes: int) -> bool:
    """Whether no size that is known at the call alone decides about vectors."""
    return lanes > 1 and all(isinstance(own, int) for own in turn.divisors())


def _pitch(element: str) -> int:
    """Elements from one row of a tile in shared memory to the next."""
    return SIDE + max(1, 32 // BITS[element])


def _sides(lanes: int) -> tuple[int, int]:
    """Elements of a block's tile along the input's last axis, and along the result's."""
    return ALONG * WARPS[1] * lanes, ACROSS * WARPS[0] * lanes


class _Tiles:
    """Emits the tile of one block."""

    def __init__(self, em: DeviceEmitter, turn: _Turn, x: Value, out: Value, element: str) -> None:
        self.em, self.turn, self.x, self.out = em, turn, x, out
        self.unit = _UNITS[BITS[element] // 8]
        self.pitch = _pitch(element)

    def _place(self, sides: tuple[int, int]) -> tuple[Value, Value, Value, Value]:
        """The tile's first column and row, and where its matrix starts in the input and in the result."""
        em, turn = self.em, self.turn
        across = em.iceildiv(turn.columns.size, sides[0])
        down = em.iceildiv(turn.rows.size, sides[1])
        tile = em.wide(em.block())
        column = em.wide(tile % across * sides[0])
        rest = tile // across
        row = em.wide(rest % down * sides[1])
        rest = rest // down
        read: Index = 0
        write: Index = 0
        for axis in reversed(turn.outer):
            at, rest = rest % axis.size, rest // axis.size
            read, write = read + at * axis.source, write + at * axis.target
        return column, row, em.wide(read), em.wide(write)

    def in_registers(self, lanes: int) -> None:
        """A thread's square of vectors."""
        em, turn, type = self.em, self.turn, vec(lanes, self.unit)
        column, row, read, write = self._place(_sides(lanes))
        lane, warp = em.lane(), em.thread() >> 5
        along = warp % WARPS[1] * ALONG + lane % ALONG
        across = warp // WARPS[1] * ACROSS + lane // ALONG
        column = column + em.wide(along * lanes)
        row = row + em.wide(across * lanes)
        exists = em.cmpi("ult", column, turn.columns.size) & em.cmpi("ult", row, turn.rows.size)
        with em.if_(exists):
            start = read + column + row * turn.rows.source
            rows = []
            for i in range(lanes):
                place = start + turn.rows.source * i
                rows.append(em.lanes(em.ld(self.x, type, place)))
            start = write + row + column * turn.columns.target
            for j in range(lanes):
                place = start + turn.columns.target * j
                em.st(em.vector([own[j] for own in rows]), self.out, place)

    def in_shared_memory(self) -> None:
        """A block's tile, element by element."""
        em, turn, unit = self.em, self.turn, self.unit
        column, row, read, write = self._place((SIDE, SIDE))
        memory = em.shared()
        across, deep = em.thread() % SIDE, em.thread() // SIDE
        at = column + em.wide(across)
        inside = em.cmpi("ult", at, turn.columns.size)
        for step in range(0, SIDE, DEEP):
            own = row + em.wide(deep + step)
            with em.if_(inside & em.cmpi("ult", own, turn.rows.size)):
                place = read + at + own * turn.rows.source
                value = em.ld(self.x, unit, place)
                em.st(value, memory, (deep + step) * self.pitch + across)
        em.barrier()
        at = row + em.wide(across)
        inside = em.cmpi("ult", at, turn.rows.size)
        for step in range(0, SIDE, DEEP):
            own = column + em.wide(deep + step)
            with em.if_(inside & em.cmpi("ult", own, turn.columns.size)):
                value = em.ld(memory, unit, across * self.pitch + (deep + step))
                em.st(value, self.out, write + at + own * turn.columns.target)
