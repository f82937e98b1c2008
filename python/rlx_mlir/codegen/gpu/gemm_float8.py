# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Products of floats of 8 bits by the tensor cores of warps: mma m16n8k32 where chips have it, else m16n8k16 of f16.

Tiles of both operands lie in the ring as bytes along K, so that fragments of bytes are those of pairs in `gemm_mma`.

- On sm_89, sm_120 and sm_121, mma takes them as they are. It adds products with fewer bits than f32 has, 13 of fraction
  by what is published: sums of 64 products begin at zero, and are added up in f32 by other instructions. The choice
  `fast_sums` leaves all sums to mma.
- Elsewhere, registers of four bytes become two of f16, which holds every float of 8 bits. Four bytes along K belong to
  one thread, where f16 has two and two: both operands have their elements in the same other order along K. From sm_89
  on an instruction converts them. sm_90 to sm_103 have none that multiplies them in registers: ptxas makes m16n8k32
  there of the same instructions, which then spill.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable
from dataclasses import replace

from rlx_mlir.chips import sm_version
from rlx_mlir.codegen import UnsupportedByTemplate
from rlx_mlir.codegen.gpu.emit import FLOAT8, DeviceEmitter, Value
from rlx_mlir.codegen.gpu.gemm_base import Access, Gemm, size_bytes
from rlx_mlir.codegen.gpu.gemm_config import MMA_TILES, Tile
from rlx_mlir.codegen.gpu.gemm_host import dense_operands, product_kernel
from rlx_mlir.codegen.gpu.gemm_mma import MmaCore, a_fragments
from rlx_mlir.codegen.gpu.gemm_ring import Sums
from rlx_mlir.codegen.gpu.kernel import DeviceKernel
from rlx_mlir.codegen.structures import mapped

NATIVE = (89, 120, 121)
"""Chips whose tensor cores take floats of 8 bits from registers."""
FIRST_CHIP = 89
"""The first chip that converts floats of 8 bits."""

FLOAT8_TILES = tuple(replace(tile, bk=2 * tile.bk) for tile in MMA_TILES)
"""Tiles of as many bytes as those of halves."""


