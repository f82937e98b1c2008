# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Integer and bit operations as PTX defines them, on numpy arrays of the operands' types."""

from __future__ import annotations

from typing import Any

import numpy as np

from ptx_emulator.memory import Fault

Array = np.ndarray


def widened(dtype: np.dtype) -> np.dtype:
    """The type with twice the bits."""
    return np.dtype(f"{dtype.kind}{dtype.itemsize * 2}")


def unsigned(dtype: np.dtype) -> np.dtype:
    """The unsigned type of the same width."""
    return np.dtype(f"u{dtype.itemsize}")


def multiply_wide(a: Array, b: Array) -> Array:
    """The whole product."""
    wide = widened(a.dtype)
    return a.astype(wide) * b.astype(wide)


def multiply_high(a: Array, b: Array) -> Array:
    """The upper half of the product."""
    bits = a.dtype.itemsize * 8
    if bits < 64:
        return (multiply_wide(a, b) >> bits).astype(a.dtype)
    x, y = a.view(np.uint64), b.view(np.uint64)
    mask, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    xl, xh, yl, yh = x & mask, x >> half, y & mask, y >> half
    low, middle, other = xl * yl, xh * yl, xl * yh
    carry = (low >> half) + (middle & mask) + (other & mask)
    high = xh * yh + (middle >> half) + (other >> half) + (carry >> half)
    if a.dtype.kind == "i":
        high = high - np.where(a < 0, y, np.uint64(0)) - np.where(b < 0, x, np.uint64(0))
    return high.view(a.dtype)


def _nonzero(b: Array) -> None:
    zero = b == 0
    if zero.any():
        raise Fault("division by zero is undefined", np.flatnonzero(zero))


def divide(a: Array, b: Array) -> Array:
    """Rounds towards zero; Fault where a divisor is 0."""
    _nonzero(b)
    if a.dtype.kind == "u":
        return a // b
    return (a - np.fmod(a, b)) // b


def remainder(a: Array, b: Array) -> Array:
    """Has the sign of the dividend; Fault where a divisor is 0."""
    _nonzero(b)
    return a % b if a.dtype.kind == "u" else np.fmod(a, b)


def shift_left(a: Array, b: Array) -> Array:
    """Amounts of the width and more give 0."""
    bits = a.dtype.itemsize * 8
    amount = b.astype(a.dtype)
    if bits < 32:
        amount = np.minimum(b, bits).astype(a.dtype)
    inside = amount < bits
    if inside.all():
        return a << amount
    return np.where(b < bits, a << np.minimum(amount, a.dtype.type(bits - 1)), a.dtype.type(0))


def shift_right(a: Array, b: Array) -> Array:
    """Amounts of the width and more give 0, or the sign for signed types."""
    bits = a.dtype.itemsize * 8
    amount = np.minimum(b, np.uint32(bits)).astype(a.dtype)
    if (amount < bits).all():
        return a >> amount
    last = np.minimum(amount, a.dtype.type(bits - 1))
    shifted = a >> last
    if a.dtype.kind == "i":
        return shifted
    return np.where(amount < bits, shifted, a.dtype.type(0))


_ONES = np.array([bin(i).count("1") for i in range(256)], np.uint8)


def population(a: Array) -> Array:
    """The number of ones."""
    return _ONES[np.ascontiguousarray(a).view(np.uint8).reshape(len(a), -1)].sum(axis=1, dtype=np.uint32)


def leading_zeros(a: Array) -> Array:
    """The number of zeros above the highest one."""
    bits = a.dtype.itemsize * 8
    value = a.copy()
    step = 1
    while step < bits:
        value |= value >> a.dtype.type(step)
        step *= 2
    return np.uint32(bits) - population(value)


def highest_bit(a: Array) -> Array:
    """The position of the highest bit that isn't the sign, or 0xffffffff."""
    value = a
    if a.dtype.kind == "i":
        value = np.where(a < 0, ~a, a)
    value = value.view(unsigned(a.dtype))
    bits = a.dtype.itemsize * 8
    return np.uint32(bits - 1) - leading_zeros(value)


def reverse_bits(a: Array) -> Array:
    """The bits in the other order."""
    size = a.dtype.itemsize
    flat = np.ascontiguousarray(a).view(np.uint8).reshape(-1, size)[:, ::-1]
    table = np.array([int(f"{i:08b}"[::-1], 2) for i in range(256)], np.uint8)
    return np.ascontiguousarray(table[flat]).view(a.dtype).reshape(-1)


def extract_field(a: Array, position: Array, length: Array) -> Array:
    """bfe: a field of bits, extended by its sign for signed types."""
    bits = a.dtype.itemsize * 8
    wide = unsigned(a.dtype)
    pos = (position.astype(np.int64)) & 0xFF
    size = (length.astype(np.int64)) & 0xFF
    value = a.view(wide)
    shifted = np.where(pos < bits, value >> np.minimum(pos, bits - 1).astype(wide), wide.type(0))
    # Bits beyond the register count as its sign.
    inside = np.clip(np.minimum(size, bits - pos), 0, bits)
    ones = (wide.type(1) << np.minimum(inside, bits - 1).astype(wide)) - wide.type(1)
    mask = np.where(inside < bits, ones, ~wide.type(0))
    field = shifted & mask
    if a.dtype.kind == "u":
        return field
    sign_at = np.clip(pos + size - 1, 0, bits - 1).astype(wide)
    sign = np.where(size > 0, (value >> sign_at) & wide.type(1), wide.type(0))
    return np.where(sign == 1, field | ~mask, field).view(a.dtype)


