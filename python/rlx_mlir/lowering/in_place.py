# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Whether a kernel may write a result into the memory of what it replaces."""

from __future__ import annotations

from rlx_mlir import ir
from rlx_mlir.dialects import mir
from rlx_mlir.lowering.fuse import only_user
from rlx_mlir.lowering.regions import is_carried_as
from rlx_mlir.mir.control import REGIONS
from rlx_mlir.semantics.function import is_parameter


def is_in_place(old: ir.Value, new: ir.Value) -> bool:
    """Whether memory may be overwritten: of an input that nothing else reads, whose new value is returned.

    Likewise of what a loop carries, where the step gives the new value for it.
    """
    return _is_given_up(old) and _replaces(old, new)


def _replaces(old: ir.Value, new: ir.Value) -> bool:
    """Whether a value is returned, or given by a step of a loop for what is carried, in place of an argument."""
    if old.owner.owner.operation.name in REGIONS:
        return is_carried_as(old, new)
    return _is_returned(new)


def _is_given_up(old: ir.Value) -> bool:
    return isinstance(old.owner, ir.Block) and not is_parameter(old) and only_user(old) is not None


def _is_returned(value: ir.Value) -> bool:
    return any(use.owner.name == "func.return" for use in value.uses)


def is_overwritten(update: mir.DynamicUpdateSliceOp) -> bool:
    """Whether an update writes into the memory of what it changes: that dies there.

    Of an input it is the memory of what is returned, perhaps after further updates.
    """
    old, new = update.x, update.result
    if not isinstance(old.owner, ir.Block):
        return old.owner.name not in ("mir.constant", "mir.reshape") and only_user(old) is not None
    if not _is_given_up(old):
        return False
    user = only_user(new)
    while isinstance(user, mir.DynamicUpdateSliceOp) and user.x == new:
        new = user.result
        user = only_user(new)
    return _replaces(old, new)
