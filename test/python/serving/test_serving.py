# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The endpoints of a server, asked by OpenAI's client and by hand: their texts are those of `Model.generate`."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_encoders

pytest.importorskip("starlette", reason="needs the extra 'serve'")
import httpx
from served import Served, served

from rlx_mlir.models.embedding import Encoder, load_encoder
from rlx_mlir.models.loading import load_model
from rlx_mlir.models.model import Model

openai = pytest.importorskip("openai", reason="needs openai, of the extra 'test'")

CONTEXT = 256
CHAT = [{"role": "user", "content": "hello"}]
#: What OpenAI's interface has where nothing is said.
PLAIN: dict[str, Any] = {"temperature": 1.0, "top_p": 1.0, "top_k": 0}


@pytest.fixture(scope="module")
def model(tiny_llama: Path) -> Model:
    return load_model(tiny_llama, context=CONTEXT, chunk=16)


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Encoder:
    bert = tiny_encoders.BERT
    return load_encoder(tiny_encoders.write(tmp_path_factory.mktemp("bert"), bert, tiny_encoders.tensors(bert)))


@pytest.fixture(scope="module")
def server(model: Model, encoder: Encoder) -> Iterator[Served]:
    with served(model, encoder=encoder) as found:
        yield found


@pytest.fixture(scope="module")
def client(server: Served) -> Iterator[httpx.Client]:
    with server.client() as client:
        yield client


@pytest.fixture(scope="module")
def api(server: Served) -> Iterator[Any]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=120) as found:
        yield found


def alone(model: Model, prompt: Any, **options: Any) -> str:
    return model.generate(prompt, **{**PLAIN, **options}).read()


def events(reply: httpx.Response) -> list[Any]:
    """The objects of a stream, which has to end well."""
    lines = [line for line in reply.text.split("\n\n") if line]
    assert lines.pop() == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines]


# Chats ---------------------------------------------------------------------------------------------


def test_a_chat_is_what_generate_gives(model: Model, api: Any) -> None:
    found = api.chat.completions.create(model="tiny", messages=CHAT, max_completion_tokens=12, seed=3)
    (choice,) = found.choices
    expected = model.generate(CHAT, max_tokens=12, seed=3, **PLAIN)
    assert choice.message.content == expected.read()
    assert choice.message.role == "assistant"
    assert choice.message.tool_calls is None
    assert choice.finish_reason == expected.finish_reason
    assert choice.logprobs is None
    assert found.object == "chat.completion"
    assert found.model == "tiny"
    assert found.usage.prompt_tokens == len(expected.prompt_ids)
    assert found.usage.completion_tokens == len(expected.ids)
    assert found.usage.total_tokens == found.usage.prompt_tokens + found.usage.completion_tokens


def test_a_stream_has_the_text_of_the_whole(model: Model, api: Any) -> None:
    for seed in range(4):
        asked = {"model": "tiny", "messages": CHAT, "max_tokens": 20, "seed": seed, "stop": ["e"]}
        whole = api.chat.completions.create(**asked)
        pieces = list(api.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True}))
        *texts, last = pieces
        assert texts[0].choices[0].delta.role == "assistant"
        assert "".join(piece.choices[0].delta.content or "" for piece in texts) == whole.choices[0].message.content
        assert [p.choices[0].finish_reason for p in texts if p.choices[0].finish_reason] == [
            whole.choices[0].finish_reason
        ]
        assert last.choices == []
        assert last.usage.completion_tokens == whole.usage.completion_tokens
        assert all(piece.usage is None for piece in texts)
        assert len({piece.id for piece in pieces}) == 1
        assert whole.choices[0].message.content == alone(model, CHAT, max_tokens=20, seed=seed, stop=["e"])


def test_several_choices_have_seeds_that_follow_each_other(model: Model, client: httpx.Client) -> None:
    asked = {"model": "tiny", "messages": CHAT, "max_tokens": 9, "seed": 5, "n": 3}
    found = client.post("/v1/chat/completions", json=asked).json()
    texts = [choice["message"]["content"] for choice in found["choices"]]
    assert texts == [alone(model, CHAT, max_tokens=9, seed=5 + i) for i in range(3)]
    assert [choice["index"] for choice in found["choices"]] == [0, 1, 2]
    streamed = ["", "", ""]
    for value in events(client.post("/v1/chat/completions", json={**asked, "stream": True})):
        for choice in value["choices"]:
            streamed[choice["index"]] += choice["delta"].get("content") or ""
    assert streamed == texts


