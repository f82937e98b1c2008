# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Classes of kernels, which say what templates and schedules are asked for their code. Needs no MLIR."""

from __future__ import annotations

from rlx_mlir.runtime.tiles import ATTENTION_AMX, GEMM_AMX_F32

#: Those that have templates for CPUs or schedules for GPUs.
CLASSES = (
    "gemm",
    "rows",
    "attention",
    "quantize",
    "recurrence",
    "conv",
    "top_k",
    "sample",
    "gather",
    "move",
    "broadcast",
    "conv2d",
    "reduce",
    "scan",
    "norm",
)

#: Templates that can be turned off by themselves, since they round otherwise than those they replace.
TEMPLATES = (GEMM_AMX_F32, ATTENTION_AMX)

#: What has only the generic path.
GENERIC = "generic"

#: What calls a function of the user's own: there is no other path.
OWN = "own"

__all__ = ["CLASSES", "GENERIC", "OWN", "TEMPLATES"]
