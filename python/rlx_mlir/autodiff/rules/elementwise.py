# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Functions of elements: the derivatives of their records (`mir/elementwise.py`), casts, and choices by conditions.

The gradient by a complex number z = x + i y is dL/dx + i dL/dy, as in PyTorch: of |z|^2 it is 2 z. Where a function of
complex numbers has the derivative f', the cotangent is multiplied by the conjugate of f'.
"""

from __future__ import annotations

from collections.abc import Sequence

from rlx_mlir.attributes import PythonValue
from rlx_mlir.autodiff.builders import Builders
from rlx_mlir.autodiff.registry import (
    Batched,
    Forward,
    Reverse,
    batching,
    is_differentiable,
    jvp,
    linear,
    none,
    unbroadcast,
    vjp,
)
from rlx_mlir.dialects import mir
from rlx_mlir.hir.compositions.elementwise import build_formula
from rlx_mlir.hir.compositions.registry import narrow, wide
from rlx_mlir.hir.values import Value
from rlx_mlir.mir.backward import STRAIGHT_THROUGH
from rlx_mlir.mir.functions import FUNCTIONS, Elementwise

#: Functions whose gradients have an operation of their own.
_ACTIVATIONS = frozenset(str(case) for case in mir.Activation)

# ----------------------------------------------------------------------------------------------------------------------
# Functions
# ----------------------------------------------------------------------------------------------------------------------


def _is_complex(x: Value) -> bool:
    return x.dtype.kind == "c"


def _times(m: Builders, x: Value, slope: Value | float, *, conjugate: bool) -> Value | None:
    """A change times a derivative."""
    if isinstance(slope, float):
        return x if slope == 1.0 else None if slope == 0.0 else m.neg(x) if slope == -1.0 else m.mul(x, slope)
    return m.mul(x, m.conjugate(slope) if conjugate and _is_complex(slope) else slope)


def _slope(m: Builders, word: str, y: Value, operands: Sequence[Value], number: int) -> Value | float:
    """The derivative by an operand, from the result where that is cheaper and has the digits."""
    if word == "exp":
        return y
    if word == "div" and number == 0:
        return m.div(m.constant(1.0, operands[1].dtype), operands[1])
    if word == "div":
        return m.neg(m.div(y, operands[1]))
    if word == "sqrt" and _is_complex(y):
        return m.div(m.constant(0.5, y.dtype), y)
    derivatives = FUNCTIONS[word].derivatives
    assert derivatives is not None
    return build_formula(m, derivatives[number], *operands)


def _change(
    m: Builders, word: str, change: Value, y: Value, operands: Sequence[Value], number: int, *, conjugate: bool
) -> Value | None:
    """A change of an operand, or of the result, times the derivative by that operand."""
    if word in STRAIGHT_THROUGH:
        return change
    if word == "div" and number == 0:
        by = m.conjugate(operands[1]) if conjugate and _is_complex(y) else operands[1]
        return m.div(change, by)
    if len(operands) == 1 and word not in ("exp", "neg") and not _is_complex(y):
        return _once_rounded(m, word, operands[0], change)
    return _times(m, change, _slope(m, word, y, operands, number), conjugate=conjugate)


def _once_rounded(m: Builders, word: str, x: Value, change: Value) -> Value:
    """A change times the derivative of a function of one element, rounded once."""
    if word in _ACTIVATIONS:
        return m.activation_backward(word, x, change)
    own, wide_change = wide(m, x, change)
    derivatives = FUNCTIONS[word].derivatives
    assert derivatives is not None
    return narrow(m, m.mul(wide_change, build_formula(m, derivatives[0], own)), x)


def _register(record: Elementwise) -> None:
    word = record.word

    @vjp(record.op)
    def reverse(m: Builders, at: Reverse, *operands: Value) -> tuple[Value | None, ...]:
        """The cotangent times the derivative by each operand, summed over what was repeated."""
        found: list[Value | None] = []
        for number, operand in enumerate(operands):
            own = None
            if is_differentiable(operand._handle.type):
                own = _change(m, word, at.dy, at.y, operands, number, conjugate=True)
            found.append(None if own is None else unbroadcast(m, own, operand))
        return tuple(found)

    @jvp(record.op)
    def forward(m: Builders, at: Forward, *operands: Value) -> Value | None:
        """The sum of the derivatives times the tangents."""
        total: Value | None = None
        for number, tangent in enumerate(at.tangents):
            own = None if tangent is None else _change(m, word, tangent, at.y, operands, number, conjugate=False)
            if own is not None:
                total = own if total is None else m.add(total, own)
        if total is None or total._handle.type == at.y._handle.type:
            return total
        return m.expand(total, m.sizes_of(at.y))


for _record in FUNCTIONS.values():
    if _record.derivatives is None:
        none(_record.op)
    else:
        _register(_record)

none(mir.CompareOp, mir.ConstantOp, mir.DimOp, mir.IotaOp)

# ----------------------------------------------------------------------------------------------------------------------
# Casts, choices, complex numbers
# ----------------------------------------------------------------------------------------------------------------------


@vjp(mir.CastOp)
def cast(m: Builders, at: Reverse, x: Value) -> Value | None:
    """The cotangent in the operand's type."""
    return m.cast(at.dy, x.dtype) if is_differentiable(x._handle.type) else None


