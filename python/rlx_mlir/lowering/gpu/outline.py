# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The pass `gpu-outline-launches`: launches become kernels of one GPU module, called with pointers and numbers.

A kernel takes the pointers of the buffers that it uses, then their dynamic sizes, then the positions of loops on the
host that the launch stands in. Whatever else a launch uses is computed again in the kernel: views of memory, sizes, and
numbers read from memory, which only the GPU can read.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from mlir.dialects import memref

from rlx_mlir import ir
from rlx_mlir.errors import CompileError
from rlx_mlir.lowering.gpu.build import (
    KERNELS,
    bodies,
    found,
    gpu_index,
    gpu_module,
    is_pure,
    location_of,
    name_of,
    number,
)
from rlx_mlir.lowering.kernel_body import constant_value
from rlx_mlir.rewriting import compiler_pass, operations

#: What a function on the host may hold beside arithmetic and views.
HOST = ("gpu.launch", "gpu.launch_func", "nvgpu.tma.create.descriptor", "scf.for", "scf.if", "scf.yield", "func.return")
#: The numbers of a thread, in the order of a launch's arguments.
NUMBERS = [(name, d) for name in ("gpu.block_id", "gpu.thread_id", "gpu.grid_dim", "gpu.block_dim") for d in "xyz"]


@compiler_pass("gpu-outline-launches", dependent=("gpu", "memref", "arith"))
def outline_launches(module: ir.Operation) -> None:
    """Turn each `gpu.launch` into a kernel of `gpu.module @kernels` and a `gpu.launch_func`.

    Kernels take bare pointers (`memref<f32>`), then the dynamic sizes of those buffers, then positions of loops on the
    host. What a launch uses besides is computed again in the kernel. Afterwards functions on the host touch no memory:
    they compute sizes and launch.

    Raises CompileError where the host would have to: memory whose size depends on data, or that loops carry.
    """
    kernels = gpu_module(module)
    for body in bodies(module):
        for count, launch in enumerate(found(body.operation, "gpu.launch")):
            stem = re.sub(r"\W", "_", str(body.name.value).removesuffix(".body"))
            _Outliner(body, launch, kernels, f"{stem}_{count}").run()
        _erase_unused(body)
        _check_host(body)


