# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tokenizers of folders: `tokenizer.json`, by the library that it is made for.

The library has two tokenizers of it: one for texts in which control tokens are recognised, and one for all others,
which knows none of them, so that a text can't contain one. What ids mean is what `Tokenizer` does with vocabularies of
GGUF: byte-level ones are of its kind ``gpt2``, those with U+2581 for spaces of its kind ``llama``.
"""

from __future__ import annotations

import copy
import functools
import json
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from ..boundary import foreign_errors, required
from ..checks import Option
from ..errors import TokenizerError, UnsupportedError, shortened
from ..files import Json
from ..frontends.huggingface_vocabulary import HUGGINGFACE, SETTINGS_KEY, TOKENIZER_KEY, added_tokens, ending_ids
from ..frontends.model_file import MetadataValue
from .tokenizer import Tokenizer, TokenType

if TYPE_CHECKING:
    import tokenizers

_SPACE = "\u2581"
_BYTE = re.compile(r"<0x[0-9A-F]{2}>")
#: What cuts texts at white space, and takes that away.
_CUT = "WhitespaceSplit"
#: Kinds of models whose tokens are texts, or bytes.
_MODELS = ("BPE", "Unigram")


class _Library:
    """The library's tokenizer of a description."""

    def __init__(self, document: Mapping[str, Json]) -> None:
        library = required("tokenizers", "texts", TokenizerError)
        plain = {**document, "post_processor": None, "padding": None, "truncation": None}
        self.tokenizer: tokenizers.Tokenizer = library.Tokenizer.from_str(json.dumps(plain))

    def encode(self, text: str) -> list[int]:
        """Ids, without any that begin or end texts."""
        return list(self.tokenizer.encode(text, add_special_tokens=False).ids)


class JsonTokenizer(Tokenizer):
    """A tokenizer of `tokenizer.json`; see `Tokenizer`.

    Attributes:
        document: the object in the file.
        added: its added tokens.
    """

    def __init__(
        self,
        document: Mapping[str, Json],
        settings: Mapping[str, Mapping[str, Json]],
        tokens: list[str],
        **options: Option,
    ) -> None:
        """Builds the tokenizer.

        Args:
            document: the object in `tokenizer.json`.
            settings: those in the other files, see `SETTINGS_KEY`.
            tokens: texts by id.
            options: those of `Tokenizer`: ids that begin and end texts, and where all this is from.

        Raises TokenizerError where files are malformed or don't fit each other, UnsupportedError for kinds of models
        and of decoders that aren't implemented.
        """
        added = added_tokens(document)
        kind, prefixed = _kind(document)
        _check_added(settings["tokenizer_config.json"], tokens)
        self._full = _Library(document)
        self.document, self.added = document, added
        for token in added:
            if (number := self._full.tokenizer.token_to_id(token["content"])) != token["id"]:
                raise TokenizerError(
                    f"added token {shortened(token['content'])} has id {token['id']}, but the library gives it "
                    f"{number}: ids of added tokens follow those of the model, without gaps"
                )
        first = _beginning(document, self._full, settings["tokenizer_config.json"], options.get("bos_id"))
        if first is not None:
            options["bos_id"] = first
        super().__init__(
            tokens,
            kind=kind,
            types=_types(document, tokens, added, kind),
            ends=ending_ids(settings, len(tokens)),
            add_bos=first is not None,
            add_space_prefix=prefixed,
            backend=_Library(_without_controls(document, added)),
            **options,
        )

    @property
    def library(self) -> tokenizers.Tokenizer:
        """The library's tokenizer, which knows control tokens."""
        return self._full.tokenizer

    def _encoded(self, text: str, special: bool, continued: bool) -> list[int]:
        library = self._full if special else self._backend
        if continued and self.add_space_prefix:
            library = self._unprefixed[special]
        with foreign_errors(f"{self._origin}the text can't be tokenized", TokenizerError):
            return library.encode(text)

    @functools.cached_property
    def _unprefixed(self) -> tuple[_Library, _Library]:
        """The libraries without and with control tokens that put no space in front of a text."""
        document = _without_space(self.document)
        return _Library(_without_controls(document, self.added)), _Library(document)


