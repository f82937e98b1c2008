# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a weight format is, as data: the fields of a block, where the bits of its integers are, and what scales them.

A tensor ``[..., K]`` is stored as rows; a row of ``K`` elements is ``K / block`` consecutive blocks of ``nbytes``
bytes, little-endian. In a quantised block, element ``e`` of sub-block ``s = e // sub`` is

    value[e] = ((unit * d) * S[s]) * q[e] + m[s]

with ``d`` the block's scale, ``S`` an optional integer scale for each sub-block (else 1), ``m`` either a stored
minimum, ``-(dmin * M[s])``, or 0, and ``q`` an integer that follows from the code of the element: ``code - offset``, or
``values[code]`` where the format has a table. All products are rounded to f32 in the order written, so decoding is
bit-exact with the public decoders of the same formats.

Codes are stored in one of three ways: as bits (`Plane`), as numbers of words of several codes (`Grid`), or five in a
byte, as digits of base 3 (`Trits`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from .. import checks
from ..dtypes import DTYPES
from ..errors import InputError

RUN = 32
"""Elements along K that kernels and integer products work on together."""


def _power_of_two(codes: npt.NDArray[np.uint32]) -> npt.NDArray[np.float32]:
    """2^(code - 128): half of what an exponent of 8 bits stands for, as values of tables are doubled."""
    bits = np.where(codes < 2, (codes + 1) << 21, (codes - np.minimum(codes, 1)) << 23)
    return np.asarray(bits.astype(np.uint32).view(np.float32))


def _small_float(codes: npt.NDArray[np.uint32]) -> npt.NDArray[np.float32]:
    """Half of floats of 4 bits of exponent and 3 of fraction; the sign bit says nothing, and 0x7F is 0."""
    exact = ((codes & 0x7F) << 20).astype(np.uint32).view(np.float32) * np.float32(2.0**119)
    return np.asarray(np.where(codes == 0x7F, np.float32(0), exact))


BYTE_FLOATS: dict[str, npt.NDArray[np.float32]] = {
    "e8m0": _power_of_two(np.arange(256, dtype=np.uint32)),
    "ue4m3": _small_float(np.arange(256, dtype=np.uint32)),
}
"""Scales of one byte, by the word that `Field.dtype` has for them: the f32 of each byte."""


def float_bytes(dtype: str) -> int:
    """Bytes of a number of a field: of a numpy name or one of `BYTE_FLOATS`."""
    return 1 if dtype in BYTE_FLOATS else np.dtype(dtype).itemsize


@dataclass(frozen=True)
class Field:
    """``count`` numbers of ``dtype`` at byte ``offset`` of a block.

    ``dtype`` is a numpy name, little-endian, or that of a float of one byte: ``e8m0`` is 2^(x - 128), ``ue4m3`` half
    of a float of 4 bits of exponent and 3 of fraction, without sign.
    """

    name: str
    dtype: str
    offset: int
    count: int = 1

    @property
    def nbytes(self) -> int:
        """Bytes of the field."""
        return self.count * float_bytes(self.dtype)


@dataclass(frozen=True)
class Plane:
    """Some bits of a sequence of integers, found by an affine rule.

    The index of an integer is split into mixed-radix ``digits``, outermost first: with digits (4, 2, 32), index
    ``64p + 32h + r`` is (p, h, r). Its bits are in byte ``byte0 + sum(byte * digit)`` of ``field``, ``shift0 +
    sum(shift * digit)`` from the least significant; there are ``bits`` of them, and they are bits ``into`` and up
    of the integer. An integer is the OR of its planes. With ``carry``, shifts of 8 and more count on in the bytes that
    follow; ``bits`` is 1 then.
    """

    field: str
    digits: tuple[int, ...]
    byte: tuple[int, ...]
    shift: tuple[int, ...]
    bits: int
    into: int = 0
    byte0: int = 0
    shift0: int = 0
    carry: bool = False

    @property
    def count(self) -> int:
        """How many integers the plane covers."""
        return math.prod(self.digits)

    @cached_property
    def shifts(self) -> npt.NDArray[np.uint8]:
        """Shift of each integer, shaped as ``digits``."""
        shifts = self._affine(self.shift, self.shift0)
        return (shifts % 8 if self.carry else shifts).astype(np.uint8)

    @cached_property
    def bytes_(self) -> npt.NDArray[np.int64]:
        """Byte, in the field, of each integer, shaped as ``digits``."""
        places = self._affine(self.byte, self.byte0)
        return places + self._affine(self.shift, self.shift0) // 8 if self.carry else places

    def _affine(self, coefficients: tuple[int, ...], constant: int) -> npt.NDArray[np.int64]:
        total = np.full(self.digits, constant, np.int64)
        for axis, (size, coefficient) in enumerate(zip(self.digits, coefficients, strict=True)):
            shape = [1] * len(self.digits)
            shape[axis] = size
            total += (np.arange(size) * coefficient).reshape(shape)
        return total


@dataclass(frozen=True)
class Scaled:
    """A float of the block times an integer for each sub-block: ``field * (step * integer[s] - offset)``.

    Without planes the integer is 1; the field then may have one float for each sub-block. ``signed``: the integers are
    two's complement bytes. ``word``: planes of the bits of one f16, where it is in no field of its own.
    """

    field: str = ""
    planes: tuple[Plane, ...] = ()
    offset: int = 0
    signed: bool = False
    step: int = 1
    word: tuple[Plane, ...] = ()

    @property
    def bits(self) -> int:
        """Bits of one integer; 0 without planes."""
        return sum(plane.bits for plane in self.planes)

    @property
    def range(self) -> tuple[int, int]:
        """The least and the largest factor."""
        if not self.planes:
            return 1, 1
        low = -(1 << (self.bits - 1)) if self.signed else 0
        return self.step * low - self.offset, self.step * (low + (1 << self.bits) - 1) - self.offset


@dataclass(frozen=True)
class Grid:
    """Codes of neighbouring elements as the number of a word of `grids.table`.

    A code is a digit of the word, and above it a bit for the sign: the bit of the sign's group that has the element's
    number, or the only one.

    Attributes:
        table: name of the words.
        length: codes of a word.
        digit_bits: bits of a digit.
        index: planes of the words' numbers.
        signs: planes of the groups' signs: of 8 bits, for 8 elements; of 7, the eighth makes their sum even; or of 1.
    """

    table: str
    length: int
    digit_bits: int
    index: tuple[Plane, ...]
    signs: tuple[Plane, ...]

    @property
    def sign_bits(self) -> int:
        """Bits stored for the signs of a group."""
        return sum(plane.bits for plane in self.signs)


@dataclass(frozen=True)
class Trits:
    """Codes 0, 1 and 2 as digits of base 3, the first the highest: a byte is a fraction of 256, rounded up.

    ``parts``: (first byte of the field, bytes, digits of a byte). The elements of a part are its bytes' first digits,
    then their second ones, and so on.
    """

    field: str
    parts: tuple[tuple[int, int, int], ...]

    @cached_property
    def places(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
        """Of each element its byte in the field, and the power of 3 that brings its digit to the front."""
        parts = [(first + np.arange(count), digits) for first, count, digits in self.parts]
        places = np.concatenate([np.tile(own, digits) for own, digits in parts])
        powers = np.concatenate([np.repeat(3 ** np.arange(digits), len(own)) for own, digits in parts])
        return places, powers.astype(np.uint8)


@dataclass(frozen=True)
class BlockFormat:
    """One weight format.

    Attributes:
        name: lower-case name, as in ``#mir.packed<name, ...>``.
        type_id: number of the type in GGUF files; None where they have no such type.
        block: elements in a block; 1 for dense formats.
        nbytes: bytes of a block.
        element: element type of a dense format in MLIR's spelling; empty for others.
        fields: what a block consists of, in order and without gaps.
        quants: planes of the codes; none where these are stored otherwise.
        signed: a code is a two's complement byte, else unsigned.
        offset: subtracted from the code.
        sub: elements that share a scale; equal to ``block`` where there are no sub-blocks.
        scale: d * S[s].
        minimum: m[s], or None.
        minimum_sign: sign with which ``minimum`` is added.
        values: the integers of the codes, where they aren't ``code - offset``: one for each code.
        unit: a power of two that all scales are multiplied by.
        grid, trits: the codes, where they aren't in planes.
        rule: how blocks are quantised, where that doesn't follow from the fields: ``sums`` or ``ternary``.
    """

    name: str
    type_id: int | None
    block: int
    nbytes: int
    element: str = ""
    fields: tuple[Field, ...] = ()
    quants: tuple[Plane, ...] = ()
    signed: bool = False
    offset: int = 0
    sub: int = 0
    scale: Scaled | None = None
    minimum: Scaled | None = None
    minimum_sign: int = 1
    values: tuple[int, ...] = ()
    unit: float = 1.0
    grid: Grid | None = None
    trits: Trits | None = None
    rule: str = ""

    @property
    def is_dense(self) -> bool:
        """Whether elements are stored one by one."""
        return bool(self.element)

    @property
    def dense(self) -> np.dtype | None:
        """The element type of a dense format, else None."""
        return DTYPES[self.element] if self.element else None

    def field(self, name: str) -> Field:
        """The field called ``name``; KeyError where there is none."""
        for field in self.fields:
            if field.name == name:
                return field
        raise KeyError(name)

    @property
    def bits(self) -> int:
        """Bits of one code."""
        if self.grid is not None:
            return self.grid.digit_bits + 1
        return 2 if self.trits is not None else sum(plane.bits for plane in self.quants)

    @cached_property
    def numbers(self) -> npt.NDArray[np.int16]:
        """The integer q of each code."""
        if self.values:
            return np.array(self.values, np.int16)
        codes = np.arange(1 << self.bits, dtype=np.int16)
        return (codes ^ 128) - 128 if self.signed else codes - np.int16(self.offset)

    @property
    def has_blocks(self) -> bool:
        """Whether it is a format of integers and scales that `decode` knows."""
        return bool(self.quants) or self.grid is not None or self.trits is not None

    @property
    def decodable(self) -> bool:
        """Whether `decode` knows the format, or only its sizes are known."""
        return self.is_dense or self.has_blocks

    @property
    def is_weight(self) -> bool:
        """Whether products take it: f32, f16, bf16, and all formats of blocks that are decoded."""
        return self.name in ("f32", "f16", "bf16") if self.is_dense else self.decodable

    @property
    def factors(self) -> tuple[Scaled, ...]:
        """The scale, and the minimum where there is one; none for dense formats."""
        return tuple(part for part in (self.scale, self.minimum) if part is not None)

    @property
    def float_type(self) -> str:
        """The element type of scales and minima, as `Field.dtype` has it; empty where they differ."""
        types = {"<f2" if part.word else self.field(part.field).dtype for part in self.factors}
        return types.pop() if len(types) == 1 else ""

    def floats_of(self, part: Scaled) -> int:
        """Floats that a block has for the scale or the minimum."""
        return 1 if part.word else self.field(part.field).count

    @property
    def floats_per_block(self) -> int:
        """Scales and minima of a block that are floats."""
        return sum(map(self.floats_of, self.factors))

    @property
    def is_plain(self) -> bool:
        """Whether integers are codes less an offset, in planes, and a block has floats of 16 or 32 bits, each one: what
        kernels for GPUs read."""
        whole = all(not part.word and part.step == 1 and self.floats_of(part) == 1 for part in self.factors)
        return bool(self.quants) and not self.values and self.unit == 1 and whole and self.float_type not in BYTE_FLOATS

    @property
    def has_integers(self) -> bool:
        """Whether integer products read it: q fits into 8 bits, and 32 elements have one scale or evenly cut
        sub-blocks."""
        if not self.has_blocks or self.block % RUN or (self.sub % RUN and RUN % self.sub):
            return False
        return bool(self.numbers.min() >= -128 and self.numbers.max() <= 127)

    @property
    def _factors_fit(self) -> bool:
        """Whether integers of scales and minima fit into a signed byte, and all floats are of one type."""
        fits = all(low >= -128 and high <= 127 for low, high in (part.range for part in self.factors))
        return fits and bool(self.float_type)

    @property
    def has_panels(self) -> bool:
        """Whether kernels have a layout for it: f32, f16, bf16, and blocks of integers with scales and minima of one
        type of 8 or 16 bits, for 16 or 32 elements times integers that fit into a signed byte, or for whole blocks."""
        if self.is_dense:
            return self.is_weight
        fine = self.sub in (RUN // 2, RUN) or self.sub == self.block
        return self.has_integers and self._factors_fit and fine and self.float_type != "<f4"

    @property
    def has_planes(self) -> bool:
        """Whether kernels for GPUs have a layout for it: f32, f16, bf16, and plain blocks with scales and minima of one
        float type, for sub-blocks of 16 or of a multiple of 32 elements, times integers that fit into a signed
        byte."""
        if self.is_dense:
            return self.is_weight
        return self.has_integers and self.is_plain and self._factors_fit and self.sub % (RUN // 2) == 0

    @property
    def encodable(self) -> bool:
        """Whether a quantiser follows from the description: the dense weights, and blocks that hold nothing but scales,
        minima and integers. Beside minima these are unsigned, without offset; those of tables have one float for a
        block. Words of grids are of sub-blocks with integers for scales, without minima."""
        if not self.is_weight or self.is_dense or self.rule:
            return self.is_weight
        if self.trits is not None:
            return False
        if self.grid is not None:
            return self.minimum is None and self.scale is not None and bool(self.scale.planes)
        if self.values and (self.floats_per_block > 1 or self.float_type == "ue4m3"):
            return False
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
