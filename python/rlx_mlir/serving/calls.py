# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Functions that a model may call: how it is told of them, the grammar of its calls, and calls in its text.

Three forms are known, by what a chat template writes: Hermes', ``<tool_call>{"name": …, "arguments": …}</tool_call>``;
Llama 3's, a text that is ``{"name": …, "parameters": {…}}``; and channels (`rlx_mlir.models.channels`).
Templates that know none get Hermes' form by a message of the system.

Grammars are llguidance's Lark. Arguments follow the function's JSON schema whether the model was asked to call or does
it by itself: from the begin of a call on, no other text is possible. What a model thinks comes before that, and is
free. A model with channels has a grammar where it has to call; else its arguments are as it writes them.
"""

from __future__ import annotations

import enum
import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..files import Json
from ..models.channels import FUNCTIONS, THOUGHT, THOUGHT_RULES, begun
from ..models.chat import ChatTemplate
from .failures import Refusal

_BLANKS = r"[ \t\r\n]{0,8}"
_SOME_BLANKS = {"whitespace_pattern": _BLANKS}


@dataclass(frozen=True)
class Function:
    """A function that may be called.

    Attributes:
        name: of letters, digits, ``_``, ``-`` and dots.
        parameters: JSON schema of its arguments, an object.
        shown: what templates are given: OpenAI's object.
    """

    name: str
    parameters: Mapping[str, Json]
    shown: Mapping[str, object]


@dataclass(frozen=True)
class Tools:
    """What a request says about functions.

    Attributes:
        functions: those that may be called.
        must_call: whether the answer is calls and nothing else.
        several: whether it may be more than one call.
    """

    functions: tuple[Function, ...]
    must_call: bool = False
    several: bool = True


@dataclass(frozen=True)
class Call:
    """A call that a model made; the arguments are JSON."""

    name: str
    arguments: str

    def to_dict(self) -> dict[str, object]:
        """OpenAI's object, with a new id."""
        own = {"name": self.name, "arguments": self.arguments}
        return {"id": f"call_{secrets.token_hex(12)}", "type": "function", "function": own}


class Form(enum.Enum):
    """How calls stand in a model's text; `GENERIC` is Hermes', of which the template doesn't know. Those of `CHANNELS`
    aren't in the text."""

    HERMES = "hermes"
    LLAMA = "llama"
    GENERIC = "generic"
    CHANNELS = "channels"


BEGIN, END = "<tool_call>", "</tool_call>"


def form_of(template: ChatTemplate) -> Form:
    """The form that a template writes."""
    source = template.source
    if "<|channel|>" in source and "<|message|>" in source:
        return Form.CHANNELS
    if "tools" in source and BEGIN in source:
        return Form.HERMES
    if "tools" in source and "ipython" in source and '"parameters"' in source:
        return Form.LLAMA
    return Form.GENERIC


# What the model is told ---------------------------------------------------------------------------


def messages_for(messages: Sequence[Mapping[str, Json]], tools: Tools | None, form: Form) -> list[dict[str, Json]]:
    """Messages as templates read them: arguments of calls are objects, and what a template doesn't know is text."""
    found = [_read(message, number) for number, message in enumerate(messages)]
    if form is Form.CHANNELS:
        return [_with_thoughts(message) for message in found]
    if form is not Form.GENERIC:
        return found
    found = [_as_text(message) for message in found]
    if tools is not None:
        told = _told(tools)
        if found[0]["role"] == "system" and isinstance(found[0]["content"], str):
            found[0]["content"] = f"{found[0]['content']}\n\n{told}"
        else:
            found.insert(0, {"role": "system", "content": told})
    return found


def _read(message: Mapping[str, Json], number: int) -> dict[str, Json]:
    own = dict(message)
    if own["role"] == "developer":  # OpenAI's newer word
        own["role"] = "system"
    if own.get("content") is None:
        own["content"] = ""
    if own.get("tool_calls"):
        own["tool_calls"] = [_read_call(call, number) for call in own["tool_calls"]]
    return own


def _with_thoughts(message: dict[str, Json]) -> dict[str, Json]:
    """A message whose reasoning, as servers give it, has the name that templates of channels know."""
    thoughts = message.pop("reasoning_content", None)
    return message if not isinstance(thoughts, str) or "thinking" in message else {**message, "thinking": thoughts}


def call_of(name: str, arguments: str) -> Call | None:
    """A call of channels; None where its arguments are no JSON object, as where it isn't complete."""
    try:
        value = json.loads(arguments)
    except (ValueError, RecursionError):
        value = None
    return Call(name, json.dumps(value, ensure_ascii=False)) if isinstance(value, dict) else None


def _read_call(call: Json, number: int) -> dict[str, object]:
    function = call.get("function") if isinstance(call, Mapping) else None
    name = function.get("name") if isinstance(function, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(name, str):
        raise Refusal(400, f"a call of message {number} needs a 'function' with a 'name'", param="messages")
    arguments = function.get("arguments", "{}")
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments or "{}")
        except (ValueError, RecursionError):
            arguments = None
    if not isinstance(arguments, Mapping):
        raise Refusal(400, f"the 'arguments' of a call of message {number} must be a JSON object", param="messages")
    return {**call, "type": "function", "function": {**function, "arguments": dict(arguments)}}


def _as_text(message: dict[str, Json]) -> dict[str, Json]:
    """A message without calls, which stand in its text."""
    if message["role"] == "tool":
        return {"role": "user", "content": f"<tool_response>\n{_plain(message['content'])}\n</tool_response>"}
    if not message.get("tool_calls"):
        return message
    calls = [
        f"{BEGIN}\n{json.dumps({key: call['function'][key] for key in ('name', 'arguments')})}\n{END}"
        for call in message["tool_calls"]
    ]
    text = _plain(message["content"])
    return {"role": message["role"], "content": "\n".join([text, *calls] if text else calls)}


