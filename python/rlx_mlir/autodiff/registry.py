# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How rules of differentiation and batching are registered, and what they are given.

Rules build with the builders of a graph, as compositions do:

    @vjp(mir.SoftmaxOp)
    def softmax(m: Builders, at: Reverse, x: Value, *, axis: int) -> Value:
        weighted = m.mul(at.dy, at.y)
        return m.sub(weighted, m.mul(at.y, m.sum(weighted, axis, keep_dims=True)))

They are called as references are: operands by position (None where an optional one is absent, a list for a variadic one
of several), attributes by keyword under their ODS names as Python values. The second argument says what is else known.

- A rule of reverse mode (`vjp`) gives a cotangent for each operand: a value of the operand's type, None for zeros, a
  tuple where there are several operands, in the structure of the operands; trailing ones may be left out. Cotangents of
  operands that nothing is differentiated by are dropped, and what computed them with them.
- A rule of forward mode (`jvp`) gives a tangent for each result, None for zeros; a tuple where there are several.
- A rule of batching (`batching`) gives the results of the operation on batches: with a further first dimension, the
  batch. Operands have it where `batched` says so. A result that is the same for all entries comes without it, as
  `Same`. A rule that doesn't know these operands gives None: the operation is batched as if it had none.

An operation without a rule that is made of others (`COMPOSITIONS`) is differentiated and batched as these; one that is
computed as a whole may be differentiated as others that it stands for (`parts`). Forward mode
goes without a rule of its own where there is one of reverse mode: that is linear in the cotangents, and its transpose,
which reverse mode gives, is forward mode.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import numpy as np

from rlx_mlir import ir
from rlx_mlir.attributes import PythonValue
from rlx_mlir.autodiff.builders import Builders
from rlx_mlir.dtypes import numpy_dtype
from rlx_mlir.errors import UnsupportedError
from rlx_mlir.hir.shapes import in_type_of
from rlx_mlir.hir.values import Value
from rlx_mlir.mir.dims import Size
from rlx_mlir.mir.packed import packing
from rlx_mlir.mir.registry import BATCHING, COMPOSITIONS, JVPS, VJPS, Registered, call_arguments

#: Something for each operand, in the structure of the operands: None where one is absent, a list for a variadic one.
Structured: TypeAlias = Sequence[Any]

Rule = TypeVar("Rule", bound=Registered)

#: Operations through which no derivative goes, by name.
CONSTANT: set[str] = set()

#: What operations that are computed as a whole are differentiated as, by name; called as compositions are.
PARTS: dict[str, Registered] = {}


@dataclass(frozen=True)
class Reverse:
    """What a rule of reverse mode knows beside the operands.

    Attributes:
        op: the operation.
        results: its results.
        cotangents: of each result; None for zeros, but not of all.
        active: of each operand, whether its cotangent is wanted: rules may save the work for others.
    """

    op: ir.Operation
    results: Sequence[Value]
    cotangents: Sequence[Value | None]
    active: Sequence[bool]

    @property
    def y(self) -> Value:
        """The first result."""
        return self.results[0]

    @property
    def dy(self) -> Value:
        """The cotangent of the only result."""
        (found,) = self.cotangents
        assert found is not None
        return found

    def dense(self, m: Builders) -> list[Value]:
        """The cotangents, with zeros for those that are None."""
        given = zip(self.results, self.cotangents, strict=True)
        return [zeros_like(m, result) if own is None else own for result, own in given]


@dataclass(frozen=True)
class Forward:
    """What a rule of forward mode knows beside the operands.

    Attributes:
        op: the operation.
        results: its results.
        tangents: of each operand, in the structure of the operands; None for zeros, but not of all.
    """

    op: ir.Operation
    results: Sequence[Value]
    tangents: Structured

    @property
    def y(self) -> Value:
        """The first result."""
        return self.results[0]


@dataclass(frozen=True)
class Batched:
    """What a rule of batching knows beside the operands, of which those that are batched have the batch first.

    Attributes:
        op: the operation, on what isn't batched.
        batched: of each operand, in the structure of the operands, whether it is batched; at least one is.
        size: of the batch.
        ranks: of each operand without the batch, in the structure of the operands.
    """

    op: ir.Operation
    batched: Structured
    size: Size
    ranks: Structured


