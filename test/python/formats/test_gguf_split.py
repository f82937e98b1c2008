# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Models that are split into several GGUF files, as llama.cpp's tools name and number them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from rlx_mlir.budgets import budget
from rlx_mlir.errors import BudgetError, GGUFError, InputError, UnsupportedError
from rlx_mlir.frontends.gguf import GGUFFile, write_gguf
from rlx_mlir.models.config import ModelConfig

TENSORS = {f"t{i}": np.arange(i + 1, dtype=np.float32) + 10 * i for i in range(7)}
METADATA = {"general.architecture": "llama", "general.name": "in parts"}


def write_parts(folder: Path, count: int = 3, change: dict[tuple[int, str], Any] | None = None) -> list[Path]:
    """The tensors, dealt out to so many files; `change` by (number, key): other metadata, None for none."""
    paths = []
    for number in range(count):
        metadata: dict[str, Any] = METADATA if number == 0 else {}
        metadata = metadata | {
            "split.no": np.uint16(number),
            "split.count": np.uint16(count),
            "split.tensors.count": np.int32(len(TENSORS)),
        }
        metadata |= {key: value for (own, key), value in (change or {}).items() if own == number}
        metadata = {key: value for key, value in metadata.items() if value is not None}
        own_tensors = dict(list(TENSORS.items())[number::count])
        path = folder / f"m-{number + 1:05}-of-{count:05}.gguf"
        paths.append(write_gguf(path, metadata, own_tensors))
    return paths


@pytest.mark.parametrize("count", [2, 3, 7])
def test_any_part_opens_all(tmp_path: Path, count: int) -> None:
    paths = write_parts(tmp_path, count)
    for path in paths:
        with GGUFFile(path) as file:
            assert file.paths == tuple(map(str, paths))
            assert file.path == str(paths[0])
            assert file.metadata["general.name"] == "in parts"
            assert sorted(file.tensors) == sorted(TENSORS)
            for name, info in file.tensors.items():
                np.testing.assert_array_equal(file.tensor(name), TENSORS[name])
                np.testing.assert_array_equal(file.dequantize(name), TENSORS[name])
                assert name in {own.name for own in gguf.GGUFReader(paths[info.part]).tensors}
            file.release()
            kept = file.tensor("t4")
        np.testing.assert_array_equal(kept, TENSORS["t4"])


def test_the_order_is_that_of_the_files(tmp_path: Path) -> None:
    paths = write_parts(tmp_path)
    for path in paths:
        assert list(GGUFFile(path).tensors) == ["t0", "t3", "t6", "t1", "t4", "t2", "t5"]


def test_closing_closes_all(tmp_path: Path) -> None:
    file = GGUFFile(write_parts(tmp_path)[1])
    file.close()
    for name in TENSORS:
        with pytest.raises(InputError, match="but the file is closed"):
            file.tensor(name)


def test_a_count_of_one_is_a_whole_file(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "any.gguf", METADATA | {"split.count": 1, "split.no": 0}, TENSORS)
    assert GGUFFile(path).paths == (str(path),)


def test_one_alone_can_be_read_alone(tmp_path: Path) -> None:
    path = write_parts(tmp_path)[1]
    for file in (GGUFFile.single(path), GGUFFile.from_bytes(path.read_bytes())):
        assert list(file.tensors) == ["t1", "t4"]
        with pytest.raises(UnsupportedError, match="is number 2 of the 3 files of a split model"):
            ModelConfig.from_gguf(file)


@pytest.mark.parametrize(
    ("gone", "text"),
    [
        ([1], r"it is file 1 of 5 of a split model, but m-00002-of-00005\.gguf is missing"),
        ([1, 4], r"but m-00002-of-00005\.gguf, m-00005-of-00005\.gguf are missing"),
        ([1, 2, 3, 4], r"m-00004-of-00005\.gguf and 1 more are missing"),
    ],
)
def test_missing_parts_are_named(tmp_path: Path, gone: list[int], text: str) -> None:
    paths = write_parts(tmp_path, 5)
    for number in gone:
        paths[number].unlink()
    with pytest.raises(GGUFError, match=text) as caught:
        GGUFFile(paths[0])
    assert str(paths[0]) in str(caught.value)


