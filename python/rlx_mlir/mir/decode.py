# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Elements of packed weights in generated loops; everything follows from the descriptions in `rlx_mlir.formats`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from mlir.dialects import arith

from rlx_mlir import formats, ir
from rlx_mlir.formats import (
    PANEL_ROWS,
    BlockFormat,
    Factor,
    PanelLayout,
    Plane,
    PlaneLayout,
    Scaled,
    grids,
)
from rlx_mlir.formats.descriptions import RUN, Grid, Trits, float_bytes
from rlx_mlir.formats.planes import HALF
from rlx_mlir.mir.packed import Packing
from rlx_mlir.mir.scalars import Scalar, constant, element, extract, unsigned


@dataclass(frozen=True)
class _Bytes:
    """The bytes of one row of a tensor of bytes, from a position on."""

    source: ir.Value
    row: Scalar
    start: Scalar

    def byte(self, offset: Scalar | int) -> Scalar:
        """One byte, as i8."""
        return extract(self.source, [self.row, self.start + offset])

    def word(self, offset: Scalar | int, count: int) -> Scalar:
        """A little-endian integer of so many bytes."""
        start = self.start + offset
        type = f"i{8 * count}"
        total = unsigned(extract(self.source, [self.row, start]), type)
        for i in range(1, count):
            total = total | (unsigned(extract(self.source, [self.row, start + i]), type) << 8 * i)
        return total

    def number(self, offset: Scalar | int, dtype: str) -> Scalar:
        """A float, as f32; `dtype` is that of a field, or bf16."""
        if dtype == "e8m0":  # half of a power of two; the two least are subnormal
            power = unsigned(self.byte(offset), "i32")
            return (power < 2).select((power + 1) << 21, (power - 1) << 23).bitcast("f32")
        if dtype == "ue4m3":  # exponent and fraction where f32 has them, whose exponent counts from another number
            stored = unsigned(self.byte(offset), "i32")
            small = ((stored & 0x7F) << 20).bitcast("f32") * 2.0**119
            return stored.compare("eq", 0x7F).select(0.0, small)
        word, count = {"<f2": ("f16", 2), "bf16": ("bf16", 2), "<f4": ("f32", 4)}[dtype]
        return self.word(offset, count).bitcast(word).to("f32")


