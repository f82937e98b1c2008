# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tokenizers of encoders: the library's, from `tokenizer.json` or a `vocab.txt`, as `tokenizer_config.json` wants it.

What is honoured of `tokenizer_config.json`, as transformers does:

| entries | meaning |
|---|---|
| `do_lower_case`, `strip_accents`, `tokenize_chinese_chars` | of BERT's normalizer; they overrule `tokenizer.json` |
| `add_prefix_space` | of the byte-level pre-tokenizer; likewise |
| `truncation_side` | the end that long texts lose |
| `model_max_length` | tokens that are read, where nothing else says |
| `unk_token`, `cls_token`, `sep_token`, `pad_token`, `mask_token` | with `vocab.txt`: names of the special tokens |
| `added_tokens_decoder` | must agree with the vocabulary |
| `do_basic_tokenize`, `never_split`, `wordpieces_prefix` | refused where they would change something |
| `tokenizer_class` | with `vocab.txt`: refused if it isn't BERT's |

Padding is this package's own, and all other entries are for training, for decoding, or for other kinds of tokenizers.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from ..boundary import foreign_errors, required
from ..checks import Option
from ..errors import InputError, TokenizerError, UnsupportedError, shortened
from ..files import check_regular, is_there, read_text
from ..frontends.documents import read_object
from .encoder_config import EncoderConfig

if TYPE_CHECKING:
    import tokenizers


_SIDES = ("left", "right")
_SPECIAL = ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")
_BERT = frozenset({"BertTokenizer", "BertTokenizerFast", "DistilBertTokenizer", "DistilBertTokenizerFast"})
#: Entries of `tokenizer_config.json`, and of BERT's normalizer.
_NORMALIZER = {
    "do_lower_case": "lowercase",
    "strip_accents": "strip_accents",
    "tokenize_chinese_chars": "handle_chinese_chars",
}


def _broken(message: str, *, path: str | os.PathLike[str] | None = None) -> TokenizerError:
    return TokenizerError(message if path is None else f"{os.fspath(path)}: {message}")


def _library() -> ModuleType:
    """The library; TokenizerError where it isn't installed."""
    return required("tokenizers", "texts", TokenizerError)


