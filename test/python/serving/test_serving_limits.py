# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a server refuses, and how: each error is OpenAI's object with its status, whatever was sent."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("starlette", reason="needs the extra 'serve'")

import httpx
from served import served

from rlx_mlir.errors import InputError
from rlx_mlir.models.engine import Engine
from rlx_mlir.models.loading import load_model
from rlx_mlir.models.model import Model
from rlx_mlir.serving.server import listen
from rlx_mlir.serving.service import Service
from rlx_mlir.serving.settings import Settings, host_name

CHAT = {"model": "tiny", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 4}
LONG = {**CHAT, "max_tokens": 80, "ignore_eos": True, "seed": 1}
CHATS = "/v1/chat/completions"


@pytest.fixture(scope="module")
def model(tiny_llama: Path) -> Model:
    return load_model(tiny_llama, context=128, chunk=16)


@pytest.fixture(scope="module")
def client(model: Model) -> Iterator[httpx.Client]:
    with served(model) as server, server.client() as client:
        yield client


def wait_for(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def error_of(reply: httpx.Response, status: int) -> dict[str, Any]:
    """The error of a reply, which has to have all of OpenAI's fields."""
    assert reply.status_code == status, reply.text
    assert reply.headers["content-type"] == "application/json"
    (error,) = reply.json().values()
    assert error.keys() == {"message", "type", "param", "code"}
    assert error["message"]
    return dict(error)


# Bodies --------------------------------------------------------------------------------------------

#: Changes of a chat; the field that the error names, and words of its message.
WRONG: tuple[tuple[dict[str, Any], str | None, str], ...] = (
    ({"model": None}, "model", "'model' must be there"),
    ({"model": 5}, "model", "'model' is a text, but got 5"),
    ({"messages": None}, "messages", "one or more messages"),
    ({"messages": []}, "messages", "one or more messages"),
    ({"messages": "hello"}, "messages", "one or more messages, but is 'hello'"),
    ({"messages": [{"role": "cat", "content": "x"}]}, "messages", "a 'role' of system"),
    ({"messages": [{"role": "user"}]}, "messages", "the 'content' of message 0 must be a text"),
    ({"messages": [{"role": "user", "content": []}]}, "messages", "a list of one or more parts, but is []"),
    ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages", "models read text alone"),
    ({"messages": [{"role": "assistant", "tool_calls": {}}]}, "messages", "must be a list"),
    ({"messages": [{"role": "assistant", "tool_calls": [5]}]}, "messages", "needs a 'function'"),
    ({"temperature": "hot"}, "temperature", "'temperature' is a number, but got 'hot'"),
    ({"temperature": -1}, None, "'temperature' must be finite and at least 0, but is -1"),
    ({"top_p": 0}, None, "'top_p' must be in"),
    ({"top_k": -1}, "top_k", "a whole number"),
    ({"n": 17}, "n", "from 1 to 16"),
    ({"n": 0}, "n", "from 1 to 16"),
    ({"max_tokens": 0}, "max_tokens", "from 1 to 128"),
    ({"max_tokens": 10**30}, "max_tokens", "from 1 to 128"),
    ({"max_completion_tokens": 5}, "max_tokens", "the older name"),
    ({"stream": 1}, "stream", "True or False"),
    ({"stream_options": {"include_usage": True}}, "stream_options", "needs 'stream'"),
    ({"stream": True, "stream_options": {"usage": True}}, "usage", "no parameter 'usage'"),
    ({"stop": ["x"] * 17}, "stop", "at most 16"),
    ({"stop": [""]}, "stop", "none of them empty"),
    ({"logit_bias": {"x": 1}}, "logit_bias", "are token ids"),
    ({"logit_bias": {"300": 1}}, None, "must be in [0, 300)"),
    ({"logit_bias": {"5": "1"}}, "logit_bias", "must be a number"),
    ({"top_logprobs": 3}, "top_logprobs", "needs 'logprobs'"),
    ({"logprobs": True, "top_logprobs": 21}, "top_logprobs", "from 0 to 20"),
    ({"response_format": {"type": "xml"}}, None, "the 'type' of 'response_format'"),
    ({"response_format": "json"}, "response_format", "a mapping"),
    ({"temprature": 1}, "temprature", "(did you mean 'temperature'?)"),
    ({"reasoning_effort": "high"}, "reasoning_effort", "doesn't read 'reasoning_effort'"),
    ({"reasoning_effort": 3}, "reasoning_effort", "is a text"),
    ({"enable_thinking": False}, "enable_thinking", "doesn't read 'enable_thinking'"),
    ({"enable_thinking": "no"}, "enable_thinking", "is True or False"),
    ({"chat_template_kwargs": {"thinking": True}}, "chat_template_kwargs", "doesn't read 'thinking'"),
    ({"functions": [{}]}, "functions", "not implemented"),
    ({"seed": 1.5}, "seed", "a whole number"),
    ({"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs", "may not set 'messages'"),
    ({"messages": [{"role": "user", "content": "the cat sat " * 100}]}, None, "the context has 128 positions"),
    ({"messages": [{"role": "user", "content": "\ud800"}]}, None, "half of a surrogate pair"),
)


@pytest.mark.parametrize(("change", "param", "words"), WRONG, ids=lambda value: str(value)[:40].replace("\ud800", "?"))
def test_wrong_bodies(change: dict[str, Any], param: str | None, words: str, client: httpx.Client) -> None:
    content = json.dumps({**CHAT, **change})
    error = error_of(client.post(CHATS, content=content, headers={"content-type": "application/json"}), 400)
    assert (error["type"], error["param"]) == ("invalid_request_error", param)
    assert words in error["message"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"[]", "must be a JSON object, but is []"),
        (b"null", "must be a JSON object"),
        (b'{"model": NaN}', "NaN isn't JSON"),
        (b'{"model": "a", "model": "b"}', "stands twice"),
        (b"\xff{}", "the body can't be read"),
        (b"[" * 100000, "nesting"),
        (b'{"n": ' + b"9" * 5000 + b"}", "digits"),
    ],
    ids=range(9),
)
def test_what_is_not_json(content: bytes, words: str, client: httpx.Client) -> None:
    headers = {"content-type": "application/json; charset=utf-8"}
    assert words in error_of(client.post(CHATS, content=content, headers=headers), 400)["message"]


