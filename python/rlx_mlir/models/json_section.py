# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a bundle's section `text` has of a tokenizer of `tokenizer.json`: BPE of bytes or of characters, or
unigrams, as plain data.

What the library does with a text, in order, is what is written: tokens that were added are cut out, the rest is brought
to a form, cut into pieces, and merged. `runtime/library/tokenizer.cpp` does the same; where a tokenizer has a part that
it doesn't know, the error names that.
"""

from __future__ import annotations

import itertools
import re
import struct
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from ..errors import UnsupportedError, shortened
from ..files import Json
from . import character_map
from .json_tokenizer import JsonTokenizer, parts_of
from .normal_form import FORMS, lower_case, tables, word_characters
from .text_patterns import may_be_empty, parsed
from .tokenizer import PRE_TOKENIZERS, TokenType, byte_alphabet

_SPACE = "\u2581"
_BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
#: In the type of a token: no text becomes it by merging.
_UNMATCHED = 0x80
#: Flags of added tokens.
_CONTROL, _NORMALIZED, _LEFT, _RIGHT, _ALONE = 1, 2, 4, 8, 16
#: Where a space is put first: nowhere, in front of texts before or behind users' tokens are cut out, of the first,
#: or of each word between white space, which goes.
_NOWHERE, _NORMAL, _EACH, _FIRST, _EACH_WORD = range(5)
_LOWER = "Lowercase"
#: Pieces that begin with a space each, where there is one.
_WORDS = " [^ ]*|[^ ]+"
_PUNCTUATION = r"[!-\/:-@\[-`\{-~\p{P}]"


def described(tokenizer: JsonTokenizer) -> list[object]:
    """The tokenizer as `rlx_mlir.models.text_section` has one; UnsupportedError where C can't do what it does."""
    document, model = tokenizer.document, tokenizer.document["model"]
    _check_model(model)
    of_bytes = tokenizer.kind == "gpt2"
    is_unigram = model.get("type") == "Unigram"
    places: dict[str, int] = model["vocab"]
    if is_unigram:
        places = {text: index for index, (text, _) in enumerate(model["vocab"])}
    texts, types = zip(*(_token(tokenizer, index, places) for index in range(tokenizer.vocab_size)), strict=True)
    steps = _Steps(document, of_bytes=of_bytes)
    bytes_of = _bytes_of(model, places, of_bytes=of_bytes)
    if is_unigram:
        kind, learned, unknown = "unigrams", _likelihoods(tokenizer, model), model["unk_id"]
    else:
        kind, learned = "gpt2" if of_bytes else "characters", b"".join(_merges(model, places))
        unknown = None if of_bytes else places.get(model.get("unk_token") or "")
    return [
        kind,
        b"".join(texts),
        np.array([0, *itertools.accumulate(map(len, texts))], "<u4").tobytes(),
        bytes(types),
        learned,
        [parsed(expression) for expression in steps.patterns],
        int(bool(model.get("ignore_merges"))),
        np.array(bytes_of, "<u4").tobytes(),
        tokenizer.bos_id,
        int(tokenizer.add_bos),
        0,
        sorted(tokenizer.stop_ids),
        [
            [_added(tokenizer, token, steps.space) for token in tokenizer.added],
            steps.forms,
            steps.space,
            unknown,
            int(bool(model.get("fuse_unk"))),
            word_characters() if any(token.get("single_word") for token in tokenizer.added) else b"",
        ],
    ]


def _unsupported(what: str) -> UnsupportedError:
    return UnsupportedError(f"tokenizer.json: {what}, which only Python does")


def _check_model(model: Mapping[str, Json]) -> None:
    if model.get("type") == "Unigram" and model.get("unk_id") is None:
        raise _unsupported("the vocabulary of unigrams has no unknown token ('unk_id')")
    for name in ("dropout", "continuing_subword_prefix", "end_of_word_suffix"):
        if model.get(name):
            raise _unsupported(f"the model has '{name}'")


def _likelihoods(tokenizer: JsonTokenizer, model: Mapping[str, Json]) -> bytes:
    """Logarithms of the likelihoods of unigrams, f64; tokens that were added, which texts don't become, have the
    least."""
    found = [float(score) for _, score in model["vocab"]]
    return np.array(found + [min(found)] * (tokenizer.vocab_size - len(found)), "<f8").tobytes()


