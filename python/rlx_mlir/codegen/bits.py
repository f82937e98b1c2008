# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Integers of few bits: bytes of words that hold four of them, or four of them of several planes of bits."""

from __future__ import annotations

from collections.abc import Iterable

from rlx_mlir.codegen.emit import Value


def word_of(bits: int) -> int:
    """32 bits as a signed number, as constants of i32 are."""
    return bits - (1 << 32) if bits >> 31 else bits


def every_byte(value: int) -> int:
    """A byte in all four bytes of a word."""
    return word_of(0x01010101 * value)


def joined(parts: Iterable[tuple[Value, int, int]]) -> Value:
    """Four integers, a byte each, of words (scalars or vectors of i32) of which each has some of their bits.

    Args:
        parts: of each word the bit at which the integer's begin in byte 0, and how many there are; lowest bits first.
    """
    whole: Value | None = None
    into = 0
    for word, bit, width in parts:
        bits = word
        if width < 8:
            # One shift, to where the integer has them; the mask takes what crossed from one byte to the next.
            if bit != into:
                bits = bits >> (bit - into) if bit > into else bits << (into - bit)
            bits = bits & every_byte(((1 << width) - 1) << into)
        whole = bits if whole is None else whole | bits
        into += width
    assert whole is not None, "integers have bits"
    return whole
