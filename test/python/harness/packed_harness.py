# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rows of packed weights for tests, of every format: encoded where there is a quantiser, else of random bits."""

from __future__ import annotations

import numpy as np

from rlx_mlir import formats
from rlx_mlir.formats.blocks import insert_floats
from rlx_mlir.formats.descriptions import BYTE_FLOATS


def set_scales(scheme: str, rows: np.ndarray, values: np.ndarray | float) -> None:
    """Sets all scales and minima of blocks [rows, blocks, floats], in place; those of one byte to the nearest."""
    fmt = formats.get_format(scheme)
    blocks = rows.reshape(rows.shape[0], -1, fmt.nbytes)
    for part in fmt.factors:
        dtype = "<f2" if part.word else fmt.field(part.field).dtype
        wanted = np.broadcast_to(values, (*blocks.shape[:2], fmt.floats_of(part))).astype(np.float32)
        if dtype in BYTE_FLOATS:
            table = BYTE_FLOATS[dtype][:127]  # ascending, and finite
            stored = np.abs(table - np.abs(wanted)[..., None]).argmin(axis=-1).astype(np.uint8)[..., None]
        else:
            stored = np.ascontiguousarray(wanted.astype(dtype))[..., None].view(np.uint8)
        for plane in part.word:
            offset = fmt.field(plane.field).offset
            blocks[..., offset + plane.byte0] &= 255 - (((1 << plane.bits) - 1) << plane.shift0)
        insert_floats(fmt, rows, part, stored)


def random_rows(scheme: str, n: int, k: int, seed: int = 11, size: float = 1.0) -> np.ndarray:
    """Random bits, but for scales, which make the largest numbers about `size`."""
    fmt = formats.get_format(scheme)
    rng = np.random.default_rng([seed, n, k])
    rows = rng.integers(0, 256, (n, fmt.row_bytes(k)), np.uint8)
    assert fmt.scale is not None
    most = fmt.unit * float(np.abs(fmt.numbers).max()) * max(map(abs, fmt.scale.range))
    set_scales(scheme, rows, rng.uniform(0.3, 1.0, (n, k // fmt.block, 1)) * (size / most))
    return rows


def encoded(scheme: str, values: np.ndarray) -> np.ndarray:
    """Rows of a packed weight; of formats that nothing encodes random ones, of the values' size."""
    if formats.get_format(scheme).encodable:
        return formats.encode(scheme, values)
    return random_rows(scheme, *values.shape, size=float(np.abs(values).max(initial=0)) or 1.0)