def _bytes_of(model: Mapping[str, Json], places: Mapping[str, int], *, of_bytes: bool) -> list[int]:
    """The token of each byte; none where characters that the vocabulary lacks don't become bytes."""
    if of_bytes:
        names: Sequence[str] = [character for character, _ in sorted(byte_alphabet().items(), key=lambda own: own[1])]
    elif model.get("byte_fallback"):
        names = _BYTES
    else:
        return []
    missing = [byte for byte, name in enumerate(names) if name not in places]
    if missing:
        raise _unsupported(f"the vocabulary has no token of byte {missing[0]}")
    return [places[name] for name in names]


def _merges(model: Mapping[str, Json], places: Mapping[str, int]) -> Iterator[bytes]:
    """Ids of the two tokens and of the one that they become, the best merge first."""
    for pair in model["merges"]:
        left, _, right = pair.partition(" ") if isinstance(pair, str) else (pair[0], " ", pair[1])
        yield struct.pack("<3I", places[left], places[right], places[left + right])


def _token(tokenizer: JsonTokenizer, index: int, places: Mapping[str, int]) -> tuple[bytes, int]:
    """The bytes of a token as texts have them, with spaces for U+2581, and its type."""
    text, kind = tokenizer.tokens[index], tokenizer.types[index]
    own = tokenizer.token_bytes(index, special=True)
    matched = bool(own) and places.get(text) == index and kind not in (TokenType.CONTROL, TokenType.BYTE)
    if tokenizer.kind == "gpt2":  # tokens that were added as they are aren't written in the alphabet
        alphabet = byte_alphabet()
        matched = matched and not set(text) - alphabet.keys() and own == bytes(alphabet[each] for each in text)
    else:
        matched = matched and " " not in text and own == text.replace(_SPACE, " ").encode()
    return own, kind | (0 if matched else _UNMATCHED)


def _added(tokenizer: JsonTokenizer, token: Mapping[str, Json], space: int) -> list[object]:
    """An added token: its text, in its form and without the space that is put first, its id, and flags."""
    text, flags = token["content"], 0
    normalizer = tokenizer.library.normalizer
    if token.get("normalized", not token.get("special")):
        flags |= _NORMALIZED
        text = text if normalizer is None else normalizer.normalize_str(text)
        if tokenizer.kind != "gpt2" and space != _EACH_WORD:  # words are cut before U+2581 is a space
            text = text.replace(_SPACE, " ")[int(space == _NORMAL) :]
    flags |= _CONTROL if token.get("special") else 0
    flags |= _ALONE if token.get("single_word") else 0
    flags |= (_LEFT if token.get("lstrip") else 0) | (_RIGHT if token.get("rstrip") else 0)
    return [text.encode(), token["id"], flags]


