# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The reader of safetensors files: contents, element types, and files that are damaged."""

from __future__ import annotations

import json
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

from rlx_mlir.errors import ModelFileError, RlxError, SafetensorsError, UnsupportedError
from rlx_mlir.frontends.safetensors import SafetensorsFile

ARRAYS = {
    "a": np.arange(6, dtype=np.float32).reshape(2, 3),
    "half": np.array([1.5, -2], np.float16),
    "brain": np.array([0.5, 3], ml_dtypes.bfloat16),
    "double": np.array([1 / 3]),
    "ids": np.arange(4),
    "none": np.zeros((0, 5), np.float32),
    "number": np.array(7, np.float32),
}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with a tensor of each kind."""
    path = tmp_path_factory.mktemp("files") / "m.safetensors"
    save_file(ARRAYS, path, metadata={"format": "np"})
    return path


def test_contents(path: Path) -> None:
    file = SafetensorsFile(path)
    assert file.metadata == {"format": "np"}
    assert {name: (info.type, info.shape) for name, info in file.tensors.items()} == {
        "a": ("f32", (2, 3)),
        "half": ("f16", (2,)),
        "brain": ("bf16", (2,)),
        "double": ("f64", (1,)),
        "ids": ("i64", (4,)),
        "none": ("f32", (0, 5)),
        "number": ("f32", ()),
    }
    assert file.tensors["a"].size == 6
    for name, array in ARRAYS.items():
        found = file.tensor(name)
        assert found.dtype == array.dtype
        assert np.array_equal(found, array)


def test_floats(path: Path) -> None:
    file = SafetensorsFile(path)
    for name in ("a", "half", "brain", "double"):
        found = file.floats(name)
        assert found.dtype == np.float32
        assert np.array_equal(found, ARRAYS[name].astype(np.float32))
    with pytest.raises(UnsupportedError, match="tensor 'ids' must be of F64, F32, F16, BF16, but has element type i64"):
        file.floats("ids")


def test_unknown_tensors(path: Path) -> None:
    with pytest.raises(SafetensorsError, match=r"m\.safetensors: there is no tensor 'z'; the file has a"):
        SafetensorsFile(path).tensor("z")


def write(path: Path, header: object, data: bytes = b"") -> Path:
    """A file with any header."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return path


def test_element_types_that_numpy_lacks(tmp_path: Path) -> None:
    entry = {"dtype": "F8_E8M0", "shape": [4], "data_offsets": [0, 4]}
    file = SafetensorsFile(write(tmp_path / "m", {"x": entry}, bytes(4)))
    assert file.tensors["x"].type == "F8_E8M0"
    with pytest.raises(UnsupportedError, match="tensor 'x' has element type F8_E8M0, readable are F64, "):
        file.tensor("x")


F32 = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


@pytest.mark.parametrize(
    ("header", "data"),
    [
        (b"", b""),
        (b"{", b""),
        (b"[]", b""),
        (b'{"x": 1}', b""),
        ({"x": F32}, bytes(7)),
        ({"x": F32}, bytes(9)),
        ({"x": F32 | {"shape": [3]}}, bytes(8)),
        ({"x": F32 | {"dtype": "F33"}}, bytes(8)),
        ({"x": F32 | {"shape": [2**63, 2]}}, bytes(8)),
        ({"x": F32 | {"data_offsets": [8, 0]}}, bytes(8)),
        ({"x": F32, "y": F32}, bytes(8)),
    ],
)
def test_damaged_files(tmp_path: Path, header: object, data: bytes) -> None:
    path = write(tmp_path / "m.safetensors", header, data)
    with pytest.raises(SafetensorsError) as caught:
        SafetensorsFile(path)
    assert caught.value.path == str(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert isinstance(caught.value, ModelFileError | ValueError)


def test_what_is_no_file(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nothing"):
        with pytest.raises(SafetensorsError):
            SafetensorsFile(path)
    (tmp_path / "empty").write_bytes(b"")
    with pytest.raises(SafetensorsError):
        SafetensorsFile(tmp_path / "empty")


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_changed_bytes_raise_our_errors_only(tmp_path: Path, path: Path, data: st.DataObject) -> None:
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    damaged = tmp_path / "damaged"
    damaged.write_bytes(content[: data.draw(st.integers(0, len(content)))])
    try:
        file = SafetensorsFile(damaged)
        for name, info in file.tensors.items():
            assert file.tensor(name).shape == info.shape
    except RlxError:
        pass
