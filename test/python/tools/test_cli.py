# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The command `rlx`: what its commands print, where, and with which status."""

from __future__ import annotations

import enum
import json
import os
import random
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import seeds
import tiny_encoders
import tiny_models
import typer
from interpreted import compile_interpreted
from typer.testing import CliRunner

from rlx_mlir.frontends.gguf import write_gguf
from rlx_mlir.models import compiling, hub
from rlx_mlir.runtime.artifact import Artifact
from rlx_mlir.tools.cli import app


def rlx(*arguments: object, status: int = 0, stdin: str | None = None) -> Any:
    """Runs a command; checks its status, and that no traceback is shown."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], input=stdin)
    assert result.exit_code == status, (result.output, result.exception)
    assert "Traceback" not in result.output
    return result


@pytest.fixture(autouse=True)
def _no_debugging(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLX_DEBUG", "")
    monkeypatch.setenv("NO_COLOR", "1")


COMMANDS = ("generate", "embed", "inspect", "compile", "emit", "models", "cache")


def test_help_lists_the_commands() -> None:
    text = rlx("--help").stdout
    for command in COMMANDS:
        assert command in text


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.quick(5)
def test_every_command_shows_examples(command: str) -> None:
    text = rlx(command, "--help").stdout
    assert "Examples" in text
    assert f"rlx {command} " in text or f"rlx {command}\n" in text


def test_no_command_shows_help() -> None:
    result = CliRunner().invoke(app, [])
    assert "Usage" in result.output


def test_version() -> None:
    assert rlx("--version").stdout.startswith("rlx ")


def test_wrong_usage_is_status_2() -> None:
    rlx("generate", status=2)
    rlx("generate", "m.gguf", "x", "--max-tokens", "0", status=2)
    rlx("emit", "m.gguf", "--stage", "wasm", status=2)


@pytest.mark.usefixtures("interpreted")
def test_generate_prints_text(tiny_llama: Path) -> None:
    first = rlx("generate", tiny_llama, "hello", "--greedy", "--max-tokens", "5")
    assert first.stderr == ""
    assert len(first.stdout) > 1
    assert rlx("generate", tiny_llama, "-", "--greedy", "--max-tokens", "5", stdin="hello").stdout == first.stdout


@pytest.mark.usefixtures("interpreted")
def test_generate_json(tiny_llama: Path) -> None:
    found = json.loads(rlx("generate", tiny_llama, "hello", "--greedy", "--max-tokens", "5", "--json").stdout)
    assert set(found) == {"text", "ids", "prompt_tokens", "finish_reason", "stats", "threads"}
    assert len(found["ids"]) == found["stats"]["generated_tokens"] == 5
    assert found["finish_reason"] == "length"
    plain = rlx("generate", tiny_llama, "hello", "--greedy", "--max-tokens", "5").stdout
    assert plain == found["text"] + "\n"


@pytest.mark.usefixtures("interpreted")
def test_generate_stats_go_to_stderr(tiny_llama: Path) -> None:
    result = rlx("generate", tiny_llama, "hello", "--greedy", "--max-tokens", "5", "--stats")
    assert "generated 5 tokens" in result.stderr
    assert "generated" not in result.stdout


@pytest.mark.usefixtures("interpreted")
def test_generate_options_reach_the_model(tiny_llama: Path) -> None:
    options = ("--temperature", "3", "--top-k", "0", "--top-p", "1", "--max-tokens", "8")
    texts = [rlx("generate", tiny_llama, "a", "--seed", seed, *options).stdout for seed in (1, 1, 2)]
    assert texts[0] == texts[1] != texts[2]
    chat = json.loads(rlx("generate", tiny_llama, "a", "--chat", "--json", "--greedy", "--max-tokens", "1").stdout)
    assert chat["prompt_tokens"] > 10


@pytest.mark.usefixtures("interpreted")
def test_prompts_beyond_the_context(tiny_llama: Path) -> None:
    result = rlx("generate", tiny_llama, "hello hello hello", "--context", "2", status=1)
    assert result.stderr.startswith("rlx: error: the prompt has ")
    assert "the context has 2 positions" in result.stderr
    assert result.stdout == ""


def test_errors_are_one_line_on_stderr(tmp_path: Path) -> None:
    result = rlx("generate", tmp_path / "no.gguf", "x", status=1)
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    assert result.stderr.startswith(f"rlx: error: '{tmp_path}/no.gguf' is neither a file nor a known model")
    bad = tmp_path / "bad.gguf"
    bad.write_bytes(b"not a model at all, but long enough")
    assert "not a GGUF file" in rlx("inspect", bad, status=1).stderr


def test_debug_lets_errors_through(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["--debug", "inspect", str(tmp_path / "no.gguf")])
    assert result.exit_code == 1
    assert "neither a file" in str(result.exception)


def test_inspect(tiny_llama: Path) -> None:
    text = rlx("inspect", tiny_llama).stdout
    assert "architecture  llama" in text
    assert "parameters    80,960 in 20 tensors" in text
    assert "context       256" in text
    assert "runs          yes" in text
    lines = {line.split()[0]: line.split()[1:] for line in text.splitlines() if line}
    assert lines["q8_0"][:2] == ["3", "31,488"]
    assert sum(float(lines[kind][-1]) for kind in ("q8_0", "q4_1", "f32")) == pytest.approx(100, abs=0.02)


def test_inspect_json(tiny_llama: Path) -> None:
    found = json.loads(rlx("inspect", tiny_llama, "--json", "--tensors").stdout)
    assert found["parameters"] == 80_960
    assert found["config"]["heads"] == 4
    assert {row["type"]: row["tensors"] for row in found["types"]} == {"q4_1": 10, "q8_0": 3, "f32": 7}
    assert sum(row["bytes"] for row in found["types"]) == found["tensor_bytes"]
    row = next(row for row in found["tensor_list"] if row["name"] == "blk.0.attn_q.weight")
    assert row == {"name": "blk.0.attn_q.weight", "shape": [64, 64], "type": "q4_1", "bytes": 2560}


def test_inspect_tensors(tiny_llama: Path) -> None:
    assert "blk.1.ffn_down.weight" in rlx("inspect", tiny_llama, "--tensors").stdout
    assert "blk.1.ffn_down.weight" not in rlx("inspect", tiny_llama).stdout


def test_inspect_of_what_does_not_run(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", {"general.architecture": "rwkv7"}, {"x": np.zeros((2, 4), np.float16)})
    text = rlx("inspect", path).stdout
    assert "runs          no: architecture 'rwkv7' is not supported" in text
    assert "f16" in text
    tensors = {**tiny_models.tensors(), "extra": np.zeros(4, np.float32)}
    path = write_gguf(tmp_path / "m.gguf", tiny_models.metadata(), tensors)
    assert json.loads(rlx("inspect", path, "--json").stdout)["runs"] is False


def test_embed(tmp_path: Path) -> None:
    config = tiny_encoders.BERT
    folder = tiny_encoders.write(tmp_path / "bert", config, tiny_encoders.tensors(config))
    found = json.loads(rlx("embed", folder, "the cat", "a mat", "--json").stdout)
    assert (found["width"], [row["text"] for row in found["texts"]]) == (24, ["the cat", "a mat"])
    lines = [
        [float(word) for word in line.split()]
        for line in rlx("embed", folder, "-", stdin="the cat\na mat\n").stdout.splitlines()
    ]
    assert np.array_equal(np.float32(lines), np.float32([row["vector"] for row in found["texts"]]))
    ids = [[2, *[tiny_encoders.WORDS.index(word) for word in text.split()], 3] for text in ("the cat", "a mat")]
    expected = [tiny_encoders.embed(config, tiny_encoders.tensors(config), own) for own in ids]
    np.testing.assert_allclose(lines, expected, atol=2e-5)
    assert "hir.linear" in rlx("emit", folder, "--stage", "hir").stdout
    assert "the file is missing" in rlx("embed", tmp_path, "x", status=1).stderr
    assert "known encoder" in rlx("embed", "nothing", "x", status=1).stderr


def test_models(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("RLX_CACHE_DIR", str(tmp_path))
    assert "smollm2" in rlx("models").stdout
    assert {row["name"] for row in json.loads(rlx("models", "--json").stdout)} == {"smollm2", "gemma3", "minilm"}
    wrong = hub.Checked("a", tmp_path / "f", "00", "11")
    for checked, status, text in (([], 0, ""), ([wrong], 1, "WRONG: 11"), ([replace(wrong, found="00")], 0, "right")):
        monkeypatch.setattr(hub, "verify", lambda checked=checked: checked)
        assert text in rlx("models", "--verify", status=status).stdout
    assert json.loads(rlx("models", "--verify", "--json").stdout)[0]["right"] is True


def test_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("RLX_CACHE_DIR", str(tmp_path))
    assert rlx("cache").stdout.startswith(str(tmp_path))
    for folder in ("models", "compiled"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a").write_bytes(bytes(1000))
    other = tmp_path / "mine"
    other.write_text("not from rlx")
    assert json.loads(rlx("cache", "--json").stdout)["parts"]["compiled"] == {"files": 1, "bytes": 1000}
    assert json.loads(rlx("cache", "clear", "--json").stdout)["freed_bytes"] == 1000
    assert sorted(os.listdir(tmp_path)) == ["mine", "models"]  # fetching them again takes long
    assert json.loads(rlx("cache", "clear", "--models", "--json").stdout)["freed_bytes"] == 1000
    assert os.listdir(tmp_path) == ["mine"]


@pytest.mark.parametrize("function", ["prefill", "decode"])
def test_emit_blocks(tiny_llama: Path, tmp_path: Path, function: str) -> None:
    text = rlx("emit", tiny_llama, "--stage", "hir", "--function", function).stdout
    assert f"func.func @{function}(" in text
    assert "hir.llama_decoder_block" in text
    target = tmp_path / "out.mlir"
    assert rlx("emit", tiny_llama, "--stage", "hir", "--function", function, "-o", target).stdout == ""
    assert target.read_text() == text
    again = rlx("emit", target, "--stage", "mir").stdout
    assert "hir.llama_decoder_block" not in again
    assert "mir.rope" in again


@pytest.mark.parametrize(
    ("stage", "mark"),
    [("kernels", " call @"), ("lir", "mir.kernel = "), ("linalg", "linalg."), ("llvm", "define "), ("asm", ".globl")],
)
@pytest.mark.quick(1)
def test_emit_stages(tiny_llama: Path, stage: str, mark: str) -> None:
    assert mark in rlx("emit", tiny_llama, "--stage", stage, "--function", "decode").stdout


def test_compile(tiny_llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLX_CACHE_DIR", str(tmp_path / "cache"))
    target = tmp_path / "out"
    found = json.loads(rlx("compile", tiny_llama, "--context", "64", "-o", target, "--json").stdout)
    assert set(found["programs"]) == {"prefill", "decode"}
    assert all(row["kernels"] > 0 and row["code_bytes"] > 0 for row in found["programs"].values())
    loaded = Artifact.load(target / "decode.rlx")
    assert loaded.name == "decode"
    again = rlx("compile", tiny_llama, "--context", "64").stdout
    assert "prefill " in again
    # The folder is a model, too: what it was compiled with holds, and nothing is compiled again.
    monkeypatch.setattr(compiling, "compile_program", pytest.fail)
    by_folder = json.loads(rlx("generate", target, "hello", "--greedy", "--max-tokens", "6", "--json").stdout)
    monkeypatch.undo()
    monkeypatch.setenv("RLX_CACHE_DIR", str(tmp_path / "cache"))
    options = ("--greedy", "--max-tokens", "6", "--context", "64", "--json")
    assert json.loads(rlx("generate", tiny_llama, "hello", *options).stdout)["ids"] == by_folder["ids"]
    message = rlx("generate", target, "hello", "--context", "32", status=1).stderr
    assert "was compiled with 'context' 64, but 32 is asked for" in message
    (target / "decode.rlx").unlink()
    assert "decode.rlx: cannot be read: No such file" in rlx("generate", target, "hello", status=1).stderr
    assert len(list((tmp_path / "cache" / "compiled").iterdir())) == 2


def test_generate_by_compiled_code(tiny_llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLX_CACHE_DIR", str(tmp_path))
    options = ("--greedy", "--max-tokens", "6", "--context", "64", "--activations", "exact", "--json")
    compiled = json.loads(rlx("generate", tiny_llama, "hello", *options).stdout)
    monkeypatch.setattr(compiling, "compile_program", compile_interpreted)
    assert json.loads(rlx("generate", tiny_llama, "hello", *options).stdout)["ids"] == compiled["ids"]


@pytest.mark.parametrize("command", [("emit", "--stage", "hir"), ("draw",), ("export",)], ids=lambda c: str(c[0]))
def test_folders_of_outputs_are_made(tiny_llama: Path, tmp_path: Path, command: tuple[str, ...]) -> None:
    rlx(*command, tiny_llama, "-o", tmp_path / "new" / "folder" / "out")
    assert (tmp_path / "new" / "folder" / "out").stat().st_size
    (tmp_path / "file").write_text("")
    result = rlx(*command, tiny_llama, "-o", tmp_path / "file" / "out", status=1)
    assert "out cannot be written: Not a directory" in result.stderr


def test_importing_the_command_line_is_quick() -> None:
    """Nothing heavy is imported before a command needs it; MLIR and numpy least of all."""
    heavy = ["numpy", "mlir", "rich.progress", "jinja2"]
    code = f"import sys, rlx_mlir.tools.cli; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_full_disk_is_one_line() -> None:
    command = [sys.executable, "-m", "rlx_mlir.tools.cli", "cache"]
    with open("/dev/full", "w", encoding="utf-8") as full:
        result = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (result.returncode, result.stderr) == (
        1,
        "rlx: error: the output can't be written: No space left on device\n",
    )


def commands(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command below a group of them, with the words that call it."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name), command


def wrong_lines() -> Iterator[tuple[str, ...]]:
    """Command lines of which one word can't be, for every command and each of its options."""
    for path, command in commands(typer.main.get_command(app)):
        needed = [each for each in command.params if each.required]
        given = [word for each in needed for word in (*each.opts[-1:], "x") if each.param_type_name == "option"]
        given += ["x" for each in needed if each.param_type_name == "argument"]
        yield (*path, *given, "--no-such-option")
        if needed:
            yield path
        for option in command.params:
            kind = option.type_descriptor.annotation
            wrong = [str(limit) for limit in (_beyond(option.min, -1), _beyond(option.max, 1)) if limit is not None]
            if kind in (int, float) or (isinstance(kind, type) and issubclass(kind, enum.Enum)):
                wrong.append("no-such-value")
            for value in wrong if option.param_type_name == "option" else ():
                yield (*path, *given, option.opts[-1], value)