class TextTokenizer:
    """Texts to ids of tokens, with the special ones around them, by `tokenizer.json` or a WordPiece `vocab.txt`."""

    def __init__(self, folder: Path, config: EncoderConfig) -> None:
        """Reads the folder's files.

        Raises TokenizerError where there are none, or they are malformed or don't fit the model, UnsupportedError for
        entries that aren't supported.
        """
        settings = _Settings(folder, config.architecture)
        self._path = path = folder / "tokenizer.json"
        if is_there(path):
            text = read_text(path, error=_broken)
            with foreign_errors(str(path), TokenizerError):
                self._tokenizer = _library().Tokenizer.from_str(text)
                settings.adapt(self._tokenizer)
        else:
            self._path = path = folder / "vocab.txt"
            if not is_there(path):
                raise TokenizerError(f"{folder}: there is neither a tokenizer.json nor a vocab.txt")
            check_regular(path, budget="json_bytes", error=_broken)
            with foreign_errors(str(path), TokenizerError):
                self._tokenizer = _word_pieces(path, settings)
        with foreign_errors(str(path), TokenizerError):
            settings.check(self._tokenizer)
            # What the file says of these is what it was saved with, not what the model was made for.
            self._tokenizer.no_padding()
            self._tokenizer.no_truncation()
        self._limit(config, settings.side)

    @classmethod
    def of_description(cls, text: str, side: str, config: EncoderConfig, path: Path) -> TextTokenizer:
        """The tokenizer of a `description`; `path` is the file that has it. Raises as the constructor does."""
        self = cls.__new__(cls)
        self._path = path
        if side not in _SIDES:
            raise _broken(f"'truncation_side' must be one of {', '.join(_SIDES)}, but is {shortened(side)}", path=path)
        with foreign_errors(str(path), TokenizerError):
            self._tokenizer = _library().Tokenizer.from_str(text)
        self._limit(config, side)
        return self

    def _limit(self, config: EncoderConfig, side: str) -> None:
        """Checks ids against the model, and makes the tokenizer that reads as much as the model does."""
        self._side, path = side, self._path
        with foreign_errors(str(path), TokenizerError):
            size = 1 + max(self._tokenizer.get_vocab(with_added_tokens=True).values(), default=-1)
            if size > config.vocab:
                raise TokenizerError(f"{path}: the model has {config.vocab} token ids, but the tokenizer {size}")
            special = self._tokenizer.num_special_tokens_to_add(False)
            outside = [each for each in self._tokenizer.encode("").ids if each >= config.vocab]
            if outside:
                raise TokenizerError(
                    f"{path}: the model has {config.vocab} token ids, but a special token has {outside[0]}"
                )
            if config.max_tokens < special:
                raise InputError(
                    f"'max_tokens' must be at least the special tokens, {special}, but is {config.max_tokens}"
                )
            self._limited = type(self._tokenizer).from_str(self._tokenizer.to_str())
            self._limited.enable_truncation(config.max_tokens, direction=side)

    @property
    def description(self) -> tuple[str, str]:
        """What `of_description` reads: the library's text of the tokenizer, and the end that long texts lose."""
        return str(self._tokenizer.to_str()), self._side

    def encode(self, texts: Sequence[str], *, truncate: bool) -> list[list[int]]:
        """The ids of each text; with `truncate` not more than the model reads.

        Raises TokenizerError where the tokenizer fails, as by an id that its vocabulary doesn't have.
        """
        tokenizer = self._limited if truncate else self._tokenizer
        with foreign_errors(str(self._path), TokenizerError):
            return [encoding.ids for encoding in tokenizer.encode_batch_fast(list(texts))]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids, without special tokens."""
        with foreign_errors(str(self._path), TokenizerError):
            return str(self._tokenizer.decode(list(ids)))


class _Settings:
    """`tokenizer_config.json`, and for names of special tokens `special_tokens_map.json`."""

    def __init__(self, folder: Path, architecture: str) -> None:
        self.path = folder / "tokenizer_config.json"
        self.content = read_object(self.path, error=_broken) if is_there(self.path) else {}
        self._roberta = "roberta" in architecture
        others = folder / "special_tokens_map.json"
        names = read_object(others, error=_broken) if is_there(others) else {}
        self._names = {key: value for key, value in names.items() if key in _SPECIAL}
        self._names |= {key: value for key, value in self.content.items() if key in _SPECIAL and value is not None}
        for key in (*_NORMALIZER, "do_basic_tokenize", "add_prefix_space"):
            if not isinstance(self.content.get(key), bool | None):
                raise self.fail(key, "true or false")
        side = self.content.get("truncation_side") or "right"
        if side not in _SIDES:
            raise self.fail("truncation_side", "'left' or 'right'")
        self.side: str = side
        if self.content.get("do_basic_tokenize") is False:
            raise self.refuse("do_basic_tokenize")
        if self.content.get("never_split"):
            raise self.refuse("never_split")
        if self.content.get("wordpieces_prefix") not in (None, "##"):
            raise self.refuse("wordpieces_prefix")

    def fail(self, key: str, rule: str) -> TokenizerError:
        return _broken(f"'{key}' must be {rule}, but is {shortened(self.content[key])}", path=self.path)

    def refuse(self, key: str, why: str = "") -> UnsupportedError:
        return UnsupportedError(f"{self.path}: '{key}' = {shortened(self.content[key])} is not supported{why}")

    def name(self, key: str) -> str:
        """The text of a special token."""
        value = self._names.get(key, f"[{key.removesuffix('_token').upper()}]")
        value = value.get("content") if isinstance(value, dict) else value
        if not isinstance(value, str) or not value:
            raise _broken(f"'{key}' must be a text, but is {shortened(value)}", path=self.path)
        return value

    def normalizer(self) -> dict[str, Option]:
        """Arguments of BERT's normalizer."""
        found = {own: self.content[key] for key, own in _NORMALIZER.items() if key in self.content}
        return {own: value for own, value in found.items() if value is not None or own == "strip_accents"}

    def adapt(self, tokenizer: tokenizers.Tokenizer) -> None:
        """Overrules what `tokenizer.json` says."""
        from tokenizers import normalizers, pre_tokenizers

        if self._roberta:  # reads texts as they are, whatever the entries of BERT say
            own = tokenizer.pre_tokenizer
            space = self.content.get("add_prefix_space")
            if space is not None and isinstance(own, pre_tokenizers.ByteLevel):
                own.add_prefix_space = space
            return
        wanted = self.normalizer()
        own = tokenizer.normalizer
        if isinstance(own, normalizers.BertNormalizer):
            for name, value in wanted.items():
                setattr(own, name, value)
            return
        # Another normalizer has no such entries: it must do what they say already.
        normalize = (lambda text: text) if own is None else own.normalize_str
        for key, name, sample, plain in (
            ("do_lower_case", "lowercase", "A", "a"),
            ("strip_accents", "strip_accents", "é", "e"),
        ):
            value = wanted.get(name)
            if value is not None and (normalize(sample) == plain) != value:
                raise self.refuse(key, f" by the normalizer of tokenizer.json, {type(own).__name__}")

    def check(self, tokenizer: tokenizers.Tokenizer) -> None:
        """Compares the added tokens with the vocabulary's."""
        added = self.content.get("added_tokens_decoder") or {}
        if not isinstance(added, dict):
            raise self.fail("added_tokens_decoder", "tokens by id")
        for number, token in added.items():
            text = token.get("content") if isinstance(token, dict) else None
            if not isinstance(text, str) or not (number.isascii() and number.isdigit() and len(number) < 12):
                raise _broken(f"added token {shortened(number)} is malformed: {shortened(token)}", path=self.path)
            if tokenizer.token_to_id(text) != int(number):
                raise _broken(
                    f"added token {shortened(text)} has id {number}, but in the vocabulary "
                    f"{tokenizer.token_to_id(text)}",
                    path=self.path,
                )


def _word_pieces(path: Path, settings: _Settings) -> tokenizers.Tokenizer:
    """BERT's tokenizer for a vocabulary of one piece a line; what a line is, the library says."""
    library = _library()
    from tokenizers import models, normalizers, pre_tokenizers, processors

    kind = settings.content.get("tokenizer_class")
    if kind is not None and kind not in _BERT:
        raise settings.refuse("tokenizer_class", " with a vocab.txt; save the tokenizer as tokenizer.json")
    vocabulary = models.WordPiece.read_file(str(path))
    unknown, first, last = (settings.name(key) for key in ("unk_token", "cls_token", "sep_token"))
    missing = [word for word in (unknown, first, last) if word not in vocabulary]
    if missing:
        raise TokenizerError(
            f"{path}: a vocabulary of WordPiece has {unknown}, {first} and {last}, but lacks {missing}"
        )
    tokenizer: tokenizers.Tokenizer = library.Tokenizer(models.WordPiece(vocabulary, unk_token=unknown))
    tokenizer.normalizer = normalizers.BertNormalizer(**settings.normalizer())
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.add_special_tokens([word for word in map(settings.name, _SPECIAL) if word in vocabulary])
    tokenizer.post_processor = processors.BertProcessing((last, vocabulary[last]), (first, vocabulary[first]))
    return tokenizer


__all__ = ["TextTokenizer"]
