# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The integer sums of `gemm_int8` by the tile registers of AMX, 16 rows by 16 columns at a time.

Elements that share a scale are one product of tiles, of signed bytes with unsigned ones, whose exact sums go through
memory to vector registers, which scale and add them up. That is the same chain for each output as with dot products in
vector registers: results are the same bits. Tiles of the next elements are multiplied while those before are added up.
Each digit of activations has sums of its own.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from rlx_mlir.codegen.emit import Emitter, Index, Value, vec

from .digits import BASE_BITS
from .gemm_amx import SIDE, Tiles
from .kernel import Scratch
from .panels import PanelLayout
from .target import Target

_SUMS, _ROWS, _COLUMNS = 0, 4, 6
"""Tile registers: the sums of up to three digits, the rows of x, the columns."""


STEP = 32
"""Elements along K that share a scale."""


def uses_integer_tiles(target: Target, rows: int | None, layout: PanelLayout) -> bool:
    """Whether products of bytes are computed by tiles; rows: None where their number is dynamic.

    Where fewer elements share a scale, or bytes would be copied for tiles alone, dot products take no longer.
    """
    suits = layout.sub == STEP and layout.bits < 8
    return target.tiles("i8") and target.vnni and suits and (rows is None or rows >= SIDE)


class IntegerTiles(Tiles):
    """What a thread needs to multiply tiles of bytes."""

    def __init__(self, em: Emitter, scratch: Scratch, digits: int) -> None:
        super().__init__(em, scratch)
        self._digits = digits
        self._sums = scratch.take([2, digits, SIDE, SIDE], "i32")

    def configure(self) -> None:
        """Sums of 16 dwords a row, rows of 32 bytes, and columns, four bytes of 16 columns a row."""
        sums = {_SUMS + digit: (SIDE, 64) for digit in range(self._digits)}
        self.configure_shapes({**sums, _ROWS: (SIDE, STEP), _COLUMNS: (STEP // 4, 64)})

    def over_steps(
        self,
        q: tuple[Value, Index, int, int],
        columns: tuple[Value, Index, int],
        steps: int,
        sums: list[Value],
        add: Callable[[Index, Callable[[int], Value], list[Value]], list[Value]],
    ) -> list[Value]:
        """Calls add(step, products of row r as i32 [16], sums so far) for each 32 elements along K, in order.

        Args:
            q: buffer of the rows, byte of the first one, bytes between rows, and between a row's digits.
            columns: buffer of 32-bit words [quad along K][column], byte of the first, bytes between quads.
        """
        em = self._em

        def multiply(step: Index) -> None:
            quads = self.pointer(columns[0], columns[1] + step * (STEP // 4 * columns[2]))
            self.emit("tileloadd64", _COLUMNS, quads, self.stride(columns[2]))
            for digit in range(self._digits):
                rows = self.pointer(q[0], q[1] + digit * q[3] + step * STEP)
                sums = self.pointer(self._sums, (step % 2 * self._digits + digit) * (4 * SIDE * SIDE))
                self.emit("tilezero", _SUMS + digit)
                self.emit("tileloadd64", _ROWS, rows, self.stride(q[2]))
                self.emit("tdpbsud", _SUMS + digit, _ROWS, _COLUMNS)
                self.emit("tilestored64", _SUMS + digit, sums, self.stride(4 * SIDE))

        multiply(0)
        with em.loop(0, steps, 1, sums, hint="step") as loop:
            step = loop.iv
            multiply(em.imin(step + 1, steps - 1))

            def product(row: int) -> Value:
                parts = [em.vload(self._sums, [step % 2, i, row, 0], vec(SIDE, "i32")) for i in range(self._digits)]
                return functools.reduce(lambda high, low: (high << BASE_BITS) + low, parts)

            loop.yield_(add(step, product, loop.carry))
        return loop.result
