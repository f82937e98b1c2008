# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Modules of the LLVM dialect as code of this machine, by the compiler's own code generator and loader.

MLIR's execution engine lacks what some processors need of a library, such as conversions of bf16.
"""

from __future__ import annotations

from rlx_mlir import ir, native


def loaded(module: ir.Module, level: int) -> native.ObjectCode:
    """The code of a module of the LLVM dialect, optimised at that level; C interfaces are `_mlir_ciface_NAME`."""
    code = ir.native.emit_code(module.operation, *ir.native.host_target(), level, ir.native.CodeKind.OBJECT)
    return native.ObjectCode([code])
