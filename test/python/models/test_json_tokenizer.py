# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tokenizers of folders: ids and texts are those of the library, but that a text can't contain a control token."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import folders
import pytest
import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors, trainers

from rlx_mlir.errors import RlxError, TokenizerError, UnsupportedError
from rlx_mlir.frontends.huggingface import FolderMetadata
from rlx_mlir.models.json_tokenizer import tokenizer_of
from rlx_mlir.models.loading import load_model
from rlx_mlir.models.tokenizer import Tokenizer, TokenType

CORPUS = [
    "Hello world, the cat sat on the mat. 12345 don't stop!",
    "Grüße aus Köln — 你好世界 🙂",
    "def f(x):\n    return x*2\n\n\tif a == b:\r\n",
] * 5
TEXTS = ["", "a", " a", "Hello world", "  two  spaces ", "Grüße 你好 🙂\n\nx", "don't 12345", "\t\r\n", "<0x0A>"]
SPECIAL = ["<s>hi</s>", "<s>x<|end|>\n y<|user|>", "<tool>call<tool>", "<unk>", " <s> a"]
_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def byte_level() -> Any:
    """As LLaMA 3's: special tokens behind the vocabulary, one of which takes the blanks behind it."""
    made = tokenizers.Tokenizer(models.BPE(ignore_merges=True))
    split = pre_tokenizers.Split(Regex(_WORDS), "isolated")
    made.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(False, use_regex=False)])
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    made.train_from_iterator(
        CORPUS, trainers.BpeTrainer(vocab_size=330, initial_alphabet=alphabet, show_progress=False)
    )
    made.add_special_tokens([AddedToken("<s>"), AddedToken("<|end|>", rstrip=True), AddedToken("<|user|>")])
    made.add_tokens([AddedToken("<tool>")])
    return beginning(made)


def pieces(scheme: str) -> Any:
    """As SentencePiece's, with bytes; ``scheme`` says how texts begin."""
    made = tokenizers.Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    if scheme == "normalizer":
        made.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    elif scheme == "gemma":
        made.normalizer = normalizers.Replace(" ", "▁")
    else:
        made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme, split=False)
    numbers = [f"<0x{number:02X}>" for number in range(256)]
    first = ["<unk>", "<s>", "</s>", *numbers]
    made.train_from_iterator(
        CORPUS, trainers.BpeTrainer(vocab_size=400, special_tokens=first, show_progress=False, limit_alphabet=60)
    )
    description = json.loads(made.to_str())
    description["added_tokens"] = description["added_tokens"][:3]  # bytes are plain tokens
    made = tokenizers.Tokenizer.from_str(json.dumps(description))
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    made.decoder = decoders.Sequence(steps + ([] if scheme == "gemma" else [decoders.Strip(" ", 1, 0)]))
    made.add_tokens([AddedToken("<tool>")])
    return beginning(made)


def unigram() -> Any:
    made = tokenizers.Tokenizer(models.Unigram())
    made.pre_tokenizer, made.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=200, special_tokens=["<unk>", "<s>", "</s>"], unk_token="<unk>", show_progress=False
    )
    made.train_from_iterator(CORPUS, trainer)
    return made


def beginning(made: Any) -> Any:
    own = [("<s>", made.token_to_id("<s>"))]
    made.post_processor = processors.TemplateProcessing("<s> $A", "<s> $A $B:1", own)
    return made


MADE: dict[str, Callable[[], Any]] = {
    "byte-level": byte_level,
    "normalizer": lambda: pieces("normalizer"),
    "gemma": lambda: pieces("gemma"),
    "first": lambda: pieces("first"),
    "always": lambda: pieces("always"),
    "never": lambda: pieces("never"),
    "unigram": unigram,
}


def write(folder: Path, description: dict[str, Any], **settings: Any) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "tokenizer.json").write_text(json.dumps(description))
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder


def read(folder: Path) -> Tokenizer:
    return tokenizer_of(FolderMetadata(folder, {}), origin=str(folder))


@pytest.mark.parametrize("name", MADE)
def test_ids_and_texts_are_those_of_the_library(tmp_path: Path, name: str) -> None:
    made = MADE[name]()
    own = read(write(tmp_path / "f", json.loads(made.to_str()), bos_token="<s>"))
    controls = {index for index, kind in enumerate(own.types) if kind == TokenType.CONTROL}
    assert own.vocab_size == made.get_vocab_size()
    assert own.add_bos == (name != "unigram")
    for text in (*TEXTS, *SPECIAL):
        assert own.tokenize(text, special=True) == made.encode(text).ids, text
        ids = own.tokenize(text, bos=False)
        assert not controls & set(ids) - {made.token_to_id("<unk>")}, text
        if text in TEXTS:
            assert ids == made.encode(text, add_special_tokens=False).ids
            if name != "unigram":  # which lacks some letters
                assert own.detokenize(ids) == made.decode(ids), text
            if name in ("byte-level", "gemma"):  # others don't tell a text from one with a space before
                assert own.detokenize(ids) == text, text
            stream = own.stream()
            streamed = "".join(map(stream.push, ids)) + stream.flush()
            assert streamed.removeprefix(" " if own.add_space_prefix else "") == own.detokenize(ids)


