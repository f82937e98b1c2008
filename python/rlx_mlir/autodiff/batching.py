# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Batching: operations on one more dimension, the first, where a value depends on what is batched.

An operation without a rule is batched as what it is made of, or else one entry after the other: `mir.scan` over the
batch, which is right for every operation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from rlx_mlir import ir
from rlx_mlir.autodiff.builders import Builders
from rlx_mlir.autodiff.registry import Batched, Same, structured
from rlx_mlir.hir import place
from rlx_mlir.hir.graph import Graph, empty_module
from rlx_mlir.hir.inlining import add_argument
from rlx_mlir.hir.values import Value, ValueOrTuple
from rlx_mlir.mir.dims import Size
from rlx_mlir.mir.registry import BATCHING, COMPOSITIONS, call_arguments


@dataclass(frozen=True)
class Own:
    """What stands for a value that operations compute: with the batch as its first dimension, or without."""

    value: Value
    batched: bool

    def spread(self, m: Builders, size: Size) -> Value:
        """The value with the batch first."""
        return self.value if self.batched else m.expand(self.value, [size, *m.sizes_of(self.value)])


def batch(m: Builders, ops: Sequence[ir.Operation], given: Mapping[ir.Value, Own], size: Size) -> dict[ir.Value, Own]:
    """What stands for every value, from what stands for those that are given.

    Args:
        m: where it is built.
        ops: operations on what isn't batched, in order; of `m` or of another module of its context.
        given: what stands for each value that they read from outside.
        size: of the batch.
    """
    known = dict(given)
    for op in ops:
        with m.stemming_from(op):
            results = batched_results(m, op, [known[operand] for operand in op.operands], size)
        known.update(zip(op.results, results, strict=True))
    return known


def batched_results(m: Builders, op: ir.Operation, operands: Sequence[Own], size: Size) -> list[Own]:
    """What stands for the results of an operation."""
    given = [own.value for own in operands]
    if not any(own.batched for own in operands):
        return [Own(value, False) for value in m.copied(op, given)]
    if op.name in BATCHING:
        values, attributes = call_arguments(op, given)
        ranks = [own.value.ndim - own.batched for own in operands]
        at = Batched(op, structured(op, [own.batched for own in operands]), size, structured(op, ranks))
        found = BATCHING[op.name](m, at, *values, **attributes)
        if found is not None:
            given_back = found if isinstance(found, tuple) else (found,)
            return [Own(own.value, False) if isinstance(own, Same) else Own(own, True) for own in given_back]
    if op.name in COMPOSITIONS:
        return _composed(m, op, operands, size)
    return one_by_one(m, op, operands)


def as_parts(
    m: Builders,
    op: ir.Operation,
    operands: Sequence[Own],
    size: Size,
    scratch: Graph,
    build: Callable[[Sequence[Value]], ValueOrTuple],
) -> list[Own]:
    """An operation as what it is made of.

    Args:
        m: where it is built.
        op: the operation, on what isn't batched.
        operands: what stands for its operands.
        size: of the batch.
        scratch: an empty module, where the parts are built without a batch.
        build: builds them of operands; gives one result or several.
    """
    arguments = []
    for own, operand in zip(operands, op.operands, strict=True):
        sizes = m.sizes_of(own.value)
        arguments.append(add_argument(scratch, operand.type, tuple(sizes[1:] if own.batched else sizes)))
    built = build(arguments)
    results = [scratch._read(value) for value in (built if isinstance(built, tuple | list) else [built])]
    *parts, _ = [each.operation for each in scratch._block.operations]
    given = dict(zip(scratch._block.arguments, operands, strict=True))
    known = batch(m, parts, given, size)
    return [known[value] for value in results]


def _composed(m: Builders, op: ir.Operation, operands: Sequence[Own], size: Size) -> list[Own]:
    """An operation as its composition."""
    scratch = Builders(empty_module("parts", m._context, place.caller()))

    def build(arguments: Sequence[Value]) -> ValueOrTuple:
        values, attributes = call_arguments(op, arguments)
        with scratch.stemming_from(op):
            return COMPOSITIONS[op.name](scratch, *values, **attributes)

    return as_parts(m, op, operands, size, scratch, build)


def one_by_one(m: Builders, op: ir.Operation, operands: Sequence[Own]) -> list[Own]:
    """An operation on one entry of the batch after the other."""
    batched = [own.value for own in operands if own.batched]

    def step(*entries: Value) -> tuple[tuple[()], tuple[Value, ...]]:
        left = iter(entries)
        return (), m.copied(op, [next(left) if own.batched else own.value for own in operands])

    _, stacked = m.scan(step, (), tuple(batched))
    return [Own(value, True) for value in stacked]
