# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The vocabulary of a folder: texts by id, of `tokenizer.json`, and the special ones that its other files name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rlx_mlir.files import Json

from ..errors import TokenizerError, shortened

HUGGINGFACE = "huggingface"
"""`tokenizer.ggml.model` of folders: the vocabulary is what `TOKENIZER_KEY` describes."""
TOKENIZER_KEY = "tokenizer.huggingface.json"
"""The object in `tokenizer.json`."""
SETTINGS_KEY = "tokenizer.huggingface.settings"
"""The objects in the files beside it, by their names; empty where there is no such file."""

Document = Mapping[str, Json]
Settings = Mapping[str, Document]

_MOST = 1 << 22
"""Ids are below: more than twice ten times as many as any vocabulary has."""


def added_tokens(document: Document) -> list[dict[str, Json]]:
    """The tokens that stand beside the model's, each with its ``id``, ``content`` and ``special``.

    Raises TokenizerError where one is malformed.
    """
    found = document.get("added_tokens") or []
    if not isinstance(found, list):
        raise TokenizerError(f"'added_tokens' must be a list, but is {shortened(found)}")
    for token in found:
        fits = isinstance(token, dict) and isinstance(token.get("content"), str)
        if not fits or not isinstance(token.get("special"), bool | None) or not _is_id(token.get("id")):
            raise TokenizerError(f"an added token must have 'id' and 'content', but is {shortened(token)}")
    return found


def tokens_of(document: Document) -> list[str]:
    """Texts by id; those of ids that no token has are empty.

    Raises TokenizerError where the vocabulary is malformed, or two tokens have one id.
    """
    model = document.get("model")
    vocabulary = model.get("vocab") if isinstance(model, dict) else None
    pairs: Iterable[tuple[object, object]]
    if isinstance(vocabulary, dict):  # ids by their texts
        pairs = [(index, text) for text, index in vocabulary.items()]
    elif isinstance(vocabulary, list):  # texts with scores, in the order of ids
        pairs = [(index, each[0] if isinstance(each, list) and each else None) for index, each in enumerate(vocabulary)]
    else:
        raise TokenizerError("'model' must have a 'vocab', which has ids by texts, or texts with scores")
    by_id: dict[int, str] = {}
    for index, text in [*pairs, *((token["id"], token["content"]) for token in added_tokens(document))]:
        if not isinstance(text, str) or not _is_id(index):
            raise TokenizerError(f"a token must have a text and an id below {_MOST}, but is {shortened((text, index))}")
        assert isinstance(index, int)
        if by_id.setdefault(index, text) != text:
            raise TokenizerError(f"id {index} must have one text, but has {shortened(by_id[index])}, {shortened(text)}")
    if not by_id:
        raise TokenizerError("the vocabulary is empty")
    return [by_id.get(index, "") for index in range(max(by_id) + 1)]


def _is_id(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MOST


def special_id(settings: Settings, tokens: list[str], word: str) -> int | None:
    """The id of the token that begins (``bos``) or ends (``eos``) texts; None where there is none.

    The tokenizer's files name a text, those of the model an id, which counts where there is no text.

    Raises TokenizerError where the vocabulary lacks it.
    """
    for name in ("tokenizer_config.json", "special_tokens_map.json"):
        text = settings[name].get(f"{word}_token")
        text = text.get("content") if isinstance(text, dict) else text
        if text is None:
            continue
        if not isinstance(text, str) or text not in tokens:
            raise TokenizerError(f"'{word}_token' of {name} must be a token, but is {shortened(text)}")
        return tokens.index(text)
    ids = _ids(settings, ("config.json",), f"{word}_token_id", len(tokens))
    return ids[0] if ids else None


def ending_ids(settings: Settings, size: int) -> list[int]:
    """Ids after which generation ends, of `generation_config.json` and `config.json`; TokenizerError for other values.

    `size` is the vocabulary's.
    """
    return _ids(settings, ("generation_config.json", "config.json"), "eos_token_id", size)


def _ids(settings: Settings, names: Iterable[str], key: str, size: int) -> list[int]:
    found: list[int] = []
    for name in names:
        value = settings[name].get(key)
        for each in value if isinstance(value, list) else [] if value is None else [value]:
            if not _is_id(each):
                raise TokenizerError(f"'{key}' of {name} must be an id, but is {shortened(each)}")
            if each < size:  # rows of the table that have no token
                found.append(each)
    return found


__all__ = [
    "HUGGINGFACE",
    "SETTINGS_KEY",
    "TOKENIZER_KEY",
    "added_tokens",
    "ending_ids",
    "special_id",
    "tokens_of",
]