@dataclass(frozen=True)
class Same:
    """A result of a rule of batching that has no batch: one value for all entries."""

    value: Value


def _registering(table: dict[str, Registered], ops: Sequence[type[ir.OpView]]) -> Callable[[Rule], Rule]:
    def register(rule: Rule) -> Rule:
        for op in ops:
            name = op.OPERATION_NAME
            if name in table:
                raise ValueError(f"'{name}' has a rule already")
            table[name] = rule
        return rule

    return register


def vjp(*ops: type[ir.OpView]) -> Callable[[Rule], Rule]:
    """Registers a function as the rule of reverse mode of operations."""
    return _registering(VJPS, ops)


def jvp(*ops: type[ir.OpView]) -> Callable[[Rule], Rule]:
    """Registers a function as the rule of forward mode of operations."""
    return _registering(JVPS, ops)


def batching(*ops: type[ir.OpView]) -> Callable[[Rule], Rule]:
    """Registers a function as the rule of batching of operations."""
    return _registering(BATCHING, ops)


def parts(*ops: type[ir.OpView]) -> Callable[[Rule], Rule]:
    """Registers a function as what operations are differentiated as, written as a composition is."""
    return _registering(PARTS, ops)


def made_of(op: ir.Operation) -> Registered | None:
    """What builds the operations that one is differentiated as; None where it isn't made of others."""
    return PARTS.get(op.name, COMPOSITIONS.get(op.name))


def built_parts(m: Builders, op: ir.Operation, mode: str) -> tuple[list[ir.Operation], list[Value]]:
    """Builds what an operation is differentiated as: the operations, and what stands for its results.

    Raises UnsupportedError where it isn't made of others: it has no rule of that mode.
    """
    build = made_of(op)
    if build is None:
        raise UnsupportedError(f"it has no rule of {mode} mode")
    values, attributes = call_arguments(op, m.values(op.operands))
    with m.recording() as ops:
        built = build(m, *values, **attributes)
    return ops, list(built) if isinstance(built, tuple | list) else [built]


def none(*ops: type[ir.OpView]) -> None:
    """Registers operations through which no derivative goes: their results don't depend on small changes."""
    CONSTANT.update(op.OPERATION_NAME for op in ops)
    vjp(*ops)(lambda m, at, *operands, **attributes: ())
    jvp(*ops)(lambda m, at, *operands, **attributes: (None,) * len(at.results))


def linear(*ops: type[ir.OpView], by: Sequence[int] = (0,)) -> None:
    """Registers forward mode of operations that are linear in operands: the same operation of the tangents.

    Args:
        by: those that they are linear in all together; others have no tangents.
    """

    def rule(m: Builders, at: Forward, *operands: Value | None, **attributes: PythonValue) -> tuple[Value | None, ...]:
        if all(at.tangents[number] is None for number in by):
            return (None,) * len(at.results)
        own = list(operands)
        for number in by:
            operand = operands[number]
            if operand is not None:
                tangent = at.tangents[number]
                own[number] = zeros_like(m, operand) if tangent is None else tangent
        return m.copied(at.op, [value for value in own if value is not None])

    jvp(*ops)(rule)


def multilinear(*ops: type[ir.OpView], by: Sequence[int] = (0, 1)) -> None:
    """Registers forward mode of operations that are linear in each of some operands: a sum with a term for each.

    Args:
        by: those operands; others have no tangents.
    """

    def rule(m: Builders, at: Forward, *operands: Value | None, **attributes: PythonValue) -> Value | None:
        total: Value | None = None
        for number in by:
            tangent = at.tangents[number]
            if tangent is None:
                continue
            own = [tangent if place == number else operand for place, operand in enumerate(operands)]
            (term,) = m.copied(at.op, [value for value in own if value is not None])
            total = term if total is None else m.add(total, term)
        return total

    jvp(*ops)(rule)


def structured(op: ir.Operation, entries: Sequence[object]) -> list[Any]:
    """An entry for each operand in the structure in which rules get operands."""
    return call_arguments(op, entries)[0]


