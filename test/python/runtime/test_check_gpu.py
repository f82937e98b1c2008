# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What `rlx check-gpu` finds: by the emulator of PTX, by kernels that do something else, and on a GPU where one is."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cuda_harness import FakeCuda, emulated_device, fake_device, fake_library, real_device
from typer.testing import CliRunner

import rlx_mlir as rlx
from rlx_mlir.errors import InputError
from rlx_mlir.gpu_check import checks as gpu
from rlx_mlir.gpu_check.cases import CASES, NAMES, STEPS
from rlx_mlir.lowering.gpu.schedules import SCHEDULES
from rlx_mlir.tools.cli import app

QUICK = ("copies", "pointwise", "rows: rope, cache", "gather", "gemm: bf16, odd sizes", "move", "conv")


@pytest.fixture(autouse=True)
def fresh_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLX_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("RLX_DEBUG", "")


def command(*arguments: str, status: int) -> str:
    result = CliRunner().invoke(app, ["check-gpu", *arguments])
    assert result.exit_code == status, (result.output, result.exception)
    assert "Traceback" not in result.output
    return result.output


@pytest.mark.parametrize("name", QUICK)
@pytest.mark.quick(1)
def test_a_right_gpu(name: str) -> None:
    with emulated_device("sm_90a", leaks=False):
        row = gpu.check(name)
    assert row.ok, row.message
    if name != "copies":
        assert row.kernels
        assert row.error is not None
        assert row.allowed is not None
        assert 0 <= row.error <= row.allowed < 0.02


@pytest.mark.slow
@pytest.mark.parametrize("chip", ["sm_80", "sm_89", "sm_90a"])
@pytest.mark.parametrize("name", NAMES)
def test_every_check(name: str, chip: str) -> None:
    with emulated_device(chip, leaks=False):
        row = gpu.check(name)
    assert row.ok, row.message


@pytest.mark.gpu
@pytest.mark.parametrize("name", NAMES)
def test_the_gpu_of_this_machine(name: str) -> None:
    with real_device():
        row = gpu.check(name)
    assert row.ok, row.message


def test_every_class_of_kernels_has_a_check() -> None:
    found = set()
    for case in CASES:
        text = rlx.emit(case.build(), "kernels", target="nvptx", chip="sm_90a")
        found |= set(re.findall(r'mir\.kernel = "(\w+)"', text))
    assert set(SCHEDULES) <= found | {"sample"}
    assert STEPS in NAMES  # which chooses tokens


class Wrong:
    """A GPU whose kernels write something, which may change from run to run."""

    def __init__(self, cuda: FakeCuda, *, changes: bool) -> None:
        self._cuda, self._changes, self._value = cuda, changes, 0.0
        cuda.run_kernels(self)

    def __call__(self, *launch: Any) -> None:
        import ctypes

        self._value += self._changes
        for address, nbytes in self._cuda.allocations().items():
            if nbytes > 64:
                ctypes.memmove(address, np.full(nbytes // 4, self._value, np.float32).tobytes(), nbytes // 4 * 4)


@pytest.fixture
def cuda() -> Iterator[FakeCuda]:
    with fake_device(leaks=False) as found:
        yield found


def test_wrong_numbers(cuda: FakeCuda) -> None:
    Wrong(cuda, changes=False)
    row = gpu.check("scan")
    assert (row.ok, row.fault, row.kernels) == (False, False, ["scan: scan"])
    assert row.error is not None
    assert row.allowed is not None
    assert row.error > row.allowed
    assert re.match(r"output 'y0' at \[\d+, \d+, \d+\]: 0, but -?[\d.]+ is expected, within [\d.e-]+", row.message)


def test_numbers_that_change(cuda: FakeCuda) -> None:
    Wrong(cuda, changes=True)
    row = gpu.check("scan")
    assert "output 'y0' of run 2 (captured as a CUDA graph) isn't that of the first, bit for bit" in row.message
    assert "of run 3 (replayed as a CUDA graph)" in row.message


def test_bytes_that_get_lost(cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu.DeviceArray, "write", lambda self, source: None)
    row = gpu.check("copies")
    assert (row.ok, row.message.partition(" ")[2]) == (False, "of 5000003 bytes came back as others")


def test_what_fails_is_in_the_row(cuda: FakeCuda) -> None:
    cuda.fail("cuModuleLoadDataEx", 218, 0)
    row = gpu.check("scan")
    assert (row.ok, row.fault) == (False, False)
    assert "DeviceError" in row.message
    assert "CUDA_ERROR_INVALID_PTX" in row.message
    with pytest.raises(InputError, match="there is no check 'nothing'"):
        gpu.check("nothing")


def test_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLX_CUDA_DRIVER", "/nowhere/libcuda.so.1")
    assert "no GPU can be used: DriverMissingError: NVIDIA's driver cannot be loaded" in command(status=1)
    assert "no check begins with 'x': there are copies, pointwise" in command("--only", "x", status=1)


def test_a_fault_leaves_the_other_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each process of its own has a fault at its second kernel."""
    monkeypatch.setenv("RLX_CUDA_DRIVER", str(fake_library("check fault")))
    monkeypatch.setenv("FAKE_CUDA_FAIL", "kernel:2:700")
    text = command("--only", "copies,scan", status=1)
    assert re.search(r"^GPU 0: fake GPU 9\.0, compute capability 9\.0, 132 multiprocessors, 227 KB", text, re.MULTILINE)
    assert re.search(r"^ok +copies$", text, re.MULTILINE)
    assert re.search(
        r"^FAIL +scan +.*scan\n +'scan', call 0 \(cumsum_0\): kernel '.*ILLEGAL_ADDRESS", text, re.MULTILINE
    )
    assert text.endswith("\n2 checks, 1 failed: scan\n")


@pytest.mark.wide
def test_a_kernel_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLX_CUDA_DRIVER", str(fake_library("check hang")))
    monkeypatch.setenv("FAKE_CUDA_FAIL", "kernel:1:-1")
    found = json.loads(command("--only", "scan", "--timeout", "2", "--json", status=1))
    assert found["about"]["chip"] == "sm_90a"
    assert [(row["ok"], row["message"]) for row in found["rows"]] == [(False, "hangs: no answer after 2 seconds")]
