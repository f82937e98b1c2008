# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Quantisers, for tests and tools: each block on its own, by one rule for each kind of format.

Blocks whose scales and minima are floats alone are rounded as the public encoders round them. Where integers scale
sub-blocks (K-quants), each sub-block first gets the scale and minimum that it would have alone,

    scale = (max - low) / (2^bits - 1), minimum = -low, low = min(min, 0)      where the format has minima, else
    scale = x / -offset, x the element of the largest magnitude; max(x, 0) / (2^bits - 1) where q has no sign

then d and dmin are the largest of them in the block divided by the largest integer and rounded to f16, S and M are the
scales and minima divided by d and dmin and rounded, and q are the elements rounded with what S, M, d and dmin give. All
rounding is to nearest even and saturates. What is too small for f16 scales becomes 0.

Codes of a table are those of the nearest numbers. A block's scale is the one of least squared error among some: those
that map the element of the largest magnitude near an end of the table, each then fitted to the codes that follow from
it. Scales that are powers of two, those of mxfp4 and all of three numbers, of tq1_0 and tq2_0, are the public ones: the
largest power of two that leaves the largest element in the table's range, and the largest magnitude. q8_k maps the
element of the largest magnitude to -127, and holds sums of 16 integers.

Bytes are those of the public encoders where a block's scale is 0 or at least 2^-126. Where it is subnormal, they divide
by it and overflow; all decodes to 0 then.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..arrays import as_array, dlpack_type, element_word
from ..dtypes import ml_dtypes
from ..errors import InputError, UnsupportedError
from .affine import round_away
from .blocks import CHUNK, Bytes, field_bytes, get_format, insert_codes, insert_factor_integers, insert_floats
from .descriptions import BYTE_FLOATS, BlockFormat, Scaled

Floats = npt.NDArray[np.float32]


