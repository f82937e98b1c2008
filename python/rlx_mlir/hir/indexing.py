# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Indexing of values with numpy's syntax: `x[:, 0]`, `x[..., :16]`, `x[None]`, `table[ids]`."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rlx_mlir import ir
from rlx_mlir.attributes import elements_array
from rlx_mlir.hir import place
from rlx_mlir.hir.sizes import UNKNOWN_LENGTH, as_size
from rlx_mlir.hir.values import Builders, Value
from rlx_mlir.mir.dims import Size
from rlx_mlir.mir.shape import slice_sizes


def index(graph: Builders, x: Value, key: object) -> Value:
    """`x[key]` as primitives: slices are `narrow`, `slice` or `dynamic_slice`, numbers and None reshape, an array of
    numbers gathers.

    Raises BuildError for entries of another kind, and for numbers outside of a dimension.
    """
    if isinstance(key, Value | np.ndarray):
        return graph.gather(x, key)
    own = x.shape
    entries = list(_expanded(key if isinstance(key, tuple) else (key,), len(own)))
    result = x
    kept: list[int | None] = []  # dimensions of `x` that stay, and None for new ones
    axis = 0
    for entry in entries:
        if entry is None:
            kept.append(None)
            continue
        result = _taken(graph, result, entry, own[axis], axis)
        if isinstance(entry, slice):
            kept.append(axis)
        axis += 1
    if kept == list(range(len(own))):
        return result
    sizes = result.shape
    shape = [1 if at is None else _size(sizes[at], at, i) for i, at in enumerate(kept)]
    return graph.reshape(result, shape) if shape.count(-1) <= 1 else _moved(graph, result, kept)


def _moved(graph: Builders, x: Value, kept: list[int | None]) -> Value:
    """The dimensions that stay, and new ones for None, where several symbolic ones move.

    `reshape` keeps any number of sizes where they are: dimensions that go are moved to the end before, and new ones
    come from there.
    """
    stay = [at for at in kept if at is not None]
    gone = [at for at in range(len(x.shape)) if at not in stay]
    new = [i for i, at in enumerate(kept) if at is None]
    result = graph.transpose(x, [*stay, *gone]) if gone else x
    result = graph.reshape(result, [-2] * len(stay) + [1] * len(new))
    places = iter(range(len(stay))), iter(range(len(stay), len(kept)))
    return graph.transpose(result, [next(places[at is None]) for at in kept]) if new else result


def _error(message: str) -> Exception:
    return place.caller().error(f"index: {message}")


def _expanded(key: tuple[object, ...], rank: int) -> Iterator[object]:
    """The entries, one for each dimension beside the Nones; what is left out is taken whole."""
    given = sum(entry is not None and entry is not Ellipsis for entry in key)
    ellipses = sum(entry is Ellipsis for entry in key)
    if given > rank or ellipses > 1:
        raise _error(f"expects at most {rank} entries and one ellipsis, but got {given} and {ellipses}")
    whole = [slice(None)] * (rank - given)
    for entry in key if ellipses else (*key, Ellipsis):
        yield from whole if entry is Ellipsis else (entry,)


def _taken(graph: Builders, x: Value, entry: object, size: int | str, axis: int) -> Value:
    """What an entry takes of a dimension, which stays."""
    if isinstance(entry, slice):
        return _sliced(graph, x, entry, size, axis)
    if isinstance(entry, Value):
        if entry.ndim:
            raise _error(f"beside other entries expects a value without dimensions, but got {entry!r}: use 'gather'")
        return graph.dynamic_slice(x, entry, 1, axis)
    if isinstance(entry, Size):  # positions that aren't there leave no element, which is refused
        return graph.slice(x, axis, entry, entry + 1, length=1)
    where = f"dimension {axis}, of size {size}"
    if isinstance(entry, bool) or not isinstance(entry, int | np.integer):
        raise _error(
            f"expects numbers, sizes, slices, None, an ellipsis, or one array of numbers of rows, but got {entry!r}"
        )
    number = int(entry)
    if isinstance(size, int):
        if not -size <= number < size:
            raise _error(f"{number} is outside of {where}")
        return graph.narrow(x, axis, number % size, 1)
    if number < 0:
        return graph.slice(x, axis, number, number + 1 or None, length=1)
    return graph.narrow(x, axis, number, 1)


