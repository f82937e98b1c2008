# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The cache of compiled modules: when it is hit, what its keys depend on, and that it never gets in the way."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.util
import logging
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx_mlir as rlx
from rlx_mlir import Executable, GraphModule, _runtime, native
from rlx_mlir.compiler import CompileOptions, compile_cached
from rlx_mlir.errors import InputError
from rlx_mlir.runtime import cache, identity


def module(factor: float = 2.0) -> GraphModule:
    m = GraphModule.hir("scaled")
    m.set_outputs({"y": m.tanh(m.input("x", ["n", 4]) * factor)})
    return m


def result(executable: Executable) -> bytes:
    return bytes(executable.run({"x": np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)})["y"].tobytes())


def never() -> Any:
    raise AssertionError("the module is compiled already")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache; the folder of its entries."""
    monkeypatch.setenv("RLX_CACHE_DIR", str(tmp_path / "own"))
    return tmp_path / "own" / "compiled"


def test_a_second_compilation_builds_nothing(folder: Path) -> None:
    first = compile_cached({"model": "a"}, module)
    assert len(list(folder.iterdir())) == 1
    second = compile_cached({"model": "a"}, never)
    assert result(second) == result(first)
    with pytest.raises(AssertionError, match="compiled already"):
        compile_cached({"model": "b"}, never)


def test_compile_uses_the_cache(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = rlx.compile(module())
    assert len(list(folder.glob("*.rlx"))) == 1
    monkeypatch.setattr("rlx_mlir.compiler.build_artifact", lambda *_: never())
    assert result(rlx.compile(module(), threads=1)) == result(first)  # the number of threads isn't part of the code
    with pytest.raises(AssertionError):
        rlx.compile(module(3.0))
    with pytest.raises(AssertionError):
        rlx.compile(module(), cache=False)


def test_no_cache(folder: Path) -> None:
    rlx.compile(module(), cache=False)
    assert not folder.exists()


def test_names_of_a_module_do_not_collide(folder: Path) -> None:
    """Modules that differ in a constant alone have entries of their own."""
    results = {result(rlx.compile(module(factor))) for factor in (1.0, 2.0, 2.0)}
    assert len(results) == len(list(folder.iterdir())) == 2


@pytest.mark.parametrize(
    "options",
    [
        {"activations": "int8"},
        {"maxima": {"n": 7}},
        {"maxima": {"n": 8}},
        {"disable_templates": ("rows",)},
        {"disable_templates": ("all",)},
        {"features": "+avx2"},
        {"level": 1},
    ],
)
def test_keys_depend_on_options(options: dict[str, Any]) -> None:
    plain = cache.cache_key({"module": "m"}, CompileOptions().as_dict())
    assert cache.cache_key({"module": "m"}, CompileOptions(**options).as_dict()) != plain


def test_every_option_is_in_the_key() -> None:
    names = {field.name for field in dataclasses.fields(CompileOptions)}
    assert CompileOptions().as_dict().keys() == names - {"verify", "dump_dir", "time_limit"}  # these change no code


def test_keys_depend_on_everything_else(monkeypatch: pytest.MonkeyPatch) -> None:
    options = CompileOptions().as_dict()
    keys = [cache.cache_key({"module": "m"}, options), cache.cache_key({"module": "n"}, options)]
    host = native.host_processor()
    for part in range(len(host)):
        changed = (*host[:part], f"{host[part]},+more", *host[part + 1 :])
        monkeypatch.setattr(native, "host_processor", lambda changed=changed: changed)
        keys.append(cache.cache_key({"module": "m"}, options))
    monkeypatch.undo()
    monkeypatch.setattr(cache, "compiler_build", lambda: "another build")
    keys.append(cache.cache_key({"module": "m"}, options))
    monkeypatch.undo()
    assert len(set(keys)) == 7
    assert cache.cache_key({"module": "m"}, options) == keys[0]


# What identifies the compiler -----------------------------------------------------------------------

#: An editable install's finder would come before PYTHONPATH.
_BUILD = """
import sys
sys.meta_path[:] = [finder for finder in sys.meta_path if "_editable_" not in type(finder).__module__]
from rlx_mlir.runtime import cache
print(cache.compiler_build())
"""


def change_a_byte(path: Path, where: int) -> None:
    """Another content; size and times are as before."""
    data, times = bytearray(path.read_bytes()), path.stat()
    data[where] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def test_another_content_is_another_compiler(tmp_path: Path) -> None:
    """Of any source and extension, whatever its size and time are."""
    package = tmp_path / "rlx_mlir"
    shutil.copytree(Path(rlx.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("_compiler", "_runtime"):  # installed beside the sources, or elsewhere
        if not list(package.glob(f"{name}*.so")):
            shutil.copy(str(importlib.util.find_spec(f"rlx_mlir.{name}").origin), package)  # type: ignore[union-attr]

    def build() -> str:
        environment = {**os.environ, "PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
        command = [sys.executable, "-c", _BUILD]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout

    found = [build()]
    assert build() == found[0]
    os.utime(package / "mir" / "scalars.py")
    assert build() == found[0]
    change_a_byte(package / "mir" / "scalars.py", 3)  # in a comment
    found.append(build())
    for extension in ("_compiler", "_runtime"):
        change_a_byte(next(package.glob(f"{extension}*.so")), -1)
        found.append(build())
    (package / "mir" / "scalars.py").rename(package / "mir" / "other.py")
    found.append(build())
    assert len(set(found)) == 5


def test_libraries_are_identified_by_their_build_ids(tmp_path: Path) -> None:
    """What `readelf -n` says, of the files that are loaded."""
    for library in (identity.llvm_library(), Path(str(_runtime.__file__))):
        said, _, size = identity.build_id(library).partition(":")
        assert size == str(library.stat().st_size)
        with library.open("rb") as file:
            assert b"GNU\0" + bytes.fromhex(said) in file.read(4096)
    copy = tmp_path / "copy.so"
    shutil.copy(str(_runtime.__file__), copy)
    assert identity.build_id(copy) == identity.build_id(Path(str(_runtime.__file__)))
    change_a_byte(copy, copy.read_bytes().index(bytes.fromhex(said)))
    assert identity.build_id(copy) != identity.build_id(Path(str(_runtime.__file__)))


@pytest.mark.parametrize("part", [0, 10, 64, 100])
def test_libraries_without_a_build_id_are_read_whole(tmp_path: Path, part: int) -> None:
    """Files that aren't of ELF, and such that end early."""
    path = tmp_path / "lib.so"
    path.write_bytes(Path(str(_runtime.__file__)).read_bytes()[:part] + b"more")
    first = identity.build_id(path)
    change_a_byte(path, -1)
    assert identity.build_id(path) != first


