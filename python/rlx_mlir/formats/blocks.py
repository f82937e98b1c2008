# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Weight formats: each block format described once, as data, with the decoders that follow from the description.

A tensor ``[..., K]`` is stored as rows; a row of ``K`` elements is ``K / block`` consecutive blocks of ``nbytes``
bytes, little-endian. In a quantised block, element ``e`` of sub-block ``s = e // sub`` is

    value[e] = (d * S[s]) * (q[e] - offset) + m[s]

with ``d`` the block's scale, ``q`` the stored integer, ``S`` an optional integer scale for each sub-block (else 1) and
``m`` either a stored minimum, ``-(dmin * M[s])``, or 0. All products are rounded to f32 in the order written, so
decoding is bit-exact with the public decoders of the same formats. `Plane` says where the integers are.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import cached_property

import ml_dtypes
import numpy as np
import numpy.typing as npt

from .. import checks
from ..arrays import as_array
from ..errors import InputError, UnsupportedError

Bytes = npt.NDArray[np.uint8]

RUN = 32
"""Elements along K that kernels and integer products work on together."""

CHUNK = 1 << 18
"""Elements that are worked on at a time: the temporaries then stay in the cache."""


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

    @property
    def bits(self) -> int:
        """Bits of one integer; 0 without planes."""
        return sum(plane.bits for plane in self.planes)

    @property
    def range(self) -> tuple[int, int]:
        """The least and the largest integer."""
        if not self.planes:
            return 1, 1
        low = -(1 << (self.bits - 1)) if self.signed else -self.offset
        return low, low + (1 << self.bits) - 1


