# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Parts of an answer: what is thought, what is said, and calls of functions.

Of gpt-oss they are channels (harmony). Control tokens divide an answer into messages:

    <|start|>assistant<|channel|>analysis<|message|>…<|end|>
    <|start|>assistant<|channel|>commentary to=functions.NAME <|constrain|>json<|message|>{…}<|call|>
    <|start|>assistant<|channel|>final<|message|>…<|return|>

the first of which has its `<|start|>assistant` from the chat template. Text of `final` is what is said, and so is that
of `commentary` to nobody; `analysis` is what is thought; what is for a function is a call. Only control tokens divide:
the same characters made of other tokens are text. An answer without any of them is what is said.

Other models think first, between tags, ``<think>…</think>``, and then say the rest (Qwen 3, DeepSeek R1, SmolLM 3).
Tags are text, whatever tokens it is cut into, but count at the begin of an answer alone: the opening one, which the
chat template may have written, and the first closing one behind it. Blanks at both ends of a thought, and before what
is said, are left out.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from .tokenizer import Tokenizer, TokenType

_MARKS = ("<|start|>", "<|channel|>", "<|constrain|>", "<|message|>", "<|end|>", "<|call|>", "<|return|>")
"""Texts of the control tokens; a vocabulary with all of them has channels."""

OPEN, CLOSE = "<think>", "</think>"
"""Tags around what is thought."""
_TURNS = ("<|", "<\uff5c")
"""How texts of tokens begin that begin a turn, where a file doesn't call these control tokens."""
THOUGHT = "thought"
THOUGHT_RULES = (
    'thought: <|channel|> "analysis" <|message|> THOUGHT <|end|> <|start|> "assistant"\nTHOUGHT: /(?s:.*)/\n'
)
"""Lark's rule of a message that is thought, behind the begin of the assistant's turn, and the begin of the next one."""

_RECIPIENT = re.compile(r"(?:^|\s)to=(\S+)")
FUNCTIONS = "functions."
"""How names of functions begin that calls are for."""
_SAID = ("final", "commentary", "")
"""Channels whose text is what is said; the last one is that of a message which names none."""


class Kind(enum.Enum):
    """What a part of an answer is, where it isn't what is said."""

    THOUGHT = "thought"
    CALL = "call"


class Aside(NamedTuple):
    """A part of an answer.

    Attributes:
        kind: what it is.
        text: some of what is thought; all of the arguments of a call.
        name: of the function that is called.
    """

    kind: Kind
    text: str
    name: str = ""


class ChannelStream:
    """Turns ids into the text that is said, as they come, and notes what is beside it.

    Attributes:
        asides: parts that aren't said, in their order.
    """

    def __init__(self, tokenizer: Tokenizer, marks: dict[int, str]) -> None:
        """Takes a vocabulary, and its control tokens that divide by their ids."""
        self.asides: list[Aside] = []
        self._marks = marks
        self._text = tokenizer.stream()
        self._in_head = False  # where it's said what the next message is
        self._role = self._channel = ""
        self._names_channel = False
        self._function: str | None = None  # that the message is for
        self._is_thought = False
        self._body = ""  # of a call

    def push(self, index: int) -> str:
        """The text that is said and complete with one more token."""
        mark = self._marks.get(index)
        if mark is None:
            return self._take(self._text.push(index))
        said = self._take(self._text.flush())
        if mark == "<|message|>":
            self._begin()
        elif mark == "<|channel|>":
            self._end()
            self._names_channel = True
        elif mark == "<|constrain|>":
            self._channel += " "
        else:
            self._end()
            self._role = self._channel = ""
            self._names_channel = False
        return said

    def flush(self) -> str:
        """The rest of what is said; a call ends here, too."""
        said = self._take(self._text.flush())
        self._end()
        self._in_head = False
        return said

    def _take(self, text: str) -> str:
        """Puts text where it belongs, and gives it back where it is said."""
        if not text:
            return ""
        if self._in_head:
            if self._names_channel:
                self._channel += text
            else:
                self._role += text
            return ""
        if self._function is not None:
            self._body += text
            return ""
        if self._is_thought:
            self.asides.append(Aside(Kind.THOUGHT, text))
            return ""
        return text

    def _begin(self) -> None:
        """Begins the message that was said what it is."""
        found = _RECIPIENT.search(f"{self._role} {self._channel}")
        to = "" if found is None else found[1]
        channel = next(iter(self._channel.split()), "")
        self._function = to.removeprefix(FUNCTIONS) if to.startswith(FUNCTIONS) else None
        # What is for a tool that isn't a function of the caller's is nothing that could be called.
        self._is_thought = self._function is None and (bool(to) or channel not in _SAID)
        self._in_head, self._body = False, ""

    def _end(self) -> None:
        """Ends a message: what follows says what the next one is."""
        if self._function is not None and not self._in_head:
            self.asides.append(Aside(Kind.CALL, self._body, self._function))
        self._function, self._is_thought, self._in_head = None, False, True


