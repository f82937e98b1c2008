# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The program that a matrix product ends with, which is that of all targets: see `rlx_mlir.codegen.program`."""

from __future__ import annotations

from rlx_mlir.codegen.program import (
    ELEMENTWISE,
    IDENTITY,
    SWIGLU,
    Argument,
    Broadcast,
    Program,
    Ref,
    Step,
    emit_elementwise,
)

__all__ = ["ELEMENTWISE", "IDENTITY", "SWIGLU", "Argument", "Broadcast", "Program", "Ref", "Step", "emit_elementwise"]
