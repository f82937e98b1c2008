# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The schedule for element-wise operations that aren't on rows: operands broadcast as numpy's do, of any type.

Comparisons, choices by conditions (which are bytes), conversions, and arithmetic. Axes along which all operands go
together become one. A thread makes one vector of the result, of at most 16 bytes in any operand: an operand that goes
along the last axis is read as a vector, one that doesn't once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from rlx_mlir.codegen import UnsupportedByTemplate
from rlx_mlir.codegen.axes import Axis, joined_axes
from rlx_mlir.codegen.conversions import IN_F32, compare, convert
from rlx_mlir.codegen.emit import Index, Value, element_of, vec
from rlx_mlir.codegen.gpu.copies import THREADS, own_vector
from rlx_mlir.codegen.gpu.emit import BITS, FLOAT8, DeviceEmitter
from rlx_mlir.codegen.gpu.epilogue import elementwise
from rlx_mlir.codegen.gpu.kernel import Constants, DeviceKernel, HostEmitter, write_sized_kernel
from rlx_mlir.codegen.moves import product
from rlx_mlir.codegen.program import emit_elementwise
from rlx_mlir.codegen.specs import BroadcastSpec, BroadcastStep

#: Operations of f64 that need no expansion.
_PLAIN = ("cast", "add", "sub", "mul", "div", "max", "min", "neg", "abs", "where")


def emit_broadcast(name: str, spec: BroadcastSpec, chip: str, constants: Constants = frozenset()) -> DeviceKernel:
    """The kernel of a `BroadcastSpec`.

    Raises UnsupportedByTemplate for functions of f64 that aren't instructions, arithmetic on floats of 8 bits,
    positions, and several results.
    """
    if len(spec.results) > 1:
        raise UnsupportedByTemplate(f"{name}: element-wise operations with several results have no schedule")
    for step in spec.steps:
        _check(name, step, spec)
    operands = [(f"arg{i}", type) for i, type in enumerate(spec.operands)]
    em = DeviceEmitter(chip)

    def body(buffers: list[Value], axes: list[Axis], lanes: int) -> None:
        _Body(em, spec, buffers[:-1], buffers[-1], axes, lanes).run()

    def grid(host: HostEmitter, axes: list[Axis], lanes: int) -> Index:
        return host.iceildiv(product([axis.size for axis in axes]) // lanes, THREADS)

    return write_sized_kernel(
        em,
        name,
        "broadcast",
        operands,
        [("out", spec.result)],
        lambda host, buffers: joined_axes(host, spec, buffers[:-1]),
        body,
        grid,
        threads=THREADS,
        symbol="broadcast",
        widths=lambda axes: _vectors(spec, axes[-1].size),
        divisors=lambda axes: [axes[-1].size],
        constants=constants,
    )


def _check(name: str, step: BroadcastStep, spec: BroadcastSpec) -> None:
    """Raises UnsupportedByTemplate where the code of a step would mean something else."""
    types = [element_of(type) for type in spec.operands] + [own.result for own in spec.steps]
    read = [types[at] for at in step.reads if isinstance(at, int)]
    if step.op == "iota":
        raise UnsupportedByTemplate(f"{name}: positions have no schedule")
    if step.op not in ("cast", "where") and any(type in FLOAT8 for type in (*read, step.result)):
        raise UnsupportedByTemplate(f"{name}: {step.op} of floats of 8 bits has no schedule")
    if step.result == "f64" and step.op not in _PLAIN:
        raise UnsupportedByTemplate(f"{name}: {step.op} of f64 has no schedule")
    if any(type not in BITS for type in (*read, step.result)):
        raise UnsupportedByTemplate(f"{name}: elements of {', '.join(read)} have no schedule")


def _vectors(spec: BroadcastSpec, size: Index) -> tuple[int, ...]:
    """Elements that a thread makes: one number, or two where the host has to choose."""
    lanes = 128 // max(BITS[element_of(type)] for type in (*spec.operands, spec.result))
    if not isinstance(size, int):
        return (lanes, 1) if lanes > 1 else (1,)
    return (math.gcd(size, lanes) or lanes,)


class _Body:
    """Emits the vector of one thread."""

    def __init__(
        self,
        em: DeviceEmitter,
        spec: BroadcastSpec,
        operands: Sequence[Value],
        out: Value,
        axes: Sequence[Axis],
        lanes: int,
    ) -> None:
        self.em, self.spec, self.operands, self.out, self.axes, self.lanes = em, spec, operands, out, axes, lanes

    def run(self) -> None:
        """The thread's vector, where it exists."""
        em, lanes = self.em, self.lanes
        *outer, last = self.axes
        with own_vector(em, [axis.size for axis in self.axes], lanes) as (number, along, others):
            places = [along * step for step in last.steps]
            for axis, at in zip(reversed(outer), others, strict=True):
                places = [place + at * step for place, step in zip(places, axis.steps, strict=True)]
            values = [self._load(i, place, last.steps[i]) for i, place in enumerate(places)]
            types = [element_of(type) for type in self.spec.operands]
            for step in self.spec.steps:
                made = [self._compute(step, values, types, lane) for lane in range(lanes)]
                if step.result in ("f16", "bf16") and step is not self.spec.steps[-1]:
                    made = [em.widen(em.narrow(value, step.result)) for value in made]
                values.append(made)
                types.append(step.result)
            self._store(values[-1], number * lanes)

    def _load(self, operand: int, place: Index, step: Index) -> list[Value]:
        """The operand's elements, as `conversions` has them in registers."""
        em, element = self.em, element_of(self.spec.operands[operand])
        stored = "i8" if element == "i1" else element
        repeats = isinstance(step, int) and step == 0
        type = stored if repeats or self.lanes == 1 else vec(self.lanes, stored)
        loaded = em.ld(self.operands[operand], type, em.wide(place))
        values = em.lanes(em.widen(loaded) if element in IN_F32 else loaded)
        values = [em.cmpi("ne", value, 0) for value in values] if element == "i1" else values
        return values * self.lanes if repeats else values

    def _compute(
        self, step: BroadcastStep, values: Sequence[Sequence[Value]], types: Sequence[str], lane: int
    ) -> Value:
        """One element of a step."""
        em = self.em
        known = next((types[at] for at in step.reads[step.op == "where" :] if isinstance(at, int)), step.result)
        kind = "f32" if known in IN_F32 else known
        own = [values[at][lane] if isinstance(at, int) else em.const(at, kind) for at in step.reads]
        if step.op == "compare":
            return compare(em, step.word, own[0], own[1], known)
        if step.op == "cast":
            return convert(em, own[0], known, step.result, em)
        if step.op == "where":
            return em.select(own[0], own[1], own[2])
        if kind == "f32":
            return elementwise(em, step.op, own)
        return emit_elementwise(em, step.op, own, kind)

    def _store(self, values: Sequence[Value], place: Value) -> None:
        em, element = self.em, element_of(self.spec.result)
        if element == "i1":
            values = [em.cast("arith.extui", value, "i8") for value in values]
        value = em.vector(values) if self.lanes > 1 else values[0]
        em.st(em.narrow(value, element) if element in IN_F32 else value, self.out, place)
