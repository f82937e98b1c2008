# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How many bytes a module will take: its memory is planned as compiling does, but no code is made."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rlx_mlir import checks, ir
from rlx_mlir.attributes import python_value
from rlx_mlir.errors import InputError, did_you_mean
from rlx_mlir.locations import describe_location
from rlx_mlir.mir.cost import element_bytes, type_bytes
from rlx_mlir.mir.dims import DEFAULT_MAXIMUM, Size, product
from rlx_mlir.rewriting import operations, run_pipeline
from rlx_mlir.rewriting.insertion import with_passes
from rlx_mlir.rewriting.to_kernels import KernelSteps
from rlx_mlir.runtime.shown import preformatted, size_text
from rlx_mlir.semantics.function import (
    INPUT,
    PARAM,
    PREPARE,
    Argument,
    arguments,
    attribute_dictionaries,
    body,
    entry_function,
    functions,
    results,
    role,
)

#: What is printed, in order.
_LINES = ("parameters", "prepared", "constants", "inputs", "outputs", "donated", "arena", "peak", "peak_donated")


@dataclass(frozen=True)
class MemoryEstimate:
    """Bytes of a call of a module, for the largest sizes of its symbols: what compiled code will say of itself.

    Attributes:
        name: of the module.
        sizes: of the symbols that are left where memory is planned.
        parameters: as callers give them.
        prepared: what is made of parameters and constants once, and kept beside those that are read as they are.
        constants: in the graph; they are in the code of kernels, or what preparation starts from.
        inputs: of one call.
        outputs: of one call, but for those that are tied to an input or parameter.
        donated: of outputs that are tied: they take no memory of their own where what they are tied to is donated.
        arena: of values between kernels, with memory reused.
        peak: all arrays of one call at a time, arena and parameters as code reads them included, if nothing is donated.
        peak_donated: the same if everything is donated that outputs are tied to.
        kernel: of the call at which most of the arena is in use; '' where there are no values between kernels.
        where: its block and line.
    """

    name: str
    sizes: Mapping[str, int]
    parameters: int
    prepared: int
    constants: int
    inputs: int
    outputs: int
    donated: int
    arena: int
    peak: int
    peak_donated: int
    kernel: str
    where: str

    def to_dict(self) -> dict[str, object]:
        """The estimate as JSON can write it."""
        return {**dataclasses.asdict(self), "sizes": dict(self.sizes)}

    def _repr_html_(self) -> str:
        return preformatted(self)

    def __str__(self) -> str:
        sizes = ", ".join(f"{symbol} = {size}" for symbol, size in self.sizes.items())
        lines = [f"memory of a call of '{self.name}'" + (f" with {sizes}" if sizes else "")]
        notes = {
            "prepared": "made of parameters once",
            "donated": "outputs that may take the memory of what they are tied to",
            "arena": f"most at '{self.kernel}' {self.where}".rstrip() if self.kernel else "",
            "peak": "all that is there in a call",
            "peak_donated": "the same if what outputs are tied to is donated",
        }
        for word in _LINES:
            title, size = word.replace("_", " "), size_text(getattr(self, word))
            lines.append(f"  {title:<13} {size:>10}  {notes.get(word, '')}".rstrip())
        return "\n".join(lines)


def memory_estimate(
    module: ir.Module,
    name: str,
    steps: KernelSteps,
    *,
    policy: str = "direct",
    maxima: Mapping[str, int] | None = None,
    skipped: Sequence[str] = (),
) -> MemoryEstimate:
    """The estimate of a module; see `GraphModule.memory_estimate`.

    Args:
        module: at stage hir or mir; it becomes that of stage lir.
        name: of the module.
        steps: what makes kernels.
        policy: how blocks lower.
        maxima: largest size of each symbol; others are `DEFAULT_MAXIMUM`.
        skipped: names of passes that aren't run.

    Raises InputError for symbols that the module doesn't have, and for sizes that aren't positive numbers; PassError
    where a pass fails.
    """
    declared = arguments(entry_function(module))
    sizes = _sizes(name, _symbols(declared), maxima)
    pipeline = f"hir-to-mir{{policy={policy}}},{steps}"
    run_pipeline(module, with_passes([("kernels", pipeline)], {}, skipped)[0][1])
    prepared = {result.name for own in functions(module) if role(own) == PREPARE for result in results(own)}
    constants = [op.results[0] for op in operations(module) if op.name == "mir.constant"]
    counted = sum(element_bytes(own) * math.prod(own.type.shape) for own in constants)
    left = _symbols(arguments(entry_function(module)))  # arguments that nothing reads are gone, and so may symbols be
    listed = ",".join(f"{symbol}:{size}" for symbol, size in sizes.items() if symbol in left)
    run_pipeline(module, f'lir-plan{{maxima="{listed}"}}')
    return _planned(module, name, declared, sizes, prepared, counted)


