# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Values, types and constants of StableHLO, as its generic text has them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rlx_mlir.dtypes import DTYPES
from rlx_mlir.errors import UnsupportedError
from rlx_mlir.mir.dims import Size

#: Elements of a constant that are written as numbers; more are written as bytes.
MOST_LISTED = 32


#: A size: a number, or what is made of symbols.
Dim = int | Size


def numbers_of(shape: Sequence[Dim]) -> tuple[int, ...]:
    """The sizes of a shape, which have to be numbers: UnsupportedError where one is symbolic."""
    found = tuple(size for size in shape if not isinstance(size, Size))
    if len(found) < len(shape):
        raise UnsupportedError(f"sizes have to be numbers here, but are {', '.join(map(str, shape))}")
    return found


@dataclass(frozen=True)
class Tensor:
    """A value of the text.

    Attributes:
        name: such as `%3`, or `%4#1`.
        shape: its sizes.
        word: of its element type.
    """

    name: str
    shape: tuple[Dim, ...]
    word: str

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Its sizes, which have to be numbers: UnsupportedError where one is symbolic."""
        return numbers_of(self.shape)

    @property
    def type(self) -> str:
        """Its type."""
        return type_of(self.shape, self.word)

    @property
    def dtype(self) -> np.dtype:
        """Its element type, as numpy's."""
        return DTYPES[self.word]

    @property
    def is_float(self) -> bool:
        """Whether its elements are floats."""
        return self.word.startswith(("f", "bf"))


def plain(size: Dim) -> Dim:
    """A size as a number where no symbol is left in it."""
    known = size.constant if isinstance(size, Size) else size
    return size if known is None else known


def is_static(shape: Sequence[Dim]) -> bool:
    """Whether each size is a number."""
    return not any(isinstance(size, Size) for size in shape)


def type_of(shape: Sequence[Dim], word: str) -> str:
    """The type of a tensor; `?` for sizes of symbols."""
    return f"tensor<{''.join('?x' if isinstance(size, Size) else f'{size}x' for size in shape)}{word}>"


def elements(array: np.ndarray, word: str) -> str:
    """The elements of a constant: numbers, or bytes of many."""
    if array.size and (array.reshape(-1) == array.reshape(-1)[0]).all() and not _has_signs(array):
        return f"dense<{_number(array.reshape(-1)[0], word)}>"
    if array.size <= MOST_LISTED or word == "i1":
        return f"dense<{_listed(array, word)}>"
    return f'dense<"0x{np.ascontiguousarray(array).tobytes().hex().upper()}">'


def _has_signs(array: np.ndarray) -> bool:
    """Whether there are zeros of both signs, which are equal."""
    if array.dtype.kind in "iub":
        return False
    negative = np.signbit(array.astype(np.float64))
    return bool(negative.any() and not negative.all())


def _listed(array: np.ndarray, word: str) -> str:
    if not array.ndim:
        return _number(array[()], word)
    return "[" + ", ".join(_listed(row, word) for row in array) + "]" if array.size else ""


def _number(value: object, word: str) -> str:
    if word == "i1":
        return "true" if value else "false"
    if word[0] in "iu":
        return str(int(value))  # type: ignore[call-overload]
    number = float(value)  # type: ignore[arg-type]
    if math.isfinite(number):
        return f"{number:.17e}"
    bits = np.asarray(value, DTYPES[word])
    unsigned = bits.reshape(1).view(np.dtype(f"uint{bits.itemsize * 8}"))[0]
    return f"0x{int(unsigned):0{bits.itemsize * 2}X}"
