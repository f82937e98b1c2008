# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Whatever a library raises over a model's files is an error of ours that names the file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
import pytest
import safetensors
import sentencepiece
import tiny_encoders
import tiny_models
import tokenizers

from rlx_mlir.errors import ChatTemplateError, InputError, RlxError, SafetensorsError, TokenizerError
from rlx_mlir.frontends import documents
from rlx_mlir.frontends.gguf import GGUFFile, write_gguf
from rlx_mlir.frontends.safetensors import SafetensorsFile
from rlx_mlir.models.chat import ChatTemplate
from rlx_mlir.models.embedding import TextTokenizer, open_weights
from rlx_mlir.models.encoder_config import EncoderConfig
from rlx_mlir.models.tokenizer import Tokenizer


class Panic(BaseException):
    """As Rust's libraries raise: no `Exception`."""


def panic(*_: Any, **__: Any) -> Any:
    raise Panic("no such thing")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tiny_encoders.write(tmp_path / "bert", tiny_encoders.BERT, tiny_encoders.tensors(tiny_encoders.BERT))
    read(made)._tokenizer.save(str(made / "tokenizer.json"))
    return made


@pytest.fixture
def gguf(tmp_path: Path) -> Path:
    template = {"tokenizer.chat_template": "{% for m in messages %}{{ m.content }}{% endfor %}"}
    path = tmp_path / "m.gguf"
    write_gguf(path, tiny_models.metadata() | template, tiny_models.tensors())
    return path


def read(folder: Path) -> TextTokenizer:
    return TextTokenizer(folder, EncoderConfig.from_folder(folder, open_weights(folder)))


def fails(path: Path, action: Any) -> RlxError:
    with pytest.raises(RlxError) as caught:
        action()
    assert str(path) in str(caught.value)
    assert "Panic: no such thing" in str(caught.value)
    return caught.value