@dataclass(frozen=True)
class BlockFormat:
    """One weight format.

    Attributes:
        name: lower-case name, as in ``#mir.packed<name, ...>``.
        type_id: number of the type in GGUF files; None where they have no such type.
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
    type_id: int | None
    block: int
    nbytes: int
    dense: np.dtype | None = None
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

    @property
    def is_weight(self) -> bool:
        """Whether products take it: f32, f16, bf16, and all formats of blocks that are decoded."""
        return self.name in ("f32", "f16", "bf16") if self.dense is not None else self.decodable

    @property
    def factors(self) -> tuple[Scaled, ...]:
        """The scale, and the minimum where there is one; none for dense formats."""
        return tuple(part for part in (self.scale, self.minimum) if part is not None)

    @property
    def has_integers(self) -> bool:
        """Whether integer products read it: q - offset fits into 8 bits, and 32 elements have one scale or evenly
        cut sub-blocks."""
        if not self.quants or self.block % RUN or (self.sub % RUN and RUN % self.sub):
            return False
        return self.signed or (self.offset <= 128 and (1 << self.bits) - 1 - self.offset <= 127)

    @property
    def has_panels(self) -> bool:
        """Whether kernels have a layout for it: f32, f16, bf16, and blocks of integers with f16 scales and minima, for
        sub-blocks of 16 or 32 elements, times integers that fit into a signed byte."""
        if self.dense is not None:
            return self.is_weight
        halves = all(self.field(part.field).dtype == "<f2" for part in self.factors)
        fits = all(low >= -128 and high <= 127 for low, high in (part.range for part in self.factors))
        return self.has_integers and halves and fits and self.sub in (RUN // 2, RUN)

    @property
    def has_planes(self) -> bool:
        """Whether kernels for GPUs have a layout for it: f32, f16, bf16, and blocks of integers with scales and minima
        of one float type, for sub-blocks of 16 or of a multiple of 32 elements, times integers that fit into a signed
        byte."""
        if self.dense is not None:
            return self.is_weight
        floats = {self.field(part.field).dtype for part in self.factors}
        fits = all(low >= -128 and high <= 127 for low, high in (part.range for part in self.factors))
        return self.has_integers and len(floats) == 1 and fits and self.sub % (RUN // 2) == 0

    @property
    def encodable(self) -> bool:
        """Whether a quantiser follows from the description: the dense weights, and blocks that hold nothing but scales,
        minima and integers; beside minima these are unsigned, without offset."""
        if not self.is_weight or self.dense is not None:
            return self.is_weight
        planes = [plane for planes in (self.quants, *(part.planes for part in self.factors)) for plane in planes]
        used = {plane.field for plane in planes} | {part.field for part in self.factors}
        both = self.minimum is not None and (self.signed or self.offset > 0)
        return used == {field.name for field in self.fields} and not both

    def row_bytes(self, k: int) -> int:
        """Bytes of a row of ``k`` elements; InputError where ``k`` is not a multiple of the block."""
        if not isinstance(k, int | np.integer) or isinstance(k, bool) or k <= 0 or k > 2**31 or k % self.block:
            raise InputError(
                f"'k' must be a positive multiple of the {self.name} block, {self.block}, but is {checks.shown(k)}"
            )
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
    element: np.dtype = np.dtype(dtype)
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

FORMATS_BY_ID: dict[int, BlockFormat] = dict(
    sorted((f.type_id, f) for f in _DESCRIBED + _SIZED if f.type_id is not None)
)
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
    if fmt.dense is not None and data.dtype == fmt.dense and data.ndim == 2 and data.shape[1] == k:
        return np.ascontiguousarray(data).view(np.uint8).reshape(data.shape[0], row_bytes)
    if data.dtype != np.uint8 or data.ndim != 2:
        raise InputError(f"{fmt.name} rows must be uint8 [rows, {row_bytes}], but are {data.dtype} {list(data.shape)}")
    if data.shape[1] != row_bytes:
        raise InputError(f"a {fmt.name} row of k = {k} has {row_bytes} bytes, but the rows have {data.shape[1]}")
    return data if data.strides[1] == 1 else np.ascontiguousarray(data)


def field_bytes(fmt: BlockFormat, rows: Bytes, name: str) -> Bytes:
    """The bytes of a field: uint8 view [rows, blocks, field bytes]."""
    field = fmt.field(name)
    size = field.count * np.dtype(field.dtype).itemsize
    return rows.reshape(rows.shape[0], -1, fmt.nbytes)[..., field.offset : field.offset + size]


def _floats(fmt: BlockFormat, rows: Bytes, name: str) -> npt.NDArray[np.float32]:
    """A scalar float field of all blocks, [rows, blocks] f32."""
    raw = np.ascontiguousarray(field_bytes(fmt, rows, name))
    return raw.view(fmt.field(name).dtype)[..., 0].astype(np.float32)


def stored_integers(fmt: BlockFormat, rows: Bytes, planes: tuple[Plane, ...]) -> Bytes:
    """The integers that ``planes`` describe, without their sign: uint8 [rows, blocks, count]."""
    assert planes, "a format with planes"
    if len(planes) == 1 and planes[0].bits == 8 and planes[0].byte == (1,):
        return field_bytes(fmt, rows, planes[0].field)
    total: Bytes | None = None
    for plane in planes:
        bits = _plane_bits(plane, np.ascontiguousarray(field_bytes(fmt, rows, plane.field)))
        total = bits if total is None else np.bitwise_or(total, bits, out=total)
    assert total is not None
    return total


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
    factor = _floats(fmt, rows, what.field)[..., None]
    if what.planes:
        integers = stored_integers(fmt, rows, what.planes)
        signed = integers.view(np.int8) if what.signed else integers
        factor = factor * (signed.astype(np.float32) - np.float32(what.offset))
    return factor[..., None]


def _decode_rows(fmt: BlockFormat, rows: Bytes, out: npt.NDArray[np.float32]) -> None:
    """Decodes into ``out`` f32 [rows, k]."""
    assert fmt.scale is not None
    q = stored_integers(fmt, rows, fmt.quants)
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
    rows = checked_rows(fmt, data, k)
    if fmt.dense is not None:
        return np.ascontiguousarray(rows).view(fmt.dense).astype(np.float32)
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

    Returns ``q - offset`` as int16 ``[rows, k]``, the scales f32 ``[rows, k / sub]`` and what is added, of the same
    shape, or None where the format adds nothing. Raises UnsupportedError for dense formats and those without decoder.
    """
    fmt = get_format(format)
    if not fmt.quants or fmt.scale is None:
        raise UnsupportedError(f"{fmt.name} doesn't consist of integers and scales")
    rows = checked_rows(fmt, data, k)
    stored = stored_integers(fmt, rows, fmt.quants)
    q = (stored.view(np.int8) if fmt.signed else stored).astype(np.int16) - np.int16(fmt.offset)

    def factors(what: Scaled) -> npt.NDArray[np.float32]:
        shape = (rows.shape[0], k // fmt.block, fmt.block // fmt.sub)
        return np.broadcast_to(_scaled(fmt, rows, what)[..., 0], shape).reshape(rows.shape[0], k // fmt.sub)

    minima = None
    if fmt.minimum is not None:
        minima = factors(fmt.minimum) * np.float32(fmt.minimum_sign)
    return q.reshape(rows.shape[0], k), factors(fmt.scale), minima


def insert_integers(fmt: BlockFormat, rows: Bytes, planes: tuple[Plane, ...], integers: Bytes) -> None:
    """Inverse of `stored_integers`: ORs ``integers``, [rows, blocks, count], into ``rows``, whose bits there are 0."""
    for plane in planes:
        raw = field_bytes(fmt, rows, plane.field)
        bits = (integers >> np.uint8(plane.into)) & np.uint8((1 << plane.bits) - 1)
        for index, (byte, shift) in enumerate(zip(plane.bytes_.flat, plane.shifts.flat, strict=True)):
            raw[..., byte] |= bits[..., index] << shift
