# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels for GPUs on tensors of more than 2^31 elements: some blocks of a launch, on memory that is mostly not there.

Arrays are zeros that take no memory where nothing was written. A kernel whose addresses wrap around touches bytes that
aren't its own, which the emulator finds, or leaves out those that the test looks at.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from gpu_emulated import ptx, run_launch
from gpu_host import Launch, launches, scratch_bytes

from ptx_emulator import DeviceMemory, load
from rlx_mlir.codegen.gpu.kernel import DeviceKernel

Blocks = Callable[[Launch], Sequence[Sequence[int]]]


def sparse(shape: Sequence[int], dtype: type | np.dtype) -> np.ndarray:
    """An array of zeros that takes memory where it is written; skips the test where the system has no room for it."""
    nbytes = math.prod(shape) * np.dtype(dtype).itemsize
    try:
        room = mmap.mmap(-1, max(nbytes, 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000)  # MAP_NORESERVE
    except OSError as error:
        pytest.skip(f"the system has no address space for {nbytes} bytes: {error}")
    return np.frombuffer(room, dtype=dtype, count=math.prod(shape)).reshape(shape)


def last_block(launch: Launch) -> Sequence[Sequence[int]]:
    """The block with the highest numbers."""
    return [[size - 1 for size in launch.grid]]


def run_blocks(
    kernel: DeviceKernel,
    name: str,
    chip: str,
    operands: Sequence[np.ndarray],
    results: Sequence[np.ndarray],
    blocks: Blocks = last_block,
) -> list[Launch]:
    """Runs chosen blocks of each launch, in place, and returns all launches."""
    memory, arrays = DeviceMemory(), [*operands, *results]
    places = {f"b{i}": memory.register(array) for i, array in enumerate(arrays)}
    sizes = [array.shape for array in arrays]
    scratch = sparse([scratch_bytes(kernel, name, sizes) + 16], np.uint8)
    places["scratch"] = memory.register(scratch)

    module, done = load(ptx(kernel.device, chip)), launches(kernel, name, sizes)
    for one in done:
        try:
            run_launch(module, one, places, memory, blocks=blocks(one))
        except MemoryError as error:
            pytest.skip(f"the system has no address space for what the emulator notes: {error}")
    return done
