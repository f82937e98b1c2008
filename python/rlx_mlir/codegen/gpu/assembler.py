# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""NVIDIA's assembler of PTX, `ptxas`, where there is one: it gives an artefact machine code beside its PTX."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import sysconfig
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rlx_mlir.chips import check_chip
from rlx_mlir.errors import CompileError, InputError

#: Whether there is machine code beside PTX: where an assembler is found, in any case, or not.
CUBIN = ("auto", "always", "never")

#: Where a `ptxas` is looked for.
WHERE = "the folder in RLX_CUDA_WHEELS, the packages nvidia-cuda-nvcc and triton, CUDA_HOME, PATH"


@dataclass(frozen=True)
class Assembler:
    """One `ptxas`, and its version, such as ``13.0.88``: what it makes needs a driver of that major version."""

    program: Path
    version: str

    def assemble(self, ptx: str, chip: str) -> bytes:
        """Machine code of all kernels, for one chip; CompileError with what ptxas says where it refuses them."""
        with tempfile.TemporaryDirectory(prefix="rlx-ptxas-") as folder:
            source, result = Path(folder) / "kernels.ptx", Path(folder) / "kernels.cubin"
            source.write_text(ptx)
            command: list[str | Path] = [self.program, f"-arch={check_chip(chip)}", source, "-o", result]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                said = (done.stdout + done.stderr).replace(f"{source}", "kernels.ptx").strip()
                raise CompileError(f"{self.program} {self.version} doesn't take the PTX for {chip}:\n{said}")
            return result.read_bytes()


def find_assembler() -> Assembler | None:
    """The first `ptxas` that runs, of those in `WHERE`."""
    for program in _candidates():
        if version := _version(program):
            return Assembler(program, version)
    return None


def chosen_assembler(cubin: str) -> Assembler | None:
    """What makes machine code, if `cubin` (of `CUBIN`) wants some; InputError where it has to be, but none is found."""
    found = None if cubin == "never" else find_assembler()
    if found is None and cubin == "always":
        raise InputError(f"'cubin' is 'always', but there is no ptxas in {WHERE}")
    return found


def _candidates() -> Iterator[Path]:
    for folder in (os.environ.get("RLX_CUDA_WHEELS", ""), sysconfig.get_path("purelib")):
        if folder:
            for place in ("nvidia/*/bin/ptxas", "triton/backends/nvidia/bin/ptxas"):
                yield from sorted(Path(folder).glob(place))
    if home := os.environ.get("CUDA_HOME", ""):
        yield Path(home) / "bin" / "ptxas"
    if found := shutil.which("ptxas"):
        yield Path(found)


@functools.cache
def _version(program: Path) -> str:
    """What `ptxas --version` says, or nothing where it doesn't run."""
    try:
        done = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    except OSError:
        return ""
    found = re.search(r"\bV(\d+\.\d+\.\d+)", done.stdout)
    return found.group(1) if found and done.returncode == 0 else ""
