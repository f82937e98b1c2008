# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The network of ../c/make_mlp.py through ctypes: Python's standard library alone. Other languages do the same.

Usage:

    python examples/c/make_mlp.py build/libmlp.so
    python examples/ctypes/mlp.py build/libmlp.so
"""

from __future__ import annotations

import ctypes
import os
import sys

ABI_VERSION = 1


class Options(ctypes.Structure):
    """`rlx_options`."""

    _fields_ = (("abi_version", ctypes.c_uint32), ("threads", ctypes.c_int32), ("weights", ctypes.c_char_p))


class Memory(ctypes.Structure):
    """`rlx_input` and `rlx_output`."""

    _fields_ = (("data", ctypes.c_void_p), ("bytes", ctypes.c_size_t))


def memory(array: ctypes.Array) -> Memory:
    """Where an array is."""
    return Memory(ctypes.addressof(array), ctypes.sizeof(array))


def main() -> None:
    """Prints the results for three rows."""
    library = ctypes.CDLL(os.path.abspath(sys.argv[1]))
    library.mlp_error.restype = ctypes.c_char_p
    library.mlp_error.argtypes = library.mlp_free.argtypes = [ctypes.c_void_p]
    sizes, count = ctypes.POINTER(ctypes.c_int64), ctypes.c_size_t
    lists = [ctypes.POINTER(Memory), count] * 2
    library.mlp_run.argtypes = [ctypes.c_void_p, count, sizes, count, *lists]

    model = ctypes.c_void_p()
    if library.mlp_load(ctypes.byref(Options(ABI_VERSION, 0, None)), ctypes.byref(model)):
        sys.exit(library.mlp_error(None).decode())
    x = (ctypes.c_float * 60)(*((i % 7) / 8 - 0.25 for i in range(60)))
    y = (ctypes.c_float * 15)()
    batch = (ctypes.c_int64 * 1)(3)
    if library.mlp_run(model, 0, batch, 1, ctypes.byref(memory(x)), 1, ctypes.byref(memory(y)), 1):
        sys.exit(library.mlp_error(model).decode())
    for value in y:
        print(value.hex())
    library.mlp_free(model)


if __name__ == "__main__":
    main()
