# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Examples for fine-tuning: which tokens count, how rows are filled, and what is wrong with lines."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import tiny_models

from rlx_mlir.errors import InputError, ModelFileError, UnsupportedError
from rlx_mlir.finetuning.data import Example, Reader, rows_of
from rlx_mlir.models.chat import ChatTemplate
from rlx_mlir.models.tokenizer import Tokenizer

VOCABULARY = tiny_models.vocabulary()
TOKENIZER = Tokenizer.from_metadata(VOCABULARY)
END = "<|im_end|>"


def reader(template: str | None = tiny_models.TEMPLATE) -> Reader:
    return Reader(TOKENIZER, None if template is None else ChatTemplate(template))


def written(folder: Path, *lines: object) -> Path:
    path = folder / "data.jsonl"
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    return path


def texts(example: Example) -> tuple[str, str]:
    """The whole text, and what of it counts."""
    counted = [index for index, counts in zip(example.ids, example.counts, strict=True) if counts]
    return TOKENIZER.detokenize(example.ids, special=True), TOKENIZER.detokenize(counted, special=True)


def turn(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


def test_of_messages_the_answers_count(tmp_path: Path) -> None:
    talk = [turn("user", "hello"), turn("assistant", "the cat"), turn("user", "on"), turn("assistant", "one two")]
    (example,) = reader().read(written(tmp_path, {"messages": talk}))
    whole, counted = texts(example)
    assert whole == ChatTemplate(tiny_models.TEMPLATE).render(talk, add_generation_prompt=False)
    assert counted == f"the cat{END}one two{END}"
    assert example.answers == sum(example.counts)


def test_templates_that_write_turns_by_what_follows_give_an_example_for_each_answer(tmp_path: Path) -> None:
    """As some do with thoughts, which they leave out of all answers but the last."""
    template = (
        "{% for m in messages %}<|im_start|>{{ m['role'] }}\n"
        "{% if m['role'] == 'assistant' and loop.last %} one{% endif %}{{ m['content'] }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    talk = [turn("user", "hello"), turn("assistant", "cat"), turn("user", "on"), turn("assistant", "mat")]
    found = reader(template).read(written(tmp_path, {"messages": talk}))
    assert [texts(example)[1] for example in found] == [f" onecat{END}", f" onemat{END}"]


def test_completions_and_texts_end(tmp_path: Path) -> None:
    found = reader().read(
        written(tmp_path, {"prompt": "hello the", "completion": " cat sat"}, "", {"text": "one two", "id": 7})
    )
    assert [texts(example) for example in found] == [
        (f"hello the cat sat{END}", f" cat sat{END}"),
        (f"one two{END}", f"one two{END}"),
    ]


def test_a_token_of_prompt_and_completion_counts(tmp_path: Path) -> None:
    (joined,) = reader().read(written(tmp_path, {"prompt": "hello c", "completion": "at"}))
    assert texts(joined) == (f"hello cat{END}", f" cat{END}")


WRONG = {
    "{": "line 1: ",
    "[1]": "line 1 must be an object, but is [1]",
    '{"text": "a", "text": "b"}': "line 1: the key 'text' stands twice",
    '{"texts": "a"}': "line 1 must have 'messages', or 'prompt' and 'completion', or 'text', but has 'texts'",
    '{"text": "a", "messages": []}': "line 1 must have 'messages', or 'prompt' and 'completion', or 'text', but has",
    '{"prompt": "a"}': "but has 'prompt'",
    '{"text": 1}': "line 1: 'text' must be a text, but is 1",
    '{"text": ""}': "line 1: 'text' must have some text, but is empty",
    '{"prompt": "a", "completion": ""}': "line 1: 'completion' must have some text, but is empty",
    '{"messages": []}': "line 1: 'messages' must be a list of messages, but is []",
    '{"messages": [3]}': "line 1: message 0 must have texts 'role' and 'content', but is 3",
    '{"messages": [{"role": "user"}]}': "line 1: message 0 must have texts 'role' and 'content'",
    '{"messages": [{"role": "user", "content": "a"}]}': "must have one with the role 'assistant'",
    '{"messages": [{"role": "assistant", "content": "a", "tool_calls": []}]}': "message 0 has 'tool_calls'",
    '{"text": "\\ud800"}': "line 1: ",
}


@pytest.mark.parametrize("line", WRONG)
def test_what_is_wrong_with_a_line_is_said_with_its_number(tmp_path: Path, line: str) -> None:
    path = written(tmp_path, line)
    with pytest.raises(ModelFileError) as caught:
        reader().read(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert WRONG[line] in str(caught.value)


def test_errors_name_later_lines_too(tmp_path: Path) -> None:
    path = written(tmp_path, {"text": "one"}, "", {"text": "two"}, {"text": None})
    with pytest.raises(ModelFileError, match=r"data\.jsonl: line 4: 'text' must be a text, but is None"):
        reader().read(path)


def test_a_line_that_is_no_text_is_named(tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl"
    path.write_bytes(b'{"text": "one"}\r\n\n{"text": "caf\xe9"}\n')
    with pytest.raises(ModelFileError, match=r"data\.jsonl: line 3: byte 13: .* must be UTF-8, but has 0xe9 there"):
        reader().read(path)


def test_files_without_examples_and_other_forms(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="must have an example in a line at least, but has none"):
        reader().read(written(tmp_path, "", " "))
    with pytest.raises(UnsupportedError, match=r"data\.jsonl: line 2 has 'tools', which is not implemented"):
        reader().read(written(tmp_path, {"text": "a"}, {"messages": [], "tools": []}))
    with pytest.raises(ModelFileError, match="line 1 has 'messages', but the model's file has no chat template"):
        reader(None).read(written(tmp_path, {"messages": [turn("assistant", "a")]}))
    with pytest.raises(ModelFileError, match="line 1: the chat template refuses the messages: no"):
        reader("{{ raise_exception('no') }}").read(written(tmp_path, {"messages": [turn("assistant", "a")]}))
    with pytest.raises(ModelFileError, match="line 1: message 0 is an answer, but the model's chat template doesn't"):
        reader("{{ messages | length }}").read(written(tmp_path, {"messages": [turn("assistant", "a")]}))


def example(ids: range, answers_from: int = 0, where: str = "here") -> Example:
    return Example(tuple(ids), tuple(place >= answers_from for place in range(len(ids))), where)


def test_rows_predict_the_next_token() -> None:
    rows = rows_of([example(range(10, 15), 2), example(range(20, 40), 19)], 64)
    assert rows.tokens.shape == (2, 32)
    assert rows.tokens[0].tolist() == [10, 11, 12, 13] + [0] * 28
    assert rows.targets[0].tolist() == [11, 12, 13, 14] + [0] * 28
    assert rows.counted[0].tolist() == [0, 1, 1, 1] + [0] * 28
    assert rows.counted[1].nonzero()[0].tolist() == [18]
    assert (rows.answers, rows.cut) == (4, 0)


def test_long_examples_are_cut_and_texts_go_on() -> None:
    rows = rows_of([example(range(100), 4), example(range(100, 200))], 40)
    assert rows.tokens.shape == (4, 40)
    assert rows.cut == 1
    assert rows.targets[0].tolist() == list(range(1, 41))
    assert np.concatenate(
        [row[kept > 0] for row, kept in zip(rows.targets[1:], rows.counted[1:], strict=True)]
    ).tolist() == [*range(101, 200)]
    with pytest.raises(InputError, match=r"here has no token of an answer among its first 40: it has 100, so a"):
        rows_of([example(range(100), 60)], 40)
    with pytest.raises(InputError, match=r"here has no token of an answer among its first 40: it has none at all"):
        rows_of([example(range(5), 5)], 40)


def test_packed_rows_have_every_target_once() -> None:
    parts = [example(range(start, start + size), 1) for start, size in ((0, 9), (100, 30), (200, 5), (300, 12))]
    rows = rows_of(parts, 40, pack=True)
    assert rows.tokens.shape == (2, 40)
    kept = rows.targets[rows.counted > 0]
    assert sorted(kept.tolist()) == sorted(index for part in parts for index in part.ids[1:])
    assert (rows.targets == rows.tokens + 1)[rows.counted > 0].all()
