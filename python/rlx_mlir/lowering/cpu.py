# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""From kernels that hold MIR to C functions: templates, the generic path, scratch memory, the calling convention.

Whatever its origin, the code of a kernel is three functions on buffers: `NAME.body` computes a range of work units,
`NAME.units` and `NAME.scratch` say how many units there are and how many bytes of scratch memory a thread needs. The
last pass wraps them for C callers: `NAME(buffers, dims, begin, end, scratch)`.

A kernel whose units share memory has that as its last buffer. Then `NAME.shared` says how many bytes it has, and a
second kernel on the same buffers, `NAME_finish`, makes results of it once all units are done.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from mlir.dialects import bufferization

from rlx_mlir import ir
from rlx_mlir.codegen.cpu import UnsupportedByTemplate
from rlx_mlir.codegen.cpu.call import declare_call
from rlx_mlir.codegen.cpu.registry import generate, generators_of, knobs, switches
from rlx_mlir.codegen.cpu.target import Target
from rlx_mlir.errors import CompileError, InputError, StageError
from rlx_mlir.kernel_classes import CLASSES, OWN
from rlx_mlir.locations import KERNEL as KERNEL_PLACE
from rlx_mlir.lowering.donation import TIED
from rlx_mlir.lowering.extents import check_extents
from rlx_mlir.lowering.functions import (
    KERNEL,
    PREPARE,
    ROLE,
    declare_into,
    functions,
    kernel_class,
    memref_of,
    parse_into,
    uncommon_element,
)
from rlx_mlir.lowering.kernel_specs import READERS
from rlx_mlir.lowering.machine import machine
from rlx_mlir.lowering.signatures import RELATIONS, signature
from rlx_mlir.mir.cost import type_bytes
from rlx_mlir.rewriting import Option, compiler_pass, operations
from rlx_mlir.runtime.tiles import request_tiles
from rlx_mlir.tuning.choices import check_kernels
from rlx_mlir.tuning.cpu import BY_RULE, parse_choices
from rlx_mlir.unsupported import blame

#: Attribute of a kernel's body: the template that it came from, or why it is generic.
TEMPLATE = "mir.template"
#: The arguments of a body after its buffers.
EXTRA_ARGUMENTS = 3
#: What functions of a kernel beside its body say: how many units, how many bytes of scratch memory. Where units share
#: memory, the last buffer, a third one says how many bytes that has: `shared`.
MEASURES = ("units", "scratch")


def kernel_name(kernel: ir.AnyOp) -> str:
    """The name by which the entry function calls the kernel."""
    return str(kernel.name.value).removesuffix(".mir")


@compiler_pass(
    "cpu-apply-templates",
    dependent=("memref", "arith", "scf", "vector", "math", "llvm", "func"),
    options={
        "triple": Option("target triple; that of this machine where empty", ""),
        "cpu": Option("CPU as LLVM names it; that of this machine where empty", ""),
        "features": Option("features of the CPU as LLVM names them, +name or -name, on top of the CPU's", ""),
        "disable": Option(
            "classes of kernels that take the generic path, joined by +; all for every class; gemm_amx_f32: products "
            "of f32, and attention_amx: attention, take another template",
            "",
        ),
        "choices": Option("measured choices of kernels, kernel:choice:number, joined by +", ""),
    },
)
def apply_templates(module: ir.Operation, *, triple: str, cpu: str, features: str, disable: str, choices: str) -> None:
    """Replace kernels that a template covers by its code."""
    is_here = not (triple or cpu or features)
    triple, cpu, features = machine(triple, cpu, features)
    target = Target.from_features(features, triple, cpu)
    if is_here and target.has("amx-tile") and not request_tiles():
        target = replace(target, features=target.features - {"amx-tile"})
    chosen = parse_choices(choices, knobs())
    skipped = set(filter(None, disable.split("+")))
    known = [*(kind for kind in CLASSES if generators_of(kind)), *switches()]
    if unknown := sorted(skipped - {*known, "all"}):
        words = ", ".join(known)
        raise InputError(f"option 'disable' expects {words} or all, joined by +, but got '{'+'.join(unknown)}'")
    block = module.regions[0].blocks[0]
    kernels = functions(module, KERNEL)
    check_kernels(chosen, [kernel_name(kernel) for kernel in kernels])
    for kernel in kernels:
        attributes = kernel.operation.attributes
        if kernel_class(kernel) != OWN and ("all" in skipped or kernel_class(kernel) in skipped):
            attributes[TEMPLATE] = ir.StringAttr.get("generic: templates are disabled")
            continue
        try:
            own = replace(target, choices=chosen.get(kernel_name(kernel), BY_RULE))
            template, text = _generate(kernel, own, skipped)
            made = _parsed(block, kernel_name(kernel), template, text)
            if template == OWN:
                declare_into(block, declare_call(kernel_name(kernel)))
        except UnsupportedByTemplate as reason:
            attributes[TEMPLATE] = ir.StringAttr.get(f"generic: {reason}")
            continue
        except Exception as error:
            raise CompileError(_template_failure(kernel, error)) from error
        place = ir.Location.name(KERNEL_PLACE + kernel_name(kernel), kernel.operation.location)
        for op in made:
            op.operation.attributes[TEMPLATE] = ir.StringAttr.get(template)
            _locate(op, place)
        kernel.operation.erase()


