# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""One operation as its handler sees it: attributes, operands, and what they are made into."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from rlx_mlir import ir
from rlx_mlir.dtypes import numpy_dtype
from rlx_mlir.errors import InputError, StablehloError
from rlx_mlir.frontends.tensors import plain
from rlx_mlir.hir import GraphModule, Value
from rlx_mlir.mir.dims import Size

from . import attributes
from .entries import Entry, as_sizes, dtype_of, shape_of
from .registry import Refused, Results

_HALVES = ("float16", "bfloat16")


class Building(Protocol):
    """What handlers ask of who builds the graph, `importer.Importer`, which says what each does."""

    graph: GraphModule

    def value(self, entry: Entry, /) -> Value: ...

    def compact(self, entry: Entry, /) -> Value: ...

    def spread(self, value: Value, shape: Sequence[Size], /) -> Entry: ...

    def size(self, size: Size, /) -> Value: ...

    def carry(self, size: Size, /) -> None: ...

    def block(self, block: ir.Block, arguments: Sequence[Entry], /) -> list[Entry]: ...

    def region(self) -> AbstractContextManager[None]: ...

    def function(self, name: str, arguments: Sequence[Entry], /) -> list[Entry]: ...

    def note(self, value: ir.Value, entry: Entry, /) -> None: ...

    def find(self, value: ir.Value, /) -> Entry | None: ...


def element_dtype(type: ir.Type) -> np.dtype:
    """The element type of a tensor type; refused where values of graphs can't have it.

    That of ui64 is i64, whose bits sums, products, shifts and narrower integers are made of alike; what isn't alike
    asks `Call.refuse_unsigned`, and graphs neither take nor give such.
    """
    try:
        shaped = ir.RankedTensorType(type)
        if is_long(type):
            return np.dtype(np.int64)
        return numpy_dtype(shaped.element_type)
    except (ValueError, InputError):
        raise Refused(f"values of type {type}") from None


def is_long(type: ir.Type) -> bool:
    """Whether elements are unsigned integers of 64 bits."""
    return str(ir.RankedTensorType(type).element_type) == "ui64"


def is_float(dtype: np.dtype) -> bool:
    """Whether elements are floats."""
    return dtype.kind == "f" or dtype.name == "bfloat16"


