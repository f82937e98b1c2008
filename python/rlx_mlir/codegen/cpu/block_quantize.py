# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Quantisation of activations, block by block, with the meaning of `mir.block_quantize`."""

from __future__ import annotations

import operator

from rlx_mlir.activations import INTEGERS, largest_integer
from rlx_mlir.codegen.emit import Emitter, Index, Value, memref, vec
from rlx_mlir.codegen.specs import QuantizeSpec
from rlx_mlir.codegen.structures import pairwise
from rlx_mlir.formats.descriptions import RUN

from . import UnsupportedByTemplate
from .kernel import Scratch, row_count, write_kernel
from .registry import Generator, as_it_is
from .target import Target


def quantized(
    em: Emitter, target: Target, x: Value, row: Index, first: Index, bits: int
) -> tuple[Value, Value, list[Value]]:
    """(scale, largest magnitude, integers in vectors of i32) of 32 elements of a row, f32, from element `first` on."""
    limit, lanes = largest_integer(bits), target.lanes("f32")
    floats, ints = target.vector("f32"), target.vector("i32")
    parts = [em.vload(x, [row, first + i], floats) for i in range(0, RUN, lanes)]
    sizes = [em.unary("math.absf", part) for part in parts]
    largest = em.reduce("maximumf", pairwise(em.maximumf, sizes))
    # NaN for infinity, too: what is computed from the block then is NaN.
    scale = largest / float(limit) + (largest - largest)
    divisor = em.broadcast(em.select(em.cmpf("oeq", scale, 0.0), 1.0, scale), floats)
    zero = em.cmpf("oeq", em.broadcast(scale, floats), 0.0)
    numbers = []
    for part in parts:
        quotient = em.unary("math.roundeven", part / divisor)
        # NaN has no integer; subnormal scales are too coarse to keep quotients within it.
        empty = zero | em.cmpf("uno", quotient, 0.0)
        number = em.cast("arith.fptosi", em.select(empty, 0.0, quotient), ints)
        numbers.append(em.binary("arith.maxsi", em.binary("arith.minsi", number, limit), -limit))
    return scale, largest, numbers


def block_quantize(name: str, spec: QuantizeSpec, target: Target) -> str:
    """The kernel of `block_quantize`: in 32 elements d = max|x| / limit, q = round-half-even(x / d), their sum.

    Operand: x [..., K] f32, K a static multiple of 32; results q [..., K] i8, i16 or i32, scale [..., K / 32] f32 and
    sum [..., K / 32] i32. Units are rows. Where d is 0, q is 0; a block with NaN or infinity has scale NaN and q 0.
    """
    x_shape, element = spec.x, INTEGERS[spec.bits]
    k = x_shape[-1]
    if not k or k % RUN:
        raise UnsupportedByTemplate(f"{name}: K has to be a static multiple of {RUN}, but x is {x_shape}")
    leading = x_shape[:-1]
    lanes = target.lanes("f32")

    def body(
        em: Emitter, values: list[Value], outputs: list[Value], begin: Value, end: Value, scratch: Scratch
    ) -> None:
        x = em.rows(values[0])
        q, scales, sums = (em.rows(output) for output in outputs)
        with em.loop(begin, end, hint="row") as row, em.loop(0, k // RUN, hint="block") as block:
            first = block.iv * RUN
            scale, _, numbers = quantized(em, target, x, row.iv, first, spec.bits)
            em.store(scale, scales, [row.iv, block.iv])
            for i, number in enumerate(numbers):
                stored = number if element == "i32" else em.cast("arith.trunci", number, vec(lanes, element))
                em.vstore(stored, q, [row.iv, first + i * lanes])
            em.store(em.reduce("add", pairwise(operator.add, numbers)), sums, [row.iv, block.iv])

    blocks = (*leading, k // RUN)
    return write_kernel(
        name,
        [("x", memref(x_shape, "f32"))],
        [("q", memref(x_shape, element)), ("scale", memref(blocks, "f32")), ("sum", memref(blocks, "i32"))],
        units=lambda em, values: row_count(em, values[0]),
        body=body,
    )


GENERATORS = (Generator("block_quantize", "quantize", as_it_is, block_quantize),)