def test_logprobs_of_chats(model: Model, client: httpx.Client) -> None:
    asked = {"model": "tiny", "messages": CHAT, "max_tokens": 8, "seed": 1, "logprobs": True, "top_logprobs": 3}
    found = client.post("/v1/chat/completions", json=asked).json()["choices"][0]
    expected = model.generate(CHAT, max_tokens=8, seed=1, logprobs=3, **PLAIN)
    expected.read()
    content = found["logprobs"]["content"]
    assert [entry["bytes"] for entry in content] == [
        list(model.tokenizer.token_bytes(own.id, special=True)) for own in expected.logprobs
    ]
    np.testing.assert_allclose([entry["logprob"] for entry in content], [own.logprob for own in expected.logprobs])
    for entry, own in zip(content, expected.logprobs, strict=True):
        np.testing.assert_allclose([top["logprob"] for top in entry["top_logprobs"]], [top[1] for top in own.top])
    streamed = []
    for value in events(client.post("/v1/chat/completions", json={**asked, "stream": True})):
        streamed += (value["choices"][0]["logprobs"] or {"content": []})["content"]
    assert streamed == content
    bare = client.post("/v1/chat/completions", json={**asked, "top_logprobs": None}).json()["choices"][0]
    assert [entry["top_logprobs"] for entry in bare["logprobs"]["content"]] == [[]] * len(content)


@pytest.mark.parametrize(
    ("asked", "options"),
    [
        ({"temperature": 0}, {"greedy": True}),
        ({"temperature": 0.5, "top_p": 0.5}, {"temperature": 0.5, "top_p": 0.5}),
        ({"top_k": 2, "min_p": 0.1}, {"top_k": 2, "min_p": 0.1}),
        ({"logit_bias": {"70": 100, "71": 99.5}}, {"logit_bias": {70: 100.0, 71: 99.5}}),
        (
            {"presence_penalty": 1, "frequency_penalty": 0.5, "repetition_penalty": 1.2},
            {"presence_penalty": 1.0, "frequency_penalty": 0.5, "repetition_penalty": 1.2},
        ),
        ({"ignore_eos": True}, {"ignore_eos": True}),
        ({"seed": -3}, {"seed": 2**64 - 3}),
        ({"user": "me", "metadata": {"a": "b"}, "store": False, "n": None}, {}),
    ],
    ids=lambda value: ",".join(value),
)
def test_options(asked: dict[str, Any], options: dict[str, Any], model: Model, client: httpx.Client) -> None:
    body = {"model": "tiny", "messages": CHAT, "max_tokens": 10, "seed": 2, **asked}
    reply = client.post("/v1/chat/completions", json=body)
    assert reply.status_code == 200, reply.text
    text = reply.json()["choices"][0]["message"]["content"]
    assert text == alone(model, CHAT, **{"max_tokens": 10, "seed": 2, **options})


def test_text_of_a_form(client: httpx.Client) -> None:
    schema = {
        "type": "object",
        "properties": {"yes": {"type": "boolean"}, "size": {"enum": [1, 2]}},
        "required": ["yes", "size"],
        "additionalProperties": False,
    }
    form = {"type": "json_schema", "json_schema": {"name": "it", "schema": schema, "strict": True}}
    body = {"model": "tiny", "messages": CHAT, "max_tokens": 220, "response_format": form, "seed": 1}
    choice = client.post("/v1/chat/completions", json=body).json()["choices"][0]
    assert choice["finish_reason"] == "stop"
    value = json.loads(choice["message"]["content"])
    assert value.keys() == {"yes", "size"}
    assert value["size"] in (1, 2)
    for form, expected in (
        ({"type": "regex", "pattern": "(ab|ba){2}"}, {"abab", "abba", "baab", "baba"}),
        ({"type": "lark", "grammar": 'start: "x" | "yy"'}, {"x", "yy"}),
    ):
        found = client.post("/v1/chat/completions", json={**body, "response_format": form}).json()
        assert found["choices"][0]["message"]["content"] in expected
    wrong = client.post("/v1/chat/completions", json={**body, "response_format": {"type": "lark", "grammar": "x"}})
    assert wrong.status_code == 400
    assert "the Lark grammar" in wrong.json()["error"]["message"]


def test_parts_and_the_role_of_developers(model: Model, client: httpx.Client) -> None:
    parts = [{"type": "text", "text": "hello"}, {"type": "text", "text": "world"}]
    messages = [{"role": "developer", "content": "one"}, {"role": "user", "content": parts}]
    body = {"model": "tiny", "messages": messages, "max_tokens": 5, "seed": 1}
    text = client.post("/v1/chat/completions", json=body).json()["choices"][0]["message"]["content"]
    same = [{"role": "system", "content": "one"}, {"role": "user", "content": "hello world"}]
    assert text == alone(model, same, max_tokens=5, seed=1)


