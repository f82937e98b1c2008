# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Bodies of requests: read, checked, and made to options of the engine.

What isn't known is refused, as OpenAI's servers do, so that nothing that was asked for is left undone in silence. What
says nothing about the answer (`user`, `metadata`, …) is taken and not used.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from .. import checks
from ..checks import Option
from ..errors import InputError, did_you_mean, shortened
from ..files import Json
from ..models.generation import Options
from .calls import Function, Tools
from .failures import Refusal

Found = TypeVar("Found")
Default = TypeVar("Default")

#: Fields about bookkeeping of OpenAI's own.
_UNUSED = ("user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key")
#: Fields that ask for what isn't there, with the values that ask for nothing.
_ABSENT: Mapping[str, tuple[object, ...]] = {
    "audio": (),
    "best_of": (1,),
    "echo": (False,),
    "functions": (),
    "function_call": (),
    "modalities": (["text"],),
    "prediction": (),
    "suffix": ("",),
    "verbosity": (),
    "web_search_options": (),
}
SWITCHES = ("enable_thinking", "reasoning_effort")
"""Fields of chats that are variables of templates by the same names."""
_ROLES = ("system", "developer", "user", "assistant", "tool")
#: Texts at which generation ends, and functions, at most: each is looked at for every token.
_MOST_STOPS, _MOST_FUNCTIONS = 16, 128
_FUNCTION_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_CHAT_TOP, _COMPLETION_TOP = 20, 5
_DEFAULT_COMPLETION = 16


class Fields:
    """The fields of a JSON object: each is taken once, and what is left at the end isn't known.

    Null is as if a field weren't there. Errors are `Refusal`s of status 400 that name the field.
    """

    def __init__(self, body: object, where: str = "the body") -> None:
        if not isinstance(body, dict):
            raise Refusal(400, f"{where} must be a JSON object, but is {shortened(body)}")
        self._left = dict(body)
        self._known: list[str] = []

    def take(self, name: str, default: Json = None) -> Json:
        """A field as it is."""
        self._known.append(name)
        value = self._left.pop(name, None)
        return default if value is None else value

    def checked(self, check: Callable[..., Found], name: str, default: Default, *arguments: object) -> Found | Default:
        """A field that one of `checks` looks at."""
        value = self.take(name)
        if value is None:
            return default
        try:
            return check(name, value, *arguments)
        except InputError as error:
            raise Refusal(400, str(error), param=name) from None

    def text(self, name: str) -> str:
        """A text that has to be there."""
        if self._left.get(name) is None:
            raise Refusal(400, f"'{name}' must be there", param=name)
        return str(self.checked(checks.text, name, ""))

    def flag(self, name: str, default: bool = False) -> bool:
        """True or False."""
        return bool(self.checked(checks.flag, name, default))

    def whole(self, name: str, default: Default, least: int, most: int) -> int | Default:
        """A whole number."""
        return self.checked(checks.whole, name, default, least, most)

    def end(self) -> None:
        """Refuses what is left."""
        for name in _UNUSED:
            self._left.pop(name, None)
        for name, nothing in _ABSENT.items():
            value = self._left.pop(name, None)
            if value is not None and value not in nothing:
                raise Refusal(400, f"'{name}' is not implemented", param=name, code="unsupported_parameter")
        for name in self._left:
            near = did_you_mean(name, self._known)
            message = f"there is no parameter {shortened(name)}{near}"
            raise Refusal(400, message, param=str(name)[:100], code="unknown_parameter")


@dataclass(frozen=True)
class Common:
    """What requests for texts share.

    Attributes:
        model: its name.
        options: of the engine, but for the seed.
        seed: of the first text; the one of index i has `seed + i`.
        count: texts for each prompt.
        stream: whether pieces of text are given as they come.
        usage: whether a stream ends with numbers of tokens.
        shows_logprobs: how many of the likeliest tokens are shown beside each; None for no probabilities at all.
    """

    model: str
    options: Options
    seed: int | None
    count: int
    stream: bool
    usage: bool
    shows_logprobs: int | None


@dataclass(frozen=True)
class Chat(Common):
    """A request of /v1/chat/completions.

    Attributes:
        messages: as they came; their form is checked.
        tools: functions that may be called; None where there are none, or none may.
        variables: that the chat template gets beside.
    """

    messages: Sequence[Mapping[str, Json]]
    tools: Tools | None
    variables: Mapping[str, Json]


