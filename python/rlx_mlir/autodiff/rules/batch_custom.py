# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Batching of operations of users' own: by the rule that is registered with them, or as what their lowerings build."""

from __future__ import annotations

from collections.abc import Sequence

from rlx_mlir import checks
from rlx_mlir.autodiff.batching import Own, as_parts
from rlx_mlir.autodiff.builders import Builders
from rlx_mlir.autodiff.registry import Batched, Same, batching
from rlx_mlir.dialects import mir
from rlx_mlir.errors import InputError
from rlx_mlir.hir import GraphModule
from rlx_mlir.hir.values import Value, ValueOrTuple
from rlx_mlir.mir.custom import registered
from rlx_mlir.own_ops import OwnOp, Parameters


@batching(mir.CustomOp)
def custom(
    m: Builders, at: Batched, *operands: Value, op: str, parameters: Parameters | None = None
) -> tuple[Value | Same, ...] | None:
    """What `batching` gives, or else the operations of its lowering; one that has only a kernel is called for each."""
    own = registered(at.op)
    given = own.parameters(parameters or {})
    if own.batching is not None:
        return _checked(m, own, at, own.batching(m, operands, tuple(at.batched), **given))
    lowering = own.lowering
    if lowering is None:
        return None
    scratch = GraphModule._empty("lowering", "mir", "direct", m._context)
    known = [Own(x, batched) for x, batched in zip(operands, at.batched, strict=True)]

    def build(arguments: Sequence[Value]) -> ValueOrTuple:
        built = lowering(scratch, *arguments, **given)
        if len(scratch._block.arguments) != len(arguments):
            raise InputError(f"'lowering' of '{own.name}' adds an input or a parameter: it has its operands only")
        return built

    found = as_parts(m, at.op, known, at.size, scratch, build)
    return tuple(each.value if each.batched else Same(each.value) for each in found)


def _checked(m: Builders, own: OwnOp, at: Batched, found: object) -> tuple[Value, ...]:
    """What a user's rule gave; InputError where it isn't the results with the batch first."""
    given = tuple(found) if isinstance(found, tuple | list) else (found,)
    if len(given) != len(at.op.results):
        raise InputError(
            f"'batching' of '{own.name}' gives {len(at.op.results)} results with the batch first, but gave {len(given)}"
        )
    for result, value in zip(at.op.results, given, strict=True):
        if not isinstance(value, Value):
            raise InputError(f"'batching' of '{own.name}' gives values, but gave {checks.shown(value)}")
        kind = value._handle.type
        if (
            kind.element_type != result.type.element_type
            or m.sizes_of(value)[:1] != [at.size]
            or (list(kind.shape)[1:] != list(result.type.shape))
        ):
            raise InputError(
                f"'batching' of '{own.name}' gives {kind} for a result that is {result.type} without the batch, of "
                f"{at.size} entries"
            )
    return given
