# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The schedule for norms and softmax along another axis than the last: x is [outer, length, inner].

A thread has a vector of neighbouring columns, and the threads of a block that have the same columns join their sums
through shared memory, as in reductions. Columns are read once for each sum (three of layer_norm: mean, what the rounded
mean lacks, variance), and once more for the results; what a block has of them, 32 vectors side by side, mostly stays in
the caches between. Meaning and order of operations are those of rows: f32 inside, rounded once.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rlx_mlir.codegen import UnsupportedByTemplate
from rlx_mlir.codegen.conversions import IN_F32
from rlx_mlir.codegen.emit import Value, element_of, vec
from rlx_mlir.codegen.gpu.emit import DeviceEmitter, Parameter, pointer
from rlx_mlir.codegen.gpu.epilogue import elementwise
from rlx_mlir.codegen.gpu.kernel import (
    Constants,
    DeviceKernel,
    HostEmitter,
    Numbers,
    Scratch,
    by_vectors,
    symbol_of,
    write_device_kernel,
)
from rlx_mlir.codegen.gpu.reduce import THREADS, Joins, Pass, PassBody, Sizes
from rlx_mlir.codegen.specs import NormSpec

Rows = Callable[[Value], list[Value]]
"""The elements of the thread's columns at a place along the axis, f32."""


def emit_norm(name: str, spec: NormSpec, chip: str, constants: Constants = frozenset()) -> DeviceKernel:
    """The kernel of a `NormSpec`.

    Raises UnsupportedByTemplate for f64.
    """
    types = [spec.x, *spec.factors]
    if any(element_of(type) not in IN_F32 for type in types):
        raise UnsupportedByTemplate(f"{name}: {spec.op} of {', '.join(types)} has no schedule")
    em = DeviceEmitter(chip)
    operands = list(zip(("x", "gamma", "beta"), types, strict=False))
    known = Sizes.around(HostEmitter(), Value("%x", spec.x), spec.axis)
    sizes = Numbers((known.length, known.inner))
    own = _pass(name, spec, known)
    parameters: list[Parameter] = [
        *(pointer(word, readonly=True, constant=spec.order[i] in constants) for i, (word, _) in enumerate(operands)),
        pointer("out"),
        *sizes.parameters,
    ]
    for lanes in own.lanes:
        with em.kernel(f"{own.symbol}{lanes}", parameters, THREADS, chained=True) as values:
            count = len(operands) + 1
            length, inner = sizes.filled(values[count:])
            _Norm(em, spec, own, values[:count], Sizes(1, length, inner), lanes).run()

    def host(host: HostEmitter, sources: list[Value], targets: list[Value], scratch: Scratch) -> None:
        made = Sizes.around(host, sources[0], spec.axis)
        arguments = [*sources, *targets, *sizes.arguments(host, (made.length, made.inner))]

        def launch(lanes: int) -> None:
            blocks = made.outer * host.iceildiv(made.inner, own.per_block(lanes))
            shared = 4 * THREADS * lanes
            host.launch(f"{own.symbol}{lanes}", blocks, THREADS, arguments, shared=shared)

        by_vectors(host, own.lanes, [made.inner], launch)

    results = [("out", spec.x)]
    return write_device_kernel(name, "norm", operands, results, em, host, order=spec.order)


def _pass(name: str, spec: NormSpec, sizes: Sizes) -> Pass:
    """How a block's threads share columns; those of one element are columns, too."""
    inner = Value("%unknown", "index") if sizes.inner == 1 else sizes.inner
    own = Sizes(sizes.outer, sizes.length, inner)
    return Pass(symbol_of(f"{name}_norm"), own, element_of(spec.x), "f32", False)


