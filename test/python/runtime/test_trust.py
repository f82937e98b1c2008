# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What is taken as code or as one's own, and from where: cache, measured choices, reproducers, dumps, outputs."""

from __future__ import annotations

import json
import os
import re
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import rlx_mlir as rlx
from rlx_mlir import Artifact, GraphModule, paths
from rlx_mlir.compiler import CompileOptions, compile_cached
from rlx_mlir.errors import BudgetError, CacheError, InputError, PassError
from rlx_mlir.models import hub
from rlx_mlir.rewriting.failure import write_reproducer
from rlx_mlir.runtime import cache, tuned
from rlx_mlir.tools import cache as cache_tool
from rlx_mlir.tools.cli import app

KNOWN = CompileOptions().known_choices

OTHER = 54321
"""A user that is neither this one nor root."""


def module(factor: float = 2.0) -> GraphModule:
    m = GraphModule.hir("scaled")
    m.set_outputs({"y": m.input("x", [3]) * factor})
    return m


def product(executable: Any) -> list[float]:
    return list(executable.run({"x": np.array([1, 2, 3], np.float32)})["y"])


@pytest.fixture
def folder(fresh_cache: Path) -> Path:
    """The folder of compiled code in an empty cache."""
    return fresh_cache / "compiled"


@pytest.fixture
def disown(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], None]:
    """Makes a file or folder another user's; without the rights for that, it shall look like it."""

    def change(path: Path) -> None:
        if os.geteuid() == 0:
            os.chown(path, OTHER, -1, follow_symlinks=False)
        else:
            monkeypatch.setattr(os, "geteuid", lambda: OTHER)

    return change


def refusals(caplog: pytest.LogCaptureFixture) -> str:
    return "\n".join(record.getMessage() for record in caplog.records)


def make_fifo(path: Path) -> None:
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def make_link(path: Path) -> None:
    target = path.with_name("target")
    path.rename(target)
    path.symlink_to(target)


