# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A folder's tokenizer as a GGUF file has it: `tokenizer.json` by the keys `tokenizer.ggml.*`.

Files name the regular expressions that cut texts before merging, and can't describe others. So each name is tried on
some texts: where none of them cuts all of these as the folder's tokenizer does, it is one that files can't say.

Vocabularies of SentencePiece have merges in a folder, best first, and scores of tokens in a file. A merge that comes
earlier has the better score, so that the score of a token is the number of its first merge, negated. Files put a space
in front of texts that begin with one, too, which some folders don't. Unigrams have their scores in both, and a table of
what characters become; where a folder does more with texts than files can say, those that are tried differ.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping

import numpy as np

from rlx_mlir.errors import UnsupportedError
from rlx_mlir.files import Json
from rlx_mlir.frontends.huggingface import SETTINGS_KEY, TOKENIZER_KEY
from rlx_mlir.frontends.model_file import MetadataValue
from rlx_mlir.models.json_tokenizer import parts_of, tokenizer_of
from rlx_mlir.models.tokenizer import IGNORE_MERGES, PRE_TOKENIZERS, Tokenizer, TokenType

_TRIED = (
    "Hello, world! It's 2024: we've got 12345.678 reasons, haven't we?",
    "def f(x):\n    return x ** 2  # a comment\n\n\n\tif not x:\r\n\t\tpass\n",
    "Grüße aus Köln — “naïve café”, 東京タワー, Привет, мир! שלום עולם 🎉👩‍🚀",
    "   several   spaces    and\ttabs \n \n lines   ",
    "CamelCase snake_case http://example.org/a?b=c&d=%20 a@b.c I'LL DON'T we'Re 'tis",
    "1 22 333 4444 55555 3.14e-10 $1,000.00 ½ ²³ Ⅷ ٣",
    "<tag attr='x'> {\"json\": [1, 2.5, null]} \\alpha_{i}^{2} ~~~ === ... !!!",
    "x",
    " x",
    "",
    "\u00e9\u0301 \u200b\u00a0|\u3000|\ufeff",
)
"""Texts of what tokenizers differ in: digits, contractions, spaces, line ends, scripts, symbols."""

_UNUSED = "[PAD{}]"
"""What rows of the embedding table without a token are called."""


def vocabulary_of(metadata: Mapping[str, MetadataValue], rows: int, *, origin: str) -> dict[str, MetadataValue]:
    """The keys `tokenizer.ggml.*` of a file.

    Args:
        metadata: of a folder with a tokenizer.
        rows: of the embedding table: a file has a token for each.
        origin: the folder, for errors.

    Raises TokenizerError where the folder's tokenizer is broken, UnsupportedError where it is none that files can say.
    """
    tokenizer = tokenizer_of(metadata, origin=origin)
    document = metadata[TOKENIZER_KEY]
    model = document["model"]
    is_unigram = model.get("type") == "Unigram"
    tokens, types = list(tokenizer.tokens), [int(kind) for kind in tokenizer.types]
    for index, text in enumerate(tokens):
        if not text:
            tokens[index], types[index] = _UNUSED.format(index), int(TokenType.UNUSED)
    for index in range(len(tokens), rows):
        tokens.append(_UNUSED.format(index))
        types.append(int(TokenType.UNUSED))
    if is_unigram:
        if (unknown := model.get("unk_id")) is None:
            raise UnsupportedError(
                f"{origin}: a file can't have the vocabulary: of unigrams, one is unknown ('unk_id')"
            )
        types[unknown] = int(TokenType.UNKNOWN)
    prefix = "tokenizer.ggml."
    found: dict[str, MetadataValue] = {
        f"{prefix}model": "t5" if is_unigram else tokenizer.kind,
        f"{prefix}tokens": tokens,
        f"{prefix}token_type": np.array(types, np.int32),
        f"{prefix}add_bos_token": tokenizer.add_bos,
    }
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in model.get("merges") or ()]
    if is_unigram:
        found |= _unigrams(document, len(tokens))
    elif tokenizer.kind == "gpt2":
        found[f"{prefix}merges"] = merges
    else:
        found[f"{prefix}scores"] = _scores(tokens, merges)
    found |= {f"{prefix}{word}": index for word, index in _special(metadata, tokenizer)}
    choices: list[dict[str, MetadataValue]] = [
        {f"{prefix}pre": name} for name in PRE_TOKENIZERS if (name in IGNORE_MERGES) == bool(model.get("ignore_merges"))
    ]
    if tokenizer.kind == "llama":
        choices = [{f"{prefix}pre": "default", f"{prefix}add_space_prefix": each} for each in (True, False)]
    if is_unigram:
        key = f"{prefix}remove_extra_whitespaces"
        choices = [{**choice, key: merges} for choice in choices for merges in (True, False)]
    differing = []
    for choice in choices:
        own = {**found, **choice}
        differs = _differing(tokenizer, Tokenizer.from_metadata(own, origin=origin))
        if differs is None:
            return own
        words = ", ".join(f"{key.removeprefix(prefix)} {value}" for key, value in choice.items())
        differing.append(f"{words}: {differs!r}")
    raise UnsupportedError(
        f"{origin}: a file can't have the vocabulary: by none of the ways that files name, texts have the tokens that "
        f"they have by tokenizer.json; those that differ are, by {'; by '.join(differing)}"
    )


