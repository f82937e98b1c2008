# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Finding weights that aren't numbers: scales and minima of blocks, and elements of dense formats, that are NaN or inf.

Exponents of nothing but ones are looked for in the bytes as they are stored; nothing is decoded.
"""

from __future__ import annotations

from collections.abc import Iterator

import ml_dtypes
import numpy as np
import numpy.typing as npt

from .blocks import CHUNK, BlockFormat, Bytes, checked_rows, get_format

_EXPONENTS: dict[np.dtype[np.generic], int] = {
    np.dtype("<f2"): 0x7C00,
    np.dtype(ml_dtypes.bfloat16): 0x7F80,
    np.dtype("<f4"): 0x7F800000,
    np.dtype("<f8"): 0x7FF0000000000000,
}
_Words = npt.NDArray[np.unsignedinteger]


def _floats(fmt: BlockFormat, rows: Bytes) -> Iterator[tuple[_Words, int]]:
    """Views of the floats of rows as unsigned integers [rows, blocks], and the mask of their exponents."""
    if fmt.dense is not None:
        if fmt.dense in _EXPONENTS:
            yield rows.view(f"<u{fmt.nbytes}"), _EXPONENTS[fmt.dense]
        return
    for field in fmt.fields:
        dtype = np.dtype(field.dtype)
        if dtype in _EXPONENTS:
            shape = (rows.shape[0], rows.shape[1] // fmt.nbytes, field.count)
            strides = (rows.strides[0], fmt.nbytes, dtype.itemsize)
            words = np.ndarray(shape, f"<u{dtype.itemsize}", rows, field.offset, strides)
            for number in range(field.count):
                yield words[..., number], _EXPONENTS[dtype]


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

    Their floats become 0, which all elements of a block are multiplied by.
    """
    fmt = get_format(format)
    copy = np.ascontiguousarray(data).copy()
    rows = checked_rows(fmt, copy, k)
    broken = _broken(fmt, rows)
    for words, _ in _floats(fmt, rows):
        words[broken] = 0
    return copy


def _broken(fmt: BlockFormat, rows: Bytes) -> npt.NDArray[np.bool_]:
    """Which blocks have NaN or inf, [rows, blocks]."""
    found = np.zeros((rows.shape[0], rows.shape[1] // fmt.nbytes), np.bool_)
    for words, mask in _floats(fmt, rows):
        found |= (words & mask) == mask
    return found


__all__ = ["count_broken", "first_broken", "without_broken"]
