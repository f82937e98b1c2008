# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operations with regions that become operations without: `mir-unroll-scans` and `gpu-select-branches`."""

from __future__ import annotations

from collections.abc import Sequence

from rlx_mlir import ir
from rlx_mlir.attributes import python_value
from rlx_mlir.dialects import mir
from rlx_mlir.lowering.parameters import clone_into
from rlx_mlir.lowering.regions import is_large
from rlx_mlir.mir.control import yielded
from rlx_mlir.rewriting import Option, PatternSet, Rewriter, apply_patterns, compiler_pass, operations

#: Operations that a scan may become, those of scans in it included: their steps multiply.
MAX_OPERATIONS = 4096


@compiler_pass(
    "mir-unroll-scans",
    dependent=("mir",),
    options={"steps": Option("scans of more steps stay loops", 32, least=0)},
)
def unroll_scans(module: ir.Operation, *, steps: int) -> None:
    """Replace scans whose bodies hold products, attention or convolutions by their steps, one after the other.

    Each product is a kernel of its class then, and fuses with what is around it; as a loop it would be generic code in
    one kernel. The number of steps has to be known, and at most `steps`, and what they become at most 4096 operations:
    the size of the graph grows with it. Other scans stay: small bodies are faster as loops.
    """
    patterns = PatternSet()

    @patterns.pattern(mir.ScanOp)
    def unroll_scan(op: mir.ScanOp, rewriter: Rewriter) -> None:
        """scan of n steps -> the body n times"""
        count = _steps(op)
        if not is_large(op):
            return rewriter.no_match("its body is small: a kernel with the loop in it is faster")
        if not count or count > steps:
            return rewriter.no_match(
                f"it has {'an unknown number of' if count is None else count} steps, and 1 to {steps} are unrolled",
                hint="option steps is the bound",
            )
        if (size := _unrolled_size(op)) > MAX_OPERATIONS:
            return rewriter.no_match(f"it would become {size} operations, and up to {MAX_OPERATIONS} are unrolled")
        if not all(map(_has_entries, _stacked(op))):
            return rewriter.no_match("entries of several dynamic sizes can't be stacked")
        rewriter.replace(op, *_unrolled(op, count))

    apply_patterns(module, patterns)


def _steps(op: mir.ScanOp) -> int | None:
    """The number of steps; None where it is only known at run time."""
    if op.length is not None:
        return int(python_value(op.length))
    kind = ir.RankedTensorType(op.xs[0].type)
    return None if kind.is_dynamic_dim(0) else int(kind.get_dim_size(0))


def _unrolled_size(op: ir.AnyOp) -> int:
    """The operations that an operation becomes where it and all scans in it are unrolled."""
    inside = sum(_unrolled_size(inner) for inner in operations(op, nested=False))
    steps = _steps(op.opview) if isinstance(op.opview, mir.ScanOp) else None
    return (steps or 1) * (1 + inside)


def _stacked(op: mir.ScanOp) -> list[ir.Value]:
    """What has a first dimension of steps."""
    return [*op.xs, *list(op.operation.results)[len(op.inits) :]]


def _has_entries(value: ir.Value) -> bool:
    """Whether an entry can be given a shape of its own: one size of it may be left open."""
    return sum(size < 0 for size in ir.RankedTensorType(value.type).shape[1:]) <= 1


def _unrolled(op: mir.ScanOp, count: int) -> list[ir.Value]:
    """The steps at the insertion point; gives what replaces the results."""
    block = op.body.blocks[0]
    *body, _ = [each.operation for each in block.operations]
    carried, captures = list(op.inits), list(op.captures)
    entries: list[list[ir.Value]] = []
    for t in range(count)[::-1] if op.reverse else range(count):
        given = [*carried, *(_entry(x, t) for x in op.xs), *captures]
        mapping = dict(zip(block.arguments, given, strict=True))
        clone_into(body, mapping)
        values = [mapping[value] for value in yielded(op.body)]
        carried = values[: len(carried)]
        entries.append(values[len(carried) :])
    if op.reverse:
        entries.reverse()
    stacks = list(op.operation.results)[len(carried) :]
    return [*carried, *(_stack([own[i] for own in entries], stack) for i, stack in enumerate(stacks))]


def _entry(x: ir.Value, t: int) -> ir.Value:
    """x[t]"""
    sizes = [-1 if size < 0 else size for size in ir.RankedTensorType(x.type).shape[1:]]
    return mir.reshape(mir.narrow(x, axis=0, start=t, length=1), new_shape=sizes, like=[])


def _stack(entries: Sequence[ir.Value], like: ir.Value) -> ir.Value:
    """The entries along a new first dimension."""
    sizes = [1, *(-1 if size < 0 else size for size in ir.RankedTensorType(like.type).shape[1:])]
    rows = [mir.reshape(entry, new_shape=sizes, like=[]) for entry in entries]
    return rows[0] if len(rows) == 1 else mir.concat(rows, axis=0)


@compiler_pass("gpu-select-branches", dependent=("mir",))
def select_branches(module: ir.Operation) -> None:
    """Replace each `mir.if` by both of its branches and a choice of their elements.

    To see the value that decides, a GPU's host would wait for it. Branches with loops stay: the one that isn't taken
    might not end.
    """
    patterns = PatternSet()

    @patterns.pattern(mir.IfOp)
    def select_branch(op: mir.IfOp, rewriter: Rewriter) -> None:
        """if p then a else b -> where(p, a, b)"""
        if any(isinstance(inner.opview, mir.WhileOp) for inner in operations(op)):
            return rewriter.no_match("a branch with a loop may run without end where it isn't taken")
        given = []
        for region in (op.then_region, op.else_region):
            block = region.blocks[0]
            mapping = dict(zip(block.arguments, op.captures, strict=True))
            clone_into([each.operation for each in block.operations][:-1], mapping)
            given.append([mapping[value] for value in yielded(region)])
        rewriter.replace(op, *(mir.where(op.condition, a, b) for a, b in zip(*given, strict=True)))

    apply_patterns(module, patterns)
