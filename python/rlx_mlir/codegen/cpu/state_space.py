# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Selective scans: a unit is some channels of a batch item, as many as a vector has lanes, **and lanes are of states**.

Channels are independent of each other. A unit keeps their states in the processor's cache from the first step to the
last: in scratch, or, where a call has one step, in the memory that they are read from and written to at once, so that
each byte of a state is read once and written once. For each step and channel

    H[m] = e^(d a[m]) H[m] + (d x) b[m]            y = sum over m of c[m] H[m]

where a[m] is one number of all channels (`StateSpaceSpec.rate`), whose exponentials are one vector a step, or a number
of each state. b and c are loaded once for all channels of a unit; sums stay in registers and are added up across lanes
together. Steps are taken one after the other, in the same order of operations wherever a sequence is cut: bits depend
on neither that nor threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rlx_mlir.codegen.conversions import IN_F32
from rlx_mlir.codegen.emit import Emitter, Index, Value, element_of, shape_of, with_element
from rlx_mlir.codegen.specs.sequence import StateSpaceSpec

from . import UnsupportedByTemplate
from .attention_decode import sum_each
from .kernel import Scratch, one_or_many, write_kernel
from .registry import Generator, as_it_is
from .target import Target, rounded


def emit_state_space(name: str, spec: StateSpaceSpec, target: Target) -> str:
    """The functions `@name.body`, `@name.units` and `@name.scratch`, as text.

    Raises UnsupportedByTemplate where the element type isn't f32, f16 or bf16, or the states of a channel are no
    multiple of a vector.
    """
    _check(name, spec, target)
    named = [("x", spec.x), ("delta", spec.delta), ("a", spec.a), ("b", spec.b), ("c", spec.c), ("state", spec.state)]
    operands = [(operand, type) for operand, type in named if type is not None]
    outputs = [("out", spec.result), ("state_out", spec.state_out)]
    results = [(result, type) for result, type in outputs if type is not None]

    def units(em: Emitter, values: list[Value]) -> Index:
        return em.dim(values[0], 0) * em.iceildiv(em.dim(values[0], 2), target.lanes("f32"))

    def scratch(em: Emitter, values: list[Value], parts: Scratch) -> None:
        _StateSpace(em, spec, target).take_scratch(parts)

    def body(em: Emitter, values: list[Value], outs: list[Value], begin: Value, end: Value, parts: Scratch) -> None:
        kernel = _StateSpace(em, spec, target)
        kernel.buffers = dict(zip([operand for operand, _ in operands], values, strict=True))
        kernel.buffers |= dict(zip([result for result, _ in results], outs, strict=True))
        kernel.take_scratch(parts)
        kernel.body(begin, end)

    order = spec.operand_order
    return write_kernel(name, operands, results, units=units, scratch=scratch, body=body, order=order)


def _check(name: str, spec: StateSpaceSpec, target: Target) -> None:
    element, n, lanes = element_of(spec.x), shape_of(spec.b)[-1], target.lanes("f32")
    if element not in IN_F32:
        raise UnsupportedByTemplate(f"{name}: selective scans of {element} have no template")
    if not n or n % lanes:
        raise UnsupportedByTemplate(f"{name}: expects states in multiples of {lanes}, but b is {spec.b}")


@dataclass(frozen=True)
class _States:
    """Where a unit's states stand: number m of channel r is at (*prefix, first + r, m)."""

    buffer: Value
    prefix: tuple[Index, ...] = ()
    first: Index = 0


