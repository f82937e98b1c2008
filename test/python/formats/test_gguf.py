# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The GGUF reader: what it reads, and that malformed files end in GGUFError, whatever is wrong with them."""

from __future__ import annotations

import os
import struct
import time
import tracemalloc
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlx_mlir import formats
from rlx_mlir.budgets import budget
from rlx_mlir.errors import BudgetError, GGUFError, InputError, UnsupportedError
from rlx_mlir.frontends import gguf as reader
from rlx_mlir.frontends.gguf import GGUFFile, write_gguf

METADATA: dict[str, Any] = {
    "general.architecture": "llama",
    "general.alignment": 64,
    "a.bool": True,
    "a.float": 0.25,
    "a.double": np.float64(0.1),
    "a.negative": -3,
    "a.large": 1 << 63,
    "a.text": "naïve\n",
    "a.empty": "",
    "a.strings": ["", "x", "é" * 200, "\0\0\0\0\0\0\0\0\0", "y" * 70000],
    "a.none": np.zeros(0, np.float32),
    "a.bools": np.array([True, False]),
    **{f"a.{t}": np.array([1, 2, 3], t) for t in ("u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f4", "f8")},
}


def q4_0_tensor() -> tuple[str, np.ndarray, tuple[int, ...]]:
    values = np.random.default_rng(0).standard_normal((6, 64)).astype(np.float32)
    return "q4_0", formats.encode("q4_0", values), (2, 3, 64)


def all_values(file: GGUFFile) -> None:
    """Touches everything that a file offers."""
    for key in file.metadata:
        file.metadata[key]
    for name in file.tensors:
        file.dequantize(name)


@pytest.fixture
def small(tmp_path: Path) -> Path:
    tensors: dict[str, Any] = {
        "w": q4_0_tensor(),
        "b": np.arange(6, dtype=np.float32).reshape(2, 3),
        "i": np.array([7], np.int64),
    }
    return write_gguf(tmp_path / "small.gguf", METADATA, tensors)


def test_metadata_reads_as_written(small: Path) -> None:
    with GGUFFile(small) as file:
        assert file.architecture == "llama"
        assert file.alignment == 64
        assert list(file.metadata) == list(METADATA)
        for key, expected in METADATA.items():
            actual = file.metadata[key]
            if isinstance(expected, np.ndarray):
                assert actual.dtype == expected.dtype
                assert not actual.flags.writeable
                np.testing.assert_array_equal(actual, expected)
            else:
                assert type(actual) in (bool, int, float, str, list)
                assert actual == expected
        assert file.metadata.length("a.strings") == 5
        assert file.metadata.length("a.text") is None
        assert "a.nothing" not in file.metadata


def test_tensors_read_as_written(small: Path) -> None:
    with GGUFFile(small) as file:
        info = file.tensors["w"]
        assert (info.shape, info.type, info.rows, info.k, info.size) == ((2, 3, 64), "q4_0", 6, 64, 384)
        assert info.nbytes == 6 * 36
        assert all(t.offset % 64 == 0 for t in file.tensors.values())
        raw = file.tensor("w")
        np.testing.assert_array_equal(raw, q4_0_tensor()[1])
        assert not raw.flags.writeable
        np.testing.assert_array_equal(file.dequantize("w"), formats.decode("q4_0", raw, 64).reshape(2, 3, 64))
        np.testing.assert_array_equal(file.tensor("b"), np.arange(6).reshape(2, 3))
        assert file.tensor("i").dtype == np.int64


def test_shape_is_innermost_last(tmp_path: Path) -> None:
    """The public writer is given [N, K] = [3, 4]; files store 4 first."""
    writer = gguf.GGUFWriter(tmp_path / "w.gguf", "llama")
    weight = np.arange(12, dtype=np.float32).reshape(3, 4)
    writer.add_tensor("w", weight)
    writer.add_array("names", ["a", "bc", ""])
    writer.add_bool("flag", False)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with GGUFFile(tmp_path / "w.gguf") as file:
        assert file.tensors["w"].shape == (3, 4)
        np.testing.assert_array_equal(file.tensor("w"), weight)
        assert file.metadata["names"] == ["a", "bc", ""]
        assert file.metadata["flag"] is False


def test_public_reader_reads_what_is_written(small: Path) -> None:
    public = gguf.GGUFReader(small)
    tensor = next(t for t in public.tensors if t.name == "w")
    assert list(tensor.shape) == [64, 3, 2]
    np.testing.assert_array_equal(tensor.data.reshape(6, 36), q4_0_tensor()[1])


