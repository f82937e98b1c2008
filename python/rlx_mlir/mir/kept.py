# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Keys and values that are kept as blocks of few bits: what the schemes of `mir.cache_update` and `mir.attention` say.

A row of E elements is E / 32 blocks, one after the other, in the order of GGUF files. What they decode to follows from
the descriptions in `rlx_mlir.formats`; how they are rounded is written here for loops, and by `formats.encode` for
arrays.
"""

from __future__ import annotations

import numpy as np

from rlx_mlir import formats, ir
from rlx_mlir.mir.decode import element_value
from rlx_mlir.mir.linalg import as_index, collapse, empty, generic, reduced, sizes_of, split_dims
from rlx_mlir.mir.packed import Packing
from rlx_mlir.mir.scalars import Scalar, absolute, constant, element, extract, index

SCHEMES = ("q8_0", "q4_0")
"""Formats that keys and values can be kept in, by the words of `#mir.cache_scheme`."""

_LEAST = float(np.finfo(np.float32).tiny)
_NAN = 0x7E00
"""The bits of the f16 that is the scale of a block whose elements it can't be one of."""


def row_bytes(scheme: str, width: int) -> int:
    """Bytes of a row of so many elements; InputError where blocks don't divide it."""
    return formats.get_format(scheme).row_bytes(width)


# ----------------------------------------------------------------------------------------------------------------------
# References
# ----------------------------------------------------------------------------------------------------------------------


def encoded(x: np.ndarray, scheme: str) -> np.ndarray:
    """f32 [..., E] as i8 [..., bytes]; blocks with NaN, infinities or what is too large for scales of f16 are NaN."""
    fmt = formats.get_format(scheme)
    blocks = np.ascontiguousarray(x, np.float32).reshape(-1, fmt.block)
    with np.errstate(over="ignore", invalid="ignore"):
        steps = np.float32(127 if fmt.signed else fmt.offset)
        holds = np.isfinite((np.abs(blocks).max(axis=1, initial=0) / steps).astype(np.float16))
    rows = formats.encode(fmt, np.where(holds[:, None], blocks, 0))
    nothing = formats.encode(fmt, np.zeros((1, fmt.block), np.float32))[0]  # codes of numbers that are 0
    nothing[:2] = np.array(_NAN, "<u2").reshape(1).view(np.uint8)
    rows[~holds] = nothing
    return rows.view(np.int8).reshape(*x.shape[:-1], fmt.row_bytes(x.shape[-1]))


def decoded(x: np.ndarray, scheme: str) -> np.ndarray:
    """i8 [..., bytes] as f32 [..., E]."""
    fmt = formats.get_format(scheme)
    width = x.shape[-1] // fmt.nbytes * fmt.block
    rows = np.ascontiguousarray(x).view(np.uint8).reshape(-1, x.shape[-1])
    return formats.decode(fmt, rows, width).reshape(*x.shape[:-1], width)


# ----------------------------------------------------------------------------------------------------------------------
# Lowering to linalg
# ----------------------------------------------------------------------------------------------------------------------


def decoded_tensor(kept: ir.Value, scheme: str, width: int) -> ir.Value:
    """A tensor [..., S, bytes] of i8, of rank 2 or 3, as f32 [..., S, width]."""
    *outer, _ = sizes_of(kept)
    rank = len(outer) + 1
    flat = kept if rank == 2 else collapse(kept, [[0, 1], [2]])
    rows = None if rank == 2 else outer[1]
    packing = Packing(scheme, width, None)

    def value(_: Scalar) -> Scalar:
        at = [index(dim) for dim in range(rank)]
        row = at[0] if rows is None else at[0] * Scalar(as_index(rows)) + at[1]
        return element_value(flat, packing, row, at[-1])

    return generic(rank, [], [(empty([*outer, width], element("f32")), range(rank))], value)


def encoded_tensor(new: ir.Value, scheme: str) -> ir.Value:
    """A tensor [B, S, E] of f32 as i8 [B, S, bytes], bit for bit as `encoded`."""
    fmt = formats.get_format(scheme)
    batch, rows, width = sizes_of(new)
    assert isinstance(width, int), "C7"
    blocks = width // fmt.block
    f32 = element("f32")
    split = split_dims(new, [[0], [1], [2, 3]], [batch, rows, blocks, fmt.block])
    loops = b, s, block = range(3)

    def largest(x: Scalar, most: Scalar) -> Scalar:
        """Of two elements the one of the larger magnitude, the first of equals; NaN where one is NaN."""
        return (absolute(x) <= absolute(most)).select(most, most.compare("eq", most).select(x, most))

    extremes = reduced(4, [(split, [b, s, block, 3])], [batch, rows, blocks], [b, s, block], 0, largest)

    def scale(extreme: Scalar, _: Scalar) -> Scalar:
        if fmt.signed:
            return absolute(extreme) / 127.0
        zero = extract(split, [*map(index, loops), constant(element("index"), 0)])  # which has a sign, too
        return extreme.compare("eq", 0).select(zero, extreme) / float(-fmt.offset)

    scales = generic(3, [(extremes, loops)], [(empty([batch, rows, blocks], f32), loops)], scale)
    first = fmt.field(fmt.quants[0].field).offset

    def byte(d: Scalar, _: Scalar) -> Scalar:
        place = index(3)
        half = d.to("f16")
        holds = absolute(half.to("f32")) < float("inf")
        inverse = (absolute(d) >= _LEAST).select(1.0 / d, 0.0)

        def code(e: Scalar) -> Scalar:
            scaled = extract(split, [*map(index, loops), e]) * inverse
            if fmt.signed:
                return holds.select(scaled + (scaled < 0).select(scaled.like(-0.5), 0.5), 0.0).to("i32")
            return holds.select(scaled + (fmt.offset + 0.5), float(fmt.offset)).to("i32").min(2 * fmt.offset - 1)

        own = place.max(first) - first
        codes = code(own) if fmt.signed else code(own) | code(own + fmt.block // 2) << 4
        bits = holds.select(half.bitcast("i16"), _NAN)
        of_scale = (bits >> (place.min(1) * 8).to("i16")).low_bits(element("i8"))
        return (place < first).select(of_scale, codes.low_bits(element("i8")))

    destination = empty([batch, rows, blocks, fmt.nbytes], element("i8"))
    result = generic(4, [(scales, loops)], [(destination, range(4))], byte)
    return collapse(result, [[0], [1], [2, 3]])


__all__ = ["SCHEMES", "decoded", "decoded_tensor", "encoded", "encoded_tensor", "row_bytes"]
