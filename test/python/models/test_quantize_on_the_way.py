# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Weights that are quantised while a model is loaded: the model of the file with those weights, kept in the cache."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import folders
import numpy as np
import pytest
import tiny_models

from rlx_mlir.errors import GGUFError, InputError
from rlx_mlir.formats import encode
from rlx_mlir.formats.pieces import encoded_pieces
from rlx_mlir.frontends.gguf import GGUFFile, write_gguf
from rlx_mlir.frontends.huggingface import HuggingFaceFolder
from rlx_mlir.models import quantised as module
from rlx_mlir.models.config import ModelConfig
from rlx_mlir.models.loading import load_model
from rlx_mlir.models.quantised import QuantisedFile, quantised, quantised_type

IDS = [int(i) for i in np.random.default_rng(7).integers(0, 300, 20)]
SMALL: dict[str, Any] = {"activations": "exact", "context": 32, "chunk": 16}


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RLX_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_the_type_of_a_matrix() -> None:
    """Where rows aren't a multiple of the blocks, a wider type with blocks of 32; else it stays."""
    found = [quantised_type("q4_k", k) for k in (256, 512, 255, 257, 32, 96, 31, 33, 1)]
    assert found == ["q4_k", "q4_k", None, None, "q5_0", "q5_0", None, None, None]
    assert [quantised_type(kind, 32) for kind in ("q2_k", "q3_k", "q5_k", "q6_k", "tq2_0", "q8_0", "f16")] == [
        *("q4_0", "q4_0", "q5_1", "q8_0", "q4_0", "q8_0", "f16")
    ]


def quantise(path: Path, kind: str, **options: Any) -> tuple[Any, ModelConfig]:
    file: Any = HuggingFaceFolder(path) if path.is_dir() else GGUFFile(path)
    return quantised(file, ModelConfig.from_gguf(file), kind, **options)


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("architecture", ["phi3", "qwen3moe"])
def test_weights_are_those_of_the_encoder(tmp_path: Path, architecture: str, dtype: str) -> None:
    """All matrices, those of experts too, but not what chooses them; tensors that hold several are cut before."""
    folder, path = folders.write_both(tmp_path, architecture, dtype)
    plain = ModelConfig.from_gguf(GGUFFile(path))
    for own in (folder, path):
        file, config = quantise(own, "q4_k")  # rows of 64, 96 and 32
        assert config.weights.keys() == plain.weights.keys()
        source = GGUFFile(path)
        for name, info in config.weights.items():
            values = source.read(plain.weights[name])
            if values.ndim == 1 or name.endswith("ffn_gate_inp.weight"):
                np.testing.assert_array_equal(file.read(info), values)
                continue
            assert (info.type, info.shape) == ("q5_0", values.shape)
            rows = values.astype(np.float32).reshape(-1, info.k)
            np.testing.assert_array_equal(file.read(info), encode("q5_0", rows))


@pytest.mark.parametrize("architecture", ["llama", "gemma2"])
@pytest.mark.usefixtures("interpreted")
def test_logits_are_those_of_a_quantised_file(tmp_path: Path, architecture: str) -> None:
    folder, path = folders.write_both(tmp_path, architecture)
    tensors: dict[str, Any] = {}
    with GGUFFile(path) as file:
        for name, info in file.tensors.items():
            values = np.array(file.tensor(name))
            tensors[name] = ("q8_0", encode("q8_0", values), info.shape) if values.ndim == 2 else values
    stored = write_gguf(tmp_path / "q.gguf", tiny_models.metadata(architecture), tensors)
    wanted = load_model(stored, **SMALL).logits(IDS)
    np.testing.assert_array_equal(load_model(path, quantize="q8_0", **SMALL).logits(IDS), wanted)
    found = load_model(folder, quantize="q8_0", **SMALL).logits(IDS)
    np.testing.assert_allclose(found, wanted, rtol=2e-4, atol=2e-4)  # rows of LLaMA's are in another order
    assert not np.array_equal(load_model(folder, **SMALL).logits(IDS), found)


def test_weights_are_kept(tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One file for a model and a type; another one where the model is."""
    encoded: list[str] = []

    def counting(kind: str, *given: Any, **options: Any) -> Iterator[np.ndarray]:
        encoded.append(kind)
        return encoded_pieces(kind, *given, **options)

    monkeypatch.setattr(module, "encoded_pieces", counting)

    def files() -> list[Path]:
        return sorted((own_cache / "models" / "quantised").glob("*"))

    folder = folders.write(tmp_path / "f", "qwen2", folders.weights("qwen2"))
    file, _ = quantise(folder, "q4_0")
    count = len(encoded)
    assert count > 0
    assert isinstance(file, QuantisedFile)
    assert file.path == str(folder)
    assert "tokenizer.ggml.tokens" not in file.metadata
    (first,) = files()
    again, _ = quantise(folder, "q4_0")
    assert len(encoded) == count
    assert again.fingerprint() == file.fingerprint()
    quantise(folder, "q8_0")
    assert len(files()) == 2
    folders.write(folder, "qwen2", folders.weights("qwen2", seed=1))
    changed, _ = quantise(folder, "q4_0")
    assert len(files()) == 2
    assert first not in files()
    assert changed.fingerprint() != file.fingerprint()
    wanted = changed.fingerprint()
    for path in files():  # what is damaged is made again
        content = path.read_bytes()[:1000]
        path.unlink()  # the old one stays mapped
        path.write_bytes(content)
    assert quantise(folder, "q4_0")[0].fingerprint() == wanted
    count = len(encoded)
    without, config = quantise(folder, "q4_0", cache=False)
    assert len(encoded) > count
    assert without.fingerprint() == wanted
    assert without.statuses == {}
    assert without.read(config.weights["blk.0.attn_q.weight"]).size


def test_what_is_quantised_already_stays(tmp_path: Path, own_cache: Path) -> None:
    types = dict.fromkeys(("token_embd", "attn_v"), "q8_0")
    path = tiny_models.write(tmp_path / "m.gguf", types=types)
    file, config = quantise(path, "q4_k")
    assert isinstance(file, GGUFFile)
    assert {config.weights[f"blk.0.{name}.weight"].type for name in ("attn_q", "attn_v")} == {"q4_1", "q8_0"}
    assert not (own_cache / "models").exists()


def test_what_is_wrong_is_named(tmp_path: Path) -> None:
    path = folders.write(tmp_path / "f", "qwen2", folders.weights("qwen2"))
    with pytest.raises(InputError, match=r"'quantize' must be one of .*q4_k.*, but is 'q4_z'"):
        load_model(path, quantize="q4_z")
    with pytest.raises(InputError, match="'quantize' can't be 'iq2_xs', which needs an importance matrix"):
        load_model(path, quantize="iq2_xs")
    tensors = folders.weights("qwen2")
    name = "blk.1.ffn_up.weight"
    for value, error, message in (
        (np.nan, GGUFError, r"must have finite elements, but that of row 3, column 5"),
        (1e38, InputError, rf"tensor '{name}' can't be quantised to q8_0: "),
    ):
        tensors[name][3, 5] = value
        folders.write(path, "qwen2", tensors)
        with pytest.raises(error, match=message):
            load_model(path, quantize="q8_0")
    tensors[name][3, 5] = np.nan
    folders.write(path, "qwen2", tensors)
    file, config = quantise(path, "q8_0", nonfinite="zero")
    tensors[name][3, 5] = 0
    np.testing.assert_array_equal(file.read(config.weights[name]), encode("q8_0", tensors[name]))
