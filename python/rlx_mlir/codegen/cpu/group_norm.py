# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Norms of groups of channels of images [N, C, H, W]. A unit is one group of one image, whose elements lie together.

A group is read twice: for its mean and variance, and where results are written; one that fits a cache comes from memory
once. The first sweep takes chunks of 32 terms for each lane, and of each the sums of differences from a number near its
elements, and of their squares:

    d = x - p,  s = sum(d),  q = sum(d^2),  p the mean of the chunk before the last one

What these lose is of the size of the squares of jumps between means of neighbouring chunks, which the variance is never
small beside. Chunks are joined in f64, as differences from the mean of the first elements:

    t = sum(n (p - first) + s),  mean = first + t / L
    u = sum(q + (p - first) (2 s + n (p - first))),  variance = u / L - (t / L)^2

The second sweep writes (x - m) / sqrt(variance + eps) * gamma + beta, with m the mean as two numbers of f32, so that a
group of one large number is 0. Results don't depend on how units are shared out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from rlx_mlir.codegen.conversions import IN_F32
from rlx_mlir.codegen.emit import Emitter, Index, Value, element_of, shape_of, with_element
from rlx_mlir.codegen.program import emit_elementwise
from rlx_mlir.codegen.specs import GroupNormSpec
from rlx_mlir.codegen.structures import pairwise

from . import UnsupportedByTemplate
from .kernel import Scratch, write_kernel
from .registry import Generator
from .sums import TURNS
from .target import Target, rounded

VECTORS = 4
"""Vectors of a group that are read side by side."""

FEWEST_PIXELS = 4
"""Pixels of an image at least: with fewer, most of a vector is of other channels."""


def configure_group_norm(name: str, spec: GroupNormSpec, target: Target) -> GroupNormSpec:
    """The kernel as it is; UnsupportedByTemplate for other types than f32, f16 and bf16, and for few pixels."""
    for kind in (spec.x, *spec.factors):
        if element_of(kind) not in IN_F32:
            raise UnsupportedByTemplate(f"{name}: norms of groups of {element_of(kind)} have no template")
    height, width = shape_of(spec.x)[2:]
    if height is not None and width is not None and height * width < FEWEST_PIXELS:
        raise UnsupportedByTemplate(
            f"{name}: expects at least {FEWEST_PIXELS} pixels, but {spec.x} has {height * width}"
        )
    return spec


def emit_group_norm(name: str, spec: GroupNormSpec, target: Target) -> str:
    """The functions `@name.body`, `@name.units` and `@name.scratch`, as text."""

    def body(em: Emitter, values: list[Value], outs: list[Value], begin: Value, end: Value, parts: Scratch) -> None:
        group = _Group(em, spec, target, [em.flat(values[0]), *values[1:], em.flat(outs[0])], values[0])
        with em.loop(begin, end, hint="unit") as unit:
            group.run(unit.iv)

    return write_kernel(
        name,
        list(zip(("x", "gamma", "beta"), (spec.x, *spec.factors), strict=False)),
        [("out", spec.x)],
        units=lambda em, values: em.dim(values[0], 0) * spec.groups,
        scratch=lambda em, values, parts: None,
        body=body,
        order=spec.order,
    )


@dataclass(frozen=True)
class _Sums:
    """What chunks have been joined to: sums of differences from the first mean and of their squares, in f64."""

    total: Value
    squares: Value


@dataclass(frozen=True)
class _Statistics:
    """Mean, as two numbers, and 1 / sqrt(variance + eps), in f32."""

    mean: Value
    rest: Value
    scale: Value


