# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Integers and conditions that follow from where an element stands: positions, and masks that are made of them.

Models compute masks by counting positions, slicing, comparing and looking them up, which says in a hundred operations
what `j <= i` says in one. A value here is a number and a multiple of each index, or a conjunction of comparisons of
such; what operations do to it is computed while the graph is built, and a graph has it only where something else reads
it. None of this knows of PyTorch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from rlx_mlir.dtypes import DTYPES
from rlx_mlir.hir.module import GraphModule
from rlx_mlir.hir.values import Value
from rlx_mlir.mir.dims import Size, is_never_negative

#: Comparisons, each with the one that holds with the operands the other way round.
FLIPPED = {"le": "ge", "ge": "le", "lt": "gt", "gt": "lt", "eq": "eq", "ne": "ne"}
_ONE = Size.of(1)
Shape = tuple[Size, ...]


@dataclass(frozen=True)
class Positions:
    """Integers base + sum of steps[d] * index[d].

    Attributes:
        shape: sizes; a step of a dimension of size 1 is 0.
        base: the first element.
        steps: by dimension.
        dtype: the word of the element type.
    """

    shape: Shape
    base: Size
    steps: tuple[int, ...]
    dtype: str

    @property
    def constant(self) -> int | None:
        """The number, where all elements are one that is known."""
        return None if any(self.steps) else self.base.constant

    def compact(self, m: GraphModule) -> Value:
        """The tensor, built of counters, of size 1 where all elements along a dimension are one."""
        return _sum(m, self.base, self.steps, self.shape, self.dtype)

    def value(self, m: GraphModule) -> Value:
        """The tensor, built of counters."""
        return _expanded(m, self.compact(m), self.shape)


@dataclass(frozen=True)
class Conditions:
    """Where all of some comparisons hold.

    Attributes:
        shape: sizes.
        parts: (kind, base, steps): base + sum of steps[d] * index[d] compared with 0. All is True without any.
        constant: False where nothing is True, else None unless there are no parts.
    """

    shape: Shape
    parts: tuple[tuple[str, Size, tuple[int, ...]], ...] = ()
    never: bool = False

    @property
    def constant(self) -> bool | None:
        """The condition, where all elements are one that is known."""
        return False if self.never else (None if self.parts else True)

    def compact(self, m: GraphModule) -> Value:
        """The tensor of i1, built of comparisons of counters, of size 1 where it is the same along a dimension."""
        found: Value | None = None
        for kind, base, steps in self.parts:
            left = tuple(max(step, 0) for step in steps)
            right = tuple(max(-step, 0) for step in steps)
            above, below = (base, Size.of(0)) if (base.constant or 0) > 0 else (Size.of(0), -base)
            sides = (_sum(m, above, left, self.shape, "i64"), _sum(m, below, right, self.shape, "i64"))
            own = m.compare(kind, *sides)
            found = own if found is None else m.bitwise_and(found, own)
        if found is None:
            found = m.constant(np.full((1,) * len(self.shape), not self.never))
        return found

    def value(self, m: GraphModule) -> Value:
        """The same, of the whole shape."""
        return _expanded(m, self.compact(m), self.shape)


Known = Positions | Conditions


def _expanded(m: GraphModule, x: Value, shape: Shape) -> Value:
    wanted = words(shape)
    return x if tuple(x.shape) == wanted else m.expand(x, wanted)


def _sum(m: GraphModule, base: Size, steps: Sequence[int], shape: Shape, dtype: str) -> Value:
    """base + sum of steps[d] * index[d], of size 1 where a step is 0."""
    total: Value | None = None
    for dim, step in enumerate(steps):
        if not step:
            continue
        own = [size if at == dim else _ONE for at, size in enumerate(shape)]
        counted = m.cast(m.iota(words(own), dim, "i64"), dtype) if dtype != "i64" else m.iota(words(own), dim, "i64")
        counted = counted if step == 1 else counted * step
        total = counted if total is None else total + counted
    if total is None:
        return first(m, base, len(shape), dtype)
    if base.constant == 0:
        return total
    return total + (base.constant if base.constant is not None else first(m, base, 0, dtype))


