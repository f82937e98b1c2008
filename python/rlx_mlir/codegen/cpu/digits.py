# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Quantised activations as digits to the base 128, each a signed byte, so that their products are products of bytes.

An integer of 15 or 22 bits (see `mir.block_quantize`) is x = sum over i of digit[i] * 128^(count - 1 - i): the first
digit is within +-127, the others from -64 to 63. With u the bytes of a weight,

    <u, x> = ((<u, digit[0]> * 128 + <u, digit[1]>) * 128 + ..)

in i32. What is added up on the way may overflow, which does no harm where the result, less the bias of u, fits. Where
it doesn't, sums of the first digit are kept apart.
"""

from __future__ import annotations

from collections.abc import Callable

from rlx_mlir.activations import BITS, DIGITS, largest_integer
from rlx_mlir.codegen.emit import Emitter, Index, Value, element_of, vec, with_element
from rlx_mlir.formats.panels import PanelLayout

from .target import Target

BASE_BITS = 7
"""Bits by which a digit counts more than the next."""


def has_room(layout: PanelLayout, bits: int) -> bool:
    """Whether sums of products of elements that share a scale fit in i32."""
    magnitude = max(layout.top - layout.bias, layout.bias)
    return magnitude * largest_integer(bits) * min(layout.sub, 32) < 1 << 31


def store_digits(em: Emitter, numbers: Value, digits: Value, row: Index, k: Index, count: int) -> Value:
    """Writes the digits of i32 numbers, elements k .. of a row, to digits [rows, count, K] of i8.

    Returns the first digits, i32.
    """
    narrow = with_element(numbers.type, "i8")
    unused = 32 - BASE_BITS
    for i in reversed(range(count)):
        digit = em.binary("arith.shrsi", numbers << unused, unused) if i else numbers
        em.vstore(em.cast("arith.trunci", digit, narrow), digits, [row, i, k])
        numbers = em.binary("arith.shrsi", numbers - digit, BASE_BITS) if i else numbers
    return numbers


def split(
    em: Emitter, target: Target, q: Value, digits: Value, rows: tuple[Callable[[Index], Index], Index], k: int
) -> None:
    """Writes the digits of some rows of q [M, k], i8, i16 or i32, to digits [number of rows, digits, k] of i8.

    rows: (the row of q that is number i, how many).
    """
    place, count = rows
    lanes, wide, element = target.lanes("i32"), target.vector("i32"), element_of(q.type)
    with em.loop(0, count, hint="row") as row:
        own = place(row.iv)
        with em.loop(0, k, lanes, hint="k") as loop:
            numbers = em.vload(q, [own, loop.iv], vec(lanes, element))
            numbers = numbers if element == "i32" else em.cast("arith.extsi", numbers, wide)
            store_digits(em, numbers, digits, row.iv, loop.iv, DIGITS[BITS[element]])
