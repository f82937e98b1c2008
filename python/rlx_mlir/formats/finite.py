# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Finding weights that aren't numbers: scales and minima of blocks, and elements of dense formats, that are NaN or inf.

Exponents of nothing but ones are looked for in the bytes as they are stored; nothing is decoded.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from ..dtypes import DTYPES
from .blocks import CHUNK, Bytes, checked_rows, get_format, stored_floats
from .descriptions import BlockFormat

_EXPONENTS = {"<f2": 0x7C00, "<f4": 0x7F800000, "<f8": 0x7FF0000000000000, "e8m0": 0xFF}
"""Of the types that have numbers that aren't finite; 0xFF is none as an exponent alone."""
_Words = npt.NDArray[np.unsignedinteger]


def _floats(fmt: BlockFormat, rows: Bytes) -> Iterator[tuple[_Words, int]]:
    """The floats of rows as unsigned integers [rows, blocks], and the mask of their exponents."""
    if fmt.is_dense:
        mask = 0x7F80 if fmt.element == "bf16" else _EXPONENTS.get(DTYPES[fmt.element].str)
        if mask is not None:
            yield rows.view(f"<u{fmt.nbytes}"), mask
        return
    for part in fmt.factors:
        mask = _EXPONENTS.get("<f2" if part.word else fmt.field(part.field).dtype)
        if mask is not None:
            raw = np.ascontiguousarray(stored_floats(fmt, rows, part))
            yield raw.view(f"<u{raw.shape[-1]}")[..., 0, 0], mask


def first_broken(format: str | int | BlockFormat, data: np.ndarray, k: int) -> tuple[int, int] | None:
    """The first row that has NaN or inf, and its first such block (element of a dense format); None for none.

    Args:
        format: the format, its name or its GGUF type number.
        data: uint8 ``[rows, rowbytes]``; dense formats also take their elements, ``[rows, k]``.
        k: elements in a row.
    """
    fmt = get_format(format)
    rows = checked_rows(fmt, data, k)
    step = max(1, CHUNK // (k // fmt.block))
    for start in range(0, rows.shape[0], step):
        part = rows[start : start + step]
        if any(int((words & mask).max()) == mask for words, mask in _floats(fmt, part)):
            row, block = np.argwhere(_broken(fmt, part))[0]
            return start + int(row), int(block)
    return None


def count_broken(format: str | int | BlockFormat, data: np.ndarray, k: int) -> int:
    """Blocks (elements of a dense format) that have NaN or inf; arguments as for `first_broken`."""
    fmt = get_format(format)
    rows = checked_rows(fmt, data, k)
    step = max(1, CHUNK // (k // fmt.block))
    return sum(int(_broken(fmt, rows[start : start + step]).sum()) for start in range(0, rows.shape[0], step))


def without_broken(format: str | int | BlockFormat, data: np.ndarray, k: int) -> np.ndarray:
    """A copy in which blocks (elements of a dense format) with NaN or inf are 0; arguments as for `first_broken`.

    All their bytes become 0: scales, or where no scale can be 0 the codes, which then stand for 0.
    """
    fmt = get_format(format)
    copy = np.ascontiguousarray(data).copy()
    rows = checked_rows(fmt, copy, k)
    rows.reshape(rows.shape[0], -1, fmt.nbytes)[_broken(fmt, rows)] = 0
    return copy


def _broken(fmt: BlockFormat, rows: Bytes) -> npt.NDArray[np.bool_]:
    """Which blocks have NaN or inf, [rows, blocks]."""
    found = np.zeros((rows.shape[0], rows.shape[1] // fmt.nbytes), np.bool_)
    for words, mask in _floats(fmt, rows):
        found |= (words & mask) == mask
    return found


__all__ = ["count_broken", "first_broken", "without_broken"]
