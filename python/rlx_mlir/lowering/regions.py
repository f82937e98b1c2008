# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operations with regions that become loops and choices of calls, where the kernels of their bodies pay.

A small body becomes one kernel with the loop in it. One with products, attention or convolutions keeps its region:
`mir-outline-kernels` outlines kernels in it, `lir-plan` plans its memory, and the run time takes the steps. What a step
leaves is in other memory than what it reads, and both take turns; what is updated in place stays where it is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from rlx_mlir import ir
from rlx_mlir.dialects import mir
from rlx_mlir.lowering.fuse import only_user, shape_of
from rlx_mlir.lowering.groups import PRODUCTS
from rlx_mlir.lowering.parameters import clone_into, follows_from_parameters
from rlx_mlir.mir.control import REGIONS, captured
from rlx_mlir.mir.cost import type_bytes
from rlx_mlir.rewriting import Option, compiler_pass, identity, operations
from rlx_mlir.semantics.function import viewed

#: What has kernels that a loop in one kernel can't use.
_LARGE = (*PRODUCTS, mir.AttentionOp, mir.ConvOp, mir.ConvTranspose2dOp, mir.GatedDeltaNetOp, mir.CustomOp)

#: What is a view of memory, or read as fast as its operand: it moves out of a loop only for what reads it there.
_CHEAP = frozenset({"mir.reshape", "mir.expand", "mir.constant"})

#: What may write a part of the memory of an operand.
_UPDATES = frozenset({"mir.cache_update", "mir.dynamic_update_slice", "mir.sample"})

#: What GPUs read at once, in bytes: their kernels take buffers that start at its multiples.
GPU_ALIGNMENT = 16

#: Attribute of an operation whose regions stay: what is in them gets kernels.
KEPT = "mir.kept"


def is_large(op: ir.AnyOp) -> bool:
    """Whether an operation with regions has something in them that has kernels which a loop in one can't use."""
    return any(isinstance(inner.opview, _LARGE) for inner in operations(op))


@compiler_pass(
    "mir-keep-regions",
    dependent=("mir",),
    options={
        "loops": Option("keep every mir.while too, as on GPUs: the host sees what ends it", False),
        "alignment": Option("bytes at whose multiples entries of sequences start; other scans aren't kept", 1, least=1),
    },
)
def keep_regions(module: ir.Operation, *, loops: bool, alignment: int) -> None:
    """Mark the operations with regions that stay loops and choices of calls: those with kernels for what is in them.

    Others become one kernel with the loop in it. Run before mir-outline-kernels, after fusion.
    """
    for op in operations(module, nested=False):
        _keep(op, loops, alignment)


def _keep(op: ir.Operation, loops: bool, alignment: int) -> None:
    """Marks the operation, and those in it, where it is one to be kept; in a kernel nothing is."""
    if op.name in REGIONS:
        is_wanted = is_large(op) or (loops and any(inner.name == "mir.while" for inner in (op, *operations(op))))
        if not is_wanted or not starts_at(op, alignment):
            return
        op.attributes[KEPT] = ir.UnitAttr.get()
    for inner in operations(op, nested=False):
        _keep(inner, loops, alignment)


def starts_at(op: ir.Operation, alignment: int) -> bool:
    """Whether entries of what a scan reads and gives start at multiples of so many bytes; true of other operations."""
    if op.name != "mir.scan" or alignment == 1:
        return True
    values = [*op.opview.xs, *list(op.results)[len(op.opview.inits) :]]
    kinds = [ir.RankedTensorType(value.type) for value in values]
    sizes = [math.prod(kind.shape[1:]) * type_bytes(kind.element_type) for kind in kinds]
    return all(min(kind.shape[1:], default=0) >= 0 for kind in kinds) and not any(size % alignment for size in sizes)


def is_kept(op: ir.AnyOp) -> bool:
    """Whether what is in the operation's regions gets kernels."""
    return KEPT in op.operation.attributes


