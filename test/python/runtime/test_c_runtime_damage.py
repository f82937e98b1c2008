# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Files that are damaged, cut off, of another version, or that somebody made up, given to librlx_runtime.so."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import library_mutations
import pytest
from bundles import rewritten, with_manifest
from c_api import CError
from c_runtime import Opened
from descriptions import set_at

from rlx_mlir.models.bundle import MANIFEST, TEXT, VERSION, code_section
from rlx_mlir.runtime.container import Container
from rlx_mlir.runtime.encoding import encode

_HEADER, _ENTRY = 80, 128


@pytest.fixture
def path(tiny_bundle: Path, tmp_path: Path) -> Path:
    """A copy, to be damaged."""
    return Path(shutil.copy(tiny_bundle, tmp_path))


def refused(path: Path, message: str) -> None:
    with pytest.raises(CError, match=message) as caught:
        Opened(path)
    assert caught.value.status == 2
    assert str(caught.value).startswith(f"{path}: ")


def test_every_byte_of_header_table_manifest_and_text_counts(path: Path) -> None:
    """The header's, and some of the others: a digest covers all of each part."""
    content = path.read_bytes()
    (table,) = struct.unpack_from("<Q", content, 16)
    with Container(path) as container:
        spans = [container.section(name) for name in (MANIFEST, TEXT, code_section("extend", "native"))]
    places = [*range(_HEADER), *range(table, len(content), 41)]
    places += [at for own in spans for at in range(own.offset, own.offset + own.size, own.size // 20)]
    handle = os.open(path, os.O_RDWR)
    for at in places:
        os.pwrite(handle, bytes([content[at] ^ 1 << at % 8]), at)
        with pytest.raises(CError):
            Opened(path)
        os.pwrite(handle, content[at : at + 1], at)
    os.close(handle)
    assert Opened(path).level == "native"


def test_files_that_are_cut_off_are_noticed(path: Path) -> None:
    content = path.read_bytes()
    for size in (1, 7, 8, 9, 79, 80, 4095, 4096, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:size])
        with pytest.raises(CError, match=r"tiny\.rlx: (neither a bundle|.*cut off)"):
            Opened(path)
    path.write_bytes(content + b"\0")
    refused(path, "something was appended")


def tables(path: Path, change: Callable[[bytearray, int], None]) -> None:
    """Changes a file's header and table, whose offset is given, and has the digest hold again."""
    content = bytearray(path.read_bytes())
    (count,), (at,) = struct.unpack_from("<I", content, 12), struct.unpack_from("<Q", content, 16)
    change(content, at)
    entries = bytes(content[at : at + count * _ENTRY])
    content[48:_HEADER] = hashlib.sha256(bytes(content[:48]) + entries).digest()
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("place", "form", "value", "message"),
    [
        (-1, "<I", 2, "not a container of version 1, but of 2"),
        (64, "<Q", 4097, "it begins at a multiple of 4096, but is said to be at byte 4097"),
        (64, "<Q", 1 << 40, "lie beyond the file's end"),
        (72, "<Q", 2**64 - 1, "lie beyond the file's end"),
        (72, "<Q", 1 << 17, "overlap, but sections lie apart"),
        (64, "<Q", 0, r"the header \[0, 80\) and section '.*' \[0, .*\) overlap, but sections lie apart"),
        (112, "<I", 7, "its kind is one of 0, 1, but is 7"),
        (116, "<I", 1, "flags and reserved bytes must be zero"),
        (0, "<B", 0, "entry 0 of the table: its name must have 1 to 63 bytes"),
        (0, "<B", 0xFF, "entry 0 of the table: its name must have 1 to 63 bytes of UTF-8"),
    ],
)
def test_tables_that_make_no_sense(path: Path, place: int, form: str, value: int, message: str) -> None:
    def change(content: bytearray, at: int) -> None:
        struct.pack_into(form, content, 8 if place < 0 else at + place, value)

    tables(path, change)
    refused(path, message)


