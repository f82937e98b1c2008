# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Channels of an answer, as gpt-oss writes them (harmony): what is thought, what is said, and calls of functions.

Control tokens divide an answer into messages:

    <|start|>assistant<|channel|>analysis<|message|>…<|end|>
    <|start|>assistant<|channel|>commentary to=functions.NAME <|constrain|>json<|message|>{…}<|call|>
    <|start|>assistant<|channel|>final<|message|>…<|return|>

the first of which has its `<|start|>assistant` from the chat template. Text of `final` is what is said, and so is that
of `commentary` to nobody; `analysis` is what is thought; what is for a function is a call. Only control tokens divide:
the same characters made of other tokens are text. An answer without any of them is what is said.
"""

from __future__ import annotations

import enum
import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from .tokenizer import Tokenizer

_MARKS = ("<|start|>", "<|channel|>", "<|constrain|>", "<|message|>", "<|end|>", "<|call|>", "<|return|>")
"""Texts of the control tokens; a vocabulary with all of them has channels."""

_RECIPIENT = re.compile(r"(?:^|\s)to=(\S+)")
_FUNCTIONS = "functions."
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
        self._function = to.removeprefix(_FUNCTIONS) if to.startswith(_FUNCTIONS) else None
        # What is for a tool that isn't a function of the caller's is nothing that could be called.
        self._is_thought = self._function is None and (bool(to) or channel not in _SAID)
        self._in_head, self._body = False, ""

    def _end(self) -> None:
        """Ends a message: what follows says what the next one is."""
        if self._function is not None and not self._in_head:
            self.asides.append(Aside(Kind.CALL, self._body, self._function))
        self._function, self._is_thought, self._in_head = None, False, True


def channel_stream(tokenizer: Tokenizer) -> ChannelStream | None:
    """What divides answers of a model with channels; None for a vocabulary without them."""
    marks = tokenizer.control_ids(_MARKS)
    return ChannelStream(tokenizer, marks) if len(marks) == len(_MARKS) else None


__all__ = ["Aside", "ChannelStream", "Kind", "channel_stream"]
