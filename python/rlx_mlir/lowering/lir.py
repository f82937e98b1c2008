# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The pass `lir-plan`: memory of the entry function.

Its values become views into one arena, and its arguments the buffers of inputs, parameters and outputs. Sizes are
polynomials in the symbols of dynamic dimensions; the arena is laid out for their declared maxima, so that nothing is
allocated at run time.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rlx_mlir import ir
from rlx_mlir.attributes import python_value
from rlx_mlir.errors import CompileError, InputError
from rlx_mlir.lowering.donation import TIED, donated
from rlx_mlir.lowering.functions import (
    CLASS,
    KERNEL,
    argument_attributes,
    entry_function,
    functions,
    kernel_class,
    memref_of,
    raw_argument_attributes,
    result_attributes,
    tensor_entry,
)
from rlx_mlir.lowering.plan_text import PlanText, RegionPlan
from rlx_mlir.lowering.signatures import RELATIONS, relations
from rlx_mlir.mir.control import REGIONS, captured, given_dims, region_arguments
from rlx_mlir.mir.cost import type_bytes
from rlx_mlir.mir.dims import DEFAULT_MAXIMUM, Size, at_most, check_symbol, parse_maxima, product
from rlx_mlir.mir.registry import result_dims
from rlx_mlir.rewriting import Option, compiler_pass, identity, operations
from rlx_mlir.semantics.conditions import Condition, conditions, positions
from rlx_mlir.semantics.function import viewed
from rlx_mlir.unsupported import blame

#: Attribute of the planned function: what must hold of its symbols.
CONDITIONS = "mir.conditions"
#: Attribute of the planned function: which arguments are positions; for each, how many there are, how many rows follow
#: from each one on, of how many, and of what.
POSITIONS = "mir.positions"
#: Attribute of the planned function: the number of the call at which most of the arena holds something.
FULLEST = "mir.fullest"
ALIGNMENT = 64


@dataclass
class Slot:
    """A buffer in the arena: its size in bytes, and the first and last call that touch it."""

    bytes: int
    first: int
    last: int
    offset: int = -1


def assign_offsets(slots: list[Slot]) -> int:
    """Gives each slot an offset, such that slots that live at one time don't overlap; returns the arena's bytes.

    The largest ones first, each at the lowest offset at which it fits.
    """
    # Rows, of what is placed so far, by offsets: first call, last call, offset, aligned end.
    placed = np.zeros((4, len(slots)), np.int64)
    for count, slot in enumerate(sorted(slots, key=lambda s: (-s.bytes, s.first))):
        first, last, offsets, ends = placed[:, :count]
        others = np.flatnonzero((first <= slot.last) & (last >= slot.first))
        # The end of all that stand before each of the others, and of all: the first gap that is large enough.
        free = np.concatenate([[0], np.maximum.accumulate(ends[others])])
        gaps = np.flatnonzero(free[:-1] + slot.bytes <= offsets[others])
        slot.offset = int(free[gaps[0] if len(gaps) else -1])
        at = int(np.searchsorted(offsets, slot.offset, side="right"))
        placed[:, at + 1 : count + 1] = placed[:, at:count].copy()
        placed[:, at] = slot.first, slot.last, slot.offset, _align(slot.offset + slot.bytes)
    return int(placed[3].max(initial=0))


def fullest(slots: Iterable[Slot]) -> int | None:
    """The first call at which the most bytes of the slots are alive; None where there are no slots."""
    change: Counter[int] = Counter()
    for slot in slots:
        change[slot.first] += _align(slot.bytes)
        change[slot.last + 1] -= _align(slot.bytes)
    alive = list(itertools.accumulate(change[call] for call in range(max(change, default=0))))
    return alive.index(max(alive)) if alive else None


