# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Depthwise convolutions along a sequence whose channels lie side by side: **lanes run over the channels**.

y[b, s, c] = sum_j w[c, j] x[b, s + j, c]: one unit is some channels of one batch item, whose taps are turned in scratch
once, so that positions are computed from whole vectors of x without moving anything.
"""

from __future__ import annotations

from rlx_mlir.codegen.conversions import IN_F32
from rlx_mlir.codegen.emit import Emitter, Index, Value, element_of, shape_of, with_element
from rlx_mlir.codegen.specs.sequence import MAX_TAPS, ConvSpec

from . import UnsupportedByTemplate
from .kernel import Scratch, write_kernel
from .registry import Generator, as_it_is
from .target import Target, rounded

CHANNELS = 256
"""Channels of a unit, at most: rows of x are read in pieces of 1 KB, and the turned taps stay in the L1 cache."""


def emit_conv(name: str, spec: ConvSpec, target: Target) -> str:
    """The functions `@name.body`, `@name.units` and `@name.scratch`, as text.

    Raises UnsupportedByTemplate for other element types, dynamic channels or taps, and more than MAX_TAPS taps.
    """
    element, (channels, _, _, taps) = element_of(spec.weight), shape_of(spec.weight)
    if element not in IN_F32:
        raise UnsupportedByTemplate(f"{name}: convolutions of {element} have no template")
    if not channels or not taps or taps > MAX_TAPS:
        raise UnsupportedByTemplate(f"{name}: expects static channels and at most {MAX_TAPS} taps, not {spec.weight}")
    lanes, type = target.lanes("f32"), target.vector("f32")
    narrow = with_element(type, element)
    width = min(CHANNELS, -(-channels // lanes) * lanes)
    groups = -(-channels // width)

    def table(parts: Scratch) -> Value:
        return parts.take([taps, width], "f32")

    def units(em: Emitter, operands: list[Value]) -> Index:
        return em.dim(operands[0], 0) * groups

    def body(
        em: Emitter, operands: list[Value], results: list[Value], begin: Value, end: Value, parts: Scratch
    ) -> None:
        x, weight, (out,) = *operands, results
        turned = table(parts)
        with em.loop(begin, end, hint="unit") as unit:
            b, first = unit.iv // groups, unit.iv % groups * width
            left = channels - first
            with em.loop(0, em.imin(left, width), hint="c") as c, em.loop(0, taps, hint="k") as tap:
                number = em.load(weight, [first + c.iv, 0, 0, tap.iv])
                em.store(target.widen(em, number), turned, [tap.iv, c.iv])
            with em.loop(0, em.dim(out, 1), hint="s") as s, em.loop(0, em.imin(left, width), lanes, hint="c") as c:
                mask = None if channels % lanes == 0 else em.mask(left - c.iv, lanes)
                place = first + c.iv
                total = em.zero(type)
                for k in range(taps):
                    row = em.vload(x, [b, s.iv + k, place], narrow, mask)
                    row, factor = target.widen(em, row), em.vload(turned, [k, c.iv], type)
                    total = target.fma(em, row, factor, total) if k else row * factor
                value = rounded(em, target, total, element)
                em.vstore(value, out, [b, s.iv, place], mask)

    return write_kernel(
        name,
        [("x", spec.x), ("weight", spec.weight)],
        [("out", spec.result)],
        units=units,
        scratch=lambda em, operands, parts: table(parts),
        body=body,
        order=spec.operand_order,
    )


GENERATORS = (Generator("conv", "conv", as_it_is, emit_conv),)
