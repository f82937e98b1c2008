# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Evaluates the host's part of scheduled kernels in Python: which kernels are launched, and with what.

`launches(kernel, name, sizes)` runs `NAME.body` of a `DeviceKernel` on buffers of given sizes. Nothing is computed but
sizes, so buffers are their names: a pointer parameter is a buffer and an offset in bytes.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rlx_mlir import ir
from rlx_mlir.codegen.gpu.kernel import DeviceKernel

SMEM = "llvm.mlir.global external @smem() {addr_space = 3 : i32, alignment = 1024 : i64} : !llvm.array<0 x i8>"
#: What stands for elements that tensor maps don't have.
MAPPED = {"f8E4M3FN": "u8", "f8E5M2": "u8"}
_BYTES = {"i8": 1, "f8E4M3FN": 1, "f8E5M2": 1, "f16": 2, "bf16": 2, "f32": 4, "i32": 4, "f64": 8, "i64": 8}


@dataclass(frozen=True)
class Pointer:
    """A buffer by name, and an offset in bytes."""

    buffer: str
    offset: int = 0


@dataclass(frozen=True)
class Number:
    """A number and its type: i32, or i64 for indices too."""

    value: int
    type: str


@dataclass(frozen=True)
class Map:
    """A tensor map: sizes and box outermost first, strides in bytes of all dimensions but the last."""

    address: Pointer
    element: str
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: int


@dataclass(frozen=True)
class Launch:
    """One launch."""

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: int
    parameters: tuple[Pointer | Number | Map, ...]
    pdl: bool


@dataclass(frozen=True)
class _Buffer:
    name: str
    element: str
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0

    @property
    def pointer(self) -> Pointer:
        return Pointer(self.name, self.offset)


@functools.lru_cache(maxsize=4)  # of one kernel, tests ask for scratch memory and launches, at several sizes
def _module(device: str, host: str) -> ir.Module:
    inner = f"gpu.module @kernels {{\n{SMEM}\n{device}\n}}"
    with ir.new_context(), ir.Location.unknown():
        module = ir.Module.parse(f"module attributes {{gpu.container_module}} {{\n{inner}\n{host}\n}}")
        module.operation.verify()
    return module


def _contiguous(sizes: Sequence[int]) -> tuple[int, ...]:
    strides = [1]
    for size in reversed(sizes[1:]):
        strides.append(strides[-1] * size)
    return tuple(reversed(strides))[-len(sizes) :] if sizes else ()


def launches(kernel: DeviceKernel, name: str, sizes: Sequence[Sequence[int]], scratch: int = 1 << 30) -> list[Launch]:
    """The launches of `NAME.body` for buffers of these sizes; they are named b0, b1, ... and scratch."""
    run = _evaluate(kernel, f"{name}.body", [*sizes, None, None, [scratch]])
    return run.launches


def scratch_bytes(kernel: DeviceKernel, name: str, sizes: Sequence[Sequence[int]]) -> int:
    """What `NAME.scratch` computes."""
    return int(_evaluate(kernel, f"{name}.scratch", sizes).returned[0])


def _evaluate(kernel: DeviceKernel, function: str, arguments: Sequence[Sequence[int] | None]) -> _Run:
    module = _module(kernel.device, kernel.host.text)
    with module.context, ir.Location.unknown():
        for op in module.body.operations:
            symbol = op.operation.attributes["sym_name"]
            if ir.StringAttr(symbol).value == function:
                run = _Run({})
                block = op.operation.regions[0].blocks[0]
                for number, (argument, sizes) in enumerate(zip(block.arguments, arguments, strict=True)):
                    run.values[argument] = run.argument(str(argument.type), number, sizes)
                run.block(block)
                return run
    raise AssertionError(f"the kernel has no function {function}")


