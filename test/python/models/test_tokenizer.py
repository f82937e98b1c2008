# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tokenizers against recorded ids of llama.cpp, and what the streams and errors promise."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_models
from hypothesis import given, settings
from hypothesis import strategies as st

from rlx_mlir.errors import TokenizerError
from rlx_mlir.frontends.gguf import GGUFFile
from rlx_mlir.models.tokenizer import _BYTE_OF, PRE_TOKENIZERS, Tokenizer, TokenType, pre_tokenizer

DATA = Path(__file__).parents[1] / "data"
SMOLLM2 = json.loads((DATA / "smollm2_tokens.json").read_text())
GEMMA = json.loads((DATA / "gemma_tokens.json").read_text())


@pytest.fixture(scope="module")
def smollm2(smollm2_path: Path) -> Tokenizer:
    with GGUFFile(smollm2_path) as file:
        return Tokenizer.from_metadata(file.metadata)


@pytest.fixture(scope="module")
def gemma(gemma3_path: Path) -> Tokenizer:
    with GGUFFile(gemma3_path) as file:
        return Tokenizer.from_metadata(file.metadata)


def check(tokenizer: Tokenizer, case: dict[str, Any]) -> None:
    text = case["text"]
    assert tokenizer.tokenize(text, bos=False) == case["plain"]
    assert tokenizer.tokenize(text, special=True) == case["special_with_bos"]
    stream = tokenizer.stream()
    assert "".join(stream.push(i) for i in case["plain"]) + stream.flush() == tokenizer.detokenize(case["plain"])


@pytest.mark.parametrize("case", SMOLLM2, ids=range(len(SMOLLM2)))
def test_smollm2_ids_equal_llama_cpp(smollm2: Tokenizer, case: dict[str, Any]) -> None:
    check(smollm2, case)
    assert smollm2.detokenize(case["plain"]) == case["text"]


@pytest.mark.slow
@pytest.mark.parametrize("case", GEMMA, ids=range(len(GEMMA)))
def test_gemma_ids_equal_llama_cpp(gemma: Tokenizer, case: dict[str, Any]) -> None:
    check(gemma, case)
    assert gemma.detokenize(case["plain"]) == case["text"].replace("\u2581", " ")


def test_smollm2_properties(smollm2: Tokenizer) -> None:
    assert (smollm2.vocab_size, smollm2.bos_id, smollm2.eos_id, smollm2.add_bos) == (49152, 1, 2, False)
    assert smollm2.stop_ids == {0, 2}


def test_control_tokens_only_on_request(smollm2: Tokenizer) -> None:
    text = "<|im_start|>user"
    assert smollm2.tokenize(text, special=True)[0] == 1
    assert 1 not in smollm2.tokenize(text)
    ids = smollm2.tokenize(text, special=True)
    assert smollm2.detokenize(ids) == "user"
    assert smollm2.detokenize(ids, special=True) == text
    assert smollm2.tokenize("user", bos=True) == ids


@settings(max_examples=100, deadline=None, derandomize=True)
@given(text=st.text(st.characters(exclude_categories=("Cs", "Cc"), max_codepoint=0x3FFFF)))
def test_smollm2_round_trip(smollm2: Tokenizer, text: str) -> None:
    """Of all that is assigned, the vocabulary lacks only some control characters."""
    ids = smollm2.tokenize(text)
    assert smollm2.detokenize(ids) == text
    stream = smollm2.stream()
    pieces = [stream.push(i) for i in ids]
    assert "\ufffd" not in "".join(pieces) or "\ufffd" in text
    assert "".join(pieces) + stream.flush() == text


def test_stream_waits_for_whole_characters(smollm2: Tokenizer) -> None:
    ids = smollm2.tokenize("\U0001f9a5")
    assert len(ids) > 1
    stream = smollm2.stream()
    assert [stream.push(i) for i in ids] == [""] * (len(ids) - 1) + ["\U0001f9a5"]
    stream.push(ids[0])
    assert stream.flush() == "\ufffd"
    assert stream.push(ids[0]) == ""


def byte_vocabulary(*more: str) -> list[str]:
    return [*_BYTE_OF, *more]


def bpe(*more: str, merges: tuple[str, ...] = (), **options: Any) -> Tokenizer:
    return Tokenizer(byte_vocabulary(*more), kind="gpt2", merges=merges, **{"pre": "gpt-2", **options})


@pytest.mark.parametrize("pre", PRE_TOKENIZERS)
def test_pre_tokenizers_keep_all_text(pre: str) -> None:
    tokenizer = bpe(pre=pre, add_bos=False)
    text = "It's 12345 a-b  c\n\n \t d\u00e9j\u00e0 \u4f60\u597d!? $5.00\r\n'LL"
    assert tokenizer.detokenize(tokenizer.tokenize(text)) == text


