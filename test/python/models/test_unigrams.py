# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Vocabularies of unigrams in GGUF's metadata: ids are those of SentencePiece."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
import sentencepiece
from sentencepiece import sentencepiece_model_pb2
from test_text_section import SAMPLE, texts

from rlx_mlir.errors import TokenizerError, UnsupportedError
from rlx_mlir.models import text_section
from rlx_mlir.models.tokenizer import Tokenizer


def _trained(**options: Any) -> bytes:
    """A model of the sample."""
    written = io.BytesIO()
    lines = [line for line in (SAMPLE * 3).split(". ") if line.strip()]
    sentencepiece.SentencePieceTrainer.Train(
        sentence_iterator=iter(lines * 4), model_writer=written, model_type="unigram",
        vocab_size=options.pop("size", 200), hard_vocab_limit=False,
        pad_id=0, eos_id=1, unk_id=2, bos_id=-1, minloglevel=2,
        **options,
    )  # fmt: skip
    return written.getvalue()


def _metadata(model: bytes) -> dict[str, Any]:
    """What converters write of a model."""
    own = sentencepiece_model_pb2.ModelProto()
    own.ParseFromString(model)
    return {
        "tokenizer.ggml.model": "t5",
        "tokenizer.ggml.tokens": [piece.piece for piece in own.pieces],
        "tokenizer.ggml.scores": np.array([piece.score for piece in own.pieces], np.float32),
        "tokenizer.ggml.token_type": np.array([piece.type for piece in own.pieces], np.int32),
        "tokenizer.ggml.eos_token_id": 1,
        "tokenizer.ggml.add_space_prefix": own.normalizer_spec.add_dummy_prefix,
        "tokenizer.ggml.remove_extra_whitespaces": own.normalizer_spec.remove_extra_whitespaces,
        "tokenizer.ggml.precompiled_charsmap": np.frombuffer(own.normalizer_spec.precompiled_charsmap, np.uint8),
    }


@pytest.fixture(scope="module")
def plain() -> bytes:
    return _trained()


_OPTIONS: dict[str, dict[str, Any]] = {
    "t5": {},
    "bytes": {"byte_fallback": True, "size": 420},
    "spaces": {"remove_extra_whitespaces": False},
    "as it is": {"normalization_rule_name": "identity", "add_dummy_prefix": False, "remove_extra_whitespaces": False},
    "folded": {"normalization_rule_name": "nmt_nfkc_cf", "add_dummy_prefix": False},
}


@pytest.mark.parametrize("name", _OPTIONS)
def test_ids_are_those_of_sentencepiece(name: str) -> None:
    model = _trained(**_OPTIONS[name])
    reference = sentencepiece.SentencePieceProcessor(model_proto=model)
    own = Tokenizer.from_metadata(_metadata(model))
    assert not own.add_bos
    assert own.stop_ids == {1}
    for text in [*texts(3, 200), "</s> a", "  a  b ", "\u3000a", "\ufb01n"]:
        assert own.tokenize(text) == list(reference.EncodeAsIds(text)), repr(text)
    ids = own.tokenize("Hello world")
    assert own.detokenize(ids) == reference.DecodeIds(ids)


def test_texts_go_on_behind_others(plain: bytes) -> None:
    """A space in front is one, and none is added; behind a control token, one is."""
    own = Tokenizer.from_metadata(_metadata(plain))
    for first, second in (("The cat", " sat"), ("The cat", "  sat "), ("wor", "ld")):
        ids = [*own.tokenize(first), *own.tokenize(second, continued=True)]
        assert own.detokenize(ids) == " ".join((first + second).split())
    assert own.tokenize("a</s>b", special=True) == [*own.tokenize("a"), 1, *own.tokenize("b")]
    assert 1 not in own.tokenize("a</s>b")


def test_metadata_that_is_wrong(plain: bytes) -> None:
    metadata = _metadata(plain)
    key = "tokenizer.ggml.precompiled_charsmap"
    with pytest.raises(TokenizerError, match="precompiled_charsmap' must be bytes"):
        Tokenizer.from_metadata({**metadata, key: "abc"})
    with pytest.raises(TokenizerError, match=r"file: the vocabulary is not a valid SentencePiece model"):
        Tokenizer.from_metadata({**metadata, key: np.arange(3, dtype=np.uint8)}, origin="file")
    with pytest.raises(TokenizerError, match=r"'tokenizer.ggml.remove_extra_whitespaces' must be a bool, but is 1"):
        Tokenizer.from_metadata({**metadata, "tokenizer.ggml.remove_extra_whitespaces": 1})
    with pytest.raises(TokenizerError, match=r"a 't5' vocabulary needs 'tokenizer.ggml.scores'"):
        Tokenizer.from_metadata({key: own for key, own in metadata.items() if not key.endswith("scores")})


def test_bundles_take_ids(plain: bytes) -> None:
    with pytest.raises(UnsupportedError, match="one of unigrams"):
        text_section.described(_metadata(plain))
