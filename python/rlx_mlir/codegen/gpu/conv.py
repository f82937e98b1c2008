# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The schedule for depthwise convolutions along a sequence: y[b, s, c] = sum_j w[c, j] x[b, s + j, c].

A thread computes a few positions of a vector of 16 bytes of channels: each row of x is read once for all of them.
"""

from __future__ import annotations

from rlx_mlir.codegen import UnsupportedByTemplate
from rlx_mlir.codegen.conversions import IN_F32
from rlx_mlir.codegen.gpu.emit import BITS, DeviceEmitter, Parameter, Value, element_of, pointer, shape_of, vec
from rlx_mlir.codegen.gpu.kernel import Constants, DeviceKernel, HostEmitter, Scratch, symbol_of, write_device_kernel
from rlx_mlir.codegen.specs.sequence import MAX_TAPS, ConvSpec

THREADS = 256
POSITIONS = 4
"""Positions that a thread computes."""


def emit_conv(
    name: str,
    spec: ConvSpec,
    chip: str,
    constants: Constants = frozenset(),
) -> DeviceKernel:
    """The kernel of a convolution.

    Raises UnsupportedByTemplate for other element types, dynamic channels or taps, and more than MAX_TAPS taps.
    """
    element, (channels, _, _, taps) = element_of(spec.weight), shape_of(spec.weight)
    if element not in IN_F32:
        raise UnsupportedByTemplate(f"{name}: convolutions of {element} have no schedule")
    if not channels or not taps or taps > MAX_TAPS:
        raise UnsupportedByTemplate(f"{name}: expects static channels and at most {MAX_TAPS} taps, not {spec.weight}")
    lanes = 128 // BITS[element]
    lanes = lanes if channels % lanes == 0 else 1
    vectors = channels // lanes
    order = spec.operand_order or (0, 1)
    em = DeviceEmitter(chip)
    parameters: list[Parameter] = [
        pointer("x", readonly=True, constant=order[0] in constants),
        pointer("weight", readonly=True, constant=order[1] in constants),
        pointer("out"),
        ("count", "i64"),
        ("steps", "i64"),
        ("chunks", "i64"),
    ]
    symbol = symbol_of(f"{name}_conv")
    with em.kernel(symbol, parameters, THREADS, chained=True) as (x, weight, out, count, steps, chunks):
        number = em.wide(em.block()) * THREADS + em.wide(em.thread())
        with em.if_(em.cmpi("ult", number, count)):
            chunk = em.wide(number // vectors)
            channel = em.wide(number % vectors * lanes)
            batch, first = em.wide(chunk // chunks), em.wide(chunk % chunks * POSITIONS)
            conv = _Conv(em, element, channels, taps, lanes, channel)
            rows = batch * (steps + (taps - 1))
            conv.run(x, weight, out, steps, first, rows, batch * steps)

    def host(host: HostEmitter, sources: list[Value], targets: list[Value], scratch: Scratch) -> None:
        batch, steps = host.dim(targets[0], 0), host.dim(targets[0], 1)
        chunks = host.iceildiv(steps, POSITIONS)
        count = batch * chunks * vectors
        numbers = [host.i64(value) for value in (count, steps, chunks)]
        blocks = host.iceildiv(count, THREADS)
        host.launch(symbol, blocks, THREADS, [*sources, *targets, *numbers])

    operands, results = [("x", spec.x), ("weight", spec.weight)], [("out", spec.result)]
    return write_device_kernel(name, "conv", operands, results, em, host, order=spec.operand_order)


class _Conv:
    """Emits a thread's positions of `lanes` channels from `channel` on."""

    def __init__(self, em: DeviceEmitter, element: str, channels: int, taps: int, lanes: int, channel: Value) -> None:
        self.em, self.element, self.channels, self.taps, self.lanes = em, element, channels, taps, lanes
        self.channel = channel
        self.type = element if lanes == 1 else vec(lanes, element)

    def run(
        self,
        x: Value,
        weight: Value,
        out: Value,
        steps: Value,
        first: Value,
        in_row: Value,
        out_row: Value,
    ) -> None:
        """Positions from `first` on; `in_row` and `out_row` are the numbers of the batch item's first rows."""
        em = self.em
        factors = self._taps(weight)
        left = steps - first
        rows = []
        for r in range(POSITIONS + self.taps - 1):
            place = self._place(in_row + first + r)
            # The first position exists, so its rows do; the others' may not.
            if r < self.taps:
                row = em.ld(x, self.type, place)
            else:
                row = em.ld_if(em.cmpi("sgt", left, r - self.taps + 1), x, self.type, place)
            rows.append(em.lanes(em.widen(row)))
        for p in range(POSITIONS):
            sums = [row * factor for row, factor in zip(rows[p], factors[0], strict=True)]
            for k in range(1, self.taps):
                sums = [em.fmaf(row, w, s) for row, w, s in zip(rows[p + k], factors[k], sums, strict=True)]
            value = em.narrow(sums[0] if self.lanes == 1 else em.vector(sums), self.element)
            with em.if_(em.cmpi("sgt", left, p)):
                em.st(value, out, self._place(out_row + first + p))

    def _place(self, row: Value) -> Value:
        return row * self.channels + self.channel

    def _taps(self, weight: Value) -> list[list[Value]]:
        """The weights by tap, then by channel: those of a channel lie side by side."""
        em = self.em
        start = em.at(weight, self.channel * self.taps, self.element)
        loaded = [em.lanes(em.widen(em.ld(start, self.type, k * self.lanes))) for k in range(self.taps)]
        flat = [value for vector in loaded for value in vector]
        return [flat[k :: self.taps] for k in range(self.taps)]