def kept_blocks(entry: ir.AnyOp) -> list[ir.Block]:
    """The blocks of a function that get kernels: its own, and those of regions whose operations do, outermost first."""
    found = list(entry.operation.regions[0].blocks)
    for block in found:  # grows
        for op in block.operations:
            if is_kept(op):
                found += [region.blocks[0] for region in op.operation.regions]
    return found


def copied(value: ir.Value) -> ir.Value:
    """The same by an operation that has a kernel."""
    return mir.concat([value], axis=0) if shape_of(value) else mir.expand(value.type, value)


# -- what is in memory of its own -------------------------------------------------------------------------------------


def own_values(block: ir.Block) -> None:
    """Gives what loops begin with, and what regions give, operations of their own: others are copied.

    What is carried has memory that only the loop writes, and what a step or a branch gives is written where it belongs.
    """
    for op in [op.operation for op in block.operations if is_kept(op)]:
        if not isinstance(op.opview, mir.IfOp):
            for number in range(len(op.opview.inits)):
                if not _is_own(op.operands[number]):
                    with ir.InsertionPoint(op), op.location:
                        op.operands[number] = copied(op.operands[number])
        for region in op.regions:
            _own_yielded(op, region.blocks[0])


def _own_yielded(op: ir.Operation, block: ir.Block) -> None:
    terminator = block.operations[len(block.operations) - 1].operation
    forwards = terminator.name == "mir.condition"  # what is carried, as it is
    written: set[ir.Value] = set()
    # What is updated in place first: it would be copied before. Then entries of stacks, and what is carried last.
    numbers = range(1) if forwards else reversed(range(len(terminator.operands)))
    for number in sorted(numbers, key=lambda n: not _updates(terminator.operands[n], n)):
        value = terminator.operands[number]
        root = viewed(value)
        if (not _is_made(root) or root in written) and (forwards or _carried_at(value) != number):
            with ir.InsertionPoint(terminator), op.location:
                terminator.operands[number] = copied(value)
        written.add(root)


def _updates(value: ir.Value, number: int) -> bool:
    """Whether a value is an update of what a loop carries, and is given for it."""
    owner = value.owner
    return (
        not isinstance(owner, ir.Block)
        and owner.name in _UPDATES
        and any(_carried_at(operand) == number for operand in owner.operands)
    )


def _is_made(root: ir.Value) -> bool:
    """Whether an operation writes the value to memory."""
    return not isinstance(root.owner, ir.Block) and root.owner.name != "mir.constant"


def _is_own(value: ir.Value) -> bool:
    """Whether an operation makes the value, or one that it is a view of, for the one operation that reads it."""
    root = viewed(value)
    while only_user(value) is not None and value != root:
        value = value.owner.operands[0]
    return _is_made(root) and only_user(value) is not None


def _carried_at(value: ir.Value) -> int | None:
    """Which of the values that a loop carries an argument of its body is; None for any other value."""
    owner = value.owner
    if not isinstance(owner, ir.Block) or owner.owner.operation.name not in REGIONS or captured(value) is not None:
        return None
    op, number = owner.owner.operation.opview, ir.BlockArgument(value).arg_number
    if isinstance(op, mir.IfOp) or owner != op.body.blocks[0] or number >= len(op.inits):
        return None
    return number


def is_carried_as(old: ir.Value, new: ir.Value) -> bool:
    """Whether a value is what a step of a loop of calls gives for what it carries: it may take the memory."""
    number = _carried_at(old)
    if number is None or not is_kept(old.owner.owner):
        return False
    return any(use.owner.operation.name == "mir.yield" and use.operand_number == number for use in new.uses)


# -- what needn't be in a loop ----------------------------------------------------------------------------------------


