# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The section `text` of a bundle: vocabulary, merges and chat template as plain data, for what runs it without Python.

It is what `rlx_mlir.runtime.encoding` writes of (version, tokenizer, chat), which runtime/library/text.cpp reads. A
tokenizer or a chat that can't be written so is a text instead, which says why: users of the bundle then give ids, or
prompts that are formatted.

A chat template is a program. Most put fixed texts around each message, and that is written: texts are found by
rendering messages whose contents are marks, and kept where they give what the template does for a set of conversations.
"""

from __future__ import annotations

import dataclasses
import datetime
import itertools
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ..errors import BudgetError, ChatTemplateError, RlxError, UnsupportedError
from ..frontends.model_file import MetadataValue
from ..runtime.encoding import encode
from . import json_section
from .chat import ChatTemplate, Message, date_format
from .json_tokenizer import JsonTokenizer, tokenizer_of
from .text_patterns import parsed
from .tokenizer import IGNORE_MERGES, PRE_TOKENIZERS, Tokenizer, TokenType, byte_alphabet, pre_tokenizer

VERSION = 3
"""Of the section: 2 has rules of tokenizers, and dates of chats; 3 any forms of texts, and characters of words."""
_SPACE = "\u2581"
_NO_TOKEN = 0xFFFFFFFF
#: In the type of a token: merging never makes its text.
_UNMATCHED = 0x80

_PREFIX = "tokenizer.ggml."
_ALPHABET = byte_alphabet()


def text_section(metadata: Mapping[str, MetadataValue]) -> bytes:
    """The section of a model's metadata."""
    tokenizer: object
    chat: object
    try:
        tokenizer = described(metadata)
    except RlxError as error:
        tokenizer = str(error)
    try:
        template = ChatTemplate.from_metadata(metadata)
        chat = ChatForm.of(template).words
    except RlxError as error:
        chat = str(error)
    return encode([VERSION, tokenizer, chat])


# Tokenizers ---------------------------------------------------------------------------------------


def described(metadata: Mapping[str, MetadataValue]) -> list[object]:
    """The tokenizer of a vocabulary of GGUF: kind, bytes and offsets of tokens, types, merges or scores, patterns,
    whether a piece may be a token without merging, tokens of bytes, what begins and ends texts, and rules of one of
    `tokenizer.json`.

    Raises TokenizerError where there is none, or a broken one, UnsupportedError for what only Python does.
    """
    tokenizer = tokenizer_of(metadata)
    if isinstance(tokenizer, JsonTokenizer):
        return json_section.described(tokenizer)
    if tokenizer.kind == "t5":
        raise UnsupportedError("the vocabulary is one of unigrams ('t5'), which only Python reads")
    pre = pre_tokenizer(metadata.get(f"{_PREFIX}pre"))
    if tokenizer.kind == "gpt2":
        merges = _merges(tokenizer.tokens, metadata[f"{_PREFIX}merges"])
        patterns = [parsed(expression) for expression in PRE_TOKENIZERS[pre]]
        places = {token: index for index, token in enumerate(tokenizer.tokens)}
        of_byte = {byte: places.get(character, _NO_TOKEN) for character, byte in _ALPHABET.items()}
    else:
        merges = np.asarray(metadata[f"{_PREFIX}scores"], "<f4").tobytes()
        patterns = []
        found = {index: kind for index, kind in enumerate(tokenizer.types) if kind == TokenType.BYTE}
        of_byte = {tokenizer.token_bytes(index)[0]: index for index in found}
    texts, types = zip(*(_token(tokenizer, index) for index in range(tokenizer.vocab_size)), strict=True)
    offsets = np.array([0, *itertools.accumulate(map(len, texts))], "<u4")
    bytes_of = [of_byte[byte] for byte in range(256)] if of_byte else []
    return [
        tokenizer.kind,
        b"".join(texts),
        offsets.tobytes(),
        bytes(types),
        merges,
        patterns,
        int(tokenizer.kind == "gpt2" and pre in IGNORE_MERGES),
        np.array(bytes_of, "<u4").tobytes(),
        tokenizer.bos_id,
        int(tokenizer.add_bos),
        int(tokenizer.add_space_prefix),
        sorted(tokenizer.stop_ids),
        None,
    ]


