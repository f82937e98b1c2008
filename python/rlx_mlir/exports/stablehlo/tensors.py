# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Values, types and constants of StableHLO, as its generic text has them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rlx_mlir.dtypes import DTYPES

#: Elements of a constant that are written as numbers; more are written as bytes.
MOST_LISTED = 32


@dataclass(frozen=True)
class Tensor:
    """A value of the text.

    Attributes:
        name: such as `%3`, or `%4#1`.
        shape: its sizes.
        word: of its element type.
    """

    name: str
    shape: tuple[int, ...]
    word: str

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

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


def type_of(shape: Sequence[int], word: str) -> str:
    """The type of a tensor."""
    return f"tensor<{''.join(f'{size}x' for size in shape)}{word}>"


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
