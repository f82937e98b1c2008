# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`rlx-opt` as lit's tests call it: what a server's process gives is what a process of its own would."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from documents import ROOT

SERVER = ROOT / "test" / "lit" / "opt_server.py"
MODULE = "func.func @f(%x: f32) -> f32 {\n  %0 = arith.negf %x : f32\n  return %0 : f32\n}\n"


@pytest.fixture(scope="module")
def server() -> Iterator[Any]:
    """The module, which has started one server."""
    spec = importlib.util.spec_from_file_location("opt_server", SERVER)
    assert spec is not None
    assert spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.command = module.start(os.environ).split()
    yield module
    (process,) = module.SERVERS
    process.stdin.close()
    assert process.wait(60) == 0
    assert not Path(module.command[-1]).parent.exists()


def run(command: list[str], *arguments: str, text: str = MODULE, folder: Path = ROOT) -> tuple[int, str, str]:
    done = subprocess.run([*command, *arguments], input=text, capture_output=True, text=True, cwd=folder, check=False)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((), MODULE),
        (("--canonicalize", "-o", "-"), MODULE),
        ((), "nonsense"),
        (("--verify-diagnostics",), "// expected-error@+1 {{custom op}}\nnonsense"),
        (("--hir-nothing",), MODULE),
        (("--rlx-load",), MODULE),
        (("there-is-no-file.mlir",), ""),
    ],
    ids=lambda given: " ".join(given) if isinstance(given, tuple) else "",
)
def test_a_call_gives_what_a_process_gives(server: Any, arguments: tuple[str, ...], text: str, tmp_path: Path) -> None:
    wanted = run([sys.executable, "-m", "rlx_mlir.tools.opt"], *arguments, text=text, folder=tmp_path)
    assert run(server.command, *arguments, text=text, folder=tmp_path) == wanted


def test_without_a_server_it_is_the_tool(server: Any, tmp_path: Path) -> None:
    command = [*server.command[:-1], str(tmp_path / "none")]
    assert run(command) == run(server.command)
    assert run(command)[0] == 0


def test_what_ends_by_a_signal_says_so(server: Any, tmp_path: Path) -> None:
    (tmp_path / "dies.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n")
    assert run(server.command, f"--rlx-load={tmp_path / 'dies.py'}")[0] == -signal.SIGSEGV
    assert run(server.command)[0] == 0


def test_nobody_runs_for_a_call_that_was_killed(server: Any, tmp_path: Path) -> None:
    """As lit does when a test takes too long."""
    (tmp_path / "waits.py").write_text(
        "import os, time\nfrom pathlib import Path\n"
        f"Path({str(tmp_path / 'new')!r}).write_text(str(os.getpid()))\n"
        f"os.rename({str(tmp_path / 'new')!r}, {str(tmp_path / 'pid')!r})\ntime.sleep(600)\n"
    )
    with subprocess.Popen([*server.command, f"--rlx-load={tmp_path / 'waits.py'}"], stdin=subprocess.DEVNULL) as call:
        wait_for((tmp_path / "pid").exists)
        call.kill()
    number = int((tmp_path / "pid").read_text())
    wait_for(lambda: not Path(f"/proc/{number}").exists())


def wait_for(happened: Any) -> None:
    deadline = time.monotonic() + 120
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.02)
