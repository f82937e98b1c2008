# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tokenizers made from the vocabulary in a GGUF file: byte-level BPE ("gpt2") and SentencePiece's ("llama", "t5").

The heavy part, merging, is the `tokenizers` and `sentencepiece` libraries'. What is done here is what differs between
them and what GGUF files mean: special tokens are cut out of the text first, the longest first, and each piece of text
between them is tokenised by itself. User-defined tokens are cut out always, control tokens only on request: text from
a user can then never turn into one.
"""

from __future__ import annotations

import codecs
import operator
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from ..boundary import foreign_errors, required
from ..errors import InputError, TokenizerError, shortened
from ..frontends.model_file import MetadataValue
from .sentence_pieces import UnigramForm, sentence_pieces
from .special_tokens import TokenType as TokenType
from .special_tokens import ending_ids, ending_tokens, special_id

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}DIGITS| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)

_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_ENGLISH = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
_O200K = (  # words end where a lower case letter is before an upper case one
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{_ENGLISH}|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{_ENGLISH}"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

_TEKKEN = _O200K.replace(_ENGLISH, "").replace(r"\p{N}{1,3}", r"\p{N}")
_QWEN35 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_SEED = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+"

# DeepSeek's letters: ranges of code points, in hexadecimal.
_CASED = (
    "41-5a 61-7a b5 c0-d6 d8-f6 f8-1ba 1bc-1bf 1c4-293 295-2af 370-373 376 377 37b-37d 37f 386 388-38a 38c "
    "38e-3a1 3a3-3f5 3f7-481 48a-52f 531-556 10a0-10c5 13a0-13f5 13f8-13fd 1c90-1cba 1cbd-1cbf 1d00-1d2b "
    "1d6b-1d77 1d79-1d9a 1e00-1f15 1f18-1f1d 1f20-1f45 1f48-1f4d 1f50-1f57 1f59 1f5b 1f5d 1f5f-1f7d 1f80-1fb4 "
    "1fb6-1fbc 1fbe 1fc2-1fc4 1fc6-1fcc 1fd0-1fd3 1fd6-1fdb 1fe0-1fec 1ff2-1ff4 1ff6-1ffc 2102 2107 210a-2113 "
    "2115 2119-211d 2124 2126 2128 212a-212d 212f-2134 2139 213c-213f 2145-2149 214e 2183 2184 2c00-2c7b "
    "2c7e-2ce4 2ceb-2cee 2cf2 2cf3 a640-a66d a680-a69b a722-a76f a771-a787 a78b-a78e ab70-abbf fb00-fb06 "
    "fb13-fb17 ff21-ff3a ff41-ff5a 10400-1044f 104b0-104d3 104d8-104fb 10c80-10cb2 10cc0-10cf2 118a0-118df "
    "1e900-1e943"
)


def _range(ends: str) -> str:
    """One of these, as an expression writes it: `41-5a` is A-Z."""
    return "-".join(rf"\x{{{end}}}" for end in ends.split("-"))


_LETTERS = "".join(map(_range, _CASED.split()))
_HAN = r"[\x{4e00}-\x{9fa5}\x{800}-\x{4e00}\x{ac00}-\x{d7ff}]+"
_MARKS = r"!-/:-~\x{ff01}-\x{ff0f}\x{ff1a}-\x{ff5e}\x{2018}-\x{201f}\x{3000}-\x{3002}"

# Regular expressions of each pre-tokenizer; every one splits the pieces that those before it left, and keeps all text.
PRE_TOKENIZERS: dict[str, tuple[str, ...]] = {
    "gpt-2": (_GPT2,),
    "smollm": (r"\p{N}", _GPT2),
    "llama-bpe": (_LLAMA3.replace("DIGITS", "{1,3}"),),
    "qwen2": (_LLAMA3.replace("DIGITS", ""),),
    "dbrx": (_LLAMA3.replace("DIGITS", "{1,3}"),),
    "qwen35": (_QWEN35,),
    "seed-coder": (_SEED,),
    "tekken": (_TEKKEN,),
    "gpt-4o": (_O200K,),
    "deepseek-llm": (r"[\r\n]", rf"\s?[{_LETTERS}]+", rf"\s?[{_MARKS}]+", r"\s+$", _HAN, r"\p{N}+"),
    "deepseek-coder": (r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _HAN, r"\p{N}"),
    "deepseek-v3": (
        r"\p{N}{1,3}",
        r"[\x{4e00}-\x{9fa5}\x{3040}-\x{309f}\x{30a0}-\x{30ff}]+",
        r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
        r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    ),
    "default": (r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]"),
}
# A whole piece that is a token is taken as it is, without merging.
IGNORE_MERGES = frozenset({"llama-bpe", "tekken"})
_ADD_BOS = frozenset({"llama-bpe", "tekken"})

_ALIASES: dict[str, tuple[str, ...]] = {
    "gpt-2": ("exaone4", "gigachat", "mellum", "mpt", "olmo", "phi-2"),
    "smollm": ("codeshell", "command-r", "exaone", "minerva-7b", "refact", "starcoder"),
    "llama-bpe": ("falcon-h1", "falcon3", "lfm2", "llama-v3", "llama3", "midm-2.0", "pixtral"),
    "dbrx": ("chatglm-bpe", "glm4", "smaug-bpe"),
    "qwen2": ("deepseek-r1-qwen", "hunyuan", "kormo", "megrez", "stablelm2"),
    "gpt-4o": ("llama4", "minimax-m2"),
    "deepseek-v3": ("hunyuan-dense",),
}
_NAMED = {alias: name for name, aliases in _ALIASES.items() for alias in aliases}


def pre_tokenizer(name: str | None) -> str:
    """That of `PRE_TOKENIZERS` which a file means by a name: files have many names for some of them."""
    return _NAMED.get(name, name) if name else "default"


_SPACE = "\u2581"  # how SentencePiece writes a space
#: What GGUF's `tokenizer.ggml.model` may be.
KINDS = ("gpt2", "llama", "t5")
#: Where it says whether spaces become one.
_EXTRA = "remove_extra_whitespaces"


class Backend(Protocol):
    """Tokenises text in which no special tokens are recognised."""

    def encode(self, text: str) -> list[int]: ...


def byte_alphabet() -> dict[str, int]:
    """Byte-level BPE's alphabet: printable Latin-1 characters are themselves, other bytes are U+0100 and up."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = (byte for byte in range(256) if byte not in set(printable))
    alphabet = {chr(byte): byte for byte in printable}
    alphabet.update((chr(0x100 + index), byte) for index, byte in enumerate(others))
    return alphabet


