# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Quantisers: each block on its own, by one rule for each kind of format.

Blocks whose scales and minima are floats alone are rounded as the public encoders round them, unless columns have
weights. All others are searched for what has a small squared error, weighted where there are weights (`search`):

- With codes of a table, or weights, the scale, or scale and minimum, that some to begin with lead to.
- Where integers scale sub-blocks (K-quants, iq4_xs), each sub-block first gets what it would have alone. Then d and
  dmin are the largest of them in the block divided by the largest integer, and integers and floats are improved in
  turns (`nested`).
- Where codes are words of a grid, so are these, of which the best is found among all (`words`).

What is too small for f16 scales becomes 0.

Scales that are powers of two, those of mxfp4 and all of three numbers, of tq1_0 and tq2_0, are the public ones: the
largest power of two that leaves the largest element in the table's range, and the largest magnitude. q8_k maps the
element of the largest magnitude to -127, and holds sums of 16 integers.

Bytes are those of the public encoders where a block's scale is 0 or at least 2^-126. Where it is subnormal, they divide
by it and overflow; all decodes to 0 then.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..arrays import as_array, dlpack_type, element_word
from ..dtypes import ml_dtypes
from ..errors import InputError, UnsupportedError
from .affine import round_away
from .blocks import CHUNK, Bytes, field_bytes, get_format, insert_codes, insert_factor_integers, insert_floats
from .descriptions import BYTE_FLOATS, BlockFormat, Scaled
from .nested import levels_of, quantised_blocks
from .search import Elements, best_line, best_scale, inverse
from .words import quantised_words

Floats = npt.NDArray[np.float32]


