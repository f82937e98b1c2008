# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Quantisers, for tests and tools: each block on its own, by one rule for each kind of format.

Blocks without sub-blocks are rounded as the public encoders round them. With sub-blocks (K-quants) each sub-block first
gets the scale and minimum that it would have alone,

    scale = (max - low) / (2^bits - 1), minimum = -low, low = min(min, 0)      where the format has minima, else
    scale = x / -offset, x the element of the largest magnitude,

then d and dmin are the largest of them in the block divided by the largest integer and rounded to f16, S and M are the
scales and minima divided by d and dmin and rounded, and q are the elements rounded with what S, M, d and dmin give. All
rounding is to nearest even and saturates. What is too small for f16 scales becomes 0.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..errors import InputError, UnsupportedError
from .blocks import BlockFormat, Bytes, Scaled, field_bytes, get_format, insert_integers

Floats = npt.NDArray[np.float32]


def encode(format: str | int | BlockFormat, values: np.ndarray) -> Bytes:
    """Quantises f32 ``[rows, k]`` to uint8 ``[rows, rowbytes]``; the module says how.

    Raises UnsupportedError for formats without quantiser: those but f32, f16, bf16 and blocks with f16 scales. Raises
    InputError where a quantised format is given NaN or infinity, or a value that makes a scale exceed f16.
    """
    fmt = get_format(format)
    if not fmt.is_weight:
        raise UnsupportedError(f"encoding to {fmt.name} is not implemented")
    if values.ndim != 2:
        raise InputError(f"'values' must be [rows, k], but has {values.ndim} dimensions")
    count, k = values.shape
    out = np.zeros((count, fmt.row_bytes(k)), np.uint8)
    if fmt.dense is not None:
        out[:] = values.astype(fmt.dense).view(np.uint8).reshape(out.shape)
        return out
    x = values.astype(np.float32)
    if not np.isfinite(x).all():
        row, column = np.argwhere(~np.isfinite(x))[0]
        raise InputError(f"{fmt.name} holds finite values, but values[{row}, {column}] is {values[row, column]}")
    blocks = x.reshape(count, -1, fmt.block)
    q = _simple(fmt, blocks, out) if fmt.sub == fmt.block else _nested(fmt, blocks, out)
    insert_integers(fmt, out, fmt.quants, q)
    return out


def _store_half(fmt: BlockFormat, out: Bytes, name: str, number: Floats, blocks: Floats) -> Floats:
    """Stores ``number`` [rows, blocks, 1] in a field and returns it rounded to f16."""
    with np.errstate(over="ignore"):
        half = number.astype("<f2")
    if not np.isfinite(half).all():
        row, block, _ = np.argwhere(~np.isfinite(half))[0]
        column = int(block) * fmt.block + int(np.abs(blocks[row, block]).argmax())
        value = blocks.reshape(blocks.shape[0], -1)[row, column]
        raise InputError(f"{fmt.name} has f16 scales, for which values[{row}, {column}], {value}, is too large")
    field_bytes(fmt, out, name)[:] = half.view(np.uint8)
    return half.astype(np.float32)


def _quotient(x: Floats, divisor: Floats) -> Floats:
    """x / divisor, or 0 where the divisor is 0 or subnormal, as then it is 0 in f16."""
    shape = np.broadcast_shapes(x.shape, divisor.shape)
    exists = np.broadcast_to(np.abs(divisor) >= np.finfo(np.float32).tiny, shape)
    return np.divide(x, divisor, out=np.zeros(shape, np.float32), where=exists)


def _largest(x: Floats) -> Floats:
    """The element of the largest magnitude along the last axis, which stays with size 1."""
    return np.take_along_axis(x, np.abs(x).argmax(axis=-1, keepdims=True), axis=-1)


def _simple(fmt: BlockFormat, x: Floats, out: Bytes) -> Bytes:
    """Stores scales and minima of blocks without sub-blocks; returns the integers [rows, blocks, block]."""
    low = np.zeros_like(x[..., :1])
    if fmt.minimum is not None:
        low = x.min(axis=-1, keepdims=True)
        d = (x.max(axis=-1, keepdims=True) - low) / np.float32((1 << fmt.bits) - 1)
    elif fmt.signed:
        d = np.abs(x).max(axis=-1, keepdims=True) / np.float32(127)
    else:  # the element of the largest magnitude becomes q = 0
        d = _largest(x) / np.float32(-fmt.offset)
    assert fmt.scale is not None
    _store_half(fmt, out, fmt.scale.field, d, x)
    if fmt.minimum is not None:
        _store_half(fmt, out, fmt.minimum.field, low, x)
    scaled = (x - low) * _quotient(np.ones_like(d), d)
    if fmt.signed:  # half away from zero
        return np.trunc(scaled + np.copysign(np.float32(0.5), scaled)).astype(np.int8).view(np.uint8)
    return np.trunc(scaled + np.float32(fmt.offset + 0.5)).clip(0, (1 << fmt.bits) - 1).astype(np.uint8)


def _nested(fmt: BlockFormat, blocks: Floats, out: Bytes) -> Bytes:
    """Stores scales and minima of blocks with sub-blocks; returns the integers [rows, blocks, block]."""
    x = blocks.reshape(*blocks.shape[:2], -1, fmt.sub)
    top = (1 << fmt.bits) - 1
    low = np.zeros_like(x[..., :1])
    if fmt.minimum is not None:
        low = np.minimum(x.min(axis=-1, keepdims=True), 0)
        scale = (x.max(axis=-1, keepdims=True) - low) / np.float32(top)
    else:
        scale = _largest(x) / np.float32(-fmt.offset)
    assert fmt.scale is not None
    scale = _store_factors(fmt, out, fmt.scale, scale[..., 0], blocks)[..., None]
    if fmt.minimum is not None:
        low = _store_factors(fmt, out, fmt.minimum, -low[..., 0], blocks)[..., None] * fmt.minimum_sign
    q = np.rint(_quotient(x - low, scale)) + np.float32(fmt.offset)
    return q.clip(0, top).astype(np.uint8).reshape(blocks.shape)


def _store_factors(fmt: BlockFormat, out: Bytes, what: Scaled, factors: Floats, blocks: Floats) -> Floats:
    """Stores ``factors`` [rows, blocks, sub-blocks] as a float times integers, and returns that product."""
    bits = sum(plane.bits for plane in what.planes)
    lowest = -(1 << (bits - 1)) if what.signed else -what.offset
    highest = lowest + (1 << bits) - 1
    d = np.abs(factors).max(axis=-1, keepdims=True) / np.float32(highest)
    d = _store_half(fmt, out, what.field, d, blocks)
    integers = np.rint(_quotient(factors, d)).clip(lowest, highest)
    stored = (integers + what.offset).astype(np.int16).astype(np.uint8)
    insert_integers(fmt, out, what.planes, stored)
    return (d * integers).astype(np.float32)