def encode(format: str | int | BlockFormat, values: np.ndarray) -> Bytes:
    """Quantises f32 ``[rows, k]`` to uint8 ``[rows, rowbytes]``; the module says how.

    Raises UnsupportedError for formats without quantiser (see `BlockFormat.encodable`). Raises InputError, with the
    index, for NaN and infinity, and for a value beyond the format's range: one that rounds to infinity in a dense
    format, or makes a scale exceed its type.
    """
    fmt = get_format(format)
    if not fmt.encodable:
        raise UnsupportedError(f"encoding to {fmt.name} is not implemented")
    values = as_array("'values'", values)
    if values.ndim != 2:
        raise InputError(f"'values' must be [rows, k], but has {values.ndim} dimensions")
    if (values.dtype.kind not in "fiub" and dlpack_type(values.dtype) is None) or not values.dtype.isnative:
        raise InputError(f"'values' must be numbers, such as float32, but are {element_word(values.dtype)}")
    count, k = values.shape
    out = np.zeros((count, fmt.row_bytes(k)), np.uint8)
    with np.errstate(over="ignore", invalid="ignore"):
        x = np.ascontiguousarray(values.astype(fmt.dense or np.float32))
    if not count:
        return out
    if not np.isfinite(x).all():
        row, column = np.argwhere(~np.isfinite(x))[0]
        value = values[row, column]
        finfo = ml_dtypes(fmt.name).finfo if fmt.element == "bf16" else np.finfo
        largest = float(finfo(x.dtype).max)
        rule = f"values up to {largest:g}" if np.isfinite(value) else "finite values"
        raise InputError(f"{fmt.name} holds {rule}, but values[{row}, {column}] is {value}")
    if fmt.is_dense:
        out[:] = x.view(np.uint8).reshape(out.shape)
        return out
    blocks = x.reshape(count, -1, fmt.block)
    step = max(1, CHUNK // k)
    for start in range(0, count, step):
        own = out[start : start + step]
        insert_codes(fmt, own, _codes(fmt, blocks[start : start + step], own))
    return out


def _codes(fmt: BlockFormat, blocks: Floats, out: Bytes) -> Bytes:
    """Stores all but the codes of blocks, and returns these, [rows, blocks, block]."""
    if fmt.rule:
        return {"sums": _with_sums, "ternary": _ternary}[fmt.rule](fmt, blocks, out)
    if fmt.values:
        return (_by_powers if fmt.float_type == "e8m0" else _by_table)(fmt, blocks, out)
    nested = any(part.planes for part in fmt.factors)
    return _nested(fmt, blocks, out) if nested else _simple(fmt, blocks, out)


def _store_float(fmt: BlockFormat, out: Bytes, name: str, number: Floats, blocks: Floats) -> Floats:
    """Stores ``number`` [rows, blocks, 1] in a field and returns it rounded to the field's type."""
    dtype = np.dtype(fmt.field(name).dtype)
    with np.errstate(over="ignore"):
        stored = number.astype(dtype)
    if not np.isfinite(stored).all():
        row, block, _ = np.argwhere(~np.isfinite(stored))[0]
        column = int(block) * fmt.block + int(np.abs(blocks[row, block]).argmax())
        value = blocks.reshape(blocks.shape[0], -1)[row, column]
        word = f"f{8 * dtype.itemsize}"
        raise InputError(f"{fmt.name} has {word} scales, for which values[{row}, {column}], {value}, is too large")
    field_bytes(fmt, out, name)[:] = stored.view(np.uint8)
    return stored.astype(np.float32)


def _quotient(x: Floats, divisor: Floats) -> Floats:
    """x / divisor, or 0 where the divisor is 0 or subnormal, as then it is 0 in f16."""
    shape = np.broadcast_shapes(x.shape, divisor.shape)
    exists = np.broadcast_to(np.abs(divisor) >= np.finfo(np.float32).tiny, shape)
    return np.divide(x, divisor, out=np.zeros(shape, np.float32), where=exists)


def _largest(x: Floats) -> Floats:
    """The element of the largest magnitude along the last axis, which stays with size 1."""
    return np.take_along_axis(x, np.abs(x).argmax(axis=-1, keepdims=True), axis=-1)


def _simple(fmt: BlockFormat, x: Floats, out: Bytes) -> Bytes:
    """Stores scales and minima that are floats; returns the integers [rows, blocks, block]."""
    low = np.zeros_like(x[..., :1])
    top = np.float32((1 << fmt.bits) - 1)
    if fmt.minimum is not None:
        low = x.min(axis=-1, keepdims=True)
        d = (x.max(axis=-1, keepdims=True) - low) / top
    elif fmt.signed:
        d = np.abs(x).max(axis=-1, keepdims=True) / np.float32(127)
    elif fmt.offset:  # the element of the largest magnitude becomes q = 0
        d = _largest(x) / np.float32(-fmt.offset)
    else:
        d = np.maximum(x.max(axis=-1, keepdims=True), 0) / top
    assert fmt.scale is not None
    _store_float(fmt, out, fmt.scale.field, d, x)
    if fmt.minimum is not None:
        _store_float(fmt, out, fmt.minimum.field, low * fmt.minimum_sign, x)
    scaled = (x - low) * _quotient(np.ones_like(d), d)
    if fmt.signed:  # half away from zero
        return np.trunc(scaled + np.copysign(np.float32(0.5), scaled)).astype(np.int8).view(np.uint8)
    return np.trunc(scaled + np.float32(fmt.offset + 0.5)).clip(0, (1 << fmt.bits) - 1).astype(np.uint8)


def _nested(fmt: BlockFormat, blocks: Floats, out: Bytes) -> Bytes:
    """Stores scales and minima of blocks with sub-blocks; returns the integers [rows, blocks, block]."""
    x = blocks.reshape(*blocks.shape[:2], -1, fmt.sub)
    least = -128 if fmt.signed else -fmt.offset
    most = least + (1 << fmt.bits) - 1
    low = np.zeros_like(x[..., :1])
    if fmt.minimum is not None:
        low = np.minimum(x.min(axis=-1, keepdims=True), 0)
    if least:
        scale = _largest(x) / np.float32(least)
    else:
        scale = np.maximum(x.max(axis=-1, keepdims=True) - low, 0) / np.float32(most)
    assert fmt.scale is not None
    scale = _store_factors(fmt, out, fmt.scale, scale[..., 0], blocks)[..., None]
    if fmt.minimum is not None:
        sign = fmt.minimum_sign
        low = _store_factors(fmt, out, fmt.minimum, sign * low[..., 0], blocks)[..., None] * sign
    q = np.rint(_quotient(x - low, scale)).clip(least, most) + np.float32(fmt.offset)
    return q.astype(np.int16).astype(np.uint8).reshape(blocks.shape)


def _store_factors(fmt: BlockFormat, out: Bytes, what: Scaled, factors: Floats, blocks: Floats) -> Floats:
    """Stores ``factors`` [rows, blocks, sub-blocks] as a float times integers, and returns that product."""
    lowest, highest = what.range
    # Integers without sign: the float has the sign of all the factors.
    d = np.abs(factors).max(axis=-1, keepdims=True) if lowest < 0 else _largest(factors)
    d = _store_float(fmt, out, what.field, d / np.float32(highest), blocks)
    if not what.planes:
        return np.broadcast_to(d, factors.shape)
    integers = np.rint(_quotient(factors, d)).clip(lowest, highest)
    insert_factor_integers(fmt, out, what, integers.astype(np.int16))
    return (d * integers).astype(np.float32)


# ----------------------------------------------------------------------------------------------------------------------
# Rules of some formats
# ----------------------------------------------------------------------------------------------------------------------


def _with_sums(fmt: BlockFormat, x: Floats, out: Bytes) -> Bytes:
    """q8_k: the scale is what -127 times makes the largest element, and what follows are sums of integers."""
    assert fmt.scale is not None
    with np.errstate(over="ignore"):
        inverse = _quotient(np.full_like(x[..., :1], -127), _largest(x))
    inverse = np.where(np.isinf(inverse), np.float32(0), inverse)
    _store_float(fmt, out, fmt.scale.field, _quotient(np.ones_like(inverse), inverse), x)
    q = np.rint(x * inverse).clip(-128, 127).astype(np.int8)
    sums = q.reshape(*q.shape[:2], -1, 16).sum(axis=-1, dtype="<i2")
    field_bytes(fmt, out, "bsums")[:] = sums.view(np.uint8)
    return q.view(np.uint8)


def _ternary(fmt: BlockFormat, x: Floats, out: Bytes) -> Bytes:
    """The scale is the largest magnitude, the codes are 0, 1 and 2."""
    assert fmt.scale is not None
    d = np.abs(x).max(axis=-1, keepdims=True)
    _store_float(fmt, out, fmt.scale.field, d, x)
    return (round_away(x * _quotient(np.ones_like(d), d)) + 1).astype(np.uint8)


def _by_powers(fmt: BlockFormat, x: Floats, out: Bytes) -> Bytes:
    """Scales that are powers of two: of nearest numbers that are equally far, the one of the lowest code."""
    assert fmt.scale is not None
    most = np.abs(x).max(axis=-1, keepdims=True)
    with np.errstate(divide="ignore"):
        whole = np.floor(np.log2(most)) - np.floor(np.log2(np.float32(np.abs(fmt.numbers).max()))) + 1 + 127
    exponent = np.where(most > 0, whole, 0).clip(0, 254).astype(np.uint8)
    insert_floats(fmt, out, fmt.scale, exponent)
    scale = BYTE_FLOATS["e8m0"][exponent]
    codes = np.zeros(x.shape, np.uint8)
    least = np.full(x.shape, np.inf, np.float32)
    with np.errstate(over="ignore"):
        for code, number in enumerate(fmt.numbers.astype(np.float32)):
            error = np.abs(scale * number - x)
            nearer = error < least
            codes[nearer] = code
            np.copyto(least, error, where=nearer)
    return codes


_NEAR_AN_END = tuple(1 + step / 24 for step in range(-3, 4))
"""What scales that map the largest element to an end of the table are multiplied by, to be tried."""


def _by_table(fmt: BlockFormat, x: Floats, out: Bytes) -> Bytes:
    """The scale of least squared error among some; see the module."""
    assert fmt.scale is not None
    numbers = fmt.numbers.astype(np.float32)
    order = np.argsort(numbers, kind="stable").astype(np.uint8)
    middles = (numbers[order][1:] + numbers[order][:-1]) / 2
    dtype = np.dtype(fmt.field(fmt.scale.field).dtype)
    largest = _largest(x)

    def nearest(d: Floats) -> Bytes:
        return order[np.searchsorted(middles, _quotient(x, d * np.float32(fmt.unit)))]

    def stored(d: Floats) -> Floats:
        return d.astype(dtype).astype(np.float32)

    best, least = np.zeros_like(largest), np.full_like(largest, np.inf)
    with np.errstate(over="ignore", invalid="ignore"):
        for end in {numbers.min(), numbers.max()} - {0}:
            for near in _NEAR_AN_END:
                first = largest / np.float32(end * near * fmt.unit)
                found = numbers[nearest(first)] * np.float32(fmt.unit)
                fitted = (found * x).sum(axis=-1, keepdims=True) / (found * found).sum(axis=-1, keepdims=True)
                for d in (first, np.where(np.isfinite(fitted), fitted, first)):
                    rounded = stored(d)
                    values = numbers[nearest(rounded)] * np.float32(fmt.unit) * rounded
                    error = np.square(values - x, dtype=np.float64).sum(axis=-1, keepdims=True).astype(np.float32)
                    better = error < least
                    best, least = np.where(better, d, best), np.where(better, error, least)
        best = np.where(np.isinf(least), largest / numbers[np.abs(numbers).argmax()], best)
    return nearest(_store_float(fmt, out, fmt.scale.field, best, x))
