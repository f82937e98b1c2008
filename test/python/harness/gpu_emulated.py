# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Scheduled kernels for GPUs without one: their PTX, what ptxas says of it, and their results by the PTX emulator."""

from __future__ import annotations

import functools
import re
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import emulated_results
import numpy as np
import pytest
import real_gpu
from gpu_harness import ptxas
from gpu_host import MAPPED, SMEM, Launch, Map, Number, Pointer, launches, scratch_bytes

from ptx_emulator import DeviceMemory, Module, Stats, load
from ptx_emulator.tensormap import TensorMap
from rlx_mlir import ir
from rlx_mlir.codegen.gpu.kernel import DeviceKernel
from rlx_mlir.lowering.gpu.ptx import ptx_of
from rlx_mlir.rewriting.steps import run_and_verify


@functools.cache
def ptx(device: str, chip: str) -> str:
    """The PTX of a kernel's functions of the device."""
    with ir.new_context():
        module = ir.Module.parse(
            f"module attributes {{gpu.container_module}} {{\ngpu.module @kernels {{\n{SMEM}\n{device}\n}}\n}}"
        )
        run_and_verify(module, f"rlx-gpu-to-nvvm,gpu.module(convert-nvvm-to-llvm),gpu-emit-ptx{{chip={chip} level=2}}")
        return ptx_of(module)


@dataclass(frozen=True)
class Assembled:
    """What ptxas says of a kernel."""

    registers: int
    spills: int
    messages: str


def assembled(text: str, chip: str) -> dict[str, Assembled]:
    """What ptxas says of each kernel; skips the test where there is no ptxas."""
    program = ptxas()
    if program is None:
        pytest.skip("ptxas isn't installed: pip install nvidia-cuda-nvcc")
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "kernels.ptx"
        source.write_text(text)
        command = [program, "-v", "-O3", f"-arch={chip}", source, "-o", Path(folder) / "kernels.cubin"]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert "C75" not in result.stderr, result.stderr
    found = {}
    for part in result.stderr.split("Compiling entry function '")[1:]:
        registers = re.search(r"Used (\d+) registers", part)
        spills = re.findall(r"(\d+) bytes spill", part)
        assert registers, part
        found[part.partition("'")[0]] = Assembled(int(registers[1]), sum(map(int, spills)), part)
    return found


def argument(value: Pointer | Number | Map, bases: Mapping[str, int]) -> object:
    """A launch's argument as the emulator takes it; `bases` are the addresses of buffers."""
    if isinstance(value, Number):
        return (np.int32 if value.type == "i32" else np.int64)(value.value)
    pointer = value if isinstance(value, Pointer) else value.address
    address = bases[pointer.buffer] + pointer.offset
    if isinstance(value, Pointer):
        return np.uint64(address)
    if 0 in value.sizes:  # which no map can describe
        return bytes(128)
    sides = (value.sizes[::-1], value.strides[::-1], value.box[::-1])
    return TensorMap(MAPPED.get(value.element, value.element), address, *sides, value.swizzle).to_bytes()


def run_launch(module: Module, one: Launch, bases: dict[str, int], memory: DeviceMemory, **options: Any) -> Stats:
    """Runs one launch of a kernel's host part; `bases` are the addresses of buffers."""
    return module.launch(
        one.kernel,
        grid=one.grid,
        block=one.block,
        args=[argument(value, bases) for value in one.parameters],
        shared_bytes=one.shared,
        memory=memory,
        **options,
    )


def emulate(
    kernel: DeviceKernel,
    name: str,
    chip: str,
    operands: Sequence[np.ndarray],
    results: Sequence[np.ndarray],
    *,
    profile: bool = False,
) -> tuple[Stats, list[Launch]]:
    """Runs a kernel on arrays, and fills `results`.

    What it may touch are the arrays, in turn each with other memory around it, and its scratch memory. An array that
    stands there twice is one buffer.
    """
    arrays = [*operands, *results]
    sizes = [array.shape for array in arrays]
    scratch_size = scratch_bytes(kernel, name, sizes)
    done = launches(kernel, name, sizes)
    text = ptx(kernel.device, chip)
    shared = _shared(arrays)
    if real_gpu.is_wanted(chip):
        total, _ = _emulated(text, done, arrays, shared, scratch_size, profile)
        found = _on_gpu(text, done, arrays, shared, scratch_size)
    else:
        key = emulated_results.key((text, done, shared, scratch_size, profile), arrays)
        kept = emulated_results.find(key)
        if kept is None:
            kept = _emulated(text, done, arrays, shared, scratch_size, profile)
            emulated_results.keep(key, *kept)
        total, found = kept
    for array, data in zip(results, found[len(operands) :], strict=True):
        array.reshape(-1).view(np.uint8)[:] = data
    return total, done


def _shared(arrays: Sequence[np.ndarray]) -> list[int]:
    """The buffer of each array: its own number, or that of an array before it that is the same memory."""
    places: dict[int, int] = {}
    return [
        places.setdefault(array.ctypes.data if array.nbytes else -1 - number, number)
        for number, array in enumerate(arrays)
    ]


def _emulated(
    text: str, done: Sequence[Launch], arrays: Sequence[np.ndarray], shared: Sequence[int], scratch: int, profile: bool
) -> tuple[Stats, list[np.ndarray]]:
    """What the launches did, and the bytes that the arrays hold after them, by the emulator."""
    memory, total = DeviceMemory(), Stats()
    bases = {"scratch": memory.allocate(max(scratch, 16))}
    for number, (array, first) in enumerate(zip(arrays, shared, strict=True)):
        if first < number:  # an operand that is a result, too
            bases[f"b{number}"] = bases[f"b{first}"]
            continue
        address = bases[f"b{number}"] = memory.allocate(max(array.nbytes, 16))
        memory.view(address, array.nbytes)[:] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    module = load(text)
    for one in done:
        if 0 not in one.grid:
            total += run_launch(module, one, bases, memory, profile=profile)
    # Copies: the memory itself is given back on return.
    return total, [memory.view(bases[f"b{number}"], array.nbytes).copy() for number, array in enumerate(arrays)]


def _on_gpu(
    text: str, done: Sequence[Launch], arrays: Sequence[np.ndarray], shared: Sequence[int], scratch: int
) -> list[np.ndarray]:
    """What the arrays hold after the launches, by this machine's GPU."""
    names = {f"b{number}": f"b{first}" for number, first in enumerate(shared)}

    def renamed(value: Pointer | Number | Map) -> Pointer | Number | Map:
        if isinstance(value, Number):
            return value
        if isinstance(value, Map):
            return replace(value, address=renamed(value.address))
        return replace(value, buffer=names.get(value.buffer, value.buffer))

    launches = [replace(one, parameters=tuple(map(renamed, one.parameters))) for one in done]
    given = {name: array for name, array in zip(names, arrays, strict=True) if names[name] == name}
    made = real_gpu.run(text, launches, given, scratch)
    return [made[own] for own in names.values()]