class _Outliner:
    """One launch of one body."""

    def __init__(self, body: ir.AnyOp, launch: ir.AnyOp, kernels: ir.AnyOp, name: str) -> None:
        self._body, self._launch, self._kernels, self._name = body, launch, kernels, name
        self._mapping: dict[ir.Value, ir.Value] = {}
        self._anchor: ir.OpView | None = None

    def run(self) -> None:
        """Makes the kernel, and calls it in place of the launch."""
        captured = self._captured()
        buffers, extras = self._arguments(captured)
        kinds = [ir.MemRefType(buffer.type) for buffer in buffers]
        dynamic = [
            (buffer, axis)
            for buffer, k in zip(buffers, kinds, strict=True)
            for axis in range(k.rank)
            if k.shape[axis] < 0
        ]
        # Scratch is bytes without a size: views of it say how much there is.
        dynamic = [(buffer, axis) for buffer, axis in dynamic if buffer != self._scratch]
        threads = [constant_value(value) for value in list(self._launch.operands)[3:6]]
        if None in threads:
            raise CompileError(f"{location_of(self._launch)} has blocks of a size that isn't constant")
        types = [f"memref<{kind.element_type}>" for kind in kinds] + ["index"] * (len(dynamic) + len(extras))
        names = ", ".join(f"%a{i}: {kind}" for i, kind in enumerate(types))
        size = ", ".join(map(str, threads))
        text = (
            f"gpu.module @{KERNELS} {{ gpu.func @{self._name}({names}) kernel "
            f"attributes {{known_block_size = array<i32: {size}>}} {{ gpu.return }} }}"
        )
        parsed = ir.Module.parse(text)
        kernel = parsed.body.operations[0].regions[0].blocks[0].operations[0]
        self._kernels.regions[0].blocks[0].append(kernel)
        kernel.operation.location = self._launch.location
        block = kernel.regions[0].blocks[0]
        self._anchor = block.operations[0]
        arguments = list(block.arguments)
        with self._launch.location, ir.InsertionPoint(self._anchor):
            sizes = dict(zip(dynamic, arguments[len(buffers) : len(buffers) + len(dynamic)], strict=True))
            for buffer, kind, pointer in zip(buffers, kinds, arguments, strict=False):
                self._mapping[buffer] = self._buffer(buffer, kind, pointer, sizes)
            for extra, argument in zip(extras, arguments[len(buffers) + len(dynamic) :], strict=True):
                self._mapping[extra] = argument
            for value in captured:
                self._clone(value)
        self._move()
        with self._launch.location, ir.InsertionPoint(self._launch):
            self._call(buffers, kinds, dynamic, extras)
        self._launch.erase()

    @property
    def _scratch(self) -> ir.Value:
        return list(self._body.arguments)[-1]

    def _captured(self) -> list[ir.Value]:
        """Values from outside that operations of the launch use."""
        region: dict[ir.Value, None] = {}
        blocks = [self._launch.regions[0].blocks[0]]
        own: set[ir.Value] = set(blocks[0].arguments)
        for op in operations(self._launch):
            own.update(op.results)
            for nested in op.regions:
                for block in nested.blocks:
                    own.update(block.arguments)
        for op in operations(self._launch):
            for value in op.operands:
                if value not in own:
                    region[value] = None
        return list(region)

    def _arguments(self, captured: list[ir.Value]) -> tuple[list[ir.Value], list[ir.Value]]:
        """The buffers of the body, and the positions of loops, that values follow from."""
        entry = self._body.regions[0].blocks[0]
        needed: dict[ir.Value, None] = {}
        todo, seen = list(captured), set()
        while todo:
            value = todo.pop()
            if value in seen:
                continue
            seen.add(value)
            owner = value.owner
            if isinstance(owner, ir.Block):
                if owner != entry and str(value.type) != "index":
                    raise CompileError(f"{location_of(self._launch)} uses memory that a loop on the host carries")
                needed[value] = None
            elif name_of(owner) == "memref.load" or is_pure(owner):
                todo += list(owner.operands)
            else:
                raise CompileError(
                    f"{location_of(self._launch)} uses what the host would compute: {location_of(owner)}"
                )
        arguments = list(self._body.arguments)
        buffers = [argument for argument in arguments if argument in needed and str(argument.type) != "index"]
        return buffers, [value for value in needed if str(value.type) == "index"]

    def _buffer(
        self, buffer: ir.Value, kind: ir.MemRefType, pointer: ir.Value, sizes: dict[tuple[ir.Value, int], ir.Value]
    ) -> ir.Value:
        """The buffer that a pointer is of, in the kernel."""
        if kind.rank == 0:
            return pointer
        if buffer == self._scratch:
            shape: list[ir.Value | int] = [number((1 << 63) - 1)]
        else:
            shape = [sizes[buffer, axis] if size < 0 else int(size) for axis, size in enumerate(kind.shape)]
        return identity_view(pointer, kind, shape)

    def _clone(self, value: ir.Value) -> ir.Value:
        """The value in the kernel, computed again before its body."""
        if value in self._mapping:
            return self._mapping[value]
        owner = value.owner
        operands = [self._clone(operand) for operand in owner.operands]
        clone = owner.operation.clone()
        for place, operand in enumerate(operands):
            clone.operation.operands[place] = operand
        if name_of(owner) == "memref.get_global":
            self._copy_global(str(ir.FlatSymbolRefAttr(owner.attributes["name"]).value))
        self._mapping[value] = clone.operation.results[0]
        return self._mapping[value]

    def _copy_global(self, name: str) -> None:
        """Copies a constant in memory into the GPU module."""
        block = self._kernels.regions[0].blocks[0]
        if any(
            op.operation.name == "memref.global" and op.operation.attributes["sym_name"].value == name
            for op in block.operations
        ):
            return
        module = self._body.operation.parent
        for op in module.regions[0].blocks[0].operations:
            if op.operation.name == "memref.global" and op.operation.attributes["sym_name"].value == name:
                with ir.InsertionPoint.at_block_begin(block):
                    op.operation.clone()

    def _move(self) -> None:
        """Moves the launch's operations into the kernel, with the kernel's values in place of those from outside."""
        launched = self._launch.regions[0].blocks[0]
        with self._launch.location, ir.InsertionPoint(self._anchor):
            for (name, dimension), argument in zip(NUMBERS, launched.arguments, strict=True):
                if next(iter(argument.uses), None) is not None:
                    argument.replace_all_uses_with(gpu_index(name, dimension))
        *ops, terminator = list(launched.operations)
        for op in [inner for outer in ops for inner in (outer.operation, *operations(outer.operation))]:
            for place, operand in enumerate(op.operands):
                if operand in self._mapping:
                    op.operands[place] = self._mapping[operand]
        for op in ops:
            op.operation.move_before(self._anchor)
        terminator.operation.erase()

    def _call(
        self,
        buffers: list[ir.Value],
        kinds: list[ir.MemRefType],
        dynamic: list[tuple[ir.Value, int]],
        extras: list[ir.Value],
    ) -> None:
        pointers = [
            ir.Operation.create(
                "memref.reinterpret_cast",
                results=[ir.MemRefType.get([], kind.element_type)],
                operands=[buffer],
                attributes={
                    "operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, 0, 0, 0]),
                    "static_offsets": ir.DenseI64ArrayAttr.get([0]),
                    "static_sizes": ir.DenseI64ArrayAttr.get([]),
                    "static_strides": ir.DenseI64ArrayAttr.get([]),
                },
            ).result
            if kind.rank
            else buffer
            for buffer, kind in zip(buffers, kinds, strict=True)
        ]
        sizes = [memref.dim(buffer, number(axis)) for buffer, axis in dynamic]
        arguments = [*pointers, *sizes, *extras]
        ir.Operation.create(
            "gpu.launch_func",
            operands=[*list(self._launch.operands)[:6], *arguments],
            attributes={
                "kernel": ir.SymbolRefAttr.get([KERNELS, self._name]),
                "operandSegmentSizes": ir.DenseI32ArrayAttr.get([0, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, len(arguments), 0]),
            },
        )


