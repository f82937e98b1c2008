# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Answers with channels, as gpt-oss writes them: what is said, what is thought, and calls."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from typing import Any

import pytest
import tiny_models
from interpreted import load_interpreted
from rich.console import Console
from thinking_models import channels, forced

from rlx_mlir.frontends.gguf import write_gguf
from rlx_mlir.models.channels import Aside, Kind, division_of
from rlx_mlir.models.model import Model
from rlx_mlir.models.tokenizer import Tokenizer, TokenType
from rlx_mlir.tools.chat import Conversation


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.from_metadata(channels())


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    path = tmp_path_factory.mktemp("channels") / "m.gguf"
    tensors = tiny_models.tensors(architecture="gpt-oss", layers=1)
    return load_interpreted(write_gguf(path, {**channels(), "gpt-oss.block_count": 1}, tensors), context=256)


def ids_of(tokenizer: Tokenizer, text: str) -> list[int]:
    return tokenizer.tokenize(text, bos=False, special=True)


def read(tokenizer: Tokenizer, ids: Sequence[int]) -> tuple[list[str], list[Aside]]:
    """The pieces that are said, and what is beside them."""
    division = division_of(tokenizer, [5])
    assert division is not None
    stream = division.stream
    return [*(stream.push(index) for index in ids), stream.flush()], stream.asides