def encode(
    format: str | int | BlockFormat, values: np.ndarray, *, weights: npt.NDArray[np.float32] | None = None
) -> Bytes:
    """Quantises f32 ``[rows, k]`` to uint8 ``[rows, rowbytes]``; the module says how.

    Args:
        format: the format, its name or its GGUF type number.
        values: what is quantised.
        weights: what squared errors of the k columns count, f32 ``[k]``, at least 0 and not all 0; all alike without
            them. Dense formats, and those of powers of two and of three numbers, are rounded as without.

    Raises UnsupportedError for formats without quantiser (see `BlockFormat.encodable`). Raises InputError, with the
    index, for NaN and infinity, and for a value beyond the format's range: one that rounds to infinity in a dense
    format, or makes a scale exceed its type.
    """
    fmt = get_format(format)
    if not fmt.encodable:
        raise UnsupportedError(f"encoding to {fmt.name} is not implemented")
    values = as_array("'values'", values)
    if values.ndim != 2:
        raise InputError(f"'values' must be [rows, k], but has {values.ndim} dimensions")
    if (values.dtype.kind not in "fiub" and dlpack_type(values.dtype) is None) or not values.dtype.isnative:
        raise InputError(f"'values' must be numbers, such as float32, but are {element_word(values.dtype)}")
    count, k = values.shape
    out = np.zeros((count, fmt.row_bytes(k)), np.uint8)
    with np.errstate(over="ignore", invalid="ignore"):
        x = np.ascontiguousarray(values.astype(fmt.dense or np.float32))
    if not count:
        return out
    if not np.isfinite(x).all():
        row, column = np.argwhere(~np.isfinite(x))[0]
        value = values[row, column]
        finfo = ml_dtypes(fmt.name).finfo if fmt.element == "bf16" else np.finfo
        largest = float(finfo(x.dtype).max)
        rule = f"values up to {largest:g}" if np.isfinite(value) else "finite values"
        raise InputError(f"{fmt.name} holds {rule}, but values[{row}, {column}] is {value}")
    if fmt.is_dense:
        out[:] = x.view(np.uint8).reshape(out.shape)
        return out
    blocks = x.reshape(count, -1, fmt.block)
    each = None if weights is None else _checked_weights(weights, k).reshape(-1, fmt.block)
    step = max(1, CHUNK // k)
    with np.errstate(over="ignore", invalid="ignore"):  # what is too large for a scale is said where it is stored
        for start in range(0, count, step):
            own = out[start : start + step]
            insert_codes(fmt, own, _codes(fmt, blocks[start : start + step], each, own))
    return out


_LEAST_WEIGHT = np.float32(1e-6)
"""What a weight is at least, by the mean of all: columns that no input used count a little, so that they stay near."""


def _checked_weights(weights: np.ndarray, k: int) -> Floats:
    """Weights of the k columns, of which the mean is 1."""
    own = as_array("'weights'", weights)
    if own.shape != (k,) or own.dtype.kind != "f":
        raise InputError(
            f"'weights' must be floats [{k}], one for each column, but are {element_word(own.dtype)} {list(own.shape)}"
        )
    mean = float(own.mean(dtype=np.float64))
    if not (own >= 0).all() or not 0 < mean < np.inf:
        raise InputError("'weights' must be finite numbers of at least 0, not all of them 0")
    return np.maximum((own / mean).astype(np.float32), _LEAST_WEIGHT)


def _codes(fmt: BlockFormat, blocks: Floats, weights: Floats | None, out: Bytes) -> Bytes:
    """Stores all but the codes of blocks, and returns these, [rows, blocks, block]."""
    if fmt.rule:
        return {"sums": _with_sums, "ternary": _ternary}[fmt.rule](fmt, blocks, out)
    if fmt.float_type == "e8m0":
        return _by_powers(fmt, blocks, out)
    if fmt.grid is not None:
        return _words(fmt, blocks, weights, out)
    if any(part.planes for part in fmt.factors):
        return _nested(fmt, blocks, weights, out)
    if fmt.values or weights is not None:
        return _searched(fmt, blocks, weights, out)
    return _simple(fmt, blocks, out)


def _store_float(fmt: BlockFormat, out: Bytes, what: Scaled, number: Floats, blocks: Floats) -> Floats:
    """Stores ``number`` [rows, blocks, 1] as the float of a scale or minimum and returns it rounded to its type."""
    dtype = np.dtype("<f2" if what.word else fmt.field(what.field).dtype)
    with np.errstate(over="ignore"):
        stored = number.astype(dtype)
    if not np.isfinite(stored).all():
        row, block, _ = np.argwhere(~np.isfinite(stored))[0]
        column = int(block) * fmt.block + int(np.abs(blocks[row, block]).argmax())
        value = blocks.reshape(blocks.shape[0], -1)[row, column]
        word = f"f{8 * dtype.itemsize}"
        raise InputError(f"{fmt.name} has {word} scales, for which values[{row}, {column}], {value}, is too large")
    insert_floats(fmt, out, what, np.ascontiguousarray(stored)[..., None].view(np.uint8))
    return stored.astype(np.float32)


def _quotient(x: Floats, divisor: Floats) -> Floats:
    """x / divisor, or 0 where the divisor is 0 or subnormal, as then it is 0 in f16."""
    shape = np.broadcast_shapes(x.shape, divisor.shape)
    exists = np.broadcast_to(np.abs(divisor) >= np.finfo(np.float32).tiny, shape)
    return np.divide(x, divisor, out=np.zeros(shape, np.float32), where=exists)


def _largest(x: Floats) -> Floats:
    """The element of the largest magnitude along the last axis, which stays with size 1."""
    return np.take_along_axis(x, np.abs(x).argmax(axis=-1, keepdims=True), axis=-1)


def _simple(fmt: BlockFormat, x: Floats, out: Bytes) -> Bytes:
    """Stores scales and minima that are floats; returns the integers [rows, blocks, block]."""
    low = np.zeros_like(x[..., :1])
    top = np.float32((1 << fmt.bits) - 1)
    if fmt.minimum is not None:
        low = x.min(axis=-1, keepdims=True)
        d = (x.max(axis=-1, keepdims=True) - low) / top
    elif fmt.signed:
        d = np.abs(x).max(axis=-1, keepdims=True) / np.float32(127)
    elif fmt.offset:  # the element of the largest magnitude becomes q = 0
        d = _largest(x) / np.float32(-fmt.offset)
    else:
        d = np.maximum(x.max(axis=-1, keepdims=True), 0) / top
    assert fmt.scale is not None
    _store_float(fmt, out, fmt.scale, d, x)
    if fmt.minimum is not None:
        _store_float(fmt, out, fmt.minimum, low * fmt.minimum_sign, x)
    scaled = (x - low) * _quotient(np.ones_like(d), d)
    if fmt.signed:  # half away from zero
        return np.trunc(scaled + np.copysign(np.float32(0.5), scaled)).astype(np.int8).view(np.uint8)
    return np.trunc(scaled + np.float32(fmt.offset + 0.5)).clip(0, (1 << fmt.bits) - 1).astype(np.uint8)


def _nested(fmt: BlockFormat, blocks: Floats, weights: Floats | None, out: Bytes) -> Bytes:
    """Stores scales and minima of blocks with sub-blocks; returns the codes [rows, blocks, block]."""
    own, exponents = _elements(blocks, fmt.sub, weights)
    found = quantised_blocks(fmt, own, exponents)
    shape = (*blocks.shape[:2], 1)
    for what, d, integers in ((fmt.scale, found.d, found.scales), (fmt.minimum, found.dmin, found.minima)):
        if what is None or d is None or integers is None:
            continue
        _store_float(fmt, out, what, np.ldexp(d / np.float32(fmt.unit), exponents).reshape(shape), blocks)
        if what.planes:
            insert_factor_integers(fmt, out, what, integers.astype(np.int16).reshape(*shape[:2], -1))
    q = found.q.transpose(1, 2, 0).reshape(blocks.shape)
    return _codes_of(fmt, q)


def _words(fmt: BlockFormat, blocks: Floats, weights: Floats | None, out: Bytes) -> Bytes:
    """Stores scales of blocks whose codes are words; returns the codes [rows, blocks, block]."""
    assert fmt.scale is not None
    flat = blocks.reshape(-1, fmt.block)
    _, exponents = np.frexp(np.abs(flat).max(axis=1))
    each = np.ones_like(flat) if weights is None else np.broadcast_to(weights, blocks.shape).reshape(flat.shape)
    found = quantised_words(fmt, np.ldexp(flat, -exponents[:, None]), each, exponents)
    shape = (*blocks.shape[:2], 1)
    _store_float(fmt, out, fmt.scale, np.ldexp(found.d / np.float32(fmt.unit), exponents).reshape(shape), blocks)
    insert_factor_integers(fmt, out, fmt.scale, found.scales.astype(np.int16).reshape(*shape[:2], -1))
    return found.codes.reshape(blocks.shape)


def _elements(blocks: Floats, sub: int, weights: Floats | None) -> tuple[Elements, np.ndarray]:
    """Blocks as columns of sub-blocks, divided by powers of two so that magnitudes are up to 1, and the exponents."""
    flat = blocks.reshape(-1, blocks.shape[-1])
    _, exponents = np.frexp(np.abs(flat).max(axis=1))
    columns = np.ldexp(flat, -exponents[:, None]).reshape(-1, sub).T
    if weights is None:
        return Elements(np.ascontiguousarray(columns)), exponents
    each = np.broadcast_to(weights, blocks.shape).reshape(-1, sub).T
    return Elements(np.ascontiguousarray(columns), np.ascontiguousarray(each)), exponents


def _codes_of(fmt: BlockFormat, q: Floats) -> Bytes:
    """The codes of numbers."""
    if not fmt.values:
        return (q.astype(np.int16) + np.int16(fmt.offset)).astype(np.uint8)
    numbers = fmt.numbers
    codes = np.zeros(int(numbers.max()) - int(numbers.min()) + 1, np.uint8)
    codes[numbers[::-1] - numbers.min()] = np.arange(len(numbers), dtype=np.uint8)[::-1]
    return codes[q.astype(np.intp) - numbers.min()]


# ----------------------------------------------------------------------------------------------------------------------
# Rules of some formats
# ----------------------------------------------------------------------------------------------------------------------


def _with_sums(fmt: BlockFormat, x: Floats, out: Bytes) -> Bytes:
    """q8_k: the scale is what -127 times makes the largest element, and what follows are sums of integers."""
    assert fmt.scale is not None
    with np.errstate(over="ignore"):
        inverse = _quotient(np.full_like(x[..., :1], -127), _largest(x))
    inverse = np.where(np.isinf(inverse), np.float32(0), inverse)
    _store_float(fmt, out, fmt.scale, _quotient(np.ones_like(inverse), inverse), x)
    q = np.rint(x * inverse).clip(-128, 127).astype(np.int8)
    sums = q.reshape(*q.shape[:2], -1, 16).sum(axis=-1, dtype="<i2")
    field_bytes(fmt, out, "bsums")[:] = sums.view(np.uint8)
    return q.view(np.uint8)


def _ternary(fmt: BlockFormat, x: Floats, out: Bytes) -> Bytes:
    """The scale is the largest magnitude, the codes are 0, 1 and 2."""
    assert fmt.scale is not None
    d = np.abs(x).max(axis=-1, keepdims=True)
    _store_float(fmt, out, fmt.scale, d, x)
    return (round_away(x * _quotient(np.ones_like(d), d)) + 1).astype(np.uint8)


def _by_powers(fmt: BlockFormat, x: Floats, out: Bytes) -> Bytes:
    """Scales that are powers of two: of nearest numbers that are equally far, the one of the lowest code."""
    assert fmt.scale is not None
    most = np.abs(x).max(axis=-1, keepdims=True)
    with np.errstate(divide="ignore"):
        whole = np.floor(np.log2(most)) - np.floor(np.log2(np.float32(np.abs(fmt.numbers).max()))) + 1 + 127
    exponent = np.where(most > 0, whole, 0).clip(0, 254).astype(np.uint8)
    insert_floats(fmt, out, fmt.scale, exponent)
    scale = BYTE_FLOATS["e8m0"][exponent]
    codes = np.zeros(x.shape, np.uint8)
    least = np.full(x.shape, np.inf, np.float32)
    with np.errstate(over="ignore"):
        for code, number in enumerate(fmt.numbers.astype(np.float32)):
            error = np.abs(scale * number - x)
            nearer = error < least
            codes[nearer] = code
            np.copyto(least, error, where=nearer)
    return codes


_NEAR_AN_END = tuple(1 + step / 24 for step in range(-6, 5))
"""What scales that map the largest element to an end of the range are multiplied by, to begin with."""


def _searched(fmt: BlockFormat, blocks: Floats, weights: Floats | None, out: Bytes) -> Bytes:
    """Blocks with a scale, and maybe a minimum, of least squared error; returns the codes [rows, blocks, block]."""
    assert fmt.scale is not None
    own, exponents = _elements(blocks, fmt.block, weights)
    levels, shape = levels_of(fmt), (*blocks.shape[:2], 1)

    unit = np.float32(fmt.unit)

    def stored(what: Scaled, number: Floats) -> Floats:
        whole = np.ldexp(number / unit, exponents).reshape(shape)
        return np.ldexp(_store_float(fmt, out, what, whole, blocks).reshape(-1), -exponents) * unit

    if fmt.minimum is None:
        starts = [
            own.largest / np.float32(end * near) for end in (levels.least, levels.most) for near in _NEAR_AN_END if end
        ]
        d = stored(fmt.scale, best_scale(own, levels, starts, 2))
        x = own.x
    else:
        scale, minimum = best_line(own, levels.most, _NEAR_AN_END, 2, below=False)
        d = stored(fmt.scale, scale)
        x = own.x - stored(fmt.minimum, minimum * fmt.minimum_sign) * np.float32(fmt.minimum_sign)
    q = levels.nearest(x, inverse(d))
    return _codes_of(fmt, q.T.reshape(blocks.shape))
