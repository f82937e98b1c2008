# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compiles modules for GPUs and runs them without one: launches become loops over blocks and threads on this CPU.

What is run is what is compiled for GPUs up to the NVVM dialect: the mapping to threads, the kernels' arguments, the
expansions of functions, the shuffles of warps. LLVM's code generator for NVPTX isn't part of it; `ptxas` assembles what
it writes, where it is installed (PyPI: nvidia-cuda-nvcc).
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import sysconfig
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rlx_mlir import Executable, GraphModule
from rlx_mlir.compiler import Compilation, CompileOptions
from rlx_mlir.lowering.gpu import pipelines

#: The steps of `rlx-gpu-to-nvvm` before the conversion, which work on kernels as they are run here too.
_STEPS = [step for step, _ in pipelines.NVVM.steps]
EXPANSIONS = _STEPS[: _STEPS.index("gpu.module(gpu-lower-subgroup-reduce)") + 1]
LOOPS = ",".join([*EXPANSIONS, "gpu-launches-to-loops", "rlx-store-bools-as-bytes"])
EMULATED = [("gpu", "rlx-gpu-launch"), ("cpu", LOOPS), ("llvm", "rlx-to-llvm")]


def compile_emulated(module: GraphModule, **options: Any) -> Executable:
    """The module compiled for GPUs by the generic path, its launches run by this CPU."""
    chosen = {"target": "nvptx", "level": 1, "disable_templates": ("all",), **options}
    compilation = Compilation(module, CompileOptions(**chosen))
    compilation.run(until="linalg")
    compilation.options = CompileOptions(level=1, **options)
    compilation._steps = list(EMULATED)
    return Executable(compilation.artifact(), threads=1)


@functools.cache
def cuda_tool(name: str) -> Path | None:
    """A program of NVIDIA's: of its package on PyPI, such as nvidia-cuda-nvcc, or on the path."""
    for folder in (sysconfig.get_path("purelib"), os.environ.get("RLX_CUDA_WHEELS", "")):
        for found in Path(folder).glob(f"nvidia/*/bin/{name}") if folder else ():
            return found
    on_path = shutil.which(name)
    return Path(on_path) if on_path else None


def ptxas() -> Path | None:
    """The assembler of PTX."""
    return cuda_tool("ptxas")


def assemble(ptx: str, chip: str) -> None:
    """Asserts that ptxas takes the text; skips the test where there is no ptxas."""
    program = ptxas()
    if program is None:
        pytest.skip("ptxas isn't installed: pip install nvidia-cuda-nvcc")
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "kernels.ptx"
        source.write_text(ptx)
        command = [program, f"-arch={chip}", "-O1", source, "-o", Path(folder) / "kernels.cubin"]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        assert result.returncode == 0, result.stderr
        assert "C75" not in result.stderr, result.stderr


def calls(ptx: str) -> list[str]:
    """Lines of the text that call functions or name ones that aren't in it; memory of blocks isn't one."""
    words = (".extern", "call", "call.uni")
    lines = [line for line in ptx.splitlines() if line.split()[:1] and line.split()[0] in words]
    return [line for line in lines if not line.startswith(".extern .shared")]


@dataclass(frozen=True)
class Usage:
    """What ptxas says of a kernel: registers of a thread, and bytes that it keeps in memory for want of registers."""

    registers: int
    spilled: int


def usage(ptx: str, chip: str) -> dict[str, Usage]:
    """What each kernel of the text needs, as ptxas optimises it by default.

    Asserts that it has no warnings, of products that it serialises (C75xx) above all. Skips the test where there is no
    ptxas.
    """
    program = ptxas()
    if program is None:
        pytest.skip("ptxas isn't installed: pip install nvidia-cuda-nvcc")
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "kernels.ptx"
        source.write_text(ptx)
        command = [program, f"-arch={chip}", "-v", source, "-o", Path(folder) / "kernels.cubin"]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
    log = result.stdout + result.stderr
    assert result.returncode == 0, log
    assert "C75" not in log, log
    assert "warning" not in log, log
    found = re.findall(
        r"Compiling entry function '(\w+)'.*?(\d+) bytes spill stores, (\d+) bytes spill loads.*?Used (\d+) registers",
        log,
        re.DOTALL,
    )
    assert found, log
    return {name: Usage(int(registers), int(stores) + int(loads)) for name, stores, loads, registers in found}
