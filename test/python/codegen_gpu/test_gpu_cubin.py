# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Machine code beside PTX: which assembler makes it, when, and what is said where that fails."""

from __future__ import annotations

from pathlib import Path

import pytest
from gpu_harness import ptxas
from test_gpu_pipeline import pointwise
from typer.testing import CliRunner

import rlx_mlir as rlx
from rlx_mlir.chips import runs_binary
from rlx_mlir.codegen.gpu import assembler
from rlx_mlir.codegen.gpu.assembler import find_assembler
from rlx_mlir.compiler import CompileOptions
from rlx_mlir.errors import CompileError, InputError
from rlx_mlir.runtime.artifact import Artifact
from rlx_mlir.tools.cli import app

SCRIPT = """#!/bin/sh
if [ "$1" = --version ]; then
  echo "ptxas: NVIDIA (R) Ptx optimizing assembler"; echo "Cuda compilation tools, release 12.4, V{version}"; exit 0
fi
{action}
"""
COPIES = 'printf "code of $1 " > "$4"; wc -l < "$2" >> "$4"'
FAILS = 'echo "$2, line 7; error   : Unknown symbol" >&2; exit 255'


@pytest.fixture(autouse=True)
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No assembler is found but those that a test puts somewhere."""
    monkeypatch.setenv("RLX_CACHE_DIR", str(tmp_path / "cache"))
    for name in ("RLX_CUDA_WHEELS", "CUDA_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(assembler.sysconfig, "get_path", lambda name: str(tmp_path / "nothing"))
    monkeypatch.setattr(assembler.shutil, "which", lambda name: None)


def put(folder: Path, version: str = "12.4.99", action: str = COPIES) -> Path:
    """A program that stands for `ptxas`."""
    folder.mkdir(parents=True)
    program = folder / "ptxas"
    program.write_text(SCRIPT.format(version=version, action=action))
    program.chmod(0o755)
    return program


def test_where_an_assembler_is_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_assembler() is None
    on_path = put(tmp_path / "path", "12.0.1")
    monkeypatch.setattr(assembler.shutil, "which", lambda name: str(on_path))
    found = find_assembler()
    assert found is not None
    assert (found.program, found.version) == (on_path, "12.0.1")
    put(tmp_path / "toolkit" / "bin", "12.1.1")
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "toolkit"))
    assert (found := find_assembler())
    assert found.version == "12.1.1"
    put(tmp_path / "site" / "triton" / "backends" / "nvidia" / "bin", "12.8.1")
    monkeypatch.setattr(assembler.sysconfig, "get_path", lambda name: str(tmp_path / "site"))
    assert (found := find_assembler())
    assert found.version == "12.8.1"
    broken = put(tmp_path / "site" / "nvidia" / "cu12" / "bin")
    broken.write_text("no program")
    put(tmp_path / "site" / "nvidia" / "cu13" / "bin", "13.2.3")
    assert (found := find_assembler())
    assert found.version == "13.2.3"
    put(tmp_path / "wheels" / "nvidia" / "cu12" / "bin", "12.8.9")
    monkeypatch.setenv("RLX_CUDA_WHEELS", str(tmp_path / "wheels"))
    assert (found := find_assembler())
    assert found.version == "12.8.9"


def test_artefacts_have_machine_code_where_there_is_an_assembler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = pointwise()
    without = rlx.compile(module, target="nvptx", chip="sm_90a")
    assert (without.cubin, without.assembler) == (b"", "")
    put(tmp_path / "wheels" / "nvidia" / "cu12" / "bin")
    monkeypatch.setenv("RLX_CUDA_WHEELS", str(tmp_path / "wheels"))
    with_it = rlx.compile(module, target="nvptx", chip="sm_90a")  # the cache's entry without it doesn't count
    lines = with_it.device_code.count(b"\n")
    assert with_it.cubin == f"code of -arch=sm_90a {lines}\n".encode()
    assert with_it.assembler == "12.4.99"
    assert with_it.device_code == without.device_code
    with_it.save(tmp_path / "file.rlx")
    read = Artifact.load(tmp_path / "file.rlx")
    assert (read.cubin, read.assembler, read.device_code) == (with_it.cubin, "12.4.99", with_it.device_code)
    assert not rlx.compile(module, target="nvptx", chip="sm_90a", cubin="never").cubin
    assert CompileOptions(target="cuda", chip="sm_90a").assembler() is None
    assert CompileOptions(target="cuda", chip="sm_90a", cubin="always").assembler() is not None


def test_an_assembler_that_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    put(tmp_path / "wheels" / "nvidia" / "cu12" / "bin", action=FAILS)
    monkeypatch.setenv("RLX_CUDA_WHEELS", str(tmp_path / "wheels"))
    assert not rlx.compile(pointwise(), target="nvptx", chip="sm_80").cubin
    said = r"ptxas 12\.4\.99 doesn't take the PTX for sm_80:\nkernels\.ptx, line 7; error   : Unknown symbol"
    assert "'pointwise' has no machine code beside its PTX: " in caplog.text
    with pytest.raises(CompileError, match=said):
        rlx.compile(pointwise(), target="nvptx", chip="sm_80", cubin="always")


def test_options_that_do_not_fit() -> None:
    with pytest.raises(
        InputError, match="'cubin' is 'always', but there is no ptxas in the folder in RLX_CUDA_WHEELS, "
    ):
        CompileOptions(target="nvptx", cubin="always")
    with pytest.raises(InputError, match="'cubin' expects auto, always, never, but got 'yes'"):
        CompileOptions(target="nvptx", cubin="yes")
    with pytest.raises(InputError, match="'cubin' isn't an option of target cpu, but got 'never'"):
        CompileOptions(cubin="never")
    shown = CliRunner().invoke(app, ["compile", "--help"])
    assert "--cubin" in shown.output


@pytest.mark.parametrize(
    ("chip", "capability", "runs"),
    [
        ("sm_90a", (9, 0), True),
        ("sm_90", (9, 0), True),
        ("sm_90", (10, 0), False),
        ("sm_80", (8, 6), True),
        ("sm_86", (8, 0), False),
        ("sm_100a", (10, 3), False),
        ("sm_100", (10, 3), True),
        ("sm_120", (12, 1), True),
    ],
)
def test_which_gpus_run_machine_code(chip: str, capability: tuple[int, int], runs: bool) -> None:
    assert runs_binary(chip, *capability) == runs


def test_the_real_assembler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    if ptxas() is None:
        pytest.skip("ptxas isn't installed: pip install nvidia-cuda-nvcc")
    found = find_assembler()
    assert found is not None
    artifact = rlx.compile(pointwise(), target="nvptx", chip="sm_90a", cubin="always", cache=False)
    assert artifact.cubin.startswith(b"\x7fELF")
    assert artifact.device_kernels[0].encode() in artifact.cubin
    assert artifact.assembler == found.version
