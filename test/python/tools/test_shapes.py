# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Models of given sizes with random weights: what is in the files, that they run, and how `rlx bench` keeps them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from interpreted import load_interpreted
from test_cli import rlx

from rlx_mlir import formats
from rlx_mlir.errors import InputError
from rlx_mlir.frontends.gguf import GGUFFile
from rlx_mlir.measure import shapes
from rlx_mlir.measure.shapes import MIXES, SIZES, Shape, named, shape_file, write_shape
from rlx_mlir.models.config import ModelConfig

#: Columns are those of one block of K-quants; layers as many as a mix needs to have layers of both kinds.
TINY = Shape("tiny", 4, 256, 512, 4, 2, 300, "q4_k_m", context=512)


@pytest.fixture(scope="module", autouse=True)
def _few_blocks() -> Iterator[None]:
    """Matrices of some thousand elements needn't be drawn from millions."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shapes, "_POOL", 1 << 17)
        yield


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_shape(tmp_path_factory.mktemp("shapes") / "tiny.gguf", TINY)


def test_a_file_is_the_shape(tiny: Path) -> None:
    with GGUFFile(tiny) as file:
        config = ModelConfig.from_gguf(file)
        assert (config.layers, config.hidden, config.ffn, config.vocab) == (4, 256, 512, 300)
        assert (config.heads, config.kv_heads, config.head_dim, config.context) == (4, 2, 64, 512)
        assert not config.tied_head
        matrices = {name: (info.type, info.shape) for name, info in file.tensors.items() if len(info.shape) == 2}
        assert matrices == TINY.matrices()
        assert sum(info.nbytes or 0 for info in file.tensors.values() if len(info.shape) == 2) == TINY.nbytes


def test_types_are_those_of_a_mix(tiny: Path) -> None:
    """Layer 2 of 4 is the third, 3 the last eighth: those have more bits in values and down projections."""
    with GGUFFile(tiny) as file:
        kinds = {name.removesuffix(".weight"): info.type for name, info in file.tensors.items()}
    assert kinds["output"] == "q6_k"
    assert kinds["token_embd"] == "q4_k"
    for layer, kind in enumerate(("q4_k", "q4_k", "q6_k", "q6_k")):
        assert kinds[f"blk.{layer}.attn_v"] == kinds[f"blk.{layer}.ffn_down"] == kind
        assert kinds[f"blk.{layer}.attn_q"] == kinds[f"blk.{layer}.ffn_up"] == "q4_k"
        assert kinds[f"blk.{layer}.ffn_norm"] == "f32"
    tied = replace(TINY, tied=True, mix="q4_0").matrices()
    assert tied["token_embd.weight"][0] == "q6_k"
    assert "output.weight" not in tied
    assert tied["blk.3.attn_v.weight"][0] == "q4_0"
    narrow = [replace(TINY, hidden=hidden).matrices()["blk.0.attn_q.weight"][0] for hidden in (288, 200)]
    assert narrow == ["q5_0", "f16"]  # rows that blocks of 256, or of 32, don't divide
    sensitive = [
        layer for layer in range(16) if named("1b-q4_k_m").matrices()[f"blk.{layer}.attn_v.weight"][0] == "q6_k"
    ]
    assert sensitive == [0, 1, 4, 7, 10, 13, 14, 15]


def test_elements_are_normal(tiny: Path) -> None:
    with GGUFFile(tiny) as file:
        for name, k in (("blk.0.ffn_down.weight", 512), ("blk.3.ffn_down.weight", 512), ("output.weight", 256)):
            values = file.dequantize(name)
            assert abs(values.std() * np.sqrt(k) - 1) < 0.02
            assert abs(values.mean() * np.sqrt(k)) < 0.02
        first, second = (file.dequantize(f"blk.{layer}.ffn_up.weight") for layer in (0, 1))
        assert abs(np.corrcoef(first.ravel(), second.ravel())[0, 1]) < 0.02


@pytest.mark.parametrize("mix", MIXES)
def test_it_runs(mix: str, tmp_path: Path) -> None:
    path = write_shape(tmp_path / "m.gguf", replace(TINY, mix=mix, tied=mix == "q4_0"))
    model = load_interpreted(path, context=64, chunk=16)
    logits = model.logits(list(range(3, 23)))
    assert np.isfinite(logits).all()
    assert 0.1 < logits.std() < 10
    assert len(model.generate("hello you", max_tokens=5, greedy=True, ignore_eos=True).read()) >= 5
    ids = model.tokenize("hello you", bos=False)
    assert model.detokenize(ids) == "hello you"
    assert len(ids) < len("hello you")


def test_weights_are_those_of_the_seed(tiny: Path, tmp_path: Path) -> None:
    again, other = (write_shape(tmp_path / f"{seed}.gguf", TINY, seed=seed) for seed in (0, 1))
    assert again.read_bytes() == tiny.read_bytes()
    with GGUFFile(tiny) as first, GGUFFile(other) as second:
        assert not np.array_equal(first.tensor("output.weight"), second.tensor("output.weight"))


def test_pieces_make_the_same_matrix(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A piece of one row is the smallest; what is drawn doesn't depend on where pieces end."""
    monkeypatch.setattr(shapes, "_PIECE", 1)
    told: list[str] = []
    assert write_shape(tmp_path / "m.gguf", TINY, progress=told.append).read_bytes() == tiny.read_bytes()
    assert told[-1].startswith("writing m.gguf, 100% of ")


