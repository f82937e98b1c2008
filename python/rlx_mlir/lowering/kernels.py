# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels on every target: what gives them code, and the form that this has.

Whatever its origin, the code of a kernel is three functions on buffers: `NAME.body` computes a range of work units,
`NAME.units` and `NAME.scratch` say how many units there are and how many bytes of scratch memory a thread needs.
`kernel-add-entry-points` wraps them for C callers: `NAME(buffers, dims, begin, end, scratch)`.

A kernel whose units share memory has that as its last buffer. Then `NAME.shared` says how many bytes it has, and a
second kernel on the same buffers, `NAME_finish`, makes results of it once all units are done.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from mlir.dialects import bufferization

from rlx_mlir import ir
from rlx_mlir.codegen import UnsupportedByTemplate
from rlx_mlir.errors import CompileError, InputError, StageError
from rlx_mlir.kernel_classes import OWN
from rlx_mlir.locations import KERNEL as KERNEL_PLACE
from rlx_mlir.lowering.donation import TIED
from rlx_mlir.lowering.extents import check_extents
from rlx_mlir.lowering.functions import KERNEL, PREPARE, functions, kernel_class, memref_of, parse_into
from rlx_mlir.rewriting import compiler_pass, operations
from rlx_mlir.tuning.choices import check_kernels
from rlx_mlir.unsupported import blame

#: Attribute of a kernel's body: the template or schedule that it came from, or why it is generic.
TEMPLATE = "mir.template"
#: The arguments of a body after its buffers.
EXTRA_ARGUMENTS = 3
#: What functions of a kernel beside its body say: how many units, how many bytes of scratch memory. Where units share
#: memory, the last buffer, a third one says how many bytes that has: `shared`.
MEASURES = ("units", "scratch")

#: Appends the code of a kernel to its module: the name of the generator, and what was appended. Raises
#: UnsupportedByTemplate, with the reason, where no generator covers the kernel.
Generate = Callable[[ir.AnyOp], tuple[str, list[ir.AnyOp]]]


def kernel_name(kernel: ir.AnyOp) -> str:
    """The name by which the entry function calls the kernel."""
    return str(kernel.name.value).removesuffix(".mir")


def replace_kernels(
    module: ir.AnyModule, generate: Generate, what: str, skipped: Collection[str], chosen: Collection[str]
) -> None:
    """Replaces kernels that a generator covers by its code; those of the other ones say why they take another path.

    Args:
        what: what a generator is called on this target: `template` or `schedule`.
        skipped: classes of kernels for which none is asked; `all` for every class but that of users' operations.
        chosen: names of the kernels for which there are choices.
    """
    kernels = functions(module, KERNEL)
    check_kernels(chosen, [kernel_name(kernel) for kernel in kernels])
    for kernel in kernels:
        attributes, kind = kernel.operation.attributes, kernel_class(kernel)
        if kind != OWN and ("all" in skipped or kind in skipped):
            attributes[TEMPLATE] = ir.StringAttr.get(f"generic: {what}s are disabled")
            continue
        try:
            generator, made = generate(kernel)
        except UnsupportedByTemplate as reason:
            attributes[TEMPLATE] = ir.StringAttr.get(f"generic: {reason}")
            continue
        except Exception as error:
            if isinstance(error, InputError) and kernel_name(kernel) in chosen:  # about a choice
                raise
            first = next((op for op in operations(kernel) if op.name != "mir.constant"), kernel.operation)
            raise CompileError(
                f"kernel '{kernel_name(kernel)}': {blame(first, error)}; disable_templates=('{kind}',) compiles "
                f"kernels of class '{kind}' without their {what}"
            ) from error
        place = ir.Location.name(KERNEL_PLACE + kernel_name(kernel), kernel.operation.location)
        for op in made:
            if op.operation.name == "func.func":
                op.operation.attributes[TEMPLATE] = ir.StringAttr.get(generator)
            locate(op, place)
        kernel.operation.erase()


def locate(function: ir.AnyOp, location: ir.Location) -> None:
    """Gives a function that was parsed from our text a location: failures then name the kernel and its block."""
    function.operation.location = location
    for op in operations(function):
        op.location = location


@compiler_pass("kernel-destination-style", dependent=("bufferization", "memref", "arith"))
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
            raise StageError(
                f"kernel '{kernel_name(kernel)}' has no '{TEMPLATE}': run cpu-apply-templates or gpu-apply-schedules"
            )
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