def first(m: GraphModule, size: Size, rank: int, dtype: str) -> Value:
    """A size as a number, of so many dimensions of size 1."""
    if size.constant is not None:
        return m.constant(np.full((1,) * rank, size.constant, DTYPES[dtype]))
    total: Value | None = None
    for factors, coefficient in size.terms:
        term: Value | int = coefficient
        for factor in factors:
            own = factor if isinstance(factor, str) else str(factor)
            counted = m.dim(m.iota([own], 0, "i64"), 0, dtype)
            term = counted * term if not isinstance(term, int) or term != 1 else counted
        if isinstance(term, int):
            term = m.constant(np.array(term, DTYPES[dtype]))
        total = term if total is None else total + term
    assert total is not None
    return m.reshape(total, [1] * rank) if rank else total


def words(shape: Sequence[Size]) -> tuple[int | str, ...]:
    """A shape as builders take it."""
    return tuple(str(size) if size.constant is None else size.constant for size in shape)


# -- what operations do ------------------------------------------------------------------------------------------------


def constant(value: int | bool, shape: Shape, dtype: str) -> Known:
    """One number, or one truth, throughout."""
    if dtype == "i1":
        return Conditions(shape, never=not value)
    return Positions(shape, Size.of(int(value)), (0,) * len(shape), dtype)


def counted(start: Size, step: int, length: Size, dtype: str) -> Positions:
    """start, start + step, …"""
    return Positions((length,), start, (0 if length == _ONE else step,), dtype)


def _spread(steps: Sequence[int], rank: int) -> tuple[int, ...]:
    """Steps with new leading dimensions."""
    return (0,) * (rank - len(steps)) + tuple(steps)


def expand(x: Known, shape: Shape) -> Known:
    """Repeated along dimensions of size 1, and new leading ones."""
    if isinstance(x, Positions):
        return replace(x, shape=shape, steps=_spread(x.steps, len(shape)))
    parts = tuple((kind, base, _spread(steps, len(shape))) for kind, base, steps in x.parts)
    return Conditions(shape, parts, x.never)


def placed(x: Known, places: Sequence[int | None], shape: Shape) -> Known:
    """With dimensions elsewhere: result dimension d is dimension places[d] of x, or a new one of size 1."""

    def moved(steps: Sequence[int]) -> tuple[int, ...]:
        return tuple(0 if at is None else steps[at] for at in places)

    if isinstance(x, Positions):
        return replace(x, shape=shape, steps=moved(x.steps))
    return Conditions(shape, tuple((kind, base, moved(steps)) for kind, base, steps in x.parts), x.never)


def taken(x: Known, dim: int, start: Size, step: int, shape: Shape) -> Known:
    """Elements start, start + step, … along a dimension, as many as `shape` has."""

    def of(base: Size, steps: tuple[int, ...]) -> tuple[Size, tuple[int, ...]]:
        own = 0 if shape[dim] == _ONE else steps[dim] * step
        return base + start * steps[dim], (*steps[:dim], own, *steps[dim + 1 :])

    if isinstance(x, Positions):
        base, steps = of(x.base, x.steps)
        return replace(x, shape=shape, base=base, steps=steps)
    return Conditions(shape, tuple((kind, *of(base, steps)) for kind, base, steps in x.parts), x.never)


def joined(parts: Sequence[Known], dim: int, shape: Shape) -> Positions | None:
    """One after the other along a dimension, where each goes on as the one before does; else None."""
    known = [part for part in parts if isinstance(part, Positions)]
    if not known or len(known) < len(parts):
        return None
    longer = next((part for part in known if part.shape[dim] != _ONE), None)
    if longer is not None:
        step: int | None = longer.steps[dim]
    else:
        step = (known[1].base - known[0].base).constant if len(known) > 1 else 0
    at = Size.of(0)
    for part in known:
        goes_on = step is not None and part.base == known[0].base + at * step
        if not goes_on or (part.shape[dim] != _ONE and part.steps[dim] != step):
            return None
        if any(a != b for i, (a, b) in enumerate(zip(part.steps, known[0].steps, strict=True)) if i != dim):
            return None
        at += part.shape[dim]
    assert step is not None
    steps = (*known[0].steps[:dim], step, *known[0].steps[dim + 1 :])
    return Positions(shape, known[0].base, steps, known[0].dtype)


def added(x: Positions, y: Positions, factor: int, shape: Shape, dtype: str) -> Positions:
    """x + factor * y, of what broadcasts to a shape."""
    left, right = _spread(x.steps, len(shape)), _spread(y.steps, len(shape))
    steps = tuple(a + factor * b for a, b in zip(left, right, strict=True))
    return Positions(shape, x.base + y.base * factor, steps, dtype)