def test_merges_stay_within_pieces() -> None:
    digits = "12"
    assert len(bpe(digits, merges=("1 2",), pre="gpt-2").tokenize("12")) == 1
    assert len(bpe(digits, merges=("1 2",), pre="smollm").tokenize("12")) == 2
    assert len(bpe(digits, merges=("1 2",), pre="qwen2").tokenize("12")) == 2
    assert len(bpe(digits, merges=("1 2",), pre="llama-bpe", add_bos=False).tokenize("12")) == 1


def test_pieces_of_o200k() -> None:
    """Words end before an upper case letter that is behind a lower case one, and hold the end of an English one."""
    tokenizer = bpe(pre="gpt-4o")
    splitter = tokenizer._backend.tokenizer.pre_tokenizer  # type: ignore[attr-defined]
    for text, wanted in (
        ("camelCase HTTPServer", ["camel", "Case", "\u0120HTTPServer"]),
        ("don't DON'T x1234567", ["don't", "\u0120DON'T", "\u0120x", "123", "456", "7"]),
        ("a/b //\n/  c", ["a", "/b", "\u0120//\u010a/", "\u0120", "\u0120c"]),
        ("Ab\u0301c\r\n x", ["Ab\u00cc\u0123c", "\u010d\u010a", "\u0120x"]),
    ):
        assert [piece for piece, _ in splitter.pre_tokenize_str(text)] == wanted


def test_user_defined_tokens_longest_first() -> None:
    types = [TokenType.NORMAL] * 256 + [TokenType.USER_DEFINED] * 2 + [TokenType.CONTROL]
    tokenizer = bpe("ab", "bcd", "<e>", types=types, eos_id=258)
    assert tokenizer.tokenize("abcd") == [list(_BYTE_OF).index("a"), 257]
    assert tokenizer.tokenize("abab") == [256, 256]
    assert tokenizer.tokenize("<e>")[0] != 258
    assert tokenizer.tokenize("<e>x", special=True)[0] == 258
    assert tokenizer.stop_ids == {258}