@jvp(mir.CastOp)
def cast_forward(m: Builders, at: Forward, x: Value) -> Value | None:
    """The tangent in the result's type."""
    return m.cast(at.tangents[0], at.y.dtype)


@vjp(mir.WhereOp)
def where(m: Builders, at: Reverse, condition: Value, on_true: Value, on_false: Value) -> tuple[Value | None, ...]:
    """The cotangent goes to what was chosen."""
    zero = m.constant(0.0, at.dy.dtype)
    chosen, other = m.where(condition, at.dy, zero), m.where(condition, zero, at.dy)
    return None, unbroadcast(m, chosen, on_true), unbroadcast(m, other, on_false)


@jvp(mir.WhereOp)
def where_forward(m: Builders, at: Forward, condition: Value, on_true: Value, on_false: Value) -> Value:
    """The tangent of what is chosen."""
    zero = m.constant(0.0, at.y.dtype)
    own, other = (zero if tangent is None else tangent for tangent in at.tangents[1:])
    found = m.where(condition, own, other)
    return found if found._handle.type == at.y._handle.type else m.expand(found, m.sizes_of(at.y))


@vjp(mir.ComplexOp)
def complex_parts(m: Builders, at: Reverse, re: Value, im: Value) -> tuple[Value, Value]:
    """The parts of the cotangent."""
    return unbroadcast(m, m.real(at.dy), re), unbroadcast(m, m.imag(at.dy), im)


@vjp(mir.RealOp)
def real(m: Builders, at: Reverse, z: Value) -> Value:
    """The cotangent is of the real part."""
    return m.complex(at.dy, m.sub(at.dy, at.dy))


@vjp(mir.ImagOp)
def imag(m: Builders, at: Reverse, z: Value) -> Value:
    """The cotangent is of the imaginary part."""
    return m.complex(m.sub(at.dy, at.dy), at.dy)


@vjp(mir.ConjugateOp)
def conjugate(m: Builders, at: Reverse, z: Value) -> Value:
    """The conjugate of the cotangent."""
    return m.conjugate(at.dy)


@vjp(mir.ComplexNormSqOp)
def complex_norm_sq(m: Builders, at: Reverse, z: Value) -> Value:
    """2 g z"""
    return m.complex_norm_sq_backward(z, m.add(at.dy, at.dy))


@vjp(mir.ComplexNormSqBackwardOp)
def complex_norm_sq_backward(m: Builders, at: Reverse, z: Value, g: Value) -> tuple[Value, Value]:
    """Of z g: the cotangent times g, and the real part of it times the conjugate of z."""
    product = m.mul(at.dy, m.conjugate(z))
    return m.complex_norm_sq_backward(at.dy, g), m.real(product)


linear(mir.ComplexOp, by=(0, 1))
linear(mir.RealOp, mir.ImagOp, mir.ConjugateOp)

# ----------------------------------------------------------------------------------------------------------------------
# Batching
# ----------------------------------------------------------------------------------------------------------------------


def aligned(m: Builders, at: Batched, operands: Sequence[Value]) -> list[Value]:
    """Operands that are repeated along their first dimensions, with the batch before these."""
    most = max(at.ranks)
    found = []
    for value, batched, rank in zip(operands, at.batched, at.ranks, strict=True):
        if batched and rank < most:
            first, *rest = m.sizes_of(value)
            value = m.reshape(value, [first, *[1] * (most - rank), *rest])
        found.append(value)
    return found


@batching(mir.CompareOp, mir.WhereOp, *(record.op for record in FUNCTIONS.values()))
def elementwise(m: Builders, at: Batched, *operands: Value, **attributes: PythonValue) -> Value:
    """The same of each entry."""
    return m.rebuilt(at.op, aligned(m, at, operands))[0]
