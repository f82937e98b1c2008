# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operations with regions: a choice, and loops whose steps carry values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from typing import TypeVar

import numpy as np
from mlir.dialects import bufferization, scf, tensor

from rlx_mlir import ir
from rlx_mlir.attributes import python_value
from rlx_mlir.dialects import mir
from rlx_mlir.errors import CompileError, InputError
from rlx_mlir.mir.cost import Cost, Sizes, cost, cost_of
from rlx_mlir.mir.dims import Size, maximum
from rlx_mlir.mir.linalg import (
    SizeLike,
    as_index,
    computed,
    element_type,
    empty,
    extract_slice,
    for_each,
    generic,
    index_constant,
    kept_in,
    plus,
    size_of,
    sizes_of,
    write_slice,
)
from rlx_mlir.mir.registry import TO_LINALG, Evaluated, Run, dim_rule, reference, result_dims
from rlx_mlir.mir.scalars import Scalar, extract
from rlx_mlir.rewriting import Rewriter

Dims = tuple[Size, ...]
Item = TypeVar("Item")

#: Operations that have regions.
REGIONS = frozenset({"mir.custom_fn", "mir.if", "mir.scan", "mir.while"})

#: Operations of MIR whose results are views of their operands once they are buffers.
_VIEWS = (mir.ReshapeOp, mir.NarrowOp, mir.SliceOp, mir.DynamicSliceOp, mir.ConstantOp)

# ----------------------------------------------------------------------------------------------------------------------
# References
# ----------------------------------------------------------------------------------------------------------------------


@reference(mir.IfOp)
def if_(condition: np.ndarray, *captures: Evaluated, regions: Sequence[Run]) -> tuple[Evaluated, ...]:
    """What the first region gives where the condition holds, else the second one."""
    return tuple(regions[0 if condition else 1](captures))


@reference(mir.WhileOp)
def while_(
    inits: Sequence[Evaluated], captures: Sequence[Evaluated], *, regions: Sequence[Run], limit: int | None = None
) -> tuple[Evaluated, ...]:
    """The carried values after as many steps as the condition holds."""
    cond, body = regions
    carried, steps = list(inits), 0
    while limit is None or steps < limit:
        go, *carried = cond([*carried, *captures])
        if not go:
            break
        carried, steps = body([*carried, *captures]), steps + 1
    return tuple(carried)


@reference(mir.ScanOp)
def scan(
    inits: Sequence[Evaluated],
    xs: Sequence[np.ndarray],
    captures: Sequence[Evaluated],
    *,
    regions: Sequence[Run],
    result_types: Callable[[], Sequence[tuple[np.dtype[Evaluated], Sequence[int]]]],
    length: int | None = None,
    reverse: bool = False,
    checkpoints: int | None = None,
) -> tuple[Evaluated, ...]:
    """The carried values after the last step, and what each step gives beside them; `checkpoints` are of gradients."""
    counts = {len(x) for x in xs} | ({length} if length is not None else set())
    if len(counts) != 1:
        raise InputError(f"mir.scan: the sequences have {', '.join(map(str, sorted(counts)))} entries, but one number")
    steps = counts.pop()
    carried, entries = list(inits), []
    for t in range(steps)[::-1] if reverse else range(steps):
        given = regions[0]([*carried, *(x[t] for x in xs), *captures])
        carried = given[: len(inits)]
        entries.append(given[len(inits) :])
    if not entries:
        return *carried, *(np.empty(shape, dtype) for dtype, shape in result_types()[len(inits) :])
    if reverse:
        entries.reverse()
    return *carried, *(np.stack(each) for each in zip(*entries, strict=True))


@reference(mir.CustomFnOp)
def custom_fn(*inputs: Evaluated, regions: Sequence[Run]) -> tuple[Evaluated, ...]:
    """What the first region gives; the others are of gradients."""
    return tuple(regions[0](inputs))


# ----------------------------------------------------------------------------------------------------------------------
# Dimensions
# ----------------------------------------------------------------------------------------------------------------------


