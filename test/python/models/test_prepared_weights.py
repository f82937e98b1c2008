# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Prepared weights that outlast a process: what they are taken from, when they are made anew, and equal logits."""

from __future__ import annotations

import errno
import json
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
import tiny_models
from typer.testing import CliRunner

from rlx_mlir.errors import CacheError, GGUFError, InputError
from rlx_mlir.frontends.gguf import GGUFFile
from rlx_mlir.models import prepared
from rlx_mlir.models.loading import load_model
from rlx_mlir.models.model import Model
from rlx_mlir.models.prepared import IN_FOLDER
from rlx_mlir.runtime import prepared_cache, prepared_file
from rlx_mlir.runtime.prepared_file import PreparedWriter
from rlx_mlir.tools.cli import app

SMALL: dict[str, Any] = {"activations": "exact", "threads": 1, "context": 64, "chunk": 16}
PROMPT = list(range(10, 30))


@pytest.fixture
def model(tiny_llama: Path, tmp_path: Path) -> Path:
    """A file of the test's own."""
    return shutil.copy(tiny_llama, tmp_path / "m.gguf")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of prepared weights, empty; compiled code stays where it is. Small models count, too."""
    monkeypatch.setattr(prepared, "LEAST_BYTES", 0)
    monkeypatch.setattr(prepared_cache, "folder", lambda: tmp_path / "prepared")
    return tmp_path / "prepared"


@pytest.fixture
def expected(tiny_llama: Path) -> np.ndarray:
    return load_model(tiny_llama, prepared_cache=False, **SMALL).logits(PROMPT)


def check(path: Path, expected: np.ndarray, state: str, **options: Any) -> Model:
    loaded = load_model(path, **{**SMALL, **options})
    np.testing.assert_array_equal(loaded.logits(PROMPT), expected)
    assert loaded.stats.prepared == state
    assert (loaded.stats.prepared_bytes > 0) == (state != "computed")
    return loaded


def the_file(folder: Path) -> Path:
    (found,) = folder.iterdir()
    return found


def test_the_first_start_keeps_what_the_second_maps(
    model: Path, folder: Path, expected: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = check(model, expected, "kept")
    assert kept.stats.prepared_bytes == the_file(folder).stat().st_size
    monkeypatch.setattr("rlx_mlir.formats.pack_panels", pytest.fail)
    monkeypatch.setattr(prepared, "replaced_weights", pytest.fail)  # they are known to be finite
    mapped = check(model, expected, "mapped")
    assert mapped.stats.prepared_bytes == kept.stats.prepared_bytes
    text = [list(own.generate([5, 6, 7], greedy=True, max_tokens=5)) for own in (kept, mapped)]
    assert text[0] == text[1]


def test_all_that_is_prepared_is_mapped(model: Path, folder: Path, expected: np.ndarray) -> None:
    check(model, expected, "kept")
    loaded = check(model, expected, "mapped")
    kept = prepared_file.read_prepared(the_file(folder), own=True).arrays
    for executable in (loaded.programs.prefill, loaded.programs.decode):
        made = {name for name, _ in executable.artifact.preparation.results}
        arrays = dict(zip((s.name for s in executable.artifact.plan_parameters), executable._bound.arrays, strict=True))
        assert made
        for name in made:
            assert any(np.array_equal(arrays[name], own) for own in kept.values() if own.shape == arrays[name].shape)
            assert not arrays[name].flags.writeable
            assert arrays[name].ctypes.data % 64 == 0


@pytest.mark.wide
def test_programs_that_prepare_in_the_same_way_share_a_file(model: Path, folder: Path, expected: np.ndarray) -> None:
    check(model, expected, "kept")
    check(model, expected, "mapped", context=48)


@pytest.mark.parametrize(
    "options", [{"prepared_cache": False}, pytest.param({"cache": False}, marks=pytest.mark.slow)], ids=str
)
def test_nothing_is_kept_where_it_is_not_wanted(
    model: Path, folder: Path, expected: np.ndarray, options: dict[str, Any]
) -> None:
    check(model, expected, "computed", **options)
    assert not folder.exists()
    check(model, expected, "kept")
    check(model, expected, "computed", **options)


def test_small_models_are_not_kept(
    model: Path, folder: Path, expected: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prepared, "LEAST_BYTES", 1 << 27)
    check(model, expected, "computed")
    assert not folder.exists()


# The source ----------------------------------------------------------------------------------------


def rewrite(path: Path) -> None:
    """Puts other weights into the file, which has the same header, inode and time afterwards."""
    before = path.stat()
    content = tiny_models.write(path.with_name("other.gguf"), seed=5).read_bytes()
    assert len(content) == before.st_size
    with path.open("r+b") as file:
        file.write(content)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_a_file_with_other_weights_is_noticed(model: Path, folder: Path, expected: np.ndarray) -> None:
    check(model, expected, "kept")
    size, inode = model.stat().st_size, model.stat().st_ino
    rewrite(model)
    assert (model.stat().st_size, model.stat().st_ino) == (size, inode)
    other = load_model(model, prepared_cache=False, **SMALL).logits(PROMPT)
    assert not np.array_equal(other, expected)
    check(model, other, "kept")
    check(model, other, "mapped")


def test_a_copy_is_another_file(model: Path, folder: Path, expected: np.ndarray) -> None:
    check(model, expected, "kept")
    copy = shutil.copy2(model, model.with_name("copy.gguf"))
    check(copy, expected, "kept")
    link = model.with_name("link.gguf")
    link.symlink_to(model)
    check(link, expected, "mapped")


def test_fingerprints_are_of_the_contents(model: Path, tiny_llama: Path) -> None:
    found = GGUFFile(model).fingerprint()
    assert found == GGUFFile(tiny_llama).fingerprint() == GGUFFile.from_bytes(model.read_bytes()).fingerprint()
    rewrite(model)
    assert GGUFFile(model).fingerprint() != found


def test_a_file_that_changes_meanwhile_is_not_kept(
    model: Path, folder: Path, expected: np.ndarray, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    finish = PreparedWriter.finish

    def touched(self: PreparedWriter, *arguments: Any, **options: Any) -> int:
        model.touch()
        return finish(self, *arguments, **options)

    monkeypatch.setattr(PreparedWriter, "finish", touched)
    check(model, expected, "computed")
    assert "the model's file was changed meanwhile" in caplog.text
    assert list(folder.iterdir()) == []


def test_weights_that_are_not_finite_are_not_kept(folder: Path, tmp_path: Path) -> None:
    path = tiny_models.write(tmp_path / "broken.gguf")
    file = GGUFFile(path)
    at = next(info.offset for info in file.tensors.values() if info.type == "q4_1")
    file.close()
    with path.open("r+b") as out:
        out.seek(at)
        out.write(np.array(np.inf, "<f2").tobytes())
    for _ in range(2):
        with pytest.raises(GGUFError, match="must have finite scales"):
            load_model(path, **SMALL)
        assert load_model(path, nonfinite="zero", **SMALL).stats.prepared == "computed"
    assert not folder.exists()


# Damage --------------------------------------------------------------------------------------------


def flip(at: int) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        data = bytearray(path.read_bytes())
        data[at] ^= 1
        path.write_bytes(data)

    return change


def link(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


def to_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (flip(0), "it has no prepared parameters"),
        (flip(9), "it is of version"),
        (flip(30), "its checksum doesn't hold"),
        (flip(-1), "its checksum doesn't hold"),
        (lambda path: os.truncate(path, 5000), "bytes, but its header says"),
        (lambda path: os.truncate(path, 0), "it starts with b''"),
        (lambda path: path.chmod(0o666), "can be written by others"),
        (lambda path: os.chown(path, 54321, -1), "belongs to"),
        (link, "it is a symbolic link"),
    ],
    ids=["magic", "version", "digest", "index", "cut", "empty", "writable", "foreign", "link"],
)
@pytest.mark.quick(5)
def test_damaged_files_are_made_anew(
    model: Path,
    folder: Path,
    expected: np.ndarray,
    damage: Callable[[Path], None],
    reason: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    check(model, expected, "kept")
    try:
        damage(the_file(folder))
    except PermissionError:
        pytest.skip("only the superuser gives files away")
    check(model, expected, "kept")
    assert reason in caplog.text
    check(model, expected, "mapped")


def test_renamed_files_are_not_used(
    model: Path, folder: Path, expected: np.ndarray, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    check(model, expected, "kept")
    mine = the_file(folder)
    rewrite(model)
    load_model(model, **SMALL)
    (other,) = set(folder.iterdir()) - {mine}
    shutil.copy2(mine, other)
    changed = load_model(model, prepared_cache=False, **SMALL).logits(PROMPT)
    check(model, changed, "kept")
    assert "it is of another source, or was prepared in another way" in caplog.text


@pytest.mark.parametrize("name", ["_code", "_formats"])
def test_other_code_prepares_anew(
    name: str, model: Path, folder: Path, expected: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    check(model, expected, "kept")
    monkeypatch.setattr(prepared_cache, name, lambda: "another")
    check(model, expected, "kept")
    check(model, expected, "mapped")


# Writing -------------------------------------------------------------------------------------------


def test_a_full_disk_costs_a_warning(
    model: Path, folder: Path, expected: np.ndarray, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After any number of arrays, and while room is reserved."""
    original, left = PreparedWriter.add, [0]

    def add(self: PreparedWriter, key: str, array: np.ndarray) -> np.ndarray:
        if not left[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        left[0] -= 1
        return original(self, key, array)

    for number in (0, 1, 3):
        left[0] = number
        with monkeypatch.context() as patch:
            patch.setattr(PreparedWriter, "add", add)
            check(model, expected, "computed")
        assert list(folder.iterdir()) == []
    with monkeypatch.context() as patch:

        def no_room(*arguments: object) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        patch.setattr(os, "posix_fallocate", no_room)
        check(model, expected, "computed")
    assert list(folder.iterdir()) == []
    assert caplog.text.count("prepared weights aren't kept") == 4
    assert caplog.text.count("No space left on device") == 4
    check(model, expected, "kept")


def test_no_more_than_half_of_the_free_disk_is_taken(
    model: Path, folder: Path, expected: np.ndarray, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage("/")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=1000))
    check(model, expected, "computed")
    assert "more than half of the 1000 that are free" in caplog.text