@dataclass(frozen=True, eq=False)
class Call:
    """An operation of a module that is read.

    Attributes:
        importer: builds the graph.
        op: the operation.
        operands: what its operands stand for.
    """

    importer: Building
    op: ir.Operation
    operands: Sequence[Entry]

    @property
    def m(self) -> GraphModule:
        """The graph."""
        return self.importer.graph

    # -- attributes --------------------------------------------------------------------------------------------------

    def attribute(self, name: str) -> ir.Attribute:
        """An attribute; StablehloError where it isn't there."""
        if name not in self.op.attributes:
            raise StablehloError(f"'{self.op.name}' has no attribute '{name}'")
        found: ir.Attribute = self.op.attributes[name]
        return found

    def ints(self, name: str, default: Sequence[int] | None = None) -> list[int]:
        """Whole numbers."""
        if default is not None and name not in self.op.attributes:
            return list(default)
        return attributes.numbers(self.attribute(name))

    def integer(self, name: str, default: int | None = None) -> int:
        """A whole number."""
        if default is not None and name not in self.op.attributes:
            return default
        return int(ir.IntegerAttr(self.attribute(name)).value)

    def word(self, name: str, default: str = "") -> str:
        """A word of an enumeration."""
        return attributes.word(self.op.attributes[name]) if name in self.op.attributes else default

    def fields(self, name: str) -> dict[str, list[int]]:
        """The fields of a structure."""
        return attributes.fields(self.attribute(name))

    # -- operands ----------------------------------------------------------------------------------------------------

    def value(self, number: int) -> Value:
        """An operand as a value of the graph."""
        return self.importer.value(self.operands[number])

    def values(self, start: int = 0, stop: int | None = None) -> list[Value]:
        """Several of them."""
        return [self.importer.value(entry) for entry in self.operands[start:stop]]

    def shape(self, number: int) -> tuple[Size, ...]:
        """The sizes of an operand."""
        return shape_of(self.operands[number])

    def rank(self, number: int) -> int:
        """Number of dimensions of an operand."""
        return len(self.shape(number))

    def dtype(self, number: int) -> np.dtype:
        """The element type of an operand."""
        return dtype_of(self.operands[number])

    def sizes(self, number: int, what: str) -> list[Size]:
        """The elements of an operand of integers as sizes; refused where they are only there at run time."""
        found = as_sizes(self.operands[number])
        if found is None:
            raise Refused(f"{what} that are computed when the graph runs")
        return found

    def known_ints(self, number: int, what: str) -> list[int]:
        """The elements of an operand as numbers; refused where they aren't known."""
        found = [size.constant for size in self.sizes(number, what)]
        if any(size is None for size in found):
            raise Refused(f"{what} that follow from sizes")
        return [size or 0 for size in found]

    def refuse_unsigned(self) -> None:
        """Refuses operands and results of ui64, whose order isn't that of i64."""
        if any(is_long(value.type) for value in (*self.op.operands, *self.op.results)):
            raise Refused("elements of ui64")

    # -- results -----------------------------------------------------------------------------------------------------

    def result_dtype(self, number: int = 0) -> np.dtype:
        """The element type of a result."""
        return element_dtype(self.op.results[number].type)

    def result_shape(self, number: int = 0) -> list[int]:
        """The sizes of a result, -1 where they are dynamic."""
        shaped = ir.RankedTensorType(self.op.results[number].type)
        return [-1 if shaped.is_dynamic_dim(i) else shaped.get_dim_size(i) for i in range(shaped.rank)]

    # -- what handlers share -----------------------------------------------------------------------------------------

    def elementwise(self, build: Callable[..., Value], *entries: Entry) -> Entry:
        """What a function of elements gives: of operands as they are before they are repeated."""
        shape = max((shape_of(entry) for entry in entries), key=len)
        return self.importer.spread(build(*(self.importer.compact(entry) for entry in entries)), shape)

    def wide(self, value: Value) -> Value:
        """A value in f32 where it is of 16 bits: what is made of several operations is rounded once."""
        return self.m.cast(value, "f32") if value.dtype.name in _HALVES else value

    def cast(self, value: Value, dtype: np.dtype) -> Value:
        """A value in another element type, or itself."""
        return value if value.dtype == dtype else self.m.cast(value, dtype)

    def reshaped(self, value: Value, shape: Sequence[Size | int]) -> Value:
        """A value in another shape."""
        sizes = [Size.of(size) for size in shape]
        return value if tuple(sizes) == shape_of(value) else self.m.reshape(value, plain(sizes))

    def transposed(self, value: Value, order: Sequence[int]) -> Value:
        """A value with its dimensions in another order."""
        return value if list(order) == list(range(len(order))) else self.m.transpose(value, list(order))

    def expanded(self, value: Value, shape: Sequence[Size | int]) -> Value:
        """A value repeated to a shape."""
        sizes = [Size.of(size) for size in shape]
        if tuple(sizes) == shape_of(value):
            return value
        for size in sizes:
            self.importer.carry(size)
        return self.m.expand(value, plain(sizes))

    def constant(self, number: object, dtype: np.dtype) -> Value:
        """A number without dimensions."""
        with np.errstate(over="ignore"):
            return self.m.constant(np.asarray(number).astype(dtype))

    def padded(self, value: Value, axis: int, before: int, after: int, fill: Value) -> Value:
        """A value with so many more elements along an axis; fewer for negative numbers."""
        if before < 0 or after < 0:
            value = self.m.slice(value, axis, max(-before, 0), after if after < 0 else None)
        around = [self._block(value, axis, number, fill) for number in (before, after) if number > 0]
        if not around:
            return value
        return self.m.concat([*around[: before > 0], value, *around[before > 0 :]], axis)

    def _block(self, like: Value, axis: int, number: int, fill: Value) -> Value:
        shape = list(shape_of(like))
        shape[axis] = Size.of(number)
        return self.expanded(fill, shape)

    def interleaved(self, value: Value, axis: int, number: int, fill: Value) -> Value:
        """A value with so many elements between any two along an axis."""
        shape = list(shape_of(value))
        own = shape[axis]
        if not number or own.constant == 0:
            return value
        rows = self.reshaped(value, [*shape[: axis + 1], 1, *shape[axis + 1 :]])
        rows = self.padded(rows, axis + 1, 0, number, fill)
        joined = self.reshaped(rows, [*shape[:axis], own * (number + 1), *shape[axis + 1 :]])
        return self.m.slice(joined, axis, 0, plain([own * (number + 1) - number])[0])


__all__ = ["Building", "Call", "Results", "element_dtype", "is_float"]