def run_regions(op: ir.AnyOp) -> list[ir.Region]:
    """The regions that run where an operation does: those of gradients don't."""
    regions = list(op.operation.regions)
    return regions[:1] if op.operation.name == "mir.custom_fn" else regions


def inner_dims(op: ir.AnyOp, operands: Sequence[Dims]) -> dict[ir.Value, Dims]:
    """The dimensions of every value in the regions of an operation, those of nested operations included.

    Of operations of other dialects, whose regions may use any value, nothing is said.
    """
    found: dict[ir.Value, Dims] = {}
    if op.operation.name not in REGIONS:
        return found
    results: list[Dims] = []
    for number, region in enumerate(op.operation.regions):
        if not len(region.blocks):
            continue
        block = region.blocks[0]
        given = region_arguments(op, operands, lambda dims: dims[1:], number, results)
        found.update(zip(block.arguments, given, strict=True))
        for inner in block.operations:
            own = [found[operand] for operand in inner.operation.operands]
            nested = inner_dims(inner, own)
            found.update(nested)
            if len(inner.operation.results):
                found.update(zip(inner.operation.results, _result_dims(inner, own, nested), strict=True))
        results = results or [found[value] for value in yielded(region)]
    return found


def argument_types(op: ir.AnyOp, number: int = 0) -> list[ir.Type]:
    """The types that the arguments of an operation's region have, from those of its operands and its results."""

    def entry(type: ir.Type) -> ir.Type:
        kind = ir.RankedTensorType(type)
        return ir.RankedTensorType.get(kind.shape[1:], kind.element_type)

    operands, results = ([value.type for value in values] for values in (op.operation.operands, op.operation.results))
    return region_arguments(op, operands, entry, number, results)


def region_arguments(
    op: ir.AnyOp,
    operands: Sequence[Item],
    entry: Callable[[Item], Item],
    number: int = 0,
    results: Sequence[Item] = (),
) -> list[Item]:
    """What the arguments of a region have, from what the operands have.

    Args:
        op: the operation.
        operands: what its operands have.
        entry: gives that of an entry of a sequence.
        number: of the region.
        results: what the results have: gradients read them.
    """
    view, given = op.operation.opview, list(operands)
    if isinstance(view, mir.CustomFnOp) and number:
        return [*given, *results, *results] if number == 1 else [*given, *given]
    if isinstance(view, mir.IfOp):
        return given[1:]
    if isinstance(view, mir.ScanOp):
        first, last = len(view.inits), len(view.inits) + len(view.xs)
        given[first:last] = map(entry, given[first:last])
    return given


def captured(value: ir.Value) -> ir.Value | None:
    """The value that an argument of a region is in every step; None where it is another argument, or none of one."""
    owner = value.owner
    if not isinstance(owner, ir.Block) or owner.owner.operation.name not in REGIONS:
        return None
    op, number = owner.owner.operation.opview, ir.BlockArgument(value).arg_number
    if isinstance(op, mir.CustomFnOp):
        return op.inputs[number] if owner.region == op.function else None
    first = len(owner.arguments) - len(op.captures)
    given: ir.Value | None = op.captures[number - first] if number >= first else None
    return given


def _result_dims(op: ir.AnyOp, operands: Sequence[Dims], inner: Mapping[ir.Value, Dims]) -> list[Dims]:
    """The dimensions of results: static ones from their types. `inner` are those of values in the regions."""
    kinds = [result.type for result in op.operation.results]
    shapes = [kind.shape if isinstance(kind, ir.RankedTensorType) else [] for kind in kinds]
    if all(size >= 0 for shape in shapes for size in shape):
        return [tuple(map(Size.of, shape)) for shape in shapes]
    if op.operation.name in REGIONS:
        return given_dims(op, operands, inner)
    if op.operation.name == "func.call":
        return called_dims(op, operands)
    return result_dims(op.operation.opview, operands)


