# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Vocabularies of SentencePiece as its library reads them: BPE, and unigrams."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..boundary import foreign_errors, required
from ..errors import TokenizerError
from .special_tokens import TokenType

_SPACE = "\u2581"
#: Numbers of kinds of models.
_UNIGRAM, _BPE = 1, 2


@dataclass(frozen=True)
class UnigramForm:
    """How texts are brought to a form before they are cut into unigrams.

    Attributes:
        characters: SentencePiece's table of characters and what they become; empty where all stay.
        merges_spaces: several spaces become one, and those at both ends of a text go.
    """

    characters: bytes = b""
    merges_spaces: bool = False

    @classmethod
    def of(cls, characters: object, merges_spaces: bool | None) -> UnigramForm:
        """That of a GGUF file's metadata; TokenizerError where the table is none of bytes."""
        if characters is None:
            return cls(b"", bool(merges_spaces))
        if not isinstance(characters, np.ndarray) or characters.dtype.itemsize != 1:
            raise TokenizerError("'tokenizer.ggml.precompiled_charsmap' must be bytes")
        return cls(characters.tobytes(), bool(merges_spaces))


class _Pieces:
    """The library's processor of a vocabulary."""

    def __init__(self, model: bytes) -> None:
        sentencepiece = required("sentencepiece", "'llama' and 't5' vocabularies", TokenizerError)
        self.processor: Any = sentencepiece.SentencePieceProcessor()
        with foreign_errors("the vocabulary is not a valid SentencePiece model", TokenizerError):
            self.processor.LoadFromSerializedProto(model)

    def encode(self, text: str) -> list[int]:
        """Ids of a text, which gets no space in front."""
        return list(self.processor.EncodeAsIds(text))


class _Unigrams:
    """Unigrams of texts that are brought to a form first: a text that begins with a space keeps one of several."""

    def __init__(self, pieces: bytes, form: UnigramForm, *, spaced: bool) -> None:
        self._plain = _Pieces(pieces + _normalizer(form.characters, merges=form.merges_spaces))
        #: For texts that begin with a space, and to see which do.
        self._behind: tuple[_Pieces, _Pieces] | None = None
        if spaced and form.merges_spaces:
            own = (_normalizer(form.characters, merges=True, prefix=True), _normalizer(form.characters))
            self._behind = (_Pieces(pieces + own[0]), _Pieces(pieces + own[1]))

    def encode(self, text: str) -> list[int]:
        """Ids of a text, which gets no space in front."""
        if self._behind is not None:
            spaced, whole = self._behind
            if str(whole.processor.Normalize(text)).startswith(_SPACE):
                return spaced.encode(text)
        return self._plain.encode(text)


def sentence_pieces(
    tokens: Sequence[str],
    scores: Sequence[float],
    types: Sequence[int],
    *,
    unigram: UnigramForm | None = None,
    spaced: bool = False,
) -> _Pieces | _Unigrams:
    """What tokenises texts by a vocabulary.

    Args:
        tokens, scores, types: of the vocabulary, by id.
        unigram: the form of texts, of unigrams; None for BPE.
        spaced: texts get a space in front, which is part of them then.

    Raises TokenizerError where the library can't read the vocabulary.
    """
    # Pieces are numbered by their position, so a vocabulary turns into a model by listing it. Types are numbered
    # alike; only what texts may become is NORMAL.
    keep = {TokenType.NORMAL, TokenType.UNKNOWN, TokenType.BYTE}
    model = bytearray()
    for token, score, kind in zip(tokens, scores, types, strict=True):
        piece = _message(1, token.encode()) + b"\x15" + struct.pack("<f", score)
        model += _message(1, piece + bytes([0x18, kind if kind in keep else TokenType.CONTROL]))
    byte_fallback = bytes([TokenType.BYTE in types])
    model += _message(2, bytes([0x18, _BPE if unigram is None else _UNIGRAM]) + b"\x98\x02" + byte_fallback)
    if unigram is None:
        return _Pieces(bytes(model) + _normalizer())
    return _Unigrams(bytes(model), unigram, spaced=spaced)


def _normalizer(characters: bytes = b"", *, merges: bool = False, prefix: bool = False) -> bytes:
    """What is done with a text first: its characters, whether spaces become one, whether one comes in front."""
    own = _message(1, b"identity") + (_message(2, characters) if characters else b"")
    return _message(3, own + bytes([0x18, prefix, 0x20, merges, 0x28, 1]))  # spaces become U+2581


def _message(number: int, payload: bytes) -> bytes:
    """A length-delimited protobuf field."""
    size, length = len(payload), bytearray()
    while size > 127:
        length.append(size & 127 | 128)
        size >>= 7
    length.append(size)
    return bytes([number << 3 | 2]) + bytes(length) + payload


__all__ = ["UnigramForm", "sentence_pieces"]