def test_wrong_completions(client: httpx.Client) -> None:
    for change, words in (
        ({"prompt": None}, "'prompt' is a text, token ids, or several"),
        ({"prompt": [1, 2, "x"]}, "'prompt' is token ids, but its element 2 is 'x'"),
        ({"prompt": [1, True]}, "its element 1 is True"),
        ({"prompt": [[1], [2, 3, -4]]}, "its element 1 has -4 at 2, which is no token id"),
        ({"prompt": ["x", 1]}, "its element 1 is 1"),
        ({"prompt": ["x", []]}, "its element 1 is []"),
        ({"prompt": [[5000]]}, "must be in [0, 300)"),
        ({"prompt": ["x"] * 17}, "may have 16 texts"),
        ({"prompt": ["x"] * 6, "n": 3}, "may ask for 16 texts, but asks for 18"),
        ({"prompt": "x", "logprobs": 6}, "from 0 to 5"),
        ({"prompt": "x", "suffix": "y"}, "'suffix' is not implemented"),
        ({"prompt": "x", "echo": True}, "'echo' is not implemented"),
        ({"prompt": ""}, "at least one token"),
    ):
        assert words in error_of(client.post("/v1/completions", json={"model": "tiny", **change}), 400)["message"]
    fine = {"model": "tiny", "prompt": "x", "suffix": "", "echo": False, "best_of": 1}
    assert client.post("/v1/completions", json=fine).status_code == 200


def test_paths_methods_types_and_models(client: httpx.Client) -> None:
    missing = error_of(client.post("/v1/responses", json={}), 404)
    assert missing["type"] == "invalid_request_error"
    assert missing["message"].startswith("there is nothing at '/v1/responses'; what there is: /v1/models, ")
    assert "/v1/chat/completions" in missing["message"]
    assert error_of(client.get(CHATS), 405)
    assert error_of(client.post("/health"), 405)
    assert error_of(client.post(CHATS, content="{}", headers={"content-type": "text/plain"}), 415)
    assert error_of(client.post(CHATS, json={**CHAT, "model": "gpt-5"}), 404)["code"] == "model_not_found"
    assert error_of(client.post("/v1/embeddings", json={"model": "tiny", "input": "x"}), 404)["param"] == "model"
    assert error_of(client.get("/v1/models/gpt-5"), 404)["code"] == "model_not_found"


