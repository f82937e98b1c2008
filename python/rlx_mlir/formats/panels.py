# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The ``panels`` layout, which interleaves 16 rows for kernels; it follows from the description of a format.

A weight is uint8 ``[ceil(N / 16), panel_bytes]``. Panel p holds rows ``16p .. 16p + 15`` (missing rows are zeros),
their blocks along K in order. One block of a panel is, little-endian:

1. the floats of the format's blocks, f16 ``[float][row]``: d, then m or dmin where there is one;
2. the integers of its sub-blocks, bytes ``[sub-block][row]``, as two's complement with their offset subtracted: first
   the scales S, then the minima M. Where both fit in four bits, one byte holds both, the scale low;
3. for every 32 elements, planes of dwords ``[dword][row]`` that hold the integers q, unsigned: ``q + 128`` where the
   format has signed ones, as stored else.

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
    RUN,
    BlockFormat,
    Bytes,
    checked_rows,
    field_bytes,
    get_format,
    insert_integers,
    stored_integers,
)
from .factors import Factor, byte_mask, folded, place_factors, plane_widths, share_bytes, stored_factors

PANEL_ROWS = 16
"""Rows (outputs n) that one panel interleaves."""


@dataclass(frozen=True)
class PanelLayout:
    """How 16 rows of a format are interleaved; the module says what the parts are.

    Attributes:
        format: the format of the rows.
        block: elements of one row in one block of a panel.
        sub: elements that share a scale.
        floats: names of the f16 fields.
        scale, minimum: of a sub-block; ``value = scale * (u - bias) (+ minimum)``. None where there is none.
        widths: bits of each plane of the unsigned integers u; empty where the format is dense.
        bias: what is subtracted from u.
        payload: byte of the block at which the planes start.
    """

    format: BlockFormat
    block: int = 1
    sub: int = 1
    floats: tuple[str, ...] = ()
    scale: Factor | None = None
    minimum: Factor | None = None
    widths: tuple[int, ...] = ()
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
        """Bits of an integer u."""
        return sum(self.widths)

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
"""Names of our own formats that have panels: f32, f16, bf16 and all block formats whose scales are f16."""


def panel_layout(format: str | int | BlockFormat) -> PanelLayout:
    """The ``panels`` layout of a format; UnsupportedError for formats without one."""
    return _layout(get_format(format))


@cache
def _layout(fmt: BlockFormat) -> PanelLayout:
    if not fmt.has_panels:
        raise UnsupportedError(f"no panels layout is defined for {fmt.name}")
    if fmt.dense is not None:
        return PanelLayout(fmt)
    assert fmt.scale is not None
    parts = fmt.factors
    start = 2 * PANEL_ROWS * len(parts)
    integers = PANEL_ROWS * (fmt.block // fmt.sub)
    count = 1 if share_bytes(fmt) else sum(bool(part.planes) for part in parts)
    scale, minimum = place_factors(fmt, [start + integers * number for number in range(count)])
    return PanelLayout(
        fmt,
        fmt.block,
        fmt.sub,
        tuple(part.field for part in parts),
        scale,
        minimum,
        plane_widths(fmt),
        128 if fmt.signed else fmt.offset,
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
    """The parts of P panels: halves u2 [P, blocks, float, 16], bytes u1 [P, blocks, sub-block, 16] by their start, and
    planes u4 [P, blocks, run, dword, 16]."""

    halves: npt.NDArray[np.uint16]
    bytes: dict[int, Bytes]
    planes: tuple[Words, ...]

    def all(self) -> list[np.ndarray]:
        """Every part."""
        return [self.halves, *self.bytes.values(), *self.planes]


def _views(layout: PanelLayout, panels: Bytes) -> _Views:
    blocks = panels.reshape(panels.shape[0], -1, layout.block_bytes)
    lead = blocks.shape[:2]
    count = len(layout.floats)
    halves = blocks[..., : 2 * PANEL_ROWS * count].view("<u2").reshape(*lead, count, PANEL_ROWS)
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
    return _Views(halves, integers, tuple(planes))


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
    if fmt.dense is not None:
        word = np.dtype(f"<u{fmt.nbytes}")  # moved as integers, so that no NaN changes its bits
        source = np.ascontiguousarray(rows).view(word).reshape(count, PANEL_ROWS, -1)
        panels.view(word).reshape(count, -1, PANEL_ROWS)[:] = source.transpose(0, 2, 1)
        return
    views = _views(layout, panels)
    for number, name in enumerate(layout.floats):
        source = np.ascontiguousarray(field_bytes(fmt, rows, name)).view("<u2")[..., 0]
        views.halves[..., number, :] = _across(source, count)
    for what, factor, at in stored_factors(layout):
        integers = _across(stored_integers(fmt, rows, what.planes) - np.uint8(what.offset), count)
        if factor.shift:
            views.bytes[at][:] |= integers << np.uint8(factor.shift)
        else:
            views.bytes[at][:] = integers
    q = np.ascontiguousarray(stored_integers(fmt, rows, fmt.quants)).reshape(-1).view("<u4")
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
    """Inverse of `pack_panels`: uint8 ``[n, rowbytes]`` in GGUF order, bit for bit what was packed.

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
    if fmt.dense is not None:
        word = np.dtype(f"<u{fmt.nbytes}")
        elements = panels.view(word).reshape(-1, k, PANEL_ROWS).transpose(0, 2, 1)
        return np.ascontiguousarray(elements).reshape(-1, k)[:n].view(np.uint8).reshape(n, -1)
    rows = np.zeros((expected[0] * PANEL_ROWS, fmt.row_bytes(k)), np.uint8)
    views = _views(layout, panels)
    for number, name in enumerate(layout.floats):
        field_bytes(fmt, rows, name)[:] = _along(views.halves[..., number, :])[..., None].view(np.uint8)
    for what, factor, at in stored_factors(layout):
        integers = _along(views.bytes[at])
        if factor.bits < 8:
            integers = (integers >> np.uint8(factor.shift)) & np.uint8((1 << factor.bits) - 1)
        insert_integers(fmt, rows, what.planes, integers + np.uint8(what.offset))
    quads: Words = np.zeros((*views.planes[0].shape[:3], 8, PANEL_ROWS), np.uint32)
    into = 0
    for width, plane in zip(layout.widths, views.planes, strict=True):
        per_dword = 8 // width
        for i in range(per_dword):
            quads[..., i::per_dword, :] |= ((plane >> np.uint32(width * i)) & byte_mask(width)) << np.uint32(into)
        into += width
    q = _along(quads).reshape(rows.shape[0], -1, fmt.block // 4).view(np.uint8)
    insert_integers(fmt, rows, fmt.quants, q ^ np.uint8(128) if fmt.signed else q)
    return np.ascontiguousarray(rows[:n])