_BYTE_OF = byte_alphabet()


class _ByteLevelBpe:
    def __init__(self, tokens: Sequence[str], merges: Sequence[str], pre: str) -> None:
        tokenizers = required("tokenizers", "texts", TokenizerError)
        from tokenizers import models, pre_tokenizers

        if pre not in PRE_TOKENIZERS:
            known = ", ".join((*PRE_TOKENIZERS, *_NAMED))
            raise TokenizerError(f"the pre-tokenizer '{pre}' is not supported, known are {known}")
        pairs: list[tuple[str, str]] = []
        for index, merge in enumerate(merges):
            cut = merge.find(" ", 1)
            if cut < 0:
                raise TokenizerError(f"merge {index} must be two tokens with a space between, but is {merge!r}")
            pairs.append((merge[:cut], merge[cut + 1 :]))
        vocabulary = {token: index for index, token in enumerate(tokens)}
        with foreign_errors("vocabulary and merges do not fit together", TokenizerError):
            model = models.BPE(vocabulary, pairs, ignore_merges=pre in IGNORE_MERGES)
        self.tokenizer = tokenizers.Tokenizer(model)
        steps: list[Any] = [
            pre_tokenizers.Split(tokenizers.Regex(expression), "isolated") for expression in PRE_TOKENIZERS[pre]
        ]
        steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False))
        self.tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)

    def encode(self, text: str) -> list[int]:
        return list(self.tokenizer.encode(text, add_special_tokens=False).ids)