def _random_json(random: np.random.Generator, depth: int = 0) -> Any:
    """Any value of JSON; most are near to what is expected."""
    kind = int(random.integers(0, 9 if depth < 3 else 7))
    if kind == 0:
        return None
    if kind == 1:
        return bool(random.integers(2))
    if kind == 2:
        return int(random.integers(-5, 300))
    if kind == 3:
        return float(random.choice([0.0, 0.5, -1.0, 1e308, 2.5, 1e-320]))
    if kind == 4:
        return 10 ** int(random.integers(1, 60))
    if kind in (5, 6):
        return str(random.choice(["", "hello", "auto", "text", "json_object", "\0", "é😀", "<|im_end|>", "x" * 300]))
    if kind == 7:
        return [_random_json(random, depth + 1) for _ in range(int(random.integers(0, 4)))]
    keys = ["role", "content", "type", "function", "name", "parameters", "schema", "5", "x", "text", "json_schema"]
    return {str(key): _random_json(random, depth + 1) for key in random.choice(keys, int(random.integers(0, 5)))}


_FIELDS = {
    CHATS: [
        *("model", "messages", "temperature", "top_p", "top_k", "min_p", "n", "stop", "seed", "logprobs", "user"),
        *("top_logprobs", "logit_bias", "stream", "stream_options", "response_format", "tools", "tool_choice"),
        *("max_tokens", "max_completion_tokens", "ignore_eos", "presence_penalty", "chat_template_kwargs", "other"),
    ],
    "/v1/completions": ["model", "prompt", "n", "stop", "logprobs", "max_tokens", "echo", "best_of", "stream", "seed"],
    "/v1/embeddings": ["model", "input", "encoding_format", "dimensions", "user"],
}


def fuzz(client: httpx.Client, seed: int, count: int) -> None:
    """Random bodies, most of which are nearly right: never a status of 500, and an answer to a right one afterwards."""
    random = np.random.default_rng(seed)
    right = {CHATS: CHAT, "/v1/completions": {"model": "tiny", "prompt": "x", "max_tokens": 3}}
    for _ in range(count):
        path = str(random.choice(list(_FIELDS)))
        body: Any = dict(right.get(path, {"model": "tiny", "input": "x"}))
        for field in random.choice(_FIELDS[path], int(random.integers(1, 4))):
            body[str(field)] = _random_json(random)
        content = json.dumps(body).encode()
        if random.random() < 0.2:  # bytes that aren't JSON any more
            at = int(random.integers(len(content)))
            content = content[:at] + bytes([int(random.integers(256))]) + content[at + 1 :]
        reply = client.post(path, content=content, headers={"content-type": "application/json"})
        assert reply.status_code in (200, 400, 404), (content, reply.text)
        if reply.status_code != 200:
            error_of(reply, reply.status_code)
        elif reply.headers["content-type"].startswith("text/event-stream"):
            assert reply.text.endswith("data: [DONE]\n\n")
            assert "internal_error" not in reply.text, content
    assert client.post(CHATS, json=CHAT).status_code == 200


@pytest.mark.wide
def test_random_bodies(client: httpx.Client) -> None:
    fuzz(client, 0, 150)


@pytest.mark.slow
def test_many_random_bodies(client: httpx.Client) -> None:
    for seed in range(1, 11):
        fuzz(client, seed, 1000)


# Errors that aren't the client's -------------------------------------------------------------------


