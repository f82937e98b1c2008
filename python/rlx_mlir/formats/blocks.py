# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Weight formats by their names, and the decoders that follow from their descriptions (`descriptions` says how)."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import numpy.typing as npt

from .. import checks
from ..arrays import as_array
from ..dtypes import DTYPES
from ..errors import InputError, UnsupportedError
from . import grids
from .descriptions import BYTE_FLOATS, BlockFormat, Grid, Plane, Scaled, float_bytes
from .gguf_types import DESCRIBED, SIZED

Bytes = npt.NDArray[np.uint8]

CHUNK = 1 << 18
"""Elements that are worked on at a time: the temporaries then stay in the cache."""


FORMATS_BY_ID: dict[int, BlockFormat] = dict(sorted((f.type_id, f) for f in DESCRIBED + SIZED if f.type_id is not None))
"""Every known format that GGUF files may hold, by its type number."""

FORMATS: dict[str, BlockFormat] = {f.name: f for f in FORMATS_BY_ID.values()}
"""Every known format by name: our own in the order of their type numbers, then those of `register_format`."""


def get_format(format: str | int | BlockFormat) -> BlockFormat:
    """The format of a name (any case) or GGUF type number; InputError where there is none."""
    if isinstance(format, BlockFormat):
        return format
    if isinstance(format, str):
        found = FORMATS.get(format.lower())
    else:
        found = FORMATS_BY_ID.get(int(format)) if type(format) is int or isinstance(format, np.integer) else None
    if found is None:
        raise InputError(f"unknown weight format {checks.shown(format)}, known are {', '.join(FORMATS)}")
    return found


def checked_rows(fmt: BlockFormat, data: np.ndarray, k: int) -> Bytes:
    """``data`` as uint8 [rows, rowbytes], after checking that; element arrays of a dense format are taken too."""
    row_bytes = fmt.row_bytes(k)
    data = as_array("rows", data)
    if fmt.is_dense and data.dtype == fmt.dense and data.ndim == 2 and data.shape[1] == k:
        return np.ascontiguousarray(data).view(np.uint8).reshape(data.shape[0], row_bytes)
    if data.dtype != np.uint8 or data.ndim != 2:
        raise InputError(f"{fmt.name} rows must be uint8 [rows, {row_bytes}], but are {data.dtype} {list(data.shape)}")
    if data.shape[1] != row_bytes:
        raise InputError(f"a {fmt.name} row of k = {k} has {row_bytes} bytes, but the rows have {data.shape[1]}")
    return data if data.strides[1] == 1 else np.ascontiguousarray(data)


def field_bytes(fmt: BlockFormat, rows: Bytes, name: str) -> Bytes:
    """The bytes of a field: uint8 view [rows, blocks, field bytes]."""
    field = fmt.field(name)
    return rows.reshape(rows.shape[0], -1, fmt.nbytes)[..., field.offset : field.offset + field.nbytes]


# ----------------------------------------------------------------------------------------------------------------------
# What blocks store
# ----------------------------------------------------------------------------------------------------------------------


def stored_floats(fmt: BlockFormat, rows: Bytes, what: Scaled) -> Bytes:
    """The bytes of the floats of a scale or minimum: uint8 [rows, blocks, floats, bytes of one]."""
    if what.word:
        words = _integers(fmt, rows, what.word, np.uint16)
        return words[..., None].view(np.uint8)
    raw = field_bytes(fmt, rows, what.field)
    return raw.reshape(*raw.shape[:2], -1, float_bytes(fmt.field(what.field).dtype))


def _floats(fmt: BlockFormat, rows: Bytes, what: Scaled) -> npt.NDArray[np.float32]:
    """The floats of a scale or minimum, f32 [rows, blocks, floats]."""
    raw = np.ascontiguousarray(stored_floats(fmt, rows, what))
    dtype = "<f2" if what.word else fmt.field(what.field).dtype
    if dtype in BYTE_FLOATS:
        return BYTE_FLOATS[dtype][raw[..., 0]]
    return raw.view(dtype)[..., 0].astype(np.float32)


