# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Weight formats: each block format described once, as data, with the decoders that follow from the description.

A tensor ``[..., K]`` is stored as rows; a row of ``K`` elements is ``K / block`` consecutive blocks of ``nbytes``
bytes, little-endian. In a quantised block, element ``e`` of sub-block ``s = e // sub`` is

    value[e] = (d * S[s]) * (q[e] - offset) + m[s]

with ``d`` the block's scale, ``q`` the stored integer, ``S`` an optional integer scale for each sub-block (else 1) and
``m`` either a stored minimum, ``-(dmin * M[s])``, or 0. All products are rounded to f32 in the order written, so
decoding is bit-exact with the public decoders of the same formats. `Plane` says where the integers are.

Besides this row layout there is the ``panels`` layout for kernels, which interleaves 16 rows; see `panel_layout`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from .errors import InputError, UnsupportedError

Bytes = npt.NDArray[np.uint8]

PANEL_ROWS = 16
"""Rows (outputs n) that one panel interleaves."""

_DECODE_CHUNK = 1 << 18  # elements decoded at a time: the temporaries then stay in the cache


@dataclass(frozen=True)
class Field:
    """``count`` numbers of ``dtype`` (a numpy name, little-endian) at byte ``offset`` of a block."""

    name: str
    dtype: str
    offset: int
    count: int = 1


@dataclass(frozen=True)
class Plane:
    """Some bits of a sequence of integers, found by an affine rule.

    The index of an integer is split into mixed-radix ``digits``, outermost first: with digits (4, 2, 32), index
    ``64p + 32h + r`` is (p, h, r). Its bits are in byte ``byte0 + sum(byte * digit)`` of ``field``, ``shift0 +
    sum(shift * digit)`` from the least significant; there are ``bits`` of them, and they are bits ``into`` and up
    of the integer. An integer is the OR of its planes.
    """

    field: str
    digits: tuple[int, ...]
    byte: tuple[int, ...]
    shift: tuple[int, ...]
    bits: int
    into: int = 0
    byte0: int = 0
    shift0: int = 0

    @property
    def count(self) -> int:
        """How many integers the plane covers."""
        return math.prod(self.digits)

    @cached_property
    def shifts(self) -> npt.NDArray[np.uint8]:
        """Shift of each integer, shaped as ``digits``."""
        return self._affine(self.shift, self.shift0).astype(np.uint8)

    @cached_property
    def bytes_(self) -> npt.NDArray[np.int64]:
        """Byte, in the field, of each integer, shaped as ``digits``."""
        return self._affine(self.byte, self.byte0)

    def _affine(self, coefficients: tuple[int, ...], constant: int) -> npt.NDArray[np.int64]:
        total = np.full(self.digits, constant, np.int64)
        for axis, (size, coefficient) in enumerate(zip(self.digits, coefficients, strict=True)):
            shape = [1] * len(self.digits)
            shape[axis] = size
            total += (np.arange(size) * coefficient).reshape(shape)
        return total


@dataclass(frozen=True)
class Scaled:
    """A float field of the block times an integer for each sub-block: ``field * (integer[s] - offset)``.

    Without planes the integer is 1. ``signed``: the integers are two's complement bytes.
    """

    field: str
    planes: tuple[Plane, ...] = ()
    offset: int = 0
    signed: bool = False


