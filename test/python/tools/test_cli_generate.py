# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`rlx generate`: forms of text, log-probabilities, drafts and sessions; and `rlx batch`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from test_cli import rlx

import rlx_mlir
from rlx_mlir.models.engine import Engine
from rlx_mlir.models.model import Model
from rlx_mlir.tools import batch

SMALL = ("--context", "64", "--chunk", "16", "--threads", "1")


@pytest.fixture(autouse=True)
def _plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLX_DEBUG", "")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "200")


@pytest.fixture(scope="module")
def model(tiny_llama: Path) -> Model:
    return rlx_mlir.load_model(tiny_llama, context=64, chunk=16, threads=1)


def generated(*words: object) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(rlx("generate", *words, *SMALL, "--json").stdout)
    return found


# rlx generate -----------------------------------------------------------------------------------------


def test_choices_reach_the_model(tiny_llama: Path, model: Model) -> None:
    words = ("--min-p", "0.2", "--repetition-penalty", "1.5", "--presence-penalty", "0.5", "--frequency-penalty", "1")
    found = generated(tiny_llama, "hello", "--seed", "5", "--max-tokens", "12", "--logprobs", "2", *words)
    expected = model.generate(
        "hello",
        seed=5,
        max_tokens=12,
        logprobs=2,
        min_p=0.2,
        repetition_penalty=1.5,
        presence_penalty=0.5,
        frequency_penalty=1.0,
    )
    assert found["text"] == expected.read()
    assert [row["id"] for row in found["logprobs"]] == found["ids"] == expected.ids
    for row, own in zip(found["logprobs"], expected.logprobs, strict=True):
        assert row["logprob"] == own.logprob
        assert [(top["id"], top["logprob"]) for top in row["top"]] == list(own.top)
        assert row["text"] == model.tokenizer.token_bytes(row["id"], special=True).decode("utf-8", "replace")


def test_log_probabilities_need_json(tiny_llama: Path) -> None:
    message = rlx("generate", tiny_llama, "hello", "--logprobs", "2", status=2).stderr
    assert message == "rlx: error: '--logprobs' are shown by '--json': give both, or leave them out\n"


def test_forms_of_text(tiny_llama: Path, tmp_path: Path) -> None:
    pytest.importorskip("llguidance")
    schema = '{"type": "object", "properties": {"n": {"enum": [12]}}, "required": ["n"], "additionalProperties": false}'
    (tmp_path / "schema.json").write_text(schema)
    (tmp_path / "grammar.lark").write_text('start: "ab" /[0-9]{2}/')
    for given in (schema, tmp_path / "schema.json"):
        found = generated(tiny_llama, "hello", "--json-schema", given, "--greedy", "--max-tokens", "50")
        assert json.loads(found["text"]) == {"n": 12}
        assert found["finish_reason"] == "stop"
    assert generated(tiny_llama, "hello", "--regex", "x?[0-9]{3}z", "--max-tokens", "9")["text"][-1] == "z"
    assert generated(tiny_llama, "hello", "--grammar", tmp_path / "grammar.lark")["text"].startswith("ab")


def test_forms_of_a_text_exclude_each_other(tiny_llama: Path) -> None:
    result = rlx("generate", tiny_llama, "hello", "--regex", "a", "--json-schema", "{}", *SMALL, status=2)
    assert "'--json-schema' and '--regex' say of what form the text is" in result.stderr


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--json-schema", "{'a'}"), "'--json-schema': byte 1: not JSON"),
        (("--json-schema", "none.json"), "none.json: "),
        (("--grammar", "none.lark"), "none.lark: "),
        (("--draft", "lookup", "--save-session", "s"), "'--draft' says nothing about a session"),
        (("--draft", "none"), "'none' is neither a file nor a known model"),
        (("--session", "none.session"), "none.session"),
        (("--repetition-penalty", "0"), "'repetition_penalty' must be above 0, but is 0.0"),
    ],
)
@pytest.mark.quick(3)
def test_wrong_requests(tiny_llama: Path, words: tuple[str, ...], text: str) -> None:
    result = rlx("generate", tiny_llama, "hello", *words, *SMALL, status=1)
    assert text in result.stderr
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""


@pytest.mark.wide
def test_drafts_give_the_same_text(tiny_llama: Path) -> None:
    words = (tiny_llama, "the cat sat on the cat sat on the", "--greedy", "--max-tokens", "24")
    plain = generated(*words)
    for draft in ("lookup", tiny_llama):
        found = generated(*words, "--draft", draft)
        assert found["ids"] == plain["ids"]
        assert found["stats"]["drafted_tokens"] >= found["stats"]["accepted_tokens"] > 0
    text = rlx("generate", *words, *SMALL, "--draft", tiny_llama, "--stats").stderr
    assert "drafted " in text
    assert " tokens, accepted " in text
    assert "drafted" not in rlx("generate", *words, *SMALL, "--stats").stderr