@dataclass(frozen=True)
class Completion(Common):
    """A request of /v1/completions: texts, or lists of token ids."""

    prompts: Sequence[str | list[int]]


@dataclass(frozen=True)
class Embeddings:
    """A request of /v1/embeddings.

    Attributes:
        model: the encoder's name.
        inputs: texts, or lists of token ids, but not both.
        base64: whether vectors are given as bytes of f32.
        width: that vectors have to have; None where nothing is said.
    """

    model: str
    inputs: list[str] | list[list[int]]
    base64: bool
    width: int | None


@dataclass(frozen=True)
class Limits:
    """Of requests; `max_tokens` is what one may ask for, the others are as in `Settings`."""

    max_tokens: int
    choices: int
    inputs: int


def chat_of(body: object, limits: Limits) -> Chat:
    """The request of /v1/chat/completions in a body; raises Refusal."""
    fields = Fields(body)
    messages = _messages(fields.take("messages"))
    wants = fields.flag("logprobs")
    top = fields.whole("top_logprobs", None, 0, _CHAT_TOP)
    if top is not None and not wants:
        raise Refusal(400, "'top_logprobs' needs 'logprobs': true", param="top_logprobs")
    tools = _tools(fields)
    variables = fields.checked(checks.mapping, "chat_template_kwargs", {})
    for name in ("self", "messages", "tools", "add_generation_prompt", "bos_token", "eos_token"):
        if name in variables:
            raise Refusal(400, f"'chat_template_kwargs' may not set '{name}'", param="chat_template_kwargs")
    own = (fields.checked(checks.flag, SWITCHES[0], None), fields.checked(checks.text, SWITCHES[1], None))
    variables = {**variables, **{name: value for name, value in zip(SWITCHES, own, strict=True) if value is not None}}
    given = [fields.whole(name, None, 1, limits.max_tokens) for name in ("max_completion_tokens", "max_tokens")]
    if None not in given and given[0] != given[1]:
        raise Refusal(400, "'max_tokens' is the older name of 'max_completion_tokens': give one", param="max_tokens")
    most = next((own for own in given if own is not None), limits.max_tokens)
    common = _common(fields, limits, most=most, prompts=1, top=(top or 0) if wants else None)
    fields.end()
    if tools is not None and common["options"].get("response_format") is not None:
        raise Refusal(400, "'response_format' can't be had together with 'tools'", param="response_format")
    return Chat(**common, messages=messages, tools=tools, variables=variables)


def completion_of(body: object, limits: Limits) -> Completion:
    """The request of /v1/completions in a body; raises Refusal."""
    fields = Fields(body)
    prompts = _texts_or_ids("prompt", fields.take("prompt"), limits.choices)
    top = fields.whole("logprobs", None, 0, _COMPLETION_TOP)
    most = fields.whole("max_tokens", min(_DEFAULT_COMPLETION, limits.max_tokens), 1, limits.max_tokens)
    common = _common(fields, limits, most=most, prompts=len(prompts), top=top)
    fields.end()
    return Completion(**common, prompts=prompts)


def embeddings_of(body: object, limits: Limits) -> Embeddings:
    """The request of /v1/embeddings in a body; raises Refusal."""
    fields = Fields(body)
    model = fields.text("model")
    inputs = _texts_or_ids("input", fields.take("input"), limits.inputs)
    if len({type(own) for own in inputs}) != 1:
        raise Refusal(400, "'input' is texts or lists of token ids, but not both", param="input")
    form = fields.checked(checks.choice, "encoding_format", "float", ("float", "base64"))
    width = fields.whole("dimensions", None, 1, 1 << 20)
    fields.end()
    return Embeddings(model, inputs, form == "base64", width)  # type: ignore[arg-type]