@dataclass(frozen=True)
class BlockFormat:
    """One weight format.

    Attributes:
        name: lower-case name, as in ``#mir.packed<name, ...>``.
        type_id: number of the type in GGUF files.
        block: elements in a block; 1 for dense formats.
        nbytes: bytes of a block.
        dense: element type of a dense format, else None.
        fields: what a block consists of, in order and without gaps.
        quants: planes of the integers q.
        signed: q is a two's complement byte, else unsigned.
        offset: subtracted from q.
        sub: elements that share a scale; equal to ``block`` where there are no sub-blocks.
        scale: d * S[s].
        minimum: m[s], or None.
        minimum_sign: sign with which ``minimum`` is added.
    """

    name: str
    type_id: int
    block: int
    nbytes: int
    dense: np.dtype[Any] | None = None
    fields: tuple[Field, ...] = ()
    quants: tuple[Plane, ...] = ()
    signed: bool = False
    offset: int = 0
    sub: int = 0
    scale: Scaled | None = None
    minimum: Scaled | None = None
    minimum_sign: int = 1

    def field(self, name: str) -> Field:
        """The field called ``name``; KeyError where there is none."""
        for field in self.fields:
            if field.name == name:
                return field
        raise KeyError(name)

    @property
    def bits(self) -> int:
        """Bits of one q."""
        return sum(plane.bits for plane in self.quants)

    @property
    def decodable(self) -> bool:
        """Whether `decode` knows the format, or only its sizes are known."""
        return self.dense is not None or bool(self.quants)

    def row_bytes(self, k: int) -> int:
        """Bytes of a row of ``k`` elements; InputError where ``k`` is not a multiple of the block."""
        if k <= 0 or k % self.block:
            raise InputError(f"'k' must be a positive multiple of the {self.name} block, {self.block}, but is {k}")
        return k // self.block * self.nbytes


def _block32(name: str, type_id: int, *, minimum: bool, high: bool, offset: int) -> BlockFormat:
    """Q4_0, Q4_1, Q5_0, Q5_1: f16 d, f16 m?, 32 fifth bits?, 32 nibbles (low ones are elements 0..15)."""
    fields = [Field("d", "<f2", 0)]
    if minimum:
        fields.append(Field("m", "<f2", 2))
    position = 2 * len(fields)
    planes = [Plane("qs", (2, 16), (0, 1), (4, 0), bits=4)]
    if high:
        fields.append(Field("qh", "u1", position, 4))
        planes.append(Plane("qh", (4, 8), (1, 0), (0, 1), bits=1, into=4))
        position += 4
    fields.append(Field("qs", "u1", position, 16))
    return BlockFormat(
        name,
        type_id,
        32,
        position + 16,
        fields=tuple(fields),
        quants=tuple(planes),
        offset=offset,
        sub=32,
        scale=Scaled("d"),
        minimum=Scaled("m") if minimum else None,
    )


# Six-bit scales and minima of Q4_K and Q5_K; sub-block s = 4a + c is (a, c).
_SCALES_K = (
    Plane("scales", (2, 4), (8, 1), (0, 0), bits=4),
    Plane("scales", (2, 4), (0, 1), (2, 0), bits=2, into=4, shift0=4),
)
_MINIMA_K = (
    Plane("scales", (2, 4), (4, 1), (4, 0), bits=4, byte0=4),
    Plane("scales", (2, 4), (0, 1), (2, 0), bits=2, into=4, byte0=4, shift0=4),
)
_NIBBLES_K = Plane("qs", (4, 2, 32), (32, 0, 1), (0, 4, 0), bits=4)
_PAIRS_K = Plane("qs", (2, 4, 32), (32, 0, 1), (0, 2, 0), bits=2)


def _dense(name: str, type_id: int, dtype: npt.DTypeLike) -> BlockFormat:
    element: np.dtype[Any] = np.dtype(dtype)
    return BlockFormat(name, type_id, 1, element.itemsize, dense=element)


