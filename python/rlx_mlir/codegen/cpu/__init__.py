# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernel templates for CPUs: Python functions that return MLIR text at vector/scf/arith/memref/math level."""

from __future__ import annotations

from rlx_mlir.errors import UnsupportedError

__all__ = ["UnsupportedByTemplate"]


class UnsupportedByTemplate(UnsupportedError):
    """A template doesn't cover this valid group; the compiler lowers it by the generic route instead."""