def _common(fields: Fields, limits: Limits, *, most: int, prompts: int, top: int | None) -> dict[str, Option]:
    """Fields of `Common`."""
    model = fields.text("model")
    count = fields.whole("n", 1, 1, limits.choices)
    if count * prompts > limits.choices:
        raise Refusal(400, f"a request may ask for {limits.choices} texts, but asks for {count * prompts}", param="n")
    stream = fields.flag("stream")
    usage = False
    shown = fields.checked(checks.mapping, "stream_options", None)
    if shown is not None:
        if not stream:
            raise Refusal(400, "'stream_options' needs 'stream': true", param="stream_options")
        inner = Fields(dict(shown), "'stream_options'")
        usage = inner.flag("include_usage")
        inner.flag("include_obfuscation")  # it pads pieces of text, which says nothing about them
        inner.end()
    seed = fields.whole("seed", None, -(2**63), 2**63 - 1)
    options: Options = {
        "max_tokens": most,
        "temperature": fields.checked(checks.real, "temperature", 1.0),
        "top_p": fields.checked(checks.real, "top_p", 1.0),
        "top_k": fields.whole("top_k", 0, 0, 2**31),
        "min_p": fields.checked(checks.real, "min_p", 0.0),
        "repetition_penalty": fields.checked(checks.real, "repetition_penalty", 1.0),
        "presence_penalty": fields.checked(checks.real, "presence_penalty", 0.0),
        "frequency_penalty": fields.checked(checks.real, "frequency_penalty", 0.0),
        "ignore_eos": fields.flag("ignore_eos"),
        "stop": _stops(fields.take("stop")),
        "logit_bias": _bias(fields.checked(checks.mapping, "logit_bias", {})),
        "logprobs": 0 if top is None else max(top, 1),
    }
    form = fields.checked(checks.mapping, "response_format", None)
    if form is not None and form.get("type") != "text":
        options["response_format"] = form
    return {
        "model": model,
        "options": options,
        "seed": None if seed is None else seed % 2**64,
        "count": count,
        "stream": stream,
        "usage": usage,
        "shows_logprobs": top,
    }


def _messages(given: object) -> list[Mapping[str, Json]]:
    if not isinstance(given, list) or not given:
        raise Refusal(400, f"'messages' must be one or more messages, but is {shortened(given)}", param="messages")
    for number, message in enumerate(given):
        if not isinstance(message, dict) or message.get("role") not in _ROLES:
            rule = f"message {number} must be an object with a 'role' of {', '.join(_ROLES)}"
            raise Refusal(400, f"{rule}, but is {shortened(message)}", param="messages")
        content, calls = message.get("content"), message.get("tool_calls")
        if calls is not None and not isinstance(calls, list):
            rule = f"the 'tool_calls' of message {number} must be a list"
            raise Refusal(400, f"{rule}, but are {shortened(calls)}", param="messages")
        is_given = isinstance(content, str) or (isinstance(content, list) and content)
        if not is_given and not (content is None and message["role"] == "assistant" and calls):
            rule = f"the 'content' of message {number} must be a text, or a list of one or more parts"
            raise Refusal(400, f"{rule}, but is {shortened(content)}", param="messages")
        if isinstance(content, list):
            _check_parts(content, number)
    return given


def _check_parts(parts: list[Json], number: int) -> None:
    for part in parts:
        kind = part.get("type") if isinstance(part, dict) else None
        if kind != "text" or not isinstance(part.get("text"), str):
            rule = f"a part of message {number} must be {{'type': 'text', 'text': …}}: models read text alone"
            raise Refusal(400, f"{rule}; but one is {shortened(part)}", param="messages")


def _texts_or_ids(name: str, given: object, most: int) -> list[str | list[int]]:
    """Texts or lists of ids, of what may be one of them."""
    if isinstance(given, str) or (isinstance(given, list) and given and all(map(_is_id, given))):
        return [given]
    if not isinstance(given, list) or not given:
        raise Refusal(400, f"'{name}' is a text, token ids, or several, but is {shortened(given)}", param=name)
    if _is_id(given[0]):  # meant as one list of ids: the first that is none is at fault
        place, wrong = next((place, own) for place, own in enumerate(given) if not _is_id(own))
        raise Refusal(400, f"'{name}' is token ids, but its element {place} is {shortened(wrong)}", param=name)
    for place, own in enumerate(given):
        rule = f"'{name}' is a text, token ids, or several of these, but its element {place}"
        if isinstance(own, list) and own:
            inner = next((at for at, value in enumerate(own) if not _is_id(value)), None)
            if inner is not None:
                found = f"{rule} has {shortened(own[inner])} at {inner}, which is no token id"
                raise Refusal(400, found, param=name)
        elif not isinstance(own, str):
            raise Refusal(400, f"{rule} is {shortened(own)}", param=name)
    if len(given) > most:
        raise Refusal(400, f"'{name}' may have {most} texts, but has {len(given)}", param=name)
    return given