def multiplied(x: Positions, y: Positions, shape: Shape, dtype: str) -> Positions | None:
    """x * y, where one of them is a known number."""
    for own, other in ((x, y), (y, x)):
        if (number := other.constant) is not None:
            steps = tuple(step * number for step in _spread(own.steps, len(shape)))
            return Positions(shape, own.base * number, steps, dtype)
    return None


def summed(x: Known, dim: int, shape: Shape) -> Positions | None:
    """The running sum along a dimension, of what is 0 throughout; else None."""
    if (isinstance(x, Conditions) and x.never) or (isinstance(x, Positions) and x.constant == 0):
        return Positions(shape, Size.of(0), (0,) * len(shape), "i64")
    return None


def looked_up(x: Known, indices: Sequence[Positions], shape: Shape) -> Known | None:
    """x at indices that are positions themselves, one for each of its dimensions; None where one may be negative."""
    if any(not is_never_negative(own.base) or min(own.steps, default=0) < 0 for own in indices):
        return None

    def at(base: Size, steps: tuple[int, ...]) -> tuple[Size, tuple[int, ...]]:
        total = [0] * len(shape)
        for step, own in zip(steps, indices, strict=True):
            base += own.base * step
            for dim, inner in enumerate(_spread(own.steps, len(shape))):
                total[dim] += step * inner
        return base, tuple(total)

    if isinstance(x, Positions):
        base, steps = at(x.base, x.steps)
        return Positions(shape, base, steps, x.dtype)
    return Conditions(shape, tuple((kind, *at(base, steps)) for kind, base, steps in x.parts), x.never)


def plain(index: Positions, size: Size) -> int | None:
    """The dimension of the result along which an index counts from 0 up to a size; None where it isn't such."""
    counting = [dim for dim, step in enumerate(index.steps) if step]
    if len(counting) == 1 and index.steps[counting[0]] == 1 and index.base.constant == 0:
        return counting[0] if index.shape[counting[0]] == size else None
    return None


def compared(kind: str, x: Positions, y: Positions, shape: Shape) -> Conditions:
    """A comparison; what holds everywhere, or nowhere, is known to."""
    difference = added(x, y, -1, shape, "i64")
    return _simplified(shape, [(kind, difference.base, difference.steps)])


def both(x: Conditions, y: Conditions, shape: Shape) -> Conditions:
    """Where both hold."""
    own = [*expand(x, shape).parts, *expand(y, shape).parts]  # type: ignore[union-attr]
    return Conditions(shape, never=True) if x.never or y.never else _simplified(shape, own)


def negated(x: Conditions) -> Conditions | None:
    """Where it doesn't hold; None where that is no conjunction."""
    opposite = {"le": "gt", "gt": "le", "lt": "ge", "ge": "lt", "eq": "ne", "ne": "eq"}
    if not x.parts:
        return Conditions(x.shape, never=not x.never)
    if len(x.parts) > 1:
        return None
    ((kind, base, steps),) = x.parts
    return _simplified(x.shape, [(opposite[kind], base, steps)])


def _simplified(shape: Shape, parts: Sequence[tuple[str, Size, tuple[int, ...]]]) -> Conditions:
    kept: list[tuple[str, Size, tuple[int, ...]]] = []
    for part in parts:
        known = _decided(shape, *part)
        if known is False:
            return Conditions(shape, never=True)
        if known is None and part not in kept:
            kept.append(part)
    return Conditions(shape, tuple(kept))


def _decided(shape: Shape, kind: str, base: Size, steps: Sequence[int]) -> bool | None:
    """Whether a comparison holds for each index, or for none; None where neither is seen."""
    low = high = base
    for size, step in zip(shape, steps, strict=True):
        reach = (size - 1) * step  # of an empty tensor nothing is asked
        low, high = (low + reach, high) if step < 0 else (low, high + reach)
    if kind in ("lt", "gt"):  # of integers
        kind, low, high = ("le", low + 1, high + 1) if kind == "lt" else ("ge", low - 1, high - 1)
    at_most, at_least = is_never_negative(-high), is_never_negative(low)
    above, below = is_never_negative(low - 1), is_never_negative(-high - 1)
    match kind:
        case "le":
            return True if at_most else (False if above else None)
        case "ge":
            return True if at_least else (False if below else None)
        case "eq":
            return True if at_most and at_least else (False if above or below else None)
    return False if at_most and at_least else (True if above or below else None)


def is_known(value: object) -> bool:
    """Whether a value is one of these."""
    return isinstance(value, Positions | Conditions)
