# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Fourier transforms of rows, by stages of small factors that leave numbers in order (Stockham's).

Vectors hold numbers that are computed alike, so that no stage moves anything between lanes. There are two forms:

- **Lanes are parts of a row.** With L lanes and N = L M, lane b has the numbers b, b + L, b + 2 L, ... A transform of M
  vectors gives those of all lanes. A last stage multiplies them with the roots of N that they lack, and transforms L
  numbers, one of each lane: of L neighbouring vectors, which a transposition turns into L vectors of one lane each.
- **Lanes are rows**, L of them, where N isn't made of so many lanes. They are transposed into scratch, and back.

A stage goes from [radix, rest, done] to [rest, radix, done]: transforms along the first dimension, times the roots of
radix rest. Its results are written behind each other, to the other half of scratch. Roots are tables, rounded from f64.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from rlx_mlir.codegen.emit import Emitter, Index, Value, shape_of, vec
from rlx_mlir.codegen.specs import FftSpec

from . import UnsupportedByTemplate
from .butterflies import Complex, Registers
from .gemm import transpose
from .kernel import Scratch, row_tiles, write_kernel
from .registry import Generator
from .target import ELEMENT_BITS, Target

__all__ = ["emit_fft"]

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
    def count(self) -> int:
        """How many vectors are transformed."""
        return self.spec.n if self.by_rows else self.spec.n // self.lanes

    @property
    def width(self) -> int:
        """Bytes of a part."""
        return ELEMENT_BITS[self.element] // 8


