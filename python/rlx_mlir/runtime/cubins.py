# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which of an artefact's codes a GPU runs: machine code, or the PTX that its driver compiles, and keeps on disk."""

from __future__ import annotations

import logging

from rlx_mlir import native
from rlx_mlir.chips import runs_binary
from rlx_mlir.errors import DeviceError, DeviceFaultError, DeviceMemoryError
from rlx_mlir.runtime.artifact import Artifact

log = logging.getLogger(__name__)

#: Classes of kernels that sm_90a has instructions for which sm_90 lacks.
_BY_WGMMA = {"gemm", "attention"}


def load(device: native.CudaDevice, artifact: Artifact) -> native.CudaCode:
    """The kernels on a GPU.

    Machine code is taken where there is some for this chip by an assembler that isn't of a later major version than
    the driver; what the driver refuses all the same is compiled from PTX.

    The driver isn't asked to link PTX, which would give machine code to be kept here: it compiles what it links as
    code that may call functions elsewhere, without the exchange of registers between warp groups and with products
    that wait for each other. Its own cache of what it compiles serves as well.

    Raises what `CudaCode` raises.
    """
    if artifact.chip == "sm_90" and device.compute_capability == (9, 0) and _BY_WGMMA & set(artifact.kinds.values()):
        log.warning("'%s' was compiled for sm_90: chip='sm_90a' has faster products and attention", artifact.name)
    if not artifact.cubin:
        return native.CudaCode(device, artifact.device_code, artifact.device_kernels)
    if reason := _unfit(device, artifact):
        log.info("machine code of '%s' isn't used: %s", artifact.name, reason)
    else:
        try:
            return native.CudaCode(device, artifact.cubin, artifact.device_kernels)
        except (DeviceMemoryError, DeviceFaultError):
            raise
        except DeviceError as error:
            # As text: an error keeps what failed.
            log.warning("machine code of '%s' isn't used: %s", artifact.name, str(error))
    return native.CudaCode(device, artifact.device_code, artifact.device_kernels)


def _unfit(device: native.CudaDevice, artifact: Artifact) -> str:
    """Why machine code can't run, or nothing."""
    if not runs_binary(artifact.chip, *device.compute_capability):
        return f"it is for {artifact.chip}, but {device.name} isn't"
    needed, has = int(artifact.assembler.partition(".")[0]), native.cuda_driver_version() // 1000
    if has < needed:
        return f"ptxas {artifact.assembler} made it, but the driver is for CUDA {has}"
    return ""
