# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Matrices that are quantised some rows at a time, by several threads: no more than these are in memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt

from .blocks import Bytes
from .descriptions import BlockFormat
from .encoder import encode

_PIECE = 1 << 20
"""Elements that a thread quantises at a time."""


def encoded_pieces(
    format: str | int | BlockFormat,
    read: Callable[[int, int], npt.NDArray[np.float32]],
    rows: int,
    k: int,
    *,
    weights: npt.NDArray[np.float32] | None = None,
    threads: int | None = None,
) -> Iterator[Bytes]:
    """The rows of a matrix in a format, uint8 [some rows, bytes of a row], in order; those of `encode`, whose errors
    these are, with rows counted from the piece's first one.

    Args:
        format: as `encode` takes it.
        read: gives the rows from one on up to another, f32 [rows, k].
        rows, k: of the matrix.
        weights: as `encode` takes them.
        threads: that quantise; as many as the process may use by default.
    """
    count = len(os.sched_getaffinity(0)) if threads is None else threads
    step = max(1, _PIECE // k)

    def piece(start: int) -> Bytes:
        return encode(format, read(start, min(start + step, rows)), weights=weights)

    if count == 1:
        yield from map(piece, range(0, rows, step))
        return
    with ThreadPoolExecutor(count) as pool:
        for start in range(0, rows, step * count):
            yield from pool.map(piece, range(start, min(start + step * count, rows), step))


__all__ = ["encoded_pieces"]