SPM_TOKENS = ["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256)), "\u2581", "a", "b", "ab", "\u2581ab"]
SPM_TYPES = [2, 3, 3] + [6] * 256 + [1] * 5
SPM_SCORES = [0.0] * 259 + [-5.0, -4.0, -3.0, -2.0, -1.0]


def spm(**options: Any) -> Tokenizer:
    return Tokenizer(SPM_TOKENS, kind="llama", scores=SPM_SCORES, types=SPM_TYPES, bos_id=1, eos_id=2, **options)


def test_sentencepiece_vocabulary() -> None:
    tokenizer = spm()
    assert tokenizer.tokenize("ab") == [1, 263]
    assert tokenizer.tokenize("ab", bos=False) == [263]
    assert tokenizer.tokenize("ab", bos=False, continued=True) == [262]
    assert tokenizer.tokenize("a</s>ab", bos=False, special=True, continued=True) == [260, 2, 263]
    assert tokenizer.detokenize([263, 263]) == "ab ab"
    assert tokenizer.tokenize("\n\u00e9", bos=False) == [259, 3 + 10, 3 + 0xC3, 3 + 0xA9]
    assert tokenizer.detokenize([259, 3 + 10, 3 + 0xC3, 3 + 0xA9]) == "\n\u00e9"
    assert tokenizer.tokenize("</s>ab", bos=False, special=True) == [2, 263]
    assert 2 not in tokenizer.tokenize("</s>ab")
    plain = spm(add_space_prefix=False, add_bos=False)
    assert plain.tokenize("ab") == [262]
    assert plain.detokenize([263]) == " ab"


def test_errors() -> None:
    with pytest.raises(TokenizerError, match="the tokenizer model 'bert' is not supported, known are gpt2, llama"):
        Tokenizer(["a"], kind="bert")
    with pytest.raises(TokenizerError, match="the pre-tokenizer 'odd' is not supported, known are gpt-2, smollm"):
        bpe(pre="odd")
    with pytest.raises(TokenizerError, match="merge 0 must be two tokens with a space between, but is 'ab'"):
        bpe(merges=("ab",))
    with pytest.raises(TokenizerError, match="vocabulary and merges do not fit together"):
        bpe(merges=("a b",))
    with pytest.raises(TokenizerError, match="there are 256 tokens, but 1 token types"):
        bpe(types=[1])
    with pytest.raises(TokenizerError, match=r"the bos id must be in \[0, 256\), but is 256"):
        bpe(bos_id=256)
    with pytest.raises(TokenizerError, match="there are 1 tokens, but 0 scores"):
        Tokenizer(["a"], kind="llama")
    with pytest.raises(TokenizerError, match="not a valid SentencePiece model"):
        Tokenizer(["a", "a"], kind="llama", scores=[0, 0])
    with pytest.raises(TokenizerError, match="a begin-of-text id is asked for, but the vocabulary names none"):
        bpe().tokenize("a", bos=True)
    with pytest.raises(TokenizerError, match=r"a token id must be in \[0, 256\), but is 256"):
        bpe().detokenize([256])
    with pytest.raises(TokenizerError, match="not valid Unicode at character 1"):
        bpe().tokenize("a\ud800")
    with pytest.raises(TokenizerError, match="the file has no vocabulary"):
        Tokenizer.from_metadata({})
    with pytest.raises(TokenizerError, match=r"a 'gpt2' vocabulary needs 'tokenizer\.ggml\.merges'"):
        Tokenizer.from_metadata({"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.tokens": ["a"]})


def test_from_metadata() -> None:
    prefix = "tokenizer.ggml."
    metadata = {
        prefix + "model": "llama",
        prefix + "tokens": SPM_TOKENS,
        prefix + "scores": np.array(SPM_SCORES, np.float32),
        prefix + "token_type": np.array(SPM_TYPES, np.int32),
        prefix + "bos_token_id": 1,
        prefix + "add_bos_token": False,
    }
    tokenizer = Tokenizer.from_metadata(metadata)
    assert tokenizer.tokenize("ab") == [263]
    assert tokenizer.stop_ids == {2}


def pieces(pre: str, text: str) -> list[str]:
    """What a pre-tokenizer cuts a text into: every part of the text is a token, the first ones being merged first."""
    letter = {byte: character for character, byte in _BYTE_OF.items()}
    letters, tokens, merges = [letter[byte] for byte in text.encode()], list(letter.values()), []
    for first in range(len(letters)):
        for last in range(first + 1, len(letters)):
            whole = "".join(letters[first : last + 1])
            if whole not in tokens:
                tokens.append(whole)
                merges.append(f"{whole[:-1]} {whole[-1]}")
    tokenizer = Tokenizer(tokens, kind="gpt2", merges=merges, pre=pre)
    return [tokenizer.detokenize([index]) for index in tokenizer.tokenize(text, bos=False)]


PIECES = {
    ("deepseek-llm", "Zu 1234 ab,c.\n\n  d!e "): "Zu| |1234| ab|,|c|.|\n|\n| | d|!|e| ",
    ("deepseek-coder", "Zu 1234 ab,c.\n\n  d!e "): "Zu| |1|2|3|4| ab|,|c|.|\n|\n| | d|!|e| ",
    ("deepseek-v3", "Zu 1234 ab,c.\n\n  d!e "): "Zu| |123|4| ab|,c|.\n\n| | d|!e| ",
    ("deepseek-llm", "价格:3½。ひらカ(xyz)  Q"): "价格|:|3½|。|ひらカ|(|xyz|)| | Q",
    ("deepseek-coder", "价格:3½。ひらカ(xyz)  Q"): "价格|:|3|½|。|ひらカ|(|xyz|)| | Q",
    ("deepseek-v3", "价格:3½。ひらカ(xyz)  Q"): "价格|:|3½|。|ひらカ|(xyz|)| | Q",
    ("deepseek-llm", "don't\t\tfoo_bar é=7 "): "don|'|t|\t|\tfoo|_|bar| é|=|7| ",
    ("deepseek-v3", "don't\t\tfoo_bar é=7 "): "don|'t|\t|\tfoo|_bar| é|=|7| ",
    ("dbrx", "It's 1234 fooBar a\u0308!\n\n x "): "It|'s| |123|4| fooBar| a|\u0308!\n\n| x| ",
    ("qwen35", "It's 1234 fooBar a\u0308!\n\n x "): "It|'s| |1|2|3|4| fooBar| a\u0308|!\n\n| x| ",
    ("seed-coder", "It's 1234 fooBar a\u0308!\n\n x "): "It|'s| |1|2|3|4| fooBar| a|\u0308!|\n\n| x| ",
    ("tekken", "It's 1234 fooBar a\u0308!/\n x "): "It|'s| |1|2|3|4| foo|Bar| a\u0308|!/\n| x| ",
}
"""Pieces of texts, with strokes between."""


@pytest.mark.parametrize(("pre", "text"), PIECES)
def test_pieces_of_texts(pre: str, text: str) -> None:
    assert pieces(pre, text) == PIECES[pre, text].split("|")


def test_names_of_pre_tokenizers() -> None:
    """Files have many names for some, which say the rest of it, too: whether texts get a token at their begin."""
    for name, own in (
        ("lfm2", "llama-bpe"),
        ("starcoder", "smollm"),
        ("hunyuan-dense", "deepseek-v3"),
        (None, "default"),
    ):
        assert pre_tokenizer(name) == own
    assert [pre_tokenizer(name) for name in (*PRE_TOKENIZERS, "odd")] == [*PRE_TOKENIZERS, "odd"]
    metadata = tiny_models.metadata()
    metadata |= {"tokenizer.ggml.pre": "lfm2", "tokenizer.ggml.add_bos_token": None}
    lfm2 = Tokenizer.from_metadata(metadata)
    assert (lfm2.add_bos, lfm2.tokenize("a")) == (True, [1, 3 + ord("a")])