def flat(op: ir.Operation, given: object) -> list[Any]:
    """What a rule gave for the operands, in the structure of them, as a list with an entry for each operand."""
    places = structured(op, range(len(op.operands)))
    found: list[Any] = [None] * len(op.operands)
    answers: Structured = list(given) if isinstance(given, tuple) else [given]
    for place, answer in zip(places, answers, strict=False):
        if isinstance(place, list):
            for each, own in zip(place, answer or [None] * len(place), strict=True):
                found[each] = own
        elif place is not None:
            found[place] = answer
    return found


def is_differentiable(type: ir.Type) -> bool:
    """Whether values of a type have derivatives: dense tensors of floats and of complex numbers."""
    if packing(type) is not None or not isinstance(type, ir.RankedTensorType):
        return False
    element = type.element_type
    return isinstance(element, ir.ComplexType) or (
        isinstance(element, ir.FloatType) and numpy_dtype(element).itemsize > 1
    )


def zeros_like(m: Builders, x: Value) -> Value:
    """Zeros of a value's type and sizes."""
    return filled(m, x, 0.0)


def ones_like(m: Builders, x: Value) -> Value:
    """Ones of a value's type and sizes."""
    return filled(m, x, 1.0)


def filled(m: Builders, x: Value, number: float) -> Value:
    """A number in each place of a value's type and sizes."""
    one = m.constant(np.asarray(number), x.dtype)
    return one if x.ndim == 0 else m.expand(one, m.sizes_of(x))


def reshaped(m: Builders, x: Value, like: Value) -> Value:
    """The elements of a value in the shape of another, and in its type: where that isn't static, this isn't either."""
    found = m.reshape(x, m.sizes_of(like))
    return found if found._handle.type == like._handle.type else in_type_of(m, x, like)


def fitted(m: Builders, op: ir.Operation, change: Value, like: Value) -> Value:
    """What a rule gave for a value, in its type: sizes that are known in one of both are those of the other, too.

    Raises AssertionError where a rule gives another type: a fault of the rule.
    """
    given, wanted = (ir.RankedTensorType(value._handle.type) for value in (change, like))
    if given == wanted:
        return change
    both = zip(change.shape, like.shape, strict=False)
    alike = given.element_type == wanted.element_type and given.rank == wanted.rank
    if not alike or any(a != b for a, b in both if isinstance(a, int) and isinstance(b, int)):
        raise AssertionError(f"the rule of '{op.name}' gives {given} for {wanted}")
    return reshaped(m, change, like)


def as_index(m: Builders, x: Value) -> Value:
    """Indices in a type that numbers of elements fit in; of floats, their whole parts, as operations take them."""
    word = "i64" if x.dtype.name in ("int64", "uint64", "uint32") else "i32"
    return x if x.dtype.name == ("int64" if word == "i64" else "int32") else m.cast(x, word)


def taken(m: Builders, table: Value, indices: Value, axis: int) -> Value:
    """Entries along a dimension that may have none: then zeros. What is outside is any number, to be masked."""
    sizes = m.sizes_of(table)
    if not sizes[axis].constant:
        zero = m.expand(m.constant(0.0, table.dtype), [*sizes[:axis], 1, *sizes[axis + 1 :]])
        table = m.concat([table, zero], axis)
    return m.gather(table, indices, axis)


def unbroadcast(m: Builders, gradient: Value, like: Value) -> Value:
    """The sum of a gradient over the dimensions along which an operand was repeated."""
    own, wanted = m.sizes_of(gradient), m.sizes_of(like)
    leading = len(own) - len(wanted)
    one = Size.of(1)
    axes = [axis for axis, size in enumerate(wanted, leading) if size == one and own[axis] != one]
    summed = m.sum(gradient, axes, keep_dims=True) if axes else gradient
    return m.sum(summed, list(range(leading))) if leading else summed


def spread(m: Builders, x: Value, like: Value, axes: Sequence[int], *, keep_dims: bool) -> Value:
    """What a reduction of `like` along axes gave, in each of the places that it was made of."""
    if not keep_dims:
        kept = [Size.of(1) if axis in axes else size for axis, size in enumerate(m.sizes_of(like))]
        x = m.reshape(x, kept)
    return m.expand(x, m.sizes_of(like))


def dims_within(x: Value, axes: Sequence[int]) -> list[int]:
    """Dimensions of a value, those counted from the end, too, as numbers from 0."""
    return [axis % x.ndim for axis in axes]