def test_version_2(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "v2.gguf", {"x": 1}, {"t": np.ones(3, np.float32)}, version=2)
    with GGUFFile(path) as file:
        assert file.version == 2
        assert file.dequantize("t").tolist() == [1, 1, 1]


def test_arrays_outlive_the_file(small: Path) -> None:
    file = GGUFFile(small)
    view = file.tensor("b")
    file.release()
    file.close()
    file.close()
    assert view.tolist() == [[0, 1, 2], [3, 4, 5]]
    with pytest.raises(InputError, match="tensor 'b' is asked for, but the file is closed"):
        file.tensor("b")
    with pytest.raises(InputError, match=r"metadata 'a\.text' is asked for, but the file is closed"):
        file.metadata["a.text"]


def test_unknown_names_and_paths(small: Path, tmp_path: Path) -> None:
    with GGUFFile(small) as file, pytest.raises(InputError, match=r"no tensor 'v' in .*small\.gguf, which has 3"):
        file.tensor("v")
    with pytest.raises(GGUFError, match=r"nothing\.gguf: the file is missing"):
        GGUFFile(tmp_path / "nothing.gguf")
    (tmp_path / "empty").touch()
    with pytest.raises(GGUFError, match="empty: byte 0: the file is empty"):
        GGUFFile(tmp_path / "empty")


def text(value: str | bytes) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(raw)) + raw


def file_bytes(
    entries: bytes = b"", tensors: bytes = b"", *, counts: tuple[int, int] | None = None, data: int = 0
) -> bytes:
    """A file with at most one entry and one tensor description, and ``data`` bytes of zeros after the padding."""
    tensor_count, entry_count = counts or (int(bool(tensors)), int(bool(entries)))
    header = b"GGUF" + struct.pack("<IQQ", 3, tensor_count, entry_count) + entries + tensors
    return header + bytes(-len(header) % 32 + data)


def entry(key: str | bytes, kind: int, value: bytes) -> bytes:
    return text(key) + struct.pack("<I", kind) + value


def tensor(dims: list[int], kind: int = 0, offset: int = 0, name: str | bytes = "t", rank: int | None = None) -> bytes:
    rank = len(dims) if rank is None else rank
    return text(name) + struct.pack(f"<I{len(dims)}QIQ", rank, *dims, kind, offset)


