# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The pass `cpu-apply-templates`: kernels that a template covers get its code; the others take the generic path."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from rlx_mlir import ir
from rlx_mlir.codegen.cpu import UnsupportedByTemplate
from rlx_mlir.codegen.cpu.call import declare_call
from rlx_mlir.codegen.cpu.registry import generate, generators_of, knobs, switches
from rlx_mlir.codegen.cpu.target import Target
from rlx_mlir.errors import CompileError, InputError
from rlx_mlir.kernel_classes import CLASSES, OF_COMPLEX, OF_UNSIGNED, OWN
from rlx_mlir.lowering.functions import declare_into, kernel_class, parse_into, uncommon_element
from rlx_mlir.lowering.kernel_specs import READERS
from rlx_mlir.lowering.kernels import MEASURES, kernel_name, replace_kernels
from rlx_mlir.lowering.machine import machine
from rlx_mlir.rewriting import Option, compiler_pass, operations
from rlx_mlir.runtime.tiles import request_tiles
from rlx_mlir.tuning.cpu import BY_RULE, parse_choices


@compiler_pass(
    "cpu-apply-templates",
    dependent=("memref", "arith", "scf", "vector", "math", "llvm", "func"),
    options={
        "triple": Option("target triple; that of this machine where empty", ""),
        "cpu": Option("CPU as LLVM names it; that of this machine where empty", ""),
        "features": Option("features of the CPU as LLVM names them, +name or -name, on top of the CPU's", ""),
        "disable": Option(
            "classes of kernels that take the generic path, joined by +; all for every class; gemm_amx_f32: products "
            "of f32, attention_amx: attention, and conv2d_winograd: convolutions of 3 x 3, take another template",
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

    def code(kernel: ir.AnyOp) -> tuple[str, list[ir.AnyOp]]:
        name = kernel_name(kernel)
        template, text = _generate(kernel, replace(target, choices=chosen.get(name, BY_RULE)), skipped)
        made = _parsed(block, name, template, text)
        if template == OWN:
            declare_into(block, declare_call(name))
        return template, made

    replace_kernels(module, code, "template", skipped, chosen)


def _generate(kernel: ir.AnyOp, target: Target, skipped: Collection[str]) -> tuple[str, str]:
    """The name of the generator that takes the kernel, and the kernel's functions as text.

    Raises UnsupportedByTemplate, with the reason, where none does.
    """
    name, kind = kernel_name(kernel), kernel_class(kernel)
    if not generators_of(kind):
        raise UnsupportedByTemplate(f"{name}: kernels of class '{kind}' have no template")
    known = (OWN, *OF_COMPLEX, *OF_UNSIGNED)
    if kind not in known and (word := next(filter(None, map(uncommon_element, operations(kernel))), "")):
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
