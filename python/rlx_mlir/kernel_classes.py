# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Classes of kernels, which say what templates and schedules are asked for their code. Needs no MLIR."""

from __future__ import annotations

#: Those that have templates for CPUs or schedules for GPUs.
CLASSES = (
    "gemm",
    "q_matmul",
    "rows",
    "attention",
    "cache",
    "quantize",
    "recurrence",
    "state_space",
    "conv",
    "top_k",
    "sample",
    "gather",
    "move",
    "broadcast",
    "conv2d",
    "pool",
    "reduce",
    "scan",
    "norm",
    "group_norm",
    "solve",
    "fft",
    "grouped",
    "loss",
)

#: Those whose templates know complex numbers.
OF_COMPLEX = ("fft",)

#: Those whose templates know integers without sign.
OF_UNSIGNED = ("gather", "top_k", "broadcast")

#: What has only the generic path.
GENERIC = "generic"

#: What calls a function of the user's own: there is no other path.
OWN = "own"

__all__ = ["CLASSES", "GENERIC", "OF_COMPLEX", "OF_UNSIGNED", "OWN"]