def test_failures_are_not_told(model: Model, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    with served(model) as server, server.client() as client:

        def fails(*_given: object, **_more: object) -> None:
            raise RuntimeError("secret of the inside")

        with monkeypatch.context() as patch:
            patch.setattr(server.engine, "add", fails)
            error = error_of(client.post(CHATS, json=CHAT), 500)
        assert error == {
            "message": "the server failed; its log says why",
            "type": "server_error",
            "param": None,
            "code": "internal_error",
        }
        assert "secret of the inside" in caplog.text
        step = server.engine.step
        with monkeypatch.context() as patch:
            patch.setattr(server.engine, "step", fails)
            assert error_of(client.post(CHATS, json=CHAT), 500)["type"] == "server_error"
            reply = client.post(CHATS, json={**CHAT, "stream": True})
            assert reply.status_code == 200
            assert '"type":"server_error"' in reply.text
            assert reply.text.endswith("data: [DONE]\n\n")
        assert server.engine.step is step
        assert client.post(CHATS, json=CHAT).status_code == 200
        assert "rlx_engine_failures 2" in client.get("/metrics").text


def test_paths_of_files_are_not_told(model: Model, client: httpx.Client) -> None:
    raised = Service(Settings(name="tiny"), Engine(model)).refusal(InputError(f"{model.file.path}: is wrong"))
    assert (raised.status, raised.message) == (400, "tiny: is wrong")


# Limits --------------------------------------------------------------------------------------------


def test_a_full_queue(model: Model) -> None:
    with served(model, sequences=1, queue=2) as server, server.client() as client:
        server.gate.clear()
        statuses: list[int] = []

        def ask() -> None:
            statuses.append(client.post(CHATS, json=CHAT).status_code)

        threads = [threading.Thread(target=ask) for _ in range(2)]
        for thread in threads:
            thread.start()
        wait_for(lambda: server.engine.waiting == 2)
        reply = client.post(CHATS, json=CHAT)
        assert error_of(reply, 429)["code"] == "queue_full"
        assert reply.headers["retry-after"] == "1"
        server.gate.set()
        for thread in threads:
            thread.join(60)
        assert statuses == [200, 200]
        server.gate.clear()
        assert error_of(client.post(CHATS, json={**CHAT, "n": 3, "stream": True}), 429)
        server.gate.set()  # none of the three is left
        wait_for(lambda: server.engine.is_idle)


def test_bodies_that_are_large_or_slow(model: Model) -> None:
    with served(model, body_bytes=1000, body_seconds=0.3) as server, server.client() as client:
        large = {**CHAT, "user": "x" * 2000}
        assert "1000 bytes" in error_of(client.post(CHATS, json=large), 413)["message"]

        def parts() -> Iterator[bytes]:  # without a length beforehand
            for _ in range(20):
                yield b" " * 100

        headers = {"content-type": "application/json"}
        assert error_of(client.post(CHATS, content=parts(), headers=headers), 413)
        with socket.create_connection(("127.0.0.1", server.port)) as slow:
            head = f"POST {CHATS} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            slow.sendall(f"{head}Content-Length: 100\r\n\r\n{{".encode())
            assert slow.recv(100).startswith(b"HTTP/1.1 408 ")
        assert client.post(CHATS, json=CHAT).status_code == 200


def test_heads_that_are_large_or_slow_and_what_is_no_http(model: Model) -> None:
    with served(model, header_seconds=0.3) as server, server.client() as client:
        for sent, status in (
            (b"", 408),
            (b"GET / HTTP/1.1\r\nHost: localhost\r\n", 408),
            (b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\nGET / HTTP/1.1\r\n", 200),  # the second one is slow
            (b"\x16\x03\x01\x02\x00\r\n\r\n", 400),
            (b"GET / HTTP/1.1\r\nX: " + b"x" * 100_000 + b"\r\n\r\n", 400),
        ):
            with socket.create_connection(("127.0.0.1", server.port)) as raw:
                raw.settimeout(60)
                raw.sendall(sent)
                answer = b""
                while part := _received(raw):
                    answer += part
                assert answer.startswith(b"HTTP/1.1 %d " % status), answer
                assert (b'{"error":{"message":' in answer) == (status != 200 or b"HTTP/1.1 408 " in answer)
                assert (b"HTTP/1.1 408 " in answer) == (status in (408, 200))
        assert client.get("/health").status_code == 200


def _received(raw: socket.socket) -> bytes:
    try:
        return raw.recv(10_000)
    except ConnectionResetError:
        return b""


def test_connections(model: Model) -> None:
    with served(model, connections=2) as server:
        first, second = (socket.create_connection(("127.0.0.1", server.port)) for _ in range(2))
        wait_for(lambda: len(server.server.server_state.connections) == 2)
        with socket.create_connection(("127.0.0.1", server.port)) as third:
            assert b"HTTP/1.1 503 Service Unavailable" in third.recv(1000)
        first.close()
        second.close()
        with server.client() as client:
            wait_for(lambda: not server.server.server_state.connections)
            assert client.get("/health").status_code == 200


def test_time_is_a_limit(model: Model) -> None:
    with served(model, request_seconds=0.5) as server, server.client() as client:
        server.gate.clear()
        timer = threading.Timer(1.5, server.gate.set)
        timer.start()
        error = error_of(client.post(CHATS, json=LONG), 503)
        assert (error["code"], error["message"]) == ("timeout", "no text came within 0.5 seconds")
        timer.join()
        step = server.engine.step

        def slow() -> bool:
            time.sleep(0.05)
            return step()

        server.engine.step = slow  # type: ignore[method-assign, assignment]
        reply = client.post(CHATS, json={**LONG, "max_tokens": 100}).json()
        assert reply["choices"][0]["finish_reason"] == "length"
        assert 0 < reply["usage"]["completion_tokens"] < 100


def test_tokens_are_a_limit(model: Model) -> None:
    with served(model, max_tokens=6) as server, server.client() as client:
        assert "from 1 to 6" in error_of(client.post(CHATS, json={**CHAT, "max_tokens": 7}), 400)["message"]
        reply = client.post(CHATS, json={**CHAT, "max_tokens": None, "ignore_eos": True})
        assert reply.json()["usage"]["completion_tokens"] == 6
    with served(model) as server, server.client() as client:  # the context
        reply = client.post(CHATS, json={**CHAT, "max_tokens": 128, "ignore_eos": True}).json()
        assert reply["choices"][0]["finish_reason"] == "length"
        assert reply["usage"]["total_tokens"] == 129


# Who may come --------------------------------------------------------------------------------------


def test_keys(model: Model) -> None:
    with served(model, api_key="s3cret") as server, server.client() as client:
        for given in (None, "Bearer wrong", "Bearer", "Basic s3cret", "Bearer s3cret2", "Bearer \xe9"):
            headers = {} if given is None else {"Authorization": given.encode("latin-1")}
            for path in ("/v1/models", "/metrics", "/v2"):
                reply = client.get(path, headers=headers)
                assert error_of(reply, 401)["code"] == "invalid_api_key"
                assert reply.headers["www-authenticate"] == "Bearer"
            assert error_of(client.post(CHATS, json=CHAT, headers=headers), 401)
        assert client.get("/health").status_code == 200
        assert client.get("/").status_code == 200
        right = {"Authorization": "bearer s3cret"}
        assert client.post(CHATS, json=CHAT, headers=right).status_code == 200
        assert client.get("/metrics", headers=right).status_code == 200


def test_hosts_and_other_sites(model: Model) -> None:
    """A page of the web can reach this machine, by a name of its own or without being allowed to read the answer."""
    with served(model, hosts=("My.Name",)) as server, server.client() as client:
        for host, status in (
            ("evil.example", 403),
            ("evil.example:8000", 403),
            ("127.0.0.1.evil.example", 403),
            ("", 403),
            ("localhost:80", 200),
            ("127.5.0.1", 200),
            ("[::1]:80", 200),
            ("my.name:1", 200),
        ):
            assert client.get("/health", headers={"Host": host}).status_code == status, host
        reply = client.options(CHATS, headers={"Origin": "https://a.example", "Access-Control-Request-Method": "POST"})
        assert reply.status_code == 405
        assert "access-control-allow-origin" not in reply.headers
    with served(model, origins=("https://a.example",)) as server, server.client() as client:
        asked = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "content-type"}
        reply = client.options(CHATS, headers={"Origin": "https://a.example", **asked})
        assert (reply.status_code, reply.headers["access-control-allow-origin"]) == (200, "https://a.example")
        assert client.options(CHATS, headers={"Origin": "https://b.example", **asked}).status_code == 400
    assert Settings(name="x", host="0.0.0.0").serves_host("anything")


def test_names_of_hosts() -> None:
    names = {"A.b:80": "a.b", "[::1]:80": "::1", "[::1]": "::1", " x ": "x", "": ""}
    assert {given: host_name(given) for given in names} == names


def test_settings() -> None:
    for given, words in (
        ({"name": ""}, "names that differ"),
        ({"embeddings": "tiny"}, "names that differ"),
        ({"api_key": ""}, "an API key"),
        ({"api_key": "a b"}, "an API key"),
        ({"api_key": "é"}, "an API key"),
        ({"body_bytes": 0}, "'body_bytes' is a whole number"),
        ({"max_tokens": 0}, "'max_tokens' is a whole number"),
        ({"request_seconds": -1.0}, "'request_seconds' must be from 0"),
        ({"grace_seconds": float("nan")}, "'grace_seconds' must be from 0"),
        ({"host": 5}, "'host' is a text"),
    ):
        with pytest.raises(InputError, match=words):
            Settings(**{"name": "tiny", **given})
    assert [Settings(name="x", host=h).is_local for h in ("127.0.0.1", "::1", "localhost", "0.0.0.0", "a.b")] == [
        *[True] * 3,
        *[False] * 2,
    ]


def test_addresses_that_cannot_be_had() -> None:
    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(InputError, match=f"nothing can listen at 127.0.0.1, port {port}: "):
            listen("127.0.0.1", port)
    with pytest.raises(InputError, match="nothing can listen at no"):
        listen("no.such.host.invalid", 0)


# The end -------------------------------------------------------------------------------------------


def test_running_requests_are_finished(model: Model) -> None:
    with served(model) as server, server.client() as client:
        expected = client.post(CHATS, json=LONG).json()["choices"][0]["message"]["content"]
        server.gate.clear()
        found: list[httpx.Response] = []
        thread = threading.Thread(target=lambda: found.append(client.post(CHATS, json=LONG)))
        thread.start()
        wait_for(lambda: server.engine.waiting)
        server.tell_to_stop()
        wait_for(lambda: server.service.is_stopping)
        reply = client.post(CHATS, json=CHAT)
        assert error_of(reply, 503)["code"] == "shutting_down"
        assert reply.headers["retry-after"] == "30"
        health = client.get("/health")
        assert (health.status_code, health.json()) == (503, {"status": "stopping"})
        server.gate.set()
        thread.join(60)
        assert found[0].json()["choices"][0]["message"]["content"] == expected
        server.join()
        with pytest.raises(httpx.ConnectError):
            client.get("/health")


@pytest.mark.parametrize("stream", [False, True])
def test_requests_that_take_too_long_at_the_end_are_told(stream: bool, model: Model) -> None:
    with served(model, grace_seconds=0.2) as server, server.client() as client:
        server.gate.clear()
        found: list[httpx.Response] = []
        thread = threading.Thread(target=lambda: found.append(client.post(CHATS, json={**LONG, "stream": stream})))
        thread.start()
        wait_for(lambda: server.engine.waiting)
        server.tell_to_stop()
        wait_for(lambda: server.service.is_stopping)
        time.sleep(0.4)
        server.gate.set()
        thread.join(60)
        assert "the server is shutting down" in found[0].text
        assert found[0].status_code == (200 if stream else 503)
        server.join()


def test_who_goes_is_not_worked_for(model: Model) -> None:
    with served(model) as server:
        server.gate.clear()
        for stream in (False, True):
            with server.client() as client, pytest.raises(httpx.ReadTimeout):
                client.post(CHATS, json={**LONG, "stream": stream}, timeout=0.5)
        wait_for(lambda: server.service.running == 0)
        server.gate.set()
        wait_for(lambda: server.engine.is_idle)
        with server.client() as client:
            text = client.get("/metrics").text
        assert 'rlx_texts_total{reason="cancelled"} 2' in text
        assert 'rlx_requests_total{path="/v1/chat/completions",status="499"} 1' in text


def start(*words: object, **environment: str) -> tuple[subprocess.Popen[str], str]:
    """The command, and where it serves."""
    command = [sys.executable, "-m", "rlx_mlir.tools.cli", "serve", *map(str, words)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ, **environment})
    assert process.stderr is not None
    lines = ""
    while " at http://" not in lines:
        assert select.select([process.stderr], [], [], 300)[0], lines
        line = process.stderr.readline()
        assert line, lines
        lines += line
    return process, lines.split(" at ")[1].split()[0]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_command_ends_by_signals(number: signal.Signals, model: Model) -> None:
    options = ("--port", 0, "--context", 128, "--chunk", 16, "--name", "tiny", "--log")
    process, url = start(model.file.path, *options, RLX_API_KEY="k3y")
    try:
        key = {"Authorization": "Bearer k3y"}
        with httpx.Client(base_url=url, trust_env=False, timeout=120, headers=key) as client:
            with client.stream("POST", CHATS, json={**LONG, "stream": True}) as reply:
                lines = reply.iter_lines()
                next(lines)
                process.send_signal(number)
                rest = list(lines)
            assert rest[-2:] == ["data: [DONE]", ""]
        _, errors = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 0
    assert "POST /v1/chat/completions 200" in errors
    assert "hello" not in errors
