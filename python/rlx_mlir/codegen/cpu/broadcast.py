# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Element-wise operations that aren't on rows of floats: operands broadcast as numpy's do, of any type but complex.

Comparisons, choices by conditions (which are bytes in memory), conversions, arithmetic, positions, and copies that
repeat. Axes along which all operands go together become one; the last of these are the columns of rows that the others
number. A unit is some rows, or a piece of a long one, of about `UNIT` bytes in the widest type.

What is the same in all columns of a row, an operand that has one number for each, or what follows from such numbers, is
computed once for the row. The rest is computed in vectors, several of them side by side where that needs few
instructions. Each element's value follows from its operands alone, so that units may be cut anywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rlx_mlir.codegen.axes import joined_axes
from rlx_mlir.codegen.conversions import BITS, FLOAT8, HALVES, compare, convert, is_unsigned, register_type
from rlx_mlir.codegen.emit import Emitter, Index, Value, element_of, memref, shape_of, vec, with_element
from rlx_mlir.codegen.program import emit_elementwise
from rlx_mlir.codegen.specs import BroadcastSpec, BroadcastStep
from rlx_mlir.mir.functions import FUNCTIONS, Rounding

from . import UnsupportedByTemplate
from .kernel import Scratch, write_kernel
from .registry import Generator
from .target import Target, rounded

UNIT = 1 << 14
"""Bytes of a unit's elements of the widest type, about."""

SIDE_BY_SIDE = 4
"""Vectors side by side at most."""

FEW, SOME = 12, 40
"""Instructions for a vector up to which there are four, and two, of them side by side, about."""

_INSTRUCTIONS = {Rounding.EXACT: 1, Rounding.STEP: 2, Rounding.ROUNDED: 1, Rounding.FUNCTION: 20}
"""Of a function of floats, about."""


def configure_broadcast(name: str, spec: BroadcastSpec, target: Target) -> BroadcastSpec:
    """The kernel as it is; UnsupportedByTemplate for complex numbers, and arithmetic on floats of 8 bits."""
    types = [element_of(type) for type in spec.operands] + [own.result for own in spec.steps]
    read = {at for step in spec.steps for at in step.reads if isinstance(at, int)}
    for number in (*read, *range(len(spec.operands), len(types))):
        if types[number] not in BITS:
            raise UnsupportedByTemplate(f"{name}: elements of {types[number]} have no template")
    for step in spec.steps:
        own = [types[at] for at in step.reads if isinstance(at, int)]
        if step.op not in ("cast", "copy", "where") and any(type in FLOAT8 for type in (*own, step.result)):
            raise UnsupportedByTemplate(f"{name}: {step.op} of floats of 8 bits has no template")
    return spec


def emit_broadcast(name: str, spec: BroadcastSpec, target: Target) -> str:
    """The functions `@name.body`, `@name.units` and `@name.scratch`, as text.

    Raises UnsupportedByTemplate for operations that there are none of on elements of their type.
    """

    def body(em: Emitter, values: list[Value], outs: list[Value], begin: Value, end: Value, parts: Scratch) -> None:
        kernel = _Broadcast(em, spec, target, values)
        kernel.open(outs)
        with em.loop(begin, end, hint="unit") as unit:
            kernel.run(unit.iv)

    return write_kernel(
        name,
        [(f"arg{number}", type) for number, type in enumerate(spec.operands)],
        [(f"out{number}", type) for number, (_, type) in enumerate(spec.results)],
        units=lambda em, values: _Broadcast(em, spec, target, values).units,
        body=body,
    )


@dataclass(frozen=True)
class _Halves:
    """f16 and bf16 on a CPU."""

    em: Emitter
    target: Target

    def widen(self, x: Value) -> Value:
        """f16 or bf16 as f32; other floats as they are."""
        return self.target.widen(self.em, x)

    def narrow(self, x: Value, element: str) -> Value:
        """f32 rounded to `element`."""
        return rounded(self.em, self.target, x, element)