def factors(n: int, most: int) -> list[int] | None:
    """Radices of stages, the largest first: 13 at most, and `most` of powers of two; None where there are larger ones."""
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
    # Butterflies of 8 numbers and their roots don't fit 16 registers.
    found = factors(spec.n, 8 if target.registers == 32 else 4)
    if spec.n == 1 or found is None:
        raise UnsupportedByTemplate(f"{name}: transforms of {spec.n} numbers have no template")
    lanes = target.lanes(element)
    while lanes > 2:
        if spec.n % lanes == 0 and spec.n // lanes >= lanes:
            own = factors(spec.n // lanes, 8 if target.registers == 32 else 4)
            assert own is not None, "it divides a length that has such factors"
            return Plan(spec, element, lanes, False, tuple(own))
        lanes //= 2
    if spec.n > LONGEST:
        raise UnsupportedByTemplate(f"{name}: transforms of {spec.n} numbers, which no vectors divide, have no template")
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
        re, im = (self._em.vload(self._buffer, [row, at + start], type) for start in (0, self._plan.spec.n))
        return re, im

    def write(self, row: Index, at: Index, value: Complex) -> None:
        for part, start in zip(value, (0, self._plan.spec.n), strict=True):
            self._em.vstore(part, self._buffer, [row, at + start])


class _Pairs:
    """Rows of complex<f32>, whose parts stand side by side. Vectors have no complex elements: memory is addressed."""

    def __init__(self, em: Emitter, buffer: Value, plan: Plan) -> None:
        self._em, self._plan = em, plan
        text = f"memref.extract_aligned_pointer_as_index {buffer} : {buffer.type} -> index"
        self._start = em.op(text, "index", "start")

    def _pointer(self, row: Index, at: Index) -> Value:
        em = self._em
        number = em.cast("arith.index_cast", self._start + (row * self._plan.spec.n + at) * 8, "i64")
        return em.op(f"llvm.inttoptr {number} : i64 to !llvm.ptr", "!llvm.ptr", "pointer")

    def read(self, row: Index, at: Index, lanes: int) -> Complex:
        em, type = self._em, vec(2 * lanes, "f32")
        both = em.op(f"llvm.load {self._pointer(row, at)} {{alignment = 4 : i64}} : !llvm.ptr -> {type}", type)
        return em.shuffle(both, both, range(0, 2 * lanes, 2)), em.shuffle(both, both, range(1, 2 * lanes, 2))

    def write(self, row: Index, at: Index, value: Complex) -> None:
        lanes = shape_of(value[0].type)[0] or 1
        both = self._em.shuffle(*value, [lane // 2 + lanes * (lane % 2) for lane in range(2 * lanes)])
        pointer = self._pointer(row, at)
        self._em.line(f"llvm.store {both}, {pointer} {{alignment = 4 : i64}} : {both.type}, !llvm.ptr")


class _Transform:
    """The code of one kernel; see the module's docstring."""

    def __init__(self, em: Emitter, target: Target, name: str, plan: Plan, values: Sequence[Value]) -> None:
        self.em, self.target, self.name, self.plan = em, target, name, plan
        self.registers = Registers(em, target, plan.spec.sign)
        self.type = vec(plan.lanes, plan.element)
        x = values[0]
        self.rows: Index = 1
        for axis in range(len(shape_of(x.type)) - 1):
            self.rows = self.rows * em.dim(x, axis)
        self.buffers = values

    @property
    def units(self) -> Index:
        return self.em.iceildiv(self.rows, self.plan.lanes) if self.plan.by_rows else self.rows

    def take_scratch(self, parts: Scratch) -> None:
        """A thread's scratch: vectors of both parts, twice."""
        plan = self.plan
        self.halves = [
            [parts.take([plan.count, plan.lanes], plan.element, plan.width) for _ in range(2)] for _ in range(2)
        ]

    def bind(self) -> None:
        """Makes x and the result what is read and written."""
        kind = _Pairs if "complex" in self.plan.spec.x else _Blocks
        self.x, self.out = (kind(self.em, buffer, self.plan) for buffer in self.buffers)
        self.tables = {}
        done = 1
        for radix in self.plan.radices:
            rest = self.plan.count // done // radix
            if rest > 1:
                exponents = np.outer(np.arange(rest), np.arange(1, radix))
                self.tables[done] = self._table(f"{self.name}.roots_{done}", exponents, radix * rest)
            done *= radix

    def _table(self, symbol: str, exponents: np.ndarray, n: int, scale: float = 1.0) -> Value:
        """Roots of n, [.., 2]: their parts."""
        angles = 2 * np.pi * (exponents % n) / n
        parts = np.stack([np.cos(angles), self.plan.spec.sign * np.sin(angles)], -1) * scale
        return self.em.table(symbol, parts.astype(np.float32 if self.plan.element == "f32" else np.float64))

    # Stages ---------------------------------------------------------------------------------------

    def _load(self, half: int, at: Index) -> Complex:
        re, im = (self.em.vload(buffer, [at, 0], self.type) for buffer in self.halves[half])
        return re, im

    def _store(self, half: int, at: Index, value: Complex) -> None:
        for part, buffer in zip(value, self.halves[half], strict=True):
            self.em.vstore(part, buffer, [at, 0])

    def run(self, unit: Index) -> None:
        """The rows of a unit."""
        if self.plan.by_rows:
            first = unit * self.plan.lanes
            self._gather(first)
            half = self._stages(None)
            self._scatter(first, half)
        else:
            self._combine(unit, self._stages(unit))

    def _stages(self, row: Index | None) -> int:
        """Transforms the vectors of a row, or those in the first half of scratch; which half has the result."""
        half, done = 0, 1
        for radix in self.plan.radices:
            rest = self.plan.count // done // radix
            self._stage(row if done == 1 else None, half, radix, rest, done)
            half, done = 1 - half, done * radix
        return half

    def _stage(self, row: Index | None, half: int, radix: int, rest: int, done: int) -> None:
        em, plan, own = self.em, self.plan, self.registers

        def read(at: Index) -> Complex:
            return self._load(half, at) if row is None else self.x.read(row, at * plan.lanes, plan.lanes)

        with em.loop(0, rest, hint="p") as p:
            roots = []
            if rest > 1:
                for k in range(radix - 1):
                    parts = (em.load(self.tables[done], [p.iv, k, part]) for part in range(2))
                    roots.append(tuple(em.broadcast(part, self.type) for part in parts))
            with em.loop(0, done, hint="q") as q:
                numbers = [read((p.iv + j * rest) * done + q.iv) for j in range(radix)]
                for k, value in enumerate(own.transform(numbers)):
                    if k and roots:
                        value = own.times(value, roots[k - 1])
                    self._store(1 - half, (p.iv * radix + k) * done + q.iv, value)

    # Lanes that are parts of a row ----------------------------------------------------------------

    def _combine(self, row: Index, half: int) -> None:
        """The last stage, from vectors of all lanes to the row; what is left over is done twice."""
        em, plan, own = self.em, self.plan, self.registers
        lanes, count = plan.lanes, plan.count
        exponents = np.outer(np.arange(lanes), np.arange(count))
        angles = 2 * np.pi * exponents / plan.spec.n
        sine = np.sin(angles) * plan.spec.sign
        table = np.stack([np.cos(angles), sine], 1) * plan.spec.scale
        dtype = np.float32 if plan.element == "f32" else np.float64
        roots = em.table(f"{self.name}.roots", table.astype(dtype))
        with em.loop(0, count, lanes, hint="k") as loop:
            k = loop.iv if count % lanes == 0 else em.imin(loop.iv, count - lanes)
            vectors = [self._load(half, k + i) for i in range(lanes)]
            turned = zip(*(transpose(em, [vector[part] for vector in vectors]) for part in range(2)), strict=True)
            numbers = []
            for b, value in enumerate(turned):
                if b == 0:
                    scale = plan.spec.scale
                    numbers.append(value if scale == 1 else (value[0] * scale, value[1] * scale))
                    continue
                re, im = (em.vload(roots, [b, part, k], self.type) for part in range(2))
                numbers.append(own.times(value, (re, im)))
            for c, value in enumerate(own.transform(numbers)):
                self.out.write(row, k + c * count, value)

    # Lanes that are rows --------------------------------------------------------------------------

    def _gather(self, first: Index) -> None:
        """Numbers of neighbouring rows into the first half of scratch; beyond the last row, those of that."""
        em, lanes = self.em, self.plan.lanes
        rows = [em.imin(first + lane, self.rows - 1) for lane in range(lanes)]

        def copy(at: Index, size: int) -> None:
            numbers = [self.x.read(row, at, size) for row in rows]
            for part, buffer in enumerate(self.halves[0]):
                given = [number[part] for number in numbers]
                if size > 1:
                    for i, column in enumerate(transpose(em, given)):
                        em.vstore(column, buffer, [at + i, 0])
                    continue
                for lane, value in enumerate(given):
                    em.vstore(value, buffer, [at, lane])

        row_tiles(em, self.plan.spec.n, (lanes, 1), copy)

    def _scatter(self, first: Index, half: int) -> None:
        """The results of rows that there are."""
        em, lanes, scale = self.em, self.plan.lanes, self.plan.spec.scale

        def whole(at: Index) -> list[Complex]:
            parts = []
            for buffer in self.halves[half]:
                columns = [em.vload(buffer, [at + i, 0], self.type) for i in range(lanes)]
                parts.append(transpose(em, columns if scale == 1 else [column * scale for column in columns]))
            return list(zip(*parts, strict=True))

        def single(at: Index, lane: int) -> Complex:
            one = vec(1, self.plan.element)
            re, im = (em.vload(buffer, [at, lane], one) for buffer in self.halves[half])
            return (re, im) if scale == 1 else (re * scale, im * scale)

        def copy(at: Index, size: int) -> None:
            found = whole(at) if size > 1 else [single(at, lane) for lane in range(lanes)]
            for lane, value in enumerate(found):
                with em.if_(em.cmpi("slt", first + lane, em.index(self.rows))):
                    self.out.write(first + lane, at, value)

        row_tiles(em, self.plan.spec.n, (lanes, 1), copy)


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
        [("out", plan.spec.x)],
        units=lambda em, values: made(em, values).units,
        scratch=lambda em, values, parts: made(em, values).take_scratch(parts),
        body=body,
    )


GENERATORS = (Generator("fft", "fft", configure, emit_fft),)
