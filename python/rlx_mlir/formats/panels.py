# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The ``panels`` layout, which interleaves 16 rows for kernels; it follows from the description of a format.

A weight is uint8 ``[ceil(N / 16), panel_bytes]``. Panel p holds rows ``16p .. 16p + 15`` (missing rows are zeros),
their blocks along K in order. One block of a panel is, little-endian:

1. the floats of the format's blocks, ``[float][row]``, as stored: d, or that of each sub-block, then m or dmin where
   there is one;
2. the integers of its sub-blocks, bytes ``[sub-block][row]``, as two's complement with their offset subtracted: first
   the scales S, then the minima M. Where both fit in four bits, one byte holds both, the scale low;
3. for every 32 elements, planes of dwords ``[dword][row]`` that hold the codes, unsigned: ``code + 128`` where the
   format has signed ones, as `stored_codes` gives them else. Words of grids and digits of base 3 are taken apart: a
   code has 2 to 4 bits.

A plane is 8, 4, 2 or 1 bits wide; the widths are the binary digits of the number of bits, widest first, and the first
plane has the lowest bits. The 32 elements are 8 quads of 4. A dword of a plane of w bits holds 8 / w quads: byte j,
from bit ``w * i`` on, is element j of its quad i. So one shift and one mask give the bits of four elements as bytes.

Dense formats: elements ``[K][16]``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

from .. import checks
from ..arrays import as_array
from ..errors import InputError, UnsupportedError
from .blocks import (
    CHUNK,
    FORMATS,
    Bytes,
    checked_rows,
    factor_integers,
    get_format,
    insert_codes,
    insert_factor_integers,
    insert_floats,
    stored_codes,
    stored_floats,
)
from .descriptions import RUN, BlockFormat, float_bytes
from .factors import Factor, byte_mask, folded, place_factors, plane_widths, share_bytes, stored_factors

PANEL_ROWS = 16
"""Rows (outputs n) that one panel interleaves."""


@dataclass(frozen=True)
class PanelLayout:
    """How 16 rows of a format are interleaved; the module says what the parts are.

    Attributes:
        format: the format of the rows.
        block: elements of one row in one block of a panel.
        sub: elements that share a scale, at most 32.
        floats: how many a block has.
        float_type: their type, as `Field.dtype` has it.
        scale, minimum: of a sub-block; ``value = scale * (u - bias) (+ minimum)``. None where there is none.
        unit: a power of two that scales are multiplied by.
        widths: bits of each plane of codes; empty where the format is dense.
        table: the unsigned integer u of each code; empty where it is the code.
        bias: what is subtracted from u.
        payload: byte of the block at which the planes start.
    """

    format: BlockFormat
    block: int = 1
    sub: int = 1
    floats: int = 0
    float_type: str = "<f2"
    scale: Factor | None = None
    minimum: Factor | None = None
    unit: float = 1.0
    widths: tuple[int, ...] = ()
    table: tuple[int, ...] = ()
    bias: int = 0
    payload: int = 0

    @property
    def name(self) -> str:
        """Name of the format."""
        return self.format.name

    @property
    def dense(self) -> bool:
        """Whether the elements are floats."""
        return not self.widths

    @property
    def bits(self) -> int:
        """Bits of a code."""
        return sum(self.widths)

    @property
    def factors(self) -> tuple[Factor, ...]:
        """The scale, and the minimum where there is one."""
        return tuple(factor for factor in (self.scale, self.minimum) if factor is not None)

    @property
    def top(self) -> int:
        """The largest u that there may be."""
        return max(self.table, default=(1 << self.bits) - 1)

    def integer(self, code: int) -> int:
        """The integer q of a code, whose bits beyond `bits` don't count."""
        code %= 1 << self.bits
        return (self.table[code] if self.table else code) - self.bias

    @property
    def float_bytes(self) -> int:
        """Bytes of a float."""
        return float_bytes(self.float_type)

    @property
    def runs(self) -> int:
        """Runs of 32 elements in a block."""
        return self.block // RUN

    @property
    def run_bytes(self) -> int:
        """Bytes of a run of 32 elements: a dword of each row for each bit."""
        return 4 * PANEL_ROWS * self.bits

    @property
    def block_bytes(self) -> int:
        """Bytes of one block of one panel."""
        return PANEL_ROWS * self.format.nbytes if self.dense else self.payload + self.runs * self.run_bytes

    @property
    def subs(self) -> int:
        """Sub-blocks of a block."""
        return self.block // self.sub

    def panel_bytes(self, k: int) -> int:
        """Bytes of one panel (16 rows) of rows of ``k`` elements; InputError where ``k`` isn't whole blocks."""
        self.format.row_bytes(k)
        return k // self.block * self.block_bytes


PANEL_FORMATS = tuple(name for name, fmt in FORMATS.items() if fmt.has_panels)
"""Names of our own formats that have panels: all that products take but q8_k, whose scales are f32."""