class Place(enum.Enum):
    """Where an answer begins, of a model that thinks between tags."""

    BEFORE = "before"  # it may begin with a thought
    INSIDE = "inside"  # of one that the prompt opened
    BEHIND = "behind"  # one that the prompt closed


class ThoughtStream:
    """Turns ids into the text that is said, as they come, and notes what is thought between tags.

    Attributes:
        asides: parts that aren't said, in their order.
    """

    def __init__(self, tokenizer: Tokenizer, place: Place) -> None:
        """Takes a vocabulary, and where the answer begins."""
        self.asides: list[Aside] = []
        self._text = tokenizer.stream()
        self._tags = tokenizer.control_ids((OPEN, CLOSE))  # as some files have them: those have no text
        self._place = place
        self._held = ""
        self._is_begin = True  # of a thought, or of what is said behind one

    def push(self, index: int) -> str:
        """The text that is said and complete with one more token."""
        tag = self._tags.get(index)
        return self._take(self._text.push(index) if tag is None else self._text.flush() + tag)

    def flush(self) -> str:
        """The rest of what is said; what may have been the begin of a tag is none."""
        said = self._take(self._text.flush())
        rest, self._held = self._held, ""
        if self._place is Place.INSIDE:
            self._note(rest.rstrip())
            return said
        return said if self._place is Place.BEHIND else said + rest

    def _take(self, text: str) -> str:
        """Puts text where it belongs, and gives it back where it is said."""
        self._held += text
        if self._place is Place.BEFORE:
            begin = self._held.lstrip()
            if begin.startswith(OPEN):
                self._place, self._held = Place.INSIDE, begin.removeprefix(OPEN)
            elif OPEN.startswith(begin):
                return ""
            else:
                self._place, self._is_begin = Place.BEHIND, False
        if self._place is Place.INSIDE:
            self._think()
        if self._place is Place.INSIDE:
            return ""
        said, self._held = self._held.lstrip() if self._is_begin else self._held, ""
        self._is_begin = self._is_begin and not said
        return said

    def _think(self) -> None:
        """Notes what is thought for certain: what is held may be the begin of the tag, or blanks before it."""
        body, closes, rest = self._held.partition(CLOSE)
        if not closes:
            place = len(body) - begun(body, CLOSE)
            body, rest = body[:place], body[place:]
        body = body.lstrip() if self._is_begin else body
        thought = body.rstrip()
        self._note(thought)
        if closes:
            self._place, self._is_begin, self._held = Place.BEHIND, True, rest
        else:
            self._held = body[len(thought) :] + rest

    def _note(self, thought: str) -> None:
        if thought:
            self._is_begin = False
            self.asides.append(Aside(Kind.THOUGHT, thought))


def begun(text: str, mark: str) -> int:
    """How many characters at the end of a text may be the begin of a mark."""
    return next((n for n in range(min(len(text), len(mark) - 1), 0, -1) if mark.startswith(text[-n:])), 0)