def test_tokenizers(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        from_str = panic

    path = folder / "tokenizer.json"
    made = read(folder)
    with monkeypatch.context() as patch:
        patch.setattr(tokenizers, "Tokenizer", Broken)
        assert isinstance(fails(path, lambda: read(folder)), TokenizerError)

    class Encodes:
        encode_batch_fast = panic
        decode = panic

    made._limited = made._tokenizer = Encodes()
    fails(path, lambda: made.encode(["a"], truncate=True))
    fails(path, lambda: made.decode([1]))
    path.unlink()
    with monkeypatch.context() as patch:
        patch.setattr(tokenizers.models, "WordPiece", panic)
        with pytest.raises(TokenizerError, match=r"vocab\.txt: AttributeError"):
            read(folder)
        patch.setattr(tokenizers.models, "WordPiece", type("W", (), {"read_file": panic}))
        fails(folder / "vocab.txt", lambda: read(folder))


def test_vocabularies_of_gguf(gguf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with GGUFFile(gguf) as file:
        metadata, origin = dict(file.metadata), str(gguf)
        kind = metadata["tokenizer.ggml.model"]
        with monkeypatch.context() as patch:
            patch.setattr(tokenizers.models, "BPE", panic)
            patch.setattr(sentencepiece.SentencePieceProcessor, "LoadFromSerializedProto", panic)
            assert isinstance(fails(gguf, lambda: Tokenizer.from_metadata(metadata, origin=origin)), TokenizerError)
        if kind == "gpt2":
            with monkeypatch.context() as patch:
                patch.setattr(tokenizers, "Regex", panic)
                fails(gguf, lambda: Tokenizer.from_metadata(metadata, origin=origin))
        made = Tokenizer.from_metadata(metadata, origin=origin)
        monkeypatch.setattr(made, "_backend", type("B", (), {"encode": panic})())
        assert isinstance(fails(gguf, lambda: made.tokenize("a")), TokenizerError)


def test_templates(gguf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with GGUFFile(gguf) as file:
        template = ChatTemplate.from_metadata(file.metadata, origin=str(gguf))
        for name in ("parse", "from_string"):
            with monkeypatch.context() as patch:
                patch.setattr(jinja2.Environment, name, panic)
                error = fails(gguf, lambda: ChatTemplate.from_metadata(file.metadata, origin=str(gguf)))
                assert isinstance(error, ChatTemplateError)
        monkeypatch.setattr(jinja2.Template, "render", panic)
        assert isinstance(fails(gguf, lambda: template.render([])), ChatTemplateError)
    with pytest.raises(ChatTemplateError, match="Panic: no such thing"):
        ChatTemplate("{{ f() }}").render([], f=panic)


def test_safetensors(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = folder / "model.safetensors"
    weights = SafetensorsFile(path)
    with monkeypatch.context() as patch:
        patch.setattr(safetensors, "safe_open", panic)
        assert isinstance(fails(path, lambda: SafetensorsFile(path)), SafetensorsError)
    monkeypatch.setattr(weights, "_file", type("F", (), {"get_tensor": panic})())
    fails(path, lambda: weights.tensor("embeddings.LayerNorm.bias"))


def test_json(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in (Panic, MemoryError, RuntimeError):

        def broken(*_: Any, kind: type[BaseException] = kind, **__: Any) -> Any:
            raise kind("no such thing")

        monkeypatch.setattr(documents.json, "loads", broken)
        with pytest.raises(RlxError, match=rf"model\.safetensors: {kind.__name__}: no such thing"):
            read(folder)


def test_ctrl_c_goes_through(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ChatTemplate("{{ f() }}").render([], f=interrupted)


# What libraries do raise. -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("normalizer", {"type": "Precompiled", "precompiled_charsmap": "AAAA"}),
        ("normalizer", {"type": "Replace", "pattern": {"Regex": "("}, "content": "x"}),
        ("pre_tokenizer", {"type": "Split", "pattern": {"Regex": "(" * 5000}, "behavior": "Removed", "invert": False}),
        ("model", {"type": "WordPiece", "unk_token": "?", "continuing_subword_prefix": "##", "vocab": {"a": 0},
                   "max_input_chars_per_word": 100}),
        ("model", {"type": "BPE", "vocab": {"a": 0}, "merges": ["a b"]}),
        ("post_processor", {"type": "BertProcessing", "sep": ["[SEP]", 99], "cls": ["[CLS]", 2]}),
    ],
)  # fmt: skip
def test_tokenizers_that_are_broken(folder: Path, part: str, value: Any) -> None:
    path = folder / "tokenizer.json"
    content = json.loads(path.read_text()) | {part: value}
    path.write_text(json.dumps(content))
    with pytest.raises(TokenizerError) as caught:
        read(folder).encode(["the cat é"], truncate=False)
    assert str(path) in str(caught.value)


def test_arguments_of_a_tokenizer(gguf: Path) -> None:
    with GGUFFile(gguf) as file:
        made = Tokenizer.from_metadata(file.metadata, origin=str(gguf))
    for text in (b"x", None, 5, ["x"]):
        with pytest.raises(InputError, match=f"the text must be a string, but is of type {type(text).__name__}"):
            made.tokenize(text)  # type: ignore[arg-type]
    for ids in ([1.5], ["1"], [None], [np.float32(1)]):
        with pytest.raises(InputError, match="a token id must be an integer, but is"):
            made.detokenize(ids)  # type: ignore[arg-type]
    for ids in (5, None, "12", b"12"):
        with pytest.raises(InputError, match="token ids must be several integers"):
            made.detokenize(ids)  # type: ignore[arg-type]
    assert made.detokenize(np.array([3, 4], ">i4")) == made.detokenize([3, 4])  # type: ignore[arg-type]
    with pytest.raises(InputError, match="a token id must be an integer"):
        made.stream().push(1.5)  # type: ignore[arg-type]


def test_errors_of_vocabularies_name_the_file(gguf: Path) -> None:
    with GGUFFile(gguf) as file:
        metadata = dict(file.metadata)
    for key, value in (
        ("merges", ["ab"]),
        ("scores", np.zeros(1, np.float32)),
        ("bos_token_id", 10**6),
        ("tokens", []),
    ):
        if f"tokenizer.ggml.{key}" in metadata:
            broken = metadata | {f"tokenizer.ggml.{key}": value}
            with pytest.raises(TokenizerError, match=r"^m\.gguf: "):
                Tokenizer.from_metadata(broken, origin="m.gguf")
