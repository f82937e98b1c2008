# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Folders of encoders: every entry of every file is honoured, or refused by name."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_encoders
import tokenizers
from safetensors.numpy import load_file, save_file
from tokenizers import models, normalizers

from rlx_mlir.errors import InputError, ModelFileError, RlxError, SafetensorsError, TokenizerError, UnsupportedError
from rlx_mlir.fuzz import campaign, folders
from rlx_mlir.fuzz.campaign import Plan
from rlx_mlir.models.embedding import Encoder, TextTokenizer, load_encoder, open_weights
from rlx_mlir.models.encoder_config import EncoderConfig
from rlx_mlir.models.sentence_files import SentenceFiles

SEED = int(os.environ.get("RLX_TEST_SEED", "0"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of a small BERT."""
    return tiny_encoders.write(tmp_path / "bert", tiny_encoders.BERT, tiny_encoders.tensors(tiny_encoders.BERT))


class Recorder:
    """Compiled code that keeps what it is given."""

    def __init__(self) -> None:
        self.tokens: list[list[int]] = []

    def set_params(self, params: Any, /) -> None: ...

    def run(self, inputs: Any, /, **_: Any) -> Any:
        rows = zip(inputs["tokens"], inputs["mask"], strict=True)
        self.tokens = [tokens[mask == 1].tolist() for tokens, mask in rows]
        return {"embeddings": np.zeros((len(self.tokens), 24), np.float32)}


def encoder(folder: Path) -> Encoder:
    """The encoder of a folder, without compiling it: `words` shows what it would run on."""
    files = SentenceFiles.of(folder)
    config = EncoderConfig.from_folder(folder, open_weights(files.base), None, files)
    return Encoder(config, TextTokenizer(files.base, config), Recorder())


def words(made: Encoder, text: str, **options: Any) -> list[str]:
    made.embed(text, **options)
    assert isinstance(made._executable, Recorder)
    return [tiny_encoders.WORDS[token] for token in made._executable.tokens[0]][1:-1]


def put(folder: Path, name: str, value: Any) -> None:
    (folder / name).write_text(json.dumps(value))


# Vocabularies -------------------------------------------------------------------------------------


@pytest.mark.parametrize("odd", ["\u2028", "\x85", "\x0b", "\x0c", "\x1c", "\u2029", "\r"])
def test_only_line_feeds_end_an_entry(folder: Path, odd: str) -> None:
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", odd, "cat", "dog"]
    (folder / "vocab.txt").write_bytes("\n".join(pieces).encode())
    assert encoder(folder).tokenize("cat") == [2, 5, 3]


def test_entries_are_the_librarys(folder: Path) -> None:
    content = "[PAD]\r\n[UNK]\r\n[CLS]\r\n[SEP]\r\ncat \r\n\x1c\n\u2028\ncat\n\n"
    (folder / "vocab.txt").write_bytes(content.encode())
    own = encoder(folder).tokenizer._tokenizer.get_vocab()
    assert own == models.WordPiece.read_file(str(folder / "vocab.txt"))
    assert encoder(folder).tokenize("cat") == [2, 7, 3]


def test_ids_of_the_vocabulary_are_compared_with_the_models(folder: Path) -> None:
    (folder / "vocab.txt").write_text("\n".join([*tiny_encoders.WORDS, "a", "a", "cat"]))  # 21 lines, 18 pieces
    with pytest.raises(TokenizerError, match="the model has 20 token ids, but the tokenizer 21"):
        encoder(folder)


# tokenizer_config.json ----------------------------------------------------------------------------


def save_tokenizer(folder: Path, **normalizer: Any) -> None:
    """Replaces the vocabulary by a `tokenizer.json` whose normalizer is another one."""
    made = encoder(folder).tokenizer._tokenizer
    made.normalizer = normalizers.BertNormalizer(**normalizer)
    made.save(str(folder / "tokenizer.json"))
    (folder / "vocab.txt").unlink()


@pytest.mark.parametrize("saved", [False, True])
@pytest.mark.parametrize(
    ("entries", "text", "expected"),
    [
        ({}, "The é", ["the", "[UNK]"]),
        ({"do_lower_case": True}, "The é", ["the", "[UNK]"]),
        ({"do_lower_case": False}, "The é", ["[UNK]", "é"]),
        ({"do_lower_case": True, "strip_accents": False}, "The é", ["the", "é"]),
        ({"strip_accents": False}, "The É", ["the", "é"]),
        ({"tokenize_chinese_chars": True}, "a\u4e2da", ["a", "[UNK]", "a"]),
        ({"tokenize_chinese_chars": False}, "a\u4e2da", ["[UNK]"]),
    ],
)
def test_normalizers_are_as_the_configuration_says(
    folder: Path, saved: bool, entries: dict[str, Any], text: str, expected: list[str]
) -> None:
    if saved:  # says the opposite of every entry
        opposite = {"lowercase": "do_lower_case", "strip_accents": "strip_accents"}
        given = {name: not entries[key] for name, key in opposite.items() if key in entries}
        if "tokenize_chinese_chars" in entries:
            given["handle_chinese_chars"] = not entries["tokenize_chinese_chars"]
        save_tokenizer(folder, **given)
    put(folder, "tokenizer_config.json", entries)
    assert words(encoder(folder), text) == expected


def test_other_normalizers_must_do_what_is_asked(folder: Path) -> None:
    save_tokenizer(folder)
    made = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    made.normalizer = normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents()])
    made.save(str(folder / "tokenizer.json"))
    for entries, key in (({"do_lower_case": True}, "do_lower_case"), ({"strip_accents": False}, "strip_accents")):
        put(folder, "tokenizer_config.json", entries)
        with pytest.raises(
            UnsupportedError, match=f"'{key}' = .* isn't|'{key}' = .* is not supported by the normalizer"
        ):
            encoder(folder)
    put(folder, "tokenizer_config.json", {"do_lower_case": False, "strip_accents": True})
    assert words(encoder(folder), "the") == ["the"]


def test_other_entries_of_the_tokenizer(folder: Path) -> None:
    put(folder, "tokenizer_config.json", {"truncation_side": "left", "model_max_length": 4})
    made = encoder(folder)
    assert made.config.max_tokens == 4
    assert words(made, "the cat sat on the mat") == ["the", "mat"]
    put(folder, "sentence_bert_config.json", {"max_seq_length": 5})
    assert encoder(folder).config.max_tokens == 5, "what sentence-transformers says comes first"
    (folder / "sentence_bert_config.json").unlink()
    put(folder, "tokenizer_config.json", {"model_max_length": 10**30})
    assert encoder(folder).config.max_tokens == 160
    (folder / "vocab.txt").write_text("\n".join(["<pad>", "<unk>", "<s>", "</s>", "cat"]))
    names = {"unk_token": "<unk>", "cls_token": {"content": "<s>"}, "sep_token": "</s>", "pad_token": "<pad>"}
    put(folder, "tokenizer_config.json", names | {"mask_token": None})
    assert encoder(folder).tokenize("cat dog") == [2, 4, 1, 3]
    (folder / "tokenizer_config.json").unlink()
    put(folder, "special_tokens_map.json", names)
    assert encoder(folder).tokenize("cat dog") == [2, 4, 1, 3]


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"do_lower_case": "yes"}, "'do_lower_case' must be true or false, but is 'yes'"),
        ({"strip_accents": 1}, "'strip_accents' must be true or false, but is 1"),
        ({"do_basic_tokenize": False}, "'do_basic_tokenize' = False is not supported"),
        ({"never_split": ["cat"]}, r"'never_split' = \['cat'\] is not supported"),
        ({"wordpieces_prefix": "@@"}, "'wordpieces_prefix' = '@@' is not supported"),
        ({"tokenizer_class": "BertJapaneseTokenizer"}, "'tokenizer_class' = 'BertJapaneseTokenizer' is not supported"),
        ({"truncation_side": "middle"}, "'truncation_side' must be 'left' or 'right', but is 'middle'"),
        ({"unk_token": ""}, "'unk_token' must be a text, but is ''"),
        ({"model_max_length": 0}, "'model_max_length' must be a number from 1 on, but is 0"),
        (
            {"added_tokens_decoder": {"7": {"content": "[CLS]"}}},
            "added token '.CLS.' has id 7, but in the vocabulary 2",
        ),
        ({"added_tokens_decoder": {"x": 1}}, "added token 'x' is malformed"),
        ({"added_tokens_decoder": 1}, "'added_tokens_decoder' must be tokens by id, but is 1"),
    ],
)
def test_entries_of_the_tokenizer_that_are_refused(folder: Path, entries: dict[str, Any], message: str) -> None:
    put(folder, "tokenizer_config.json", entries)
    with pytest.raises((TokenizerError, UnsupportedError, ModelFileError), match=message) as caught:
        encoder(folder)
    assert str(folder / "tokenizer_config.json") in str(caught.value)


# sentence-transformers ----------------------------------------------------------------------------


def test_do_lower_case_of_sentence_transformers(folder: Path) -> None:
    put(folder, "tokenizer_config.json", {"do_lower_case": False})
    assert words(encoder(folder), "THE cat") == ["[UNK]", "cat"]
    put(folder, "sentence_bert_config.json", {"max_seq_length": 128, "do_lower_case": True})
    assert words(encoder(folder), "THE cat") == ["the", "cat"]


def test_prompts(folder: Path) -> None:
    settings: dict[str, Any] = {"prompts": {"query": "hello, ", "doc": "", "a": "a "}, "default_prompt_name": "query"}
    put(folder, "config_sentence_transformers.json", settings)
    made = encoder(folder)
    assert words(made, "cat") == ["hello", ",", "cat"]
    assert words(made, "cat", prompt_name="doc") == ["cat"]
    assert words(made, "cat", prompt_name="") == ["cat"]
    assert words(made, "cat", prompt_name="a") == ["a", "cat"]
    assert made.tokenize("cat") == [2, 6, 3]
    with pytest.raises(
        InputError, match=r"the model has no prompt 'dox' \(did you mean 'doc'\?\); there are query, doc"
    ):
        made.embed("cat", prompt_name="dox")
    put(folder, "config_sentence_transformers.json", settings | {"default_prompt_name": None})
    assert words(encoder(folder), "cat") == ["cat"]
    assert encoder(folder).config.numbers() == made.config.numbers(), "prompts compile nothing"


def test_texts_are_stripped_where_sentence_transformers_does(folder: Path) -> None:
    assert encoder(folder).config.texts.apply("  A ") == "A"
    (folder / "modules.json").unlink()
    assert encoder(folder).config.texts.apply("  A ") == "  A "


def test_the_transformer_may_have_a_folder_of_its_own(folder: Path) -> None:
    expected = encoder(folder).tokenize("the cat")
    inner = folder / "0_Transformer"
    inner.mkdir()
    put(folder, "sentence_bert_config.json", {"max_seq_length": 3})
    for name in ("config.json", "vocab.txt", "model.safetensors", "sentence_bert_config.json"):
        shutil.move(folder / name, inner / name)
    made = encoder(folder)
    assert made.config.max_tokens == 3
    assert made.tokenize("the cat", truncate=False) == expected


@pytest.mark.parametrize(
    ("entries", "pooling"),
    [
        ({}, "mean"),
        ({"word_embedding_dimension": 24, "include_prompt": True}, "mean"),
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, "cls"),
        ({"pooling_mode": "cls", "embedding_dimension": 24}, "cls"),
        ({"pooling_mode": ["mean"]}, "mean"),
    ],
)
def test_poolings(folder: Path, entries: dict[str, Any], pooling: str) -> None:
    put(folder, "1_Pooling/config.json", entries)
    assert encoder(folder).config.pooling == pooling


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("1_Pooling/config.json", {"pooling_mode_lasttoken": True}, "but is pooling_mode_lasttoken"),
        ("1_Pooling/config.json", {"pooling_mode": ["mean", "cls"]}, "is pooling_mode_mean, pooling_mode_cls"),
        (
            "1_Pooling/config.json",
            {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": True},
            "but is pooling_mode_cls_token, pooling_mode_mean_tokens",
        ),
        ("1_Pooling/config.json", {"pooling_mode_mean_tokens": 1}, "must be of type bool, but is 1"),
        (
            "1_Pooling/config.json",
            {"word_embedding_dimension": 25},
            "the pooling is of width 25, but vectors are of 24",
        ),
        ("1_Pooling/config.json", {"attention": True}, "not supported: 'attention' = True"),
        ("sentence_bert_config.json", {"max_seq_length": 0}, "'max_seq_length' must be an integer from 1"),
        ("sentence_bert_config.json", {"do_lower_case": 1}, "'do_lower_case' must be of type bool"),
        ("sentence_bert_config.json", {"module_output_name": "sentence"}, "'module_output_name' = 'sentence'"),
        ("config_sentence_transformers.json", {"truncate_dim": 8}, "not supported: 'truncate_dim' = 8"),
        ("config_sentence_transformers.json", {"model_type": "SparseEncoder"}, "'model_type' = 'SparseEncoder'"),
        ("config_sentence_transformers.json", {"prompts": {"a": 1}}, "'prompts' must be texts by name"),
        ("config_sentence_transformers.json", {"default_prompt_name": "q"}, "must be the name of a prompt, but is 'q'"),
        ("config.json", tiny_encoders.BERT | {"auto_map": {"AutoModel": "x.Y"}}, "'auto_map' = "),
        ("config.json", tiny_encoders.BERT | {"pruned_heads": {"0": [1]}}, "'pruned_heads' = "),
        ("config.json", tiny_encoders.BERT | {"model_type": 10**3000}, "must be of type str, but is an integer of"),
        ("config.json", tiny_encoders.BERT | {"hidden_size": 10**3000}, "but is an integer of 9966 bits"),
    ],
)
def test_entries_that_are_refused(folder: Path, name: str, value: Any, message: str) -> None:
    put(folder, name, value)
    with pytest.raises((UnsupportedError, ModelFileError), match=message) as caught:
        encoder(folder)
    assert str(folder) in str(caught.value)


def test_prompts_that_are_not_pooled(folder: Path) -> None:
    put(folder, "1_Pooling/config.json", {"include_prompt": False})
    encoder(folder)
    put(folder, "config_sentence_transformers.json", {"prompts": {"query": "a "}})
    with pytest.raises(UnsupportedError, match="'include_prompt' = False isn't supported where there are prompts"):
        encoder(folder)


@pytest.mark.parametrize(
    ("module", "message"),
    [
        ({"path": "../bert/1_Pooling"}, "'path' of module 1 must be a path inside the folder, but is '../bert"),
        ({"path": "/etc"}, "'path' of module 1 must be a path inside the folder, but is '/etc'"),
        ({"path": "\0"}, "'path' of module 1 must be a path inside the folder"),
        ({"path": "link"}, "'path' of module 1 must be a path inside the folder, but 'link' is a link to"),
        ({"type": "custom_st.Pooling"}, "module 1 is 'custom_st.Pooling', but supported are Transformer, Pooling"),
        ({"type": "sentence_transformers.models.Dense"}, "module 1 is 'sentence_transformers.models.Dense'"),
        ({"kwargs": ["task"]}, r"module 1: what this asks for is not supported: 'kwargs' = \['task'\]"),
        ({"path": 5}, "must list modules with 'type' and 'path', but module 1 is"),
    ],
)
def test_modules_that_are_refused(folder: Path, module: dict[str, Any], message: str) -> None:
    (folder.parent / "outside").mkdir()
    (folder / "link").symlink_to(folder.parent / "outside")
    modules = json.loads((folder / "modules.json").read_text())
    modules[1] |= module
    put(folder, "modules.json", modules)
    with pytest.raises((UnsupportedError, ModelFileError), match=message):
        encoder(folder)


FILES = ("config.json", "modules.json", "1_Pooling/config.json", "sentence_bert_config.json", "vocab.txt",
         "config_sentence_transformers.json", "tokenizer_config.json", "tokenizer.json", "model.safetensors",
         "model.safetensors.index.json", "special_tokens_map.json")  # fmt: skip


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("content", ["fifo", b"1" * 5000, b"[" * 100_000, b"\xff", b'{"a": 1, "a": 1}', b""])
def test_every_file_may_be_anything(folder: Path, name: str, content: Any) -> None:
    path = folder / name
    path.unlink(missing_ok=True)
    if name == "model.safetensors.index.json":
        (folder / "model.safetensors").unlink()
    if content == "fifo":
        os.mkfifo(path)
    else:
        path.write_bytes(content)
    with pytest.raises(RlxError) as caught:
        encoder(folder)
    assert str(path) in str(caught.value)
    assert content != "fifo" or "it must be a regular file, but is a FIFO" in str(caught.value)


# Weights in several files -------------------------------------------------------------------------


def shard(folder: Path) -> dict[str, str]:
    """Cuts the weights into two files; which tensor is where."""
    arrays = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    where = {name: f"model-0000{1 + number % 2}-of-00002.safetensors" for number, name in enumerate(arrays)}
    for file in set(where.values()):
        save_file({name: array for name, array in arrays.items() if where[name] == file}, folder / file)
    put(folder, "model.safetensors.index.json", {"metadata": {"total_size": 1}, "weight_map": where})
    return where


def test_weights_in_several_files(folder: Path) -> None:
    ids = [[2, 5, 6, 3], [2, 9, 3]]
    expected = load_encoder(folder).embed_tokens(ids)
    shard(folder)
    np.testing.assert_array_equal(load_encoder(folder).embed_tokens(ids), expected)


def test_indexes_that_are_wrong(folder: Path) -> None:
    where = shard(folder)
    first = next(iter(where))

    def refused(message: str, **entries: Any) -> None:
        put(folder, "model.safetensors.index.json", {"weight_map": where | entries})
        with pytest.raises(ModelFileError, match=message):
            open_weights(folder)

    refused("there is no tensor 'x'; the file has", x=where[first])
    refused("a file of 'weight_map' must be a path inside the folder, but is '../m'", x="../m")
    refused("'weight_map' must be an object with the file of each tensor", x=1)
    refused("absent.safetensors: the file is missing", x="absent.safetensors")
    other = next(file for file in where.values() if file != where[first])
    refused("there is no tensor", **{first: other})
    del where[first]
    refused("is here, but the index model.safetensors.index.json says None")
    put(folder, "model.safetensors.index.json", {})
    with pytest.raises(ModelFileError, match="'weight_map' must be an object"):
        open_weights(folder)


def test_other_weights_are_named(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(
        ModelFileError, match=r"the file is missing; .*; pytorch_model\.bin, which is there, isn't read"
    ):
        open_weights(folder)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\x05", "byte 0: the header must be 8 bytes and as many as they say, but the file has 1 bytes"),
        (b"\xff" * 8 + b"{}", "but the file has 10 bytes and they say 18446744073709551615"),
        (b"\x02" + bytes(7) + b"[]", "the header must be a JSON object"),
        (b"\x01" + bytes(7) + b"{", "not JSON"),
    ],
)
def test_headers_that_are_wrong(folder: Path, content: bytes, message: str) -> None:
    (folder / "model.safetensors").write_bytes(content)
    with pytest.raises(SafetensorsError, match=message):
        open_weights(folder)


# Arguments ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([1, 2], "list 0 must be a list of token ids, but is 1"),
        ([[1.5]], "list 0 must have integers, but has 1.5"),
        ([[1], [2, None]], "list 1 must have integers, but has None"),
        ([[True]], "list 0 must have integers, but has True"),
        ([["1"]], "list 0 must have integers, but has '1'"),
        (["12"], "list 0 must be a list of token ids, but is '12'"),
        (5, "token ids are lists of integers, a list for each text, but got int"),
        (np.array(5), "token ids are lists of integers"),
        (np.ones((1, 2), np.float32), "list 0 must have integers"),
        (np.ones((1, 2, 1), np.int32), "list 0 must have integers, but has array"),
        (np.ma.masked_array([[1, 2]], [[False, True]]), "list 0 must have ids alone, but is a masked array"),
        ([[10**300]], "list 0 must have ids from 0 to 19, but has an integer of 997 bits"),
        ([[-1]], "list 0 must have ids from 0 to 19, but has -1"),
    ],
)
def test_ids_that_are_none(folder: Path, ids: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        encoder(folder).embed_tokens(ids)


@pytest.mark.parametrize("kind", [">i4", "<i8", ">u2", np.int8])
def test_ids_in_arrays_of_any_byte_order(folder: Path, kind: Any) -> None:
    made = encoder(folder)
    made.embed_tokens(np.array([[2, 5, 3]], kind))
    assert isinstance(made._executable, Recorder)
    assert made._executable.tokens == [[2, 5, 3]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("\ud800", "text 0 is not valid Unicode at character 0: surrogates not allowed"),
        (["a", "b\udfff"], "text 1 is not valid Unicode at character 1"),
        (b"x", "texts are a string or several, but got bytes"),
        ([b"x"], "text 0 must be a string, but is of type bytes"),
        (None, "texts are a string or several, but got NoneType"),
    ],
)
def test_texts_that_are_none(folder: Path, text: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        encoder(folder).embed(text)


def test_tokenize_takes_a_text(folder: Path) -> None:
    for text in (b"x", None, 5, ["a"], "\ud800"):
        with pytest.raises(InputError):
            encoder(folder).tokenize(text)  # type: ignore[arg-type]


def test_random_folders(tmp_path: Path) -> None:
    report = campaign.run(Plan("folders", seed=SEED, count=150, out=tmp_path))
    assert not report.findings, report.to_dict()
    assert report.statuses["ok"] > 5


def test_the_source_of_the_fuzzer_uses_every_file() -> None:
    assert set(FILES) <= set(folders.source())
