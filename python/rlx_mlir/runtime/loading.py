# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Executables of compiled modules, for whatever they were compiled for."""

from __future__ import annotations

import os

from rlx_mlir import checks
from rlx_mlir.errors import InputError
from rlx_mlir.place import located
from rlx_mlir.runtime.artifact import Artifact
from rlx_mlir.runtime.executable import Executable


@located
def executable(artifact: Artifact, *, threads: int | None = None, device: int = 0) -> Executable:
    """What runs a compiled module: a `CudaExecutable` where it was compiled for a GPU.

    Args:
        artifact: what the compiler made.
        threads: of one call on CPUs; None for as many as the process may use.
        device: the number of the GPU.

    Raises what their constructors raise.
    """
    checks.whole("device", device)
    if not artifact.chip:
        if device:
            raise InputError(f"'{artifact.name}' was compiled for CPUs, but 'device' is {device}")
        return Executable(artifact, threads=threads)
    from rlx_mlir.runtime.cuda import CudaExecutable

    return CudaExecutable(artifact, device=device)


@located
def load(path: str | os.PathLike[str], *, threads: int | None = None, device: int = 0) -> Executable:
    """Reads what `Artifact.save` wrote, and makes it an executable.

    The file is code, and runs with the rights of this process: load only what you compiled, or somebody whom you trust.
    Its checksum finds damage; it doesn't say who wrote it. The same is true of the folder of the cache.

    Args:
        path: the file.
        threads, device: as for `executable`.

    Raises CacheError where the file is damaged, of another version or no regular file, OSError where it can't be read.
    """
    return executable(Artifact.load(path), threads=threads, device=device)
