# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Memory of `Executable.zeros`: whose it is before it is written, and afterwards."""

from __future__ import annotations

import subprocess
import sys

_ZEROS = """
import numpy as np, rlx_mlir as rlx
m = rlx.GraphModule.mir("zeros")
m.set_outputs({"y": m.neg(m.input("x", [2]))})
executable = rlx.compile(m)
between = []

def resident():
    return int(open("/proc/self/statm").read().split()[1]) >> 8

def zeros():
    arrays = []
    for _ in range(8):
        arrays.append(executable.zeros((1, 1024, 1024)))
        between.append(np.ones(2000))  # the heap can't shrink below it
    assert all(array.ctypes.data % 64 == 0 and not array.any() for array in arrays[:1])
    return arrays

np.ones(30 << 20, np.uint8)  # having given back so large an array, the C library keeps smaller ones
before = resident()
arrays = zeros()
for array in arrays:
    array += 1
written = resident() - before
del arrays, array
freed = resident() - before
arrays = zeros()
print(written >= 30, freed < 16, resident() - before < 16)
try:
    executable.zeros((1 << 50,))
except MemoryError as error:
    print("4503599627370496 bytes of zeros" in str(error))
"""


def test_memory_of_zeros_is_given_back_and_taken_when_it_is_written():
    result = subprocess.run([sys.executable, "-c", _ZEROS], capture_output=True, text=True, check=True)
    assert result.stdout.split() == ["True"] * 4
