# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Where two models part: planted errors are named, and equal models have none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import folders
import numpy as np
import pytest
import tiny_models
from test_cli import rlx

from rlx_mlir.errors import InputError
from rlx_mlir.finetuning import compare_layers
from rlx_mlir.frontends.gguf import GGUFFile, write_gguf
from rlx_mlir.frontends.huggingface import HuggingFaceFolder
from rlx_mlir.frontends.model_file import ModelFile

IDS = [int(i) for i in np.random.default_rng(3).integers(3, 300, 24)]


def first(file: ModelFile, other: ModelFile, **options: Any) -> str | None:
    found = compare_layers(file, other, IDS, **options).first
    return None if found is None else found.name


def test_a_rotation_with_another_base_is_named(tiny_llama: Path, tmp_path: Path) -> None:
    wrong = tiny_models.write(tmp_path / "m.gguf", {"rope__freq_base": 500000.0})
    found = compare_layers(GGUFFile(wrong), GGUFFile(tiny_llama), IDS)
    assert found.first is not None
    assert found.first.name == "blk.0.attn_q_rope"
    before = [part.error for part in found.parts[: found.parts.index(found.first)]]
    assert before == [0] * len(before)
    names = [part.name for part in found.parts]
    within = ("attn_norm", "attn_q", "attn_k", "attn_v", "attn_q_rope")
    assert names[:6] == ["token_embd", *(f"blk.0.{part}" for part in within)]
    assert names[-2:] == ["blk.1", "output_norm"]


@pytest.mark.parametrize(("name", "wanted"), [("blk.1.ffn_norm", "blk.1.ffn_norm"), ("blk.0.attn_norm",) * 2])
def test_a_norm_with_another_weight_is_named(tmp_path: Path, name: str, wanted: str) -> None:
    tensors = tiny_models.tensors()
    right = write_gguf(tmp_path / "a.gguf", tiny_models.metadata(), tensors)
    tensors[f"{name}.weight"] = tensors[f"{name}.weight"] + np.float32(1)
    wrong = write_gguf(tmp_path / "b.gguf", tiny_models.metadata(), tensors)
    assert first(GGUFFile(wrong), GGUFFile(right)) == wanted
    assert first(GGUFFile(wrong), GGUFFile(right), tolerance=100) is None


@pytest.mark.parametrize(
    "architecture",
    [
        "llama",
        "gpt-oss",
        *(pytest.param(kind, marks=pytest.mark.wide) for kind in ("gemma3", "qwen3moe", "phi3", "olmo2")),
    ],
)
def test_a_folder_and_a_file_of_the_same_weights_have_the_same_parts(tmp_path: Path, architecture: str) -> None:
    """Whichever order the rows of queries and keys have."""
    folder, path = folders.write_both(tmp_path, architecture)
    found = compare_layers(HuggingFaceFolder(folder), GGUFFile(path), IDS, tolerance=1e-4)
    assert found.first is None
    assert found.tokens == len(IDS)
    blocks = [part.name for part in found.parts if part.is_block]
    layers = tiny_models.SIZES[architecture].get("block_count", 2)
    assert blocks == ["token_embd", *(f"blk.{layer}" for layer in range(layers)), "output_norm"]


def test_numbers_that_are_none_are_no_equality(tmp_path: Path) -> None:
    tensors = tiny_models.tensors()
    right = write_gguf(tmp_path / "a.gguf", tiny_models.metadata(), tensors)
    tensors["blk.1.ffn_norm.weight"] = np.full(64, np.nan, np.float32)
    wrong = write_gguf(tmp_path / "b.gguf", tiny_models.metadata(), tensors)
    assert first(GGUFFile(wrong), GGUFFile(right), tolerance=1e30) == "blk.1.ffn_norm"


def test_what_cannot_be_compared(tiny_llama: Path, tmp_path: Path) -> None:
    file = GGUFFile(tiny_llama)
    other = GGUFFile(tiny_models.write(tmp_path / "m.gguf", {"block_count": 1}, layers=1))
    with pytest.raises(InputError, match="layers are compared one by one, but 'layers' is 2 here and 1 there"):
        compare_layers(file, other, IDS)
    with pytest.raises(InputError, match=r"'ids' are tokens from 0 to 299, one at least"):
        compare_layers(file, file, [])
    with pytest.raises(InputError, match=r"'ids' are tokens from 0 to 299"):
        compare_layers(file, file, [300])
    with pytest.raises(InputError, match="'tolerance' must be above 0, but is 0"):
        compare_layers(file, file, IDS, tolerance=0)


def test_the_command(tiny_llama: Path, tmp_path: Path) -> None:
    wrong = tiny_models.write(tmp_path / "m.gguf", {"rope__freq_base": 500000.0})
    text = tmp_path / "text.txt"
    text.write_text("the cat sat on the mat hello world one two")
    common = ("eval", wrong, text, "--context", 64, "--activations", "exact")
    lines = rlx(*common, "--against", tiny_llama, "--layers").stdout.splitlines()
    assert lines[-1].startswith("the first part that differs by more than 0.05 is blk.0.attn_q_rope: ")
    found = json.loads(rlx(*common, "--against", tiny_llama, "--layers", "--tolerance", 50, "--json").stdout)
    assert found["layers"]["first"] is None
    assert {"name", "error"} == set(found["layers"]["parts"][0])
    assert "'--layers' compares the layers of two models" in rlx(*common, "--layers", status=2).stderr