def test_what_was_processed_before_is_counted(client: httpx.Client) -> None:
    talk = [{"role": "user", "content": "one two one two the cat sat on the mat"}]
    body = {"model": "tiny", "messages": talk, "max_tokens": 2, "seed": 1}
    client.post("/v1/chat/completions", json=body)
    usage = client.post("/v1/chat/completions", json=body).json()["usage"]
    assert usage["prompt_tokens_details"]["cached_tokens"] == usage["prompt_tokens"] - 1


# Completions ---------------------------------------------------------------------------------------


def test_completions(model: Model, api: Any) -> None:
    found = api.completions.create(model="tiny", prompt="the cat", max_tokens=7, seed=1)
    assert found.choices[0].text == alone(model, "the cat", max_tokens=7, seed=1)
    assert found.object == "text_completion"
    default = api.completions.create(model="tiny", prompt="the cat", seed=1, extra_body={"ignore_eos": True})
    assert default.usage.completion_tokens == 16
    pieces = api.completions.create(model="tiny", prompt="the cat", max_tokens=7, seed=1, stream=True)
    assert "".join(piece.choices[0].text for piece in pieces) == found.choices[0].text


def test_completions_of_several_prompts(model: Model, client: httpx.Client) -> None:
    prompts = ["the cat", [70, 71, 72], "hello"]
    body = {"model": "tiny", "prompt": prompts, "max_tokens": 6, "seed": 4, "n": 2}
    found = client.post("/v1/completions", json=body).json()
    assert [choice["text"] for choice in found["choices"]] == [
        alone(model, prompt, max_tokens=6, seed=4 + i) for prompt in prompts for i in range(2)
    ]
    assert [choice["index"] for choice in found["choices"]] == list(range(6))
    assert found["usage"]["prompt_tokens"] == sum(
        len(model.tokenize(p)) if isinstance(p, str) else len(p) for p in prompts
    )
    ids = client.post("/v1/completions", json={**body, "prompt": [70, 71, 72], "n": 1}).json()
    assert ids["choices"][0]["text"] == alone(model, [70, 71, 72], max_tokens=6, seed=4)


def test_logprobs_of_completions(model: Model, client: httpx.Client) -> None:
    body = {"model": "tiny", "prompt": "hello", "max_tokens": 6, "seed": 1, "logprobs": 2, "ignore_eos": True}
    found = client.post("/v1/completions", json=body).json()["choices"][0]["logprobs"]
    expected = model.generate("hello", max_tokens=6, seed=1, logprobs=2, ignore_eos=True, **PLAIN)
    expected.read()
    np.testing.assert_allclose(found["token_logprobs"], [own.logprob for own in expected.logprobs])
    assert found["text_offset"] == [0, *np.cumsum([len(text) for text in found["tokens"]])[:-1]]
    joined: dict[str, list[Any]] = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
    for value in events(client.post("/v1/completions", json={**body, "stream": True})):
        for key, values in (value["choices"][0]["logprobs"] or {}).items():
            joined[key] += values
    assert joined == found
    none = client.post("/v1/completions", json={**body, "logprobs": 0}).json()["choices"][0]["logprobs"]
    assert none["top_logprobs"] is None
    assert none["token_logprobs"] == found["token_logprobs"]


# Vectors, models, the rest -------------------------------------------------------------------------


def test_embeddings(encoder: Encoder, api: Any, client: httpx.Client) -> None:
    texts = ["the cat", "a mat", "the"]
    found = api.embeddings.create(model="vectors", input=texts)  # as base64, which the client asks for
    expected = encoder.embed(texts)
    np.testing.assert_array_equal(np.array([own.embedding for own in found.data], np.float32), expected)
    assert [own.index for own in found.data] == [0, 1, 2]
    assert found.usage.prompt_tokens == sum(len(ids) for ids in encoder.token_ids(texts))
    plain = client.post("/v1/embeddings", json={"model": "vectors", "input": texts[0]}).json()
    np.testing.assert_array_equal(np.array(plain["data"][0]["embedding"], np.float32), expected[0])
    ids = encoder.token_ids(texts)
    by_ids = client.post("/v1/embeddings", json={"model": "vectors", "input": ids, "dimensions": expected.shape[1]})
    np.testing.assert_array_equal(np.array([own["embedding"] for own in by_ids.json()["data"]], np.float32), expected)
    long = client.post("/v1/embeddings", json={"model": "vectors", "input": "the cat " * 500})
    assert (long.status_code, long.json()["error"]["code"]) == (400, "context_length_exceeded")
    for body, param in (
        ({"input": []}, "input"),
        ({"input": ["a", [5]]}, "input"),
        ({"input": [[]]}, "input"),
        ({"input": "a", "dimensions": 5}, "dimensions"),
        ({"input": "a", "encoding_format": "hex"}, "encoding_format"),
        ({"input": ["a"] * 3000}, "input"),
    ):
        reply = client.post("/v1/embeddings", json={"model": "vectors", **body})
        assert (reply.status_code, reply.json()["error"]["param"]) == (400, param)
    assert client.post("/v1/embeddings", json={"model": "vectors", "input": [[9999999]]}).status_code == 400