def _beyond(limit: float | None, step: int) -> float | None:
    return None if limit is None else limit + step


@pytest.mark.usefixtures("fresh_cache")
@pytest.mark.parametrize("count", [60, pytest.param(1000, marks=pytest.mark.slow)])
def test_wrong_command_lines_have_their_own_status(count: int) -> None:
    """README.md says what is which: 2 where the line is wrong, before any file is looked for; 1 where a file is."""
    lines = list(wrong_lines())
    assert len(lines) > 300
    if count < len(lines):
        lines = random.Random(seeds.seed()).sample(lines, count)
    found = {line: CliRunner().invoke(app, line) for line in lines}
    assert [line for line, result in found.items() if result.exit_code != 2] == []
    assert [line for line, result in found.items() if "Traceback" in result.output] == []


@pytest.mark.parametrize(
    ("line", "status", "text"),
    [
        ("finetune x y -o z --resume", 2, "'--resume' goes on from a file: '--checkpoint' names it"),
        ("generate x y --kv-cache q9", 2, "'--kv-cache': 'kv_dtype' must be one of f32, "),
        ("generate x y --logprobs 2", 2, "'--logprobs' are shown by '--json'"),
        ("bench --shape 7b-q4_0 --model smollm2", 2, "'--shape' makes a model, so '--model' can't name one"),
        ("quantize x.gguf", 2, "'--output' names the new file"),
        ("inspect no-such.gguf", 1, "no-such.gguf"),
        ("emit no-such.mlir", 1, "no-such.mlir"),
        ("calibrate no-such.mlir x.npz", 1, "no-such.mlir: no such file"),
        ("artifact show no-such.rlx", 1, "no-such.rlx can't be read: No such file or directory"),
    ],
)
def test_statuses_of_errors(line: str, status: int, text: str) -> None:
    stderr = rlx(*line.split(), status=status).stderr
    assert stderr.startswith("rlx: error: ")
    assert text in stderr
    assert stderr.count("\n") == 1


