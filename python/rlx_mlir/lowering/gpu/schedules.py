# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The pass `gpu-apply-schedules`: kernels that a schedule covers get its code; the others take the generic path.

A schedule is a function of `codegen/gpu` that writes kernels at the level of the LLVM and NVVM dialects, and the host's
part that launches them. `SCHEDULES` lists those of each class, the best first: one that doesn't cover a kernel, or a
chip, raises UnsupportedByTemplate, and the next is asked.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from rlx_mlir import chips, ir
from rlx_mlir.attributes import python_value
from rlx_mlir.codegen import UnsupportedByTemplate
from rlx_mlir.codegen.gpu.kernel import DeviceKernel, by_rows
from rlx_mlir.codegen.row_graph import RowProgram
from rlx_mlir.codegen.specs import BroadcastSpec, MoveSpec
from rlx_mlir.codegen.specs.products import need_bytes
from rlx_mlir.errors import InputError
from rlx_mlir.lowering.functions import argument_attributes, entry_function, kernel_class
from rlx_mlir.lowering.gpu.build import KERNELS, gpu_module
from rlx_mlir.lowering.groups import BROADCASTS
from rlx_mlir.lowering.kernel_specs import READERS, Spec, read_broadcast, read_move, read_rows
from rlx_mlir.lowering.kernels import kernel_name, replace_kernels
from rlx_mlir.rewriting import Option, compiler_pass, operations
from rlx_mlir.tuning.choices import Chosen, read_choices
from rlx_mlir.tuning.gpu import KNOWN

if TYPE_CHECKING:
    from rlx_mlir.codegen.gpu.gemv import Gemv

#: Dynamic shared memory of all kernels: each launch says how much there is.
SHARED_MEMORY = "llvm.mlir.global external @smem() {addr_space = 3 : i32, alignment = 1024 : i64} : !llvm.array<0 x i8>"


@dataclass(frozen=True)
class Request:
    """What a schedule is asked for.

    Attributes:
        name: the kernel's name; names of its functions start with `symbol_of(name)`.
        spec: what the kernel computes, as `lowering.kernel_specs` reads it for its class.
        chip: compute capability.
        constants: numbers of the kernel's operands that are parameters of the model at every call: only these may be
            read before `wait_dependencies`, and be `constant` pointers.
        choices: measured ones, in place of the schedule's rules.
    """

    name: str
    spec: Spec
    chip: str
    constants: frozenset[int] = frozenset()
    choices: Chosen = field(default_factory=Chosen)


Schedule = Callable[[Request], DeviceKernel]
#: Types of what schedules of rows compute with.
_ROW_TYPES = ("f32", "f16", "bf16", "i1")


def _pointwise(request: Request) -> DeviceKernel:
    from rlx_mlir.codegen.gpu.pointwise import emit_pointwise

    if isinstance(request.spec, BroadcastSpec):
        return _emit("broadcast")(request)
    return emit_pointwise(request.name, request.spec, request.chip, request.constants)


def _few_rows(request: Request) -> DeviceKernel:
    """Products of few rows; where the number of rows is dynamic, together with a schedule for many, if there is one."""
    from rlx_mlir.codegen.gpu.gemv import MAX_ROWS, gemv

    spec = request.spec
    need_bytes(request.name, spec.bits)
    rows = spec.rows
    # A norm or quantisation that is part of the kernel is of this schedule alone.
    few_rows = request.choices.take("few_rows", (MAX_ROWS,) if spec.norm is not None or spec.quantises else None)
    most = MAX_ROWS if few_rows is None else few_rows
    if rows is not None and rows > most:
        raise UnsupportedByTemplate(f"{request.name}: the schedule for few rows is for at most {most}, not {rows}")
    few = _few_rows_of_8_bits(request) if spec.kind == "scaled_matmul" else gemv(request.chip, few_rows_of(request))
    if rows is not None:
        return few
    for schedule in (_gemm_hopper, _gemm_portable):
        try:
            return by_rows(few, schedule(request), most, spec.order[0])
        except UnsupportedByTemplate:
            continue
    return few