class _Broadcast:
    """The code of one kernel; see the module's docstring."""

    def __init__(self, em: Emitter, spec: BroadcastSpec, target: Target, buffers: Sequence[Value]) -> None:
        self.em, self.spec, self.buffers = em, spec, list(buffers)
        self.halves = _Halves(em, target)
        self.types = [element_of(type) for type in spec.operands] + [step.result for step in spec.steps]
        self.first_step = len(spec.operands)
        self.read = {at for step in spec.steps for at in step.reads if isinstance(at, int)}
        *self.outer, last = joined_axes(em, spec, buffers)
        self.columns = last.size
        self.along = [step != 0 if isinstance(step, int) else True for step in last.steps]
        self.counters = [number for number, step in enumerate(spec.steps) if step.op == "iota"]
        used = [*self.read, *range(self.first_step, len(self.types))]
        widest = max(BITS[self.types[number]] for number in used)
        self.lanes = target.vector_bits // min(max(widest, self._in_registers(used)), 32)
        self.count = max(UNIT * 8 // widest, SIDE_BY_SIDE * self.lanes)
        if isinstance(self.columns, int):
            self.lanes = min(self.lanes, 1 << max(self.columns - 1, 0).bit_length())
        instructions = sum(map(self._instructions, spec.steps))
        self.vectors = SIDE_BY_SIDE if instructions <= FEW else 2 if instructions <= SOME else 1
        self.rows: Index = 1
        for axis in self.outer:
            self.rows = axis.size * self.rows
        self.high = em.imax(self.count // em.imax(self.columns, 1), 1) if self.outer else 1
        """Rows of a unit."""
        is_short = isinstance(self.columns, int) and self.columns <= self.count
        self.pieces = 1 if is_short else em.iceildiv(self.columns, self.count)
        """Units of a row, where it is long."""

    def _in_registers(self, used: Sequence[int]) -> int:
        """Bits of the widest elements in registers; positions are computed in 64."""
        bits = [BITS[register_type(self.types[number])] for number in used]
        return max(*bits, 64 if self.counters else 0)

    def _instructions(self, step: BroadcastStep) -> int:
        """Instructions of a step, about."""
        record = FUNCTIONS.get(step.op)
        own = 1 if record is None else len(record.formula_for(step.result).steps)
        if record is not None and not step.result.startswith(("i", "u")):
            own *= _INSTRUCTIONS[record.rounding]
        return own + 4 * (step.op == "cast") + 4 * (step.result in HALVES)

    @property
    def units(self) -> Index:
        """Blocks of rows, for each piece."""
        return self.em.iceildiv(self.rows, self.high) * self.pieces

    def open(self, outs: Sequence[Value]) -> None:
        """Says where results are, and makes all buffers flat."""
        self.buffers = [self._flat(buffer) if n in self.read else buffer for n, buffer in enumerate(self.buffers)]
        self.outs = [self._flat(out) for out in outs]

    def _flat(self, buffer: Value) -> Value:
        """A buffer as one dimension of what vectors are read of: conditions, floats of 8 bits and integers without sign
        have the same bits as integers."""
        flat, element = self.em.flat(buffer), element_of(buffer.type)
        held = _stored(element)
        if held == element:
            return flat
        return self.em.cast("builtin.unrealized_conversion_cast", flat, memref(shape_of(flat.type), held))

    def run(self, unit: Value) -> None:
        """One unit."""
        em = self.em
        first, piece = unit // self.pieces * self.high, unit % self.pieces
        begin = piece * self.count
        end = self.columns if isinstance(piece, int) else em.imin(begin + self.count, self.columns)
        if not self.outer:
            self._row(0, begin, end)
            return
        with em.loop(first, em.imin(first + self.high, self.rows), hint="row") as row:
            self._row(row.iv, begin, end)

    def _row(self, row: Index, begin: Index, end: Index) -> None:
        """Some columns of a row."""
        em, lanes = self.em, self.lanes
        places: list[Index] = [0] * len(self.along)
        rest = row
        for position, axis in reversed(list(enumerate(self.outer))):
            at = rest if position == 0 else rest % axis.size
            rest = 0 if position == 0 else rest // axis.size
            places = [place + at * step for place, step in zip(places, axis.steps, strict=True)]
        self.places, self.base = places, row * self.columns
        self.once: dict[int, Value] = {}
        self._once()
        side = lanes * self.vectors
        if isinstance(end, int):  # the whole row
            done = end // side * side if end >= 2 * side else 0
            if done:
                with em.loop(0, done, side, hint="column") as column:
                    self._vectors(column.iv, self.vectors, None)
            vectors, left = divmod(end - done, lanes)
            if vectors:
                self._vectors(done, vectors, None)
            if left:
                self._vectors(end - left, 1, em.mask(left, lanes))
            return
        begins = begin + (end - begin) // side * side
        with em.loop(begin, begins, side, hint="column") as column:
            self._vectors(column.iv, self.vectors, None)
        whole = begins + (end - begins) // lanes * lanes
        if self.vectors > 1:
            with em.loop(begins, whole, lanes, hint="column") as column:
                self._vectors(column.iv, 1, None)
        with em.if_(em.cmpi("slt", whole, end)):
            self._vectors(whole, 1, em.mask(end - whole, lanes))

    def _once(self) -> None:
        """What is the same in all columns of the row: numbers, by what makes them, and as vectors."""
        for number in sorted(self.read):
            if number < self.first_step and not self.along[number]:
                self.once[number] = self._loaded(number, self.em.load(self.buffers[number], [self.places[number]]))
        for number, step in enumerate(self.spec.steps):
            if step.op == "iota" and not self._counts(number):
                self.once[self.first_step + number] = self._positions(number, None)
            elif step.op != "iota" and all(at in self.once for at in step.reads if isinstance(at, int)):
                self.once[self.first_step + number] = self._computed(step, self.once, None)
        varying = [s for n, s in enumerate(self.spec.steps) if self.first_step + n not in self.once]
        needed = {at for step in varying for at in step.reads if isinstance(at, int)}
        needed |= {self.first_step + step for step, _ in self.spec.results}
        self.repeated = {
            number: self.em.broadcast(value, vec(self.lanes, value.type))
            for number, value in self.once.items()
            if number in needed
        }

    def _counts(self, number: int) -> bool:
        """Whether the positions that a step makes differ between columns."""
        return self.along[self.first_step + self.counters.index(number)]

    def _vectors(self, column: Index, count: int, mask: Value | None) -> None:
        """So many vectors of columns; of the last one, those that a mask has."""
        em, lanes = self.em, self.lanes
        at = [column + lanes * vector for vector in range(count)]
        known = [dict(self.repeated) for _ in at]
        for number in sorted(self.read):
            if number < self.first_step and self.along[number]:
                stored = vec(lanes, _stored(self.types[number]))
                for values, place in zip(known, at, strict=True):
                    loaded = em.vload(self.buffers[number], [self.places[number] + place], stored, mask)
                    values[number] = self._loaded(number, loaded)
        for number, step in enumerate(self.spec.steps):
            if self.first_step + number in self.once:
                continue
            for values, place in zip(known, at, strict=True):
                made = self._positions(number, place) if step.op == "iota" else self._computed(step, values, lanes)
                values[self.first_step + number] = made
        for (number, _), out in zip(self.spec.results, self.outs, strict=True):
            for values, place in zip(known, at, strict=True):
                value = self._storable(values[self.first_step + number], self.types[self.first_step + number])
                em.vstore(value, out, [self.base + place], mask)

    def _loaded(self, number: int, x: Value) -> Value:
        """A loaded number, or vector, as registers have it."""
        element = self.types[number]
        if element == "i1":
            return self.em.cmpi("ne", x, 0)
        return self.halves.widen(x) if element in HALVES else x

    def _storable(self, x: Value, element: str) -> Value:
        """What registers have, as memory has it."""
        if element == "i1":
            return self.em.cast("arith.extui", x, with_element(x.type, "i8"))
        return self.halves.narrow(x, element) if element in HALVES else x

    def _positions(self, number: int, column: Index | None) -> Value:
        """Positions of a vector from a column on, or the row's one."""
        em, step = self.em, self.spec.steps[number]
        start = self.places[self.first_step + self.counters.index(number)]
        if column is None:
            found = em.cast("arith.index_cast", em.index(start), "i64")
        else:
            found = em.cast("arith.index_cast", em.index(start + column), "i64")
            kind = vec(self.lanes, "i64")
            found = em.broadcast(found, kind) + em.const(range(self.lanes), kind)
        # Positions are rounded to f32 first, whatever floats they are.
        via = "f32" if step.result in ("f64", *HALVES) else step.result
        return convert(em, convert(em, found, "i64", via, self.halves), via, step.result, self.halves)

    def _computed(self, step: BroadcastStep, values: dict[int, Value], lanes: int | None) -> Value:
        """A step on numbers, or on vectors of so many lanes."""
        em = self.em
        source = next((self.types[at] for at in step.reads[step.op == "where" :] if isinstance(at, int)), step.result)
        kind = register_type(source)
        type = kind if lanes is None else vec(lanes, kind)
        own = [values[at] if isinstance(at, int) else em.const(at, type) for at in step.reads]
        if step.op == "where" and not isinstance(step.reads[0], int):
            own[0] = em.const(bool(step.reads[0]), with_element(type, "i1"))
        if step.op == "copy":
            return own[0]
        if step.op == "compare":
            return compare(em, step.word, own[0], own[1], source)
        if step.op == "cast":
            return convert(em, own[0], source, step.result, self.halves)
        if step.op == "where":
            return em.select(own[0], own[1], own[2])
        found = emit_elementwise(em, step.op, own, type, element=source if is_unsigned(source) else "")
        if step.rounds and step.result in HALVES:
            return self.halves.widen(self.halves.narrow(found, step.result))
        return found


def _stored(element: str) -> str:
    """The type of what memory holds as vectors are read of it."""
    return "i8" if element == "i1" or element in FLOAT8 else element.removeprefix("u")


GENERATORS = (Generator("broadcast", "broadcast", configure_broadcast, emit_broadcast),)