def _sliced(graph: Builders, x: Value, entry: slice, size: int | str, axis: int) -> Value:
    if isinstance(entry.start, Value) or isinstance(entry.stop, Value):
        return _from_value(graph, x, entry, axis)
    is_size = any(isinstance(part, str | Size) for part in (entry.start, entry.stop))
    parts = [part for part in (entry.start, entry.stop, entry.step) if not isinstance(part, str | Size)]
    if any(part is not None and not isinstance(part, int | np.integer) for part in parts) or entry.step == 0:
        raise _error(f"a slice has numbers or sizes, and a step that isn't 0, but got {entry} for dimension {axis}")
    step = None if entry.step is None else int(entry.step)
    if is_size:
        return _between_sizes(graph, x, entry, size, axis)
    start, stop = (None if part is None else int(part) for part in (entry.start, entry.stop))
    if step not in (None, 1):
        return graph.slice(x, axis, start, stop, step)
    if isinstance(size, int):
        begin, end, _ = entry.indices(size)
        return x if (begin, end) == (0, size) else graph.narrow(x, axis, begin, max(end - begin, 0))
    if not start and stop is None:
        return x
    if stop is None or stop < 0 or (start or 0) < 0:
        return graph.slice(x, axis, start, stop)
    return graph.narrow(x, axis, start or 0, max(stop - (start or 0), 0))


def _between_sizes(graph: Builders, x: Value, entry: slice, size: int | str, axis: int) -> Value:
    """A slice with bounds that are sizes; where it has a known number of elements, that is in its type."""
    start, stop = (None if part is None else as_size("index", part, "a bound") for part in (entry.start, entry.stop))
    step = 1 if entry.step is None else int(entry.step)
    if size == "?":
        return graph.slice(x, axis, start, stop, step)
    own = Size.parse(size) if isinstance(size, str) else Size.of(size)
    _, count = slice_sizes(own, start, stop, step)
    if count == own and step == 1:
        return x
    return graph.slice(x, axis, start, stop, step, length=count.constant)


def _from_value(graph: Builders, x: Value, entry: slice, axis: int) -> Value:
    """A slice from a value on, whose length can be seen: its bounds are one value and a number, or its sum with one."""
    if entry.step not in (None, 1) or not isinstance(entry.start, Value) or not isinstance(entry.stop, Value):
        raise _error(UNKNOWN_LENGTH)
    (base, first), (other, last) = (_sum(bound._resolve()) for bound in (entry.start, entry.stop))
    if base != other:
        raise _error(UNKNOWN_LENGTH)
    return graph.dynamic_slice(x, entry.start, max(last - first, 0), axis)


def _sum(handle: ir.Value) -> tuple[ir.Value, int]:
    """A value as another one and a number that is added to it."""
    total = 0
    while not isinstance(handle.owner, ir.Block) and handle.owner.name in ("mir.add", "mir.sub"):
        lhs, rhs = handle.owner.operands
        if handle.owner.name == "mir.add" and _number(rhs) is None:
            lhs, rhs = rhs, lhs
        number = _number(rhs)
        if number is None:
            break
        handle, total = lhs, total + (number if handle.owner.name == "mir.add" else -number)
    return handle, total


def _number(handle: ir.Value) -> int | None:
    """The number that a value is; None where it isn't an integer constant without dimensions."""
    if isinstance(handle.owner, ir.Block) or not handle.owner.name.endswith(".constant"):
        return None
    kind = ir.RankedTensorType(handle.type)
    if kind.rank or not isinstance(kind.element_type, ir.IntegerType):
        return None
    return int(elements_array(handle.owner.attributes["value"]).item())


def _size(size: int | str, old: int, new: int) -> int:
    """How `reshape` says the size of a dimension that was at `old` and is at `new`."""
    if isinstance(size, int):
        return size
    return -2 if old == new else -1
