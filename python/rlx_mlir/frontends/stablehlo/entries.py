# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What values of StableHLO stand for while a module is read.

StableHLO repeats every operand to the shape of the result, and computes shapes and masks by operations as any other. So
an entry is one of: a value of the graph; a value that is repeated to a shape, which is done where somebody needs it, as
ours broadcast; a tensor of integers or conditions that are known, numbers or sizes; positions, and conditions on them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rlx_mlir.dtypes import DTYPES
from rlx_mlir.frontends import positions
from rlx_mlir.frontends.positions import Conditions, Positions
from rlx_mlir.frontends.tensors import MOST_FOLDED, Tensor, array_of_sizes
from rlx_mlir.hir import Value
from rlx_mlir.mir.dims import Size
from rlx_mlir.mir.elementwise import COMPARISONS

_WORDS = {dtype: name for name, dtype in DTYPES.items()}


@dataclass(frozen=True, eq=False)
class Repeated:
    """A value that is repeated to a shape, as numpy broadcasts.

    Attributes:
        value: of at most as many dimensions; each of its sizes is 1, or that of the shape.
        shape: that it stands for.
    """

    value: Value
    shape: tuple[Size, ...]


Entry = Value | Repeated | Tensor | Positions | Conditions
#: Entries whose elements are known.
Known = Tensor | Positions | Conditions


def shape_of(entry: Entry) -> tuple[Size, ...]:
    """The sizes of what an entry stands for."""
    if isinstance(entry, Value):
        return tuple(Size.of(size) if isinstance(size, int) else Size.parse(size) for size in entry.shape)
    return entry.shape


def dtype_of(entry: Entry) -> np.dtype:
    """The element type of what an entry stands for."""
    if isinstance(entry, Repeated):
        return entry.value.dtype
    if isinstance(entry, Positions):
        return DTYPES[entry.dtype]
    return np.dtype(np.bool_) if isinstance(entry, Conditions) else entry.dtype


def is_known(entry: Entry) -> bool:
    """Whether the elements are known."""
    return isinstance(entry, Known)


def as_positions(entry: Entry) -> Positions | None:
    """Integers of 32 or 64 bits that follow from positions; None where they don't."""
    if isinstance(entry, Positions):
        return entry
    if not isinstance(entry, Tensor) or entry.array is None or entry.dtype not in (np.int32, np.int64):
        return None
    array, shape = entry.array, entry.shape
    word = _WORDS[entry.dtype]
    if not array.size or not all(Size.of(own) == Size.of(array.flat[0]) for own in _plain(array)):
        return None
    return Positions(shape, Size.of(_plain(array)[0]), (0,) * len(shape), word)


def as_conditions(entry: Entry) -> Conditions | None:
    """Conditions that follow from positions; None where they don't."""
    if isinstance(entry, Conditions):
        return entry
    if isinstance(entry, Tensor) and entry.numbers is not None and entry.dtype == np.bool_ and entry.numbers.size:
        first = bool(entry.numbers.flat[0])
        if (entry.numbers == first).all():
            return Conditions(entry.shape, never=not first)
    return None


def _plain(array: np.ndarray) -> list[Size | int]:
    """The elements as sizes, or as numbers of Python."""
    return [entry if isinstance(entry, Size) else int(entry) for entry in array.reshape(-1)]


def as_array(entry: Entry, most: int = MOST_FOLDED) -> np.ndarray | None:
    """The elements, numbers or sizes; None where they aren't known, or are too many.

    Args:
        most: so many may be made of positions.
    """
    if isinstance(entry, Tensor):
        return entry.array
    if not isinstance(entry, Positions | Conditions):
        return None
    shape = [size.constant for size in entry.shape]
    if any(size is None for size in shape) or math.prod(size or 0 for size in shape) > most:
        return None
    sizes = [size or 0 for size in shape]
    if isinstance(entry, Conditions):
        return _conditions(entry, sizes)
    offsets = _offsets(entry.steps, sizes)
    if entry.base.constant is not None:
        return (offsets + entry.base.constant).astype(DTYPES[entry.dtype])
    return array_of_sizes([entry.base + int(own) for own in offsets.reshape(-1)]).reshape(sizes)


def _offsets(steps: Sequence[int], sizes: Sequence[int]) -> np.ndarray:
    total = np.zeros(list(sizes), np.int64)
    for axis, (step, size) in enumerate(zip(steps, sizes, strict=True)):
        own = [1] * len(sizes)
        own[axis] = size
        total = total + step * np.arange(size).reshape(own)
    return total


def _conditions(entry: Conditions, sizes: Sequence[int]) -> np.ndarray | None:
    if entry.never:
        return np.zeros(list(sizes), np.bool_)
    found = np.ones(list(sizes), np.bool_)
    for kind, base, steps in entry.parts:
        if base.constant is None:
            return None
        found &= COMPARISONS[kind](_offsets(steps, sizes) + base.constant, 0)
    return found


def as_sizes(entry: Entry) -> list[Size] | None:
    """The elements as sizes, in row-major order; None where they aren't known integers."""
    array = as_array(entry)
    if array is None or (array.dtype != object and array.dtype.kind not in "iu"):
        return None
    return [Size.of(own) for own in _plain(array)]


def of_array(array: np.ndarray, dtype: np.dtype | None = None) -> Known:
    """Known elements as an entry: one number throughout, of more than 16 elements, as positions."""
    tensor = Tensor.of(array, dtype)
    if tensor.array is not None and tensor.array.size > 16:
        found = as_positions(tensor) or as_conditions(tensor)
        if found is not None:
            return found
    return tensor


def splat(value: int | bool, shape: Sequence[Size], dtype: np.dtype) -> Known | None:
    """One integer or condition throughout; None for integers of other than 32 and 64 bits."""
    if dtype == np.bool_ or dtype in (np.int32, np.int64):
        return positions.constant(value, tuple(shape), _WORDS[dtype])
    return None
