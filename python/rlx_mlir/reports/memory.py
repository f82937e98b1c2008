# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How many bytes a module will take, from its graph alone: nothing is compiled for it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rlx_mlir import checks, ir
from rlx_mlir.errors import InputError, did_you_mean
from rlx_mlir.locations import describe_location
from rlx_mlir.mir.control import REGIONS, run_regions
from rlx_mlir.mir.cost import element_bytes
from rlx_mlir.mir.dims import DEFAULT_MAXIMUM, largest, product
from rlx_mlir.runtime.prepare import OPERATIONS
from rlx_mlir.runtime.shown import preformatted, size_text
from rlx_mlir.semantics.dims import Dims, is_known, propagate
from rlx_mlir.semantics.function import (
    PARAM,
    arguments,
    body,
    entry_function,
    function_name,
    is_replaced,
    results,
    terminator,
    viewed,
)

#: What compiling does to a module of primitives before kernels are made, on CPUs.
PIPELINE = "inline,symbol-dce,mir-lower-custom,mir-decompose,mir-unroll-scans,rlx-fuse"
#: Plans begin each buffer at a multiple of so many bytes.
ALIGNMENT = 64
#: Values of which nothing is known that a line names; the others are counted.
_LISTED = 3
#: Operations whose results have no memory of their own: constants are counted by themselves.
_NO_COPIES = ("mir.constant", "mir.reshape")
#: What the peak is the sum of.
_PARTS = ("parameters", "prepared", "inputs", "outputs", "donated", "constants", "intermediates")


@dataclass(frozen=True)
class MemoryEstimate:
    """Bytes of a call of a module, for the largest sizes of its symbols.

    Attributes:
        name: of the module.
        sizes: of its symbols.
        parameters: as callers give them.
        prepared: what follows from parameters and constants, and is computed once; compiled code may keep parts of it.
        inputs: of one call.
        outputs: of one call, but for those that are tied to an input or parameter.
        donated: of outputs that are tied: they take no memory of their own where what they are tied to is donated.
        constants: in the graph.
        intermediates: the most that is alive at a time of values between operations, in the order of the graph: each
            from the operation that makes it to the last one that reads it. Outputs, arguments and their views are none
            of them.
        peak: all of these together.
        operation: at which most is alive; '' where there are no values between operations.
        where: its block and line.
        unknown: operations whose results have sizes that follow from no symbol, and count as nothing.
    """

    name: str
    sizes: Mapping[str, int]
    parameters: int
    prepared: int
    inputs: int
    outputs: int
    donated: int
    constants: int
    intermediates: int
    operation: str
    where: str
    unknown: tuple[str, ...] = ()

    @property
    def peak(self) -> int:
        return sum(getattr(self, word) for word in _PARTS)

    def to_dict(self) -> dict[str, object]:
        """The estimate as JSON can write it."""
        return {**dataclasses.asdict(self), "sizes": dict(self.sizes), "unknown": list(self.unknown), "peak": self.peak}

    def _repr_html_(self) -> str:
        return preformatted(self)

    def __str__(self) -> str:
        sizes = ", ".join(f"{symbol} = {size}" for symbol, size in self.sizes.items())
        lines = [f"memory of a call of '{self.name}'" + (f" with {sizes}" if sizes else "")]
        notes = {
            "donated": "outputs that may take the memory of what they are tied to",
            "intermediates": f"most at '{self.operation}' {self.where}".rstrip() if self.operation else "",
            "peak": "all together",
        }
        for word in (*_PARTS, "peak"):
            lines.append(f"  {word:<13} {size_text(getattr(self, word)):>10}  {notes.get(word, '')}".rstrip())
        if self.unknown:
            listed = ", ".join(self.unknown[:_LISTED])
            more = f" and {len(self.unknown) - _LISTED} more" if len(self.unknown) > _LISTED else ""
            lines.append(f"  not counted, for their sizes follow from no symbol: results of {listed}{more}")
        return "\n".join(lines)


def memory_estimate(module: ir.Module, maxima: Mapping[str, int] | None = None) -> MemoryEstimate:
    """The estimate of a module of primitives; see `GraphModule.memory_estimate`.

    Args:
        module: at stage mir, after `PIPELINE`.
        maxima: largest size of each symbol; others are `DEFAULT_MAXIMUM`.

    Raises InputError for symbols that the module doesn't have, and for sizes that aren't positive numbers.
    """
    entry = entry_function(module)
    dims = propagate(entry)
    count = _Counter(dims, _sizes(entry, dims, maxima))
    listed = list(zip(arguments(entry), body(entry).arguments, strict=True))
    outputs = list(zip(results(entry), terminator(entry).operands, strict=True))
    prepared = _prepared(entry)
    returned = [value for _, value in outputs]
    level = _Level(count, [op.operation for op in body(entry).operations], [*returned, *prepared])
    intermediates, at = level.peak()
    return MemoryEstimate(
        name=function_name(entry),
        sizes=count.sizes,
        parameters=count.all(value for own, value in listed if own.kind == PARAM),
        prepared=count.all(prepared),
        inputs=count.all(value for own, value in listed if own.kind != PARAM),
        outputs=count.all(value for own, value in outputs if own.tied is None),
        donated=count.all(value for own, value in outputs if own.tied is not None),
        constants=count.all(op.results[0] for op in _all(body(entry)) if op.name == "mir.constant"),
        intermediates=intermediates,
        operation="" if at is None else str(at.name),
        where="" if at is None else describe_location(at.location),
        unknown=tuple(count.unknown),
    )