def _few_rows_of_8_bits(request: Request) -> DeviceKernel:
    from rlx_mlir.codegen.gpu.gemm_base import Gemm
    from rlx_mlir.codegen.gpu.gemv_float8 import gemv_float8

    request.spec.need_plain()
    return gemv_float8(request.chip, Gemm.of(request.spec, request.constants, request.choices))


def few_rows_of(request: Request) -> Gemv:
    """A product as the schedule for few rows takes it; UnsupportedByTemplate where that doesn't cover it."""
    from rlx_mlir.codegen.gpu.gemv import Gemv, Prologue

    spec = request.spec
    dense, quantised = spec.kind == "matmul", spec.kind == "block_dot"
    if (dense and not spec.is_matrix) or (not dense and spec.layout != "planes"):
        raise UnsupportedByTemplate(f"{request.name}: the schedule for few rows reads a matrix of weights, or planes")
    prologue = Prologue(spec.norm, spec.quantises)
    first = 1 + prologue.norm if prologue else 3 if quantised else 1
    fixed = request.constants.issuperset(spec.order[first : first + spec.program.accumulators])
    scheme, n = spec.scheme or spec.element, spec.result[-1]
    if n is None:
        raise UnsupportedByTemplate(f"{request.name}: N isn't known")
    columns = dense and not spec.transposed
    common = (request.name, spec.x, n, scheme, spec.program, spec.order, spec.element)
    flags = {"quantised": quantised, "dense": dense, "columns": columns, "fixed": fixed}
    return Gemv(*common, **flags, prologue=prologue, chosen=request.choices)


def _quantize(request: Request) -> DeviceKernel:
    from rlx_mlir.codegen.gpu.quantize import Quantize, quantize

    need_bytes(request.name, request.spec.bits)
    return quantize(request.chip, Quantize(request.name, request.spec.x))


def _gemm_hopper(request: Request) -> DeviceKernel:
    """Products by wgmma; of packed weights those of many rows alone, beside a portable schedule for fewer."""
    from rlx_mlir.codegen.gpu.gemm_hopper_packed import FEW_ROWS
    from rlx_mlir.codegen.gpu.products import emit_product_hopper

    spec = request.spec
    need_bytes(request.name, spec.bits)
    spec.need_plain()
    weights = spec.order[1 : 1 + spec.program.accumulators]
    constant, choices = request.constants.issuperset(weights), request.choices
    few_rows = FEW_ROWS
    if spec.kind == "dequant_matmul" and spec.scheme != spec.element:
        given = choices.take("decode_rows")
        few_rows = FEW_ROWS if given is None else given
        choices = choices if spec.rows is not None else choices.part(above=few_rows)
    many = emit_product_hopper(spec, request.chip, constant_weights=constant, chosen=choices, few_rows=few_rows)
    if many.schedule == "gemm_hopper" or spec.rows is not None:
        return many
    few = _gemm_portable(replace(request, choices=request.choices.part(limit=few_rows)))
    return by_rows(few, many, few_rows, spec.order[0])


def _gemm_portable(request: Request) -> DeviceKernel:
    from rlx_mlir.codegen.gpu.products import emit_product

    need_bytes(request.name, request.spec.bits)
    request.spec.need_plain()
    return emit_product(request.spec, request.chip, request.constants, request.choices)


def _read_rows(name: str, kernel: ir.AnyOp) -> RowProgram | BroadcastSpec:
    """A kernel of class rows; what is element-wise, but of types that rows don't have, is read as one of class
    broadcast."""
    ops = _computed(kernel)
    values = [value for op in ops for value in (*op.operands, *op.results)]
    if {op.name for op in ops} <= BROADCASTS and any(_element(value) not in _ROW_TYPES for value in values):
        return read_broadcast(name, kernel)
    return read_rows(name, kernel)