@compiler_pass("mir-hoist-invariants", dependent=("mir",))
def hoist_invariants(module: ir.Operation) -> None:
    """Move what is the same in every step out of loops whose bodies have kernels.

    Out of branches only what follows from parameters moves, which is computed once then. Run before mir-hoist-params.
    """
    for op in reversed([op for op in operations(module) if is_kept(op)]):  # inner ones first
        _hoist(op)


def _hoist(op: ir.Operation) -> None:
    hoisted = [_invariants(op, region) for region in op.regions]
    if not any(hoisted):
        return
    outside: list[tuple[int, ir.Value, ir.Value]] = []  # region, value inside, value outside
    with ir.InsertionPoint(op), op.location:
        for number, moved in enumerate(hoisted):
            block = op.regions[number].blocks[0]
            mapping = {argument: given for argument in block.arguments if (given := captured(argument)) is not None}
            clone_into(moved, mapping)
            members = {identity(inner) for inner in moved}
            outside += [
                (number, result, mapping[result])
                for inner in moved
                if inner.name != "mir.constant"
                for result in inner.results
                if any(identity(use.owner) not in members for use in result.uses)
            ]
    blocks = [region.blocks[0] for region in op.regions]
    for number, inside, value in outside:
        added = [block.add_argument(value.type, op.location) for block in blocks]
        inside.replace_all_uses_with(added[number])
    for moved in hoisted:
        for inner in reversed(moved):
            if all(next(iter(result.uses), None) is None for result in inner.results):
                inner.erase()
    _recapture(op, [*op.opview.captures, *(value for _, _, value in outside)])


def _recapture(op: ir.Operation, captures: Sequence[ir.Value]) -> None:
    """Replaces the operation by one with these captures, which its regions have arguments for; without unread ones."""
    blocks = [region.blocks[0] for region in op.regions]
    kept: list[ir.Value] = []
    for number in reversed(range(len(captures))):
        at = len(blocks[0].arguments) - len(captures) + number + len(kept)
        if any(next(iter(block.arguments[at].uses), None) is not None for block in blocks):
            kept.insert(0, captures[number])
            continue
        for block in blocks:
            block.erase_argument(at)
    view, types = op.opview, [result.type for result in op.results]
    made: ir.AnyOp
    with ir.InsertionPoint(op), op.location:
        if isinstance(view, mir.IfOp):
            made = mir.IfOp(types, view.condition, kept)
        elif isinstance(view, mir.WhileOp):
            made = mir.WhileOp(types, list(view.inits), kept, limit=view.limit)
        else:
            made = mir.ScanOp(types, list(view.inits), list(view.xs), kept, length=view.length, reverse=view.reverse)
    if is_kept(op):
        made.operation.attributes[KEPT] = ir.UnitAttr.get()
    for block, region in zip(blocks, made.operation.regions, strict=True):
        block.append_to(region)
    for old, new in zip(op.results, made.operation.results, strict=True):
        old.replace_all_uses_with(new)
    op.erase()


def _invariants(op: ir.Operation, region: ir.Region) -> list[ir.Operation]:
    """The operations of a region that may stand before the operation, and are worth it; with what they read."""
    block = region.blocks[0]
    free: dict[int, ir.Operation] = {}  # follow from captures and constants
    for inner in (inner.operation for inner in block.operations):
        if not len(inner.results) or len(inner.regions):
            continue
        if all(captured(value) is not None or _owner(value) in free for value in inner.operands):
            free[identity(inner)] = inner
    worth = {
        number
        for number, inner in free.items()
        if inner.name not in _CHEAP
        and len(inner.operands)
        and (not isinstance(op.opview, mir.IfOp) or all(map(follows_from_parameters, inner.results)))
    }
    needed = set(worth)
    for number, inner in reversed(free.items()):
        if number in needed:
            needed |= {_owner(value) for value in inner.operands} & free.keys()
    return [inner for number, inner in free.items() if number in needed]


def _owner(value: ir.Value) -> int:
    return 0 if isinstance(value.owner, ir.Block) else identity(value.owner)