def test_names() -> None:
    assert named("7B-q4_0") == replace(SIZES["7b"], name="7b-q4_0", mix="q4_0")
    assert named("1b-q4_k_m", 2).matrices().keys() < named("1b-q4_k_m").matrices().keys()
    assert named("1b-q4_k_m", 2).name == "1b-q4_k_m-2-layers"
    sizes = {name: round(named(name).nbytes / 2**30, 1) for name in ("1b-q4_k_m", "7b-q4_0", "8b-q4_k_m", "8x1b-q4_0")}
    assert sizes == {"1b-q4_k_m": 0.7, "7b-q4_0": 3.6, "8b-q4_k_m": 4.6, "8x1b-q4_0": 3.7}
    for name in ("7b", "9b-q4_0", "7b-q9", ""):
        with pytest.raises(InputError, match=rf"'shape' expects a size \(1b, 7b, 8b, 8x1b\).* but got '{name}'"):
            named(name)
    for layers in (0, 17):
        with pytest.raises(InputError, match=rf"'layers' must be from 1 to those of 1b-q4_0, 16, but is {layers}"):
            named("1b-q4_0", layers)


def test_what_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="'vocab' must be at least 259, the bytes and special tokens, but is 258"):
        write_shape(tmp_path / "m.gguf", replace(TINY, vocab=258))
    with pytest.raises(OSError, match="No such file"):
        write_shape(tmp_path / "no" / "m.gguf", TINY)
    monkeypatch.setattr("shutil.disk_usage", lambda folder: type("Usage", (), {"free": 1000}))
    with pytest.raises(InputError, match=r"needs 1\.\d MiB, but its disk has 1000 B left"):
        write_shape(tmp_path / "m.gguf", TINY)
    assert list(tmp_path.iterdir()) == []


def test_the_smallest_vocabulary(tmp_path: Path) -> None:
    with GGUFFile(write_shape(tmp_path / "m.gguf", replace(TINY, vocab=259, layers=1))) as file:
        assert file.metadata["tokenizer.ggml.merges"] == []
        assert file.metadata["tokenizer.ggml.tokens"][-1] == "<|eot_id|>"


def test_a_file_is_kept(tmp_path: Path) -> None:
    said: list[str] = []
    path = shape_file(TINY, tmp_path / "shapes", say=said.append, progress=None)
    assert len(said) == 1
    assert f"writing {path}: 1." in said[0]
    written = path.stat().st_mtime_ns
    assert shape_file(TINY, tmp_path / "shapes", say=said.append, progress=None) == path
    assert path.stat().st_mtime_ns == written
    shape_file(TINY, tmp_path / "shapes", seed=1, say=said.append, progress=None)
    assert len(said) == 2
    path.write_bytes(path.read_bytes()[:-1000])  # cut off
    shape_file(TINY, tmp_path / "shapes", seed=1, say=said.append, progress=None)
    assert len(said) == 3
    GGUFFile(path).close()


def test_pieces_that_do_not_fit(tmp_path: Path) -> None:
    from rlx_mlir.frontends.gguf import write_gguf

    rows = np.zeros((2, formats.get_format("q4_0").row_bytes(32)), np.uint8)
    write_gguf(tmp_path / "a.gguf", {}, {"w": ("q4_0", iter([rows[:1], rows[1:], rows[:0]]), (2, 32))})
    write_gguf(tmp_path / "b.gguf", {}, {"w": ("q4_0", rows, (2, 32))})
    assert (tmp_path / "a.gguf").read_bytes() == (tmp_path / "b.gguf").read_bytes()
    with pytest.raises(InputError, match=r"tensor 'w', q4_0 \[2, 32\], has 36 bytes, but 18 are given"):
        write_gguf(tmp_path / "c.gguf", {}, {"w": ("q4_0", iter([rows[:1]]), (2, 32))})


@pytest.mark.wide
def test_figures(fresh_cache: Path) -> None:
    """The line that the log of a change has: it says what was measured, and that one round is too few."""
    import figures

    found = figures.figures(replace(TINY, layers=1), threads=1, rounds=1, prompts=(4,))
    assert list(found["figures"]) == ["prefill 4", "decode"]
    for own in found["figures"].values():
        assert own["tokens_per_second"] > 0
        assert own["share"] > 0
        assert own["of"] in ("memory", "arithmetic")
        assert own["noise"] == "1 rounds are fewer than 3"
    assert json.loads(json.dumps(found))["layers"] == 1
    assert (fresh_cache / "shapes" / "tiny.gguf").exists()


@pytest.mark.wide
def test_bench_of_a_shape(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shapes, "SIZES", {"1b": TINY})
    monkeypatch.setenv("RLX_DEBUG", "")
    options = ("--shape", "1b-q4_k_m", "--layers", 1, "--folder", tmp_path, "--threads", 1, "--rounds", 1)
    options += ("--prompt", 8, "--decode", 2, "--context", "100", "--kv-cache", "f16", "--json")
    result = rlx("bench", *options)
    assert "random weights, kept for later runs" in result.stderr
    rows = [row for row in json.loads(result.stdout)["rows"] if row["vs"] is None]
    assert [row["what"] for row in rows] == ["prefill 8", "decode", "decode at 100"]
    assert {row["products"] for row in rows} == {"int8"}
    assert [path.name for path in tmp_path.iterdir()] == ["1b-q4_k_m-1-layers.gguf"]
