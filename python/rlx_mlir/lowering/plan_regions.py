# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Loops and choices of a planned function, as blocks of calls."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace

from mlir.dialects import arith

from rlx_mlir import ir
from rlx_mlir.errors import CompileError
from rlx_mlir.mir.cost import type_bytes
from rlx_mlir.mir.dims import Size, product
from rlx_mlir.runtime.artifact import BlockSpec, Buffer, Call
from rlx_mlir.runtime.sizes import Terms

#: Operations that `RegionReader` reads, those in loops' bodies that say how they go on included.
KINDS = frozenset(
    {
        "arith.cmpi",
        "memref.copy",
        "memref.load",
        "mir.entry_view",
        "scf.condition",
        "scf.for",
        "scf.if",
        "scf.while",
        "scf.yield",
    }
)


#: Where the number of a loop's steps starts, and by how much it grows.
_COUNTS = (Size.of(0), Size.of(1))


@dataclass(frozen=True)
class Memory:
    """A buffer of a planned function.

    Attributes:
        kind, index: `arena`, `input`, `param` or `output`, and which slot, input, parameter or output it is in.
        dims: its sizes.
        offset: bytes from the start of that; the number of a loop's step is a symbol in it.
    """

    kind: str
    index: int
    dims: tuple[Size, ...]
    offset: Size


@dataclass
class _Flag:
    """What decides: a truth value in memory, and how often a loop asks for it at most."""

    memory: Memory
    limit: Size | None = None


def _step(block: int) -> str:
    """The symbol of the number of a loop's step: none that a dimension may have."""
    return f"%{block}"