def tokenizer_of(metadata: Mapping[str, MetadataValue], *, origin: str = "") -> Tokenizer:
    """The tokenizer of a model's metadata, be they a GGUF file's or a folder's; `origin` is where it is, for errors.

    Raises TokenizerError where there is none, or a broken one, UnsupportedError for kinds that aren't implemented.
    """
    if metadata.get("tokenizer.ggml.model") != HUGGINGFACE or TOKENIZER_KEY not in metadata:
        return Tokenizer.from_metadata(metadata, origin=origin)
    ids = {f"{word}_id": metadata[f"tokenizer.ggml.{word}_token_id"] for word in ("bos", "eos")}
    document, settings, tokens = (metadata[key] for key in (TOKENIZER_KEY, SETTINGS_KEY, "tokenizer.ggml.tokens"))
    try:
        with foreign_errors("tokenizer.json can't be read", TokenizerError, but=(UnsupportedError,)):
            return JsonTokenizer(document, settings, tokens, origin=origin, **ids)
    except (TokenizerError, UnsupportedError) as error:
        if str(error).startswith(origin):
            raise
        raise type(error)(f"{origin}: {error}") from error.__cause__


def parts_of(value: object) -> Iterator[Mapping[str, Json]]:
    """A normalizer, pre-tokenizer or decoder, or those that it is a sequence of."""
    if not isinstance(value, dict):
        return
    for key in ("normalizers", "pretokenizers", "decoders"):
        for each in value.get(key) or ():
            yield from parts_of(each)
    yield value


def _kind(document: Mapping[str, Json]) -> tuple[str, bool]:
    """The kind of vocabulary, and whether a text's first space is left out again."""
    model = document.get("model")
    word = model.get("type", "BPE") if isinstance(model, dict) else None
    if word not in _MODELS:
        raise UnsupportedError(f"models of 'type' {shortened(word)} are not supported, known are {', '.join(_MODELS)}")
    parts = {str(part.get("type")): part for part in parts_of(document.get("decoder"))}
    if "ByteLevel" in parts:
        return "gpt2", False
    pattern = parts.get("Replace", {}).get("pattern")
    replaced = pattern.get("String") if isinstance(pattern, dict) else None
    space = parts["Metaspace"].get("replacement") if "Metaspace" in parts else replaced
    if space != _SPACE:
        raise UnsupportedError(
            f"the decoder must be of bytes, or have {_SPACE!r} for spaces, but is {shortened(document.get('decoder'))}"
        )
    if "Metaspace" in parts:
        own = parts["Metaspace"]
        scheme = own.get("prepend_scheme", "always" if own.get("add_prefix_space", True) else "never")
        return "llama", scheme != "never"
    return "llama", "Strip" in parts and bool(parts["Strip"].get("start"))


def _types(document: Mapping[str, Json], tokens: list[str], added: list[dict[str, Json]], kind: str) -> list[int]:
    """`TokenType` numbers by id."""
    types = [int(TokenType.NORMAL if text else TokenType.UNUSED) for text in tokens]
    model = document["model"]
    if kind == "llama":
        for index, text in enumerate(tokens):
            if _BYTE.fullmatch(text):
                types[index] = int(TokenType.BYTE)
    unknown = tokens.index(model["unk_token"]) if model.get("unk_token") in tokens else model.get("unk_id")
    if isinstance(unknown, int) and 0 <= unknown < len(tokens):
        types[unknown] = int(TokenType.UNKNOWN)
    for token in added:
        types[token["id"]] = int(TokenType.CONTROL if token.get("special") else TokenType.USER_DEFINED)
    return types


def _check_added(config: Mapping[str, Json], tokens: list[str]) -> None:
    """Compares what `tokenizer_config.json` says of added tokens with the vocabulary."""
    added = config.get("added_tokens_decoder") or {}
    for number, token in added.items() if isinstance(added, dict) else ():
        text = token.get("content") if isinstance(token, dict) else None
        known = number.isascii() and number.isdigit() and len(number) < 8 and int(number) < len(tokens)
        if not known or tokens[int(number)] != text:
            there = shortened(tokens[int(number)]) if known else "none"
            raise TokenizerError(
                f"tokenizer_config.json: added token {shortened(text)} has id {shortened(number)}, but the token of "
                f"that id is {there}"
            )


