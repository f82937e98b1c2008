# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What model files mean where they leave something out, for the fuzzer of model files.

Metadata has defaults, not all of which are "off": a file without a key is to be read as one that spells the default
out, or refused as that one is. Tokens that end generation do, whichever key or text says so. And a file that says it
is one of several is no model, whatever else it holds.

The table of defaults is the format's and llama.cpp's, written down here once more: what reads files doesn't use it.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Mapping
from typing import Any, cast

import numpy as np

from rlx_mlir.errors import RlxError, UnsupportedError
from rlx_mlir.frontends.gguf import GGUFFile
from rlx_mlir.models.config import ModelConfig
from rlx_mlir.models.tokenizer import Tokenizer

Metadata = Mapping[str, object]

_TOKENIZER = "tokenizer.ggml."
#: Words of `tokenizer.ggml.<word>_token_id`, and texts, whose tokens end generation in every vocabulary.
_ENDS = ("eos", "eot", "eom")
_ENDING_TEXTS = frozenset({"<|eot_id|>", "<|eom_id|>", "<|im_end|>"})
#: Pre-tokenizers of byte-level vocabularies that don't begin texts with a token.
_WITHOUT_BEGIN = (None, "default", "smollm")


def _whole(value: object) -> int | None:
    """A number above 0; None for anything else, as damaged files have."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _width_of_a_head(own: Metadata) -> int | None:
    hidden, heads = _whole(own.get("embedding_length")), _whole(own.get("attention.head_count"))
    return None if hidden is None or heads is None or hidden % heads else hidden // heads


#: By key of an architecture's metadata: what its absence means, given the metadata without prefix; None for unknown.
_OF_MODELS: dict[str, Callable[[Metadata], object]] = {
    "attention.head_count_kv": lambda own: _whole(own.get("attention.head_count")),
    "attention.key_length": _width_of_a_head,
    "attention.value_length": _width_of_a_head,
    "attn_logit_softcapping": lambda own: 0.0,
    "expert_count": lambda own: 0,
    "final_logit_softcapping": lambda own: 0.0,
    "rope.dimension_count": lambda own: _whole(own.get("attention.key_length", _width_of_a_head(own))),
    "rope.freq_base": lambda own: 10000.0,
    "rope.scaling.factor": lambda own: own.get("rope.scale_linear", 1.0),
    "rope.scaling.type": lambda own: "linear",
}
#: Likewise, of one architecture, in place of what it means in others.
_OF_ARCHITECTURES: dict[str, dict[str, object]] = {
    "gemma2": {"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0},
}
_OF_FILES: dict[str, object] = {"general.quantization_version": 2, "general.type": "model", "split.count": 1}


def _of_vocabularies(metadata: Metadata) -> dict[str, object]:
    """What absent keys of the vocabulary mean, without prefix."""
    kind, tokens, pre = (metadata.get(f"{_TOKENIZER}{word}") for word in ("model", "tokens", "pre"))
    if not isinstance(kind, str) or not isinstance(tokens, list) or not isinstance(pre, str | None):
        return {}
    found: dict[str, object] = {"token_type": np.ones(len(tokens), np.int32), "pre": "default"}
    if kind == "llama":
        ids = {"bos_token_id": 1, "eos_token_id": 2}
        found |= {"add_bos_token": True, "add_space_prefix": True}
        found |= {key: index for key, index in ids.items() if index < len(tokens)}
    elif kind == "gpt2" and pre in _WITHOUT_BEGIN:
        found["add_bos_token"] = False
    return found


#: Keys that files may lack, for who takes them away; those of architectures without prefix.
OPTIONAL = frozenset(
    {
        *_OF_MODELS,
        *_OF_FILES,
        *(f"{_TOKENIZER}{word}" for word in ("token_type", "pre", "add_bos_token", "add_space_prefix")),
        *(f"{_TOKENIZER}{word}_token_id" for word in ("bos", *_ENDS)),
    }
)


class _Spelled:
    """A file whose metadata has every default that it leaves out."""

    def __init__(self, file: GGUFFile) -> None:
        own = {key.removeprefix(f"{file.architecture}."): value for key, value in file.metadata.items()}
        given: dict[str, object] = {**_OF_FILES}
        given |= {f"{file.architecture}.{key}": default(own) for key, default in _OF_MODELS.items()}
        own_defaults = _OF_ARCHITECTURES.get(file.architecture, {})
        given |= {f"{file.architecture}.{key}": value for key, value in own_defaults.items()}
        given |= {f"{_TOKENIZER}{key}": value for key, value in _of_vocabularies(file.metadata).items()}
        absent = {key: value for key, value in given.items() if key not in file.metadata and value is not None}
        self.metadata = ChainMap(absent, cast("dict[str, object]", file.metadata))
        self.tensors, self.path, self.paths, self.architecture = file.tensors, file.path, file.paths, file.architecture


def _read(what: Callable[[], dict[str, object]]) -> dict[str, object] | str:
    try:
        return what()
    except RlxError as error:
        return f"{type(error).__name__}: {error}"


def _numbers_of(file: GGUFFile) -> dict[str, object]:
    return ModelConfig.from_gguf(file).numbers()


def _rules_of(metadata: Metadata) -> dict[str, object]:
    tokenizer = Tokenizer.from_metadata(metadata)
    words = ("bos_id", "eos_id", "stop_ids", "add_bos", "add_space_prefix", "types")
    return {word: getattr(tokenizer, word) for word in words}


def check_defaults(file: GGUFFile) -> None:
    """AssertionError where a default that is spelled out changes what a file is read as, or whether it is."""
    try:
        spelled = _Spelled(file)
    except RlxError:
        return  # a value is damaged
    readers: dict[str, Callable[[Any], dict[str, object]]] = {
        "model": _numbers_of,
        "vocabulary": lambda own: _rules_of(own.metadata),
    }
    for what, read in readers.items():
        first, second = (_read(lambda own=own, read=read: read(own)) for own in (file, spelled))  # type: ignore[misc]
        if isinstance(first, str) and isinstance(second, str):
            continue
        if isinstance(first, str) or isinstance(second, str):
            raise AssertionError(f"{what}: {first}, but with its defaults spelled out {second}"[:600])
        for name, value in first.items():
            if value != second[name]:
                raise AssertionError(
                    f"{what}: '{name}' is {value}, but {second[name]} with the defaults spelled out"[:600]
                )


def check_ends(metadata: Metadata, tokenizer: Tokenizer) -> None:
    """AssertionError where a token that ends generation by a key or by its text doesn't."""
    named = {word: metadata.get(f"{_TOKENIZER}{word}_token_id") for word in _ENDS}
    going_on = [f"{word} {index}" for word, index in named.items() if index not in (None, *tokenizer.stop_ids)]
    for index, text in enumerate(tokenizer.tokens):
        if text in _ENDING_TEXTS and index not in tokenizer.stop_ids:
            going_on.append(f"{text} {index}")
    if going_on:
        raise AssertionError(f"tokens don't end generation: {', '.join(going_on)[:300]}")


def check_part(file: GGUFFile) -> None:
    """AssertionError where a file that is one of several, without these, is read as a model, or refused for another
    reason."""
    try:
        count = _whole(file.metadata.get("split.count"))
    except RlxError:
        return  # it is damaged
    if count is None or count == len(file.paths):
        return
    try:
        ModelConfig.from_gguf(file)
    except UnsupportedError as error:
        if "split model" in str(error):
            return
        raise AssertionError(f"one of {count} files is refused as something else: {error}") from error
    except RlxError:
        return  # something else in it is damaged, and is read before
    raise AssertionError(f"one of {count} files is read as a whole model")


__all__ = ["OPTIONAL", "check_defaults", "check_ends", "check_part"]