class RegionReader(ABC):
    """Reads what is in loops and choices; what derives from it reads the rest.

    Attributes:
        calls, blocks: of the plan.
        sizes: of values of type index.
        memory: of buffers.
    """

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.blocks: list[BlockSpec] = []
        self.sizes: dict[ir.Value, Size] = {}
        self.memory: dict[ir.Value, Memory] = {}
        self._flags: dict[ir.Value, _Flag] = {}
        self._limits: dict[ir.Value, Size] = {}
        self._counters: set[ir.Value] = set()  # the steps that a loop has taken
        self._place = (-1, 0)  # the block that is read, and which part of it

    @abstractmethod
    def read(self, op: ir.AnyOp) -> None:
        """Reads one operation."""

    @abstractmethod
    def terms(self, size: Size) -> Terms:
        """The size as the run time reads it."""

    def buffer(self, memory: Memory) -> Buffer:
        """A buffer as the run time reads it: what moves with the steps of loops is told apart."""
        offset = memory.offset
        if offset.constant == 0:
            return memory.kind, memory.index, 0
        moves = []
        for block in range(len(self.blocks)):
            own = [(factors, n) for factors, n in offset.terms if _step(block) in factors]
            if own:
                stride = Size(tuple((tuple(f for f in factors if f != _step(block)), n) for factors, n in own))
                moves.append((block, self.terms(stride)))
                offset = Size(tuple(term for term in offset.terms if term not in own))
        return memory.kind, memory.index, self.terms(offset), moves

    def read_in_region(self, op: ir.AnyOp) -> None:
        """Reads an operation of `KINDS`."""
        operands = list(op.operands)
        if op.name == "arith.cmpi":
            if int(op.attributes["predicate"].value) != arith.CmpIPredicate.slt or operands[0] not in self._counters:
                raise CompileError("a planned function compares only whether a loop has taken fewer steps than it may")
            self._limits[op.results[0]] = self.sizes[operands[1]]
        elif op.name == "memref.load":
            self._flags[op.results[0]] = _Flag(self.memory[operands[0]])
        elif op.name == "mir.entry_view":
            sequence, dims = self.memory[operands[0]], self.memory[operands[0]].dims[1:]
            entry = product(dims) * type_bytes(ir.MemRefType(op.results[0].type).element_type)
            offset = sequence.offset + self.sizes[operands[1]] * entry
            self.memory[op.results[0]] = replace(sequence, dims=dims, offset=offset)
        elif op.name == "memref.copy":
            if self.memory[operands[0]] != self.memory[operands[1]]:
                raise CompileError("a planned function may copy only what a loop carries, to where it began")
        elif op.name == "scf.for":
            self._for(op)
        elif op.name == "scf.while":
            self._while(op)
        elif op.name == "scf.if":
            self._limited(op) if len(op.results) else self._if(op)

    def _begin(self) -> int:
        """The number of a new block, in the one that is read."""
        self.blocks.append(BlockSpec("for", *self._place, len(self.calls), len(self.calls), len(self.calls)))
        return len(self.blocks) - 1

    def _part(self, number: int, part: int, ops: Sequence[ir.AnyOp]) -> None:
        """Reads a part of a block."""
        place, self._place = self._place, (number, part)
        for op in ops:
            self.read(op.operation)
        self._place = place

    def _same(self, values: Sequence[ir.Value], others: Sequence[ir.Value]) -> None:
        """The first are in the memory of the others."""
        for value, other in zip(values, others, strict=True):
            if other in self.memory:
                self.memory[value] = self.memory[other]

    def _swaps(self, block: ir.Block, arguments: Sequence[ir.Value]) -> tuple[tuple[Buffer, Buffer, Terms], ...]:
        """The buffers that a body gives in each other's place."""
        *_, last = block.operations
        given = list(last.operation.operands)
        swaps = []
        for number, (argument, value) in enumerate(zip(arguments, given, strict=True)):
            if argument not in self.memory or value == argument:
                continue
            other = next((n for n, own in enumerate(arguments) if own == value), number)
            if other == number or given[other] != argument:
                raise CompileError("the buffers that a loop carries stay where they are, or two of them take turns")
            if other > number:
                own = self.memory[argument]
                size = product(own.dims) * type_bytes(ir.MemRefType(argument.type).element_type)
                swaps.append((self.buffer(own), self.buffer(self.memory[value]), self.terms(size)))
        return tuple(swaps)

    def _for(self, op: ir.AnyOp) -> None:
        lower, upper, step, *inits = op.operands
        if (self.sizes[lower].constant, self.sizes[step].constant) != (0, 1):
            raise CompileError("the loops of a planned function count from 0, by 1")
        block = op.regions[0].blocks[0]
        counter, *carried = block.arguments
        number = self._begin()
        self.sizes[counter] = Size.of(_step(number))
        self._same(carried, inits)
        self._part(number, 1, list(block.operations))
        self._same(list(op.results), inits)
        self.blocks[number] = replace(
            self.blocks[number],
            end=len(self.calls),
            steps=self.terms(self.sizes[upper]),
            swaps=self._swaps(block, carried),
        )

    def _while(self, op: ir.AnyOp) -> None:
        before, after = (region.blocks[0] for region in op.regions)
        number = self._begin()
        for block in (before, after):
            self._same(list(block.arguments), list(op.operands))
            counters = [own for own in block.arguments if own not in self.memory]
            self.sizes.update((own, Size.of(_step(number))) for own in counters)
            self._counters.update(counters)
        self._part(number, 0, list(before.operations))
        middle = len(self.calls)
        self._part(number, 1, list(after.operations))
        self._same(list(op.results), list(op.operands))
        *_, end = after.operations
        for own, first, following in zip(after.arguments, op.operands, end.operation.operands, strict=True):
            if own not in self.memory and (self.sizes[first], self.sizes[following] - self.sizes[own]) != _COUNTS:
                raise CompileError("what counts the steps of a planned function's loop starts at 0, and grows by 1")
        *_, last = before.operations
        flag = self._flag(last.operation.operands[0])
        self.blocks[number] = replace(
            self.blocks[number],
            kind="while",
            middle=middle,
            end=len(self.calls),
            steps=None if flag.limit is None else self.terms(flag.limit),
            flag=self.buffer(flag.memory),
            swaps=self._swaps(after, list(after.arguments)),
        )

    def _limited(self, op: ir.AnyOp) -> None:
        """A condition that holds as long as a loop may go on, and what it is computed by does."""
        if op.operands[0] not in self._limits:
            raise CompileError("a choice of a planned function that gives a value compares steps with their limit")
        ops = list(op.regions[0].blocks[0].operations)
        for inner in ops:
            self.read(inner.operation)
        flag = self._flag(ops[-1].operation.operands[0])
        self._flags[op.results[0]] = replace(flag, limit=self._limits[op.operands[0]])

    def _if(self, op: ir.AnyOp) -> None:
        flag, number = self._flag(op.operands[0]), self._begin()
        parts = [list(region.blocks[0].operations) if len(region.blocks) else [] for region in op.regions]
        self._part(number, 0, parts[0])
        middle = len(self.calls)
        self._part(number, 1, parts[1])
        self.blocks[number] = replace(
            self.blocks[number], kind="if", middle=middle, end=len(self.calls), flag=self.buffer(flag.memory)
        )

    def _flag(self, value: ir.Value) -> _Flag:
        if value not in self._flags:
            raise CompileError("what decides in a planned function is loaded from memory")
        return self._flags[value]


def lifetimes(plan: RegionReader) -> dict[int, tuple[int, int]]:
    """The first and the last call at which each slot of the arena holds something that is still read.

    What comes from before a loop is alive in all of its steps, and so is what takes turns in it.
    """
    first: dict[int, int] = {}
    last: dict[int, int] = {}

    def note(buffers: Sequence[Buffer], begin: int, end: int) -> None:
        for kind, slot, *_ in buffers:
            if kind == "arena":
                first[slot] = min(first.get(slot, begin), begin)
                last[slot] = max(last.get(slot, end), end)

    for number, (_, buffers, _, _) in enumerate(plan.calls):
        note(buffers, number, number)
    for block in plan.blocks:
        final = max(block.begin, block.end - 1)
        if block.flag is not None:
            asked = block.begin if block.kind == "if" else max(block.begin, block.middle - 1)
            note([block.flag], asked, asked)
        flags = [] if block.flag is None else [block.flag]
        for buffers in (flags, *(call[1] for call in plan.calls[block.begin : block.end])):
            note([own for own in buffers if own[0] == "arena" and first[own[1]] < block.begin], final, final)
        for current, following, _ in block.swaps:
            note([current, following], block.begin, final)
    return {slot: (begin, last[slot]) for slot, begin in first.items()}