def _beginning(
    document: Mapping[str, Json], library: _Library, config: Mapping[str, Json], bos: int | None
) -> int | None:
    """The id that begins texts; None where they begin without one.

    `tokenizer_config.json` rules, where it says something. TokenizerError where texts would end with a token, too: a
    prompt is continued.
    """
    ended = "which ends every prompt before it is continued"
    begin, end = config.get("add_bos_token"), config.get("add_eos_token")
    if end:
        raise TokenizerError(f"tokenizer_config.json: 'add_eos_token' is true, {ended}")
    if begin is not None or end is not None:
        return bos if begin else None
    if document.get("post_processor") is None:
        return None
    import tokenizers

    whole = tokenizers.Tokenizer.from_str(json.dumps({**document, "padding": None, "truncation": None}))
    own, text = library.encode("a"), list(whole.encode("a").ids)
    count = next((at for at in range(len(text) + 1) if text[at : at + len(own)] == own), 0)
    if len(text) > count + len(own):
        raise TokenizerError(f"the post-processor puts a token behind texts, {ended}")
    if count > 1:
        raise UnsupportedError(f"the post-processor must put one token before texts at most, but puts {count}")
    return text[0] if count else None


def _without_controls(document: Mapping[str, Json], added: list[dict[str, Json]]) -> dict[str, Json]:
    """A description whose texts can't contain control tokens: none is cut out, nor found in the vocabulary."""
    controls = {token["content"] for token in added if token.get("special")}
    # Names that no text has: those of bytes and of SentencePiece's spaces have no noncharacters.
    renamed = {text: f"\ufffe{number}\uffff" for number, text in enumerate(sorted(controls))}
    model = copy.copy(document["model"])
    if isinstance(model["vocab"], dict):
        model["vocab"] = {renamed.get(text, text): index for text, index in model["vocab"].items()}
    else:
        model["vocab"] = [[renamed.get(text, text), score] for text, score in model["vocab"]]
    if isinstance(model.get("unk_token"), str):
        model["unk_token"] = renamed.get(model["unk_token"], model["unk_token"])
    if isinstance(model.get("merges"), list):
        model["merges"] = [pair for pair in model["merges"] if not controls & _named(pair)]
    # They keep their places: the library numbers added tokens anew where some are missing.
    own = [{**token, "content": renamed.get(token["content"], token["content"])} for token in added]
    return {**document, "model": model, "added_tokens": own}


def _without_space(document: Mapping[str, Json]) -> dict[str, Json]:
    """A description that puts no space in front of a text."""

    def plain(value: Json) -> Json:
        if not isinstance(value, dict):
            return value
        if value.get("type") == "Prepend":
            return None
        if value.get("type") == "Metaspace":
            return {**value, "prepend_scheme": "never", "add_prefix_space": False}
        found = dict(value)
        for key in ("normalizers", "pretokenizers"):
            if isinstance(value.get(key), list):
                found[key] = [each for each in map(plain, value[key]) if each is not None and each["type"] != _CUT]
        return found

    changed = {key: plain(document.get(key)) for key in ("normalizer", "pre_tokenizer")}
    if any(step.get("type") == _CUT for step in parts_of(document.get("pre_tokenizer"))):
        # Spaces stay before words that aren't the first one: white space becomes one, and goes behind texts.
        spaces = {"type": "Replace", "pattern": {"Regex": r"\s+\u2581?"}, "content": " "}
        last = {"type": "Split", "pattern": {"Regex": r" \z"}, "behavior": "Removed", "invert": False}
        for key, own, steps in (
            ("normalizer", "normalizers", [changed["normalizer"], spaces]),
            ("pre_tokenizer", "pretokenizers", [last, changed["pre_tokenizer"]]),
        ):
            changed[key] = {"type": "Sequence", own: [step for step in steps if step]}
    return {**document, **changed}


def _named(pair: object) -> set[str]:
    """The tokens that a merge is of, and the one that it gives."""
    first, _, second = pair.partition(" ") if isinstance(pair, str) else (pair[0], "", pair[1])  # type: ignore[index]
    return {first, second, first + second}


__all__ = ["JsonTokenizer", "parts_of", "tokenizer_of"]
