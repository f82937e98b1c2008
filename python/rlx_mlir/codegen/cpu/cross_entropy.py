# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Cross entropy of rows of logits [n, c] with labels [n], and its gradient: a unit is one row.

    loss      m = max(x);    s = sum(exp(x - m));              log(s) - (x[label] - m)
    gradient  m = max(x);    e = exp(x - m), s = sum(e);       (e / s - [c = label]) d_loss

All is f32 inside and rounded once. Sums run over lanes and `UNROLL` accumulators, in blocks of 32 terms for each; what
joining blocks loses is carried along (`sums.py`). The gradient keeps e where its result will be, if that is of f32, and
computes it again otherwise.
"""

from __future__ import annotations

import operator
from collections.abc import Callable

from rlx_mlir.codegen.conversions import IN_F32
from rlx_mlir.codegen.emit import Emitter, Index, Value, element_of, vec
from rlx_mlir.codegen.program import emit_elementwise
from rlx_mlir.codegen.specs import LossSpec
from rlx_mlir.codegen.structures import pairwise

from . import UnsupportedByTemplate
from .gather import entry_of
from .kernel import Scratch, write_kernel
from .registry import Generator
from .sums import TURNS, add_with_loss, with_loss
from .target import Target, rounded

UNROLL = 4
"""Vectors, and accumulators, of a step."""

LABELS = ("i32", "i64")
"""Types of labels that the template reads."""


def configure(name: str, spec: LossSpec, target: Target) -> LossSpec:
    """The kernel as it is; UnsupportedByTemplate for other types than those of the module's docstring."""
    logits, labels = element_of(spec.logits), element_of(spec.labels)
    if logits not in IN_F32:
        raise UnsupportedByTemplate(f"{name}: cross entropy of {logits} has no template")
    if labels not in LABELS:
        raise UnsupportedByTemplate(f"{name}: expects labels of {' or '.join(LABELS)}, but they are of {labels}")
    return spec


def emit_cross_entropy(name: str, spec: LossSpec, target: Target) -> str:
    """The functions `@name.body`, `@name.units` and `@name.scratch`, as text."""
    operands = [("logits", spec.logits), ("labels", spec.labels)]
    if spec.d_loss is not None:
        operands.append(("d_loss", spec.d_loss))

    def body(em: Emitter, values: list[Value], outs: list[Value], begin: Value, end: Value, scratch: Scratch) -> None:
        with em.loop(begin, end, hint="row") as row:
            own = _Row(em, target, values[0], row.iv)
            label = em.cast("arith.index_cast", entry_of(em, em.load(values[1], [row.iv]), own.count), "index")
            if spec.d_loss is None:
                em.store(rounded(em, target, own.loss(label), element_of(spec.logits)), outs[0], [row.iv])
            else:
                d_loss = target.widen(em, em.load(values[2], [row.iv]))
                own.write_gradient(label, d_loss, outs[0])

    return write_kernel(
        name,
        operands,
        [("out", spec.result)],
        units=lambda em, values: em.dim(values[0], 0),
        body=body,
        order=spec.operand_order,
    )