def insert_field(a: Array, b: Array, position: Array, length: Array) -> Array:
    """bfi: b with a field of bits replaced by a's low ones."""
    bits = a.dtype.itemsize * 8
    kind = a.dtype.type
    pos = position.astype(np.int64) & 0xFF
    size = length.astype(np.int64) & 0xFF
    ones = np.where(size < bits, (kind(1) << np.minimum(size, bits - 1).astype(a.dtype)) - kind(1), ~kind(0))
    shift = np.minimum(pos, bits - 1).astype(a.dtype)
    mask = np.where(pos < bits, ones << shift, kind(0))
    return (b & ~mask) | ((a << shift) & mask)


def permute_bytes(a: Array, b: Array, selector: Array, mode: str = "") -> Array:
    """prmt: four of the eight bytes of {b, a}, by the nibbles of the selector."""
    if not mode and (selector == selector[0]).all():
        return _permuted_alike(a, b, int(selector[0]))
    pool = np.stack([(x >> np.uint32(8 * i)) & np.uint32(0xFF) for x in (a, b) for i in range(4)], axis=1)
    rows = np.arange(len(pool))
    result = np.zeros(len(pool), np.uint32)
    first = (selector & np.uint32(3)).astype(np.int64)
    for byte in range(4):
        if mode:
            index = _PERMUTE[mode](first, byte)
            chosen = pool[rows, index]
        else:
            nibble = (selector >> np.uint32(4 * byte)).astype(np.int64)
            chosen = pool[rows, nibble & 7]
            sign = np.where(chosen & np.uint32(0x80), np.uint32(0xFF), np.uint32(0))
            chosen = np.where(nibble & 8, sign, chosen)
        result |= chosen << np.uint32(8 * byte)
    return result


def _permuted_alike(a: Array, b: Array, selector: int) -> Array:
    """The bytes that one selector chooses, as nearly all have."""
    result = np.zeros(len(a), np.uint32)
    for byte in range(4):
        nibble = selector >> 4 * byte & 15
        word = b if nibble & 4 else a
        chosen = word >> np.uint32(8 * (nibble & 3)) & np.uint32(0xFF)
        if nibble & 8:
            chosen = (chosen >> np.uint32(7)) * np.uint32(0xFF)
        result |= chosen << np.uint32(8 * byte)
    return result


_PERMUTE: dict[str, Any] = {
    "f4e": lambda first, byte: first + byte,
    "b4e": lambda first, byte: (first - byte) % 8,
    "rc8": lambda first, byte: first,
    "ecl": lambda first, byte: np.maximum(first, byte),
    "ecr": lambda first, byte: np.minimum(first, byte),
    "rc16": lambda first, byte: (first & 1) * 2 + byte % 2,
}


def logic3(a: Array, b: Array, c: Array, table: int) -> Array:
    """lop3: any function of three bits, by its table."""
    result = np.zeros_like(a)
    for row in range(8):
        if table >> row & 1:
            result |= (a if row & 4 else ~a) & (b if row & 2 else ~b) & (c if row & 1 else ~c)
    return result


def funnel(low: Array, high: Array, amount: Array, left: bool, wrap: bool) -> Array:
    """shf: shifts {high, low}, and takes the upper word (left) or the lower one (right)."""
    count = amount & np.uint32(31) if wrap else np.minimum(amount, np.uint32(32))
    both = (high.astype(np.uint64) << np.uint64(32)) | low
    count = count.astype(np.uint64)
    if left:
        return ((both << count) >> np.uint64(32)).astype(np.uint32)
    return (both >> count).astype(np.uint32)


def dot4(a: Array, b: Array, c: Array, a_kind: np.dtype, b_kind: np.dtype) -> Array:
    """dp4a: c plus the products of four bytes."""
    x = np.ascontiguousarray(a).view(a_kind).reshape(-1, 4).astype(np.int64)
    y = np.ascontiguousarray(b).view(b_kind).reshape(-1, 4).astype(np.int64)
    return ((x * y).sum(axis=1) + c).astype(np.uint32 if c.dtype.kind == "u" else np.int32)


def dot2(a: Array, b: Array, c: Array, kinds: tuple[np.dtype, np.dtype], high: bool) -> Array:
    """dp2a: c plus the products of two 16-bit numbers with two bytes of b."""
    x = np.ascontiguousarray(a).view(kinds[0]).reshape(-1, 2).astype(np.int64)
    y = np.ascontiguousarray(b).view(kinds[1]).reshape(-1, 4)[:, 2 * high : 2 * high + 2].astype(np.int64)
    return ((x * y).sum(axis=1) + c).astype(np.uint32 if c.dtype.kind == "u" else np.int32)


def saturate(values: Array, dtype: np.dtype) -> Array:
    """Integers limited to another type's range."""
    info = np.iinfo(dtype)
    low = max(int(info.min), int(np.iinfo(values.dtype).min))
    high = min(int(info.max), int(np.iinfo(values.dtype).max))
    return np.clip(values, low, high).astype(dtype)
