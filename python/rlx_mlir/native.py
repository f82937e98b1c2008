# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Gives out what the extension `rlx_mlir._runtime` has, which needs neither MLIR nor LLVM."""

from __future__ import annotations

import importlib.util
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
    "host_functions",
    "host_processor",
    "link_objects",
    "parallel_for",
    "unneeded_features",
    "worker_count",
]


def folder() -> Path:
    """Where the extension is, and what is installed with it."""
    spec = importlib.util.find_spec("rlx_mlir._runtime")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


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
        host_functions,
        host_processor,
        link_objects,
        parallel_for,
        unneeded_features,
        worker_count,
    )
except ImportError as error:
    raise ExecutionError(
        f"cannot load the native module rlx_mlir._runtime: {error}; build it with `pip install .`"
    ) from error
