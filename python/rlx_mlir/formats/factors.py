# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the layouts of packed weights share: how they hold scales and minima, and planes of integers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from .blocks import Bytes
from .descriptions import BlockFormat, Scaled


@dataclass(frozen=True)
class Factor:
    """A scale or minimum of a sub-block: ``sign * float * integer``.

    Attributes:
        number: which of the block's floats; the first of them where each sub-block has its own.
        sign: 1 or -1.
        at: where the integers are, None where the integer is 1. In panels, the byte of the block at which the integers
            [sub-block][row] start; in planes, the byte of the sub-block's record.
        bits: bits of the integer: 8 are two's complement, 4 are unsigned.
        shift: of the integer in its byte.
        each: whether each sub-block has a float of its own.
    """

    number: int
    sign: int = 1
    at: int | None = None
    bits: int = 8
    shift: int = 0
    each: bool = False

    def integers(self, stored: Bytes) -> npt.NDArray[np.int16]:
        """The integers of stored bytes."""
        if self.bits == 8:
            return stored.view(np.int8).astype(np.int16)
        return ((stored >> np.uint8(self.shift)) & np.uint8((1 << self.bits) - 1)).astype(np.int16)


class HoldsFactors(Protocol):
    """A layout of a format with scales, and perhaps minima."""

    @property
    def format(self) -> BlockFormat: ...
    @property
    def scale(self) -> Factor | None: ...
    @property
    def minimum(self) -> Factor | None: ...


def share_bytes(fmt: BlockFormat) -> bool:
    """Whether one byte holds the integers of both, scale and minimum, the scale's low: where both fit in four bits."""
    parts = fmt.factors
    unsigned = not any(part.offset or part.signed or part.step > 1 for part in parts)
    return len(parts) == 2 and unsigned and all(0 < part.bits <= 4 for part in parts)


def place_factors(fmt: BlockFormat, places: Sequence[int]) -> tuple[Factor, Factor | None]:
    """The scale and the minimum; `places` are those of integers, in order: one where they share bytes."""
    left, shared = iter(places), share_bytes(fmt)
    factors: list[Factor] = []
    number = 0
    for part, sign in zip(fmt.factors, (1, fmt.minimum_sign), strict=False):
        count = fmt.floats_of(part)
        if not part.planes:
            factors.append(Factor(number, sign, each=count > 1))
        elif shared:
            factors.append(Factor(number, sign, places[0], 4, 4 * len(factors)))
        else:
            factors.append(Factor(number, sign, next(left)))
        number += count
    return factors[0], factors[1] if len(factors) == 2 else None


def stored_factors(layout: HoldsFactors) -> list[tuple[Scaled, Factor, int]]:
    """Description and place of the scales and minima that have integers."""
    fmt = layout.format
    pairs = [(fmt.scale, layout.scale), (fmt.minimum, layout.minimum)]
    return [(what, factor, factor.at) for what, factor in pairs if what and factor and factor.at is not None]


def plane_widths(fmt: BlockFormat) -> tuple[int, ...]:
    """Bits of each plane of integers: the binary digits of their number of bits, widest first."""
    return tuple(width for width in (8, 4, 2, 1) if fmt.bits & width)


def byte_mask(width: int) -> np.uint32:
    """The lowest bits of the four bytes of a dword."""
    return np.uint32(0x01010101 * ((1 << width) - 1))


def folded(words: npt.NDArray[np.uint32], width: int) -> npt.NDArray[np.uint32]:
    """Quads of bytes of `width` bits as dwords of whole bytes: byte j holds, from bit ``width * i`` on, element j of
    quad i."""
    while width < 8:  # two neighbours, the low and the high half of 8 bytes, become one
        pairs = words.view("<u8")
        words = (pairs | (pairs >> np.uint64(32 - width))).astype("<u4")
        width *= 2
    return words