@pytest.mark.parametrize(
    ("change", "which", "text"),
    [
        ({(1, "split.count"): 4}, 0, r"00002-of-00003\.gguf: .*'split\.count' must be 3, by the name .*, but is 4"),
        ({(1, "split.count"): None}, 0, r"00002-of-00003\.gguf: .*'split\.count' must be 3, .* but is None"),
        ({(2, "split.no"): 1}, 0, r"00003-of-00003\.gguf: .*'split\.no' must be 2, by the name .*, but is 1"),
        ({(2, "split.no"): "2"}, 0, r"00003-of-00003\.gguf: .*'split\.no' must be 2, by the name .*, but is None"),
        ({(0, "split.no"): 3}, 0, r"'split\.no' of one of 3 files must be from 0 to 2, but is 3"),
        ({(0, "split.no"): None}, 0, r"'split\.no' of one of 3 files must be from 0 to 2, but is None"),
        ({(0, "split.no"): 1}, 0, r"file 2 of 3 of a split model, so that its name must end with '-00002-of-00003"),
        ({(0, "split.count"): 65535}, 0, r"file 1 of 65535 .* its name must end with '-00001-of-65535\.gguf'"),
        ({(2, "split.tensors.count"): 8}, 1, r"00003-of-00003\.gguf: .*'split\.tensors\.count' must be 7, .* is 8"),
        (
            {(0, "split.tensors.count"): None},
            1,
            r"00001-of-00003\.gguf: .*'split\.tensors\.count' must be 7, .* is None",
        ),
    ],
)
def test_parts_agree(tmp_path: Path, change: dict[tuple[int, str], Any], which: int, text: str) -> None:
    paths = write_parts(tmp_path, change=change)
    with pytest.raises(GGUFError, match=text):
        GGUFFile(paths[which])


def test_names_say_which_part_it_is(tmp_path: Path) -> None:
    path = write_parts(tmp_path)[0].rename(tmp_path / "model.gguf")
    with pytest.raises(GGUFError, match=r"its name must end with '-00001-of-00003\.gguf'"):
        GGUFFile(path)


def test_parts_are_files_of_their_own(tmp_path: Path) -> None:
    paths = write_parts(tmp_path)
    content = paths[2].read_bytes()
    paths[2].write_bytes(content[:-40])
    with pytest.raises(GGUFError, match=r"00003-of-00003\.gguf"):
        GGUFFile(paths[0])
    paths[2].unlink()
    paths[2].mkdir()
    with pytest.raises(GGUFError, match=r"00003-of-00003\.gguf: .*a folder"):
        GGUFFile(paths[0])


def test_no_two_parts_have_the_same_tensor(tmp_path: Path) -> None:
    paths = write_parts(tmp_path, 2)
    more = {"split.no": np.uint16(1), "split.count": np.uint16(2), "split.tensors.count": np.int32(7)}
    write_gguf(paths[1], more, {"t0": TENSORS["t0"], "t1": TENSORS["t1"], "t3": TENSORS["t3"]})
    with pytest.raises(GGUFError, match=r"00002-of-00002\.gguf: .*'t0' is in m-00001-of-00002\.gguf, too"):
        GGUFFile(paths[0])


def test_tensors_of_all_parts_count(tmp_path: Path) -> None:
    paths = write_parts(tmp_path)
    with budget(tensors=7):
        assert len(GGUFFile(paths[0]).tensors) == 7
    with budget(tensors=6), pytest.raises(BudgetError, match="tensors"):
        GGUFFile(paths[0])


@pytest.mark.parametrize(
    ("header", "text"),
    [
        (b"GGUF\x01\0\0\0", "the version must be 2 or 3, but is 1 .GGUF v1 has counts of 32 bits"),
        (b"GGUF\0\0\0\x01", "but is 16777216 .a big-endian file of version 1"),
        (b"GGUF\0\0\0\x03", "but is 50331648 .a big-endian file of version 3"),
    ],
)
def test_other_versions_are_named(header: bytes, text: str) -> None:
    with pytest.raises(GGUFError, match=text):
        GGUFFile.from_bytes(header + bytes(16))