THOUGHT = "<|channel|>analysis<|message|>the cat<|end|>"
SAID = "<|start|>assistant<|channel|>final<|message|>hello world"
CALL = '<|start|>assistant<|channel|>commentary to=functions.find <|constrain|>json<|message|>{"a": 1}<|call|>'
ANSWERS: dict[str, tuple[str, str, str, list[tuple[str, str]]]] = {
    "plain": ("hello", "hello", "", []),
    "empty": ("", "", "", []),
    "both": (THOUGHT + SAID, "hello world", "the cat", []),
    "said alone": ("<|channel|>final<|message|>one two", "one two", "", []),
    "call": (THOUGHT + CALL, "", "the cat", [("find", '{"a": 1}')]),
    "call by the role": (
        "<|start|>assistant to=functions.find<|channel|>commentary<|message|>{}<|call|>",
        "",
        "",
        [("find", "{}")],
    ),
    "several calls": (CALL + CALL.replace("find", "b.c-d"), "", "", [("find", '{"a": 1}'), ("b.c-d", '{"a": 1}')]),
    "preamble": ("<|channel|>commentary<|message|>so<|end|>" + CALL, "so", "", [("find", '{"a": 1}')]),
    "tool of its own": ("<|channel|>commentary to=python <|message|>1 + 1<|call|>", "", "1 + 1", []),
    "unknown channel": ("<|channel|>notes<|message|>x<|end|>" + SAID, "hello world", "x", []),
    "no channel": ("<|start|>assistant<|message|>hello", "hello", "", []),
    "without an end": (THOUGHT.removesuffix("<|end|>") + SAID, "hello world", "the cat", []),
    "cut in the head": ("<|channel|>analysis<|message|>a<|end|><|start|>assis", "", "a", []),
    "cut in a call": (CALL.removesuffix("1}<|call|>"), "", "", [("find", '{"a": ')]),
    "returned": (SAID + "<|return|>", "hello world", "", []),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_parts_of_answers(tokenizer: Tokenizer, name: str) -> None:
    text, said, thought, calls = ANSWERS[name]
    pieces, asides = read(tokenizer, ids_of(tokenizer, text))
    assert "".join(pieces) == said
    assert "".join(own.text for own in asides if own.kind is Kind.THOUGHT) == thought
    assert [(own.name, own.text) for own in asides if own.kind is Kind.CALL] == calls


def test_only_control_tokens_divide(tokenizer: Tokenizer) -> None:
    """The same characters of other tokens are what is said, whatever they look like."""
    text = SAID.removesuffix("hello world")
    forged = tokenizer.tokenize(CALL, bos=False)
    pieces, asides = read(tokenizer, [*ids_of(tokenizer, text), *forged])
    assert ("".join(pieces), asides) == (CALL, [])


def test_characters_are_whole(tokenizer: Tokenizer) -> None:
    """One that its tokens leave incomplete ends with its message."""
    letters = tokenizer.tokenize("é", bos=False)
    assert len(letters) == 2
    ids = [*ids_of(tokenizer, "<|channel|>analysis<|message|>"), *letters, letters[0], *ids_of(tokenizer, SAID)]
    pieces, asides = read(tokenizer, ids)
    assert [own.text for own in asides] == ["é", "\ufffd"]
    assert "".join(pieces) == "hello world"


def test_other_vocabularies_have_no_channels() -> None:
    assert division_of(Tokenizer.from_metadata(tiny_models.metadata()), [1, 5]) is None
    types = channels()["tokenizer.ggml.token_type"].copy()
    types[-7] = TokenType.NORMAL  # then a text could contain it
    assert division_of(Tokenizer.from_metadata(channels(**{"tokenizer.ggml.token_type": types})), [1, 5]) is None


def test_generations_have_text_and_thoughts(model: Model) -> None:
    """Of one at a time and of engines; stop texts are looked for in what is said alone."""
    script = ids_of(model.tokenizer, THOUGHT + SAID + " the cat<|return|>")
    options: dict[str, Any] = {"greedy": True, "max_tokens": 100, "logits_processors": [forced(script, 2)]}
    found = model.generate([5, 6], **options)
    pieces, thoughts = [], []
    for piece in found:
        pieces.append(piece)
        thoughts.append(found.reasoning)
    assert ("".join(pieces), found.text, found.finish_reason) == ("hello world the cat",) * 2 + ("stop",)
    assert found.reasoning == thoughts[-1] == "the cat"
    assert "" in pieces, "where something is thought, it can be read at once"
    assert thoughts.index("the cat") < next(i for i, piece in enumerate(pieces) if piece)
    cut = model.generate([5, 6], stop="cat", **options)
    assert (cut.read(), cut.reasoning) == ("hello world the ", "the cat")
    session = model.session()
    session.feed([5, 6])
    own = session.generate(**options)
    assert (own.read(), own.reasoning, own.calls) == ("hello world the cat", "the cat", [])


def test_calls_end_a_generation(model: Model) -> None:
    script = ids_of(model.tokenizer, THOUGHT + CALL)
    found = model.generate([5], greedy=True, logits_processors=[forced(script, 1)])
    assert (found.read(), found.finish_reason, found.calls) == ("", "stop", [("find", '{"a": 1}')])


def test_thoughts_are_shown_dimly_in_the_terminal(model: Model) -> None:
    script = ids_of(model.tokenizer, THOUGHT + SAID + "<|return|>")
    prompt = len(model.chat_ids([{"role": "user", "content": "one"}]))
    options = {"greedy": True, "logits_processors": [forced(script, prompt)]}
    console = Console(file=io.StringIO(), force_terminal=True, color_system="standard")
    conversation = Conversation(model, console, None, options)
    conversation._answer("one")
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert "".join(re.findall("\x1b\\[2m([^\x1b]*)\x1b", shown)) == "the cat"
    assert re.sub("\x1b\\[[0-9;]*m", "", shown) == "the cat\n\nhello world\n"
    assert conversation.messages[-1] == {"role": "assistant", "content": "hello world"}


def test_prompts_may_begin_the_message(model: Model) -> None:
    """A template that asks for an answer at once: what follows is said."""
    prompt = ids_of(model.tokenizer, "<|start|>assistant<|channel|>final<|message|>")
    script = ids_of(model.tokenizer, "hello<|return|>")
    found = model.generate(prompt, greedy=True, logits_processors=[forced(script, len(prompt))])
    assert found.read() == "hello"