def test_a_library_without_notes_is_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "lib.so"
    data = Path(str(_runtime.__file__)).read_bytes()
    path.write_bytes(data.replace(b"\x03\0\0\0GNU\0", b"\x09\0\0\0GNU\0"))
    assert identity.build_id(path) == hashlib.sha256(path.read_bytes()).hexdigest()


def test_another_llvm_is_another_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "libLLVM.so").write_bytes(b"another release")
    before = dict(identity.compiler_parts())
    monkeypatch.setattr(identity, "llvm_library", lambda: tmp_path / "libLLVM.so")
    after = identity.compiler_parts.__wrapped__()
    assert {name for name in before if before[name] != after[name]} == {"libraries"}


def test_another_numpy_is_another_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """It folds constants."""
    before = dict(identity.compiler_parts())
    monkeypatch.setattr(np, "__version__", "another")
    assert identity.compiler_parts.__wrapped__() != before


def test_identifying_the_compiler_is_quick() -> None:
    """It is done at every start; some 20 ms on a core of its own."""
    begin = time.process_time()
    identity.compiler_parts.__wrapped__()
    assert time.process_time() - begin < 0.5


_KEY = """
from rlx_mlir.compiler import CompileOptions
from rlx_mlir.runtime import cache
print(cache.cache_key({"b": [1, 2], "a": {"y": 0.5, "x": "s"}}, CompileOptions(maxima={"n": 4, "a": 2}).as_dict()))
"""