def called_dims(call: ir.AnyOp, operands: Sequence[Dims]) -> list[Dims]:
    """The dimensions of what a call of a kernel gives."""
    module = call.operation
    while module.name != "builtin.module":
        module = module.parent.operation
    callee = python_value(call.operation.attributes["callee"])
    listed = [op.operation for op in module.regions[0].blocks[0].operations]
    kernel = next(op for op in listed if "sym_name" in op.attributes and op.attributes["sym_name"].value == callee)
    block = kernel.regions[0].blocks[0]
    dims = dict(zip(block.arguments, operands, strict=True))
    for inner in block.operations:
        own = [dims[operand] for operand in inner.operation.operands]
        if not len(inner.operation.results):
            return own
        nested = inner_dims(inner, own)
        dims.update(zip(inner.operation.results, _result_dims(inner, own, nested), strict=True))
    raise CompileError(f"kernel '{callee}' doesn't return")


def yielded(region: ir.Region) -> list[ir.Value]:
    """The values that a region gives, without the condition of a loop."""
    *_, last = region.blocks[0].operations
    values = list(last.operation.operands)
    return values[1:] if isinstance(last, mir.ConditionOp) else values


def carried_rules(op: ir.AnyOp, operands: Sequence[Dims]) -> Iterator[tuple[Size, Size]]:
    """Sizes that have to be equal: of what both branches give, or of what is carried before and after a step."""
    view, dims = op.opview, inner_dims(op, operands)
    if isinstance(view, mir.CustomFnOp):
        return
    if isinstance(view, mir.IfOp):
        pairs = [
            (dims[first], dims[second])
            for first, second in zip(yielded(view.then_region), yielded(view.else_region), strict=True)
        ]
    else:
        values = yielded(view.body)
        pairs = [(own, dims[value]) for own, value in zip(operands[: len(view.inits)], values, strict=False)]
    for first, second in pairs:
        yield from zip(first, second, strict=True)
    if isinstance(view, mir.ScanOp):
        counts = [own[0] for own in operands[len(view.inits) : len(view.inits) + len(view.xs)]]
        yield from ((steps_of(op, operands), count) for count in counts)


def steps_of(op: ir.AnyOp, operands: Sequence[Dims]) -> Size:
    """The steps of a scan."""
    if op.opview.length is not None:
        return Size.of(python_value(op.opview.length))
    return operands[len(op.opview.inits)][0]


def given_dims(op: ir.AnyOp, operands: Sequence[Dims], inner: Mapping[ir.Value, Dims]) -> list[Dims]:
    """Of loops, the dimensions of `inits` and of what is stacked; of others, those that the first region gives."""
    view = op.operation.opview
    if isinstance(view, mir.IfOp | mir.CustomFnOp):
        return [inner[value] for value in yielded(op.operation.regions[0])]
    carried = list(operands[: len(view.inits)])
    if isinstance(view, mir.WhileOp):
        return carried
    steps = steps_of(view, operands)
    return [*carried, *((steps, *inner[value]) for value in yielded(view.body)[len(carried) :])]


@dim_rule(mir.CustomFnOp, mir.IfOp, mir.WhileOp, mir.ScanOp)
def region_dims(op: ir.AnyOp, operands: Sequence[Dims]) -> Evaluated:
    """As `given_dims` says."""
    found = given_dims(op, operands, inner_dims(op, operands))
    return found[0] if len(found) == 1 else found


# ----------------------------------------------------------------------------------------------------------------------
# Costs
# ----------------------------------------------------------------------------------------------------------------------


@cost(mir.CustomFnOp, mir.IfOp, mir.WhileOp, mir.ScanOp)
def region_cost(op: ir.AnyOp, sizes: Sizes) -> Cost:
    """Of a choice the dearer region, of a scan all steps; of a loop by a condition one step: nobody knows how many."""
    operands = [sizes[value] for value in op.operation.operands]
    inner = Sizes(inner_dims(op, operands), sizes.position)
    flops = [
        sum((Size.of(cost_of(each, inner).flops) for each in region.blocks[0].operations), Size.of(0))
        for region in run_regions(op)
    ]
    if isinstance(op.opview, mir.IfOp | mir.CustomFnOp):
        return Cost(reduce(maximum, flops))
    steps = steps_of(op, operands) if isinstance(op.opview, mir.ScanOp) else 1
    return Cost(sum(flops, Size.of(0)) * steps)