def _read_broadcast(name: str, kernel: ir.AnyOp) -> MoveSpec | BroadcastSpec:
    """A kernel of class broadcast; an expansion alone is read as one of class move."""
    is_move = [op.name for op in _computed(kernel)] == ["mir.expand"]
    return read_move(name, kernel) if is_move else read_broadcast(name, kernel)


def _computed(kernel: ir.AnyOp) -> list[ir.AnyOp]:
    return [op for op in operations(kernel) if op.name.startswith("mir.") and op.name != "mir.constant"]


def _broadcast(request: Request) -> DeviceKernel:
    return _emit("copies" if isinstance(request.spec, MoveSpec) else "broadcast")(request)


def _element(value: ir.Value) -> str:
    return str(ir.ShapedType(value.type).element_type)


def _rows(request: Request) -> DeviceKernel:
    from rlx_mlir.codegen.gpu.rows import emit_rows

    if isinstance(request.spec, BroadcastSpec):
        raise UnsupportedByTemplate(f"{request.name}: its elements have types that rows don't have")
    return emit_rows(request.name, request.spec, request.chip, request.constants)


def _attention(request: Request) -> DeviceKernel:
    from rlx_mlir.codegen.gpu.attention import gpu_attention

    return gpu_attention(request.name, request.spec, request.chip, request.choices)


def _emit(home: str, *, constants: bool = True) -> Schedule:
    """The schedule `emit_HOME` of `codegen/gpu/HOME.py`, which needs no more than what the kernel computes.

    Args:
        constants: whether it asks which operands are parameters of the model.
    """

    def schedule(request: Request) -> DeviceKernel:
        emit = getattr(importlib.import_module(f"rlx_mlir.codegen.gpu.{home}"), f"emit_{home}")
        more = (request.constants,) if constants else ()
        kernel: DeviceKernel = emit(request.name, request.spec, request.chip, *more)
        return kernel

    return schedule


#: The schedules by class of kernels, the best first.
SCHEDULES: dict[str, tuple[Schedule, ...]] = {
    "gemm": (_few_rows, _gemm_hopper, _gemm_portable),
    "rows": (_pointwise, _rows),
    "attention": (_attention,),
    "quantize": (_quantize,),
    "recurrence": (_emit("recurrence", constants=False),),
    "conv": (_emit("conv"),),
    "top_k": (_emit("top_k", constants=False), _emit("sort", constants=False)),
    "sample": (_emit("sample", constants=False),),
    "gather": (_emit("gather"),),
    "broadcast": (_broadcast,),
    "conv2d": (_emit("conv2d"),),
    "reduce": (_emit("reduce"),),
    "scan": (_emit("scan"),),
    "norm": (_emit("norm"),),
    "group_norm": (_emit("group_norm"),),
    "pool": (_emit("pool"),),
    "grouped": (_emit("grouped"),),
    "move": (_emit("copies"), _emit("transpose")),
}


@compiler_pass(
    "gpu-apply-schedules",
    dependent=("gpu", "nvgpu", "nvvm", "llvm", "memref", "arith", "scf", "vector", "math", "func"),
    options={
        "chip": Option("compute capability", chips.DEFAULT_CHIP, tuple(chips.CHIPS)),
        "disable": Option("classes of kernels that take the generic path, joined by +; all for every class", ""),
        "choices": Option("measured choices of kernels, kernel:choice:number, joined by +", ""),
    },
)
def apply_schedules(module: ir.Operation, *, chip: str, disable: str, choices: str) -> None:
    """Replace kernels that a schedule for the GPU covers by its code.

    The attribute `mir.template` says which schedule a kernel got, or why none.
    """
    chosen = read_choices(choices, KNOWN, by_rows=True)
    skipped = set(filter(None, disable.split("+")))
    if unknown := sorted(skipped - {*SCHEDULES, "all"}):
        raise InputError(
            f"option 'disable' expects {', '.join(SCHEDULES)} or all, joined by +, but got '{'+'.join(unknown)}'"
        )
    constants = constant_operands(module)

    def code(kernel: ir.AnyOp) -> tuple[str, list[ir.AnyOp]]:
        name = kernel_name(kernel)
        of_model, own = constants.get(name, frozenset()), chosen.get(name, {})
        made = select_schedule(name, kernel, kernel_class(kernel), chip, of_model, own)
        return made.schedule, _insert(module, made)

    replace_kernels(module, code, "schedule", skipped, chosen)


