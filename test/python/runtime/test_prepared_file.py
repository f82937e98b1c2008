# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Files of prepared parameters: what is written is read, whatever is damaged is noticed."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from rlx_mlir.errors import CacheError
from rlx_mlir.paths import replacing
from rlx_mlir.runtime import prepared_file
from rlx_mlir.runtime.prepared_file import ALIGNMENT, PreparedWriter, describe_prepared, read_prepared, settle

ARRAYS = {
    "panels": np.random.default_rng(0).integers(-128, 128, (3, 5000), np.int8),
    "page": np.arange(ALIGNMENT // 4, dtype=np.float32),
    "one more": np.arange(ALIGNMENT // 4 + 1, dtype=np.float32),
    "narrow": np.array([[1.5], [-2]], ml_dtypes.bfloat16),
    "scalar": np.array(7, np.int32),
}


def write(path: Path, *, durable: bool = False, size: int = 0) -> Path:
    with replacing(path, private=True) as file:
        writer = PreparedWriter(file, size)
        views = {name: writer.add(name, array) for name, array in ARRAYS.items()}
        assert writer.finish({"key": {"n": 1}}, durable=durable) == os.fstat(file.fileno()).st_size
    for name, view in views.items():  # they go on to be there
        np.testing.assert_array_equal(view.view(np.uint8 if view.ndim else view.dtype), bits(ARRAYS[name]))
        assert not view.flags.writeable
    return path


def bits(array: np.ndarray) -> np.ndarray:
    return array.view(np.uint8) if array.ndim else array


@pytest.mark.parametrize("size", [0, 100, 1 << 20])
def test_what_is_written_is_read(tmp_path: Path, size: int) -> None:
    path = write(tmp_path / "w.prepared", size=size)
    found = read_prepared(path, own=True)
    assert found.arrays.keys() == ARRAYS.keys()
    for name, array in found.arrays.items():
        assert (array.dtype, array.shape) == (ARRAYS[name].dtype, ARRAYS[name].shape)
        np.testing.assert_array_equal(bits(array), bits(ARRAYS[name]))
        assert array.ctypes.data % ALIGNMENT == 0
        assert not array.flags.writeable
    assert found.description == describe_prepared(path) == {"key": {"n": 1}}
    assert found.size == path.stat().st_size < 11 * ALIGNMENT  # not what was reserved
    assert path.stat().st_mode & 0o777 == 0o600


def test_arrays_keep_the_file_mapped(tmp_path: Path) -> None:
    array = read_prepared(write(tmp_path / "w.prepared"), own=True).arrays["panels"]
    (tmp_path / "w.prepared").unlink()
    np.testing.assert_array_equal(array, ARRAYS["panels"])


def test_empty_arrays_are_not_written(tmp_path: Path) -> None:
    empty = np.zeros((0, 4), np.float32)
    with replacing(tmp_path / "w") as file:
        writer = PreparedWriter(file, 0)
        assert writer.add("empty", empty) is empty
        writer.finish({}, durable=False)
    assert read_prepared(tmp_path / "w", own=True).arrays == {}


def test_bytes_of_the_header_and_the_index_are_checked(tmp_path: Path) -> None:
    """Each byte of the header that says something, and every 7th of the index, flipped."""
    path = write(tmp_path / "w.prepared")
    data = path.read_bytes()
    (index_at,) = struct.unpack_from("<Q", data, 12)
    assert json.loads(data[index_at:])["description"] == {"key": {"n": 1}}
    for at in [*range(60), 95, *range(index_at, len(data), 7)]:
        path.write_bytes(data[:at] + bytes([data[at] ^ 0x41]) + data[at + 1 :])
        with pytest.raises(CacheError):
            read_prepared(path, own=True)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: b"", "starts with b'' instead of"),
        (lambda data: data[:4], "starts with b'RLXP' instead of"),
        (lambda data: data[:50], "ends within the header, after 50 bytes"),
        (lambda data: data[:-1], r"has \d+ bytes, but its header says"),
        (lambda data: data + b"\0", r"has \d+ bytes, but its header says"),
        (lambda data: data[:8] + struct.pack("<I", 9) + data[12:], "is of version 9, but this package reads version 1"),
        (lambda data: b"GGUF" + data[4:], "starts with b'GGUF"),
    ],
)
def test_damage_is_named(tmp_path: Path, change: Callable[[bytes], bytes], message: str) -> None:
    path = write(tmp_path / "w.prepared")
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(CacheError, match=message):
        read_prepared(path, own=True)


