# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What follows a product, on GPUs: the program of `codegen.program` on accumulators at their (row, column) positions.

Functions of f32 here use the GPU's approximations of 2^x and 1/x, which are good to the last bit but one; exp takes
x log2(e) in two parts, so that it is as good for large x. Others are those of the math dialect, which expand.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial

from rlx_mlir.codegen.emit import Emitter, Index, Operand, Value, vec
from rlx_mlir.codegen.gpu.emit import DeviceEmitter
from rlx_mlir.codegen.program import RULES, Program, Rule, Unary, emit_elementwise, unary_functions

_LOG2E = math.log2(math.e)
#: log2(e) as the nearest f32, and what it leaves out.
_LOG2E_HIGH = 1.44269502162933349609375
_LOG2E_LOW = _LOG2E - _LOG2E_HIGH


def exp2_approx(em: DeviceEmitter, x: Value) -> Value:
    """2^x, of f32 scalars or vectors, with a relative error of 2^-22."""
    return em.each(lambda lane: em.pure("ex2.approx.f32 $0, $1;", [lane]), x)


def reciprocal(em: DeviceEmitter, x: Value) -> Value:
    """1 / x, of f32 scalars or vectors, to one unit in the last place; 1 / inf is 0."""
    return em.each(lambda lane: em.pure("rcp.approx.f32 $0, $1;", [lane]), x)


def rsqrt_approx(em: DeviceEmitter, x: Value) -> Value:
    """1 / sqrt(x), of f32 scalars or vectors, with a relative error of 2^-22.9."""
    return em.each(lambda lane: em.pure("rsqrt.approx.f32 $0, $1;", [lane]), x)


def exp(em: DeviceEmitter, x: Value) -> Value:
    """e^x, of f32 scalars or vectors, with a relative error of 2^-22; 0, infinity and NaN as they should be."""

    def lane(x: Value) -> Value:
        # Outside of these bounds results are 0 and infinity, and the parts of infinity would make NaN.
        bounded = em.minimumf(em.maximumf(x, -105.0), 89.0)
        high = bounded * _LOG2E_HIGH
        low = em.fmaf(bounded, _LOG2E_HIGH, -high)
        low = em.fmaf(bounded, _LOG2E_LOW, low)
        power = em.pure("ex2.approx.f32 $0, $1;", [high])
        # 2^low is 1 + low ln 2, as far as there are bits.
        return power * em.fmaf(low, math.log(2.0), 1.0)

    return em.each(lane, x)


def sigmoid(em: DeviceEmitter, x: Value) -> Value:
    """1 / (1 + e^-x), of f32 scalars or vectors."""
    return reciprocal(em, exp(em, -x) + 1.0)


def _device(em: Emitter) -> DeviceEmitter:
    assert isinstance(em, DeviceEmitter)
    return em


def _quotient(em: Emitter, x: Operand, y: Value) -> Value:
    inverse = reciprocal(_device(em), y)
    return x * inverse if isinstance(x, Value) or x != 1 else inverse


RULES_F32: Mapping[str, Rule] = {
    **RULES,
    "div": _quotient,
    "max": lambda em, x, y: em.maximumf(x, y),
    "multiply_add": lambda em, a, b, c: _device(em).fmaf(a, b, c),
    "fma": lambda em, a, b, c: _device(em).fmaf(a, b, c),
    "exp": lambda em, x: exp(_device(em), x),
}
"""The steps of formulas on f32."""

DEVICE_UNARY: Mapping[str, Unary] = {
    **unary_functions(RULES_F32),
    "to_f16": lambda em, x: _device(em).widen(_device(em).narrow(x, "f16")),
    "to_bf16": lambda em, x: _device(em).widen(_device(em).narrow(x, "bf16")),
}
"""The operations of one operand on f32, for `emit_elementwise` and `Program.emit`."""


def elementwise(em: DeviceEmitter, op: str, operands: Sequence[Value], type: str = "f32") -> Value:
    """One MIR scalar operation; see `codegen.program.emit_elementwise`."""
    return emit_elementwise(em, op, operands, type, DEVICE_UNARY)


