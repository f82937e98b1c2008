# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Permission to use the tile registers of AMX: Linux lends them to a process that asks."""

from __future__ import annotations

import ctypes
import functools
import platform
import sys

#: What the names of templates begin with whose code uses them.
GEMM_AMX = "gemm_amx"

#: The templates whose code multiplies f32 by tiles, as parts of bf16.
GEMM_AMX_F32 = GEMM_AMX + "_f32"

#: The template of attention whose products are computed by tiles.
ATTENTION_AMX = "attention_amx"

#: Linux, x86-64: the system call arch_prctl, its request for a part of the processor's state, and the tiles' number.
_ARCH_PRCTL, _REQUEST, _TILE_DATA = 158, 0x1023, 18


@functools.cache
def request_tiles() -> bool:
    """Asks for the registers, for all threads of the process; False where there are none, or they aren't given."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    return bool(libc.syscall(ctypes.c_long(_ARCH_PRCTL), ctypes.c_long(_REQUEST), ctypes.c_long(_TILE_DATA)) == 0)
