# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Fourier transforms: by stages of small factors, other lengths as convolutions of a length that has such factors."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
from mlir.dialects import arith

from rlx_mlir import ir
from rlx_mlir.attributes import elements_attribute, python_value
from rlx_mlir.dialects import mir
from rlx_mlir.mir.cost import Cost, Sizes, cost
from rlx_mlir.mir.elementwise import same_dims
from rlx_mlir.mir.linalg import (
    Map,
    SizeLike,
    collapse,
    element_type,
    elementwise,
    empty,
    extract_slice,
    filled,
    generic,
    insert_slice,
    sizes_of,
    split_dims,
)
from rlx_mlir.mir.numerics import F32, joined_parts
from rlx_mlir.mir.registry import TO_LINALG, dim_rule, reference
from rlx_mlir.mir.scalars import Scalar, is_complex, joined
from rlx_mlir.rewriting import Rewriter

#: The largest prime factor of lengths that stages transform.
LARGEST_PRIME = 13


def transform(z: np.ndarray, *, inverse: bool, norm: Any) -> np.ndarray:
    """The transform of complex128 along the last dimension, by numpy."""
    return np.asarray((np.fft.ifft if inverse else np.fft.fft)(z, norm=norm))


@reference(mir.FftOp)
def fft(x: np.ndarray, *, inverse: bool = False, norm: str = "backward") -> np.ndarray:
    """The transform along the last dimension, rounded once; f32 and f64 hold real parts, then imaginary ones."""
    if x.dtype.kind == "c":
        return transform(x.astype(np.complex128), inverse=inverse, norm=norm).astype(np.complex64)
    half = x.shape[-1] // 2
    given = joined_parts(*(x[..., part].astype(np.float64) for part in (slice(half), slice(half, None))))
    found = transform(given, inverse=inverse, norm=norm)
    return np.concatenate([found.real, found.imag], axis=-1).astype(x.dtype)


def length_of(type: ir.Type) -> int:
    """The number of complex numbers in a row."""
    own = ir.RankedTensorType(type)
    extent = int(own.shape[-1])
    return extent if is_complex(own.element_type) else extent // 2


@cost(mir.FftOp)
def fft_cost(op: ir.AnyOp, sizes: Sizes) -> Cost:
    """5 N log2 N, as is usual, whatever the factors."""
    n = length_of(op.x.type)
    numbers = sizes.count(op.x) if is_complex(element_type(op.x)) else sizes.count(op.x) // 2
    return Cost(math.ceil(5 * math.log2(max(n, 2))) * numbers)


dim_rule(mir.FftOp)(same_dims)


# ----------------------------------------------------------------------------------------------------------------------
# Lengths and tables
# ----------------------------------------------------------------------------------------------------------------------


def radices(n: int) -> list[int] | None:
    """The factors of a length, stage by stage; None where one of them is a larger prime than stages are made for."""
    found = []
    twos = (n & -n).bit_length() - 1
    rest = n >> twos
    while twos:
        bits = 2 if twos in (2, 4) else min(twos, 3)
        found.append(1 << bits)
        twos -= bits
    for prime in (3, 5, 7, 11, LARGEST_PRIME):
        while rest % prime == 0:
            found.append(prime)
            rest //= prime
    return sorted(found, reverse=True) if rest == 1 else None


def padded_length(n: int) -> int:
    """The length of the transforms that a convolution of n numbers with 2 n - 1 takes."""
    return 1 << (2 * n - 2).bit_length()


def roots(exponents: np.ndarray, n: int, sign: int) -> np.ndarray:
    """e^(sign 2 pi i exponent / n), of exponents that are reduced first: angles stay small, and exact."""
    return np.exp(sign * 2j * np.pi * (exponents % n) / n)


def scale_of(n: int, *, inverse: bool, norm: str) -> float:
    """What a transform multiplies with."""
    if norm == "ortho":
        return 1 / math.sqrt(n)
    return 1 / n if inverse == (norm == "backward") else 1.0


@dataclass(frozen=True)
class _Table:
    """Complex numbers that are known at compile time."""

    re: ir.Value
    im: ir.Value

    @classmethod
    def of(cls, numbers: np.ndarray, type: ir.Type) -> _Table:
        dtype = F32 if str(type) == "f32" else np.dtype(np.float64)
        parts = (np.ascontiguousarray(part, dtype) for part in (numbers.real, numbers.imag))
        made = [
            arith.ConstantOp(ir.RankedTensorType.get(part.shape, type), elements_attribute(part, type)).result
            for part in parts
        ]
        return cls(*made)

    def operands(self, map: Map) -> list[tuple[ir.Value, Map]]:
        """Both parts, read at the same position."""
        return [(self.re, map), (self.im, map)]


# ----------------------------------------------------------------------------------------------------------------------
# Lowering to linalg
# ----------------------------------------------------------------------------------------------------------------------

#: A complex number by its parts.
Parts = tuple[Scalar, Scalar]


def _times(x: Parts, y: Parts) -> Parts:
    return x[0] * y[0] - x[1] * y[1], x[0] * y[1] + x[1] * y[0]