def test_errors_of_files_are_one_line_without_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "m.mlir").write_text("func.func @f() { return }", encoding="utf-8")
    for name, reason in (("none.npz", "No such file or directory"), (".", "Is a directory")):
        result = rlx("calibrate", tmp_path / "m.mlir", tmp_path / name, status=1)
        assert result.stderr == f"rlx: error: {tmp_path / name} cannot be read as a .npz file: {reason}\n"
    monkeypatch.setattr(hub, "resolve", lambda *_, **__: (tmp_path / "gone").read_bytes())  # what nobody foresaw
    assert rlx("models", status=1).stderr == f"rlx: error: {tmp_path / 'gone'}: No such file or directory\n"


@pytest.mark.parametrize("tool", ["reduce", "filecheck"])
def test_a_full_disk_under_tools_of_llvm(tmp_path: Path, tool: str) -> None:
    (tmp_path / "m.mlir").write_text("func.func private @f()", encoding="utf-8")
    (tmp_path / "test.sh").write_text("#!/bin/sh\nexit 1\n", encoding="utf-8")
    (tmp_path / "test.sh").chmod(0o700)
    arguments = {
        "reduce": [str(tmp_path / "m.mlir"), f"--rlx-reduce-graph=test={tmp_path / 'test.sh'}", "-o", "/dev/full"],
        "filecheck": ["--help"],
    }[tool]
    command = [sys.executable, "-m", f"rlx_mlir.tools.{tool}", *arguments]
    with open("/dev/full", "w", encoding="utf-8") as full:
        result = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert result.returncode == 1
    assert re.fullmatch(rf"rlx-{tool}: error: [^\n]*: No space left on device\n", result.stderr)


@pytest.mark.parametrize("arguments", [(), ("-o", "/dev/full")], ids=["stdout", "file"])
def test_a_full_disk_under_rlx_opt(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    (tmp_path / "m.mlir").write_text("func.func private @f()", encoding="utf-8")
    command = [sys.executable, "-m", "rlx_mlir.tools.opt", str(tmp_path / "m.mlir"), *arguments]
    with open("/dev/full", "w", encoding="utf-8") as full:
        result = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    name = "/dev/full" if arguments else "-"
    assert result.returncode == 1
    assert result.stderr == f"{name}: error: the output can't be written: No space left on device\n"


def test_docstrings_may_be_dropped(tmp_path: Path) -> None:
    """`python -OO` has none: passes and operations are there all the same."""
    kind = "tensor<2xf32>"
    text = f"func.func @f(%x: {kind}) -> {kind} {{\n%0 = mir.neg %x : {kind}\nreturn %0 : {kind}\n}}"
    (tmp_path / "m.mlir").write_text(text, encoding="utf-8")
    command = [sys.executable, "-OO", "-m", "rlx_mlir.tools.cli", "emit", str(tmp_path / "m.mlir"), "--stage", "lir"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert "neg" in result.stdout
