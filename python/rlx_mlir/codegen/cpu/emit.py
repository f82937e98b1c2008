# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The emitter of templates for CPUs, which is that of all code: see `rlx_mlir.codegen.emit`."""

from __future__ import annotations

from rlx_mlir.codegen.emit import (
    Branch,
    Emitter,
    Index,
    Loop,
    Operand,
    Switch,
    Value,
    element_of,
    memref,
    shape_of,
    vec,
    with_element,
)

__all__ = [
    "Branch",
    "Emitter",
    "Index",
    "Loop",
    "Operand",
    "Switch",
    "Value",
    "element_of",
    "memref",
    "shape_of",
    "vec",
    "with_element",
]
