# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Weights that are NaN or infinite: found, named, or read as 0."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_models
from interpreted import compile_interpreted
from typer.testing import CliRunner

from rlx_mlir import formats
from rlx_mlir.errors import GGUFError, InputError
from rlx_mlir.formats.finite import count_broken, first_broken, without_broken
from rlx_mlir.frontends.gguf import GGUFFile, write_gguf
from rlx_mlir.models import compiling
from rlx_mlir.models.loading import load_model
from rlx_mlir.models.model import Model
from rlx_mlir.tools.cli import app

BLOCKS = [name for name, fmt in formats.FORMATS.items() if fmt.has_blocks]
DENSE = ("f32", "f16", "bf16", "f64")


FLOATS = ("<f2", "<f4", "e8m0")


def floats_of(name: str) -> list[str]:
    """Those that may be no numbers; that of iq1_m is in four pieces."""
    return ["word"] if name == "iq1_m" else [f.name for f in formats.get_format(name).fields if f.dtype in FLOATS]


def place(name: str, rows: np.ndarray, field: str, row: int, block: int, value: float) -> None:
    """Sets a float of a block; one of 8 bits has one number that is none."""
    fmt = formats.get_format(name)
    if field == "word":
        start = block * fmt.nbytes + fmt.field("scales").offset
        (bits,) = np.array([value], "<f2").view("<u2").tolist()
        for i in range(4):
            byte = rows[row, start + 2 * i + 1] & 15
            rows[row, start + 2 * i + 1] = byte | (bits >> 4 * i & 15) << 4
        return
    own = fmt.field(field)
    if own.dtype == "e8m0":
        rows[row, block * fmt.nbytes + own.offset] = 126 if np.isfinite(value) else 255
        return
    raw = np.array([value], own.dtype).view(np.uint8)
    start = block * fmt.nbytes + own.offset
    rows[row, start : start + len(raw)] = raw


@pytest.mark.parametrize("value", [np.nan, -np.inf, np.inf])
@pytest.mark.parametrize(("name", "field"), [(name, field) for name in BLOCKS for field in floats_of(name)])
def test_scales_are_found(name: str, field: str, value: float) -> None:
    """Whatever else the bytes are."""
    fmt = formats.get_format(name)
    k = 3 * fmt.block
    rows = np.random.default_rng(0).integers(0, 256, (7, fmt.row_bytes(k)), np.uint8)
    for own in floats_of(name):
        for row, block in np.ndindex(7, 3):
            place(name, rows, own, row, block, 0.5)
    assert first_broken(name, rows, k) is None
    assert count_broken(name, rows, k) == 0
    before = formats.decode(name, rows, k)
    place(name, rows, field, 5, 1, value)
    place(name, rows, field, 6, 0, value)
    assert first_broken(name, rows, k) == (5, 1)
    assert count_broken(name, rows, k) == 2
    before[5, fmt.block : 2 * fmt.block] = before[6, : fmt.block] = 0
    np.testing.assert_array_equal(formats.decode(name, without_broken(name, rows, k), k), before)


@pytest.mark.parametrize("value", [np.nan, -np.inf])
@pytest.mark.parametrize("name", DENSE)
def test_elements_are_found(name: str, value: float) -> None:
    dtype = formats.get_format(name).dense
    values = np.full((5, 3), np.finfo(np.float16).max, np.float32).astype(dtype)
    assert first_broken(name, values, 3) is None
    values[3, 2] = value
    assert first_broken(name, values, 3) == (3, 2)
    clean = without_broken(name, values, 3)
    assert clean[3, 2] == 0
    assert np.isfinite(clean.astype(np.float64)).all()
    assert count_broken(name, values, 3) == 1


def test_rows_are_found_in_any_part(monkeypatch: pytest.MonkeyPatch) -> None:
    from rlx_mlir.formats import finite

    monkeypatch.setattr(finite, "CHUNK", 8)
    values = np.zeros((50, 4), np.float32)
    for row in (49, 30, 3):
        values[row, 1] = np.nan
        assert first_broken("f32", values, 4) == (row, 1)
    assert count_broken("f32", values, 4) == 3