@dataclass(frozen=True)
class _Norm:
    """Emits a block; `buffers` are x, the factors and the result."""

    em: DeviceEmitter
    spec: NormSpec
    own: Pass
    buffers: Sequence[Value]
    sizes: Sizes
    lanes: int

    def run(self) -> None:
        """All passes over the block's columns."""
        em, own, lanes = self.em, self.own, self.lanes
        lane, member = em.index(em.thread() % own.across), em.index(em.thread() // own.across)
        length, inner = self.sizes.length, self.sizes.inner
        per_row = em.iceildiv(inner, own.per_block(lanes))
        outer, part = em.wide(em.block()) // per_row, em.wide(em.block()) % per_row
        column = em.wide((part * own.across + em.wide(lane)) * lanes)
        start = em.wide(outer * length * inner + column)
        # Threads without columns have no elements either.
        end = em.select(em.cmpi("ult", column, inner), em.wide(length), 0)
        first, element = em.wide(member), element_of(self.spec.x)

        def place(at: Value) -> Value:
            return em.wide(start + at * inner)

        def x(at: Value) -> list[Value]:
            return em.lanes(em.widen(em.ld(self.buffers[0], element if lanes == 1 else vec(lanes, element), place(at))))

        def total(kind: str, rows: Rows) -> list[Value]:
            return self._total(kind, rows, (first, end), (lane, member))

        result = self._softmax(x, total) if self.spec.op == "softmax" else self._norm(x, total)
        with em.loop(first, end, em.const(own.team, "i64")) as loop:
            values = result(loop.iv)
            value = em.vector(values) if lanes > 1 else values[0]
            em.st(em.narrow(value, element), self.buffers[-1], place(loop.iv))

    def _total(self, kind: str, rows: Rows, bounds: tuple[Value, Value], thread: tuple[Value, Value]) -> list[Value]:
        """What all threads of the block have for the columns, joined; each gets the same bits."""
        em, own, lanes = self.em, self.own, self.lanes
        body = PassBody(em, Joins(em, kind, "f32"), own, self.sizes, bounds[0], bounds[0], lanes, *self.buffers[:2])
        totals = body.accumulate(*bounds, own.team, rows)
        if own.team == 1:
            return totals
        lane, member = thread
        em.barrier()  # what was shared before has been read
        totals = body.column_join(totals, member, lane)
        em.barrier()
        width = min(lanes, 4)
        memory = [em.index(lane * lanes + at) for at in range(0, lanes, width)]
        with em.if_(em.cmpi("eq", member, 0)):
            for at, there in zip(range(0, lanes, width), memory, strict=True):
                part = totals[at : at + width]
                em.st(em.vector(part) if width > 1 else part[0], em.shared(), there)
        em.barrier()
        type = vec(width, "f32") if width > 1 else "f32"
        return [value for there in memory for value in em.lanes(em.ld(em.shared(), type, there))]

    def _softmax(self, x: Rows, total: Callable[[str, Rows], list[Value]]) -> Rows:
        """exp(x - max) / sum"""
        em = self.em
        largest = total("max", x)

        def weights(at: Value) -> list[Value]:
            return [elementwise(em, "exp", [v - m]) for v, m in zip(x(at), largest, strict=True)]

        inverse = [1.0 / s for s in total("sum", weights)]
        return lambda at: [w * r for w, r in zip(weights(at), inverse, strict=True)]

    def _norm(self, x: Rows, total: Callable[[str, Rows], list[Value]]) -> Rows:
        """(x - mean) / sqrt(variance + eps) * gamma + beta, of rms_norm without the mean"""
        em, spec = self.em, self.spec
        count = em.cast("arith.uitofp", em.wide(self.sizes.length), "f32")
        centred = x
        if spec.op == "layer_norm":
            means: list[list[Value]] = []

            def centred(at: Value) -> list[Value]:
                values = x(at)
                for mean in means:
                    values = [v - m for v, m in zip(values, mean, strict=True)]
                return values

            # The second one is what the first, rounded, lacks: without it columns of one large number aren't 0.
            for _ in range(2):
                means.append([s / count for s in total("sum", centred)])

        def squares(at: Value) -> list[Value]:
            return [v * v for v in centred(at)]

        variance = [s / count for s in total("sum", squares)]
        scale = [1.0 / elementwise(em, "sqrt", [v + spec.eps]) for v in variance]

        def result(at: Value) -> list[Value]:
            values = [v * r for v, r in zip(centred(at), scale, strict=True)]
            words = zip((operator.mul, operator.add), self.buffers[1:-1], spec.factors, strict=False)
            for function, base, type in words:
                factor = em.widen(em.ld(base, element_of(type), at))
                values = [function(value, factor) for value in values]
            return values

        return result