# ----------------------------------------------------------------------------------------------------------------------
# Lowering to loops on tensors
# ----------------------------------------------------------------------------------------------------------------------


def _cast(value: ir.Value, type: ir.Type) -> ir.Value:
    """The same tensor under a type that says more or less of its sizes."""
    return value if value.type == type else tensor.CastOp(type, value).result


def _own_copy(source: ir.Value) -> ir.Value:
    """The elements in memory of their own: canonicalisation would drop a loop that copies."""
    copy: ir.Value = bufferization.AllocTensorOp(source.type, [], copy=source).results[0]
    return copy


def _copied(source: ir.Value, target: ir.Value) -> ir.Value:
    """The elements of the source in place of the target's."""
    loops = range(len(sizes_of(source)))
    copy: ir.Value = generic(len(loops), [(source, loops)], [(target, loops)], lambda x, _: x)
    return copy


def _move(block: ir.Block, values: Sequence[ir.Value], target: ir.Block) -> list[ir.Value]:
    """Moves a region's operations to the end of a block, with values for its arguments; gives what it yields."""
    for argument, value in zip(block.arguments, values, strict=True):
        argument.replace_all_uses_with(value)
    *ops, last = [op.operation for op in block.operations]
    for op in ops:
        target.append(op)
    return list(last.operands)


def _carry(values: Sequence[ir.Value], targets: Sequence[ir.Value], block: ir.Block) -> list[ir.Value]:
    """Writes what a step gives to the memory of what is carried.

    A value that isn't computed in this step may be what another copy overwrites: it is copied before all of them. So is
    what a choice gives: one of its branches may read what is carried, and none may write there before it has.
    """
    own = []
    for value in values:
        owner = value.owner
        fresh = not isinstance(owner, ir.Block) and owner.operation.block == block and owner.name.startswith("mir.")
        own.append(value if fresh and not isinstance(owner.opview, (*_VIEWS, mir.IfOp)) else _own_copy(value))
    return [kept_in(value, target) for value, target in zip(own, targets, strict=True)]


def _result_sizes(op: ir.AnyOp, number: int) -> list[SizeLike]:
    """The sizes of a result, from those of the operands."""
    kind = ir.RankedTensorType(op.results[number].type)
    if kind.has_static_shape:
        return list(kind.shape)
    known: dict[str, SizeLike] = {}
    dims: list[Dims] = []
    for position, operand in enumerate(op.operation.operands):
        own = ir.RankedTensorType(operand.type)
        names = [f"d{position}_{axis}" for axis in range(own.rank)]
        known.update((name, size_of(operand, axis)) for axis, name in enumerate(names) if own.is_dynamic_dim(axis))
        dims.append(
            tuple(Size.of(name if own.is_dynamic_dim(axis) else own.shape[axis]) for axis, name in enumerate(names))
        )
    return [computed(size, known) for size in result_dims(op, dims)[number]]


@TO_LINALG.pattern(mir.IfOp)
def lower_if(op: ir.AnyOp, rewriter: Rewriter) -> None:
    """if p(...) -> scf.if p, with results that both branches write to one place"""
    results = list(op.operation.results)
    targets = [empty(_result_sizes(op, number), element_type(value)) for number, value in enumerate(results)]
    captures = list(op.captures)
    branch = scf.IfOp(extract(op.condition, []).value, [target.type for target in targets], has_else=True)
    for region, block in ((op.then_region, branch.then_block), (op.else_region, branch.else_block)):
        given = _move(region.blocks[0], captures, block)
        with ir.InsertionPoint(block):
            # Sizes that a branch knows, and the other one doesn't, are none of the result's type.
            given = [_cast(value, target.type) for value, target in zip(given, targets, strict=True)]
            scf.YieldOp([_copied(value, target) for value, target in zip(given, targets, strict=True)])
    rewriter.replace(op, *(_cast(new, old.type) for new, old in zip(branch.results, results, strict=True)))


