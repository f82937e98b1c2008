# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Indexing of values with numpy's syntax: `x[:, 0]`, `x[..., :16]`, `x[None]`, `table[ids]`."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rlx_mlir.hir import place
from rlx_mlir.hir.values import Builders, Value


def index(graph: Builders, x: Value, key: object) -> Value:
    """`x[key]` as primitives: slices are `narrow`, numbers and None reshape, an array of numbers of rows gathers.

    Raises BuildError for what has no fixed length: a negative bound of a symbolic dimension, and steps.
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
        start, length = _bounds(entry, own[axis], axis)
        if length is not None:
            result = graph.narrow(result, axis, start, length)
        if isinstance(entry, slice):
            kept.append(axis)
        axis += 1
    if kept == list(range(len(own))):
        return result
    sizes = result.shape
    shape = [1 if at is None else _size(sizes[at], at, i) for i, at in enumerate(kept)]
    if shape.count(-1) > 1:
        moved = [sizes[at] for i, at in enumerate(kept) if at is not None and shape[i] == -1]
        raise _error(f"one symbolic dimension may move, but {' and '.join(map(repr, moved))} would: reshape in steps")
    return graph.reshape(result, shape)


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


def _bounds(entry: object, size: int | str, axis: int) -> tuple[int, int | None]:
    """(start, length) of what an entry takes of a dimension; None for all of it."""
    where = f"dimension {axis}, of size {size}"
    if isinstance(entry, slice):
        if entry.step not in (None, 1):
            raise _error(f"a slice has step 1, but got {entry.step} for {where}: gather takes any order")
        if isinstance(size, int):
            start, stop, _ = entry.indices(size)
            return start, None if (start, stop) == (0, size) else max(stop - start, 0)
        start = 0 if entry.start is None else entry.start
        if start == 0 and entry.stop is None:
            return 0, None
        if entry.stop is None or start < 0 or entry.stop < 0:
            raise _error(f"a slice of a symbolic dimension has a fixed length, but got {entry} for {where}")
        return start, max(entry.stop - start, 0)
    if isinstance(entry, bool) or not isinstance(entry, int | np.integer):
        raise _error(f"expects numbers, slices, None, an ellipsis, or one array of numbers of rows, but got {entry!r}")
    at = int(entry)
    if isinstance(size, int):
        if not -size <= at < size:
            raise _error(f"{at} is outside of {where}")
        return at % size, 1
    if at < 0:
        raise _error(f"{at} counts from the end of {where}, which isn't known: gather rows at positions of an input")
    return at, 1


def _size(size: int | str, old: int, new: int) -> int:
    """How `reshape` says the size of a dimension that was at `old` and is at `new`."""
    if isinstance(size, int):
        return size
    return -2 if old == new else -1
