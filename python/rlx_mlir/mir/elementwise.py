# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Element-wise operations: constants, functions of one element, arithmetic with broadcasting, selection, casts."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mlir.dialects import arith
from rlx_mlir.attributes import elements_array, python_value
from rlx_mlir.dialects import mir
from rlx_mlir.mir import scalars
from rlx_mlir.mir.cost import cost, per_element
from rlx_mlir.mir.dims import Size, broadcast
from rlx_mlir.mir.linalg import elementwise
from rlx_mlir.mir.numerics import F32, F64, erfc, is_float, narrow, saturate, widen
from rlx_mlir.mir.registry import TO_LINALG, dim_rule, reference
from rlx_mlir.mir.scalars import Scalar
from rlx_mlir.rewriting import Rewriter

# ----------------------------------------------------------------------------------------------------------------------
# References
# ----------------------------------------------------------------------------------------------------------------------


@reference(mir.ConstantOp)
def constant(*, value: Any) -> np.ndarray:
    """The tensor that the elements attribute holds."""
    return elements_array(value)


def sigmoid(x: np.ndarray) -> np.ndarray:
    """1 / (1 + exp(-x))"""
    return 1 / (1 + np.exp(-x))


def silu(x: np.ndarray) -> np.ndarray:
    """x / (1 + exp(-x))"""
    return x / (1 + np.exp(-x))


def gelu(x: np.ndarray) -> np.ndarray:
    """0.5 x (1 + erf(x / sqrt(2))) as 0.5 x erfc(-x / sqrt(2)), which keeps its digits for x far below 0."""
    wide = x.astype(F64)
    return np.asarray(0.5 * wide * erfc(wide * -math.sqrt(0.5))).astype(x.dtype)


def gelu_approx(x: np.ndarray) -> np.ndarray:
    """0.5 x (1 + tanh(u)), u = sqrt(2 / pi) (x + 0.044715 x^3), as x / (1 + exp(-2 u)), which keeps its digits."""
    wide = x.astype(F64)
    twice = 2 * math.sqrt(2 / math.pi) * (wide + 0.044715 * wide * wide * wide)
    return np.asarray(wide / (1 + np.exp(-twice))).astype(x.dtype)


def power(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """x^y as C's pow, elements of -inf and -0 included: numpy takes one exponent of 0.5 for a square root."""
    x, y = np.broadcast_arrays(x, y)
    pairs = (np.append(a, a.dtype.type(1)) for a in (x, y))  # with one more exponent there are several, one a base
    return np.power(*pairs)[:-1].reshape(x.shape)


#: Functions of one element, in the accumulation type, by the word of the activation enumeration.
ACTIVATIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "gelu": gelu,
    "gelu_approx": gelu_approx,
    "silu": silu,
    "relu": lambda x: np.maximum(x, x.dtype.type(0)),
    "sigmoid": sigmoid,
    "tanh": np.tanh,
    "exp": np.exp,
    "log": np.log,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "neg": np.negative,
    "abs": np.abs,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "atan": np.arctan,
    "round": np.rint,
}

UNARY_OPS: dict[str, Any] = {
    "gelu": mir.GeluOp,
    "gelu_approx": mir.GeluApproxOp,
    "silu": mir.SiluOp,
    "relu": mir.ReluOp,
    "sigmoid": mir.SigmoidOp,
    "tanh": mir.TanhOp,
    "exp": mir.ExpOp,
    "log": mir.LogOp,
    "sqrt": mir.SqrtOp,
    "rsqrt": mir.RsqrtOp,
    "neg": mir.NegOp,
    "abs": mir.AbsOp,
    "sin": mir.SinOp,
    "cos": mir.CosOp,
    "tan": mir.TanOp,
    "atan": mir.AtanOp,
    "round": mir.RoundOp,
}


def _unary(word: str) -> Callable[[np.ndarray], np.ndarray]:
    def apply(x: np.ndarray) -> np.ndarray:
        return narrow(ACTIVATIONS[word](widen(x)), x.dtype)

    return apply


for _word, _op in UNARY_OPS.items():
    reference(_op)(_unary(_word))

BINARY_OPS: dict[str, Any] = {
    "add": mir.AddOp,
    "sub": mir.SubOp,
    "mul": mir.MulOp,
    "div": mir.DivOp,
    "max": mir.MaxOp,
    "min": mir.MinOp,
    "pow": mir.PowOp,
}

_BINARY: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "max": np.maximum,
    "min": np.minimum,
    "pow": power,
}


def _binary(word: str) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    def apply(lhs: np.ndarray, rhs: np.ndarray) -> np.ndarray:
        return narrow(np.asarray(_BINARY[word](widen(lhs), widen(rhs))), lhs.dtype)

    return apply


for _word, _op in BINARY_OPS.items():
    reference(_op)(_binary(_word))

_COMPARE: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}


@reference(mir.CompareOp)
def compare(lhs: np.ndarray, rhs: np.ndarray, *, kind: str) -> np.ndarray:
    """Whether `lhs kind rhs`; false with NaN, but for `ne`."""
    return np.asarray(_COMPARE[kind](widen(lhs), widen(rhs)))