def _token(tokenizer: Tokenizer, index: int) -> tuple[bytes, int]:
    """The bytes of a token as texts have them, and its type."""
    text, kind = tokenizer.tokens[index], tokenizer.types[index]
    if tokenizer.kind == "gpt2":
        own = tokenizer.token_bytes(index, special=True)
        # Texts of control tokens aren't written in the alphabet, though some could be.
        made = bool(text) and not set(text) - _ALPHABET.keys() and own == bytes(_ALPHABET[each] for each in text)
        return own, kind | (0 if made else _UNMATCHED)
    # Spaces are merged as such; a token whose text has one in its own way is never made.
    own = text.encode() if kind == TokenType.USER_DEFINED else tokenizer.token_bytes(index, special=True)
    unmatched = kind == TokenType.BYTE or " " in text or (kind != TokenType.NORMAL and _SPACE in text)
    return own, kind | (_UNMATCHED if unmatched or not text else 0)


def _merges(tokens: Sequence[str], merges: Iterable[str]) -> bytes:
    """Ids of the two tokens and of the one that they become, the best merge first."""
    places = {token: index for index, token in enumerate(tokens)}
    ranks: dict[tuple[int, int, int], int] = {}
    for rank, merge in enumerate(merges):
        cut = merge.find(" ", 1)
        left, right = merge[:cut], merge[cut + 1 :]
        ranks[places[left], places[right], places[left + right]] = rank
    ordered = sorted(ranks, key=lambda merge: ranks[merge])
    return b"".join(struct.pack("<3I", *merge) for merge in ordered)


# Chats --------------------------------------------------------------------------------------------

#: Contents that no template writes by itself, and that are only their own when they are trimmed.
_MARKS = {role: f"\u2039{role} mark\u203a" for role in ("system", "user", "assistant")}
#: Contents that templates might treat in their own ways.
_CONTENTS = (
    *("Hi", "", " a \n b\n", "\u3000wide\u00a0", "{{ x }} <b>&amp;</b> 'q' \"p\""),
    *("<|im_end|> [/INST] </s>", "\u00e9\U0001f9a5", "<think>\nwhy\n</think>\n\nyes"),
)


#: Dates with which a form is compared, beside its marks: a leap day, and one whose numbers have two digits.
_TIMES = (datetime.datetime(2024, 2, 29, 8, 5, 9), datetime.datetime(2031, 12, 10, 23, 59, 58))


class _Dated:
    """A template that writes the date of one time, or marks in its place.

    Attributes:
        template: that is rendered.
        marks: by format, what stands for the date.
    """

    def __init__(self, template: ChatTemplate, time: datetime.datetime | None = None) -> None:
        self.template = template
        self.marks: dict[str, str] = {}
        self._time = time
        self.bos_token = template.bos_token

    def _date(self, format: object) -> str:
        known = date_format(format)
        if self._time is not None:
            return self._time.strftime(known)
        return self.marks.setdefault(known, f"\u2039date {len(self.marks)}\u203a")

    def render(self, messages: Sequence[Message], *, add_generation_prompt: bool = True) -> str:
        """As of `ChatTemplate`."""
        return self.template.render(messages, add_generation_prompt=add_generation_prompt, strftime_now=self._date)

    def after_answer(self, messages: Sequence[Message]) -> str:
        """As of `ChatTemplate`."""
        return self.template.after_answer(messages, strftime_now=self._date)