def panel_layout(format: str | int | BlockFormat) -> PanelLayout:
    """The ``panels`` layout of a format; UnsupportedError for formats without one."""
    return _layout(get_format(format))


@cache
def _layout(fmt: BlockFormat) -> PanelLayout:
    if not fmt.has_panels:
        raise UnsupportedError(f"no panels layout is defined for {fmt.name}")
    if fmt.is_dense:
        return PanelLayout(fmt)
    assert fmt.scale is not None
    parts = fmt.factors
    start = PANEL_ROWS * fmt.floats_per_block * float_bytes(fmt.float_type)
    integers = PANEL_ROWS * (fmt.block // fmt.sub)
    count = 1 if share_bytes(fmt) else sum(bool(part.planes) for part in parts)
    scale, minimum = place_factors(fmt, [start + integers * number for number in range(count)])
    bias = 128 if fmt.signed else fmt.offset
    if fmt.values:  # bytes without sign; with a bias of 128, whose sum with the integer is its bits but one
        bias = -min(fmt.values) if max(fmt.values) - min(fmt.values) <= 127 else 128
    return PanelLayout(
        fmt,
        fmt.block,
        min(fmt.sub, RUN),
        fmt.floats_per_block,
        fmt.float_type,
        scale,
        minimum,
        fmt.unit,
        plane_widths(fmt),
        tuple(value + bias for value in fmt.values),
        bias,
        start + integers * count,
    )


def panel_bytes(format: str | int | BlockFormat, k: int) -> int:
    """Bytes of one panel (16 rows) of rows of ``k`` elements."""
    return panel_layout(format).panel_bytes(k)


# ----------------------------------------------------------------------------------------------------------------------
# Packing
# ----------------------------------------------------------------------------------------------------------------------

Words = npt.NDArray[np.uint32]


@dataclass(frozen=True)
class _Views:
    """The parts of P panels: floats, as integers of as many bits, [P, blocks, float, 16], bytes u1 [P, blocks,
    sub-block, 16] by their start, and planes u4 [P, blocks, run, dword, 16]."""

    floats: npt.NDArray[np.unsignedinteger]
    bytes: dict[int, Bytes]
    planes: tuple[Words, ...]

    def all(self) -> list[np.ndarray]:
        """Every part."""
        return [self.floats, *self.bytes.values(), *self.planes]


def _views(layout: PanelLayout, panels: Bytes) -> _Views:
    blocks = panels.reshape(panels.shape[0], -1, layout.block_bytes)
    lead = blocks.shape[:2]
    size = layout.float_bytes
    floats = blocks[..., : size * PANEL_ROWS * layout.floats].view(f"<u{size}")
    floats = floats.reshape(*lead, layout.floats, PANEL_ROWS)
    integers = {}
    for factor in (layout.scale, layout.minimum):
        if factor is not None and factor.at is not None:
            part = blocks[..., factor.at : factor.at + PANEL_ROWS * layout.subs]
            integers[factor.at] = part.reshape(*lead, layout.subs, PANEL_ROWS)
    dwords = blocks[..., layout.payload :].view("<u4").reshape(*lead, layout.runs, layout.bits, PANEL_ROWS)
    planes, first = [], 0
    for width in layout.widths:
        planes.append(dwords[..., first : first + width, :])
        first += width
    return _Views(floats, integers, tuple(planes))


def _across(values: np.ndarray, panels: int) -> np.ndarray:
    """[16 P, blocks, ...] as [P, blocks, ..., 16], a view."""
    return np.moveaxis(values.reshape(panels, PANEL_ROWS, *values.shape[1:]), 1, -1)


def _along(values: np.ndarray) -> np.ndarray:
    """[P, blocks, ..., 16] as [16 P, blocks, ...]: the inverse of `_across`."""
    rows = np.ascontiguousarray(np.moveaxis(values, -1, 1))
    return rows.reshape(-1, *rows.shape[2:])


def _pack_rows(layout: PanelLayout, rows: Bytes, panels: Bytes) -> None:
    """Packs full panels: ``rows`` [16 P, rowbytes] into ``panels`` [P, panelbytes]."""
    fmt = layout.format
    count = panels.shape[0]
    if fmt.is_dense:
        word = np.dtype(f"<u{fmt.nbytes}")  # moved as integers, so that no NaN changes its bits
        source = np.ascontiguousarray(rows).view(word).reshape(count, PANEL_ROWS, -1)
        panels.view(word).reshape(count, -1, PANEL_ROWS)[:] = source.transpose(0, 2, 1)
        return
    views = _views(layout, panels)
    stored = np.concatenate([stored_floats(fmt, rows, part) for part in fmt.factors], axis=-2)
    views.floats[:] = _across(stored.view(f"<u{layout.float_bytes}")[..., 0], count)
    for what, factor, at in stored_factors(layout):
        integers = _across(factor_integers(fmt, rows, what).astype(np.uint8), count)
        if factor.shift:
            views.bytes[at][:] |= integers << np.uint8(factor.shift)
        else:
            views.bytes[at][:] = integers
    q = np.ascontiguousarray(stored_codes(fmt, rows)).reshape(-1).view("<u4")
    if fmt.signed:  # q + 128 as an unsigned byte is q with its sign bit flipped
        q = q ^ np.uint32(0x80808080)
    into = 0
    for width, plane in zip(layout.widths, views.planes, strict=True):
        words = q if layout.bits == width else (q >> np.uint32(into)) & byte_mask(width)
        plane[:] = _across(folded(words, width).reshape(rows.shape[0], -1, layout.runs, width), count)
        into += width


def pack_panels(format: str | int | BlockFormat, data: np.ndarray, k: int) -> Bytes:
    """Interleaves rows into panels of 16; `unpack_panels` is the inverse.

    Args:
        format: the format, its name or its GGUF type number.
        data: uint8 ``[N, rowbytes]`` in GGUF order; dense formats also take their elements, ``[N, k]``.
        k: elements in a row.

    Returns uint8 ``[ceil(N / 16), panel_bytes(format, k)]``.
    """
    layout = panel_layout(format)
    rows = checked_rows(layout.format, data, k)
    n = rows.shape[0]
    full = n // PANEL_ROWS
    out = np.empty((-(-n // PANEL_ROWS), layout.panel_bytes(k)), np.uint8)
    step = max(1, (CHUNK * 2) // (PANEL_ROWS * k))
    for start in range(0, full, step):
        stop = min(start + step, full)
        _pack_rows(layout, rows[PANEL_ROWS * start : PANEL_ROWS * stop], out[start:stop])
    if present := n % PANEL_ROWS:
        padded = np.zeros((PANEL_ROWS, rows.shape[1]), np.uint8)
        padded[:present] = rows[PANEL_ROWS * full :]
        _pack_rows(layout, padded, out[full:])
        if not layout.dense:  # offsets have made something else of some zeros
            for part in _views(layout, out[full:]).all():
                part[..., present:] = 0
    return out


def unpack_panels(format: str | int | BlockFormat, panels: np.ndarray, k: int, n: int) -> Bytes:
    """Inverse of `pack_panels`: uint8 ``[n, rowbytes]`` in GGUF order.

    It is what was packed, bit for bit, but for bits of blocks that no value depends on: they are zero, and digits of
    base 3 are as quantisers store them.

    Args:
        format: the format, its name or its GGUF type number.
        panels: uint8 ``[ceil(n / 16), panel_bytes(format, k)]``.
        k: elements in a row.
        n: number of rows.
    """
    layout = panel_layout(format)
    fmt = layout.format
    expected = (-(-checks.whole("n", n) // PANEL_ROWS), layout.panel_bytes(k))
    panels = as_array("'panels'", panels)
    if panels.dtype != np.uint8 or panels.shape != expected:
        raise InputError(
            f"{fmt.name} panels of k = {k}, n = {n} are uint8 {list(expected)}, "
            f"but these are {panels.dtype} {list(panels.shape)}"
        )
    panels = np.ascontiguousarray(panels)
    if fmt.is_dense:
        word = np.dtype(f"<u{fmt.nbytes}")
        elements = panels.view(word).reshape(-1, k, PANEL_ROWS).transpose(0, 2, 1)
        return np.ascontiguousarray(elements).reshape(-1, k)[:n].view(np.uint8).reshape(n, -1)
    rows = np.zeros((expected[0] * PANEL_ROWS, fmt.row_bytes(k)), np.uint8)
    views = _views(layout, panels)
    floats = _along(views.floats)[..., None].view(np.uint8)
    first = 0
    for part in fmt.factors:
        count = fmt.floats_of(part)
        insert_floats(fmt, rows, part, floats[..., first : first + count, :])
        first += count
    for what, factor, at in stored_factors(layout):
        insert_factor_integers(fmt, rows, what, factor.integers(_along(views.bytes[at])))
    quads: Words = np.zeros((*views.planes[0].shape[:3], 8, PANEL_ROWS), np.uint32)
    into = 0
    for width, plane in zip(layout.widths, views.planes, strict=True):
        per_dword = 8 // width
        for i in range(per_dword):
            quads[..., i::per_dword, :] |= ((plane >> np.uint32(width * i)) & byte_mask(width)) << np.uint32(into)
        into += width
    q = _along(quads).reshape(rows.shape[0], -1, fmt.block // 4).view(np.uint8)
    insert_codes(fmt, rows, q ^ np.uint8(128) if fmt.signed else q)
    return np.ascontiguousarray(rows[:n])
