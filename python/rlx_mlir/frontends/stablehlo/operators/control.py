# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Loops and choices, and calls of functions, which are built where they are called."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rlx_mlir import ir
from rlx_mlir.attributes import elements_array
from rlx_mlir.hir import Value

from ..call import Call
from ..entries import Entry, as_sizes, is_known
from ..registry import Refused, operator

#: Steps of a loop that are built one by one, and operations that they have at most.
MOST_UNROLLED, MOST_OPERATIONS = 32, 4096


@operator("func.call")
def _call(call: Call) -> list[Entry]:
    name = str(ir.FlatSymbolRefAttr(call.attribute("callee")).value)
    return call.importer.function(name, call.operands)


@operator("stablehlo.composite")
def _composite(call: Call) -> list[Entry]:
    """By what it is made of, where it isn't one of ours."""
    name = str(ir.FlatSymbolRefAttr(call.attribute("decomposition")).value)
    return call.importer.function(name, call.operands)


# Choices --------------------------------------------------------------------------------------------


@operator("if")
def _if(call: Call) -> list[Entry]:
    return _chosen(call, call.value(0), *(region.blocks[0] for region in call.op.regions))


@operator("case")
def _case(call: Call) -> list[Entry]:
    blocks = [region.blocks[0] for region in call.op.regions]
    sizes = as_sizes(call.operands[0]) if is_known(call.operands[0]) else None
    known = sizes[0].constant if sizes else None
    if known is not None or len(blocks) == 1:
        number = known if known is not None and 0 <= known < len(blocks) else len(blocks) - 1
        return call.importer.block(blocks[number], [])
    return _case_of(call, call.value(0), blocks, 0)


def _case_of(call: Call, index: Value, blocks: Sequence[ir.Block], first: int) -> list[Entry]:
    """The branch of an index among those from `first` on; the last one for indices that aren't there."""
    m = call.m

    def branch(number: int) -> tuple[Value, ...]:
        return _built(call, blocks[number], [])

    def others() -> tuple[Value, ...]:
        if first + 2 == len(blocks):
            return branch(first + 1)
        with call.importer.region():
            return tuple(call.importer.value(entry) for entry in _case_of(call, index, blocks, first + 1))

    found = m.cond(m.eq(index, np.int32(first)), lambda: branch(first), others)
    return list(found)


def _chosen(call: Call, condition: Value, then: ir.Block, otherwise: ir.Block) -> list[Entry]:
    found = call.m.cond(condition, lambda: _built(call, then, []), lambda: _built(call, otherwise, []))
    return list(found)


def _built(call: Call, block: ir.Block, arguments: Sequence[Entry]) -> tuple[Value, ...]:
    """What a block of a region gives, as values of it."""
    with call.importer.region():
        return tuple(call.importer.value(entry) for entry in call.importer.block(block, arguments))


# Loops ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Loop:
    """A loop.

    Attributes:
        cond, body: its blocks.
        carried: numbers of values that steps change.
        counter: the number of the value that counts the steps, where one does.
        steps: how many there are, where that is known.
    """

    cond: ir.Block
    body: ir.Block
    carried: list[int]
    counter: int | None
    steps: int | None


@operator("while")
def _while(call: Call) -> list[Entry]:
    loop = _loop(call)
    entries = list(call.operands)
    for block in (loop.cond, loop.body):
        for number, entry in enumerate(entries):
            if number not in loop.carried:  # what no step changes is read from around the loop
                call.importer.note(block.arguments[number], entry)
    if loop.steps is not None:
        size = sum(_operations(own) for own in (loop.cond, loop.body))
        if loop.steps <= MOST_UNROLLED and loop.steps * size <= MOST_OPERATIONS:
            for _ in range(loop.steps):
                entries = call.importer.block(loop.body, entries)
            return entries
    if not loop.carried:
        raise Refused("a loop that changes nothing")
    found = _looped(call, loop, entries)
    for number, value in zip(loop.carried, found, strict=True):
        entries[number] = value
    return entries


def _looped(call: Call, loop: Loop, entries: Sequence[Entry]) -> Sequence[Value]:
    """What is carried, after the loop."""
    inits = tuple(call.importer.value(entries[number]) for number in loop.carried)

    def given(values: Sequence[Value]) -> list[Entry]:
        own = list(entries)
        for number, value in zip(loop.carried, values, strict=True):
            own[number] = value
        return own

    def following(*values: Value) -> tuple[Value, ...]:
        found = _built(call, loop.body, given(values))
        return tuple(found[number] for number in loop.carried)

    def holds(*values: Value) -> Value:
        return _built(call, loop.cond, given(values))[0]

    if loop.steps is not None:
        found, _ = call.m.scan(lambda *values: (following(*values), None), inits, length=loop.steps)
    else:
        found = call.m.while_loop(holds, following, inits)
    return list(found)


def _loop(call: Call) -> Loop:
    """What is seen of a loop: what its steps change, and how many they are."""
    cond, body = (region.blocks[0] for region in call.op.regions)
    results = _results(body)
    carried = [number for number, value in enumerate(results) if value != body.arguments[number]]
    counter, limit = _counted(call, cond)
    if counter is None or limit is None or not _adds_one(body, results[counter], counter):
        return Loop(cond, body, carried, None, None)
    start = as_sizes(call.operands[counter]) if is_known(call.operands[counter]) else None
    first = start[0].constant if start else None
    return Loop(cond, body, carried, counter, None if first is None else max(limit - first, 0))


def _results(block: ir.Block) -> list[ir.Value]:
    """What a block gives."""
    last = [op.operation for op in block.operations][-1]
    return list(last.operands)


def _counted(call: Call, cond: ir.Block) -> tuple[int | None, int | None]:
    """Which value a condition compares with a number that it is less than, and that number."""
    (result,) = _results(cond)
    op = _owner(result)
    if op is None or op.name != "stablehlo.compare" or not str(op.attributes["comparison_direction"]).endswith(" LT>"):
        return None, None
    left, right = op.operands
    numbers = [number for number, argument in enumerate(cond.arguments) if argument == left]
    limit = _constant(right)
    if limit is None and right in list(cond.arguments):  # a limit that is carried, but isn't changed
        limit = _unchanged(call, list(cond.arguments).index(right))
    return (numbers[0] if numbers else None), limit


def _unchanged(call: Call, number: int) -> int | None:
    body = call.op.regions[1].blocks[0]
    if _results(body)[number] != body.arguments[number] or not is_known(call.operands[number]):
        return None
    found = as_sizes(call.operands[number])
    return found[0].constant if found else None


def _owner(value: ir.Value) -> ir.Operation | None:
    return None if isinstance(value.owner, ir.Block) else value.owner.operation


def _constant(value: ir.Value) -> int | None:
    """The number that a constant without dimensions is."""
    op = _owner(value)
    if op is None or op.name != "stablehlo.constant":
        return None
    array = elements_array(op.attributes["value"])
    return int(array.reshape(-1)[0]) if array.size == 1 and array.dtype.kind in "iu" else None


def _adds_one(body: ir.Block, result: ir.Value, counter: int) -> bool:
    """Whether a result of a body is its argument plus one."""
    op = _owner(result)
    if op is None or op.name != "stablehlo.add":
        return False
    sides = list(op.operands)
    return any(own == body.arguments[counter] and _constant(other) == 1 for own, other in (sides, sides[::-1]))


def _operations(block: ir.Block) -> int:
    return sum(1 for _ in block.operations)