class Epilogue:
    """Runs a product's program on its accumulators, and stores the outputs.

    Args:
        element: type of arguments and outputs: f32, f16 or bf16. Values are f32, and rounded once, when stored.
        arguments, outputs: pointers to them, in the program's order.
        columns: N, the length of a row: a number, or i32 or i64 in the kernel. Where it is a number that the count of
            columns divides, they are read and written as vectors; else element by element.
    """

    def __init__(
        self,
        em: DeviceEmitter,
        program: Program,
        element: str,
        arguments: Sequence[Value],
        outputs: Sequence[Value],
        columns: Index,
    ) -> None:
        if len(arguments) != len(program.arguments) or len(outputs) != len(program.results):
            raise ValueError(
                f"epilogue: expects {len(program.arguments)} arguments and {len(program.results)} outputs, "
                f"but got {len(arguments)} and {len(outputs)}"
            )
        self.em, self.program, self.element = em, program, element
        self.arguments, self.outputs, self.columns = list(arguments), list(outputs), columns

    def place(self, row: Index, column: Index) -> Value:
        """The element's number in [M, N], i64."""
        em = self.em
        columns = self.columns if isinstance(self.columns, int) else em.wide(self.columns)
        return em.wide(em.wide(row) * columns) + em.wide(column)

    def values(self, products: Sequence[Sequence[Value]], row: Index, column: Index) -> list[list[Value]]:
        """The outputs' values for neighbouring columns from `column` on, of one row.

        Args:
            products: of each accumulator, the values (f32) of the columns.
            row, column: i32; every element exists. Where vectors are used, the number of columns divides `column`.
        """
        em, count = self.em, len(products[0])
        loaded: dict[int, list[Value]] = {}

        def argument(number: int, lane: int) -> Value:
            if number not in loaded:
                loaded[number] = self._load(number, row, column, count)
            return loaded[number][lane]

        lanes = [
            self.program.emit(em, [own[lane] for own in products], partial(argument, lane=lane), DEVICE_UNARY)
            for lane in range(count)
        ]
        return [list(output) for output in zip(*lanes, strict=True)]

    def store(
        self, products: Sequence[Sequence[Value]], row: Index, column: Index, *, limit: Index | None = None
    ) -> None:
        """Computes and stores the outputs of neighbouring columns of one row, which exists.

        Args:
            limit: where given, columns from it on don't exist: they are neither read nor written.
        """
        em, count = self.em, len(products[0])
        if limit is None or (isinstance(limit, int) and limit % count == 0 and isinstance(column, int)):
            self._store(products, row, column)
            return
        if isinstance(limit, int) and limit % count == 0:
            # Vectors don't straddle the limit.
            with em.if_(em.cmpi("ult", column, limit)):
                self._store(products, row, column)
            return
        for lane in range(count):
            at = em.index(column + lane)
            with em.if_(em.cmpi("ult", at, limit)):
                self._store([[own[lane]] for own in products], row, at)

    def _store(self, products: Sequence[Sequence[Value]], row: Index, column: Index) -> None:
        em = self.em
        place = self.place(row, column)
        for values, output in zip(self.values(products, row, column), self.outputs, strict=True):
            if self._is_vector(len(values)):
                em.st(em.narrow(em.vector(values), self.element), output, place)
            else:
                for lane, value in enumerate(values):
                    em.st(em.narrow(value, self.element), em.at(output, place, self.element), lane)

    def _is_vector(self, count: int) -> bool:
        return count > 1 and isinstance(self.columns, int) and self.columns % count == 0

    def _load(self, number: int, row: Index, column: Index, count: int) -> list[Value]:
        """An argument's values for the columns, as f32."""
        em, base, argument = self.em, self.arguments[number], self.program.arguments[number]
        kind, element = argument.broadcast, argument.element or self.element
        if kind in ("scalar", "column"):
            value = em.widen(em.ld(base, element, 0 if kind == "scalar" else em.wide(row)))
            return [value] * count
        place = self.place(row, column) if kind == "full" else em.wide(column)
        if self._is_vector(count):
            return em.lanes(em.widen(em.ld(base, vec(count, element), place)))
        first = em.at(base, place, element)
        return [em.widen(em.ld(first, element, lane)) for lane in range(count)]
