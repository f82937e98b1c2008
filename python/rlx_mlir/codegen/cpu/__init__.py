# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernel templates for CPUs: Python functions that return MLIR text at vector/scf/arith/memref/math level."""

from __future__ import annotations

from rlx_mlir.codegen import UnsupportedByTemplate

__all__ = ["UnsupportedByTemplate"]
