# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compiles the text of a kernel template for this machine and calls it with numpy arrays.

Buffers end right before a page that may not be touched, so an access past the end is a crash, not a lucky zero; the
results and the scratch start as NaN, so what a kernel forgets to write is seen.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import mmap
from collections.abc import Sequence
from typing import Any

import levels
import numpy as np
from machine_code import loaded

from rlx_mlir import ir
from rlx_mlir.codegen.cpu.target import Target
from rlx_mlir.codegen.program import Argument, Program, Step
from rlx_mlir.lowering.pipelines import LLVM
from rlx_mlir.rewriting.steps import run_and_verify

# What the instructions of the tests' targets need; the machine's own features are used for the code itself.
TARGETS = {
    512: Target(512, frozenset({"fma", "f16c", "avx2", "avx512f", "avx512bw", "avx512dq", "avx512vl"})),
    256: Target(256, frozenset({"fma", "f16c", "avx2"})),
    128: Target(128),
}

#: What may follow a product: gelu(product + row) + residual.
RESIDUAL = Program(
    (
        Step("add", (("acc", 0), ("arg", 1))),
        Step("gelu", (("step", 0),)),
        Step("add", (("step", 1), ("arg", 0))),
    ),
    (Argument("full"), Argument("row")),
)

#: What the product does to kernels, from where their bodies would be put into their wrappers: these are called alone.
LOWER = ",".join(step for step, _ in LLVM.steps if step not in ("kernel-add-entry-points", "inline", "symbol-dce"))

_libc = ctypes.CDLL(None, use_errno=True)


def protect(array: np.ndarray, start: int, stop: int, allowed: int = 0) -> None:
    """Makes the bytes [start, stop) of a buffer, both on page boundaries, inaccessible, or what `allowed` says."""
    if _libc.mprotect(ctypes.c_void_p(array.ctypes.data + start), ctypes.c_size_t(stop - start), allowed):
        raise OSError(ctypes.get_errno(), "mprotect")


def guarded(array: np.ndarray, fill: int | None = None) -> np.ndarray:
    """A copy that ends where an inaccessible page begins; with `fill`, every byte of it is that."""
    page = mmap.PAGESIZE
    whole = -(-array.nbytes // page) * page
    memory = mmap.mmap(-1, whole + page)
    raw = np.frombuffer(memory, np.uint8)
    protect(raw, whole, whole + page)
    copy = raw[whole - array.nbytes : whole].view(array.dtype).reshape(array.shape)
    if fill is None:
        copy[...] = array
    else:
        raw[whole - array.nbytes : whole] = fill
    return copy


class _Descriptor(ctypes.Structure):
    """A memref of any rank: the ABI has exactly 2 * rank trailing numbers, of which more is never read."""

    _fields_ = (("base", ctypes.c_void_p), ("data", ctypes.c_void_p), ("rest", ctypes.c_int64 * 17))


def _descriptor(array: np.ndarray) -> _Descriptor:
    strides = [stride // array.itemsize for stride in array.strides] if array.size else [0] * array.ndim
    numbers = [0, *array.shape, *strides]
    return _Descriptor(array.ctypes.data, array.ctypes.data, (ctypes.c_int64 * 17)(*numbers))


class _Memory:
    """Scratch memory of so many bytes, aligned, between others that kernels may not write to."""

    def __init__(self, size: int) -> None:
        assert size % 64 == 0, f"memory of {size} bytes"
        memory = np.full(size + 128, 0xFF, np.uint8)
        start = -memory.ctypes.data % 64
        self.descriptor = _descriptor(memory[start : start + size])
        self._around = memory[:start], memory[start + size :]

    def check(self) -> None:
        assert (np.concatenate(self._around) == 0xFF).all(), "the kernel wrote past its scratch"


class Kernel:
    """`@name.body`, `@name.units`, `@name.scratch` of one text, compiled; those of `@name_finish` where there are."""

    def __init__(self, name: str, text: str) -> None:
        self.name, self.text = name, text
        self.shares = f"@{name}.shared(" in text
        with ir.new_context():
            module = ir.Module.parse(text)
            for op in module.body:
                op.attributes["llvm.emit_c_interface"] = ir.UnitAttr.get()
                op.attributes["sym_visibility"] = ir.StringAttr.get("public")
            run_and_verify(module, LOWER)
            self._code = loaded(module, levels.of_kernel(text))

    def _call(
        self, part: str, arguments: Sequence[_Descriptor | int], result: type[ctypes.c_int64] | None = None
    ) -> Any:
        """Calls `@part` by its C interface: memrefs are pointers to descriptors, indices are 64 bits."""
        values = [ctypes.c_int64(each) if isinstance(each, int) else ctypes.byref(each) for each in arguments]
        return ctypes.CFUNCTYPE(result)(self._code.lookup(f"_mlir_ciface_{part}"))(*values)

    def _number(self, part: str, descriptors: Sequence[_Descriptor]) -> int:
        return int(self._call(part, descriptors, ctypes.c_int64))

    def units(self, buffers: Sequence[np.ndarray]) -> int:
        """The number of units for buffers of these shapes."""
        return self._number(f"{self.name}.units", self._descriptors(buffers, _Memory(0)))

    def _descriptors(self, buffers: Sequence[np.ndarray], shared: _Memory) -> list[_Descriptor]:
        return [*map(_descriptor, buffers), *([shared.descriptor] if self.shares else [])]

    def run(
        self, buffers: Sequence[np.ndarray], cuts: Sequence[int] | None = None, only: Sequence[int] | None = None
    ) -> None:
        """Calls the body on all units, or on the runs of units between neighbouring `cuts`.

        Args:
            only: the units [begin, end) to compute; then, nothing finishes them.
        """
        shared = _Memory(0)
        if self.shares:
            shared = _Memory(self._number(f"{self.name}.shared", self._descriptors(buffers, shared)))
        descriptors = self._descriptors(buffers, shared)
        for name in [self.name, f"{self.name}_finish"] if self.shares and not only else [self.name]:
            total = self._number(f"{name}.units", descriptors)
            size = self._number(f"{name}.scratch", descriptors)
            edges = [0, total] if cuts is None else sorted({0, total, *(cut for cut in cuts if 0 < cut < total)})
            for begin, end in itertools.pairwise(only or edges):
                scratch = _Memory(size)  # each part may be another thread's
                self._call(f"{name}.body", [*descriptors, begin, end, scratch.descriptor])
                scratch.check()
        shared.check()

    def __call__(
        self, operands: Sequence[np.ndarray], results: Sequence[np.ndarray], cuts: Sequence[int] | None = None
    ) -> list[np.ndarray]:
        """Runs the kernel on guarded copies; `results` give shapes and types. Tied results need `run`."""
        inputs = [guarded(np.ascontiguousarray(operand)) for operand in operands]
        outputs = [guarded(result, 0xFF) for result in results]
        self.run([*inputs, *outputs], cuts)
        for before, after in zip(operands, inputs, strict=True):
            assert before.tobytes() == after.tobytes(), "the kernel wrote into an operand"
        return outputs


@functools.cache
def compiled(name: str, text: str) -> Kernel:
    """The kernel of a text; compiled once in a test session."""
    return Kernel(name, text)