@pytest.mark.parametrize(
    ("at", "dtype", "shape"),
    [
        (ALIGNMENT + 64, "f32", [2]),
        (0, "f32", [2]),
        (1 << 40, "f32", [2]),
        (ALIGNMENT, "f32", [1 << 40]),
        (ALIGNMENT, "f32", [-1]),
        (ALIGNMENT, "f99", [1]),
        (ALIGNMENT, "f32", "x"),
        ("0", "f32", [1]),
    ],
)
def test_an_index_that_makes_no_sense_is_noticed(tmp_path: Path, at: object, dtype: str, shape: object) -> None:
    """Its digest holds: another program wrote it."""
    with replacing(tmp_path / "w") as file:
        writer = PreparedWriter(file, 0)
        writer.add("x", np.ones(4, np.float32))
        writer._places["x"] = (at, dtype, shape)  # type: ignore[assignment]
        writer.finish({}, durable=False)
    with pytest.raises(CacheError):
        read_prepared(tmp_path / "w", own=True)


def test_what_the_disk_may_not_have_is_not_used_after_a_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hasty, settled, durable = (tmp_path / name for name in ("hasty", "settled", "durable"))
    write(hasty)
    settle(write(settled))
    write(durable, durable=True)
    assert [read_prepared(path, own=True).settled for path in (hasty, settled, durable)] == [False, True, True]
    monkeypatch.setattr(prepared_file, "boot_id", lambda: b"another")
    with pytest.raises(CacheError, match="has been started anew before the file was known to be on the disk"):
        read_prepared(hasty, own=True)
    settle(hasty)  # which is of no use any more
    with pytest.raises(CacheError):
        read_prepared(hasty, own=True)
    for path in (settled, durable):
        np.testing.assert_array_equal(read_prepared(path, own=True).arrays["panels"], ARRAYS["panels"])


def test_systems_that_do_not_tell_their_starts_apart_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepared_file, "boot_id", lambda: b"")
    assert read_prepared(write(tmp_path / "w"), own=True).settled


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda path: path.chmod(0o620), r"can be written by others \(its mode is 620\)"),
        (lambda path: path.rename(path.with_name("o")).parent.joinpath("w").symlink_to("o"), "is a symbolic link"),
        (lambda path: (path.unlink(), os.mkfifo(path)), "is a FIFO"),
        (lambda path: (path.unlink(), path.mkdir()), "is a folder"),
    ],
)
def test_files_of_others_are_refused(tmp_path: Path, change: Callable[[Path], object], reason: str) -> None:
    path = write(tmp_path / "w")
    change(path)
    with pytest.raises(CacheError, match=reason):
        read_prepared(path, own=True)


# Writing files -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o027, 0o640), (0o002, 0o664)])
def test_new_files_have_the_mode_that_the_umask_says(tmp_path: Path, umask: int, mode: int) -> None:
    before = os.umask(umask)
    try:
        for name, private in (("usual", False), ("private", True)):
            with replacing(tmp_path / name, private=private) as file:
                file.write(b"x")
    finally:
        os.umask(before)
    assert (tmp_path / "usual").stat().st_mode & 0o777 == mode
    assert (tmp_path / "private").stat().st_mode & 0o777 == 0o600


def test_a_file_that_fails_leaves_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"old")
    with pytest.raises(TypeError), replacing(path) as file:
        file.writelines([b"new", path])  # type: ignore[list-item]
    assert os.listdir(tmp_path) == ["f"]
    assert path.read_bytes() == b"old"
    with replacing(path, durable=True) as file:
        file.write(b"new")
    assert path.read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["f"]
