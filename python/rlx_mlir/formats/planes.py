# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Layout ``planes`` of weights for GPUs: rows stay rows, but what a block holds together is sorted by its kind.

A weight is uint8 ``[N, planes_row_bytes]``. A row is a sequence of planes, each an array of records along K, which
begins and ends at a multiple of 16 bytes; bytes between are zero. Planes are, in this order:

1. the integers q, one plane for each width of ``widths`` (the binary digits of the number of bits, widest first; the
   first holds the lowest bits), in runs of 32 elements, as stored: two's complement where the format is signed.
   - 8 bits: two planes, of the first and the last 16 elements of each run, 16 bytes in each.
   - 4, 2, 1 bits: one plane of 16, 8, 4 bytes a run. The 32 elements are 8 quads of 4; a dword of a plane of w bits
     holds 8 / w quads that follow each other: byte j, from bit ``w * i`` on, is element j of quad i.
2. the integers of the scales and minima, bytes ``[sub-block][S, M]``, two's complement with their offset subtracted,
   of what has integers. Where both fit in four bits, one byte holds both, the scale low.
3. the floats of the blocks, ``[block][d, m]``, f16 or f32 as in the format.

So 32 threads that take one run each read whole, aligned pieces of memory: 16 bytes of four-bit integers, say, are the
operands of eight dot products of bytes after one mask, or one shift and one mask, each.

Dense formats: the elements, in one plane.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np
import numpy.typing as npt

from ..arrays import as_array
from ..errors import InputError, UnsupportedError
from .blocks import (
    CHUNK,
    FORMATS,
    Bytes,
    checked_rows,
    factor_integers,
    field_bytes,
    get_format,
    insert_codes,
    insert_factor_integers,
    stored_codes,
)
from .descriptions import RUN, BlockFormat
from .factors import Factor, byte_mask, folded, place_factors, plane_widths, share_bytes, stored_factors

PLANE_ALIGN = 16
"""Bytes that each plane, and so each row, is a multiple of."""

HALF = 16
"""Elements of a run that one plane of 8 bits holds."""


