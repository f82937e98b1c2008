# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels as Python functions that print MLIR: templates for CPUs, schedules for GPUs, and what both share."""

from __future__ import annotations

from rlx_mlir.errors import UnsupportedError

__all__ = ["UnsupportedByTemplate"]


class UnsupportedByTemplate(UnsupportedError):
    """A template doesn't cover this valid group; the compiler lowers it by the generic route instead."""
