# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Fourier transforms of rows, by stages of small factors that leave numbers in order (Stockham's).

Vectors hold numbers that are computed alike, so that no stage moves anything between lanes. There are two forms:

- **Lanes are parts of a row.** With L lanes and N = L M, lane b has the numbers b, b + L, b + 2 L, ... A transform of M
  vectors gives those of all lanes. A last stage multiplies them with the roots of N that they lack, and transforms L
  numbers, one of each lane: of L neighbouring vectors, which a transposition turns into L vectors of one lane each.
- **Lanes are rows**, L of them, where N isn't made of so many lanes. They are transposed into scratch, and back.

Of real rows, neighbours are the parts of N / 2 complex numbers, whose transform Z has that of the row in it:

    X[k] = (Z[k] + conj Z[N/2 - k]) / 2 + root[k] (Z[k] - conj Z[N/2 - k]) / 2i,  X[N - k] = conj X[k]

A stage goes from [radix, rest, done] to [rest, radix, done]: transforms along the first dimension, times the roots of
radix rest. Its results are written behind each other, to the other half of scratch. Roots are tables, rounded from f64.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from rlx_mlir.codegen.emit import Emitter, Index, Value, element_of, shape_of, vec
from rlx_mlir.codegen.specs import FftPart, FftSpec

from . import UnsupportedByTemplate
from .butterflies import Complex, Registers
from .gemm import transpose
from .kernel import Scratch, row_count, row_tiles, write_kernel
from .registry import Generator
from .target import ELEMENT_BITS, Target

LONGEST = 2048
"""Numbers of a row for which lanes may be rows: as many vectors of both parts stay in a cache."""


@dataclass(frozen=True)
class Plan:
    """How rows are transformed.

    Attributes:
        element: type of the parts.
        lanes: of vectors.
        by_rows: whether lanes are rows; otherwise, they are parts of one.
        radices: the factors of the vectors' number, stage by stage.
    """

    spec: FftSpec
    element: str
    lanes: int
    by_rows: bool
    radices: tuple[int, ...]

    @property
    def n(self) -> int:
        """How many complex numbers of a row are transformed."""
        return self.spec.n // 2 if self.spec.parts else self.spec.n

    @property
    def count(self) -> int:
        """How many vectors are transformed."""
        return self.n if self.by_rows else self.n // self.lanes

    @property
    def scale(self) -> float:
        """What the transform is multiplied with."""
        return self.spec.scale / 2 if self.spec.parts else self.spec.scale

    @property
    def width(self) -> int:
        """Bytes of a part."""
        return ELEMENT_BITS[self.element] // 8


def factors(n: int, most: int) -> list[int] | None:
    """Radices of stages, the largest first: 13 at most, `most` of powers of two; None where there are larger ones."""
    twos = (n & -n).bit_length() - 1
    rest, found = n >> twos, []
    step = most.bit_length() - 1
    while twos:
        bits = twos if twos <= step else 2 if twos == step + 1 else step
        found.append(1 << bits)
        twos -= bits
    for prime in (3, 5, 7, 11, 13):
        while rest % prime == 0:
            found.append(prime)
            rest //= prime
    return sorted(found, reverse=True) if rest == 1 else None