def factor_integers(fmt: BlockFormat, rows: Bytes, what: Scaled) -> npt.NDArray[np.int16]:
    """The integers of a scale or minimum that has them, by sub-block: [rows, blocks, sub-blocks]."""
    stored = _integers(fmt, rows, what.planes)
    signed = stored.view(np.int8) if what.signed else stored
    factors: npt.NDArray[np.int16] = signed.astype(np.int16) * np.int16(what.step) - np.int16(what.offset)
    return factors


def stored_codes(fmt: BlockFormat, rows: Bytes) -> Bytes:
    """The codes of all elements, without their sign: uint8 [rows, blocks, elements]."""
    if fmt.grid is not None:
        return _grid_codes(fmt, rows, fmt.grid)
    if fmt.trits is not None:
        places, powers = fmt.trits.places
        fractions = field_bytes(fmt, rows, fmt.trits.field)[..., places] * powers  # modulo 256: what is left of it
        return np.asarray(fractions.astype(np.uint16) * np.uint16(3) >> np.uint16(8), np.uint8)
    if len(fmt.quants) == 1 and fmt.quants[0].bits == 8 and fmt.quants[0].byte == (1,):
        return field_bytes(fmt, rows, fmt.quants[0].field)
    return _integers(fmt, rows, fmt.quants)


def _integers(
    fmt: BlockFormat, rows: Bytes, planes: tuple[Plane, ...], dtype: type[np.unsignedinteger] = np.uint8
) -> npt.NDArray[Any]:
    """The integers that ``planes`` describe, without their sign: [rows, blocks, count] of a type without sign."""
    assert planes, "a format with planes"
    total: npt.NDArray[Any] | None = None
    for plane in planes:
        field = np.ascontiguousarray(field_bytes(fmt, rows, plane.field))
        if dtype is not np.uint8 or plane.carry:
            bits = (field[..., plane.bytes_.reshape(-1)] >> plane.shifts.reshape(-1)) & np.uint8((1 << plane.bits) - 1)
            bits = bits.astype(dtype) << dtype(plane.into)
        else:
            bits = _plane_bits(plane, field)
        total = bits if total is None else np.bitwise_or(total, bits, out=total)
    assert total is not None
    return total


_EVEN: Bytes = np.array([bits | (bits.bit_count() % 2) << 7 for bits in range(128)], np.uint8)
"""Of seven bits the eight whose sum is even."""


def _sign_numbers(grid: Grid, count: int) -> npt.NDArray[np.uint8]:
    """Which bit of its group's signs each of `count` elements has."""
    return (np.arange(count) % 8 if grid.sign_bits > 1 else np.zeros(count)).astype(np.uint8)


