# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Quantisation of activations to 8 bits, block by block, with the meaning of `mir.block_quantize`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rlx_mlir.codegen import UnsupportedByTemplate
from rlx_mlir.codegen.conversions import IN_F32
from rlx_mlir.codegen.emit import memref
from rlx_mlir.codegen.gpu.emit import BITS, DeviceEmitter, Index, Value, pointer, vec
from rlx_mlir.codegen.gpu.kernel import DeviceKernel, HostEmitter, Scratch, symbol_of, write_device_kernel

#: Lanes that share a block.
GROUP = 8
#: Elements that a lane loads at a time.
QUAD = 4
THREADS = 128
_ONES = 0x01010101


@dataclass(frozen=True)
class Quantize:
    """q, scale, sum = block_quantize(x).

    Attributes:
        name: of the kernel.
        x_shape: of x, [.., K]; None stands for a dynamic size. K is known.
        element: type of x: f32, f16 or bf16.
        block: elements of a block, a multiple of 32 that divides K.
    """

    name: str
    x_shape: tuple[int | None, ...]
    element: str = "f32"
    block: int = 32

    def __post_init__(self) -> None:
        if self.element not in IN_F32 or not self.x_shape or not self.x_shape[-1]:
            raise UnsupportedByTemplate(f"{self.name}: no schedule quantises {self.x_shape} of {self.element}")
        if self.block % 32 or self.block > 256 or self.x_shape[-1] % self.block:
            raise UnsupportedByTemplate(f"{self.name}: no schedule quantises in blocks of {self.block}")


def quantize_block(em: DeviceEmitter, quads: Sequence[Sequence[Value]]) -> tuple[list[Value], Value, Value]:
    """Quantises a block whose elements `GROUP` neighbouring lanes hold, some quads in each.

    Args:
        quads: f32 values of the lane, four by four.

    Returns the lane's integers, four bytes in each i32, the block's scale (f32) and the sum of its integers (i32),
    which all lanes of the group have.
    """
    values = [value for quad in quads for value in quad]
    largest = em.warp_reduce("max", em.tree("max", [em.unary("math.absf", value) for value in values]), GROUP)
    # Infinite and NaN alike: no block that holds them has a scale.
    finite = em.cmpf("olt", largest, float("inf"))
    scale = em.select(finite, largest / 127.0, float("nan"))
    exists = em.cmpf("ogt", scale, 0.0)
    divisor = em.select(exists, scale, 1.0)
    words: list[Value] = []
    total = em.const(0)
    for quad in quads:
        word: Value | None = None
        for byte, value in enumerate(quad):
            q = em.pure("cvt.rni.s32.f32 $0, $1;", [value / divisor], "i32")
            q = em.binary("arith.minsi", em.binary("arith.maxsi", q, -127), 127)
            q = em.select(exists, q, 0)
            part = q & 255 if byte < 3 else q
            part = part << (8 * byte) if byte else part
            word = part if word is None else word | part
        assert word is not None
        total = em.dp4a(em.const(_ONES), word, total)
        words.append(word)
    return words, scale, em.warp_reduce("addi", total, GROUP)


def quantize(chip: str, spec: Quantize) -> DeviceKernel:
    """The kernel: eight lanes for each block of x."""
    k = spec.x_shape[-1]
    assert k is not None
    em, symbol = DeviceEmitter(chip), f"{symbol_of(spec.name)}_quantize"
    per_lane = spec.block // GROUP // QUAD
    parameters = [pointer("x", readonly=True), pointer("q"), pointer("scale"), pointer("sum"), ("blocks", "i32")]
    with em.kernel(symbol, parameters, THREADS, chained=True) as (x, q, scale, total, blocks):
        thread = em.thread()
        lane = thread & (GROUP - 1)
        block = em.block() * (THREADS // GROUP) + (thread >> 3)
        # The lanes of a warp stay together for its shuffles: those beyond the end work on the last block.
        here = em.imin(block, blocks - 1)
        first = em.wide(here) * spec.block + em.wide(lane * QUAD)
        places = [first + i * GROUP * QUAD for i in range(per_lane)]
        loaded = [em.ld(x, vec(QUAD, spec.element), place, align=QUAD * BITS[spec.element] // 8) for place in places]
        words, factor, sum_ = quantize_block(em, [em.lanes(em.widen(value)) for value in loaded])
        with em.if_(em.cmpi("ult", block, blocks)):
            for word, place in zip(words, places, strict=True):
                em.st(word, em.at(q, place, "i8"))
            with em.if_(em.cmpi("eq", lane, 0)):
                em.st(factor, scale, em.wide(here))
                em.st(sum_, total, em.wide(here))

    def host(host: HostEmitter, operands: list[Value], results: list[Value], scratch: Scratch) -> None:
        count: Index = k // spec.block
        for axis in range(len(spec.x_shape) - 1):
            count = count * host.dim(operands[0], axis)
        grid = host.iceildiv(count, THREADS // GROUP)
        host.launch(symbol, grid, THREADS, [*operands, *results, host.i32(count)])

    blocks_shape = (*spec.x_shape[:-1], k // spec.block)
    results = [
        ("q", memref(spec.x_shape, "i8")),
        ("scale", memref(blocks_shape, "f32")),
        ("sum", memref(blocks_shape, "i32")),
    ]
    operands = [("x", memref(spec.x_shape, spec.element))]
    return write_device_kernel(spec.name, "quantize", operands, results, em, host)
