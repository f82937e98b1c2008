# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Batching of operations with regions: what regions compute is batched where they stand.

What a region gives has the batch where it depends on something that has it. Of carried values this is found before
anything is built: one that gets it in some step has it from the first step on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import compress

from rlx_mlir import ir
from rlx_mlir.autodiff.batching import Own, batch
from rlx_mlir.autodiff.builders import Builders
from rlx_mlir.autodiff.folding import moved, spread
from rlx_mlir.autodiff.registry import Batched, Same, batching
from rlx_mlir.dialects import mir
from rlx_mlir.hir.values import Value
from rlx_mlir.mir.dims import Size
from rlx_mlir.mir.packed import packing

#: Operations whose results are the same for all entries, whatever their operands are: they read sizes alone.
_OF_SIZES = frozenset({"mir.dim", "mir.iota"})


def _block(op: ir.Operation, number: int) -> ir.Block:
    block: ir.Block = op.regions[number].blocks[0]
    return block


def depending(block: ir.Block, flags: Sequence[bool]) -> list[bool]:
    """Which values of a region's terminator have the batch, where so do the flagged ones of its arguments."""
    found = set(compress(block.arguments, flags))
    *ops, end = [each.operation for each in block.operations]
    for op in ops:
        if op.name not in _OF_SIZES and any(operand in found for operand in op.operands):
            found.update(op.results)
    return [value in found for value in end.operands]


def carried(step: Callable[[list[bool]], Sequence[bool]], flags: Sequence[bool]) -> list[bool]:
    """Which carried values have the batch, where they do before the first step as flagged."""
    own = list(flags)
    while True:
        after = [before or given for before, given in zip(own, step(own), strict=False)]
        if after == own:
            return own
        own = after


def _run(m: Builders, at: Batched, block: ir.Block, values: Sequence[Value], flags: Sequence[bool]) -> list[Own]:
    """What a region gives of these values; built where `m` builds."""
    *ops, end = [each.operation for each in block.operations]
    given = {own: Own(x, flag) for own, x, flag in zip(block.arguments, values, flags, strict=True)}
    known = batch(m, ops, given, at.size)
    return [known[value] for value in end.operands]


def _with(m: Builders, at: Batched, found: Sequence[Own], flags: Sequence[bool]) -> tuple[Value, ...]:
    """Values, with the batch where flagged."""
    return tuple(own.spread(m, at.size) if flag else own.value for own, flag in zip(found, flags, strict=True))


def _results(values: Sequence[Value], flags: Sequence[bool]) -> tuple[Value | Same, ...]:
    return tuple(x if flag else Same(x) for x, flag in zip(values, flags, strict=True))


def _chosen(m: Builders, at: Batched, condition: Value, first: Value, second: Value) -> Value:
    """Of each entry one of two values."""
    shape = [at.size, *[Size.of(1)] * (first.ndim - 1)]
    return m.where(m.reshape(condition, shape) if first.ndim > 1 else condition, first, second)


# ----------------------------------------------------------------------------------------------------------------------
# Choices
# ----------------------------------------------------------------------------------------------------------------------


@batching(mir.IfOp)
def if_(m: Builders, at: Batched, condition: Value, *captures: Value) -> tuple[Value | Same, ...]:
    """The same choice for all entries; where each has its own, both regions are computed, and each entry takes one."""
    of_condition, *flags = at.batched
    blocks = [_block(at.op, 0), _block(at.op, 1)]
    if of_condition:
        both = [[own.spread(m, at.size) for own in _run(m, at, block, captures, flags)] for block in blocks]
        return tuple(_chosen(m, at, condition, first, second) for first, second in zip(*both, strict=True))
    either = [depending(block, flags) for block in blocks]
    wanted = [first or second for first, second in zip(*either, strict=True)]

    def branch(block: ir.Block) -> Callable[[], tuple[Value, ...]]:
        return lambda: _with(m, at, _run(m, at, block, captures, flags), wanted)

    return _results(m.cond(condition, branch(blocks[0]), branch(blocks[1])), wanted)


# ----------------------------------------------------------------------------------------------------------------------
# Loops
# ----------------------------------------------------------------------------------------------------------------------


