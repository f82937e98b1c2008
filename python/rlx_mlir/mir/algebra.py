# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A small algebra of functions of elements, in which each is written once.

A formula is a Python function of symbolic numbers, which is traced:

    SILU = formula(lambda x: x / (exp(-x) + 1))

What it means is up to who runs it. `Formula.run` hands the steps, one after the other, to a function that computes one
step: on numpy arrays (`evaluate`), on scalars in the bodies of linalg (`mir.scalars`), on vectors of kernel templates
(`codegen.program`). Steps stay in the order in which they were written, so that code comes out in that order, too.
Nothing here needs MLIR.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

T = TypeVar("T")


@dataclass(frozen=True)
class Primitive:
    """A function that formulas are made of beside arithmetic.

    Attributes:
        name: of the operation of MLIR's math dialect, without `math.`.
        numpy: the same on arrays.
        expansion: the same by other steps, for code that has no such operation.
        arity: the number of operands.
    """

    name: str
    numpy: Callable[..., np.ndarray]
    expansion: Formula | None = None
    arity: int = 1

    def __call__(self, *operands: Number) -> Symbol:
        """The function of symbolic numbers."""
        return _step(self, *operands)


Op = str | Primitive
"""What a step does: a primitive, or one of `ARITHMETIC`."""


def _fma(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """a b + c of f32: the product is exact in f64."""
    return np.asarray(np.float64(a) * np.float64(b) + np.float64(c)).astype(np.float32)


def _quotient(a: npt.NDArray[np.integer], b: npt.NDArray[np.integer]) -> np.ndarray:
    """a / b of integers, rounded towards 0."""
    down = np.floor_divide(a, b)
    return down + ((down * b != a) & ((a < 0) != (b < 0)))


#: On numpy arrays. NaN wins in max and min. `fma` is a b + c of f32, rounded once; `multiply_add` once or twice, as is
#: cheaper. `less` and `equal` are conditions, false for NaN; `select` takes one of two values by it.
#:
#: Conditions and integers have `and`, `or` and `xor`, bit by bit. Integers have `quotient`, which is rounded towards 0,
#: and `remainder`, what that leaves; they are by no 0 and no -1. Other steps wrap around.
ARITHMETIC: dict[str, Callable[..., np.ndarray]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "neg": np.negative,
    "max": np.maximum,
    "min": np.minimum,
    "less": np.less,
    "equal": np.equal,
    "select": np.where,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "quotient": _quotient,
    "remainder": np.fmod,
    "multiply_add": lambda a, b, c: a * b + c,
    "fma": _fma,
}


@dataclass(frozen=True)
class Ref:
    """The value number `index`: arguments come first, then the steps' values."""

    index: int


@dataclass(frozen=True)
class Step:
    """One operation of a formula; an operand is a number, or `Ref` of an argument or an earlier step."""

    op: Op
    operands: tuple[Ref | float, ...]


@dataclass(frozen=True)
class Formula:
    """A function of elements: steps in order, and which value is the result."""

    arguments: int
    steps: tuple[Step, ...]
    result: Ref | float

    def run(self, compute: Callable[[Op, Sequence[T | float]], T], *arguments: T) -> T | float:
        """The result, computed step by step.

        Args:
            compute: one step from its operands, some of which may be numbers.
            arguments: the formula's.
        """
        if len(arguments) != self.arguments:
            raise ValueError(f"a formula of {self.arguments} arguments got {len(arguments)}")
        values: list[T] = list(arguments)

        def operand(ref: Ref | float) -> T | float:
            return values[ref.index] if isinstance(ref, Ref) else ref

        for step in self.steps:
            values.append(compute(step.op, [operand(ref) for ref in step.operands]))
        return operand(self.result)

    def evaluate(self, *arguments: np.ndarray) -> np.ndarray:
        """The result on numpy arrays of one type, in which every step is computed."""
        dtype = arguments[0].dtype

        def compute(op: Op, operands: Sequence[np.ndarray | float]) -> np.ndarray:
            arrays = [x if isinstance(x, np.ndarray) else dtype.type(x) for x in operands]
            return np.asarray((op.numpy if isinstance(op, Primitive) else ARITHMETIC[op])(*arrays))

        found = self.run(compute, *arguments)
        return found if isinstance(found, np.ndarray) else np.full_like(arguments[0], found)


class _Trace:
    """The steps of a formula, as they are written."""

    def __init__(self, arguments: int) -> None:
        self.arguments = [Symbol(self, Ref(i)) for i in range(arguments)]
        self.steps: list[Step] = []

    def append(self, op: Op, operands: Sequence[Number]) -> Symbol:
        self.steps.append(Step(op, tuple(_operand(x) for x in operands)))
        return Symbol(self, Ref(len(self.arguments) + len(self.steps) - 1))


class Symbol:
    """A symbolic number: an argument of the formula that is traced, or the value of one of its steps."""

    def __init__(self, trace: _Trace, ref: Ref) -> None:
        self.trace = trace
        self.ref = ref

    def __add__(self, other: Number) -> Symbol:
        return _step("add", self, other)

    def __radd__(self, other: float) -> Symbol:
        return _step("add", other, self)

    def __sub__(self, other: Number) -> Symbol:
        return _step("sub", self, other)

    def __rsub__(self, other: float) -> Symbol:
        return _step("sub", other, self)

    def __mul__(self, other: Number) -> Symbol:
        return _step("mul", self, other)

    def __rmul__(self, other: float) -> Symbol:
        return _step("mul", other, self)

    def __truediv__(self, other: Number) -> Symbol:
        return _step("div", self, other)

    def __rtruediv__(self, other: float) -> Symbol:
        return _step("div", other, self)

    def __neg__(self) -> Symbol:
        return _step("neg", self)

    def __lt__(self, other: Number) -> Symbol:
        return _step("less", self, other)

    def __and__(self, other: Number) -> Symbol:
        return _step("and", self, other)

    def __or__(self, other: Number) -> Symbol:
        return _step("or", self, other)

    def __xor__(self, other: Number) -> Symbol:
        return _step("xor", self, other)


Number = Symbol | float


def _operand(x: Number) -> Ref | float:
    return x.ref if isinstance(x, Symbol) else float(x)


def _step(op: Op, *operands: Number) -> Symbol:
    """A further step of the formula that the operands belong to."""
    return next(x.trace for x in operands if isinstance(x, Symbol)).append(op, operands)


def maximum(x: Number, y: Number) -> Symbol:
    """The larger of two; NaN where one is NaN."""
    return _step("max", x, y)


def minimum(x: Number, y: Number) -> Symbol:
    """The smaller of two; NaN where one is NaN."""
    return _step("min", x, y)


def equal(x: Number, y: Number) -> Symbol:
    """Whether two numbers are equal."""
    return _step("equal", x, y)


def quotient(x: Number, y: Number) -> Symbol:
    """The quotient of integers, rounded towards 0; y is neither 0 nor -1."""
    return _step("quotient", x, y)


def remainder(x: Number, y: Number) -> Symbol:
    """What the quotient leaves of x; y is neither 0 nor -1."""
    return _step("remainder", x, y)


def select(condition: Symbol, on_true: Number, on_false: Number) -> Symbol:
    """One of two by a condition."""
    return _step("select", condition, on_true, on_false)


def multiply_add(a: Number, b: Number, c: Number) -> Symbol:
    """a b + c, rounded once or twice, as is cheaper."""
    return _step("multiply_add", a, b, c)


def fma(a: Number, b: Number, c: Number) -> Symbol:
    """a b + c of f32, rounded once: what is left of a product that was rounded."""
    return _step("fma", a, b, c)


def polynomial(x: Symbol, coefficients: Sequence[float]) -> Symbol:
    """c_0 + c_1 x + c_2 x^2 + ..., by Horner's rule; there are two coefficients at least."""
    total: Number = coefficients[-1]
    for coefficient in coefficients[-2::-1]:
        total = total * x + coefficient
    assert isinstance(total, Symbol)
    return total


def formula(function: Callable[..., Number]) -> Formula:
    """The formula that a Python function of symbolic numbers writes."""
    arity = function.arity if isinstance(function, Primitive) else len(inspect.signature(function).parameters)
    trace = _Trace(arity)
    result = function(*trace.arguments)
    return Formula(len(trace.arguments), tuple(trace.steps), _operand(result))