class _StateSpace:
    """The code of one kernel; see the module's docstring."""

    buffers: dict[str, Value]

    def __init__(self, em: Emitter, spec: StateSpaceSpec, target: Target) -> None:
        self.em, self.spec, self.target = em, spec, target
        size = shape_of(spec.b)[-1]
        assert size is not None
        self.n: int = size
        self.lanes = target.lanes("f32")
        self.type = target.vector("f32")
        channels = shape_of(spec.x)[-1]
        self.whole = channels is not None and channels % self.lanes == 0
        """Whether no unit has channels beyond the last one."""

    def take_scratch(self, parts: Scratch) -> None:
        """A thread's scratch: the states, and what each channel's step multiplies them by and adds."""
        self.memory = parts.take([self.lanes, self.n], "f32")
        self.decay = parts.take([self.lanes], "f32")  # or the step itself, where a channel has several rates
        self.entry = parts.take([self.lanes], "f32")

    def body(self, begin: Value, end: Value) -> None:
        em, x = self.em, self.buffers["x"]
        steps, channels = em.dim(x, 1), em.dim(x, 2)
        blocks = em.iceildiv(channels, self.lanes)
        in_place = self.whole and "state" in self.buffers and "state_out" in self.buffers
        with em.loop(begin, end, hint="unit") as unit:
            self.item, self.first = unit.iv // blocks, unit.iv % blocks * self.lanes
            self.left = em.imin(channels - self.first, self.lanes)
            one_or_many(em, steps, self._single_step if in_place else None, self._run)

    def _single_step(self) -> None:
        source, target = (_States(self.buffers[name], (self.item,), self.first) for name in ("state", "state_out"))
        self._step(0, source, target)

    def _run(self, steps: Index) -> None:
        memory = _States(self.memory)
        self._copy_in()
        with self.em.loop(0, steps, hint="t") as step:
            self._step(step.iv, memory, memory)
        self._copy_out()

    def _copy_in(self) -> None:
        em, state = self.em, self.buffers.get("state")
        rows = self.lanes if state is None else self.left
        with em.loop(0, rows, hint="r") as row, em.loop(0, self.n, self.lanes, hint="m") as m:
            value = em.zero(self.type)
            if state is not None:
                value = em.vload(state, [self.item, self.first + row.iv, m.iv], self.type)
            em.vstore(value, self.memory, [row.iv, m.iv])

    def _copy_out(self) -> None:
        em, state = self.em, self.buffers.get("state_out")
        if state is None:
            return
        with em.loop(0, self.left, hint="r") as row, em.loop(0, self.n, self.lanes, hint="m") as m:
            value = em.vload(self.memory, [row.iv, m.iv], self.type)
            em.vstore(value, state, [self.item, self.first + row.iv, m.iv])

    # One step -------------------------------------------------------------------------------------

    def _step(self, t: Index, source: _States, target: _States) -> None:
        em = self.em
        self._gates(t)
        zeros = [em.zero(self.type)] * self.lanes
        with em.loop(0, self.n, self.lanes, zeros, hint="m") as m:
            into, out = (self._wide(self.buffers[name], [self.item, t, m.iv]) for name in ("b", "c"))
            sums = []
            for channel, total in enumerate(m.carry):
                state = em.vload(source.buffer, [*source.prefix, source.first + channel, m.iv], self.type)
                entry = em.broadcast(em.load(self.entry, [channel]), self.type)
                state = self.target.fma(em, entry, into, self._decay(channel, m.iv) * state)
                em.vstore(state, target.buffer, [*target.prefix, target.first + channel, m.iv])
                sums.append(self.target.fma(em, out, state, total))
            m.yield_(sums)
        result = self.buffers.get("out")
        if result is not None:
            value = rounded(em, self.target, sum_each(em, m.result), element_of(result.type))
            em.vstore(value, result, [self.item, t, self.first], self._mask())

    def _gates(self, t: Index) -> None:
        """What states of each channel are multiplied by, and what is added, into scratch."""
        em, at = self.em, [self.item, t, self.first]
        x, step = (self._wide(self.buffers[name], at, self._mask()) for name in ("x", "delta"))
        rate = self.spec.rate
        decay = step if rate is None else em.unary("math.exp", step * rate)
        em.vstore(decay, self.decay, [0])
        em.vstore(step * x, self.entry, [0])

    def _decay(self, channel: int, m: Index) -> Value:
        """What some states of a channel are multiplied by."""
        em = self.em
        own = em.broadcast(em.load(self.decay, [channel]), self.type)
        if self.spec.rate is not None:
            return own
        # A channel beyond the last one, which nothing is kept of, has the rates of that.
        row = self.first + (channel if self.whole else em.imin(self.left - 1, channel))
        return em.unary("math.exp", own * self._wide(self.buffers["a"], [row, m]))

    def _mask(self) -> Value | None:
        """Which channels of the unit there are; None: all."""
        return None if self.whole else self.em.mask(self.left, self.lanes)

    def _wide(self, buffer: Value, at: Sequence[Index], mask: Value | None = None) -> Value:
        """A vector of an operand, as f32."""
        em = self.em
        return self.target.widen(em, em.vload(buffer, at, with_element(self.type, element_of(buffer.type)), mask))


GENERATORS = (Generator("state_space", "state_space", as_it_is, emit_state_space),)