_DESCRIBED = (
    _dense("f32", 0, "<f4"),
    _dense("f16", 1, "<f2"),
    _dense("bf16", 30, ml_dtypes.bfloat16),
    _dense("f64", 28, "<f8"),
    _dense("i8", 24, "i1"),
    _dense("i16", 25, "<i2"),
    _dense("i32", 26, "<i4"),
    _dense("i64", 27, "<i8"),
    _block32("q4_0", 2, minimum=False, high=False, offset=8),
    _block32("q4_1", 3, minimum=True, high=False, offset=0),
    _block32("q5_0", 6, minimum=False, high=True, offset=16),
    _block32("q5_1", 7, minimum=True, high=True, offset=0),
    BlockFormat(
        "q8_0",
        8,
        32,
        34,
        fields=(Field("d", "<f2", 0), Field("qs", "i1", 2, 32)),
        quants=(Plane("qs", (32,), (1,), (0,), bits=8),),
        signed=True,
        sub=32,
        scale=Scaled("d"),
    ),
    BlockFormat(
        "q2_k",
        10,
        256,
        84,
        fields=(
            Field("scales", "u1", 0, 16),
            Field("qs", "u1", 16, 64),
            Field("d", "<f2", 80),
            Field("dmin", "<f2", 82),
        ),
        quants=(_PAIRS_K,),
        sub=16,
        scale=Scaled("d", (Plane("scales", (16,), (1,), (0,), bits=4),)),
        minimum=Scaled("dmin", (Plane("scales", (16,), (1,), (0,), bits=4, shift0=4),)),
        minimum_sign=-1,
    ),
    BlockFormat(
        "q3_k",
        11,
        256,
        110,
        fields=(
            Field("hmask", "u1", 0, 32),
            Field("qs", "u1", 32, 64),
            Field("scales", "u1", 96, 12),
            Field("d", "<f2", 108),
        ),
        quants=(_PAIRS_K, Plane("hmask", (2, 4, 32), (0, 0, 1), (4, 1, 0), bits=1, into=2)),
        offset=4,
        sub=16,
        scale=Scaled(
            "d",
            (
                Plane("scales", (2, 2, 4), (0, 4, 1), (4, 0, 0), bits=4),
                Plane("scales", (4, 4), (0, 1), (2, 0), bits=2, into=4, byte0=8),
            ),
            offset=32,
        ),
    ),
    BlockFormat(
        "q4_k",
        12,
        256,
        144,
        fields=(
            Field("d", "<f2", 0),
            Field("dmin", "<f2", 2),
            Field("scales", "u1", 4, 12),
            Field("qs", "u1", 16, 128),
        ),
        quants=(_NIBBLES_K,),
        sub=32,
        scale=Scaled("d", _SCALES_K),
        minimum=Scaled("dmin", _MINIMA_K),
        minimum_sign=-1,
    ),
    BlockFormat(
        "q5_k",
        13,
        256,
        176,
        fields=(
            Field("d", "<f2", 0),
            Field("dmin", "<f2", 2),
            Field("scales", "u1", 4, 12),
            Field("qh", "u1", 16, 32),
            Field("qs", "u1", 48, 128),
        ),
        quants=(_NIBBLES_K, Plane("qh", (4, 2, 32), (0, 0, 1), (2, 1, 0), bits=1, into=4)),
        sub=32,
        scale=Scaled("d", _SCALES_K),
        minimum=Scaled("dmin", _MINIMA_K),
        minimum_sign=-1,
    ),
    BlockFormat(
        "q6_k",
        14,
        256,
        210,
        fields=(
            Field("ql", "u1", 0, 128),
            Field("qh", "u1", 128, 64),
            Field("scales", "i1", 192, 16),
            Field("d", "<f2", 208),
        ),
        quants=(
            Plane("ql", (2, 2, 2, 32), (64, 0, 32, 1), (0, 4, 0, 0), bits=4),
            Plane("qh", (2, 4, 32), (32, 0, 1), (0, 2, 0), bits=2, into=4),
        ),
        offset=32,
        sub=16,
        scale=Scaled("d", (Plane("scales", (16,), (1,), (0,), bits=8),), signed=True),
    ),
    BlockFormat(
        "q8_k",
        15,
        256,
        292,
        fields=(Field("d", "<f4", 0), Field("qs", "i1", 4, 256), Field("bsums", "<i2", 260, 16)),
        quants=(Plane("qs", (256,), (1,), (0,), bits=8),),
        signed=True,
        sub=256,
        scale=Scaled("d"),
    ),
)