class _Steps:
    """What is done with a text before it is merged.

    Attributes:
        forms: that it is brought to, one after the other, as plain data.
        space: where a space is put first.
        patterns: expressions by which it is cut, one after the other.
    """

    def __init__(self, document: Mapping[str, Json], *, of_bytes: bool) -> None:
        self._of_bytes = of_bytes
        self._has_spaces = not of_bytes  # U+2581 stands for them otherwise
        self._makes_spaces = False  # some of them already
        self._is_last = False
        self.forms: list[object] = []
        self.space = _NOWHERE
        self.patterns: list[str] = []
        for step in parts_of(document.get("normalizer")):
            self._normalize(step)
        for step in parts_of(document.get("pre_tokenizer")):
            self._cut(step)
        if of_bytes and not self._is_last:
            raise _unsupported("texts don't become bytes at last ('ByteLevel')")
        if self._has_spaces:
            raise _unsupported("spaces don't become U+2581")

    def _normalize(self, step: Mapping[str, Json]) -> None:
        kind = step.get("type")
        if kind == "Sequence":
            return
        # What makes spaces of other characters does it before they must become U+2581, and before others have.
        is_early = self.space == _NOWHERE and not self._makes_spaces and (self._of_bytes or self._has_spaces)
        if kind == _LOWER:
            self.forms.append(lower_case())
        elif kind == "Prepend" and step.get("prepend") == _SPACE and not self._of_bytes:
            self.space = _NORMAL
        elif kind == "Replace" and self._replaces_spaces(step):
            self._has_spaces = False
        elif is_early and (form := self._form(step)) is not None:
            self.forms.append(form)
        else:
            raise _unsupported(f"the normalizer is {shortened(step)}")

    def _form(self, step: Mapping[str, Json]) -> object | None:
        """A step that doesn't care what spaces are; None of one that isn't known."""
        kind = step.get("type")
        if kind in FORMS:
            return tables(str(kind))
        if kind == "Precompiled":
            return character_map.described(step.get("precompiled_charsmap"))
        if kind == "Strip":
            return ["strip", int(bool(step.get("strip_left"))), int(bool(step.get("strip_right")))]
        if kind != "Replace":
            return None
        pattern, content = parsed(_expression(step)), str(step["content"])
        if may_be_empty(pattern):
            return None
        if not self._of_bytes and _SPACE in content:
            self._makes_spaces, content = True, content.replace(_SPACE, " ")
        return ["replace", pattern, content.encode()]

    def _replaces_spaces(self, step: Mapping[str, Json]) -> bool:
        return not self._of_bytes and step.get("pattern") == {"String": " "} and step.get("content") == _SPACE

    def _cut(self, step: Mapping[str, Json]) -> None:
        kind = step.get("type")
        if kind == "Sequence":
            return
        if self._is_last:
            raise _unsupported(f"the pre-tokenizer goes on behind 'ByteLevel', with {shortened(step)}")
        if kind == "Metaspace" and step.get("replacement") == _SPACE and not self._of_bytes:
            self._metaspace(step)
        elif kind == "WhitespaceSplit" and self._has_spaces and not self._makes_spaces and self.space == _NOWHERE:
            self.space = _EACH_WORD
        elif not self._of_bytes:
            # Where each space has become U+2581, nothing is cut at one.
            if self._has_spaces or kind != "Split" or step.get("pattern") != {"String": " "} or step.get("invert"):
                raise _unsupported(f"the pre-tokenizer is {shortened(step)}")
        elif kind == "ByteLevel" and not step.get("add_prefix_space", True):
            self.patterns += PRE_TOKENIZERS["gpt-2"] if step.get("use_regex", True) else ()
            self._is_last = True
        elif (pattern := _pattern(step)) is not None:
            self.patterns.append(pattern)
        else:
            raise _unsupported(f"the pre-tokenizer is {shortened(step)}")

    def _metaspace(self, step: Mapping[str, Json]) -> None:
        scheme = step.get("prepend_scheme", "always" if step.get("add_prefix_space", True) else "never")
        if self.space not in (_NOWHERE, _EACH_WORD) and scheme != "never":
            raise _unsupported(f"a space is put first twice, by {shortened(step)}, too")
        if self.space == _EACH_WORD and (scheme != "always" or not step.get("split", True)):
            raise _unsupported(f"not each word begins with a space, by {shortened(step)}")
        self._has_spaces = False
        if self.space != _EACH_WORD:
            self.space = {"never": self.space, "always": _EACH, "first": _FIRST}[scheme]
        self.patterns += [_WORDS] if step.get("split", True) else []


def _pattern(step: Mapping[str, Json]) -> str | None:
    """The expression whose matches a pre-tokenizer makes pieces of, and of what is between; None of another one."""
    kind = step.get("type")
    if kind == "Digits":
        return r"\p{N}" if step.get("individual_digits") else r"\p{N}+"
    if kind == "Punctuation" and step.get("behavior") in ("Isolated", "Contiguous"):
        return _PUNCTUATION + ("+" if step["behavior"] == "Contiguous" else "")
    if kind != "Split" or step.get("behavior") != "Isolated" or step.get("invert"):
        return None
    return _expression(step)


def _expression(step: Mapping[str, Json]) -> str:
    """What a step looks for."""
    pattern = step["pattern"]
    return re.escape(pattern["String"]) if "String" in pattern else str(pattern["Regex"])


__all__ = ["described"]