def _is_id(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31


def _stops(given: object) -> list[str]:
    texts = [] if given is None else [given] if isinstance(given, str) else given
    if not isinstance(texts, list) or len(texts) > _MOST_STOPS or not all(isinstance(t, str) and t for t in texts):
        rule = f"'stop' is a text, or at most {_MOST_STOPS}, none of them empty"
        raise Refusal(400, f"{rule}, but is {shortened(given)}", param="stop")
    return texts


def _bias(given: Mapping[str, object]) -> dict[int, float]:
    found = {}
    for key, value in given.items():
        if not (key.isascii() and key.isdigit() and len(key) < 10):
            rule = "the keys of 'logit_bias' are token ids"
            raise Refusal(400, f"{rule}, but one is {shortened(key)}", param="logit_bias")
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= 1e6:
            rule = f"'logit_bias' of {key} must be a number from -1e6 to 1e6"
            raise Refusal(400, f"{rule}, but is {shortened(value)}", param="logit_bias")
        found[int(key)] = float(value)
    return found


def _tools(fields: Fields) -> Tools | None:
    """What a request says about functions."""
    given, choice = fields.take("tools"), fields.take("tool_choice", "auto")
    several = fields.flag("parallel_tool_calls", True)
    if given is None or given == []:
        if choice not in ("auto", "none"):
            raise Refusal(400, "'tool_choice' needs 'tools'", param="tool_choice")
        return None
    if not isinstance(given, list) or len(given) > _MOST_FUNCTIONS:
        rule = f"'tools' is a list of at most {_MOST_FUNCTIONS} functions"
        raise Refusal(400, f"{rule}, but is {shortened(given)}", param="tools")
    functions = tuple(_function(tool, number) for number, tool in enumerate(given))
    names = [function.name for function in functions]
    if len(set(names)) != len(names):
        raise Refusal(400, "two functions of 'tools' have one name", param="tools")
    if choice == "none":
        return None
    if choice in ("auto", "required"):
        return Tools(functions, choice == "required", several)
    inner = choice.get("function") if isinstance(choice, dict) and choice.get("type") == "function" else None
    name = inner.get("name") if isinstance(inner, dict) else None
    if name not in names:
        rule = "'tool_choice' is none, auto, required, or {'type': 'function', 'function': {'name': one of 'tools'}}"
        raise Refusal(400, f"{rule}, but is {shortened(choice)}", param="tool_choice")
    return Tools((functions[names.index(name)],), True, False)


def _function(tool: object, number: int) -> Function:
    function = tool.get("function") if isinstance(tool, dict) and tool.get("type") == "function" else None
    if not isinstance(tool, dict) or not isinstance(function, dict):
        rule = f"tool {number} must be {{'type': 'function', 'function': {{…}}}}"
        raise Refusal(400, f"{rule}, but is {shortened(tool)}", param="tools")
    name, parameters = function.get("name"), function.get("parameters")
    if not isinstance(name, str) or not _FUNCTION_NAME.fullmatch(name):
        rule = f"the 'name' of function {number} must be 1 to 64 letters, digits, dots, _ or -"
        raise Refusal(400, f"{rule}, but is {shortened(name)}", param="tools")
    if parameters is None:  # as OpenAI says: a function without parameters
        parameters = {"type": "object", "properties": {}, "additionalProperties": False}
    if not isinstance(parameters, dict) or parameters.get("type", "object") != "object":
        rule = f"the 'parameters' of '{name}' must be a JSON schema of an object"
        raise Refusal(400, f"{rule}, but are {shortened(parameters)}", param="tools")
    return Function(name, {"type": "object", **parameters}, tool)


__all__ = [
    "Chat",
    "Common",
    "Completion",
    "Embeddings",
    "Fields",
    "Limits",
    "chat_of",
    "completion_of",
    "embeddings_of",
]
