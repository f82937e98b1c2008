# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Answers of models that think between tags: what is thought, what is said, and text of a form behind a thought."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import tiny_models
from interpreted import load_interpreted
from rich.console import Console
from thinking_models import forced, thoughts

from rlx_mlir.errors import InputError
from rlx_mlir.frontends.gguf import write_gguf
from rlx_mlir.models.channels import Place, ThoughtStream, division_of
from rlx_mlir.models.engine import Engine
from rlx_mlir.models.guides import guide_behind
from rlx_mlir.models.model import Model
from rlx_mlir.models.tokenizer import Tokenizer, TokenType
from rlx_mlir.tools.chat import Conversation

KINDS = {"added": TokenType.USER_DEFINED, "control": TokenType.CONTROL, "text": TokenType.NORMAL}
TURN = "<|im_start|>assistant\n"


def tokenizer_of(kind: str) -> Tokenizer:
    return Tokenizer.from_metadata(thoughts(KINDS[kind]))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    path = tmp_path_factory.mktemp("thoughts") / "m.gguf"
    tensors = tiny_models.tensors(layers=1)
    return load_interpreted(write_gguf(path, {**thoughts(), "llama.block_count": 1}, tensors), context=256)


def ids_of(tokenizer: Tokenizer, text: str) -> list[int]:
    return tokenizer.tokenize(text, bos=False, special=True)


#: Answers, where they begin, what is said, and what is thought.
ANSWERS: dict[str, tuple[str, Place, str, str]] = {
    "empty": ("", Place.BEFORE, "", ""),
    "plain": ("hello world", Place.BEFORE, "hello world", ""),
    "blanks stay": (" \n hello \n", Place.BEFORE, " \n hello \n", ""),
    "blanks alone": (" \n", Place.BEFORE, " \n", ""),
    "thought": ("<think>\nthe cat\n</think>\n\nhello world\n", Place.BEFORE, "hello world\n", "the cat"),
    "behind blanks": ("\n <think>a</think>b", Place.BEFORE, "b", "a"),
    "empty thought": ("<think>\n\n</think>\n\nhello", Place.BEFORE, "hello", ""),
    "nothing said": ("<think>a b\n\nc</think>\n", Place.BEFORE, "", "a b\n\nc"),
    "cut in the opening tag": (" <thi", Place.BEFORE, " <thi", ""),
    "another tag": ("<thing>a", Place.BEFORE, "<thing>a", ""),
    "opened": ("the cat</think>hello", Place.INSIDE, "hello", "the cat"),
    "opened twice": ("a<think>b</think>c</think>d", Place.INSIDE, "c</think>d", "a<think>b"),
    "cut in the thought": (" a b ", Place.INSIDE, "", "a b"),
    "cut in the closing tag": ("a </thin", Place.INSIDE, "", "a </thin"),
    "like a closing tag": ("a < b </ c </think><", Place.INSIDE, "<", "a < b </ c"),
    "closed": ("\n<think>a</think>b", Place.BEHIND, "<think>a</think>b", ""),
    "tags that are said": ("<think>a</think>b<think>c</think>", Place.BEFORE, "b<think>c</think>", "a"),
    "letters": ("é</think>é", Place.INSIDE, "é", "é"),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ANSWERS)
def test_parts_of_answers(name: str, kind: str) -> None:
    """The same by tokens of a text, and byte by byte, where no token is a tag."""
    text, place, said, thought = ANSWERS[name]
    tokenizer = tokenizer_of(kind)
    for ids in (ids_of(tokenizer, text), [3 + byte for byte in text.encode()]):
        stream = ThoughtStream(tokenizer, place)
        pieces = [*(stream.push(index) for index in ids), stream.flush()]
        assert "".join(own.text for own in stream.asides) == thought
        assert "".join(pieces) == said
        assert all(own.text for own in stream.asides)


