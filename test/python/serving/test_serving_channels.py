# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Replies of a model whose answers have channels: content, reasoning_content and tool_calls."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from rlx_mlir.models.channels import Aside, Kind
from rlx_mlir.models.chat import ChatTemplate
from rlx_mlir.serving.answers import ChatAnswer
from rlx_mlir.serving.calls import Call, Form, call_of, form_of, messages_for
from rlx_mlir.serving.driver import Piece

TEMPLATE = "{% for m in messages %}<|start|>{{ m.role }}<|message|>{{ m.content }}{% endfor %}<|channel|>{{ tools }}"
CALL = Aside(Kind.CALL, '{"a": 1}', "find")
THOUGHTS = [Aside(Kind.THOUGHT, "the "), Aside(Kind.THOUGHT, "cat")]


def answer(text: str, asides: list[Aside]) -> tuple[ChatAnswer, Any]:
    """The answer of a request with one text."""
    request = SimpleNamespace(
        text=text,
        task=SimpleNamespace(asides=asides),
        reasoning="".join(own.text for own in asides if own.kind is Kind.THOUGHT),
        ids=[1, 2],
        prompt_ids=[3],
        logprobs=[],
        finish_reason="stop",
        stats=SimpleNamespace(reused_tokens=0),
    )
    asked: Any = SimpleNamespace(model="m", usage=False, shows_logprobs=None, tools=None, count=1)
    service: Any = SimpleNamespace(form=Form.CHANNELS, model=None)
    work: Any = SimpleNamespace(requests=[request])
    return ChatAnswer(service, asked, work), request


def whole(text: str, asides: list[Aside]) -> tuple[Any, str]:
    choice: Any = answer(text, asides)[0].whole()["choices"]
    return choice[0]["message"], choice[0]["finish_reason"]


def test_whole_replies() -> None:
    message, reason = whole("hello", THOUGHTS)
    assert (message["content"], message["reasoning_content"], reason) == ("hello", "the cat", "stop")
    assert "tool_calls" not in message
    message, reason = whole("", [*THOUGHTS, CALL])
    assert (message["content"], message["reasoning_content"], reason) == (None, "the cat", "tool_calls")
    assert [call["function"] for call in message["tool_calls"]] == [{"name": "find", "arguments": '{"a": 1}'}]
    message, reason = whole("hello", [])
    assert "reasoning_content" not in message


def test_a_call_that_is_not_complete_is_text() -> None:
    message, reason = whole("", [Aside(Kind.CALL, '{"a": ', "find")])
    assert (message["content"], reason) == ('{"a": ', "stop")
    for text in ("", "3", "[1]", "{" * 100000):
        assert call_of("f", text) is None
    assert call_of("f", ' {"b":"é"} ') == Call("f", '{"b": "é"}')


def test_streams_say_the_same_in_parts() -> None:
    asides: list[Aside] = []
    stream, _ = answer("hello", asides)
    deltas: list[dict[str, Any]] = []

    def follow(text: str, *more: Aside, is_end: bool = False) -> None:
        asides.extend(more)
        found: Any = stream.follow(Piece(0, text, ((1, 0.0),), is_end))
        deltas.extend(chunk["choices"][0] for chunk in found)

    follow("", THOUGHTS[0])
    follow("", THOUGHTS[1])
    follow("hel")
    follow("lo")
    follow("", CALL)
    follow("", is_end=True)
    shown = [choice["delta"] for choice in deltas]
    assert shown[:4] == [
        {"reasoning_content": "the "},
        {"reasoning_content": "cat"},
        {"content": "hel"},
        {"content": "lo"},
    ]
    (call,) = shown[4]["tool_calls"]
    assert (call["index"], call["function"]) == (0, {"name": "find", "arguments": '{"a": 1}'})
    assert (shown[5:], deltas[-1]["finish_reason"]) == ([{}], "tool_calls")


def test_what_came_meanwhile_is_in_order() -> None:
    stream, _ = answer("hello", [*THOUGHTS, CALL])
    found: Any = stream.follow(Piece(0, "hello", ((1, 0.0),), is_end=True))
    kinds = [next(iter(chunk["choices"][0]["delta"]), None) for chunk in found]
    assert kinds == ["reasoning_content", "content", "tool_calls", None]


@pytest.mark.parametrize("tools", [None, "some"])
def test_templates_and_messages(tools: Any) -> None:
    """Reasoning of an answer before goes to the template by the name that it knows; calls are objects."""
    assert form_of(ChatTemplate(TEMPLATE)) is Form.CHANNELS
    call = {"id": "x", "type": "function", "function": {"name": "find", "arguments": json.dumps({"a": 1})}}
    given = [
        {"role": "user", "content": "hello"},
        {"role": "assistant", "content": None, "reasoning_content": "the cat", "tool_calls": [call]},
        {"role": "tool", "content": "7", "tool_call_id": "x"},
    ]
    found = messages_for(given, tools, Form.CHANNELS)
    assert [message["role"] for message in found] == ["user", "assistant", "tool"]
    assert found[1]["thinking"] == "the cat"
    assert "reasoning_content" not in found[1]
    assert found[1]["tool_calls"][0]["function"]["arguments"] == {"a": 1}
