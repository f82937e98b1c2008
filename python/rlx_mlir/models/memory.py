# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a sequence keeps, in the host's memory or in that of a GPU: copies of it, which stay where it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeGuard

import numpy as np

from ..runtime.description import RunArray

if TYPE_CHECKING:
    from ..runtime.device import DeviceArray


def is_on_gpu(array: RunArray) -> TypeGuard[DeviceArray]:
    """Whether an array is in a GPU's memory."""
    return not isinstance(array, np.ndarray)


def copied(array: RunArray) -> RunArray:
    """Another array with the same elements, in the same memory."""
    if not is_on_gpu(array):
        return np.array(array)
    copy = type(array).empty(array.shape, array.dtype, device=array.device, what="a copy of a sequence's states")
    copy.write(array)
    return copy


def write(target: RunArray, source: RunArray) -> None:
    """Gives an array the elements of another one of its shape and type, from either memory."""
    if is_on_gpu(target):
        target.write(source)
    else:
        target[...] = source


def clear(array: RunArray) -> None:
    """Sets all elements to zero."""
    if is_on_gpu(array):
        array.clear()
    else:
        array.fill(0)


def first_rows(cache: RunArray, count: int) -> np.ndarray:
    """The first rows of the first sequence of a cache [sequences, positions, width], [count, width] on the host: a view
    where it is there."""
    if not is_on_gpu(cache):
        return np.asarray(cache[0, :count])
    return cache.part(0, count * cache.shape[2]).numpy().reshape(count, cache.shape[2])


def copy_first_rows(source: RunArray, target: RunArray, count: int) -> None:
    """Copies these rows of one sequence to another cache in the same memory."""
    if not is_on_gpu(source) or not is_on_gpu(target):
        target[0, :count] = source[0, :count]
    else:
        size = count * source.shape[2]
        target.part(0, size).write(source.part(0, size))


def copy_rows(
    parts: Sequence[Mapping[str, np.ndarray]], caches: Mapping[str, RunArray], row: int, start: int, stop: int
) -> None:
    """Copies keys and values of positions start .. stop - 1 into a row of caches [rows, context, width].

    Args:
        parts: of positions 0, 1, ..., [some, width] by name, which follow each other; on the host.
    """
    at = 0
    for part in parts:
        count = len(next(iter(part.values()), ()))
        low, high = max(start - at, 0), min(stop - at, count)
        if low < high:
            for name, rows in part.items():
                _write_rows(caches[name], row, at + low, rows[low:high])
        at += count


def _write_rows(cache: RunArray, row: int, begin: int, rows: np.ndarray) -> None:
    if not is_on_gpu(cache):
        cache[row, begin : begin + len(rows)] = rows
        return
    _, positions, width = cache.shape
    at = (row * positions + begin) * width
    cache.part(at, at + rows.size).write(np.ascontiguousarray(rows).reshape(-1))


__all__ = ["clear", "copied", "copy_first_rows", "copy_rows", "first_rows", "is_on_gpu", "write"]