class Tokenizer:
    """Text to token ids and back, for one vocabulary.

    Attributes:
        tokens: the vocabulary's texts, by id, as the file has them.
        types: `TokenType` numbers, by id.
        bos_id, eos_id: ids that begin and end a text, or None.
        add_bos: whether `tokenize` puts ``bos_id`` first unless told otherwise.
        add_space_prefix: whether a space goes in front of a text (SentencePiece vocabularies only).
        stop_ids: ids after which generation ends: ``eos_id``, ``ends``, and tokens that end a turn by their texts,
            which count as control tokens.
    """

    def __init__(
        self,
        tokens: Sequence[str],
        *,
        kind: str,
        merges: Sequence[str] = (),
        scores: Sequence[float] = (),
        types: Sequence[int] | None = None,
        pre: str = "default",
        bos_id: int | None = None,
        eos_id: int | None = None,
        ends: Iterable[int] = (),
        add_bos: bool | None = None,
        add_space_prefix: bool | None = None,
        origin: str = "",
        backend: Backend | None = None,
        unigram: UnigramForm = UnigramForm(),  # noqa: B008 - it is frozen
    ) -> None:
        """Builds the tokenizer; `from_metadata` is the usual way.

        Args:
            tokens: texts of the vocabulary, by id.
            kind: "gpt2" for byte-level BPE, "llama" for SentencePiece's BPE, "t5" for its unigrams.
            merges: "gpt2": pairs of tokens with a space between, best first.
            scores: "llama" and "t5": a score for each token.
            types: `TokenType` for each token; all NORMAL by default.
            pre: "gpt2": name of the pre-tokenizer.
            bos_id, eos_id: special ids.
            ends: more ids after which generation ends.
            add_bos, add_space_prefix: None for what is usual for the kind.
            origin: the file that all this is from, for errors.
            backend: what tokenises, in place of what `merges` or `scores` give.
            unigram: "t5": how texts are brought to a form.

        Raises TokenizerError where lengths differ, an id is outside the vocabulary, or a kind is not supported.
        """
        self._origin = f"{origin}: " if origin else ""
        if kind not in KINDS:
            raise TokenizerError(f"the tokenizer model '{kind}' is not supported, known are {', '.join(KINDS)}")
        if not tokens:
            raise TokenizerError("the vocabulary is empty")
        self.kind = kind
        self.tokens = list(tokens)
        self.types = [int(TokenType.NORMAL)] * len(tokens) if types is None else [int(t) for t in types]
        if len(self.types) != len(tokens):
            raise TokenizerError(f"there are {len(tokens)} tokens, but {len(self.types)} token types")
        ending = ending_tokens(self.tokens, {i for i, t in enumerate(self.types) if t == TokenType.CONTROL})
        for index in ending:
            self.types[index] = int(TokenType.CONTROL)
        for name, value in (("bos", bos_id), ("eos", eos_id)):
            if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
                raise TokenizerError(f"the {name} id must be an integer, but is {value!r}"[:200])
            if value is not None and not 0 <= value < len(tokens):
                raise TokenizerError(f"the {name} id must be in [0, {len(tokens)}), but is {value}")
        self.bos_id = bos_id
        self.eos_id = eos_id
        self.add_bos = (kind == "llama" or pre in _ADD_BOS) if add_bos is None else add_bos
        self.add_space_prefix = kind != "gpt2" and add_space_prefix is not False
        self._backend: Backend
        with foreign_errors("the vocabulary can't be read", TokenizerError):
            if backend is not None:
                self._backend = backend
            elif kind == "gpt2":
                self._backend = _ByteLevelBpe(tokens, merges, pre)
            else:
                if len(scores) != len(tokens):
                    raise TokenizerError(f"there are {len(tokens)} tokens, but {len(scores)} scores")
                self._backend = sentence_pieces(
                    tokens, scores, self.types, unigram=unigram if kind == "t5" else None, spaced=self.add_space_prefix
                )
        cut_out = (TokenType.CONTROL, TokenType.USER_DEFINED, TokenType.UNKNOWN)
        special = [index for index, kind_ in enumerate(self.types) if kind_ in cut_out and self.tokens[index]]
        special.sort(key=lambda index: -len(self.tokens[index].encode()))
        self._special = [(self.tokens[index], index) for index in special]
        self._user_defined = [(t, i) for t, i in self._special if self.types[i] == TokenType.USER_DEFINED]
        self.stop_ids = ending | frozenset(ends) | ({eos_id} if eos_id is not None else frozenset())
        self._bytes: dict[int, bytes] = {}

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, object], *, origin: str = "") -> Tokenizer:
        """The tokenizer that a GGUF file's metadata describes; TokenizerError where it has none, or a broken one.

        `origin` is the file, for errors.
        """
        try:
            with foreign_errors("the vocabulary can't be read", TokenizerError):
                return cls._from_metadata(metadata, origin)
        except TokenizerError as error:
            if not origin or str(error).startswith(origin):
                raise
            raise TokenizerError(f"{origin}: {error}") from error.__cause__

    @classmethod
    def _from_metadata(cls, metadata: Mapping[str, object], origin: str) -> Tokenizer:
        prefix = "tokenizer.ggml."

        def get(name: str) -> MetadataValue:
            return metadata.get(prefix + name)

        kind = get("model")
        tokens = get("tokens")
        if not isinstance(kind, str) or not isinstance(tokens, list):
            raise TokenizerError(f"the file has no vocabulary: '{prefix}model' and '{prefix}tokens' are needed")
        needed = {"gpt2": "merges", "llama": "scores", "t5": "scores"}.get(kind)
        if needed is not None and get(needed) is None:
            raise TokenizerError(f"a '{kind}' vocabulary needs '{prefix}{needed}', which the file does not have")
        for name, kinds in (("pre", str), ("add_bos_token", bool), ("add_space_prefix", bool), (_EXTRA, bool)):
            if not isinstance(get(name), kinds | None):
                raise TokenizerError(f"'{prefix}{name}' must be a {kinds.__name__}, but is {get(name)!r}"[:200])
        scores, types, merges = get("scores"), get("token_type"), get("merges")
        return cls(
            tokens,
            kind=kind,
            merges=merges if isinstance(merges, list) else (),
            scores=scores.tolist() if isinstance(scores, np.ndarray) else (),
            types=types.tolist() if isinstance(types, np.ndarray) else None,
            pre=pre_tokenizer(get("pre")),
            bos_id=special_id(metadata, "bos", kind, len(tokens)),
            eos_id=special_id(metadata, "eos", kind, len(tokens)),
            ends=ending_ids(metadata, len(tokens)),
            add_bos=get("add_bos_token"),
            add_space_prefix=get("add_space_prefix"),
            origin=origin,
            unigram=UnigramForm.of(get("precompiled_charsmap"), get(_EXTRA)),
        )

    @property
    def vocab_size(self) -> int:
        """Number of tokens."""
        return len(self.tokens)

    def tokenize(
        self, text: str, bos: bool | None = None, special: bool = False, *, continued: bool = False
    ) -> list[int]:
        """Ids of a text.

        Byte-level vocabularies that lack a token for some byte (rare control characters) leave such bytes out, as the
        runtimes that the vocabularies were made for do.

        Args:
            text: any text; lone surrogates raise TokenizerError, what isn't a string InputError.
            bos: put the begin-of-text id first; None does what the vocabulary asks for.
            special: recognise the texts of control tokens. Leave it False for text that a user wrote.
            continued: the text goes on behind another one: no space is put in front of it.
        """
        if not isinstance(text, str):
            raise InputError(f"the text must be a string, but is of type {type(text).__name__}")
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise TokenizerError(f"the text is not valid Unicode at character {error.start}: {error.reason}") from None
        ids: list[int] = []
        add_bos = self.add_bos if bos is None else bos
        if add_bos and self.bos_id is not None:
            ids.append(self.bos_id)
        elif bos:
            raise TokenizerError("a begin-of-text id is asked for, but the vocabulary names none")
        return [*ids, *self._encoded(text, special, continued)]

    def _encoded(self, text: str, special: bool, continued: bool) -> list[int]:
        """Ids of a text, without the one that begins it."""
        ids: list[int] = []
        after_special = not continued  # the start of a text counts as one
        for fragment in self._partition(text, self._special if special else self._user_defined):
            if isinstance(fragment, int):
                ids.append(fragment)
                after_special = True
            else:
                spaced = self.add_space_prefix and after_special
                with foreign_errors(f"{self._origin}the text can't be tokenized", TokenizerError):
                    ids.extend(self._backend.encode(f" {fragment}" if spaced else fragment))
                after_special = False
        return ids

    @staticmethod
    def _partition(text: str, special: Iterable[tuple[str, int]]) -> list[str | int]:
        """Cuts special tokens out of the text, the longest first; pieces of text between them are never empty."""
        fragments: list[str | int] = [text] if text else []
        for token, index in special:
            if token not in text:
                continue
            cut: list[str | int] = []
            for fragment in fragments:
                if isinstance(fragment, int):
                    cut.append(fragment)
                    continue
                for position, piece in enumerate(fragment.split(token)):
                    if position:
                        cut.append(index)
                    if piece:
                        cut.append(piece)
            fragments = cut
        return fragments

    def token_bytes(self, index: int, *, special: bool = False) -> bytes:
        """UTF-8 bytes of one token, which need not be whole characters; control tokens are empty unless ``special``."""
        index = _index(index)
        if not 0 <= index < len(self.tokens):
            raise TokenizerError(f"a token id must be in [0, {len(self.tokens)}), but is {shortened(index)}")
        kind = self.types[index]
        if kind in (TokenType.CONTROL, TokenType.UNKNOWN):
            return self.tokens[index].encode() if special else b""
        found = self._bytes.get(index)
        if found is None:
            found = self._bytes[index] = self._raw_bytes(index, kind)
        return found

    def _raw_bytes(self, index: int, kind: int) -> bytes:
        text = self.tokens[index]
        if kind == TokenType.USER_DEFINED:
            return (text if self.kind == "gpt2" else text.replace(_SPACE, " ")).encode()
        if self.kind == "gpt2":
            try:
                return bytes(_BYTE_OF[character] for character in text)
            except KeyError:  # not written in the byte alphabet: a token that was added as plain text
                return text.encode()
        if kind == TokenType.BYTE:
            try:
                return bytes([int(text.removeprefix("<0x").removesuffix(">"), 16)])
            except ValueError:
                raise TokenizerError(f"byte token {index} must be like <0x0A>, but is {text!r}") from None
        return text.replace(_SPACE, " ").encode()

    def detokenize(self, ids: Iterable[int], special: bool = False) -> str:
        """Text of ids; bytes that are not UTF-8 become U+FFFD, control tokens are left out unless ``special``."""
        if isinstance(ids, str | bytes) or not isinstance(ids, Iterable):
            raise InputError(f"token ids must be several integers, but are of type {type(ids).__name__}")
        raw = b"".join(self.token_bytes(index, special=special) for index in ids)
        if self.add_space_prefix and raw.startswith(b" "):
            raw = raw[1:]
        return raw.decode("utf-8", errors="replace")

    def control_ids(self, texts: Iterable[str]) -> dict[int, str]:
        """Which of some texts are control tokens, by their ids."""
        return {self._controls[text]: text for text in texts if text in self._controls}

    def cuts_out(self, texts: Iterable[str]) -> bool:
        """Whether some texts are tokens that text is cut at: control tokens, or such as the file's author added."""
        return self._cut_out.issuperset(texts)

    @cached_property
    def _cut_out(self) -> frozenset[str]:
        return frozenset(text for text, _ in self._special)

    @cached_property
    def _controls(self) -> dict[str, int]:
        """Ids of control tokens by their texts."""
        return {text: i for i, text in enumerate(self.tokens) if self.types[i] == TokenType.CONTROL}

    def stream(self, special: bool = False) -> TokenStream:
        """A decoder to feed ids one by one, as they are generated."""
        return TokenStream(self, special=special)


def _index(value: Any) -> int:
    """A token's id; numpy's integers are some too."""
    try:
        return operator.index(value)
    except TypeError:
        raise InputError(f"a token id must be an integer, but is {shortened(value)}") from None


class TokenStream:
    """Turns ids into text as they come; characters that span tokens appear once they are complete."""

    def __init__(self, tokenizer: Tokenizer, *, special: bool = False) -> None:
        self._tokenizer = tokenizer
        self._special = special
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, index: int) -> str:
        """Text that has become complete with this id; often empty in the middle of a character."""
        return self._decoder.decode(self._tokenizer.token_bytes(index, special=self._special))

    def flush(self) -> str:
        """Ends the text: U+FFFD if it stopped in the middle of a character, else empty. The stream starts anew."""
        rest = self._decoder.decode(b"", final=True)
        self._decoder.reset()
        return rest