def test_nothing_is_held_back_for_long() -> None:
    """Pieces come with the token that makes sure what they are."""
    tokenizer = tokenizer_of("added")
    stream = ThoughtStream(tokenizer, Place.BEFORE)
    found = []
    for byte in b"<think>ab c</x</think>\nde":
        said = stream.push(3 + byte)
        found.append(said + "".join(f"({own.text})" for own in stream.asides))
        stream.asides.clear()
    assert found == ["", "", "", "", "", "", "", "(a)", "(b)", "", "( c)", "", "", "(</x)", *[""] * 9, "d", "e"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("prompt", "place"),
    [
        (TURN, Place.BEFORE),
        (TURN + "<think>\n", Place.INSIDE),
        (TURN + "<think>\n\n</think>\n\n", Place.BEHIND),
        (TURN + "the cat</think>", Place.BEHIND),
        (TURN + "<think>a</think>b<think>c", Place.INSIDE),
        ("<|im_start|>user\nwhat is <think>?<|im_end|>\n" + TURN, Place.BEFORE),
        ("<think> without a turn", None),
        ("", None),
    ],
)
def test_where_answers_begin(prompt: str, place: Place | None, kind: str) -> None:
    tokenizer = tokenizer_of(kind)
    division = division_of(tokenizer, ids_of(tokenizer, prompt), "… </think> …")
    if place is None:
        assert division is None
        return
    assert division is not None
    assert isinstance(division.stream, ThoughtStream)
    assert division.stream._place is place
    assert (bool(division.heads), division.needs_head) == (place is not Place.BEHIND, place is Place.INSIDE)


def test_who_thinks() -> None:
    """Models whose vocabulary has both tags as tokens that are no text, or whose template has them."""
    prompt = [1, 5]
    for kind, template, thinks in (("added", "", True), ("control", "", True), ("text", "", False)):
        assert (division_of(tokenizer_of(kind), prompt, template) is not None) is thinks
    assert division_of(tokenizer_of("text"), prompt, "{{ '</think>' }}") is not None
    assert division_of(tokenizer_of("added"), prompt, thinks=False) is None


ANSWER = "<think>\nthe cat\n</think>\n\nhello world<|im_end|>"


def options(model: Model, prompt: Sequence[int], answer: str = ANSWER) -> dict[str, Any]:
    script = ids_of(model.tokenizer, answer)
    return {"greedy": True, "max_tokens": 100, "logits_processors": [forced(script, len(prompt))]}


def test_generations_have_text_and_thoughts(model: Model) -> None:
    """Of one at a time, of engines and of sessions; stop texts are looked for in what is said alone."""
    prompt = model.chat_ids([{"role": "user", "content": "one"}])
    own = options(model, prompt)
    found = model.generate(prompt, **own)
    assert (found.read(), found.reasoning, found.finish_reason) == ("hello world", "the cat", "stop")
    assert "" in found._texts, "where something is thought, it can be read at once"
    assert model.generate(prompt, chat=False, **own).read() == ANSWER.removesuffix("<|im_end|>")
    cut = model.generate(prompt, stop=["cat", "wor"], **own)
    assert (cut.read(), cut.reasoning, cut.finish_reason) == ("hello ", "the cat", "stop")
    for most, thought in ((1, ""), (5, "the")):
        short = model.generate(prompt, **{**own, "max_tokens": most})
        assert (short.read(), short.reasoning, short.finish_reason) == ("", thought, "length")
    with Engine(model, sequences=1) as engine:
        request = engine.add(prompt, **own)
        engine.run()
        assert (request.read(), request.reasoning) == ("hello world", "the cat")


def test_sessions_go_on_within_a_thought(model: Model) -> None:
    prompt = model.chat_ids([{"role": "user", "content": "one"}])
    session = model.session()
    session.feed(prompt)
    first = session.generate(**{**options(model, prompt), "max_tokens": 5})
    assert (first.read(), first.reasoning) == ("", "the")
    rest = session.generate(**options(model, prompt))
    assert (rest.read(), rest.reasoning) == ("hello world", "cat")