@dataclass(frozen=True)
class ChatForm:
    """A chat template as fixed texts around messages.

    Attributes:
        start, system_start: the text before all messages, where the first isn't a system's, and where it is.
        answer: where an answer begins, behind all messages.
        bos: the token that begins texts, as the template writes it; empty where there is none.
        roles: by role, the texts before and behind a content, and whether the content is trimmed.
        alternates: users' messages and answers have to take turns.
        dates: marks that stand for the date in these texts, and the format in which it is written there.
    """

    start: str
    system_start: str
    answer: str
    bos: str
    roles: Mapping[str, tuple[str, str, bool]]
    alternates: bool
    dates: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, template: ChatTemplate) -> ChatForm:
        """The form of a template; UnsupportedError, which says why, where it has none."""
        return cls._of(_Dated(template))

    @classmethod
    def _of(cls, template: _Dated) -> ChatForm:
        user, assistant = _message("user"), _message("assistant")
        once, twice, thrice = (
            template.render(messages, add_generation_prompt=False)
            for messages in ([user], [user, assistant], [user, assistant, user])
        )
        asked = template.render([user])
        if not twice.startswith(once) or not thrice.startswith(twice) or not asked.startswith(once):
            raise UnsupportedError("the chat template writes a message in another way where something follows")
        before, _, user_after = once.partition(_MARKS["user"])
        assistant_before, _, assistant_after = twice[len(once) :].partition(_MARKS["assistant"])
        user_before = thrice[len(twice) :].partition(_MARKS["user"])[0]
        if not before.endswith(user_before):
            raise UnsupportedError("the chat template begins messages of users in several ways")
        start = before[: len(before) - len(user_before)]
        roles = {
            "user": (user_before, user_after, _trims(template, "user")),
            "assistant": (assistant_before, assistant_after, _trims(template, "assistant")),
        }
        own = cls(start, start, asked[len(once) :], template.bos_token, roles, _alternates(template))
        own = own._with_system(template)
        own._check(template)
        own = dataclasses.replace(own, dates=tuple((mark, format) for format, mark in template.marks.items()))
        for time in _TIMES if own.dates else ():
            own.at(time)._check(_Dated(template.template, time))
        return own

    def at(self, time: datetime.datetime) -> ChatForm:
        """The form with a date in the place of marks."""

        def dated(text: str) -> str:
            for mark, format in self.dates:
                text = text.replace(mark, time.strftime(format))
            return text

        roles = {name: (dated(before), dated(after), own) for name, (before, after, own) in self.roles.items()}
        start, system_start, answer = map(dated, (self.start, self.system_start, self.answer))
        return ChatForm(start, system_start, answer, self.bos, roles, self.alternates)

    def _with_system(self, template: _Dated) -> ChatForm:
        """The same with the role of systems, where the template takes it for itself."""
        user = _message("user")
        try:
            text = template.render([_message("system"), user], add_generation_prompt=False)
        except ChatTemplateError:
            return self
        before, found, rest = text.partition(_MARKS["system"])
        tail = self._rendered([user], start="", answer="")
        if not found or not rest.endswith(tail):
            return self
        # What stands before the mark is written once: it is taken as the start.
        role = ("", rest[: len(rest) - len(tail)], _trims(template, "system"))
        return dataclasses.replace(self, system_start=before, roles={**self.roles, "system": role})

    def _rendered(self, messages: Sequence[Mapping[str, str]], *, start: str | None = None, answer: str) -> str:
        has_system = bool(messages) and messages[0]["role"] == "system"
        text = (self.system_start if has_system else self.start) if start is None else start
        for message in messages:
            before, after, trimmed = self.roles[message["role"]]
            text += before + (message["content"].strip() if trimmed else message["content"]) + after
        return text + answer

    def render(self, messages: Sequence[Mapping[str, str]]) -> str:
        """The text of messages, up to where an answer begins."""
        return self._rendered(messages, answer=self.answer)

    def _check(self, template: _Dated) -> None:
        """Raises UnsupportedError unless the form gives what the template does for a set of conversations."""
        shapes = [["user"], ["user", "assistant"], ["user", "assistant", "user"], ["user", "assistant"] * 3 + ["user"]]
        if "system" in self.roles:
            shapes += [["system", *shape] for shape in shapes]
        if not self.alternates:
            shapes += [["user", "user"], ["user", "assistant", "assistant", "user"]]
        contents = itertools.cycle(_CONTENTS)
        for shape, _ in itertools.product(shapes, _CONTENTS):
            messages = [{"role": role, "content": next(contents)} for role in shape]
            if template.render(messages) != self.render(messages):
                raise UnsupportedError(
                    f"the chat template doesn't put fixed texts around messages, as of {messages}"[:400]
                )
            if shape[0] == "user":
                behind = self.roles["assistant"][1] + self._rendered(messages, start="", answer=self.answer)
                if template.after_answer(messages) != behind:
                    raise UnsupportedError("the chat template goes on behind an answer in another way")
            next(contents)  # so that other contents meet, however many messages there are

    @property
    def words(self) -> list[object]:
        """As plain data."""
        roles = [[name, before, after, int(trimmed)] for name, (before, after, trimmed) in self.roles.items()]
        dates = [list(own) for own in self.dates]
        return [self.start, self.system_start, self.answer, self.bos, roles, int(self.alternates), dates]


def _message(role: str) -> dict[str, str]:
    return {"role": role, "content": _MARKS[role]}


def _trims(template: _Dated, role: str) -> bool:
    """Whether spaces at both ends of a content are left out."""
    before = {"user": [], "assistant": [_message("user")], "system": []}[role]
    after = [] if role != "system" else [_message("user")]
    texts = [
        template.render([*before, {"role": role, "content": content}, *after], add_generation_prompt=False)
        for content in (f" {_MARKS[role]} ", _MARKS[role])
    ]
    return texts[0] == texts[1]


def _alternates(template: _Dated) -> bool:
    """Whether users' messages may not follow each other."""
    try:
        template.render([_message("user"), _message("user")])
    except (BudgetError, ChatTemplateError):
        return True
    return False


__all__ = ["VERSION", "ChatForm", "described", "text_section"]