@TO_LINALG.pattern(mir.WhileOp)
def lower_while(op: ir.AnyOp, rewriter: Rewriter) -> None:
    """while (...) -> scf.while; with a limit, it counts steps"""
    captures, limit = list(op.captures), op.limit
    inits = [_own_copy(value) for value in op.inits]
    counter = [] if limit is None else [index_constant(0)]
    types = [value.type for value in (*inits, *counter)]
    loop = scf.WhileOp(types, [*inits, *counter])
    places = [ir.Location.current] * len(types)
    before, after = (region.blocks.append(*types, arg_locs=places) for region in loop.regions)
    carried = list(before.arguments)[: len(inits)]
    if limit is None:
        with ir.InsertionPoint(before):
            scf.ConditionOp(_condition(op, carried, captures, before), list(before.arguments))
    else:
        _limited(op, carried, captures, before, python_value(limit))
    carried = list(after.arguments)[: len(inits)]
    given = _move(op.body.blocks[0], [*carried, *captures], after)
    with ir.InsertionPoint(after):
        steps = [plus(value, 1) for value in list(after.arguments)[len(inits) :]]
        scf.YieldOp([*_carry(given, carried, after), *map(as_index, steps)])
    rewriter.replace(op, *list(loop.results)[: len(inits)])


def _condition(op: ir.AnyOp, carried: Sequence[ir.Value], captures: Sequence[ir.Value], block: ir.Block) -> ir.Value:
    """Whether a loop goes on, computed at the end of a block."""
    go, *_ = _move(op.cond.blocks[0], [*carried, *captures], block)
    with ir.InsertionPoint(block):
        return extract(go, []).value


def _limited(
    op: ir.AnyOp, carried: Sequence[ir.Value], captures: Sequence[ir.Value], block: ir.Block, limit: int
) -> None:
    """Ends the first block of a loop that counts: the condition is computed where there may be a further step."""
    count = Scalar(list(block.arguments)[-1])
    with ir.InsertionPoint(block):
        truth = ir.IntegerType.get_signless(1)
        left = scf.IfOp((count < limit).value, [truth], has_else=True)
        go = _condition(op, carried, captures, left.then_block)
        with ir.InsertionPoint(left.then_block):
            scf.YieldOp([go])
        with ir.InsertionPoint(left.else_block):
            scf.YieldOp([Scalar(go).like(0).value])
        scf.ConditionOp(left.results[0], list(block.arguments))


@TO_LINALG.pattern(mir.ScanOp)
def lower_scan(op: ir.AnyOp, rewriter: Rewriter) -> None:
    """scan (...) -> scf.for over the steps, which reads an entry of each sequence and writes one of each result"""
    inits, xs, captures = list(op.inits), list(op.xs), list(op.captures)
    steps: SizeLike = size_of(xs[0], 0) if op.length is None else int(python_value(op.length))
    count = len(inits)
    results = list(op.operation.results)
    stacks = [
        empty(_result_sizes(op, number), element_type(value)) for number, value in enumerate(results) if number >= count
    ]

    def step(t: ir.Value, *values: ir.Value) -> list[ir.Value]:
        at = (Scalar(as_index(plus(steps, -1))) - Scalar(t)).value if op.reverse else t
        block = ir.InsertionPoint.current.block
        entries = [_entry(x, at) for x in xs]
        given = _move(op.body.blocks[0], [*values[:count], *entries, *captures], block)
        written = [_written(value, stack, at) for value, stack in zip(given[count:], values[count:], strict=True)]
        return [*_carry(given[:count], values[:count], block), *written]

    found = for_each(0, steps, [*map(_own_copy, inits), *stacks], step)
    rewriter.replace(op, *(_cast(new, old.type) for new, old in zip(found, results, strict=True)))


def _entry(x: ir.Value, at: ir.Value) -> ir.Value:
    """x[at]"""
    sizes = sizes_of(x)
    return extract_slice(x, [at, *[0] * (len(sizes) - 1)], [1, *sizes[1:]], drop=[0])


def _written(value: ir.Value, stack: ir.Value, at: ir.Value) -> ir.Value:
    """The stack with `value` as its entry `at`."""
    sizes = sizes_of(stack)
    return write_slice(value, stack, [at, *[0] * (len(sizes) - 1)], [1, *sizes[1:]], drop=[0])
