# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs PTX on the CPU: kernels are tested without a GPU, and with checks that a GPU doesn't make."""

from ptx_emulator.driver import REGISTRY, launch_raw, parameter_layout
from ptx_emulator.errors import EmulationError
from ptx_emulator.kernel import Module, load
from ptx_emulator.memory import DeviceMemory
from ptx_emulator.stats import Access, Stats
from ptx_emulator.tensormap import TensorMap

__all__ = [
    "REGISTRY",
    "Access",
    "DeviceMemory",
    "EmulationError",
    "Module",
    "Stats",
    "TensorMap",
    "launch_raw",
    "load",
    "parameter_layout",
]
