# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the passes for GPUs share: operations that they create, and where kernels and launches are found.

Operations of the GPU dialect are made by name: importing its Python classes takes time, which compiling for CPUs would
pay too.
"""

from __future__ import annotations

from collections.abc import Sequence

from mlir.dialects import arith

from rlx_mlir import ir
from rlx_mlir.rewriting import operations

#: Name of the module that holds a program's kernels.
KERNELS = "kernels"
#: Threads of a warp.
WARP = 32
#: Operands of a launch before its kernel's own: blocks and threads along x, y, z.
LAUNCH_SIZES = 6
#: Operations whose results follow from their operands: views of memory, and sizes.
VIEWS = (
    "memref.cast",
    "memref.collapse_shape",
    "memref.dim",
    "memref.expand_shape",
    "memref.get_global",
    "memref.reinterpret_cast",
    "memref.subview",
    "memref.view",
)


def number(value: int) -> ir.Value:
    """A constant of type index, at the insertion point."""
    return arith.constant(ir.IndexType.get(), value)


def bodies(module: ir.AnyModule) -> list[ir.AnyOp]:
    """The functions `NAME.body`, which perform kernels."""
    ops = module.regions[0].blocks[0].operations
    return [op for op in ops if op.operation.name == "func.func" and str(op.name.value).endswith(".body")]


def found(root: ir.AnyOp | ir.Module, name: str) -> list[ir.AnyOp]:
    """The operations of a name below `root`."""
    return [op for op in operations(root) if name_of(op) == name]


def name_of(op: ir.AnyOp) -> str:
    """Name of the operation; classes of operations with an attribute `name` hide it."""
    return str(op.operation.name)


def is_pure(op: ir.AnyOp) -> bool:
    """Whether the operation may be repeated elsewhere, loads apart."""
    name = name_of(op)
    return name in VIEWS or name.startswith(("arith.", "math."))


def indices(values: Sequence[ir.Value | int]) -> list[ir.Value]:
    """Numbers and values as values of type index."""
    return [number(value) if isinstance(value, int) else value for value in values]


def gpu_index(name: str, dimension: str) -> ir.Value:
    """`gpu.thread_id`, `gpu.block_id` or another number of a thread along x, y or z."""
    attributes = {"dimension": ir.Attribute.parse(f"#gpu<dim {dimension}>")}
    return ir.Operation.create(name, results=[ir.IndexType.get()], attributes=attributes).result


def location_of(op: ir.AnyOp) -> str:
    """The operation and its place, for messages."""
    return f"'{name_of(op)}' at {op.location}"


def gpu_module(module: ir.AnyModule) -> ir.AnyOp:
    """The GPU module of a program's kernels, made at the module's end where there is none."""
    block = module.regions[0].blocks[0]
    for op in block.operations:
        if op.operation.name == "gpu.module":
            return op
    module.attributes["gpu.container_module"] = ir.UnitAttr.get()
    parsed = ir.Module.parse(f"gpu.module @{KERNELS} {{}}")
    made = parsed.body.operations[0]
    block.append(made)
    return made
