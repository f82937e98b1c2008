# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The pass `gpu-guard-divisions`: sizes of empty buffers are computed without dividing by zero."""

from __future__ import annotations

from mlir.dialects import arith

from rlx_mlir import ir
from rlx_mlir.lowering.gpu.build import name_of, number
from rlx_mlir.lowering.kernel_body import constant_value
from rlx_mlir.rewriting import compiler_pass, operations

#: Divisions, which have no result where the divisor is 0: on CPUs they end the process.
DIVISIONS = ("arith.divui", "arith.divsi", "arith.remui", "arith.remsi")


@compiler_pass("gpu-guard-divisions", anchor="func.func", dependent=("arith",))
def guard_divisions(function: ir.Operation) -> None:
    """Divide sizes by 1 where the divisor is 0: such buffers are empty, and the quotient only has to exist.

    What loop nests compute for each element stays: it runs for elements that exist.
    """
    for op in operations(function):
        if name_of(op) not in DIVISIONS or str(op.results[0].type) != "index" or _is_in_nest(op):
            continue
        if constant_value(op.operands[1]) is None:
            with op.location, ir.InsertionPoint(op):
                op.operands[1] = arith.maxui(op.operands[1], number(1))


def _is_in_nest(op: ir.Operation) -> bool:
    parent = op.parent
    while parent is not None and name_of(parent) != "func.func":
        if name_of(parent).startswith("linalg."):
            return True
        parent = parent.operation.parent
    return False
