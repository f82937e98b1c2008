# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Blocks of q8_0 and q4_0 in registers: how kept keys and values are read and written, with the bits of `mir.kept`."""

from __future__ import annotations

from rlx_mlir.codegen.emit import Emitter, Index, Value, vec
from rlx_mlir.formats import get_format
from rlx_mlir.formats.descriptions import RUN

from .target import Target

__all__ = ["decoded_block"]


def decoded_block(em: Emitter, target: Target, scheme: str, flat: Value, at: Index) -> list[Value]:
    """The elements of a block that begins at byte `at` of a flat buffer of i8, in vectors of f32."""
    fmt, lanes = get_format(scheme), target.lanes("f32")
    floats = target.vector("f32")
    half = em.extract(em.bitcast(em.vload(flat, [at], vec(2, "i8")), vec(1, "f16")), 0)
    scale = em.broadcast(target.widen(em, half), floats)
    first = fmt.field(fmt.quants[0].field).offset

    def numbers(codes: Value, *, signed: bool) -> Value:
        wide = em.cast("arith.extsi" if signed else "arith.extui", codes, target.vector("i32"))
        wide = wide if signed else wide - fmt.offset
        return em.cast("arith.sitofp", wide, floats) * scale

    if fmt.signed:
        starts = range(0, RUN, lanes)
        return [numbers(em.vload(flat, [at + first + i], vec(lanes, "i8")), signed=True) for i in starts]
    low: list[Value] = []
    high: list[Value] = []
    for i in range(0, RUN // 2, lanes):
        pairs = em.vload(flat, [at + first + i], vec(lanes, "i8"))
        low.append(numbers(pairs & 15, signed=False))
        high.append(numbers(pairs >> 4, signed=False))
    return low + high
