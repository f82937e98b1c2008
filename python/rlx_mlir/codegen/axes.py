# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How operands that broadcast lie beside a result: axes along which all of them go together become one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rlx_mlir.codegen import UnsupportedByTemplate
from rlx_mlir.codegen.emit import Emitter, Index, Value, shape_of
from rlx_mlir.codegen.specs import BroadcastSpec


@dataclass(frozen=True)
class Axis:
    """Elements along an axis; of each operand, how far apart neighbours are: 0 where it repeats.

    Operands are followed by what each `iota` makes, as if it were read: neighbours are 1 apart along its dimension.
    """

    size: Index
    steps: tuple[Index, ...]


def joined_axes(em: Emitter, spec: BroadcastSpec, buffers: Sequence[Value]) -> list[Axis]:
    """The axes of the result, outermost first; at least one.

    Raises UnsupportedByTemplate where nothing says how large a dimension is.
    """
    shape = shape_of(spec.result)
    read = {at for step in spec.steps for at in step.reads if isinstance(at, int)}  # floats are constants
    sources = {axis: (operand, own) for axis, operand, own in spec.sizes}
    counted = [step.axis for step in spec.steps if step.op == "iota"]
    distances: list[Index] = [1] * len(buffers)
    found: list[tuple[tuple[bool, ...], Index, tuple[Index, ...]]] = []  # which operands go along, size, distances
    for axis in reversed(range(len(shape))):
        declared = shape[axis]
        size: Index = 1 if declared is None else declared
        along = []
        for number, value in enumerate(buffers):
            own = axis - len(shape) + len(shape_of(value.type))
            goes = number in read and own >= 0 and shape_of(value.type)[own] != 1
            along.append(goes)
            if goes and declared is None:
                size = em.dim(value, own)
        if declared is None and not any(along):
            if axis not in sources:
                raise UnsupportedByTemplate(f"no operand has the size of dimension {axis} of {spec.result}")
            operand, own = sources[axis]
            size = em.dim(buffers[operand], own)
        steps = [distance if goes else 0 for distance, goes in zip(distances, along, strict=True)]
        distances = [d * size if goes else d for d, goes in zip(distances, along, strict=True)]
        if isinstance(size, int) and size == 1 and not any(along):
            continue
        along += [axis == own for own in counted]
        steps += [int(axis == own) for own in counted]
        if found and found[-1][0] == tuple(along):
            kind, before, inner = found.pop()
            found.append((kind, size * before, inner))
        else:
            found.append((tuple(along), size, tuple(steps)))
    axes = [Axis(size, steps) for _, size, steps in reversed(found)]
    return axes or [Axis(1, (0,) * (len(buffers) + len(counted)))]