def make_device(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


def make_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


# Entries ------------------------------------------------------------------------------------------


def test_entries_that_change_names_are_not_used(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Their content is whole, and its checksum holds: only the key that it says shows it."""
    assert product(compile_cached({"model": 2}, module)) == [2, 4, 6]
    assert product(compile_cached({"model": 3}, lambda: module(3.0))) == [3, 6, 9]
    one, other = folder.iterdir()
    content = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(content)
    listed = json.loads(CliRunner().invoke(app, ["cache", "explain", one.stem, "--json"]).stdout)
    assert listed[0]["reasons"] == [f"the file was renamed: what it holds has the key {other.stem}"]
    assert not listed[0]["serves"]
    assert product(compile_cached({"model": 2}, module)) == [2, 4, 6]
    assert product(compile_cached({"model": 3}, lambda: module(3.0))) == [3, 6, 9]
    assert refusals(caplog).count("it is named as another entry's file") == 2
    assert json.loads(CliRunner().invoke(app, ["cache", "explain", one.stem, "--json"]).stdout)[0]["serves"]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (make_fifo, "it is a FIFO"),
        (make_link, "it is a symbolic link"),
        (make_device, "it is a symbolic link"),
        (make_folder, "it is a folder"),
        (lambda path: path.chmod(0o666), r"can be written by others \(its mode is 666\)"),
        (lambda path: path.chmod(0o620), r"can be written by others \(its mode is 620\)"),
    ],
    ids=["fifo", "link", "device", "folder", "all", "group"],
)
def test_entries_that_are_no_files_of_ones_own(
    folder: Path, caplog: pytest.LogCaptureFixture, change: Callable[[Path], None], reason: str
) -> None:
    compile_cached({"model": 2}, module)
    (entry,) = folder.iterdir()
    change(entry)
    assert product(compile_cached({"model": 2}, module)) == [2, 4, 6]
    assert re.search(rf"ignoring cache entry {entry}: .*{reason}", refusals(caplog))


def test_entries_of_another_user_are_not_used(
    folder: Path, caplog: pytest.LogCaptureFixture, disown: Callable[[Path], None]
) -> None:
    compile_cached({"model": 2}, module)
    (entry,) = folder.iterdir()
    disown(entry)
    with pytest.raises(CacheError, match=rf"it belongs to .* but has to be of .*\({os.geteuid()}\) or root"):
        cache.read(entry)
    assert product(compile_cached({"model": 2}, module)) == [2, 4, 6]
    assert "belongs to" in refusals(caplog)


@pytest.mark.parametrize("which", ["cache", "compiled"])
@pytest.mark.parametrize("mode", [0o777, 0o775, 0o722])
def test_a_folder_that_others_can_write_is_not_used(
    folder: Path, caplog: pytest.LogCaptureFixture, which: str, mode: int
) -> None:
    """Neither read nor written; compiling goes on, and `rlx cache` says why nothing serves."""
    compile_cached({"model": 2}, module)
    (entry,) = folder.iterdir()
    open_to_all = folder if which == "compiled" else folder.parent
    open_to_all.chmod(mode)
    built = []
    assert product(compile_cached({"model": 2}, lambda: built.append(1) or module())) == [2, 4, 6]
    assert built
    assert f"{open_to_all} can be written by others (its mode is {mode:o})" in refusals(caplog)
    compile_cached({"model": 3}, module)
    assert list(folder.iterdir()) == [entry]
    listed = json.loads(CliRunner().invoke(app, ["cache", "list", "--json"]).stdout)
    assert "can be written by others" in listed[0]["serves"]
    open_to_all.chmod(0o755)
    assert product(compile_cached({"model": 2}, lambda: pytest.fail("it is compiled already"))) == [2, 4, 6]


def test_a_folder_of_another_user_is_not_used(
    folder: Path, caplog: pytest.LogCaptureFixture, disown: Callable[[Path], None]
) -> None:
    folder.mkdir(parents=True)
    disown(folder)
    assert product(compile_cached({"model": 2}, module)) == [2, 4, 6]
    assert f"{folder}" in refusals(caplog)
    assert "belongs to" in refusals(caplog)
    assert not list(folder.iterdir())


def test_a_folder_like_tmp_may_hold_the_cache(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Nobody replaces another's folder in it, and the folder of entries is the user's."""
    folder.parent.mkdir()
    folder.parent.chmod(0o1777)
    compile_cached({"model": 2}, module)
    compile_cached({"model": 2}, lambda: pytest.fail("it is compiled already"))
    assert not caplog.records


def test_folders_of_the_cache_are_made_for_their_user(folder: Path) -> None:
    """Whatever the mask says: the folder itself and those above it."""
    mask = os.umask(0)
    try:
        compile_cached({"model": 2}, module)
    finally:
        os.umask(mask)
    assert stat.S_IMODE(folder.stat().st_mode) == stat.S_IMODE(folder.parent.stat().st_mode) == 0o700
    assert {stat.S_IMODE(entry.stat().st_mode) for entry in folder.iterdir()} == {0o600}


@pytest.mark.parametrize(
    "read",
    [
        lambda: compile_cached({"model": 2}, module),
        lambda: hub.resolve("smollm2", download=False),
        cache_tool.describe_cache,
        cache_tool.entries,
    ],
    ids=["compile", "model", "describe", "list"],
)
def test_a_cache_of_nobody_is_an_error(read: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLX_CACHE_DIR", "~nobody-of-this-name/x")
    with pytest.raises(CacheError, match=r"RLX_CACHE_DIR: '~nobody-of-this-name/x' begins with '~nobody-of-this-name'"):
        read()


def test_models_of_nobody_are_an_error() -> None:
    for resolve in (hub.resolve, hub.resolve_folder):
        with pytest.raises(InputError, match="there is no such user's folder"):
            resolve("~nobody-of-this-name/model.gguf")


def test_no_home_and_no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RLX_CACHE_DIR")
    monkeypatch.setattr("platformdirs.user_cache_dir", lambda _name: "~/.cache/rlx-mlir")
    with pytest.raises(CacheError, match="neither HOME nor RLX_CACHE_DIR is set"):
        paths.cache_dir()


# Artefacts ----------------------------------------------------------------------------------------


def saved(folder: Path) -> Path:
    rlx.compile(module(), cache=False).artifact.save(folder / "m.rlx")
    return folder / "m.rlx"


@pytest.mark.parametrize("change", [make_fifo, make_device, make_folder])
def test_artefacts_that_are_no_files(tmp_path: Path, change: Callable[[Path], None]) -> None:
    path = saved(tmp_path)
    change(path)
    with pytest.raises(CacheError, match=r"it is a (FIFO|device|folder), but a file is expected"):
        rlx.load(path)


def test_artefacts_may_be_links(tmp_path: Path) -> None:
    """Whoever names a file says what it is."""
    path = saved(tmp_path)
    make_link(path)
    assert product(rlx.load(path)) == [2, 4, 6]


@pytest.mark.parametrize(
    ("description", "reason"),
    [
        (b"[" * 100_000, "nested too deeply"),
        (b'{"a": ' + b"9" * 5000 + b"}", "Exceeds the limit|digits"),
        (b"[]", "the artefact's description can't be read"),
        (b"{}", "KeyError: 'preparation'"),
        (b"\xff", "can't be read"),
        (b'{"preparation": 1, "device_bytes": {}}', "can't be read"),
    ],
    ids=["nesting", "digits", "list", "empty", "utf-8", "types"],
)
def test_descriptions_that_cannot_be_read(tmp_path: Path, description: bytes, reason: str) -> None:
    """With a checksum that holds."""
    import hashlib

    from rlx_mlir.runtime import artifact

    digest = hashlib.sha256(artifact._LENGTHS.pack(len(description), 0) + description).digest()
    data = artifact._HEADER.pack(artifact.MAGIC, artifact.VERSION, len(description), 0, digest) + description
    (tmp_path / "m.rlx").write_bytes(data)
    with pytest.raises(CacheError, match=reason):
        rlx.load(tmp_path / "m.rlx")


def test_descriptions_have_a_budget(tmp_path: Path) -> None:
    data = saved(tmp_path).read_bytes()
    with rlx.budget(json_bytes=9), pytest.raises(BudgetError, match="the artefact's description needs"):
        Artifact.from_bytes(data)


# Measured choices ---------------------------------------------------------------------------------


def own_parts() -> dict[str, Any]:
    return cache.key_parts({"module": module().to_text()}, CompileOptions().as_dict())


def content(choices: Any, **changes: Any) -> str:
    """A file whose key, build and digest are right."""
    return json.dumps(
        {
            "build": cache.compiler_build(),
            "key": tuned.path_of(own_parts()).stem,
            "sha256": tuned._digest(choices),
            "choices": choices,
            "measured": {},
            **changes,
        }
    )


@pytest.mark.parametrize(
    "write",
    [
        lambda path: path.write_text(content({"k": {"tile_rows": 0}})),
        lambda path: path.write_text(content({"k": {"tile_rows": True}})),
        lambda path: path.write_text(content({"k": {"tile_rows": "2"}})),
        lambda path: path.write_text(content({"k": {"tile_rows": 10**400}})),
        lambda path: path.write_text(content({"k": {"unknown": 2}})),
        lambda path: path.write_text(content({"k": 2})),
        lambda path: path.write_text(content([])),
        lambda path: path.write_text(content(None)),
        lambda path: path.write_text(content({"k": {"tile_rows": 2}}, sha256="0" * 64)),
        lambda path: path.write_text(content({"k": {"tile_rows": 2}}, key="0" * 64)),
        lambda path: path.write_text('{"choices": {"tile_rows": 0}}'),
        lambda path: path.write_text("[" * 100_000),
        lambda path: path.write_text('{"build": ' + "9" * 5000 + "}"),
        lambda path: path.write_text("5"),
        lambda path: path.write_bytes(b"\xff\xfe"),
        lambda path: os.truncate(path, 1 << 40),
        lambda path: path.chmod(0o666),
        make_fifo,
        make_link,
        make_device,
        make_folder,
    ],
)
def test_damaged_choices_count_as_none(
    fresh_cache: Path, caplog: pytest.LogCaptureFixture, write: Callable[[Path], None]
) -> None:
    path = tuned.keep(own_parts(), {}, {})
    write(path)
    assert tuned.find(own_parts(), KNOWN) == {}
    assert f"ignoring measured choices {path}: " in refusals(caplog)
    assert product(rlx.compile(module())) == [2, 4, 6]


def test_choices_that_are_whole_are_found(fresh_cache: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tuned.keep(own_parts(), {}, {})
    path.write_text(content({"k": {"tile_rows": 2}}))
    assert tuned.find(own_parts(), KNOWN) == {"k": {"tile_rows": 2}}
    assert not caplog.records


def test_choices_of_another_module_are_not_used(fresh_cache: Path, caplog: pytest.LogCaptureFixture) -> None:
    own = tuned.keep(own_parts(), {"k": {"tile_rows": 2}}, {})
    others = cache.key_parts({"module": "other"}, CompileOptions().as_dict())
    own.rename(tuned.path_of(others))
    assert tuned.find(others, KNOWN) == {}
    assert "of another module" in refusals(caplog)


def test_choices_in_a_folder_that_others_can_write(fresh_cache: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tuned.keep(own_parts(), {"k": {"tile_rows": 2}}, {})
    path.parent.chmod(0o777)
    assert tuned.find(own_parts(), KNOWN) == {}
    assert "can be written by others" in refusals(caplog)
    with pytest.raises(CacheError, match="can be written by others"):
        tuned.keep(own_parts(), {}, {})


# Reproducers --------------------------------------------------------------------------------------


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for temporary files, as all users have it together; the one of ours in it isn't there yet."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    folder.chmod(0o1777)
    monkeypatch.delenv("RLX_REPRODUCER_DIR", raising=False)
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    return folder / f"rlx-reproducers-{os.geteuid()}"


def failure() -> PassError:
    """The error of a pipeline that fails."""
    text = """
    func.func @f(%w: tensor<16x8xf32>) -> tensor<1x512xi8, #mir.packed<f32, k = 8, n = 16, layout = panels>> {
      %0 = mir.repack %w : tensor<16x8xf32>
      return %0 : tensor<1x512xi8, #mir.packed<f32, k = 8, n = 16, layout = panels>>
    }
    """
    from rlx_mlir import ir
    from rlx_mlir.rewriting import run_pipeline

    with pytest.raises(PassError, match=r"found 1 mir\.repack") as caught:
        run_pipeline(ir.Module.parse(text, ir.new_context()), "func.func(mir-to-linalg)")
    return caught.value


def test_reproducers_are_ones_own(shared: Path) -> None:
    first, second = failure().reproducer, failure().reproducer
    assert first is not None
    assert second is not None
    assert first != second
    assert stat.S_IMODE(shared.stat().st_mode) == 0o700
    assert set(map(str, shared.iterdir())) == {first, second}
    assert {stat.S_IMODE(path.stat().st_mode) for path in shared.iterdir()} == {0o600}


def leads_elsewhere(folder: Path) -> None:
    target = folder.parent.parent / "elsewhere"
    target.mkdir()
    folder.symlink_to(target)


def is_open(folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o777)


def is_open_like_tmp(folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o1777)


@pytest.mark.parametrize(
    ("prepare", "reason"),
    [
        (leads_elsewhere, "is a symbolic link"),
        (is_open, "its mode is 777"),
        (is_open_like_tmp, "its mode is 1777"),
        (lambda folder: folder.write_text(""), "File exists"),
    ],
)
def test_a_folder_that_was_there_before(
    shared: Path, caplog: pytest.LogCaptureFixture, prepare: Callable[[Path], None], reason: str
) -> None:
    """The failure is reported all the same."""
    prepare(shared)
    assert failure().reproducer is None
    assert "no reproducer is written" in refusals(caplog)
    assert reason in refusals(caplog)
    assert not shared.is_dir() or not list(shared.iterdir())


def test_a_folder_that_another_user_made(
    shared: Path, caplog: pytest.LogCaptureFixture, disown: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RLX_REPRODUCER_DIR", str(shared))
    shared.mkdir()
    disown(shared)
    assert write_reproducer("text") is None
    assert "belongs to" in refusals(caplog)
    assert not list(shared.iterdir())


def test_reproducers_replace_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two processes may have the same number, in containers; names in a folder like /tmp can't be foreseen."""
    monkeypatch.setenv("RLX_REPRODUCER_DIR", str(tmp_path))
    tmp_path.chmod(0o1777)
    found = {write_reproducer(f"text {number}") for number in range(20)}
    assert len({path.read_text() for path in found if path is not None}) == 20


def test_no_reproducers(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setenv("RLX_REPRODUCER_DIR", os.devnull)
    assert write_reproducer("text") is None
    assert not caplog.records


# Outputs ------------------------------------------------------------------------------------------


def emit(graph: Path, target: Path) -> int:
    """The exit status of the command."""
    return CliRunner().invoke(app, ["emit", str(graph), "--stage", "mir", "-o", str(target)]).exit_code


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    path = tmp_path / "graph.mlir"
    path.write_text(module().to_text())
    return path


def test_outputs_in_shared_folders(graph: Path, tmp_path: Path, disown: Callable[[Path], None]) -> None:
    shared = tmp_path / "tmp"
    shared.mkdir()
    shared.chmod(0o1777)
    assert emit(graph, shared / "new.mlir") == 0
    assert emit(graph, shared / "new.mlir") == 0
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (shared / "link.mlir").symlink_to(victim)
    with pytest.raises(InputError, match=r"link\.mlir' is a link in a folder that all can write"):
        paths.write_output(shared / "link.mlir", "text")
    assert emit(graph, shared / "link.mlir") == 1
    assert victim.read_text() == "precious"
    if os.geteuid() == 0:
        disown(shared / "new.mlir")
        before = (shared / "new.mlir").read_text()
        with pytest.raises(InputError, match=r"belongs to user 54321: it isn't written"):
            paths.write_output(shared / "new.mlir", "text")
        assert (shared / "new.mlir").read_text() == before


def test_outputs_elsewhere_follow_links(graph: Path, tmp_path: Path) -> None:
    (tmp_path / "link.mlir").symlink_to(tmp_path / "there.mlir")
    assert emit(graph, tmp_path / "link.mlir") == 0
    assert "mir." in (tmp_path / "there.mlir").read_text()
    (tmp_path / "link.mlir").write_text("x" * 100_000)
    assert emit(graph, tmp_path / "link.mlir") == 0
    assert "xxx" not in (tmp_path / "there.mlir").read_text()


def test_outputs_may_be_pipes(graph: Path, tmp_path: Path) -> None:
    make_fifo(tmp_path / "pipe")
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append((tmp_path / "pipe").read_text()))
    reader.start()
    assert emit(graph, tmp_path / "pipe") == 0
    reader.join(timeout=60)
    assert "mir." in read[0]


@pytest.mark.parametrize("name", ["README.md", "diff.html", "001-hir-to-mir.mlir"])
def test_dumps_follow_no_links(tmp_path: Path, name: str) -> None:
    """The names of dumps are known; old dumps are replaced, whatever they lead to."""
    victim, own = tmp_path / "victim", tmp_path / "dumps" / "scaled"
    victim.write_text("precious")
    own.mkdir(parents=True)
    (own / name).symlink_to(victim)
    if name == "diff.html":
        with pytest.raises(InputError, match=r"diff\.html' is a link: it isn't followed"):
            rlx.compile(module(), dump_dir=tmp_path / "dumps")
    else:
        rlx.compile(module(), dump_dir=tmp_path / "dumps")
        assert not (own / name).is_symlink()
    assert victim.read_text() == "precious"


def test_dumps_in_a_folder_that_somebody_else_linked(tmp_path: Path, disown: Callable[[Path], None]) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "dumps").mkdir()
    link = tmp_path / "dumps" / "scaled"
    link.symlink_to(tmp_path / "elsewhere")
    disown(link)
    with pytest.raises(InputError, match="is somebody else's link"):
        rlx.compile(module(), dump_dir=tmp_path / "dumps")
    assert not list((tmp_path / "elsewhere").iterdir())


def test_what_is_kept_replaces_links(tmp_path: Path) -> None:
    """A file that appears whole takes the place of a link of its name."""
    (tmp_path / "victim").write_text("precious")
    (tmp_path / "m.rlx").symlink_to(tmp_path / "victim")
    saved(tmp_path)
    assert not (tmp_path / "m.rlx").is_symlink()
    assert (tmp_path / "victim").read_text() == "precious"
