# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What each call of a module of kernels does: arithmetic and bytes, by the primitives of its kernel, as formulas."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from rlx_mlir import ir
from rlx_mlir.attributes import python_value
from rlx_mlir.locations import block_name, source_line
from rlx_mlir.lowering.functions import CLASS, KERNEL, entry_function, functions
from rlx_mlir.lowering.lir import argument_dims
from rlx_mlir.mir.control import REGIONS, region_arguments, run_regions, steps_of
from rlx_mlir.mir.cost import Shape, Sizes, cost_of
from rlx_mlir.mir.dims import Size, maximum
from rlx_mlir.rewriting import operations
from rlx_mlir.runtime.sizes import Terms
from rlx_mlir.runtime.work import Call, CountedWork, WorkTerms
from rlx_mlir.semantics.dims import operation_dims

#: The symbol of the tokens in the caches before a call, which no size of a module is named by.
POSITION = "(position)"
#: Operations that give another name to memory: what reads their result reads their operand.
_VIEW = "mir.reshape"
#: Products of integers, whose bound is another than that of f32.
_INTEGER_PRODUCTS = frozenset({"block_dot", "grouped_block_dot"})


@dataclass(frozen=True)
class WorkSizes:
    """What a call does, as formulas of the module's symbols and of `POSITION`; see `rlx_mlir.runtime.work.Work`."""

    flops: Size
    read: Size
    written: Size

    @property
    def symbols(self) -> frozenset[str]:
        """That the formulas depend on."""
        return self.flops.symbols | self.read.symbols | self.written.symbols

    def times(self, count: Size) -> WorkSizes:
        """The same so many times."""
        return WorkSizes(self.flops * count, self.read * count, self.written * count)


@dataclass(frozen=True)
class CountedCall:
    """A call of a kernel, the shapes of its operands, and what it does."""

    call: Call
    operands: tuple[Shape, ...]
    work: WorkSizes


def counted_calls(module: ir.AnyModule) -> list[CountedCall]:
    """The calls of a module at stage kernels, in the order of its plan; its context is entered.

    Raises UnsupportedError where a formula would have too many terms.
    """
    return list(_Counter(module).calls())


def counted_work(calls: Sequence[CountedCall], symbols: Sequence[str], terms: Callable[[Size], Terms]) -> CountedWork:
    """The same as an artefact has it, whose symbols are given; `terms` writes a formula with their numbers."""
    known: dict[WorkSizes, WorkTerms] = {}
    for own in calls:
        work = own.work
        if work not in known:
            known[work] = WorkTerms(terms(work.flops), terms(work.read), terms(work.written))
    return CountedWork(tuple(symbols), tuple(own.call for own in calls), tuple(known[own.work] for own in calls))


class _Counter:
    """Walks the entry function of a module."""

    def __init__(self, module: ir.AnyModule) -> None:
        self._entry = entry_function(module)
        self._kernels = {str(kernel.name.value): kernel for kernel in functions(module, KERNEL)}
        self._known: dict[tuple[str, tuple[Shape, ...]], tuple[WorkSizes, list[Shape]]] = {}

    def calls(self) -> Iterator[CountedCall]:
        """In the order of the plan."""
        shapes = dict(zip(self._entry.arguments, argument_dims(self._entry), strict=True))
        yield from self._of_block(self._entry.operation.regions[0].blocks[0], shapes, Size.of(1))

    def _of_block(self, block: ir.Block, shapes: dict[ir.Value, Shape], times: Size) -> Iterator[CountedCall]:
        """Those of a block that runs so many times; adds the shapes of what is in it."""
        for op in (op.operation for op in block.operations):
            given = tuple(shapes[value] for value in op.operands)
            if op.name == "func.call":
                work, results = self._work(op, given)
                shapes.update(zip(op.results, results, strict=True))
                yield CountedCall(self._call(op), given, work.times(times))
                continue
            if op.name in REGIONS:
                inside = region_arguments(op, given, lambda shape: shape[1:])
                steps = steps_of(op.opview, given) if op.name == "mir.scan" else Size.of(1)
                for region in run_regions(op):
                    shapes.update(zip(region.blocks[0].arguments, inside, strict=True))
                    yield from self._of_block(region.blocks[0], shapes, times * steps)
            if len(op.results):
                shapes.update(zip(op.results, operation_dims(op, given), strict=True))

    def _call(self, op: ir.AnyOp) -> Call:
        name = python_value(op.attributes["callee"])
        kernel = self._kernels[name]
        words = [o.name.removeprefix("mir.") for o in operations(kernel, nested=False) if o.name.startswith("mir.")]
        line = source_line(op.location)
        return Call(
            name,
            python_value(kernel.operation.attributes[CLASS]),
            tuple(word for word in words if word != "constant"),
            block_name(op.location),
            "" if line is None else str(line),
            not _INTEGER_PRODUCTS.isdisjoint(words),
        )

    def _work(self, op: ir.AnyOp, shapes: tuple[Shape, ...]) -> tuple[WorkSizes, list[Shape]]:
        name = python_value(op.attributes["callee"])
        key = (name, shapes)
        if key not in self._known:
            self._known[key] = _kernel_work(self._kernels[name], shapes)
        return self._known[key]


def _kernel_work(kernel: ir.AnyOp, operands: Sequence[Shape]) -> tuple[WorkSizes, list[Shape]]:
    """What one call of a kernel does with operands of the given shapes, and the shapes of its results."""
    shapes: dict[ir.Value, Shape] = dict(zip(kernel.arguments, operands, strict=True))
    *ops, terminator = operations(kernel, nested=False)
    for op in ops:
        shapes.update(zip(op.results, operation_dims(op, [shapes[value] for value in op.operands]), strict=True))
    found = Sizes(shapes, Size.of(POSITION))
    nothing = Size.of(0)
    flops = nothing
    read: dict[ir.Value, Size] = {}
    written: dict[ir.Value, Size] = {}
    roots: dict[ir.Value, ir.Value] = {}
    for op in ops:
        if op.name == _VIEW:
            roots[op.results[0]] = roots.get(op.operands[0], op.operands[0])
            continue
        own = cost_of(op, found)
        flops += own.flops
        for value in op.operands:
            root = roots.get(value, value)
            if isinstance(root.owner, ir.Block):
                read[root] = maximum(read.get(root, nothing), Size.of(own.reads.get(value, found.bytes(value))))
        for number, result in enumerate(op.results):
            written[result] = Size.of(own.writes.get(number, found.bytes(result)))
    given = {roots.get(value, value) for value in terminator.operands}
    work = WorkSizes(
        flops, sum(read.values(), nothing), sum((size for value, size in written.items() if value in given), nothing)
    )
    return work, [shapes[value] for value in terminator.operands]