@batching(mir.ScanOp)
def scan(
    m: Builders,
    at: Batched,
    inits: Sequence[Value],
    xs: Sequence[Value],
    captures: Sequence[Value],
    *,
    length: int | None = None,
    reverse: bool = False,
    checkpoints: int | None = None,
) -> tuple[Value | Same, ...]:
    """The steps are those of all entries; steps stay the first dimension of sequences while they are gone through."""
    of_inits, of_xs, of_captures = at.batched
    block = _block(at.op, 0)
    given = [*of_xs, *of_captures]
    own = carried(lambda flags: depending(block, [*flags, *given]), of_inits)
    stacked = depending(block, [*own, *given])[len(inits) :]

    def step(*values: Value) -> tuple[tuple[Value, ...], tuple[Value, ...]]:
        found = _run(m, at, block, [*values, *captures], [*own, *given])
        values = _with(m, at, found, [*own, *stacked])
        return values[: len(inits)], values[len(inits) :]

    begin = [spread(m, at, x, had) if has else x for x, had, has in zip(inits, of_inits, own, strict=True)]
    sequences = [moved(m, x, 0, 1) if has else x for x, has in zip(xs, of_xs, strict=True)]
    last, each = m.scan(step, tuple(begin), tuple(sequences), length=length, reverse=reverse, checkpoints=checkpoints)
    each = [moved(m, x, 1, 0) if has else x for x, has in zip(each, stacked, strict=True)]
    return _results([*last, *each], [*own, *stacked])


@batching(mir.WhileOp)
def while_(
    m: Builders, at: Batched, inits: Sequence[Value], captures: Sequence[Value], *, limit: int | None = None
) -> tuple[Value | Same, ...]:
    """Steps as long as any entry goes on; those that don't keep what they carry."""
    of_inits, of_captures = at.batched
    goes_on, body = _block(at.op, 0), _block(at.op, 1)
    own = carried(lambda flags: depending(body, [*flags, *of_captures]), of_inits)
    each_goes_on = depending(goes_on, [*own, *of_captures])[0]
    if each_goes_on:
        own = [True] * len(inits)
    flags = [*own, *of_captures]
    begin = tuple(spread(m, at, x, had) if has else x for x, had, has in zip(inits, of_inits, own, strict=True))

    def go(*values: Value) -> Value:
        found = _run(m, at, goes_on, [*values, *captures], flags)[0]
        return found.spread(m, at.size) if each_goes_on else found.value

    def step(*values: Value) -> tuple[Value, ...]:
        return _with(m, at, _run(m, at, body, [*values, *captures], flags), own)

    if not each_goes_on:
        return _results(m.while_loop(go, step, begin, limit=limit), own)

    def kept(going: Value, *values: Value) -> tuple[Value, ...]:
        after = step(*values)
        chosen = [_chosen(m, at, going, new, old) for new, old in zip(after, values, strict=True)]
        return go(*chosen), *chosen

    _, *last = m.while_loop(lambda going, *_: m.any(going), kept, (go(*begin), *begin), limit=limit)
    return tuple(last)


# ----------------------------------------------------------------------------------------------------------------------
# Functions with derivatives of their own
# ----------------------------------------------------------------------------------------------------------------------


@batching(mir.CustomFnOp)
def custom_fn(m: Builders, at: Batched, *inputs: Value) -> tuple[Value | Same, ...]:
    """The function of batches, with derivatives of batches: an input of all entries has the sum of their gradients."""
    function, backward, forward = at.op.regions
    flags = list(at.batched)
    wanted = depending(function.blocks[0], flags)
    if len(forward.blocks):  # tangents have the types of results
        changed = depending(forward.blocks[0], [*flags, *flags])
        wanted = [own or other for own, other in zip(wanted, changed, strict=True)]

    def run(*values: Value) -> tuple[Value, ...]:
        return _with(m, at, _run(m, at, function.blocks[0], values, flags), wanted)

    def pulled(*values: Value) -> tuple[Value, ...]:
        found = _run(m, at, backward.blocks[0], values, [*flags, *wanted, *wanted])
        return tuple(_gradient(m, at, own, flag) for own, flag in zip(found, flags, strict=True))

    def pushed(*values: Value) -> tuple[Value, ...]:
        return _with(m, at, _run(m, at, forward.blocks[0], values, [*flags, *flags]), wanted)

    found = m.custom_fn(
        run,
        *inputs,
        vjp=pulled if len(backward.blocks) else None,
        jvp=pushed if len(forward.blocks) else None,
    )
    return _results(found, wanted)


def _gradient(m: Builders, at: Batched, found: Own, batched: bool) -> Value:
    """The gradient by an input: of each entry, or of all of them together. What is packed, or a condition, has none."""
    if batched:
        return found.spread(m, at.size)
    if packing(found.value._handle.type) is not None:
        return found.value
    every = found.spread(m, at.size)
    return m.any(every, 0) if every.dtype.kind == "b" else m.sum(every, 0)
