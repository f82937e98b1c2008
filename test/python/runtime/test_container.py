# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Containers: what is written is read, whatever is damaged or can't be is noticed and named."""

from __future__ import annotations

import hashlib
import os
import re
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from compile_harness import compile_fresh
from seeds import seed

from rlx_mlir import Executable, GraphModule, budget
from rlx_mlir.errors import BudgetError, CacheError, InputError
from rlx_mlir.runtime import container
from rlx_mlir.runtime.container import ALIGNMENT, Container, Kind, is_container, write_container

HEADER = 80
ENTRY = 128
SECTIONS = {
    "manifest": b'{"modules": []}',
    "empty": b"",
    "page": bytes(range(256)) * (ALIGNMENT // 256),
    "one more": b"x" * (ALIGNMENT + 1),
    "weights/größe": np.arange(5000, dtype=np.float32).tobytes(),
    "last": b"",
}


def write(path: Path) -> Path:
    with write_container(path) as file:
        for name, content in SECTIONS.items():
            file.add(name, content)
    return path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write(tmp_path / "own.rlx")


def test_what_is_written_is_read(path: Path) -> None:
    assert is_container(path.read_bytes())
    with Container(path) as own:
        assert list(own.sections) == list(SECTIONS)
        assert own.size == path.stat().st_size
        for name, content in SECTIONS.items():
            section = own.section(name)
            assert (section.size, section.offset % ALIGNMENT, section.kind) == (len(content), 0, Kind.DATA)
            assert section.digest == hashlib.sha256(content).digest()
            assert own.read(name) == own.map(name).tobytes() == content
            own.check(name)


def test_the_format_is_what_is_documented(path: Path) -> None:
    """Read without the module: header, table and digest by their numbers."""
    data = path.read_bytes()
    magic, version, count, table_at, size, reserved = struct.unpack_from("<8sIIQQ16s", data)
    assert (magic, version, count, size, reserved) == (b"RLXBNDL\0", 1, len(SECTIONS), len(data), bytes(16))
    table = data[table_at : table_at + 128 * count]
    assert data[48:80] == hashlib.sha256(data[:48] + table).digest()
    for number, (name, content) in enumerate(SECTIONS.items()):
        own, offset, length, digest, kind, flags, rest = struct.unpack_from("<64sQQ32sII8s", table, 128 * number)
        assert own == name.encode().ljust(64, b"\0")
        assert data[offset : offset + length] == content
        assert (digest, kind, flags, rest) == (hashlib.sha256(content).digest(), 0, 0, bytes(8))


def test_a_container_may_be_empty(tmp_path: Path) -> None:
    with write_container(tmp_path / "empty"):
        pass
    with Container(tmp_path / "empty") as own:
        assert (own.size, dict(own.sections)) == (HEADER, {})
        with pytest.raises(CacheError, match=r"empty: there is no section 'manifest'; the file has none"):
            own.read("manifest")


def test_sections_are_streamed_and_their_parts_aligned(tmp_path: Path) -> None:
    places = []
    with write_container(tmp_path / "w") as file, file.section("weights/0") as section:
        for count in (1, 3, 16):
            places.append(section.align(64))
            section.write(np.full((count, 1), count, np.float32))
            section.write(np.zeros((0, 4), np.float32))
    assert places == [0, 64, 128]
    with Container(tmp_path / "w") as own:
        bytes_of = own.map("weights/0")
    assert not bytes_of.flags.writeable
    assert bytes_of.ctypes.data % ALIGNMENT == 0
    for place, count in zip(places, (1, 3, 16), strict=True):  # after the file was closed
        assert (bytes_of[place : place + 4 * count].view(np.float32) == count).all()


def test_arrays_keep_the_file_mapped(path: Path) -> None:
    own = Container(path)
    page = own.map("page")
    own.close()
    own.close()
    path.unlink()
    assert page.tobytes() == SECTIONS["page"]
    with pytest.raises(InputError, match="the container is closed"):
        own.read("manifest")


def test_a_file_that_nobody_closed_is_closed(path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    Container(path).read("page")
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_block_that_raises_leaves_the_old_file(path: Path) -> None:
    before = path.read_bytes()

    def fail() -> None:
        with write_container(path) as file:
            file.add("manifest", b"new")
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError):
        fail()
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == [path.name]


@pytest.mark.parametrize("name", ["", "a\0b", "n" * 64, "ä" * 32, "\udc80", 7])
def test_names_that_no_section_can_have(tmp_path: Path, name: str) -> None:
    with write_container(tmp_path / "w") as file, pytest.raises(InputError, match="1 to 63 bytes in UTF-8 without NUL"):
        file.add(name, b"")


def test_the_longest_names(tmp_path: Path) -> None:
    with write_container(tmp_path / "w") as file:
        file.add("n" * 63, b"1")
        file.add("ä" * 31, b"2")
    with Container(tmp_path / "w") as own:
        assert (own.read("n" * 63), own.read("ä" * 31)) == (b"1", b"2")


def test_what_a_writer_refuses(tmp_path: Path) -> None:
    with write_container(tmp_path / "w") as file:
        file.add("a", b"1")
        with pytest.raises(InputError, match="there is a section 'a' already"):
            file.add("a", b"2")
        with pytest.raises(InputError, match=r"'kind' is one of .*, but got 2"):
            file.add("b", b"2", 2)  # type: ignore[arg-type]
        with pytest.raises(InputError, match="contiguous bytes"):
            file.add("c", np.zeros((4, 4))[:, 1])
        with file.section("d") as section:
            with pytest.raises(InputError, match="section 'd' isn't complete"):
                file.add("e", b"")
            with pytest.raises(InputError, match="power of two up to 4096, but got 48"):
                section.align(48)
            with pytest.raises(InputError, match="section 'd' isn't complete"):
                file.finish()
    with Container(tmp_path / "w") as own:
        assert set(own.sections) == {"a", "d"}


def test_artefacts_are_sections_of_code(tmp_path: Path) -> None:
    module = GraphModule.hir("double")
    x = module.input("x", ["n"])
    module.set_outputs({"y": x + x})
    artifact = compile_fresh(module, maxima={"n": 8}).artifact
    with write_container(tmp_path / "w") as file:
        file.add_artifact("artifact/double/native", artifact)
        file.add("data", artifact.to_bytes())
        file.add("broken", b"RLXMLIR\0", Kind.CODE)
    with Container(tmp_path / "w") as own:
        result = Executable(own.artifact("artifact/double/native")).run({"x": np.ones(3, np.float32)})
        np.testing.assert_array_equal(result["y"], np.full(3, 2, np.float32))
        with pytest.raises(CacheError, match="w: section 'data' is of kind 0, but code is of kind 1"):
            own.artifact("data")
        with pytest.raises(CacheError, match="w: section 'broken': an artefact has at least 60 bytes, but this one"):
            own.artifact("broken")


# Damage -------------------------------------------------------------------------------------------

Change = Callable[[bytearray, int], object]


def signed(data: bytes, change: Change) -> bytes:
    """A container that was changed by somebody who knows how to sign it: `change` is given the table's place."""
    changed = bytearray(data)
    (table_at,) = struct.unpack_from("<Q", data, 16)
    change(changed, table_at)
    count, table_at = struct.unpack_from("<IQ", changed, 12)
    if table_at + ENTRY * count <= len(changed):
        own = changed[:48] + changed[table_at : table_at + ENTRY * count]
        changed[48:80] = hashlib.sha256(own).digest()
    return bytes(changed)


def put(form: str, at: int, *values: object) -> Change:
    """Writes into the header."""
    return lambda data, _: struct.pack_into(form, data, at, *values)


def entry(number: int, form: str, at: int, *values: object) -> Change:
    """Writes into an entry of the table."""
    return lambda data, table_at: struct.pack_into(form, data, table_at + ENTRY * number + at, *values)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (put("<8s", 0, b"GGUF"), r"not a container: it starts with b'GGUF.* instead of b'RLXBNDL"),
        (put("<I", 8, 2), "not a container of version 1, but of 2"),
        (put("<I", 12, 2**32 - 1), r"table of 4294967295 sections has 549755813760 bytes .* said to be at byte"),
        (put("<I", 12, 7), "the table of 7 sections has 896 bytes"),
        (put("<Q", 16, 2**64 - 1), "said to be at byte 18446744073709551615"),
        (put("<Q", 16, 79), "said to be at byte 79"),
        (put("<Q", 24, 2**63), r"the file has \d+ bytes, but its header says 9223372036854775808: it is cut off"),
        (put("<Q", 24, 4), r"but its header says 4: something was appended"),
        (put("<B", 40, 1), "reserved bytes are zero in version 1, but they are 0{16}01"),
        (entry(0, "<64s", 0, b""), "entry 0 of the table: its name has 1 to 63 bytes"),
        (entry(1, "<64s", 0, b"n" * 64), "entry 1 of the table: its name has 1 to 63 bytes"),
        (entry(2, "<64s", 0, b"a\0b"), "entry 2 of the table: its name has 1 to 63 bytes"),
        (entry(2, "<64s", 0, b"\xff"), "entry 2 of the table: its name must be UTF-8"),
        (entry(2, "<64s", 0, b"empty"), "entry 2 of the table: there is a section 'empty' already"),
        (
            entry(0, "<Q", 64, 4097),
            "'manifest': it begins at a multiple of 4096, but is said to be at byte 4097",
        ),
        (entry(0, "<Q", 64, 2**64 - 4096), "'manifest': its 15 bytes at byte 18446744073709547520 lie beyond"),
        (entry(0, "<Q", 72, 2**64 - 1), "'manifest': its 18446744073709551615 bytes at byte 4096 lie beyond"),
        (entry(0, "<Q", 72, 4097), r"'manifest' \[4096, 8193\) and section 'page' \[8192, 12288\) overlap"),
        (entry(0, "<Q", 64, 0), r"section 'manifest' \[0, 15\) and the header \[0, 80\) overlap"),
        (entry(4, "<Q", 72, 20481), r"section 'weights/größe' .* and the table .* overlap"),
        (entry(0, "<I", 112, 2), "section 'manifest': its kind is one of 0, 1, but is 2"),
        (entry(0, "<I", 116, 1), "section 'manifest': flags and reserved bytes are zero, but are 0x1"),
        (entry(0, "<B", 127, 9), "but are 0x0 and 0{14}09"),
    ],
)
def test_what_is_wrong_is_named(path: Path, change: Change, message: str) -> None:
    path.write_bytes(signed(path.read_bytes(), change))
    with pytest.raises(CacheError, match=message) as raised:
        Container(path)
    assert str(raised.value).startswith(f"{path}: ")