def _plus(x: Parts, y: Parts) -> Parts:
    return x[0] + y[0], x[1] + y[1]


def _pairs(scalars: Sequence[Scalar]) -> list[Parts]:
    """Real and imaginary parts in turn, as numbers. They are fast: products and sums may be contracted."""
    fast = [Scalar(x.value, fast=True) for x in scalars]
    return list(zip(fast[::2], fast[1::2], strict=True))


@dataclass(frozen=True)
class _Rows:
    """Rows of complex numbers, [..., N]: of complex<f32>, or of both parts side by side, or of each in a tensor."""

    values: tuple[ir.Value, ...]
    """One tensor, or that of the real and that of the imaginary parts."""
    lead: list[SizeLike]
    n: int

    @property
    def is_complex(self) -> bool:
        return is_complex(element_type(self.values[0]))

    @property
    def part(self) -> ir.Type:
        """The type of parts."""
        own = element_type(self.values[0])
        return own.element_type if is_complex(own) else own

    def views(self, sizes: Sequence[SizeLike]) -> list[ir.Value]:
        """The tensors, with these sizes in place of N."""
        rank = len(self.lead)
        inside = [2, *sizes] if not self.is_complex and len(self.values) == 1 else list(sizes)
        groups = [*([dim] for dim in range(rank)), list(range(rank, rank + len(inside)))]
        return [split_dims(value, groups, [*self.lead, *inside]) for value in self.values]

    def operands(self, sizes: Sequence[SizeLike], map: Map) -> list[tuple[ir.Value, Map]]:
        """What a nest reads for one number, whose position in views of these sizes is `map`: a number or two parts."""
        views, rank = self.views(sizes), len(self.lead)
        if self.is_complex or len(views) == 2:
            return [(view, map) for view in views]
        return [(views[0], [*map[:rank], ir.AffineConstantExpr.get(part), *map[rank:]]) for part in (0, 1)]

    def read(self, scalars: Sequence[Scalar]) -> list[Parts]:
        """The numbers that a body gets for such operands, one after the other."""
        return _pairs([part for z in scalars for part in (z.re, z.im)] if self.is_complex else scalars)


@dataclass(frozen=True)
class _Stage:
    """One factor of a transform: [.., r, rest, done] -> [.., rest, r, done], by DFTs of r numbers along the first.

    Numbers are multiplied with the roots of r rest that they need for what follows. After all stages, positions are
    in order: none has to be turned around.
    """

    radix: int
    rest: int
    done: int
    sign: int
    scale: float

    @property
    def is_last(self) -> bool:
        return self.rest == 1

    def run(self, rows: _Rows, write: Callable[..., _Rows]) -> _Rows:
        """The next rows, which `write` makes: of sizes, loops, operands and a body that gives a number."""
        lead = list(range(len(rows.lead)))
        p, k, q = (len(lead) + place for place in range(3))
        order = np.arange(self.radix)
        table = _Table.of(roots(np.outer(order, order), self.radix, self.sign) * self.scale, rows.part)
        sizes = [self.radix, self.rest, self.done]
        places = [ir.AffineConstantExpr.get(j) for j in range(self.radix)]
        given = [operand for j in places for operand in rows.operands(sizes, [*lead, j, p, q])]
        factors = [operand for j in places for operand in table.operands([j, k])]
        twiddles: list[tuple[ir.Value, Map]] = []
        if not self.is_last:
            own = roots(np.outer(np.arange(self.rest), order), self.radix * self.rest, self.sign)
            twiddles = _Table.of(own, rows.part).operands([p, k])

        def body(*scalars: Scalar) -> Parts:
            numbers = rows.read(scalars[: len(given)])
            weights = _pairs(scalars[len(given) : len(given) + len(factors)])
            total = reduce(_plus, map(_times, numbers, weights))
            return _times(total, _pairs(scalars[-2:])[0]) if twiddles else total

        return write([self.rest, self.radix, self.done], [*given, *factors, *twiddles], body)


