# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operations of users' own: by the rules that are registered with them, or else as what their lowerings build."""

from __future__ import annotations

from collections.abc import Sequence

from rlx_mlir import checks, ir
from rlx_mlir.autodiff.builders import Builders
from rlx_mlir.autodiff.forward import push_forward, transposed
from rlx_mlir.autodiff.registry import Forward, Reverse, is_differentiable, jvp, vjp, zeros_like
from rlx_mlir.autodiff.reverse import joined, pull_back
from rlx_mlir.dialects import mir
from rlx_mlir.errors import InputError, UnsupportedError
from rlx_mlir.hir.values import Value
from rlx_mlir.mir.custom import registered
from rlx_mlir.own_ops import OwnOp, Parameters

Changes = tuple[Value | None, ...]


@vjp(mir.CustomOp)
def custom(m: Builders, at: Reverse, *operands: Value, op: str, parameters: Parameters | None = None) -> Changes:
    """What `vjp` gives; without it, the cotangents go back through what the lowering builds."""
    own = registered(at.op)
    if own.vjp is None:
        parts, results = _lowered(m, own, operands, parameters, "vjp")
        changes = joined(m, zip(results, at.cotangents, strict=True))
        return tuple(pull_back(m, parts, changes, [m._read(x) for x in operands]))
    pairs = zip(at.results, at.cotangents, strict=True)
    given = tuple(zeros_like(m, y) if dy is None and is_differentiable(y._handle.type) else dy for y, dy in pairs)
    found = own.vjp(m, operands, tuple(at.results), given, **own.parameters(parameters or {}))
    return _checked(own, "vjp", found, operands, "operand")


@jvp(mir.CustomOp)
def custom_forward(
    m: Builders, at: Forward, *operands: Value, op: str, parameters: Parameters | None = None
) -> Changes:
    """What `jvp` gives; without it, the transpose of what `vjp` gives; without both, by what the lowering builds."""
    own = registered(at.op)
    if own.jvp is not None:
        found = own.jvp(m, operands, tuple(at.results), tuple(at.tangents), **own.parameters(parameters or {}))
        return _checked(own, "jvp", found, at.results, "result")
    if own.vjp is not None:
        return tuple(transposed(m, at.op, at.tangents))
    parts, results = _lowered(m, own, operands, parameters, "jvp")
    tangents = {m._read(x): t for x, t in zip(operands, at.tangents, strict=True) if t is not None}
    return tuple(push_forward(m, parts, tangents, [m._read(value) for value in results]))


def _lowered(
    m: Builders, own: OwnOp, operands: Sequence[Value], parameters: Parameters | None, rule: str
) -> tuple[list[ir.Operation], list[Value]]:
    """The operations that the lowering builds, and what it gives."""
    if own.lowering is None:
        raise UnsupportedError(
            f"'{own.name}' has no derivative: 'register_op' takes its rule as '{rule}', or a 'lowering' to go through"
        )
    with m.recording() as parts:
        built = own.lowering(m, *operands, **own.parameters(parameters or {}))
    return parts, list(built) if isinstance(built, tuple | list) else [built]


def _checked(own: OwnOp, rule: str, found: object, like: Sequence[Value], what: str) -> Changes:
    """What a user's rule gave; InputError where it isn't a value, or None, for each of `like`."""
    given = tuple(found) if isinstance(found, tuple | list) else (found,)
    if len(given) != len(like):
        raise InputError(
            f"'{rule}' of '{own.name}' gives a value or None for each of {len(like)} {what}s, but gave {len(given)}"
        )
    for number, (value, own_value) in enumerate(zip(given, like, strict=True)):
        if value is None:
            continue
        if not isinstance(value, Value):
            raise InputError(f"'{rule}' of '{own.name}' gives values and None, but gave {checks.shown(value)}")
        if value._handle.type != own_value._handle.type:
            raise InputError(
                f"'{rule}' of '{own.name}' gives {value._handle.type} for {what} {number}, which is "
                f"{own_value._handle.type}"
            )
    return given
