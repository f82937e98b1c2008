# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Forward mode: from tangents of what results are computed from to tangents of these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext

from rlx_mlir import ir
from rlx_mlir.autodiff.builders import Builders
from rlx_mlir.autodiff.registry import Forward, built_parts, fitted, is_differentiable, structured, zeros_like
from rlx_mlir.autodiff.reverse import joined, operand_cotangents, pull_back
from rlx_mlir.hir.values import Value
from rlx_mlir.mir.registry import JVPS, VJPS, call_arguments


def push_forward(
    m: Builders, ops: Sequence[ir.Operation], given: Mapping[ir.Value, Value], wanted: Sequence[ir.Value]
) -> list[Value | None]:
    """The tangents of values, from those of what they are computed from; arguments are as of `pull_back`.

    Gives a tangent for each of `wanted`, None where it doesn't depend on any of `given`. Those of an operation's
    results stand before the next operation, whose rule may read them where that stands.
    """
    tangents: dict[ir.Value, Value] = dict(given)
    for op, following in zip(ops, [*ops[1:], None], strict=False):
        own = [tangents.get(operand) for operand in op.operands]
        if not any(tangent is not None for tangent in own):
            continue
        if not any(is_differentiable(result.type) for result in op.results):
            continue
        with m.stemming_from(op), nullcontext() if following is None else m.before(following):
            found = result_tangents(m, op, own)
        for result, tangent in zip(op.results, found, strict=True):
            if tangent is not None:
                tangents[result] = tangents[m.latest(result)] = tangent
    return [tangents.get(value) for value in wanted]


def result_tangents(m: Builders, op: ir.Operation, own: Sequence[Value | None]) -> list[Value | None]:
    """The tangent of each result of an operation, from those of its operands; built where `m` builds."""
    if op.name in JVPS:
        values, attributes = call_arguments(op, m.values(op.operands))
        results = m.values(op.results)
        given = JVPS[op.name](m, Forward(op, results, structured(op, own)), *values, **attributes)
        pairs = zip(results, given if isinstance(given, tuple) else (given,), strict=True)
        return [None if tangent is None else fitted(m, op, tangent, result) for result, tangent in pairs]
    if op.name in VJPS:
        return transposed(m, op, own)
    parts, results = built_parts(m, op, "forward")
    known = {operand: t for operand, t in zip(op.operands, own, strict=True) if t is not None}
    return push_forward(m, parts, known, [m._read(value) for value in results])


def transposed(m: Builders, op: ir.Operation, own: Sequence[Value | None]) -> list[Value | None]:
    """Forward mode by the rule of reverse mode: its transpose at cotangents of which nothing is computed in the end."""
    places = [m._value(result) if is_differentiable(result.type) else None for result in op.results]
    at = [None if result is None else fitted(m, op, zeros_like(m, result), result) for result in places]
    with m.recording() as parts:
        found = operand_cotangents(m, op, at, [tangent is not None for tangent in own])
    by = joined(m, zip(found, own, strict=True))
    wanted = [m._read(cotangent) for cotangent in at if cotangent is not None]
    tangents = iter(pull_back(m, parts, by, wanted))
    return [None if cotangent is None else next(tangents) for cotangent in at]