def test_a_folder_that_cannot_be_written_costs_a_warning(
    model: Path, folder: Path, expected: np.ndarray, caplog: pytest.LogCaptureFixture
) -> None:
    folder.write_text("a file in its place")
    check(model, expected, "computed")
    assert "prepared weights aren't kept" in caplog.text
    folder.unlink()
    folder.mkdir(0o777)
    folder.chmod(0o777)
    check(model, expected, "computed")
    assert "can be written by others" in caplog.text


def test_an_error_while_loading_leaves_nothing(model: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(self: PreparedWriter, key: str, array: np.ndarray) -> np.ndarray:
        raise KeyboardInterrupt

    monkeypatch.setattr(PreparedWriter, "add", interrupted)
    with pytest.raises(KeyboardInterrupt):
        load_model(model, **SMALL)
    assert list(folder.iterdir()) == []


_PROCESS = """
import sys
import numpy as np
from pathlib import Path
from rlx_mlir.models import prepared
from rlx_mlir.models.loading import load_model
from rlx_mlir.runtime import prepared_cache
prepared.LEAST_BYTES = 0
prepared_cache.folder = lambda: Path(sys.argv[2])
model = load_model(sys.argv[1], activations="exact", threads=1, context=64, chunk=16)
np.save(sys.argv[3], model.logits(list(range(10, 30))))
"""


def test_processes_at_once(model: Path, folder: Path, expected: np.ndarray, tmp_path: Path) -> None:
    outputs = [tmp_path / f"{number}.npy" for number in range(3)]
    lines = [[sys.executable, "-c", _PROCESS, str(model), str(folder), str(output)] for output in outputs]
    running = [subprocess.Popen(line) for line in lines]
    assert [process.wait() for process in running] == [0, 0, 0]
    for output in outputs:
        np.testing.assert_array_equal(np.load(output), expected)
    assert the_file(folder).suffix == prepared_cache.SUFFIX
    check(model, expected, "mapped")


# How much is kept ----------------------------------------------------------------------------------


def test_the_oldest_go_first(
    tiny_llama: Path, folder: Path, tmp_path: Path, expected: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = [shutil.copy(tiny_llama, tmp_path / f"{number}.gguf") for number in range(3)]
    size = check(models[0], expected, "kept").stats.prepared_bytes
    monkeypatch.setenv(prepared_cache.LIMIT, str(2 * size + 1000))
    check(models[1], expected, "kept")
    for path, age in zip(sorted(folder.iterdir(), key=lambda path: path.stat().st_ctime_ns), (20, 10), strict=True):
        os.utime(path, (time.time() - age,) * 2)
    check(models[0], expected, "mapped")  # which makes it the youngest
    check(models[2], expected, "kept")
    assert len(list(folder.iterdir())) == 2
    check(models[0], expected, "mapped")
    check(models[2], expected, "mapped")
    check(models[1], expected, "kept")


def test_the_limit_may_forbid_all(
    model: Path, folder: Path, expected: np.ndarray, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    check(model, expected, "kept")
    monkeypatch.setenv(prepared_cache.LIMIT, "0")
    check(model, expected, "computed")
    assert caplog.text == ""
    monkeypatch.setenv(prepared_cache.LIMIT, "1000")
    model.touch()
    check(model, expected, "computed")
    assert "RLX_PREPARED_BYTES allows 1000" in caplog.text
    for text in ("-1", "many", "1e9", "²"):
        monkeypatch.setenv(prepared_cache.LIMIT, text)
        with pytest.raises(CacheError, match="RLX_PREPARED_BYTES must be a number of bytes"):
            load_model(model, **SMALL)


def test_what_lies_for_a_while_is_noted_to_be_on_the_disk(
    model: Path, folder: Path, expected: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    check(model, expected, "kept")
    check(model, expected, "mapped")
    assert not prepared_file.read_prepared(the_file(folder), own=True).settled
    monkeypatch.setattr(prepared_cache, "_WRITTEN_SECONDS", -1)
    check(model, expected, "mapped")
    for _ in range(600):
        if prepared_file.read_prepared(the_file(folder), own=True).settled:
            return
        time.sleep(0.1)
    pytest.fail("nobody waited for the disk")


# Commands ------------------------------------------------------------------------------------------


def run(*words: object) -> Any:
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == 0, result.output
    return result


LINE = ("--activations", "exact", "--context", 64, "--chunk", 16)


@pytest.mark.wide
def test_commands_show_what_is_kept(model: Path, fresh_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepared, "LEAST_BYTES", 0)
    words = ("generate", model, "hello", "--greedy", "--max-tokens", 1, *LINE)
    size = json.loads(run(*words, "--json").stdout)["stats"]["prepared_bytes"]
    assert "weights mapped in 0 MB" in run(*words, "--stats").stderr
    assert "weights computed, peak" in run(*words, "--stats", "--no-prepared-cache").stderr
    part = json.loads(run("cache", "--json").stdout)["parts"]["prepared"]
    assert part == {"files": 1, "bytes": size, "most_bytes": 32 << 30}
    assert "of at most 34360" in run("cache").stdout

    def listed() -> dict[str, Any]:
        return next(row for row in json.loads(run("cache", "list", "--json").stdout) if row["module"] == "weights")

    assert listed()["serves"] == "yes"
    assert (listed()["bytes"], listed()["options"]) == (size, f"model={model}")
    model.touch()
    assert listed()["serves"] == "no: the model's file was changed"
    model.unlink()
    assert listed()["serves"] == "no: the model's file isn't there any more"
    path = the_file(fresh_cache / "prepared")
    path.rename(path.with_name(f"{'0' * 64}.prepared"))
    assert "it was renamed" in listed()["serves"]
    run("cache", "clear")
    assert json.loads(run("cache", "--json").stdout)["parts"]["prepared"]["files"] == 0


def test_a_folder_may_hold_the_weights(
    model: Path, tmp_path: Path, folder: Path, expected: np.ndarray, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    out = tmp_path / "out"
    found = json.loads(run("compile", model, "-o", out, "--weights", "--json", *LINE).stdout)
    assert found["weights_bytes"] == (out / IN_FOLDER).stat().st_size
    with monkeypatch.context() as patch:
        patch.setattr("rlx_mlir.formats.pack_panels", pytest.fail)
        loaded = load_model(out, threads=1)
        np.testing.assert_array_equal(loaded.logits(PROMPT), expected)
        assert loaded.stats.prepared == "mapped"
    assert not folder.exists()
    model.touch()  # what it holds stays
    assert load_model(out).stats.prepared == "mapped"
    rewrite(model)
    other = load_model(model, prepared_cache=False, **SMALL).logits(PROMPT)
    np.testing.assert_array_equal(load_model(out, threads=1).logits(PROMPT), other)
    assert "it is of another source" in caplog.text


def test_weights_are_kept_in_a_folder_alone(model: Path) -> None:
    result = CliRunner().invoke(app, ["compile", str(model), "--weights"])
    assert result.exit_code == 2
    assert "'--weights' are kept in a folder" in result.stderr


def test_the_option_is_a_flag(model: Path) -> None:
    with pytest.raises(InputError, match="'prepared_cache'"):
        load_model(model, prepared_cache="yes")  # type: ignore[arg-type]
