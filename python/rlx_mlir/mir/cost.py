# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What operations cost at given sizes: arithmetic and memory traffic, the raw material of rooflines.

A family module registers a function beside an operation's reference. Without one, an operation computes nothing and
reads and writes every byte of its operands and results once, as those do that only move data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from rlx_mlir import ir
from rlx_mlir.mir.dims import Size, product

Shape = tuple[Size, ...]
Function = TypeVar("Function", bound="Callable[[ir.AnyOp, Sizes], Cost]")

#: Element types whose width isn't in their name; `i1` is stored as a byte.
_WIDTHS = {"i1": 1, "index": 8, "bf16": 2, "f8E4M3FN": 1, "f8E5M2": 1, "complex<f32>": 8}

#: Where sequences stand that have no cache.
_START = Size.of(0)


@dataclass(frozen=True)
class Cost:
    """What an operation does at given sizes, in numbers or in formulas of symbols.

    Attributes:
        flops: additions, multiplications and the like; those of integers in products of quantised values, too. A
            multiply-add is two; a function of an element, such as exp, counts as one.
        reads: bytes read of operands that aren't read once as a whole, by operand.
        writes: bytes written of results that aren't written as a whole, by number.
    """

    flops: Size | int = 0
    reads: Mapping[ir.Value, Size | int] = field(default_factory=dict)
    writes: Mapping[int, Size | int] = field(default_factory=dict)


@dataclass(frozen=True)
class Sizes:
    """Shapes of the values around an operation, and where a sequence stands.

    Attributes:
        shapes: of each value.
        position: tokens in the cache before this call: what an operand `pos` holds.
    """

    shapes: Mapping[ir.Value, Shape]
    position: Size = _START

    def __getitem__(self, value: ir.Value) -> Shape:
        return self.shapes[value]

    def count(self, value: ir.Value, *, without: int | None = None) -> Size:
        """Elements of a value, or of one entry of a dimension of it."""
        shape = list(self.shapes[value])
        if without is not None:
            del shape[without]
        return product(shape)

    def bytes(self, value: ir.Value, *, without: int | None = None) -> Size:
        """Bytes of as much; a packed weight's elements are its bytes."""
        return self.count(value, without=without) * element_bytes(value)


#: The cost of each operation that has a function of its own, by name.
COSTS: dict[str, Callable[[ir.AnyOp, Sizes], Cost]] = {}


def cost(*ops: type[ir.OpView]) -> Callable[[Function], Function]:
    """Registers a function of an operation and the sizes around it as the cost of operations."""

    def register(function: Function) -> Function:
        for op in ops:
            COSTS[op.OPERATION_NAME] = function
        return function

    return register


def cost_of(op: ir.AnyOp, sizes: Sizes) -> Cost:
    """What an operation does at given sizes."""
    function = COSTS.get(op.operation.name)
    return Cost() if function is None else function(op.operation.opview, sizes)


def element_bytes(value: ir.Value) -> int:
    """Bytes of an element of a tensor."""
    return type_bytes(ir.ShapedType(value.type).element_type)


def type_bytes(element: ir.Type) -> int:
    """Bytes of an element of a type in memory: booleans take one, indices eight."""
    word = str(element)
    return _WIDTHS[word] if word in _WIDTHS else int(word.lstrip("iuf")) // 8


def per_element(flops: int) -> Callable[[ir.AnyOp, Sizes], Cost]:
    """A cost of so many operations for each element of the first result."""

    def of(op: ir.AnyOp, sizes: Sizes) -> Cost:
        return Cost(flops * sizes.count(op.operation.results[0]))

    return of
