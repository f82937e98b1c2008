# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The commands `rlx finetune`, `rlx merge-lora` and `rlx eval`, one after the other as people use them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import tiny_models
from safetensors.numpy import load_file
from test_cli import rlx

from rlx_mlir.frontends.gguf import GGUFFile
from rlx_mlir.tools.finetune import _base_of, _steps_of

LINES = [
    {"messages": [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "the cat sat"}]},
    {"messages": [{"role": "user", "content": "one"}, {"role": "assistant", "content": "two"}]},
    {"prompt": "on the", "completion": " mat"},
    {"text": "hello world"},
]
OPTIONS = ("--lora", 4, "--targets", "all", "--lr", 0.03, "--batch", 2, "--length", 32, "--seed", 1)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "data.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in LINES))
    return path


@pytest.fixture(scope="module")
def tuned(tiny_llama: Path, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an adapter that knows the data by heart."""
    folder = tmp_path_factory.mktemp("tuned") / "adapter"
    result = rlx("finetune", tiny_llama, data, "-o", folder, *OPTIONS, "--steps", 80, "--eval", data)
    assert "4 rows of 32 tokens, 18 tokens of answers" in result.stdout
    assert "80 of 80 steps in " in result.stdout
    assert "tokens/s, peak memory " in result.stdout
    assert f"adapter in {folder}" in result.stdout
    assert "step 80 of 80: loss 0." in result.stderr
    return folder


@pytest.mark.wide
@pytest.mark.usefixtures("interpreted")
def test_an_adapter_answers_as_it_was_taught(tiny_llama: Path, tuned: Path) -> None:
    question = ("generate", tiny_llama, "hello", "--chat", "--greedy", "--max-tokens", 12, "--activations", "exact")
    assert rlx(*question, "--lora", tuned).stdout == "the cat sat\n"
    assert rlx(*question).stdout != "the cat sat\n"


@pytest.mark.usefixtures("interpreted")
@pytest.mark.wide
def test_merged_files_are_the_model_with_the_adapter(tiny_llama: Path, tuned: Path, tmp_path: Path) -> None:
    merged = tmp_path / "merged.gguf"
    result = rlx("merge-lora", tiny_llama, tuned, "-o", merged, "--type", "f16")
    assert "14 weights changed, of f16; rounding them is 0.00 times as large as the change" in result.stdout
    found = json.loads(rlx("merge-lora", tiny_llama, tuned, "-o", merged, "--type", "q8_0", "--json").stdout)
    assert {own["type"] for own in found["weights"]} == {"q8_0"}
    text = tmp_path / "text.txt"
    text.write_text("the cat sat on the mat")
    way = ("--activations", "exact", "--context", 64)
    other = ("--against", tiny_llama, "--against-lora", tuned)
    compared = json.loads(rlx("eval", merged, text, *way, *other, "--json", "--per-token").stdout)
    assert compared["tokens"] == len(compared["per_token"]) == 7
    assert compared["divergence"]["mean"] == pytest.approx(
        np.mean([row["divergence"] for row in compared["per_token"]])
    )
    assert 0 < compared["divergence"]["mean"] < 0.05
    assert compared["loss"] == pytest.approx(np.mean([row["loss"] for row in compared["per_token"]]))
    plain = rlx("eval", tiny_llama, text, *way, "--lora", tuned, "--per-token").stdout.splitlines()
    assert len(plain) == 8
    assert plain[-1].startswith("7 tokens: perplexity ")
    assert plain[4].endswith("  ' on'")
    both = rlx("eval", tiny_llama, "-", "--context", 64, "--against-activations", "exact", stdin="the cat").stdout
    assert "divergence: mean " in both


def test_runs_go_on(tiny_llama: Path, data: Path, tmp_path: Path) -> None:
    """With the same adapter as a run without a break."""
    options = (*OPTIONS, "--steps", 24)
    point = ("--checkpoint", tmp_path / "run.safetensors", "--save-every", 10)
    whole = json.loads(rlx("finetune", tiny_llama, data, "-o", tmp_path / "a", *options, *point, "--json").stdout)
    assert [step["number"] for step in whole["steps"]] == list(range(1, 25))
    assert whole["held_out_loss"] == {"before": None, "after": None}
    assert whole["settings"]["alpha"] == 8.0
    resumed = rlx("finetune", tiny_llama, data, "-o", tmp_path / "b", *options, *point, "--resume", "--json")
    assert json.loads(resumed.stdout)["steps"] == []
    first, second = (load_file(tmp_path / name / "adapter_model.safetensors") for name in "ab")
    assert first.keys() == second.keys()
    assert all(np.array_equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize(
    ("options", "text", "status"),
    [
        (("--resume",), "'--resume' goes on from a file: '--checkpoint' names it", 2),
        (("--steps", 2, "--epochs", 2), "'--steps' and '--epochs' say the same", 2),
        (("--epochs", 0), "'--epochs' must be a positive number, but is 0", 2),
        (("--length", 300), "'--length' must be at most the model's context, 256, but is 300", 2),
        (("--targets", "x"), "targets are q, k, v, o, gate, up, down or all", 2),
        (("--eval", "1.5"), "'--eval' is a file, or a part of the data between 0 and 1, but got 1.5", 2),
        (("--eval", "0.01"), "'--eval' 0.01 of 4 examples leaves nothing on one side", 2),
        (("--eval", "none.jsonl"), "none.jsonl: the file is missing", 1),
        (("--batch", 8), "a step takes 8 entries, but there are 4 in the data set", 1),
        (("--lr", "inf"), "'rate' is a finite rate of at least 0", 1),
    ],
)
def test_wrong_options_are_said_before_anything_is_computed(
    tiny_llama: Path, data: Path, tmp_path: Path, options: tuple[object, ...], text: str, status: int
) -> None:
    result = rlx("finetune", tiny_llama, data, "-o", tmp_path / "adapter", *options, status=status)
    assert text in result.stderr
    assert not (tmp_path / "adapter").exists()


def test_a_folder_that_cannot_be_made_is_said_before_training(tiny_llama: Path, data: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = rlx("finetune", tiny_llama, data, "-o", tmp_path / "file", *OPTIONS, "--steps", 80, status=1)
    assert "file cannot be written: File exists" in result.stderr
    assert "step " not in result.stderr


def test_a_loss_that_rose_is_said(tiny_llama: Path, data: Path, tmp_path: Path) -> None:
    """The adapter is written and results are printed; the rows of the first step tell, since those of others differ."""
    options = ("-o", tmp_path / "adapter", *OPTIONS, "--seed", 0, "--warmup", 0, "--lr", 10, "--steps", 3)
    result = rlx("finetune", tiny_llama, data, *options, "--json", status=1)
    losses = json.loads(result.stdout)["first_rows_loss"]
    assert losses["after"] > losses["before"]
    text = f"rows rose from {losses['before']:.4f} to {losses['after']:.4f}: '--lr' 10 may be too large"
    assert result.stderr.splitlines()[-1].startswith("rlx: error: the loss must fall, but that of the first step's ")
    assert text in result.stderr
    assert (tmp_path / "adapter" / "adapter_model.safetensors").exists()


def test_wrong_data_is_said_with_its_line(tiny_llama: Path, tmp_path: Path) -> None:
    path = tmp_path / "wrong.jsonl"
    path.write_text('{"text": "a b c"}\n{"text": \n')
    result = rlx("finetune", tiny_llama, path, "-o", tmp_path / "adapter", status=1)
    assert result.stderr.startswith(f"rlx: error: {path}: line 2: ")


def test_epochs_leave_out_what_fills_no_step() -> None:
    assert _steps_of(None, 100, 8) == 36
    assert _steps_of(0.5, 100, 8) == 6
    assert _steps_of(0.01, 100, 8) == 1


def test_the_name_of_the_model_is_that_in_the_file(tmp_path: Path) -> None:
    path = tiny_models.write(tmp_path / "tiny.gguf")
    assert _base_of(GGUFFile(path)) is None
    values = {**tiny_models.metadata(), "general.base_model.0.repo_url": "https://huggingface.co/org/name"}
    from rlx_mlir.frontends.gguf import write_gguf

    write_gguf(path, values, tiny_models.tensors())
    assert _base_of(GGUFFile(path)) == "org/name"
