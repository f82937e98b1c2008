# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the calls of a compiled module do at given sizes, as its artefact has it: arithmetic and bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlx_mlir.boundary import foreign_errors
from rlx_mlir.errors import ExecutionError, InputError
from rlx_mlir.files import Json
from rlx_mlir.runtime import sizes
from rlx_mlir.runtime.artifact import Artifact
from rlx_mlir.runtime.sizes import Terms


@dataclass(frozen=True)
class Work:
    """What a call does.

    Attributes:
        flops: operations, see `rlx_mlir.mir.cost.Cost`.
        read, written: bytes of operands, packed weights included, and of results. What stays inside the kernel isn't
            counted, and what several operations of it read counts once.
    """

    flops: int = 0
    read: int = 0
    written: int = 0

    @property
    def bytes(self) -> int:
        return self.read + self.written

    def __add__(self, other: Work) -> Work:
        return Work(self.flops + other.flops, self.read + other.read, self.written + other.written)


@dataclass(frozen=True)
class Call:
    """A call in the plan of a module.

    Attributes:
        kernel: its name.
        kind: its class: gemm, rows, attention, quantize, recurrence, conv or generic.
        ops: the primitives in it, in order.
        block: the block that it comes from; '' where the graph names none.
        source: the line that built that block; '' where it isn't known, as of artefacts, which don't have it.
        integer: whether its products are of integers.
    """

    kernel: str
    kind: str
    ops: tuple[str, ...]
    block: str
    source: str
    integer: bool


@dataclass(frozen=True)
class WorkTerms:
    """The same as `Work`, as polynomials in the symbols of a module; after these, in the tokens before the call."""

    flops: Terms
    read: Terms
    written: Terms

    def at(self, values: Sequence[int]) -> Work:
        """The work for the numbers of the symbols."""
        return Work(*(sizes.evaluate(own, values) for own in (self.flops, self.read, self.written)))


@dataclass(frozen=True)
class CountedWork:
    """The calls of a module in the order of its plan, and what each does.

    Attributes:
        symbols: of the module, in the order in which its polynomials number them.
        calls: of the plan.
        terms: of each call.
    """

    symbols: tuple[str, ...]
    calls: tuple[Call, ...]
    terms: tuple[WorkTerms, ...]

    def at(self, known: Mapping[str, int], position: int = 0) -> list[Work]:
        """What each call does, in all steps of a loop whose number is known; one step of others, and of both branches.

        Args:
            known: sizes of the module's symbols.
            position: tokens in the caches before the call.

        Raises InputError where a symbol has no size.
        """
        if missing := [symbol for symbol in self.symbols if symbol not in known]:
            raise InputError(f"the work of a module needs a size for its symbol '{missing[0]}'")
        values = [*(known[symbol] for symbol in self.symbols), position]
        distinct = {id(own): own for own in self.terms}  # layers do the same
        done = {number: own.at(values) for number, own in distinct.items()}
        return [done[id(own)] for own in self.terms]

    def to_dict(self) -> dict[str, Any]:
        """As an artefact has it: each polynomial and each kernel once."""
        distinct: dict[str, int] = {}
        work: list[list[Json]] = []
        calls = []
        for call, own in zip(self.calls, self.terms, strict=True):
            words: list[Json] = [sizes.plain(each) for each in (own.flops, own.read, own.written)]
            number = distinct.setdefault(repr(words), len(work))
            if number == len(work):
                work.append(words)
            calls.append([number, call.block])
        kernels = {call.kernel: [list(call.ops), call.integer] for call in self.calls}
        return {"kernels": kernels, "work": work, "calls": calls}


def work_of(artifact: Artifact) -> CountedWork | None:
    """What the calls of an artefact do; None where it doesn't say so.

    Raises ExecutionError where what it says makes no sense.
    """
    if not artifact.work:
        return None
    problem = f"what the calls of '{artifact.name}' do makes no sense"
    try:
        with foreign_errors(problem, ExecutionError):
            return _read(artifact)
    except InputError as error:
        raise ExecutionError(f"{problem}: {error}") from None


def _read(artifact: Artifact) -> CountedWork:
    count = len(artifact.symbols) + 1
    distinct = []
    for words in artifact.work["work"]:
        flops, read, written = (sizes.read(own) for own in words)
        for own in (flops, read, written):
            sizes.check(own, count)
        distinct.append(WorkTerms(flops, read, written))
    given = artifact.work["calls"]
    if len(given) != len(artifact.calls):
        raise InputError(f"work is given of {len(given)} calls, but there are {len(artifact.calls)}")
    calls, terms = [], []
    for (number, block), (kernel, *_) in zip(given, artifact.calls, strict=True):
        name = artifact.kernels[kernel]
        ops, integer = artifact.work["kernels"][name]
        if type(number) is not int or not 0 <= number < len(distinct):
            raise InputError(f"a call does work {number!r} of {len(distinct)}")
        calls.append(Call(name, artifact.kinds.get(name, ""), tuple(ops), str(block), "", bool(integer)))
        terms.append(distinct[number])
    return CountedWork(tuple(name for name, _ in artifact.symbols), tuple(calls), tuple(terms))


__all__ = ["Call", "CountedWork", "Work", "WorkTerms", "work_of"]
