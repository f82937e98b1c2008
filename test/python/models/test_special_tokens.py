# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which tokens end generation, and what a vocabulary means that doesn't name its special tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_models
from interpreted import load_interpreted

from rlx_mlir.errors import TokenizerError
from rlx_mlir.frontends.gguf import write_gguf
from rlx_mlir.models.tokenizer import Tokenizer, TokenType

PREFIX = "tokenizer.ggml."
PLAIN = 200
"""An id of the tiny vocabulary that is text."""


def vocabulary(*more: str, kind: TokenType = TokenType.CONTROL, **keys: Any) -> dict[str, Any]:
    """The tiny vocabulary, whose last tokens are others; ``keys`` by their words, None to leave out."""
    found = tiny_models.vocabulary()
    tokens, types = found[f"{PREFIX}tokens"], found[f"{PREFIX}token_type"]
    for index, text in enumerate(more, len(tokens) - len(more)):
        if text in tokens:
            tokens[tokens.index(text)] = "<|another|>"
        tokens[index], types[index] = text, kind
    found |= {PREFIX + key: value for key, value in keys.items()}
    return {key: value for key, value in found.items() if value is not None}


@pytest.mark.parametrize("word", ["eos", "eot", "eom", "fim_pad", "fim_rep", "fim_sep"])
def test_ids_of_the_metadata_end_generation(word: str) -> None:
    tokenizer = Tokenizer.from_metadata(vocabulary(**{f"{word}_token_id": PLAIN}))
    assert PLAIN in tokenizer.stop_ids
    assert {0, 2} <= tokenizer.stop_ids  # <|endoftext|> and <|im_end|>


@pytest.mark.parametrize("word", ["bos", "unknown", "padding", "seperator", "fim_pre", "fim_mid", "fim_suf"])
def test_other_ids_don_t(word: str) -> None:
    assert PLAIN not in Tokenizer.from_metadata(vocabulary(**{f"{word}_token_id": PLAIN})).stop_ids


TEXTS = (
    *("<|eot_id|>", "<|eom_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<end_of_turn>", "<eos>"),
    *(
        "<|endoftext|>",
        "<|end_of_text|>",
        "<EOT>",
        "_<EOT>",
        "[EOT]",
        "[EOS]",
        "<\uff5cend\u2581of\u2581sentence\uff5c>",
    ),
)


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("kind", TokenType)
def test_texts_end_generation_whatever_their_type(text: str, kind: TokenType) -> None:
    tokenizer = Tokenizer.from_metadata(vocabulary(text, kind=kind, eos_token_id=None))
    assert 299 in tokenizer.stop_ids
    # They are no text of a user's, and are recognised in templates.
    assert 299 not in tokenizer.tokenize(f"a{text}b")
    assert 299 in tokenizer.tokenize(f"a{text}b", special=True)
    assert tokenizer.detokenize([299]) == ""
    assert tokenizer.detokenize([299], special=True) == text


def test_html_isn_t_an_end() -> None:
    """Some vocabularies have </s> for text that is struck out."""
    for kind in TokenType:
        found = Tokenizer.from_metadata(vocabulary("</s>", kind=kind)).stop_ids
        assert (299 in found) == (kind == TokenType.CONTROL)


@pytest.mark.parametrize("others", [("<|return|>", "<|call|>"), ("<|calls|>", "<|flush|>")])
def test_parts_of_a_message_may_end_alike(others: tuple[str, ...]) -> None:
    ends = Tokenizer.from_metadata(vocabulary("<|end|>", *others)).stop_ids
    assert {298, 299} <= ends
    assert 297 not in ends
    assert 299 in Tokenizer.from_metadata(vocabulary(others[0], "<|end|>")).stop_ids


@pytest.mark.parametrize(("text", "kind"), [("<|eom_id|>", TokenType.NORMAL), ("<|return|>", TokenType.USER_DEFINED)])
def test_generation_ends_there(tmp_path: Path, text: str, kind: TokenType) -> None:
    """Of a model that would go on with this token next."""
    model = load_interpreted(tiny_models.write(tmp_path / "m.gguf"))
    plain = model.generate("hello", greedy=True, max_tokens=4, ignore_eos=True)
    plain.read()
    metadata = tiny_models.metadata()
    index = plain.ids[2]
    metadata[f"{PREFIX}tokens"][index] = text
    metadata[f"{PREFIX}merges"] = []  # which would need it
    metadata[f"{PREFIX}token_type"][index] = kind
    path = write_gguf(tmp_path / "ends.gguf", metadata, tiny_models.tensors())
    ended = load_interpreted(path).generate(plain.prompt_ids, greedy=True, max_tokens=4)
    ended.read()
    assert (ended.finish_reason, ended.ids) == ("stop", plain.ids[: plain.ids.index(index)])


def test_sentencepiece_has_ids_by_default() -> None:
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "a"]
    metadata = {
        f"{PREFIX}model": "llama",
        f"{PREFIX}tokens": tokens,
        f"{PREFIX}scores": np.zeros(len(tokens), np.float32),
        f"{PREFIX}token_type": np.array([2, 3, 3, *[6] * 256, 1], np.int32),
    }
    tokenizer = Tokenizer.from_metadata(metadata)
    assert (tokenizer.bos_id, tokenizer.eos_id, tokenizer.add_bos, tokenizer.add_space_prefix) == (1, 2, True, True)
    assert tokenizer.tokenize("a")[0] == 1
    assert tokenizer.stop_ids == {2}


@pytest.mark.parametrize(("pre", "add_bos"), [("llama-bpe", True), ("gpt-2", False), ("qwen2", False), (None, False)])
def test_whether_texts_begin_with_a_token_by_default(pre: str | None, add_bos: bool) -> None:
    tokenizer = Tokenizer.from_metadata(vocabulary(pre=pre, add_bos_token=None))
    assert tokenizer.add_bos == add_bos
    assert Tokenizer.from_metadata(vocabulary(bos_token_id=None, eos_token_id=None)).bos_id is None


@pytest.mark.parametrize("value", [300, -1, True, "x", 1.5])
def test_bad_ids_are_named(value: Any) -> None:
    with pytest.raises(TokenizerError, match=r"'tokenizer\.ggml\.eot_token_id' must be in \[0, 300\), but is"):
        Tokenizer.from_metadata(vocabulary(eot_token_id=value))


def test_prompts_that_end_themselves_are_refused() -> None:
    with pytest.raises(TokenizerError, match=r"'tokenizer\.ggml\.add_eos_token' is true, which ends every prompt"):
        Tokenizer.from_metadata(vocabulary(add_eos_token=True))
    assert Tokenizer.from_metadata(vocabulary(add_eos_token=False)).stop_ids
