# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Importance matrices: mean squares against numpy, the two forms of files, and files that aren't any."""

from __future__ import annotations

import struct
from pathlib import Path

import folders
import numpy as np
import pytest
import tiny_models
from numpy_decoder import NumpyDecoder

from rlx_mlir.errors import GGUFError, InputError, ModelFileError
from rlx_mlir.formats import decode
from rlx_mlir.frontends.gguf import GGUFFile, write_gguf
from rlx_mlir.models.json_tokenizer import tokenizer_of
from rlx_mlir.quantizing import collect_importance, importance_of, quantize, read_importance

TEXT = "the cat sat on the mat hello world one two the cat sat on the mat hello world one two"


def norm(x: np.ndarray, gamma: np.ndarray) -> np.ndarray:
    return np.asarray(x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * gamma)


def test_mean_squares_of_the_first_layer(tiny_llama: Path) -> None:
    """Of runs of 8 tokens each, what is left of the text out."""
    with GGUFFile(tiny_llama) as file:
        told: list[tuple[int, int]] = []
        found = collect_importance(file, TEXT, length=8, progress=lambda *state: told.append(state))
        ids = np.array(tokenizer_of(file.metadata).tokenize(TEXT))
        table = file.dequantize("token_embd.weight").astype(np.float64)
        gamma = file.dequantize("blk.0.attn_norm.weight").astype(np.float64)
        names = {name for name, info in file.tensors.items() if name.startswith("blk.") and len(info.shape) == 2}
    runs = len(ids) // 8
    assert len(ids) % 8
    assert (found.chunks, told[0], told[-1]) == (runs, (0, runs), (runs, runs))
    wanted = (norm(table[ids[: runs * 8]], gamma) ** 2).mean(axis=0)
    for name in ("attn_q", "attn_k", "attn_v"):
        np.testing.assert_allclose(found.squares[f"blk.0.{name}.weight"][0], wanted, rtol=1e-4)
    assert found.squares.keys() == names
    assert all(np.isfinite(own).all() and own.min() >= 0 for own in found.squares.values())
    few = collect_importance(GGUFFile(tiny_llama), TEXT, length=8, chunks=1)
    np.testing.assert_allclose(
        few.squares["blk.0.attn_q.weight"][0], (norm(table[ids[:8]], gamma) ** 2).mean(axis=0), rtol=1e-4
    )


def test_what_a_matrix_multiplies_gives_what_follows_it(tmp_path: Path) -> None:
    """Of one token, an attention's result is its value, so that the squares of `attn_output` are those of v."""
    with GGUFFile(tiny_models.write(tmp_path / "m.gguf", types={"attn_v": "f32"})) as file:
        found = collect_importance(file, "the cat", length=1, chunks=1)
        index = tokenizer_of(file.metadata).tokenize("the cat")[0]
        n = norm(file.dequantize("token_embd.weight")[index], file.dequantize("blk.0.attn_norm.weight"))
        v = n @ file.dequantize("blk.0.attn_v.weight").T
    heads = np.repeat(v.reshape(2, 16), 2, axis=0).reshape(-1)  # two heads of queries share one of values
    np.testing.assert_allclose(found.squares["blk.0.attn_output.weight"][0], heads**2, rtol=1e-3)


def test_each_expert_has_its_own(tmp_path: Path) -> None:
    _, path = folders.write_both(tmp_path, "qwen3moe")
    with GGUFFile(path) as file:
        found = collect_importance(file, TEXT, length=16).squares
    up, gate = found["blk.0.ffn_up_exps.weight"], found["blk.0.ffn_gate_exps.weight"]
    assert up.shape == (6, 64)
    np.testing.assert_array_equal(up, gate)
    assert len({row.tobytes() for row in up}) > 1
    assert found["blk.0.ffn_down_exps.weight"].shape == (6, 32)
    assert found["blk.0.ffn_gate_inp.weight"].shape == (1, 64)