# Types whose sizes are known, so that files that hold them can be listed, but not their decoding.
_SIZED = (
    BlockFormat("q8_1", 9, 32, 40),
    BlockFormat("iq2_xxs", 16, 256, 66),
    BlockFormat("iq2_xs", 17, 256, 74),
    BlockFormat("iq3_xxs", 18, 256, 98),
    BlockFormat("iq1_s", 19, 256, 50),
    BlockFormat("iq4_nl", 20, 32, 18),
    BlockFormat("iq3_s", 21, 256, 110),
    BlockFormat("iq2_s", 22, 256, 82),
    BlockFormat("iq4_xs", 23, 256, 136),
    BlockFormat("iq1_m", 29, 256, 56),
    BlockFormat("tq1_0", 34, 256, 54),
    BlockFormat("tq2_0", 35, 256, 66),
    BlockFormat("mxfp4", 39, 32, 17),
    BlockFormat("nvfp4", 40, 64, 36),
    BlockFormat("q1_0", 41, 128, 18),
)

FORMATS: dict[str, BlockFormat] = {f.name: f for f in sorted(_DESCRIBED + _SIZED, key=lambda f: f.type_id)}
"""Every known format by name, in the order of their GGUF type numbers."""

FORMATS_BY_ID: dict[int, BlockFormat] = {f.type_id: f for f in FORMATS.values()}
"""Every known format by its GGUF type number."""


def get_format(format: str | int | BlockFormat) -> BlockFormat:
    """The format of a name (any case) or GGUF type number; InputError where there is none."""
    if isinstance(format, BlockFormat):
        return format
    found = FORMATS.get(format.lower()) if isinstance(format, str) else FORMATS_BY_ID.get(format)
    if found is None:
        raise InputError(f"unknown weight format {format!r}, known are {', '.join(FORMATS)}")
    return found


def _rows(fmt: BlockFormat, data: np.ndarray, k: int) -> Bytes:
    """``data`` as uint8 [rows, rowbytes], after checking that; element arrays of a dense format are taken too."""
    row_bytes = fmt.row_bytes(k)
    if fmt.dense is not None and data.dtype == fmt.dense and data.ndim == 2 and data.shape[1] == k:
        return np.ascontiguousarray(data).view(np.uint8).reshape(data.shape[0], row_bytes)
    if data.dtype != np.uint8 or data.ndim != 2:
        raise InputError(f"{fmt.name} rows must be uint8 [rows, {row_bytes}], but are {data.dtype} {list(data.shape)}")
    if data.shape[1] != row_bytes:
        raise InputError(f"a {fmt.name} row of k = {k} has {row_bytes} bytes, but the rows have {data.shape[1]}")
    return data if data.strides[1] == 1 else np.ascontiguousarray(data)


def _field(fmt: BlockFormat, rows: Bytes, name: str) -> Bytes:
    """The bytes of a field: uint8 view [rows, blocks, field bytes]."""
    field = fmt.field(name)
    size = field.count * np.dtype(field.dtype).itemsize
    return rows.reshape(rows.shape[0], -1, fmt.nbytes)[..., field.offset : field.offset + size]


def _floats(fmt: BlockFormat, rows: Bytes, name: str) -> npt.NDArray[np.float32]:
    """A scalar float field of all blocks, [rows, blocks] f32."""
    raw = np.ascontiguousarray(_field(fmt, rows, name))
    return raw.view(fmt.field(name).dtype)[..., 0].astype(np.float32)


