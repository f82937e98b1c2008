# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A rewrite pattern and a pass outside of the package, applied to a module: x - (-y) becomes x + y.

docs/writing-a-pass.md explains each line, and how the pass gets into rlx-opt.
"""

from __future__ import annotations

import rlx_mlir as rlx
from rlx_mlir import ir
from rlx_mlir.dialects import mir
from rlx_mlir.lowering.fuse import producer
from rlx_mlir.rewriting import PatternSet, Rewriter, apply_patterns, compiler_pass, erase_dead

PATTERNS = PatternSet()


@PATTERNS.pattern(mir.SubOp)
def add_negated(op: mir.SubOp, rewriter: Rewriter) -> None:
    """x - neg(y) -> x + y"""
    negated = producer(op.rhs, mir.NegOp)
    if negated is None:
        return rewriter.no_match("what is subtracted isn't a negation")
    return rewriter.replace(op, mir.add(op.lhs, negated.x))


@compiler_pass("mir-simplify-sub")
def simplify_sub(module: ir.Operation) -> None:
    """Turn subtractions of negated values into additions; bits stay."""
    report = apply_patterns(module, PATTERNS)
    erase_dead(module)
    print(f"applied: {dict(report.applied)}; declined: {[miss.reason for miss in report.misses]}")


def main() -> None:
    """Builds a module with one subtraction of each kind, and runs the pass on it."""
    m = rlx.GraphModule.mir("difference")
    x, y = m.input("x", [4]), m.input("y", [4])
    m.set_outputs({"sum": x - (-y), "difference": x - y})
    print(m.inspect())
    print(m.transform("mir-simplify-sub").inspect())


if __name__ == "__main__":
    main()
