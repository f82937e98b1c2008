# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What schedules for GPUs can do in several ways: measured choices replace their rules."""

from __future__ import annotations

__all__ = ["CHANGE_BITS", "KNOWN"]

#: The values that each choice may have at all; which a kernel has follows from its sizes and the chip.
KNOWN = {
    # Products of f32 by tensor cores, which round operands to 11 bits.
    "tf32": range(2),
    # Rows and columns of the outputs that a block computes, parts of K, and stages of the ring.
    "tile_rows": range(8, 513),
    "tile_columns": range(8, 513),
    "split": range(1, 17),
    "stages": range(2, 13),
    # Products of floats of 8 bits whose sums are the tensor cores', of fewer bits than f32.
    "fast_sums": range(2),
    # Tiles of rows that are swept together.
    "sweep": range(1, 65),
    # Rows up to which products are those of few rows, and packed weights are decoded on the way.
    "few_rows": range(9),
    "decode_rows": range((1 << 20) + 1),
    # Of products of few rows: warps of a block, rows of the weights that a lane works on, slots of the ring (0: none),
    # and warps that share K where weights are [K, N].
    "gemv_warps": range(1, 33),
    "gemv_rows": range(1, 17),
    "gemv_slots": range(65),
    "gemv_split": range(1, 17),
    # Of attention: parts of the keys at most (of few queries), keys of a tile (of prompts).
    "key_parts": range(1, 129),
    "key_tile": range(16, 257, 16),
}
#: Those that change the order in which products are added up, or how they are rounded; all others keep every bit.
CHANGE_BITS = frozenset(
    {"tf32", "fast_sums", "split", "few_rows", "decode_rows", "gemv_slots", "gemv_split", "key_parts", "key_tile"}
)
