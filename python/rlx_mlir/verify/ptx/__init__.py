# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs PTX on the CPU: kernels are tested without a GPU, and with checks that a GPU doesn't make."""

from rlx_mlir.verify.ptx.driver import REGISTRY, launch_raw, parameter_layout
from rlx_mlir.verify.ptx.kernel import Module, load
from rlx_mlir.verify.ptx.memory import DeviceMemory
from rlx_mlir.verify.ptx.stats import Access, Stats
from rlx_mlir.verify.ptx.tensormap import TensorMap

__all__ = [
    "REGISTRY",
    "Access",
    "DeviceMemory",
    "Module",
    "Stats",
    "TensorMap",
    "launch_raw",
    "load",
    "parameter_layout",
]