@dataclass
class _Run:
    values: dict[Any, Any]
    launches: list[Launch] = field(default_factory=list)
    returned: list[Any] = field(default_factory=list)

    def argument(self, type: str, number: int, sizes: Sequence[int] | None) -> Any:
        if sizes is None:
            return 0
        element = re.search(r"([a-zA-Z0-9]+)>$", type.replace("x", " "))
        assert element is not None
        static = [int(s) if s != "?" else None for s in re.findall(r"(\d+|\?)x", type)]
        fits = len(static) == len(sizes) and all(s in (None, given) for s, given in zip(static, sizes, strict=True))
        assert fits, f"buffer {number} is {type}, but the sizes are {sizes}"
        label = "scratch" if type == "memref<?xi8>" else f"b{number}"
        return _Buffer(label, element.group(1), tuple(sizes), _contiguous(sizes))

    def block(self, block: Any) -> list[Any]:
        for op in block.operations:
            operands = [self.values[value] for value in op.operands]
            name = op.operation.name
            if name in ("scf.yield", "func.return"):
                self.returned = operands
                return operands
            results = self.operation(name, op, operands)
            for value, result in zip(op.results, results, strict=True):
                self.values[value] = result
        return []

    def operation(self, name: str, op: Any, operands: list[Any]) -> list[Any]:
        if name in _ARITHMETIC:
            return [_ARITHMETIC[name](*operands)]
        handler = getattr(self, name.replace(".", "_"), None)
        assert handler is not None, f"the host may not use {name}"
        return handler(op, operands) or []

    def arith_constant(self, op: Any, operands: list[Any]) -> list[Any]:
        return [ir.IntegerAttr(op.attributes["value"]).value]

    def arith_cmpi(self, op: Any, operands: list[Any]) -> list[Any]:
        a, b = operands
        order = [a == b, a != b, a < b, a <= b, a > b, a >= b]
        predicate = ir.IntegerAttr(op.attributes["predicate"]).value
        return [order[predicate if predicate < 6 else predicate - 4]]

    def scf_if(self, op: Any, operands: list[Any]) -> list[Any]:
        regions = op.operation.regions
        region = regions[0 if operands[0] else 1]
        return self.block(region.blocks[0]) if len(region.blocks) else []

    def scf_for(self, op: Any, operands: list[Any]) -> list[Any]:
        block = op.operation.regions[0].blocks[0]
        carried = operands[3:]
        for i in range(*operands[:3]):
            for argument, value in zip(block.arguments, [i, *carried], strict=True):
                self.values[argument] = value
            carried = self.block(block)
        return carried

    def memref_dim(self, op: Any, operands: list[Any]) -> list[Any]:
        return [operands[0].sizes[operands[1]]]

    def memref_cast(self, op: Any, operands: list[Any]) -> list[Any]:
        return operands

    def memref_collapse_shape(self, op: Any, operands: list[Any]) -> list[Any]:
        (source,) = operands
        assert source.strides == _contiguous(source.sizes)
        groups = ir.ArrayAttr(op.attributes["reassociation"])
        sizes = tuple(math.prod(source.sizes[ir.IntegerAttr(d).value] for d in ir.ArrayAttr(group)) for group in groups)
        return [_Buffer(source.name, source.element, sizes, _contiguous(sizes), source.offset)]

    def memref_view(self, op: Any, operands: list[Any]) -> list[Any]:
        source, offset, *dynamic = operands
        shape = self._filled(ir.MemRefType(op.results[0].type).shape, dynamic)
        element = str(ir.MemRefType(op.results[0].type).element_type)
        return [_Buffer(source.name, element, shape, _contiguous(shape), source.offset + offset)]

    def memref_reinterpret_cast(self, op: Any, operands: list[Any]) -> list[Any]:
        source, *dynamic = operands
        parts = []
        for key in ("static_offsets", "static_sizes", "static_strides"):
            static = list(ir.DenseI64ArrayAttr(op.attributes[key]))
            parts.append(self._filled(static, dynamic))
            dynamic = dynamic[sum(value < 0 for value in static) :]
        (offset,), sizes, strides = parts
        return [_Buffer(source.name, source.element, sizes, strides, source.offset + offset * _BYTES[source.element])]

    def _filled(self, static: Sequence[int], dynamic: Sequence[int]) -> tuple[int, ...]:
        rest = iter(dynamic)
        return tuple(next(rest) if value < 0 else value for value in static)

    def nvgpu_tma_create_descriptor(self, op: Any, operands: list[Any]) -> list[Any]:
        source, *box = operands
        bytes_ = _BYTES[source.element]
        assert source.strides[-1] == 1
        assert all(stride * bytes_ % 16 == 0 for stride in source.strides[:-1])
        assert source.offset % 16 == 0
        text = str(op.results[0].type)
        shape = re.search(r"tensor = memref<([\dx]+)x", text)
        assert shape is not None
        assert [int(s) for s in shape.group(1).split("x")] == box
        swizzle = re.search(r"swizzle_(\d+)b", text)
        strides = tuple(stride * bytes_ for stride in source.strides[:-1])
        bits = int(swizzle.group(1)) if swizzle else 0
        return [Map(source.pointer, source.element, source.sizes, strides, tuple(box), bits)]

    def gpu_launch_func(self, op: Any, operands: list[Any]) -> list[Any]:
        types = [str(value.type) for value in op.operands]
        shared = 0
        grid, block, rest = operands[:3], operands[3:6], operands[6:]
        segments = list(ir.DenseI32ArrayAttr(op.attributes["operandSegmentSizes"]))
        has_shared = segments[-3] == 1 if len(segments) > 3 else False
        start = 6
        if has_shared:
            shared, rest, start = rest[0], rest[1:], 7
        parameters = []
        for value, type in zip(rest, types[start:], strict=True):
            if isinstance(value, _Buffer):
                parameters.append(value.pointer)
            elif isinstance(value, Map):
                parameters.append(value)
            else:
                parameters.append(Number(value, "i64" if type == "index" else type))
        kernel = str(op.attributes["kernel"]).rpartition("@")[2]
        if 0 not in grid:
            pdl = "rlx.pdl" in op.attributes
            self.launches.append(Launch(kernel, tuple(grid), tuple(block), shared, tuple(parameters), pdl))
        return []


_ARITHMETIC: Mapping[str, Callable[..., Any]] = {
    "arith.addi": lambda a, b: a + b,
    "arith.subi": lambda a, b: a - b,
    "arith.muli": lambda a, b: a * b,
    "arith.divui": lambda a, b: a // b,
    "arith.remui": lambda a, b: a % b,
    "arith.minsi": min,
    "arith.minui": min,
    "arith.maxsi": max,
    "arith.maxui": max,
    "arith.select": lambda c, a, b: a if c else b,
    "arith.index_cast": lambda a: a,
    "arith.andi": lambda a, b: a & b,
    "arith.extui": lambda a: a,
    "arith.trunci": lambda a: a,
}
