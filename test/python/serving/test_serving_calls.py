# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Functions that a model may call: what it is told, what it may write, and what its text becomes."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tiny_models

pytest.importorskip("starlette", reason="needs the extra 'serve'")

import httpx
from served import Served, served

from rlx_mlir.errors import InputError
from rlx_mlir.models.chat import ChatTemplate
from rlx_mlir.models.loading import load_model
from rlx_mlir.models.model import Model
from rlx_mlir.models.structured import guide_of
from rlx_mlir.models.tokenizer import Tokenizer
from rlx_mlir.serving.calls import Call, CallReader, Form, Function, Tools, form_of, grammar, messages_for
from rlx_mlir.serving.failures import Refusal

SCHEMA = {
    "$defs": {"place": {"type": "string", "pattern": "^[a-z]{1,3}$"}},
    "type": "object",
    "properties": {"city": {"$ref": "#/$defs/place"}, "days": {"enum": [1, 2]}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
TOOL = {"type": "function", "function": {"name": "weather", "description": "of a city", "parameters": SCHEMA}}
BARE = {"type": "function", "function": {"name": "now"}}
EMPTY = {"type": "object", "properties": {}, "additionalProperties": False}
FUNCTIONS = (Function("weather", SCHEMA, TOOL), Function("now", EMPTY, BARE))
HERMES = (
    "{% if tools %}{{ tools | tojson }}<tool_call>{% endif %}{% for m in messages %}{{ m.role }}: {{ m.content }}"
    "{% for c in m.tool_calls or [] %}{{ c.function.name }}{{ c.function.arguments | tojson }}{% endfor %}{% endfor %}"
)
LLAMA = '{{ tools }} ipython {"name": "x", "parameters": {}}'
#: The same marks, and few tokens: the tiny model has 256 positions.
SHORT = {
    "hermes": "{% if tools %}<tool_call>{% endif %}{{ messages[0].content }}",
    "llama": '{% if tools %}ipython "parameters"{% endif %}{{ messages[0].content }}',
    "generic": tiny_models.TEMPLATE,
}
CHATS = "/v1/chat/completions"
ASKED: dict[str, Any] = {"model": "tiny", "messages": [{"role": "user", "content": "hello"}], "seed": 1}


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.from_metadata(tiny_models.metadata())


# What a text becomes -------------------------------------------------------------------------------

_ONE = '{"name": "weather", "arguments": {"city": "rom"}}'
_CALL = Call("weather", '{"city": "rom"}')
READ: tuple[tuple[Form, str, list[str | Call]], ...] = (
    (Form.HERMES, "", []),
    (Form.HERMES, "  ", ["  "]),
    (Form.HERMES, "text < text ", ["text < text "]),
    (Form.HERMES, f"<tool_call>{_ONE}</tool_call>", [_CALL]),
    (Form.HERMES, f"so:\n\n<tool_call>\n{_ONE}\n</tool_call>\n", ["so:", _CALL]),
    (Form.HERMES, f"<tool_call>{_ONE}</tool_call>\n<tool_call>{_ONE}</tool_call>", [_CALL, _CALL]),
    (Form.HERMES, f"<tool_call>{_ONE}</tool_call> and more ", [_CALL, " and more"]),
    (Form.HERMES, f"<tool_call>{_ONE}</tool_cal", [f"<tool_call>{_ONE}</tool_cal"]),
    (Form.HERMES, "<tool_call>no JSON</tool_call>", ["<tool_call>no JSON</tool_call>"]),
    (Form.HERMES, '<tool_call>{"name": 5}</tool_call>x', ['<tool_call>{"name": 5}</tool_call>x']),
    (Form.HERMES, "<tool_call>" + "[" * 99999 + "</tool_call>", ["<tool_call>" + "[" * 99999 + "</tool_call>"]),
    (Form.HERMES, "<tool_call", ["<tool_call"]),
    (Form.LLAMA, "", []),
    (Form.LLAMA, " text {", [" text {"]),
    (Form.LLAMA, ' {"name": "weather", "parameters": {"city": "rom"}} ', [_CALL]),
    (Form.LLAMA, '{"a": 1}', ['{"a": 1}']),
    (Form.LLAMA, "{", ["{"]),
    (Form.GENERIC, f"x<tool_call>{_ONE}</tool_call>", ["x", _CALL]),
)


@pytest.mark.parametrize(("form", "text", "expected"), READ, ids=lambda value: str(value)[:30])
def test_what_a_text_becomes(form: Form, text: str, expected: list[str | Call]) -> None:
    for size in (1, 2, 3, 7, 11, 1 << 20):
        if len(text) // size > 10_000:
            continue
        reader, found = CallReader(form), []
        for at in range(0, len(text), size):
            found += reader.push(text[at : at + size])
        found += reader.flush()
        joined: list[str | Call] = []
        for part in found:
            if joined and isinstance(part, str) and isinstance(joined[-1], str):
                joined[-1] += part
            else:
                joined.append(part)
        assert joined == expected, size
        assert reader.calls == sum(isinstance(part, Call) for part in expected)


# What a model may write ----------------------------------------------------------------------------


def fits(tokenizer: Tokenizer, tools: Tools, form: Form, text: str) -> bool:
    """Whether a text is one that the grammar takes, and may end there."""
    guide = guide_of({"type": "lark", "grammar": grammar(tools, form)}, tokenizer)
    assert guide is not None
    for token in tokenizer.tokenize(text, bos=False):
        if not guide.mask(300)[token]:
            return False
        guide.advance(token)
    return bool(guide.mask(300)[2])


GOOD = '<tool_call>\n{"name": "weather", "arguments": {"city": "rom", "days": 2}}\n</tool_call>'
NOW = '<tool_call>{"name":"now","arguments":{}}</tool_call>'
MAY, MUST = Tools(FUNCTIONS), Tools(FUNCTIONS, must_call=True)


@pytest.mark.parametrize(
    ("tools", "form", "text", "expected"),
    [
        (MAY, Form.HERMES, "", True),
        (MAY, Form.HERMES, "text <tool", True),
        (MAY, Form.HERMES, GOOD, True),
        (MAY, Form.HERMES, f"so: {GOOD}\n{NOW}", True),
        (MAY, Form.HERMES, f"{NOW} and so on", True),
        (MAY, Form.HERMES, "so: <tool_call>", False),
        (MAY, Form.HERMES, GOOD.replace("rom", "rome"), False),
        (MAY, Form.HERMES, GOOD.replace("weather", "wether"), False),
        (MAY, Form.HERMES, GOOD.replace(', "days": 2', ""), False),
        (MAY, Form.HERMES, NOW.replace("{}", '{"x": 1}'), False),
        (MUST, Form.GENERIC, "text", False),
        (MUST, Form.GENERIC, "", False),
        (MUST, Form.GENERIC, f"{GOOD}\n{NOW}", True),
        (dataclasses.replace(MUST, several=False), Form.HERMES, GOOD, True),
        (dataclasses.replace(MUST, several=False), Form.HERMES, f"{GOOD}\n{NOW}", False),
        (dataclasses.replace(MAY, several=False), Form.HERMES, f"x {NOW}", True),
        (dataclasses.replace(MAY, several=False), Form.HERMES, f"x {NOW}{NOW}", False),
        (MAY, Form.LLAMA, "text {", True),
        (MAY, Form.LLAMA, '{"name": "now", "parameters": {}}', True),
        (MAY, Form.LLAMA, '{"name": "now", "arguments": {}}', False),
        (MUST, Form.LLAMA, "text", False),
        (MUST, Form.LLAMA, '{"name": "weather", "parameters": {"city": "a", "days": 1}}', True),
    ],
)
def test_what_a_model_may_write(tools: Tools, form: Form, text: str, expected: bool, tokenizer: Tokenizer) -> None:
    assert fits(tokenizer, tools, form, text) is expected


# What a model is told ------------------------------------------------------------------------------


def test_forms_of_templates() -> None:
    assert form_of(ChatTemplate(HERMES)) is Form.HERMES
    assert form_of(ChatTemplate(LLAMA)) is Form.LLAMA
    assert form_of(ChatTemplate(tiny_models.TEMPLATE)) is Form.GENERIC


TALK = [
    {"role": "developer", "content": "one"},
    {"role": "user", "content": [{"type": "text", "text": "two"}]},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c", "type": "function", "function": {"name": "now", "arguments": '{"a": [1]}'}}],
    },
    {"role": "tool", "tool_call_id": "c", "content": "noon"},
]


def test_templates_that_know_calls_get_them() -> None:
    found = messages_for(TALK, MAY, Form.HERMES)
    assert [own["role"] for own in found] == ["system", "user", "assistant", "tool"]
    assert found[2]["content"] == ""
    assert found[2]["tool_calls"][0]["function"] == {"name": "now", "arguments": {"a": [1]}}
    text = ChatTemplate(HERMES).render(found, tools=[TOOL])
    assert text.endswith('<tool_call>system: oneuser: twoassistant: now{"a": [1]}tool: noon')
    assert TALK[2]["content"] is None  # what was given is as it was


def test_other_templates_get_text() -> None:
    found = messages_for(TALK, MAY, Form.GENERIC)
    assert [own["role"] for own in found] == ["system", "user", "assistant", "user"]
    assert found[0]["content"].startswith("one\n\nYou can call functions.")
    for function in (TOOL, BARE):
        assert json.dumps(function["function"]) in found[0]["content"]
    assert found[2] == {
        "role": "assistant",
        "content": '<tool_call>\n{"name": "now", "arguments": {"a": [1]}}\n</tool_call>',
    }
    assert found[3]["content"] == "<tool_response>\nnoon\n</tool_response>"
    assert messages_for(TALK[1:2], MAY, Form.GENERIC)[0]["role"] == "system"
    assert messages_for(TALK[1:2], None, Form.GENERIC) == TALK[1:2]


@pytest.mark.parametrize("arguments", ["{", "[]", 5, "[" * 99999], ids=range(4))
def test_wrong_arguments_of_calls(arguments: Any) -> None:
    call = {"function": {"name": "x", "arguments": arguments}}
    with pytest.raises(Refusal, match="the 'arguments' of a call of message 0 must be a JSON object"):
        messages_for([{"role": "assistant", "content": None, "tool_calls": [call]}], None, Form.HERMES)


# A server ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def model(tiny_llama: Path) -> Model:
    return load_model(tiny_llama, context=256, chunk=16)


@pytest.fixture(scope="module", params=SHORT)
def server(request: pytest.FixtureRequest, model: Model) -> Iterator[Served]:
    own = model.chat_template
    model._template = ChatTemplate(SHORT[request.param])
    with served(model) as found:
        yield found
    model._template = own


@pytest.fixture(scope="module")
def client(server: Served) -> Iterator[httpx.Client]:
    with server.client() as client:
        yield client


#: Schemas that a random model fills soon, and no text of a system, which needs positions.
SMALL = {"type": "object", "properties": {"x": {"enum": [1, 2]}}, "required": ["x"], "additionalProperties": False}
NAMED = {"type": "function", "function": {"name": "f"}}
F = {"type": "function", "function": {"name": "f", "parameters": SMALL}}
G = {"type": "function", "function": {"name": "g"}}


def ask(client: httpx.Client, **more: Any) -> Any:
    blanks = {str(3 + byte): -100 for byte in b" \t\r\n"}  # of which a random model makes many
    asked = {
        "model": "tiny",
        "messages": [{"role": "user", "content": "x"}],
        "tools": [F],
        "logit_bias": blanks,
        **more,
    }
    reply = client.post(CHATS, json=asked)
    assert reply.status_code == 200, reply.text
    return reply


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tiny model's context is short for what it is told of functions."""
    monkeypatch.setattr("rlx_mlir.serving.calls._told", lambda tools: "f")


@pytest.mark.usefixtures("short")
def test_a_model_that_has_to_call(client: httpx.Client) -> None:
    for choice, tools, names in (("required", [F], {"f"}), (NAMED, [G, F], {"f"}), ("required", [F, G], {"f", "g"})):
        asked = {"tool_choice": choice, "tools": tools, "parallel_tool_calls": False, "seed": 3, "max_tokens": 150}
        found = ask(client, **asked).json()["choices"][0]
        assert found["finish_reason"] == "tool_calls", found
        (call,) = found["message"]["tool_calls"]
        assert found["message"]["content"] is None
        assert call["type"] == "function"
        assert call["id"].startswith("call_")
        name, arguments = call["function"]["name"], json.loads(call["function"]["arguments"])
        assert name in names
        assert arguments in ({"f": [{"x": 1}, {"x": 2}], "g": [{}]}[name])
        deltas: list[Any] = []
        reasons = []
        for line in ask(client, **asked, stream=True).text.split("\n\n"):
            if line.startswith("data: {"):
                (piece,) = json.loads(line[6:])["choices"]
                deltas += piece["delta"].get("tool_calls", [])
                reasons.append(piece["finish_reason"])
                assert not piece["delta"].get("content")
        assert [delta["function"] for delta in deltas] == [call["function"]]
        assert deltas[0]["index"] == 0
        assert reasons[-1] == "tool_calls"


@pytest.mark.usefixtures("short")
def test_a_model_that_may_call_or_may_not(client: httpx.Client) -> None:
    free = ask(client, max_tokens=12, seed=1).json()["choices"][0]
    assert "tool_calls" not in free["message"]
    assert free["message"]["content"]
    none = ask(client, max_tokens=12, seed=1, tool_choice="none").json()["choices"][0]
    plain = ask(client, max_tokens=12, seed=1, tools=None).json()["choices"][0]
    assert none["message"] == plain["message"]  # it isn't told of them


def test_wrong_tools(client: httpx.Client) -> None:
    for change, words in (
        ({"tools": {}}, "'tools' is a list"),
        ({"tools": [F] * 129}, "at most 128"),
        ({"tools": [F, F]}, "have one name"),
        ({"tools": [{"type": "function"}]}, "tool 0 must be"),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "the 'name' of function 0"),
        ({"tools": [{"type": "function", "function": {"name": "a", "parameters": []}}]}, "a JSON schema of an object"),
        ({"tools": [{"type": "function", "function": {"name": "a", "parameters": {"type": "array"}}}]}, "an object"),
        ({"tools": [F], "tool_choice": "maybe"}, "'tool_choice' is none, auto"),
        ({"tools": [F], "tool_choice": {"type": "function", "function": {"name": "g"}}}, "'tool_choice' is none"),
        ({"tool_choice": "required"}, "needs 'tools'"),
        ({"tools": [F], "response_format": {"type": "json_object"}}, "can't be had together"),
    ):
        reply = client.post(CHATS, json={**ASKED, **change})
        assert reply.status_code == 400
        assert words in reply.json()["error"]["message"]
    unknown = {"type": "function", "function": {"name": "f", "parameters": {"properties": {"x": {"$ref": "#/no"}}}}}
    assert client.post(CHATS, json={**ASKED, "tools": [unknown]}).status_code == 400


def test_grammars_need_the_package(monkeypatch: pytest.MonkeyPatch, tokenizer: Tokenizer) -> None:
    monkeypatch.setitem(__import__("sys").modules, "llguidance", None)
    with pytest.raises(InputError, match="needs the package llguidance"):
        guide_of({"type": "lark", "grammar": grammar(MAY, Form.HERMES)}, tokenizer)
