# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Encoders: numbers against numpy, padding, batches, pooling, tokenizers, and what is wrong with folders."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tiny_encoders
import tokenizers
from safetensors.numpy import load_file, save_file

import rlx_mlir as rlx
from rlx_mlir.errors import (
    BudgetError,
    ContextLengthError,
    InputError,
    ModelFileError,
    TokenizerError,
    UnsupportedError,
)
from rlx_mlir.models import encoder as graphs
from rlx_mlir.models import hub
from rlx_mlir.models.embedding import Encoder, load_encoder, open_weights
from rlx_mlir.models.encoder_config import EncoderConfig

TOLERANCE = 2e-5
LENGTHS = (1, 2, 17, 128)


def ids_of(lengths: Any, vocab: int = 20, seed: int = 3) -> list[list[int]]:
    """Random lists of ids."""
    rng = np.random.default_rng(seed)
    return [rng.integers(0, vocab, length).tolist() for length in lengths]


@pytest.fixture(scope="module", params=list(tiny_encoders.CONFIGS))
def tiny(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Encoder, Any, Any]:
    """An encoder of each architecture, its configuration, its tensors."""
    config = tiny_encoders.CONFIGS[request.param]
    arrays = tiny_encoders.tensors(config)
    folder = tiny_encoders.write(tmp_path_factory.mktemp(request.param), config, arrays)
    return load_encoder(folder, batch=8), config, arrays


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of a small BERT."""
    return tiny_encoders.write(tmp_path / "bert", tiny_encoders.BERT, tiny_encoders.tensors(tiny_encoders.BERT))


def read(folder: Path) -> EncoderConfig:
    return EncoderConfig.from_folder(folder, open_weights(folder))


def edit(path: Path, **entries: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | entries))


# Numbers ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch", [1, 3, 8])
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.quick(12)
def test_vectors_are_numpys(tiny: tuple[Encoder, Any, Any], batch: int, length: int) -> None:
    encoder, config, arrays = tiny
    ids = ids_of([length] * batch)
    found = encoder.embed_tokens(ids)
    expected = np.stack([tiny_encoders.embed(config, arrays, own) for own in ids])
    assert found.dtype == np.float32
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, atol=TOLERANCE)


def test_texts_of_many_lengths_keep_their_order(tiny: tuple[Encoder, Any, Any]) -> None:
    encoder, config, arrays = tiny
    ids = ids_of([5, 128, 1, 40, 2, 17, 90, 3, 3, 64, 11])  # more than one batch, none sorted
    expected = np.stack([tiny_encoders.embed(config, arrays, own) for own in ids])
    np.testing.assert_allclose(encoder.embed_tokens(ids), expected, atol=TOLERANCE)


def test_padding_changes_nothing(tiny: tuple[Encoder, Any, Any]) -> None:
    encoder, *_ = tiny
    ids = ids_of([3, 17, 128])
    together = encoder.embed_tokens(ids)
    alone = np.concatenate([encoder.embed_tokens([own]) for own in ids])
    np.testing.assert_allclose(together, alone, atol=1e-6)


def test_what_stands_in_the_padding_is_not_read(tiny: tuple[Encoder, Any, Any]) -> None:
    encoder, *_ = tiny
    tokens = np.array(ids_of([12]), np.int32)
    mask = (np.arange(12) < 7).astype(np.float32)[None]
    positions = np.arange(12, dtype=np.int32)[None] + encoder.config.first_position

    def run(tokens: np.ndarray, positions: np.ndarray) -> np.ndarray:
        inputs = {"tokens": tokens, "positions": positions, "mask": mask}
        return encoder._executable.run(inputs)["embeddings"]

    others, places = tokens.copy(), positions.copy()
    others[:, 7:], places[:, 7:] = 19 - tokens[:, 7:], 0
    assert np.array_equal(run(tokens, positions), run(others, places))
    others[:, 6] = 19 - tokens[:, 6]
    assert not np.array_equal(run(tokens, positions), run(others, places))


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("pooling", ["mean", "cls"])
@pytest.mark.quick(1)
def test_pooling(tmp_path: Path, pooling: str, normalize: bool) -> None:
    config, arrays = tiny_encoders.BERT, tiny_encoders.tensors(tiny_encoders.BERT)
    folder = tiny_encoders.write(tmp_path, config, arrays, pooling=pooling, normalize=normalize)
    ids = ids_of([9, 4])
    expected = [tiny_encoders.embed(config, arrays, own, pooling=pooling, normalize=normalize) for own in ids]
    np.testing.assert_allclose(load_encoder(folder).embed_tokens(ids), np.stack(expected), atol=TOLERANCE)


def test_without_the_files_of_sentence_transformers(folder: Path) -> None:
    (folder / "modules.json").unlink()
    config = read(folder)
    assert (config.pooling, config.normalize, config.max_tokens) == ("mean", False, 160)


@pytest.mark.parametrize("kind", [np.float16, ml_dtypes.bfloat16])
@pytest.mark.quick(1)
def test_narrow_weights_become_f32(folder: Path, kind: Any) -> None:
    arrays = {name: array.astype(kind) for name, array in tiny_encoders.tensors(tiny_encoders.BERT).items()}
    save_file(arrays, folder / "model.safetensors")
    ids = ids_of([6])
    expected = tiny_encoders.embed(tiny_encoders.BERT, arrays, ids[0])
    np.testing.assert_allclose(load_encoder(folder).embed_tokens(ids)[0], expected, atol=TOLERANCE)


def test_names_of_files_with_a_head(folder: Path) -> None:
    arrays = {f"bert.{name}": array for name, array in tiny_encoders.tensors(tiny_encoders.BERT).items()}
    save_file({**arrays, "cls.predictions.bias": np.zeros(20, np.float32)}, folder / "model.safetensors")
    assert read(folder).tensors["embeddings.LayerNorm.bias"] == "bert.embeddings.LayerNorm.bias"


def test_one_module_for_all_sizes(folder: Path) -> None:
    module = graphs.build(read(folder))
    assert module.dynamic_symbols == ("batch", "seq") or list(module.dynamic_symbols) == ["batch", "seq"]
    report = rlx.compile(module, maxima={"batch": 2, "seq": 16}).dispatch_report({"batch": 1, "seq": 8})
    assert "fused_residual_layer_norm" in str(report), "norms take the sums"
    assert "add_gelu" in str(report), "products take bias and gelu"


def test_the_description_decides_the_module(folder: Path) -> None:
    first, text = graphs.describe(read(folder)), graphs.build(read(folder)).to_text()
    edit(folder / "config.json", hidden_act="relu")
    assert graphs.describe(read(folder)) != first
    assert graphs.build(read(folder)).to_text() != text


# Texts --------------------------------------------------------------------------------------------


def test_word_pieces(folder: Path) -> None:
    encoder = load_encoder(folder)
    words = tiny_encoders.WORDS
    assert [words[i] for i in encoder.tokenize("The cats, É?")] == [
        "[CLS]",
        "the",
        "cat",
        "##s",
        ",",
        "[UNK]",
        "[UNK]",
        "[SEP]",
    ]
    assert encoder.tokenize("") == [2, 3]
    assert encoder.tokenizer.decode(encoder.tokenize("a mat")) == "a mat"


def test_a_tokenizers_own_padding_and_length_do_not_count(folder: Path) -> None:
    plain = load_encoder(folder)
    tokenizer = tokenizers.Tokenizer.from_str(plain.tokenizer._tokenizer.to_str())
    tokenizer.enable_padding(length=50)
    tokenizer.enable_truncation(4)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "vocab.txt").unlink()
    text = "the cat sat on the mat"
    assert load_encoder(folder).tokenize(text) == plain.tokenize(text)


@pytest.mark.wide
def test_long_texts(folder: Path) -> None:
    edit(folder / "config.json")
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 6}')
    encoder = load_encoder(folder)
    long = "the cat sat on the mat"
    assert len(encoder.tokenize(long)) == 6
    np.testing.assert_array_equal(encoder.embed(long), encoder.embed("the cat sat on"))
    with pytest.raises(ContextLengthError, match="text 1 has 8 tokens, but the encoder reads 6") as caught:
        encoder.embed(["a", long], truncate=False)
    assert (caught.value.requested, caught.value.limit) == (8, 6)
    assert load_encoder(folder, max_tokens=8).embed(long, truncate=False).shape == (1, 24)


def test_shapes_of_results(folder: Path) -> None:
    encoder = load_encoder(folder, batch=2)
    assert encoder.embed([]).shape == (0, 24)
    assert encoder.embed("a").shape == (1, 24)
    assert encoder.embed(["a", "", "the mat"]).shape == (3, 24)
    assert repr(encoder) == "Encoder(bert, 2 layers, 24 wide, 160 tokens, batch 2)"
    assert isinstance(encoder, rlx.Encoder)
    assert rlx.load_encoder is load_encoder


# Errors -------------------------------------------------------------------------------------------


def test_bad_arguments(folder: Path) -> None:
    encoder = load_encoder(folder)
    with pytest.raises(InputError, match="texts are a string or several, but got int"):
        encoder.embed(3)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="text 1 must be a string, but is of type int"):
        encoder.embed(["a", 3])  # type: ignore[list-item]
    with pytest.raises(InputError, match="list 0 must have 1 to 160 tokens, but has 0"):
        encoder.embed_tokens([[]])
    with pytest.raises(InputError, match="list 1 must have ids from 0 to 19, but has 20"):
        encoder.embed_tokens([[1], [20]])
    with pytest.raises(InputError, match="'batch' is a whole number of at least 1, but got 0"):
        load_encoder(folder, batch=0)
    for length in (0, True):
        with pytest.raises(InputError, match=f"'max_tokens' is a whole number of at least 1, but got {length}"):
            load_encoder(folder, max_tokens=length)
    with pytest.raises(InputError, match=r"'max_tokens' must be from 1 to the model's positions, 160, but .* 161"):
        load_encoder(folder, max_tokens=161)
    with pytest.raises(InputError, match="at least the special tokens, 2, but is 1"):
        load_encoder(folder, max_tokens=1)


@pytest.mark.parametrize(
    ("entries", "error", "message"),
    [
        ({"model_type": "t5"}, UnsupportedError, "architecture 't5' is not supported as an encoder, known are bert"),
        ({"position_embedding_type": "relative_key"}, UnsupportedError, "'position_embedding_type' = 'relative_key'"),
        ({"is_decoder": True}, UnsupportedError, "'is_decoder' = True"),
        ({"hidden_act": "mish"}, UnsupportedError, "'hidden_act' is 'mish', but supported are gelu"),
        ({"num_hidden_layers": "2"}, ModelFileError, "'num_hidden_layers' must be of type int, but is '2'"),
        ({"num_hidden_layers": 0}, ModelFileError, r"'num_hidden_layers' must be an integer from 1 to 2\^31 - 1"),
        ({"num_hidden_layers": 10**6}, ModelFileError, "1000000 layers must have tensors"),
        ({"num_attention_heads": 5}, ModelFileError, "'hidden_size' must be a multiple of the heads, 5, but is 24"),
        ({"layer_norm_eps": 0}, ModelFileError, "'layer_norm_eps' must be a finite number above 0, but is 0"),
        (
            {"intermediate_size": 41},
            ModelFileError,
            r"intermediate.dense.weight' must be \[41, 24\], but is \[40, 24\]",
        ),
        ({"num_hidden_layers": 3}, ModelFileError, "missing tensors: 'encoder.layer.2.attention.self.query.weight'"),
        ({"num_hidden_layers": 1}, UnsupportedError, "has no use for these tensors, .*'encoder.layer.1."),
    ],
)
def test_configurations(folder: Path, entries: dict[str, Any], error: type[Exception], message: str) -> None:
    edit(folder / "config.json", **entries)
    with pytest.raises(error, match=message) as caught:
        load_encoder(folder)
    assert str(folder) in str(caught.value)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("config.json", None, "the file is missing; an encoder is a folder that has it"),
        ("config.json", "{", r"config\.json: byte 1: not JSON"),
        ("config.json", "[" * 100_000, r"config\.json needs 100,000, but the budget 'nesting'"),
        ("config.json", "[]", "must hold a JSON object"),
        ("model.safetensors", None, "the file is missing"),
        ("modules.json", "[]", "modules must be Transformer, Pooling and maybe Normalize, but are none"),
        ("modules.json", "{}", "must list modules with 'type' and 'path', but holds {}"),
        ("modules.json", '[{"path": ""}]', "must list modules with 'type' and 'path'"),
        ("1_Pooling/config.json", '{"pooling_mode_max_tokens": true}', "but is pooling_mode_max_tokens"),
        ("sentence_bert_config.json", '{"max_seq_length": 1.5}', "'max_seq_length' must be of type int"),
        ("vocab.txt", None, "there is neither a tokenizer.json nor a vocab.txt"),
        ("vocab.txt", "a\nb", "has \\[UNK\\], \\[CLS\\] and \\[SEP\\], but lacks"),
        ("tokenizer.json", "{}", "tokenizer.json: "),
        ("tokenizer_config.json", "[]", "the file must hold a JSON object"),
    ],
)
def test_files(folder: Path, name: str, content: str | None, message: str) -> None:
    path = folder / name
    if content is None:
        path.unlink()
    else:
        path.write_text(content)
    with pytest.raises((ModelFileError, UnsupportedError, TokenizerError, BudgetError), match=message):
        load_encoder(folder)


def test_tensors_of_integers(folder: Path) -> None:
    arrays: dict[str, np.ndarray] = dict(load_file(folder / "model.safetensors"))
    name = "encoder.layer.0.output.dense.bias"
    save_file({**arrays, name: arrays[name].astype(np.int32)}, folder / "model.safetensors")
    with pytest.raises(UnsupportedError, match=f"'{name}' is i32; supported are F64, F32, F16, BF16"):
        load_encoder(folder)


def test_a_tokenizer_of_another_model(folder: Path) -> None:
    with (folder / "vocab.txt").open("a") as file:
        file.write("\nfour\nmore\npieces\n!!")
    with pytest.raises(TokenizerError, match="the model has 20 token ids, but the tokenizer 22"):
        load_encoder(folder)


def test_folders_and_names(folder: Path) -> None:
    assert hub.resolve_folder(folder) == folder
    with pytest.raises(InputError, match=r"is neither a folder nor a known encoder; .* one of: minilm"):
        hub.resolve_folder("nothing")
    with pytest.raises(InputError, match="is no folder"):
        hub.resolve_folder(folder / "config.json")
    with pytest.raises(InputError, match=r"'minilm' is an encoder, .* use load_encoder, or rlx embed"):
        hub.resolve("minilm")


# MiniLM -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def minilm() -> Path:
    """The folder of MiniLM, where it is on this machine."""
    try:
        return hub.resolve_folder("minilm", download=False)
    except rlx.errors.DownloadError:
        pytest.skip("MiniLM isn't on this machine")


def test_minilm_is_numpys(minilm: Path) -> None:
    encoder = load_encoder("minilm")
    config = json.loads((minilm / "config.json").read_text())
    arrays = load_file(minilm / "model.safetensors")
    texts = ["A man is eating food.", "hello", "The quick brown fox jumps over the lazy dog. " * 3]
    found = encoder.embed(texts)
    expected = [tiny_encoders.embed(config, arrays, encoder.tokenize(text)) for text in texts]
    np.testing.assert_allclose(found, np.stack(expected), atol=2e-6)


def test_minilm_knows_what_is_alike(minilm: Path) -> None:
    vectors = load_encoder(minilm).embed(
        ["A man is eating food.", "A man is eating a piece of bread.", "The girl is carrying a baby."]
    )
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    # The figure that the model's own documentation has for the first two.
    np.testing.assert_allclose(vectors[0] @ vectors[1], 0.7553, atol=1e-4)
    assert vectors[0] @ vectors[2] < 0


def test_minilm_in_the_cache(minilm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLX_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(hub, "_locate", lambda part: None)
    with pytest.raises(rlx.errors.DownloadError, match="all-MiniLM-L6-v2 is neither installed nor"):
        hub.resolve_folder("minilm", download=False)
    cached = tmp_path / "models" / "all-MiniLM-L6-v2"
    for source in hub.ENCODERS["minilm"].files:
        path = tmp_path / "models" / source.filename
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(minilm / path.relative_to(cached), path)
    assert hub.resolve_folder("minilm", download=False) == cached