class Float8Core(MmaCore):
    """As `MmaCore`, of floats of 8 bits; weights are [N, K].

    kinds: what PTX calls the types of x and of the weights. fast: whether mma adds up all of K.
    """

    def __init__(self, tile: Tile, kinds: tuple[str, str], products: int, *, fast: bool) -> None:
        super().__init__(tile, "i8", products, transpose_rhs=True)
        self.kinds, self.fast = kinds, fast

    def multiply(self, stage: Value, sums: Sums, copy: Callable[[], None]) -> Sums:
        """The accumulators after a stage; calls `copy` after its first reads."""
        em, chunks = self.em, self.tile.bk // self.width
        native = em.sm in NATIVE
        together = 2 if native and not self.fast and chunks % 4 == 0 else 1
        zeros = [em.const(0.0, "f32")] * 4
        for first in range(0, chunks // 2, together):
            steps = range(first, first + together)
            a = [a_fragments(em, self.warp, self.tile, stage, self.x_part, step, chunks) for step in steps]
            for number, part in enumerate(self.w_parts):
                b = [self._b_fragments(em.at(stage, part, "i8"), step) for step in steps]
                if first == number == 0:
                    copy()
                if not native:
                    a, b = self._halves(a, 0) if number == 0 else a, self._halves(b, 1)
                for i, j in itertools.product(range(self.rows), range(self.columns)):
                    total = sums[number][i][j]
                    if not native:
                        sums[number][i][j] = self._by_halves(a[0][i], b[0][j], total)
                        continue
                    part_sums = total if self.fast else zeros
                    for left, right in zip(a, b, strict=True):
                        part_sums = em.mma_float8(self.kinds, left[i], right[j], part_sums)
                    sums[number][i][j] = part_sums if self.fast else mapped(operator.add, total, part_sums)
        return sums

    def _halves(self, fragments: list[list[list[Value]]], operand: int) -> list[list[list[Value]]]:
        """Each register of four bytes as two of f16."""
        return [
            [[half for register in own for half in as_halves(self.em, register, self.kinds[operand])] for own in step]
            for step in fragments
        ]

    def _by_halves(self, a: list[Value], b: list[Value], sums: list[Value]) -> list[Value]:
        """sums + a b for 32 of K, of registers of f16: those of bytes 4 t and 4 t + 1, then of 4 t + 2 and 4 t + 3."""
        for part in range(2):
            rows = a[4 * part : 4 * part + 4]
            sums = self.em.mma("f16", [rows[0], rows[2], rows[1], rows[3]], b[2 * part : 2 * part + 2], sums)
        return sums


def as_halves(em: DeviceEmitter, register: Value, kind: str) -> list[Value]:
    """Four floats of 8 bits (i32) as two pairs of f16 (i32), exactly."""
    if em.sm >= FIRST_CHIP:
        convert = f"cvt.rn.f16x2.{kind}x2"
        text = f"{{\n.reg .b16 l, h;\nmov.b32 {{l, h}}, $2;\n{convert} $0, l;\n{convert} $1, h;\n}}"
        return em.asm(text, "=r,=r,r", [register], ["i32", "i32"], effects=False)
    # Each byte as the upper one of two.
    pairs = [em.pure(f"prmt.b32 $0, $1, 0, {selector};", [register], "i32") for selector in ("0x1404", "0x3424")]
    if kind == "e5m2":
        return pairs
    result = []
    for pair in pairs:
        # Sign, and exponent and fraction one bit below: 2^-8 of the value, which f16 has also where e4m3 is subnormal.
        shifted = (pair & -0x7FFF8000) | ((pair >> 1) & 0x3F803F80)
        value = em.pure("mul.rn.f16x2 $0, $1, $2;", [shifted, em.const(0x5C005C00, "i32")], "i32")
        # NaN came out as 480, the only one of which 137 times is infinite: zero times that makes NaN.
        large = em.pure("mul.rn.f16x2 $0, $1, $2;", [value, em.const(0x58485848, "i32")], "i32")
        result.append(em.pure("fma.rn.f16x2 $0, $1, $2, $3;", [large, em.const(0, "i32"), value], "i32"))
    return result


def float8_access(gemm: Gemm) -> list[Access]:
    """How lines of K bytes can be read, and outputs of N columns written; two where K or N isn't known."""

    def piece(whole: int) -> int:
        return whole if gemm.k is None else next(size for size in (16, 8, 4, 1) if gemm.k % size == 0)

    width = 16 // size_bytes(gemm.element)
    if gemm.k is not None and gemm.n is not None:
        return [Access(piece(16), piece(16), width if gemm.n % width == 0 else 1)]
    fits = gemm.n is None or gemm.n % width == 0
    return [Access(piece(16), piece(16), width if fits else 1), Access(piece(1), piece(1), 1)]


def float8_core(gemm: Gemm, *, fast: bool = False) -> Callable[[Tile], Float8Core]:
    """What multiplies floats of 8 bits by a tile."""
    assert gemm.float8 is not None
    kinds = (FLOAT8[gemm.float8[0]], FLOAT8[gemm.float8[1]])
    return lambda tile: Float8Core(tile, kinds, gemm.program.accumulators, fast=fast)


def gemm_float8(chip: str, gemm: Gemm) -> DeviceKernel:
    """The kernels of a product of floats of 8 bits.

    Operands as for `gemm_mma`, but weights are [..., N, K].

    Raises UnsupportedByTemplate for other types, and weights [K, N].
    """
    if gemm.float8 is None:
        raise UnsupportedByTemplate(f"{gemm.name}: expects floats of 8 bits, but the product is of {gemm.element}")
    if not gemm.transpose_rhs:
        raise UnsupportedByTemplate(f"{gemm.name}: mma reads floats of 8 bits along K")
    # Products of f16 have sums of f32 as they are.
    fast = sm_version(chip) >= FIRST_CHIP and bool(gemm.chosen.take("fast_sums"))
    modest = replace(FLOAT8_TILES[-2], bk=FLOAT8_TILES[-2].bk // 2)
    core, access = float8_core(gemm, fast=fast), float8_access(gemm)
    operands = dense_operands(gemm)
    return product_kernel(chip, "gemm_float8", gemm, operands, FLOAT8_TILES, core, access, modest=modest)