class _Row:
    """One row of logits, with its largest element."""

    def __init__(self, em: Emitter, target: Target, logits: Value, row: Index) -> None:
        self._em, self._target, self._logits, self._row = em, target, logits, row
        self._lanes, self._type = target.lanes("f32"), target.vector("f32")
        self._stored = vec(self._lanes, element_of(logits.type))
        self.count = em.dim(logits, 1)
        self._step = UNROLL * self._lanes
        self._whole = self.count - self.count % self._step
        self._top = em.broadcast(self._largest(), self._type)

    def _load(self, k: Index) -> Value:
        em = self._em
        return self._target.widen(em, em.vload(self._logits, [self._row, k], self._stored))

    def _load_some(self, k: Index, mask: Value, other: float) -> Value:
        em = self._em
        value = em.masked_load(self._logits, [self._row, k], mask, em.const(other, self._stored))
        return self._target.widen(em, value)

    def _exp(self, x: Value) -> Value:
        return emit_elementwise(self._em, "exp", [x - self._top], self._type)

    def _one(self, op: str, x: Value) -> Value:
        """A function of one number, as vectors compute it."""
        em = self._em
        return em.extract(emit_elementwise(em, op, [em.broadcast(x, self._type)], self._type), 0)

    def _largest(self) -> Value:
        em, low = self._em, self._em.const(float("-inf"), self._type)
        with em.loop(0, self._whole, self._step, [low] * UNROLL, hint="k") as loop:
            values = [self._load(loop.iv + i * self._lanes) for i in range(UNROLL)]
            loop.yield_([em.maximumf(a, b) for a, b in zip(loop.carry, values, strict=True)])
        largest = pairwise(em.maximumf, loop.result)
        with em.loop(self._whole, self.count, self._lanes, largest, hint="k") as rest:
            value = self._load_some(rest.iv, em.mask(self.count - rest.iv, self._lanes), float("-inf"))
            rest.yield_(em.maximumf(rest.carry, value))
        return em.reduce("maximumf", rest.result)

    def _sum(self, see: Callable[[Index, Value, Value | None], None]) -> Value:
        """sum(exp(x - largest)); `see` gets (column, vector of these, mask of a part)."""
        em, zero = self._em, self._em.zero(self._type)
        with em.loop(0, self._whole, self._step * TURNS, [zero, zero], hint="block") as block:
            end = em.imin(block.iv + self._step * TURNS, self._whole)
            with em.loop(block.iv, end, self._step, [zero] * UNROLL, hint="k") as loop:
                places = [loop.iv + i * self._lanes for i in range(UNROLL)]
                values = [self._exp(self._load(k)) for k in places]
                for k, value in zip(places, values, strict=True):
                    see(k, value, None)
                loop.yield_([a + b for a, b in zip(loop.carry, values, strict=True)])
            total, lost = block.carry
            block.yield_(list(add_with_loss(total, lost, pairwise(operator.add, loop.result))))
        with em.loop(self._whole, self.count, self._lanes, block.result, hint="k") as rest:
            mask = em.mask(self.count - rest.iv, self._lanes)
            value = em.select(mask, self._exp(self._load_some(rest.iv, mask, 0.0)), zero)
            see(rest.iv, value, mask)
            total, lost = rest.carry
            rest.yield_(list(add_with_loss(total, lost, value)))
        return em.reduce("add", with_loss(em, *rest.result))

    def _of_label(self, label: Value) -> Value:
        em = self._em
        return self._target.widen(em, em.load(self._logits, [self._row, label]))

    def loss(self, label: Value) -> Value:
        """log(s) - (x[label] - m)"""
        em = self._em
        total = self._sum(lambda k, value, mask: None)
        return self._one("log", total) - (self._of_label(label) - em.extract(self._top, 0))

    def write_gradient(self, label: Value, d_loss: Value, out: Value) -> None:
        """(e / s - [c = label]) d_loss, a row of the result, which may be where the logits are."""
        em, row = self._em, self._row
        element = element_of(out.type)
        kept = element == "f32"
        own = self._one("exp", self._of_label(label) - em.extract(self._top, 0))

        def keep(k: Index, value: Value, mask: Value | None) -> None:
            if kept:
                em.vstore(value, out, [row, k], mask)

        total = self._sum(keep)
        sums, factor = em.broadcast(total, self._type), em.broadcast(d_loss, self._type)
        with em.loop(0, self._whole, self._step, hint="k") as loop:
            for i in range(UNROLL):
                k = loop.iv + i * self._lanes
                value = em.vload(out, [row, k], self._type) if kept else self._exp(self._load(k))
                em.vstore(rounded(em, self._target, value / sums * factor, element), out, [row, k])
        with em.loop(self._whole, self.count, self._lanes, hint="k") as rest:
            k, mask = rest.iv, em.mask(self.count - rest.iv, self._lanes)
            if kept:
                value = em.vload(out, [row, k], self._type, mask)
            else:
                value = self._exp(self._load_some(k, mask, 0.0))
            em.masked_store(rounded(em, self._target, value / sums * factor, element), out, [row, k], mask)
        em.store(rounded(em, self._target, (own / total - 1.0) * d_loss, element), out, [row, label])


GENERATORS = (Generator("cross_entropy", "loss", configure, emit_cross_entropy),)
