# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rows of weights and of x as the products of few rows read them: a lane takes one unit at a time.

A unit is what one lane works on: 32 elements of a row in planes (`formats.planes`), or 16 bytes of a dense row. Units
of neighbouring lanes are neighbours, so that each plane is read in whole pieces. A unit's number is the lane's, plus an
offset that all lanes share: a multiple of 8, which is why the addresses of what several units share, and the swizzle of
x, depend on the lane alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rlx_mlir.codegen.bits import every_byte
from rlx_mlir.codegen.gpu.emit import DeviceEmitter, Index, Value, element_of, vec
from rlx_mlir.codegen.gpu.planes import byte_float, quads_of, values
from rlx_mlir.formats import Factor, PlaneLayout
from rlx_mlir.formats.descriptions import RUN

#: Bytes of the elements of dense weights and activations.
DENSE = {"f32": 4, "f16": 2, "bf16": 2}
#: 1.5 * 2^23: adding an integer below 2^22 to its bits gives the bits of the sum as f32.
_MAGIC = 0x4B400000
_MAGIC_VALUE = float(3 << 22)


def unit_of(element: str, k: int) -> int:
    """Elements of a unit of dense rows of k elements: as many as one load aligned to them can take."""
    return math.gcd(k, 16 // DENSE[element])


# ----------------------------------------------------------------------------------------------------------------------
# Small pieces of arithmetic
# ----------------------------------------------------------------------------------------------------------------------


def sum_start(em: DeviceEmitter, correction: Value | None) -> Value:
    """What a dot product of integers starts from, so that `sum_float` gives it as f32, `correction` added."""
    return em.const(_MAGIC) if correction is None else correction + _MAGIC


def sum_float(em: DeviceEmitter, total: Value) -> Value:
    """The integer of a dot product that began with `sum_start`; below 2^22."""
    return em.bitcast(total, "f32") - _MAGIC_VALUE


# ----------------------------------------------------------------------------------------------------------------------
# Memory
# ----------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """One row of a weight.

    Attributes:
        base: its address, global or shared.
        constant: whether no kernel writes the memory.
    """

    base: Value
    constant: bool = False


Place = tuple[Index, Index]
"""A byte as what depends on the lane, which stays the same, plus what the turns of a loop change."""


def _address(em: DeviceEmitter, base: Value, place: Place) -> Value:
    own, turn = place
    return em.at(em.at(base, own, "i8"), turn, "i8")


def _load(em: DeviceEmitter, base: Value, type: str, place: Place, align: int) -> Value:
    """A load at a byte."""
    return em.ld(_address(em, base, place), type, align=align)


def _weights(em: DeviceEmitter, row: Row, type: str, place: Place, align: int) -> Value:
    """A load of a row of weights at a byte."""
    return em.ld(_address(em, row.base, place), type, align=align, constant=row.constant)


def _words(em: DeviceEmitter, row: Row, place: Place, nbytes: int) -> list[Value]:
    """4, 8 or 16 bytes of a row of weights as words."""
    if nbytes == 4:
        return [_weights(em, row, "i32", place, 4)]
    return em.lanes(_weights(em, row, vec(nbytes // 4, "i32"), place, nbytes))


# ----------------------------------------------------------------------------------------------------------------------
# Weights in planes
# ----------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Factors:
    """Scales, and minima where there are some, of the sub-blocks of a unit, f32: one or two."""

    scales: list[Value]
    minima: list[Value]


@dataclass(frozen=True)
class _Loaded:
    """A unit as it was loaded: words of each plane of integers, the record of integers, the floats."""

    quants: list[list[Value]]
    integers: Value | None
    floats: list[Value]


class PackedUnit:
    """Units of rows in planes.

    Args:
        lane: the first unit of the lane (i32).
        stride: units between the first units of two turns; a multiple of 8.
    """

    size = RUN

    def __init__(self, em: DeviceEmitter, layout: PlaneLayout, k: int, lane: Value, stride: int) -> None:
        self.em, self.layout, self.k, self.lane, self.stride = em, layout, k, lane, stride
        self.parts = max(1, RUN // layout.sub)

    def load(self, row: Row, offset: Index) -> _Loaded:
        """Starts the loads of unit `lane + offset` of a row."""
        em, layout = self.em, self.layout
        planes = list(zip(layout.planes, layout.offsets(self.k), strict=True))
        quants = [
            _words(em, row, self._at(plane.elements, plane.nbytes, start, offset), plane.nbytes)
            for plane, start in planes[: len(layout.quants)]
        ]
        integers = None
        if layout.integers is not None:
            plane, start = planes[len(layout.quants)]
            size = plane.nbytes * self.parts
            at = self._at(max(plane.elements, RUN), size, start, offset)
            type = {1: "i8", 2: "i16", 4: "i32"}[size]
            integers = _weights(em, row, type, at, size)
            integers = integers if size == 4 else em.cast("arith.extui", integers, "i32")
        plane, start = planes[-1]
        count, element = len(layout.names), "f16" if layout.float_bytes == 2 else "f32"
        at = self._at(plane.elements, plane.nbytes, start, offset)
        loaded = _weights(em, row, element if count == 1 else vec(count, element), at, plane.nbytes)
        return _Loaded(quants, integers, em.lanes(loaded))

    def _at(self, elements: int, nbytes: int, start: int, offset: Index) -> Place:
        """The byte of the row of the record, of so many elements, that a unit belongs to."""
        shared = elements // RUN
        if self.stride % shared:
            return 0, (self.lane + offset) // shared * nbytes + start
        own = self.lane // shared * nbytes
        return own, offset // shared * nbytes + start

    def factors(self, loaded: _Loaded) -> Factors:
        """The scales and minima of the unit."""
        layout = self.layout
        floats = [self.em.widen(value) for value in loaded.floats]

        def of(factor: Factor | None, signed: bool) -> list[Value]:
            if factor is None:
                return []
            value = -floats[factor.number] if factor.sign < 0 else floats[factor.number]
            if factor.at is None:
                return [value] * self.parts
            return [value * self._integer(loaded.integers, factor, part, signed) for part in range(self.parts)]

        fmt = layout.format
        assert fmt.scale is not None
        scales = of(layout.scale, fmt.scale.range[0] < 0)
        return Factors(scales, of(layout.minimum, fmt.minimum is not None and fmt.minimum.range[0] < 0))

    def _integer(self, record: Value | None, factor: Factor, part: int, signed: bool) -> Value:
        """A scale's or minimum's integer, of a part of the unit, as f32."""
        em, layout = self.em, self.layout
        assert record is not None
        assert layout.integers is not None
        assert factor.at is not None
        if factor.bits == 4:
            record = (record >> factor.shift if factor.shift else record) & 0x0F0F0F0F
        elif signed:
            record = record ^ every_byte(0x80)
        return byte_float(em, record, part * layout.integers.nbytes + factor.at, 128 if signed else 0)

    def quads(self, loaded: _Loaded) -> list[Value]:
        """The unit's integers as stored, four bytes in each of eight words."""
        return quads_of(self.layout, loaded.quants)

    def floats(self, quad: Value) -> list[Value]:
        """The four values q - bias of a quad as f32, exact."""
        return values(self.em, quad, self.layout)


# ----------------------------------------------------------------------------------------------------------------------
# Dense weights
# ----------------------------------------------------------------------------------------------------------------------


class DenseUnit:
    """Units of rows of f32, f16 or bf16; arguments as for `PackedUnit`."""

    def __init__(self, em: DeviceEmitter, element: str, k: int, lane: Value, stride: int) -> None:
        self.em, self.element, self.lane, self.stride = em, element, lane, stride
        self.size = unit_of(element, k)
        self.nbytes = self.size * DENSE[element]

    def load(self, row: Row, offset: Index) -> Value:
        """Starts the load of unit `lane + offset` of a row."""
        em = self.em
        place = self.lane * self.nbytes, offset * self.nbytes
        type = self.element if self.size == 1 else vec(self.size, self.element)
        return _weights(em, row, type, place, self.nbytes)

    def floats(self, loaded: Value) -> list[Value]:
        """The unit's elements as f32."""
        return self.em.floats(loaded)


# ----------------------------------------------------------------------------------------------------------------------
# Rows of x
# ----------------------------------------------------------------------------------------------------------------------


def chunk_place(em: DeviceEmitter, chunk: Index, per_unit: int) -> Index:
    """Where a chunk of 16 bytes of x lies in shared memory, so that lanes that read their units meet no banks twice.

    per_unit: chunks of a unit, a power of two.
    """
    if per_unit <= 1:
        return chunk
    return chunk ^ ((em.index(chunk) >> 3) & (min(per_unit, 8) - 1))


@dataclass(frozen=True)
class Staged:
    """Where the parts of x lie in shared memory.

    Attributes:
        base: first byte.
        row: bytes of a row of elements (or of q).
        blocks: bytes of a row of scales, or of sums; 0 where x isn't quantised.
        rows: rows of x.
    """

    base: Value
    row: int
    blocks: int
    rows: int

    @property
    def nbytes(self) -> int:
        """Bytes of all parts."""
        return self.rows * (self.row + 2 * self.blocks)


class Activations:
    """Rows of x: elements, or q with scales and sums of blocks of 32; in global memory, or staged.

    Args:
        pointers: x, or q, scale and sum.
        element: of x; `i8` where it is quantised.
        k: elements of a row.
        rows: number of the row of x for each row of the tile.
        unit: elements of a unit. lane, stride: as for `PackedUnit`.
        staged: where the rows of the tile lie in shared memory, if they do.
    """

    def __init__(
        self,
        em: DeviceEmitter,
        pointers: Sequence[Value],
        element: str,
        k: int,
        rows: Sequence[Index],
        unit: int,
        lane: Value,
        staged: Staged | None = None,
    ) -> None:
        self.em, self.element, self.k, self.unit, self.lane, self.staged = em, element, k, unit, lane, staged
        self.bytes = 1 if element == "i8" else DENSE[element]
        blocks = k // RUN
        if staged is not None:
            self.x = [em.at(staged.base, m * staged.row, "i8") for m in range(staged.rows)]
            first = staged.rows * staged.row
            self.scale = [em.at(staged.base, first + m * staged.blocks, "i8") for m in range(staged.rows)]
            first += staged.rows * staged.blocks
            self.sum = [em.at(staged.base, first + m * staged.blocks, "i8") for m in range(staged.rows)]
            return

        def address(base: Value, row: Index, count: int, size: int) -> Value:
            return em.at(base, em.wide(row) * (count * size), "i8")

        self.x = [address(pointers[0], row, k, self.bytes) for row in rows]
        if element == "i8":
            self.scale = [address(pointers[1], row, blocks, 4) for row in rows]
            self.sum = [address(pointers[2], row, blocks, 4) for row in rows]

    @property
    def chunks(self) -> int:
        """Chunks of 16 bytes of a unit; 0 where it is shorter."""
        return self.unit * self.bytes // 16

    def _chunk(self, m: int, offset: Index, chunk: int, type: str) -> Value:
        """One chunk of unit `lane + offset` of row m of the tile."""
        em = self.em
        turn = offset * (16 * self.chunks)
        if self.staged is None:
            return _load(em, self.x[m], type, (self.lane * (16 * self.chunks), turn + 16 * chunk), 16)
        # The swizzle depends on the lane alone, as offsets are multiples of 8 units.
        own = chunk_place(em, self.lane * self.chunks + chunk, self.chunks)
        return _load(em, self.x[m], type, (own * 16, turn), 16)

    def quads(self, m: int, offset: Index) -> list[Value]:
        """The 32 integers of a unit, four bytes in each of eight words."""
        return [word for chunk in range(2) for word in self.em.lanes(self._chunk(m, offset, chunk, vec(4, "i32")))]

    def block(self, m: int, offset: Index) -> tuple[Value, Value]:
        """Scale (f32) and sum (i32) of the unit's block."""
        em = self.em
        place = self.lane * 4, offset * 4
        return _load(em, self.scale[m], "f32", place, 4), _load(em, self.sum[m], "i32", place, 4)

    def floats(self, m: int, offset: Index, first: int, count: int) -> list[Value]:
        """`count` elements of a unit, from its element `first` on, as f32; whole chunks, or the whole unit."""
        em = self.em
        if self.chunks == 0:
            size = self.unit * self.bytes
            place = self.lane * size, offset * size
            type = self.element if self.unit == 1 else vec(self.unit, self.element)
            return em.floats(_load(em, self.x[m], type, place, size))
        per_chunk = 16 // self.bytes
        type = vec(per_chunk, self.element)
        assert element_of(type) == self.element
        assert first % per_chunk == 0
        assert count % per_chunk == 0
        chunks = range(first // per_chunk, (first + count) // per_chunk)
        return [x for chunk in chunks for x in em.floats(self._chunk(m, offset, chunk, type))]