def _aligned(size: int) -> int:
    return -(-size // PLANE_ALIGN) * PLANE_ALIGN


@dataclass(frozen=True)
class RowPlane:
    """A plane of a row: for every ``elements`` elements along K, a record of ``nbytes`` bytes."""

    elements: int
    nbytes: int

    def size(self, k: int) -> int:
        """Bytes of the plane in rows of ``k`` elements, padding included."""
        return _aligned(k // self.elements * self.nbytes)


@dataclass(frozen=True)
class PlaneLayout:
    """How a row of a format is laid out; the module says what the parts are.

    Attributes:
        format: the format of the rows.
        quants: planes of the integers q, or of the elements of a dense format; planes of 8 bits are two.
        integers: plane of the sub-blocks' integers, where there are some.
        floats: plane of the blocks' floats; None where the format is dense.
        names: fields of the floats in a record, in order.
        float_bytes: bytes of one float.
        scale, minimum: of a sub-block; ``value = scale * (q - bias) (+ minimum)``. None where there is none.
        widths: bits of each plane of integers; empty where the format is dense.
        signed: whether q is a two's complement byte.
        bias: what is subtracted from q.
    """

    format: BlockFormat
    quants: tuple[RowPlane, ...]
    integers: RowPlane | None = None
    floats: RowPlane | None = None
    names: tuple[str, ...] = ()
    float_bytes: int = 2
    scale: Factor | None = None
    minimum: Factor | None = None
    widths: tuple[int, ...] = ()
    signed: bool = False
    bias: int = 0

    @property
    def name(self) -> str:
        """Name of the format."""
        return self.format.name

    @property
    def dense(self) -> bool:
        """Whether the elements are floats."""
        return not self.widths

    @property
    def sub(self) -> int:
        """Elements that share a scale."""
        return self.format.sub

    @cached_property
    def planes(self) -> tuple[RowPlane, ...]:
        """All planes, in the order of the row."""
        return (*self.quants, *(plane for plane in (self.integers, self.floats) if plane is not None))

    def offsets(self, k: int) -> tuple[int, ...]:
        """The byte of a row of ``k`` elements at which each of `planes` begins."""
        starts = [0]
        for plane in self.planes:
            starts.append(starts[-1] + plane.size(k))
        return tuple(starts[:-1])

    def row_bytes(self, k: int) -> int:
        """Bytes of a row of ``k`` elements; InputError where ``k`` isn't whole blocks."""
        self.format.row_bytes(k)
        return sum(plane.size(k) for plane in self.planes)


def plane_layout(format: str | int | BlockFormat) -> PlaneLayout:
    """The ``planes`` layout of a format; UnsupportedError for formats without one."""
    return _layout(get_format(format))


@cache
def _layout(fmt: BlockFormat) -> PlaneLayout:
    if not fmt.has_planes:
        raise UnsupportedError(f"no planes layout is defined for {fmt.name}")
    if fmt.is_dense:
        return PlaneLayout(fmt, (RowPlane(1, fmt.nbytes),))
    parts = fmt.factors
    record = 1 if share_bytes(fmt) else sum(bool(part.planes) for part in parts)
    scale, minimum = place_factors(fmt, range(record))
    widths = plane_widths(fmt)
    quants: list[RowPlane] = []
    for width in widths:
        quants += [RowPlane(RUN, HALF)] * 2 if width == 8 else [RowPlane(RUN, 4 * width)]
    size = 2 if fmt.field(parts[0].field).dtype == "<f2" else 4
    return PlaneLayout(
        fmt,
        tuple(quants),
        RowPlane(fmt.sub, record) if record else None,
        RowPlane(fmt.block, size * len(parts)),
        tuple(part.field for part in parts),
        size,
        scale,
        minimum,
        widths,
        fmt.signed,
        fmt.offset,
    )


PLANE_FORMATS = tuple(name for name, fmt in FORMATS.items() if fmt.has_planes)
"""Names of our own formats that have planes: f32, f16, bf16 and all formats of plain blocks."""


def planes_row_bytes(format: str | int | BlockFormat, k: int) -> int:
    """Bytes of a row of ``k`` elements in layout ``planes``."""
    return plane_layout(format).row_bytes(k)


# ----------------------------------------------------------------------------------------------------------------------
# Packing
# ----------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Views:
    """The parts of rows: ``quants`` u4 [rows, runs, dwords] each, ``integers`` u1 [rows, sub-blocks, record] and
    ``floats`` u1 [rows, blocks, float, bytes]."""

    quants: tuple[npt.NDArray[np.uint32], ...]
    integers: Bytes | None
    floats: Bytes


def _views(layout: PlaneLayout, rows: Bytes, k: int) -> _Views:
    """Views of uint8 [rows, row_bytes(k)], C-contiguous in rows."""
    parts = []
    for plane, start in zip(layout.planes, layout.offsets(k), strict=True):
        count = k // plane.elements
        parts.append(rows[:, start : start + count * plane.nbytes].reshape(rows.shape[0], count, plane.nbytes))
    quants = tuple(part.view("<u4") for part in parts[: len(layout.quants)])
    floats = parts[-1].reshape(*parts[-1].shape[:2], len(layout.names), layout.float_bytes)
    return _Views(quants, parts[-2] if layout.integers is not None else None, floats)


def _pack_rows(layout: PlaneLayout, rows: Bytes, out: Bytes, k: int) -> None:
    """Sorts ``rows`` [n, bytes in GGUF order] into ``out`` [n, row_bytes(k)], which is zero."""
    fmt = layout.format
    if layout.dense:
        out[:, : rows.shape[1]] = rows
        return
    count = rows.shape[0]
    views = _views(layout, out, k)
    for number, name in enumerate(layout.names):
        views.floats[..., number, :] = field_bytes(fmt, rows, name)
    for what, factor, at in stored_factors(layout):
        assert views.integers is not None
        integers = factor_integers(fmt, rows, what).astype(np.uint8).reshape(count, -1)
        views.integers[..., at] |= integers << np.uint8(factor.shift)
    q = np.ascontiguousarray(stored_codes(fmt, rows)).reshape(-1).view("<u4")
    into = 0
    planes = iter(views.quants)
    for width in layout.widths:
        if width == 8:
            halves = q.reshape(count, -1, 2, HALF // 4)
            next(planes)[:], next(planes)[:] = halves[:, :, 0], halves[:, :, 1]
            return
        words = (q >> np.uint32(into)) & byte_mask(width)
        next(planes)[:] = folded(words, width).reshape(count, -1, width)
        into += width


def pack_planes(format: str | int | BlockFormat, data: np.ndarray, k: int) -> Bytes:
    """Sorts rows into planes; `unpack_planes` is the inverse. Rows don't depend on each other.

    Args:
        format: the format, its name or its GGUF type number.
        data: uint8 ``[N, rowbytes]`` in GGUF order; dense formats also take their elements, ``[N, k]``.
        k: elements in a row.

    Returns uint8 ``[N, planes_row_bytes(format, k)]``.
    """
    layout = plane_layout(format)
    rows = checked_rows(layout.format, data, k)
    out = np.zeros((rows.shape[0], layout.row_bytes(k)), np.uint8)
    step = max(1, 2 * CHUNK // k)
    for start in range(0, rows.shape[0], step):
        _pack_rows(layout, rows[start : start + step], out[start : start + step], k)
    return out


def _unpack_rows(layout: PlaneLayout, planes: Bytes, rows: Bytes, k: int) -> None:
    """Inverse of `_pack_rows`; ``rows`` is zero."""
    fmt = layout.format
    if layout.dense:
        rows[:] = planes[:, : rows.shape[1]]
        return
    count, blocks = rows.shape[0], k // fmt.block
    views = _views(layout, planes, k)
    for number, name in enumerate(layout.names):
        field_bytes(fmt, rows, name)[:] = views.floats[..., number, :]
    for what, factor, at in stored_factors(layout):
        assert views.integers is not None
        integers = factor.integers(np.ascontiguousarray(views.integers[..., at]))
        insert_factor_integers(fmt, rows, what, integers.reshape(count, blocks, -1))
    quads = np.zeros((count, k // RUN, RUN // 4), "<u4")
    into, parts = 0, iter(views.quants)
    for width in layout.widths:
        if width == 8:
            quads[..., : HALF // 4], quads[..., HALF // 4 :] = next(parts), next(parts)
            break
        plane, per_dword = next(parts), 8 // width
        for i in range(per_dword):
            quads[..., i::per_dword] |= ((plane >> np.uint32(width * i)) & byte_mask(width)) << np.uint32(into)
        into += width
    insert_codes(fmt, rows, quads.view(np.uint8).reshape(count, blocks, -1))


def unpack_planes(format: str | int | BlockFormat, planes: np.ndarray, k: int) -> Bytes:
    """Inverse of `pack_planes`: uint8 ``[n, rowbytes]`` in GGUF order.

    It is what was packed, bit for bit, but for bits of blocks that no value depends on, which are zero.

    Args:
        format: the format, its name or its GGUF type number.
        planes: uint8 ``[n, planes_row_bytes(format, k)]``.
        k: elements in a row.
    """
    layout = plane_layout(format)
    width = layout.row_bytes(k)
    planes = as_array("'planes'", planes)
    if planes.dtype != np.uint8 or planes.ndim != 2 or planes.shape[1] != width:
        raise InputError(
            f"{layout.name} planes of k = {k} are uint8 [n, {width}], but these are {planes.dtype} {list(planes.shape)}"
        )
    planes = np.ascontiguousarray(planes)
    rows = np.zeros((planes.shape[0], layout.format.row_bytes(k)), np.uint8)
    step = max(1, 2 * CHUNK // k)
    for start in range(0, rows.shape[0], step):
        _unpack_rows(layout, planes[start : start + step], rows[start : start + step], k)
    return rows