def identity_view(source: ir.Value, kind: ir.MemRefType, shape: list[ir.Value | int]) -> ir.Value:
    """Memory seen as a buffer of this type, whose elements lie one after the other."""
    strides: list[ir.Value | int] = []
    step: ir.Value | int = 1
    for size in reversed(shape):
        strides.insert(0, step)
        step = _times(step, size)
    parts = [_split(part) for part in (shape, strides)]
    static_sizes, static_strides = (static for static, _ in parts)
    unknown = ir.ShapedType.get_dynamic_stride_or_offset()
    layout = ir.StridedLayoutAttr.get(0, [unknown if s is None else s for s in static_strides])
    strided = ir.MemRefType.get(kind.shape, kind.element_type, layout)
    dynamic_size = ir.ShapedType.get_dynamic_size()
    operands = [source, *parts[0][1], *parts[1][1]]
    cast = ir.Operation.create(
        "memref.reinterpret_cast",
        results=[strided],
        operands=operands,
        attributes={
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, 0, len(parts[0][1]), len(parts[1][1])]),
            "static_offsets": ir.DenseI64ArrayAttr.get([0]),
            "static_sizes": ir.DenseI64ArrayAttr.get([dynamic_size if s is None else s for s in static_sizes]),
            "static_strides": ir.DenseI64ArrayAttr.get([unknown if s is None else s for s in static_strides]),
        },
    ).result
    return cast if strided == kind else memref.cast(kind, cast)


def _split(values: list[ir.Value | int]) -> tuple[list[int | None], list[ir.Value]]:
    """(numbers, None where dynamic; the dynamic ones)"""
    return [v if isinstance(v, int) else None for v in values], [v for v in values if not isinstance(v, int)]


def _times(left: ir.Value | int, right: ir.Value | int) -> ir.Value | int:
    from mlir.dialects import arith

    if isinstance(left, int) and isinstance(right, int):
        return left * right
    if left in (0, 1) and isinstance(left, int):
        return right if left else 0
    left, right = (number(v) if isinstance(v, int) else v for v in (left, right))
    return arith.muli(left, right)


def _erase_unused(body: ir.AnyOp) -> None:
    """Erases what only launches used."""
    removable: Callable[[ir.AnyOp], bool] = lambda op: name_of(op) in ("memref.load", "memref.alloc") or is_pure(op)  # noqa: E731
    for op in reversed(list(operations(body.operation))):
        if removable(op) and all(next(iter(result.uses), None) is None for result in op.results):
            op.erase()


def _check_host(body: ir.AnyOp) -> None:
    for op in operations(body.operation):
        if name_of(op) not in HOST and not is_pure(op):
            raise CompileError(f"kernel '{body.name.value}': {location_of(op)} would run on the host")
