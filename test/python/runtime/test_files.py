# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Files that come from elsewhere: what is opened, how much is read, and what JSON is."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import pytest

import rlx_mlir as rlx
from rlx_mlir import files
from rlx_mlir.errors import BudgetError, GGUFError, ModelFileError, RlxError, shortened
from rlx_mlir.frontends import documents
from rlx_mlir.frontends.gguf import GGUFFile
from rlx_mlir.models import hub


def other_kinds(folder: Path) -> dict[str, Path]:
    """What isn't a regular file, by what errors call it."""
    fifo, made, name = folder / "fifo", folder / "folder", folder / "socket"
    os.mkfifo(fifo)
    made.mkdir()
    with socket.socket(socket.AF_UNIX) as sock:
        here = os.open(folder, os.O_RDONLY)
        try:
            sock.bind(f"/proc/self/fd/{here}/socket")  # names of sockets are short
        finally:
            os.close(here)
    return {"a FIFO": fifo, "a folder": made, "a device": Path("/dev/zero"), "a socket": name}


def test_only_regular_files_are_read(tmp_path: Path) -> None:
    for kind, path in other_kinds(tmp_path).items():
        link = tmp_path / f"link to {path.name}"
        link.symlink_to(path)
        for each in (path, link):
            with pytest.raises(ModelFileError, match=f"it must be a regular file, but is {kind}") as caught:
                files.read_bytes(each)
            assert caught.value.path == str(each)
    with pytest.raises(GGUFError, match="it must be a regular file, but is a FIFO"):
        GGUFFile(tmp_path / "fifo")
    with pytest.raises(RlxError, match="isn't a regular file"):
        hub.resolve(tmp_path / "fifo")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nothing", "the file is missing"),
        ("a\0b", "can't be read: embedded null"),
        ("x" * 300, "can't be read: File name"),
    ],
)
def test_names_that_are_no_file(tmp_path: Path, name: str, message: str) -> None:
    with pytest.raises(ModelFileError, match=message):
        files.read_text(tmp_path / name)


def test_a_folder_that_may_not_be_read(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("x")
    with pytest.raises(ModelFileError, match="can't be read: Not a directory"):
        files.read_text(path / "more")


def test_no_more_than_the_budget_is_read(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * 101)
    with rlx.budget(json_bytes=100), pytest.raises(BudgetError, match="file needs 101, but the budget 'json_bytes'"):
        files.read_bytes(path)
    with rlx.budget(json_bytes=101):
        assert files.read_bytes(path) == b"x" * 101
    with rlx.budget(json_bytes=5), pytest.raises(BudgetError):
        files.read_bytes("/proc/self/status")  # its size is 0


def test_text_is_utf8(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"ab\r\n\xe9")
    with pytest.raises(ModelFileError, match=r"file: byte 4: the file must be UTF-8, but has 0xe9 there"):
        files.read_text(path)
    path.write_bytes(b"ab\r\n\xc3\xa9")
    assert files.read_text(path) == "ab\r\né"


def test_paths_inside(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    (folder / "real").mkdir(parents=True)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "blob").write_text("x")
    (folder / "out").symlink_to(tmp_path / "other")
    (folder / "file").symlink_to(tmp_path / "other" / "blob")
    for relative in ("", "real", "new", "file", "real/x"):
        assert files.inside(folder, relative, "a path", error=ModelFileError) == folder / relative
    for relative in ("..", "real/../..", "/etc", "out", "out/blob", "\0", "a/../../b"):
        with pytest.raises(ModelFileError, match="a path must be a path inside the folder, but"):
            files.inside(folder, relative, "a path", error=ModelFileError)


@pytest.mark.parametrize(
    ("content", "value"),
    [
        (b'{"a": [1, -2.5e3, true, null, "\\u00e9\\ud83d\\ude00"]}', {"a": [1, -2500.0, True, None, "é\U0001f600"]}),
        (b'"' + b"[" * 1000 + b'"', "[" * 1000),
        (b'["\\"", "\\\\", "[["]', ['"', "\\", "[["]),
        (b"7" * 4000, int("7" * 4000)),
        (b"[" * 256 + b"]" * 256, None),
    ],
)
def test_json_is_read(content: bytes, value: Any) -> None:
    found = documents.parse_json(content, "a.json")
    assert value is None or found == value


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", r"a\.json: byte 0: not JSON: expecting value"),
        (b'{\n"\xc3\xa9": @}', r"byte 8 \(line 2\): not JSON"),
        (b'{"a": 1, "b": {"c": 1, "c": 2}}', "the key 'c' stands twice in one object"),
        (b"[NaN]", "NaN isn't JSON: numbers are finite"),
        (b"[-Infinity]", "-Infinity isn't JSON"),
        (b'["\\ud800"]', "half of a surrogate pair"),
        (b"\xef\xbb\xbf{}", "byte 0: JSON begins without a byte order mark"),
        (b'["\xff"]', r"byte 2: the file must be UTF-8, but has 0xff"),
        (b"{} {}", r"byte 3: not JSON: extra data"),
        ('"\ufeff"'.encode("utf-16"), "must be UTF-8"),
    ],
)
def test_json_is_refused(content: bytes, message: str) -> None:
    with pytest.raises(ModelFileError, match=message):
        documents.parse_json(content, "a.json")


@pytest.mark.parametrize(
    ("content", "budget"),
    [
        (b"[" * 257, "nesting"),
        (b'{"a":' * 100_000, "nesting"),
        (b'[["\\\\", ' * 200, "nesting"),
        (b"1" * 4001, "digits"),
        (b"[" + b" " * (1 << 20), "json_bytes"),
    ],
)
def test_json_has_budgets(content: bytes, budget: str) -> None:
    with rlx.budget(json_bytes=1 << 20), pytest.raises(BudgetError, match=r"a\.json needs") as caught:
        documents.parse_json(content, "a.json")
    assert caught.value.budget == budget


def test_nesting_is_counted_over_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    for content, depth in ((b'[[["["]], {"]]": [[]]}]', 4), (b"[]" * 50, 1), (b'"[', 0), (b"", 0), (b"{", 1)):
        for chunk in (1, 2, 3, 1 << 20):
            monkeypatch.setattr(documents, "_CHUNK", chunk)
            assert documents.nesting(content) == depth or content == b'"['


def test_values_are_shown_short() -> None:
    assert shortened("x" * 500) == "'" + "x" * 80 + "…'"
    assert shortened(10**5000) == "an integer of 16610 bits"
    assert shortened([10**5000]) == "a value of type list"
    assert shortened({"a": 1}) == "{'a': 1}"