def _generate(kernel: ir.AnyOp, target: Target, skipped: Collection[str]) -> tuple[str, str]:
    """The name of the generator that takes the kernel, and the kernel's functions as text.

    Raises UnsupportedByTemplate, with the reason, where none does.
    """
    name, kind = kernel_name(kernel), kernel_class(kernel)
    if not generators_of(kind):
        raise UnsupportedByTemplate(f"{name}: kernels of class '{kind}' have no template")
    if kind != OWN and (word := next(filter(None, map(uncommon_element, operations(kernel))), "")):
        raise UnsupportedByTemplate(f"{name}: no template has values of {word}")
    return generate(kind, name, READERS[kind](name, kernel), target, skipped)


def _parsed(block: ir.Block, name: str, template: str, text: str) -> list[ir.AnyOp]:
    """The functions of a kernel, appended to the module; CompileError where a generator's text isn't of a kernel."""
    try:
        made = parse_into(block, text)
    except ir.MLIRError as error:
        raise CompileError(f"generator '{template}' gave text that is no MLIR: {error}") from None
    found = {str(op.name.value) for op in made if op.operation.name == "func.func"}
    if missing := [f"@{name}.{part}" for part in ("body", *MEASURES) if f"{name}.{part}" not in found]:
        raise CompileError(f"generator '{template}' gave text without {', '.join(missing)}")
    return made


def _locate(function: ir.AnyOp, location: ir.Location) -> None:
    """Gives a function that was parsed from our text a location: failures then name the kernel and its block."""
    function.operation.location = location
    for op in operations(function):
        op.location = location


def _template_failure(kernel: ir.AnyOp, error: Exception) -> str:
    """The text of the error about a template that failed, with a way round it."""
    kind = kernel_class(kernel)
    first = next(op for op in operations(kernel) if op.name != "mir.constant")
    return (
        f"kernel '{kernel_name(kernel)}': {blame(first, error)}; disable_templates=('{kind}',) compiles kernels of "
        f"class '{kind}' without their template"
    )


@compiler_pass("cpu-destination-style", dependent=("bufferization", "memref", "arith"))
def destination_style(module: ir.Operation) -> None:
    """Give generic kernels buffers for operands and results, as templates have them.

    One unit does all the work until cpu-split-kernels cuts it. @prepare leaves, which the run time performs.
    """
    block = module.regions[0].blocks[0]
    for prepare in functions(module, PREPARE):
        prepare.operation.erase()
    for kernel in functions(module, KERNEL):
        check_extents(kernel)
        if TEMPLATE not in kernel.operation.attributes:
            raise StageError(f"kernel '{kernel_name(kernel)}' has no '{TEMPLATE}': cpu-apply-templates runs before")
        kinds = [*kernel.type.inputs, *kernel.type.results]
        buffers = ", ".join(f"%b{i}: {memref_of(kind)}" for i, kind in enumerate(kinds))
        name = kernel_name(kernel)
        lines = [f"func.func private @{name}.body({buffers}, %begin: index, %end: index, %scratch: memref<?xi8>) {{"]
        for i, kind in enumerate(kernel.type.inputs):
            lines.append(f"  %t{i} = bufferization.to_tensor %b{i} restrict : {memref_of(kind)} to {kind}")
        lines += ["  return", "}"]
        for suffix, value in zip(MEASURES, (1, 0), strict=True):
            lines.append(f"func.func private @{name}.{suffix}({buffers}) -> index {{")
            lines.append(f"  %value = arith.constant {value} : index\n  return %value : index\n}}")
        for op in parse_into(block, "\n".join(lines)):
            op.operation.attributes[TEMPLATE] = kernel.operation.attributes[TEMPLATE]
            if TIED in kernel.operation.attributes:
                op.operation.attributes[TIED] = kernel.operation.attributes[TIED]
            if str(op.name.value).endswith(".body"):
                _fill(op, kernel)
        kernel.operation.erase()


