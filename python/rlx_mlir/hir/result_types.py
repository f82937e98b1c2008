# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Types of results that builders say beforehand, and what they ask of operands for that."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from rlx_mlir import ir
from rlx_mlir.hir import place
from rlx_mlir.hir.types import logical_shape
from rlx_mlir.hir.values import Value

__all__ = ["check_flag", "check_sequence", "context_of", "like", "product_type", "sized"]


def check_sequence(op: str, given: object, what: str) -> None:
    if isinstance(given, str) or not isinstance(given, Iterable) or getattr(given, "ndim", 1) == 0:
        raise place.caller().error(f"'{op}' expects a sequence of {what}, but got {given!r}")


def check_flag(name: str, given: object) -> None:
    if not isinstance(given, bool | np.bool_):
        raise place.caller().error(f"'{name}' is True or False, but got {given!r}"[:400])


def context_of(x: object) -> ir.Context:
    if not isinstance(x, Value):
        raise place.caller().error(f"the operand is a Value, but got {type(x).__name__} {x!r}"[:400])
    return x._graph._context


def product_type(lhs: Value, rhs: Value, element: ir.Type, *, transpose_rhs: bool) -> ir.Type:
    """The type of a matrix product, as far as the operands have one: the verifier says what is wrong with others."""
    for value in (lhs, rhs):
        context_of(value)
    check_flag("transpose_rhs", transpose_rhs)
    left, right = (logical_shape(ir.RankedTensorType(value._resolve().type)) for value in (lhs, rhs))
    outer = [shape[:-2] for shape in (left, right)]
    padded = ([1] * (max(map(len, outer)) - len(shape)) + shape for shape in outer)
    batches = [b if a == 1 or (a == -1 and b != 1) else a for a, b in zip(*padded, strict=True)]
    columns = right[-2 if transpose_rhs and len(right) > 1 else -1] if right else 1
    return like(lhs, element=element, sizes=[*batches, left[-2] if len(left) > 1 else 1, columns])


def like(x: Value, *, element: ir.Type | None = None, sizes: Sequence[int] | None = None) -> ir.Type:
    """The type of x with another element type or other sizes (-1: dynamic)."""
    context = context_of(x)
    own = ir.RankedTensorType(x._resolve().type)
    shape = logical_shape(own) if sizes is None else sizes
    return sized(shape, own.element_type if element is None else element, context)


def sized(sizes: Sequence[int], element: ir.Type, context: ir.Context) -> ir.Type:
    """A tensor type of sizes (-1: dynamic)."""
    dynamic = ir.ShapedType.get_dynamic_size()
    with context, ir.Location.unknown():
        return ir.RankedTensorType.get([dynamic if size == -1 else size for size in sizes], element)
