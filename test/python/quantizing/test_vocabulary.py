# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Vocabularies of folders by the keys of files: the same tokens for texts, and those that files can't say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import folders
import numpy as np
import pytest
from test_json_section import t5, xlm
from test_json_tokenizer import SPECIAL, TEXTS, byte_level, pieces, read, unigram, write
from tokenizers import Regex, pre_tokenizers

from rlx_mlir.errors import UnsupportedError
from rlx_mlir.frontends.gguf import GGUFFile
from rlx_mlir.frontends.huggingface import FolderMetadata
from rlx_mlir.models.loading import load_model
from rlx_mlir.models.tokenizer import Tokenizer, TokenType
from rlx_mlir.quantizing import quantize
from rlx_mlir.quantizing.vocabulary import vocabulary_of

MORE = ("tabs\tand\n\nlines", "x = 'a' + \"b\"; // 3.14", "Ünïcödé 東京 🎉", "the the cat mat 1234567")


def of(folder: Path, rows: int = 0) -> dict[str, Any]:
    return vocabulary_of(FolderMetadata(folder, {}), rows, origin=str(folder))


def converted(scheme: str) -> dict[str, Any]:
    """As SentencePiece's vocabularies are converted: all pairs of tokens that make a token merge, the best tokens
    first, which those that were trained by merges don't have."""
    description: dict[str, Any] = json.loads(pieces(scheme).to_str())
    vocabulary = description["model"]["vocab"]
    order: dict[str, None] = dict.fromkeys(first + second for first, second in description["model"]["merges"])
    description["model"]["merges"] = [
        [token[:cut], token[cut:]]
        for token in order
        for cut in range(1, len(token))
        if token[:cut] in vocabulary and token[cut:] in vocabulary
    ]
    return description


@pytest.mark.parametrize("name", ["bytes", "first", "never", "normalizer", "gemma"])
def test_texts_have_the_same_tokens(tmp_path: Path, name: str) -> None:
    if name == "bytes":
        folder = write(tmp_path / "f", json.loads(byte_level().to_str()), bos_token="<s>")
    else:
        settings = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
        folder = write(tmp_path / "f", converted(name), **settings)
    own = read(folder)
    found = of(folder, own.vocab_size + 3)
    again = Tokenizer.from_metadata(found)
    spaced = name == "first"  # there, what begins with a space gets no other
    for text in (*TEXTS, *MORE):
        if spaced and text.startswith(" "):
            continue
        assert again.tokenize(text) == own.tokenize(text), text
        if name != "never":  # whose decoder takes a space away that nothing put there
            assert again.detokenize(again.tokenize(text)) == own.detokenize(own.tokenize(text))
    for text in SPECIAL[:2]:  # texts of users have no control token
        assert again.tokenize(text) == own.tokenize(text)
    assert (again.bos_id, again.eos_id, again.add_bos) == (own.bos_id, own.eos_id, own.add_bos)
    assert again.tokens[-3:] == [f"[PAD{index}]" for index in range(own.vocab_size, own.vocab_size + 3)]
    assert again.types[-3:] == [TokenType.UNUSED] * 3
    assert again.types[: own.vocab_size] == own.types
    if name == "bytes":
        assert (found["tokenizer.ggml.model"], found["tokenizer.ggml.pre"]) == ("gpt2", "llama-bpe")
    else:
        assert found["tokenizer.ggml.unknown_token_id"] == 0
        assert found["tokenizer.ggml.add_space_prefix"] == (name in ("first", "normalizer"))
        assert found["tokenizer.ggml.scores"].dtype == np.float32


@pytest.mark.parametrize("name", ["plain", "t5", "xlm"])
def test_unigrams_have_their_scores_and_their_table(tmp_path: Path, name: str) -> None:
    description = json.loads(unigram().to_str())
    if name != "plain":
        {"t5": t5, "xlm": xlm}[name](description)
    own = read(write(tmp_path / "f", description, bos_token="<s>"))
    found = of(tmp_path / "f", own.vocab_size + 3)
    again = Tokenizer.from_metadata(found)
    assert found["tokenizer.ggml.model"] == "t5"
    assert len(found["tokenizer.ggml.scores"]) == own.vocab_size + 3
    assert ("tokenizer.ggml.precompiled_charsmap" in found) == (name != "plain")
    assert found["tokenizer.ggml.remove_extra_whitespaces"] == (name != "plain")
    for text in (*TEXTS, *MORE, "\ufb01ne \uff21\uff22 \u00bd", "a  b", "x "):
        if name == "plain" and text.startswith(" "):
            continue  # files put a space in front of one, too
        assert again.tokenize(text) == own.tokenize(text), text


@pytest.mark.parametrize(
    ("step", "wanted"),
    [
        (pre_tokenizers.ByteLevel(False), "gpt-2"),
        (pre_tokenizers.Sequence([pre_tokenizers.Digits(True), pre_tokenizers.ByteLevel(False)]), "smollm"),
    ],
)
def test_names_of_pre_tokenizers(tmp_path: Path, step: Any, wanted: str) -> None:
    made = byte_level()
    made.pre_tokenizer = step
    description = json.loads(made.to_str())
    description["model"]["ignore_merges"] = False
    assert of(write(tmp_path / "f", description, bos_token="<s>"))["tokenizer.ggml.pre"] == wanted


def test_what_files_cannot_say(tmp_path: Path) -> None:
    description = json.loads(unigram().to_str())
    description["model"]["unk_id"] = None
    with pytest.raises(UnsupportedError, match=r"of unigrams, one is unknown \('unk_id'\)"):
        of(write(tmp_path / "u", description, bos_token="<s>"))
    made = byte_level()
    split = pre_tokenizers.Split(Regex(r"\p{L}|\P{L}+"), "isolated")
    made.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(False, use_regex=False)])
    with pytest.raises(UnsupportedError, match=r"that differ are, by pre llama-bpe: .Hello"):
        of(write(tmp_path / "b", json.loads(made.to_str()), bos_token="<s>"))


def test_a_folder_with_a_tokenizer_and_a_template(tmp_path: Path) -> None:
    folder = write(tmp_path / "f", converted("first"), bos_token="<s>", eos_token="</s>", chat_template="{{ 1 }}")
    folders.write(folder, "qwen2", folders.weights("qwen2", vocab=500), vocab_size=500)
    quantize(folder, tmp_path / "q.gguf", "f32")
    small: dict[str, Any] = {"activations": "exact", "context": 16, "chunk": 16, "cache": False}
    one, other = load_model(folder, **small), load_model(tmp_path / "q.gguf", **small)
    for text in ("a", "Hello world", *MORE):
        assert list(one.tokenize(text)) == list(other.tokenize(text))
    ids = one.tokenize("Hello world")
    np.testing.assert_allclose(one.logits(ids), other.logits(ids), rtol=1e-4, atol=1e-5)
    with GGUFFile(tmp_path / "q.gguf") as file:
        assert file.metadata["tokenizer.chat_template"] == "{{ 1 }}"
        assert len(file.metadata["tokenizer.ggml.tokens"]) == 500
