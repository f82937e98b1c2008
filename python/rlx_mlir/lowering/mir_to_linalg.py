# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The pass `mir-to-linalg`: every MIR operation as loops on tensors, valid for any shape."""

from __future__ import annotations

from collections import Counter

from rlx_mlir import ir
from rlx_mlir.errors import CompileError
from rlx_mlir.lowering.epilogues import widen_epilogues
from rlx_mlir.lowering.extents import check_extents
from rlx_mlir.mir import PREPARE_ONLY, TO_LINALG
from rlx_mlir.mir.registry import PLANNED
from rlx_mlir.rewriting import apply_patterns, compiler_pass, operations
from rlx_mlir.semantics.function import PREPARE, role
from rlx_mlir.unsupported import list_operations

#: Bytes of values below which nothing in between is too large: it has an element for each pair of theirs at most.
_LARGE = 1 << 28


@compiler_pass(
    "mir-to-linalg",
    anchor="func.func",
    dependent=("arith", "bufferization", "complex", "linalg", "math", "scf", "tensor"),
)
def mir_to_linalg(function: ir.Operation) -> None:
    """Lower every MIR operation to linalg, tensor, arith, math and scf on tensors.

    Sums may be reassociated and contracted (`fastmath<reassoc,contract>`); infinities and NaN keep their meaning. Don't
    run `cse` between this and bufferisation: it merges destinations, which then are copied. In kernels of class gemm,
    what follows a product with panels of f16 or bf16 is computed in f32 and rounded once.

    Raises CompileError where operations are left: the message lists them all, with their numbers. So it does where the
    memory of a value can't be addressed. @prepare stays as it is.
    """
    if role(function) == PREPARE:  # the run time performs it
        return
    largest = check_extents(function)
    widen_epilogues(function)
    apply_patterns(function, TO_LINALG)
    if largest > _LARGE:
        check_extents(function)
    found = [op for op in operations(function) if op.name.startswith("mir.") and op.name not in PLANNED]
    left = Counter(op.name for op in found)
    if not left:
        return
    names = ", ".join(f"{count} {name}" for name, count in sorted(left.items()))
    hint = ""
    if prepared := sorted(PREPARE_ONLY & set(left)):
        hint = f"; {', '.join(prepared)} runs when parameters are set: move it there with 'mir-hoist-params'"
    lines = list_operations(((op, "") for op in found), (pattern.root for pattern in TO_LINALG))
    text = f"expects no MIR operation to be left after lowering to linalg, but found {names}{hint}"
    raise CompileError("\n  ".join([text, *lines]))
