# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Activations that meet quantised weights: as they are, or as integers, block by block; see `mir.block_quantize`."""

from __future__ import annotations

#: Ways in which activations meet quantised weights: the option `activations` of whatever compiles.
ACTIVATIONS = ("int8", "int16", "exact")

#: What models are loaded with: the most exact way that decodes as fast as the others, where the target has it.
AUTO = "auto"


def way_of(activations: str, target: str) -> str:
    """The way that `auto` stands for on a target, `int16` on CPUs and `int8` on GPUs; other words are what they say."""
    if activations != AUTO:
        return activations
    return "int16" if target == "cpu" else "int8"


#: Element types of the integers by their bits, and the other way round.
INTEGERS = {8: "i8", 15: "i16", 22: "i32"}
BITS = {element: bits for bits, element in INTEGERS.items()}

#: Digits to the base 128, each a signed byte, of an integer by its bits.
DIGITS = {8: 1, 15: 2, 22: 3}


def largest_integer(bits: int) -> int:
    """The largest integer with so many bits: 127 * 2^(bits - 8), as its first digit is within +-127."""
    return 127 << (bits - 8)
