# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Whether everything in a module can be compiled: checked before any pass runs, so that all that can't is named."""

from __future__ import annotations

from rlx_mlir import ir
from rlx_mlir.errors import UnsupportedError
from rlx_mlir.locations import describe_operation
from rlx_mlir.lowering.extents import check_extents
from rlx_mlir.lowering.functions import uncommon_element
from rlx_mlir.lowering.hir_to_mir import PATTERNS
from rlx_mlir.lowering.regions import GPU_ALIGNMENT, starts_at
from rlx_mlir.mir.control import REGIONS
from rlx_mlir.mir.custom import registered
from rlx_mlir.mir.registry import COMPOSITIONS, DIM_RULES, PREPARE_ONLY, TERMINATORS, TO_LINALG
from rlx_mlir.rewriting import operations
from rlx_mlir.semantics.function import function_name, functions, role
from rlx_mlir.semantics.ops import operation_classes
from rlx_mlir.unsupported import list_operations


def check_supported(module: ir.AnyModule, name: str, *, policy: str = "direct", gpu: bool = False) -> None:
    """Raises UnsupportedError, which lists every operation that can't be compiled, with places and reasons.

    Raises CompileError where the memory of a value can't be addressed.

    Args:
        module: at stage hir or mir.
        name: of the module, for the message.
        policy: how blocks lower.
        gpu: it is compiled for a GPU.
    """
    lowered = {pattern.root for pattern in PATTERNS.select(policy)}
    on_tensors = {pattern.root for pattern in TO_LINALG} | PREPARE_ONLY | {*COMPOSITIONS, "mir.custom_fn"}
    found = []
    for function in functions(module):
        for op in operations(function):
            reason = _problem(op, lowered, on_tensors)
            if gpu and not reason and op.name == "mir.while" and (scan := _unaligned_scan(op)) is not None:
                reason = (
                    f"it is in {describe_operation(scan)}, whose entries have to be of a multiple of {GPU_ALIGNMENT} "
                    "bytes each where the host of a GPU sees what ends a loop in it"
                )
            if gpu and not reason and (element := uncommon_element(op)):
                reason = f"there is no code for GPUs with values of {element}: it runs on CPUs only"
            if reason:
                found.append((op, reason))
        if role(function) is not None:
            found.append((function, f"'{function_name(function)}' is a {role(function)}: the compiler makes those"))
    if found:
        known = [n for n in operation_classes() if n in lowered or (n in on_tensors and n in DIM_RULES)]
        lines = list_operations(found, known)
        raise UnsupportedError("\n  ".join([f"'{name}' has {len(found)} operations that can't be compiled", *lines]))
    check_extents(module)


def _unaligned_scan(op: ir.AnyOp) -> ir.AnyOp | None:
    """The scan around an operation that is one kernel on GPUs, whatever is in it; None where there is none."""
    parent = op.operation.parent
    while parent is not None and parent.operation.name in REGIONS:
        if not starts_at(parent.operation, GPU_ALIGNMENT):
            return parent
        parent = parent.operation.parent
    return None


def _problem(op: ir.AnyOp, lowered: set[str], on_tensors: set[str]) -> str:
    """Why an operation can't be compiled; '' where it can."""
    dialect = op.name.partition(".")[0]
    if dialect == "func" or op.name in TERMINATORS:
        return ""
    if dialect == "hir":
        return "" if op.name in lowered else "no pattern lowers the block to primitives"
    if dialect != "mir":
        return f"modules are made of operations of hir, mir and func, not of {dialect}"
    if op.name == "mir.custom":
        return _problem_of_custom(op)
    if op.name not in on_tensors:
        return "no pattern lowers the operation to loops"
    return "" if op.name in DIM_RULES else "it has no rule for sizes"


def _problem_of_custom(op: ir.AnyOp) -> str:
    """Why an operation of the user's own can't be compiled; '' where its lowering or its kernel can be asked."""
    try:
        registered(op)
    except UnsupportedError as error:
        return str(error)
    return ""
