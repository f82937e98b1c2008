# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What GGUF files say, and don't say, about a vocabulary's special tokens, by the conventions of llama.cpp.

Where metadata lacks an id, ``llama`` vocabularies have 1 for the begin of a text and 2 for its end. Which tokens end
generation follows from metadata and from the texts of tokens, whatever type they have: files often name one of them
only, and mark others as plain text.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable, Mapping, Sequence

from ..errors import TokenizerError
from ..frontends.model_file import MetadataValue


class TokenType(enum.IntEnum):
    """Kinds of tokens, numbered as in ``tokenizer.ggml.token_type``."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


_PREFIX = "tokenizer.ggml."

_ENDING_IDS = ("eos", "eot", "eom", "fim_pad", "fim_rep", "fim_sep")
"""Words of ``tokenizer.ggml.<word>_token_id`` whose tokens end generation."""

_ENDING_TEXTS = frozenset(
    {
        *("<|eot_id|>", "<|eom_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|calls|>", "<|flush|>"),
        *("<|endoftext|>", "<|end_of_text|>", "<end_of_turn>", "<end_of_utterance>", "<eos>", "[EOS]"),
        *("<EOT>", "_<EOT>", "[EOT]", "< EOT >", "_< EOT >", "<turn|>", "<|tool_response>"),
        "<\uff5cend\u2581of\u2581sentence\uff5c>",
        *("<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<|file_sep|>"),
    }
)
"""Texts of tokens that end a turn, a message, or a file."""

_ENDING_IF_CONTROL = frozenset({"</s>"})
"""Likewise, where the token is a control token: it may be HTML, too."""

_UNLESS: tuple[tuple[str, frozenset[str]], ...] = (
    ("<|end|>", frozenset({"<|return|>", "<|call|>"})),  # there, <|end|> ends a part of a message
    ("<|end|>", frozenset({"<|calls|>", "<|flush|>"})),
)
"""Texts that don't end generation where a vocabulary has all of some others."""

_DEFAULTS: Mapping[str, Mapping[str, int]] = {"llama": {"bos": 1, "eos": 2}}


def ending_tokens(tokens: Sequence[str], controls: Collection[int]) -> frozenset[int]:
    """The ids of tokens that end generation by their texts; ``controls`` are those of control tokens."""
    found: dict[str, list[int]] = {}
    for index, text in enumerate(tokens):
        if text in _ENDING_TEXTS or (text in _ENDING_IF_CONTROL and index in controls):
            found.setdefault(text, []).append(index)
    dropped = {text for text, others in _UNLESS if others <= found.keys()}
    return frozenset(index for text, indices in found.items() if text not in dropped for index in indices)


def special_id(metadata: Mapping[str, MetadataValue], word: str, kind: str, size: int) -> int | None:
    """An id by its word (``bos``, ``eos``), or what it is where a vocabulary of that kind has none; None for none."""
    value: int | None = metadata.get(f"{_PREFIX}{word}_token_id")
    if value is not None:
        return value  # checked by who asks
    default = _DEFAULTS.get(kind, {}).get(word)
    return default if default is not None and default < size else None


def ending_ids(metadata: Mapping[str, object], size: int) -> Iterable[int]:
    """The ids in the metadata whose tokens end generation.

    Raises TokenizerError for ids that aren't in the vocabulary, of ``size`` tokens, and where texts are asked to end
    with such a token: a prompt would.
    """
    if metadata.get(f"{_PREFIX}add_eos_token"):
        raise TokenizerError(f"'{_PREFIX}add_eos_token' is true, which ends every prompt before it is continued")
    for word in _ENDING_IDS:
        value = metadata.get(f"{_PREFIX}{word}_token_id")
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < size:
            raise TokenizerError(f"'{_PREFIX}{word}_token_id' must be in [0, {size}), but is {value!r}"[:200])
        yield value


__all__ = ["TokenType", "ending_ids", "ending_tokens", "special_id"]
