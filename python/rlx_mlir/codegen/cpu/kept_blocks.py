# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Blocks of q8_0 and q4_0 in registers: how kept keys and values are read and written, with the bits of `mir.kept`."""

from __future__ import annotations

import math
from functools import partial

from rlx_mlir.codegen.emit import Emitter, Index, Value, shape_of, vec
from rlx_mlir.codegen.specs import CacheSpec
from rlx_mlir.codegen.structures import pairwise
from rlx_mlir.formats import get_format
from rlx_mlir.formats.descriptions import RUN

from . import UnsupportedByTemplate
from .kernel import Scratch, write_kernel
from .registry import Generator, as_it_is
from .target import Target, rounded

LEAST = 2.0**-126
"""The smallest scale that elements are divided by: what a smaller one is stored as is 0."""

NAN = 0x7E00
"""The bits of the scale of a block that has elements for which there is no scale of f16."""


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


def encode_block(
    em: Emitter, target: Target, scheme: str, source: tuple[Value, Index], to: tuple[Value, Index]
) -> None:
    """Writes 32 elements, f32 in a flat buffer from an element on, as a block into one of i8, from a byte on."""
    fmt, lanes = get_format(scheme), target.lanes("f32")
    floats, ints = target.vector("f32"), target.vector("i32")
    (flat, at), (out, place) = source, to
    starts = range(0, RUN, lanes)
    parts = [em.vload(flat, [at + i], floats) for i in starts]
    sizes = [em.unary("math.absf", part) for part in parts]
    largest = em.reduce("maximumf", pairwise(em.maximumf, sizes))
    extreme, steps = largest, 127.0
    if not fmt.signed:
        # The first element of that magnitude gives the sign, too; NaN equals none, and any one will do.
        among = em.broadcast(largest, floats)
        lane = em.const(list(range(lanes)), ints)
        found = [
            em.select(em.cmpf("oeq", size, among), lane + i, RUN - 1) for i, size in zip(starts, sizes, strict=True)
        ]
        first = em.reduce("minsi", pairwise(partial(em.binary, "arith.minsi"), found))
        extreme = em.load(flat, [at + em.cast("arith.index_cast", first, "index")])
        steps = float(-fmt.offset)
    d = extreme / steps
    stored = rounded(em, target, d, "f16")
    limit = target.widen(em, rounded(em, target, largest / abs(steps), "f16"))
    holds = em.cmpf("olt", limit, math.inf)
    inverse = em.select(em.cmpf("oge", em.unary("math.absf", d), LEAST), 1.0 / d, 0.0)
    bits = em.select(holds, em.bitcast(stored, "i16"), NAN)
    em.vstore(em.bitcast(em.broadcast(bits, vec(1, "i16")), vec(2, "i8")), out, [place])
    factor, whole = em.broadcast(inverse, floats), em.broadcast(holds, vec(lanes, "i1"))

    def code(part: Value) -> Value:
        scaled = part * factor
        if fmt.signed:
            half = em.select(em.cmpf("olt", scaled, 0.0), em.const(-0.5, floats), 0.5)
            return em.cast("arith.fptosi", em.select(whole, scaled + half, 0.0), ints)
        number = em.select(whole, scaled + (fmt.offset + 0.5), float(fmt.offset))
        return em.binary("arith.minsi", em.cast("arith.fptosi", number, ints), 2 * fmt.offset - 1)

    codes = [code(part) for part in parts]
    if not fmt.signed:
        half_of = len(codes) // 2
        codes = [low | (high << 4) for low, high in zip(codes[:half_of], codes[half_of:], strict=True)]
    begin = fmt.field(fmt.quants[0].field).offset
    for i, own in enumerate(codes):
        em.vstore(em.cast("arith.trunci", own, vec(lanes, "i8")), out, [place + (begin + i * lanes)])


def emit_cache_update(name: str, spec: CacheSpec, target: Target) -> str:
    """The kernel of `cache_update` into blocks, in the memory of the cache.

    Units are rows; those that the cache doesn't have are left out.
    """
    width = shape_of(spec.new)[-1]
    fmt = get_format(spec.scheme)
    if not width or width % RUN or fmt.block != RUN or target.lanes("f32") > RUN // 2:
        raise UnsupportedByTemplate(f"{name}: expects rows of whole blocks of {RUN}, but got {spec.new}")

    def rows(em: Emitter, values: list[Value]) -> Index:
        return em.dim(values[1], 0) * em.dim(values[1], 1)

    def body(
        em: Emitter, values: list[Value], outputs: list[Value], begin: Value, end: Value, scratch: Scratch
    ) -> None:
        _, new, pos = values
        count, length = em.dim(new, 1), em.dim(outputs[0], 1)
        source, out = (em.collapse(buffer, [[0, 1, 2]]) for buffer in (new, outputs[0]))
        with em.loop(begin, end, hint="row") as row:
            b = row.iv // count
            place = em.cast("arith.index_cast", em.load(pos, [b]), "index") + row.iv % count
            with em.if_(em.cmpi("sge", place, 0) & em.cmpi("slt", place, length)):
                first = (b * length + place) * (width // RUN * fmt.nbytes)
                with em.loop(0, width // RUN, hint="block") as block:
                    given, written = row.iv * width + block.iv * RUN, first + block.iv * fmt.nbytes
                    encode_block(em, target, spec.scheme, (source, given), (out, written))

    return write_kernel(
        name,
        [("cache", spec.cache), ("new", spec.new), ("pos", spec.pos)],
        [("out", spec.cache)],
        units=rows,
        body=body,
        order=spec.order,
    )


GENERATORS = (Generator("cache_update", "cache", as_it_is, emit_cache_update),)