def test_models_and_health(api: Any, client: httpx.Client) -> None:
    assert [own.id for own in api.models.list()] == ["tiny", "vectors"]
    assert api.models.retrieve("tiny").owned_by == "rlx-mlir"
    with pytest.raises(openai.NotFoundError, match="isn't served here"):
        api.models.retrieve("other/name")
    assert client.get("/health").json() == {"status": "ok"}


def test_metrics(client: httpx.Client) -> None:
    def read() -> dict[str, float]:
        text = client.get("/metrics").text
        assert text.endswith("\n")
        lines = [line.rpartition(" ") for line in text.splitlines() if not line.startswith("#")]
        return {name: float(value) for name, _, value in lines}

    def settled() -> dict[str, float]:
        """Once nothing of the tests before is under way: what their clients left is cancelled at the next step."""
        until = time.monotonic() + 60
        while (found := read())["rlx_requests_running"] and time.monotonic() < until:
            time.sleep(0.05)
        return found

    before = settled()
    body = {"model": "tiny", "messages": CHAT, "max_tokens": 5, "logit_bias": {"70": 1000}}  # a letter each time
    reply = client.post("/v1/chat/completions", json=body)
    assert reply.status_code == 200, reply.text
    client.get("/nothing/here")
    after = settled()
    grown = {name: after[name] - before.get(name, 0) for name in after if after[name] != before.get(name, 0)}
    assert grown['rlx_tokens_total{kind="generated"}'] == 5
    assert grown['rlx_requests_total{path="/v1/chat/completions",status="200"}'] == 1
    assert grown['rlx_requests_total{path="other",status="404"}'] == 1
    assert grown['rlx_texts_total{reason="length"}'] == 1
    assert grown["rlx_first_token_seconds_count"] == 1
    assert grown["rlx_token_seconds_count"] == 4  # also where their texts are read together
    assert grown['rlx_first_token_seconds_bucket{le="+Inf"}'] == 1
    assert after["rlx_requests_running"] == 0
    buckets = [value for name, value in after.items() if name.startswith("rlx_token_seconds_bucket")]
    assert buckets == sorted(buckets)


# Many at a time ------------------------------------------------------------------------------------


def test_many_clients_some_of_which_go(model: Model, server: Served) -> None:
    """32 clients at a time: texts are those of each alone, whatever is cancelled beside them."""
    failed: list[BaseException] = []
    found: dict[int, str] = {}
    prompts = [f"the cat sat {number % 5} {'on the mat ' * (number % 4)}" for number in range(32)]

    def ask(number: int) -> None:
        random = np.random.default_rng(number)
        body = {
            "model": "tiny",
            "messages": [{"role": "user", "content": prompts[number]}],
            "max_tokens": 25,
            "seed": number,
            "stream": True,
        }
        try:
            with server.client() as client:
                for round in range(3):
                    body["seed"] = number * 10 + round
                    goes = bool(random.random() < 0.3)
                    with client.stream("POST", "/v1/chat/completions", json=body) as reply:
                        assert reply.status_code == 200
                        text = ""
                        for line in reply.iter_lines():
                            if line.startswith("data: {"):
                                text += json.loads(line[6:])["choices"][0]["delta"].get("content") or ""
                            if goes and text:
                                break
                    if not goes:
                        found[number * 10 + round] = text
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(32)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
    assert not failed
    assert 32 < len(found) < 96
    for seed, text in found.items():
        talk = [{"role": "user", "content": prompts[seed // 10]}]
        assert text == alone(model, talk, max_tokens=25, seed=seed)
    deadline = time.monotonic() + 60
    while not (server.engine.is_idle and server.service.running == 0):  # those that went are soon gone
        assert time.monotonic() < deadline
        time.sleep(0.05)