def test_a_control_token_in_the_vocabulary_is_not_found(tmp_path: Path) -> None:
    """Not even where merges give it."""
    description = json.loads(byte_level().to_str())
    vocabulary, merges = description["model"]["vocab"], description["model"]["merges"]
    vocabulary |= {"<t": len(vocabulary) + 4, "<to": len(vocabulary) + 5}
    merges += [["<", "t"], ["<t", "o"]]
    count = len(vocabulary)
    for number, token in enumerate(description["added_tokens"]):
        token["id"] = count + number
    description["added_tokens"] += [
        {
            "id": vocabulary["<to"],
            "content": "<to",
            "special": True,
            "normalized": False,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
        }
    ]
    description["model"]["vocab"] = dict(sorted(vocabulary.items(), key=lambda own: own[1]))
    for number, text in enumerate(description["model"]["vocab"]):
        description["model"]["vocab"][text] = number
    description["added_tokens"][-1]["id"] = description["model"]["vocab"]["<to"]
    description["post_processor"] = None
    own = read(write(tmp_path / "f", description))
    assert own.tokenize("<to", special=True) == [own.tokens.index("<to")]
    assert own.tokenize("<to") == [own.tokens.index("<t"), own.tokens.index("o")]


def test_special_ids(tmp_path: Path) -> None:
    description = json.loads(pieces("first").to_str())
    folder = write(tmp_path / "f", description, bos_token={"content": "<s>"}, eos_token="</s>", add_bos_token=False)
    (folder / "generation_config.json").write_text('{"eos_token_id": [2, 7, 100000]}')
    own = read(folder)
    assert (own.bos_id, own.eos_id, own.add_bos) == (1, 2, False)
    assert own.stop_ids == {2, 7}  # 100000 is no token
    folder = write(tmp_path / "g", description)
    (folder / "config.json").write_text('{"bos_token_id": 1, "eos_token_id": 2}')
    assert (read(folder).bos_id, read(folder).eos_id) == (1, 2)


def changed(made: Callable[[], Any], **changes: Any) -> dict[str, Any]:
    return {**json.loads(made().to_str()), **changes}


REFUSED: dict[str, tuple[dict[str, Any], dict[str, Any], type[RlxError], str]] = {
    "words": (
        {"model": {"type": "WordLevel", "vocab": {"a": 0}}},
        {},
        UnsupportedError,
        "'WordLevel' are not supported",
    ),
    "decoder": ({"decoder": {"type": "Fuse"}}, {}, UnsupportedError, "the decoder must be of bytes"),
    "no vocabulary": ({"model": {"type": "BPE"}}, {}, TokenizerError, "'model' must have a 'vocab'"),
    "large id": ({"model": {"type": "BPE", "vocab": {"a": 1 << 40}, "merges": []}}, {}, TokenizerError, "an id below"),
    "two texts": ({"added_tokens": [{"id": 0, "content": "zzz"}]}, {}, TokenizerError, "id 0 must have one text"),
    "added": ({"added_tokens": [{"id": -1, "content": "zzz"}]}, {}, TokenizerError, "must have 'id' and 'content'"),
    "end": ({}, {"add_eos_token": True}, TokenizerError, "'add_eos_token' is true, which ends every prompt"),
    "begin": ({}, {"bos_token": "<nothing>"}, TokenizerError, "'bos_token' of tokenizer_config.json must be a token"),
    "decoder's": ({}, {"added_tokens_decoder": {"5": {"content": "x"}}}, TokenizerError, "added token 'x' has id '5'"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_wrong_is_named(tmp_path: Path, name: str) -> None:
    changes, settings, error, message = REFUSED[name]
    folder = write(tmp_path / "f", changed(byte_level, **changes), **settings)
    with pytest.raises(error, match=message) as caught:
        read(folder)
    assert str(folder) in str(caught.value)


def test_texts_that_would_end_with_a_token(tmp_path: Path) -> None:
    made = pieces("never")
    made.post_processor = processors.TemplateProcessing("<s> $A </s>", "$A $B:1", [("<s>", 1), ("</s>", 2)])
    with pytest.raises(TokenizerError, match="puts a token behind texts"):
        read(write(tmp_path / "f", json.loads(made.to_str())))


TEMPLATE = "{{ bos_token }}{% for m in messages %}[{{ m.role }}]{{ m.content }}{{ eos_token }}{% endfor %}"


@pytest.mark.parametrize("place", ["file", "entry", "list"])
def test_chat_templates(tmp_path: Path, place: str) -> None:
    folder = write(tmp_path / "f", json.loads(pieces("first").to_str()), bos_token="<s>", eos_token="</s>")
    folders.write(folder, "qwen2", folders.weights("qwen2", vocab=500), vocab_size=500)
    config = json.loads((folder / "tokenizer_config.json").read_text())
    if place == "file":
        (folder / "chat_template.jinja").write_text(TEMPLATE)
    elif place == "entry":
        config["chat_template"] = TEMPLATE
    else:
        config["chat_template"] = [{"name": "tools", "template": "x"}, {"name": "default", "template": TEMPLATE}]
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    model = load_model(folder, activations="exact", context=64, chunk=16)
    rendered = model.chat_template.render([{"role": "user", "content": "Hello"}])
    assert rendered == "<s>[user]Hello</s>"
    assert model.texts == model.tokenizer.vocab_size < model.config.vocab
    found = model.generate("Hello", chat=True, greedy=True, max_tokens=3)
    assert "".join(found) == model.detokenize(found.ids)
    assert found.prompt_ids[0] == 1
    assert found.prompt_ids.count(1) == 1