SCALAR_SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
HUGE = (1 << 64) - 1
MALFORMED: list[tuple[str, bytes, str, int]] = [
    ("magic", b"GGML" + bytes(28), "the magic must be b'GGUF', but is b'GGML'", 0),
    ("short header", b"GGUF\3\0\0\0", "truncated: the header needs 24 bytes, but 8 are left", 0),
    ("version 1", b"GGUF" + struct.pack("<IQQ", 1, 0, 0), r"version must be 2 or 3, but is 1 \(GGUF v1 has", 4),
    ("big-endian", b"GGUF" + struct.pack(">IQQ", 3, 0, 0), r"but is 50331648 \(a big-endian file of version 3\)", 4),
    ("tensor count", file_bytes(counts=(HUGE, 0)), f"{HUGE} tensors of at least 25 bytes each cannot be in the 8", 8),
    ("entry count", file_bytes(counts=(0, 1 << 40)), "1099511627776 metadata entries of at least 14 bytes", 16),
    ("key length", file_bytes(struct.pack("<Q", HUGE) + bytes(40)), "must have 1 to 65535 bytes, but has 1844674", 24),
    ("key past the end", file_bytes(struct.pack("<Q", 1000)), "cannot be in", 16),
    ("key past end", file_bytes(struct.pack("<Q", 99) + bytes(20)), "entry 0 needs 99 bytes, but 32 are left", 32),
    ("key not utf-8", file_bytes(entry(b"a\xff", 0, b"\0")), "the key of metadata entry 0 is not UTF-8", 33),
    ("value type", file_bytes(entry("k", 13, bytes(8))), "value type of 'k' must be 0 to 12, but is 13", 33),
    ("string end", file_bytes(entry("k", 8, struct.pack("<Q", HUGE))), "the value of 'k' has 18446744073709551615", 37),
    ("nested array", file_bytes(entry("k", 9, struct.pack("<IQ", 9, 0))), "'k' is an array of arrays", 37),
    ("element type", file_bytes(entry("k", 9, struct.pack("<IQ", 99, 0))), "0 to 12 and not 9, but is 99", 37),
    (
        "array count",
        file_bytes(entry("k", 9, struct.pack("<IQ", 12, 1 << 61))),
        "elements of 'k' of at least 8 bytes",
        41,
    ),
    ("string count", file_bytes(entry("k", 9, struct.pack("<IQ", 8, HUGE))), "elements of 'k' of at least 8 bytes", 41),
    (
        "string in array",
        file_bytes(entry("k", 9, struct.pack("<IQQ", 8, 2, 0) + struct.pack("<Q", 50))),
        "string 1 of 'k' ends behind the file, which has 96 bytes",
        57,
    ),
    ("alignment type", file_bytes(entry("general.alignment", 10, struct.pack("<Q", 32))), "must be a u32", 53),
    ("alignment zero", file_bytes(entry("general.alignment", 4, bytes(4))), "a power of two, but is 0", 53),
    ("alignment odd", file_bytes(entry("general.alignment", 4, b"\x30\0\0\0")), "a power of two, but is 48", 53),
    ("tensor name", file_bytes(tensors=tensor([1], name="")), "the name of tensor 0 must have 1 to", 24),
    ("tensor name utf-8", file_bytes(tensors=tensor([1], name=b"\xc3(")), "the name of tensor 0 is not UTF-8", 32),
    ("no dims", file_bytes(tensors=tensor([4, 0, 3]), data=64), r"must be positive, but are \[4, 0, 3\]", 37),
    ("rank", file_bytes(tensors=tensor([1] * 5), data=64), "at most 4 dimensions, but has 5", 33),
    ("rank million", file_bytes(tensors=tensor([1], rank=1_000_000)), "at most 4 dimensions, but has 1000000", 33),
    ("rank max", file_bytes(tensors=tensor([1], rank=0xFFFFFFFF)), "at most 4 dimensions, but has 4294967295", 33),
    ("product wraps", file_bytes(tensors=tensor([1 << 32, 1 << 32, 4]), data=64), "less than 2\\^63 elements", 37),
    ("negative dim", file_bytes(tensors=tensor([HUGE]), data=64), "less than 2\\^63 elements", 37),
    ("end", file_bytes(tensors=tensor([64]), data=255), "tensor 't' ends at byte 320, but the file has 319 bytes", 24),
    ("begin", file_bytes(tensors=tensor([1], offset=1 << 20), data=64), "tensor 't' begins at byte 1048640", 24),
    (
        "offset overflow",
        file_bytes(tensors=tensor([1], offset=HUGE - 31), data=64),
        "tensor 't' begins at byte 1844",
        24,
    ),
    (
        "offset alignment",
        file_bytes(tensors=tensor([1], offset=16), data=64),
        "multiple of the alignment, 32, but is 16",
        24,
    ),
    (
        "row of 896",
        file_bytes(tensors=tensor([896, 2], kind=12), data=2048),
        "a row of tensor 't', type q4_k, must be a multiple of 256 elements, but has 896",
        24,
    ),
]


@pytest.mark.parametrize(("data", "message", "offset"), [m[1:] for m in MALFORMED], ids=[m[0] for m in MALFORMED])
def test_malformed_names_rule_and_offset(data: bytes, message: str, offset: int) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(GGUFError, match=message) as caught:
            GGUFFile.from_bytes(data)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()
    assert caught.value.offset == offset
    assert f"byte {offset}: " in str(caught.value)


@pytest.mark.parametrize("kind", range(13))
def test_zero_length_key_of_every_value_type(kind: int) -> None:
    with pytest.raises(GGUFError, match="the key of metadata entry 0 must have 1 to 65535 bytes, but has 0"):
        GGUFFile.from_bytes(file_bytes(entry("", kind, bytes(16))))


@pytest.mark.parametrize("kind", SCALAR_SIZES)
def test_truncated_scalar(kind: int) -> None:
    whole = b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + entry("key", kind, bytes(SCALAR_SIZES[kind]))
    assert GGUFFile.from_bytes(whole).metadata["key"] == 0
    with pytest.raises(GGUFError, match="truncated: the value of 'key'") as caught:
        GGUFFile.from_bytes(whole[:-1])
    assert caught.value.offset == len(whole) - SCALAR_SIZES[kind]


