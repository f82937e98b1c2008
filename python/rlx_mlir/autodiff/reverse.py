# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reverse mode: from cotangents of results back to cotangents of what they are computed from.

Operations are gone through from the last to the first. What they computed is read where it is: nothing is computed
again but where a rule says so, and the planner of memory keeps what is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rlx_mlir import ir
from rlx_mlir.autodiff.builders import Builders
from rlx_mlir.autodiff.registry import Reverse, built_parts, fitted, flat, is_differentiable
from rlx_mlir.hir.values import Value
from rlx_mlir.mir.registry import VJPS, call_arguments


def pull_back(
    m: Builders, ops: Sequence[ir.Operation], given: Mapping[ir.Value, Value], wanted: Sequence[ir.Value]
) -> list[Value | None]:
    """The cotangents of values, from those of results.

    Args:
        m: the module that has the operations; cotangents are built at its end, or in the region that is open.
        ops: in order, each after those that it reads results of.
        given: cotangents of some values, of their types.
        wanted: values that operations read.

    Gives a cotangent for each of `wanted`, None where nothing of `given` depends on it. That of a value that is listed
    more than once, such as one that is two operands, is in the first place: what is given adds up. Raises InputError
    that names the operation where one on the way has no rule.
    """
    active = active_values(ops, wanted)
    cotangents = dict(given)
    kept = set(wanted)
    for op in reversed(ops):
        own = [cotangents.pop(result, None) for result in op.results]
        # What is wanted may be a result, too: its cotangent is kept.
        cotangents.update((r, c) for r, c in zip(op.results, own, strict=True) if c is not None and r in kept)
        if any(cotangent is not None for cotangent in own) and any(operand in active for operand in op.operands):
            with m.stemming_from(op):
                found = operand_cotangents(m, op, own, [operand in active for operand in op.operands])
            for operand, cotangent in zip(op.operands, found, strict=True):
                if cotangent is not None and operand in active:
                    before = cotangents.get(operand)
                    with m.stemming_from(op):
                        cotangents[operand] = cotangent if before is None else m.add(before, cotangent)
    return [cotangents.pop(value, None) for value in wanted]


def active_values(ops: Sequence[ir.Operation], wanted: Sequence[ir.Value]) -> set[ir.Value]:
    """The values of floats that depend on the wanted ones, and these."""
    active = {value for value in wanted if is_differentiable(value.type)}
    for op in ops:
        if any(operand in active for operand in op.operands):
            active.update(result for result in op.results if is_differentiable(result.type))
    return active


def operand_cotangents(
    m: Builders, op: ir.Operation, own: Sequence[Value | None], active: Sequence[bool]
) -> list[Value | None]:
    """The cotangent of each operand of an operation, from those of its results; built where `m` builds."""
    if op.name in VJPS:
        operands = m.values(op.operands)
        values, attributes = call_arguments(op, operands)
        at = Reverse(op, m.values(op.results), own, active)
        found = flat(op, VJPS[op.name](m, at, *values, **attributes))
        return [None if c is None else fitted(m, op, c, x) for x, c in zip(operands, found, strict=True)]
    parts, results = built_parts(m, op, "reverse")
    return pull_back(m, parts, joined(m, zip(results, own, strict=True)), list(op.operands))


def joined(m: Builders, changes: Iterable[tuple[Value | None, Value | None]]) -> dict[ir.Value, Value]:
    """Changes by what they are of, with the sum of those that are of the same."""
    found: dict[ir.Value, Value] = {}
    for value, change in changes:
        if value is not None and change is not None:
            handle = m._read(value)
            found[handle] = m.add(found[handle], change) if handle in found else change
    return found
