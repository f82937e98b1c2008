# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Folders of compiled programs: what says what they are of."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tiny_models

from rlx_mlir.budgets import budget
from rlx_mlir.errors import BudgetError, InputError, ModelFileError
from rlx_mlir.frontends.gguf import GGUFFile
from rlx_mlir.models import decoder
from rlx_mlir.models.compiled import MANIFEST, CompiledFolder, compiled_folder
from rlx_mlir.models.config import ModelConfig
from rlx_mlir.models.loading import load_model


@pytest.fixture
def folder(tmp_path: Path) -> CompiledFolder:
    path = tiny_models.write(tmp_path / "m.gguf")
    config = ModelConfig.from_gguf(GGUFFile(path))
    programs = {program: decoder.describe(config, program) for program in decoder.PROGRAMS}
    found = CompiledFolder(tmp_path, str(path), 64, 32, "exact", "cpu", programs)
    found.save()
    return found


def test_what_is_written_is_read(folder: CompiledFolder, tmp_path: Path) -> None:
    found = compiled_folder(tmp_path)
    assert found is not None
    assert (found.model, found.context, found.chunk, found.activations, found.device) == (
        str(tmp_path / "m.gguf"), 64, 32, "exact", "cpu",
    )  # fmt: skip
    found.check(ModelConfig.from_gguf(GGUFFile(found.model)))
    assert compiled_folder(tmp_path / "m.gguf") is None
    assert compiled_folder("smollm2") is None


def test_another_model_is_noticed(folder: CompiledFolder, tmp_path: Path) -> None:
    tiny_models.write(tmp_path / "m.gguf", types={"attn_q": "q4_0"})
    with pytest.raises(
        ModelFileError, match=r"model\.json: 'prefill' was compiled for another model than '.*m\.gguf' is"
    ):
        load_model(tmp_path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"context": 32}, "'context' 64, but 32 is asked for"),
        ({"chunk": 16}, "'chunk' 32, but 16 is asked for"),
        ({"target": "cuda"}, "'device' 'cpu', but 'cuda' is asked for"),
    ],
)
def test_other_options_are_noticed(
    folder: CompiledFolder, tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=f"was compiled with {message}"):
        load_model(tmp_path, **options)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[" * 100_000, "cannot be read"),
        ("{", "cannot be read"),
        ("\udcff", "cannot be read"),
        ("[]", "must be an object of version 1"),
        ('{"version": 2}', "must be an object of version 1"),
        ('{"version": 1}', "'model' must be a str, but is None"),
        ('{"version": 1, "model": "m.gguf", "context": true}', "'context' must be a int, but is True"),
    ],
)
def test_malformed_files_are_named(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / MANIFEST).write_text(text, errors="surrogateescape")
    with pytest.raises(ModelFileError, match=rf"model\.json: {message}"):
        load_model(tmp_path)


def test_its_size_has_a_budget(folder: CompiledFolder, tmp_path: Path) -> None:
    with budget(json_bytes=100), pytest.raises(BudgetError, match=r"model\.json needs .*'json_bytes'"):
        load_model(tmp_path)


def test_the_file_is_plain_data(folder: CompiledFolder, tmp_path: Path) -> None:
    found = json.loads((tmp_path / MANIFEST).read_text())
    assert found["version"] == 1
    assert set(found["programs"]) == set(decoder.PROGRAMS)