def _planned(
    module: ir.Module,
    name: str,
    declared: Sequence[Argument],
    sizes: Mapping[str, int],
    prepared: set[str],
    constants: int,
) -> MemoryEstimate:
    """What a planned module says.

    Args:
        module: at stage lir.
        name: of the module.
        declared: what callers give.
        sizes: of the symbols of these.
        prepared: names of the parameters that are made once.
        constants: bytes of them.
    """
    entry = entry_function(module)
    attributes = entry.attributes
    planned = {str(symbol): int(size) for symbol, size in python_value(attributes["mir.symbols"]).items()}
    buffers = _buffers(entry, planned)
    arena = int(python_value(attributes["mir.arena"]))

    def total(kind: str, *, tied: bool | None = None) -> int:
        return sum(own.bytes for own in buffers if own.kind == kind and tied in (None, own.tied))

    read = total(PARAM) + total(INPUT) + total("output", tied=False) + arena
    call = _call(entry, int(python_value(attributes["mir.fullest"]))) if "mir.fullest" in attributes else None
    return MemoryEstimate(
        name=name,
        sizes=planned,
        parameters=sum(_declared_bytes(own, sizes) for own in declared if own.kind == PARAM),
        prepared=sum(own.bytes for own in buffers if own.kind == PARAM and own.name in prepared),
        constants=constants,
        inputs=total(INPUT),
        outputs=total("output", tied=False),
        donated=total("output", tied=True),
        arena=arena,
        peak=read + total("output", tied=True),
        peak_donated=read,
        kernel="" if call is None else str(python_value(call.attributes["callee"])),
        where="" if call is None else describe_location(call.location),
    )


def _symbols(declared: Iterable[Argument]) -> list[str]:
    """The symbols of arguments, in order of appearance."""
    words = (word for own in declared for word in own.symbols)
    return list(dict.fromkeys(word for word in words if word not in ("", "?")))


def _sizes(name: str, known: Sequence[str], maxima: Mapping[str, int] | None) -> dict[str, int]:
    """The largest size of each symbol."""
    given = {} if maxima is None else checks.mapping("maxima", maxima, "a mapping from symbols to sizes")
    for symbol in given:
        if symbol not in known:
            raise InputError(
                f"'maxima' names '{symbol}'{did_you_mean(symbol, known)}, but '{name}' has "
                f"{', '.join(known) or 'no symbols'}"
            )
    return {symbol: checks.whole(f"maxima of {symbol}", given.get(symbol, DEFAULT_MAXIMUM), 1) for symbol in known}


def _declared_bytes(argument: Argument, sizes: Mapping[str, int]) -> int:
    """Bytes of a parameter as callers give it; what has no symbol is as large as compiling takes it to be."""
    shape = (
        sizes.get(symbol, DEFAULT_MAXIMUM) if size < 0 else size
        for size, symbol in zip(argument.type.shape, argument.symbols, strict=True)
    )
    return math.prod(shape) * type_bytes(argument.type.element_type)


@dataclass(frozen=True)
class _Buffer:
    """A buffer that a planned function is given: its kind is `input`, `param` or `output`."""

    name: str
    kind: str
    bytes: int
    tied: bool


def _buffers(entry: ir.Operation, sizes: Mapping[str, int]) -> list[_Buffer]:
    """The buffers of a planned function beside the arena."""
    given = list(body(entry).arguments)
    found = []
    for argument, raw in zip(given[1:], attribute_dictionaries(entry, "arg_attrs", len(given))[1:], strict=True):
        own = {key: python_value(value) for key, value in raw.items()}
        kind = ir.MemRefType(argument.type)
        words = own.get("mir.dims", [""] * kind.rank)
        dims = [Size.parse(word) if size < 0 else Size.of(size) for size, word in zip(kind.shape, words, strict=True)]
        count = product(dims).evaluate(sizes) * type_bytes(kind.element_type)
        found.append(_Buffer(str(own["mir.name"]), str(own["mir.kind"]), count, "mir.tied" in own))
    return found


def _call(entry: ir.Operation, number: int) -> ir.Operation:
    """The call of a planned function that has a number, those in loops and branches included."""
    calls = (op for op in operations(entry) if op.name == "func.call")
    return next(itertools.islice(calls, number, None))