def _fill(body: ir.AnyOp, kernel: ir.AnyOp) -> None:
    """Moves the kernel's operations into the body, between its tensors and the writes of its results."""
    *tensors, terminator = operations(body, nested=False)
    *ops, results = operations(kernel, nested=False)
    destinations = list(body.arguments)[len(tensors) : -EXTRA_ARGUMENTS]
    # What a result overwrites is read where it is written: the result's memory holds it.
    attributes = kernel.operation.attributes
    overwritten = dict(zip(attributes[TIED], destinations, strict=True)) if TIED in attributes else {}
    with ir.InsertionPoint(terminator), terminator.location:
        for number, (argument, tensor) in enumerate(zip(kernel.arguments, tensors, strict=True)):
            given = tensor.results[0]
            if number in overwritten:
                given = bufferization.to_tensor(argument.type, overwritten[number], restrict=True, writable=True)
            argument.replace_all_uses_with(given)
    for op in ops:
        op.move_before(terminator)
    with ir.InsertionPoint(terminator), terminator.location:
        for value, buffer in zip(results.operands, destinations, strict=True):
            bufferization.materialize_in_destination(None, value, buffer, restrict=True, writable=True)


@compiler_pass("cpu-plan-scratch", dependent=("memref", "arith"))
def plan_scratch(module: ir.Operation) -> None:
    """Turn allocations of kernels into views of scratch memory, whose size `NAME.scratch` computes.

    Allocations whose size depends on data, or that stand in loops, stay, and are freed where their block ends.
    """
    bodies = {str(f.name.value): f for f in module.regions[0].blocks[0].operations if f.operation.name == "func.func"}
    for name, body in bodies.items():
        if name.endswith(".body") and (scratch := bodies.get(name.removesuffix("body") + "scratch")) is not None:
            _ScratchPlan(body, scratch).run()


def follows_from_sizes(value: ir.Value, buffers: Collection[ir.Value]) -> bool:
    """Whether the value can be computed from the sizes of the buffers alone."""
    owner = value.owner
    if isinstance(owner, ir.Block):
        return False
    if owner.name == "memref.dim":
        return owner.operands[0] in buffers and follows_from_sizes(owner.operands[1], buffers)
    return str(owner.name).startswith("arith.") and all(follows_from_sizes(v, buffers) for v in owner.operands)


class _ScratchPlan:
    """Lays the allocations of one body out one after the other, in the body and in its measuring function."""

    def __init__(self, body: ir.AnyOp, scratch: ir.AnyOp) -> None:
        self._body, self._scratch = body, scratch
        *_, self._return = operations(scratch, nested=False)
        self._mapping = dict(zip(list(body.arguments)[:-EXTRA_ARGUMENTS], scratch.arguments, strict=True))

    def run(self) -> None:
        """Replaces the allocations."""
        from mlir.dialects import arith, memref

        index = ir.IndexType.get()
        offset = measured = None
        buffers = list(self._body.arguments)[:-EXTRA_ARGUMENTS]
        for op in list(operations(self._body, nested=False)):
            if op.name != "memref.alloc" or not all(follows_from_sizes(v, buffers) for v in op.operands):
                continue
            kind = ir.MemRefType(op.results[0].type)
            with ir.InsertionPoint(op), op.location:
                start = offset if offset is not None else arith.constant(index, 0)
                size = self._bytes(kind, list(op.operands))
                view = memref.view(kind, self._body.arguments[-1], start, list(op.operands))
                offset = arith.addi(start, size)
            with ir.InsertionPoint(self._return), op.location:
                sizes = [self._measure(v) for v in op.operands]
                own = self._bytes(kind, sizes)
                measured = own if measured is None else arith.addi(measured, own)
            op.results[0].replace_all_uses_with(view)
            op.erase()
        if measured is not None:
            self._return.operands[0] = measured
        for op in [op for op in operations(self._body) if op.name == "memref.alloc"]:
            *_, terminator = op.block.operations
            if any(use.owner == terminator for use in op.results[0].uses):
                raise CompileError(f"'{self._body.name.value}' gives memory out of a loop, at {op.location}")
            with ir.InsertionPoint(terminator), op.location:
                memref.dealloc(op.results[0])

    @staticmethod
    def _bytes(kind: ir.MemRefType, sizes: list[ir.Value]) -> ir.Value:
        """Bytes of a buffer at the insertion point, rounded up to 64."""
        from mlir.dialects import arith

        index = ir.IndexType.get()
        static = type_bytes(kind.element_type)
        for size in kind.shape:
            static *= size if size >= 0 else 1
        total = arith.constant(index, static)
        for size in sizes:
            total = arith.muli(total, size)
        rounded = arith.addi(total, arith.constant(index, 63))
        return arith.muli(arith.divui(rounded, arith.constant(index, 64)), arith.constant(index, 64))

    def _measure(self, value: ir.Value) -> ir.Value:
        if value not in self._mapping:
            operands = [self._measure(v) for v in value.owner.operands]
            clone = value.owner.operation.clone()
            for number, operand in enumerate(operands):
                clone.operation.operands[number] = operand
            self._mapping[value] = clone.operation.results[0]
        return self._mapping[value]


@compiler_pass("cpu-wrap-kernels", dependent=("llvm", "func", "arith", "memref"))
def wrap_kernels(module: ir.Operation) -> None:
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
            _locate(op, body.operation.location)


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
