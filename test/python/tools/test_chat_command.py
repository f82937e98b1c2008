# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`rlx chat`: what is said is answered as `Model.generate` answers it, and what isn't said to the model is done."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from rlx_mlir.models.generation import Generation
from rlx_mlir.models.loading import load_model
from rlx_mlir.models.model import Model
from rlx_mlir.tools import chat as chat_module
from rlx_mlir.tools.chat import Conversation, visible
from rlx_mlir.tools.cli import app

OPTIONS: dict[str, Any] = {"max_tokens": 8, "temperature": 1.0, "top_k": 0, "top_p": 1.0, "seed": 3}


@pytest.fixture(scope="module")
def model(tiny_llama: Path) -> Model:
    return load_model(tiny_llama, context=128, chunk=16)


def typed(*lines: str | type[BaseException]) -> Callable[[str], str]:
    """What a person types; then the input ends."""
    left: Iterator[str | type[BaseException]] = iter(lines)

    def read(_prompt: str) -> str:
        line = next(left, EOFError)
        if isinstance(line, str):
            return line
        raise line

    return read


def talk(model: Model, *lines: str | type[BaseException], system: str | None = None) -> tuple[Conversation, str]:
    """A conversation, and what was printed."""
    out = io.StringIO()
    found = Conversation(model, Console(file=out, highlight=False, soft_wrap=True), system, OPTIONS)
    found.run(typed(*lines))
    return found, out.getvalue()


def test_answers_are_what_generate_gives(model: Model) -> None:
    found, printed = talk(model, "hello [bold]you", "", "one \\", "two", system="Be short.")
    messages = [{"role": "system", "content": "Be short."}]
    for question in ("hello [bold]you", "one \ntwo"):
        messages.append({"role": "user", "content": question})
        text = model.generate(messages, **OPTIONS).read()
        messages.append({"role": "assistant", "content": text})
        assert visible(text) in printed
    assert found.messages == messages


def test_what_was_processed_is_not_again(model: Model) -> None:
    model.forget()
    _, printed = talk(model, "/stats", "hello", "again", "/stats")
    assert "nothing was answered" in printed
    first, _, reused = printed.rpartition("and ")[0].rpartition("prompt ")[2], "", printed.rpartition("and ")[2]
    assert int(reused.split()[0]) > 10, printed
    assert int(first.split()[0]) > 0


def test_undo_reset_save(model: Model, tmp_path: Path) -> None:
    path = tmp_path / "talk.jsonl"
    lines = ("/undo", "hello", "again", "/undo", f"/save {path}", "/save", f"/save {tmp_path}/no/x", "/reset", "/undo")
    found, printed = talk(model, *lines, system="Be short.")
    assert found.messages == [{"role": "system", "content": "Be short."}]
    kept = json.loads(path.read_text())["messages"]
    assert [message["role"] for message in kept] == ["system", "user", "assistant"]
    assert kept[1]["content"] == "hello"
    for words in ("nothing was said", "forgotten: again", f"3 messages in {path}", "needs the name of a file"):
        assert words in printed
    assert "cannot be written" in printed


def test_help_and_words_that_are_none(model: Model) -> None:
    found, printed = talk(model, "/help", "/sav x", "/quit", "never asked")
    assert found.messages == []
    assert "/undo         forget the last question" in printed
    assert "there is no /sav (did you mean '/save'?)" in printed


def test_an_interrupt_stops_the_answer_alone(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    count, read = [0], Generation.__next__

    def interrupted(self: Generation) -> str:
        count[0] += 1
        if count[0] == 3:
            raise KeyboardInterrupt
        return read(self)

    monkeypatch.setattr(Generation, "__next__", interrupted)
    found, printed = talk(model, KeyboardInterrupt, "hello", "again")
    assert [message["role"] for message in found.messages] == ["user", "assistant"] * 2
    assert visible(found.messages[1]["content"]) in printed
    assert " …\n" in printed
    text = model.generate(found.messages[:1], **OPTIONS).read()
    assert text.startswith(found.messages[1]["content"])


def test_a_question_that_does_not_fit_was_not_asked(model: Model) -> None:
    found, printed = talk(model, "the cat sat " * 100, "hello")
    assert "the context has 128 positions" in printed
    assert found.messages[0]["content"] == "hello"
    assert len(found.messages) == 2


def test_what_is_visible() -> None:
    assert visible("a\x1b[2J\nb\tc\x07\x9b\x7fé😀") == "a[2J\nb\tcé😀"


def test_answers_that_are_cut_say_so(model: Model) -> None:
    out = io.StringIO()
    options = {**OPTIONS, "max_tokens": 500, "ignore_eos": True}
    Conversation(model, Console(file=out), None, options).run(typed("hello"))
    assert "the context is full" in out.getvalue()


def test_the_command_reads_a_pipe(tiny_llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["chat", str(tiny_llama), "--context", "128", "--chunk", "16", "--seed", "1", "--max-tokens", "4"]
    result = CliRunner().invoke(app, words, input="hello\n/stats\n")
    assert result.exit_code == 0, result.output
    assert "of 128 positions" in result.output
    monkeypatch.setattr("sys.stdin", type("Terminal", (), {"isatty": lambda self: True})())
    assert chat_module._reader() is input