@reference(mir.WhereOp)
def where(condition: np.ndarray, on_true: np.ndarray, on_false: np.ndarray) -> np.ndarray:
    """`on_true` where the condition holds, else `on_false`."""
    return np.where(condition, on_true, on_false)


@reference(mir.CastOp)
def cast(x: np.ndarray, *, result_dtype: np.dtype[Any]) -> np.ndarray:
    """Conversion: floats round to nearest even, integers and floats of 8 bits saturate, to bool is `x != 0`."""
    if x.dtype == result_dtype:
        return x
    if result_dtype == np.bool_:
        return np.not_equal(widen(x), 0)
    if not is_float(result_dtype):
        return saturate(x, result_dtype)
    if is_float(x.dtype):
        return narrow(widen(x), result_dtype)
    if result_dtype == F32:
        return x.astype(F32)
    return narrow(x.astype(F64), result_dtype)


# ----------------------------------------------------------------------------------------------------------------------
# Costs
# ----------------------------------------------------------------------------------------------------------------------


cost(*UNARY_OPS.values(), *BINARY_OPS.values(), mir.CompareOp, mir.WhereOp)(per_element(1))


# ----------------------------------------------------------------------------------------------------------------------
# Dimensions
# ----------------------------------------------------------------------------------------------------------------------


@dim_rule(mir.ConstantOp)
def constant_dims(op: Any, operands: Sequence[tuple[Size, ...]]) -> tuple[Size, ...]:
    """Those of the value."""
    return tuple(Size.of(size) for size in op.result.type.shape)


@dim_rule(*UNARY_OPS.values(), mir.CastOp)
def same_dims(op: Any, operands: Sequence[tuple[Size, ...]]) -> tuple[Size, ...]:
    """Those of `x`."""
    return operands[0]


@dim_rule(*BINARY_OPS.values(), mir.CompareOp, mir.WhereOp)
def broadcast_dims(op: Any, operands: Sequence[tuple[Size, ...]]) -> tuple[Size, ...]:
    """Those of all operands, broadcast."""
    return broadcast(*operands)


# ----------------------------------------------------------------------------------------------------------------------
# Lowering to linalg
# ----------------------------------------------------------------------------------------------------------------------


@TO_LINALG.pattern(mir.ConstantOp)
def lower_constant(op: Any, rewriter: Rewriter) -> None:
    """constant value -> arith.constant value"""
    rewriter.replace(op, arith.ConstantOp(op.result.type, op.value))


def _lower_unary(word: str) -> Callable[[Any, Rewriter], None]:
    def lower(op: Any, rewriter: Rewriter) -> None:
        rewriter.replace(op, elementwise(op.result.type, [op.x], scalars.ACTIVATIONS[word]))

    lower.__name__ = f"lower_{word}"
    return lower


for _word, _op in UNARY_OPS.items():
    TO_LINALG.pattern(_op)(_lower_unary(_word))

_BINARY_SCALARS: dict[str, Callable[[Scalar, Scalar], Scalar]] = {
    "add": lambda lhs, rhs: lhs + rhs,
    "sub": lambda lhs, rhs: lhs - rhs,
    "mul": lambda lhs, rhs: lhs * rhs,
    "div": lambda lhs, rhs: lhs / rhs,
    "max": lambda lhs, rhs: lhs.max(rhs),
    "min": lambda lhs, rhs: lhs.min(rhs),
    "pow": scalars.power,
}


def _lower_binary(word: str) -> Callable[[Any, Rewriter], None]:
    def lower(op: Any, rewriter: Rewriter) -> None:
        rewriter.replace(op, elementwise(op.result.type, [op.lhs, op.rhs], _BINARY_SCALARS[word]))

    lower.__name__ = f"lower_{word}"
    return lower


for _word, _op in BINARY_OPS.items():
    TO_LINALG.pattern(_op)(_lower_binary(_word))


@TO_LINALG.pattern(mir.CompareOp)
def lower_compare(op: Any, rewriter: Rewriter) -> None:
    """compare(lhs, rhs) -> generic: arith.cmp of each pair"""
    kind = python_value(op.kind)
    rewriter.replace(op, elementwise(op.result.type, [op.lhs, op.rhs], lambda lhs, rhs: lhs.compare(kind, rhs)))


@TO_LINALG.pattern(mir.WhereOp)
def lower_where(op: Any, rewriter: Rewriter) -> None:
    """where(c, x, y) -> generic: arith.select of each triple"""
    operands = [op.condition, op.on_true, op.on_false]
    rewriter.replace(op, elementwise(op.result.type, operands, lambda c, x, y: c.select(x, y)))


@TO_LINALG.pattern(mir.CastOp)
def lower_cast(op: Any, rewriter: Rewriter) -> None:
    """cast(x) -> generic: conversion of each element"""
    target = op.result.type.element_type
    rewriter.replace(op, elementwise(op.result.type, [op.x], lambda x: x.to(target)))