def test_every_truncation_is_an_error(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = write_gguf(small, {"a": ["x", "y"], "b": "z", "c": np.ones(2)}, {"t": np.ones(8, np.float32)}).read_bytes()
    for size in range(len(whole)):
        with pytest.raises(GGUFError):
            GGUFFile.from_bytes(whole[:size])


def test_duplicate_names() -> None:
    with pytest.raises(GGUFError, match="the key 'k' appears twice") as caught:
        GGUFFile.from_bytes(file_bytes(entry("k", 0, b"\0") * 2, counts=(0, 2)))
    assert caught.value.offset == 24 + 14
    with pytest.raises(GGUFError, match="the tensor 't' appears twice"):
        GGUFFile.from_bytes(file_bytes(tensors=tensor([1]) * 2, counts=(2, 0), data=64))


def test_overlapping_tensors() -> None:
    data = file_bytes(tensors=tensor([16]) + tensor([4], offset=32, name="u"), counts=(2, 0), data=64)
    with pytest.raises(GGUFError, match="tensor 'u' begins at byte 128, inside tensor 't', which ends at byte 160"):
        GGUFFile.from_bytes(data)


TWO = tensor([16], kind=1) + tensor([4], offset=32, name="u")
PLACES: list[tuple[str, bytes, str, int]] = [
    (
        "f16 over f32",
        tensor([16], kind=1) + tensor([4], offset=64, name="u"),
        r"'u' must begin at byte 128, where the 32 bytes of tensor 't', f16 \[16\], and padding end, but .* byte 160",
        57,
    ),
    (
        "gap",
        tensor([16]) + tensor([4], offset=4160, name="u"),
        "'u' must begin at byte 160, .*, but begins at byte 4256",
        57,
    ),
    (
        "order",
        tensor([4], offset=4160, name="u") + tensor([16]),
        "'u' must begin at byte 160, .*, but begins at byte 42",
        24,
    ),
    (
        "start",
        tensor([4], offset=32) + tensor([4], offset=64, name="u"),
        "'t' must begin at byte 96, where the data beg",
        24,
    ),
    (
        "unknown",
        tensor([16]) + tensor([4], kind=99, offset=4160, name="u"),
        "'u' must begin at byte 160, where the 64",
        57,
    ),
]


@pytest.mark.parametrize(("tensors", "message", "offset"), [p[1:] for p in PLACES], ids=[p[0] for p in PLACES])
def test_tensors_fill_the_file(tensors: bytes, message: str, offset: int) -> None:
    """Bytes that no tensor owns mean that a tensor isn't what its type or shape says."""
    with pytest.raises(GGUFError, match=message) as caught:
        GGUFFile.from_bytes(file_bytes(tensors=tensors, counts=(2, 0), data=4192))
    assert caught.value.offset == offset


@pytest.mark.parametrize(("more", "fits"), [(0, True), (1, True), (16, True), (17, False), (4096, False)])
def test_the_last_tensor_ends_the_file(more: int, fits: bool) -> None:
    """But for padding, which may lack."""
    data = file_bytes(tensors=tensor([4], kind=0), data=16 + more)
    if fits:
        assert GGUFFile.from_bytes(data).tensors["t"].nbytes == 16
        return
    with pytest.raises(GGUFError, match=rf"must end at byte 96, where the 16 bytes of .*, but has {80 + more} bytes"):
        GGUFFile.from_bytes(data)


def test_anything_may_follow_an_unknown_type() -> None:
    data = file_bytes(tensors=tensor([4], kind=99) + tensor([4], offset=4096, name="u"), counts=(2, 0), data=4128)
    assert GGUFFile.from_bytes(data).tensors["u"].nbytes == 16


@pytest.mark.parametrize(
    ("data", "limits", "needs"),
    [
        (file_bytes(tensors=TWO, counts=(2, 0), data=64), {"tensors": 1}, "needs 2, but the budget 'tensors'"),
        (
            file_bytes(entry("k", 8, text("x" * 1000))),
            {"metadata_bytes": 1000},
            "needs 1,045, but the budget 'metadata",
        ),
        (
            file_bytes(entry("k", 0, b"\0") * 2, counts=(0, 2)),
            {"metadata_bytes": 500},
            "needs 512, but the budget 'meta",
        ),
    ],
)
def test_files_have_budgets(data: bytes, limits: dict[str, int], needs: str) -> None:
    with budget(**limits), pytest.raises(BudgetError, match=f"the file {needs}"):
        GGUFFile.from_bytes(data)


def test_other_files_are_called_so_first(tmp_path: Path) -> None:
    """Also where they are too short for a header."""
    path = tmp_path / "x.onnx"
    for data in (b"\x08\x07\x12\x07pytorch", b"PK\3\4", b"x", bytes(100)):
        path.write_bytes(data)
        with pytest.raises(GGUFError, match=r"x\.onnx: byte 0: not a GGUF file: the magic must be b'GGUF', but is"):
            GGUFFile(path)
    path.write_bytes(b"GGU")
    with pytest.raises(GGUFError, match="truncated: the header needs 24 bytes, but 3 are left"):
        GGUFFile(path)


def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero"), tmp_path):
        with pytest.raises(GGUFError, match=r"^[^:]*: it must be a regular file, but is a"):
            GGUFFile(path)
    with pytest.raises(GGUFError, match="the file can't be read: embedded null"):
        GGUFFile("a\0b")


def test_unknown_type_hides_nothing_else() -> None:
    data = file_bytes(entry("k", 0, b"\7"), tensor([4], kind=250) + tensor([4], name="u"), counts=(2, 1), data=32)
    file = GGUFFile.from_bytes(data)
    assert file.metadata["k"] == 7
    assert file.tensors["t"].type == "unknown(250)"
    assert file.tensors["t"].nbytes is None
    assert file.dequantize("u").tolist() == [0, 0, 0, 0]
    with pytest.raises(GGUFError, match="tensor 't' has the type number 250, which is not known") as caught:
        file.tensor("t")
    assert caught.value.offset == 24 + 14


def test_type_without_a_decoder_can_be_read_raw() -> None:
    file = GGUFFile.from_bytes(file_bytes(tensors=tensor([256], kind=9), data=320))
    assert file.tensor("t").shape == (1, 320)
    with pytest.raises(UnsupportedError, match="q8_1"):
        file.dequantize("t")


def test_bad_values_fail_when_they_are_read() -> None:
    bad_text = GGUFFile.from_bytes(file_bytes(entry("k", 8, text(b"ab\xff"))))
    with pytest.raises(GGUFError, match="byte 47: the value of 'k' is not UTF-8"):
        bad_text.metadata["k"]
    bad_list = GGUFFile.from_bytes(file_bytes(entry("k", 9, struct.pack("<IQ", 8, 2) + text("a") + text(b"\xc3"))))
    with pytest.raises(GGUFError, match="byte 66: string 1 of 'k' is not UTF-8"):
        bad_list.metadata["k"]
    bad_bool = GGUFFile.from_bytes(file_bytes(entry("k", 9, struct.pack("<IQ", 7, 3) + b"\0\1\2")))
    with pytest.raises(GGUFError, match="byte 51: a bool of 'k' must be 0 or 1, but is 2"):
        bad_bool.metadata["k"]


def test_writer_refuses_what_gguf_cannot_say(tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    with pytest.raises(InputError, match="metadata 'k' has a value of dict"):
        write_gguf(path, {"k": {}}, {})
    with pytest.raises(InputError, match="metadata 'k' is 18446744073709551616, which does not fit 64 bits"):
        write_gguf(path, {"k": 1 << 64}, {})
    with pytest.raises(InputError, match="tensor 't' has the element type complex64"):
        write_gguf(path, {}, {"t": np.ones(2, np.complex64)})
    with pytest.raises(InputError, match=r"tensor 't', q4_0 \[1, 32\], has 18 bytes, but 17 are given"):
        write_gguf(path, {}, {"t": ("q4_0", np.zeros(17, np.uint8), (1, 32))})


def loop_end(data: np.ndarray, count: int) -> tuple[int, int]:
    return reader._string_array_loop(data, 0, count, 0, data.size)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    st.lists(
        st.one_of(st.binary(max_size=5), st.just(b""), st.sampled_from([b"\0" * 9, b"a" * 300, b"\1" + b"\0" * 7]))
    ),
    st.integers(0, 12),
    st.integers(-2, 40),
)
def test_string_arrays_are_skipped_as_by_a_loop(strings: list[bytes], cut: int, more: int) -> None:
    raw = b"".join(struct.pack("<Q", len(s)) + s for s in strings) + bytes(3)
    data = np.frombuffer(raw[: len(raw) - min(cut, len(raw))], np.uint8)
    count = max(0, len(strings) + more)
    assert reader.string_array_end(data, 0, count, data.size) == loop_end(data, count)


@pytest.mark.parametrize("size", [7, 250, 5000])
@pytest.mark.quick(1)
def test_long_string_arrays_are_skipped_as_by_a_loop(size: int) -> None:
    """More than one window of the vectorised scan."""
    rng = np.random.default_rng(size)
    strings = [
        bytes(rng.integers(0, 4, rng.integers(0, size + 1), np.uint8)) for _ in range(min(120_000, 3_000_000 // size))
    ]
    data = np.frombuffer(b"".join(struct.pack("<Q", len(s)) + s for s in strings), np.uint8)
    assert reader.string_array_end(data, 0, len(strings), data.size) == (data.size, len(strings))
    assert reader.string_array_end(data, 0, len(strings) - 1, data.size) == loop_end(data, len(strings) - 1)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    metadata = {k: v for k, v in METADATA.items() if k != "a.strings"} | {"a.strings": ["", "x", "é"]}
    return write_gguf(tmp_path_factory.mktemp("fuzz") / "f.gguf", metadata, {"w": q4_0_tensor()}).read_bytes()


@settings(max_examples=400, deadline=None, derandomize=True)
@given(data=st.data())
def test_mutated_files_never_do_worse_than_an_error(base: bytes, data: st.DataObject) -> None:
    raw = bytearray(base[: data.draw(st.integers(0, len(base)))] if data.draw(st.booleans()) else base)
    edits = st.tuples(st.integers(0, len(base)), st.one_of(st.sampled_from([0, 1, 127, 128, 255]), st.integers(0, 255)))
    for position, value in data.draw(st.lists(edits, max_size=6)):
        if position < len(raw):
            raw[position] = value
    try:
        with GGUFFile.from_bytes(bytes(raw)) as file:
            for key in file.metadata:
                try:
                    file.metadata[key]
                except GGUFError:
                    continue
            for name in file.tensors:
                file.dequantize(name)
    except (GGUFError, UnsupportedError):
        pass


def test_smollm2_opens_fast_and_right(smollm2_path: Path) -> None:
    best = float("inf")
    for _ in range(3):
        start = time.perf_counter()
        with GGUFFile(smollm2_path) as file:
            best = min(best, time.perf_counter() - start)
            counts = {t.type: 0 for t in file.tensors.values()}
            for t in file.tensors.values():
                counts[t.type] += 1
    assert counts == {"f32": 61, "q4_1": 210, "q8_0": 1}
    assert best < 0.25  # 6 ms on an idle machine
    with GGUFFile(smollm2_path) as file:
        assert file.tensors["token_embd.weight"].shape == (49152, 576)
        tokens = file.metadata["tokenizer.ggml.tokens"]
        assert (len(tokens), tokens[1]) == (49152, "<|im_start|>")
        up = file.dequantize("blk.0.ffn_up.weight")
        assert up.shape == (1536, 576)
        expected = gguf.dequantize(np.array(file.tensor("blk.0.ffn_up.weight")), gguf.GGMLQuantizationType.Q4_1)
        np.testing.assert_array_equal(up, expected)
        for name in file.tensors:
            file.tensor(name)


@pytest.mark.slow
def test_gemma3_opens_fast_and_right(gemma3_path: Path) -> None:
    start = time.perf_counter()
    with GGUFFile(gemma3_path) as file:
        assert time.perf_counter() - start < 0.5  # 14 ms on an idle machine
        assert {t.type for t in file.tensors.values()} == {"f32", "q8_0", "q5_0", "q4_k", "q6_k"}
        assert len(file.metadata["tokenizer.ggml.tokens"]) == 262144
        assert np.isfinite(file.dequantize("blk.0.ffn_down.weight")).all()


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, np.int64, np.int8])
def test_dense_tensors_keep_their_element_type(tmp_path: Path, dtype: type[np.generic]) -> None:
    """f64 above all: numpy takes None, which block formats have for their element type, for it."""
    values = np.arange(64).reshape(2, 32).astype(dtype)
    tensor = GGUFFile(write_gguf(tmp_path / "m.gguf", {}, {"x": values})).tensor("x")
    assert tensor.dtype == values.dtype
    assert np.array_equal(tensor, values)


def test_element_types_without_a_gguf_type(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="tensor 'x' has the element type complex64, for which GGUF has no type"):
        write_gguf(tmp_path / "m.gguf", {}, {"x": np.zeros(4, np.complex64)})