def test_every_byte_of_the_header_and_the_table_is_checked(path: Path) -> None:
    data = path.read_bytes()
    (table_at,) = struct.unpack_from("<Q", data, 16)
    for at in (*range(HEADER), *range(table_at, len(data))):
        changed = bytearray(data)
        changed[at] ^= 1 << at % 8
        path.write_bytes(changed)
        with pytest.raises(CacheError):
            Container(path)


def test_every_length_is_noticed(path: Path) -> None:
    data = path.read_bytes()
    for length in (*range(HEADER + 2), *range(HEADER + 2, len(data), 997), len(data) - 1):
        path.write_bytes(data[:length])
        with pytest.raises(CacheError):
            Container(path)
    path.write_bytes(data + b"\0")
    with pytest.raises(CacheError, match="something was appended"):
        Container(path)


def test_signed_changes_are_errors_or_harmless(path: Path) -> None:
    """Random bytes of header and table, signed again: sections that are there lie within the file."""
    data = path.read_bytes()
    (table_at,) = struct.unpack_from("<Q", data, 16)
    places = [*range(8, 48), *range(table_at, len(data))]
    rng, opened = np.random.default_rng(seed()), 0
    for _ in range(2000):

        def change(changed: bytearray, _: int) -> None:
            for at in rng.choice(places, rng.integers(1, 4)):
                changed[at] = rng.integers(256)

        path.write_bytes(signed(data, change))
        try:
            own = Container(path)
        except CacheError:
            continue
        opened += 1
        for name in own.sections:
            own.map(name)
            try:
                own.check(name)
            except CacheError as error:
                assert re.search("has the digest", str(error))  # noqa: PT017
        own.close()
    assert opened


