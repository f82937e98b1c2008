# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What patterns of `mir-raise-blocks` ask of values: which operation makes them, numbers, sizes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from rlx_mlir import ir
from rlx_mlir.attributes import elements_array, python_value
from rlx_mlir.dialects import mir
from rlx_mlir.lowering.fuse import UNARY, producer
from rlx_mlir.mir.dims import Size
from rlx_mlir.rewriting import PatternSet, Rewriter
from rlx_mlir.semantics.dims import Dims, operation_dims, propagate
from rlx_mlir.semantics.function import functions

__all__ = [
    "UNARY",
    "Raising",
    "axis_of",
    "element",
    "factors",
    "is_number",
    "near",
    "number",
    "producer",
    "same",
    "sides",
    "unrounded",
]

Pattern = Callable[[ir.AnyOp, Rewriter], None]

#: Largest relative difference of a constant from the number that it is taken for, by the element type of constants.
_NEAR = {"f16": 2.0**-10, "bf16": 2.0**-7}
_NEAR_OTHERS = 1e-6


class Raising:
    """The patterns of one run, and the sizes of the values of its module."""

    def __init__(self, module: ir.Operation) -> None:
        self.patterns = PatternSet()
        self._dims: dict[ir.Value, Dims] = {}
        for function in functions(module):
            if len(function.regions[0].blocks):
                self._dims.update(propagate(function))

    def pattern(self, *roots: type[ir.OpView]) -> Callable[[Pattern], Pattern]:
        """Adds a pattern of operations."""

        def add(rewrite: Pattern) -> Pattern:
            for root in roots:
                self.patterns.pattern(root)(rewrite)
            return rewrite

        return add

    def dims(self, value: ir.Value) -> Dims:
        """The sizes of a value's dimensions."""
        found = self._dims.get(value)
        if found is None:
            owner = value.owner.operation
            results = operation_dims(owner, [self.dims(operand) for operand in owner.operands])
            self._dims.update(zip(owner.results, results, strict=True))
            found = self._dims[value]
        return found

    def replace(self, rewriter: Rewriter, op: ir.AnyOp, value: ir.Value | ir.AnyOp) -> None:
        """Puts a value of the same sizes in the place of an operation's only result.

        Sizes may be known that types don't say. Where the value's type says less than the result's, a reshape says it;
        where it says more, the operation stays, as what reads it may say the result's type, too.
        """
        result, new = op.operation.results[0], value if isinstance(value, ir.Value) else value.result
        wanted = ir.RankedTensorType(result.type)
        if new.type != wanted:
            entries = [-2 if wanted.is_dynamic_dim(at) else size for at, size in enumerate(wanted.shape)]
            new = mir.reshape(new, new_shape=entries, like=[])
            if new.type != wanted:
                return
        self._dims.pop(result, None)  # another value may have its identity later
        rewriter.replace(op, new)

    def reshaped(self, x: ir.Value, wanted: Sequence[Size]) -> ir.Value | None:
        """x in a shape of the same number of elements; None where an operation can't say the shape.

        A reshape is read through: x may come from the value that has the shape.
        """
        source = producer(x, mir.ReshapeOp)
        for known in (x, *([source.x] if source is not None else [])):
            if tuple(self.dims(known)) == tuple(wanted):
                return known
        own = self.dims(x)
        entries: list[int] = []
        for at, size in enumerate(wanted):
            if size.constant is not None:
                entries.append(size.constant)
            else:
                entries.append(-2 if at < len(own) and own[at] == size else -1)
        if entries.count(-1) > 1:
            return None
        result: ir.Value = mir.reshape(x, new_shape=entries, like=[])
        return result

    def transposed(self, x: ir.Value, permutation: Sequence[int]) -> ir.Value:
        """Dimension i of the result is dimension `permutation[i]` of x; of two transposes that cancel, none is left."""
        inner = producer(x, mir.TransposeOp)
        if inner is not None:
            order = list(inner.permutation)
            permutation, x = [order[axis] for axis in permutation], inner.x
        if list(permutation) == list(range(len(permutation))):
            return x
        result: ir.Value = mir.transpose(x, permutation=list(permutation))
        return result


def element(value: ir.Value) -> str:
    """The word of a value's element type."""
    return str(ir.RankedTensorType(value.type).element_type)


def axis_of(op: ir.AnyOp, rank: int) -> int:
    """The axis of an operation, from 0 on."""
    return int(python_value(op.axis)) % rank


def number(value: ir.Value) -> float | None:
    """The number that each element of a value is; None where they aren't constants, or differ."""
    while (view := producer(value, mir.ReshapeOp, mir.ExpandOp)) is not None:
        value = view.x
    owner = producer(value, mir.ConstantOp)
    if owner is None:
        return None
    found = elements_array(owner.value)
    if not found.size or found.dtype.kind == "c" or not (found == found.flat[0]).all():
        return None
    return float(found.flat[0])


def near(found: float | None, wanted: float, word: str = "f32") -> bool:
    """Whether a constant is a number, but for what it is rounded to in an element type."""
    return found is not None and math.isclose(found, wanted, rel_tol=_NEAR.get(word, _NEAR_OTHERS))


def is_number(value: ir.Value, wanted: float) -> bool:
    """Whether a value is one number throughout."""
    return near(number(value), wanted)


def unrounded(value: ir.Value, word: str) -> ir.Value:
    """A value of f16 or bf16 before it was rounded to that or widened from it: readers compute functions in f32.

    Args:
        word: the element type of what is computed; of others than these two, every value is given as it is.
    """
    cast = producer(value, mir.CastOp)
    if cast is None or word not in _NEAR or {element(cast.x), element(value)} != {word, "f32"}:
        return value
    source: ir.Value = cast.x
    return source


def same(left: ir.Value, right: ir.Value, depth: int = 4) -> bool:
    """Whether two values are one, or made alike: graphs have equal operations twice before equal work is joined.

    Args:
        depth: so many operations are looked through at most.
    """
    if left == right:
        return True
    if depth == 0 or isinstance(left.owner, ir.Block) or isinstance(right.owner, ir.Block):
        return False
    first, second = left.owner.operation, right.owner.operation
    if first.name != second.name or left.type != right.type or len(first.operands) != len(second.operands):
        return False
    if len(first.results) > 1 or dict(first.attributes.items()) != dict(second.attributes.items()):
        return False
    return all(same(a, b, depth - 1) for a, b in zip(first.operands, second.operands, strict=True))


def sides(op: ir.AnyOp) -> Iterator[tuple[ir.Value, ir.Value]]:
    """Both operands, in both orders."""
    yield op.lhs, op.rhs
    yield op.rhs, op.lhs


def factors(value: ir.Value) -> tuple[float, list[ir.Value]]:
    """A product as a number and the other factors; quotients by numbers count, and changes of sign."""
    mul = producer(value, mir.MulOp, mir.DivOp, mir.NegOp)
    if mul is None:
        known = number(value)
        return (1.0, [value]) if known is None else (known, [])
    if isinstance(mul, mir.NegOp):
        total, rest = factors(mul.x)
        return -total, rest
    if isinstance(mul, mir.DivOp):
        by = number(mul.rhs)
        if not by:
            return 1.0, [value]
        total, rest = factors(mul.lhs)
        return total / by, rest
    (a, left), (b, right) = factors(mul.lhs), factors(mul.rhs)
    return a * b, [*left, *right]
