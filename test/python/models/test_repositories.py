# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Models of the Hugging Face hub by their names, with a stub in place of the library that fetches."""

from __future__ import annotations

import fnmatch
import os
from pathlib import Path
from typing import Any

import folders
import huggingface_hub
import pytest
import tiny_models
from huggingface_hub.errors import LocalEntryNotFoundError

from rlx_mlir.errors import DownloadError, InputError
from rlx_mlir.frontends.gguf import GGUFFile
from rlx_mlir.frontends.huggingface import HuggingFaceFolder
from rlx_mlir.models.opening import open_model
from rlx_mlir.models.repositories import Repository


class Hub:
    """A repository, of which a snapshot has links to files elsewhere, as the library's cache has them."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.asked = folder, []  # type: ignore[var-annotated]
        (folder / "blobs").mkdir()
        (folder / "snapshot").mkdir()

    def add(self, name: str, content: bytes = b"x") -> None:
        (self.folder / "blobs" / name.replace("/", "_")).write_bytes(content)

    def snapshot_download(self, name: str, *, allow_patterns: list[str], local_files_only: bool) -> str:
        self.asked.append((name, local_files_only))
        for blob in (self.folder / "blobs").iterdir():
            if any(fnmatch.fnmatch(blob.name, pattern) for pattern in allow_patterns):
                os.symlink(blob, self.folder / "snapshot" / blob.name)
        return str(self.folder / "snapshot")

    def fetched(self) -> set[str]:
        return {path.name for path in (self.folder / "snapshot").iterdir()}


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hub:
    made = Hub(tmp_path)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", made.snapshot_download)
    return made


def test_a_folder(hub: Hub, tmp_path: Path) -> None:
    """What is read is fetched, and nothing else."""
    folder = folders.write(tmp_path / "f", "qwen2", folders.weights("qwen2"), shards=2)
    for path in folder.iterdir():
        hub.add(path.name, path.read_bytes())
    for name in ("pytorch_model.bin", "modeling_qwen2.py", "README.md", "original.safetensors", "tokenizer.json"):
        hub.add(name)
    file = open_model("hf:Qwen/Qwen2.5-0.5B")
    assert isinstance(file, HuggingFaceFolder)
    assert hub.asked == [("Qwen/Qwen2.5-0.5B", False)]
    assert hub.fetched() == {path.name for path in folder.iterdir()} | {"tokenizer.json"}
    assert file.tensor("blk.0.attn_q.weight").shape == (64, 64)


def test_a_file(hub: Hub, tmp_path: Path) -> None:
    hub.add("m-q4.gguf", tiny_models.write(tmp_path / "m.gguf").read_bytes())
    hub.add("m-q8.gguf")
    assert isinstance(open_model("hf:a/b.c:m-q4.gguf"), GGUFFile)
    assert hub.fetched() == {"m-q4.gguf"}
    with pytest.raises(DownloadError, match=r"hf:a/b\.c:other\.gguf: the repository has no such file"):
        open_model("hf:a/b.c:other.gguf")


def test_all_files_of_a_split_one(hub: Hub) -> None:
    for number in (1, 2):
        hub.add(f"m-0000{number}-of-00002.gguf")
        hub.add(f"m-0000{number}-of-00003.gguf")
    path = Repository.parse("hf:a/b:m-00001-of-00002.gguf").fetch(download=False, progress=False)
    assert path.name == "m-00001-of-00002.gguf"
    assert hub.fetched() == {"m-00001-of-00002.gguf", "m-00002-of-00002.gguf"}
    assert hub.asked == [("a/b", True)]


def test_a_repository_of_files_needs_one_to_be_named(hub: Hub) -> None:
    hub.add("m.gguf")
    with pytest.raises(
        DownloadError, match=r"has no config\.json; of one with \.gguf files, name one: hf:a/b:file\.gguf"
    ):
        open_model("hf:a/b")


@pytest.mark.parametrize("text", ["hf:", "hf:a", "hf:a/b/c", "hf:../b", "hf:a/..", "hf:a/b:", "hf: a/b", "hf:a/b c"])
def test_names_that_are_none(hub: Hub, text: str) -> None:
    with pytest.raises(InputError, match="is named hf:owner/repository or hf:owner/repository:file"):
        open_model(text)
    assert not hub.asked


@pytest.mark.parametrize("file", ["model.bin", "../m.gguf", "/m.gguf", "a/../m.gguf", "*.gguf", "config.json"])
def test_files_that_are_no_models(hub: Hub, file: str) -> None:
    with pytest.raises(InputError, match=r"must be a \.gguf file of the repository"):
        open_model(f"hf:a/b:{file}")
    assert not hub.asked


@pytest.mark.parametrize("error", [LocalEntryNotFoundError("x"), OSError("no route"), ValueError("x"), KeyError("x")])
def test_what_the_library_raises(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def fails(*args: Any, **options: Any) -> str:
        raise error

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fails)
    with pytest.raises(DownloadError, match=rf"hf:a/b can't be fetched: {type(error).__name__}") as caught:
        open_model("hf:a/b")
    assert caught.value.__cause__ is error