def _integers(fmt: BlockFormat, rows: Bytes, planes: tuple[Plane, ...]) -> Bytes:
    """The integers that ``planes`` describe, without their sign: uint8 [rows, blocks, count]."""
    total: Bytes | None = None
    for plane in planes:
        raw = _field(fmt, rows, plane.field)[..., plane.byte0 :]
        # The affine rule is what strides express: no index arrays, no copies.
        digits = np.lib.stride_tricks.as_strided(
            raw, (*raw.shape[:2], *plane.digits), (*raw.strides[:2], *plane.byte), writeable=False
        )
        bits = digits
        if plane.shifts.any():
            bits = bits >> plane.shifts
        if plane.bits + int(plane.shifts.min()) < 8:
            bits = bits & np.uint8((1 << plane.bits) - 1)
        if plane.into:
            bits = bits << np.uint8(plane.into)
        bits = bits.reshape(*raw.shape[:2], plane.count)
        total = bits if total is None else total | bits
    assert total is not None, "a format with planes"
    return total


def _scaled(fmt: BlockFormat, rows: Bytes, what: Scaled) -> npt.NDArray[np.float32]:
    """A scale or minimum for each sub-block: f32 [rows, blocks, sub-blocks or 1, 1]."""
    factor = _floats(fmt, rows, what.field)[..., None]
    if what.planes:
        integers = _integers(fmt, rows, what.planes)
        signed = integers.view(np.int8) if what.signed else integers
        factor = factor * (signed.astype(np.float32) - np.float32(what.offset))
    return factor[..., None]