def _grid_codes(fmt: BlockFormat, rows: Bytes, grid: Grid) -> Bytes:
    """The codes of a grid: digits of words, and signs above them."""
    words = grids.table(grid.table)[_integers(fmt, rows, grid.index, np.uint16)]
    shifts = np.arange(grid.length, dtype=np.uint16) * np.uint16(grid.digit_bits)
    digits = (words[..., None] >> shifts).astype(np.uint8) & np.uint8((1 << grid.digit_bits) - 1)
    digits = digits.reshape(*words.shape[:2], fmt.block)
    groups = _integers(fmt, rows, grid.signs)
    if grid.sign_bits == 7:
        groups = _EVEN[groups]
    signs = np.repeat(groups, fmt.block // groups.shape[-1], axis=-1) >> _sign_numbers(grid, fmt.block)
    return np.asarray(digits | (signs & np.uint8(1)) << np.uint8(grid.digit_bits))


def _plane_bits(plane: Plane, field: Bytes) -> Bytes:
    """A plane's part of the integers, uint8 [rows, blocks, count], from its field [rows, blocks, bytes]."""
    lead = field.shape[:2]
    digits, step = plane.digits, plane.byte
    run = digits[-1] if step[-1] == 1 and not plane.shift[-1] else 1
    whole = np.dtype(f"V{run}")  # neighbours that stay neighbours are moved as one
    out = np.empty((*lead, plane.count), np.uint8)
    target = out.view(whole).reshape(*lead, *(digits[:-1] if run > 1 else digits))
    words = field.view("<u4" if field.shape[-1] % 4 == 0 else "u1")
    word = words.dtype.type
    mask = word((0x01010101 if word is np.uint32 else 1) * ((1 << plane.bits) - 1))
    axes = range(target.ndim - 2)
    varying = [axis for axis in axes if plane.shift[axis]]
    fixed = [axis for axis in axes if not plane.shift[axis]]
    for position in itertools.product(*(range(digits[axis]) for axis in varying)):
        shift, byte = plane.shift0, plane.byte0
        where: list[int | slice] = [slice(None)] * target.ndim
        for axis, digit in zip(varying, position, strict=True):
            shift, byte = shift + plane.shift[axis] * digit, byte + step[axis] * digit
            where[2 + axis] = digit
        # What shares a shift is shifted together, four bytes in a word; the rest of the affine rule is strides.
        bits = (words >> word(shift) if shift else words) & mask
        source = (bits << word(plane.into) if plane.into else bits).view(np.uint8)
        target[tuple(where)] = np.ndarray(
            (*lead, *(digits[axis] for axis in fixed)),
            whole,
            source,
            byte,
            (*source.strides[:2], *(step[axis] for axis in fixed)),
        )
    return out


def _scaled(fmt: BlockFormat, rows: Bytes, what: Scaled) -> npt.NDArray[np.float32]:
    """A scale or minimum for each sub-block: f32 [rows, blocks, sub-blocks or 1, 1]."""
    factor = _floats(fmt, rows, what)
    if fmt.unit != 1:
        factor = factor * np.float32(fmt.unit)
    if what.planes:
        factor = factor * factor_integers(fmt, rows, what).astype(np.float32)
    return factor[..., None]


def _decode_rows(fmt: BlockFormat, rows: Bytes, out: npt.NDArray[np.float32]) -> None:
    """Decodes into ``out`` f32 [rows, k]."""
    assert fmt.scale is not None
    codes = stored_codes(fmt, rows)
    codes = codes.reshape(*codes.shape[:2], -1, fmt.sub)
    values = out.reshape(codes.shape)
    if fmt.values:
        np.take(fmt.numbers.astype(np.float32), codes, out=values, mode="clip")  # codes are within the table
    else:
        np.copyto(values, codes.view(np.int8) if fmt.signed else codes, casting="unsafe")
    if fmt.offset:
        values -= np.float32(fmt.offset)
    values *= _scaled(fmt, rows, fmt.scale)
    if fmt.minimum is not None:
        minimum = _scaled(fmt, rows, fmt.minimum)
        if fmt.minimum_sign < 0:
            values -= minimum
        else:
            values += minimum


def decode(format: str | int | BlockFormat, data: np.ndarray, k: int) -> npt.NDArray[np.float32]:
    """Decodes rows to f32.

    Args:
        format: the format, its name or its GGUF type number.
        data: uint8 ``[rows, rowbytes]``; dense formats also take their elements, ``[rows, k]``.
        k: elements in a row.

    Returns f32 ``[rows, k]``, in new memory. Scales that are inf or NaN decode to inf or NaN.
    Raises InputError where the shape does not fit, UnsupportedError for a format without a decoder.
    """
    fmt = get_format(format)
    if not fmt.decodable:
        raise UnsupportedError(f"decoding of {fmt.name} is not implemented")
    rows = checked_rows(fmt, data, k)
    if fmt.is_dense:
        return np.ascontiguousarray(rows).view(DTYPES[fmt.element]).astype(np.float32)
    out = np.empty((rows.shape[0], k), np.float32)
    step = max(1, CHUNK // k)
    with np.errstate(invalid="ignore", over="ignore"):  # broken scales are the file's, and stay visible as NaN
        for start in range(0, rows.shape[0], step):
            _decode_rows(fmt, rows[start : start + step], out[start : start + step])
    return out


def quant_parts(
    format: str | int | BlockFormat, data: np.ndarray, k: int
) -> tuple[npt.NDArray[np.int16], npt.NDArray[np.float32], npt.NDArray[np.float32] | None]:
    """The integers and factors of a quantised format, for exact integer arithmetic.

    Args:
        format: the format, its name or its GGUF type number.
        data: uint8 ``[rows, rowbytes]``.
        k: elements in a row.

    Returns the integers q as int16 ``[rows, k]``, the scales f32 ``[rows, k / sub]`` and what is added, of the same
    shape, or None where the format adds nothing. Raises UnsupportedError for dense formats and those without decoder.
    """
    fmt = get_format(format)
    if not fmt.has_blocks or fmt.scale is None:
        raise UnsupportedError(f"{fmt.name} doesn't consist of integers and scales")
    rows = checked_rows(fmt, data, k)
    q = fmt.numbers[stored_codes(fmt, rows)]

    def factors(what: Scaled) -> npt.NDArray[np.float32]:
        shape = (rows.shape[0], k // fmt.block, fmt.block // fmt.sub)
        return np.broadcast_to(_scaled(fmt, rows, what)[..., 0], shape).reshape(rows.shape[0], k // fmt.sub)

    minima = None
    if fmt.minimum is not None:
        minima = factors(fmt.minimum) * np.float32(fmt.minimum_sign)
    return q.reshape(rows.shape[0], k), factors(fmt.scale), minima


# ----------------------------------------------------------------------------------------------------------------------
# Storing
# ----------------------------------------------------------------------------------------------------------------------


def insert_codes(fmt: BlockFormat, rows: Bytes, codes: Bytes) -> None:
    """Inverse of `stored_codes`: ORs ``codes``, [rows, blocks, elements], into ``rows``, whose bits there are 0."""
    if fmt.grid is not None:
        _insert_grid(fmt, rows, fmt.grid, codes)
    elif fmt.trits is not None:
        raw = field_bytes(fmt, rows, fmt.trits.field)
        start = 0
        for first, count, digits in fmt.trits.parts:
            own = codes[..., start : start + count * digits].reshape(*codes.shape[:2], digits, count)
            start += count * digits
            powers = 3 ** np.arange(4, 4 - digits, -1, dtype=np.uint16)
            total = (own * powers[:, None]).sum(axis=-2, dtype=np.uint16)
            raw[..., first : first + count] = (total * np.uint16(256) + np.uint16(242)) // np.uint16(243)
    else:
        _insert(fmt, rows, fmt.quants, codes)


def insert_factor_integers(fmt: BlockFormat, rows: Bytes, what: Scaled, factors: npt.NDArray[np.integer]) -> None:
    """Inverse of `factor_integers`."""
    integers = (factors.astype(np.int16) + np.int16(what.offset)) // np.int16(what.step)
    _insert(fmt, rows, what.planes, integers.astype(np.uint8))


def insert_floats(fmt: BlockFormat, rows: Bytes, what: Scaled, floats: Bytes) -> None:
    """Inverse of `stored_floats`."""
    if what.word:
        words = np.ascontiguousarray(floats).view("<u2")[..., 0]
        _insert(fmt, rows, what.word, words)
    else:
        raw = field_bytes(fmt, rows, what.field)
        raw[:] = floats.reshape(raw.shape)


def _insert(fmt: BlockFormat, rows: Bytes, planes: tuple[Plane, ...], integers: npt.NDArray[Any]) -> None:
    """Inverse of `_integers`: ORs ``integers``, [rows, blocks, count], into ``rows``, whose bits there are 0."""
    for plane in planes:
        raw = field_bytes(fmt, rows, plane.field)
        bits = ((integers >> integers.dtype.type(plane.into)) & integers.dtype.type((1 << plane.bits) - 1)).astype("u1")
        for index, (byte, shift) in enumerate(zip(plane.bytes_.flat, plane.shifts.flat, strict=True)):
            raw[..., byte] |= bits[..., index] << shift


def _insert_grid(fmt: BlockFormat, rows: Bytes, grid: Grid, codes: Bytes) -> None:
    lead = codes.shape[:2]
    digits = (codes & np.uint8((1 << grid.digit_bits) - 1)).reshape(*lead, -1, grid.length).astype(np.uint16)
    words = (digits << (np.arange(grid.length, dtype=np.uint16) * np.uint16(grid.digit_bits))).sum(axis=-1)
    index = np.searchsorted(grids.table(grid.table), words).astype(np.uint16)
    _insert(fmt, rows, grid.index, index)
    signs = codes >> np.uint8(grid.digit_bits)
    count = sum(plane.count for plane in grid.signs[:1])
    groups = signs.reshape(*lead, count, fmt.block // count)
    if grid.sign_bits > 1:
        packed = np.packbits(groups, axis=-1, bitorder="little")[..., 0] & np.uint8((1 << grid.sign_bits) - 1)
    else:
        packed = groups[..., 0]
    _insert(fmt, rows, grid.signs, packed)