def _align(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def unnamed_symbol(name: str, axis: int) -> str:
    """What stands for the size of an argument's dynamic dimension that has no symbol."""
    return re.sub(r"\W", "_", f"{name}_{axis}")


def argument_dims(function: ir.AnyOp) -> list[tuple[Size, ...]]:
    """The dimensions of each argument; dynamic ones without a symbol are told apart by the argument that has them."""
    found = []
    for argument, own in zip(function.arguments, argument_attributes(function), strict=True):
        shape = ir.RankedTensorType(argument.type).shape
        name = own.get("mir.name", f"arg{argument.arg_number}")
        words = own.get("mir.dims") or ["?"] * len(shape)
        found.append(
            tuple(
                Size.of(size if size >= 0 else unnamed_symbol(name, axis) if word == "?" else check_symbol(word))
                for axis, (size, word) in enumerate(zip(shape, words, strict=True))
            )
        )
    return found


def _is_given(value: ir.Value) -> bool:
    """Whether a result is an argument as it was given, which is read where it is: no call writes the output."""
    return isinstance(viewed(value).owner, ir.Block)


@dataclass(frozen=True)
class _Position:
    """What a kernel needs of positions.

    Attributes:
        argument: its number, which holds them.
        sizes: how many there are, how many rows follow from each one on, and of how many.
        where: what needs it.
    """

    argument: int
    sizes: tuple[str, str, str]
    where: str


@dataclass(frozen=True)
class _Measured:
    """What a kernel says for some sizes of its arguments: those of its results, and what it needs of positions."""

    results: Sequence[tuple[Size, ...]]
    positions: Sequence[_Position]


class _Planner:
    """Plans one entry function, and writes it as text."""

    def __init__(self, module: ir.AnyModule, maxima: Mapping[str, int]) -> None:
        self._entry = tensor_entry(module)
        self._block = self._entry.operation.regions[0].blocks[0]
        self._kernels = {f.name.value: f for f in functions(module, KERNEL)}
        self._maxima = maxima
        self._dims: dict[ir.Value, tuple[Size, ...]] = {}
        self._calls: list[ir.AnyOp] = []
        self._conditions: list[Condition] = []
        self._positions: dict[tuple[ir.Value, str, str, str], str] = {}
        self._measured: dict[tuple[str, tuple[tuple[Size, ...], ...]], _Measured] = {}
        self._roots: dict[ir.Value, ir.Value] = {}
        self._donated: dict[int, ir.Value] = {}
        self._regions: dict[int, RegionPlan] = {}
        self._text = PlanText(self._dims, self._roots, self._regions)

    def run(self) -> str:
        """The planned function as text."""
        self._measure()
        self._donated = donated(self._entry, self._kernels, self._roots, self._dims)
        self._find_symbols()
        outputs = self._place_outputs()
        slots = self._place_slots(set(outputs))
        arena = assign_offsets(list(slots.values()))
        return self._print(outputs, slots, arena)

    def _measure(self) -> None:
        """Symbolic dimensions of every value, the calls in order, and which values are views of which."""
        for argument, sizes in zip(self._entry.arguments, argument_dims(self._entry), strict=True):
            self._dims[argument] = sizes
            self._roots[argument] = argument
        self._measure_block(self._block)

    def _measure_block(self, block: ir.Block) -> None:
        for op in (op.operation for op in block.operations):
            if op.name == "func.call":
                self._measure_call(op)
            elif op.name == "mir.reshape":
                self._dims[op.results[0]] = result_dims(op.opview, [self._dims[v] for v in op.operands])[0]
                self._conditions += conditions(op, self._dims.__getitem__)
                self._roots[op.results[0]] = self._roots[op.operands[0]]
            elif op.name in REGIONS:
                self._measure_regions(op)
            elif op.name not in ("func.return", "mir.yield", "mir.condition"):
                raise CompileError(
                    f"the entry function may hold calls, reshapes and loops of calls only, but has '{op.name}'"
                )

    def _measure_regions(self, op: ir.Operation) -> None:
        """Those of an operation with regions: the sizes and roots of what is in them, and of its results."""
        operands = [self._dims[value] for value in op.operands]
        given = region_arguments(op, list(zip(op.operands, operands, strict=True)), lambda own: (own[0], own[1][1:]))
        bounds = [len(self._calls)]
        for block in (region.blocks[0] for region in op.regions):
            for argument, (operand, dims) in zip(block.arguments, given, strict=True):
                self._dims[argument] = dims
                self._roots[argument] = argument if captured(argument) is None else self._roots[operand]
            self._measure_block(block)
            bounds.append(len(self._calls))
        self._regions[identity(op)] = RegionPlan.of(op, (bounds[0], bounds[-2], bounds[-1]), self._roots)
        self._dims.update(zip(op.results, given_dims(op, operands, self._dims), strict=True))
        self._conditions += conditions(op, self._dims.__getitem__)

    def _measure_call(self, call: ir.AnyOp) -> None:
        callee = python_value(call.attributes["callee"])
        if callee not in self._kernels:
            raise CompileError(f"the entry function may call kernels only, but calls '{callee}': inline runs before")
        kernel, given = self._kernels[callee], tuple(self._dims[v] for v in call.operands)
        if (callee, given) not in self._measured:  # layers call the same kernels
            self._measured[callee, given] = self._measure_kernel(kernel, given)
        measured = self._measured[callee, given]
        for result, dims in zip(call.results, measured.results, strict=True):
            self._dims[result] = dims
            self._roots[result] = result
        if call.operation.block == self._block:  # a region may not run, or read other entries
            for own in measured.positions:
                root = self._roots[call.operands[own.argument]]
                if isinstance(root.owner, ir.Block):
                    self._positions.setdefault((root, *own.sizes), own.where)
        for result, argument in zip(call.results, self._ties(kernel, call), strict=True):
            if argument >= 0:
                self._roots[result] = self._roots[call.operands[argument]]
        self._calls.append(call)

    def _measure_kernel(self, kernel: ir.AnyOp, given: Sequence[tuple[Size, ...]]) -> _Measured:
        """The sizes of a kernel's results, from those of its arguments; notes the conditions on them."""
        dims = dict(zip(kernel.arguments, given, strict=True))
        places: list[_Position] = []
        *ops, end = operations(kernel, nested=False)
        for op in ops:
            try:
                found = result_dims(op.opview, [dims[v] for v in op.operands])
            except Exception as error:
                raise CompileError(f"kernel '{kernel.name.value}': {blame(op, error)}") from error
            dims.update(zip(op.results, found, strict=True))
            self._conditions += conditions(op, dims.__getitem__)
            places += self._positions_of(op, dims, kernel)
        return _Measured([dims[value] for value in end.operands], places)

    @staticmethod
    def _positions_of(op: ir.AnyOp, dims: dict[ir.Value, tuple[Size, ...]], kernel: ir.AnyOp) -> Iterable[_Position]:
        """What an operation of a kernel needs of positions that are arguments of it."""
        found = positions(op, dims.__getitem__)
        if found is None:
            return
        value = found.pos
        while not isinstance(value.owner, ir.Block) and value.owner.name == "mir.reshape":
            value = value.owner.operands[0]
        if value in list(kernel.arguments):
            sizes = (str(product(dims[found.pos])), str(found.rows), str(found.limit))
            yield _Position(ir.BlockArgument(value).arg_number, sizes, found.where)

    @staticmethod
    def _ties(kernel: ir.AnyOp, call: ir.AnyOp) -> list[int]:
        attributes = kernel.operation.attributes
        return list(attributes[TIED]) if TIED in attributes else [-1] * len(call.results)

    def _find_symbols(self) -> None:
        self._symbols = sorted({s for dims in self._dims.values() for size in dims for s in size.symbols})
        if unknown := sorted(self._maxima.keys() - self._symbols):
            known = f"the symbols are {', '.join(self._symbols)}" if self._symbols else "all sizes are static"
            raise InputError(f"option 'maxima' names '{unknown[0]}', but {known}")

    def _returned(self) -> list[ir.Value]:
        *_, terminator = operations(self._entry, nested=False)
        return list(terminator.operands)

    def _place_outputs(self) -> dict[ir.Value, int]:
        """The output that holds each root value."""
        return {self._roots[value]: number for number, value in enumerate(self._returned())}

    def _bytes(self, value: ir.Value) -> Size:
        return product(self._dims[value]) * type_bytes(ir.RankedTensorType(value.type).element_type)

    def _maximum(self, size: Size) -> int:
        return at_most(size, self._maxima)

    def _place_slots(self, outputs: set[ir.Value]) -> dict[ir.Value, Slot]:
        """Arena slots of the roots that are neither arguments nor outputs."""
        plans = self._regions.values()
        elsewhere = outputs | {root for plan in plans for root, _ in plan.given}
        slots: dict[ir.Value, Slot] = {}

        def make(value: ir.Value, first: int, last: int) -> None:
            if self._roots[value] == value and value not in elsewhere:
                slots[value] = Slot(self._maximum(self._bytes(value)), first, last)

        def keep(value: ir.Value, number: int) -> None:
            if (root := self._roots[value]) in slots:
                slots[root].last = max(slots[root].last, number)

        for number, call in enumerate(self._calls):
            for result in call.results:
                make(result, number, number)
        for plan in plans:
            for result in plan.op.results:
                make(result, plan.first, plan.final)
        for number, call in enumerate(self._calls):
            for operand in call.operands:
                keep(operand, number)
        for plan in plans:  # What is outside of a region is there in each of its steps.
            for operand in plan.op.operands:
                keep(operand, plan.final)
            for root in plan.swapped.values():
                slots[root].first = min(slots[root].first, plan.first)
                keep(root, plan.final)
        return slots

    # Text ---------------------------------------------------------------------------------------

    def _print(self, outputs: dict[ir.Value, int], slots: dict[ir.Value, Slot], arena: int) -> str:
        text, returned = self._text, self._returned()
        attributes = argument_attributes(self._entry)
        inputs = {
            a: own.get("mir.name", f"arg{number}")
            for number, (a, own) in enumerate(zip(self._entry.arguments, attributes, strict=True))
        }
        parameters = ["%arena: memref<?xi8>"]
        for number, (argument, raw) in enumerate(
            zip(self._entry.arguments, raw_argument_attributes(self._entry), strict=True)
        ):
            own = {"mir.name": ir.StringAttr.get(inputs[argument]), "mir.kind": ir.StringAttr.get("input")}
            own |= {entry.name: entry.attr for entry in raw}
            if any(size.constant is None for size in self._dims[argument]):
                own["mir.dims"] = self._words(argument)
            text.names.setdefault(argument, f"%arg{number}")
            parameters.append(f"%arg{number}: {memref_of(argument.type)} {ir.DictAttr.get(own)}")
        for number, (value, own) in enumerate(zip(returned, result_attributes(self._entry), strict=True)):
            root = self._roots[value]
            described = {
                "mir.name": ir.StringAttr.get(own.get("mir.name", f"output{number}")),
                "mir.kind": ir.StringAttr.get("output"),
            }
            if self._dims[value]:
                described["mir.dims"] = self._words(value)
            if (memory := self._donated.get(number, root)) in inputs:
                described["mir.tied"] = ir.StringAttr.get(inputs[memory])
            parameters.append(f"%out{number}: {memref_of(value.type)} {ir.DictAttr.get(described)}")
            # Of an argument or a call's result that is updated in place, the output has the memory.
            if not _is_given(value) and (text.is_like(value, root) or isinstance(root.owner, ir.Block)):
                text.names[root] = f"%out{number}"
        for argument in self._entry.arguments:
            text.bind_symbols(argument)
        for value, number in zip(returned, range(len(returned)), strict=True):
            if not _is_given(value):
                text.names[value] = f"%out{number}"
        for root, number in outputs.items():
            if root not in text.names:  # The output is a view of what a call makes.
                text.names[root] = text.recast(f"%out{number}", returned[number], root)
        for root, slot in slots.items():
            text.names[root] = text.view(root, slot.offset)
        text.block(self._block)
        maxima = ", ".join(f'"{s}" = {self._maxima.get(s, DEFAULT_MAXIMUM)} : i64' for s in self._symbols)
        naive = sum(slot.bytes for slot in slots.values())
        planned = f"mir.arena = {arena} : i64, mir.arena_without_reuse = {naive} : i64, mir.symbols = {{{maxima}}}"
        if (call := fullest(slots.values())) is not None:
            planned += f", {FULLEST} = {call} : i64"
        if self._conditions:
            planned += f", {CONDITIONS} = {self._condition_words()}"
        if self._positions:
            planned += f", {POSITIONS} = {self._position_words(inputs)}"
        body = "\n".join(f"  {line}" for line in text.lines())
        header = f"func.func @{ir.StringAttr.get(self._entry.name.value)}({', '.join(parameters)})"
        return f"{header}\n    attributes {{{planned}}} {{\n{body}\n  return\n}}"

    def _words(self, value: ir.Value) -> ir.Attribute:
        """The symbol of each dimension, the empty word where it is static."""
        kind = ir.ShapedType(value.type)  # may leave a size open that is known here, which is no symbol then
        words = [str(size) if kind.is_dynamic_dim(axis) else "" for axis, size in enumerate(self._dims[value])]
        return ir.ArrayAttr.get([ir.StringAttr.get(word) for word in words])

    def _condition_words(self) -> ir.Attribute:
        """The conditions on sizes, each one once: left, `eq` or `ge`, right, and what needs it."""
        known: dict[tuple[str, str, str], str] = {}
        for own in self._conditions:
            known.setdefault((str(own.left), "ge" if own.at_least else "eq", str(own.right)), own.where)
        words = [[ir.StringAttr.get(word) for word in (*key, where)] for key, where in known.items()]
        return ir.ArrayAttr.get([ir.ArrayAttr.get(each) for each in words])

    def _position_words(self, names: dict[ir.Value, str]) -> ir.Attribute:
        """The conditions on positions: argument, number of positions, rows, limit, and what needs it."""
        words = [(names[root], *sizes, where) for (root, *sizes), where in self._positions.items()]
        return ir.ArrayAttr.get([ir.ArrayAttr.get([ir.StringAttr.get(word) for word in each]) for each in words])


@compiler_pass(
    "lir-plan",
    dependent=("arith", "func", "memref", "mir", "scf"),
    options={
        "maxima": Option(f"declared maxima of dynamic sizes as symbol:size, others are {DEFAULT_MAXIMUM}", ""),
    },
)
def plan(module: ir.Operation, *, maxima: str) -> None:
    """Plan the memory of the entry function: calls on views into one arena, inputs, parameters and outputs."""
    entry = entry_function(module)
    text = _Planner(module, parse_maxima(maxima)).run()
    kernels = []
    for kernel in functions(module, KERNEL):
        types = ", ".join(memref_of(t) for t in [*kernel.type.inputs, *kernel.type.results])
        kind = ir.StringAttr.get(kernel_class(kernel))
        own = f"{CLASS} = {kind}"
        if TIED in kernel.operation.attributes:
            own += f", {TIED} = {kernel.operation.attributes[TIED]}"
        if (words := relations(kernel)) != [0]:
            own += f", {RELATIONS} = array<i64: {', '.join(map(str, words))}>"
        kernels.append(f"func.func private @{kernel.name.value}({types}) attributes {{{own}}}")
    entry.operation.erase()
    planned = ir.Module.parse("\n".join([text, *kernels]))
    block = module.regions[0].blocks[0]
    for kernel in functions(module, KERNEL):
        kernel.operation.attributes["sym_name"] = ir.StringAttr.get(f"{kernel.name.value}.mir")
    for op in list(planned.body.operations):
        block.append(op)