def test_sections_with_one_name(path: Path) -> None:
    def change(content: bytearray, at: int) -> None:
        content[at + _ENTRY : at + _ENTRY + 64] = content[at : at + 64]

    tables(path, change)
    refused(path, "there are two sections 'metadata'")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (set_at("version", to=VERSION + 1), f"must be of version {VERSION}, but is of {VERSION + 1}"),
        (set_at("kind", to="poem"), "'kind' must be one of decoder, encoder, but is 'poem'"),
        (set_at("levels", to=[]), "'levels' must be 1 to 64, but there are 0"),
        (set_at("levels", 0, to=3), "a level must be an object, but it is 3"),
        (set_at("modules", "decode", to={}), "module 'decode' has no 'native'"),
        (set_at("modules", "decode", "native", 0, to=10**6), "'decode' for 'native' must list parameters below"),
        (set_at("modules", "decode", "native", to=[]), r"'decode' reads \d+ prepared parameters, but got 0"),
        (set_at("parameters", 0, to=[0]), "must have 4 items"),
        (set_at("parameters", 0, 0, to=77), "there is no section 'weights/77'"),
        (set_at("parameters", 0, 1, to=32), "must begin at a multiple of 64 and lie within"),
        (set_at("parameters", 0, 1, to=1 << 40), "must begin at a multiple of 64 and lie within"),
        (set_at("parameters", 0, 2, to="f99"), "'f99' is no element type"),
        (set_at("parameters", 0, 3, to=[1 << 47, 1 << 47]), "more bytes than 63 bits can count"),
        (set_at("options", "context", to=1 << 30), "must be from 1 to 16777216, but are 1073741824 and 16"),
        (set_at("options", "chunk", to=0), "must be from 1 to 16777216, but are 64 and 0"),
        (set_at("options", "context", to="x"), "'context' cannot be 'x'"),
    ],
)
def test_manifests_that_make_no_sense(
    tiny_bundle: Path, tmp_path: Path, change: Callable[[dict[str, Any]], object], message: str
) -> None:
    path = with_manifest(tiny_bundle, tmp_path / "m.rlx", change)
    refused(path, message)


def test_a_context_that_the_code_does_not_have(tiny_bundle: Path, tmp_path: Path) -> None:
    opened = Opened(with_manifest(tiny_bundle, tmp_path / "m.rlx", set_at("options", "context", to=65)))
    with pytest.raises(CError, match="'context' of 'prefill' is 64 at most, but the manifest says 65"):
        opened.session()


def test_descriptions_of_code_that_cannot_run_here(tiny_bundle: Path, tmp_path: Path) -> None:
    def with_description(change: Callable[[dict[str, Any]], object]) -> Path:
        def changed(content: dict[str, bytes]) -> None:
            name = code_section("decode", "native")
            magic, version, length, code, _ = struct.unpack_from("<8sIQQ32s", content[name])
            rest = content[name][60:]
            document = json.loads(rest[:length])
            change(document)
            own = json.dumps(document).encode()
            digest = hashlib.sha256(struct.pack("<QQ", len(own), code) + own + rest[length:]).digest()
            content[name] = struct.pack("<8sIQQ32s", magic, version, len(own), code, digest) + own + rest[length:]

        return rewritten(tiny_bundle, tmp_path / "m.rlx", changed)

    for change, message in (
        (set_at("chip", to="sm_90a"), "'decode' was compiled for the GPU sm_90a"),
        (set_at("own", to=[{"op": "mine"}]), "'decode' calls an operation that its author registered, 'mine'"),
        (set_at("target", "features", to="+magic"), "compiled for a processor with .*magic, which this one"),
        (set_at("target", to=[]), "a target must be an object"),
        (set_at("inputs", 0, "dtype", to="f99"), "'f99' is no element type"),
        (set_at("kernels", to=[]), "kernel"),
    ):
        refused(with_description(change), message)


def test_bundles_without_texts_take_ids(tiny_bundle: Path, tmp_path: Path) -> None:
    def without(content: dict[str, bytes]) -> None:
        del content[TEXT]

    opened = Opened(rewritten(tiny_bundle, tmp_path / "m.rlx", without))
    session = opened.session()
    session.feed([1, 2])
    assert session.next()[2] == b""
    for call in (lambda: opened.tokenize("a"), lambda: session.feed_text("a"), lambda: session.say("user", "a")):
        with pytest.raises(CError, match="the bundle has no section 'text': an earlier version wrote it"):
            call()

    def reasons(content: dict[str, bytes]) -> None:
        content[TEXT] = encode([1, "it is too dark", "it is too late"])

    opened = Opened(rewritten(tiny_bundle, tmp_path / "m.rlx", reasons))
    with pytest.raises(CError, match="texts can't become ids of tokens: it is too dark"):
        opened.tokenize("a")
    with pytest.raises(CError, match="messages can't become a prompt: it is too late; give a prompt that is formatted"):
        opened.session().say("user", "a")


@pytest.mark.parametrize("count", [100, pytest.param(3000, marks=pytest.mark.slow)])
def test_whatever_somebody_writes_is_an_error_or_runs(count: int, tiny_bundle: Path, tmp_path: Path) -> None:
    """In a process of its own, which would not survive a crash."""
    command = [sys.executable, library_mutations.__file__, str(tiny_bundle), str(tmp_path), "0", str(count)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert sum(sum(own.values()) for own in found.values()) == count
    assert all(own.get("failed") and "without a text" not in own for own in found.values())
    assert found["text"].get("ran")
