# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What joins the kernel of a product, a convolution or a gather: element-wise operations on what these give.

They are computed where an element is in a register already. Beside the chain that follows, a product takes

- its twin, where both feed function(a) * b;
- what the chain reads and nothing else does, such as the derivative of an activation at what was kept of it: it is
  neither written nor read again;
- a first reader of what others read, too, such as the activation of a sum that gradients need: both are results.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import takewhile

from rlx_mlir import ir
from rlx_mlir.dialects import mir
from rlx_mlir.lowering.fuse import gating, only_user
from rlx_mlir.lowering.groups import POINTWISE, PRODUCTS, ROW_WISE, fits_epilogue
from rlx_mlir.rewriting import identity

#: Operations on elements that one product takes, where it isn't their only use: the epilogue's code stays small.
MAX_FOLLOWERS = 32

Fits = Callable[[ir.Value, ir.Value], bool]


class Epilogues:
    """The operations that join products of one block.

    Args:
        block: whose operations they are.
        taken: the identities of those that have a kernel, which the caller adds to.
        alone: a product takes only what nothing else reads, and nothing beside it, as on GPUs.
    """

    def __init__(self, block: ir.Block, taken: set[int], *, alone: bool) -> None:
        self._order = {identity(op.operation): number for number, op in enumerate(block.operations)}
        self._taken, self._alone = taken, alone

    def of_product(self, op: ir.AnyOp) -> list[ir.AnyOp]:
        """A product, its twin, and what joins them; in no order."""
        if twin := _twin(op, self._taken):
            function, mul, other = twin
            return [op, other, function, mul, *followers(mul.results[0], self._taken)]
        value: ir.Value = op.results[0]
        found = [op, *followers(value, self._taken)]
        if self._alone:
            return found
        found += self._made_aside(found)
        if further := self._of_first_reader(found):
            found += further
            found += self._made_aside(found)
        return found

    def _of_first_reader(self, group: Sequence[ir.AnyOp]) -> list[ir.AnyOp]:
        """The function that reads the last value of a group before all others do, and what follows it before they do.

        Empty where something else reads it first, or not in this block. The kernel stands where the last of it did.
        """
        value = max(group, key=self._place).results[0]
        users = [use.owner.operation for use in value.uses]
        if len(users) < 2 or any(identity(user) not in self._order for user in users):
            return []
        first, *others = sorted(users, key=self._place)
        if identity(first) in self._taken or not _is_pointwise(first, value) or len(first.operands) != 1:
            return []
        chain = [first, *followers(first.results[0], self._taken)]
        return list(takewhile(lambda op: self._place(op) < self._place(others[0]), chain))

    def _made_aside(self, group: Sequence[ir.AnyOp]) -> list[ir.AnyOp]:
        """What a group reads beside its products, and nothing else does, of values that are in memory anyway."""
        members = {identity(op) for op in group}
        value = group[0].results[0]
        waiting = [v for op in group if not isinstance(op.opview, PRODUCTS) for v in op.operands]
        found: list[ir.AnyOp] = []
        while waiting:
            op = max((v.owner for v in waiting if self._may_join(v, value, members)), key=self._place, default=None)
            if op is None:
                break
            found.append(op)
            members.add(identity(op))
            waiting = [v for v in waiting if _owner(v) != identity(op)] + list(op.operands)
            if len(found) + len(group) > MAX_FOLLOWERS:
                return []
        return [] if any(_joins_its_maker(v, members) for op in found for v in op.operands) else found

    def _may_join(self, value: ir.Value, result: ir.Value, members: set[int]) -> bool:
        """Whether what makes a value can be part of a group that makes `result`, and only the group reads it."""
        owner = value.owner
        if isinstance(owner, ir.Block) or not self._is_free(owner, members):
            return False
        if not all(identity(use.owner) in members for use in value.uses):
            return False
        return _is_pointwise(owner, result) and all(fits_epilogue(v, result) for v in owner.operands)

    def _is_free(self, op: ir.AnyOp, members: set[int]) -> bool:
        own = identity(op)
        return own in self._order and own not in members and own not in self._taken

    def _place(self, op: ir.AnyOp) -> int:
        return self._order[identity(op)]


def _owner(value: ir.Value) -> int:
    return 0 if isinstance(value.owner, ir.Block) else identity(value.owner)


def _is_pointwise(op: ir.AnyOp, value: ir.Value) -> bool:
    """Whether an operation works on elements, and gives a value of another's type."""
    return op.name in POINTWISE and bool(op.results[0].type == value.type)


def _joins_its_maker(value: ir.Value, members: set[int]) -> bool:
    """Whether only the members read a value of a product or a kernel of rows, whose kernel they join otherwise."""
    owner = value.owner
    if isinstance(owner, ir.Block) or identity(owner) in members:
        return False
    makes = owner.name in ROW_WISE or isinstance(owner.opview, PRODUCTS)
    return makes and all(identity(use.owner) in members for use in value.uses)


def followers(value: ir.Value, taken: set[int], fits: Fits = fits_epilogue) -> list[ir.AnyOp]:
    """The chain of pointwise operations that only a value feeds, whose other operands an epilogue can read.

    `fits` says of an operand and the value whether it can.
    """
    ops = []
    while (user := only_user(value)) is not None:
        operation = user.operation
        if identity(operation) in taken or not _is_pointwise(operation, value):
            break
        if not all(v == value or fits(v, value) for v in operation.operands):
            break
        ops.append(operation)
        value = operation.results[0]
    return ops


def _twin(op: ir.AnyOp, taken: set[int]) -> tuple[ir.AnyOp, ir.AnyOp, ir.AnyOp] | None:
    """(function, mul, other product) where op and another product of equal kind feed function(a) * b."""
    if isinstance(op.opview, mir.FusedMatmulBiasActOp) or (found := gating(op.opview)) is None:
        return None
    mul, function, gate, up = found
    other = (up if op == gate.operation else gate).operation
    same_input = list(op.operands)[:-1] == list(other.operands)[:-1] and _attributes(op) == _attributes(other)
    same_weight = op.operands[-1 + len(op.operands)].type == other.operands[-1 + len(other.operands)].type
    if identity(other) in taken or not same_input or not same_weight or op.block != other.block:
        return None
    return function.operation, mul.operation, other


def _attributes(op: ir.AnyOp) -> Mapping[str, ir.Attribute]:
    return dict(op.attributes.items())
