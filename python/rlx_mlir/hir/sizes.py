# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Sizes that builders are given as numbers, as text, or as what was computed of them; and where a graph has them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rlx_mlir import ir
from rlx_mlir.attributes import PythonValue
from rlx_mlir.errors import InputError
from rlx_mlir.hir import place
from rlx_mlir.hir.result_types import check_sequence
from rlx_mlir.hir.types import NewShape, SizeLike, check_size
from rlx_mlir.hir.values import Value
from rlx_mlir.mir.dims import Size

__all__ = ["UNKNOWN_LENGTH", "Followed", "as_size", "shape_sizes", "split_shape"]

#: Why a slice can't be built whose bounds are values that aren't seen to be a known number apart.
UNKNOWN_LENGTH = (
    "the length of a slice is known while the graph is built: values have no shape that depends on values. "
    "x[i:i + 4] has 4 elements, dynamic_slice(x, start, length, axis) as many as a number or a size says; where the "
    "number depends on a value, take the most that there may be, and choose with 'where'"
)

#: Finds a value of the graph with a dimension of a size, and which; None where none has.
Find = Callable[[Size], "tuple[Value, int] | None"]


def as_size(op: str, given: SizeLike, what: str) -> Size:
    """A number or a size as a size; BuildError, which says what it was given as, where it is neither."""
    if isinstance(given, Size):
        return given
    with place.checking(f"'{op}'"):
        if isinstance(given, str):
            return Size.parse(given)
        if isinstance(given, int | np.integer) and not isinstance(given, bool):
            return Size.of(int(given))
        raise InputError(f"{what} is a number or a size, such as 's' or 'max(s - 1, 0)', but got {given!r}"[:400])


def shape_sizes(op: str, new_shape: NewShape) -> list[Size]:
    """The sizes of a shape; BuildError where an entry is none."""
    check_sequence(op, new_shape, "sizes and symbols")
    with place.checking(f"'{op}'"):
        return [
            as_size(op, e if isinstance(e, str | Size) else check_size(e, new_shape), "an entry") for e in new_shape
        ]


class Followed:
    """What the sizes of one operation follow from: dimensions of values of the graph.

    Args:
        op: the operation, for errors.
        find: see `Find`.
    """

    def __init__(self, op: str, find: Find, context: ir.Context) -> None:
        self._op, self._find, self._context = op, find, context
        self._names: dict[str, Size] = {}
        self.values: list[Value] = []
        self._dims: list[int] = []

    def has(self, size: Size) -> bool:
        """Whether values of the graph have dimensions that the size follows from."""
        return self._find(size) is not None or all(self._find(Size.of(symbol)) for symbol in size.symbols)

    def attribute(self, size: Size) -> int | ir.Attribute:
        """A size as an operation writes it: a number, or text; BuildError where no value has what it follows from."""
        if size.constant is not None:
            return size.constant
        text: ir.Attribute = ir.StringAttr.get(self.text(size), self._context)
        return text

    def text(self, size: Size) -> str:
        """A size in words of d0, d1, ...; BuildError as `attribute`."""
        if all(self._find(Size.of(symbol)) is not None for symbol in size.symbols):
            return str(size.substituted({symbol: self._name(Size.of(symbol)) for symbol in sorted(size.symbols)}))
        return str(self._name(size))

    def _name(self, size: Size) -> Size:
        """What stands for a dimension of that size."""
        if str(size) not in self._names:
            found = self._find(size)
            if found is None:
                raise place.caller().error(
                    f"'{self._op}' takes '{size}' where a value has a dimension of that size, but no value has one"
                )
            value, dim = found
            self._names[str(size)] = Size.of(f"d{len(self.values)}")
            self.values.append(value)
            self._dims.append(dim)
        return self._names[str(size)]

    @property
    def attributes(self) -> dict[str, PythonValue]:
        """The attribute that says which dimensions these are."""
        return {"like_dims": self._dims} if self._dims else {}


def split_shape(own: Sequence[int | str], new_shape: NewShape, followed: Followed) -> tuple[list[int], list[Size]]:
    """The entries of a reshape, and the sizes of those that are -3.

    A size that `own`, the shape of the operand, has at that position is -2. If one other is left, it is what the rest
    leaves, as -1 is. If more are, they follow from dimensions of other values, and so does -1 where it can.
    """
    op = "mir.reshape"
    check_sequence(op, new_shape, "sizes and symbols")
    entries: list[Any] = []
    for i, entry in enumerate(new_shape):
        size = as_size(op, entry, "an entry")
        if size.constant is not None:
            entries.append(size.constant)
        else:
            entries.append(-2 if i < len(own) and own[i] == str(size) else size)
    others = [i for i, entry in enumerate(entries) if isinstance(entry, Size)]
    empty = 0 in own  # what the rest leaves of no element could be any size
    if len(others) + entries.count(-1) == 1 and others and not (empty and followed.has(entries[others[0]])):
        entries[others[0]] = -1
    elif others:
        _fill(own, entries, others, followed)
    return [-3 if isinstance(entry, Size) else entry for entry in entries], [e for e in entries if isinstance(e, Size)]


def _fill(own: Sequence[int | str], entries: list[Any], others: list[int], followed: Followed) -> None:
    """Makes one entry that follows from no value -1, and -1 a size where the others divide the whole exactly."""
    unknown = [i for i in others if not followed.has(entries[i])]
    if len(unknown) == 1 and -1 not in entries:
        entries[unknown[0]] = -1
    if entries.count(-1) != 1 or "?" in own:
        return
    at = entries.index(-1)
    total, rest = Size.of(1), Size.of(1)
    for size in own:
        total *= Size.parse(size) if isinstance(size, str) else size
    for i, entry in enumerate(entries):
        if i != at:
            rest *= Size.parse(str(own[i])) if entry == -2 else entry
    exact = total.divided_by(rest)
    if exact is not None and followed.has(exact):
        entries[at] = exact if exact.constant is None else exact.constant
