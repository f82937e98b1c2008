# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What operations move, as copies of whole runs: parts, joins, repetitions, transposes that keep the last axis.

Each input is a copy of its own: a few axes with a distance between neighbours in the input and in the result, the last
of which lie side by side in the result.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rlx_mlir.codegen.emit import Emitter, Index, Value, shape_of
from rlx_mlir.codegen.specs import MoveSpec


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


def product(sizes: Sequence[Index]) -> Index:
    """The product of sizes."""
    total: Index = 1
    for size in sizes:
        total = total * size
    return total


def places_of(number: Index, sizes: Sequence[Index]) -> Iterator[Index]:
    """The places along some axes of what has a number among all, of which the innermost comes first."""
    for position, size in reversed(list(enumerate(sizes))):
        place, number = (number % size, number // size) if position else (number, 0)
        yield place


def copies_of(em: Emitter, spec: MoveSpec, inputs: Sequence[Value]) -> list[Copy]:
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


def _joined(em: Emitter, spec: MoveSpec, inputs: Sequence[Value]) -> list[Copy]:
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


def _repeated(em: Emitter, spec: MoveSpec, sizes: Sequence[Index]) -> list[Axis]:
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