def element_value(weight: ir.Value, packing: Packing, n: Scalar, k: Scalar) -> Scalar:
    """The decoded element (n, k), as f32: bit for bit what `formats.decode` gives."""
    fmt = packing.format
    if fmt.dense is not None:
        dtype = "bf16" if fmt.name == "bf16" else fmt.dense.str
        if packing.layout == "panels":
            start = (k * PANEL_ROWS + n % PANEL_ROWS) * fmt.nbytes
            return _Bytes(weight, n // PANEL_ROWS, start).number(0, dtype)
        return _Bytes(weight, n, k * fmt.nbytes).number(0, dtype)
    value = element_integer(weight, packing, n, k).to("f32") * element_scale(weight, packing, n, k)
    if fmt.minimum is None:
        return value
    minimum = element_minimum(weight, packing, n, k)
    return value + minimum


def element_integer(weight: ir.Value, packing: Packing, n: Scalar, k: Scalar) -> Scalar:
    """The integer of element (n, k), the offset subtracted, as i32."""
    fmt = packing.format
    if packing.layout == "panels":
        return _panel_integer(weight, formats.panel_layout(fmt), n, k)
    if packing.layout == "planes":
        return _row_integer(_Row(weight, formats.plane_layout(fmt), packing.k, n), k)
    block, e = _block(weight, fmt, n, k), k % fmt.block
    if fmt.grid is not None:
        return _looked_up(fmt, _grid_code(block, fmt, fmt.grid, e))
    if fmt.trits is not None:
        return _trit(block, fmt, fmt.trits, e) - fmt.offset
    stored = _planes(block, fmt, fmt.quants, e)
    return _looked_up(fmt, stored) if fmt.values else _signed(stored, fmt.signed) - fmt.offset


def element_scale(weight: ir.Value, packing: Packing, n: Scalar, k: Scalar) -> Scalar:
    """The factor of the integer of element (n, k), as f32."""
    fmt = packing.format
    assert fmt.scale is not None, "a quantised format"
    if packing.layout == "panels":
        layout = formats.panel_layout(fmt)
        return _panel_factor(weight, layout, layout.scale, n, k)
    if packing.layout == "planes":
        planes = formats.plane_layout(fmt)
        return _row_factor(_Row(weight, planes, packing.k, n), planes.scale, k)
    return _scaled(_block(weight, fmt, n, k), fmt, fmt.scale, k)


def element_minimum(weight: ir.Value, packing: Packing, n: Scalar, k: Scalar) -> Scalar:
    """What is added to element (n, k), as f32, for formats that have it."""
    fmt = packing.format
    assert fmt.minimum is not None, "a format with minima"
    if packing.layout == "panels":
        layout = formats.panel_layout(fmt)
        return _panel_factor(weight, layout, layout.minimum, n, k)
    if packing.layout == "planes":
        planes = formats.plane_layout(fmt)
        return _row_factor(_Row(weight, planes, packing.k, n), planes.minimum, k)
    minimum = _scaled(_block(weight, fmt, n, k), fmt, fmt.minimum, k)
    return -minimum if fmt.minimum_sign < 0 else minimum


def _signed(stored: Scalar, is_byte: bool) -> Scalar:
    """An i32 whose low byte is two's complement, or which is unsigned."""
    return ((stored ^ 0x80) - 0x80) if is_byte else stored


def _looked_up(fmt: BlockFormat, code: Scalar) -> Scalar:
    """The integer of a code, i32, by the format's table of up to 16 bytes, eight of which are a word."""
    table = np.zeros(16, np.int8)
    table[: len(fmt.values)] = fmt.values
    low, high = (constant(element("i64"), int(word)) for word in table.view("<i8"))
    word = (code < 8).select(low, high) if len(fmt.values) > 8 else low
    byte = (word >> ((code & 7) << 3).to("i64")).low_bits(element("i8"))
    return byte.to("i32")


def _listed(numbers: np.ndarray, position: Scalar) -> Scalar:
    """A number of a constant list of bytes or words without sign, as i32."""
    words = numbers.astype(f"<i{numbers.dtype.itemsize}")
    kind = ir.RankedTensorType.get(words.shape, element(f"i{8 * words.itemsize}"))
    table = arith.ConstantOp(kind, ir.DenseElementsAttr.get(words, type=kind)).result
    return unsigned(extract(table, [position]), "i32")


def _grid_code(block: _Bytes, fmt: BlockFormat, grid: Grid, e: Scalar) -> Scalar:
    """The code of an element of a grid: a digit of its word, and above it the sign."""
    number = _planes(block, fmt, grid.index, e // grid.length)
    word = _listed(grids.table(grid.table), number.to("index"))
    digit = word >> ((e % grid.length) * grid.digit_bits).to("i32") & ((1 << grid.digit_bits) - 1)
    group = fmt.block // grid.signs[0].count
    signs = _planes(block, fmt, grid.signs, e // group)
    if grid.sign_bits > 1:
        if grid.sign_bits == 7:  # the eighth makes the sum even
            total = signs ^ (signs >> 4)
            total = total ^ (total >> 2)
            signs = signs | ((total ^ (total >> 1)) & 1) << 7
        signs = signs >> (e % 8).to("i32")
    return digit | (signs & 1) << grid.digit_bits


def _trit(block: _Bytes, fmt: BlockFormat, trits: Trits, e: Scalar) -> Scalar:
    """A digit of base 3, as i32."""
    places, powers = trits.places
    place = _listed(places.astype(np.uint16), e).to("index") + fmt.field(trits.field).offset
    fraction = unsigned(block.byte(place), "i32") * _listed(powers, e) & 0xFF
    return fraction * 3 >> 8


def _block(weight: ir.Value, fmt: BlockFormat, n: Scalar, k: Scalar) -> _Bytes:
    return _Bytes(weight, n, (k // fmt.block) * fmt.nbytes)


def _planes(block: _Bytes, fmt: BlockFormat, planes: tuple[Plane, ...], position: Scalar) -> Scalar:
    """The integer at a position of a sequence, from its planes, as i32."""
    total: Scalar | None = None
    for plane in planes:
        offset: Scalar = position.like(fmt.field(plane.field).offset + plane.byte0)
        shift: Scalar = position.like(plane.shift0)
        rest = position
        for size, byte, bits in reversed(list(zip(plane.digits, plane.byte, plane.shift, strict=True))):
            digit, rest = rest % size, rest // size
            if byte:
                offset = offset + digit * byte
            if bits:
                shift = shift + digit * bits
        if plane.carry:
            offset, shift = offset + shift // 8, shift % 8
        bits_here = (unsigned(block.byte(offset), "i32") >> shift.to("i32")) & ((1 << plane.bits) - 1)
        bits_here = bits_here << plane.into if plane.into else bits_here
        total = bits_here if total is None else total | bits_here
    assert total is not None, "a format with planes"
    return total


def _scaled(block: _Bytes, fmt: BlockFormat, what: Scaled, k: Scalar) -> Scalar:
    sub = (k % fmt.block) // fmt.sub
    if what.word:
        factor = _planes(block, fmt, what.word, k.like(0)).low_bits(element("i16")).bitcast("f16").to("f32")
    else:
        field = fmt.field(what.field)
        place = sub * float_bytes(field.dtype) + field.offset if field.count > 1 else field.offset
        factor = block.number(place, field.dtype)
    factor = factor * fmt.unit if fmt.unit != 1 else factor
    if not what.planes:
        return factor
    stored = _signed(_planes(block, fmt, what.planes, sub), what.signed)
    stored = stored * what.step if what.step != 1 else stored
    return factor * (stored - what.offset).to("f32")


def _panel_block(weight: ir.Value, layout: PanelLayout, n: Scalar, k: Scalar) -> _Bytes:
    return _Bytes(weight, n // PANEL_ROWS, (k // layout.block) * layout.block_bytes)


def _panel_factor(weight: ir.Value, layout: PanelLayout, factor: Factor | None, n: Scalar, k: Scalar) -> Scalar:
    """The scale or minimum of the row's sub-block."""
    assert factor is not None, "a format that has it"
    block = _panel_block(weight, layout, n, k)
    row, sub = n % PANEL_ROWS, (k % layout.block) // layout.sub
    number = sub + factor.number if factor.each else k.like(factor.number)
    value = block.number((row + number * PANEL_ROWS) * layout.float_bytes, layout.float_type)
    value = value * layout.unit if layout.unit != 1 else value
    if factor.at is not None:
        stored = unsigned(block.byte(sub * PANEL_ROWS + row + factor.at), "i32")
        if factor.bits < 8:
            stored = (stored >> factor.shift) & ((1 << factor.bits) - 1)
        value = value * _signed(stored, factor.bits == 8).to("f32")
    return -value if factor.sign < 0 else value


def _panel_integer(weight: ir.Value, layout: PanelLayout, n: Scalar, k: Scalar) -> Scalar:
    """The integer of an element, the offset subtracted: the OR of its planes."""
    block = _panel_block(weight, layout, n, k)
    row, e = n % PANEL_ROWS, k % layout.block
    run = layout.payload + (e // RUN) * layout.run_bytes
    quad, position = (e % RUN) // 4, e % 4
    total: Scalar | None = None
    first = into = 0
    for width in layout.widths:
        per_dword = 8 // width
        dword = quad // per_dword + first
        bits = unsigned(block.byte(run + (dword * PANEL_ROWS + row) * 4 + position), "i32")
        if width < 8:
            bits = (bits >> ((quad % per_dword) * width).to("i32")) & ((1 << width) - 1)
        bits = bits << into if into else bits
        total = bits if total is None else total | bits
        first, into = first + width, into + width
    assert total is not None, "a quantised format"
    return _looked_up(layout.format, total) if layout.table else total - layout.bias


@dataclass(frozen=True)
class _Row:
    """A row of a weight in planes."""

    weight: ir.Value
    layout: PlaneLayout
    k: int
    n: Scalar

    def record(self, number: int, k: Scalar) -> _Bytes:
        """The record of a plane, by its number, that element k belongs to."""
        plane = self.layout.planes[number]
        start = (k // plane.elements) * plane.nbytes + self.layout.offsets(self.k)[number]
        return _Bytes(self.weight, self.n, start)


def _row_factor(row: _Row, factor: Factor | None, k: Scalar) -> Scalar:
    """The scale or minimum of the element's sub-block."""
    assert factor is not None, "a format that has it"
    layout = row.layout
    dtype = "<f2" if layout.float_bytes == 2 else "<f4"
    value = row.record(len(layout.planes) - 1, k).number(factor.number * layout.float_bytes, dtype)
    if factor.at is not None:
        stored = unsigned(row.record(len(layout.quants), k).byte(factor.at), "i32")
        if factor.bits < 8:
            stored = (stored >> factor.shift) & ((1 << factor.bits) - 1)
        value = value * _signed(stored, factor.bits == 8).to("f32")
    return -value if factor.sign < 0 else value


def _row_integer(row: _Row, k: Scalar) -> Scalar:
    """The integer of an element, the offset subtracted: the OR of its planes."""
    layout, e = row.layout, k % RUN
    if layout.widths == (8,):  # which of the two planes is a part of the offset, not a choice
        half = layout.offsets(row.k)[1]
        start = (k // RUN) * HALF + (e // HALF) * half + e % HALF
        return _signed(unsigned(_Bytes(row.weight, row.n, start).byte(0), "i32"), layout.signed) - layout.bias
    quad, position = e // 4, e % 4
    total: Scalar | None = None
    into = 0
    for number, width in enumerate(layout.widths):
        per_dword = 8 // width
        bits = unsigned(row.record(number, k).byte((quad // per_dword) * 4 + position), "i32")
        bits = (bits >> ((quad % per_dword) * width).to("i32")) & ((1 << width) - 1)
        bits = bits << into if into else bits
        total = bits if total is None else total | bits
        into += width
    assert total is not None, "a quantised format"
    return total - layout.bias
