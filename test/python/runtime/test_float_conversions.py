# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Conversions of 16-bit floats that the loader gives to code of processors without instructions for them."""

from __future__ import annotations

import ctypes
import platform
import subprocess

import ml_dtypes
import numpy as np
import pytest

from rlx_mlir import native
from rlx_mlir.runtime.identity import llvm_library

CONVERT = """
define void @{name}(ptr %x, ptr %y, i64 %n) {{
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %px = getelementptr {source}, ptr %x, i64 %i
  %py = getelementptr {target}, ptr %y, i64 %i
  %v = load {source}, ptr %px
  %w = {op} {source} %v to {target}
  store {target} %w, ptr %py
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, %n
  br i1 %more, label %loop, label %exit
exit:
  ret void
}}
"""
NUMPY = {"float": np.float32, "double": np.float64, "half": np.float16, "bfloat": ml_dtypes.bfloat16}


@pytest.fixture(scope="module")
def convert(tmp_path_factory):
    """Converts arrays with code that was compiled for a CPU without instructions for 16-bit floats."""
    llc = llvm_library().parent.parent / "bin" / "llc"
    pairs = [("float", "half"), ("double", "half"), ("float", "bfloat"), ("double", "bfloat")]
    cases = [(a, b, "fptrunc") for a, b in pairs] + [("half", "float", "fpext"), ("half", "double", "fpext")]
    text = "".join(CONVERT.format(name=f"{a}_{b}", source=a, target=b, op=op) for a, b, op in cases)
    folder = tmp_path_factory.mktemp("convert")
    (folder / "c.ll").write_text(text)
    cpu = "x86-64" if platform.machine() == "x86_64" else "generic"
    arguments = [f"-mcpu={cpu}", "-filetype=obj", "-relocation-model=pic", folder / "c.ll", "-o", folder / "c.o"]
    subprocess.run([llc, *arguments], check=True)
    code = native.ObjectCode([(folder / "c.o").read_bytes()])

    def run(x: np.ndarray, source: str, target: str) -> np.ndarray:
        x, y = np.ascontiguousarray(x, NUMPY[source]), np.empty(x.shape, NUMPY[target])
        function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
        function(code.lookup(f"{source}_{target}"))(x.ctypes.data, y.ctypes.data, x.size)
        return y

    return run


def same(actual: np.ndarray, expected: np.ndarray) -> bool:
    """Equal bits, where NaNs only need to be NaNs."""
    bits = f"u{actual.dtype.itemsize}"
    nan = np.isnan(expected)
    numbers = np.array_equal(actual[~nan].view(bits), expected[~nan].view(bits))
    return numbers and np.array_equal(np.isnan(actual), nan)


def every_half() -> np.ndarray:
    return np.arange(65536, dtype=np.uint16).view(np.float16)


@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid")
def test_conversions_to_half(convert):
    halves = every_half()
    finite = np.unique(halves[np.isfinite(halves)].astype(np.float64))
    middles = (finite[1:] + finite[:-1]) / 2  # the ties, and what lies just beside them
    random = np.random.default_rng(0).integers(0, 2**32, 100_000, dtype=np.uint32).view(np.float32)
    specials = np.array([65519.99, 65520, -65520, 1e30, np.inf, -np.inf, np.nan, 0.0, -0.0, 1e-45, 2**-25], np.float64)
    for values in (middles, np.nextafter(middles, 9e9), np.nextafter(middles, -9e9), specials, random.astype(float)):
        assert same(convert(values, "double", "half"), values.astype(np.float16))
        single = values.astype(np.float32)
        assert same(convert(single, "float", "half"), single.astype(np.float16))


@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid")
def test_conversions_from_half(convert):
    halves = every_half()
    assert same(convert(halves, "half", "float"), halves.astype(np.float32))
    assert same(convert(halves, "half", "double"), halves.astype(np.float64))


@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid")
def test_conversions_to_bfloat(convert):
    upper = np.arange(65536, dtype=np.uint32) << 16
    for lower in (0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF):
        values = (upper | lower).view(np.float32)
        assert same(convert(values, "float", "bfloat"), values.astype(ml_dtypes.bfloat16))
        wide = values.astype(np.float64)
        assert same(convert(wide, "double", "bfloat"), values.astype(ml_dtypes.bfloat16))
    # One rounding, not two by way of f32: this lies just above a tie.
    assert convert(np.array([1 + 2.0**-8 + 2.0**-40]), "double", "bfloat")[0] == 1 + 2.0**-7
