# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""One node as its handler sees it: attributes, operands, and what they are made into."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar, cast

import numpy as np

from rlx_mlir.errors import OnnxError, shortened
from rlx_mlir.frontends.tensors import Several, Tensor, Thing, plain, sizes_of
from rlx_mlir.hir import GraphModule, Value
from rlx_mlir.mir.dims import Size

from .registry import Refused
from .types import FLOATS, HALVES

if TYPE_CHECKING:
    import onnx


Kind = TypeVar("Kind")

#: Elements that tables have at most which are computed while a file is read, such as weights of a resize.
MOST_MADE = 1 << 26

_F32 = np.dtype(np.float32)


#: An attribute of a node: a number, a text as bytes, a graph, a sequence of these, or an array, which a tensor becomes.
Attribute: TypeAlias = Any


class Building(Protocol):
    """What handlers ask of who builds the graph, `importer.Importer`, which says what each does."""

    graph: GraphModule

    def value(self, tensor: Tensor, /) -> Value: ...

    def size(self, size: Size, /) -> Value: ...

    def carry(self, size: Size, /) -> None: ...

    def roots(self, tensor: Tensor, /) -> frozenset[str]: ...

    def inner(self, graph: onnx.GraphProto, given: Sequence[Thing], /) -> list[Thing]: ...

    def region(self) -> AbstractContextManager[None]: ...

    def body(self, call: Call, /) -> Sequence[Thing | None]: ...


