# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What is known of values while a file is read.

A tensor's elements are numbers that are known (constants, weights), sizes that follow from symbols (what `Shape` gives,
and what is computed of that), or only there when the graph runs. The first two are arrays: of numbers, or of `Size`
objects. Shapes of results are computed of these, so that exported models need no arithmetic on shapes at run time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rlx_mlir.hir import Value
from rlx_mlir.mir.dims import Size

#: Elements that what is computed while a file is read has at most; beyond, it is computed in `@prepare` or by calls.
MOST_FOLDED = 1 << 16

_INT64 = np.dtype(np.int64)


@dataclass(frozen=True, eq=False)
class Tensor:
    """A tensor of a file's graph.

    Attributes:
        dtype: its element type; int64 for sizes, or what they were cast to.
        array: its elements where they are known: numbers, or `Size` objects in an array of objects.
        handle: the value of the graph otherwise.
        name: of the initialiser that it is; becomes the name of a parameter.
    """

    dtype: np.dtype
    array: np.ndarray | None = None
    handle: Value | None = None
    name: str = ""

    @staticmethod
    def of(array: np.ndarray, dtype: np.dtype | None = None, name: str = "") -> Tensor:
        """A tensor of known elements; sizes that are numbers become these."""
        if array.dtype == object:
            array = array.copy()
            flat = array.reshape(-1)
            for i, entry in enumerate(flat):
                flat[i] = Size.of(entry if isinstance(entry, Size) else int(entry))
            array = flat.reshape(array.shape)
            wanted = _INT64 if dtype is None else dtype
            if all(size.constant is not None for size in flat):
                array = np.array([size.constant for size in flat], np.int64).astype(wanted).reshape(array.shape)
            return Tensor(wanted, array, name=name)
        return Tensor(array.dtype, array, name=name)

    @staticmethod
    def running(value: Value) -> Tensor:
        """A tensor that is there when the graph runs."""
        return Tensor(value.dtype, handle=value)

    @property
    def is_known(self) -> bool:
        """Whether the elements are numbers or sizes."""
        return self.array is not None

    @property
    def numbers(self) -> np.ndarray | None:
        """The elements where they are numbers; None for sizes, and for what is only there at run time."""
        return None if self.array is None or self.array.dtype == object else self.array

    @property
    def shape(self) -> tuple[Size, ...]:
        """The sizes of its dimensions."""
        if self.array is not None:
            return tuple(Size.of(size) for size in self.array.shape)
        assert self.handle is not None
        return tuple(Size.of(size) if isinstance(size, int) else Size.parse(size) for size in self.handle.shape)

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return self.array.ndim if self.array is not None else len(self.shape)


@dataclass(frozen=True, eq=False)
class Several:
    """A sequence of tensors whose length is known, or an optional one: of none, or of one."""

    items: tuple[Tensor, ...]
    optional: bool = False


#: What a name of a file's graph stands for.
Thing = Tensor | Several


def sizes_of(array: np.ndarray) -> list[Size]:
    """The elements of a known tensor as sizes, in row-major order."""
    return [entry if isinstance(entry, Size) else Size.of(int(entry)) for entry in array.reshape(-1)]


def plain(sizes: Sequence[Size]) -> list[int | Size]:
    """Sizes as builders take them: numbers where they are known."""
    return [size if size.constant is None else size.constant for size in sizes]


def array_of_sizes(sizes: Sequence[Size]) -> np.ndarray:
    """Sizes as a one-dimensional array of objects."""
    array = np.empty(len(sizes), object)
    array[:] = list(sizes)
    return array
