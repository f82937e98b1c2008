# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What each call of a compiled module does at given sizes: arithmetic and bytes, by the primitives of its kernel."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rlx_mlir import ir
from rlx_mlir.attributes import python_value
from rlx_mlir.compiler import Compilation, CompileOptions
from rlx_mlir.errors import InputError
from rlx_mlir.locations import block_name, source_line
from rlx_mlir.lowering.functions import KERNEL, entry_function, functions
from rlx_mlir.lowering.lir import argument_dims
from rlx_mlir.lowering.outline import CLASS
from rlx_mlir.mir.control import REGIONS, region_arguments, run_regions, steps_of
from rlx_mlir.mir.cost import Shape, Sizes, cost_of
from rlx_mlir.mir.dims import Size
from rlx_mlir.rewriting import operations
from rlx_mlir.semantics.dims import operation_dims

if TYPE_CHECKING:
    from rlx_mlir.hir.module import GraphModule

#: Operations that give another name to memory: what reads their result reads their operand.
_VIEW = "mir.reshape"
#: Products of integers, whose bound is another than that of f32.
_INTEGER_PRODUCT = "block_dot"


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

    def times(self, count: int) -> Work:
        """The same so many times."""
        return Work(self.flops * count, self.read * count, self.written * count)


@dataclass(frozen=True)
class Call:
    """A call in the plan of a module.

    Attributes:
        kernel: its name.
        kind: its class: gemm, rows, attention, quantize, recurrence, conv or generic.
        ops: the primitives in it, in order.
        block: the block that it comes from; '' where the graph names none.
        source: the line that built that block; '' where it isn't known.
        integer: whether its products are of integers.
    """

    kernel: str
    kind: str
    ops: tuple[str, ...]
    block: str
    source: str
    integer: bool


class ModuleWork:
    """The calls of a module in the order of its plan, and what each does at given sizes."""

    def __init__(self, module: GraphModule, options: CompileOptions) -> None:
        """Compiles a graph, at stage hir or mir, up to its kernels."""
        compilation = Compilation(module, options)
        compilation.run(until="kernels")
        self._module = compilation.module
        self._known: dict[tuple[str, tuple[Shape, ...], int], tuple[Work, list[Shape]]] = {}
        with self._module.context:
            self._entry = entry_function(self._module)
            self._kernels = {str(kernel.name.value): kernel for kernel in functions(self._module, KERNEL)}
            found = [op for op in operations(self._entry) if op.name == "func.call"]
            self.calls: tuple[Call, ...] = tuple(self._call(op) for op in found)

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
            _INTEGER_PRODUCT in words,
        )

    def at(self, sizes: Mapping[str, int], position: int = 0) -> list[Work]:
        """What each call does, in all steps of a loop whose number is known; one step of others, and of both branches.

        Args:
            sizes: of the module's symbols.
            position: tokens in the caches before the call.

        Raises InputError where a symbol has no size.
        """
        return [work for _, work in self._walk(sizes, position)]

    def operands(self, sizes: Mapping[str, int]) -> list[tuple[Shape, ...]]:
        """The shapes of each call's operands; raises as `at` does."""
        return [shapes for shapes, _ in self._walk(sizes, 0)]

    def kernel(self, name: str) -> ir.AnyOp:
        """The function of a kernel, which holds its primitives, for use with the module's context."""
        return self._kernels[name]

    @property
    def context(self) -> ir.Context:
        """Of the module."""
        context: ir.Context = self._module.context
        return context

    def _walk(self, sizes: Mapping[str, int], position: int) -> Iterator[tuple[tuple[Shape, ...], Work]]:
        """Each call's operands and work."""
        with self._module.context:
            shapes: dict[ir.Value, Shape] = {}
            for argument, own in zip(self._entry.arguments, argument_dims(self._entry), strict=True):
                try:
                    shapes[argument] = tuple(size.evaluate(sizes) for size in own)
                except KeyError as error:
                    raise InputError(f"the work of a module needs a size for its symbol {error}") from None
            yield from self._walk_block(self._entry.operation.regions[0].blocks[0], shapes, position, 1)

    def _walk_block(
        self, block: ir.Block, shapes: dict[ir.Value, Shape], position: int, times: int
    ) -> Iterator[tuple[tuple[Shape, ...], Work]]:
        """The same of a block that runs so many times; adds the shapes of what is in it."""
        for op in (op.operation for op in block.operations):
            given = tuple(shapes[value] for value in op.operands)
            if op.name == "func.call":
                work, results = self._work(op, given, position)
                shapes.update(zip(op.results, results, strict=True))
                yield given, work.times(times)
                continue
            if op.name in REGIONS:
                inside = region_arguments(op, given, lambda shape: shape[1:])
                steps = 1
                if op.name == "mir.scan":
                    steps = steps_of(op.opview, [tuple(map(Size.of, shape)) for shape in given]).constant or 0
                for region in run_regions(op):
                    shapes.update(zip(region.blocks[0].arguments, inside, strict=True))
                    yield from self._walk_block(region.blocks[0], shapes, position, times * steps)
            if len(op.results):
                shapes.update(zip(op.results, _result_shapes(op, given), strict=True))

    def _work(self, op: ir.AnyOp, shapes: tuple[Shape, ...], position: int) -> tuple[Work, list[Shape]]:
        name = python_value(op.attributes["callee"])
        key = (name, shapes, position)
        if key not in self._known:
            self._known[key] = kernel_work(self._kernels[name], shapes, position)
        return self._known[key]


def _result_shapes(op: ir.AnyOp, operands: Sequence[Shape]) -> list[Shape]:
    dims = operation_dims(op, [tuple(Size.of(size) for size in shape) for shape in operands])
    return [tuple(size.constant or 0 for size in own) for own in dims]


def kernel_work(kernel: ir.AnyOp, operands: Sequence[Shape], position: int = 0) -> tuple[Work, list[Shape]]:
    """What one call of a kernel does with operands of the given shapes, and the shapes of its results."""
    shapes: dict[ir.Value, Shape] = dict(zip(kernel.arguments, operands, strict=True))
    *ops, terminator = operations(kernel, nested=False)
    for op in ops:
        shapes.update(zip(op.results, _result_shapes(op, [shapes[value] for value in op.operands]), strict=True))
    found = Sizes(shapes, position)
    flops = 0
    read: dict[ir.Value, int] = {}
    written: dict[ir.Value, int] = {}
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
                read[root] = max(read.get(root, 0), own.reads.get(value, found.bytes(value)))
        for number, result in enumerate(op.results):
            written[result] = own.writes.get(number, found.bytes(result))
    given = {roots.get(value, value) for value in terminator.operands}
    work = Work(flops, sum(read.values()), sum(size for value, size in written.items() if value in given))
    return work, [shapes[value] for value in terminator.operands]