def test_a_session_goes_on(tiny_llama: Path, model: Model, tmp_path: Path) -> None:
    path = tmp_path / "talk.session"
    first = generated(tiny_llama, "hello", "--chat", "--seed", "1", "--max-tokens", "4", "--save-session", path)
    assert first["text"] == model.generate("hello", chat=True, seed=1, max_tokens=4).read()
    second = generated(
        tiny_llama, "world", "--chat", "--seed", "2", "--max-tokens", "4", "--session", path, "--save-session", path
    )
    talk = "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n"
    more = "<|im_end|>\n<|im_start|>user\nworld<|im_end|>\n<|im_start|>assistant\n"
    ids = [*model.tokenize(talk, special=True), *first["ids"], *model.tokenize(more, special=True)]
    assert second["prompt_tokens"] == len(ids)
    assert list(model.restore(path).tokens) == [*ids, *second["ids"]]
    plain = generated(tiny_llama, " the", "--greedy", "--max-tokens", "2", "--session", path)
    assert plain["prompt_tokens"] == len(ids) + len(second["ids"]) + 1
    result = rlx("generate", tiny_llama, "x", "--max-tokens", "1", *SMALL, "--save-session", path / "s", status=1)
    assert f"{path / 's'} cannot be written: " in result.stderr


# rlx batch --------------------------------------------------------------------------------------------