def _plain(content: Json) -> str:
    """A content as text."""
    if isinstance(content, str):
        return content
    return " ".join(str(part.get("text", "")) for part in content if isinstance(part, Mapping))


def _told(tools: Tools) -> str:
    functions = "\n".join(json.dumps(function.shown["function"]) for function in tools.functions)
    return (
        "You can call functions. Each line between <tools> and </tools> describes one, with a JSON schema of its "
        f"parameters:\n<tools>\n{functions}\n</tools>\n"
        f'A call is written as\n{BEGIN}\n{{"name": NAME, "arguments": {{PARAMETER: VALUE}}}}\n{END}\n'
        "and what it gave comes between <tool_response> and </tool_response>."
    )


# What the model may write -------------------------------------------------------------------------


def grammar(tools: Tools, form: Form) -> str | None:
    """The Lark grammar of an answer that may call, or has to; None where there is none.

    It begins behind what is thought, but of channels at the begin of the answer.
    """
    if form is Form.CHANNELS:
        return _grammar_of_channels(tools) if tools.must_call else None
    key = "parameters" if form is Form.LLAMA else "arguments"
    rules = [f"ws: /{_BLANKS}/", "call: " + " | ".join(f"call{number}" for number in range(len(tools.functions)))]
    for number, function in enumerate(tools.functions):
        rules += [
            rf'call{number}: "{{" ws "\"name\"" ws ":" ws "\"{function.name}\"" ws "," '
            rf'ws "\"{key}\"" ws ":" ws arguments{number} ws "}}"',
            _arguments(function, number),
        ]
    if form is Form.LLAMA:
        start = ["start: call" if tools.must_call else "start: call | TEXT?"]
        text = [] if tools.must_call else [r"TEXT: /[^{](?s:.*)/"]
    elif tools.must_call:
        start = ["start: one (ws one)*" if tools.several else "start: one", f'one: "{BEGIN}" ws call ws "{END}"']
        text = []
    else:
        start = ["start: one* TEXT?" if tools.several else "start: one | TEXT?", f'one: head ws call ws "{END}"']
        text = [f"head[lazy]: /(?s:.*){BEGIN}/", f"TEXT: /(?s:.+)/ & ~/(?s:.*){BEGIN}(?s:.*)/"]
    return "\n".join([*start, *text, *rules]) + "\n"


def _grammar_of_channels(tools: Tools) -> str:
    """One call, in the channel for calls, behind what is thought."""
    rules = []
    for number, function in enumerate(tools.functions):
        head = f'<|channel|> "commentary to={FUNCTIONS}{function.name} " <|constrain|> "json" <|message|>'
        rules += [f"call{number}: {head} arguments{number} <|call|>", _arguments(function, number)]
    calls = " | ".join(f"call{number}" for number in range(len(tools.functions)))
    return "\n".join([f"start: {THOUGHT}* ({calls})", *rules]) + f"\n{THOUGHT_RULES}"


def _arguments(function: Function, number: int) -> str:
    schema = json.dumps({**function.parameters, "x-guidance": _SOME_BLANKS})
    return f"arguments{number}: %json {schema}"


# What the model has written -----------------------------------------------------------------------


class CallReader:
    """Takes a text apart, as it comes, into text and calls; how it is cut into pieces makes no difference.

    Blanks before a call and after the last one are left out.

    Attributes:
        calls: how many there were.
    """

    def __init__(self, form: Form) -> None:
        self.calls = 0
        self._bare = form is Form.LLAMA
        self._held = ""
        self._blanks = ""
        self._inside = False
        self._is_text = False  # of a bare call: that it is none

    def push(self, text: str) -> list[str | Call]:
        """What is complete with one more piece."""
        self._held += text
        if self._bare:
            self._is_text = self._is_text or self._held.lstrip()[:1] not in ("", "{")
            return self._text(self._take(len(self._held))) if self._is_text else []
        found: list[str | Call] = []
        while (place := self._held.find(END if self._inside else BEGIN)) >= 0:
            body = self._take(place)
            self._take(len(END if self._inside else BEGIN))
            found += self._call(body, BEGIN, END) if self._inside else self._text(body)
            self._inside = not self._inside
        if not self._inside:
            found += self._text(self._take(len(self._held) - begun(self._held, BEGIN)))
        return found

    def flush(self) -> list[str | Call]:
        """The rest: a call that isn't complete is text."""
        held = self._take(len(self._held))
        found = self._call(held) if self._bare and not self._is_text and held else []
        if not self._bare:
            found = self._text(BEGIN + held if self._inside else held)
        if self._blanks and not self.calls:
            found.append(self._blanks)
        return found

    def _take(self, count: int) -> str:
        text, self._held = self._held[:count], self._held[count:]
        return text

    def _text(self, text: str) -> list[str | Call]:
        """Text without the blanks at its end, which are given out before more of it."""
        text = self._blanks + text
        body = text.rstrip()
        self._blanks = text[len(body) :]
        return [body] if body else []

    def _call(self, body: str, before: str = "", after: str = "") -> list[str | Call]:
        try:
            value = json.loads(body)
        except (ValueError, RecursionError):
            value = None
        value = value if isinstance(value, dict) else {}
        name, arguments = value.get("name"), value.get("arguments", value.get("parameters"))
        if not isinstance(name, str) or not isinstance(arguments, dict):
            return self._text(before + body + after)
        self.calls += 1
        self._blanks = ""
        return [Call(name, json.dumps(arguments, ensure_ascii=False))]


__all__ = ["Call", "CallReader", "Form", "Function", "Tools", "call_of", "form_of", "grammar", "messages_for"]