def _special(metadata: Mapping[str, MetadataValue], tokenizer: Tokenizer) -> Iterator[tuple[str, int]]:
    """The ids of special tokens by the last words of their keys."""
    for word, index in (("bos", tokenizer.bos_id), ("eos", tokenizer.eos_id)):
        if index is not None:
            yield f"{word}_token_id", index
    others = sorted(tokenizer.stop_ids - {tokenizer.eos_id})
    if others:  # a file has one more
        yield "eot_token_id", others[-1]
    for word, key in (("pad", "padding"), ("unk", "unknown")):
        text = metadata[SETTINGS_KEY]["tokenizer_config.json"].get(f"{word}_token")
        text = text.get("content") if isinstance(text, dict) else text
        if isinstance(text, str) and text in tokenizer.tokens:
            yield f"{key}_token_id", tokenizer.tokens.index(text)


def _scores(tokens: list[str], merges: list[str]) -> np.ndarray:
    """A score for each token: of those that merges give, the better the earlier; of all others, the worst."""
    first: dict[str, int] = {}
    for number, merge in enumerate(merges):
        cut = merge.find(" ", 1)
        first.setdefault(merge[:cut] + merge[cut + 1 :], number)
    return np.array([-float(first.get(token, len(merges))) for token in tokens], np.float32)


def _unigrams(document: Mapping[str, Json], count: int) -> dict[str, MetadataValue]:
    """The scores of unigrams, 0 of tokens that texts don't become, and the table of what characters become."""
    scores = [float(score) for _, score in document["model"]["vocab"]]
    found: dict[str, MetadataValue] = {
        "tokenizer.ggml.scores": np.array(scores + [0.0] * (count - len(scores)), np.float32)
    }
    for step in parts_of(document.get("normalizer")):
        if step.get("type") == "Precompiled":
            table = base64.b64decode(step["precompiled_charsmap"])
            found["tokenizer.ggml.precompiled_charsmap"] = np.frombuffer(table, np.uint8)
    return found


def _differing(one: Tokenizer, other: Tokenizer) -> str | None:
    """A text that two tokenizers cut into other tokens; None where there is none among those tried.

    Where a space goes in front of texts, files put one in front of a space, too, and some folders don't: such texts
    aren't tried.
    """
    tried = (text for text in _TRIED if not (other.add_space_prefix and text.startswith(" ")))
    return next((text for text in tried if one.tokenize(text) != other.tokenize(text)), None)


__all__ = ["vocabulary_of"]
