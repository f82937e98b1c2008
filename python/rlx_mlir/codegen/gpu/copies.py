# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The schedule for what moves whole runs of elements: parts, joins, repetitions, transposes that keep the last axis.

Each input is a copy of its own: a few axes with a distance between neighbours in the input and in the result, the last
of which lie side by side in the result. All copies are one launch, in which the second number of a block says which. A
thread moves one vector, of 16 bytes where sizes and distances are whole ones; where they are known only at the call,
the host chooses between that and single elements.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

from rlx_mlir.codegen import UnsupportedByTemplate
from rlx_mlir.codegen.emit import Index, Value, element_of, shape_of, vec
from rlx_mlir.codegen.gpu.emit import BITS, DeviceEmitter
from rlx_mlir.codegen.gpu.kernel import Constants, DeviceKernel, HostEmitter, write_sized_kernel
from rlx_mlir.codegen.specs import MoveSpec

THREADS = 256
#: Inputs of one launch.
MOST_INPUTS = 16
_WORDS = {1: "i8", 2: "i16", 4: "i32", 8: "i64"}


@dataclass(frozen=True)
class Axis:
    """Elements along an axis, and how far apart neighbours are in the input and in the result."""

    size: Index
    source: Index
    target: Index


@dataclass(frozen=True)
class Copy:
    """What one input contributes: axes from the outermost on, and where its first element is read and written."""

    axes: tuple[Axis, ...]
    source: Index = 0
    target: Index = 0

    def repeats(self) -> bool:
        """Whether neighbours in the result are the same element."""
        return isinstance(self.axes[-1].source, int) and self.axes[-1].source == 0

    def divisors(self) -> list[Index]:
        """What has to be a multiple of a vector's elements."""
        *outer, last = self.axes
        reads = [] if self.repeats() else [self.source, *(axis.source for axis in outer)]
        return [last.size, self.target, *(axis.target for axis in outer), *reads]


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


def product(sizes: Sequence[Index]) -> Index:
    """The product of sizes."""
    total: Index = 1
    for size in sizes:
        total = total * size
    return total


@contextmanager
def own_vector(em: DeviceEmitter, sizes: Sequence[Index], lanes: int) -> Iterator[tuple[Value, Value, Iterator[Index]]]:
    """The thread's vector along the last of some axes, where it exists: its number, its first element along that axis,
    and its places along the others, of which the innermost comes first."""
    number = em.wide(em.block()) * THREADS + em.wide(em.thread())
    *outer, last = sizes
    per_run = last // lanes

    def places(rest: Index) -> Iterator[Index]:
        for position, size in reversed(list(enumerate(outer))):
            at = rest if position == 0 else rest % size
            rest = rest // size
            yield at

    with em.if_(em.cmpi("ult", number, em.wide(product([per_run, *outer])))):
        yield number, number % per_run * lanes, places(number // per_run)


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


# What operations move -------------------------------------------------------------------------------------------------


def copies_of(em: HostEmitter, spec: MoveSpec, inputs: Sequence[Value]) -> list[Copy]:
    """The copy of each input; sizes are those of the buffers."""
    if spec.op == "concat":
        return _joined(em, spec, inputs)
    sizes = [em.dim(inputs[0], axis) for axis in range(len(shape_of(inputs[0].type)))]
    if spec.op == "narrow":
        after = product(sizes[spec.axis + 1 :])
        run = spec.length * after
        axes = (Axis(product(sizes[: spec.axis]), sizes[spec.axis] * after, run), Axis(run, 1, 1))
        return [Copy(axes, spec.start * after)]
    if spec.op == "transpose":
        return [Copy(tuple(transposed_axes(spec, sizes)))]
    return [Copy(tuple(_repeated(em, spec, sizes)))]


def _joined(em: HostEmitter, spec: MoveSpec, inputs: Sequence[Value]) -> list[Copy]:
    """Along an axis: of each input, its part of every run of the result."""
    runs, outers = [], []
    for value in inputs:
        sizes = [em.dim(value, axis) for axis in range(len(shape_of(value.type)))]
        runs.append(product(sizes[spec.axis :]))
        outers.append(product(sizes[: spec.axis]))
    total: Index = 0
    starts = []
    for run in runs:
        starts.append(total)
        total = total + run
    return [
        Copy((Axis(outer, run, total), Axis(run, 1, 1)), 0, start)
        for outer, run, start in zip(outers, runs, starts, strict=True)
    ]


def merged_permutation(spec: MoveSpec) -> list[list[int]]:
    """The result's axes as groups of the input's that stay side by side; those of size 1 are left out."""
    sizes = shape_of(spec.inputs[0])
    groups: list[list[int]] = []
    ones = {axis for axis, size in enumerate(sizes) if size == 1}
    kept = [axis for axis in range(len(sizes)) if axis not in ones]
    for axis in (axis for axis in spec.permutation if axis not in ones):
        if groups and kept.index(groups[-1][-1]) + 1 == kept.index(axis):
            groups[-1].append(axis)
        else:
            groups.append([axis])
    return groups


def moves_last(spec: MoveSpec) -> bool:
    """Whether another axis than the input's last one is the result's last."""
    groups = merged_permutation(spec)
    return len(groups) > 1 and groups[-1][-1] != max(axis for group in groups for axis in group)


def transposed_axes(spec: MoveSpec, sizes: Sequence[Index]) -> list[Axis]:
    """The axes of a transpose in the result's order."""
    groups = merged_permutation(spec)
    extents = [product([sizes[axis] for axis in group]) for group in groups]
    axes = []
    for number, group in enumerate(groups):
        source = product(sizes[group[-1] + 1 :])
        axes.append(Axis(extents[number], source, product(extents[number + 1 :])))
    return axes or [Axis(1, 1, 1)]


def _repeated(em: HostEmitter, spec: MoveSpec, sizes: Sequence[Index]) -> list[Axis]:
    """The axes of an expansion: those that repeat have distance 0 in the input."""
    shape = shape_of(spec.result)
    missing = len(shape) - len(sizes)
    found: list[tuple[str, Index, Index]] = []  # how it is read, size, distance in the input
    distance: Index = 1
    for axis in reversed(range(len(shape))):
        own = sizes[axis - missing] if axis >= missing else 1
        declared = shape[axis]
        size = own if declared is None else declared
        kind: str
        step: Index
        if isinstance(own, int) and own == 1:
            kind, step = "repeat", 0
        elif isinstance(own, int) or declared is None:
            kind, step = "keep", distance
        else:  # known at the call
            kind, step = "either", em.select(em.cmpi("eq", own, 1), 0, distance)
        distance = distance * own
        if isinstance(size, int) and size == 1:
            continue
        if found and kind == found[-1][0] != "either":
            _, before, inner = found.pop()
            found.append((kind, size * before, inner))
        else:
            found.append((kind, size, step))
    axes: list[Axis] = []
    target: Index = 1
    for kind, size, step in found:
        if not axes and kind == "either":  # the innermost axis lies side by side, or repeats
            axes.append(Axis(1, 1, 1))
        axes.append(Axis(size, step, target))
        target = target * size
    return axes[::-1] or [Axis(1, 1, 1)]
