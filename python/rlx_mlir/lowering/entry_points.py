# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The pass `kernel-add-entry-points`: C functions that build a kernel's buffers and call it."""

from __future__ import annotations

from collections.abc import Sequence

from rlx_mlir import ir
from rlx_mlir.errors import StageError
from rlx_mlir.lowering.functions import ROLE, parse_into
from rlx_mlir.lowering.kernels import EXTRA_ARGUMENTS, MEASURES, locate
from rlx_mlir.lowering.signatures import RELATIONS, signature
from rlx_mlir.mir.cost import type_bytes
from rlx_mlir.rewriting import compiler_pass


@compiler_pass("kernel-add-entry-points", dependent=("llvm", "func", "arith", "memref"))
def add_entry_points(module: ir.Operation) -> None:
    """Add C entry points of kernels, and drop the planned entry function, which the run time performs."""
    block = module.regions[0].blocks[0]
    bodies, sharing, known = [], set(), {}
    for op in list(block.operations):
        name = str(op.operation.attributes["sym_name"].value) if "sym_name" in op.operation.attributes else ""
        if op.operation.name == "func.func" and name.endswith(".body"):
            bodies.append((name.removesuffix(".body"), op))
        elif name.endswith(".shared"):
            sharing.add(name.removesuffix(".shared"))
        elif (
            op.operation.name == "func.func"
            and not name.endswith((".units", ".scratch"))
            and ROLE not in op.operation.attributes
        ):
            if RELATIONS in op.operation.attributes:
                known[name] = list(ir.DenseI64ArrayAttr(op.operation.attributes[RELATIONS]))
            op.operation.erase()
    for name, body in bodies:
        kinds = [a.type for a in list(body.arguments)[:-EXTRA_ARGUMENTS]]
        if not kinds or not all(isinstance(kind, ir.MemRefType) for kind in kinds):
            listed = ", ".join(map(str, kinds)) or "none"
            raise StageError(f"'{name}.body' takes ranked buffers and {EXTRA_ARGUMENTS} more arguments, not {listed}")
        measures = [*MEASURES, "shared"] if name in sharing else MEASURES
        wrappers = _wrappers(name, [ir.MemRefType(kind) for kind in kinds], measures)
        kernel = name.removesuffix("_finish") if name.removesuffix("_finish") in sharing else name
        given = kinds[:-1] if kernel in sharing else kinds  # without the memory that units share
        wrappers += signature(name, [_element_and_shape(kind) for kind in given], known.get(kernel, [0]))
        for op in parse_into(block, _declarations(name, kinds, measures) + wrappers):
            locate(op, body.operation.location)


def _element_and_shape(kind: ir.Type) -> tuple[int, list[int]]:
    buffer = ir.MemRefType(kind)
    return type_bytes(buffer.element_type), list(buffer.shape)


def _declarations(name: str, kinds: list[ir.Type], measures: Sequence[str]) -> str:
    types = ", ".join(map(str, kinds))
    lines = [f"func.func private @{name}.body({types}, index, index, memref<?xi8>)\n"]
    lines += [f"func.func private @{name}.{measure}({types}) -> index\n" for measure in measures]
    return "".join(lines)


def _wrappers(name: str, kinds: list[ir.MemRefType], measures: Sequence[str]) -> str:
    buffers, types = ", ".join(f"%b{i}" for i in range(len(kinds))), ", ".join(map(str, kinds))
    lines = [
        f"func.func @{name}(%buffers: !llvm.ptr, %dims: !llvm.ptr, %first: i64, %last: i64, %memory: !llvm.ptr) {{",
        *_build_buffers(kinds, "%buffers"),
        "  %begin = arith.index_cast %first : i64 to index",
        "  %end = arith.index_cast %last : i64 to index",
        # Scratch has no size that code may ask for: the measuring function gave it.
        "  %unbounded = llvm.mlir.constant(9223372036854775807 : i64) : i64",
        *_descriptor("scratch", "memref<?xi8>", "%memory", ["%unbounded"], ["%one"]),
        f"  call @{name}.body({buffers}, %begin, %end, %scratch) : ({types}, index, index, memref<?xi8>) -> ()",
        "  return\n}",
    ]
    for function in measures:
        lines += [
            f"func.func @{name}_{function}(%dims: !llvm.ptr) -> i64 {{",
            *_build_buffers(kinds, None),
            f"  %result = call @{name}.{function}({buffers}) : ({types}) -> index",
            "  %value = arith.index_cast %result : index to i64",
            "  return %value : i64\n}",
        ]
    return "\n".join(lines)


def _build_buffers(kinds: list[ir.MemRefType], pointers: str | None) -> list[str]:
    """Descriptors of the buffers, from an array of pointers (null where None) and the array of dynamic sizes."""
    lines = ["  %one = llvm.mlir.constant(1 : i64) : i64"]
    dynamic = 0
    for i, kind in enumerate(kinds):
        if pointers is None:
            lines.append(f"  %p{i} = llvm.mlir.zero : !llvm.ptr")
        else:
            lines.append(f"  %a{i} = llvm.getelementptr {pointers}[{i}] : (!llvm.ptr) -> !llvm.ptr, !llvm.ptr")
            lines.append(f"  %p{i} = llvm.load %a{i} : !llvm.ptr -> !llvm.ptr")
        sizes = []
        for axis, size in enumerate(kind.shape):
            name = f"%s{i}_{axis}"
            if size < 0:
                lines.append(f"  %d{dynamic} = llvm.getelementptr %dims[{dynamic}] : (!llvm.ptr) -> !llvm.ptr, i64")
                lines.append(f"  {name} = llvm.load %d{dynamic} : !llvm.ptr -> i64")
                dynamic += 1
            else:
                lines.append(f"  {name} = llvm.mlir.constant({size} : i64) : i64")
            sizes.append(name)
        strides = ["%one"] if sizes else []
        for axis in range(len(sizes) - 1, 0, -1):
            name = f"%t{i}_{axis}"
            lines.append(f"  {name} = llvm.mul {strides[0]}, {sizes[axis]} : i64")
            strides.insert(0, name)
        lines += _descriptor(f"b{i}", str(kind), f"%p{i}", sizes, strides)
    return lines


def _descriptor(name: str, kind: str, pointer: str, sizes: list[str], strides: list[str]) -> list[str]:
    """A buffer `%name` at the pointer, with offset 0."""
    rank = len(sizes)
    struct = "!llvm.struct<(ptr, ptr, i64" + (f", array<{rank} x i64>, array<{rank} x i64>" if rank else "") + ")>"
    lines = [
        f"  %{name}_zero = llvm.mlir.constant(0 : i64) : i64",
        f"  %{name}_0 = llvm.mlir.undef : {struct}",
    ]
    fields = [(pointer, "[0]"), (pointer, "[1]"), (f"%{name}_zero", "[2]")]
    for field, values in ((3, sizes), (4, strides)):
        fields += [(value, f"[{field}, {axis}]") for axis, value in enumerate(values)]
    for i, (value, where) in enumerate(fields):
        lines.append(f"  %{name}_{i + 1} = llvm.insertvalue {value}, %{name}_{i}{where} : {struct}")
    lines.append(f"  %{name} = builtin.unrealized_conversion_cast %{name}_{len(fields)} : {struct} to {kind}")
    return lines