@dataclass(frozen=True, eq=False)
class Call:
    """A node of a file's graph.

    Attributes:
        importer: builds the graph.
        node: its message.
        op: the operator's name.
        domain: its domain.
        version: of the domain's operators.
        name: of the node; what it computes where it has none.
        attributes: by name.
        inputs: what the operands stand for; None for those that are left out.
        outputs: names of the results, empty for those that nobody wants.
    """

    importer: Building
    node: onnx.NodeProto
    op: str
    domain: str
    version: int
    name: str
    attributes: Mapping[str, Attribute]
    inputs: Sequence[Thing | None]
    outputs: Sequence[str]

    @property
    def m(self) -> GraphModule:
        """The graph."""
        return self.importer.graph

    # -- attributes --------------------------------------------------------------------------------------------------

    def _attribute(self, name: str, default: Kind, kind: type | tuple[type, ...], what: str) -> Kind:
        found = self.attributes.get(name, default)
        if found is not default and not isinstance(found, kind):
            raise OnnxError(f"node '{self.name}' ({self.op}): '{name}' is {what}, but is {shortened(found)}")
        return cast(Kind, found)

    def integer(self, name: str, default: int) -> int:
        """A whole number."""
        return self._attribute(name, default, int, "a whole number")

    def maybe_int(self, name: str) -> int | None:
        """A whole number, or None where the node doesn't say."""
        return self._attribute(name, None, int, "a whole number")

    def flag(self, name: str, default: bool = False) -> bool:
        """Whether a number isn't 0."""
        return self.integer(name, int(default)) != 0

    def number(self, name: str, default: float) -> float:
        """A number."""
        return float(self._attribute(name, default, (float, int), "a number"))

    def maybe_float(self, name: str) -> float | None:
        """A number, or None where the node doesn't say."""
        return self._attribute(name, None, (float, int), "a number")

    def text(self, name: str, default: str) -> str:
        """A text."""
        found = self._attribute(name, default.encode(), bytes, "a text")
        return found.decode(errors="replace")

    def maybe_ints(self, name: str) -> list[int] | None:
        """Whole numbers, or None where the node doesn't say."""
        found = self._attribute(name, None, list, "a list of whole numbers")
        if found is not None and not all(isinstance(entry, int) for entry in found):
            raise OnnxError(
                f"node '{self.name}' ({self.op}): '{name}' is a list of whole numbers, but is {found!r}"[:400]
            )
        return found

    def ints(self, name: str, default: Sequence[int]) -> list[int]:
        """Whole numbers."""
        found = self.maybe_ints(name)
        return list(default) if found is None else found

    def choice(self, name: str, default: str, known: Sequence[str]) -> str:
        """A text that is one of those that are known."""
        found = self.text(name, default)
        if found not in known:
            raise Refused(f"'{name}' is {shortened(found)}, known are {', '.join(known)}")
        return found

    # -- operands ----------------------------------------------------------------------------------------------------

    def has(self, number: int) -> bool:
        """Whether the operand is there."""
        return number < len(self.inputs) and self.inputs[number] is not None

    def tensor(self, number: int) -> Tensor:
        """An operand that is a tensor."""
        found = self.inputs[number] if number < len(self.inputs) else None
        if found is None:
            raise OnnxError(f"node '{self.name}' ({self.op}): operand {number} is needed, but isn't there")
        if isinstance(found, Several):
            raise Refused(f"operand {number} is a sequence")
        return found

    def maybe(self, number: int) -> Tensor | None:
        """An operand that may be left out."""
        return self.tensor(number) if self.has(number) else None

    def several(self, number: int) -> Several:
        """An operand that is a sequence, or optional."""
        found = self.inputs[number] if number < len(self.inputs) else None
        if not isinstance(found, Several):
            raise Refused(f"operand {number} is no sequence of known length")
        return found

    def value(self, number: int) -> Value:
        """An operand as a value of the graph."""
        return self.importer.value(self.tensor(number))

    def maybe_value(self, number: int) -> Value | None:
        """An operand that may be left out, as a value of the graph."""
        return self.value(number) if self.has(number) else None

    def dtype(self, number: int) -> np.dtype:
        """The element type of an operand."""
        return self.tensor(number).dtype

    def shape(self, number: int) -> tuple[Size, ...]:
        """The sizes of an operand."""
        return self.tensor(number).shape

    def rank(self, number: int) -> int:
        """Number of dimensions of an operand."""
        return self.tensor(number).rank

    def known(self, number: int, what: str) -> np.ndarray:
        """The numbers of an operand; refused where they aren't known while the file is read.

        Args:
            what: they say, such as ``"the axes"``.
        """
        tensor = self.tensor(number)
        numbers = tensor.numbers
        if numbers is None:
            raise self._undecided(tensor, number, what)
        return numbers

    def known_ints(self, number: int, what: str) -> list[int]:
        """The numbers of an operand of integers, in row-major order."""
        return [int(entry) for entry in self.known(number, what).reshape(-1)]

    def sizes(self, number: int, what: str) -> list[Size]:
        """The elements of an operand of integers as sizes; refused where they are only there at run time."""
        tensor = self.tensor(number)
        if tensor.array is None:
            raise self._undecided(tensor, number, what)
        return sizes_of(tensor.array)

    def _undecided(self, tensor: Tensor, number: int, what: str) -> Refused:
        roots = self.importer.roots(tensor)
        given = " and ".join(f"'{name}'" for name in sorted(roots))
        where = f": give {given} while the model is read, from_onnx(..., fixed={{...}})" if roots else ""
        sizes = tensor.is_known
        why = "follows from sizes that calls decide" if sizes else "is computed when the graph runs"
        return Refused(f"{what}, operand {number}, must be known, but {why}{where}", roots)

    def axes(self, operand: int, attribute: str = "axes") -> list[int] | None:
        """Axes from 0 on, which are an attribute or, in newer versions, an operand; None where there are neither."""
        if self.has(operand):
            found: list[int] | None = self.known_ints(operand, "the axes")
        else:
            found = self.maybe_ints(attribute)
        return found

    def axis(self, default: int, rank: int, name: str = "axis") -> int:
        """The attribute `axis`, from 0 on."""
        return self.along(self.integer(name, default), rank)

    def along(self, axis: int, rank: int) -> int:
        """A dimension from 0 on; OnnxError where there is no such dimension."""
        if not -rank <= axis < rank:
            raise OnnxError(f"node '{self.name}' ({self.op}): an axis is from {-rank} to {rank - 1}, but is {axis}")
        return axis + rank if axis < 0 else axis

    # -- results -----------------------------------------------------------------------------------------------------

    def wants(self, number: int) -> bool:
        """Whether somebody wants a result."""
        return number < len(self.outputs) and bool(self.outputs[number])

    def out(self, value: Value) -> Tensor:
        """A result that is there when the graph runs."""
        return Tensor.running(value)

    def wide(self, value: Value) -> Value:
        """A value in f32 where it is of 16 bits: what is made of several operations is rounded once."""
        return self.m.cast(value, _F32) if value.dtype in HALVES else value

    def narrowed(self, value: Value, dtype: np.dtype) -> Value:
        """A value in another element type, or itself."""
        return value if value.dtype == dtype else self.m.cast(value, dtype)

    def needs_floats(self, number: int = 0) -> None:
        """Refuses an operand that isn't of floats."""
        if self.dtype(number) not in FLOATS:
            raise Refused(f"elements of type {self.dtype(number)}")

    def affordable(self, *sizes: int) -> None:
        """Refuses tables that are made while the file is read and have more elements than any model needs."""
        if math.prod(sizes) > MOST_MADE:
            raise Refused(f"a table of {' x '.join(map(str, sizes))} elements")

    # -- what handlers share -----------------------------------------------------------------------------------------

    def scalar(self, number: float, like: Value) -> np.ndarray:
        """A number as an array without dimensions, of a value's element type."""
        return np.asarray(number).astype(like.dtype)

    def reshaped(self, value: Value, shape: Sequence[Size | int]) -> Value:
        """A value in another shape."""
        sizes = [Size.of(size) for size in shape]
        if tuple(sizes) == Tensor.running(value).shape:
            return value
        return self.m.reshape(value, plain(sizes))

    def expanded(self, value: Value, shape: Sequence[Size | int]) -> Value:
        """A value repeated to a shape."""
        sizes = [Size.of(size) for size in shape]
        if tuple(sizes) == Tensor.running(value).shape:
            return value
        for size in sizes:
            self.importer.carry(size)
        return self.m.expand(value, plain(sizes))

    def filled(self, number: object, shape: Sequence[Size | int], dtype: np.dtype) -> Value:
        """A number in every place of a shape."""
        sizes = [Size.of(size) for size in shape]
        array = np.asarray(number).astype(dtype)
        if all(size.constant is not None for size in sizes) and not all(size.constant for size in sizes):
            return self.m.constant(np.zeros([size.constant or 0 for size in sizes], dtype))
        return self.expanded(self.m.constant(array), sizes)

    def iota(self, shape: Sequence[Size | int], axis: int, dtype: str = "i64") -> Value:
        """0, 1, 2, ... along an axis of a shape."""
        sizes = [Size.of(size) for size in shape]
        for size in sizes:
            self.importer.carry(size)
        return self.m.iota(plain(sizes), axis, dtype)

    def padded(self, value: Value, pads: Sequence[tuple[int, int]], fill: Value | object) -> Value:
        """A value with so many elements before and after those of each dimension; negative numbers take away.

        Args:
            fill: the number that they are, or a value without dimensions.
        """
        for axis, (before, after) in enumerate(pads):
            if before < 0 or after < 0:
                value = self.m.slice(value, axis, max(-before, 0), after if after < 0 else None)
            around = [self._block(value, axis, number, fill) for number in (before, after) if number > 0]
            if around:
                value = self.m.concat([*around[: before > 0], value, *around[before > 0 :]], axis)
        return value

    def _block(self, like: Value, axis: int, number: int, fill: Value | object) -> Value:
        """A value like another one, but with so many elements along an axis, all of one number."""
        shape = list(Tensor.running(like).shape)
        shape[axis] = Size.of(number)
        return self.expanded(fill, shape) if isinstance(fill, Value) else self.filled(fill, shape, like.dtype)
