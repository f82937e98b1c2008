# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Objects with changed headers, sections, symbols and relocations: errors or images, never the end of the process."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from seeds import seed
from test_loader import DATA
from test_runtime_native import COMPILER, compile_c

from rlx_mlir import GraphModule, native
from rlx_mlir.compiler import CompileOptions, build_artifact
from rlx_mlir.errors import ExecutionError

MUTATIONS = 6000


def module() -> GraphModule:
    """A packed product, functions of libm, and rows: constants, calls and tables."""
    m = GraphModule.hir("mixed")
    x, w = m.input("x", ["rows", 64]), m.param("w", [32, 64], packed="q4_0")
    m.set_outputs({"y": m.softmax(m.tan(m.dequant_matmul(x, w)), -1), "z": m.tanh(x)})
    return m


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Objects of both machines, and one of C, which has all kinds of sections."""
    path = tmp_path_factory.mktemp("objects")
    for name, options in (
        ("arm", CompileOptions(triple="aarch64-linux-gnu")),
        ("baseline", CompileOptions(triple="x86_64-linux-gnu", cpu="x86-64")),
        ("vectors", CompileOptions(triple="x86_64-linux-gnu", cpu="x86-64-v4")),
    ):
        (path / f"{name}.o").write_bytes(build_artifact(module(), options).code)
    if COMPILER is not None:
        (path / "c.o").write_bytes(compile_c(DATA.replace("extern int common[]", "int common[1000]"), path, "own"))
        (path / "own.o").unlink()
    return path


def test_the_objects_can_be_linked(folder: Path) -> None:
    for path in folder.glob("*.o"):
        machine = 183 if path.stem == "arm" else 62
        functions = dict.fromkeys(native.host_functions(), 0x1000)
        image, symbols, _, used = native.link_objects(
            [path.read_bytes()], machine=machine, address=0x10000, functions=functions
        )
        assert len(image) > 1000
        assert symbols
        assert set(used) <= set(functions)


def test_changed_objects_are_errors(folder: Path) -> None:
    program = Path(__file__).parents[1] / "harness" / "object_mutations.py"
    command = [sys.executable, str(program), str(folder), str(seed() * MUTATIONS), str(MUTATIONS)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, f"after seed {done.stdout.split()[-1:]}: {done.stderr[-2000:]}"
    outcomes = done.stdout.splitlines()[1::2]
    assert len(outcomes) == MUTATIONS
    kinds = {re.sub(r"\d+|'[^']*'", "", text) for text in outcomes}
    assert len(kinds) > 25, "the changes reach few of the checks"
    assert all(text == "linked" or "cannot be loaded: " in text for text in outcomes)


def test_every_length_of_an_object_is_an_error(folder: Path) -> None:
    data = (folder / "vectors.o").read_bytes()
    for length in (*range(0, 200), *np.linspace(200, len(data) - 1, 300).astype(int)):
        with pytest.raises(ExecutionError, match="object 0 cannot be loaded"):
            native.link_objects([data[:length]], machine=62, address=0, functions={})