def test_keys_are_the_same_in_other_processes() -> None:
    """Whatever the order in which dictionaries were filled, and however strings are hashed."""
    keys = {
        subprocess.run(
            [sys.executable, "-c", _KEY], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("0", "1", "2")
    }
    options = CompileOptions(maxima={"a": 2, "n": 4}).as_dict()
    keys.add(f"{cache.cache_key({'a': {'x': 's', 'y': 0.5}, 'b': [1, 2]}, options)}\n".encode())
    assert len(keys) == 1


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[:20],
        lambda data: data[: len(data) // 2],
        lambda data: data[:-1] + bytes([data[-1] ^ 1]),
        lambda data: bytes(len(data)),
        lambda data: b"another file",
    ],
)
@pytest.mark.quick(1)
def test_a_damaged_entry_is_made_again(
    folder: Path, damage: Callable[[bytes], bytes], caplog: pytest.LogCaptureFixture
) -> None:
    expected = result(compile_cached({"model": "a"}, module))
    (entry,) = folder.iterdir()
    whole = entry.read_bytes()
    entry.write_bytes(damage(whole))
    with caplog.at_level(logging.WARNING, "rlx_mlir.runtime.cache"):
        assert result(compile_cached({"model": "a"}, module)) == expected
    assert caplog.text.count(str(entry)) == 1
    assert entry.read_bytes() == whole
    assert result(compile_cached({"model": "a"}, never)) == expected


def test_an_entry_of_another_processor_does_not_run(folder: Path) -> None:
    """Such an entry has another key; one that was copied there by hand is refused, not run."""
    executable = compile_cached({"model": "a"}, module)
    (entry,) = folder.iterdir()
    target = {**executable.artifact.target, "features": "+avx99"}
    dataclasses.replace(executable.artifact, target=target).save(entry)
    with pytest.raises(rlx.errors.ExecutionError, match=r"with avx99, which this one"):
        compile_cached({"model": "a"}, never)


def test_a_folder_that_cannot_be_written_does_not_matter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("RLX_CACHE_DIR", str(tmp_path / "file"))
    with caplog.at_level(logging.WARNING, "rlx_mlir.runtime.cache"):
        first = result(compile_cached({"model": "a"}, module))
    assert "can't write to the cache" in caplog.text
    assert result(compile_cached({"model": "a"}, module)) == first


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is read-only for the superuser")
def test_a_read_only_folder_is_read(folder: Path) -> None:
    first = result(compile_cached({"model": "a"}, module))
    folder.chmod(0o500)
    try:
        assert result(compile_cached({"model": "a"}, never)) == first
        assert result(compile_cached({"model": "b"}, module)) == first
    finally:
        folder.chmod(0o700)


def test_a_write_that_fails_leaves_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    executable = compile_cached({"model": "a"}, module)

    def fail(*_arguments: Any) -> None:
        raise OSError(28, "no space left on device")

    monkeypatch.setattr(os, "replace", fail)
    assert result(compile_cached({"model": "b"}, module)) == result(executable)
    assert len(list(folder.iterdir())) == 1


def test_the_folder_is_where_the_environment_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("one", "two"):
        monkeypatch.setenv("RLX_CACHE_DIR", str(tmp_path / name))
        compile_cached({"model": "a"}, module)
        assert len(list((tmp_path / name / "compiled").iterdir())) == 1


def test_wrong_options_are_refused_before_the_cache_is_asked(folder: Path) -> None:
    with pytest.raises(InputError, match=r"test_cache\.py:\d+: 'activations' expects one of int8, int16, exact"):
        compile_cached({"model": "a"}, never, activations="int4")
    assert not folder.exists()


_RACE = """
import sys, time
from pathlib import Path
import numpy as np
import rlx_mlir as rlx
results = []
modules = []
for number in range(3):
    m = rlx.GraphModule.hir(f"m{number}")
    m.set_outputs({"y": m.tanh(m.input("x", ["n", 4]) * float(number + 1))})
    modules.append(m)
Path(sys.argv[1]).touch()
while not Path(sys.argv[2]).exists():
    time.sleep(0.001)
for round in range(int(sys.argv[3])):
    for m in modules:
        y = rlx.compile(m)(x=np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4))
        results.append(y.tobytes().hex())
print(",".join(results))
"""


def test_processes_share_an_empty_cache(folder: Path, tmp_path: Path) -> None:
    """Processes compile the same modules at once, again and again; one entry for each stays, and nothing else."""
    go, count = tmp_path / "go", 3
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", _RACE, str(tmp_path / f"ready{number}"), str(go), "10"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(count)
    ]
    while len(list(tmp_path.glob("ready*"))) < count and all(p.poll() is None for p in processes):
        time.sleep(0.005)
    go.touch()
    outputs = [process.communicate(timeout=120) for process in processes]
    assert [error for _, error in outputs] == [""] * count
    assert len({text for text, _ in outputs}) == 1
    assert len(list(folder.iterdir())) == 3
    assert all(path.suffix == ".rlx" for path in folder.iterdir())