def configure(name: str, spec: FftSpec, target: Target) -> Plan:
    """How a kernel's rows are transformed; UnsupportedByTemplate for lengths with prime factors beyond 13."""
    element = "f64" if "f64" in spec.x else "f32"
    n = spec.n // 2 if spec.parts else spec.n
    # Butterflies of 8 numbers and their roots don't fit 16 registers.
    most = 8 if target.registers == 32 else 4
    found = factors(n, most)
    if n == 1 or found is None:
        raise UnsupportedByTemplate(f"{name}: transforms of {n} numbers have no template")
    lanes = target.lanes(element)
    while lanes * ELEMENT_BITS[element] >= 128:
        if n % lanes == 0 and n // lanes >= lanes:
            own = factors(n // lanes, most)
            assert own is not None, "it divides a length that has such factors"
            return Plan(spec, element, lanes, False, tuple(own))
        lanes //= 2
    if n > LONGEST or spec.parts:
        raise UnsupportedByTemplate(f"{name}: transforms of {n} numbers, which no vectors divide, have no template")
    return Plan(spec, element, target.lanes(element), True, tuple(found))


class _Rows(Protocol):
    """Rows of complex numbers in memory."""

    def read(self, row: Index, at: Index, lanes: int) -> Complex:
        """Neighbouring numbers of a row."""

    def write(self, row: Index, at: Index, value: Complex) -> None:
        """The same, to memory."""


class _Blocks:
    """Rows of f32 or f64: the real parts, then the imaginary ones."""

    def __init__(self, em: Emitter, buffer: Value, plan: Plan) -> None:
        self._em, self._buffer, self._plan = em, em.rows(buffer), plan

    def read(self, row: Index, at: Index, lanes: int) -> Complex:
        type = vec(lanes, self._plan.element)
        re, im = (self._em.vload(self._buffer, [row, at + start], type) for start in (0, self._plan.n))
        return re, im

    def write(self, row: Index, at: Index, value: Complex) -> None:
        for part, start in zip(value, (0, self._plan.n), strict=True):
            self._em.vstore(part, self._buffer, [row, at + start])


class _Pairs:
    """Rows whose parts stand side by side: of complex<f32>, or real ones, whose neighbours count as parts.

    Vectors have no complex elements: memory is addressed.
    """

    def __init__(self, em: Emitter, buffer: Value, plan: Plan) -> None:
        self._em, self._plan = em, plan
        self._start = em.address(buffer)
        self._aligned = f"{{alignment = {plan.width} : i64}}"

    def _pointer(self, row: Index, at: Index) -> Value:
        em, plan = self._em, self._plan
        number = em.cast("arith.index_cast", self._start + (row * plan.n + at) * (2 * plan.width), "i64")
        return em.op(f"llvm.inttoptr {number} : i64 to !llvm.ptr", "!llvm.ptr", "pointer")

    def read(self, row: Index, at: Index, lanes: int) -> Complex:
        em, type = self._em, vec(2 * lanes, self._plan.element)
        both = em.op(f"llvm.load {self._pointer(row, at)} {self._aligned} : !llvm.ptr -> {type}", type)
        return em.shuffle(both, both, range(0, 2 * lanes, 2)), em.shuffle(both, both, range(1, 2 * lanes, 2))

    def write(self, row: Index, at: Index, value: Complex) -> None:
        lanes = shape_of(value[0].type)[0] or 1
        both = self._em.shuffle(*value, [lane // 2 + lanes * (lane % 2) for lane in range(2 * lanes)])
        pointer = self._pointer(row, at)
        self._em.line(f"llvm.store {both}, {pointer} {self._aligned} : {both.type}, !llvm.ptr")


class _Parts:
    """Numbers in scratch, each part by itself; there is one row."""

    def __init__(self, em: Emitter, parts: Sequence[Value]) -> None:
        self._em, self.parts = em, parts

    def read(self, row: Index, at: Index, lanes: int) -> Complex:
        re, im = (self._em.vload(part, [at], vec(lanes, element_of(part.type))) for part in self.parts)
        return re, im

    def write(self, row: Index, at: Index, value: Complex) -> None:
        for own, part in zip(value, self.parts, strict=True):
            self._em.vstore(own, part, [at])


class _Transform:
    """The code of one kernel; see the module's docstring."""

    def __init__(self, em: Emitter, target: Target, name: str, plan: Plan, values: Sequence[Value]) -> None:
        self.em, self.target, self.name, self.plan = em, target, name, plan
        self.registers = Registers(em, target, plan.spec.sign)
        self.type = vec(plan.lanes, plan.element)
        self.rows = row_count(em, values[0])
        self.buffers = values

    @property
    def units(self) -> Index:
        return self.em.iceildiv(self.rows, self.plan.lanes) if self.plan.by_rows else self.rows

    def take_scratch(self, parts: Scratch) -> None:
        """A thread's scratch: vectors of both parts, twice."""
        plan = self.plan
        size = (plan.count + 1) * plan.lanes  # of a real row, there is one number more
        self.halves = [
            _Parts(self.em, [parts.take([size], plan.element, plan.width) for _ in range(2)]) for _ in range(2)
        ]

    def bind(self) -> None:
        """Makes x and the results what is read and written."""
        em, plan = self.em, self.plan
        x, *outs = self.buffers
        real = bool(plan.spec.parts)
        kind = _Pairs if real or "complex" in plan.spec.x else _Blocks
        self.x: _Rows = kind(em, x, plan)
        self.out: _Rows | None = None if real else kind(em, outs[0], plan)
        self.parts = [em.rows(out) for out in outs] if real else []
        self.tables = {}
        done = 1
        for radix in plan.radices:
            rest = plan.count // done // radix
            if rest > 1:
                exponents = np.outer(np.arange(rest), np.arange(1, radix))
                self.tables[done] = self._table(f"roots_{done}", exponents, radix * rest, -1)
            done *= radix

    def _table(self, word: str, exponents: np.ndarray, n: int, axis: int, scale: float = 1.0) -> Value:
        """Roots of n times a number, whose parts stand along an axis."""
        angles = 2 * np.pi * (exponents % n) / n
        parts = np.stack([np.cos(angles), self.plan.spec.sign * np.sin(angles)], axis) * scale
        dtype = np.float32 if self.plan.element == "f32" else np.float64
        return self.em.table(f"{self.name}.{word}", parts.astype(dtype))

    # Stages ---------------------------------------------------------------------------------------

    def run(self, unit: Index) -> None:
        """The rows of a unit."""
        if self.plan.by_rows:
            first = unit * self.plan.lanes
            self._gather(first)
            self._scatter(first, self._stages(None))
            return
        half = self._stages(unit)
        if self.out is not None:
            self._combine(unit, half, self.out)
            return
        self._combine(unit, half, self.halves[1 - half])
        self._separate(1 - half)
        self._copy_parts(unit, half)

    def _stages(self, row: Index | None) -> int:
        """Transforms the vectors of a row, or those in the first half of scratch; which half has the result."""
        half, done = 0, 1
        for radix in self.plan.radices:
            rest = self.plan.count // done // radix
            self._stage(row if done == 1 else None, half, radix, rest, done)
            half, done = 1 - half, done * radix
        return half

    def _stage(self, row: Index | None, half: int, radix: int, rest: int, done: int) -> None:
        em, own, lanes = self.em, self.registers, self.plan.lanes
        given: _Rows = self.halves[half] if row is None else self.x
        with em.loop(0, rest, hint="p") as p:
            roots = []
            for k in range(radix - 1 if rest > 1 else 0):
                re, im = (em.broadcast(em.load(self.tables[done], [p.iv, k, part]), self.type) for part in range(2))
                roots.append((re, im))
            with em.loop(0, done, hint="q") as q:
                places = [((p.iv + j * rest) * done + q.iv) * lanes for j in range(radix)]
                numbers = [given.read(0 if row is None else row, place, lanes) for place in places]
                for k, value in enumerate(own.transform(numbers)):
                    place = ((p.iv * radix + k) * done + q.iv) * lanes
                    self.halves[1 - half].write(0, place, own.times(value, roots[k - 1]) if k and roots else value)

    # Lanes that are parts of a row ----------------------------------------------------------------

    def _combine(self, row: Index, half: int, out: _Rows) -> None:
        """The last stage, from vectors of all lanes to the row; what is left over is done twice."""
        em, plan, own = self.em, self.plan, self.registers
        lanes, count, scale = plan.lanes, plan.count, plan.scale
        roots = self._table("roots", np.outer(np.arange(lanes), np.arange(count)), plan.n, 1, scale)
        with em.loop(0, count, lanes, hint="k") as loop:
            k = loop.iv if count % lanes == 0 else em.imin(loop.iv, count - lanes)
            vectors = [self.halves[half].read(0, (k + i) * lanes, lanes) for i in range(lanes)]
            turned = zip(*(transpose(em, [vector[part] for vector in vectors]) for part in range(2)), strict=True)
            numbers = []
            for b, value in enumerate(turned):
                if b == 0:
                    numbers.append(value if scale == 1 else (value[0] * scale, value[1] * scale))
                    continue
                re, im = (em.vload(roots, [b, part, k], self.type) for part in range(2))
                numbers.append(own.times(value, (re, im)))
            for c, value in enumerate(own.transform(numbers)):
                out.write(row, k + c * count, value)

    # Real rows ------------------------------------------------------------------------------------

    def _separate(self, half: int) -> None:
        """From N / 2 numbers in a half of scratch to the first N / 2 + 1 of the row's transform, in the other one."""
        em, plan, own = self.em, self.plan, self.registers
        lanes, count = plan.lanes, plan.n
        given, out = self.halves[half], self.halves[1 - half]
        roots = self._table("roots_of_row", np.arange(count), plan.spec.n, 0)
        first = given.read(0, 0, 1)
        given.write(0, count, first)
        backwards = range(lanes - 1, -1, -1)
        with em.loop(0, count, lanes, hint="k") as k:
            here = given.read(0, k.iv, lanes)
            re, im = (em.shuffle(part, part, backwards) for part in given.read(0, count - (lanes - 1) - k.iv, lanes))
            even, odd = own.plus(here, (re, -im)), own.minus(here, (re, -im))
            root = (em.vload(roots, [0, k.iv], self.type), em.vload(roots, [1, k.iv], self.type))
            out.write(0, k.iv, own.plus(even, own.times((odd[1], -odd[0]), root)))
        last = first[0] - first[1]
        out.write(0, count, (last + last, em.zero(last.type)))

    def _copy_parts(self, row: Index, half: int) -> None:
        """What is wanted of a row's transform; numbers beyond N / 2 are conjugates of those before."""
        for out, part in zip(self.parts, self.plan.spec.parts, strict=True):
            self._copy_part(row, self.halves[half].parts[part.is_imaginary], out, part)

    def _copy_part(self, row: Index, source: Value, out: Value, part: FftPart) -> None:
        em, plan = self.em, self.plan

        def forwards(at: Index, size: int) -> None:
            em.vstore(em.vload(source, [at + part.start], vec(size, plan.element)), out, [row, at])

        def mirrored(at: Index, size: int) -> None:
            value = em.vload(source, [plan.spec.n - part.start - (size - 1) - at], vec(size, plan.element))
            value = em.shuffle(value, value, range(size - 1, -1, -1))
            em.vstore(-value if part.is_imaginary else value, out, [row, at])

        kept = max(min(part.start + part.length, plan.n + 1) - part.start, 0)
        row_tiles(em, kept, (plan.lanes, 1), forwards)
        row_tiles(em, part.length, (plan.lanes, 1), mirrored, done=kept)

    # Lanes that are rows --------------------------------------------------------------------------

    def _gather(self, first: Index) -> None:
        """Numbers of neighbouring rows into the first half of scratch; beyond the last row, those of that."""
        em, lanes = self.em, self.plan.lanes
        rows = [em.imin(first + lane, self.rows - 1) for lane in range(lanes)]

        def copy(at: Index, size: int) -> None:
            numbers = [self.x.read(row, at, size) for row in rows]
            for part, buffer in enumerate(self.halves[0].parts):
                given = [number[part] for number in numbers]
                if size > 1:
                    for i, column in enumerate(transpose(em, given)):
                        em.vstore(column, buffer, [(at + i) * lanes])
                    continue
                for lane, value in enumerate(given):
                    em.vstore(value, buffer, [at * lanes + lane])

        row_tiles(em, self.plan.n, (lanes, 1), copy)

    def _scatter(self, first: Index, half: int) -> None:
        """The results of rows that there are."""
        em, lanes, scale, out = self.em, self.plan.lanes, self.plan.scale, self.out
        assert out is not None, "real rows aren't lanes"

        def whole(at: Index) -> list[Complex]:
            parts = []
            for buffer in self.halves[half].parts:
                columns = [em.vload(buffer, [(at + i) * lanes], self.type) for i in range(lanes)]
                parts.append(transpose(em, columns if scale == 1 else [column * scale for column in columns]))
            return list(zip(*parts, strict=True))

        def single(at: Index, lane: int) -> Complex:
            re, im = self.halves[half].read(0, at * lanes + lane, 1)
            return (re, im) if scale == 1 else (re * scale, im * scale)

        def copy(at: Index, size: int) -> None:
            found = whole(at) if size > 1 else [single(at, lane) for lane in range(lanes)]
            for lane, value in enumerate(found):
                with em.if_(em.cmpi("slt", first + lane, em.index(self.rows))):
                    out.write(first + lane, at, value)

        row_tiles(em, self.plan.n, (lanes, 1), copy)


def emit_fft(name: str, plan: Plan, target: Target) -> str:
    """The functions `@name.body`, `@name.units` and `@name.scratch`, and tables, as text."""

    def made(em: Emitter, values: Sequence[Value]) -> _Transform:
        return _Transform(em, target, name, plan, values)

    def body(em: Emitter, values: list[Value], outs: list[Value], begin: Value, end: Value, parts: Scratch) -> None:
        kernel = made(em, [*values, *outs])
        kernel.take_scratch(parts)
        kernel.bind()
        with em.loop(begin, end, hint="unit") as unit:
            kernel.run(unit.iv)

    return write_kernel(
        name,
        [("x", plan.spec.x)],
        [(f"out{i}", type) for i, type in enumerate([part.out for part in plan.spec.parts] or [plan.spec.x])],
        units=lambda em, values: made(em, values).units,
        scratch=lambda em, values, parts: made(em, values).take_scratch(parts),
        body=body,
    )


GENERATORS = (Generator("fft", "fft", configure, emit_fft),)