LINES = [
    {"prompt": "hello", "id": "a"},
    {"prompt": "the cat", "id": 7, "max_tokens": 3, "logprobs": 1},
    {"messages": [{"role": "user", "content": "hello"}], "seed": 40},
    {"prompt": [10, 11, 12], "greedy": True, "logit_bias": {"50": 100}, "max_tokens": 2},
    {"prompt": "one two", "chat": True, "id": "\u00e4"},
]


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def write(path: Path, lines: list[Any]) -> Path:
    path.write_text("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines))
    return path


def run(model: Path, source: Path, output: Path, *words: object, status: int = 0) -> Any:
    options = ("--max-tokens", "5", "--seed", "1", "--top-k", "1", *SMALL)
    return rlx("batch", model, source, "-o", output, *options, *words, status=status)


def test_lines_are_those_of_each_prompt_alone(tiny_llama: Path, model: Model, tmp_path: Path) -> None:
    source, output = write(tmp_path / "in.jsonl", ["", *LINES]), tmp_path / "out.jsonl"
    summary = json.loads(run(tiny_llama, source, output, "--json", "--sequences", "3").stdout)
    assert (summary["lines"], summary["failed"], summary["resumed"]) == (5, 0, 0)
    found = lines_of(output)
    assert [row["line"] for row in found] == [2, 3, 4, 5, 6]
    assert [row.get("id") for row in found] == ["a", 7, None, None, "\u00e4"]
    common: dict[str, Any] = {"max_tokens": 5, "top_k": 1}
    for index, (row, line) in enumerate(zip(found, LINES, strict=True)):
        asked = {name: value for name, value in line.items() if name not in ("id", "prompt", "messages")}
        if "logit_bias" in asked:
            asked["logit_bias"] = {50: 100}
        prompt: Any = line.get("prompt", line.get("messages"))
        alone = model.generate(prompt, **{**common, "seed": 1 + index, **asked})
        assert row["text"] == alone.read()
        assert row["finish_reason"] == alone.finish_reason
        assert row["prompt_tokens"] == len(alone.prompt_ids)
        assert row["generated_tokens"] == len(alone.ids)
        assert len(row.get("logprobs", [])) == (3 if index == 1 else 0)
    assert summary["generated_tokens"] == sum(row["generated_tokens"] for row in found)
    assert found[3]["text"] == model.detokenize([50, 50])


def test_lines_that_fail_have_an_error_and_the_others_go_on(tiny_llama: Path, tmp_path: Path) -> None:
    wrong = [
        ("{bad", "line 1: byte 1: not JSON"),
        ([1, 2], "line 2: must be an object, but is [1, 2]"),
        ({"prompt": 5}, "line 3: a prompt is text, a list of messages or token ids, but got int"),
        ({"prompt": "a", "max_token": 3}, "line 4: there is no option 'max_token' (did you mean 'max_tokens'?)"),
        ({"prompt": "a", "messages": []}, "line 5: must have 'prompt' or 'messages', and not both"),
        ({"id": 5}, "line 6: must have 'prompt' or 'messages', and not both, but has id"),
        ({"prompt": "a " * 80, "id": 3}, "line 7: the prompt has "),
        ({"messages": [5]}, "line 8: 'messages' must be objects with 'role' and 'content', but is [5]"),
        ({"messages": [{"content": "a"}]}, "line 9: message 0 must be a mapping with a 'role'"),
        ({"prompt": "a", "temperature": "x"}, "line 10: 'temperature' "),
        ({"prompt": "a", "logits_processors": []}, "line 11: there is no option 'logits_processors'"),
        ({"prompt": "a", "logit_bias": {"x": 1}}, "line 12: 'an id of logit_bias' is a whole number"),
    ]
    source = write(tmp_path / "in.jsonl", [*(line for line, _ in wrong), {"prompt": "hello"}])
    result = run(tiny_llama, source, tmp_path / "out.jsonl", status=1)
    assert "13 lines, 12 failed; 5 tokens in " in result.stdout
    assert "rlx: line 1: byte 1" in result.stderr
    assert "rlx: 2 more lines failed: " in result.stderr
    found = lines_of(tmp_path / "out.jsonl")
    for row, (_, text) in zip(found, wrong, strict=False):
        assert row["error"].startswith(text)
        assert "text" not in row
    assert found[6]["id"] == 3
    assert found[12]["generated_tokens"] == 5


def test_an_interrupted_run_goes_on_where_it_stopped(
    tiny_llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write(tmp_path / "in.jsonl", [*LINES, {"prompt": 5}])
    whole, output = tmp_path / "whole.jsonl", tmp_path / "out.jsonl"
    run(tiny_llama, source, whole, status=1)
    expected = [(row["line"], row.get("text")) for row in lines_of(whole)]
    steps: list[int] = []
    step = Engine.step

    def interrupted(self: Engine, until: Any = None) -> bool:
        steps.append(1)
        if len(steps) == 9:
            raise KeyboardInterrupt
        return step(self, until)

    with monkeypatch.context() as patch:
        patch.setattr(Engine, "step", interrupted)
        assert "interrupted" in run(tiny_llama, source, output, "--sequences", "2", status=130).stderr
    before = output.read_bytes()
    assert 0 < len(lines_of(output)) < 6
    output.write_bytes(before + b'{"line": 6, "te')  # killed while it was written
    assert "is there already: '--resume' goes on" in run(tiny_llama, source, output, status=1).stderr
    steps.clear()
    summary = json.loads(run(tiny_llama, source, output, "--resume", "--json", status=1).stdout)
    assert summary["resumed"] == before.count(b"\n")
    assert output.read_bytes().startswith(before)
    assert [(row["line"], row.get("text")) for row in lines_of(output)] == expected
    again = json.loads(run(tiny_llama, source, output, "--resume", "--json", status=1).stdout)
    assert (again["resumed"], again["failed"], again["generated_tokens"]) == (6, 1, 0)


def test_outputs_of_others_are_not_gone_on_with(tiny_llama: Path, tmp_path: Path) -> None:
    source, output = write(tmp_path / "in.jsonl", LINES), tmp_path / "out.jsonl"
    for line, text in (
        ({"line": 1, "id": "b"}, "line 1 must be of a line of "),
        ({"line": 9}, "line 1 must be of a line of "),
        ([1], "line 1 must be of a line of "),
        ("{", "line 1: byte 1"),
    ):
        write(output, [line])
        before = output.read_bytes()
        assert text in run(tiny_llama, source, output, "--resume", status=1).stderr
        assert output.read_bytes() == before
    assert "is the input: its lines would be lost" in run(tiny_llama, source, source, "--resume", status=2).stderr
    assert "cannot be written: Not a directory" in run(tiny_llama, source, source / "out", status=1).stderr
    message = run(tiny_llama, write(tmp_path / "empty", [""]), tmp_path / "other", status=1).stderr
    assert "the file must have a prompt in a line at least, but has none" in message


def test_lines_come_as_they_are_done(tiny_llama: Path, tmp_path: Path) -> None:
    lines = [{"prompt": "hello", "max_tokens": count, "ignore_eos": True} for count in (9, 1, 5)]
    source = write(tmp_path / "in.jsonl", lines)
    run(tiny_llama, source, tmp_path / "ordered.jsonl")
    run(tiny_llama, source, tmp_path / "done.jsonl", "--unordered")
    assert [row["line"] for row in lines_of(tmp_path / "ordered.jsonl")] == [1, 2, 3]
    assert [row["line"] for row in lines_of(tmp_path / "done.jsonl")] == [2, 3, 1]
    again = run(tiny_llama, source, tmp_path / "ordered.jsonl", "--resume")
    assert "3 lines, 3 of them before, 0 failed; 0 tokens" in again.stdout


def test_one_after_the_other_as_on_gpus(tiny_llama: Path, model: Model, tmp_path: Path) -> None:
    entries = batch._read(write(tmp_path / "in.jsonl", [*LINES, {"prompt": 5}]))
    common: dict[str, Any] = {"max_tokens": 4, "chat": False, "seed": None, "greedy": True}
    found = list(batch._one_by_one(model, entries, common))
    assert [row["line"] for row in found] == [1, 2, 3, 4, 5, 6]
    assert found[0]["text"] == model.generate("hello", max_tokens=4, greedy=True).read()
    assert "got int" in found[5]["error"]