def test_damage_of_a_section_is_found_when_it_is_read(path: Path) -> None:
    data = bytearray(path.read_bytes())
    with Container(path) as own:
        data[own.section("page").offset + 100] ^= 4
        path.write_bytes(data)
    with Container(path) as own:
        assert own.read("manifest") == SECTIONS["manifest"]
        for use in (own.read, own.check):
            with pytest.raises(CacheError, match=r"own\.rlx: section 'page' has the digest .*, but the table says"):
                use("page")
        assert own.map("page")[100] == 100 ^ 4  # not checked, as is said
        with pytest.raises(CacheError, match=r"no section 'pag' \(did you mean 'page'\?\)"):
            own.check("pag")


def test_a_file_that_is_cut_off_while_it_is_open(path: Path) -> None:
    with Container(path) as own:
        os.truncate(path, own.section("weights/größe").offset + 10)
        with pytest.raises(CacheError, match=r"has 20000 bytes, but the file ends after 10 of them"):
            own.read("weights/größe")


def test_a_large_table_needs_its_budget(path: Path) -> None:
    with budget(json_bytes=ENTRY * len(SECTIONS) - 1), pytest.raises(BudgetError, match=r"the table of .* needs 768"):
        Container(path)


def test_what_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name, message in (("pipe", "it is a FIFO, but a file"), (".", "it is a folder, but a file")):
        with pytest.raises(CacheError, match=message):
            Container(tmp_path / name)
    with pytest.raises(FileNotFoundError):
        Container(tmp_path / "missing")


def test_parts_of_sections_are_read_in_chunks(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(container, "_CHUNK", 1000)
    with Container(path) as own:
        for name, content in SECTIONS.items():
            assert own.read(name) == content
            own.check(name)