def test_templates_may_open_the_thought(model: Model) -> None:
    prompt = model.chat_ids([{"role": "user", "content": "one"}], enable_thinking=True)
    found = model.generate(prompt, **options(model, prompt, ANSWER.removeprefix("<think>\n")))
    assert (found.read(), found.reasoning) == ("hello world", "the cat")


def test_thoughts_are_shown_dimly_in_the_terminal(model: Model) -> None:
    prompt = model.chat_ids([{"role": "user", "content": "one"}])
    console = Console(file=io.StringIO(), force_terminal=True, color_system="standard")
    conversation = Conversation(model, console, None, options(model, prompt))
    conversation._answer("one")
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert "".join(re.findall("\x1b\\[2m([^\x1b]*)\x1b", shown)) == "the cat"
    assert re.sub("\x1b\\[[0-9;]*m", "", shown) == "the cat\n\nhello world\n"
    assert conversation.messages[-1] == {"role": "assistant", "content": "hello world"}


# Text of a form behind a thought -------------------------------------------------------------------

FORM = {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"], "additionalProperties": False}


def is_taken(guide: Any, tokenizer: Tokenizer, text: str) -> bool:
    """Whether a guide takes a text, a token after another one; none of them ends it before the last one."""
    for index in ids_of(tokenizer, text):
        assert not guide.is_finished
        fits = bool(guide.mask(300)[index])
        twin = guide.clone()
        if not fits:
            with pytest.raises(InputError, match="must be one that the form of the text allows"):
                guide.advance(index)
            return False
        guide.advance(index)
        twin.advance(index)
        assert np.array_equal(twin.mask(300), guide.mask(300))
    return bool(guide.is_finished)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("prompt", "answer", "fits"),
    [
        ("", '{"a":1}', True),
        ("", '<think>{"b": the cat</think>{"a":1}', True),
        ("", '<think>the cat</think>\n\n{"a":2}', True),
        ("", '<think></think>{"a":3}', False),
        ("", "<think>the cat</think>hello", False),
        ("", "<think>the cat<|im_end|>", False),
        ("", " <think>", False),
        ("<think>\n", '{"a":1}', False),
        ("<think>\n", 'the </thin </think>{"a":1}', True),
        ("<think>\n", '</think>\n\n{"a":1}', True),
        ("<think></think>", '{"a":1}', True),
        ("<think></think>", '<think></think>{"a":1}', False),
    ],
)
def test_json_behind_a_thought(prompt: str, answer: str, fits: bool, kind: str) -> None:
    pytest.importorskip("llguidance")
    tokenizer = tokenizer_of(kind)
    division = division_of(tokenizer, ids_of(tokenizer, TURN + prompt), "</think>")
    assert is_taken(guide_behind(division, FORM, tokenizer), tokenizer, answer) is fits


def test_grammars_of_the_whole_answer() -> None:
    """One that names the closing tag says itself what is before it; and any text needs no guide."""
    pytest.importorskip("llguidance")
    tokenizer = tokenizer_of("added")
    division = division_of(tokenizer, ids_of(tokenizer, TURN + "<think>"))
    whole = guide_behind(division, {"type": "lark", "grammar": 'start: "a</think>" "b"'}, tokenizer)
    assert is_taken(whole, tokenizer, "a</think>b")
    assert guide_behind(division, None, tokenizer) is None
    assert guide_behind(division, {"type": "text"}, tokenizer) is None


def test_generated_json_behind_a_thought(model: Model) -> None:
    """Steps of a random model, which would never end its thought: the tag is made likely."""
    pytest.importorskip("llguidance")
    close = model.tokenizer.tokens.index("</think>")
    prompt = model.chat_ids([{"role": "user", "content": "one"}], enable_thinking=True)
    own = {"seed": 1, "temperature": 2.0, "max_tokens": 200, "logit_bias": {close: 3.0}}
    found = model.generate(prompt, response_format=FORM, **own)
    assert re.fullmatch(r'\{\s*"a"\s*:\s*[12]\s*\}', found.read())
    assert found.finish_reason == "stop"
    assert found.reasoning