class _Transform:
    """Transforms of rows of one shape."""

    def __init__(self, lead: list[SizeLike], part: ir.Type) -> None:
        self._lead, self._part = lead, part

    def parts(self, sizes: Sequence[int], operands: list[tuple[ir.Value, Map]], body: Callable[..., Parts]) -> _Rows:
        """Rows in two tensors."""
        loops = list(range(len(self._lead) + len(sizes)))
        outputs: list[tuple[ir.Value, Map]] = [(empty([*self._lead, *sizes], self._part), loops) for _ in range(2)]
        made = generic(len(loops), operands, outputs, lambda *scalars: body(*scalars[:-2]))
        return _Rows(tuple(self._flat(value, len(sizes)) for value in made), self._lead, math.prod(sizes))

    def complexes(
        self, sizes: Sequence[int], operands: list[tuple[ir.Value, Map]], body: Callable[..., Parts]
    ) -> _Rows:
        """Rows of complex<f32>."""
        loops = list(range(len(self._lead) + len(sizes)))
        output = (empty([*self._lead, *sizes], ir.ComplexType.get(self._part)), loops)
        made = generic(len(loops), operands, [output], lambda *scalars: joined(*body(*scalars[:-1])))
        return _Rows((self._flat(made, len(sizes)),), self._lead, math.prod(sizes))

    def blocks(self, sizes: Sequence[int], operands: list[tuple[ir.Value, Map]], body: Callable[..., Parts]) -> _Rows:
        """Rows with both parts side by side, each written by a nest of its own."""
        rank = len(self._lead)
        loops = list(range(rank + len(sizes)))
        made = empty([*self._lead, 2, *sizes], self._part)
        for part in range(2):
            place = ([*[0] * rank, part, *[0] * len(sizes)], [*self._lead, 1, *sizes])
            target = (extract_slice(made, *place, drop=[rank]), loops)
            own = generic(len(loops), operands, [target], lambda *scalars, part=part: body(*scalars[:-1])[part])
            made = insert_slice(own, made, *place)
        return _Rows((self._flat(made, 1 + len(sizes)),), self._lead, math.prod(sizes))

    def _flat(self, value: ir.Value, inner: int) -> ir.Value:
        rank = len(self._lead)
        return collapse(value, [*([dim] for dim in range(rank)), list(range(rank, rank + inner))])

    def by_stages(self, rows: _Rows, sign: int, scale: float, write: Callable[..., _Rows]) -> _Rows:
        """The transform of rows whose length has small factors alone."""
        found = radices(rows.n)
        assert found, "a length of one is no transform, and one with large factors a convolution"
        done = 1
        for radix in found:
            rest = rows.n // done // radix
            stage = _Stage(radix, rest, done, sign, scale if rest == 1 else 1.0)
            rows = stage.run(rows, write if rest == 1 else self.parts)
            done *= radix
        return rows

    def by_convolution(self, rows: _Rows, sign: int, scale: float, write: Callable[..., _Rows]) -> _Rows:
        """That of rows of any length, as n k = (n^2 + k^2 - (k - n)^2) / 2: a convolution with roots of 2 N, which
        transforms of a power of two make a product."""
        n, size = rows.n, padded_length(rows.n)
        squares = np.arange(n, dtype=np.int64) ** 2
        chirp = roots(squares, 2 * n, sign)
        kernel = np.zeros(size, np.complex128)
        kernel[:n] = np.conj(chirp)
        kernel[size - n + 1 :] = np.conj(chirp)[:0:-1]
        lead = list(range(len(self._lead)))
        place = [*lead, len(lead)]

        def scaled(given: _Rows, factor: np.ndarray, write: Callable[..., _Rows]) -> _Rows:
            operands = given.operands([given.n], place)
            count = len(operands)
            factors = _Table.of(factor, self._part).operands(place[-1:])
            return write(
                [len(factor)],
                [*operands, *factors],
                lambda *scalars: _times(given.read(scalars[:count])[0], _pairs(scalars[count:])[0]),
            )

        padded = self._padded(scaled(rows, chirp, self.parts), size)
        spectrum = self.by_stages(padded, -1, 1.0, self.parts)
        product = scaled(spectrum, np.fft.fft(kernel) / size, self.parts)
        found = self.by_stages(product, 1, 1.0, self.parts)
        return scaled(self._cut(found, n), chirp * scale, write)

    def _padded(self, rows: _Rows, size: int) -> _Rows:
        """Rows with zeros behind them."""
        lead, loops = self._lead, list(range(len(self._lead) + 1))
        values = []
        for value in rows.values:
            zeros = filled([*lead, size], self._part, 0)
            place = ([0] * len(loops), [*lead, rows.n])
            part = (extract_slice(zeros, *place), loops)
            own = generic(len(loops), [(value, loops)], [part], lambda x, _: x)
            values.append(insert_slice(own, zeros, *place))
        return _Rows(tuple(values), lead, size)

    def _cut(self, rows: _Rows, n: int) -> _Rows:
        """The first numbers of rows."""
        place = ([0] * (len(self._lead) + 1), [*self._lead, n])
        return _Rows(tuple(extract_slice(value, *place) for value in rows.values), self._lead, n)


@TO_LINALG.pattern(mir.FftOp)
def lower_fft(op: ir.AnyOp, rewriter: Rewriter) -> None:
    """fft(x) -> generics: DFTs of 2 to 13 numbers in stages, whose products with the roots in between are part of them;
    lengths with larger primes as a convolution of rows with roots"""
    n = length_of(op.x.type)
    sizes = sizes_of(op.x)
    if n == 1 or 0 in sizes:
        rewriter.replace(op, elementwise(op.result.type, [op.x], lambda x: x))
        return
    inverse, norm = bool(op.inverse), str(python_value(op.norm))
    rows = _Rows((op.x,), sizes[:-1], n)
    own = _Transform(rows.lead, rows.part)
    make = own.by_convolution if radices(n) is None else own.by_stages
    write = own.complexes if rows.is_complex else own.blocks
    found = make(rows, 1 if inverse else -1, scale_of(n, inverse=inverse, norm=norm), write)
    rewriter.replace(op, found.values[0])
