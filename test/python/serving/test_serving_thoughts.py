# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Chats with models that think: content without it, reasoning_content, forms and calls behind it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tiny_models

pytest.importorskip("starlette", reason="needs the extra 'serve'")
pytest.importorskip("llguidance", reason="needs the extra 'structured'")

import httpx
from interpreted import load_interpreted
from served import served
from thinking_models import MARKS, channels, thoughts

from rlx_mlir.frontends.gguf import write_gguf

CHATS = "/v1/chat/completions"
THE, CLOSE, END = (thoughts()["tokenizer.ggml.tokens"].index(own) for own in ("Ġthe", "</think>", "<|im_end|>"))
SMALL = {"type": "object", "properties": {"x": {"enum": [1, 2]}}, "required": ["x"], "additionalProperties": False}
TOOLS = [{"type": "function", "function": {"name": name, "parameters": SMALL}} for name in ("f", "g")]
NAMED = {"type": "function", "function": {"name": "g"}}
HERMES = "{% if tools %}<tool_call>{% endif %}"
#: A random model's choices: `the` three times, of which two are thought, as each one makes the next less likely.
THREE = {"logit_bias": {str(THE): 500, str(CLOSE): 470, str(END): 455}, "frequency_penalty": 20, "temperature": 0}


def client_of(folder: Path, metadata: dict[str, Any], architecture: str) -> Iterator[httpx.Client]:
    tensors = tiny_models.tensors(architecture=architecture, layers=1)
    path = write_gguf(folder / "m.gguf", {**metadata, f"{architecture}.block_count": 1}, tensors)
    with served(load_interpreted(path, context=256), sequences=1) as server, server.client() as client:
        yield client


@pytest.fixture(scope="module")
def thinking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    own = thoughts()
    own["tokenizer.chat_template"] = HERMES + own["tokenizer.chat_template"]
    yield from client_of(tmp_path_factory.mktemp("thinking"), own, "llama")


@pytest.fixture(scope="module")
def dividing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """The template has few tokens: the tiny model has 256 positions."""
    template = "{{ messages[0].content }}{{ tools and '' }}{# <|channel|><|message|> #}<|start|>assistant"
    own = channels(**{"tokenizer.chat_template": template})
    yield from client_of(tmp_path_factory.mktemp("channels"), own, "gpt-oss")


def ask(client: httpx.Client, **more: Any) -> Any:
    """The choice of a reply; a stream of the same request says the same."""
    asked = {"model": "tiny", "messages": [{"role": "user", "content": "x"}], "seed": 1, "max_tokens": 120, **more}
    reply = client.post(CHATS, json=asked)
    assert reply.status_code == 200, reply.text
    (choice,) = reply.json()["choices"]
    lines = client.post(CHATS, json={**asked, "stream": True}).text.split("\n\n")
    pieces = [json.loads(line[6:])["choices"][0] for line in lines if line.startswith("data: {")]
    message = choice["message"]
    for name in ("reasoning_content", "content"):
        said = "".join(piece["delta"].get(name) or "" for piece in pieces)
        assert said == (message.get(name) or "")
    called = [call["function"] for piece in pieces for call in piece["delta"].get("tool_calls", [])]
    assert called == [call["function"] for call in message.get("tool_calls", [])]
    assert pieces[-1]["finish_reason"] == choice["finish_reason"]
    kinds = [next(iter(piece["delta"]), "") for piece in pieces]
    assert kinds == sorted(kinds, key=["role", "reasoning_content", "content", "tool_calls", ""].index)
    return choice


def test_content_has_no_thought(thinking: httpx.Client) -> None:
    found = ask(thinking, enable_thinking=True, **THREE)
    assert (found["message"]["reasoning_content"], found["finish_reason"]) == ("the the", "stop")
    assert found["message"]["content"] == "the"
    again = ask(thinking, chat_template_kwargs={"enable_thinking": True}, **THREE)
    assert again["message"] == found["message"]
    free = ask(thinking, enable_thinking=False, **THREE)
    assert "reasoning_content" not in free["message"]
    cut = ask(thinking, enable_thinking=True, **{**THREE, "max_tokens": 2})
    assert (cut["message"]["reasoning_content"], cut["finish_reason"]) == ("the the", "length")
    assert cut["message"]["content"] == ""
    stopped = ask(thinking, enable_thinking=True, stop="he", **THREE)
    assert (stopped["message"]["reasoning_content"], stopped["message"]["content"]) == ("the the", "t")


def test_completions_have_all_of_the_text(thinking: httpx.Client) -> None:
    asked = {"model": "tiny", "prompt": [1, 5], "max_tokens": 4, **THREE}
    reply = thinking.post("/v1/completions", json=asked)
    assert reply.json()["choices"][0]["text"] == " the the</think> the"


def test_forms_and_calls_behind_a_thought(thinking: httpx.Client) -> None:
    blanks = {str(3 + byte): -100 for byte in b" \t\r\n"}
    own = {"enable_thinking": True, "logit_bias": {**blanks, str(CLOSE): 4}}
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": SMALL}}
    found = ask(thinking, response_format=form, **own)
    assert json.loads(found["message"]["content"]) in ({"x": 1}, {"x": 2})
    assert (bool(found["message"]["reasoning_content"]), found["finish_reason"]) == (True, "stop")
    for choice, names in (("required", {"f", "g"}), (NAMED, {"g"})):
        found = ask(thinking, tools=TOOLS, tool_choice=choice, parallel_tool_calls=False, **own)
        check_call(found, names)
        assert found["message"]["reasoning_content"]


def check_call(found: Any, names: set[str]) -> None:
    assert found["finish_reason"] == "tool_calls", found
    (call,) = found["message"]["tool_calls"]
    assert call["function"]["name"] in names
    assert json.loads(call["function"]["arguments"]) in ({"x": 1}, {"x": 2})
    assert found["message"]["content"] is None


def test_models_with_channels_can_be_made_to_call(dividing: httpx.Client) -> None:
    """Behind what they think, where that is said to end soon."""
    end = 300 - len(MARKS) + MARKS.index("end")
    blanks = {str(3 + byte): -100 for byte in b" \t\r\n"}
    for choice, names in (("required", {"f", "g"}), (NAMED, {"g"})):
        own = {"tools": TOOLS, "tool_choice": choice, "logit_bias": {**blanks, str(end): 4}}
        check_call(ask(dividing, **own), names)


def test_forms_are_of_the_last_channel(dividing: httpx.Client) -> None:
    end = 300 - len(MARKS) + MARKS.index("end")
    blanks = {str(3 + byte): -100 for byte in b" \t\r\n"}
    found = ask(dividing, response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": SMALL}},
                logit_bias={**blanks, str(end): 4})  # fmt: skip
    assert json.loads(found["message"]["content"]) in ({"x": 1}, {"x": 2})
    assert found["finish_reason"] == "stop"
