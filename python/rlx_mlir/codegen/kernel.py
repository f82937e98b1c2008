# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What functions of kernels share on every target: signatures, how rows are counted, the layout of scratch memory."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from rlx_mlir.codegen.emit import Emitter, Index, Value, memref, shape_of

__all__ = ["Buffers", "Scratch", "batch_element", "in_order", "position_of", "row_count", "signature_of", "size_of"]

#: Beyond the positions of every table, and a float of any kind.
_FAR = float(1 << 62)

Buffers = Sequence[tuple[str, str]]
"""Buffers by name and memref type."""


def signature_of(name: str, operands: Buffers, order: tuple[int, ...]) -> list[tuple[str, str]]:
    """The kernel's own operands, for the operands of a template.

    Args:
        order: the kernel's operand for each of the template's; one may serve several.
    """
    if len(order) != len(operands) or set(order) != set(range(max(order, default=-1) + 1)):
        raise ValueError(f"{name}: operand_order {order} has to name {len(operands)} operands, and each from 0 on")
    signature: list[tuple[str, str]] = []
    for position in range(max(order, default=-1) + 1):
        served = [operands[i] for i, p in enumerate(order) if p == position]
        if len({type for _, type in served}) != 1:
            raise ValueError(f"{name}: operand {position} serves as {served}, whose types differ")
        signature.append(served[0])
    return signature


def in_order(values: Sequence[Value], order: tuple[int, ...]) -> list[Value]:
    """The kernel's operands in the template's order."""
    return [values[position] for position in order]


def row_count(em: Emitter, x: Value) -> Index:
    """M of x [..., K]."""
    count: Index = 1
    for axis in range(len(shape_of(x.type)) - 1):
        count = count * em.dim(x, axis)
    return count


def size_of(em: Emitter, buffer: Value, axes: Iterable[int]) -> Index:
    """The product of some sizes of a buffer, of which one that is known to be 0 makes it 0."""
    sizes = [em.dim(buffer, axis) for axis in axes]
    total: Index = math.prod(size for size in sizes if isinstance(size, int))
    for size in sizes:
        total = total if isinstance(size, int) else total * size
    return total


def batch_element(number: Index, sizes: Sequence[Index], shape: Sequence[int | None]) -> Index:
    """Which batch element of an operand belongs to one of the output.

    Args:
        sizes: of the output's batch.
        shape: of the operand, whose last two dimensions are a matrix; where its batch has a 1, it broadcasts.
    """
    own = (*([1] * (len(sizes) - len(shape) + 2)), *shape[:-2])
    if not sizes or all(size == 1 for size in own):
        return 0
    if all(mine != 1 or size == 1 for mine, size in zip(own, sizes, strict=True)):
        return number
    element: Index = 0
    stride: Index = 1
    rest = number
    for size, mine in reversed(list(zip(sizes, own, strict=True))):
        if mine != 1:
            element = element + rest % size * stride
            stride = stride * size
        rest = rest // size
    return element


def position_of(em: Emitter, index: Value) -> Value:
    """An index of a tensor as i64: of a float (f32 or f64) without its fraction, of NaN and what is below 0, 0."""
    if index.type.startswith("f"):
        positive = em.select(em.cmpf("ogt", index, 0.0), index, 0.0)
        return em.cast("arith.fptosi", em.minimumf(positive, _FAR), "i64")
    if index.type.startswith("ui"):
        return em.cast("arith.extui", em.cast("builtin.unrealized_conversion_cast", index, index.type[1:]), "i64")
    return index if index.type == "i64" else em.cast("arith.extsi", index, "i64")


class Scratch:
    """Lays out scratch memory: parts are added in the same order when it is measured and when it is used.

    `align` is the alignment of each part in bytes.
    """

    def __init__(self, em: Emitter, buffer: Value | None = None, align: int = 64) -> None:
        self._em, self._buffer, self._align = em, buffer, align
        self.bytes: Index = 0

    def take(self, shape: Sequence[Index], element: str, width: int = 4) -> Value:
        """The next part; without a buffer, only its size counts and the value is meaningless.

        Args:
            width: bytes of an element.
        """
        em, align = self._em, self._align
        offset = self.bytes
        size: Index = width
        for extent in shape:
            size = size * extent
        self.bytes = offset + em.iceildiv(size, align) * align
        if self._buffer is None:
            return Value("%unused", memref([s if isinstance(s, int) else None for s in shape], element))
        return em.view(self._buffer, offset, shape, element)