class Division(NamedTuple):
    """How an answer is divided.

    Attributes:
        stream: divides it.
        heads: Lark grammars of what may come before a text of a form that was asked for.
        needs_head: whether one of them has to.
        words: of which a grammar of a whole answer has one.
    """

    stream: ChannelStream | ThoughtStream
    heads: tuple[str, ...] = ()
    needs_head: bool = False
    words: tuple[str, ...] = ()


def division_of(
    tokenizer: Tokenizer, prompt: Sequence[int], template: str = "", *, thinks: bool = True
) -> Division | None:
    """How answers to a prompt are divided; None where all of an answer is said.

    Args:
        tokenizer: of the model; one with all control tokens of channels has these.
        prompt: ids. Tags divide behind the begin of a turn: an answer goes on with no other text.
        template: source of the chat template, which knows tags where the vocabulary has no tokens for them.
        thinks: whether tags divide.
    """
    marks = tokenizer.control_ids(_MARKS)
    if len(marks) == len(_MARKS):
        heads = _channel_heads(tokenizer, prompt)
        return Division(ChannelStream(tokenizer, marks), heads, bool(heads), _MARKS)
    knows = thinks and (CLOSE in template or tokenizer.cuts_out((OPEN, CLOSE)))
    place = _place_of(tokenizer, prompt) if knows else None
    if place is None:
        return None
    heads = _tag_heads(tokenizer, place)
    return Division(ThoughtStream(tokenizer, place), heads, place is Place.INSIDE, (CLOSE,))


def _behind_last(prompt: Sequence[int], is_mark: Callable[[int], bool]) -> int:
    """The place behind the last id that is a mark; 0 where none is."""
    return next((place for place in range(len(prompt), 0, -1) if is_mark(prompt[place - 1])), 0)


def _place_of(tokenizer: Tokenizer, prompt: Sequence[int]) -> Place | None:
    """Where a prompt ends, by the tags of its last turn; None where it has no turns."""

    def begins_turn(index: int) -> bool:
        text = tokenizer.tokens[index]
        is_mark = tokenizer.types[index] == TokenType.CONTROL or text.startswith(_TURNS)
        return is_mark and text not in (OPEN, CLOSE)

    begin = _behind_last(prompt, begins_turn)
    if not begin:
        return None
    text = tokenizer.detokenize(prompt[begin:], special=True)
    if OPEN not in text:
        return Place.BEHIND if CLOSE in text else Place.BEFORE
    return Place.BEHIND if CLOSE in text.rpartition(OPEN)[2] else Place.INSIDE


def _tag_heads(tokenizer: Tokenizer, place: Place) -> tuple[str, ...]:
    """Grammars of a thought, with and without the empty line behind it that templates write."""
    if place is Place.BEHIND:
        return ()
    controls = tokenizer.control_ids((OPEN, CLOSE)).values()
    opens = OPEN if OPEN in controls else f'"{OPEN}"'
    thought, rule = (
        ("TEXT", r"TEXT: /(?s:.*)/") if CLOSE in controls else ("closed", r"closed[lazy]: /(?s:.*)<\/think>/")
    )
    start = " ".join(([opens] if place is Place.BEFORE else []) + [thought] + ([CLOSE] if CLOSE in controls else []))
    return tuple(f"start: {start}{behind}\n{rule}\n" for behind in ("", r' "\n\n"'))


def _channel_heads(tokenizer: Tokenizer, prompt: Sequence[int]) -> tuple[str, ...]:
    """The grammar of messages before the one that is said, and of its head."""
    start = next(iter(tokenizer.control_ids(_MARKS[:1])))
    begin = _behind_last(prompt, start.__eq__)
    head = tokenizer.detokenize(prompt[begin:], special=True) if begin else ""
    return (f'start: {THOUGHT}* <|channel|> "final" <|message|>\n{THOUGHT_RULES}',) if head == "assistant" else ()


__all__ = ["Aside", "ChannelStream", "Division", "Kind", "Place", "ThoughtStream", "begun", "division_of"]