def select_schedule(
    name: str, kernel: ir.AnyOp, kind: str, chip: str, constants: frozenset[int], choices: Mapping[str, int]
) -> DeviceKernel:
    """The kernel of the first schedule that covers it; UnsupportedByTemplate with all reasons where none does."""
    if kind not in SCHEDULES:
        raise UnsupportedByTemplate(f"{name}: kernels of class '{kind}' have no schedule")
    read = {"rows": _read_rows, "broadcast": _read_broadcast}.get(kind, READERS[kind])
    chosen = Chosen(name, choices)
    request = Request(name, read(name, kernel), chip, constants, chosen)
    reasons = []
    for schedule in SCHEDULES[kind]:
        try:
            made = schedule(request)
        except UnsupportedByTemplate as reason:
            reasons.append(str(reason))
            continue
        chosen.finish(made.schedule)
        return made
    raise UnsupportedByTemplate("; ".join(dict.fromkeys(reasons)))


def constant_operands(module: ir.AnyModule) -> dict[str, frozenset[int]]:
    """Of each kernel that the entry function calls, the operands that are parameters of the model at every call.

    Those to which an output is tied are none: kernels write them.
    """
    entry = entry_function(module)
    attributes = argument_attributes(entry)
    tied = {own.get("mir.tied") for own in attributes}
    parameters = {
        argument
        for argument, own in zip(entry.arguments, attributes, strict=True)
        if own.get("mir.kind") == "param" and own.get("mir.name") not in tied
    }
    found: dict[str, frozenset[int]] = {}
    for op in operations(entry):
        if op.name != "func.call":
            continue
        name = python_value(op.attributes["callee"])
        own = frozenset(number for number, value in enumerate(op.operands) if _root(value) in parameters)
        found[name] = found.get(name, own) & own
    return found


def _root(value: ir.Value) -> ir.Value:
    """The buffer that a value is a view of."""
    while not isinstance(value.owner, ir.Block) and value.owner.name.startswith("memref."):
        value = value.owner.operands[0]
    return value


def _insert(module: ir.AnyModule, kernel: DeviceKernel) -> list[ir.AnyOp]:
    """Parses a kernel's text, and moves its functions to where they belong."""
    parsed = ir.Module.parse(
        f"module attributes {{gpu.container_module}} {{\ngpu.module @{KERNELS} {{\n{SHARED_MEMORY}\n{kernel.device}}}\n"
        f"{kernel.host.text}}}"
    )
    device, *host = list(parsed.body.operations)
    block = module.regions[0].blocks[0]
    target = gpu_module(module)
    known = {_symbol(op) for op in target.regions[0].blocks[0].operations}
    made = [op for op in device.regions[0].blocks[0].operations if _symbol(op) not in known or _symbol(op) != "smem"]
    if clash := sorted({_symbol(op) for op in made} & known):
        raise ValueError(f"there is a function '{clash[0]}' already")
    for op in made:
        target.regions[0].blocks[0].append(op)
    for op in host:
        block.append(op)
    return [*(op for op in made if _symbol(op) != "smem"), *host]


def _symbol(op: ir.AnyOp) -> str:
    return str(op.operation.attributes["sym_name"].value)
