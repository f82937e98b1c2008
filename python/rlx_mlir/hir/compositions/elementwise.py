# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Formulas of elements in the words of the builders, and gradients of functions of one element."""

from __future__ import annotations

from collections.abc import Sequence

from rlx_mlir.dialects import mir
from rlx_mlir.hir.compositions.registry import Builders, composition, narrow, wide
from rlx_mlir.hir.values import Value
from rlx_mlir.mir.algebra import Formula, Op, Primitive
from rlx_mlir.mir.backward import slope

#: The builder of each step of a formula, and of each primitive whose name it hasn't.
_BUILDERS = {
    "max": "maximum",
    "min": "minimum",
    "less": "lt",
    "equal": "eq",
    "select": "where",
    "and": "bitwise_and",
    "or": "bitwise_or",
    "xor": "bitwise_xor",
    "absf": "abs",
    "roundeven": "round",
    "powf": "pow",
}


def build_formula(m: Builders, formula: Formula, *arguments: Value) -> Value | float:
    """A formula of values, step by step; a number where it depends on none of them."""
    like = arguments[0]

    def built(word: str, *operands: Value | float) -> Value:
        if not isinstance(operands[0], Value):
            operands = (_constant(m, operands[0], like), *operands[1:])
        found: Value = getattr(m, _BUILDERS.get(word, word))(*operands)
        return found

    def compute(op: Op, operands: Sequence[Value | float]) -> Value:
        word = op.name if isinstance(op, Primitive) else op
        if word == "multiply_add":
            first, second, third = operands
            return built("add", built("mul", first, second), third)
        if word == "select":  # one of its numbers may be the only operand of their type
            return m.where(_value(operands[0]), *(_constant(m, x, like) for x in operands[1:]))
        return built(word, *operands)

    return formula.run(compute, *arguments)


def _value(x: Value | float) -> Value:
    assert isinstance(x, Value), "conditions are computed"
    return x


def _constant(m: Builders, x: Value | float, like: Value) -> Value:
    """A number as a value of another one's element type."""
    return x if isinstance(x, Value) else m.constant(x, like.dtype)


@composition(mir.ActivationBackwardOp)
def activation_backward(m: Builders, x: Value, dy: Value, *, kind: str) -> Value:
    """dy kind'(x)"""
    own, gradient = wide(m, x, dy)
    return narrow(m, m.mul(gradient, build_formula(m, slope(kind), own)), x)