def test_a_text_makes_errors_smaller_that_count(tmp_path: Path) -> None:
    types = dict.fromkeys(("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"), "f32")
    model = tiny_models.write(tmp_path / "m.gguf", types=types)
    (tmp_path / "text.txt").write_text(TEXT)
    quantize(model, tmp_path / "plain.gguf", "q4_0")
    quantize(model, tmp_path / "weighted.gguf", "q4_0", importance=tmp_path / "text.txt")
    squares = collect_importance(GGUFFile(model), TEXT).squares
    for name in ("blk.0.attn_q.weight", "blk.1.ffn_up.weight"):
        exact = GGUFFile(model).dequantize(name)
        plain, weighted = (
            (squares[name] * (decode("q4_0", GGUFFile(tmp_path / file).tensor(name), 64) - exact) ** 2).sum()
            for file in ("plain.gguf", "weighted.gguf")
        )
        assert weighted < 0.95 * plain
    metadata = GGUFFile(tmp_path / "weighted.gguf").metadata
    assert metadata["quantize.imatrix.file"] == "text.txt"
    assert metadata["quantize.imatrix.entries_count"] == 14
    assert np.isfinite(NumpyDecoder(GGUFFile(tmp_path / "weighted.gguf")).logits([3, 4, 5])).all()


def dat(entries: dict[str, tuple[int, np.ndarray]], end: bytes = b"") -> bytes:
    found = struct.pack("<i", len(entries))
    for name, (calls, values) in entries.items():
        found += struct.pack("<i", len(name)) + name.encode() + struct.pack("<ii", calls, len(values))
        found += values.astype("<f4").tobytes()
    return found + end


def test_files_of_both_forms(tmp_path: Path) -> None:
    sums = np.arange(8, dtype=np.float32).reshape(2, 4) + 1
    path = tmp_path / "m.gguf"
    write_gguf(
        path,
        {"general.type": "imatrix", "imatrix.chunk_count": 5},
        {
            "blk.0.ffn_up_exps.weight.in_sum2": sums,
            "blk.0.ffn_up_exps.weight.counts": np.array([[2], [0]], np.float32),
            "blk.0.attn_q.weight.in_sum2": sums[:1],
            "blk.0.attn_q.weight.counts": np.array([[4]], np.float32),
        },
    )
    found = read_importance(path)
    assert (found.chunks, found.origin) == (5, str(path))
    np.testing.assert_array_equal(found.squares["blk.0.attn_q.weight"], sums[:1] / 4)
    np.testing.assert_array_equal(found.squares["blk.0.ffn_up_exps.weight"], [sums[0] / 2, np.ones(4)])
    old = tmp_path / "m.dat"
    old.write_bytes(dat({"blk.0.attn_q.weight": (4, sums[0])}, struct.pack("<ii", 7, 0)))
    again = read_importance(old)
    assert again.chunks == 7
    np.testing.assert_array_equal(again.squares["blk.0.attn_q.weight"], sums[:1] / 4)
    old.write_bytes(dat({"blk.0.attn_q.weight": (4, sums[0])}))
    assert read_importance(old).chunks == 0


def test_files_that_are_none(tiny_llama: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"its 'general\.type' must be 'imatrix', but is None"):
        read_importance(tiny_llama)
    path = tmp_path / "m.dat"
    whole = dat({"blk.0.attn_q.weight": (4, np.ones(4))})
    for size in (0, 3, 6, 20, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(ModelFileError, match=r"no importance matrix, or a part of one: at byte \d+"):
            read_importance(path)
    path.write_bytes(struct.pack("<iii", 1, -5, 7))
    with pytest.raises(ModelFileError, match="at byte 8, a name needs -5 bytes"):
        read_importance(path)
    (tmp_path / "b.gguf").write_bytes(b"GGUFxxxx")
    with pytest.raises(GGUFError):
        read_importance(tmp_path / "b.gguf")
    with GGUFFile(tiny_llama) as file:
        with pytest.raises(ModelFileError, match="the file is missing"):
            importance_of(tmp_path / "none.txt", file)
        (tmp_path / "short.txt").write_text("a")
        with pytest.raises(InputError, match=r"is of a text of two tokens at least, but short\.txt has 1"):
            importance_of(tmp_path / "short.txt", file)