def _decode_rows(fmt: BlockFormat, rows: Bytes, out: npt.NDArray[np.float32]) -> None:
    """Decodes into ``out`` f32 [rows, k]."""
    assert fmt.scale is not None
    q = _integers(fmt, rows, fmt.quants)
    q = q.reshape(*q.shape[:2], -1, fmt.sub)
    values = out.reshape(q.shape)
    np.copyto(values, q.view(np.int8) if fmt.signed else q, casting="unsafe")
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
    rows = _rows(fmt, data, k)
    if fmt.dense is not None:
        return np.ascontiguousarray(rows).view(fmt.dense).astype(np.float32)
    out = np.empty((rows.shape[0], k), np.float32)
    step = max(1, _DECODE_CHUNK // k)
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

    Returns ``q - offset`` as int16 ``[rows, k]``, the scales f32 ``[rows, k / sub]`` and what is added, of the same
    shape, or None where the format adds nothing. Raises UnsupportedError for dense formats and those without decoder.
    """
    fmt = get_format(format)
    if not fmt.quants or fmt.scale is None:
        raise UnsupportedError(f"{fmt.name} doesn't consist of integers and scales")
    rows = _rows(fmt, data, k)
    stored = _integers(fmt, rows, fmt.quants)
    q = (stored.view(np.int8) if fmt.signed else stored).astype(np.int16) - np.int16(fmt.offset)

    def factors(what: Scaled) -> npt.NDArray[np.float32]:
        shape = (rows.shape[0], k // fmt.block, fmt.block // fmt.sub)
        return np.broadcast_to(_scaled(fmt, rows, what)[..., 0], shape).reshape(rows.shape[0], k // fmt.sub)

    minima = None
    if fmt.minimum is not None:
        minima = factors(fmt.minimum) * np.float32(fmt.minimum_sign)
    return q.reshape(rows.shape[0], k), factors(fmt.scale), minima


def _insert(fmt: BlockFormat, rows: Bytes, planes: tuple[Plane, ...], integers: Bytes) -> None:
    """Inverse of `_integers`: ORs ``integers``, [rows, blocks, count], into ``rows``, whose bits there are 0."""
    for plane in planes:
        raw = _field(fmt, rows, plane.field)
        bits = (integers >> np.uint8(plane.into)) & np.uint8((1 << plane.bits) - 1)
        for index, (byte, shift) in enumerate(zip(plane.bytes_.flat, plane.shifts.flat, strict=True)):
            raw[..., byte] |= bits[..., index] << shift


def encode(format: str | int | BlockFormat, values: np.ndarray) -> Bytes:
    """Quantises f32 ``[rows, k]`` to uint8 ``[rows, rowbytes]`` by the formats' usual rounding, for tests and tools.

    Formats: f32, f16, bf16, q4_0, q4_1, q5_0, q5_1, q8_0; others raise UnsupportedError.
    """
    fmt = get_format(format)
    if fmt.name not in ("f32", "f16", "bf16", "q4_0", "q4_1", "q5_0", "q5_1", "q8_0"):
        raise UnsupportedError(f"encoding to {fmt.name} is not implemented")
    if values.ndim != 2:
        raise InputError(f"'values' must be [rows, k], but has {values.ndim} dimensions")
    count, k = values.shape
    out = np.zeros((count, fmt.row_bytes(k)), np.uint8)
    if fmt.dense is not None:
        out[:] = values.astype(fmt.dense).view(np.uint8).reshape(out.shape)
        return out
    x = values.astype(np.float32).reshape(count, -1, fmt.block)
    low = np.zeros_like(x[..., :1])
    if fmt.minimum is not None:
        low = x.min(axis=-1, keepdims=True)
        d = (x.max(axis=-1, keepdims=True) - low) / np.float32((1 << fmt.bits) - 1)
    elif fmt.signed:
        d = np.abs(x).max(axis=-1, keepdims=True) / np.float32(127)
    else:  # the element of the largest magnitude becomes q = 0
        d = np.take_along_axis(x, np.abs(x).argmax(axis=-1, keepdims=True), axis=-1) / np.float32(-fmt.offset)
    inverse = np.divide(np.float32(1), d, out=np.zeros_like(d), where=d != 0)
    scaled = (x - low) * inverse
    if fmt.signed:  # half away from zero
        q = np.trunc(scaled + np.copysign(np.float32(0.5), scaled)).astype(np.int8).view(np.uint8)
    else:
        q = np.trunc(scaled + np.float32(fmt.offset + 0.5)).clip(0, (1 << fmt.bits) - 1).astype(np.uint8)
    _field(fmt, out, "d")[:] = d.astype("<f2").view(np.uint8)
    if fmt.minimum is not None:
        _field(fmt, out, "m")[:] = low.astype("<f2").view(np.uint8)
    _insert(fmt, out, fmt.quants, q)
    return out


@dataclass(frozen=True)
class PanelLayout:
    """How 16 rows of a format are interleaved; see `panel_layout`.

    Attributes:
        format: the format of the rows.
        block: elements of one row in one block of a panel.
        floats: names of the f16 fields, stored first, each as 16 values, one for each row.
        nibbles: integers are stored as nibbles, else as bytes; 0 bytes of integers where the format is dense.
        bias: what is subtracted from the stored, unsigned integer; ``value = d * (u - bias) (+ m)``.
        block_bytes: bytes of one block of one panel.
    """

    format: BlockFormat
    block: int
    floats: tuple[str, ...]
    nibbles: bool
    bias: int
    block_bytes: int


@cache
def panel_layout(format: str | int | BlockFormat) -> PanelLayout:
    """The ``panels`` layout of a format: uint8 ``[ceil(N / 16), panel_bytes]``; rows that are missing are zeros.

    Panel p holds rows ``16p .. 16p + 15``, their blocks along K in order. A block is f16 ``d[16]``, then f16 ``m[16]``
    where the format stores a minimum, then the integers as dwords ``[c][row]``:

    - up to 4 bits: 4 x 16 dwords; byte j of dword c is element ``8c + j`` (low nibble) and ``8c + 4 + j`` (high);
    - more bits: 8 x 16 dwords; byte j of dword c is element ``4c + j``, as an unsigned byte.

    Dense formats: elements ``[K][16]``. Raises UnsupportedError for formats without such a layout.
    """
    fmt = get_format(format)
    if fmt.name in ("f32", "f16", "bf16"):
        return PanelLayout(fmt, 1, (), False, 0, PANEL_ROWS * fmt.nbytes)
    if fmt.block != 32 or not fmt.quants:
        raise UnsupportedError(f"no panels layout is defined for {fmt.name}")
    floats = ("d",) if fmt.minimum is None else ("d", "m")
    nibbles = fmt.bits <= 4
    bias = 128 if fmt.signed else fmt.offset
    return PanelLayout(fmt, 32, floats, nibbles, bias, PANEL_ROWS * (2 * len(floats) + (16 if nibbles else 32)))


def panel_bytes(format: str | int | BlockFormat, k: int) -> int:
    """Bytes of one panel (16 rows) of rows of ``k`` elements."""
    layout = panel_layout(format)
    layout.format.row_bytes(k)
    return k // layout.block * layout.block_bytes


def _panel_parts(layout: PanelLayout, panels: Bytes) -> tuple[Iterator[tuple[str, np.ndarray]], np.ndarray]:
    """Views into ``panels``: (name, u2 [P, blocks, 16]) of each float, and the integers as u4 [P, blocks, c, 16]."""
    blocks = panels.reshape(panels.shape[0], -1, layout.block_bytes)
    start = 2 * PANEL_ROWS * len(layout.floats)
    dwords = blocks[..., start:].view("<u4").reshape(*blocks.shape[:2], -1, PANEL_ROWS)
    words = blocks[..., :start].view("<u2").reshape(*blocks.shape[:2], -1, PANEL_ROWS)
    return ((name, words[..., i, :]) for i, name in enumerate(layout.floats)), dwords


_LOW = np.uint32(0x0F0F0F0F)
_HIGH = np.uint32(0xF0F0F0F0)


def _pack_group(layout: PanelLayout, rows: Bytes, panels: Bytes) -> None:
    """Packs full panels: ``rows`` [16 P, rowbytes] into ``panels`` [P, panelbytes]."""
    fmt = layout.format
    count = panels.shape[0]
    floats, dwords = _panel_parts(layout, panels)
    for name, target in floats:
        source = np.ascontiguousarray(_field(fmt, rows, name)).view("<u2")[..., 0]
        target[:] = source.reshape(count, PANEL_ROWS, -1).transpose(0, 2, 1)
    if layout.nibbles:
        # Source word i has elements 4i + j in its low nibbles, 16 + 4i + j in its high ones.
        words = np.ascontiguousarray(_field(fmt, rows, "qs")).view("<u4")
        words = words.reshape(count, PANEL_ROWS, -1, 4).transpose(0, 2, 3, 1)
        for pair in (0, 1):
            first, second = words[:, :, 2 * pair], words[:, :, 2 * pair + 1]
            dwords[:, :, pair] = (first & _LOW) | ((second & _LOW) << np.uint32(4))
            dwords[:, :, pair + 2] = ((first >> np.uint32(4)) & _LOW) | (second & _HIGH)
        return
    q = np.ascontiguousarray(_integers(fmt, rows, fmt.quants))
    words = q.view("<u4").reshape(count, PANEL_ROWS, -1, 8).transpose(0, 2, 3, 1)
    if fmt.signed:  # q + 128 as an unsigned byte is q with its sign bit flipped
        np.bitwise_xor(words, np.uint32(0x80808080), out=dwords)
    else:
        dwords[:] = words


def pack_panels(format: str | int | BlockFormat, data: np.ndarray, k: int) -> Bytes:
    """Interleaves rows into panels of 16; `panel_layout` defines the result, `unpack_panels` is the inverse.

    Args:
        format: the format, its name or its GGUF type number.
        data: uint8 ``[N, rowbytes]`` in GGUF order; dense formats also take their elements, ``[N, k]``.
        k: elements in a row.

    Returns uint8 ``[ceil(N / 16), panel_bytes(format, k)]``.
    """
    layout = panel_layout(format)
    fmt = layout.format
    rows = _rows(fmt, data, k)
    n = rows.shape[0]
    full = n // PANEL_ROWS
    out = np.empty((-(-n // PANEL_ROWS), panel_bytes(fmt, k)), np.uint8)
    step = max(1, (_DECODE_CHUNK * 2) // (PANEL_ROWS * k))
    for start in range(0, full, step):
        stop = min(start + step, full)
        _pack_rows(layout, rows[PANEL_ROWS * start : PANEL_ROWS * stop], out[start:stop], k)
    if n % PANEL_ROWS:
        padded = np.zeros((PANEL_ROWS, rows.shape[1]), np.uint8)
        padded[: n % PANEL_ROWS] = rows[PANEL_ROWS * full :]
        _pack_rows(layout, padded, out[full:], k)
        _zero_missing(layout, out[full:], n % PANEL_ROWS)
    return out


def _pack_rows(layout: PanelLayout, rows: Bytes, panels: Bytes, k: int) -> None:
    dense = layout.format.dense
    if dense is None:
        _pack_group(layout, rows, panels)
        return
    word = np.dtype(f"<u{dense.itemsize}")  # moved as integers, so that no NaN changes its bits
    source = np.ascontiguousarray(rows).view(word).reshape(-1, PANEL_ROWS, k)
    panels.view(word).reshape(-1, k, PANEL_ROWS)[:] = source.transpose(0, 2, 1)


def _zero_missing(layout: PanelLayout, panel: Bytes, present: int) -> None:
    """Clears the integers of rows that do not exist, which a sign flip has set to 128."""
    if layout.format.dense is None and layout.format.signed:
        _, dwords = _panel_parts(layout, panel)
        dwords[..., present:] = 0


def unpack_panels(format: str | int | BlockFormat, panels: np.ndarray, k: int, n: int) -> Bytes:
    """Inverse of `pack_panels`: uint8 ``[n, rowbytes]`` in GGUF order, bit for bit what was packed.

    Args:
        format: the format, its name or its GGUF type number.
        panels: uint8 ``[ceil(n / 16), panel_bytes(format, k)]``.
        k: elements in a row.
        n: number of rows.
    """
    layout = panel_layout(format)
    fmt = layout.format
    expected = (-(-n // PANEL_ROWS), panel_bytes(fmt, k))
    if panels.dtype != np.uint8 or panels.shape != expected:
        raise InputError(
            f"{fmt.name} panels of k = {k}, n = {n} are uint8 {list(expected)}, "
            f"but these are {panels.dtype} {list(panels.shape)}"
        )
    panels = np.ascontiguousarray(panels)
    if fmt.dense is not None:
        word = np.dtype(f"<u{fmt.dense.itemsize}")
        elements = panels.view(word).reshape(-1, k, PANEL_ROWS).transpose(0, 2, 1)
        return np.ascontiguousarray(elements).reshape(-1, k)[:n].view(np.uint8).reshape(n, -1)
    rows = np.zeros((expected[0] * PANEL_ROWS, fmt.row_bytes(k)), np.uint8)
    floats, dwords = _panel_parts(layout, panels)
    for name, source in floats:
        words = np.ascontiguousarray(source.transpose(0, 2, 1)).reshape(rows.shape[0], -1, 1)
        _field(fmt, rows, name)[:] = words.view(np.uint8)
    flat = np.ascontiguousarray(dwords.transpose(0, 3, 1, 2)).view(np.uint8).reshape(rows.shape[0], -1, 4)
    if layout.nibbles:
        flat = np.stack([flat & np.uint8(15), flat >> np.uint8(4)], axis=2)
    q = flat.reshape(rows.shape[0], -1, 32)
    _insert(fmt, rows, fmt.quants, q ^ np.uint8(128) if fmt.signed else q)
    return np.ascontiguousarray(rows[:n])