def _sizes(entry: ir.Operation, dims: Mapping[ir.Value, Dims], maxima: Mapping[str, int] | None) -> dict[str, int]:
    """The size of each symbol of the arguments, by name, in order."""
    given = {} if maxima is None else checks.mapping("maxima", maxima, "a mapping from symbols to sizes")
    sizes = [size for value in body(entry).arguments for size in dims[value] if is_known(size)]
    found = {symbol for size in sizes for symbol in size.symbols}
    known = sorted(found)
    for symbol in given:
        if symbol not in found:
            raise InputError(
                f"'maxima' names '{symbol}'{did_you_mean(symbol, known)}, but '{function_name(entry)}' has "
                f"{', '.join(known) or 'no symbols'}"
            )
    return {symbol: checks.whole(f"maxima of {symbol}", given.get(symbol, DEFAULT_MAXIMUM), 1) for symbol in known}


def _prepared(entry: ir.Operation) -> list[ir.Value]:
    """The results that can be computed where parameters are set: those that other operations read."""
    listed = zip(arguments(entry), body(entry).arguments, strict=True)
    fixed = {value for own, value in listed if own.kind == PARAM and not is_replaced(ir.BlockArgument(value))}
    found = []
    for op in (op.operation for op in body(entry).operations):
        static = all(isinstance(v.type, ir.ShapedType) and v.type.has_static_shape for v in op.results)
        if not op.name.startswith("mir.") or op.name.removeprefix("mir.") not in OPERATIONS or not static:
            continue
        if all(operand in fixed for operand in op.operands):
            fixed.update(op.results)
            found += [result for result in op.results if op.name not in _NO_COPIES]
    return [value for value in found if any(not _is_among(use.owner.operation, fixed) for use in value.uses)]


def _is_among(op: ir.Operation, values: set[ir.Value]) -> bool:
    """Whether an operation gives some of these values alone."""
    return bool(len(op.results)) and all(result in values for result in op.results)


def _all(block: ir.Block) -> Iterator[ir.Operation]:
    """The operations of a block, and those in their regions."""
    for op in block.operations:
        yield op.operation
        for region in op.operation.regions:
            for inner in region.blocks:
                yield from _all(inner)


class _Counter:
    """Bytes of values.

    Attributes:
        sizes: of symbols.
        unknown: names of operations of whose results nothing is known, each once, in order.
    """

    def __init__(self, dims: Mapping[ir.Value, Dims], sizes: dict[str, int]) -> None:
        self._dims = dims
        self._bytes: dict[ir.Value, int] = {}
        self.sizes = sizes
        self.unknown: dict[str, None] = {}

    def of(self, value: ir.Value) -> int:
        """Bytes of a value; 0 where its size isn't known."""
        if value not in self._bytes:
            self._bytes[value] = self._count(value)
        return self._bytes[value]

    def _count(self, value: ir.Value) -> int:
        if not isinstance(value.type, ir.RankedTensorType):
            return 0
        size = product(self._dims[value])
        if not size.symbols <= self.sizes.keys():
            owner = value.owner
            if not isinstance(owner, ir.Block):
                where = describe_location(owner.location)
                self.unknown.setdefault(f"'{owner.name}'" + (f" in {where}" if where else ""))
            return 0
        return largest(size, self.sizes) * element_bytes(value)

    def all(self, values: Iterable[ir.Value]) -> int:
        """Bytes of several values together."""
        return sum(self.of(value) for value in values)

    def aligned(self, values: Iterable[ir.Value]) -> int:
        """The same, each in a buffer of a plan."""
        return sum(-(-self.of(value) // ALIGNMENT) * ALIGNMENT for value in values)


class _Level:
    """What is alive in a block, a function's or a region's: each value until the last operation that reads it."""

    def __init__(self, count: _Counter, ops: Sequence[ir.Operation], kept: Iterable[ir.Value]) -> None:
        """Finds the last readers.

        Args:
            count: of bytes.
            ops: the operations of the block, its terminator included.
            kept: values that have memory elsewhere.
        """
        self._count = count
        self._ops = ops
        elsewhere = {viewed(value) for value in kept}
        made: dict[ir.Value, int] = {}
        last: dict[ir.Value, int] = {}
        for number, op in enumerate(ops):
            last.update((viewed(operand), number) for operand in op.operands)
            if op.name not in _NO_COPIES:
                made.update((result, number) for result in op.results if result not in elsewhere)
        self._made: dict[int, list[ir.Value]] = {}
        self._dies: dict[int, list[ir.Value]] = {}
        for value, number in made.items():
            self._made.setdefault(number, []).append(value)
            self._dies.setdefault(last.get(value, number), []).append(value)

    def peak(self) -> tuple[int, ir.Operation | None]:
        """The most bytes that are alive at a time, and the operation at which they are; None where there are none."""
        alive, most, at = 0, 0, None
        for number, op in enumerate(self._ops):
            alive += self._count.aligned(self._made.get(number, ()))
            within, inner = _inside(self._count, op)
            if alive + within > most:
                most, at = alive + within, inner or op
            alive -= self._count.aligned(self._dies.get(number, ()))
        return most, at


def _inside(count: _Counter, op: ir.Operation) -> tuple[int, ir.Operation | None]:
    """What an operation's regions have alive at most, beside its operands and results, and the operation there.

    Values that steps carry have memory for two steps; entries of sequences may be copies.
    """
    if op.name not in REGIONS:
        return 0, None
    most, at = 0, None
    for region in run_regions(op):
        if not len(region.blocks):
            continue
        block = region.blocks[0]
        captures = 0 if op.name == "mir.custom_fn" else len(op.opview.captures)
        own = len(block.arguments) if op.name == "mir.custom_fn" else captures
        carried = count.aligned(list(block.arguments)[: len(block.arguments) - own])
        found, inner = _Level(count, [each.operation for each in block.operations], ()).peak()
        if carried + found > most:
            most, at = carried + found, inner
    return most, at
