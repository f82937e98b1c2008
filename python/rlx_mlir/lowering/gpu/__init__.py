# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Passes from kernels on buffers to launches, kernels of GPUs and NVVM. Importing registers them."""

from rlx_mlir.lowering.gpu import (
    destinations,
    divisions,
    emulate,
    float8,
    host,
    map_loops,
    math,
    outline,
    pipelines,
    ptx,
    schedules,
    swiglu,
)

__all__ = [
    "destinations",
    "divisions",
    "emulate",
    "float8",
    "host",
    "map_loops",
    "math",
    "outline",
    "pipelines",
    "ptx",
    "schedules",
    "swiglu",
]
