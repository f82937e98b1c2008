# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Machine code for NVIDIA GPUs, as the driver made it of PTX: kept on disk, since making it takes seconds."""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Sequence
from pathlib import Path

from rlx_mlir.errors import DeviceError, DeviceFaultError, DeviceMemoryError
from rlx_mlir.models.hub import cache_dir
from rlx_mlir.runtime import native
from rlx_mlir.runtime.artifact import write_atomically

log = logging.getLogger(__name__)

_MAGIC = b"RLXCUBIN"
_DIGEST_BYTES = 32


def path_of(device: native.CudaDevice, ptx: bytes) -> Path:
    """The file for PTX on a GPU: another chip, or another version of the driver, has another one."""
    digest = hashlib.sha256(ptx)
    digest.update(repr((device.name, device.compute_capability, native.cuda_driver_version())).encode())
    return cache_dir() / "cubin" / f"{digest.hexdigest()}.cubin"


def load(device: native.CudaDevice, ptx: bytes, kernels: Sequence[str]) -> native.CudaCode:
    """The kernels on a GPU, from the cache where it has them.

    Raises what `CudaCode` raises. What the cache has but can't be used is made again.
    """
    path = path_of(device, ptx)
    if (cubin := _read(path)) is not None:
        try:
            return native.CudaCode(device, cubin, kernels)
        except DeviceError as error:
            log.warning("ignoring cache entry %s: %s", path, str(error))  # as text: an error keeps what failed
    try:
        cubin = device.assemble(ptx)
        code = native.CudaCode(device, cubin, kernels)
    except (DeviceMemoryError, DeviceFaultError):
        raise
    except DeviceError as error:
        # Code that is wrong is so in this way, too, and the error says why.
        code = native.CudaCode(device, ptx, kernels)
        log.warning("the driver gives no machine code to be kept: %s", str(error))
        return code
    try:
        write_atomically(path, _MAGIC + hashlib.sha256(cubin).digest() + cubin)
    except OSError as error:
        log.warning("can't write to the cache %s: %s", os.fspath(path.parent), str(error))
    return code


def _read(path: Path) -> bytes | None:
    """What `load` wrote; None where there is nothing, or it is damaged."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        log.warning("ignoring cache entry %s: %s", path, str(error))
        return None
    start = len(_MAGIC) + _DIGEST_BYTES
    cubin = data[start:]
    if data[: len(_MAGIC)] != _MAGIC or hashlib.sha256(cubin).digest() != data[len(_MAGIC) : start]:
        log.warning("ignoring cache entry %s: it is damaged", path)
        return None
    return cubin