class _Group:
    """The code of one group."""

    def __init__(self, em: Emitter, spec: GroupNormSpec, target: Target, buffers: Sequence[Value], x: Value) -> None:
        self.em, self.spec, self.target = em, spec, target
        self.x, *self.factors, self.out = buffers
        self.lanes, self.type = target.lanes("f32"), target.vector("f32")
        self.narrow = with_element(self.type, element_of(spec.x))
        self.width = VECTORS * self.lanes
        self.channels = em.dim(x, 1) // spec.groups
        self.pixels = em.dim(x, 2) * em.dim(x, 3)
        self.length = self.channels * self.pixels

    def run(self, unit: Value) -> None:
        """One group of one image."""
        em = self.em
        begin, first = unit * self.length, unit % self.spec.groups * self.channels
        found = self._statistics(begin)
        with em.loop(0, self.channels, hint="channel") as channel:
            self._write(begin + channel.iv * self.pixels, first + channel.iv, found)

    # -- memory -------------------------------------------------------------------------------------------------------

    def _read(self, at: Index, mask: Value | None = None) -> Value:
        """A vector of x; zeros where the mask isn't set."""
        return self.target.widen(self.em, self.em.vload(self.x, [at], self.narrow, mask))

    def _store(self, value: Value, at: Index, mask: Value | None = None) -> None:
        self.em.vstore(rounded(self.em, self.target, value, element_of(self.spec.x)), self.out, [at], mask)

    # -- statistics ---------------------------------------------------------------------------------------------------

    def _wide(self, x: Value) -> Value:
        return self.em.cast("arith.extf", x, "f64")

    def _number(self, count: Index, type: str = "f64") -> Value:
        """A count as a float."""
        em = self.em
        if isinstance(count, int):
            return em.const(float(count), type)
        return em.cast("arith.sitofp", em.cast("arith.index_cast", count, "i64"), type)

    def _sum(self, x: Value) -> Value:
        return self.em.reduce("add", x, "reassoc")

    def _first_mean(self, begin: Index) -> Value:
        """The mean of the first elements, about: of several vectors, or of one where there are fewer."""
        em = self.em

        def several() -> Value:
            vectors = [self._read(begin + number * self.lanes) for number in range(VECTORS)]
            return self._sum(pairwise(lambda x, y: x + y, vectors)) / float(self.width)

        def one() -> Value:
            total = self._sum(self._read(begin, em.mask(self.length, self.lanes)))
            return total / self._number(em.imax(em.imin(self.length, self.lanes), 1), "f32")

        if isinstance(self.length, int):
            return several() if self.length >= self.width else one()
        with em.if_(em.cmpi("sge", self.length, self.width), "f32") as branch:
            branch.yield_(several())
            branch.else_()
            branch.yield_(one())
        return branch.result

    def _statistics(self, begin: Index) -> _Statistics:
        em, zero = self.em, self.em.const(0.0, "f64")
        first = self._first_mean(begin)
        turns = self.length // self.width
        state = ((first, first), _Sums(zero, zero))
        with em.loop(0, turns, TURNS, state, hint="chunk") as chunk:
            (near, following), sums = chunk.carry
            last = em.imin(chunk.iv + TURNS, turns)
            found = self._differences(begin, near, (chunk.iv, last))
            count = (last - chunk.iv) * self.width
            mean = near + found[0] / self._number(count, "f32")
            chunk.yield_(((following, mean), self._joined(sums, near, first, found, count)))
        (_, near), sums = chunk.result
        done = turns * self.width
        if not isinstance(self.length, int) or self.length % self.width:
            sums = self._joined(sums, near, first, self._rest(begin, near, done), self.length - done)
        count = self._number(self.length)
        offset = sums.total / count
        mean = self._wide(first) + offset
        variance = em.maximumf(sums.squares / count - offset * offset, 0.0)
        eps = float(np.float32(self.spec.eps))
        scale = 1.0 / emit_elementwise(em, "sqrt", [variance + eps], "f64")
        high = em.cast("arith.truncf", mean, "f32")
        low = em.cast("arith.truncf", mean - self._wide(high), "f32")
        return _Statistics(high, low, em.cast("arith.truncf", scale, "f32"))

    def _joined(self, sums: _Sums, near: Value, first: Value, found: tuple[Value, Value], count: Index) -> _Sums:
        """The sums with those of `count` elements, which are of differences from `near`."""
        own, squares = map(self._wide, found)
        shift = self._wide(near) - self._wide(first)
        moved = self._number(count) * shift
        return _Sums(sums.total + moved + own, sums.squares + squares + shift * (own + own + moved))

    def _step(self, x: Value, near: Value, sums: tuple[Value, Value], mask: Value | None = None) -> tuple[Value, Value]:
        """The sums with a vector's differences, and their squares."""
        em = self.em
        difference = x - near
        if mask is not None:
            difference = em.select(mask, difference, em.zero(self.type))
        return sums[0] + difference, self.target.fma(em, difference, difference, sums[1])

    def _differences(self, begin: Index, near: Value, turns: tuple[Index, Index]) -> tuple[Value, Value]:
        """The sums of differences of whole vectors, and of their squares."""
        em, zero = self.em, self.em.zero(self.type)
        number = em.broadcast(near, self.type)
        with em.loop(*turns, 1, [(zero, zero)] * VECTORS, hint="turn") as turn:
            at = begin + turn.iv * self.width
            vectors = [self._read(at + vector * self.lanes) for vector in range(VECTORS)]
            turn.yield_([self._step(x, number, sums) for x, sums in zip(vectors, turn.carry, strict=True)])
        sums, squares = (self._sum(pairwise(lambda x, y: x + y, list(each))) for each in zip(*turn.result, strict=True))
        return sums, squares

    def _rest(self, begin: Index, near: Value, done: Index) -> tuple[Value, Value]:
        """The same of the elements from `done` on, fewer than a turn has."""
        em, zero = self.em, self.em.zero(self.type)
        number, whole = em.broadcast(near, self.type), self.length // self.lanes * self.lanes
        with em.loop(done, whole, self.lanes, (zero, zero), hint="k") as k:
            k.yield_(self._step(self._read(begin + k.iv), number, k.carry))
        with em.loop(whole, self.length, self.lanes, k.result, hint="k") as end:
            mask = em.mask(self.length - end.iv, self.lanes)
            end.yield_(self._step(self._read(begin + end.iv, mask), number, end.carry, mask))
        sums, squares = map(self._sum, end.result)
        return sums, squares

    # -- results ------------------------------------------------------------------------------------------------------

    def _write(self, begin: Index, channel: Index, found: _Statistics) -> None:
        """The pixels of one channel."""
        em, lanes, pixels = self.em, self.lanes, self.pixels
        gamma, *beta = (self.target.widen(em, em.load(factor, [channel])) for factor in self.factors)
        scale = found.scale * gamma
        offset = 0.0 - found.rest * scale
        if beta:
            offset = beta[0] + offset
        mean, factor, last = (em.broadcast(number, self.type) for number in (found.mean, scale, offset))

        def pieces(start: Index, end: Index, vectors: int, mask: Callable[[Index], Value] | None = None) -> None:
            with em.loop(start, end, vectors * lanes, hint="pixel") as pixel:
                for number in range(vectors):
                    at, own = begin + pixel.iv + number * lanes, None if mask is None else mask(pixels - pixel.iv)
                    self._store(self.target.fma(em, self._read(at, own) - mean, factor, last), at, own)

        most, whole = pixels // self.width * self.width, pixels // lanes * lanes
        pieces(0, most, VECTORS)
        if not isinstance(pixels, int) or pixels % self.width >= lanes:
            pieces(most, whole, 1)
        if not isinstance(pixels, int) or pixels % lanes:
            pieces(whole, pixels, 1, lambda left: em.mask(left, lanes))


GENERATORS = (Generator("group_norm", "group_norm", configure_group_norm, emit_group_norm),)