def broken_q6_k() -> dict[str, Any]:
    """Tensors with a block of q6_k whose scale is NaN, and nothing else in it."""
    tensors = tiny_models.tensors({"ffn_down": "q6_k"}, ffn=256)
    kind, rows, shape = tensors["blk.1.ffn_down.weight"]
    rows[17] = 0
    place(kind, rows, "d", 17, 0, np.nan)
    return {**tensors, "blk.1.ffn_down.weight": (kind, rows, shape)}


def broken_norm() -> dict[str, Any]:
    tensors = tiny_models.tensors(ffn=256)
    tensors["blk.0.attn_norm.weight"][5] = np.nan
    return tensors


def broken_matrix() -> dict[str, Any]:
    tensors = tiny_models.tensors(ffn=256)
    tensors["blk.0.attn_v.weight"][3, 9] = np.inf
    return tensors


CASES = {
    "block": (
        broken_q6_k,
        r"tensor 'blk\.1\.ffn_down\.weight', q6_k, must have finite scales, but row 17, block 0 has one that isn't",
    ),
    "vector": (
        broken_norm,
        r"tensor 'blk\.0\.attn_norm\.weight', f32, must have finite elements, but that of row 0, column 5 isn't",
    ),
    "matrix": (
        broken_matrix,
        r"tensor 'blk\.0\.attn_v\.weight', f32, must have finite elements, but that of row 3, column 9 isn't",
    ),
}


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, str]:
    make, message = CASES[request.param]
    return write_gguf(tmp_path / "m.gguf", tiny_models.metadata(feed_forward_length=256), make()), message


def load(path: Path, monkeypatch: pytest.MonkeyPatch, **options: Any) -> Model:
    monkeypatch.setattr(compiling, "compile_program", compile_interpreted)
    return load_model(path, context=64, **options)


def test_loading_names_tensor_and_row(case: tuple[Path, str], monkeypatch: pytest.MonkeyPatch) -> None:
    path, message = case
    with pytest.raises(GGUFError, match=rf"{message}; nonfinite='zero'") as caught:
        load(path, monkeypatch)
    assert caught.value.offset is not None
    raw = path.read_bytes()[caught.value.offset :]
    assert len(raw) > 4


def test_they_are_read_as_0(case: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As by a file that has zeros there."""
    path, _ = case
    file = GGUFFile(path)
    tensors = {}
    for name, info in file.tensors.items():
        clean = without_broken(info.type, file.tensor(name).reshape(info.rows, -1).view(np.uint8), info.k)
        tensors[name] = (info.type, clean, info.shape)
    metadata = tiny_models.metadata(feed_forward_length=256)
    expected = load(write_gguf(tmp_path / "clean.gguf", metadata, tensors), monkeypatch).logits([5, 6, 7])
    found = load(path, monkeypatch, nonfinite="zero").logits([5, 6, 7])
    assert np.isfinite(found).all()
    np.testing.assert_array_equal(found, expected)


def test_choices_are_checked(tiny_llama: Path) -> None:
    with pytest.raises(InputError, match="'nonfinite' must be one of refuse, zero, but is 'ignore'"):
        load_model(tiny_llama, nonfinite="ignore")


def test_inspect_verifies(case: tuple[Path, str], tiny_llama: Path) -> None:
    path, message = case
    for command, status in ((["inspect", str(path)], 0), (["inspect", str(path), "--verify"], 1)):
        done = CliRunner().invoke(app, command)
        assert done.exit_code == status
    assert f"no: {message}".replace("\\", "") in done.output
    assert "weights       not finite in 1 tensors" in done.output
    assert ": 1 in all" in done.output
    found = json.loads(CliRunner().invoke(app, ["inspect", str(path), "--verify", "--json"]).output)
    assert [row["count"] for row in found["broken"]] == [1]
    done = CliRunner().invoke(app, ["inspect", str(tiny_llama), "--verify"])
    assert (done.exit_code, "weights       all finite" in done.output) == (0, True)


def test_factors_of_frequencies_are_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """0 divides frequencies to infinity."""
    tensors = {**tiny_models.tensors(), "rope_freqs.weight": np.array([1, 1, 0, 1, 1, 1, 1, 1], np.float32)}
    path = write_gguf(tmp_path / "m.gguf", tiny_models.metadata(), tensors)
    with pytest.raises(GGUFError, match=r"'rope_freqs\.weight' must divide the frequencies .* but goes down to 0\.0"):
        load(path, monkeypatch)
